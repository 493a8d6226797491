/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "attach.h"

#include <errno.h>
#include <pthread.h>

#define SLICE_NS UINT64_C(50000000)

static pthread_mutex_t attach = PTHREAD_MUTEX_INITIALIZER;
static int attach_cancel_state, attach_errno;    /* of its holder */
static int attach_waits;

#ifdef __SANITIZE_THREAD__               /* which does not know pthread_mutex_clocklock() */
static int mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *at)
{
	while (pthread_mutex_trylock(m) != 0) {
		const struct limit l = {
			.clock = clock,
			.until_ns = (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec,
		};

		if (limit_nap(&l, 1000000) < 0)
			return ETIMEDOUT;
	}
	return 0;
}
#else
#define mutex_clocklock pthread_mutex_clocklock
#endif

static int attach_wait(const struct limit *limit)
{
	int r = 0;

	__atomic_fetch_add(&attach_waits, 1, __ATOMIC_RELAXED);
	do {
		struct timespec at = limit_timespec(limit_slice(limit, SLICE_NS));

		if (mutex_clocklock(&attach, limit->clock, &at) == 0)
			break;
		r = limit_over(limit);
	} while (r == 0);
	__atomic_fetch_sub(&attach_waits, 1, __ATOMIC_RELAXED);
	return r;
}

bool attach_wanted(void)
{
	return __atomic_load_n(&attach_waits, __ATOMIC_RELAXED) > 0;
}

int attach_lock(const struct limit *limit)
{
	int saved = errno, state, r = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (pthread_mutex_trylock(&attach) != 0)
		r = attach_wait(limit);
	if (r < 0) {
		pthread_setcancelstate(state, NULL);
		errno = saved;
		return r;
	}
	attach_cancel_state = state;
	attach_errno = saved;
	return 0;
}

void attach_unlock(void)
{
	int state = attach_cancel_state, saved = attach_errno;

	pthread_mutex_unlock(&attach);
	errno = saved;
	pthread_setcancelstate(state, NULL);
}

void attach_child(void)
{
	attach = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	attach_waits = 0;
}
