/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The member's side of barriers: what masters say of them. */
#include "barrier_int.h"

#include "member.h"

static bool is_inside(const struct barrier *x)
{
	return x->paired && x->rec.state == CORE_BARRIER_IN && round_leaves(x->rec.now.round);
}

/* The round that we were in has come to nothing, and nobody can have had a verdict of it. */
static void put_out(struct barriers *b, struct barrier *x, struct step *s)
{
	if (NEVER(is_inside(x)))
		settle_error(b, x, 0, x->rec.upto, -CORE_ESTALE);
	x->rec.state = CORE_BARRIER_OUT;
	x->rec.now = (struct core_verdict){ 0 };
	settle_out(b, x);
	record_write(b, x, s);
	state_say_anew(b, x, s);
}

/* Places are not good any more, but those that are taken. Whoever is about to be OUT says so then. */
static void take_void(struct barriers *b, struct barrier *x, struct step *s)
{
	x->places = 0;
	if (x->rec.state != CORE_BARRIER_TOLD)
		state_say(b, x, s);
}

static void take_enrol(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	bool same = x->rec.state == CORE_BARRIER_IN && x->rec.now.round == m->stamp;

	if (m->flags & MSG_FLAG_PLACES) {
		take_void(b, x, s);
		return;
	}
	if (x->number != m->number || x->rec.state == CORE_BARRIER_TOLD)
		return;
	x->places = 0;
	if (!same && x->rec.state == CORE_BARRIER_IN && (!m->stamp || census(b, x).wants_out || is_inside(x))) {
		put_out(b, x, s);
		return;
	}
	if (!m->stamp)
		return;
	uint64_t upto = order_of(b, x, m->held);
	if (NEVER(!upto || (same && upto < x->rec.upto)))
		return;
	x->rec.state = CORE_BARRIER_IN;
	x->rec.now = (struct core_verdict){ .round = m->stamp };
	x->rec.upto = upto;
	x->rec.by = m->from.session;
	record_write(b, x, s);
	state_say(b, x, s);
}

static void take_announce(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	if (x->rec.state == CORE_BARRIER_IN && x->rec.now.round == m->stamp) {
		x->rec.state = CORE_BARRIER_TOLD;
		x->places = m->number;
		x->places_n = census(b, x).in;
		x->rec.now = verdict_of(m);
		record_write(b, x, s);
	}
	state_say(b, x, s);
}

static void take_go(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	if (x->rec.state != CORE_BARRIER_TOLD || x->rec.now.round != m->stamp) {
		state_say(b, x, s);
		return;
	}
	if (x->going)
		return;
	x->going = true;
	settle_round(b, x, &x->rec.now, x->rec.session, x->rec.upto);
	due_put(b, x);
}

static void take_answer(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	struct core_verdict v = verdict_of(m);

	if (m->flags & MSG_FLAG_RESET) {
		if (!x->reset_number || x->reset_number != m->number)
			return;
		reset_done(x, 0, s);
	} else if (x->ask_number && x->ask_number == m->number) {
		if (m->error)
			settle_error(b, x, 0, x->rec.ask_upto, -CORE_ESTALE);
		else
			settle_round(b, x, &v, x->rec.ask_session, x->rec.ask_upto);
		x->ask_number = 0;
		x->answered = true;
		x->entered = !m->error && verdict_enters(x->paired, &v);
		due_put(b, x);
	} else if (x->number == m->number && m->error && x->rec.state == CORE_BARRIER_OUT) {
		settle_error(b, x, x->rec.ask_round ? x->rec.ask_upto : 0, UINT64_MAX, m->error);
		x->number = ++b->number;
	}
}

void barriers_member_receive(struct barriers *b, const struct msg *m, struct step *s)
{
	const struct member *me = b->member;
	uint32_t handle = barrier_find(b, m->key, m->key_len);

	if (!handle || !msg_peer_same(m->from, me->master[m->shard]) || m->epoch != me->epoch[m->shard] ||
	    !(me->told & shard_bit(m->shard)))
		return;
	struct barrier *x = barrier_at(b, handle);
	if (m->kind == MSG_ENROL)
		take_enrol(b, x, m, s);
	else if (m->kind == MSG_ANNOUNCE)
		take_announce(b, x, m, s);
	else if (m->kind == MSG_GO)
		take_go(b, x, m, s);
	else if (m->kind == MSG_ANSWER)
		take_answer(b, x, m, s);
	else
		(void)NEVER(true);
}
