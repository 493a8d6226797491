/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The long way into a lock: what the fast path refuses.
 *
 * A wait goes round two loops. The outer one has a binding to wait on: it opens the name anew where
 * the space was lost, tells whether the waiter itself is the holder, and waits while the node may
 * not rely on its lease. The inner one (wait_on) is lockword.h's: turn, sleep, turn.
 *
 * After announcing and before sleeping: W is in the word, then the slot is put on the daemon's watch
 * list, then a bell rings where it was not on it. A word that is free without a lease is asked for
 * each time, since the answer to an earlier question may have been used up by others.
 *
 * A cancel cannot change the word that its waiters sleep on. So every sleep is in one more futex
 * class than lockword.h's, chosen by the handle; dlock_cancel() wakes that class again and again
 * until all have noticed, and hardly anybody else.
 */
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "deadline.h"
#include "handle.h"
#include "space.h"
#include "thread.h"
#include "wait.h"

#define RETRY_NS     UINT64_C(50000000)  /* until another look whether the daemon, or the lease, is back */
#define FAILFAST_NS  UINT64_C(100000000)
#define LOOK_NS      UINT64_C(1000000000)
#define PASSING_NS   UINT64_C(50000)     /* for a reader on its way in */
#define CANCEL_NS    UINT64_C(50000)     /* between the wakes of a cancel */

int holder_of(const struct dlock *l, uint32_t *ret)
{
	uint32_t serial;
	int r = thread_register(&serial);

	if (r == 0)
		*ret = l->attr.owner == DLOCK_OWNER_PROCESS ? HOLDER_PROCESS : serial;
	return r;
}

/* --- Cancelling --- */

/* Joins the waits of the present count: one that a cancel may have missed begins again. */
void waits_enter(struct dlock *l, struct limit *limit)
{
	for (;;) {
		uint32_t c = __atomic_load_n(&l->cancels, __ATOMIC_SEQ_CST);

		__atomic_fetch_add(&l->waits[c & 1], 1, __ATOMIC_SEQ_CST);
		limit->cancel = &l->cancels;
		limit->cancel_seen = c;
		if (__atomic_load_n(&l->cancels, __ATOMIC_SEQ_CST) == c)
			return;
		__atomic_fetch_sub(&l->waits[c & 1], 1, __ATOMIC_SEQ_CST);
	}
}

void waits_exit(struct dlock *l, const struct limit *limit)
{
	if (thread_serial())
		__atomic_fetch_sub(&l->waits[limit->cancel_seen & 1], 1, __ATOMIC_RELEASE);
}

static void wait_enter(struct wait *x)
{
	waits_enter(x->l, &x->limit);
}

static void wait_exit(struct wait *x)
{
	waits_exit(x->l, &x->limit);
}

void sleeper_add(struct dlock *l, struct sleeper *s)
{
	lib_lock();
	s->next = l->sleepers;
	l->sleepers = s;
	lib_unlock();
}

void sleeper_remove(struct dlock *l, struct sleeper *s)
{
	struct sleeper **at = &l->sleepers;

	lib_lock();
	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	lib_unlock();
}

static void sleepers_wake(struct dlock *l)
{
	lib_lock();
	for (const struct sleeper *s = l->sleepers; s; s = s->next)
		futex_wake_class(s->word, INT_MAX, LOCK_CLASS_ANY);
	lib_unlock();
}

/*
 * A signal handler has forked, and this is the child: here nobody knows of the wait any more, and the thread
 * has another serial. 1: look again.
 */
static int wait_again(struct wait *x)
{
	int r = holder_of(x->l, &x->holder);

	if (r < 0)
		return r;
	x->read = NULL;
	wait_enter(x);
	return 1;
}

static unsigned cancel_class(const struct dlock *l)
{
	return (RANK_CLASSES + LOCK_CLASS_ANY + 1) << ((uintptr_t)l / _Alignof(struct dlock)) % 8;
}

static void wake_waits(const struct dlock *l)
{
	for (struct binding *b = __atomic_load_n(&l->bindings, __ATOMIC_ACQUIRE); b; b = b->older)
		futex_wake_class(lock_futex(b->word), INT_MAX, cancel_class(l));
	for (struct binding *b = __atomic_load_n(&l->bindings, __ATOMIC_ACQUIRE); b && l->kind == KIND_LOCK; b = b->older)
		futex_wake_class(&binding_slot(b)->drain, INT_MAX, LOCK_CLASS_ANY);
}

void waits_look_again(struct dlock *l)
{
	if (__atomic_load_n(&l->waits[0], __ATOMIC_SEQ_CST) || __atomic_load_n(&l->waits[1], __ATOMIC_SEQ_CST))
		wake_waits(l);
}

/* One at a time: the waits that begin meanwhile are counted under the other parity. */
static void cancel_begin(struct dlock *l)
{
	uint32_t none = 0;

	while (!__atomic_compare_exchange_n(&l->cancelling, &none, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		none = 0;
		limit_nap(&limit_none, CANCEL_NS);
	}
}

int dlock_cancel(dlock_t *l)
{
	uint32_t serial, c;
	int r = thread_register(&serial);

	if (r < 0)
		return -r;
	cancel_begin(l);
	c = __atomic_load_n(&l->cancels, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&l->waits[c & 1], __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&l->cancels, c + 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&l->waits[c & 1], __ATOMIC_ACQUIRE)) {
			wake_waits(l);
			sleepers_wake(l);
			limit_nap(&limit_none, CANCEL_NS);
		}
	}
	__atomic_store_n(&l->cancelling, 0, __ATOMIC_RELEASE);
	return 0;
}

/* --- The binding to wait on --- */

/* The waiter holds the lock through this handle already. */
static int wait_nested(struct wait *x, struct binding *b)
{
	uint64_t state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);

	if (!x->l->attr.recursive)
		return x->try ? -EBUSY : -EDEADLK;
	do {
		if (state_holder(state) != x->holder)
			return 1;        /* released by another thread of the process */
		if (state_depth(state) == UINT32_MAX / 2)
			return -EAGAIN;
	} while (!__atomic_compare_exchange_n(&b->state, &state, state + STATE_LEVEL, false,
					      __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE));
	return 0;
}

static int wait_attach(struct wait *x, const struct limit *limit)
{
	int r = attach_lock(limit);

	if (r < 0)
		return r;
	r = name_attach(x->l, limit);
	attach_unlock();
	return r;
}

/* Opens the name anew. 1: look again. */
static int wait_open(struct wait *x)
{
	struct limit limit = x->limit;
	int r;

	if (x->l->attr.failfast)
		limit.until_ns = limit_slice(&x->limit, FAILFAST_NS);
	r = wait_attach(x, &limit);
	if (r == -ETIMEDOUT) {
		r = limit_over(&x->limit);
		return r < 0 ? r : -ENOTCONN;    /* it does not answer */
	}
	if ((r == -ENOTCONN && !x->try && !x->l->attr.failfast) || (r == 0 && binding_lost(binding_now(x->l))))
		r = limit_nap(&x->limit, RETRY_NS);
	return r < 0 ? r : 1;
}

static int wait_retire(struct wait *x, struct binding *b)
{
	int r;

	lib_lock();
	r = binding_retire(x->l, b);
	lib_unlock();
	return r < 0 ? r : 1;
}

/* 0: wait on *ret. 1: look again. -EALREADY: taken, one level deeper. */
static int wait_binding_once(struct wait *x, struct binding **ret)
{
	struct binding *b = *ret = binding_now(x->l);
	uint64_t state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
	bool mine = state_holder(state) == x->holder;
	int r;

	if (x->how & WAIT_UPGRADE) {
		*ret = x->upgrades_by;
		return wait_still_reads(x, *ret);
	}

	if (!thread_serial())
		return wait_again(x);
	if (binding_lost(b))
		return wait_open(x);
	if (state && binding_hold(b) == HOLD_LOST)
		return wait_retire(x, b);
	if (mine && (x->l->attr.recursive || x->l->attr.owner == DLOCK_OWNER_THREAD)) {
		r = x->how & WAIT_SHARED ? wait_in_itself(x) : wait_nested(x, b);
		return r == 0 ? -EALREADY : r;
	}
	r = wait_beside_readers(x, b);
	if (r != 0)
		return r;
	if (deadline_good(b->line))
		return 0;
	if (x->try)
		return -EBUSY;
	if (x->l->attr.failfast)
		return -ENOTCONN;
	r = limit_nap(&x->limit, RETRY_NS);
	return r < 0 ? r : 1;
}

/* This thread may hold the lock through another handle: then it would wait for itself. */
static bool held_elsewhere(const struct wait *x, const struct binding *b)
{
	uint64_t w = LOCK_LOAD(b->word);
	bool found = false;

	if ((w & LOCK_OWNER) != (b->me & LOCK_OWNER) || x->l->attr.owner != DLOCK_OWNER_THREAD)
		return false;
	lib_lock();
	for (struct dlock *l = x->l->name->handles; l && !found; l = l->next) {
		struct binding *h = binding_of(l, x->holder);

		found = h && h->word == b->word && binding_hold(h) == HOLD_GOOD;
	}
	lib_unlock();
	return found;
}

/* --- Sleeping --- */

void wait_show(struct wait *x, const struct binding *b)
{
	x->cell = binding_show(b, x->l->attr.priority);
}

void wait_hide(struct wait *x)
{
	binding_hide(x->cell);
	x->cell = NULL;
}

/* In the slot: before each sleep, since whoever wakes forgets those whom he does not find asleep. */
static void wait_rank_say(const struct wait *x, const struct binding *b)
{
	uint64_t *ranked = &binding_slot(b)->ranked, rank = rank_class(x->l->attr.priority) | 1;

	if ((__atomic_load_n(ranked, __ATOMIC_ACQUIRE) & rank) != rank)
		__atomic_fetch_or(ranked, rank, __ATOMIC_RELEASE);
}

/* Before the daemon is asked for the lease: it looks who waits. */
static void wait_rank(struct wait *x, const struct binding *b)
{
	wait_show(x, b);
	wait_rank_say(x, b);
}

/* W is in the word; now the daemon has to know. */
static void wait_announce(struct wait *x, struct binding *b, uint64_t w)
{
	bool ring = false;

	if (!seg_watched(b->space->base, b->slot)) {
		seg_bit_set(b->space->base, SEG_WATCH, b->slot);
		ring = true;
	}
	wait_wants(x, b);
	if (lock_is_free(w) && !(w & LOCK_L)) {
		seg_bit_set(b->space->base, SEG_WANT, b->slot);
		ring = true;
	}
	if (ring)
		name_ring(x->l->name, b, &x->limit);
}

/*
 * Bounded by turns, not by time. Each look takes the word's cache line from the one who holds the lock,
 * so they soon grow rarer. Behind those who sleep only the first of them looks for so long. Others look for as long as a short
 * hold lasts: so two who run pass the lock between them, and need not sleep and be woken each time, while the sleepers'
 * turns come as ever (H, S). Where readers come and go nobody does: holds there last until the readers have left. A word
 * without a lease cannot be taken before the daemon has been asked.
 */
static void wait_spin(const struct wait *x, const struct binding *b)
{
	bool first = x->turn.woken || x->turn.heir;
	unsigned behind = x->how & WAIT_SHARED ? 0 : SPIN_BEHIND;

	for (unsigned turn = 0, gap = 1; turn < SPIN_TURNS; turn += gap, gap += gap < SPIN_GAP ? gap : 0) {
		uint64_t w = LOCK_LOAD(b->word);

		if (lock_may_take(w, &x->turn) || (lock_is_free(w) && !(w & LOCK_L)))
			return;
		if (!first && (w & LOCK_W) && (turn >= behind || (w & LOCK_R)))
			return;
		for (unsigned i = 0; i < gap; i++)
			cpu_pause();
	}
}

/* Is a daemon there? In failfast only. One who is being talked to counts as there. */
static int wait_daemon_there(const struct wait *x)
{
	struct limit soon = x->limit;
	int r;

	if (!x->l->attr.failfast)
		return 0;
	soon.until_ns = limit_slice(&x->limit, FAILFAST_NS);
	r = attach_lock(&soon);
	if (r < 0)
		return r == -ETIMEDOUT ? limit_over(&x->limit) : r;
	r = conn_check(&soon);
	attach_unlock();
	if (r == -ETIMEDOUT)             /* it accepts, and does not answer */
		r = -ENOTCONN;
	return r;
}

/*
 * When to wake up by itself: at the limit; when an heir may force; and to look whether the space is
 * still there and, in failfast, the daemon. (While anybody sleeps the daemon looks 20 times a second.)
 * What has to come soon goes by the clock that nobody sets back.
 */
static uint64_t sleep_until(struct wait *x, clockid_t *ret_clock)
{
	uint64_t now = limit_now(&limit_none), until = now + FAILFAST_NS;
	bool soon = x->l->attr.failfast;

	*ret_clock = x->limit.clock;
	if (x->turn.heir && !x->turn.force) {
		if (!x->force_ns)
			x->force_ns = now + LOCK_FORCE_NS;
		until = x->force_ns > now ? x->force_ns : now;
		soon = true;
	}
	if (!soon)
		return limit_slice(&x->limit, LOOK_NS);
	if (limit_slice(&x->limit, until - now) == x->limit.until_ns)
		return x->limit.until_ns;
	*ret_clock = CLOCK_MONOTONIC;
	return until;
}

/* An heir is the next one, whatever its priority. */
static unsigned wait_class(const struct wait *x)
{
	return lock_class(&x->turn) | cancel_class(x->l) | (x->turn.heir ? 0 : rank_class(x->l->attr.priority));
}

/* 0: it is time for another turn. 1: for another binding. Otherwise the reason to give up. */
static int wait_sleep(struct wait *x, struct binding *b, uint64_t w)
{
	clockid_t clock;
	struct timespec abs = limit_timespec(sleep_until(x, &clock));
	int r;

	if (!x->cell)
		wait_show(x, b);
	if (x->l->attr.priority)
		wait_rank_say(x, b);
	if (__atomic_load_n(x->limit.cancel, __ATOMIC_ACQUIRE) != x->limit.cancel_seen)
		return -ECANCELED;
	r = futex_wait_class(lock_futex(b->word), (uint32_t)w, wait_class(x), clock, &abs);
	if (!thread_serial()) {          /* a child now: all that was the parent's */
		x->cell = NULL;
		x->turn = (struct lock_waiter){ 0 };
		return 1;
	}
	x->turn.woken = r == 0;
	if (r == -ETIMEDOUT && x->force_ns && limit_now(&limit_none) >= x->force_ns)
		x->turn.force = true;
	if (r == -ETIMEDOUT || r == -EINTR || r == 0)
		return limit_over(&x->limit);
	return r == -EAGAIN ? 0 : r;
}

/* --- The wait --- */

void hold_undo(struct binding *b)
{
	uint64_t held = __atomic_load_n(&b->held, __ATOMIC_RELAXED);

	__atomic_store_n(&b->state, 0, __ATOMIC_RELAXED);
	if (lock_release(b->word, held, 0))
		hold_yielded(b);
}

static int wait_taken(struct wait *x, struct binding *b, uint64_t w)
{
	int r;

	if (x->how & WAIT_SHARED)
		return wait_reads(x, b, w);
	if (w & LOCK_R) {
		r = wait_readers(x, b, &w);
		if (r != 0)
			return r;
	}
	if (x->how & WAIT_UPGRADE) {
		r = wait_still_read(x, b, w);
		if (r != 0)
			return r;
	}
	__atomic_store_n(&b->held, w, __ATOMIC_RELAXED);
	__atomic_store_n(&b->state, x->holder, __ATOMIC_RELEASE);
	if (!deadline_good(b->line)) {
		hold_undo(b);
		return 1;
	}
	return x->l->attr.robust && (w & LOCK_D) ? -EOWNERDEAD : 0;
}

/* May dlock_trywait() sleep on this word? It waits for the daemon's answer, and for nobody else. */
static bool try_may_sleep(const struct wait *x, uint64_t w)
{
	return lock_is_free(w) && !(w & LOCK_L) && x->l->attr.try_ms;
}

/* A reader that goes in owns the word for a moment: longer only where it has lost its processor just then. A writer sleeps until it is alone. */
static bool reader_passes(const struct wait *x, const struct binding *b, uint64_t w)
{
	return (x->how & WAIT_SHARED) && (w & LOCK_OWNER) && !(w & LOCK_EXCLUSIVE) && x->l->attr.try_ms &&
	       !(READ_LOAD(&binding_slot(b)->drain) & DRAIN_OWNER);
}

static int wait_try(const struct wait *x, const struct binding *b)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(b->word);

		if (lock_may_take(w, &x->turn) || try_may_sleep(x, w))
			return 0;
		if (!reader_passes(x, b, w) || limit_nap(&x->limit, PASSING_NS) < 0)
			return -EBUSY;
		if (!thread_serial() || binding_lost(b))
			return 1;
	}
}

/* 0, -EOWNERDEAD: taken. 1: this binding is no good any more. */
static int wait_on(struct wait *x, struct binding *b)
{
	uint64_t w;
	int r = 0;

	x->turn = (struct lock_waiter){
		.me = x->how & WAIT_SHARED ? b->me & ~LOCK_EXCLUSIVE : b->me, .first = x->how & WAIT_UPGRADE,
	};
	x->force_ns = 0;
	if (held_elsewhere(x, b))
		return wait_in_itself(x);
	r = wait_upgrade_over(x, b);
	while (r == 0) {
		wait_spin(x, b);
		if (binding_lost(b) || !deadline_good(b->line) || binding_hold(b) == HOLD_LOST)
			r = 1;
		else if (x->try)
			r = wait_try(x, b);
		if (r != 0)
			break;
		r = wait_reads_share(x, b);
		if (r != 0)
			break;
		if (lock_turn(b->word, &x->turn, &w) == LOCK_TAKEN) {
			wait_hide(x);
			return wait_taken(x, b, w);
		}
		if (x->try && reader_passes(x, b, w))
			continue;
		if (x->try && !try_may_sleep(x, w)) {
			r = -EBUSY;      /* another was faster between the look and the turn */
			break;
		}
		if ((x->how & WAIT_SHARED) && lock_may_read(w, LOCK_SLOW))
			continue;
		if ((x->how & WAIT_UPGRADE) && wait_in_vain(w)) {
			r = -EDEADLK;
			break;
		}
		if (x->l->attr.priority && !x->cell)
			wait_rank(x, b);
		wait_announce(x, b, w);
		r = wait_daemon_there(x);
		if (r == 0)
			r = wait_sleep(x, b, w);
	}
	wait_hide(x);
	lock_leave(b->word, &x->turn);
	return r == WAIT_READS ? 0 : r;
}

static int wait_whole(struct wait *x)
{
	struct binding *b;
	int r = holder_of(x->l, &x->holder);

	if (r < 0)
		return r;
	if (x->try)
		x->limit.until_ns = limit_slice(&x->limit, x->l->attr.try_ms * UINT64_C(1000000));
	wait_enter(x);
	do {
		r = wait_binding_once(x, &b);
		if (r == 0)
			r = wait_on(x, b);
		if (r != 0 && !thread_serial() && !(x->how & WAIT_UPGRADE))
			r = 1;           /* a child by now: what was in its way was in its parent's */
	} while (r == 1);
	wait_hide(x);
	wait_unread(x);
	wait_exit(x);
	if (r == -EALREADY)
		r = 0;
	return x->try && r == -ETIMEDOUT ? -EBUSY : r;
}

int slow_wait(struct dlock *l, const struct limit *limit, unsigned how)
{
	struct wait x = { .l = l, .limit = *limit, .how = how, .try = how & WAIT_TRY };
	int saved = errno, r = wait_whole(&x);

	errno = saved;
	return -r;
}

int slow_upgrade(struct dlock *l, struct read_hold *h, bool try)
{
	struct wait x = { .l = l, .limit = limit_none, .how = WAIT_UPGRADE, .try = try, .upgrades = h, .upgrades_by = h->b };
	int saved = errno, r = wait_whole(&x);

	errno = saved;
	return r;
}
