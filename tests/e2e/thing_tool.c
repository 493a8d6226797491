/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Latches, conditions and ids for scripts: one call, or some, and what came of it as exit status (0, or the error's number).
 *
 *   latch-open NAME COUNT    latch-count NAME N TIMES    latch-wait NAME    latch-value NAME    latch-unlink NAME
 *   cond-wait NAME READY     says so in the file READY when it is about to wait, with the lock of that name held
 *   cond-signal NAME | cond-broadcast NAME
 *   ids NAME COUNT           one a line
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlock.h"

static dlock_latch_t *latch_of(const char *name, unsigned count)
{
	dlock_latch_t *c;
	int r = dlock_latch_open(&c, name, count, NULL);

	if (r)
		exit(r);
	return c;
}

static int latch_open(char **arg)
{
	latch_of(arg[0], (unsigned)atoi(arg[1]));
	return 0;
}

static int latch_count(char **arg)
{
	dlock_latch_t *c = latch_of(arg[0], 0);
	int r = 0;

	for (int i = atoi(arg[2]); i > 0 && r == 0; i--)
		r = dlock_latch_countdown(c, (unsigned)atoi(arg[1]));
	return r;
}

static int latch_wait(char **arg)
{
	return dlock_latch_wait(latch_of(arg[0], 0));
}

static int latch_value(char **arg)
{
	unsigned v;
	int r = dlock_latch_getvalue(latch_of(arg[0], 0), &v);

	if (r == 0)
		printf("%u\n", v);
	return r;
}

static int latch_unlink(char **arg)
{
	return dlock_latch_unlink(arg[0]);
}

static dlock_cond_t *cond_of(const char *name)
{
	dlock_cond_t *c;
	int r = dlock_cond_open(&c, name, NULL);

	if (r)
		exit(r);
	return c;
}

static int cond_wait(char **arg)
{
	dlock_cond_t *c = cond_of(arg[0]);
	dlock_t *l;
	int r = dlock_open(&l, arg[0], NULL);

	if (r == 0)
		r = dlock_wait(l);
	if (r)
		return r;
	close(open(arg[1], O_CREAT | O_WRONLY, 0666));
	r = dlock_cond_wait(c, l);
	return r ? r : dlock_post(l);
}

/* Under the lock: so whoever said that he is about to wait, waits. */
static int signal_one(char **arg, bool all)
{
	dlock_cond_t *c = cond_of(arg[0]);
	dlock_t *l;
	int r = dlock_open(&l, arg[0], NULL);

	if (r == 0)
		r = dlock_wait(l);
	if (r == 0)
		r = all ? dlock_cond_broadcast(c) : dlock_cond_signal(c);
	return r ? r : dlock_post(l);
}

static int cond_signal(char **arg)
{
	return signal_one(arg, false);
}

static int cond_broadcast(char **arg)
{
	return signal_one(arg, true);
}

static int ids(char **arg)
{
	dlock_id_t *g;
	uint64_t id;
	int r = dlock_id_open(&g, arg[0], NULL);

	for (long n = atol(arg[1]); n > 0 && r == 0; n--) {
		r = dlock_id_next(g, &id);
		if (r == 0)
			printf("%llu %llu\n", (unsigned long long)id, (unsigned long long)(id >> 12 & 1023));
		if (r == 0 && n % 64 == 1) {
			fflush(stdout);
			usleep(1000);
		}
	}
	fflush(stdout);
	return r;
}

static const struct {
	const char *name;
	int args;
	int (*fn)(char **arg);
} tools[] = {
	{ "latch-open", 2, latch_open }, { "latch-count", 3, latch_count }, { "latch-wait", 1, latch_wait },
	{ "latch-value", 1, latch_value }, { "latch-unlink", 1, latch_unlink }, { "cond-wait", 2, cond_wait },
	{ "cond-signal", 1, cond_signal }, { "cond-broadcast", 1, cond_broadcast }, { "ids", 2, ids },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
		if (argc == tools[i].args + 2 && !strcmp(argv[1], tools[i].name))
			return tools[i].fn(argv + 2);
	errx(64, "no such tool");
}
