/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_sim                    the seeds of make check, as TAP
 * test_sim FIRST COUNT        these seeds; says which failed, and what was counted
 * test_sim FIRST COUNT stop   ... up to the first that fails: how many it took
 * test_sim SEED trace         one seed, a line for each event
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define CHECK_SECONDS 40
#define CHECK_SEEDS 200

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void counts_say(const struct sim_counts *c)
{
#define X(name) printf("# %-18s %llu%s\n", #name, (unsigned long long)c->name, c->name ? "" : "   never");
	SIM_COUNTS(X)
#undef X
	printf("# from a holder's death to the next grant, in steps of %llu ms:", RELEASE_STEP / MSEC);
	for (unsigned i = 0; i < RELEASE_SLOTS; i++)
		printf(" %llu", (unsigned long long)c->release[i]);
	printf("\n");
}

static bool counts_all(const struct sim_counts *c)
{
	bool all = true;
#define X(name) all &= c->name > 0;
	SIM_COUNTS(X)
#undef X
	return all;
}

/* A core that has lost its way traps: the seed is said nevertheless. */
static char trap_words[80];

static void trapped(int number)
{
	ssize_t r = write(STDOUT_FILENO, trap_words, strlen(trap_words));

	(void)r;
	signal(number, SIG_DFL);
	raise(number);
}

static bool seed_run(uint64_t seed, struct sim_counts *counts, FILE *trace, char verdict[200])
{
	snprintf(trap_words, sizeof trap_words, "# seed %llu the core itself gave up\n", (unsigned long long)seed);
	return sim_run(seed, counts, trace, verdict);
}

static int seeds(uint64_t first, uint64_t count, bool stop, struct sim_counts *counts, double until, uint64_t *ret_run)
{
	char verdict[200];
	int failed = 0;
	uint64_t i = 0;

	for (; i < count && (!until || seconds() < until); i++) {
		if (seed_run(first + i, counts, NULL, verdict))
			continue;
		printf("# seed %llu %s\n", (unsigned long long)(first + i), verdict);
		fflush(stdout);
		failed++;
		if (stop) {
			i++;
			break;
		}
	}
	*ret_run = i;
	return failed;
}

static int check(void)
{
	struct sim_counts counts = { 0 };
	double start = seconds();
	uint64_t run;
	int failed = seeds(1, CHECK_SEEDS, false, &counts, start + CHECK_SECONDS, &run);

	printf("1..2\n%s 1 - many nodes, one seed each: no judge says no, and everybody is served once faults stop\n",
	       failed ? "not ok" : "ok");
	printf("%s 2 - every kind of operation and of fault has really happened\n", counts_all(&counts) ? "ok" : "not ok");
	printf("# %llu seeds of a simulated minute in %.1f s\n", (unsigned long long)run, seconds() - start);
	counts_say(&counts);
	return failed || !counts_all(&counts);
}

int main(int argc, char **argv)
{
	struct sim_counts counts = { 0 };
	char verdict[200];
	uint64_t run;

	sim_safety_only = getenv("SAFETY") != NULL;
	signal(SIGILL, trapped);
	signal(SIGABRT, trapped);
	signal(SIGSEGV, trapped);
	if (argc < 3)
		return check();
	if (!strcmp(argv[2], "trace")) {
		bool ok = seed_run(strtoull(argv[1], NULL, 10), &counts, stdout, verdict);
		return !ok;
	}
	double start = seconds();
	bool stop = argc > 3 && !strcmp(argv[3], "stop");
	int failed = seeds(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), stop, &counts, 0, &run);
	printf("# %llu seeds of a simulated minute, %d failed, %.1f s\n", (unsigned long long)run, failed, seconds() - start);
	if (!stop)
		counts_say(&counts);
	return failed != 0;
}
