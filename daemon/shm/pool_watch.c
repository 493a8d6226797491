/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who sleeps on a free semaphore while there is something: because the one who posted was stopped before it could wake anybody, or one who
 * was woken before it could take. While anybody may sleep on a word that is open it is looked at every 10 to 50 ms. Those who die are seen to
 * when they leave.
 *
 * A sleeper rings unless the slot says that it is watched. When nobody sleeps any more the slot says so first, and is looked at
 * once more later: one may have been on its way to sleep.
 */
#include "pool.h"
#include "word.h"

#define LOOK_MIN (10 * NSEC_PER_MSEC)
#define LOOK_MAX (50 * NSEC_PER_MSEC)

static struct loop *loop_of(const struct pool *p)
{
	return p->o.space->shm->loop;
}

static void say(struct pool *p, bool watched)
{
	FAULT_AROUND(seg_watched_set(p->o.space->base, p->o.slot, watched));
}

static void again(struct pool *p, nsec_t span)
{
	p->watch_span = span < LOOK_MAX ? span : LOOK_MAX;
	loop_timer_set(loop_of(p), &p->watch, loop_now(loop_of(p)) + p->watch_span);
}

/* There are some: they look for themselves, since it is not known for how many each of them waits. */
static void look_after(struct pool *p, uint64_t v)
{
	bool moved = v != p->watch_seen;

	if (!seg_watched(p->o.space->base, p->o.slot))
		say(p, true);
	if (v & POOL_VALUE_MAX)
		pool_word_wake(p);
	p->watch_seen = v;
	again(p, moved ? LOOK_MIN : p->watch_span * 2);
}

static void look(void *arg)
{
	struct pool *p = arg;
	uint64_t v;

	if (p->o.space->broken)
		return;
	if (p->state == POOL_OPEN)
		pool_posts_add(p);
	v = __atomic_load_n(&pool_words(p)->value, __ATOMIC_SEQ_CST);
	if (p->state == POOL_OPEN && futex_sleepers(lock_futex(&pool_words(p)->value), (uint32_t)v) != 0) {
		look_after(p, v);
	} else if (seg_watched(p->o.space->base, p->o.slot)) {
		say(p, false);
		again(p, LOOK_MAX);
	}
}

void pool_watch_begin(struct pool *p)
{
	loop_timer_init(&p->watch, look, p);
}

void pool_watch(struct pool *p)
{
	if (p->state != POOL_OPEN || !__atomic_load_n(&pool_words(p)->waiters, __ATOMIC_SEQ_CST))
		return;
	if (p->watch.queued && seg_watched(p->o.space->base, p->o.slot))
		return;
	say(p, true);
	p->watch_seen = __atomic_load_n(&pool_words(p)->value, __ATOMIC_SEQ_CST);
	again(p, LOOK_MIN);
}

void pool_watch_end(struct pool *p)
{
	loop_timer_cancel(loop_of(p), &p->watch);
}
