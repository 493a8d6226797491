/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Double barriers: dlock_barrier_enter(), dlock_barrier_leave().
 *
 * They are barriers of a kind of their own, of the same name, whose rounds the daemon completes (proto/barrierword.h). Who has entered
 * keeps its cell, and with it is a party until it is told what became of leaving. What is kept here is only which cells those are:
 * if this process ends, whatever it was about to do, the daemon knows of them by itself.
 *
 * A cell belongs to the handle and to the process: any thread may leave, the one who entered before others. In a fork's child there are none.
 */
#include <errno.h>
#include <stdlib.h>

#include "barrier.h"
#include "thread.h"

struct inside {
	struct inside *next;
	struct binding *b;
	uint64_t *cell;
	uint32_t thread;                 /* its serial */
};

int double_of(struct dlock_barrier *b, struct dlock_barrier **ret)
{
	struct dlock_barrier *x = __atomic_load_n(&b->twice, __ATOMIC_ACQUIRE), *none = NULL;
	int r;

	if (!x) {
		r = barrier_open(&x, b->h.name->text, b->h.arg, &b->h.attr, KIND_DOUBLE);
		if (r)
			return r;
		if (!__atomic_compare_exchange_n(&b->twice, &none, x, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			handle_close(&x->h);
			x = none;
		}
	}
	*ret = x;
	return 0;
}

/* --- Who is inside --- */

/* A parent's entries are not the child's, whose handles have other bindings; they are left alone, as those are. */
static bool is_ours(const struct dlock_barrier *x, const struct inside *in)
{
	for (const struct binding *b = x->h.bindings; b; b = b->older)
		if (b == in->b)
			return true;
	return false;
}

static void inside_put(struct dlock_barrier *x, struct inside *in)
{
	struct inside **link = &x->inside;

	lib_lock();
	while (*link)
		link = &(*link)->next;
	*link = in;
	lib_unlock();
}

/* That of this thread which is there for longest; else anybody's. NULL: there is none. */
static struct inside *inside_take(struct dlock_barrier *x, uint32_t thread)
{
	struct inside **best = NULL, *in;

	lib_lock();
	for (struct inside **link = &x->inside; *link; link = &(*link)->next)
		if (is_ours(x, *link) && (!best || ((*link)->thread == thread && (*best)->thread != thread)))
			best = link;
	in = best ? *best : NULL;
	if (in)
		*best = in->next;
	lib_unlock();
	return in;
}

/* --- The calls --- */

int dlock_barrier_enter(dlock_barrier_t *b)
{
	struct inside *in = malloc(sizeof *in);
	struct party p = { .limit = &limit_none };
	int r = in ? double_of(b, &p.x) : ENOMEM;

	if (r == 0)
		r = party_pass(&p);
	if (r) {
		free(in);
		return r;
	}
	*in = (struct inside){ .b = p.b, .cell = p.turn.cell, .thread = thread_serial() };
	inside_put(p.x, in);
	return p.serial ? DLOCK_SERIAL : 0;
}

/* A child that a signal handler has made of this thread is not inside. */
static int depart(struct party *p)
{
	int r;

	if (binding_lost(p->b))
		return -ESTALE;
	p->departs = true;
	barrier_depart(&p->turn);
	object_ring(&p->x->h, p->b, &limit_none);
	r = party_told(p);
	if (!p->turn.cell)
		return -EPERM;
	party_hide(p);
	barrier_leave(&p->turn);
	return r;
}

static int leave(struct dlock_barrier *x, const struct limit *limit)
{
	struct party p = { .x = x, .limit = limit };
	int saved = errno, r = object_enter(&x->h);
	struct inside *in;

	if (r < 0)
		return -r;
	in = inside_take(x, thread_serial());
	if (in) {
		p.b = in->b;
		p.turn.cell = in->cell;
		p.at = barrier_at(in->b);
		r = depart(&p);
		free(in);
	} else {
		r = -EPERM;
	}
	object_exit(&x->h);
	errno = saved;
	r = r < 0 ? -r : barrier_error(p.verdict);
	return r == 0 && p.serial ? DLOCK_SERIAL : r;
}

int dlock_barrier_leave(dlock_barrier_t *b)
{
	struct dlock_barrier *x = __atomic_load_n(&b->twice, __ATOMIC_ACQUIRE);

	return x ? leave(x, &limit_none) : EPERM;
}

int dlock_barrier_clockleave(dlock_barrier_t *b, clockid_t clock, const struct timespec *abs)
{
	struct dlock_barrier *x = __atomic_load_n(&b->twice, __ATOMIC_ACQUIRE);
	struct limit limit;
	int r = object_limit(&limit, clock, abs);

	if (r)
		return r;
	return x ? leave(x, &limit) : EPERM;
}

/* --- Closing --- */

/* Nobody leaves any more through what is closed; another handle of the process may have the name open yet. */
static void abandon(struct dlock_barrier *x)
{
	struct inside *in = x->inside, *next;

	for (; in; in = next) {
		next = in->next;
		if (is_ours(x, in) && !binding_lost(in->b)) {
			barrier_abandon(in->cell);
			object_ring(&x->h, in->b, &limit_none);
		}
		free(in);
	}
	x->inside = NULL;
}

int double_close(struct dlock_barrier *b)
{
	struct dlock_barrier *x = b->twice;
	int r;

	if (!x)
		return 0;
	if (__atomic_load_n(&x->h.waits[0], __ATOMIC_ACQUIRE))
		return EBUSY;
	abandon(x);
	r = handle_close(&x->h);
	if (r == 0)
		b->twice = NULL;
	return r;
}
