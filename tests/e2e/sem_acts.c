/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sem_acts.h"

dlock_sem_t *sem;

int act_take_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_wait_n(sem, (unsigned)n);
}

int act_try_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_trywait_n(sem, (unsigned)n);
}

int act_give_n(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_post_n(sem, (unsigned)n);
}
