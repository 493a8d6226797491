/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tests of the loop share: a loop for each test, runs that end, and a record of what a
 * callback has seen.
 */
#ifndef DLOCK_LOOP_FIXTURE_H
#define DLOCK_LOOP_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../daemon/loop/loop.h"

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static struct loop *loop;

static inline int set_up(void **state)
{
	int err = loop_create(&loop);

	(void)state;
	if (err < 0)
		fprintf(stderr, "loop_create: %s\n", loop_explain(err));
	return err;
}

static inline int tear_down(void **state)
{
	(void)state;
	loop_free(loop);
	loop = NULL;
	return 0;
}

static inline nsec_t boottime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (nsec_t)ts.tv_sec * NSEC_PER_SEC + (nsec_t)ts.tv_nsec;
}

static inline nsec_t cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (nsec_t)ts.tv_sec * NSEC_PER_SEC + (nsec_t)ts.tv_nsec;
}

static inline void stop_with(void *arg)
{
	loop_stop(loop, (int)(intptr_t)arg);
}

/* What a test waits for at most, where a callback stops the loop. The machine may have other work. */
#define PATIENCE (60 * NSEC_PER_SEC)

struct ending {
	struct loop_timer timer;
	int turns;
};

static inline void end_soon(void *arg)
{
	struct ending *e = arg;

	if (e->turns-- > 0)
		loop_timer_set(loop, &e->timer, loop_now(loop) + 100 * NSEC_PER_USEC);
	else
		loop_stop(loop, 99);
}

/*
 * Runs the loop until a callback stops it, or for so long: then the code is 99. Some turns more than that, since the whole time may have
 * passed in one of them.
 */
static inline int run_for(nsec_t span)
{
	struct ending end = {.turns = 5};
	int code;

	loop_timer_init(&end.timer, end_soon, &end);
	loop_timer_set(loop, &end.timer, boottime() + span);
	code = loop_run(loop);
	loop_timer_cancel(loop, &end.timer);
	return code;
}

static inline void run_turns(void)
{
	assert_int_equal(run_for(20 * NSEC_PER_MSEC), 99);
}

static inline void close_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

static inline void raise_event(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

/* What a callback has seen. */
struct seen {
	int calls;
	int stop_after; /* calls; 0: never */
	ssize_t last;
	size_t bytes;
	char data[64]; /* the first bytes */
};

static inline void see(struct seen *s, ssize_t value)
{
	s->calls++;
	s->last = value;
	if (s->calls == s->stop_after)
		loop_stop(loop, 0);
}

static inline void see_bytes(void *arg, const void *data, ssize_t n)
{
	struct seen *s = arg;

	if (n > 0 && s->bytes + (size_t)n <= sizeof(s->data))
		memcpy(s->data + s->bytes, data, (size_t)n);
	if (n > 0)
		s->bytes += (size_t)n;
	see(s, n);
}

static inline void see_ready(void *arg, uint32_t revents)
{
	see(arg, revents);
}

static inline void see_accept(void *arg, int fd)
{
	if (fd >= 0)
		close(fd);
	see(arg, fd);
}

/* Printed, so that LOOP_SEED can repeat the run. */
static inline unsigned fixture_seed(void)
{
	const char *given = getenv("LOOP_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)boottime();

	printf("# LOOP_SEED=%u\n", seed);
	return seed;
}

#define story(title, fn)                                                                           \
	{                                                                                          \
		title, fn, set_up, tear_down, NULL                                                 \
	}

#endif
