/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an open name costs: 100,000 of 16 bytes, opened by one client and taken once each, so that the
 * core knows them too. Shared memory is what the files of the segment and the ledger are allocated
 * (st_blocks); the daemon's own is the growth of its anonymous resident memory (RssAnon), which does
 * not count those files again. What the client uses is said beside it. And how fast names are
 * opened and closed, one by one.
 */
#include <err.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

#define NAMES 100000
#define PAIRS 5000

static struct bench_daemon d;

static double blocks_below(const char *which)
{
	char path[sizeof d.dir + 32];
	char *roots[] = { path, NULL };
	double bytes = 0;
	FTSENT *e;
	FTS *fts;

	snprintf(path, sizeof path, "%s/run/%s", d.dir, which);
	fts = fts_open(roots, FTS_PHYSICAL, NULL);
	if (!fts)
		err(2, "%s", path);
	while ((e = fts_read(fts)))
		if (e->fts_info == FTS_F)
			bytes += (double)e->fts_statp->st_blocks * 512;
	fts_close(fts);
	return bytes;
}

static double rss_anon(pid_t pid)
{
	char path[64], line[256];
	double kib = -1;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		err(2, "%s", path);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "RssAnon:", 8))
			kib = atof(line + 8);
	fclose(f);
	if (kib < 0)
		errx(2, "%s has no RssAnon", path);
	return kib * 1024;
}

struct use {
	double segment, ledger, daemon, client;
};

static struct use use_now(pid_t client)
{
	return (struct use){ blocks_below("shm"), blocks_below("ledger"), rss_anon(d.pid), rss_anon(client) };
}

static struct use use_each(struct use a, struct use b)
{
	return (struct use){ (b.segment - a.segment) / NAMES, (b.ledger - a.ledger) / NAMES,
			     (b.daemon - a.daemon) / NAMES, (b.client - a.client) / NAMES };
}

static void report(const char *key, const char *what, struct use u, double limit)
{
	struct row row = { .key = key, .what = what, .unit = "bytes", .limit = limit };
	double sum = u.segment + u.ledger + u.daemon;

	snprintf(row.note, sizeof row.note, "segment %.0f, ledger %.0f, daemon %.0f; besides, in the client %.0f",
		 u.segment, u.ledger, u.daemon, u.client);
	bench_row(&row, &sum, NULL, 1);
}

static void memory(void *arg)
{
	dlock_t **l = calloc(NAMES, sizeof *l);
	struct use before, opened, taken;

	(void)arg;
	if (!l)
		err(2, "calloc");
	memset(l, 1, NAMES * sizeof *l);
	bench_ok(dlock_close(bench_open("warm")), "dlock_close");
	before = use_now(getpid());
	for (unsigned i = 0; i < NAMES; i++) {
		char name[17];

		snprintf(name, sizeof name, "name-%011u", i);
		l[i] = bench_open(name);
	}
	opened = use_now(getpid());
	for (unsigned i = 0; i < NAMES; i++) {
		bench_ok(dlock_wait(l[i]), "dlock_wait");
		bench_ok(dlock_post(l[i]), "dlock_post");
	}
	taken = use_now(getpid());
	report("memory-open", "100,000 names of 16 bytes, open, each", use_each(before, opened), 0);
	report("memory", "100,000 names of 16 bytes, open and taken once, each", use_each(before, taken), 400);
	for (unsigned i = 0; i < NAMES; i++)
		bench_ok(dlock_close(l[i]), "dlock_close");
	bench_end();
}

static double open_close(unsigned long *next)
{
	uint64_t begin = bench_ns();

	for (unsigned i = 0; i < PAIRS; i++) {
		char name[32];

		snprintf(name, sizeof name, "pair-%lu", (*next)++);
		bench_ok(dlock_close(bench_open(name)), "dlock_close");
	}
	return PAIRS * 1e6 / (double)(bench_ns() - begin);
}

static void rate(void *arg)
{
	static const struct row row = { .key = "open-close", .what = "open and close of a name, one client",
					.unit = "k pairs/s", .better = MORE_IS_BETTER };
	double v[ROUNDS];
	unsigned long next = 0;

	(void)arg;
	open_close(&next);
	for (unsigned i = 0; i < ROUNDS; i++)
		v[i] = open_close(&next);
	bench_row(&row, v, NULL, ROUNDS);
	bench_end();
}

static void measure(const char *key, void (*fn)(void *))
{
	if (!bench_wanted(key))
		return;
	bench_daemon_start(&d, 0, NULL);
	bench_join(bench_fork(1, fn, NULL));
	bench_daemon_stop(&d);
}

int main(void)
{
	bench_begin("memory");
	measure("memory", memory);
	measure("open-close", rate);
	return 0;
}
