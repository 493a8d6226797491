/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What actors do with a semaphore: each has one. */
#ifndef E2E_SEM_ACTS_H
#define E2E_SEM_ACTS_H

#include <dlock.h>

#include "actor.h"

extern dlock_sem_t *sem;

int act_take_n(struct stage *s, uint64_t n);
int act_try_n(struct stage *s, uint64_t n);
int act_give_n(struct stage *s, uint64_t n);

#endif
