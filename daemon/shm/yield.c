/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A lease that another node waits for.
 *
 * A word that is free, with nobody waiting here, is closed and given back at once. One that is held or read gets
 * Y: nobody takes it any more, its release rings (hold_yielded), or the last reader's, and it is closed then. So hand-overs
 * between nodes are in strict order, unless others of this node wait and a burst is allowed: then the
 * word stays as it is for the burst, and gets Y after that. A lease is often wanted back in the same breath as it is
 * granted. Then one has been woken for it who has not run yet: he is promised it (lock_promise), and has it once;
 * else it would go to and fro until somebody were quick enough.
 *
 * A burst is of hand-overs. One who takes the lock again and again, and nobody else of this node waits, has none: the other node would
 * wait for his acquisitions, which cost as little later. Measured with one client on each of two nodes, a millisecond for
 * such a one made five times as many acquisitions, and a twelfth of the owner changes.
 *
 * What must hold: once a name is marked `revoked`, ops.yielded is called for it, whatever clients do. A ring
 * may be lost with the one who owed it, and a client may scribble over Y: so each is looked at
 * every LOOK_SPAN besides, in parts where there are very many, and Y set again.
 */
#include <stdlib.h>

#include "../grow.h"
#include "shm.h"
#include "word.h"

#define SHARE_SPAN (2 * NSEC_PER_MSEC)   /* a share is used before it goes again */
#define LOOK_SPAN (10 * NSEC_PER_MSEC)
#define LOOKS_MAX 512                    /* at once */
#define LOOKS_PAUSE (NSEC_PER_MSEC / 2)
#define BURST_LOOK_MIN (250 * NSEC_PER_USEC)     /* hand-overs are counted by looking */

struct yield {
	uint32_t slot;
	uint64_t first;                  /* of the range that it is about: the next one may be revoked as well */
	uint64_t from;                   /* the word when it was revoked */
	uint64_t seen;                   /* ... and at the last look */
	nsec_t until;                    /* the end of the burst, or of the promise; 0: it is over */
	bool promised;
};

static bool yield_is(const struct space *s, const struct yield *y)
{
	return name_is_lock(s, y->slot) && name_revoked(name_at(s, y->slot)) && name_at(s, y->slot)->first == y->first;
}

static void yields_arm(struct space *s, nsec_t span)
{
	nsec_t when = loop_now(s->shm->loop) + span;

	if (!s->yield_timer.queued || when < s->yield_timer.when)
		loop_timer_set(s->shm->loop, &s->yield_timer, when);
}

static nsec_t burst_look(const struct space *s)
{
	nsec_t span = s->shm->burst.span / 8;

	return span > BURST_LOOK_MIN ? span : BURST_LOOK_MIN;
}

static void yield_give(struct space *s, uint32_t slot, uint64_t was)
{
	struct ledger_name *n = name_at(s, slot);
	uint64_t used = n->state == NAME_ASKED || n->shared ? n->count : lock_range_used(was, n->count);
	bool again = name_awaited(s, slot);      /* whoever waits here claims anew, behind the others */

	n->state = NAME_RETURNED;
	n->revoked = again;
	n->keeps = n->fresh = 0;
	s->shm->ops.yielded(s->shm->ops.arg, s, slot, used, was & LOCK_D, again);
}

/* It is read, and others want to read it: those who do here need not leave. They keep the last token, which has to be left for that. */
static bool yield_lower(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	uint64_t *word = &seg_slot(s->base, slot)->word, was = LOCK_LOAD(word), used;

	if (!n->keeps || n->shared || n->state != NAME_LEASED || !(was & LOCK_R) || !(was & LOCK_L) || !lock_lower(word, &was))
		return false;
	used = lock_range_used(was, n->count);
	s->shm->ops.lowered(s->shm->ops.arg, s, slot, used < n->count ? used + 1 : used, was & LOCK_D);
	return true;
}

/* Gives it back, or makes its owner ring. Returns whether it has been given back. */
static bool yield_try(struct space *s, uint32_t slot)
{
	uint64_t *word = &seg_slot(s->base, slot)->word, was, seen;

	if (yield_lower(s, slot))
		return true;
	for (;;) {
		if (lock_close(word, 0, &was))
			break;
		if (!lock_yield(word))
			continue;
		seen = LOCK_LOAD(word);
		if (lock_is_free(seen) && readers_drained(s, slot) && lock_close(word, seen, &was))
			break;
		upgrade_turn(s, slot);
		return false;
	}
	yield_give(s, slot, was);
	return true;
}

static bool burst_over(const struct space *s, const struct yield *y)
{
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, y->slot)->word);

	if (!y->until || loop_now(s->shm->loop) >= y->until)
		return true;
	if (name_at(s, y->slot)->shared)
		return false;
	if (y->promised)
		return !lock_is_promised(w);
	return !(w & LOCK_W) || lock_count(w) - lock_count(y->from) >= s->shm->burst.count;
}

/* Returns whether it still is one. */
static bool yield_one(struct space *s, struct yield *y)
{
	if (!yield_is(s, y))
		return false;
	if (!burst_over(s, y))
		return true;
	y->until = 0;
	if (yield_try(s, y->slot))
		return false;
	if (y->seen == LOCK_LOAD(&seg_slot(s->base, y->slot)->word) && readers_pass_over(s, y->slot, y->seen))
		return !yield_try(s, y->slot);
	y->seen = LOCK_LOAD(&seg_slot(s->base, y->slot)->word);
	return true;
}

/* Part of a round through all of them: between two parts others have their turn. */
static void yields_look(void *arg)
{
	struct space *s = arg;

	if (!s->yield_at)
		s->yield_bursts = false;
	for (unsigned spent = 0; spent < LOOKS_MAX && s->yield_at < s->n_yields;) {
		struct yield y = s->yields[s->yield_at];

		spent += 1 + readers_cost(s, y.slot);
		if (yield_one(s, &y)) {
			s->yield_bursts |= y.until && !y.promised;
			s->yields[s->yield_at++] = y;
		} else {
			s->yields[s->yield_at] = s->yields[--s->n_yields];
		}
	}
	if (s->yield_at < s->n_yields) {
		yields_arm(s, LOOKS_PAUSE);
		return;
	}
	s->yield_at = 0;
	if (s->n_yields)
		yields_arm(s, s->yield_bursts ? burst_look(s) : LOOK_SPAN);
}

/* While a burst lasts, a ring is somebody's who wants tokens. */
void yield_look(struct space *s, uint32_t slot)
{
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, slot)->word);

	if ((w & LOCK_Y && !lock_is_promised(w)) || !(w & LOCK_L))
		yield_try(s, slot);
}

/* Without memory there is no burst, and no second look: only rings and looks for sleepers. */
static void yield_add(struct space *s, const struct yield *y)
{
	struct yield *v = grown(s->yields, s->n_yields, &s->yields_cap, 16, sizeof *v);

	if (!v) {
		yield_try(s, y->slot);
		return;
	}
	s->yields = v;
	s->yields[s->n_yields++] = *y;
	yields_arm(s, y->until && !y->promised ? burst_look(s) : LOOK_SPAN);
}

/* Granted this moment: one who slept is on his way to it, and nobody sleeps behind him. */
static bool yield_is_fresh(const struct space *s, uint32_t slot, uint64_t w)
{
	return lock_is_free(w) && (w & LOCK_L) && (w & LOCK_K) && !name_awaited(s, slot);
}

static void yield_begin(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	const struct shm_burst *burst = &s->shm->burst;
	struct yield y = { .slot = slot, .first = n->first };

	if (s->broken || !n->count || n->revoked || (n->state != NAME_LEASED && n->state != NAME_ASKED))
		return;                  /* on its way already */
	n->revoked = 1;
	hint_ring_lost(s->shm, s, slot, (uint32_t)(LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_OWNER));
	hint_ring_readers(s->shm, s, slot);
	y.from = LOCK_LOAD(&seg_slot(s->base, slot)->word);
	if ((y.from & LOCK_W) && (y.from & LOCK_L) && burst->count && burst->span && !yield_is_fresh(s, slot, y.from)) {
		y.until = loop_now(s->shm->loop) + burst->span;
	} else if (n->shared && n->fresh) {
		y.until = loop_now(s->shm->loop) + SHARE_SPAN;
		n->fresh = 0;
	} else if (lock_promise(&seg_slot(s->base, slot)->word)) {
		y.promised = true;
		y.until = loop_now(s->shm->loop) + LOOK_SPAN;
	} else if (yield_try(s, slot)) {
		return;
	}
	yield_add(s, &y);
}

void space_revoke(struct space *s, uint32_t slot)
{
	name_at(s, slot)->keeps = 0;     /* whatever was said before */
	yield_begin(s, slot);
}

void space_revoke_share(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	if (n->shared)
		return;
	if (!n->revoked)                 /* said again, as by the next master, it is what it was; nor is what is wanted as a whole */
		n->keeps = 1;
	yield_begin(s, slot);
}

/* A burst may be under way. */
void space_revoke_now(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	struct yield y = { .slot = slot, .first = n->first };

	if (s->broken || !n->count || (n->state != NAME_LEASED && n->state != NAME_ASKED))
		return;
	for (uint32_t i = 0; n->revoked && i < s->n_yields; i++)
		if (s->yields[i].slot == slot)
			s->yields[i].until = 0;
	n->keeps = 0;
	if (!n->revoked) {
		n->revoked = 1;
		hint_ring_lost(s->shm, s, slot, (uint32_t)(LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_OWNER));
		hint_ring_readers(s->shm, s, slot);
		if (!yield_try(s, slot))
			yield_add(s, &y);
	} else {
		yield_try(s, slot);
	}
}

void yield_back(struct space *s, uint32_t slot)
{
	yield_give(s, slot, LOCK_LOAD(&seg_slot(s->base, slot)->word));
}

/* Another node would take it if nobody here uses it. */
bool space_revoke_idle(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	uint64_t *word = &seg_slot(s->base, slot)->word, was;

	if (s->broken || !n->count || n->revoked || (n->state != NAME_LEASED && n->state != NAME_ASKED))
		return true;             /* is on its way already */
	if ((LOCK_LOAD(word) & LOCK_W) || !lock_close(word, false, &was))
		return false;
	yield_give(s, slot, was);
	return true;
}

void yields_init(struct space *s)
{
	loop_timer_init(&s->yield_timer, yields_look, s);
}

void yields_done(struct space *s)
{
	if (s->yield_timer.fn)
		loop_timer_cancel(s->shm->loop, &s->yield_timer);
	free(s->yields);
	s->yields = NULL;
	s->n_yields = s->yields_cap = s->yield_at = 0;
}
