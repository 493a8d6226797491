/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Free semaphores in the library (proto/poolword.h): what dlock_sem_* of a handle with the attribute "free" come to. */
#ifndef DLOCK_POOL_H
#define DLOCK_POOL_H

#include "object.h"
#include "proto/poolword.h"

/* One turn of a wait. 0: taken. 1: another turn. Negative errors. */
int pool_wait_once(struct dlock *l, uint32_t n, const struct limit *limit, bool try);
int pool_post(struct dlock *l, uint32_t n);      /* negative errors. Signal-safe where the name is open */
int pool_value(struct dlock *l, int *ret);       /* negative errors */
void pool_wake(struct dlock *l);

/* A handle, after the question has been answered. Positive errors. */
int pool_open(struct dlock_sem **ret, const char *name, const struct dlock_attr *attr, enum pool_box how, uint32_t value);

#endif
