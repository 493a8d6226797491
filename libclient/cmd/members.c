/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <stdlib.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"
#include "table.h"

static const char help[] =
"Usage: dlock members [--json]\n\n"
"Lists the nodes of the cluster as this one sees them, and how it reaches them: round-trip time, bytes that\n"
"wait to be sent, protocol. SHARDS: how many of the 64 slices of all names each masters.\n\n"
"  -j, --json    the whole answer as one JSON object\n"
"  -h, --help\n";

static enum colour state_colour(const char *state)
{
	if (state[0] == 'u' || state[0] == 's')          /* up, self */
		return COLOUR_GOOD;
	return state[0] == 'r' || state[0] == 'f' ? COLOUR_WARN : COLOUR_BAD;    /* relayed, resolving, former; the rest has none */
}

static void roles(struct json_object *m, char *ret, size_t size)
{
	snprintf(ret, size, "%s%s%s", field_flag(m, "mayMaster") ? "master" : "member",
		 field_flag(m, "coordinates") ? ", coordinates" : "", field_flag(m, "drains") ? ", drains" : "");
}

static void rtt(struct json_object *m, char *ret, size_t size)
{
	long long us = field_number(m, "rttUs");

	if (us)
		snprintf(ret, size, "%lld.%03lld ms", us / 1000, us % 1000);
	else
		ret[0] = 0;
}

/* What only a connection has. */
static void add_of_connection(struct table *t, struct json_object *m, const char *name)
{
	if (field_number(m, "protocol"))
		table_add_number(t, field_number(m, name));
	else
		table_add(t, "", COLOUR_NONE);
}

void members_show(struct json_object *members)
{
	static const char *const titles[] = { "NODE", "STATE", "ADDRESS", "SESSION", "ROLE", ">SHARDS", ">PLACED", ">RTT", ">QUEUE",
					      ">PROTOCOL", "ERROR" };
	size_t n = json_object_is_type(members, json_type_array) ? json_object_array_length(members) : 0;
	char text[64];
	struct table t;

	table_init(&t, titles, sizeof(titles) / sizeof(titles[0]));
	for (size_t i = 0; i < n; i++) {
		struct json_object *m = json_object_array_get_idx(members, i);

		table_add(&t, field_text(m, "name"), COLOUR_BOLD);
		table_add(&t, field_text(m, "state"), state_colour(field_text(m, "state")));
		table_add(&t, field_text(m, "address"), COLOUR_NONE);
		snprintf(text, sizeof(text), "%s.%lld", field_text(m, "session"), field_number(m, "incarnation"));
		table_add(&t, text, COLOUR_NONE);
		roles(m, text, sizeof(text));
		table_add(&t, text, COLOUR_NONE);
		table_add_number(&t, field_number(m, "shards"));
		table_add_number(&t, field_number(m, "placed"));
		rtt(m, text, sizeof(text));
		table_add(&t, text, COLOUR_NONE);
		add_of_connection(&t, m, "queue");
		add_of_connection(&t, m, "protocol");
		table_add(&t, field_text(m, "state")[0] == 'u' ? "" : field_text(m, "error"), COLOUR_NONE);
	}
	table_done(&t);
}

int cmd_members(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help };
	struct json_object *answer;
	struct options o;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	r = client_ask("io.dlock.ListMembers", NULL, &answer);
	if (r != 0)
		return r;
	if (o.json)
		print_json(answer);
	else
		members_show(field(answer, "members"));
	json_object_put(answer);
	return print_done();
}
