/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every other primitive by itself: what one process pays that meets nobody, against what does a like job on one host. With
 * no deadline (embedded store), and with one that is compared with the processor's counter.
 *
 *   shared   a lock in shared mode, against a process-shared pthread_rwlock_t
 *   sem      a semaphore of PERMITS, wait and post, against a process-shared sem_t
 *   elect    who leads, in VALUE bytes: against two loads, and memcpy of so many bytes between them
 *   id       a worker's next number, against clock_gettime(CLOCK_REALTIME). There are 4096 in a millisecond, so IDS are
 *            taken at a time and a few milliseconds pass before the next.
 *   fence    a token that was admitted before, against pread() of eight bytes
 */
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define PAIRS    10000                   /* of a stretch */
#define PERMITS  4
#define VALUE    64
#define IDS      1000
#define IDS_REST UINT64_C(2000000)
#define TOKEN    UINT64_C(1099511627777)

static struct alone {
	dlock_t *lock;
	dlock_sem_t *sem;
	dlock_elect_t *elect;
	dlock_id_t *id;
	dlock_fence_t *fence;
	int fd;                          /* of eight bytes */
	struct rivals {
		pthread_rwlock_t rwlock __attribute__((aligned(64)));
		sem_t sem __attribute__((aligned(64)));
		uint64_t before __attribute__((aligned(64)));
		char value[VALUE];
		uint64_t after;
	} *rival;                        /* in shared memory */
} alone;

static volatile size_t value_len = VALUE;        /* so that memcpy() is called */

static void pairs_nothing(void *arg, long n)
{
	for (long i = 0; i < n; i++)
		__asm__ volatile("" : : "r"(arg) : "memory");
}

/* --- A lock in shared mode --- */

static void shared_begin(void)
{
	pthread_rwlockattr_t a;

	alone.lock = bench_open("shared");
	bench_ok(dlock_wait_shared(alone.lock), "dlock_wait_shared");
	bench_ok(dlock_post(alone.lock), "dlock_post");
	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	bench_ok(pthread_rwlock_init(&alone.rival->rwlock, &a), "pthread_rwlock_init");
	pthread_rwlockattr_destroy(&a);
}

static void shared_dlock(void *arg, long n)
{
	dlock_t *l = alone.lock;

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(dlock_wait_shared(l) | dlock_post(l), 0))
			errx(2, "a pair failed");
}

static void shared_rival(void *arg, long n)
{
	pthread_rwlock_t *l = &alone.rival->rwlock;

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(pthread_rwlock_rdlock(l) | pthread_rwlock_unlock(l), 0))
			errx(2, "a pair failed");
}

/* --- A semaphore --- */

static void sem_begin(void)
{
	bench_ok(dlock_sem_open(&alone.sem, "sem", PERMITS, NULL), "dlock_sem_open");
	bench_ok(dlock_sem_wait(alone.sem), "dlock_sem_wait");
	bench_ok(dlock_sem_post(alone.sem), "dlock_sem_post");
	if (sem_init(&alone.rival->sem, 1, PERMITS) < 0)
		err(2, "sem_init");
}

static void sem_dlock(void *arg, long n)
{
	dlock_sem_t *s = alone.sem;

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(dlock_sem_wait(s) | dlock_sem_post(s), 0))
			errx(2, "a pair failed");
}

static void sem_rival(void *arg, long n)
{
	sem_t *s = &alone.rival->sem;

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(sem_wait(s) | sem_post(s), 0))
			errx(2, "a pair failed");
}

/* --- Who leads --- */

static void elect_begin(void)
{
	memset(alone.rival->value, 'x', VALUE);
	bench_ok(dlock_elect_open(&alone.elect, "elect", NULL), "dlock_elect_open");
	bench_ok(dlock_elect_campaign(alone.elect, alone.rival->value, VALUE), "dlock_elect_campaign");
}

static void elect_dlock(void *arg, long n)
{
	char value[1024];
	uint64_t term;

	(void)arg;
	for (long i = 0; i < n; i++) {
		size_t len = sizeof value;

		if (__builtin_expect(dlock_elect_leader(alone.elect, value, &len, &term), 0))
			errx(2, "nobody leads");
		__asm__ volatile("" : : "r"(value), "r"(len), "r"(term) : "memory");
	}
}

static void elect_rival(void *arg, long n)
{
	const struct rivals *r = alone.rival;
	char value[1024];

	(void)arg;
	for (long i = 0; i < n; i++) {
		uint64_t before = __atomic_load_n(&r->before, __ATOMIC_ACQUIRE), after;

		memcpy(value, r->value, value_len);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = __atomic_load_n(&r->after, __ATOMIC_RELAXED);
		__asm__ volatile("" : : "r"(value), "r"(before), "r"(after) : "memory");
	}
}

/* --- Numbers --- */

static void id_begin(void)
{
	uint64_t id;

	bench_ok(dlock_id_open(&alone.id, "id", NULL), "dlock_id_open");
	bench_ok(dlock_id_next(alone.id, &id), "dlock_id_next");
}

static void id_dlock(void *arg, long n)
{
	uint64_t id, last = 0;

	(void)arg;
	for (long i = 0; i < n; i++) {
		if (__builtin_expect(dlock_id_next(alone.id, &id) || id <= last, 0))
			errx(2, "no number, or a lower one");
		last = id;
	}
}

static void id_rival(void *arg, long n)
{
	struct timespec t;

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(clock_gettime(CLOCK_REALTIME, &t), 0))
			err(2, "clock_gettime");
}

/* --- The checker at the resource --- */

static void fence_begin(void)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/fence", getenv("DLOCK_RUN_DIR"));
	bench_ok(dlock_fence_open(&alone.fence, path), "dlock_fence_open");
	bench_ok(dlock_fence_admit(alone.fence, "backup", TOKEN), "dlock_fence_admit");
	snprintf(path, sizeof path, "%s/eight", getenv("DLOCK_RUN_DIR"));
	alone.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (alone.fd < 0 || pwrite(alone.fd, "12345678", 8, 0) != 8)
		err(2, "%s", path);
}

static void fence_dlock(void *arg, long n)
{
	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(dlock_fence_admit(alone.fence, "backup", TOKEN), 0))
			errx(2, "not admitted");
}

static void fence_rival(void *arg, long n)
{
	char eight[8];

	(void)arg;
	for (long i = 0; i < n; i++)
		if (__builtin_expect(pread(alone.fd, eight, sizeof eight, 0) != 8, 0))
			err(2, "pread");
}

/* --- */

static const struct kind {
	struct row row;
	const char *option;
	void (*begin)(void);
	bench_pairs dlock, rival;
	long n;
	uint64_t pause_ns;
} kinds[] = {
	{ { .key = "shared", .what = "shared wait+post, cached", .rival = "pthread_rwlock, rdlock+unlock", .unit = "ns", .goal = 1.0 },
	  NULL, shared_begin, shared_dlock, shared_rival, PAIRS, 0 },
	{ { .key = "shared-counter", .what = "... deadline compared with the counter", .rival = "pthread_rwlock, rdlock+unlock", .unit = "ns",
	    .goal = 1.0 },
	  "--x-counter-deadline", shared_begin, shared_dlock, shared_rival, PAIRS, 0 },
	{ { .key = "sem", .what = "semaphore wait+post, permits cached", .rival = "sem_t, wait+post", .unit = "ns", .goal = 1 / 1.2 },
	  NULL, sem_begin, sem_dlock, sem_rival, PAIRS, 0 },
	{ { .key = "sem-counter", .what = "... deadline compared with the counter", .rival = "sem_t, wait+post", .unit = "ns",
	    .goal = 1 / 1.2 },
	  "--x-counter-deadline", sem_begin, sem_dlock, sem_rival, PAIRS, 0 },
	{ { .key = "elect-leader", .what = "who leads, 64 bytes", .rival = "memcpy and 2 loads", .unit = "ns", .goal = 3.0 },
	  NULL, elect_begin, elect_dlock, elect_rival, PAIRS, 0 },
	{ { .key = "elect-leader-counter", .what = "... deadline compared with the counter", .rival = "memcpy and 2 loads", .unit = "ns",
	    .goal = 3.0 },
	  "--x-counter-deadline", elect_begin, elect_dlock, elect_rival, PAIRS, 0 },
	{ { .key = "id-next", .what = "next number", .rival = "clock_gettime(CLOCK_REALTIME)", .unit = "ns", .goal = 1 / 1.5 },
	  NULL, id_begin, id_dlock, id_rival, IDS, IDS_REST },
	{ { .key = "id-next-counter", .what = "... deadline compared with the counter", .rival = "clock_gettime(CLOCK_REALTIME)", .unit = "ns",
	    .goal = 1 / 1.5 },
	  "--x-counter-deadline", id_begin, id_dlock, id_rival, IDS, IDS_REST },
	{ { .key = "fence-admit", .what = "a token admitted again", .rival = "pread of 8 bytes", .unit = "ns", .goal = 1.0 },
	  NULL, fence_begin, fence_dlock, fence_rival, PAIRS, 0 },
};

static void measure(void *arg)
{
	const struct kind *k = arg;
	struct row r = k->row;
	char which[64];

	k->begin();
	snprintf(which, sizeof which, "dlock:%s", r.key);
	r.instructions[0] = bench_instructions(which);
	snprintf(which, sizeof which, "rival:%s", r.key);
	r.instructions[1] = bench_instructions(which);
	bench_alternate(&r, k->dlock, k->rival, NULL, k->n, k->pause_ns);
	bench_end();
}

/* The run that is counted: beside the one that measures, which has it all open. */
static int count(const char *which, long n)
{
	const struct kind *k = NULL;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strlen(which) > 6 && strcmp(kinds[i].row.key, which + 6) == 0)
			k = &kinds[i];
	if (!k) {
		pairs_nothing(NULL, n);
		return 0;
	}
	if (k->begin == elect_begin)
		bench_ok(dlock_elect_open(&alone.elect, "elect", NULL), "dlock_elect_open");
	else
		k->begin();
	(which[0] == 'd' ? k->dlock : k->rival)(NULL, n);
	return 0;
}

int main(int argc, char **argv)
{
	alone.rival = bench_shared(sizeof *alone.rival);
	if (argc == 4 && strcmp(argv[1], "--count") == 0)
		return count(argv[2], atol(argv[3]));
	bench_begin("kinds");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct bench_daemon d;

		if (!bench_wanted(kinds[i].row.key))
			continue;
		bench_daemon_start(&d, 0, kinds[i].option);
		/* A process of its own for each: a process attaches to one daemon. */
		bench_join(bench_fork(1, measure, (void *)&kinds[i]));
		bench_daemon_stop(&d);
	}
	return 0;
}
