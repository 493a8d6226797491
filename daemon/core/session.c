/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "session.h"

#include "bytes.h"
#include "siphash.h"

/* So often a node that leaves tries to end its session itself. */
#define LEAVE_TRIES 8

static bool text_valid(const char *p, size_t n, size_t max)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] > '~')
			return false;
	return n && n <= max;
}

static size_t length(const char *p, size_t max)
{
	size_t n = 0;

	while (p && n <= max && p[n])
		n++;
	return n;
}

int member_text_of(const char *address, const char *name, struct member_text *ret)
{
	size_t a = length(address, CORE_ADDRESS_MAX), b = length(name, CORE_NODE_NAME_MAX);

	if (!text_valid(address, a, CORE_ADDRESS_MAX) || !text_valid(name, b, CORE_NODE_NAME_MAX))
		return -CORE_EINVAL;
	*ret = (struct member_text){ address, name, (uint16_t)a, (uint8_t)b };
	return 0;
}

int member_record_decode(const void *bytes, size_t n, struct member_record *ret)
{
	const uint8_t *p = bytes;
	struct member_text t;

	if (n < MEMBER_HEAD || p[0] != MEMBER_LAYOUT || p[1] > 3 || p[5] || p[6] || p[7] || !le_load(p + 8, 8))
		return -CORE_EBADMSG;
	t.address_len = (uint16_t)le_load(p + 2, 2);
	t.name_len = p[4];
	t.address = (const char *)p + MEMBER_HEAD;
	t.name = t.address + t.address_len;
	if (n != MEMBER_HEAD + (size_t)t.address_len + t.name_len || !text_valid(t.address, t.address_len, CORE_ADDRESS_MAX) ||
	    !text_valid(t.name, t.name_len, CORE_NODE_NAME_MAX))
		return -CORE_EBADMSG;
	*ret = (struct member_record){ .session = le_load(p + 8, 8), .node = le_load(p + 16, 8),
				       .may_master = p[1] & 1, .drains = p[1] & 2, .text = t };
	return 0;
}

uint32_t member_record_encode(const struct member_record *r, uint8_t ret[MEMBER_BYTES_MAX])
{
	const struct member_text *t = &r->text;

	memset(ret, 0, MEMBER_HEAD);
	ret[0] = MEMBER_LAYOUT;
	ret[1] = (uint8_t)(r->may_master | r->drains << 1);
	le_store(ret + 2, 2, t->address_len);
	ret[4] = t->name_len;
	le_store(ret + 8, 8, r->session);
	le_store(ret + 16, 8, r->node);
	memcpy(ret + MEMBER_HEAD, t->address, t->address_len);
	memcpy(ret + MEMBER_HEAD + t->address_len, t->name, t->name_len);
	return MEMBER_HEAD + (uint32_t)t->address_len + t->name_len;
}

static core_nsec_t retry_after(const struct session *se)
{
	return se->conf->beat / 4;
}

/* --- The beat --- */

static void beat_ask(struct session *se, struct step *s)
{
	struct ask *a = &se->asks->v[ASK_BEAT];

	ask_key(a, BEAT_PREFIX, se->self.session);
	se->beat_at = s->now + se->conf->beat;
	se->beat_reading = se->beat.unsure || se->adopting;
	if (se->beat_reading) {
		ask_get(se->asks, ASK_BEAT, s);
		return;
	}
	beat_send(&se->beat, s->now, a->value);
	ask_cas(se->asks, ASK_BEAT, se->beat.version, BEAT_BYTES, s);
}

/* Never earlier than before: a beat that lands only lengthens. */
static void deadline_renew(struct session *se, struct step *s)
{
	if (!se->beat.landed || se->condemned)
		return;
	core_nsec_t when = se->beat.landed + se->conf->ttl - session_margin(se->conf);
	if (when <= se->deadline)
		return;
	se->deadline = when;
	se->jeopardy = false;
	se->loss = se->loss_done = false;
	se->error = 0;
	step_act(s, CORE_ACT_DEADLINE)->timer.when = when;
}

static void session_say(struct session *se, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_SESSION);

	a->session.session = se->self.session;
	a->session.incarnation = se->self.incarnation;
	a->session.node = se->conf->node;
}

static void begin(struct session *se, struct msg_peer id, struct step *s)
{
#ifdef CORE_BREAK_NODE_SESSION
	id.session = se->conf->node;
#endif
	se->self = id;
	beat_init(&se->beat, id);
#ifdef CORE_BREAK_NODE_SESSION
	se->beat.unsure = true;
#endif
	se->state = SESSION_BEATING;
	se->deadline = 0;
	se->record_version = 0;
	se->record_stale = se->condemned = false;
	se->record_at = 0;
	se->jeopardy = se->loss = se->loss_done = false;
	session_say(se, s);
}

static void begin_anew(struct session *se, struct step *s)
{
	uint64_t last[2] = { se->self.session, ++se->ids };
	struct msg_peer id = { siphash13(se->seed, last, sizeof last), 1 };

	id.session += !id.session;
	begin(se, id, s);
	beat_ask(se, s);
}

void session_start(struct session *se, const struct core_cluster *conf, const struct member_text *text, struct asks *asks,
		   const uint64_t seed[2], struct msg_peer id, core_nsec_t adopted_deadline, struct step *s)
{
	memset(se, 0, sizeof *se);
	se->conf = conf;
	se->text = *text;
	se->asks = asks;
	se->seed[0] = seed[0];
	se->seed[1] = seed[1];
	begin(se, id, s);
	se->adopting = adopted_deadline;
	se->beat.unsure = se->adopting;          /* a beat of the predecessor stands there, whatever becomes of us */
	se->deadline = adopted_deadline;
	beat_ask(se, s);
}

static void lapse(struct session *se, struct step *s)
{
	if (!se->loss) {
		se->loss = true;
		step_act(s, CORE_ACT_LOSS);
	}
	step_act(s, CORE_ACT_LAPSED);
	se->state = SESSION_LAPSED;
	se->beat_at = s->now;                    /* no more of them: when to end it */
	se->adopting = false;
	se->deadline = 0;
}

void session_condemn(struct session *se, struct step *s)
{
	core_nsec_t when = s->now + se->conf->loss;

	se->condemned = true;
	if (when >= se->deadline)
		return;
	se->deadline = when;
	step_act(s, CORE_ACT_DEADLINE)->timer.when = when;
}

void session_leave(struct session *se, bool holds, struct step *s)
{
	session_condemn(se, s);
	if (holds)
		return;
	se->loss = se->loss_done = true;         /* there is nothing to lose */
	se->deadline = s->now ? s->now : 1;
}

/* --- The member record --- */

static void record_ask(struct session *se, struct step *s)
{
	struct ask *a = &se->asks->v[ASK_RECORD];
	struct member_record r = { se->self.session, se->conf->node, se->conf->may_master, se->drains, se->text };

	ask_key(a, MEMBER_PREFIX, se->self.session);
	se->record_at = s->now + retry_after(se);
	if (se->record_reading) {
		ask_get(se->asks, ASK_RECORD, s);
		return;
	}
	se->record_stale = false;
	ask_cas(se->asks, ASK_RECORD, se->record_version, member_record_encode(&r, a->value), s);
}

static void record_answer(struct session *se, const struct core_event *ev)
{
	if (se->record_reading && !ev->store.error) {
		se->record_version = ev->store.version;
		se->record_reading = false;
	} else if (!se->record_reading && !ev->store.error && ev->store.version) {
		se->record_version = ev->store.version;
		if (se->state == SESSION_ENROLLING)
			se->state = SESSION_LIVE;
	} else {
		se->record_reading = true;
		se->record_stale = true;
	}
}

/* --- The end of the last session --- */

static void tombstone(struct session *se, struct step *s)
{
	struct ask *a = &se->asks->v[ASK_BEAT];
	struct beat_value end = se->beat.last;

	end.ended = true;
	ask_key(a, BEAT_PREFIX, se->self.session);
	beat_encode(&end, a->value);
	ask_cas(se->asks, ASK_BEAT, se->beat.version, BEAT_BYTES, s);
	se->state = SESSION_ENDING;
}

static void left(struct session *se, int error, struct step *s)
{
	se->state = SESSION_LEFT;
	step_act(s, CORE_ACT_LEFT)->node.error = error;
}

/* The last session has ended; its record goes after it, as far as it is known: not while a write of it is under way since before the lapse. */
static void clear(struct session *se, struct step *s)
{
	if (!se->record_version || se->record_reading || asking(se->asks, ASK_RECORD)) {
		left(se, 0, s);
		return;
	}
	ask_key(&se->asks->v[ASK_RECORD], MEMBER_PREFIX, se->self.session);
	ask_delete(se->asks, ASK_RECORD, se->record_version, s);
	se->state = SESSION_CLEARING;
}

/* Whether the session has landed at all, or by which version, is read first, if it is not known. */
static void leave_look(struct session *se, struct step *s)
{
	if (s->now < se->beat_at)
		return;
	if (se->ends++ >= LEAVE_TRIES) {
		left(se, se->error ? se->error : -CORE_ETIMEDOUT, s);
	} else if (se->beat.unsure) {
		se->beat_reading = true;
		ask_key(&se->asks->v[ASK_BEAT], BEAT_PREFIX, se->self.session);
		ask_get(se->asks, ASK_BEAT, s);
	} else if (se->beat.exists || se->beat.last.counter) {
		tombstone(se, s);                /* also where there is none: a beat of ours may be under way yet */
	} else {
		clear(se, s);
	}
}

static void leave_answer(struct session *se, const struct core_event *ev, struct step *s)
{
	se->error = ev->store.error;
	se->beat_at = s->now + (ev->store.error == -CORE_EAGAIN ? 0 : retry_after(se));
	if (se->state == SESSION_ENDING) {
		se->state = SESSION_LAPSED;
		se->beat.unsure = ev->store.error;
		if (!ev->store.error)
			clear(se, s);
	} else if (se->beat_reading && !ev->store.error) {
		se->beat_at = s->now;
		enum beat_find found = beat_read(&se->beat, ev->store.value, ev->store.value_len, ev->store.version, s->now);

		if (found == BEAT_ENDED || found == BEAT_SUPERSEDED)
			clear(se, s);
	} else if (!se->beat_reading) {
		beat_written(&se->beat, ev->store.error, ev->store.version, s->now);
		se->beat_at = s->now;
	}
}

/* --- Answers and time --- */

static int beat_found(struct session *se, const struct core_event *ev, struct step *s)
{
	enum beat_find found = beat_read(&se->beat, ev->store.value, ev->store.value_len, ev->store.version, s->now);

	switch (found) {
	case BEAT_OURS:
		se->adopting = false;
		deadline_renew(se, s);
		se->beat_at = s->now;            /* the renewal itself is still due */
		return 0;
	case BEAT_NOT_YET:
		if (!se->adopting) {
			se->beat_at = s->now + retry_after(se);
			return 0;
		}
		lapse(se, s);
		return 1;
	case BEAT_ENDED:
		lapse(se, s);
		return 1;
	case BEAT_SUPERSEDED:
		return -CORE_ESTALE;
	}
	return 0;
}

static int beat_answer(struct session *se, const struct core_event *ev, struct step *s)
{
	if (se->leaving && (se->state == SESSION_LAPSED || se->state == SESSION_ENDING)) {
		leave_answer(se, ev, s);
		return 0;
	}
	if (se->state == SESSION_LAPSED) {
		if (!se->beat_reading)
			beat_written(&se->beat, ev->store.error, ev->store.version, s->now);
		return 0;
	}
	if (se->state == SESSION_ENDING) {
		begin_anew(se, s);               /* ended, or it will be expired: either way it is over */
		return 0;
	}
	if (se->beat_reading) {
		if (!ev->store.error)
			return beat_found(se, ev, s);
		se->beat_at = s->now + retry_after(se);
		se->error = ev->store.error;
		return 0;
	}
	beat_written(&se->beat, ev->store.error, ev->store.version, s->now);
	if (se->beat.unsure) {
		se->error = ev->store.error;
		se->beat_at = s->now + retry_after(se);
		return 0;
	}
	deadline_renew(se, s);
	if (se->state == SESSION_BEATING && se->deadline)
		se->state = SESSION_ENROLLING;
	return 0;
}

int session_answer(struct session *se, enum ask_kind kind, const struct core_event *ev, struct step *s)
{
	if (kind == ASK_BEAT)
		return beat_answer(se, ev, s);
	if (se->state == SESSION_CLEARING)
		left(se, 0, s);                  /* if it has not gone, somebody else clears it away */
	else
		record_answer(se, ev);
	return 0;
}

static bool passed(const struct session *se, core_nsec_t now)
{
#ifdef CORE_BREAK_ADOPT_LATE
	if (se->state == SESSION_BEATING)
		return false;
#endif
	return se->deadline && now >= se->deadline;
}

/*
 * When no beat has landed for the time of two, be it a predecessor's: the deadline tells when it was sent. Three
 * would be too late for a warning where the actions on loss take a quarter of ttl.
 */
static core_nsec_t jeopardy_at(const struct session *se)
{
	core_nsec_t span = se->conf->ttl - session_margin(se->conf);

	return (se->deadline > span ? se->deadline - span : 0) + 2 * se->conf->beat;
}

static void jeopardy_look(struct session *se, struct step *s)
{
	if (se->jeopardy || se->condemned || !se->deadline || s->now < jeopardy_at(se))
		return;
	se->jeopardy = true;
#ifndef CORE_BREAK_JEOPARDY
	step_act(s, CORE_ACT_JEOPARDY)->node.error = se->error;
#endif
}

static void loss_look(struct session *se, struct step *s)
{
	if (se->loss || !se->deadline || s->now + se->conf->loss < se->deadline)
		return;
	se->loss = true;
	step_act(s, CORE_ACT_LOSS);
}

/* Only once nobody of ours can act any more, and nothing of the old session is under way. */
static void end_look(struct session *se, struct step *s)
{
#ifndef CORE_BREAK_END_EARLY
	if (!se->loss_done)
		return;
#endif
	if (asking(se->asks, ASK_BEAT) || asking(se->asks, ASK_RECORD))
		return;
	if (se->leaving)
		leave_look(se, s);
	else if (!se->beat.exists || se->beat.unsure)
		begin_anew(se, s);
	else
		tombstone(se, s);
}

bool session_tick(struct session *se, struct step *s)
{
	switch (se->state) {
	case SESSION_NONE:
	case SESSION_ENDING:
	case SESSION_CLEARING:
	case SESSION_LEFT:
		return false;
	case SESSION_LAPSED:
		end_look(se, s);
		return false;
	case SESSION_BEATING:
	case SESSION_ENROLLING:
	case SESSION_LIVE:
		break;
	}
	if (passed(se, s->now)) {
		lapse(se, s);
		return true;
	}
	jeopardy_look(se, s);
	loss_look(se, s);
	if (!asking(se->asks, ASK_BEAT) && s->now >= se->beat_at && !se->condemned)
		beat_ask(se, s);
	if ((se->state == SESSION_ENROLLING || (se->state == SESSION_LIVE && se->record_stale)) &&
	    !asking(se->asks, ASK_RECORD) && s->now >= se->record_at)
		record_ask(se, s);
	return false;
}

static void earlier(core_nsec_t *at, core_nsec_t when)
{
	if (when && (!*at || when < *at))
		*at = when;
}

core_nsec_t session_next(const struct session *se)
{
	core_nsec_t at = 0;

	if (se->state == SESSION_LAPSED && se->leaving && se->loss_done && !asking(se->asks, ASK_BEAT) && !asking(se->asks, ASK_RECORD))
		return se->beat_at ? se->beat_at : 1;
	if (se->state < SESSION_BEATING || se->state > SESSION_LIVE)
		return 0;
#ifdef CORE_BREAK_ADOPT_LATE
	if (se->state != SESSION_BEATING)
#endif
	earlier(&at, se->deadline);
	if (!se->loss && se->deadline > se->conf->loss)
		earlier(&at, se->deadline - se->conf->loss);
	if (!se->jeopardy && !se->condemned && se->deadline)
		earlier(&at, jeopardy_at(se));
	if (!asking(se->asks, ASK_BEAT) && !se->condemned)
		earlier(&at, se->beat_at);
	if ((se->state == SESSION_ENROLLING || (se->state == SESSION_LIVE && se->record_stale)) && !asking(se->asks, ASK_RECORD))
		earlier(&at, se->record_at ? se->record_at : 1);
	return at;
}
