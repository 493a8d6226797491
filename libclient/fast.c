/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The path of a lock that nobody else wants: no function call, no system call, one compare-and-swap
 * to take the word and one to give it back. Whatever is not plain goes to slow.c.
 *
 * The word is loaded before the state: where the state is 0 after that, and the swap succeeds, no
 * hold of this binding lies in between (handle.h). The deadline is looked at when the word has been
 * taken, since it may pass before that.
 */
#include <errno.h>

#include "deadline.h"
#include "handle.h"
#include "thread.h"

#define likely(x) __builtin_expect(!!(x), 1)

__attribute__((always_inline)) static inline bool fast_take(struct dlock *l)
{
	struct binding *b = binding_now(l);
	uint32_t serial = thread_serial();
	uint64_t w = __atomic_load_n(b->word, __ATOMIC_ACQUIRE), n = w + LOCK_ONE + b->me;

	if ((w & b->slow) != LOCK_L || !serial || __atomic_load_n(&b->state, __ATOMIC_RELAXED))
		return false;
	if (!LOCK_CAS(b->word, &w, n, __ATOMIC_ACQUIRE))
		return false;
	__atomic_store_n(&b->held, n, __ATOMIC_RELAXED);
	__atomic_store_n(&b->state, serial | b->widen, __ATOMIC_RELEASE);
	if (likely(deadline_good(b->line)))
		return true;
	hold_undo(b);
	return false;
}

int dlock_wait(dlock_t *l)
{
	return likely(fast_take(l)) ? 0 : slow_wait(l, &limit_none, false);
}

int dlock_trywait(dlock_t *l)
{
	return likely(fast_take(l)) ? 0 : slow_wait(l, &limit_none, true);
}

int dlock_clockwait(dlock_t *l, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
		return EINVAL;
	if (likely(fast_take(l)))
		return 0;
	if (limit_parse(&limit, clock, abs) < 0)
		return EINVAL;
	return slow_wait(l, &limit, false);
}

int dlock_timedwait(dlock_t *l, const struct timespec *abs)
{
	return dlock_clockwait(l, CLOCK_REALTIME, abs);
}

/*
 * Ticks of 0 alone can mean that all is lost; slow_post() asks. The state is cleared first, since the
 * word may be taken by another thread through this binding as soon as it is free.
 */
int dlock_post(dlock_t *l)
{
	struct binding *b = binding_now(l);
	uint32_t serial = thread_serial();
	uint64_t w = __atomic_load_n(&b->held, __ATOMIC_RELAXED), held = w;

	if (!serial || __atomic_load_n(&b->state, __ATOMIC_RELAXED) != (serial | b->widen))
		return slow_post(l);
	if ((held & LOCK_W) || !__atomic_load_n(&b->line->ticks, __ATOMIC_RELAXED))
		return slow_post(l);
	__atomic_store_n(&b->state, 0, __ATOMIC_RELAXED);
	if (likely(LOCK_CAS(b->word, &w, held & ~(LOCK_OWNER | LOCK_MODE), __ATOMIC_RELEASE)))
		return 0;
	return hold_give(b, held);
}
