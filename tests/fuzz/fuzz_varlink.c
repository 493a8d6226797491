/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A caller that sends anything, in pieces of any size, and reads when it likes, while events come.
 *
 * Input: a script of steps. A byte n < 0xf0 sends the next n bytes; 0xf0 and above read, or let an
 * event happen. The judge: the session stays within its bounds, ends, and says only whole UTF-8
 * JSON objects.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "../unit/query_fake.h"
#include "query/session.h"

#define MUST(x) do { if (!(x)) abort(); } while (0)

#define STEPS_MAX 200            /* without new input; the longest listing of the fake takes fewer */

static void judge(struct session *s)
{
	const char *message;
	struct json_object *o;
	size_t n;

	while (varlink_buf_next(&s->out, &message, &n)) {
		for (size_t i = 0, step; i < n; i += step)
			MUST((step = varlink_utf8_length(message + i, n - i)) > 0);
		o = json_tokener_parse(message);
		MUST(json_object_is_type(o, json_type_object));
		json_object_put(o);
		varlink_buf_drop(&s->out, n + 1);
	}
	MUST(varlink_buf_length(&s->out) == 0);
}

/* False: the session is over. */
static bool run(struct session *s)
{
	int r, steps = 0;

	while ((r = session_step(s)) > 0) {
		MUST(varlink_buf_length(&s->out) <= SESSION_OUTPUT_MAX);
		if (varlink_buf_length(&s->out) >= SESSION_OUTPUT_LOW)
			judge(s);
		MUST(++steps < STEPS_MAX);
	}
	return r == 0;
}

static void happen(struct session *s, uint8_t which)
{
	const struct query_event ev = {
		.event = "grant", .realtime_ms = 1, .pid = which, .token = which,
		.space = which & 1 ? "default" : "private", .name = which & 2 ? "n00000001" : "\xff",
	};
	struct varlink_buf message = { .max = SESSION_EVENTS_MAX };

	if (!session_wants(s, &ev))
		return;
	MUST(session_event_format(&ev, &message) == 0);
	for (int i = 0; i < 100; i++)
		session_event_put(s, &message);
	MUST(varlink_buf_length(&s->out) <= SESSION_EVENTS_MAX + SESSION_OUTPUT_LOW);
	varlink_buf_done(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const gid_t groups[] = { 100, FAKE_GROUP };
	struct session_caller caller = { .uid = 1000, .groups = groups, .n_groups = 1 };
	struct fake fake;
	struct session s;
	size_t n, room;

	fake_init(&fake, 200, 200);
	session_init(&s, &fake.source, &caller);
	while (size > 0) {
		uint8_t op = *data++;

		size--;
		if (op >= 0xf8) {
			happen(&s, op);
			continue;
		}
		if (op >= 0xf0) {
			judge(&s);
			if (!run(&s))
				break;
			continue;
		}
		n = op < size ? op : size;
		room = session_room(&s);
		if (session_input(&s, data, n < room ? n : room) < 0 || !run(&s))
			break;
		data += n;
		size -= n;
	}
	judge(&s);
	session_done(&s);
	return 0;
}
