/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A lock that nobody else wants, cached by its node: dlock_wait() and dlock_post() against lock and
 * unlock of a mutex that is process-shared and robust, which is what does the same job on one host.
 * One process, on one processor. With one lock, and with 64 in turn; with no deadline (embedded
 * store), and with one that is compared with the processor's counter.
 */
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define NAMES     64
#define PAIRS     10000                  /* of a stretch */

/* Mutexes on lines of their own, as dlock's words are. */
struct padded {
	pthread_mutex_t m;
} __attribute__((aligned(64)));

static struct cached {
	dlock_t *lock[NAMES];
	struct padded *mutex;
	unsigned names;                  /* a power of two */
} cached = { .names = 1 };

__attribute__((noinline)) static void pairs_dlock(void *arg, long n)
{
	const struct cached *c = arg;

	for (long i = 0; i < n; i++) {
		dlock_t *l = c->lock[i & (c->names - 1)];

		if (__builtin_expect(dlock_wait(l) | dlock_post(l), 0))
			errx(2, "a pair failed");
	}
}

__attribute__((noinline)) static void pairs_mutex(void *arg, long n)
{
	const struct cached *c = arg;

	for (long i = 0; i < n; i++) {
		pthread_mutex_t *m = &c->mutex[i & (c->names - 1)].m;

		if (__builtin_expect(pthread_mutex_lock(m) | pthread_mutex_unlock(m), 0))
			errx(2, "a pair failed");
	}
}

__attribute__((noinline)) static void pairs_nothing(void *arg, long n)
{
	const struct cached *c = arg;

	for (long i = 0; i < n; i++) {
		dlock_t *l = c->lock[i & (c->names - 1)];

		__asm__ volatile("" : : "r"(l) : "memory");
	}
}

static void mutexes_make(struct cached *c)
{
	pthread_mutexattr_t a;

	c->mutex = bench_shared(NAMES * sizeof *c->mutex);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	for (unsigned i = 0; i < NAMES; i++)
		bench_ok(pthread_mutex_init(&c->mutex[i].m, &a), "pthread_mutex_init");
	pthread_mutexattr_destroy(&a);
}

/* Taken once, so that they are cached. */
static void locks_open(struct cached *c)
{
	char name[32];

	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof name, "cached-%u", i);
		c->lock[i] = bench_open(name);
		bench_ok(dlock_wait(c->lock[i]), "dlock_wait");
		bench_ok(dlock_post(c->lock[i]), "dlock_post");
	}
}

static void locks_close(struct cached *c)
{
	for (unsigned i = 0; i < NAMES; i++)
		bench_ok(dlock_close(c->lock[i]), "dlock_close");
}

static void measure(void *arg)
{
	static const char *const counts[2][2] = { { "dlock-1", "mutex-1" }, { "dlock-64", "mutex-64" } };
	const struct row *row = arg;
	struct row r = *row;
	bool many = strstr(row->key, "64") != NULL;

	cached.names = many ? NAMES : 1;
	locks_open(&cached);
	for (int i = 0; i < 2; i++)
		r.instructions[i] = bench_instructions(counts[many][i]);
	bench_alternate(&r, pairs_dlock, pairs_mutex, &cached, PAIRS, 0);
	locks_close(&cached);
	bench_end();
}

/* The run that is counted. */
static int count(const char *which, long n)
{
	cached.names = strstr(which, "64") ? NAMES : 1;
	if (strstr(which, "dlock")) {
		locks_open(&cached);
		pairs_dlock(&cached, n);
	} else if (strstr(which, "mutex")) {
		pairs_mutex(&cached, n);
	} else {
		pairs_nothing(&cached, n);
	}
	return 0;
}

static const struct {
	struct row row;
	const char *option;
} table[] = {
	{ { .key = "cached", .what = "cached wait+post", .rival = "robust mutex, lock+unlock", .unit = "ns",
	    .goal = 0.8 }, NULL },
	{ { .key = "cached-counter", .what = "cached wait+post, deadline compared with the counter",
	    .rival = "robust mutex, lock+unlock", .unit = "ns", .goal = 1.0 }, "--x-counter-deadline" },
	{ { .key = "cached-64", .what = "the same, 64 names in turn", .rival = "64 robust mutexes in turn",
	    .unit = "ns", .goal = 1.0 }, NULL },
	{ { .key = "cached-counter-64", .what = "the same, 64 names in turn, with the counter",
	    .rival = "64 robust mutexes in turn", .unit = "ns" }, "--x-counter-deadline" },
};

int main(int argc, char **argv)
{
	mutexes_make(&cached);
	if (argc == 4 && strcmp(argv[1], "--count") == 0)
		return count(argv[2], atol(argv[3]));
	bench_begin("cached");
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct bench_daemon d;

		if (!bench_wanted(table[i].row.key))
			continue;
		bench_daemon_start(&d, 0, table[i].option);
		/* A process of its own for each: a process attaches to one daemon. */
		bench_join(bench_fork(1, measure, (void *)&table[i].row));
		bench_daemon_stop(&d);
	}
	return 0;
}
