/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "object.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "deadline.h"
#include "space.h"
#include "thread.h"

#define RETRY_NS    UINT64_C(50000000)   /* until another look whether the daemon is back */
#define FAILFAST_NS UINT64_C(100000000)

int object_enter(struct dlock *l)
{
	uint32_t serial;
	int r = thread_register(&serial);

	if (r == 0)
		__atomic_fetch_add(&l->waits[0], 1, __ATOMIC_SEQ_CST);
	return r;
}

void object_exit(struct dlock *l)
{
	if (thread_serial())
		__atomic_fetch_sub(&l->waits[0], 1, __ATOMIC_RELEASE);
}

static int object_attach(struct dlock *l, const struct limit *limit)
{
	int r = attach_lock(limit);

	if (r < 0)
		return r;
	r = name_attach(l, limit);
	attach_unlock();
	return r;
}

/* 1: look again. */
static int bind_once(struct dlock *l, const struct limit *limit)
{
	struct limit soon = *limit;
	int r;

	if (l->attr.failfast)
		soon.until_ns = limit_slice(limit, FAILFAST_NS);
	r = object_attach(l, &soon);
	if (r == -ETIMEDOUT) {
		r = limit_over(limit);
		return r < 0 ? r : -ENOTCONN;    /* it does not answer */
	}
	if ((r == -ENOTCONN && !l->attr.failfast) || (r == 0 && binding_lost(binding_now(l))))
		r = limit_nap(limit, RETRY_NS);
	return r < 0 ? r : 1;
}

int object_bind(struct dlock *l, const struct limit *limit, struct binding **ret)
{
	for (;;) {
		struct binding *b = binding_now(l);
		int r;

		if (!thread_serial()) {  /* a child now, that begins again */
			r = object_enter(l);
			if (r < 0)
				return r;
		}
		if (!binding_lost(b)) {
			*ret = b;
			return 0;
		}
		r = bind_once(l, limit);
		if (r < 0)
			return r;
	}
}

void object_want(const struct binding *b)
{
	seg_bit_set(b->space->base, SEG_WANT, b->account);
}

void object_ring(struct dlock *l, const struct binding *b, const struct limit *limit)
{
	object_want(b);
	name_ring(l->name, b, limit);
}

int object_limit(struct limit *ret, clockid_t clock, const struct timespec *abs)
{
	return limit_parse(ret, clock, abs) < 0 ? EINVAL : 0;
}
