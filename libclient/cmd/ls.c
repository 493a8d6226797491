/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "party.h"
#include "table.h"

static const char help[] =
"Usage: dlock ls [--json|--names] [SPACE]\n\n"
"Lists the names that processes on this node have open, of all spaces or of one, each with who holds\n"
"it and who waits for it, in order.\n\n"
"  -j, --json    one JSON object a line for each name\n"
"  -n, --names   only the names, one a line\n"
"  -h, --help\n";

static void show_names(struct json_object *names)
{
	for (size_t i = 0; i < json_object_array_length(names); i++) {
		struct json_object *name = json_object_array_get_idx(names, i);
		char *shown = clean(field_text(name, "name"));

		printf("%s/%s\n", field_text(name, "space"), shown);
		free(shown);
	}
}

static void show_json(struct json_object *names)
{
	for (size_t i = 0; i < json_object_array_length(names); i++)
		print_json_line(json_object_array_get_idx(names, i));
}

static void show_table(struct table *t, struct json_object *names)
{
	for (size_t i = 0; i < json_object_array_length(names); i++)
		party_table_add(t, json_object_array_get_idx(names, i));
}

static int list(struct client *c, const struct options *o, struct table *t)
{
	struct json_object *answer, *names;
	bool continues = true;
	int r;

	/* A reader that has gone ends it: nobody wants the rest of a million names. */
	while (continues && !ferror(stdout)) {
		r = client_answer(c, &answer, &continues);
		if (r != 0)
			return r;
		names = field(answer, "names");
		if (!json_object_is_type(names, json_type_array))
			continues = false;
		else if (o->json)
			show_json(names);
		else if (o->names)
			show_names(names);
		else
			show_table(t, names);
		json_object_put(answer);
	}
	return 0;
}

int cmd_ls(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help, .operands_max = 1, .accept_names = true };
	struct json_object *parameters = NULL;
	struct options o;
	struct client c;
	struct table t;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	if (o.operand) {
		parameters = json_object_new_object();
		json_object_object_add(parameters, "space", json_object_new_string(o.operand));
	}
	party_table_init(&t);
	r = client_open(&c);
	if (r == 0)
		r = client_call(&c, "io.dlock.ListNames", parameters, true);
	else
		json_object_put(parameters);
	if (r == 0)
		r = list(&c, &o, &t);
	if (r == 0 && !o.json && !o.names && isatty(STDOUT_FILENO) && !t.headed && t.n_rows == 0)
		fputs("dlock: no names are open\n", stderr);
	table_done(&t);
	client_close(&c);
	return r ? r : print_done();
}
