/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A party for scripts: barrier_party NAME PARTIES WHAT...
 *
 *   wait [N]    N rounds (1); says how often it was the serial one if all passed
 *   time N      N rounds, after ten that do not count; and says how many microseconds each took
 *   timed MS    gives up after so long
 *   yes, no     votes
 *   reset       breaks what is forming
 *   double N    enters and leaves N times; says how often it was the serial one of either
 *   inside FILE enters, says so, and leaves as soon as there is such a file
 *   go FILE     the same, but goes without leaving
 *
 * Each says one line: "passed", "serial", "all" or "some" (of a vote), or the name of the error.
 */
#include <dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static dlock_barrier_t *bar;

static int say(int r)
{
	printf("%s\n", r == 0 ? "passed" : r == DLOCK_SERIAL ? "serial" : strerrorname_np(r));
	fflush(stdout);
	return r > 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int rounds(long n, bool timed)
{
	long serials = 0, warm = timed ? 10 : 0;
	double begin = now();

	for (long i = -warm; i < n; i++) {
		int r = dlock_barrier_wait(bar);

		if (r > 0)
			return say(r);
		if (i < 0)
			begin = now();
		else
			serials += r == DLOCK_SERIAL;
	}
	if (timed)
		printf("%.1f\n", (now() - begin) / (double)n * 1e6);
	else
		printf("%ld\n", serials);
	return 0;
}

static int timed(long ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return say(dlock_barrier_clockwait(bar, CLOCK_MONOTONIC, &t));
}

static int vote(bool yes)
{
	bool all;
	int r = dlock_barrier_vote(bar, yes, &all);

	if (r > 0)
		return say(r);
	puts(all ? "all" : "some");
	return 0;
}

static int twice(long n)
{
	long serials = 0;

	for (long i = 0; i < n; i++) {
		int in = dlock_barrier_enter(bar), out = in > 0 ? 0 : dlock_barrier_leave(bar);

		if (in > 0 || out > 0)
			return say(in > 0 ? in : out);
		serials += (in == DLOCK_SERIAL) + (out == DLOCK_SERIAL);
	}
	printf("%ld\n", serials);
	return 0;
}

static int inside(const char *file, bool leaves)
{
	const struct timespec nap = { .tv_nsec = 10000000 };
	int r = say(dlock_barrier_enter(bar));

	if (r)
		return r;
	while (access(file, F_OK))
		nanosleep(&nap, NULL);
	return leaves ? say(dlock_barrier_leave(bar)) : 0;
}

int main(int argc, char **argv)
{
	long n = argc > 4 ? atol(argv[4]) : 1;
	int r;

	if (argc < 4)
		return 64;
	r = dlock_barrier_open(&bar, argv[1], (unsigned)atoi(argv[2]), NULL);
	if (r)
		return say(r);
	if (!strcmp(argv[3], "wait"))
		return n > 1 ? rounds(n, false) : say(dlock_barrier_wait(bar));
	if (!strcmp(argv[3], "time"))
		return rounds(n, true);
	if (!strcmp(argv[3], "timed"))
		return timed(n);
	if (!strcmp(argv[3], "yes") || !strcmp(argv[3], "no"))
		return vote(argv[3][0] == 'y');
	if (!strcmp(argv[3], "reset"))
		return say(dlock_barrier_reset(bar));
	if (!strcmp(argv[3], "double"))
		return twice(n);
	if (argc > 4 && (!strcmp(argv[3], "inside") || !strcmp(argv[3], "go")))
		return inside(argv[4], argv[3][0] == 'i');
	return 64;
}
