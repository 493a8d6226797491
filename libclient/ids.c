/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker ids: one word of the segment for all processes of the node (proto/small.h), raised by compare-and-swap.
 *
 * What must hold: an id is given out if the swap succeeds and its time lies below the ceiling, which was read after the word: a daemon
 * that changes number or ceiling closes the word first. So no deadline is looked at: what lies below the ceiling is this node's for
 * good, whether it has a session or not. The clock decides only how far the time goes on, so it need not be right, and is asked once in some ten microseconds; in between the processor's counter says that it is still about now.
 */
#include <errno.h>

#include "box.h"
#include "deadline.h"
#include "thread.h"

#define BACK_NS  UINT64_C(50000000)      /* for so long a call waits for a clock that has gone back ... */
#define NAP_NS   UINT64_C(1000000)
#define STORE_NS UINT64_C(1000000000)    /* ... and for so long for the store */

#define likely(x) __builtin_expect(!!(x), 1)

struct dlock_id {
	struct dlock h;
	/* Written by any thread, each by itself: the worst is a time that is as old as one of them. */
	uint64_t ticks, ms;              /* when the clock was asked, and what it said */
} __attribute__((aligned(64)));

static struct small_id *words(const struct binding *b)
{
	return (struct small_id *)b->word;
}

/* Some 10 to 60 microseconds. */
static inline uint64_t skip_ticks(void)
{
#if defined(__aarch64__)
	return counter_force_ticks() / 32;
#else
	return UINT64_C(1) << 16;
#endif
}

static uint64_t clock_ms(void)
{
	struct timespec t;
	uint64_t ms;

	clock_gettime(CLOCK_REALTIME, &t);
	ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	return ms > ID_EPOCH_MS ? ms - ID_EPOCH_MS : 0;
}

static uint64_t clock_ask(struct dlock_id *g, uint64_t ticks)
{
	uint64_t ms = clock_ms();

	__atomic_store_n(&g->ms, ms, __ATOMIC_RELAXED);
	__atomic_store_n(&g->ticks, ticks, __ATOMIC_RELAXED);
	return ms;
}

/* --- The long way --- */

/* The ceiling is near: one of those who see it tells the daemon. */
static void low(struct dlock_id *g, struct binding *b)
{
	uint64_t ceiling = __atomic_load_n(&words(b)->ceiling_ms, __ATOMIC_RELAXED), asked = __atomic_load_n(&words(b)->asked_ms, __ATOMIC_RELAXED);

	if (asked == ceiling || !__atomic_compare_exchange_n(&words(b)->asked_ms, &asked, ceiling, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	seg_bit_set(b->space->base, SEG_WANT, b->slot);
	name_ring(g->h.name, b, &limit_none);
}

enum taken { TAKEN_ONE, TAKEN_NONE, TOO_EARLY };

/* One try with what the words say now. */
static enum taken try_one(struct dlock_id *g, struct binding *b, uint64_t *ret)
{
	uint64_t now = clock_ask(g, counter_now()), last = __atomic_load_n(&words(b)->word, __ATOMIC_ACQUIRE), next, ceiling;

	do {
		if (last & ID_CLOSED)
			return TAKEN_NONE;
		next = id_after(last, now);
		ceiling = __atomic_load_n(&words(b)->ceiling_ms, __ATOMIC_ACQUIRE);
		if (next >> ID_MS_SHIFT > now + ID_AHEAD_MS)
			return TOO_EARLY;
		if (next >> ID_MS_SHIFT >= ceiling)
			return TAKEN_NONE;
	} while (!__atomic_compare_exchange_n(&words(b)->word, &last, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	if ((next >> ID_MS_SHIFT) + ID_LOW_MS >= ceiling)
		low(g, b);
	*ret = next;
	return TAKEN_ONE;
}

static struct limit within(uint64_t ns)
{
	struct limit l = limit_none;

	l.until_ns = limit_now(&l) + ns;
	return l;
}

/* 1: look again. */
static int wait_for_more(struct dlock_id *g, struct binding *b, enum taken how, const struct limit *back, const struct limit *store)
{
	struct box_request rq = { .op = SMALL_RESERVE };
	int r;

	if (how == TOO_EARLY) {
		r = limit_nap(back, NAP_NS);
		return r == -ETIMEDOUT ? -EOVERFLOW : r < 0 ? r : 1;
	}
	r = box_call(&g->h, b, &rq, store);
	return r == -ETIMEDOUT ? -ENOTCONN : r < 0 && r != -ESTALE ? r : 1;
}

/* *ret may be NULL: it is only to be sure that there are some. */
static int slow(struct dlock_id *g, uint64_t *ret)
{
	struct limit back = within(BACK_NS), store = within(STORE_NS);
	enum taken how;
	struct binding *b;
	uint64_t id;
	int r;

	do {
		r = object_bind(&g->h, &store, &b);
		if (r == -ETIMEDOUT)
			r = -ENOTCONN;
		if (r < 0)
			break;
		if (!ret && !(__atomic_load_n(&words(b)->word, __ATOMIC_ACQUIRE) & ID_CLOSED))
			break;
		how = ret ? try_one(g, b, &id) : TAKEN_NONE;
		if (how == TAKEN_ONE)
			break;
		r = wait_for_more(g, b, how, &back, &store);
	} while (r == 1);
	if (r == 0 && ret)
		*ret = id;
	return r;
}

__attribute__((noinline)) static int call(struct dlock_id *g, uint64_t *ret)
{
	int saved = errno, r = object_enter(&g->h);

	if (r == 0) {
		r = slow(g, ret);
		object_exit(&g->h);
	}
	errno = saved;
	return -r;
}

/* --- --- */

int dlock_id_open(dlock_id_t **ret, const char *name, const dlock_attr_t *attr)
{
	void *g;
	int r = ret ? handle_open(&g, sizeof(struct dlock_id), name, attr, KIND_ID, 0, box_wake) : EINVAL;

	if (r)
		return r;
	r = call(g, NULL);
	if (r)
		handle_close(g);
	else
		*ret = g;
	return r;
}

int dlock_id_close(dlock_id_t *g)
{
	return handle_close(g ? &g->h : NULL);
}

int dlock_id_worker(dlock_id_t *g, unsigned *ret)
{
	uint64_t word;
	int r;

	if (!ret)
		return EINVAL;
	r = call(g, NULL);
	word = r ? 0 : __atomic_load_n(&words(binding_now(&g->h))->word, __ATOMIC_ACQUIRE);
	if (r == 0 && word & ID_CLOSED)
		r = ENOTCONN;
	if (r == 0)
		*ret = (unsigned)(word >> 12) & (ID_WORKERS - 1);
	return r;
}

int dlock_id_next(dlock_id_t *g, uint64_t *ret)
{
	struct binding *b = binding_now(&g->h);
	struct small_id *w = words(b);
	uint64_t ticks = counter_now(), now = __atomic_load_n(&g->ms, __ATOMIC_RELAXED), last, next;

	if (!likely(ticks - __atomic_load_n(&g->ticks, __ATOMIC_RELAXED) < skip_ticks()) || !thread_serial() || !b->space)
		return call(g, ret);
	last = __atomic_load_n(&w->word, __ATOMIC_ACQUIRE);
	do {
		next = id_after(last, now);
		if (!likely(!(last & ID_CLOSED) && (next >> ID_MS_SHIFT) + ID_LOW_MS < __atomic_load_n(&w->ceiling_ms, __ATOMIC_ACQUIRE) &&
			    next >> ID_MS_SHIFT <= now + ID_AHEAD_MS))
			return call(g, ret);
	} while (!likely(__atomic_compare_exchange_n(&w->word, &last, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)));
	*ret = next;
	return 0;
}
