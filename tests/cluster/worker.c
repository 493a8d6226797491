/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * worker WHO HOST HISTORY RESOURCE NAMES SEED [whole]
 *
 * A client that takes what can be held at $DLOCK_RUN_DIR's daemon (sorts.h), so many names of each sort (l0, l1, … are locks), in
 * every way, checks, upgrades and downgrades, passes values on, writes to the resource where the hold is exclusive, gives back, uses in
 * between what is not held (deeds.h), and writes a history of it all. SIGTERM ends it once it holds nothing. With "whole" it takes
 * each once, all of it, and gives it back, and then what the free semaphore has left: nobody else has any, and nothing is lost.
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

#include "client.h"
#include "deeds.h"
#include "history.h"
#include "sorts.h"

#define NAMES_MAX 16                     /* of each sort */

struct thing {
	const struct sort *sort;
	void *handle;
	unsigned number;                 /* at the resource */
	char name[16];
};

static struct {
	unsigned things;
	int highest, taken;              /* the resource's two files */
	struct thing *thing;
	bool robust, brief;
	const char *who;
	unsigned values;                 /* set so far */
} me;

static volatile sig_atomic_t ended;

static void on_term(int signo)
{
	(void)signo;
	ended = 1;
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

static int resource_write(const struct thing *t, uint64_t token)
{
	uint64_t highest = 0;
	off_t at = (off_t)(t->number * sizeof highest);
	int r = ESTALE;

	flock(me.highest, LOCK_EX);
	if (pread(me.highest, &highest, sizeof highest, at) < 0)
		exit(1);
	if (token >= highest) {
		if (pwrite(me.highest, &token, sizeof token, at) != sizeof token ||
		    dprintf(me.taken, "%s %llu\n", t->name, (unsigned long long)token) < 0)
			exit(1);
		r = 0;
	}
	flock(me.highest, LOCK_UN);
	return r;
}

/* --- A hold --- */

static unsigned weight_choose(const struct thing *t)
{
	if (t->sort->limit)
		return 1 + below(t->sort->limit);
	return t->sort->shared && below(2);
}

static int take_by(unsigned way, const struct thing *t, unsigned weight)
{
	struct timespec until = in_ms(1 + below(3000));

	switch (way) {
	case 0:
		return t->sort->wait(t->handle, weight);
	case 1:
		return t->sort->try(t->handle, weight);
	}
	return t->sort->timed(t->handle, weight, &until);
}

static void call_to_take(const char *op, const struct thing *t, unsigned weight)
{
	if (weight && t->sort->limit)
		call(op, t->name, "\"weight\":%u,\"limit\":%u", weight, t->sort->limit);
	else if (weight)
		call(op, t->name, "\"weight\":%u", weight);
	else
		call(op, t->name, NULL);
}

static bool taken(const char *op, const struct thing *t, int r, uint64_t *ret_token)
{
	uint64_t token = 0;

	if (r == 0 || r == EOWNERDEAD)
		t->sort->token(t->handle, &token);
	back(op, t->name, r, "\"token\":%llu", (unsigned long long)token);
	if (r && r != EOWNERDEAD)
		return false;
	if (r == EOWNERDEAD)
		dlock_consistent(t->handle);     /* only locks say so */
	*ret_token = token;
	return true;
}

static bool hold_take(const struct thing *t, unsigned weight, uint64_t *ret_token)
{
	static const char *const ops[] = { "wait", "trywait", "timedwait" };
	unsigned way = below(10) < 6 ? 0 : 1 + below(2);

	call_to_take(ops[way], t, weight);
	return taken(ops[way], t, take_by(way, t, weight), ret_token);
}

/* From shared to exclusive, or back. Returns what it is now. */
static unsigned hold_turn(const struct thing *t, unsigned weight, uint64_t *token)
{
	const char *op = weight ? below(2) ? "upgrade" : "tryupgrade" : "downgrade";

	call(op, t->name, NULL);
	if (!weight)
		return taken(op, t, dlock_downgrade(t->handle), token) ? 1 : 0;
	return taken(op, t, strcmp(op, "upgrade") ? dlock_tryupgrade(t->handle) : dlock_upgrade(t->handle), token) ? 0 : 1;
}

/* What the last one left, and what the next one is to find: the values of a run are numbers that are never used twice. */
static void hold_value(const struct thing *t)
{
	char value[48];
	size_t len = sizeof value - 1;
	int r;

	if (below(2)) {
		call("get", t->name, NULL);
		r = dlock_value_get(t->handle, value, &len);
		value[r ? 0 : len] = 0;
		back("get", t->name, r, "\"value\":\"%s\"", value);
	}
	if (below(2)) {
		snprintf(value, sizeof value, "%s.%u", me.who, ++me.values);
		call("set", t->name, "\"value\":\"%s\"", value);
		back("set", t->name, dlock_value_set(t->handle, value, strlen(value)), NULL);
	}
}

/* Seldom, and for longer than a TTL may be: whatever ends a session meanwhile ends this hold, and nothing else may. */
#define LONG_EVERY 1000
#define LONG_LOOKS 90
#define LONG_NAP_US 100000

static void hold_long(const struct thing *t)
{
	int r = 0;

	for (unsigned n = below(LONG_LOOKS); n && !r; n--) {
		nap_us(LONG_NAP_US);
		call("check", t->name, NULL);
		r = t->sort->check(t->handle);
		back("check", t->name, r, NULL);
	}
}

static unsigned hold_use(const struct thing *t, unsigned weight, uint64_t token)
{
	if (!below(LONG_EVERY))
		hold_long(t);
	for (unsigned n = below(5); n; n--) {
		call("check", t->name, NULL);
		back("check", t->name, t->sort->check(t->handle), NULL);
		if (below(2))
			nap_us(below(below(20) ? 3000 : 300000));
		if (t->sort->lock && !weight && !below(3))
			hold_value(t);
		if (t->sort->lock && !below(4))
			weight = hold_turn(t, weight, &token);
		if (weight)
			continue;
		call("write", t->name, NULL);
		back("write", t->name, resource_write(t, token), NULL);
	}
	return weight;
}

static void hold_give(const struct thing *t, unsigned weight)
{
	call("post", t->name, NULL);
	back("post", t->name, t->sort->give(t->handle, weight), NULL);
}

static void leader_look(const struct thing *t)
{
	uint64_t term = 0;
	int r;

	call("leader", t->name, NULL);
	r = t->sort->leader(t->handle, &term);
	back("leader", t->name, r, "\"token\":%llu", (unsigned long long)term);
}

static void thing_open(struct thing *t)
{
	int r = t->sort->open(&t->handle, t->name, client.attr);

	if (r) {
		fprintf(stderr, "%s: %s\n", t->name, strerror(r));
		exit(1);
	}
}

/* Some open what they want whenever they want it, and close it again: then a lease is got before they ask for it. */
static void thing_reach(struct thing *t)
{
	if (!t->handle)
		thing_open(t);
}

static void thing_leave(struct thing *t)
{
	if (!me.brief || !t->sort->close)
		return;
	if (t->sort->close(t->handle))
		exit(1);
	t->handle = NULL;
}

static void things_open(unsigned names)
{
	me.thing = calloc(SORTS * names, sizeof *me.thing);
	if (!me.thing || dlock_attr_create(&client.attr))
		exit(1);
	dlock_attr_set_robust(client.attr, me.robust);
	dlock_attr_set_wait_daemon(client.attr, true);
	for (unsigned k = 0; k < SORTS; k++)
		for (unsigned i = 0; i < names; i++) {
			struct thing *t = &me.thing[me.things];

			t->sort = &sorts[k];
			t->number = me.things++;
			snprintf(t->name, sizeof t->name, "%s%u", t->sort->prefix, i);
			if (!me.brief || !t->sort->close)
				thing_open(t);
		}
}

static int all_is_there(void)
{
	struct timespec until = in_ms(60000);
	int r = 0;

	for (unsigned i = 0; i < me.things && r == 0; i++) {
		const struct thing *t = &me.thing[i];

		thing_reach(&me.thing[i]);
		r = t->sort->timed(t->handle, t->sort->limit, &until);
		if (r == 0 || r == EOWNERDEAD)
			r = t->sort->give(t->handle, t->sort->limit);
		if (r)
			fprintf(stderr, "all of %s: %s\n", t->name, strerror(r));
	}
	deed_drain();
	return r != 0;
}

int main(int argc, char **argv)
{
	struct sigaction term = { .sa_handler = on_term };
	unsigned names;

	if (argc < 7) {
		fprintf(stderr, "usage: worker WHO HOST HISTORY RESOURCE NAMES SEED [whole]\n");
		return 64;
	}
	me.who = argv[1];
	history_open(argv[3], me.who);
	client.host = (unsigned)atoi(argv[2]);
	names = (unsigned)atoi(argv[5]);
	client.random = strtoull(argv[6], NULL, 0);
	me.robust = below(2);
	me.brief = below(3) == 0;
	if (!names || names > NAMES_MAX)
		return 64;
	resource_open(argv[4]);
	things_open(names);
	if (argc > 7)
		return all_is_there();
	sigaction(SIGTERM, &term, NULL);
	while (!ended) {
		struct thing *t = &me.thing[below(me.things)];
		unsigned weight = weight_choose(t);
		uint64_t token;

		if (!below(3))
			deed_do();
		thing_reach(t);
		for (unsigned n = t->sort->leader ? 1 + below(3) : 0; n; n--)
			leader_look(t);
		if (hold_take(t, weight, &token)) {
			weight = hold_use(t, weight, token);
			hold_give(t, weight);
		}
		thing_leave(t);
		nap_us(below(below(30) ? 2000 : 200000));
	}
	return 0;
}
