/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The member's side of barriers: what its callers ask for, and what a ledger knew. */
#include "barrier_int.h"

#include "member.h"

static int adopt_barrier(struct barriers *b, const struct core_event *ev)
{
	const struct core_barrier *rec = ev->barrier.record;
	uint32_t handle;

	if (!rec || !rec->parties || (rec->state != CORE_BARRIER_OUT && !rec->now.round))
		return -CORE_EINVAL;
	if (barrier_find(b, ev->barrier.key, ev->barrier.key_len))
		return -CORE_EALREADY;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	barrier_at(b, handle)->rec = *rec;
	barrier_at(b, handle)->paired = ev->barrier.paired;
	b->number = max_u64(b->number, max_u64(rec->upto, rec->ask_upto));
	return 0;
}

static int adopt_party(struct barriers *b, const struct core_event *ev)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;

	if (!x || !ev->barrier.order || (x->last && party_at(b, x->last)->order >= ev->barrier.order))
		return -CORE_EINVAL;
	party_add(b, x, ev->barrier.party, ev->barrier.order, ev->barrier.yes);
	b->number = max_u64(b->number, ev->barrier.order);
	return 0;
}

/* As many parties as the others say; nobody here: as many as one likes. */
static int parties_agree(struct barrier *x, uint32_t parties)
{
	if (x->rec.parties == parties)
		return 0;
	if (x->parties || x->rec.state != CORE_BARRIER_OUT || x->reset_number)
		return -CORE_EINVAL;
	x->rec.parties = parties;
	x->places = 0;
	x->write = true;
	return 0;
}

static int arrive_one(struct barriers *b, struct barrier *x, const struct core_event *ev, struct step *s)
{
	if (party_find(b, x, ev->barrier.party))
		return -CORE_EALREADY;
	int r = parties_agree(x, ev->barrier.parties);
	if (r < 0)
		return r;

	uint64_t order = ++b->number;
	party_add(b, x, ev->barrier.party, order, ev->barrier.yes);
	if (x->write || (x->rec.session != b->member->self.session && x->rec.state == CORE_BARRIER_OUT))
		record_write(b, x, s);
	struct core_action *a = step_act(s, CORE_ACT_LEDGER_ARRIVE);
	a->barrier.ref = x->ref;
	a->barrier.party = ev->barrier.party;
	a->barrier.order = order;
	a->barrier.yes = ev->barrier.yes;
	x->number = order;
	x->say = true;
	return 0;
}

static int arrive(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle;

	if (!ev->barrier.parties)
		return -CORE_EINVAL;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	struct barrier *x = barrier_at(b, handle);
	r = arrive_one(b, x, ev, s);
	if (x->say && !ev->barrier.further)
		due_put(b, x);
	return r;
}

static int withdraw(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;
	struct barrier_party *p = x ? party_find(b, x, ev->barrier.party) : NULL;

	if (!p)
		return -CORE_ENOENT;
	if (p->settled || p->gives_up)
		return -CORE_EALREADY;
	if (x->rec.ask_round && p->order <= x->rec.ask_upto) {
		p->gives_up = true;              /* the answer is asked for already */
		return 0;
	}
	bool in = x->rec.state != CORE_BARRIER_OUT && p->order <= x->rec.upto;
#ifdef CORE_BREAK_BARRIER_ALONE
	in = false;
#endif
	p->gives_up = true;
	if (!in)
		settle(b, x, p, -CORE_ETIMEDOUT);
	state_say_anew(b, x, s);
	return 0;
}

/* All that are done at once are told as one. */
static int depart(struct barriers *b, const struct core_event *ev)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;
	struct barrier_party *p = x ? party_find(b, x, ev->barrier.party) : NULL;

	if (!p || !x->paired)
		return -CORE_ENOENT;
	if (p->settled || p->ready)
		return -CORE_EALREADY;
	p->ready = true;
	x->number = ++b->number;
	x->say = true;
	due_put(b, x);
	return 0;
}

static int reset(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle;

	if (!ev->barrier.parties)
		return -CORE_EINVAL;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	struct barrier *x = barrier_at(b, handle);
	if (x->reset_number)
		return -CORE_EALREADY;
	r = parties_agree(x, ev->barrier.parties);
	if (r < 0)
		return r;
	x->reset_number = ++b->number;
	ask_say(b, x, x->reset_number, true, s);
	return 0;
}

/* Whoever has places left says that nobody will take them. */
static int close_barrier(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;

	if (!x)
		return -CORE_ENOENT;
	if (x->parties || x->reset_number || x->due || x->rec.state != CORE_BARRIER_OUT)
		return -CORE_EBUSY;
	if (places_good(b, x)) {
		x->places = 0;
		state_say_anew(b, x, s);
	}
	barrier_drop(b, handle);
	return 0;
}

int barriers_event(struct barriers *b, const struct core_event *ev, struct step *s)
{
	if (!ev->barrier.key || !ev->barrier.key_len || ev->barrier.key_len > CORE_KEY_MAX)
		return -CORE_EINVAL;
	int r = barriers_reserve(b);
	if (r < 0)
		return r;
	if (ev->kind == CORE_EV_ADOPT_BARRIER)
		return adopt_barrier(b, ev);
	if (ev->kind == CORE_EV_ADOPT_PARTY)
		return adopt_party(b, ev);
	if (ev->kind == CORE_EV_ARRIVE)
		return arrive(b, ev, s);
	if (ev->kind == CORE_EV_WITHDRAW)
		return withdraw(b, ev, s);
	if (ev->kind == CORE_EV_DEPART)
		return depart(b, ev);
	if (ev->kind == CORE_EV_RESET)
		return reset(b, ev, s);
	core_assert(ev->kind == CORE_EV_CLOSE);
	return close_barrier(b, ev, s);
}
