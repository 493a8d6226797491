/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool.h"

#include <errno.h>
#include <limits.h>

#include "deadline.h"
#include "proto/futex.h"
#include "sem.h"
#include "thread.h"

#define LOOK_NS   UINT64_C(1000000000)
#define ANY_CLASS UINT32_MAX

static struct pool_words *words(const struct binding *b)
{
	return (struct pool_words *)b->word;
}

/* The daemon is told of the first change since it has written the value. */
static void changed(const struct binding *b)
{
	uint64_t *written = &words(b)->written;

	if (!__atomic_load_n(written, __ATOMIC_SEQ_CST) || !__atomic_exchange_n(written, 0, __ATOMIC_SEQ_CST))
		return;
	seg_bit_set(b->space->base, SEG_WANT, b->account);
	space_ring(b->space);
}

static void wake(const struct binding *b, uint32_t n)
{
	if (__atomic_load_n(&words(b)->waiters, __ATOMIC_SEQ_CST))
		futex_wake_class((uint32_t *)b->word, n < INT_MAX ? (int)n : INT_MAX, ANY_CLASS);
}

static int give(const struct binding *b, uint32_t n)
{
	enum pool_given how = deadline_good(b->line) ? pool_give(b->word, n) : POOL_IS_CLOSED;

	switch (how) {
	case POOL_GIVEN:
		changed(b);
		wake(b, n);
		return 0;
	case POOL_FULL:
		return -EOVERFLOW;
	case POOL_IS_CLOSED:
		__atomic_fetch_add(&words(b)->posts, n, __ATOMIC_SEQ_CST);
		seg_bit_set(b->space->base, SEG_WANT, b->account);
		space_ring(b->space);
		return 0;
	}
	return 0;
}

int pool_post(struct dlock *l, uint32_t n)
{
	struct binding *b = binding_now(l);
	int r;

	if (!binding_lost(b))
		return give(b, n);
	r = object_enter(l);
	if (r < 0)
		return r;
	r = object_bind(l, &limit_none, &b);
	if (r == 0)
		r = give(b, n);
	object_exit(l);
	return r;
}

/* Sleeps while the value is v. Asks for it first, where it is elsewhere; else the daemon is to look after those who sleep. */
static int sleep_on(struct dlock *l, const struct binding *b, const struct limit *limit, uint64_t v)
{
	struct timespec abs = limit_timespec(limit_slice(limit, LOOK_NS));
	struct seg_cell *cell;

	if ((v & POOL_CLOSED) || !seg_watched(b->space->base, b->slot))
		object_ring(l, b, limit);
	cell = binding_show(b, 0);
	futex_wait_class((uint32_t *)b->word, (uint32_t)v, ANY_CLASS, limit->clock, &abs);
	if (!thread_serial())
		return 1;
	binding_hide(cell);
	return 0;
}

/* Taken; but perhaps by a lease that was over. */
static int taken(const struct binding *b, uint32_t n, const struct limit *limit)
{
	int r;

	if (deadline_good(b->line)) {
		changed(b);
		return 0;
	}
	pool_give(b->word, n);
	r = limit_nap(limit, LOOK_NS / 20);
	return r < 0 ? r : 1;
}

int pool_wait_once(struct dlock *l, uint32_t n, const struct limit *limit, bool try)
{
	struct binding *b;
	uint64_t v;
	int r = object_bind(l, limit, &b);

	if (r < 0)
		return r;
	if (pool_take(b->word, n))
		return taken(b, n, limit);
	r = limit_over(limit);
	if (r < 0)
		return r;
	__atomic_fetch_add(&words(b)->waiters, 1, __ATOMIC_SEQ_CST);
	v = __atomic_load_n(b->word, __ATOMIC_SEQ_CST);
	if (try && !(v & POOL_CLOSED))
		r = (v & POOL_VALUE_MAX) >= n ? 1 : -EAGAIN;
	else if ((v & POOL_CLOSED) || (v & POOL_VALUE_MAX) < n)
		r = sleep_on(l, b, limit, v);
	if (r == 1 && !thread_serial()) {        /* a child now: it was the parent that was counted */
		uint32_t serial;

		r = thread_register(&serial);
		return r < 0 || (r = object_enter(l)) < 0 ? r : 1;
	}
	__atomic_fetch_sub(&words(b)->waiters, 1, __ATOMIC_SEQ_CST);
	return r < 0 ? r : 1;
}

int pool_value(struct dlock *l, int *ret)
{
	struct limit limit = { .clock = CLOCK_MONOTONIC };
	struct binding *b;
	uint64_t v = POOL_CLOSED;
	int r = object_enter(l);

	if (r < 0)
		return r;
	limit.until_ns = limit_slice(&limit_none, LOOK_NS);
	do {
		r = object_bind(l, &limit, &b);
		if (r < 0)
			break;
		v = __atomic_load_n(b->word, __ATOMIC_SEQ_CST);
		if (!(v & POOL_CLOSED))
			break;
		r = sleep_on(l, b, &limit, v);
	} while (r == 0 && limit_over(&limit) == 0);
	object_exit(l);
	if (r >= 0)
		*ret = (int)(v & POOL_VALUE_MAX);        /* or what it was when it was here last */
	return r < 0 ? r : 0;
}

void pool_wake(struct dlock *l)
{
	for (struct binding *b = l->bindings; b; b = b->older)
		futex_wake_class((uint32_t *)b->word, INT_MAX, ANY_CLASS);
}

int pool_open(struct dlock_sem **ret, const char *name, const struct dlock_attr *attr, enum pool_box how, uint32_t value)
{
	uint32_t unused;
	dlock_sem_t *s;
	void *opened;
	int r = handle_open(&opened, sizeof *s, name, attr, KIND_POOL, 0, pool_wake);

	if (r)
		return r;
	s = opened;
	r = -sem_box_ask(&s->h, (enum sem_box)how, value, &unused);
	if (r || how == POOL_BOX_UNLINK) {
		handle_close(&s->h);
		return r;
	}
	*ret = s;
	return 0;
}
