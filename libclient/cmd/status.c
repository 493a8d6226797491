/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"
#include "table.h"

static const char help[] =
"Usage: dlock status [--json]\n\n"
"Shows this node: its daemon, store, session, spaces and links, the members of its cluster, and what is wrong with them.\n\n"
"  -j, --json    the whole answer as one JSON object\n"
"  -h, --help\n";

__attribute__((format(printf, 2, 3)))
static void line(const char *title, const char *format, ...)
{
	char text[2048], *shown;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	shown = clean(text);
	printf("%s%-9s%s %s\n", colour_on(COLOUR_BOLD), title, colour_off(COLOUR_BOLD), shown);
	free(shown);
}

static void show_cluster(struct json_object *c)
{
	const char *name = field_text(c, "name"), *drains = field_flag(c, "drains") ? "; draining" : "";
	long long lease = field_number(c, "leaseMs"), lapses = field_number(c, "lapses"), members = field_number(c, "members");
	char lapsed[48] = "", placed[48] = "";

	if (field_number(c, "placed"))
		snprintf(placed, sizeof(placed), ", %lld of them for their use", field_number(c, "placed"));
	if (members)
		line("Cluster", "%s%s%lld member%s; %lld of 64 shards are mastered here%s%s%s", name, name[0] ? ", " : "",
		     members, members == 1 ? "" : "s", field_number(c, "shards"), placed, field_flag(c, "open") ? "" : ", some not open yet",
		     drains);
	else
		line("Cluster", "%s%sthis node is not in it now%s", name, name[0] ? ", " : "", drains);
	line("Peers", "reach this node at %s, %s", field_text(c, "address"),
	     field(c, "security") ? field_text(c, "security") : "in plain text");
	if (lapses)
		snprintf(lapsed, sizeof(lapsed), "; it has lapsed %lld time%s", lapses, lapses == 1 ? "" : "s");
	if (lease)
		line("Lease", "good for %lld.%03lld s more, of %lld.%03lld; clients %s%s", lease / 1000, lease % 1000,
		     field_number(c, "ttlMs") / 1000, field_number(c, "ttlMs") % 1000,
		     field_flag(c, "ticks") ? "compare the processor's counter" : "ask the clock", lapsed);
	else
		line("Lease", "none now: nothing is held on this node%s", lapsed);
}

static void show_node(struct json_object *node)
{
	char up[SPAN_MAX];

	line("Node", "%s (%s), %s for %s", field_text(node, "name"), field_text(node, "id"), field_text(node, "state"),
	     span((unsigned long long)field_number(node, "uptimeMs"), up));
	line("Daemon", "dlockd %s, pid %lld, in %s", field_text(node, "version"), field_number(node, "pid"),
	     field_text(node, "runDir"));
	line("Store", "%s%s%s", field_text(node, "store"), field(node, "stateDir") ? ", state in " : "",
	     field_text(node, "stateDir"));
	line("Session", "%s, incarnation %lld, epoch %lld", field_text(node, "session"),
	     field_number(node, "incarnation"), field_number(node, "epoch"));
	if (field(node, "cluster"))
		show_cluster(field(node, "cluster"));
	line("Clients", "%lld, with %lld names open", field_number(node, "clients"), field_number(node, "names"));
	line("Leases", "%lld grants, %lld refills, %lld releases", field_number(node, "grants"),
	     field_number(node, "refills"), field_number(node, "releases"));
	if (field(node, "clocksource"))
		line("Clock", "%s", field_text(node, "clocksource"));
}

static void show_spaces(struct json_object *spaces, long long count)
{
	static const char *const titles[] = { "SPACE", "OWNER", "GROUP", "MODE", ">NAMES", ">CLIENTS", ">WAITERS", "STATE" };
	size_t n = json_object_is_type(spaces, json_type_array) ? json_object_array_length(spaces) : 0;
	struct table t;
	char text[USER_MAX];

	if (n == 0)
		return;
	putchar('\n');
	table_init(&t, titles, 8);
	for (size_t i = 0; i < n; i++) {
		struct json_object *s = json_object_array_get_idx(spaces, i);

		table_add(&t, field_text(s, "name"), COLOUR_BOLD);
		table_add(&t, user_name((uid_t)field_number(s, "owner"), text), COLOUR_NONE);
		table_add(&t, group_name((gid_t)field_number(s, "group"), text), COLOUR_NONE);
		snprintf(text, sizeof(text), "%04llo", (unsigned long long)field_number(s, "mode"));
		table_add(&t, text, COLOUR_NONE);
		table_add_number(&t, field_number(s, "names"));
		table_add_number(&t, field_number(s, "clients"));
		table_add_number(&t, field_number(s, "waiters"));
		table_add(&t, field(s, "broken") ? "broken" : "ok", field(s, "broken") ? COLOUR_BAD : COLOUR_GOOD);
	}
	table_done(&t);
	if (count > (long long)n)
		printf("... and %lld more spaces\n", count - (long long)n);
}

static void addresses_join(struct json_object *addresses, char *ret, size_t size)
{
	size_t n = json_object_is_type(addresses, json_type_array) ? json_object_array_length(addresses) : 0, at = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(ret + at, size - at, "%s%s", i ? " " : "",
				       json_object_get_string(json_object_array_get_idx(addresses, i)));
}

static void show_links(struct json_object *links, long long count)
{
	static const char *const titles[] = { "LINK", "STATE", ">MTU", "ADDRESSES" };
	size_t n = json_object_is_type(links, json_type_array) ? json_object_array_length(links) : 0;
	struct table t;
	char text[1024];

	if (n == 0)
		return;
	putchar('\n');
	table_init(&t, titles, 4);
	for (size_t i = 0; i < n; i++) {
		struct json_object *l = json_object_array_get_idx(links, i);
		bool up = field_flag(l, "up"), running = field_flag(l, "running");

		table_add(&t, field_text(l, "name"), COLOUR_BOLD);
		table_add(&t, !up ? "down" : running ? "up" : "no carrier", !up ? COLOUR_DIM : running ? COLOUR_GOOD : COLOUR_WARN);
		table_add_number(&t, field_number(l, "mtu"));
		addresses_join(field(l, "addresses"), text, sizeof(text));
		table_add(&t, text, COLOUR_NONE);
	}
	table_done(&t);
	if (count > (long long)n)
		printf("... and %lld more links\n", count - (long long)n);
}

static void warn(const char *what, const char *text)
{
	char *shown = clean(text), *name = clean(what);

	printf("\n%sWarning:%s %s: %s\n", colour_on(COLOUR_BAD), colour_off(COLOUR_BAD), name, shown);
	free(shown);
	free(name);
}

static void show_warnings(struct json_object *answer)
{
	struct json_object *node = field(answer, "node"), *spaces = field(answer, "spaces");
	size_t n = json_object_is_type(spaces, json_type_array) ? json_object_array_length(spaces) : 0;
	char what[128];

	if (field(field(node, "cluster"), "jeopardy"))
		warn("the lease cannot be renewed", field_text(field(node, "cluster"), "jeopardy"));
	if (field(node, "loss"))
		warn("holds were declared lost when the daemon started", field_text(node, "loss"));
	for (size_t i = 0; i < n; i++) {
		struct json_object *s = json_object_array_get_idx(spaces, i);

		snprintf(what, sizeof(what), "space %s is broken", field_text(s, "name"));
		if (field(s, "broken"))
			warn(what, field_text(s, "broken"));
	}
}

static void show(struct json_object *answer, struct json_object *members)
{
	show_node(field(answer, "node"));
	if (members) {
		putchar('\n');
		members_show(field(members, "members"));
	}
	show_spaces(field(answer, "spaces"), field_number(answer, "spaceCount"));
	show_links(field(answer, "links"), field_number(answer, "linkCount"));
	show_warnings(answer);
}

/* In a cluster, how the others are reached is for people to see here too; programs ask for it by itself. */
static int members_ask(struct json_object *answer, struct json_object **ret)
{
	*ret = NULL;
	return field(field(answer, "node"), "cluster") ? client_ask("io.dlock.ListMembers", NULL, ret) : 0;
}

int cmd_status(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help };
	struct json_object *answer, *members = NULL;
	struct options o;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	r = client_ask("io.dlock.GetStatus", NULL, &answer);
	if (r != 0)
		return r;
	if (o.json)
		print_json(answer);
	else if ((r = members_ask(answer, &members)) == 0)
		show(answer, members);
	json_object_put(members);
	json_object_put(answer);
	return r ? r : print_done();
}
