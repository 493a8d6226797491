/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stddef.h>

#include "dlock.h"
#include "kinds.h"

int kinds_onloss;

static int with_attr(dlock_attr_t **ret, enum dlock_owner who)
{
	int r = dlock_attr_create(ret);

	if (r)
		return r;
	dlock_attr_set_wait_daemon(*ret, true);
	dlock_attr_set_owner(*ret, who);
	dlock_attr_set_onloss(*ret, kinds_onloss);
	return 0;
}

/* --- Locks --- */

#define DELAY_MS 50

static int lock_open_as(void **ret, const char *name, enum dlock_owner who, unsigned delay_ms)
{
	dlock_attr_t *a;
	dlock_t *l = NULL;
	int r = with_attr(&a, who);

	if (r)
		return r;
	r = dlock_attr_set_delay_ms(a, delay_ms);
	if (r == 0)
		r = dlock_open(&l, name, a);
	dlock_attr_destroy(a);
	*ret = l;
	return r;
}

static int lock_open(void **ret, const char *name)
{
	return lock_open_as(ret, name, DLOCK_OWNER_THREAD, 0);
}

static int delayed_lock_open(void **ret, const char *name)
{
	return lock_open_as(ret, name, DLOCK_OWNER_THREAD, DELAY_MS);
}

static int process_lock_open(void **ret, const char *name)
{
	return lock_open_as(ret, name, DLOCK_OWNER_PROCESS, 0);
}

static int lock_close(void *h)
{
	return dlock_close(h);
}

static int lock_take(void *h)
{
	return dlock_wait(h);
}

static int lock_timed(void *h, const struct timespec *abs)
{
	return dlock_clockwait(h, CLOCK_MONOTONIC, abs);
}

static int lock_cancel(void *h)
{
	return dlock_cancel(h);
}

static int lock_try(void *h)
{
	return dlock_trywait(h);
}

static int lock_give(void *h)
{
	return dlock_post(h);
}

static int lock_check(void *h)
{
	return dlock_check(h);
}

static int lock_token(void *h, uint64_t *ret)
{
	return dlock_token(h, ret);
}

static int lock_fd(void *h, int *ret)
{
	return dlock_fd(h, ret);
}

/* --- Semaphores: two of three permits each --- */

static int sem_open_three(void **ret, const char *name)
{
	dlock_attr_t *a;
	dlock_sem_t *m = NULL;
	int r = with_attr(&a, DLOCK_OWNER_THREAD);

	if (r)
		return r;
	r = dlock_sem_open(&m, name, 3, a);
	dlock_attr_destroy(a);
	*ret = m;
	return r;
}

static int sem_close_it(void *h)
{
	return dlock_sem_close(h);
}

static int sem_take_two(void *h)
{
	return dlock_sem_wait_n(h, 2);
}

static int sem_timed_two(void *h, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(h, 2, CLOCK_MONOTONIC, abs);
}

static int sem_try_two(void *h)
{
	return dlock_sem_trywait_n(h, 2);
}

static int sem_give_two(void *h)
{
	return dlock_sem_post_n(h, 2);
}

static int sem_check_it(void *h)
{
	return dlock_sem_check(h);
}

static int sem_token_it(void *h, uint64_t *ret)
{
	return dlock_sem_token(h, ret);
}

#define SEM { sem_take_two, sem_timed_two, sem_try_two, sem_give_two, sem_check_it, sem_token_it }
static int read_take(void *h)
{
	return dlock_wait_shared(h);
}

static int read_timed(void *h, const struct timespec *abs)
{
	return dlock_clockwait_shared(h, CLOCK_MONOTONIC, abs);
}

static int read_try(void *h)
{
	return dlock_trywait_shared(h);
}

#define READ { read_take, read_timed, read_try, lock_give, lock_check, lock_token }
#define LOCK { lock_take, lock_timed, lock_try, lock_give, lock_check, lock_token }

/* --- Elections: a candidate leads, and says so --- */

static int elect_open(void **ret, const char *name)
{
	dlock_attr_t *a;
	dlock_elect_t *e = NULL;
	int r = with_attr(&a, DLOCK_OWNER_THREAD);

	if (r)
		return r;
	r = dlock_elect_open(&e, name, a);
	dlock_attr_destroy(a);
	*ret = e;
	return r;
}

static int elect_close(void *h)
{
	return dlock_elect_close(h);
}

/* Whoever is elected finds himself to be the leader, as long as he is. */
static int elected(dlock_elect_t *e, int r)
{
	uint64_t mine, term;

	if (r || dlock_elect_term(e, &mine))
		return r;
	return (dlock_elect_leader(e, NULL, NULL, &term) || term != mine) && dlock_elect_check(e) == 0 ? EPROTO : 0;
}

static int elect_take(void *h)
{
	return elected(h, dlock_elect_campaign(h, "leader", 6));
}

static int elect_timed(void *h, const struct timespec *abs)
{
	return elected(h, dlock_elect_clockcampaign(h, "leader", 6, CLOCK_MONOTONIC, abs));
}

static int elect_try(void *h)
{
	return elected(h, dlock_elect_trycampaign(h, "leader", 6));
}

static int elect_give(void *h)
{
	return dlock_elect_resign(h);
}

static int elect_check(void *h)
{
	return dlock_elect_check(h);
}

static int elect_token(void *h, uint64_t *ret)
{
	return dlock_elect_term(h, ret);
}

static int elect_fd(void *h, int *ret)
{
	return dlock_elect_fd(h, ret);
}

#define ELECTION { elect_take, elect_timed, elect_try, elect_give, elect_check, elect_token }

const struct kind kinds[] = {
	{ "a lock", "lock", lock_open, lock_close, EBUSY, true, LOCK, LOCK, false, 0, lock_fd, lock_cancel },
	{ "a lock with a lock-delay", "delay", delayed_lock_open, lock_close, EBUSY, true, LOCK, LOCK, false, DELAY_MS, lock_fd, lock_cancel },
	{ "a lock of the process", "process", process_lock_open, lock_close, EBUSY, false, LOCK, LOCK, false, 0, lock_fd, lock_cancel },
	{ "a lock that is read, for a writer", "read", lock_open, lock_close, EBUSY, true, READ, LOCK, false, 0, lock_fd, lock_cancel },
	{ "a lock for readers", "toread", lock_open, lock_close, EBUSY, true, LOCK, READ, false, 0, lock_fd, lock_cancel },
	{ "a lock that the process reads", "readall", process_lock_open, lock_close, EBUSY, false, READ, LOCK, false, 0, lock_fd, lock_cancel },
	{ "permits of a semaphore", "sem", sem_open_three, sem_close_it, EAGAIN, false, SEM, SEM, true, 0, NULL, NULL },
	{ "an election", "election", elect_open, elect_close, EBUSY, true, ELECTION, ELECTION, false, 0, elect_fd, NULL },
};
const unsigned kinds_count = sizeof kinds / sizeof *kinds;
