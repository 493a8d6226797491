/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sorts.h"

#include <dlock.h>
#include <errno.h>

static int lock_open(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_t *l;
	int r = dlock_open(&l, name, attr);

	if (r == 0)
		*ret = l;
	return r;
}

static int lock_wait(void *h, unsigned weight)
{
	return weight ? dlock_wait_shared(h) : dlock_wait(h);
}

static int lock_try(void *h, unsigned weight)
{
	return weight ? dlock_trywait_shared(h) : dlock_trywait(h);
}

static int lock_timed(void *h, unsigned weight, const struct timespec *abs)
{
	return weight ? dlock_clockwait_shared(h, CLOCK_MONOTONIC, abs) : dlock_clockwait(h, CLOCK_MONOTONIC, abs);
}

static int lock_check(void *h)
{
	return dlock_check(h);
}

static int lock_token(void *h, uint64_t *ret)
{
	return dlock_token(h, ret);
}

static int lock_give(void *h, unsigned weight)
{
	(void)weight;
	return dlock_post(h);
}

static int lock_close(void *h)
{
	return dlock_close(h);
}

#define PERMITS 4

static int sem_open_it(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_sem_t *s;
	int r = dlock_sem_open(&s, name, PERMITS, attr);

	if (r == 0)
		*ret = s;
	return r;
}

static int sem_wait_for(void *h, unsigned weight)
{
	return dlock_sem_wait_n(h, weight);
}

static int sem_try(void *h, unsigned weight)
{
	int r = dlock_sem_trywait_n(h, weight);

	return r == EAGAIN ? EBUSY : r;
}

static int sem_timed(void *h, unsigned weight, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(h, weight, CLOCK_MONOTONIC, abs);
}

static int sem_check(void *h)
{
	return dlock_sem_check(h);
}

static int sem_token(void *h, uint64_t *ret)
{
	return dlock_sem_token(h, ret);
}

static int sem_give(void *h, unsigned weight)
{
	return dlock_sem_post_n(h, weight);
}

static int sem_close_it(void *h)
{
	return dlock_sem_close(h);
}

static int elect_open_it(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, name, attr);

	if (r == 0)
		*ret = e;
	return r;
}

static int elect_wait(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_campaign(h, "me", 2);
}

static int elect_try(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_trycampaign(h, "me", 2);
}

static int elect_timed(void *h, unsigned weight, const struct timespec *abs)
{
	(void)weight;
	return dlock_elect_clockcampaign(h, "me", 2, CLOCK_MONOTONIC, abs);
}

static int elect_check(void *h)
{
	return dlock_elect_check(h);
}

static int elect_term(void *h, uint64_t *ret)
{
	return dlock_elect_term(h, ret);
}

static int elect_give(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_resign(h);
}

static int elect_leader(void *h, uint64_t *ret)
{
	char value[8];
	size_t len = sizeof value;

	return dlock_elect_leader(h, value, &len, ret);
}

const struct sort sorts[SORTS] = {
	{ "l", 0, true, lock_open, lock_wait, lock_try, lock_timed, lock_check, lock_token, lock_give, lock_close, NULL, true },
	{ "s", PERMITS, false, sem_open_it, sem_wait_for, sem_try, sem_timed, sem_check, sem_token, sem_give, sem_close_it, NULL, false },
	{ "e", 0, false, elect_open_it, elect_wait, elect_try, elect_timed, elect_check, elect_term, elect_give, NULL, elect_leader, false },
};
