/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "box.h"

#include <errno.h>
#include <limits.h>

#include "conn.h"
#include "deadline.h"
#include "thread.h"

#define LOOK_NS     UINT64_C(1000000000) /* asleep: until another look whether all this is still there, and another ring */
#define FAILFAST_NS UINT64_C(100000000)

enum { FREE, TAKEN, AWAITED };           /* the lock, as in Drepper's "Futexes Are Tricky" */

static uint32_t *low(uint64_t *word)
{
	return (uint32_t *)(void *)word;
}

/* --- Sleeping --- */

/* The daemon is there, and the node has a lease; else failfast is told. */
static int reachable(const struct dlock *l, const struct binding *b, const struct limit *limit)
{
	struct limit soon = *limit;
	int r;

	if (!l->attr.failfast)
		return 0;
	if (!deadline_good(b->line))
		return -ENOTCONN;
	soon.until_ns = limit_slice(limit, FAILFAST_NS);
	r = attach_lock(&soon);
	if (r < 0)
		return 0;                /* somebody is asking for something: that is told there */
	r = conn_check(&soon);
	attach_unlock();
	return r == -ENOTCONN || r == -ETIMEDOUT ? -ENOTCONN : 0;
}

int box_sleep(struct dlock *l, struct binding *b, uint64_t *word, uint64_t seen, const struct limit *limit)
{
	uint64_t slice = limit_slice(limit, l->attr.failfast ? FAILFAST_NS : LOOK_NS);
	struct timespec abs = limit_timespec(slice);
	int r;

	if (binding_lost(b))
		return -ESTALE;
	r = futex_wait_class(low(word), (uint32_t)seen, FUTEX_BITSET_MATCH_ANY, limit->clock, &abs);
	if (!thread_serial() || binding_lost(b))
		return -ESTALE;          /* a fork's child, too: none of it is its own */
	if (r == -ETIMEDOUT) {
		r = reachable(l, b, limit);
		if (r < 0)
			return r;
	}
	return limit_over(limit);
}

/* --- The lock --- */

static uint64_t *lock_of(const struct binding *b)
{
	return &box_of(b)->reserved;
}

static int box_take(struct dlock *l, struct binding *b, const struct limit *limit)
{
	uint64_t *lock = lock_of(b), none = FREE;

	if (__atomic_compare_exchange_n(lock, &none, TAKEN, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 0;
	while (__atomic_exchange_n(lock, AWAITED, __ATOMIC_ACQUIRE) != FREE) {
		int r = box_sleep(l, b, lock, AWAITED, limit);

		if (r < 0)
			return r;
	}
	return 0;
}

static void box_give(struct binding *b)
{
	uint64_t *lock = lock_of(b);

	if (__atomic_exchange_n(lock, FREE, __ATOMIC_RELEASE) == AWAITED)
		futex_wake_class(low(lock), 1, FUTEX_BITSET_MATCH_ANY);
}

/* --- Asking --- */

static uint32_t number_asked(const struct binding *b)
{
	return (uint32_t)(__atomic_load_n(&box_of(b)->request, __ATOMIC_RELAXED) >> 32);
}

/* The daemon raises the bell after it has answered, so what is not seen before the sleep ends it. */
static int await(struct dlock *l, struct binding *b, uint32_t number, const struct limit *limit, uint64_t *ret_answer)
{
	struct small_account *box = box_of(b);

	for (;;) {
		uint64_t bell = __atomic_load_n(&box->bell, __ATOMIC_ACQUIRE), answer = __atomic_load_n(&box->answer, __ATOMIC_ACQUIRE);
		int r;

		if ((uint32_t)(answer >> 32) == number) {
			*ret_answer = answer;
			return 0;
		}
		r = box_sleep(l, b, &box->bell, bell, limit);
		if (r < 0)
			return r;
		if (__atomic_load_n(&box->bell, __ATOMIC_ACQUIRE) == bell)
			object_ring(l, b, limit);        /* whoever rang first may have been stopped before he came to it */
	}
}

/* What somebody has left there is waited for. */
static int empty(struct dlock *l, struct binding *b, const struct limit *limit)
{
	uint32_t number = number_asked(b);
	uint64_t answer;

	return number ? await(l, b, number, limit, &answer) : 0;
}

static int ask(struct dlock *l, struct binding *b, struct box_request *rq, const struct limit *limit)
{
	struct small_account *box = box_of(b);
	uint64_t answer;
	int r;

	rq->number = number_asked(b) + 1;
	rq->number += !rq->number;
	__atomic_store_n(&box->arg, rq->arg, __ATOMIC_RELAXED);
	__atomic_store_n(&box->request, small_request(rq->number, rq->op), __ATOMIC_RELEASE);
	object_ring(l, b, limit);
	r = await(l, b, rq->number, limit, &answer);
	if (r < 0)
		return r;
	rq->value = __atomic_load_n(&box->value, __ATOMIC_RELAXED);
	return -(int)(uint32_t)answer;
}

/*
 * An entering that is not waited for any more: its own cancel comes before anything else is asked. 0: it has entered all the same, since
 * the answer came just then, and is to leave as others do; or has been signalled already.
 */
static int take_back(struct dlock *l, struct binding *b, uint32_t number, int why)
{
	uint64_t answer = __atomic_load_n(&box_of(b)->answer, __ATOMIC_ACQUIRE);
	struct box_request cancel = { .op = SMALL_CANCEL, .arg = number };
	int r;

	if ((uint32_t)(answer >> 32) == number)
		return -(int)(uint32_t)answer;
	r = ask(l, b, &cancel, &limit_none);
	return r == 0 && cancel.value ? 0 : why;
}

int box_call(struct dlock *l, struct binding *b, struct box_request *rq, const struct limit *limit)
{
	int r = box_take(l, b, limit);

	rq->number = 0;
	if (r < 0)
		return r;
	r = empty(l, b, limit);
	if (r == 0)
		r = ask(l, b, rq, limit);
	if (r < 0 && rq->op == SMALL_ENTER && rq->number && thread_serial() && !binding_lost(b) && number_asked(b) == rq->number)
		r = take_back(l, b, rq->number, r);
	if (thread_serial())
		box_give(b);
	return r;
}

int box_cancel(struct dlock *l, struct binding *b, uint32_t ticket, uint64_t *ret_value)
{
	struct box_request cancel = { .op = SMALL_CANCEL, .arg = ticket };
	int r = box_call(l, b, &cancel, &limit_none);

	if (r == 0)
		*ret_value = cancel.value;
	return r;
}

/* --- Handles --- */

static void wake_at(struct binding *b)
{
	futex_wake_class(low(&box_of(b)->bell), INT_MAX, FUTEX_BITSET_MATCH_ANY);
	futex_wake_class(low(lock_of(b)), INT_MAX, FUTEX_BITSET_MATCH_ANY);
	futex_wake_class(low(b->word), INT_MAX, FUTEX_BITSET_MATCH_ANY);
}

void box_wake(struct dlock *l)
{
	for (struct binding *b = l->bindings; b; b = b->older)
		wake_at(b);
}
