/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the calls on objects share: the way to a binding, and the bell.
 *
 * None of it is held over a fork in a signal handler: whoever finds itself to be a child (thread_serial() is
 * 0) has nothing left of what it had, and begins again, by object_bind().
 */
#ifndef DLOCK_OBJECT_H
#define DLOCK_OBJECT_H

#include "handle.h"

/* A call that may wait begins and ends: in between the handle cannot be closed. -ENOMEM. */
int object_enter(struct dlock *l);
void object_exit(struct dlock *l);

/*
 * The binding to work with; one that is lost is opened anew, as long as that takes. -ENOTCONN (failfast), -ETIMEDOUT, -ECANCELED,
 * and the errors of dlock_open().
 */
int object_bind(struct dlock *l, const struct limit *limit, struct binding **ret);

/* The daemon is to look at this client's account: when somebody rings; now. */
void object_want(const struct binding *b);
void object_ring(struct dlock *l, const struct binding *b, const struct limit *limit);

/* The limit of a call with a time. Positive errors. */
int object_limit(struct limit *ret, clockid_t clock, const struct timespec *abs);

#endif
