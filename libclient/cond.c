/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Condition variables. Whoever waits has its entry in the record before it lets go of the lock: so no signal that comes
 * after that is missed. It sleeps on its account's bell until its ticket is among those that are signalled, and takes the lock again.
 */
#include <errno.h>

#include "box.h"
#include "thread.h"

struct dlock_cond {
	struct dlock h;
};

int dlock_cond_open(dlock_cond_t **ret, const char *name, const dlock_attr_t *attr)
{
	void *c;
	int r = ret ? handle_open(&c, sizeof(struct dlock_cond), name, attr, KIND_COND, 0, box_wake) : EINVAL;

	if (r == 0)
		*ret = c;
	return r;
}

int dlock_cond_close(dlock_cond_t *c)
{
	return handle_close(c ? &c->h : NULL);
}

/* --- Signals --- */

static int cond_signal(struct dlock_cond *c, uint32_t n)
{
	struct box_request rq = { .op = SMALL_SIGNAL, .arg = n };
	struct binding *b;
	int saved = errno, r = object_enter(&c->h);

	if (r < 0)
		return -r;
	do {                             /* two signals are better than none */
		r = object_bind(&c->h, &limit_none, &b);
		if (r == 0)
			r = box_call(&c->h, b, &rq, &limit_none);
	} while (r == -ESTALE && thread_serial());
	object_exit(&c->h);
	errno = saved;
	return -r;
}

int dlock_cond_signal(dlock_cond_t *c)
{
	return cond_signal(c, 1);
}

int dlock_cond_broadcast(dlock_cond_t *c)
{
	return cond_signal(c, UINT32_MAX);
}

/* --- Waiting --- */

struct waiting {
	struct dlock_cond *c;
	struct dlock *l;
	const struct limit *limit;
	struct binding *b;
	uint32_t ticket;
	bool held;                       /* the lock has not been let go of */
};

/* Held exclusively, once, and by this thread. */
static int lock_fits(struct dlock *l)
{
	struct binding *b;
	int r = dlock_check(l);

	if (r)
		return -r;
	r = hold_find(l, &b);
	if (r < 0)
		return r;
	if (!(__atomic_load_n(&b->held, __ATOMIC_RELAXED) & LOCK_EXCLUSIVE))     /* R beside it only says that others have read */
		return -EPERM;
	return state_depth(__atomic_load_n(&b->state, __ATOMIC_ACQUIRE)) ? -EINVAL : 0;
}

static bool passed(const struct waiting *w)
{
	return (int32_t)((uint32_t)__atomic_load_n(&box_of(w->b)->passed, __ATOMIC_ACQUIRE) - w->ticket) >= 0;
}

/* What was lost with the daemon's memory of it counts as signalled: the caller looks for himself. */
static int cond_sleep(struct waiting *w)
{
	struct small_account *box = box_of(w->b);
	struct seg_cell *shown = binding_show(w->b, 0);
	int r = 0;

	for (;;) {
		uint64_t bell = __atomic_load_n(&box->bell, __ATOMIC_ACQUIRE);

		if (passed(w))
			break;
		r = box_sleep(&w->c->h, w->b, &box->bell, bell, w->limit);
		if (r == -ETIMEDOUT || r == -ECANCELED || r == -ESTALE)
			break;           /* failfast is the lock's affair */
	}
	if (thread_serial())
		binding_hide(shown);
	return r == -ETIMEDOUT || r == -ECANCELED ? r : 0;
}

/* A cancel of the lock's waits ends it; what the store is still to be told then is not waited for by that. */
static int cond_sleep_cancellable(struct waiting *w, uint32_t serial)
{
	struct sleeper s = { .word = (uint32_t *)(void *)&box_of(w->b)->bell };
	int r;

	sleeper_add(w->l, &s);
	r = cond_sleep(w);
	if (thread_serial() == serial)
		sleeper_remove(w->l, &s);
	return r;
}

/* Gives the ticket back. 0: a signal was its; why: none was. */
static int give_up(struct waiting *w, int why)
{
	uint64_t signalled = 0;
	int r = box_cancel(&w->c->h, w->b, w->ticket, &signalled);

	return r == 0 && !signalled ? why : 0;
}

static int enter(struct waiting *w)
{
	struct box_request rq = { .op = SMALL_ENTER };
	int r;

	do {
		r = object_bind(&w->c->h, w->limit, &w->b);
		if (r == 0)
			r = box_call(&w->c->h, w->b, &rq, w->limit);
	} while (r == -ESTALE && thread_serial());
	w->ticket = rq.number;
	return r;
}

/* From having entered to not waiting any more, without the lock at the end unless held. 0: signalled. */
static int wait_entered(struct waiting *w, uint32_t serial)
{
	int r = dlock_post(w->l);

	if (r) {
		w->held = true;          /* as far as it ever was */
		waits_exit(w->l, w->limit);
		give_up(w, r);
		return -r;
	}
	r = cond_sleep_cancellable(w, serial);
	if (thread_serial() == serial)
		waits_exit(w->l, w->limit);
	if (r < 0 && thread_serial())
		r = give_up(w, r);
	return r;
}

/* The signal is this thread's, for good, once it has the lock: should it die before, another is to have it. */
static void wait_over(struct waiting *w, uint32_t serial, bool signalled)
{
	if (thread_serial() != serial)
		return;                  /* a child: all this was the parent's */
	if (signalled && !binding_lost(w->b))
		__atomic_fetch_add(&box_of(w->b)->taken, 1, __ATOMIC_RELEASE);
	object_exit(&w->c->h);
}

/* Who cancels the waits of l means that for the condition, which is over: the caller is to have l. */
static int take_again(struct dlock *l)
{
	int r;

	do
		r = dlock_wait(l);
	while (r == ECANCELED);
	return r;
}

static int cond_wait(struct dlock_cond *c, struct dlock *l, const struct limit *limit)
{
	struct limit own = *limit;
	struct waiting w = { .c = c, .l = l, .limit = &own };
	int saved = errno, r, again;
	uint32_t serial;

	if (!l)
		return EINVAL;
	r = lock_fits(l);
	if (r < 0)
		return -r;
	r = object_enter(&c->h);
	if (r < 0)
		return -r;
	serial = thread_serial();
	waits_enter(l, &own);
	r = enter(&w);
	w.held = r < 0;
	if (r == 0)
		r = wait_entered(&w, serial);
	else if (thread_serial() == serial)
		waits_exit(l, &own);
	again = w.held ? 0 : take_again(l);
	wait_over(&w, serial, r == 0 && !w.held);
	errno = saved;
	return again ? again : -r;
}

int dlock_cond_wait(dlock_cond_t *c, dlock_t *l)
{
	return cond_wait(c, l, &limit_none);
}

int dlock_cond_clockwait(dlock_cond_t *c, dlock_t *l, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;
	int r = object_limit(&limit, clock, abs);

	return r ? r : cond_wait(c, l, &limit);
}
