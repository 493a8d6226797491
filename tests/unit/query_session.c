/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Conversations with a session: what the methods answer, and that nobody gets more than the bounds. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <json-c/json.h>

#include "query/interface.h"
#include "query/methods.h"
#include "query/session.h"
#include "query_fake.h"

struct talk {
	struct fake fake;
	struct session s;
	struct json_object *answers[64];
	unsigned n;
	size_t most;                     /* bytes that ever waited to be sent */
};

static void talk_begin(struct talk *t, unsigned n_open, unsigned n_private, uid_t uid)
{
	struct session_caller caller = { .uid = uid };

	*t = (struct talk) { 0 };
	fake_init(&t->fake, n_open, n_private);
	session_init(&t->s, &t->fake.source, &caller);
}

static void talk_forget(struct talk *t)
{
	for (unsigned i = 0; i < t->n; i++)
		json_object_put(t->answers[i]);
	t->n = 0;
}

static void talk_end(struct talk *t)
{
	talk_forget(t);
	session_done(&t->s);
}

/* One whole message from the front of the output, as its reader sees it. NULL: there is none. */
static struct json_object *talk_read(struct talk *t)
{
	const char *message;
	struct json_object *o;
	size_t n;

	if (!varlink_buf_next(&t->s.out, &message, &n))
		return NULL;
	assert_int_equal(n, strlen(message));
	for (size_t i = 0, step; i < n; i += step) {
		step = varlink_utf8_length(message + i, n - i);
		assert_true(step > 0);
	}
	o = json_tokener_parse(message);
	assert_true(json_object_is_type(o, json_type_object));
	varlink_buf_drop(&t->s.out, n + 1);
	return o;
}

static void talk_keep(struct talk *t)
{
	struct json_object *o;

	while ((o = talk_read(t))) {
		assert_true(t->n < 64);
		t->answers[t->n++] = o;
	}
}

/* Gives bytes as the session has room for them, reads all that it says. Its last word. */
static int talk(struct talk *t, const char *data, size_t n)
{
	int r;

	talk_forget(t);
	do {
		size_t room = session_room(&t->s), piece = n < room ? n : room;

		assert_int_equal(session_input(&t->s, data, piece), 0);
		data += piece;
		n -= piece;
		r = session_step(&t->s);
		if (varlink_buf_length(&t->s.out) > t->most)
			t->most = varlink_buf_length(&t->s.out);
		talk_keep(t);
	} while (r > 0 || (r == 0 && n > 0 && session_room(&t->s) > 0));
	return r;
}

static void call(struct talk *t, const char *text)
{
	assert_int_equal(talk(t, text, strlen(text) + 1), 0);
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(o, key, &value);
	return value;
}

static const char *text_of(struct json_object *o, const char *key)
{
	return json_object_get_string(get(o, key));
}

static struct json_object *parameters(const struct talk *t, unsigned i)
{
	assert_true(i < t->n);
	return get(t->answers[i], "parameters");
}

static void assert_error(const struct talk *t, const char *error, const char *key, const char *value)
{
	assert_int_equal(t->n, 1);
	assert_non_null(get(t->answers[0], "error"));
	assert_string_equal(text_of(t->answers[0], "error"), error);
	if (key)
		assert_string_equal(text_of(parameters(t, 0), key), value);
}

#define SERVICE "org.varlink.service."

static void status_is_told(void **state)
{
	struct talk t;
	struct json_object *node, *space, *link;

	(void)state;
	talk_begin(&t, 100, 10, 1000);
	t.fake.loss = "the ledger is missing";
	call(&t, "{\"method\":\"io.dlock.GetStatus\"}");
	assert_int_equal(t.n, 1);
	node = get(parameters(&t, 0), "node");
	assert_string_equal(text_of(node, "name"), "alpha");
	assert_string_equal(text_of(node, "session"), "fedcba9876543210");
	assert_string_equal(text_of(node, "loss"), "the ledger is missing");
	assert_int_equal(json_object_get_int64(get(node, "epoch")), 7);
	space = json_object_array_get_idx(get(parameters(&t, 0), "spaces"), 0);
	assert_string_equal(text_of(space, "name"), "default");
	assert_int_equal(json_object_get_int64(get(space, "mode")), 0660);
	assert_null(get(space, "broken"));
	link = json_object_array_get_idx(get(parameters(&t, 0), "links"), 0);
	assert_string_equal(text_of(link, "name"), "lo");
	assert_int_equal(json_object_array_length(get(link, "addresses")), 2);
	talk_end(&t);
}

static void status_is_bounded(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	t.fake.spaces_extra = 5000;
	call(&t, "{\"method\":\"io.dlock.GetStatus\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "spaces")), METHODS_SPACES_MAX);
	assert_int_equal(json_object_get_int64(get(parameters(&t, 0), "spaceCount")), 5002);
	talk_end(&t);
}

static void members_are_listed(void **state)
{
	struct talk t;
	struct json_object *members;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, "{\"method\":\"io.dlock.ListMembers\",\"parameters\":{}}");
	members = get(parameters(&t, 0), "members");
	assert_int_equal(json_object_array_length(members), 2);
	assert_string_equal(text_of(json_object_array_get_idx(members, 0), "name"), "alpha");
	assert_string_equal(text_of(json_object_array_get_idx(members, 0), "state"), "self");
	assert_true(json_object_get_boolean(get(json_object_array_get_idx(members, 0), "coordinates")));
	assert_string_equal(text_of(json_object_array_get_idx(members, 1), "error"), "nothing listens there");
	talk_end(&t);
}

static void rulers_only(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, geteuid() + 1);
	call(&t, "{\"method\":\"io.dlock.Drain\"}");
	assert_error(&t, "org.varlink.service.PermissionDenied", NULL, NULL);
	call(&t, "{\"method\":\"io.dlock.Leave\"}");
	assert_false(t.fake.drains || t.fake.left);
	talk_end(&t);
	talk_begin(&t, 0, 0, 0);
	call(&t, "{\"method\":\"io.dlock.Drain\"}");
	assert_true(t.fake.drains);
	call(&t, "{\"method\":\"io.dlock.Drain\",\"parameters\":{\"off\":true}}");
	assert_false(t.fake.drains);
	call(&t, "{\"method\":\"io.dlock.Leave\",\"oneway\":true}");
	assert_false(t.fake.left);
	call(&t, "{\"method\":\"io.dlock.Leave\"}");
	assert_true(t.fake.left);
	talk_end(&t);
}

/* The text describes what is there, and all of it: word by word, with the table. */
static void interface_matches_methods(void **state)
{
	struct talk t;
	char declared[128];
	unsigned n = 0, lines = 0;

	(void)state;
	for (; methods_name(n); n++) {
		const char *full = methods_name(n), *name = strrchr(full, '.') + 1;
		const char *text = strncmp(full, "io.dlock.", 9) == 0 ? interface_dlock : interface_service;

		snprintf(declared, sizeof(declared), "\nmethod %s(", name);
		assert_non_null(strstr(text, declared));
	}
	for (const char *p = interface_dlock; (p = strstr(p, "\nmethod ")); p++)
		lines++;
	for (const char *p = interface_service; (p = strstr(p, "\nmethod ")); p++)
		lines++;
	assert_int_equal(lines, n);
	talk_begin(&t, 0, 0, 1000);
	call(&t, "{\"method\":\"org.varlink.service.GetInterfaceDescription\","
		 "\"parameters\":{\"interface\":\"io.dlock\"}}");
	assert_string_equal(text_of(parameters(&t, 0), "description"), interface_dlock);
	call(&t, "{\"method\":\"org.varlink.service.GetInterfaceDescription\","
		 "\"parameters\":{\"interface\":\"io.other\"}}");
	assert_error(&t, SERVICE "InterfaceNotFound", "interface", "io.other");
	call(&t, "{\"method\":\"org.varlink.service.GetInfo\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "interfaces")), 2);
	assert_string_equal(text_of(parameters(&t, 0), "version"), "0.1.0");
	talk_end(&t);
}

static void unknown_methods_are_named(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, "{\"method\":\"io.dlock.Nothing\"}");
	assert_error(&t, SERVICE "MethodNotFound", "method", "io.dlock.Nothing");
	call(&t, "{\"method\":\"io.dlock.getStatus\"}");
	assert_error(&t, SERVICE "MethodNotFound", NULL, NULL);
	call(&t, "{\"method\":\"io.dloc.GetStatus\"}");
	assert_error(&t, SERVICE "InterfaceNotFound", "interface", "io.dloc");
	call(&t, "{\"method\":\"GetStatus\"}");
	assert_error(&t, SERVICE "InterfaceNotFound", "interface", "");
	call(&t, "{\"method\":\"\"}");
	assert_error(&t, SERVICE "InterfaceNotFound", "interface", "");
	call(&t, "{\"method\":\"io.dlock.GetStatus\",\"upgrade\":true}");
	assert_error(&t, SERVICE "MethodNotImplemented", "method", "io.dlock.GetStatus");
	talk_end(&t);
}

static void wrong_parameters_are_named(void **state)
{
	static const struct { const char *parameters, *bad; } cases[] = {
		{ "{\"space\":1}", "space" }, { "{\"space\":\"a b\"}", "space" },
		{ "{\"space\":\"\"}", "space" }, { "{\"space\":\"a\\u0000b\"}", "space" },
		{ "{\"space\":[]}", "space" }, { "{\"limit\":0}", "limit" }, { "{\"limit\":-1}", "limit" },
		{ "{\"limit\":1.5}", "limit" }, { "{\"limit\":\"1\"}", "limit" },
		{ "{\"cursor\":1}", "cursor" }, { "{\"cursor\":\"\"}", "cursor" }, { "{\"cursor\":\"0\"}", "cursor" },
		{ "{\"cursor\":\"-1\"}", "cursor" }, { "{\"cursor\":\"1x\"}", "cursor" },
		{ "{\"cursor\":\"99999999999999999999\"}", "cursor" }, { "{\"nope\":null}", "nope" },
	};
	struct talk t;
	char text[300];

	(void)state;
	talk_begin(&t, 10, 0, 1000);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "{\"method\":\"io.dlock.ListNames\",\"parameters\":%s}", cases[i].parameters);
		call(&t, text);
		assert_error(&t, SERVICE "InvalidParameter", "parameter", cases[i].bad);
	}
	call(&t, "{\"method\":\"io.dlock.GetStatus\",\"parameters\":{\"x\":1}}");
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "x");
	call(&t, "{\"method\":\"io.dlock.ShowName\"}");
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "name");
	talk_end(&t);
}

static void names_are_shown(void **state)
{
	struct talk t;
	struct json_object *name, *party;

	(void)state;
	talk_begin(&t, 10, 0, 1000);
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"n00000003\"}}");
	name = get(parameters(&t, 0), "name");
	assert_string_equal(text_of(name, "space"), "default");
	assert_string_equal(text_of(name, "state"), "held");
	party = get(name, "holder");
	assert_string_equal(text_of(party, "unit"), "backup.service");
	assert_int_equal(json_object_get_int64(get(party, "token")), 73);
	assert_int_equal(json_object_array_length(get(name, "waiters")), 3);
	party = json_object_array_get_idx(get(name, "waiters"), 2);
	assert_int_equal(json_object_get_int64(get(party, "pid")), 2002);
	assert_null(get(party, "token"));
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"default/n00000001\"}}");
	name = get(parameters(&t, 0), "name");
	assert_string_equal(text_of(name, "state"), "free");
	assert_null(get(name, "holder"));
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"n00000099\"}}");
	assert_error(&t, "io.dlock.NoSuchName", "name", "n00000099");
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"other/n00000001\"}}");
	assert_error(&t, "io.dlock.NoSuchSpace", "space", "other");
	talk_end(&t);
}

static void bad_names_are_refused(void **state)
{
	static const char *const bad[] = { "", "/", "default/", "/x", "de fault/x", "a\\nb", "a\\u007fb", "a\\u0000b" };
	struct talk t;
	char text[1000], name[400];

	(void)state;
	talk_begin(&t, 10, 0, 1000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"%s\"}}", bad[i]);
		call(&t, text);
		assert_error(&t, SERVICE "InvalidParameter", "parameter", "name");
	}
	for (unsigned n = 255; n <= 256; n++) {
		memset(name, 'x', n);
		name[n] = '\0';
		snprintf(text, sizeof(text), "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"%s\"}}", name);
		call(&t, text);
		assert_error(&t, n == 255 ? "io.dlock.NoSuchName" : SERVICE "InvalidParameter", NULL, NULL);
	}
	for (unsigned n = 64; n <= 65; n++) {
		memset(name, 'x', n);
		strcpy(name + n, "/y");
		snprintf(text, sizeof(text), "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"%s\"}}", name);
		call(&t, text);
		assert_error(&t, n == 64 ? "io.dlock.NoSuchSpace" : SERVICE "InvalidParameter", NULL, NULL);
	}
	talk_end(&t);
}

/* talk_read() has judged that it is UTF-8. */
static void rude_commands_become_text(void **state)
{
	struct talk t;
	struct json_object *name;

	(void)state;
	talk_begin(&t, 10, 0, 1000);
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"crowd\"}}");
	name = get(parameters(&t, 0), "name");
	assert_string_equal(text_of(get(name, "holder"), "command"),
			    "sh -c \xef\xbf\xbd\xef\xbf\xbd [31m\"red\" \xc3\xa9\xc2\x9b");
	assert_int_equal(json_object_get_int64(get(name, "token")), INT64_MAX);
	assert_int_equal(json_object_array_length(get(name, "waiters")), 64);
	assert_int_equal(json_object_get_int64(get(name, "waiterCount")), FAKE_CROWD);
	talk_end(&t);
}

static void pages_lead_to_the_end(void **state)
{
	struct talk t;
	char text[200];
	const char *cursor;
	unsigned seen = 0, pages = 0;

	(void)state;
	talk_begin(&t, 1000, 0, 1000);
	call(&t, "{\"method\":\"io.dlock.ListNames\",\"parameters\":{\"limit\":7}}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), 7);
	call(&t, "{\"method\":\"io.dlock.ListNames\"}");
	for (;;) {
		struct json_object *names = get(parameters(&t, 0), "names");

		assert_int_equal(t.n, 1);
		assert_null(get(t.answers[0], "continues"));
		for (size_t i = 0; i < json_object_array_length(names); i++) {
			snprintf(text, sizeof(text), "n%08u", seen++);
			assert_string_equal(text_of(json_object_array_get_idx(names, i), "name"), text);
		}
		pages++;
		cursor = text_of(parameters(&t, 0), "cursor");
		if (!cursor)
			break;
		snprintf(text, sizeof(text), "{\"method\":\"io.dlock.ListNames\",\"parameters\":"
			 "{\"space\":\"default\",\"cursor\":\"%s\"}}", cursor);
		call(&t, text);
	}
	assert_int_equal(seen, 1000);
	assert_true(pages > 10);
	talk_end(&t);
}

/* 32 names with 200 waiters each: the first ones list theirs, all tell how many there are. */
static void crowds_do_not_swell_a_page(void **state)
{
	struct talk t;
	size_t listed = 0;

	(void)state;
	talk_begin(&t, 1000, 0, 1000);
	t.fake.crowded = true;
	call(&t, "{\"method\":\"io.dlock.ListNames\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), METHODS_PAGE_NAMES);
	for (unsigned i = 0; i < METHODS_PAGE_NAMES; i++) {
		struct json_object *name = json_object_array_get_idx(get(parameters(&t, 0), "names"), i);

		listed += json_object_array_length(get(name, "waiters"));
		assert_int_equal(json_object_get_int64(get(name, "waiterCount")), FAKE_CROWD);
	}
	assert_int_equal(listed, METHODS_PAGE_WAITERS);
	talk_end(&t);
}

/* A reader that lets the output fill up before it reads gets all, and the daemon never holds much. */
static void million_names_need_no_memory(void **state)
{
	static const char text[] = "{\"method\":\"io.dlock.ListNames\",\"more\":true}";
	struct json_object *o;
	struct talk t;
	size_t most = 0, seen = 0;
	bool last = false;
	int r;

	(void)state;
	talk_begin(&t, 1000000, 0, 1000);
	assert_int_equal(session_input(&t.s, text, sizeof(text)), 0);
	do {
		r = session_step(&t.s);
		assert_true(r >= 0);
		if (varlink_buf_length(&t.s.out) > most)
			most = varlink_buf_length(&t.s.out);
		if (r > 0)
			continue;
		while ((o = talk_read(&t))) {
			assert_false(last);
			last = !get(o, "continues");
			seen += json_object_array_length(get(get(o, "parameters"), "names"));
			json_object_put(o);
		}
	} while (r > 0 || t.s.state != SESSION_READY);
	assert_true(last);
	assert_int_equal(seen, 1000000);
	assert_true(most < SESSION_OUTPUT_LOW + 100 * 1024);
	talk_end(&t);
}

static void private_names_stay_private(void **state)
{
	const gid_t groups[] = { 7, FAKE_GROUP };
	struct talk t;

	(void)state;
	talk_begin(&t, 5, 5, 1000);
	call(&t, "{\"method\":\"io.dlock.ListNames\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), 5);
	call(&t, "{\"method\":\"io.dlock.ListNames\",\"more\":true}");
	assert_int_equal(t.n, 1);
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), 5);
	call(&t, "{\"method\":\"io.dlock.ListNames\",\"parameters\":{\"space\":\"private\"},\"more\":true}");
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	call(&t, "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"private/n00000007\"}}");
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	call(&t, "{\"method\":\"io.dlock.Watch\",\"parameters\":{\"name\":\"private/n00000007\"},\"more\":true}");
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	call(&t, "{\"method\":\"io.dlock.ListNames\",\"parameters\":{\"space\":\"absent\"}}");
	assert_error(&t, "io.dlock.NoSuchSpace", "space", "absent");
	call(&t, "{\"method\":\"io.dlock.ListNames\",\"parameters\":{\"space\":\"absent\"},\"more\":true}");
	assert_error(&t, "io.dlock.NoSuchSpace", "space", "absent");
	t.s.caller.groups = groups;
	t.s.caller.n_groups = 2;
	call(&t, "{\"method\":\"io.dlock.ListNames\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), 10);
	talk_end(&t);
}

/* Each step looks at a bounded number of names also when none of them may be seen. */
static void hidden_names_are_no_long_search(void **state)
{
	struct talk t;
	static const char text[] = "{\"method\":\"io.dlock.ListNames\",\"more\":true}";
	unsigned before;
	int r;

	(void)state;
	talk_begin(&t, 0, 100000, 1000);
	call(&t, "{\"method\":\"io.dlock.ListNames\"}");
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "names")), 0);
	assert_non_null(text_of(parameters(&t, 0), "cursor"));
	assert_int_equal(session_input(&t.s, text, sizeof(text)), 0);
	do {
		before = t.fake.asked;
		r = session_step(&t.s);
		assert_true(t.fake.asked - before <= METHODS_PAGE_NAMES);
	} while (r > 0);
	talk_forget(&t);
	talk_keep(&t);
	assert_int_equal(t.n, 1);
	assert_null(get(t.answers[0], "continues"));
	talk_end(&t);
}

static const struct query_event grant = {
	.boottime_ms = 1, .realtime_ms = 1700000000000, .event = "grant", .space = "default",
	.name = "n00000001", .pid = 77, .token = 8,
};

static void tell(struct talk *t, const struct query_event *ev)
{
	struct varlink_buf message = { .max = SESSION_EVENTS_MAX };

	if (!session_wants(&t->s, ev))
		return;
	assert_int_equal(session_event_format(ev, &message), 0);
	session_event_put(&t->s, &message);
	varlink_buf_done(&message);
}

static void watchers_are_told(void **state)
{
	struct query_event other = grant, hidden = grant, link = { .event = "link", .detail = "eth0 up" };
	struct talk t;
	struct json_object *event;

	(void)state;
	other.name = "n00000002";
	hidden.space = "private";
	talk_begin(&t, 10, 10, 1000);
	tell(&t, &grant);
	call(&t, "{\"method\":\"io.dlock.Watch\"}");
	assert_error(&t, SERVICE "ExpectedMore", NULL, NULL);
	call(&t, "{\"method\":\"io.dlock.Watch\",\"more\":true}");
	assert_int_equal(t.n, 1);
	assert_true(json_object_get_boolean(get(parameters(&t, 0), "ready")));
	talk_forget(&t);
	tell(&t, &grant);
	tell(&t, &hidden);
	tell(&t, &link);
	talk_keep(&t);
	assert_int_equal(t.n, 2);
	event = get(parameters(&t, 0), "event");
	assert_string_equal(text_of(event, "event"), "grant");
	assert_int_equal(json_object_get_int64(get(event, "token")), 8);
	assert_true(json_object_get_boolean(get(t.answers[1], "continues")));
	assert_string_equal(text_of(get(parameters(&t, 1), "event"), "detail"), "eth0 up");
	assert_int_equal(session_room(&t.s), 0);
	talk_end(&t);

	talk_begin(&t, 10, 10, 1000);
	call(&t, "{\"method\":\"io.dlock.Watch\",\"parameters\":{\"name\":\"n00000002\"},\"more\":true}");
	talk_forget(&t);
	tell(&t, &grant);
	tell(&t, &link);
	tell(&t, &other);
	talk_keep(&t);
	assert_int_equal(t.n, 1);
	assert_string_equal(text_of(get(parameters(&t, 0), "event"), "name"), "n00000002");
	talk_end(&t);
}

static void slow_watchers_lose_events_and_know(void **state)
{
	const struct query_event shorter = { .event = "x", .detail = "" };
	struct talk t;
	int64_t dropped = 0;
	unsigned events = 0;
	struct json_object *o;

	(void)state;
	talk_begin(&t, 10, 10, 1000);
	call(&t, "{\"method\":\"io.dlock.Watch\",\"more\":true}");
	for (unsigned i = 0; i < 10000; i++) {
		tell(&t, &grant);
		assert_true(varlink_buf_length(&t.s.out) <= SESSION_EVENTS_MAX);
		assert_int_equal(session_step(&t.s), 0);
	}
	assert_true(t.s.dropped > 0);
	tell(&t, &shorter);              /* would fit, but is behind the gap */
	do {
		while ((o = talk_read(&t))) {
			assert_int_equal(dropped, 0);
			assert_null(get(get(get(o, "parameters"), "event"), "detail"));
			if (get(get(o, "parameters"), "event"))
				events++;
			else
				dropped = json_object_get_int64(get(get(o, "parameters"), "dropped"));
			json_object_put(o);
		}
	} while (session_step(&t.s) > 0);
	assert_true(dropped > 0);
	assert_int_equal(events + dropped, 10001);
	talk_forget(&t);
	tell(&t, &grant);
	talk_keep(&t);
	assert_int_equal(t.n, 1);
	talk_end(&t);
}

static void many_calls_are_answered_in_order(void **state)
{
	char stream[8192];
	size_t at = 0;
	struct talk t;

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		at += (size_t)sprintf(stream + at, "{\"method\":\"io.dlock.ShowName\",\"parameters\":"
				      "{\"name\":\"n%08u\"}%s}", i, i % 5 == 4 ? ",\"oneway\":true" : "") + 1;
	}
	talk_begin(&t, 50, 0, 1000);
	assert_int_equal(talk(&t, stream, at), 0);
	assert_int_equal(t.n, 40);
	for (unsigned i = 0; i < 40; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%08u", i / 4 * 5 + i % 4);
		assert_string_equal(text_of(get(parameters(&t, i), "name"), "name"), name);
	}
	for (size_t i = 0; i < at; i++)
		assert_int_equal(talk(&t, stream + i, 1), 0);
	talk_end(&t);
}

/* Somebody who asks and never reads: the session stops to answer, and to take input. */
static void silent_readers_stop_their_own_session(void **state)
{
	static const char text[] = "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"crowd\"}}";
	struct talk t;
	unsigned calls = 0;
	int r = 0;

	(void)state;
	talk_begin(&t, 10, 0, 1000);
	while (session_room(&t.s) >= sizeof(text)) {
		assert_int_equal(session_input(&t.s, text, sizeof(text)), 0);
		r = session_step(&t.s);
		assert_true(r >= 0);
		assert_true(++calls < 10000);
	}
	assert_true(varlink_buf_length(&t.s.out) < 2 * SESSION_OUTPUT_LOW);
	assert_int_equal(session_step(&t.s), 0);
	talk_keep(&t);
	assert_int_equal(session_step(&t.s), 1);
	talk_end(&t);
}

static void huge_calls_are_refused(void **state)
{
	char *text = malloc(2 * VARLINK_REQUEST_MAX);
	struct talk t;
	int r;

	(void)state;
	assert_non_null(text);
	memset(text, ' ', 2 * VARLINK_REQUEST_MAX);
	talk_begin(&t, 0, 0, 1000);
	r = talk(&t, text, 2 * VARLINK_REQUEST_MAX);
	assert_int_equal(r, -EMSGSIZE);
	talk_end(&t);
	/* The longest that is allowed, byte for byte. */
	talk_begin(&t, 0, 0, 1000);
	memcpy(text, "{\"method\":\"io.dlock.GetStatus\"}", 31);
	text[VARLINK_REQUEST_MAX - 1] = '\0';
	assert_int_equal(talk(&t, text, VARLINK_REQUEST_MAX), 0);
	assert_int_equal(t.n, 1);
	talk_end(&t);
	free(text);
}

static void garbage_ends_after_what_came_before(void **state)
{
	static const char text[] = "{\"method\":\"io.dlock.GetStatus\"}\0\x16\x03\x01\x02garbage\0";
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	assert_int_equal(talk(&t, text, sizeof(text)), -EBADMSG);
	assert_int_equal(t.n, 1);
	talk_end(&t);
	talk_begin(&t, 0, 0, 1000);
	assert_int_equal(talk(&t, "\0\0\0", 3), -EBADMSG);
	talk_end(&t);
}

/* --- values --- */

#define GET(key) "{\"method\":\"io.dlock.Get\",\"parameters\":{\"key\":\"" key "\"}}"
#define PUT(key, value, more) "{\"method\":\"io.dlock.Put\",\"parameters\":{\"key\":\"" key "\",\"value\":\"" value "\"" more "}}"

static void values_are_served(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, GET("known"));
	assert_string_equal(text_of(parameters(&t, 0), "value"), "aGVsbG8=");
	assert_string_equal(text_of(parameters(&t, 0), "version"), "5");
	call(&t, GET("default/other"));
	assert_error(&t, "io.dlock.NoSuchKey", "key", "default/other");
	call(&t, PUT("known", "aGk=", ""));
	assert_int_equal(t.fake.written, 2);
	assert_string_equal(text_of(parameters(&t, 0), "version"), "6");
	call(&t, PUT("known", "", ",\"version\":5"));
	assert_string_equal(text_of(parameters(&t, 0), "version"), "6");
	call(&t, PUT("known", "", ",\"version\":0"));
	assert_error(&t, "io.dlock.VersionConflict", "version", "5");
	call(&t, "{\"method\":\"io.dlock.Remove\",\"parameters\":{\"key\":\"known\",\"version\":5}}");
	assert_null(get(t.answers[0], "error"));
	call(&t, "{\"method\":\"io.dlock.Remove\",\"parameters\":{\"key\":\"other\"}}");
	assert_error(&t, "io.dlock.NoSuchKey", "key", "default/other");
	call(&t, PUT("full", "", ""));
	assert_error(&t, "io.dlock.StoreFull", NULL, NULL);
	call(&t, PUT("lost", "", ""));
	assert_error(&t, "io.dlock.StoreUnavailable", "reason", "nobody there");
	assert_true(json_object_get_boolean(get(parameters(&t, 0), "inDoubt")));
	talk_end(&t);
}

static void values_are_checked(void **state)
{
	static const char *const bad[] = { "a", "ab=c", "a===", "aGk", "aGl=", "\xc3\xbc==" };
	char text[200];
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(text, sizeof text, PUT("known", "%s", ""), bad[i]);
		call(&t, text);
		assert_error(&t, SERVICE "InvalidParameter", "parameter", "value");
	}
	call(&t, PUT("known", "", ",\"version\":-1"));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "version");
	call(&t, GET("a b/c"));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "key");
	call(&t, GET("private/x"));
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	call(&t, PUT("nowhere/x", "", ""));
	assert_error(&t, "io.dlock.NoSuchSpace", "space", "nowhere");
	talk_end(&t);
	talk_begin(&t, 0, 0, 0);
	call(&t, PUT("nowhere/x", "", ""));
	assert_null(get(t.answers[0], "error"));
	talk_end(&t);
}

/* The longest one fits into a call, one byte more is refused; so is what would not fit into any. */
static void values_have_a_limit(void **state)
{
	static char text[VARLINK_REQUEST_MAX];
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	for (int more = 0; more < 2; more++) {
		size_t n = 65536 + (size_t)more, digits = (n + 2) / 3 * 4, at = 0;

		at += (size_t)sprintf(text, "{\"method\":\"io.dlock.Put\",\"parameters\":{\"key\":\"known\",\"value\":\"");
		memset(text + at, 'A', digits);
		at += digits;
		memset(text + at - (3 - n % 3) % 3, '=', (3 - n % 3) % 3);
		strcpy(text + at, "\"}}");
		call(&t, text);
		if (more)
			assert_error(&t, SERVICE "InvalidParameter", "parameter", "value");
		else
			assert_int_equal(t.fake.written, 65536);
	}
	talk_end(&t);
}

static unsigned woken;

static void on_wake(void *arg)
{
	(void)arg;
	woken++;
}

/* What comes behind a call that waits for the store waits too; who goes is not answered. */
static void values_may_come_late(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	t.s.wake = on_wake;
	call(&t, GET("slow"));
	assert_int_equal(t.n, 0);
	assert_int_equal(t.s.state, SESSION_ASKING);
	assert_int_equal(session_room(&t.s), 0);
	fake_answer(&t.fake);
	assert_int_equal(woken, 1);
	talk_keep(&t);
	assert_string_equal(text_of(parameters(&t, 0), "value"), "bGF0ZQ==");
	call(&t, GET("known"));
	assert_int_equal(t.n, 1);
	call(&t, GET("slow"));
	talk_end(&t);
	assert_int_equal(t.fake.dropped, 1);
	fake_answer(&t.fake);
}

/* It waits for its answer when the caller goes. */
static void asks_and_goes(struct talk *t, const char *message)
{
	call(t, message);
	assert_int_equal(t->n, 0);
	assert_int_equal(t->s.state, SESSION_ASKING);
	talk_end(t);
	assert_int_equal(t->fake.dropped, 1);
}

#define STORED(kind, more) "{\"method\":\"io.dlock.ListStored\",\"parameters\":{\"space\":\"default\",\"kind\":\"" kind "\"" more "}}"

static struct json_object *stored_at(struct talk *t, unsigned answer, size_t i)
{
	return json_object_array_get_idx(get(parameters(t, answer), "stored"), i);
}

static void what_is_stored_comes_in_pages(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, STORED("latch", ""));
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "stored")), 64);
	assert_string_equal(text_of(stored_at(&t, 0, 63), "name"), "left63");
	assert_int_equal(json_object_get_int64(get(stored_at(&t, 0, 0), "count")), 2);
	assert_int_equal(json_object_get_int64(get(stored_at(&t, 0, 0), "limit")), 5);
	assert_string_equal(text_of(parameters(&t, 0), "after"), "left63");
	call(&t, STORED("latch", ",\"after\":\"left63\""));
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "stored")), 6);
	assert_null(get(parameters(&t, 0), "after"));
	call(&t, STORED("latch", ",\"name\":\"left07\""));
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "stored")), 1);
	call(&t, STORED("free semaphore", ""));
	assert_null(get(stored_at(&t, 0, 0), "name"));
	assert_string_equal(text_of(stored_at(&t, 0, 0), "key"), "%~0123");
	call(&t, STORED("value", ""));
	assert_int_equal(json_object_get_int64(get(stored_at(&t, 0, 0), "size")), 5);
	talk_end(&t);
}

static void what_is_stored_may_be_refused(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, STORED("lock", ""));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "kind");
	call(&t, STORED("a kind that is much longer than any", ""));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "kind");
	call(&t, STORED("latch", ",\"name\":\"\""));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "name");
	call(&t, STORED("latch", ",\"name\":\"lost\""));
	assert_error(&t, "io.dlock.StoreUnavailable", "reason", "nobody there");
	call(&t, "{\"method\":\"io.dlock.ListStored\",\"parameters\":{\"space\":\"private\",\"kind\":\"latch\"}}");
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	asks_and_goes(&t, STORED("latch", ",\"name\":\"slow\""));
	assert_null(t.fake.stored_done);
}

#define NODES(kind, name) "{\"method\":\"io.dlock.ShowNodes\",\"parameters\":{\"kind\":\"" kind "\",\"name\":\"" name "\"}}"

static void nodes_of_a_name_are_told(void **state)
{
	struct json_object *one;
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	call(&t, NODES("lock", "elsewhere"));
	assert_error(&t, "io.dlock.NotInCluster", NULL, NULL);
	t.fake.cluster.ttl_ms = 5000;
	call(&t, NODES("lock", "elsewhere"));
	assert_string_equal(text_of(parameters(&t, 0), "master"), "beta");
	assert_int_equal(json_object_get_int64(get(parameters(&t, 0), "held")), -1);
	assert_int_equal(json_object_get_int64(get(parameters(&t, 0), "limit")), -1);
	assert_int_equal(json_object_get_int64(get(parameters(&t, 0), "nodeCount")), 66);
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "nodes")), 2);
	one = json_object_array_get_idx(get(parameters(&t, 0), "nodes"), 0);
	assert_string_equal(text_of(one, "node"), "beta");
	assert_int_equal(json_object_get_int64(get(one, "holds")), -1);
	assert_int_equal(json_object_get_int64(get(one, "wants")), 0);
	call(&t, NODES("semaphore", "some"));
	one = json_object_array_get_idx(get(parameters(&t, 0), "nodes"), 0);
	assert_int_equal(json_object_get_int64(get(one, "holds")), 2);
	assert_int_equal(json_object_get_int64(get(one, "wants")), 4);
	call(&t, NODES("lock", "nobodys"));
	assert_int_equal(json_object_array_length(get(parameters(&t, 0), "nodes")), 0);
	assert_null(get(parameters(&t, 0), "limit"));
	talk_end(&t);
}

static void nodes_of_a_name_may_not_be_told(void **state)
{
	struct talk t;

	(void)state;
	talk_begin(&t, 0, 0, 1000);
	t.fake.cluster.ttl_ms = 5000;
	call(&t, NODES("lock", "mute"));
	assert_error(&t, "io.dlock.MasterUnreachable", NULL, NULL);
	call(&t, NODES("latch", "elsewhere"));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "kind");
	call(&t, NODES("lock", ""));
	assert_error(&t, SERVICE "InvalidParameter", "parameter", "name");
	call(&t, NODES("lock", "private/elsewhere"));
	assert_error(&t, "io.dlock.PermissionDenied", "space", "private");
	call(&t, NODES("lock", "unknown/elsewhere"));
	assert_error(&t, "io.dlock.NoSuchSpace", "space", "unknown");
	asks_and_goes(&t, NODES("lock", "slow"));
	assert_null(t.fake.nodes_done);
}

#define CASE(title, fn) { title, fn, NULL, NULL, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("GetStatus tells of node, spaces and links", status_is_told),
		CASE("ListStored tells what lies in the store, in pages", what_is_stored_comes_in_pages),
		CASE("ListStored is for those who may see it, and waits for the store", what_is_stored_may_be_refused),
		CASE("ShowNodes tells which nodes have a name, and which wait", nodes_of_a_name_are_told),
		CASE("ShowNodes is for those who may open the space, and waits for the master", nodes_of_a_name_may_not_be_told),
		CASE("GetStatus stays short with thousands of spaces", status_is_bounded),
		CASE("ListMembers lists the members", members_are_listed),
		CASE("only root and the daemon's user change the node", rulers_only),
		CASE("values are read, written under a version, and removed", values_are_served),
		CASE("what cannot be a value, a key or a version is refused; others' spaces too", values_are_checked),
		CASE("a value has 64 KiB at most", values_have_a_limit),
		CASE("a value's answer may come late, or for nobody", values_may_come_late),
		CASE("the interface text and the methods are the same", interface_matches_methods),
		CASE("unknown methods and interfaces are named in the error", unknown_methods_are_named),
		CASE("wrong parameters are named in the error", wrong_parameters_are_named),
		CASE("ShowName tells of holder and waiters in order", names_are_shown),
		CASE("names that cannot be are refused", bad_names_are_refused),
		CASE("commands of any bytes become UTF-8, crowds are counted", rude_commands_become_text),
		CASE("ListNames leads from page to page to the end", pages_lead_to_the_end),
		CASE("names with many waiters do not swell a page", crowds_do_not_swell_a_page),
		CASE("a million names pass through little memory", million_names_need_no_memory),
		CASE("names of a private space are shown to its users only", private_names_stay_private),
		CASE("names that may not be seen are no long search", hidden_names_are_no_long_search),
		CASE("watchers are told what concerns them", watchers_are_told),
		CASE("a slow watcher loses events and is told how many", slow_watchers_lose_events_and_know),
		CASE("many calls at once, or byte by byte, are answered in order", many_calls_are_answered_in_order),
		CASE("who does not read is not answered further", silent_readers_stop_their_own_session),
		CASE("a call of 128 KiB is answered, a longer one refused", huge_calls_are_refused),
		CASE("garbage ends the conversation after what came before", garbage_ends_after_what_came_before),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("query session", tests, NULL, NULL);
}
