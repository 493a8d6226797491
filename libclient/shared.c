/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From shared to exclusive and back, without letting go. */
#include <errno.h>

#include "deadline.h"
#include "read.h"
#include "space.h"

/* --- Upgrade: one at a time; the gate says who (proto/readers.h) --- */

/* The era is that of the hold: in another one it is lost, and the gate not ours. -EDEADLK, -ESTALE. */
static int upgrade_begin(struct binding *b, uint64_t era)
{
	struct seg_slot *s = binding_slot(b);
	uint64_t gate = READ_LOAD(&s->gate);

	do {
		if ((gate ^ era) & GATE_ERA)
			return -ESTALE;
		if (gate & GATE_LOW)
			return -EDEADLK;
	} while (!LOCK_CAS(&s->gate, &gate, gate | (b->me & LOCK_OWNER), __ATOMIC_SEQ_CST));
	READ_AND(&s->drain, ~(uint32_t)DRAIN_OWNER);     /* whoever waits for readers gives way */
	READ_WAKE(&s->drain);
	return 0;
}

static void upgrade_end(struct binding *b, uint64_t era)
{
	struct seg_slot *s = binding_slot(b);
	uint64_t gate = READ_LOAD(&s->gate);

	do {
		if (((gate ^ era) & GATE_ERA) || (gate & GATE_UPGRADER) != (b->me & LOCK_OWNER))
			return;          /* another thread of this process may be upgrading in that one */
	} while (!LOCK_CAS(&s->gate, &gate, gate & ~GATE_LOW, __ATOMIC_SEQ_CST));
	if (READ_AND(&s->drain, ~(uint32_t)DRAIN_ASIDE) & DRAIN_ASIDE)
		READ_WAKE(&s->drain);
}

/* Why there is nothing to upgrade. */
static int upgrade_refused(const struct dlock *l, uint32_t holder)
{
	struct binding *b = binding_of(l, holder);
	uint64_t number;
	int r = read_check(l, holder, &number, &b);

	if (r == -EPERM && b)
		return EINVAL;           /* it is exclusive */
	return r < 0 ? -r : EDEADLK;     /* it would wait for another hold of its own */
}

static int upgrade(struct dlock *l, bool try)
{
	struct read_hold *h;
	struct binding *b;
	uint64_t number, era;
	uint32_t holder;
	int r = holder_of(l, &holder);

	if (r < 0)
		return -r;
	h = read_alone(l, holder);
	if (!h)
		return upgrade_refused(l, holder);
	r = read_check(l, holder, &number, &b);
	if (r < 0)
		return -r;
	era = h->as & GATE_ERA;
	r = upgrade_begin(b, era);
	if (r < 0)
		return -r;
	r = slow_upgrade(l, h, try);
	if (!thread_serial())
		return ESTALE;           /* the child of a handler: it is the parent who upgrades */
	if (r == 0 || r == -EOWNERDEAD)
		read_drop(h);
	upgrade_end(b, era);
	return -r;
}

int dlock_upgrade(dlock_t *l)
{
	return upgrade(l, false);
}

int dlock_tryupgrade(dlock_t *l)
{
	return upgrade(l, true);
}

/* --- Downgrade --- */

/* The word is owned until the cell is set. Nobody else can be inside in between. */
static int downgrade(struct binding *b, struct read_line *line, struct read_hold *h)
{
	struct seg_slot *s = binding_slot(b);
	uint64_t held = __atomic_load_n(&b->held, __ATOMIC_RELAXED);
	uint64_t count = lock_count(lock_freed(held, LOCK_READERS));
	bool late = !deadline_good(b->line);

	if (__atomic_load_n(&b->state, __ATOMIC_RELAXED) & STATE_VALUE)
		value_turn(b);
	read_set(line, h, b, READ_LOAD(&s->gate));
	read_hold(h, b, READ_LOAD(&s->bias) + (count ? count : UINT64_C(1) << LOCK_COUNT_BITS));
	__atomic_store_n(&b->state, 0, __ATOMIC_RELAXED);
	if (binding_lost(b) || !lock_release(b->word, held, LOCK_READERS)) {
		read_drop(h);
		return ESTALE;
	}
	hold_yielded(b);
	return late ? ESTALE : 0;
}

int dlock_downgrade(dlock_t *l)
{
	struct read_line *line;
	struct read_hold *h;
	struct binding *b;
	uint64_t number;
	uint32_t holder;
	int r = holder_of(l, &holder);

	if (r < 0)
		return -r;
	b = binding_of(l, holder);
	if (!b)
		return read_check(l, holder, &number, &b) == -EPERM ? EPERM : EINVAL;    /* it is shared */
	if (state_depth(__atomic_load_n(&b->state, __ATOMIC_RELAXED)))
		return EDEADLK;          /* one level of several */
	if (binding_lost(b))
		return ESTALE;
	do {
		r = read_prepare(holder, l, b, &limit_none, &line, &h);
	} while (r == -ENOTCONN && limit_nap(&limit_none, 50000000) == 0 && !binding_lost(b));
	if (r < 0)
		return -r;
	return downgrade(b, line, h);
}
