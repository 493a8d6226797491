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
#include "read.h"
#include "thread.h"

#define likely(x) __builtin_expect(!!(x), 1)

/*
 * Nearly every handle lives and dies with its first binding. To foresee that takes one load out of
 * the chain of handle, binding, line and word; the empty asm keeps the compiler from putting it back.
 */
static inline struct binding *binding_foreseen(struct dlock *l)
{
	struct binding *first = &l->first;

	__asm__("" : "+r"(first));
	return first;
}

enum took {
	TOOK,
	TOOK_LATE,                       /* but the deadline has passed, or its ticks have no say */
	TOOK_NOT,
	REBOUND,                         /* not tried: it is not the first binding */
};

/* What lies behind the swap's barrier waits for it, so that all but the ticks is loaded before. */
static inline enum took take(struct binding *b)
{
	const struct node_line *line = b->line;
	uint64_t *word = b->word, holder = thread_serial();
	uint64_t w = __atomic_load_n(word, __ATOMIC_ACQUIRE), n = w + LOCK_ONE + b->me;

	if ((w & b->slow) != LOCK_L || !holder || __atomic_load_n(&b->state, __ATOMIC_RELAXED))
		return TOOK_NOT;
	holder |= b->widen;
	if (!LOCK_CAS(word, &w, n, __ATOMIC_ACQUIRE))
		return TOOK_NOT;
	__atomic_store_n(&b->held, n, __ATOMIC_RELAXED);
	__atomic_store_n(&b->state, holder, __ATOMIC_RELEASE);
	return likely(deadline_good_ticks(line)) ? TOOK : TOOK_LATE;
}

static inline enum took fast(struct dlock *l)
{
	return likely(binding_now(l) == &l->first) ? take(binding_foreseen(l)) : REBOUND;
}

/* What was not plain, but may have been taken all the same. */
static bool settle(struct dlock *l, enum took how)
{
	struct binding *b = &l->first;

	if (how == REBOUND) {
		b = binding_now(l);
		how = take(b);
	}
	if (how == TOOK_LATE && !deadline_good_ns(b->line)) {
		hold_undo(b);
		return false;
	}
	return how != TOOK_NOT;
}

/* Apart, so that what is plain needs no stack. */
__attribute__((noinline)) static int wait_rest(struct dlock *l, enum took how, bool try)
{
	return settle(l, how) ? 0 : slow_wait(l, &limit_none, try);
}

/* --- Readers: two exchanges in a cell of the thread's own (proto/readers.h) --- */

__attribute__((noinline, cold)) static enum took read_not(struct binding *b, uint64_t *cell)
{
	if (read_leave(binding_slot(b), cell))
		read_wake(b);
	return TOOK_NOT;
}

static inline __attribute__((always_inline)) enum took read_take(struct binding *b)
{
	struct seg_slot *s = binding_slot(b);
	struct read_line *n;
	struct read_hold *h;
	uint64_t gate, number;

	if (!thread_serial())
		return TOOK_NOT;
	n = read_lane(b);
	h = read_record(b);
	if (n->key != b->read_key || h->b)
		return TOOK_NOT;
	gate = READ_LOAD(&s->gate);
	if (gate & GATE_LOW)
		return TOOK_NOT;
	h->as = b->read_as | (gate & GATE_ERA);
	if (!likely(read_enter(s, h->at, h->as, gate, n->mark, b->slow, &number)))
		return read_not(b, h->at);
	h->number = number;
	h->depth = 1;
	h->cell_of = h;
	__atomic_store_n(&h->b, b, __ATOMIC_RELAXED);
	return likely(deadline_good_ticks(b->line)) ? TOOK : TOOK_LATE;
}

__attribute__((noinline)) static int read_rest(struct dlock *l, struct binding *b, enum took how, bool try)
{
	if (how == TOOK_LATE && deadline_good_ns(b->line))
		return 0;
	if (how == TOOK_LATE)
		read_drop(read_record(b));
	return slow_wait(l, &limit_none, WAIT_SHARED | (try ? WAIT_TRY : 0));
}

int dlock_wait_shared(dlock_t *l)
{
	struct binding *b = binding_now(l);
	enum took how = read_take(b);

	return likely(how == TOOK) ? 0 : read_rest(l, b, how, false);
}

int dlock_trywait_shared(dlock_t *l)
{
	struct binding *b = binding_now(l);
	enum took how = read_take(b);

	return likely(how == TOOK) ? 0 : read_rest(l, b, how, true);
}

int dlock_clockwait_shared(dlock_t *l, clockid_t clock, const struct timespec *abs)
{
	struct binding *b = binding_now(l);
	struct limit limit;
	enum took how;

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
		return EINVAL;
	how = read_take(b);
	if (likely(how == TOOK) || (how == TOOK_LATE && deadline_good_ns(b->line)))
		return 0;
	if (how == TOOK_LATE)
		read_drop(read_record(b));
	if (limit_parse(&limit, clock, abs) < 0)
		return EINVAL;
	return slow_wait(l, &limit, WAIT_SHARED);
}

int dlock_timedwait_shared(dlock_t *l, const struct timespec *abs)
{
	return dlock_clockwait_shared(l, CLOCK_REALTIME, abs);
}

/* Not held exclusively by this thread. The cell says whether this is the only hold in it; the era, whether it is good. */
__attribute__((noinline)) static int give_read(struct dlock *l, struct binding *b)
{
	struct read_line *n;
	struct read_hold *h;

	if (!thread_serial())
		return slow_post(l);
	n = read_lane(b);
	h = read_record(b);
	if (n->key != b->read_key || h->b != b || __atomic_load_n(h->at, __ATOMIC_RELAXED) != (h->as | 1))
		return slow_post(l);
	if (((READ_LOAD(&binding_slot(b)->gate) ^ h->as) & GATE_ERA) || !__atomic_load_n(&b->line->ticks, __ATOMIC_RELAXED))
		return slow_post(l);
	__atomic_store_n(&h->b, NULL, __ATOMIC_RELAXED);
	if (likely(!read_leave(binding_slot(b), h->at)))
		return 0;
	read_wake(b);
	return 0;
}

/* --- Giving back --- */

/*
 * The state is cleared first, since the word may be taken by another thread through this binding as
 * soon as it is free. Ticks of 0 alone can mean that all is lost; slow_post() asks. To read the counter
 * here too would cost as much as the rest: a daemon that runs has taken from the word what is lost, and
 * one that does not run may let a post pass that comes after the deadline. dlock_check() is what tells.
 */
static inline int give(struct dlock *l, struct binding *b)
{
	uint64_t held = __atomic_load_n(&b->held, __ATOMIC_RELAXED), w = held;
	uint32_t serial = thread_serial();
	uint64_t *word = b->word;

	if (!serial || __atomic_load_n(&b->state, __ATOMIC_RELAXED) != (serial | b->widen))
		return give_read(l, b);
	if (!__atomic_load_n(&b->line->ticks, __ATOMIC_RELAXED))
		return slow_post(l);
	__atomic_store_n(&b->state, 0, __ATOMIC_RELAXED);
	if (likely(!(held & LOCK_W)) && likely(LOCK_CAS(word, &w, held & ~(LOCK_OWNER | LOCK_EXCLUSIVE), __ATOMIC_RELEASE)))
		return 0;
	return hold_give(b, held);
}

__attribute__((noinline)) static int give_rebound(struct dlock *l)
{
	return give(l, binding_now(l));
}

int dlock_wait(dlock_t *l)
{
	enum took how = fast(l);

	return likely(how == TOOK) ? 0 : wait_rest(l, how, false);
}

int dlock_trywait(dlock_t *l)
{
	enum took how = fast(l);

	return likely(how == TOOK) ? 0 : wait_rest(l, how, true);
}

int dlock_clockwait(dlock_t *l, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;
	enum took how;

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
		return EINVAL;
	how = fast(l);
	if (likely(how == TOOK) || settle(l, how))
		return 0;
	if (limit_parse(&limit, clock, abs) < 0)
		return EINVAL;
	return slow_wait(l, &limit, false);
}

int dlock_timedwait(dlock_t *l, const struct timespec *abs)
{
	return dlock_clockwait(l, CLOCK_REALTIME, abs);
}

int dlock_post(dlock_t *l)
{
	return likely(binding_now(l) == &l->first) ? give(l, binding_foreseen(l)) : give_rebound(l);
}
