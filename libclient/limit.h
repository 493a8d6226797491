/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long a call may take: until a moment of some clock, and unless somebody cancels it. Nothing
 * here is a cancellation point, and errno stays as it was.
 */
#ifndef DLOCK_LIMIT_H
#define DLOCK_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define LIMIT_NONE UINT64_MAX

struct limit {
	clockid_t clock;                 /* CLOCK_MONOTONIC or CLOCK_REALTIME */
	uint64_t until_ns;               /* absolute; LIMIT_NONE: as long as it takes */
	const uint32_t *cancel;          /* over when this is not cancel_seen any more; NULL: never */
	uint32_t cancel_seen;
};

extern const struct limit limit_none;

/* -EINVAL: another clock, or no time of day. What lies before the clock's beginning is past. */
int limit_parse(struct limit *ret, clockid_t clock, const struct timespec *abs);

uint64_t limit_now(const struct limit *l);
struct timespec limit_timespec(uint64_t ns);

/* 0, -ETIMEDOUT or -ECANCELED. */
int limit_over(const struct limit *l);

/* The moment ns from now, or the limit's own where that comes before. */
uint64_t limit_slice(const struct limit *l, uint64_t ns);

/* Sleeps for ns, not beyond the limit; then as limit_over(). */
int limit_nap(const struct limit *l, uint64_t ns);

/* Between two looks of one who spins. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

#endif
