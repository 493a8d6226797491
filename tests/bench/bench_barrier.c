/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A round of a barrier: eight processes on all processors that arrive, wait for one another, and go on at once to the
 * next; against a process-shared pthread_barrier_t. Microseconds a round.
 *
 * They look that the rounds are rounds (rounds.h). Of each round exactly one was told that it is the one.
 */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "rounds.h"

#define PARTIES 8
#define TRIPS   2000                     /* of a stretch */

static struct shared {
	pthread_barrier_t barrier __attribute__((aligned(64)));
	uint64_t from __attribute__((aligned(64)));
	uint64_t to;
	struct round_party per[PARTIES];
} *shared;

static int arrive(dlock_barrier_t *b)
{
	return b ? dlock_barrier_wait(b) : pthread_barrier_wait(&shared->barrier);
}

static uint64_t work(unsigned i, void *arg)
{
	dlock_barrier_t *b = NULL;

	if (*(const bool *)arg)
		bench_ok(dlock_barrier_open(&b, "round", PARTIES, NULL), "dlock_barrier_open");
	bench_crowd_go();
	arrive(b);                       /* all are there; it is not counted */
	if (i == 0)
		shared->from = bench_ns();
	for (unsigned n = 0; n < TRIPS; n++) {
		int r = arrive(b);

		if (r != 0 && r != DLOCK_SERIAL)
			errx(2, "a round failed: %s", strerror(r));
		round_passed(shared->per, PARTIES, i, r != 0);
	}
	if (i == 0)
		shared->to = bench_ns();
	if (b)
		bench_ok(dlock_barrier_close(b), "dlock_barrier_close");
	return TRIPS;
}

static double us_each(bool dlock)
{
	uint64_t ns, serial = 0;

	memset(shared->per, 0, sizeof shared->per);
	bench_crowd(PARTIES, 0, work, &dlock, &ns);
	for (unsigned i = 0; i < PARTIES; i++)
		serial += shared->per[i].serial;
	if (serial != TRIPS)
		errx(2, "%u rounds, and %llu were told that they are the one", TRIPS, (unsigned long long)serial);
	return (double)(shared->to - shared->from) / TRIPS / 1e3;
}

static double us_dlock(void *arg)
{
	(void)arg;
	return us_each(true);
}

static double us_rival(void *arg)
{
	(void)arg;
	return us_each(false);
}

static const struct {
	struct row row;
	const char *option;
} table[] = {
	{ { .key = "barrier-8", .what = "a barrier's round, 8 processes", .rival = "pthread_barrier", .unit = "us", .goal = 0.5 }, NULL },
	{ { .key = "barrier-8-counter", .what = "... deadline compared with the counter", .rival = "pthread_barrier", .unit = "us",
	    .goal = 0.5 }, "--x-counter-deadline" },
};

int main(void)
{
	pthread_barrierattr_t a;

	_Static_assert(PTHREAD_BARRIER_SERIAL_THREAD == DLOCK_SERIAL, "one test for both");
	bench_begin("barrier");
	shared = bench_shared(sizeof *shared);
	pthread_barrierattr_init(&a);
	pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	bench_ok(pthread_barrier_init(&shared->barrier, &a, PARTIES), "pthread_barrier_init");
	pthread_barrierattr_destroy(&a);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct bench_daemon d;

		if (!bench_wanted(table[i].row.key))
			continue;
		bench_daemon_start(&d, 0, table[i].option);
		bench_rounds(&table[i].row, ROUNDS, us_dlock, us_rival, NULL);
		bench_daemon_stop(&d);
	}
	bench_end();
	return 0;
}
