/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "limit.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NSEC_PER_SEC UINT64_C(1000000000)

const struct limit limit_none = { .clock = CLOCK_MONOTONIC, .until_ns = LIMIT_NONE };

int limit_parse(struct limit *ret, clockid_t clock, const struct timespec *abs)
{
	uint64_t ns = 0;

	if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
		return -EINVAL;
	if (!abs || abs->tv_nsec < 0 || abs->tv_nsec >= (long)NSEC_PER_SEC)
		return -EINVAL;
	if (abs->tv_sec >= (time_t)(INT64_MAX / NSEC_PER_SEC))
		ns = LIMIT_NONE;         /* in some 290 years */
	else if (abs->tv_sec >= 0)
		ns = (uint64_t)abs->tv_sec * NSEC_PER_SEC + (uint64_t)abs->tv_nsec;
	*ret = (struct limit){ .clock = clock, .until_ns = ns };
	return 0;
}

uint64_t limit_now(const struct limit *l)
{
	struct timespec t;

	clock_gettime(l->clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

struct timespec limit_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NSEC_PER_SEC),
		.tv_nsec = (long)(ns % NSEC_PER_SEC),
	};
}

int limit_over(const struct limit *l)
{
	if (l->cancel && __atomic_load_n(l->cancel, __ATOMIC_ACQUIRE) != l->cancel_seen)
		return -ECANCELED;
	if (l->until_ns != LIMIT_NONE && limit_now(l) >= l->until_ns)
		return -ETIMEDOUT;
	return 0;
}

uint64_t limit_slice(const struct limit *l, uint64_t ns)
{
	uint64_t at = limit_now(l) + ns;

	return at < l->until_ns ? at : l->until_ns;
}

/* By the clock that nobody sets: one that is set back would make a moment last for hours. */
int limit_nap(const struct limit *l, uint64_t ns)
{
	uint64_t now = limit_now(l), end = limit_slice(l, ns);
	struct timespec at = limit_timespec(limit_now(&limit_none) + (end > now ? end - now : 0));
	int saved = errno, r;

	do {
		r = limit_over(l);
		if (r < 0)
			break;
	} while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) < 0 && errno == EINTR);
	errno = saved;
	return limit_over(l);
}
