/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a wait does where readers are about (proto/readers.h).
 *
 * A reader that cannot go in at once waits for the word as anybody does. Once it owns it, it sets its cell and gives the
 * word back with R: so readers that wait go in one after the other, each woken by the one before, and stay together. One
 * that wants to be alone keeps the word and waits for the cells to be emptied. Who upgrades does both: it has
 * its cell all the while, and all others stand aside.
 */
#include <errno.h>

#include "deadline.h"
#include "space.h"
#include "wait.h"

#define LOOK_NS     UINT64_C(10000000)   /* a reader may be stopped, or die, between leaving and waking */
#define RETRY_NS    UINT64_C(50000000)   /* until another look whether the daemon is back */
#define QUIET_TIMES 64u                  /* so often nobody has read: then R goes */

int wait_in_itself(const struct wait *x)
{
	return x->try ? -EBUSY : -EDEADLK;
}

int wait_still_reads(const struct wait *x, const struct binding *b)
{
	const struct read_hold *h = x->upgrades;

	if (!thread_serial() || binding_lost(b) || ((READ_LOAD(&binding_slot(b)->gate) ^ h->as) & GATE_ERA) || !deadline_good(b->line))
		return -ESTALE;
	return 0;
}

bool wait_in_vain(uint64_t w)
{
	return lock_is_free(w) && !(w & LOCK_L) && (w & LOCK_Y);        /* also of a share */
}

void wait_unread(struct wait *x)
{
	if (x->read && thread_serial())
		read_unplace(x->read);
	x->read = NULL;
}

/* Most threads read nothing. */
static bool reads_at_all(const struct wait *x)
{
	return x->holder == HOLDER_PROCESS ? x->how & WAIT_SHARED : readers_here()->listed;
}

static int place(struct wait *x, struct binding *b)
{
	int r;

	if (x->read && x->line->space == b->space && (uint32_t)x->line->key == b->epoch)
		return 0;
	wait_unread(x);
	r = read_prepare(x->holder, x->l, b, &x->limit, &x->line, &x->read);
	if (r == -ESTALE)
		return 1;
	if (r != -ENOTCONN || x->l->attr.failfast)
		return r;
	if (x->try)
		return -EBUSY;
	r = limit_nap(&x->limit, RETRY_NS);
	return r < 0 ? r : 1;
}

int wait_beside_readers(struct wait *x, struct binding *b)
{
	struct read_hold *h = reads_at_all(x) ? read_of_slot(x->holder, b) : NULL;
	int r;

	if (h && !(x->how & WAIT_SHARED))
		return x->holder == HOLDER_PROCESS ? 0 : wait_in_itself(x);
	if (h) {
		r = read_again(x->holder, b, h);
		return r == 0 ? -EALREADY : r;
	}
	return x->how & WAIT_SHARED ? place(x, b) : 0;
}

/* Sleeps on `drain`, of which was is the value, for no longer than until the next look. */
static int drain_sleep(struct wait *x, struct binding *b, uint32_t was)
{
	struct timespec abs = limit_timespec(limit_slice(&x->limit, LOOK_NS));

	if (!x->cell)
		wait_show(x, b);
	futex_wait_class(&binding_slot(b)->drain, was, LOCK_CLASS_ANY, x->limit.clock, &abs);
	if (!thread_serial()) {          /* a child now: nothing of this is its own */
		x->cell = NULL;
		return 1;
	}
	return limit_over(&x->limit);
}

int wait_upgrade_over(struct wait *x, struct binding *b)
{
	struct seg_slot *s = binding_slot(b);
	int r = 0;

	while (r == 0 && !(x->how & WAIT_UPGRADE) && (READ_LOAD(&s->gate) & GATE_UPGRADER)) {
		uint32_t was = READ_OR(&s->drain, (uint32_t)DRAIN_ASIDE) | DRAIN_ASIDE;

		if (x->try)
			return -EBUSY;
		if (READ_LOAD(&s->gate) & GATE_UPGRADER)
			r = drain_sleep(x, b, was);
		if (r == 0 && (binding_lost(b) || !deadline_good(b->line)))
			r = 1;
	}
	return r;
}

/* Owned without having been inside: nothing has happened. */
static void give_back(struct binding *b, uint64_t w)
{
	if (lock_release(b->word, w, 0))
		hold_yielded(b);
}

/* Under an upgrade the word goes back to who upgrades. */
static bool stand_aside(const struct wait *x, struct binding *b, uint64_t w)
{
	if ((x->how & WAIT_UPGRADE) || !(READ_LOAD(&binding_slot(b)->gate) & GATE_UPGRADER))
		return false;
	give_back(b, w);
	return true;
}

/* Had it been lost in between, others could have been inside. */
int wait_still_read(const struct wait *x, struct binding *b, uint64_t w)
{
	int r = wait_still_reads(x, b);

	if (r < 0 && thread_serial())
		give_back(b, w);
	return r;
}

void wait_wants(const struct wait *x, struct binding *b)
{
	uint32_t what = x->how & WAIT_SHARED ? WANTS_SHARED : x->how & WAIT_UPGRADE ? WANTS_UPGRADE : WANTS_EXCLUSIVE;
	struct seg_slot *s = binding_slot(b);

	if (!(READ_LOAD(&s->wants) & what))
		READ_OR(&s->wants, what);
}

/* Nobody can own a word of which the node has a share, so no turn comes: whoever may read does. */
int wait_reads_share(struct wait *x, struct binding *b)
{
	struct seg_slot *s = binding_slot(b);
	struct read_hold *h = x->read;
	uint64_t gate, number, w;
	int r;

	if (x->how & WAIT_UPGRADE) {
		r = wait_still_reads(x, b);
		if (r < 0)
			return r;        /* and then the gate is not about this */
		return (READ_LOAD(&s->gate) & GATE_UPGRADER) == (b->me & LOCK_OWNER) ? 0 : -EDEADLK;     /* another node's goes first */
	}
	if (!(x->how & WAIT_SHARED) || !lock_is_share(LOCK_LOAD(b->word)))
		return 0;
	r = wait_upgrade_over(x, b);
	if (r != 0)
		return r;
	gate = READ_LOAD(&s->gate);
	w = LOCK_LOAD(b->word);
	if ((gate & GATE_LOW) || !lock_may_read(w, LOCK_SLOW))
		return 0;
	read_mark(x->line, b);
	h->as = cell_of(b->slot, gate);
	if (!read_enter(s, h->at, h->as, gate, x->line->mark, LOCK_SLOW, &number)) {
		if (read_leave(s, h->at))
			read_wake(b);
		return 0;
	}
	read_hold(h, b, number);
	x->read = NULL;
	if (!deadline_good(b->line)) {
		read_drop(h);
		return 1;
	}
	return x->l->attr.robust && (w & LOCK_D) ? -EOWNERDEAD : WAIT_READS;
}

int wait_reads(struct wait *x, struct binding *b, uint64_t w)
{
	struct seg_slot *s = binding_slot(b);
	struct read_hold *h = x->read;
	uint64_t count = lock_count(w);

	if (stand_aside(x, b, w))
		return x->try ? -EBUSY : 1;
	read_set(x->line, h, b, READ_LOAD(&s->gate));
	read_hold(h, b, READ_LOAD(&s->bias) + (count ? count : UINT64_C(1) << LOCK_COUNT_BITS));
	x->read = NULL;
	if (!lock_release(b->word, w, LOCK_READERS)) {
		read_drop(h);            /* the word was taken away in between */
		return 1;
	}
	hold_yielded(b);
	if (!deadline_good(b->line)) {
		read_drop(h);
		return 1;
	}
	return x->l->attr.robust && (w & LOCK_D) ? -EOWNERDEAD : 0;
}

/* Is one inside? Looks for some time at the one that was seen. */
static bool readers_there(const struct wait *x, struct binding *b)
{
	const uint64_t *mine = x->how & WAIT_UPGRADE ? x->upgrades->at : NULL;
	struct seg_slot *s = binding_slot(b);
	uint64_t as = cell_of(b->slot, READ_LOAD(&s->gate));
	unsigned turn = 0;
	uint32_t used;
	uint64_t *at;

#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_SEQ_CST);         /* the word is ours before we look which lines there are */
#endif
	used = space_lines(b->space);
	while ((at = readers_inside(b->space->base, s, as, used, mine))) {
		for (; turn < SPIN_TURNS && cell_is(READ_LOAD(at), as); turn++)
			cpu_pause();
		if (turn >= SPIN_TURNS)
			return true;
	}
	return !used && READ_LOAD(seg_lines_used(b->space->base));       /* they cannot be looked at: no memory */
}

int wait_readers(struct wait *x, struct binding *b, uint64_t *w)
{
	struct seg_slot *s = binding_slot(b);
	unsigned looks = 0;
	int r = 0;

	for (; readers_there(x, b); looks++) {
		uint32_t was;

		if (stand_aside(x, b, *w))
			return x->try ? -EBUSY : 1;
		if (x->try)
			r = -EBUSY;
		else if (binding_lost(b) || !deadline_good(b->line))
			r = 1;
		if (r != 0)
			break;
		was = READ_OR(&s->drain, (uint32_t)DRAIN_OWNER) | DRAIN_OWNER;
		barrier_everywhere();
		if (readers_there(x, b) && ((x->how & WAIT_UPGRADE) || !(READ_LOAD(&s->gate) & GATE_UPGRADER)))
			r = drain_sleep(x, b, was);
		if (r != 0)
			break;
	}
	if (r == 0) {
		b->quiet = looks ? 0 : b->quiet + 1;
		return lock_enter(b->word, w, b->quiet >= QUIET_TIMES) ? 0 : 1;
	}
	if (thread_serial())
		give_back(b, *w);
	return r;
}
