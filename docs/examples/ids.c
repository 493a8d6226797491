/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Numbers that are there once in the cluster, and that rise with time:
 *
 *     ids COUNT
 *
 * prints so many, one a line. Of 63 bits, 41 are milliseconds, 10 the worker number that this node has leased, and 12 count within the
 * millisecond: sorted, they are in order of time. Where a number cannot be had now it waits, and says why after a second.
 */
#include <dlock.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATOR "demo-ids"
#define AGAIN_US 10000
#define PATIENCE 100                     /* times */

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "ids: %s: %s\n", what, strerror(error));
	exit(1);
}

/* The lease is gone for a moment, say, or the clock has gone far back. */
static uint64_t next(dlock_id_t *g)
{
	uint64_t id;
	int r;

	for (unsigned i = 0; (r = dlock_id_next(g, &id)) != 0; i++) {
		if (i == PATIENCE)
			die("dlock_id_next", r);
		usleep(AGAIN_US);
	}
	return id;
}

int main(int argc, char **argv)
{
	unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	dlock_id_t *g;
	int r;

	if (!count) {
		fprintf(stderr, "usage: ids COUNT\n");
		return 64;
	}
	r = dlock_id_open(&g, GENERATOR, NULL);
	if (r != 0)
		die("dlock_id_open", r);
	while (count--)
		printf("%llu\n", (unsigned long long)next(g));
	return dlock_id_close(g);
}
