/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "counter.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "loop.h"

#define READINGS 5                       /* the closest pair of so many */
#define BASE_MIN (20 * NSEC_PER_MSEC)    /* between two readings that make a rate */
#define SLEPT_SLACK NSEC_PER_MSEC        /* the two clocks are not read at once */

#if defined(__x86_64__)
#define SOURCE "tsc"

static uint64_t counter_now(void)
{
	return __builtin_ia32_rdtsc();
}

/* The same rate in all states of power: CPUID 8000_0007 EDX bit 8. */
static bool counter_steady(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}
#elif defined(__aarch64__)
#define SOURCE "arch_sys_counter"

static uint64_t counter_now(void)
{
	uint64_t t;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(t) :: "memory");
	return t;
}

static bool counter_steady(void)
{
	return true;
}
#else
#define SOURCE ""

static uint64_t counter_now(void)
{
	return 0;
}

static bool counter_steady(void)
{
	return false;
}
#endif

static size_t read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return strlen(buf);
}

static bool kernel_uses_it(void)
{
	char source[32];

	return read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source) &&
	       strcmp(source, SOURCE) == 0;
}

static nsec_t slept_so_far(void)
{
	struct timespec awake, all;

	clock_gettime(CLOCK_MONOTONIC, &awake);
	clock_gettime(CLOCK_BOOTTIME, &all);
	return (nsec_t)(all.tv_sec - awake.tv_sec) * NSEC_PER_SEC + (nsec_t)all.tv_nsec - (nsec_t)awake.tv_nsec;
}

static struct counter_reading reading(void)
{
	struct counter_reading best = { 0 };

	for (int i = 0; i < READINGS; i++) {
		struct counter_reading r;

		r.before = counter_now();
		r.at = loop_clock();
		r.after = counter_now();
		if (i == 0 || r.after - r.before < best.after - best.before)
			best = r;
	}
	return best;
}

void counter_init(struct counter *c)
{
	char states[128];

	*c = (struct counter){ .steady = counter_steady() };
	c->can_suspend = read_text("/sys/power/state", states, sizeof states) > 0;
	c->slept = slept_so_far();
	c->last = reading();
}

/* One suspend that nobody has announced is enough: there may be more. */
static bool may_be_trusted(struct counter *c)
{
	nsec_t slept = slept_so_far();

	if ((int64_t)(slept - c->slept) > (int64_t)SLEPT_SLACK) {
		c->slept = slept;
		c->last = reading();     /* the rate of before is none that holds over the suspend */
		if (!c->guarded)
			c->can_suspend = true;
		return false;
	}
	return c->steady && (c->guarded || !c->can_suspend) && kernel_uses_it();
}

uint64_t counter_deadline(struct counter *c, nsec_t deadline)
{
	struct counter_reading now, then = c->last;
	unsigned __int128 ticks;
	nsec_t span;

	if (!may_be_trusted(c))
		return 0;
	now = reading();
	if (now.at < then.at + BASE_MIN || now.before <= then.after || deadline <= now.at)
		return 0;
	c->last = now;
	span = deadline - now.at;
	ticks = (unsigned __int128)(now.before - then.after) * (span - span / 100) / (now.at - then.at);
	return ticks < UINT64_C(1) << 62 ? now.before + (uint64_t)ticks : 0;
}

void counter_guard(struct counter *c, bool guarded)
{
	c->guarded = guarded;
}
