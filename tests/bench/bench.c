/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bench.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_NS   UINT64_C(10000000000)
#define COUNT_FEW  2000
#define COUNT_MANY 12000
#define STRETCHES  100                   /* of a round, of either side */

static FILE *rows;
static char out_dir[4096];
static struct bench_daemon *running;
static pid_t owner;

/* --- Rows --- */

void bench_begin(const char *program)
{
	const char *o = getenv("O");
	char path[sizeof out_dir + 64];

	if (!o)
		errx(2, "O, the output folder, is not set: run me by make bench");
	snprintf(out_dir, sizeof out_dir, "%s/bench", o);
	if (mkdir(out_dir, 0777) < 0 && errno != EEXIST)
		err(2, "%s", out_dir);
	snprintf(path, sizeof path, "%s/%s.rows", out_dir, program);
	rows = fopen(path, "we");
	if (!rows)
		err(2, "%s", path);
	setlinebuf(stdout);
}

void bench_end(void)
{
	if (fclose(rows) != 0)
		err(2, "rows");
}

bool bench_wanted(const char *key)
{
	const char *b = getenv("B");

	return !b || !*b || strstr(key, b) || fnmatch(b, key, 0) == 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_percentile(double *v, size_t n, double p)
{
	qsort(v, n, sizeof *v, by_value);
	return v[(size_t)(p * (double)(n - 1) + 0.5)];
}

double bench_median(const double *v, size_t n)
{
	double sorted[n];

	memcpy(sorted, v, sizeof sorted);
	qsort(sorted, n, sizeof *sorted, by_value);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void keep_rounds(const struct row *row, const double *dlock, const double *rival, size_t n)
{
	char path[sizeof out_dir + 64];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s.tsv", out_dir, row->key);
	f = fopen(path, "we");
	if (!f)
		err(2, "%s", path);
	fprintf(f, "round\tdlock (%s)\trival (%s)\n", row->unit, row->unit);
	for (size_t i = 0; i < n; i++) {
		fprintf(f, "%zu\t%.4g", i + 1, dlock[i]);
		if (rival)
			fprintf(f, "\t%.4g", rival[i]);
		fputc('\n', f);
	}
	if (fclose(f) != 0)
		err(2, "%s", path);
}

static const char *verdict(const struct row *row, double value, double ratio)
{
	bool good = true;

	if (row->goal == 0 && row->limit == 0)
		return "-";
	if (row->goal != 0)
		good = row->better == LESS_IS_BETTER ? ratio <= row->goal : ratio >= row->goal;
	if (row->limit != 0)
		good = good && value <= row->limit;
	return good ? "yes" : "no";
}

static double worst(const struct row *row, const double *v, size_t n)
{
	double sorted[n];

	memcpy(sorted, v, sizeof sorted);
	return bench_percentile(sorted, n, row->better == LESS_IS_BETTER ? 1 : 0);
}

void bench_row(const struct row *row, const double *dlock, const double *rival, size_t n)
{
	double value = row->worst ? worst(row, dlock, n) : bench_median(dlock, n), other = rival ? bench_median(rival, n) : 0, ratio = 0;

	if (rival) {
		double each[n];

		for (size_t i = 0; i < n; i++)
			each[i] = dlock[i] / rival[i];
		ratio = row->unpaired ? value / other : bench_median(each, n);
	}
	keep_rounds(row, dlock, rival, n);
	fprintf(rows, "%s\t%s\t%s\t%s\t%.6g\t%.6g\t%.4g\t%.4g\t%.6g\t%s\t%s\t%.1f\t%.1f\t%s\n", row->key, row->what,
		row->rival ? row->rival : "-", row->unit, value, other, ratio, row->goal, row->limit,
		row->better == LESS_IS_BETTER ? "less" : "more", verdict(row, value, ratio), row->instructions[0],
		row->instructions[1], row->note);
	printf("%-18s %12.5g", row->key, value);
	if (rival)
		printf(" : %-12.5g", other);
	printf(" %s", row->unit);
	if (rival)
		printf("  = %.2fx", ratio);
	if (row->instructions[0] > 0)
		printf("  (%.1f : %.1f instructions)", row->instructions[0], row->instructions[1]);
	if (strcmp(verdict(row, value, ratio), "-"))
		printf("  reached: %s", verdict(row, value, ratio));
	printf("%s%s\n", row->note[0] ? "  # " : "", row->note);
}

void bench_rounds(const struct row *row, unsigned rounds, double (*dlock)(void *arg),
		  double (*rival)(void *arg), void *arg)
{
	double a[rounds], b[rounds];

	dlock(arg);
	rival(arg);
	for (unsigned i = 0; i < rounds; i++) {
		a[i] = dlock(arg);
		b[i] = rival(arg);
	}
	bench_row(row, a, b, rounds);
}

static double stretch(bench_pairs pairs, void *arg, long n, uint64_t pause_ns)
{
	uint64_t begin = bench_ns();

	while (pause_ns && bench_ns() - begin < pause_ns)
		bench_relax();
	begin = bench_ns();
	pairs(arg, n);
	return (double)(bench_ns() - begin) / (double)n;
}

void bench_alternate(const struct row *row, bench_pairs dlock, bench_pairs rival, void *arg, long n, uint64_t pause_ns)
{
	double a[ROUNDS], b[ROUNDS], d[STRETCHES], m[STRETCHES];

	for (int round = -1; round < ROUNDS; round++) {          /* the first warms up */
		for (unsigned i = 0; i < STRETCHES; i++) {
			d[i] = stretch(dlock, arg, n, pause_ns);
			m[i] = stretch(rival, arg, n, pause_ns);
		}
		a[round < 0 ? 0 : round] = bench_median(d, STRETCHES);
		b[round < 0 ? 0 : round] = bench_median(m, STRETCHES);
	}
	bench_row(row, a, b, ROUNDS);
}

/* --- The machine --- */

/* As it was at the start, before anything was pinned. */
static const cpu_set_t *allowed(void)
{
	static cpu_set_t set;

	if (!CPU_COUNT(&set) && sched_getaffinity(0, sizeof set, &set) < 0)
		err(2, "sched_getaffinity");
	return &set;
}

unsigned bench_processors(void)
{
	return (unsigned)CPU_COUNT(allowed());
}

void bench_pin(unsigned n)
{
	const cpu_set_t *all = allowed();
	cpu_set_t one;

	CPU_ZERO(&one);
	n %= bench_processors();
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, all) || n-- > 0)
			continue;
		CPU_SET(i, &one);
		break;
	}
	if (sched_setaffinity(0, sizeof one, &one) < 0)
		err(2, "sched_setaffinity");
}

uint64_t bench_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_ns_per_tick(void)
{
	static double known;
	uint64_t ns, ticks;

	if (known > 0)
		return known;
	ns = bench_ns();
	ticks = bench_ticks();
	while (bench_ns() - ns < 50000000)
		bench_relax();
	known = (double)(bench_ns() - ns) / (double)(bench_ticks() - ticks);
	return known;
}

/* --- Processes --- */

void *bench_shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(2, "mmap");
	return p;
}

pid_t bench_fork(unsigned processor, void (*fn)(void *arg), void *arg)
{
	pid_t parent = getpid(), pid;

	allowed();
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		err(2, "fork");
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	bench_pin(processor);
	fn(arg);
	_exit(0);
}

void bench_join(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) < 0 || status != 0)
		errx(2, "process %d ended badly (status %#x)", (int)pid, status);
}

void bench_await(const uint32_t *word)
{
	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		usleep(50);
}

/* --- Crowds --- */

static struct crowd {
	uint32_t over __attribute__((aligned(64)));
	uint32_t ready __attribute__((aligned(64)));
	uint32_t go;
	uint64_t n[CROWD_MAX];
} *crowd;
uint32_t *bench_crowd_ended;

struct member {
	uint64_t (*work)(unsigned i, void *arg);
	void *arg;
	unsigned i;
};

static void member_work(void *arg)
{
	const struct member *m = arg;

	crowd->n[m->i] = m->work(m->i, m->arg);
}

void bench_crowd_go(void)
{
	__atomic_fetch_add(&crowd->ready, 1, __ATOMIC_ACQ_REL);
	bench_await(&crowd->go);
}

uint64_t bench_crowd(unsigned processes, uint64_t ns, uint64_t (*work)(unsigned i, void *arg), void *arg, uint64_t *ret_ns)
{
	pid_t pid[CROWD_MAX];
	uint64_t begin, n = 0;

	if (!crowd) {
		crowd = bench_shared(sizeof *crowd);
		bench_crowd_ended = &crowd->over;
	}
	memset(crowd, 0, sizeof *crowd);
	for (unsigned i = 0; i < processes; i++)
		pid[i] = bench_fork(i, member_work, &(struct member){ work, arg, i });
	while (__atomic_load_n(&crowd->ready, __ATOMIC_ACQUIRE) < processes)
		usleep(100);
	begin = bench_ns();
	__atomic_store_n(&crowd->go, 1, __ATOMIC_RELEASE);
	usleep((useconds_t)(ns / 1000));
	__atomic_store_n(&crowd->over, 1, __ATOMIC_RELEASE);
	*ret_ns = bench_ns() - begin;
	for (unsigned i = 0; i < processes; i++)
		bench_join(pid[i]);
	for (unsigned i = 0; i < processes; i++)
		n += crowd->n[i];
	return n;
}

static bool daemon_answers(const char *dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool there;

	snprintf(a.sun_path, sizeof a.sun_path, "%s/run/dlockd.sock", dir);
	there = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
	close(fd);
	return there;
}

struct daemon_start {
	const char *dir, *option;
};

static void daemon_exec(void *arg)
{
	const struct daemon_start *s = arg;
	const char *path = getenv("DLOCKD");

	if (!path)
		errx(2, "DLOCKD is not set: run me by make bench");
	execl(path, path, "--quiet", "--dir", s->dir, s->option, (char *)NULL);
	err(2, "%s", path);
}

/* At exit, also for want of success; children inherit this, and are not concerned. */
static void daemon_end(void)
{
	if (running && getpid() == owner)
		bench_daemon_stop(running);
}

void bench_daemon_start(struct bench_daemon *d, unsigned processor, const char *option)
{
	uint64_t until = bench_ns() + READY_NS;
	struct daemon_start s = { d->dir, option };
	char run[sizeof d->dir + 8];

	strcpy(d->dir, "/dev/shm/dlock-bench-XXXXXX");
	if (!mkdtemp(d->dir))
		err(2, "%s", d->dir);
	running = d;
	if (!owner)
		atexit(daemon_end);
	owner = getpid();
	d->pid = bench_fork(processor, daemon_exec, &s);
	while (!daemon_answers(d->dir)) {
		if (waitpid(d->pid, NULL, WNOHANG) != 0 || bench_ns() > until)
			errx(2, "the daemon does not answer");
		usleep(1000);
	}
	snprintf(run, sizeof run, "%s/run", d->dir);
	setenv("DLOCK_RUN_DIR", run, 1);
}

void bench_daemon_stop(struct bench_daemon *d)
{
	pid_t pid;

	running = NULL;
	kill(d->pid, SIGTERM);
	waitpid(d->pid, NULL, 0);
	pid = fork();
	if (pid == 0) {
		execlp("rm", "rm", "-rf", d->dir, (char *)NULL);
		_exit(1);
	}
	if (pid > 0)
		bench_join(pid);
}

/* --- What both sides do --- */

void bench_ok(int error, const char *what)
{
	if (error)
		errx(2, "%s: %s", what, strerror(error));
}

dlock_t *bench_open(const char *name)
{
	dlock_t *l;

	bench_ok(dlock_open(&l, name, NULL), "dlock_open");
	return l;
}

/* --- Instructions --- */

static long long count_once(const char *which, int n)
{
	char self[4096], command[sizeof self + 256], line[512];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	long long found = 0;
	FILE *f;

	if (len < 0)
		err(2, "/proc/self/exe");
	self[len] = 0;
	snprintf(command, sizeof command,
		 "valgrind --tool=callgrind --callgrind-out-file=/dev/null '%s' --count %s %d 2>&1", self, which, n);
	f = popen(command, "re");
	if (!f)
		err(2, "popen");
	while (fgets(line, sizeof line, f)) {
		const char *at = strstr(line, "Collected : ");

		if (at)
			found = atoll(at + 12);
	}
	if (pclose(f) != 0)
		return 0;
	return found;
}

static double count_slope(const char *which)
{
	long long few = count_once(which, COUNT_FEW), many = few ? count_once(which, COUNT_MANY) : 0;

	return many ? (double)(many - few) / (COUNT_MANY - COUNT_FEW) : 0;
}

double bench_instructions(const char *which)
{
	static double loop = -1;
	double all;

	if (loop < 0)
		loop = count_slope("nothing");
	all = count_slope(which);
	return all > 0 ? all - loop : 0;
}
