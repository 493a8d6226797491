/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One lock that 2, 8 or 64 processes want all the time, against a process-shared robust mutex.
 *
 * Acquisitions a second: the loop has no clock call in it; it ends when the parent says so. In the
 * hold, one counter beside the lock is raised, by load and store: at the end it must have counted
 * every acquisition, else exclusion has failed.
 *
 * The longest wait: the same loop with the processor's counter read before and after each wait, for
 * either side. p99.99 is of all waits, most of which are for nothing: the more often a lock changes
 * hands, the more of them are for something. So beside it stands the wait that a waiting process is in
 * at a random moment (each wait counts as often as it is long). The longest of a run is what the
 * unluckiest process had to bear. A wait that the end of the run finds is waited to its end.
 */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define ROUND_NS   UINT64_C(200000000)
#define WAITED_NS  UINT64_C(2000000000)
#define FINE       32                    /* buckets per doubling */
#define BUCKETS    (64 * FINE)

struct shared {
	pthread_mutex_t mutex __attribute__((aligned(64)));
	uint64_t guarded __attribute__((aligned(64)));
	struct per {
		uint64_t n;
		uint64_t longest;
		uint64_t bucket[BUCKETS];
	} per[CROWD_MAX] __attribute__((aligned(64)));
};

static struct shared *shared;
static unsigned procs;
static bool timed;

static unsigned bucket_of(uint64_t v)
{
	unsigned log;

	v = v < FINE ? FINE : v;
	log = 63 - (unsigned)__builtin_clzll(v);
	return (log - 5) * FINE + (unsigned)(v >> (log - 5)) - FINE;
}

static uint64_t bucket_floor(unsigned b)
{
	return (uint64_t)(b % FINE + FINE) << b / FINE;
}

static inline int take(dlock_t *l)
{
	return l ? dlock_wait(l) : pthread_mutex_lock(&shared->mutex);
}

static inline int give(dlock_t *l)
{
	return l ? dlock_post(l) : pthread_mutex_unlock(&shared->mutex);
}

static inline void hold(void)
{
	uint64_t n = __atomic_load_n(&shared->guarded, __ATOMIC_RELAXED);

	__atomic_store_n(&shared->guarded, n + 1, __ATOMIC_RELAXED);
}

static uint64_t loop_plain(dlock_t *l)
{
	uint64_t n = 0;

	for (; !bench_crowd_over(); n++) {
		if (__builtin_expect(take(l) != 0, 0))
			errx(2, "a wait failed");
		hold();
		if (__builtin_expect(give(l) != 0, 0))
			errx(2, "a post failed");
	}
	return n;
}

static uint64_t loop_timed(dlock_t *l, struct per *me)
{
	uint64_t n = 0;

	for (; !bench_crowd_over(); n++) {
		uint64_t begin = bench_ticks(), waited;

		if (__builtin_expect(take(l) != 0, 0))
			errx(2, "a wait failed");
		waited = bench_ticks() - begin;
		hold();
		if (__builtin_expect(give(l) != 0, 0))
			errx(2, "a post failed");
		me->bucket[bucket_of(waited)]++;
		if (waited > me->longest)
			me->longest = waited;
	}
	return n;
}

static uint64_t work(unsigned i, void *arg)
{
	struct per *me = &shared->per[i];
	dlock_t *l = *(const bool *)arg ? bench_open("contended") : NULL;

	bench_crowd_go();
	me->n = timed ? loop_timed(l, me) : loop_plain(l);
	if (l)
		bench_ok(dlock_close(l), "dlock_close");
	return me->n;
}

static double run(bool dlock, uint64_t ns)
{
	uint64_t span, n;

	memset(shared->per, 0, sizeof shared->per);
	shared->guarded = 0;
	n = bench_crowd(procs, ns, work, &dlock, &span);
	if (n != shared->guarded)
		errx(2, "%llu acquisitions, but %llu counted: two were in it at once", (unsigned long long)n,
		     (unsigned long long)shared->guarded);
	return (double)n * 1e9 / (double)span;
}

static double rate_dlock(void *arg)
{
	(void)arg;
	return run(true, ROUND_NS) / 1e6;
}

static double rate_mutex(void *arg)
{
	(void)arg;
	return run(false, ROUND_NS) / 1e6;
}

/* --- Waits --- */

struct waits {
	double p9999, felt, longest;     /* ms */
	double least, most;              /* acquisitions of the process that had fewest, and most */
};

/* The value that this share of all weight lies below; each wait weighs 1, or as much as it is long. */
static double histogram_at(const uint64_t *all, double share, bool by_length)
{
	double sum = 0, seen = 0;
	unsigned b = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		sum += (double)all[i] * (by_length ? (double)bucket_floor(i) : 1);
	for (; b < BUCKETS - 1; b++) {
		seen += (double)all[b] * (by_length ? (double)bucket_floor(b) : 1);
		if (seen >= sum * share)
			break;
	}
	return (double)bucket_floor(b);
}

static struct waits waits_of(bool dlock)
{
	uint64_t all[BUCKETS] = { 0 }, longest = 0, least = UINT64_MAX, most = 0;
	double ms = bench_ns_per_tick() / 1e6;

	run(dlock, WAITED_NS);
	for (unsigned i = 0; i < procs; i++) {
		const struct per *p = &shared->per[i];

		for (unsigned j = 0; j < BUCKETS; j++)
			all[j] += p->bucket[j];
		longest = p->longest > longest ? p->longest : longest;
		least = p->n < least ? p->n : least;
		most = p->n > most ? p->n : most;
	}
	return (struct waits){ histogram_at(all, 0.9999, false) * ms, histogram_at(all, 0.5, true) * ms,
			       (double)longest * ms, (double)least, (double)most };
}

static void measure_waits(void)
{
	struct row p9999 = { .key = "wait-p9999-64", .what = "... wait, p99.99, 64 processes",
			     .rival = "robust mutex", .unit = "ms", .goal = 1.0, .unpaired = true };
	struct row felt = { .key = "wait-felt-64", .what = "... wait at a random moment, median, 64 processes",
			    .rival = "robust mutex", .unit = "ms", .unpaired = true };
	struct row longest = { .key = "wait-longest-64", .what = "... longest wait, 64 processes",
			       .rival = "robust mutex", .unit = "ms", .goal = 1.0, .limit = 150, .unpaired = true };
	double a[3][WAIT_ROUNDS], b[3][WAIT_ROUNDS], least[2] = { 0 }, most[2] = { 0 };

	procs = 64;
	timed = true;
	for (unsigned i = 0; i < WAIT_ROUNDS; i++) {
		struct waits d = waits_of(true), m = waits_of(false);

		a[0][i] = d.p9999;
		a[1][i] = d.longest;
		a[2][i] = d.felt;
		b[0][i] = m.p9999;
		b[1][i] = m.longest;
		b[2][i] = m.felt;
		least[0] += d.least / WAIT_ROUNDS;
		most[0] += d.most / WAIT_ROUNDS;
		least[1] += m.least / WAIT_ROUNDS;
		most[1] += m.most / WAIT_ROUNDS;
	}
	snprintf(longest.note, sizeof longest.note,
		 "acquisitions in %g s of the process with fewest and most: %.0f, %.0f; mutex: %.0f, %.0f",
		 (double)WAITED_NS / 1e9, least[0], most[0], least[1], most[1]);
	bench_row(&p9999, a[0], b[0], WAIT_ROUNDS);
	bench_row(&felt, a[2], b[2], WAIT_ROUNDS);
	bench_row(&longest, a[1], b[1], WAIT_ROUNDS);
}

static void mutex_make(void)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	bench_ok(pthread_mutex_init(&shared->mutex, &a), "pthread_mutex_init");
	pthread_mutexattr_destroy(&a);
}

int main(void)
{
	static const struct row table[] = {
		{ .key = "contended-2", .what = "one lock, 2 processes", .rival = "robust mutex",
		  .unit = "M acquisitions/s", .better = MORE_IS_BETTER, .goal = 0.9 },
		{ .key = "contended-8", .what = "one lock, 8 processes", .rival = "robust mutex",
		  .unit = "M acquisitions/s", .better = MORE_IS_BETTER, .goal = 0.9 },
		{ .key = "contended-64", .what = "one lock, 64 processes", .rival = "robust mutex",
		  .unit = "M acquisitions/s", .better = MORE_IS_BETTER, .goal = 0.9 },
	};
	static const unsigned numbers[] = { 2, 8, 64 };
	struct bench_daemon d;

	bench_begin("contended");
	bench_daemon_start(&d, 0, NULL);
	shared = bench_shared(sizeof *shared);
	mutex_make();
	for (size_t i = 0; i < 3; i++) {
		procs = numbers[i];
		if (bench_wanted(table[i].key))
			bench_rounds(&table[i], ROUNDS, rate_dlock, rate_mutex, NULL);
	}
	if (bench_wanted("wait-p9999-64") || bench_wanted("wait-felt-64") || bench_wanted("wait-longest-64"))
		measure_waits();
	bench_daemon_stop(&d);
	bench_end();
	return 0;
}
