/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A batch job in phases, by many processes on any hosts: nobody begins a phase before all have ended the one before.
 *
 *     phases WORKERS WORKER DIRECTORY PHASES
 *
 * In phase p, worker w writes DIRECTORY/p.w: the sum of what all workers wrote in phase p - 1 (in phase 0: its own number). So it
 * reads what others wrote; a phase begun too early would find a part missing, or half. The one that the barrier picks
 * takes away what is older than that.
 *
 * If a worker dies, or its host, the round breaks for all of them: they end with 75, and the job is to be begun again.
 */
#include <dlock.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BARRIER "demo-phases"

static const char *directory;

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "phases: %s: %s\n", what, strerror(error));
	exit(1);
}

static const char *part(unsigned phase, unsigned worker)
{
	static char path[4096];

	snprintf(path, sizeof path, "%s/%u.%u", directory, phase, worker);
	return path;
}

static unsigned long part_read(unsigned phase, unsigned worker)
{
	unsigned long v;
	FILE *f = fopen(part(phase, worker), "r");

	if (!f || fscanf(f, "%lu.", &v) != 1)
		die(part(phase, worker), f ? EBADMSG : errno);
	fclose(f);
	return v;
}

static void part_write(unsigned phase, unsigned worker, unsigned long v)
{
	FILE *f = fopen(part(phase, worker), "w");

	if (!f || fprintf(f, "%lu.\n", v) < 0 || fclose(f) != 0)
		die(part(phase, worker), errno);
}

static unsigned long work(unsigned phase, unsigned workers, unsigned worker)
{
	unsigned long sum = 0;

	if (phase == 0)
		return worker;
	for (unsigned i = 0; i < workers; i++)
		sum += part_read(phase - 1, i);
	return sum;
}

int main(int argc, char **argv)
{
	dlock_barrier_t *b;
	unsigned workers, worker, phases;
	int r;

	if (argc != 5) {
		fprintf(stderr, "usage: phases WORKERS WORKER DIRECTORY PHASES\n");
		return 64;
	}
	workers = (unsigned)strtoul(argv[1], NULL, 10);
	worker = (unsigned)strtoul(argv[2], NULL, 10);
	directory = argv[3];
	phases = (unsigned)strtoul(argv[4], NULL, 10);
	r = dlock_barrier_open(&b, BARRIER, workers, NULL);
	if (r != 0)
		die("dlock_barrier_open", r);
	for (unsigned p = 0; p < phases; p++) {
		part_write(p, worker, work(p, workers, worker));
		r = dlock_barrier_wait(b);
		if (r == EPIPE || r == ESTALE) {
			fprintf(stderr, "phases: worker %u: phase %u is over for all: %s\n", worker, p,
				r == EPIPE ? "a worker has died" : "this node was cut off");
			return 75;
		}
		if (r != 0 && r != DLOCK_SERIAL)
			die("dlock_barrier_wait", r);
		/* All have ended phase p, so nobody reads the phase before it any more. */
		for (unsigned i = 0; i < workers && r == DLOCK_SERIAL && p > 0; i++)
			unlink(part(p - 1, i));
	}
	return dlock_barrier_close(b);
}
