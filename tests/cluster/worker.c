/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * worker WHO HOST HISTORY RESOURCE NAMES SEED
 *
 * A client that takes locks l0 … lN of $DLOCK_RUN_DIR's daemon in every way, checks, writes to the resource, gives
 * back, and writes a history of it all. SIGTERM ends it once it holds nothing.
 *
 * The resource is a file beside a log: under a lock of the file's own it remembers the highest token of each name, refuses
 * lower ones, and appends what it takes to the log, name and token.
 */
#include <dlock.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "history.h"

#define NAMES_MAX 16

static struct {
	unsigned host, names;
	uint64_t random;
	int highest, taken;              /* the resource's two files */
	dlock_t *lock[NAMES_MAX];
	bool robust;
} me;

static volatile sig_atomic_t ended;

static void on_term(int signo)
{
	(void)signo;
	ended = 1;
}

static uint32_t below(uint32_t n)
{
	uint64_t z = me.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z >> 32) % n);
}

static void nap_us(uint32_t us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static struct timespec in_ms(unsigned ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += ms / 1000 + (unsigned)(t.tv_nsec / 1000000000);
	t.tv_nsec %= 1000000000;
	return t;
}

static void call(const char *op, unsigned name)
{
	history_say("\"ev\":\"call\",\"host\":%u,\"op\":\"%s\",\"name\":\"l%u\"", me.host, op, name);
}

static void back(const char *op, unsigned name, int error)
{
	history_say("\"ev\":\"return\",\"host\":%u,\"op\":\"%s\",\"name\":\"l%u\",\"result\":\"%s\"", me.host, op, name,
		    history_result(error));
}

/* --- The resource --- */

static void resource_open(const char *path)
{
	char log[300];

	snprintf(log, sizeof log, "%s.log", path);
	me.highest = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	me.taken = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (me.highest < 0 || me.taken < 0) {
		perror(path);
		exit(1);
	}
}

static int resource_write(unsigned name, uint64_t token)
{
	uint64_t highest = 0;
	off_t at = (off_t)(name * sizeof highest);
	int r = ESTALE;

	flock(me.highest, LOCK_EX);
	if (pread(me.highest, &highest, sizeof highest, at) < 0)
		exit(1);
	if (token >= highest) {
		if (pwrite(me.highest, &token, sizeof token, at) != sizeof token ||
		    dprintf(me.taken, "l%u %llu\n", name, (unsigned long long)token) < 0)
			exit(1);
		r = 0;
	}
	flock(me.highest, LOCK_UN);
	return r;
}

/* --- A hold --- */

static bool hold_take(unsigned name, uint64_t *ret_token)
{
	static const char *const ops[] = { "wait", "trywait", "timedwait" };
	unsigned way = below(10) < 6 ? 0 : 1 + below(2);
	struct timespec until = in_ms(1 + below(3000));
	uint64_t token = 0;

	call(ops[way], name);
	int r = way == 0 ? dlock_wait(me.lock[name]) : way == 1 ? dlock_trywait(me.lock[name]) :
		dlock_clockwait(me.lock[name], CLOCK_MONOTONIC, &until);
	if (r && r != EOWNERDEAD) {
		back(ops[way], name, r);
		return false;
	}
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	dlock_token(me.lock[name], &token);
	history_say_at((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
		       "\"ev\":\"return\",\"host\":%u,\"op\":\"%s\",\"name\":\"l%u\",\"result\":\"%s\",\"token\":%llu", me.host, ops[way], name,
		       history_result(r), (unsigned long long)token);
	if (r == EOWNERDEAD)
		dlock_consistent(me.lock[name]);
	*ret_token = token;
	return true;
}

static void hold_use(unsigned name, uint64_t token)
{
	for (unsigned n = below(5); n; n--) {
		call("check", name);
		back("check", name, dlock_check(me.lock[name]));
		if (below(2))
			nap_us(below(below(20) ? 3000 : 300000));
		call("write", name);
		back("write", name, resource_write(name, token));
	}
}

static void hold_give(unsigned name)
{
	call("post", name);
	back("post", name, dlock_post(me.lock[name]));
}

static void locks_open(void)
{
	dlock_attr_t *attr;
	char name[16];

	if (dlock_attr_create(&attr))
		exit(1);
	dlock_attr_set_robust(attr, me.robust);
	dlock_attr_set_wait_daemon(attr, true);
	for (unsigned i = 0; i < me.names; i++) {
		snprintf(name, sizeof name, "l%u", i);
		int r = dlock_open(&me.lock[i], name, attr);
		if (r) {
			fprintf(stderr, "%s: %s\n", name, strerror(r));
			exit(1);
		}
	}
	dlock_attr_destroy(attr);
}

int main(int argc, char **argv)
{
	struct sigaction term = { .sa_handler = on_term };
	uint64_t token;

	if (argc != 7) {
		fprintf(stderr, "usage: worker WHO HOST HISTORY RESOURCE NAMES SEED\n");
		return 64;
	}
	history_open(argv[3], argv[1]);
	me.host = (unsigned)atoi(argv[2]);
	me.names = (unsigned)atoi(argv[5]);
	me.random = strtoull(argv[6], NULL, 0);
	me.robust = below(2);
	if (!me.names || me.names > NAMES_MAX)
		return 64;
	resource_open(argv[4]);
	locks_open();
	sigaction(SIGTERM, &term, NULL);
	while (!ended) {
		unsigned name = below(me.names);

		if (hold_take(name, &token)) {
			hold_use(name, token);
			hold_give(name);
		}
		nap_us(below(below(30) ? 2000 : 200000));
	}
	return 0;
}
