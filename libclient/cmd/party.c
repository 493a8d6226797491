/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "party.h"

#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "client.h"
#include "table.h"

#define SINCE_NEAR_MS 200                /* as near as a look of the daemon, and some: no need to say what is not known */

void party_table_init(struct table *t)
{
	static const char *const titles[] = {
		"NAME", "STATE", "KIND", "NODE", ">PID", "USER", ">TOKEN", ">SINCE", "UNIT", "COMMAND",
	};

	table_init(t, titles, 10);
}

static void add_known(struct table *t, struct json_object *o, const char *key)
{
	if (field(o, key))
		table_add_number(t, field_number(o, key));
	else
		table_add(t, NULL, COLOUR_NONE);
}

/* Of who waits it is known; of who holds it lies between two times. */
static void add_since(struct table *t, struct json_object *party)
{
	unsigned long long least = (unsigned long long)field_number(party, "sinceMs"), most = (unsigned long long)field_number(party, "sinceAtMostMs");
	char since[SPAN_MAX], text[SPAN_MAX + 2] = "";

	if (!field(party, "sinceAtMostMs") ? !!field(party, "sinceMs") : field(party, "sinceMs") && most - least <= least / 8 + SINCE_NEAR_MS)
		snprintf(text, sizeof(text), "%s", span(least, since));
	else if (least > 0)
		snprintf(text, sizeof(text), ">%s", span(least, since));
	else if (most > 0)
		snprintf(text, sizeof(text), "<%s", span(most, since));
	table_add(t, text, COLOUR_NONE);
}

static void add_party(struct table *t, struct json_object *name, struct json_object *party)
{
	char user[USER_MAX];

	table_add(t, field_text(name, "kind"), COLOUR_NONE);     /* of two that are called alike */
	table_add(t, field_text(party, "node"), COLOUR_NONE);
	add_known(t, party, "pid");
	table_add(t, party ? user_name((uid_t)field_number(party, "uid"), user) : NULL, COLOUR_NONE);
	add_known(t, party, "token");
	add_since(t, party);
	table_add(t, field_text(party, "unit"), COLOUR_NONE);
	table_add(t, field_text(party, "command"), COLOUR_NONE);
}

static void add_state(struct table *t, struct json_object *name)
{
	const char *state = field_text(name, "state");

	if (field_flag(name, "ownerDied"))
		table_add(t, field(name, "holder") ? "held, unmended" : "owner died", COLOUR_BAD);
	else
		table_add(t, state, strcmp(state, "held") == 0 || strcmp(state, "shared") == 0 ? COLOUR_GOOD : COLOUR_DIM);
}

/* Of a lock that is read the first line has the state, and no party; of a semaphore, the first of those who have permits. */
static void add_readers(struct table *t, const char *full, struct json_object *name)
{
	struct json_object *readers = field(name, "readers");
	size_t n = json_object_is_type(readers, json_type_array) ? json_object_array_length(readers) : 0;
	long long count = field_number(name, "readerCount");
	bool permits = strcmp(field_text(name, "kind"), "semaphore") == 0;
	char more[48];

	for (size_t i = 0; i < n; i++) {
		table_add(t, full, COLOUR_DIM);
		table_add(t, permits ? "held" : "reads", COLOUR_GOOD);
		add_party(t, name, json_object_array_get_idx(readers, i));
	}
	if (count <= (long long)n)
		return;
	snprintf(more, sizeof(more), permits ? "%lld more" : "%lld more read", count - (long long)n);
	table_add(t, full, COLOUR_DIM);
	table_add(t, more, COLOUR_GOOD);
	add_party(t, name, NULL);
}

void party_table_add(struct table *t, struct json_object *name)
{
	struct json_object *waiters = field(name, "waiters");
	size_t n = json_object_is_type(waiters, json_type_array) ? json_object_array_length(waiters) : 0;
	long long count = field_number(name, "waiterCount");
	char full[400], more[48];

	snprintf(full, sizeof(full), "%s/%s", field_text(name, "space"), field_text(name, "name"));
	table_add(t, full, COLOUR_BOLD);
	add_state(t, name);
	add_party(t, name, field(name, "holder"));
	add_readers(t, full, name);
	for (size_t i = 0; i < n; i++) {
		table_add(t, full, COLOUR_DIM);
		table_add(t, "waits", COLOUR_WARN);
		add_party(t, name, json_object_array_get_idx(waiters, i));
	}
	if (count > (long long)n) {
		snprintf(more, sizeof(more), "%lld more wait", count - (long long)n);
		table_add(t, full, COLOUR_DIM);
		table_add(t, more, COLOUR_WARN);
		add_party(t, name, NULL);
	}
}
