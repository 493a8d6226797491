/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What can be done with a hold, and asked about it. */
#include <errno.h>

#include "conn.h"
#include "deadline.h"
#include "handle.h"
#include "read.h"
#include "space.h"
#include "thread.h"

#define LOOK_SKIP 16u                    /* releases within a 32nd of LOCK_FORCE_NS, and only one looks */

/* A hold that was lost may be in an older one. */
int hold_find(const struct dlock *l, struct binding **ret)
{
	uint32_t holder;
	int r = holder_of(l, &holder);

	if (r < 0)
		return r;
	*ret = binding_of(l, holder);
	return *ret ? 0 : -EPERM;
}

static bool hold_identical(const struct binding *b)
{
	return !((__atomic_load_n(b->word, __ATOMIC_ACQUIRE) ^ __atomic_load_n(&b->held, __ATOMIC_RELAXED)) &
		 LOCK_IDENTITY);
}

bool hold_good(const struct binding *b)
{
	return !binding_lost(b) && hold_identical(b) && deadline_good(b->line);
}

/*
 * Has the one who was woken (K) been waiting for a processor for LOCK_FORCE_NS? Then it is time to
 * stand back. As seen from the releases through this binding, by the counter. Reading that can cost
 * as much as the lock, so where releases follow one another closely, only one in some looks. All of
 * it is written while the word is held.
 */
static unsigned hold_press(struct binding *b)
{
	uint64_t since = __atomic_load_n(&b->woken_ticks, __ATOMIC_RELAXED), now, span;
	uint32_t skip = __atomic_load_n(&b->look_skip, __ATOMIC_RELAXED);

	if (!(LOCK_LOAD(b->word) & LOCK_K)) {
		if (since)
			__atomic_store_n(&b->woken_ticks, 0, __ATOMIC_RELAXED);
		return 0;
	}
	if (since && skip) {
		__atomic_store_n(&b->look_skip, skip - 1, __ATOMIC_RELAXED);
		return 0;
	}
	now = counter_now();
	span = now - __atomic_load_n(&b->looked_ticks, __ATOMIC_RELAXED);
	__atomic_store_n(&b->looked_ticks, now, __ATOMIC_RELAXED);
	__atomic_store_n(&b->look_skip, span < counter_force_ticks() / 32 ? LOOK_SKIP : 0, __ATOMIC_RELAXED);
	if (since && now - since >= counter_force_ticks()) {
		__atomic_store_n(&b->woken_ticks, 0, __ATOMIC_RELAXED);
		return LOCK_PRESS;
	}
	if (!since)
		__atomic_store_n(&b->woken_ticks, now, __ATOMIC_RELAXED);
	return 0;
}

/* Another node wants it, and waits for this release: the daemon looks. */
void hold_yielded(struct binding *b)
{
	if (!(LOCK_LOAD(b->word) & LOCK_Y))
		return;
	seg_bit_set(b->space->base, SEG_WANT, b->slot);
	space_ring(b->space);
	if (READ_LOAD(&binding_slot(b)->gate) & GATE_UPGRADER)   /* he alone may take it still, and was not woken */
		futex_wake_class(lock_futex(b->word), INT_MAX, LOCK_CLASS_ANY);
}

/* A hold that outlives the deadline is given back all the same: others of this node wait for it. */
int hold_give(struct binding *b, uint64_t held)
{
	bool late = !deadline_good(b->line);

	if (binding_lost(b) || !lock_release(b->word, held, hold_press(b)))
		return ESTALE;
	hold_yielded(b);
	return late ? ESTALE : 0;
}

int hold_shared(const struct dlock *l, uint64_t *ret_number, struct binding **ret)
{
	uint32_t holder;
	int r = holder_of(l, &holder);

	return r < 0 ? r : read_check(l, holder, ret_number, ret);
}

static int read_post_mine(const struct dlock *l)
{
	uint32_t holder;
	int r = holder_of(l, &holder);

	return r < 0 ? -r : read_post(l, holder);
}

int slow_post(struct dlock *l)
{
	struct binding *b;
	uint64_t state, held;
	int r = hold_find(l, &b);

	if (r == -EPERM)
		return read_post_mine(l);
	if (r < 0)
		return -r;
	state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
	held = __atomic_load_n(&b->held, __ATOMIC_ACQUIRE);
	do {
		if (!state)
			return EPERM;    /* another thread of the process was faster */
	} while (!__atomic_compare_exchange_n(&b->state, &state,
					      state_depth(state) ? state - STATE_LEVEL : 0, false,
					      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	if (state_depth(state))
		return hold_good(b) ? 0 : ESTALE;
	if (state & STATE_VALUE)
		value_turn(b);
	return hold_give(b, held);
}

int dlock_check(dlock_t *l)
{
	struct binding *b;
	uint64_t number;
	int r = hold_find(l, &b);

	if (__atomic_load_n(&l->hint.fd, __ATOMIC_RELAXED) >= 0)
		hint_drain(l);
	if (r == -EPERM)
		return -hold_shared(l, &number, &b);
	if (r < 0)
		return -r;
	return hold_good(b) ? 0 : ESTALE;
}

/* The bias is the hold's own as long as the word is: read in that order. */
int hold_token(const struct binding *b, uint64_t *ret)
{
	uint64_t bias, number;

	if (binding_lost(b))
		return -ESTALE;
	bias = __atomic_load_n(&seg_slot(b->space->base, b->slot)->bias, __ATOMIC_ACQUIRE);
	number = lock_number(__atomic_load_n(&b->held, __ATOMIC_RELAXED));
	if (!hold_identical(b) || !deadline_good(b->line))
		return -ESTALE;
	*ret = bias + number;
	return 0;
}

int dlock_token(dlock_t *l, uint64_t *ret)
{
	struct binding *b;
	uint64_t number;
	int r = hold_find(l, &b);

	if (r == 0)
		return -hold_token(b, ret);
	if (r == -EPERM)
		r = hold_shared(l, &number, &b);
	if (r == 0)
		*ret = number;
	return -r;
}

int hold_mend(struct binding *b)
{
	uint64_t held = __atomic_load_n(&b->held, __ATOMIC_RELAXED);

	if (!lock_mend(b->word, held))
		return -ESTALE;
	__atomic_store_n(&b->held, held & ~LOCK_D, __ATOMIC_RELAXED);
	return 0;
}

int dlock_consistent(dlock_t *l)
{
	struct binding *b;
	uint64_t held;
	int r = hold_find(l, &b);

	if (r == -EPERM && hold_shared(l, &held, &b) != -EPERM)
		return EINVAL;           /* whoever only reads cannot mend */
	if (r < 0)
		return -r;
	held = __atomic_load_n(&b->held, __ATOMIC_RELAXED);
	if (binding_lost(b) || !hold_identical(b))
		return ESTALE;
	if (!l->attr.robust || !(held & LOCK_D))
		return EINVAL;
	return -hold_mend(b);
}

int dlock_wanted(dlock_t *l)
{
	const struct binding *b = binding_now(l);

	uint64_t w = __atomic_load_n(b->word, __ATOMIC_ACQUIRE);

	/* Who owns it without being inside waits for readers. */
	return (w & (LOCK_W | LOCK_Y)) || ((w & LOCK_OWNER) && !(w & LOCK_EXCLUSIVE)) ? EBUSY : 0;
}

/* --- For the commands that come with the library --- */

__attribute__((visibility("default"))) int dlock_internal_deadline(void *handle, const uint64_t **ret_ns,
								   const uint64_t **ret_loss_ns);

/*
 * Where the deadline stands of what is held through this handle, of any kind (segment.h), and before it the span in which a
 * loss is prepared. They stay readable in a child after fork().
 */
int dlock_internal_deadline(void *handle, const uint64_t **ret_ns, const uint64_t **ret_loss_ns)
{
	struct dlock *l = handle;
	struct binding *b = binding_now(l);
	uint64_t number;
	int r = l->kind == KIND_LOCK ? hold_find(l, &b) : 0;

	if (r == -EPERM)
		r = hold_shared(l, &number, &b);
	if (r < 0)
		return -r;
	*ret_ns = &b->line->ns;
	*ret_loss_ns = &conn_line(0)->loss_ns;
	return 0;
}
