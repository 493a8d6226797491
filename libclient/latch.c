/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Latches: the count lies in the store; whether it is 0 the daemon shows in the object's slot, and there waiters sleep. */
#include <errno.h>

#include "box.h"
#include "thread.h"

struct dlock_latch {
	struct dlock h;
	uint64_t birth;                  /* as the state has it: of the latch that was opened */
};

/* One request through the handle; what is lost before it is asked is opened anew. */
static int call(struct dlock_latch *c, struct box_request *rq)
{
	struct binding *b;
	int saved = errno, r = object_enter(&c->h);

	if (r < 0)
		return -r;
	r = object_bind(&c->h, &limit_none, &b);
	if (r == 0)
		r = box_call(&c->h, b, rq, &limit_none);
	object_exit(&c->h);
	errno = saved;
	return -r;
}

int dlock_latch_open(dlock_latch_t **ret, const char *name, unsigned count, const dlock_attr_t *attr)
{
	struct box_request rq = { .op = SMALL_OPEN, .arg = count };
	struct dlock_latch *made;
	void *c;
	int r = ret ? handle_open(&c, sizeof(struct dlock_latch), name, attr, KIND_LATCH, 0, box_wake) : EINVAL;

	if (r)
		return r;
	r = call(c, &rq);
	if (r) {
		handle_close(c);
		return r;
	}
	made = c;
	made->birth = rq.value >> 32;
	*ret = made;
	return 0;
}

int dlock_latch_close(dlock_latch_t *c)
{
	return handle_close(c ? &c->h : NULL);
}

int dlock_latch_countdown(dlock_latch_t *c, unsigned n)
{
	struct box_request rq = { .op = SMALL_COUNT, .arg = c->birth << 32 | n };

	return n ? call(c, &rq) : 0;
}

int dlock_latch_getvalue(dlock_latch_t *c, unsigned *ret)
{
	struct box_request rq = { .op = SMALL_LOOK, .arg = c->birth << 32 };
	int r = ret ? call(c, &rq) : EINVAL;

	if (r == 0)
		*ret = (unsigned)rq.value;
	return r;
}

int dlock_latch_unlink(const char *name)
{
	struct box_request rq = { .op = SMALL_UNLINK };
	void *c;
	int r = handle_open(&c, sizeof(struct dlock_latch), name, NULL, KIND_LATCH, 0, box_wake);

	if (r)
		return r;
	r = call(c, &rq);
	handle_close(c);
	return r;
}

/* --- Waiting --- */

/* 1: look again. */
static int wait_turn(struct dlock_latch *c, const struct limit *limit, struct seg_cell **shown)
{
	struct small_latch *w;
	struct binding *b;
	uint64_t state;
	int r = object_bind(&c->h, limit, &b);

	if (r < 0)
		return r;
	w = (struct small_latch *)b->word;
	state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
	if ((state & LATCH_STATE) == LATCH_GONE || ((state & LATCH_STATE) != LATCH_UNKNOWN && state >> 32 != c->birth))
		return -ENOENT;
	if ((state & LATCH_STATE) == LATCH_OPEN)
		return 0;
	r = limit_over(limit);
	if (r < 0)
		return r;
	if (!*shown)
		*shown = binding_show(b, 0);
	r = box_sleep(&c->h, b, &w->state, state, limit);
	if (r != -ESTALE)
		return r < 0 ? r : 1;
	if (thread_serial())
		binding_hide(*shown);
	*shown = NULL;
	return 1;
}

static int latch_wait(struct dlock_latch *c, const struct limit *limit)
{
	struct seg_cell *shown = NULL;
	int saved = errno, r = object_enter(&c->h);

	if (r < 0)
		return -r;
	do {
		r = wait_turn(c, limit, &shown);
		if (r == 1 && !thread_serial())
			r = object_enter(&c->h) < 0 ? -ENOMEM : 1;
	} while (r == 1);
	binding_hide(shown);
	object_exit(&c->h);
	errno = saved;
	return -r;
}

int dlock_latch_wait(dlock_latch_t *c)
{
	return latch_wait(c, &limit_none);
}

int dlock_latch_clockwait(dlock_latch_t *c, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;
	int r = object_limit(&limit, clock, abs);

	return r ? r : latch_wait(c, &limit);
}
