/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every other primitive by itself: what one process pays that meets nobody, against what does a like job on one host. With
 * no deadline (embedded store), and with one that is compared with the processor's counter.
 *
 *   fence    a token that was admitted before, against pread() of eight bytes
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define PAIRS    10000                   /* of a stretch */
#define TOKEN    UINT64_C(1099511627777)

static struct alone {
	dlock_fence_t *fence;
	int fd;                          /* of eight bytes */
} alone;

static void pairs_nothing(void *arg, long n)
{
	for (long i = 0; i < n; i++)
		__asm__ volatile("" : : "r"(arg) : "memory");
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
	k->begin();
	(which[0] == 'd' ? k->dlock : k->rival)(NULL, n);
	return 0;
}

int main(int argc, char **argv)
{
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
