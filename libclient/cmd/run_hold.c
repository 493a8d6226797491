/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the run holds, whatever it is: one table of the library's calls. A handle belongs to the front alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

#define ANCHOR_FD 250                    /* out of the way of scripts, which count theirs from 3 */

/* Of the library, for this command alone: what has the descriptor open keeps this client alive. */
int dlock_internal_inherit(int *ret_fd);

/* Where the node's deadline stands, for whoever holds something by this handle. */
int dlock_internal_deadline(void *handle, const uint64_t **ret_ns, const uint64_t **ret_loss_ns);

struct hold_calls {
	int (*open)(struct run *run, const dlock_attr_t *attr);
	int (*take)(struct run *run, const struct timespec *abs);        /* CLOCK_MONOTONIC; NULL: as long as it takes */
	int (*try)(struct run *run);
	int (*check)(struct run *run);
	int (*token)(struct run *run, uint64_t *ret);
	int (*give)(struct run *run);
	int (*fd)(struct run *run, int *ret);                            /* NULL: it has none */
};

/* --- Locks --- */

static int lock_open(struct run *run, const dlock_attr_t *attr)
{
	dlock_t *l;
	int r = dlock_open(&l, run->name, attr);

	if (r == 0)
		run->handle = l;
	return r;
}

static int lock_take(struct run *run, const struct timespec *abs)
{
	return abs ? dlock_clockwait(run->handle, CLOCK_MONOTONIC, abs) : dlock_wait(run->handle);
}

static int lock_try(struct run *run)
{
	return dlock_trywait(run->handle);
}

static int read_take(struct run *run, const struct timespec *abs)
{
	return abs ? dlock_clockwait_shared(run->handle, CLOCK_MONOTONIC, abs) : dlock_wait_shared(run->handle);
}

static int read_try(struct run *run)
{
	return dlock_trywait_shared(run->handle);
}

static int lock_check(struct run *run)
{
	return dlock_check(run->handle);
}

static int lock_token(struct run *run, uint64_t *ret)
{
	return dlock_token(run->handle, ret);
}

static int lock_give(struct run *run)
{
	return dlock_post(run->handle);
}

static int lock_fd(struct run *run, int *ret)
{
	return dlock_fd(run->handle, ret);
}

/* --- One of the permits of a semaphore --- */

static int sem_open_as(struct run *run, const dlock_attr_t *attr)
{
	dlock_sem_t *s;
	int r = dlock_sem_open(&s, run->name, run->permits, attr);

	if (r == 0)
		run->handle = s;
	return r;
}

static int sem_take(struct run *run, const struct timespec *abs)
{
	return abs ? dlock_sem_clockwait(run->handle, CLOCK_MONOTONIC, abs) : dlock_sem_wait(run->handle);
}

static int sem_try(struct run *run)
{
	int r = dlock_sem_trywait(run->handle);

	return r == EAGAIN ? EBUSY : r;
}

static int sem_check(struct run *run)
{
	return dlock_sem_check(run->handle);
}

static int sem_token(struct run *run, uint64_t *ret)
{
	return dlock_sem_token(run->handle, ret);
}

static int sem_give(struct run *run)
{
	return dlock_sem_post(run->handle);
}

/* --- Elections: the others are told on which host it leads --- */

static int elect_open(struct run *run, const dlock_attr_t *attr)
{
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, run->name, attr);

	if (r == 0)
		run->handle = e;
	if (gethostname(run->host, sizeof(run->host) - 1) < 0)
		run->host[0] = 0;
	return r;
}

static int elect_take(struct run *run, const struct timespec *abs)
{
	size_t len = strlen(run->host);

	return abs ? dlock_elect_clockcampaign(run->handle, run->host, len, CLOCK_MONOTONIC, abs) :
		dlock_elect_campaign(run->handle, run->host, len);
}

static int elect_try(struct run *run)
{
	return dlock_elect_trycampaign(run->handle, run->host, strlen(run->host));
}

static int elect_check(struct run *run)
{
	return dlock_elect_check(run->handle);
}

static int elect_token(struct run *run, uint64_t *ret)
{
	return dlock_elect_term(run->handle, ret);
}

static int elect_give(struct run *run)
{
	return dlock_elect_resign(run->handle);
}

static int elect_fd(struct run *run, int *ret)
{
	return dlock_elect_fd(run->handle, ret);
}

/* --- Of whatever kind --- */

static const struct hold_calls kinds[] = {
	[RUN_LOCK] = { lock_open, lock_take, lock_try, lock_check, lock_token, lock_give, lock_fd },
	[RUN_SEM] = { sem_open_as, sem_take, sem_try, sem_check, sem_token, sem_give, NULL },
	[RUN_ELECT] = { elect_open, elect_take, elect_try, elect_check, elect_token, elect_give, elect_fd },
	[RUN_SHARED] = { lock_open, read_take, read_try, lock_check, lock_token, lock_give, lock_fd },
};

static const struct hold_calls *calls(const struct run *run)
{
	return &kinds[run->kind];
}

/* As whom we take it: one process for all its threads, alive until the last of the run has gone. */
int hold_open(struct run *run)
{
	dlock_attr_t *attr;
	int fd, r = dlock_internal_inherit(&fd);

	if (r == 0)
		r = dlock_attr_create(&attr);
	if (r != 0)
		return r;
	dlock_attr_set_owner(attr, DLOCK_OWNER_PROCESS);
	r = calls(run)->open(run, attr);
	dlock_attr_destroy(attr);
	if (r != 0)
		return r;
	snprintf(run->full_name, sizeof(run->full_name), "%s%s", strchr(run->name, '/') ? "" : "default/", run->name);
	run->anchor = -1;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (run->closes)
		return 0;
	run->anchor = fcntl(fd, F_DUPFD, ANCHOR_FD);
	if (run->anchor < 0)
		run->anchor = dup(fd);
	return run->anchor < 0 ? errno : 0;
}

static struct timespec after(double seconds)
{
	struct timespec t;
	time_t whole = (time_t)seconds;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += whole;
	t.tv_nsec += (long)((seconds - (double)whole) * 1e9);
	if (t.tv_nsec >= 1000000000L) {
		t.tv_nsec -= 1000000000L;
		t.tv_sec++;
	}
	return t;
}

/* No time at all is the same as -n, as in flock(1). */
int hold_take(struct run *run, bool limited, double seconds)
{
	struct timespec at;
	int r;

	if (limited && seconds <= 0) {
		r = calls(run)->try(run);
	} else {
		at = after(limited ? seconds : 0);
		r = calls(run)->take(run, limited ? &at : NULL);
	}
	if (r == 0)
		r = calls(run)->token(run, &run->token);
	if (r == 0)
		r = dlock_internal_deadline(run->handle, &run->deadline_ns, &run->loss_ns);
	return r;
}

int hold_check(struct run *run)
{
	return calls(run)->check(run);
}

int hold_give(struct run *run)
{
	return calls(run)->give(run);
}

int hold_fd(struct run *run)
{
	int fd;

	return calls(run)->fd && calls(run)->fd(run, &fd) == 0 ? fd : -1;
}
