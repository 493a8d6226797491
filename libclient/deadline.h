/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Is a space good at this moment? The daemon publishes the deadline twice (segment.h): in ticks of
 * the processor's counter, which are cheap to compare, and in nanoseconds of CLOCK_BOOTTIME, which
 * are always right. A failed comparison of ticks is confirmed by the clock.
 */
#ifndef DLOCK_DEADLINE_H
#define DLOCK_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "proto/segment.h"

static inline uint64_t counter_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t t;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
	return t;
#else
	return UINT64_MAX;               /* no counter: ask the clock */
#endif
}

/* About LOCK_FORCE_NS: exact where the counter's rate can be read, 0.4 to 0.8 ms at 4 to 2 GHz elsewhere. */
static inline uint64_t counter_force_ticks(void)
{
#if defined(__aarch64__)
	uint64_t hz;

	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
	return hz * 3 / 4000;
#else
	return UINT64_C(3) << 19;
#endif
}

static inline uint64_t boottime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline bool deadline_good_ns(const struct node_line *line)
{
	uint64_t ns = __atomic_load_n(&line->ns, __ATOMIC_ACQUIRE);

	return ns == NODE_NEVER || (ns != NODE_GONE && boottime_ns() < ns);
}

/* false says only that the clock has to be asked. */
static inline bool deadline_good_ticks(const struct node_line *line)
{
	uint64_t ticks = __atomic_load_n(&line->ticks, __ATOMIC_ACQUIRE);

	return ticks == NODE_NEVER || counter_now() < ticks;
}

static inline bool deadline_good(const struct node_line *line)
{
	return deadline_good_ticks(line) || deadline_good_ns(line);
}

/* For good: what was held there is lost. */
static inline bool deadline_gone(const struct node_line *line)
{
	return __atomic_load_n(&line->ns, __ATOMIC_ACQUIRE) == NODE_GONE;
}

#endif
