/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Eight processes on all processors that want the same thing all the time: operations a second, without deadline (embedded
 * store) and with one that is compared with the processor's counter.
 *
 *   readers-8   a lock in shared mode only, against a process-shared pthread_rwlock_t
 *   readers-90  the same, and every tenth time a writer
 *   sem-8       a semaphore of two permits, against a process-shared sem_t
 *
 * The loops have no clock call in them. A writer raises two words, one after the other: at the end they must have counted every
 * writer, and no reader may ever find them different, else exclusion has failed. A semaphore's holders do nothing: whatever they shared would
 * be what is measured.
 */
#include <err.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define PROCESSES 8
#define PERMITS   2
#define ROUND_NS  UINT64_C(200000000)
#define WRITES    10                     /* one of so many writes */

static struct crowds {
	pthread_rwlock_t rwlock __attribute__((aligned(64)));
	sem_t sem __attribute__((aligned(64)));
	uint64_t first __attribute__((aligned(64)));
	uint64_t second;
	struct per {
		uint64_t writes;
	} __attribute__((aligned(64))) per[PROCESSES];
} *shared;

/* --- Readers and writers --- */

static void writes(struct per *me)
{
	uint64_t n = __atomic_load_n(&shared->first, __ATOMIC_RELAXED);

	__atomic_store_n(&shared->first, n + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&shared->second, n + 1, __ATOMIC_RELAXED);
	me->writes++;
}

static void reads(void)
{
	if (__builtin_expect(__atomic_load_n(&shared->first, __ATOMIC_RELAXED) != __atomic_load_n(&shared->second, __ATOMIC_RELAXED), 0))
		errx(2, "a reader and a writer are in it at once");
}

static uint64_t readers_dlock(unsigned i, void *arg)
{
	const bool mixed = *(const bool *)arg;
	dlock_t *l = bench_open("readers");
	uint64_t n = 0;

	bench_crowd_go();
	for (; !bench_crowd_over(); n++) {
		bool write = mixed && (n + i) % WRITES == 0;

		if (__builtin_expect(write ? dlock_wait(l) : dlock_wait_shared(l), 0))
			errx(2, "a wait failed");
		write ? writes(&shared->per[i]) : reads();
		if (__builtin_expect(dlock_post(l), 0))
			errx(2, "a post failed");
	}
	bench_ok(dlock_close(l), "dlock_close");
	return n;
}

static uint64_t readers_rwlock(unsigned i, void *arg)
{
	const bool mixed = *(const bool *)arg;
	pthread_rwlock_t *l = &shared->rwlock;
	uint64_t n = 0;

	bench_crowd_go();
	for (; !bench_crowd_over(); n++) {
		bool write = mixed && (n + i) % WRITES == 0;

		if (__builtin_expect(write ? pthread_rwlock_wrlock(l) : pthread_rwlock_rdlock(l), 0))
			errx(2, "a wait failed");
		write ? writes(&shared->per[i]) : reads();
		if (__builtin_expect(pthread_rwlock_unlock(l), 0))
			errx(2, "a post failed");
	}
	return n;
}

static void readers_begin(void)
{
	pthread_rwlockattr_t a;

	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	bench_ok(pthread_rwlock_init(&shared->rwlock, &a), "pthread_rwlock_init");
	pthread_rwlockattr_destroy(&a);
}

static void readers_judge(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < PROCESSES; i++)
		n += shared->per[i].writes;
	if (n != shared->first || n != shared->second)
		errx(2, "%llu writers, but %llu counted: two were in it at once", (unsigned long long)n, (unsigned long long)shared->first);
}

/* --- Permits --- */

static uint64_t sem_dlock(unsigned i, void *arg)
{
	dlock_sem_t *s;
	uint64_t n = 0;

	(void)i;
	(void)arg;
	bench_ok(dlock_sem_open(&s, "permits", PERMITS, NULL), "dlock_sem_open");
	bench_crowd_go();
	for (; !bench_crowd_over(); n++) {
		if (__builtin_expect(dlock_sem_wait(s), 0))
			errx(2, "a wait failed");
		if (__builtin_expect(dlock_sem_post(s), 0))
			errx(2, "a post failed");
	}
	bench_ok(dlock_sem_close(s), "dlock_sem_close");
	return n;
}

static uint64_t sem_rival(unsigned i, void *arg)
{
	sem_t *s = &shared->sem;
	uint64_t n = 0;

	(void)i;
	(void)arg;
	bench_crowd_go();
	for (; !bench_crowd_over(); n++) {
		if (__builtin_expect(sem_wait(s), 0))
			err(2, "sem_wait");
		if (__builtin_expect(sem_post(s), 0))
			err(2, "sem_post");
	}
	return n;
}

static void sem_begin(void)
{
	if (sem_init(&shared->sem, 1, PERMITS) < 0)
		err(2, "sem_init");
}

static void sem_judge(void)
{
	int n;

	if (sem_getvalue(&shared->sem, &n) < 0 || n != PERMITS)
		errx(2, "%d permits are left of %d", n, PERMITS);
}

/* --- */

static const struct crowd {
	struct row row;
	const char *option;
	void (*begin)(void);
	uint64_t (*dlock)(unsigned i, void *arg), (*rival)(unsigned i, void *arg);
	void (*judge)(void);
	bool mixed;
} crowds[] = {
	{ { .key = "readers-8", .what = "readers only, 8 processes", .rival = "pthread_rwlock", .unit = "M acquisitions/s",
	    .better = MORE_IS_BETTER, .goal = 2.0 },
	  NULL, readers_begin, readers_dlock, readers_rwlock, readers_judge, false },
	{ { .key = "readers-8-counter", .what = "... deadline compared with the counter", .rival = "pthread_rwlock", .unit = "M acquisitions/s",
	    .better = MORE_IS_BETTER, .goal = 2.0 },
	  "--x-counter-deadline", readers_begin, readers_dlock, readers_rwlock, readers_judge, false },
	{ { .key = "readers-90", .what = "nine of ten are readers, 8 processes", .rival = "pthread_rwlock", .unit = "M acquisitions/s",
	    .better = MORE_IS_BETTER, .goal = 0.5 },
	  NULL, readers_begin, readers_dlock, readers_rwlock, readers_judge, true },
	{ { .key = "readers-90-counter", .what = "... deadline compared with the counter", .rival = "pthread_rwlock", .unit = "M acquisitions/s",
	    .better = MORE_IS_BETTER, .goal = 0.5 },
	  "--x-counter-deadline", readers_begin, readers_dlock, readers_rwlock, readers_judge, true },
	{ { .key = "sem-8", .what = "two permits, 8 processes", .rival = "sem_t", .unit = "M acquisitions/s", .better = MORE_IS_BETTER, .goal = 3.0 },
	  NULL, sem_begin, sem_dlock, sem_rival, sem_judge, false },
	{ { .key = "sem-8-counter", .what = "... deadline compared with the counter", .rival = "sem_t", .unit = "M acquisitions/s",
	    .better = MORE_IS_BETTER, .goal = 3.0 },
	  "--x-counter-deadline", sem_begin, sem_dlock, sem_rival, sem_judge, false },
};

static double rate(const struct crowd *c, uint64_t (*work)(unsigned i, void *arg))
{
	bool mixed = c->mixed;
	uint64_t ns, n;

	memset(shared->per, 0, sizeof shared->per);
	shared->first = shared->second = 0;
	n = bench_crowd(PROCESSES, ROUND_NS, work, &mixed, &ns);
	c->judge();
	return (double)n * 1e3 / (double)ns;
}

static double rate_dlock(void *arg)
{
	const struct crowd *c = arg;

	return rate(c, c->dlock);
}

static double rate_rival(void *arg)
{
	const struct crowd *c = arg;

	return rate(c, c->rival);
}

int main(void)
{
	bench_begin("crowds");
	shared = bench_shared(sizeof *shared);
	for (size_t i = 0; i < sizeof crowds / sizeof *crowds; i++) {
		struct bench_daemon d;

		if (!bench_wanted(crowds[i].row.key))
			continue;
		crowds[i].begin();
		bench_daemon_start(&d, 0, crowds[i].option);
		bench_rounds(&crowds[i].row, ROUNDS, rate_dlock, rate_rival, (void *)&crowds[i]);
		bench_daemon_stop(&d);
	}
	bench_end();
	return 0;
}
