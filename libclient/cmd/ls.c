/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "party.h"
#include "stored.h"
#include "table.h"

static const char help[] =
"Usage: dlock ls [--json|--names] [--open] [SPACE]\n\n"
"Lists the names that processes on this node have open, of all spaces or of one, each with who holds\n"
"it and who waits for it, in order; then what lies in the store besides: latches, free semaphores, values.\n\n"
"  -j, --json    one JSON object a line for each name\n"
"  -n, --names   only the names, one a line\n"
"  -o, --open    only those that are open; the store is not asked\n"
"  -h, --help\n";

struct listing {
	const struct options *o;
	struct table t;
	struct json_object *open;        /* of the kinds that lie in the store too: those that have been shown */
	size_t n;
};

static void show(struct listing *l, struct json_object *name)
{
	char *shown;

	l->n++;
	if (l->o->json) {
		print_json_line(name);
	} else if (l->o->names) {
		shown = clean(field_text(name, "name"));
		printf("%s/%s\n", field_text(name, "space"), shown);
		free(shown);
	} else {
		party_table_add(&l->t, name);
	}
}

/* --- what is open --- */

static const char *known_by(struct json_object *name, char ret[400])
{
	snprintf(ret, 400, "%s %s/%s", field_text(name, "kind"), field_text(name, "space"), field_text(name, "name"));
	return ret;
}

static void show_open(struct listing *l, struct json_object *name)
{
	char key[400];

	for (unsigned i = 0; stored_kinds[i]; i++)
		if (strcmp(stored_kinds[i], field_text(name, "kind")) == 0)
			json_object_object_add(l->open, known_by(name, key), NULL);
	show(l, name);
}

static int list(struct client *c, struct listing *l)
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
		continues &= json_object_is_type(names, json_type_array);
		for (size_t i = 0; json_object_is_type(names, json_type_array) && i < json_object_array_length(names); i++)
			show_open(l, json_object_array_get_idx(names, i));
		json_object_put(answer);
	}
	return 0;
}

/* --- what lies in the store --- */

static void show_stored(void *arg, struct json_object *stored)
{
	struct listing *l = arg;
	char key[400];

	if (!json_object_object_get_ex(l->open, known_by(stored, key), NULL))
		show(l, stored);
}

static int list_space(struct listing *l, const char *space)
{
	int r = 0;

	for (unsigned i = 0; stored_kinds[i] && r == 0 && !ferror(stdout); i++)
		r = stored_each(space, stored_kinds[i], show_stored, l);
	return r;
}

static int list_stored(struct listing *l)
{
	struct json_object *status, *spaces;
	int r;

	if (l->o->operand)
		return list_space(l, l->o->operand);
	r = client_ask("io.dlock.GetStatus", NULL, &status);
	if (r != 0)
		return r;
	spaces = field(status, "spaces");
	for (size_t i = 0; r == 0 && json_object_is_type(spaces, json_type_array) && i < json_object_array_length(spaces); i++)
		r = list_space(l, field_text(json_object_array_get_idx(spaces, i), "name"));
	json_object_put(status);
	return r;
}

int cmd_ls(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help, .operands_max = 1, .accept_names = true };
	struct json_object *parameters = NULL;
	struct options o;
	struct listing l = { .o = &o };
	struct client c;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	if (o.operand) {
		parameters = json_object_new_object();
		json_object_object_add(parameters, "space", json_object_new_string(o.operand));
	}
	party_table_init(&l.t);
	l.open = json_object_new_object();
	r = client_open(&c);
	if (r == 0)
		r = client_call(&c, "io.dlock.ListNames", parameters, true);
	else
		json_object_put(parameters);
	if (r == 0)
		r = list(&c, &l);
	client_close(&c);
	if (r == 0 && !o.open)
		r = list_stored(&l);
	if (r == 0 && !l.n && !o.json && !o.names && isatty(STDOUT_FILENO))
		fputs(o.open ? "dlock: no names are open\n" : "dlock: no names are open, and nothing lies in the store\n", stderr);
	table_done(&l.t);
	json_object_put(l.open);
	return r ? r : print_done();
}
