/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "deeds.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "history.h"

#define PARTIES  3                       /* of the one barrier, at which those meet who happen to come */
#define PERMITS  5                       /* what the free semaphore has at first */
#define COUNT    6                       /* of each latch */
#define LATCH_S  4                       /* so long everybody uses the same one */
#define DRAIN_MS 5000

/* --- The barrier --- */

static void meet(void)
{
	static dlock_barrier_t *barrier;
	struct timespec until = in_ms(1 + below(1500));
	int r;

	if (!barrier && dlock_barrier_open(&barrier, "b", PARTIES, client.attr))
		exit(1);
	call("barrier", "b", "\"parties\":%u", PARTIES);
	r = dlock_barrier_clockwait(barrier, CLOCK_MONOTONIC, &until);
	history_say("\"ev\":\"return\",\"host\":%u,\"op\":\"barrier\",\"name\":\"b\",\"result\":\"%s\"", client.host,
		    r == DLOCK_SERIAL ? "serial" : history_result(r));
}

/* --- Ids: a few in a row, and the worker's number --- */

static void number(void)
{
	static dlock_id_t *ids;
	uint64_t id = 0;
	unsigned worker = 0;
	int r;

	if (!ids) {
		call("id_open", "i", NULL);
		r = dlock_id_open(&ids, "i", client.attr);
		back("id_open", "i", r, NULL);
		if (r)
			return;
	}
	for (unsigned n = 1 + below(3); n; n--) {
		call("id", "i", NULL);
		r = dlock_id_next(ids, &id);
		back("id", "i", r, "\"id\":%llu", (unsigned long long)id);
	}
	call("worker", "i", NULL);
	r = dlock_id_worker(ids, &worker);
	back("worker", "i", r, "\"worker\":%u", worker);
}

/* --- The free semaphore --- */

static dlock_sem_t *pool;
static unsigned mine;                    /* taken, and not given back */

static bool pool_reach(void)
{
	static dlock_attr_t *attr;
	int r;

	if (pool)
		return true;
	if (!attr && (dlock_attr_create(&attr) || dlock_attr_set_free(attr, true) || dlock_attr_set_wait_daemon(attr, true)))
		exit(1);
	call("pool_open", "p", "\"permits\":%u", PERMITS);
	r = dlock_sem_open(&pool, "p", PERMITS, attr);
	back("pool_open", "p", r, NULL);
	return r == 0;
}

static int pool_take(unsigned n, unsigned ms)
{
	struct timespec until = in_ms(ms);
	const char *op = ms ? "pool_timed" : "pool_try";
	int r;

	call(op, "p", "\"weight\":%u", n);
	r = ms ? dlock_sem_clockwait_n(pool, n, CLOCK_MONOTONIC, &until) : dlock_sem_trywait_n(pool, n);
	back(op, "p", r, NULL);
	if (r == 0)
		mine += n;
	return r;
}

static void pool_give(unsigned n)
{
	int r;

	call("pool_post", "p", "\"weight\":%u", n);
	r = dlock_sem_post_n(pool, n);
	back("pool_post", "p", r, NULL);
	mine -= n < mine ? n : mine;
}

/* What those take with them who are killed somebody has to bring back: it is brought where nothing comes for long. */
static void pool_use(void)
{
	unsigned n = 1 + below(2);
	int r;

	if (!pool_reach())
		return;
	if (mine && below(2)) {
		pool_give(1 + below(mine));
		return;
	}
	r = pool_take(n, below(2) ? 0 : 1 + below(1000));
	if (r == ETIMEDOUT && !below(4))
		pool_give(1);
}

void deed_drain(void)
{
	bool dry = false;

	if (pool_reach())
		while (!dry)
			dry = pool_take(1, DRAIN_MS) != 0;
	call("pool_dry", "p", NULL);
	back("pool_dry", "p", 0, NULL);
}

/* --- Latches: another one every few seconds --- */

static void latch_use(void)
{
	static dlock_latch_t *latch;
	static char name[24];
	char now[24];
	struct timespec until;
	unsigned value = 0;
	int r;

	snprintf(now, sizeof now, "c%llu", (unsigned long long)in_ms(0).tv_sec / LATCH_S);
	if (strcmp(now, name)) {
		dlock_latch_close(latch);
		latch = NULL;
		memcpy(name, now, sizeof name);
	}
	if (!latch) {
		call("latch_open", name, NULL);
		r = dlock_latch_open(&latch, name, COUNT, client.attr);
		back("latch_open", name, r, NULL);
		if (r) {
			latch = NULL;
			return;
		}
	}
	switch (below(4)) {
	case 0:
		call("latch_wait", name, "\"count\":%u", COUNT);
		until = in_ms(1 + below(500));
		back("latch_wait", name, dlock_latch_clockwait(latch, CLOCK_MONOTONIC, &until), NULL);
		break;
	case 1:
		call("latch_value", name, "\"count\":%u", COUNT);
		r = dlock_latch_getvalue(latch, &value);
		back("latch_value", name, r, "\"value\":%u", value);
		break;
	default:
		call("latch_down", name, "\"weight\":1");
		back("latch_down", name, dlock_latch_countdown(latch, 1), NULL);
	}
}

/* --- A condition: some wait, and are woken by others, who hold the lock meanwhile --- */

static dlock_t *lock;
static dlock_cond_t *cond;

static void cond_await(void)
{
	struct timespec until = in_ms(1 + below(2000));
	int r;

	call("cond_wait", "q", "\"until\":%llu", (unsigned long long)until.tv_sec * 1000000000u + (unsigned long long)until.tv_nsec);
	r = dlock_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
	back("cond_wait", "q", r, NULL);
	if (r == EOWNERDEAD)
		dlock_consistent(lock);
}

/* since: who has waited before that has let go of the lock. */
static void cond_wake(void)
{
	struct timespec since = in_ms(0);
	bool all = below(2);
	const char *op = all ? "cond_broadcast" : "cond_signal";

	call(op, "q", "\"since\":%llu", (unsigned long long)since.tv_sec * 1000000000u + (unsigned long long)since.tv_nsec);
	back(op, "q", all ? dlock_cond_broadcast(cond) : dlock_cond_signal(cond), NULL);
}

static void cond_use(void)
{
	struct timespec until = in_ms(500);
	int r;

	if (!lock && (dlock_open(&lock, "q", client.attr) || dlock_cond_open(&cond, "q", client.attr)))
		exit(1);
	r = dlock_clockwait(lock, CLOCK_MONOTONIC, &until);
	if (r == EOWNERDEAD)
		dlock_consistent(lock);
	else if (r)
		return;
	if (below(3))
		cond_await();
	else
		cond_wake();
	dlock_post(lock);
}

void deed_do(void)
{
	static void (*const deeds[])(void) = { meet, number, pool_use, latch_use, cond_use };

	deeds[below(sizeof deeds / sizeof *deeds)]();
}
