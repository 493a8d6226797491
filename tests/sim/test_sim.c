/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_sim                    the seeds of make check, as TAP
 * test_sim FIRST COUNT        these seeds; says which failed, and what was counted
 * test_sim FIRST COUNT stop   ... up to the first that fails: how many it took
 * test_sim SEED trace         one seed, a line for each event
 *
 * Two processes share the seeds (WORKERS=n). SAFETY=1: nobody minds how long anything takes.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

/* make check: as many as there is time for, but so many that everything happens. */
#define CHECK_SECONDS 30
#define CHECK_SEEDS 600
#define CHECK_MUST 120

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

/* --- Many seeds, by several processes --- */

#define WORKERS_MAX 16

struct share {
	struct sim_counts counts;
	uint64_t run;
	int failed;
};

static unsigned workers(void)
{
	const char *said = getenv("WORKERS");
	long n = said ? atol(said) : sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > (said ? WORKERS_MAX : 2) ? (said ? WORKERS_MAX : 2) : (unsigned)n;
}

/* Every n-th of the seeds, until it is time and `must` have been run. */
static void seeds_share(struct share *sh, uint64_t first, uint64_t count, uint64_t must, unsigned step, bool stop, double until)
{
	char verdict[200];

	for (uint64_t i = 0; i < count && (!until || i < must || seconds() < until); i += step) {
		sh->run++;
		if (seed_run(first + i, &sh->counts, NULL, verdict))
			continue;
		printf("# seed %llu %s\n", (unsigned long long)(first + i), verdict);
		fflush(stdout);
		sh->failed++;
		if (stop)
			return;
	}
}

static void counts_add(struct sim_counts *to, const struct sim_counts *from)
{
	uint64_t *t = (uint64_t *)to;
	const uint64_t *f = (const uint64_t *)from;

	for (size_t i = 0; i < sizeof *to / sizeof *t; i++)
		t[i] += f[i];
}

static struct share seeds(uint64_t first, uint64_t count, uint64_t must, bool stop, double until)
{
	unsigned n = stop ? 1 : workers();
	struct share *v = mmap(NULL, n * sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = { 0 };
	pid_t pid[WORKERS_MAX];

	if (v == MAP_FAILED)
		abort();
	fflush(stdout);
	for (unsigned i = 0; i < n; i++) {
		pid[i] = fork();
		if (pid[i] < 0)
			abort();
		if (pid[i])
			continue;
		seeds_share(&v[i], first + i, count > i ? count - i : 0, must, n, stop, until);
		_exit(0);
	}
	for (unsigned i = 0; i < n; i++) {
		int status;

		if (waitpid(pid[i], &status, 0) < 0 || status)
			v[i].failed++;           /* it has said at which seed */
		counts_add(&sum.counts, &v[i].counts);
		sum.run += v[i].run;
		sum.failed += v[i].failed;
	}
	munmap(v, n * sizeof *v);
	return sum;
}

static void rate_say(const struct share *sh, double span)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	double busy = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
	double runs = (double)sh->run;

	printf("# %llu seeds of a simulated minute, %d failed, in %.1f s by %u: %.0f a minute, %.0f a minute of CPU\n",
	       (unsigned long long)sh->run, sh->failed, span, workers(), runs * 60 / span, runs * 60 / busy);
	printf("# %.1f simulated hours, %.1f a minute\n", runs / 60, runs / span);
}

/* --- A seed repeats itself --- */

struct sum {
	uint64_t hash, lines;
};

static ssize_t sum_write(void *cookie, const char *bytes, size_t n)
{
	struct sum *sum = cookie;

	for (size_t i = 0; i < n; i++) {
		sum->hash = (sum->hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
		sum->lines += bytes[i] == '\n';
	}
	return (ssize_t)n;
}

/* Of all that is written of a run, a line for each event. */
static struct sum trace_sum(uint64_t seed)
{
	struct sum sum = { 0xcbf29ce484222325, 0 };
	struct sim_counts counts = { 0 };
	char verdict[200];
	FILE *f = fopencookie(&sum, "w", (cookie_io_functions_t){ .write = sum_write });

	if (!f)
		abort();
	seed_run(seed, &counts, f, verdict);
	fclose(f);
	return sum;
}

static bool repeats(void)
{
	bool same = true;
	uint64_t before = 0;

	/* One of each kind of run. */
	for (uint64_t seed = 1; seed <= 8; seed = seed == 1 ? 2 : 2 * seed) {
		struct sum one = trace_sum(seed), other = trace_sum(seed);

		same &= one.hash == other.hash && one.lines == other.lines && one.lines > 1000 && one.hash != before;
		before = one.hash;
	}
	return same;
}

static int check(void)
{
	double start = seconds();
	struct share sh = seeds(1, CHECK_SEEDS, CHECK_MUST, false, start + CHECK_SECONDS);
	bool all = counts_all(&sh.counts), same = repeats();

	printf("1..3\n%s 1 - many nodes, one seed each: no judge says no, and everybody is served once faults stop\n",
	       sh.failed ? "not ok" : "ok");
	printf("%s 2 - every kind of operation and of fault has really happened\n", all ? "ok" : "not ok");
	printf("%s 3 - a seed repeats its run, line by line\n", same ? "ok" : "not ok");
	rate_say(&sh, seconds() - start);
	counts_say(&sh.counts);
	return sh.failed || !all || !same;
}

int main(int argc, char **argv)
{
	struct sim_counts counts = { 0 };
	char verdict[200];

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
	struct share sh = seeds(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), 0, stop, 0);
	rate_say(&sh, seconds() - start);
	if (!stop)
		counts_say(&sh.counts);
	return sh.failed != 0;
}
