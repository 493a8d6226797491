/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "nodes.h"
#include "party.h"
#include "proto/name.h"
#include "stored.h"
#include "table.h"

static const char help[] =
"Usage: dlock show [--json] [--kind KIND] NAME\n\n"
"Shows one name: SPACE/NAME, or NAME in the space default. What nobody on this node has open is shown as it lies in the store: a\n"
"latch, a free semaphore, a value. In a cluster also which nodes have it, and which wait for it: the node that grants it is asked.\n\n"
"  -k, --kind KIND  lock, semaphore, barrier, election, latch, condition, id, 'free semaphore' or 'double barrier',\n"
"                where names of several kinds are alike; or how it begins. A lock is shown before all others\n"
"  -j, --json    as one JSON object\n"
"  -h, --help\n";

static void said(const char *text)
{
	char *shown = clean(text);

	printf("The leader says: %s\n", shown);
	free(shown);
}

static void show(struct json_object *name)
{
	char *shown = clean(field_text(name, "name"));
	long long opens = field_number(name, "opens"), waiters = field_number(name, "waiterCount");
	struct table t;

	printf("%s%s/%s%s: %s, %s; open in %lld %s of this node", colour_on(COLOUR_BOLD), field_text(name, "space"),
	       shown, colour_off(COLOUR_BOLD), field_text(name, "kind"), field_text(name, "state"),
	       opens, opens == 1 ? "process" : "processes");
	free(shown);
	if (field(name, "limit"))
		printf("; %lld of %lld", field_number(name, "count"), field_number(name, "limit"));
	else if (strcmp(field_text(name, "kind"), "free semaphore") == 0 && field(name, "count"))
		printf("; value %lld", field_number(name, "count"));
	else if (field_number(name, "count") > 0)
		printf("; %lld in the whole cluster", field_number(name, "count"));
	if (field(name, "worker"))
		printf("; worker %lld", field_number(name, "worker"));
	if (field(name, "term"))
		printf("; led in term %lld", field_number(name, "term"));
	if (field(name, "token"))
		printf("; last token %lld", field_number(name, "token"));
	if (field(name, "master"))
		printf("; granted by %s", field_text(name, "master"));
	if (waiters > 0)
		printf("; %lld %s", waiters, waiters == 1 ? "waits" : "wait");
	putchar('\n');
	if (field(name, "says"))
		said(field_text(name, "says"));
	if (field(name, "delayLeftMs") && strcmp(field_text(name, "state"), "delayed"))
		printf("%sOne who had it died;%s by its lock-delay what it had counts as held for %lld ms.\n", colour_on(COLOUR_BAD), colour_off(COLOUR_BAD),
		       field_number(name, "delayLeftMs"));
	else if (field(name, "delayLeftMs"))
		printf("%sIts holder died;%s by its lock-delay nobody is granted it for %lld ms.\n", colour_on(COLOUR_BAD), colour_off(COLOUR_BAD),
		       field_number(name, "delayLeftMs"));
	else if (field(name, "delayMs"))
		printf("Lock-delay %lld ms, after a holder is lost.\n", field_number(name, "delayMs"));
	if (field_flag(name, "ownerDied"))
		printf("%sIts last owner died while holding it;%s a robust handle is told so (EOWNERDEAD).\n",
		       colour_on(COLOUR_BAD), colour_off(COLOUR_BAD));
	if (!field(name, "holder") && !field(name, "readers") && waiters == 0)
		return;
	putchar('\n');
	party_table_init(&t);
	party_table_add(&t, name);
	table_done(&t);
}

static void show_stored(struct json_object *stored)
{
	char *shown = clean(field_text(stored, "name"));

	printf("%s%s/%s%s: %s, stored; open in no process of this node", colour_on(COLOUR_BOLD), field_text(stored, "space"), shown,
	       colour_off(COLOUR_BOLD), field_text(stored, "kind"));
	free(shown);
	if (field(stored, "size"))
		printf("; %lld bytes, version %lld", field_number(stored, "size"), field_number(stored, "version"));
	else if (field(stored, "limit"))
		printf("; %lld of %lld", field_number(stored, "count"), field_number(stored, "limit"));
	else
		printf("; value %lld", field_number(stored, "count"));
	putchar('\n');
}

/* No process of this node has it open, but others' have. */
static void show_elsewhere(struct json_object *name)
{
	struct json_object *nodes = field(name, "cluster");
	char *shown = clean(field_text(name, "name"));

	printf("%s%s/%s%s: %s; open in no process of this node; granted by %s\n\n", colour_on(COLOUR_BOLD), field_text(name, "space"), shown,
	       colour_off(COLOUR_BOLD), field_text(name, "kind"), field_text(nodes, "master"));
	free(shown);
	nodes_print(nodes);
}

/* As ShowName shows it, as far as there is anything to show. Takes nodes over; NULL: the name cannot be one. */
static struct json_object *elsewhere(const char *full, const char *kind, struct json_object *nodes)
{
	char space[ATTACH_SPACE_MAX + 1], name[ATTACH_NAME_MAX + 1];
	struct json_object *o;

	if (!name_split(full, space, name)) {
		json_object_put(nodes);
		return NULL;
	}
	o = json_object_new_object();
	json_object_object_add(o, "space", json_object_new_string(space));
	json_object_object_add(o, "name", json_object_new_string(name));
	json_object_object_add(o, "kind", json_object_new_string(kind));
	json_object_object_add(o, "opens", json_object_new_int(0));
	json_object_object_add(o, "cluster", nodes);
	return o;
}

static int show_nowhere(const char *name, bool silent)
{
	char *shown = clean(name);

	fprintf(stderr, silent ? "dlock: the node that grants '%s' does not answer: whether others have it open is not known\n" :
		"dlock: nobody has a name '%s' open, and nothing that is called so lies in the store\n", shown);
	free(shown);
	return EX_NOINPUT;
}

/* Nobody here has it open: it may lie in the store, or be open on other nodes. */
static int show_left(const struct options *o, const char *kind)
{
	struct json_object *left, *nodes = NULL;
	const char *found;
	bool silent;
	int r = stored_find(o->operand, kind, &left);
	void (*print)(struct json_object *left) = show_stored;

	if (r == 0 && !left) {
		r = nodes_find(o->operand, kind, &nodes, &found, &silent);
		if (r == 0 && nodes)
			left = elsewhere(o->operand, found, nodes);
		if (r == 0 && !left)
			return show_nowhere(o->operand, silent);
		print = show_elsewhere;
	}
	if (r != 0)
		return r;
	if (o->json)
		print_json(left);
	else
		print(left);
	json_object_put(left);
	return print_done();
}

/* What the node that grants it knows. */
static int show_all(const struct options *o, struct json_object *name)
{
	struct json_object *nodes;
	bool silent;
	int r = nodes_ask(o->operand, field_text(name, "kind"), &nodes, &silent);

	if (r != 0)
		return r;
	if (o->json && nodes)
		json_object_object_add(name, "cluster", json_object_get(nodes));
	if (o->json)
		print_json(name);
	else if (silent)
		printf("\n%sThe node that grants it does not answer:%s which nodes have it is not known.\n", colour_on(COLOUR_BAD), colour_off(COLOUR_BAD));
	else if (field_number(nodes, "nodeCount")) {
		putchar('\n');
		nodes_print(nodes);
	}
	json_object_put(nodes);
	return print_done();
}

static bool is_unknown(const char *error)
{
	return strcmp(error, "io.dlock.NoSuchName") == 0;
}

int cmd_show(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help, .operands_min = 1, .operands_max = 1, .accept_kind = true };
	struct json_object *parameters, *answer;
	char error[CLIENT_ERROR_MAX];
	const char *kind = NULL;
	struct options o;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	if (o.kind && !(kind = kind_find(o.kind)))
		return misused("show", "no kind, or several:", o.kind);
	parameters = json_object_new_object();
	json_object_object_add(parameters, "name", json_object_new_string(o.operand));
	if (kind)
		json_object_object_add(parameters, "kind", json_object_new_string(kind));
	r = client_ask_but("io.dlock.ShowName", parameters, is_unknown, error, &answer);
	if (r != 0)
		return r;
	if (!answer)
		return show_left(&o, kind);
	if (!o.json)
		show(field(answer, "name"));
	r = show_all(&o, field(answer, "name"));
	json_object_put(answer);
	return r;
}
