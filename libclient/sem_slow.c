/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The long way into a semaphore, and out of it where somebody waits.
 *
 * The line of a name's waiting threads changes under lib: by priority, but that nobody comes before its first, whose asking is
 * under way. So that it does not hold up one who counts for more, whoever has a priority shows it, and the daemon takes the
 * highest of the process. The first sleeps on the account's bell, the others each on a word of their own. After a fork in a signal handler the child finds the line empty (names_child),
 * and whoever comes back from a sleep there begins anew.
 */
#include <errno.h>
#include <limits.h>

#include "conn.h"
#include "deadline.h"
#include "proto/futex.h"
#include "pool.h"
#include "sem.h"
#include "thread.h"

#define SPIN_TURNS  100u                 /* before the first sleep: a few microseconds */
#define LOOK_NS     UINT64_C(1000000000)
#define RETRY_NS    UINT64_C(50000000)
#define BOX_NS      UINT64_C(100000000)  /* until a question is asked again */
#define ANY_CLASS   UINT32_MAX

struct sem_waiter {
	struct sem_waiter *next;
	uint32_t first;                  /* a futex: 1 when it is the first */
	uint32_t priority;
};

struct wait {
	struct dlock *l;
	struct limit limit;
	uint32_t n;
	bool try;
	struct sem_waiter me;
	uint64_t force_ns;               /* when newcomers have to stand back; 0: not known yet */
	uint32_t turn;                   /* of the asking that is under way; 0: none */
	struct seg_cell *cell;
};

static void wake_first(const struct binding *b)
{
	uint32_t *bell = &sem_own(b)->bell;

	__atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
	futex_wake_class(bell, INT_MAX, ANY_CLASS);
}

/* --- The line --- */

static void line_join(struct wait *x)
{
	struct sem_waiter **at;

	lib_lock();
	for (at = &x->l->name->waiters; *at && (at == &x->l->name->waiters || (*at)->priority >= x->l->attr.priority); at = &(*at)->next)
		;
	x->me = (struct sem_waiter){ .next = *at, .first = at == &x->l->name->waiters, .priority = x->l->attr.priority };
	*at = &x->me;
	lib_unlock();
}

/* The last who leaves: posts need not go the long way any more, unless for other reasons. Under lib. */
static void line_calm(const struct name *n, struct binding *b)
{
	struct sem_account *a = sem_own(b);

	if (n->waiters) {
		sem_clear(&a->word, SEM_B);
	} else if (!__atomic_load_n(&a->state, __ATOMIC_SEQ_CST) && !sem_owes(a)) {
		sem_clear(&a->word, SEM_A | SEM_B);
		if (sem_owes(a))
			sem_set(&a->word, SEM_A);
	}
	if (__atomic_load_n(&a->state, __ATOMIC_SEQ_CST) & SEM_YIELD)
		sem_set(&a->word, SEM_A | SEM_B);
}

static void line_leave(struct wait *x, struct binding *b)
{
	struct name *n = x->l->name;
	struct sem_waiter **at;
	bool first;

	lib_lock();
	for (at = &n->waiters; *at && *at != &x->me; at = &(*at)->next)
		;
	first = at == &n->waiters;
	if (*at)
		*at = x->me.next;
	if (first && x->turn)
		__atomic_store_n(&sem_own(b)->want, (uint64_t)x->turn << 32, __ATOMIC_RELEASE);
	if (first && n->waiters) {
		__atomic_store_n(&n->waiters->first, 1, __ATOMIC_RELEASE);
		futex_wake_class(&n->waiters->first, 1, ANY_CLASS);      /* under lib, since its memory is another's */
	}
	if (first && !binding_lost(b))
		line_calm(n, b);
	lib_unlock();
}

static void rank_show(struct wait *x, const struct binding *b)
{
	uint64_t *ranked = &((struct seg_slot *)b->word)->ranked;

	if (x->cell)
		return;
	x->cell = binding_show(b, x->l->attr.priority);
	if (x->l->attr.priority && !(__atomic_load_n(ranked, __ATOMIC_ACQUIRE) & 1))
		__atomic_fetch_or(ranked, 1, __ATOMIC_RELEASE);
}

/* 0: it is the first now. */
static int line_wait(struct wait *x)
{
	while (!__atomic_load_n(&x->me.first, __ATOMIC_ACQUIRE)) {
		struct timespec abs = limit_timespec(limit_slice(&x->limit, LOOK_NS));
		int r = limit_over(&x->limit);

		if (r < 0)
			return r;
		futex_wait_class(&x->me.first, 0, ANY_CLASS, x->limit.clock, &abs);
		if (!thread_serial())
			return 1;
	}
	return 0;
}

/* --- The first in line --- */

/* While permits are wanted elsewhere nobody here takes any. */
static uint64_t first_bar(const struct binding *b)
{
	return __atomic_load_n(&sem_own(b)->state, __ATOMIC_ACQUIRE) & SEM_YIELD ? SEM_B : 0;
}

/* Each asking has a turn of its own, so that an answer is told from an earlier one's. */
static void ask(struct wait *x, struct binding *b)
{
	struct sem_account *a = sem_own(b);

	if (!x->turn) {
		x->turn = (uint32_t)(__atomic_load_n(&a->want, __ATOMIC_RELAXED) >> 32) + 1;
		x->turn += !x->turn;
		__atomic_store_n(&a->want, (uint64_t)x->turn << 32 | (x->try ? SEM_TRIES : 0) | x->n, __ATOMIC_SEQ_CST);
	} else if (__atomic_load_n(&a->state, __ATOMIC_SEQ_CST) & SEM_QUEUED) {
		return;
	}
	object_ring(x->l, b, &x->limit);
}

static int answered(const struct wait *x, const struct binding *b)
{
	uint64_t answer = __atomic_load_n(&sem_own(b)->answer, __ATOMIC_ACQUIRE);

	return x->turn && (uint32_t)(answer >> 32) == x->turn ? -(int)(uint32_t)answer : 0;
}

static void spin(const struct binding *b, uint32_t bell)
{
	const struct sem_account *a = sem_own(b);

	for (unsigned i = 0; i < SPIN_TURNS && __atomic_load_n(&a->bell, __ATOMIC_RELAXED) == bell; i++)
		cpu_pause();
}

/* When to look by itself: at the limit, when newcomers have to stand back, and whether the space is still there. */
static uint64_t sleep_until(struct wait *x, clockid_t *ret_clock)
{
	uint64_t now = limit_now(&limit_none);

	*ret_clock = x->limit.clock;
	if (!x->force_ns)
		x->force_ns = now + SEM_FORCE_NS;
	if (now >= x->force_ns || limit_slice(&x->limit, x->force_ns - now) == x->limit.until_ns)
		return limit_slice(&x->limit, x->l->attr.failfast ? RETRY_NS * 2 : LOOK_NS);
	*ret_clock = CLOCK_MONOTONIC;
	return x->force_ns;
}

static int first_sleep(struct wait *x, struct binding *b, uint32_t bell)
{
	clockid_t clock;
	struct timespec abs = limit_timespec(sleep_until(x, &clock));
	int r;

	rank_show(x, b);
	r = futex_wait_class(&sem_own(b)->bell, bell, ANY_CLASS, clock, &abs);
	if (!thread_serial()) {
		x->cell = NULL;
		return 1;
	}
	return r == -EAGAIN || r == 0 ? 0 : limit_over(&x->limit);
}

/* Is a daemon there? In failfast only. */
static int daemon_there(const struct wait *x)
{
	struct limit soon = x->limit;
	int r;

	if (!x->l->attr.failfast)
		return 0;
	soon.until_ns = limit_slice(&x->limit, RETRY_NS * 2);
	r = attach_lock(&soon);
	if (r < 0)
		return r == -ETIMEDOUT ? limit_over(&x->limit) : r;
	r = conn_check(&soon);
	attach_unlock();
	return r == -ETIMEDOUT ? -ENOTCONN : r;
}

/* 1: no good any more. */
static int first_state(const struct wait *x, const struct binding *b)
{
	int r;

	if (binding_lost(b) || !deadline_good(b->line))
		return 1;
	r = answered(x, b);
	return r < 0 ? r : limit_over(&x->limit);
}

/* 0: taken. 1: this binding is no good any more. */
static int first_wait(struct wait *x, struct binding *b)
{
	struct sem_account *a = sem_own(b);
	uint32_t bell;
	int r = 0;

	while (r == 0) {
		bool force = x->force_ns && limit_now(&limit_none) >= x->force_ns;

		bell = __atomic_load_n(&a->bell, __ATOMIC_SEQ_CST);
		sem_set(&a->word, SEM_A | (force ? SEM_B : 0));
		if (!binding_lost(b) && sem_take(a, x->n, first_bar(b)))
			return 0;
		r = first_state(x, b);
		if (r == 0) {
			ask(x, b);
			r = daemon_there(x);
		}
		if (r == 0) {
			spin(b, bell);
			r = first_sleep(x, b, bell);
		}
	}
	return r;
}

/* --- The wait --- */

static int wait_once(struct wait *x)
{
	struct binding *b;
	int r = object_bind(x->l, &x->limit, &b);

	if (r < 0)
		return r;
	if (!deadline_good(b->line)) {
		if (x->try)
			return -EAGAIN;
		if (x->l->attr.failfast)
			return -ENOTCONN;
		r = limit_nap(&x->limit, RETRY_NS);
		return r < 0 ? r : 1;
	}
	x->turn = 0;
	x->force_ns = 0;
	if (x->l->attr.priority)
		rank_show(x, b);
	line_join(x);
	if (x->l->attr.priority && !__atomic_load_n(&x->me.first, __ATOMIC_ACQUIRE))
		object_ring(x->l, b, &x->limit);         /* the first of the process counts for more now */
	r = line_wait(x);
	if (r == 0)
		r = first_wait(x, b);
	if (!thread_serial()) {          /* a child now: all that was the parent's */
		uint32_t serial;

		x->cell = NULL;
		r = object_enter(x->l);
		lib_lock();
		x->l->name->waiters = NULL;      /* it may have been in the midst of joining them */
		lib_unlock();
		return r < 0 ? r : thread_register(&serial) < 0 ? -ENOMEM : 1;
	}
	binding_hide(x->cell);
	x->cell = NULL;
	line_leave(x, b);
	if ((x->turn || x->l->attr.priority) && r < 0)
		object_ring(x->l, b, &limit_none);       /* nobody has to be waited for on its behalf */
	if (r == 0 && !deadline_good(b->line)) {
		sem_undo(x->l, b, x->n);
		return 1;
	}
	return r;
}

int sem_slow_wait(struct dlock *l, uint32_t n, const struct limit *limit, bool try)
{
	struct wait x = { .l = l, .limit = *limit, .n = n };
	int saved = errno, r = object_enter(l);
	bool late;

	if (r < 0)
		return -r;
	late = !try && limit_over(limit) == -ETIMEDOUT;
	if (late)                        /* what lies elsewhere on this node, or is free, may be had all the same */
		x.limit = limit_none;
	x.try = try || late;
	if (x.try)
		x.limit.until_ns = limit_slice(&x.limit, l->attr.try_ms * UINT64_C(1000000));
	do {
		r = l->kind == KIND_POOL ? pool_wait_once(l, n, &x.limit, x.try) : wait_once(&x);
	} while (r == 1);
	object_exit(l);
	errno = saved;
	if (late && r == -EAGAIN)
		return ETIMEDOUT;
	return try && r == -ETIMEDOUT ? EAGAIN : -r;
}

/* --- Giving back --- */

void sem_given_away(struct dlock *l, struct binding *b)
{
	bool first;

	lib_lock();
	first = l->name->waiters;
	if (!first)
		line_calm(l->name, b);
	lib_unlock();
	if (first)
		wake_first(b);
	if (__atomic_load_n(&sem_own(b)->state, __ATOMIC_SEQ_CST) & SEM_YIELD)
		object_ring(l, b, &limit_none);
}

void sem_undo(struct dlock *l, struct binding *b, uint32_t n)
{
	uint32_t stale;
	bool attention;

	if (sem_give(sem_own(b), n, &attention, &stale) && attention)
		sem_given_away(l, b);
}

static int post(struct dlock *l, uint32_t n)
{
	struct binding *b;
	uint32_t serial, stale;
	bool attention;
	int r = thread_register(&serial);

	if (r < 0)
		return r;
	b = binding_now(l);
	if (!b->space)
		return l->bindings ? -ESTALE : -EPERM;
	if (binding_lost(b))
		return -ESTALE;
	if (!sem_give(sem_own(b), n, &attention, &stale))
		return b->older ? -ESTALE : -EPERM;
	if (attention)
		sem_given_away(l, b);
	return stale ? -ESTALE : 0;
}

int sem_slow_post(struct dlock *l, uint32_t n)
{
	int saved = errno, r = l->kind == KIND_POOL ? pool_post(l, n) : post(l, n);

	errno = saved;
	return -r;
}

/* The daemon counts this process as new, or the space is lost. Under lib. */
void sem_wake(struct dlock *l)
{
	for (struct binding *b = l->bindings; b; b = b->older)
		wake_first(b);
}

/* --- Questions --- */

/* One at a time: a thread that finds another's question waits for its end. */
static int box_take(uint64_t *box, uint64_t question, const struct limit *limit)
{
	uint64_t free = SEM_BOX_FREE;
	int r = 0;

	while (r == 0 && !__atomic_compare_exchange_n(box, &free, question, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
		free = SEM_BOX_FREE;
		r = limit_nap(limit, UINT64_C(1000000));
	}
	return r;
}

static bool box_is_answered(uint64_t v)
{
	return (v & UINT32_MAX) == SEM_BOX_DONE || (v & UINT32_MAX) == SEM_BOX_FAILED;
}

/* 1: the account is another one now. */
static int box_wait(struct dlock *l, struct binding *b, uint64_t question, uint32_t *ret_answer)
{
	uint64_t *box = &sem_own(b)->box, v;

	while (!box_is_answered(v = __atomic_load_n(box, __ATOMIC_ACQUIRE))) {
		struct timespec abs;

		if (binding_lost(b) || v != question)
			return 1;
		object_ring(l, b, &limit_none);
		abs = limit_timespec(limit_slice(&limit_none, BOX_NS));
		futex_wait_class((uint32_t *)box, (uint32_t)v, ANY_CLASS, CLOCK_MONOTONIC, &abs);
		if (!thread_serial())
			return 1;
	}
	__atomic_store_n(box, SEM_BOX_FREE, __ATOMIC_RELEASE);
	*ret_answer = (uint32_t)(v >> 32);
	return (v & UINT32_MAX) == SEM_BOX_DONE ? 0 : -(int)*ret_answer;
}

int sem_box_ask(struct dlock *l, enum sem_box question, uint32_t arg, uint32_t *ret_answer)
{
	uint64_t q = (uint64_t)arg << 32 | question;
	struct binding *b;
	int saved = errno, r = object_enter(l);

	if (r < 0)
		return r;
	do {
		r = object_bind(l, &limit_none, &b);
		if (r == 0)
			r = box_take(&sem_own(b)->box, q, &limit_none);
		if (r == 0)
			r = box_wait(l, b, q, ret_answer);
	} while (r == 1);
	object_exit(l);
	errno = saved;
	return r;
}
