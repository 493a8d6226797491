/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include <json-c/json.h>

#include "format.h"
#include "methods.h"
#include "query.h"
#include "session.h"

void session_init(struct session *s, const struct query_source *source,
		  const struct session_caller *caller)
{
	*s = (struct session) {
		.source = source,
		.caller = *caller,
		.in.max = VARLINK_REQUEST_MAX,
		.out.max = SESSION_OUTPUT_MAX,
	};
}

void session_done(struct session *s)
{
	if (s->state == SESSION_ASKING && s->asked)
		s->drop(s->source->arg, s->asked);
	varlink_buf_done(&s->in);
	varlink_buf_done(&s->out);
}

size_t session_room(const struct session *s)
{
	if (s->state != SESSION_READY || varlink_buf_length(&s->in) > s->in.scanned)
		return 0;
	return s->in.max - varlink_buf_length(&s->in);
}

int session_input(struct session *s, const void *data, size_t n)
{
	assert(n <= session_room(s));
	return varlink_buf_add(&s->in, data, n);
}

static int session_answer(struct session *s)
{
	struct varlink_call call;
	const char *message;
	size_t n;
	int r;

	if (!varlink_buf_next(&s->in, &message, &n))
		return varlink_buf_length(&s->in) < s->in.max ? 0 : -EMSGSIZE;
	r = varlink_call_parse(message, n, &call);
	varlink_buf_drop(&s->in, n + 1);
	if (r < 0)
		return r;
	r = methods_call(s, &call);
	varlink_call_done(&call);
	return r < 0 ? r : 1;
}

/* The gap is told where it is: no event is queued between the first loss and this. */
static int session_tell_dropped(struct session *s)
{
	struct json_object *o;
	int r;

	if (s->dropped == 0 || varlink_buf_length(&s->out) > 0)
		return 0;
	o = json_object_new_object();
	if (!o)
		return -ENOMEM;
	json_object_object_add(o, "dropped", json_object_new_int64((int64_t)s->dropped));
	r = varlink_put_reply(&s->out, o, true);
	if (r < 0)
		return r;
	s->dropped = 0;
	return 1;
}

int session_step(struct session *s)
{
	int r = 0;

	if (s->failed)
		return s->failed;
	if (varlink_buf_length(&s->out) >= SESSION_OUTPUT_LOW)
		return 0;
	switch (s->state) {
	case SESSION_READY:
		return session_answer(s);
	case SESSION_LISTING:
		r = methods_page(s);
		return r < 0 ? r : 1;
	case SESSION_WATCHING:
		return session_tell_dropped(s);
	case SESSION_ASKING:
		return 0;
	}
	return r;
}

void session_asks(struct session *s, void (*drop)(void *arg, void *asked))
{
	s->state = SESSION_ASKING;
	s->asked = NULL;
	s->drop = drop;
}

int session_asked(struct session *s, void *asked, int error)
{
	if (s->state != SESSION_ASKING)          /* and answered by now */
		return s->failed;
	s->asked = asked;
	if (asked)
		return 0;
	s->state = SESSION_READY;
	return error ? error : -ENOMEM;
}

void session_answered(struct session *s, int r)
{
	s->state = SESSION_READY;
	s->asked = NULL;
	if (r < 0)
		s->failed = r;
	if (s->wake)
		s->wake(s->wake_arg);
}

static bool is(const char *wanted, const char *given)
{
	return wanted[0] == '\0' || (given && strcmp(wanted, given) == 0);
}

bool session_wants(const struct session *s, const struct query_event *event)
{
	if (s->state != SESSION_WATCHING || !is(s->space, event->space) || !is(s->name, event->name))
		return false;
	return !event->space || s->source->may_see(s->source->arg, event->space, s->caller.uid,
						   s->caller.groups, s->caller.n_groups);
}

int session_event_format(const struct query_event *event, struct varlink_buf *ret)
{
	struct json_object *o = json_object_new_object(), *value = format_event(event);

	if (!o || !value) {
		json_object_put(o);
		json_object_put(value);
		return -ENOMEM;
	}
	json_object_object_add(o, "event", value);
	return varlink_put_reply(ret, o, true);
}

void session_event_put(struct session *s, const struct varlink_buf *message)
{
	size_t n = varlink_buf_length(message);

	if (s->dropped > 0 || varlink_buf_length(&s->out) + n > SESSION_EVENTS_MAX ||
	    varlink_buf_add(&s->out, message->data + message->start, n) < 0)
		s->dropped++;
}
