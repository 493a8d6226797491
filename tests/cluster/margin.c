/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What "dlock run" runs is dead before anybody else is granted the lock, permit or election that it ran under: how long before.
 *
 * On host 1 "dlock run" keeps a command that notes the time as often as it can, and a descendant of it in a session of its own
 * that does the same. The host is cut off: from the store, from everybody, or its daemon is frozen. On host 2 a program
 * waits for it, and notes when it has it. The margin is from the last note on host 1 to that. None may
 * be negative, but where the canary has seen that the killer had no processor. TERM is ignored by the descendant: it is KILL that ends it.
 *
 * Where the daemon is frozen nobody can kill in time but the library in "dlock run" itself, by the published deadline.
 *
 *     margin [ROUNDS]
 */
#include <dlock.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "canary.h"
#include "town.h"

#define TTL_MS 3000
#define ROUNDS 6
#define TRIES 6
#define ROUNDS_MAX 1000
#define BUCKET_MS 100
#define STILL_MS (TTL_MS / 40)
#define LATE_MS (TTL_MS / 8)             /* without a processor: half of what the killer has between his beginning and the deadline */

static struct notes {
	uint64_t last[2];                /* of the command, of its descendant */
	uint64_t granted;                /* on host 2 */
	uint32_t let_go;
	volatile pid_t killer;           /* dlock run */
} *notes;

static double margin_ms[ROUNDS_MAX * TRIES];     /* of each round that was played, also of those that were played again */
static unsigned played;

static void notes_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || ftruncate(fd, sizeof *notes) < 0)
		exit(1);
	notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

/* "margin --note FILE": what dlock run runs. */
__attribute__((noreturn)) static void note_time(const char *path)
{
	notes_open(path);
	unsigned i = fork() == 0;

	if (i) {
		setsid();
		signal(SIGTERM, SIG_IGN);
	}
	for (;;) {
		__atomic_store_n(&notes->last[i], now_ns(), __ATOMIC_RELEASE);
		nap_ns(50000);           /* two cores have others to serve */
	}
}

static int lock_it(void)
{
	dlock_t *l;
	int r = dlock_open(&l, "margin", NULL);

	return r ? r : dlock_wait(l);
}

static int have_the_permit(void)
{
	dlock_sem_t *m;
	int r = dlock_sem_open(&m, "margin", 1, NULL);

	return r ? r : dlock_sem_wait(m);
}

static int lead(void)
{
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, "margin", NULL);

	return r ? r : dlock_elect_campaign(e, "other", 5);
}

/* How it is held on host 1; what host 2 does for it. */
static const struct mode {
	const char *option;
	int (*take)(void);
} modes[] = { { "-x", lock_it }, { "-s", lock_it }, { "--sem 1", have_the_permit }, { "--elect", lead } };

/* It gives it back by its end. */
__attribute__((noreturn)) static void other_host(const struct mode *m)
{
	end_with_parent();
	lab_enter(2);
	setenv("DLOCK_RUN_DIR", town_run_dir(2), 1);
	if (m->take())
		_exit(1);
	__atomic_store_n(&notes->granted, now_ns(), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&notes->let_go, __ATOMIC_ACQUIRE))
		nap_ns(1 * MS);
	_exit(0);
}

static bool soon(const uint64_t *what)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;

	while (!__atomic_load_n(what, __ATOMIC_ACQUIRE))
		if (now_ns() > until)
			return false;
		else
			nap_ns(1 * MS);
	return true;
}

static const char *cut_off(unsigned way)
{
	switch (way % 3) {
	case 0:
		for (unsigned i = 1; i <= TOWN_STORES; i++) {
			lab_block(1, town.hosts + i);
			lab_block(town.hosts + i, 1);
		}
		return "cut off from the store";
	case 1:
		lab_cable(1, false);
		return "cut off from everybody";
	default:
		daemon_kill(1, SIGSTOP);
		return "its daemon is frozen";
	}
}

/* One round; its margin in ms. */
static double round_of(unsigned n, const char *path)
{
	const struct mode *mode = &modes[n % (sizeof modes / sizeof *modes)];
	char run[64], command[400];
	int status;

	memset(notes, 0, sizeof *notes);
	snprintf(run, sizeof run, "DLOCK_RUN_DIR=%s", town_run_dir(1));
	snprintf(command, sizeof command, "exec %s run --grace 0.2 %s margin -- %s --note %s", built("libclient/cmd/dlock"),
		 mode->option, built("tests/cluster/margin"), path);
	char *argv[] = { "sh", "-c", command, NULL }, *environment[] = { run, NULL };
	pid_t holder = lab_spawn(1, town_log("run", 1), argv, environment);
	notes->killer = holder;
	if (!soon(&notes->last[0]) || !soon(&notes->last[1]))
		give_up("dlock run %s does not get it on host 1", mode->option);

	fflush(stdout);
	pid_t waiter = fork();
	if (waiter == 0)
		other_host(mode);
	nap_ns((100 + random_below(TTL_MS / 2)) * MS);
	const char *how = cut_off(n);
	if (!soon(&notes->granted))
		give_up("%s, %s: nobody else is granted it", mode->option, how);
	nap_ns(300 * MS);                /* if one of them were still alive it would go on to note */
	double margin = (double)(int64_t)(notes->granted - (notes->last[0] > notes->last[1] ? notes->last[0] : notes->last[1])) / 1e6;
	note("%s, %s: %.1f ms", mode->option, how, margin);

	town_mend();
	waitpid(holder, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 75)
		ok(false, "%s: dlock run ends with 75, and not with %d", how, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	__atomic_store_n(&notes->let_go, 1, __ATOMIC_RELEASE);
	waitpid(waiter, &status, 0);
	daemon_await(1);
	return margin;
}

/* For how many of the ms of the last TTL before the grant the killer, or a processor, stood still. */
static unsigned starved_ms(const char *canary)
{
	static bool still[TTL_MS];
	uint64_t from = notes->granted - TTL_MS * MS;
	unsigned long long begin, end;
	unsigned n = 0;
	char line[400];

	nap_ns(2 * STILL_MS * MS);               /* until it has said so */
	FILE *f = fopen(canary, "re");
	memset(still, 0, sizeof still);
	while (f && fgets(line, sizeof line, f)) {
		const char *at = strstr(line, "\"begin\":");

		if (!at || sscanf(line, "{\"t\":%llu", &end) != 1 || sscanf(at, "\"begin\":%llu", &begin) != 1)
			continue;
		for (uint64_t t = begin > from ? begin : from; t < end && t < notes->granted; t += MS)
			still[(t - from) / MS] = true;
	}
	if (f)
		fclose(f);
	for (unsigned i = 0; i < TTL_MS; i++)
		n += still[i];
	return n;
}

/*
 * Whoever is to kill needs a processor for it within the quarter of TTL that he begins before the deadline. Where he was late, and the canary
 * has seen that he had none, the round says nothing, and is played again; else it is false at once.
 */
static bool round_with_patience(unsigned n, const char *path, const char *canary)
{
	for (unsigned tries = 0; tries < TRIES; tries++) {
		margin_ms[played] = round_of(n, path);
		if (margin_ms[played++] > 0)
			return true;
		unsigned ms = starved_ms(canary);
		note("too late; in the TTL before the grant there was no processor for %u ms", ms);
		if (ms < LATE_MS)
			return false;
	}
	return false;
}

static void histogram(void)
{
	unsigned count[64] = { 0 };

	for (unsigned i = 0; i < played; i++) {
		double at = margin_ms[i] / BUCKET_MS;
		count[at < 0 ? 0 : at > 62 ? 63 : 1 + (unsigned)at]++;
	}
	note("from the last sign of life on the one host to the grant on the other:");
	for (unsigned b = 0; b < 64; b++)
		if (count[b] || b == 0)
			note("%s%5d ms %u", b ? "from " : "below", b ? (int)(b - 1) * BUCKET_MS : 0, count[b]);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS, late = 0;
	static struct canary_watched watched[] = { { "killer", "1", NULL }, { "daemon 1", "1", NULL } };
	char path[80], canary[80];

	if (argc == 3 && !strcmp(argv[1], "--note"))
		note_time(argv[2]);
	if (rounds < 1 || rounds > ROUNDS_MAX)
		return 64;
	harness_begin(60 + 15 * rounds);
	if (!town_possible())
		return harness_end();
	town_begin(2, TTL_MS);
	snprintf(path, sizeof path, "%s/notes", harness.dir);
	snprintf(canary, sizeof canary, "%s/history.canary", harness.dir);
	notes_open(path);
	watched[0].pid = &notes->killer;
	watched[1].pid = &town.daemon[1];
	canary_begin(canary, STILL_MS * MS, "1,2", watched, 2);
	for (unsigned i = 0; i < rounds; i++)
		late += !round_with_patience(i, path, canary);
	canary_end();
	histogram();
	ok(!late, "whatever cuts a host off, what dlock run ran there, however it held, is dead before another has it");
	return harness_end();
}
