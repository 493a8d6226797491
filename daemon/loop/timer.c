/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Timers: a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) that lives in the timers
 * themselves, so that to set one needs no memory and cannot fail; and one timeout in the kernel for
 * the first of them.
 *
 * A timer's children are a list, child the first and next its right neighbour; prev is the left
 * neighbour, and of a first child the parent. No child is due before its parent.
 *
 * The kernel's timeout is never later than the first timer. It may be earlier, when that timer has
 * been cancelled or moved: one turn for nothing is cheaper than to move the timeout each time.
 */
#include <assert.h>
#include <liburing.h>

#include "internal.h"

static bool timer_before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->when != b->when ? a->when < b->when : a->serial < b->serial;
}

/* Of two roots, either NULL, one. */
static struct loop_timer *heap_meld(struct loop_timer *a, struct loop_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (timer_before(b, a)) {
		struct loop_timer *t = a;

		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	return a;
}

/* Makes one heap of a list of siblings: pairs from left to right, then all from right to left. */
static struct loop_timer *heap_join(struct loop_timer *list)
{
	struct loop_timer *pairs = NULL, *root = NULL;

	while (list) {
		struct loop_timer *a = list, *b = a->next;

		list = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = heap_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct loop_timer *a = pairs;

		pairs = a->next;
		a->next = NULL;
		root = heap_meld(root, a);
	}
	return root;
}

static void heap_remove(struct loop_timer **root, struct loop_timer *t)
{
	struct loop_timer *rest = heap_join(t->child);

	if (t == *root) {
		*root = rest;
	} else {
		if (t->prev->child == t)
			t->prev->child = t->next;
		else
			t->prev->next = t->next;
		if (t->next)
			t->next->prev = t->prev;
		*root = heap_meld(*root, rest);
	}
	t->child = t->next = t->prev = NULL;
	t->queued = false;
}

void loop_timer_init(struct loop_timer *t, void (*fn)(void *arg), void *arg)
{
	*t = (struct loop_timer){.fn = fn, .arg = arg};
}

int loop_timer_set(struct loop *l, struct loop_timer *t, nsec_t when)
{
	struct timers *ts = &l->timers;

	assert(t->fn);
	loop_timer_cancel(l, t);
	if (when == NSEC_NEVER)
		return 0;
	/* A timer that sets itself for now must not keep the loop from everything else. */
	if (ts->running && when <= l->now)
		when = l->now + 1;
	t->when = when;
	t->serial = ++ts->serial;
	t->queued = true;
	ts->first = heap_meld(ts->first, t);
	return 0;
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
	if (t && t->queued)
		heap_remove(&l->timers.first, t);
}

void timers_init(struct timers *ts)
{
	*ts = (struct timers){.armed_at = NSEC_NEVER};
}

void timers_run(struct loop *l)
{
	struct timers *ts = &l->timers;
	struct loop_timer *t;

	ts->running = true;
	while ((t = ts->first) && t->when <= l->now) {
		heap_remove(&ts->first, t);
		l->busy = true;
		t->fn(t->arg);
	}
	ts->running = false;
}

bool timers_arm(struct loop *l)
{
	struct timers *ts = &l->timers;
	struct io_uring_sqe *sqe;
	nsec_t when;

	if (!ts->first)
		return true;
	when = ts->first->when;
	if (when <= l->now + 1)
		return false;
	if (when >= ts->armed_at)
		return true;
	sqe = ring_sqe(&l->ring);
	if (!sqe)
		return false;
	ts->armed.tv_sec = (long long)(when / NSEC_PER_SEC);
	ts->armed.tv_nsec = (long long)(when % NSEC_PER_SEC);
	if (ts->armed_at == NSEC_NEVER) {
		io_uring_prep_timeout(
			sqe, &ts->armed, 0, IORING_TIMEOUT_ABS | IORING_TIMEOUT_BOOTTIME);
		io_uring_sqe_set_data64(sqe, TAG_TIMEOUT);
	} else {
		/*
		 * If it finds nothing, the timeout has completed and will be armed anew when we
		 * have seen that.
		 */
		io_uring_prep_timeout_update(sqe, &ts->armed, TAG_TIMEOUT, IORING_TIMEOUT_ABS);
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		io_uring_sqe_set_data64(sqe, TAG_IGNORED);
	}
	ts->armed_at = when;
	return true;
}

void timers_elapsed(struct loop *l)
{
	l->timers.armed_at = NSEC_NEVER;
}
