/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * worker WHO HOST HISTORY RESOURCE NAMES SEED [whole]
 *
 * A client that takes what can be held at $DLOCK_RUN_DIR's daemon, so many names of each sort (l0, l1, … are locks), in every
 * way, checks, writes to the resource where the hold is exclusive, gives back, meets others at a barrier, and writes a history of it
 * all. SIGTERM ends it once it holds nothing. With "whole" it takes each once, all of it, and gives it back: nobody else has any, and nothing is lost.
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

#define NAMES_MAX 16                     /* of each sort */
#define PARTIES   3                      /* of the one barrier, at which those meet who happen to come */

/* weight 0: all of it, exclusively. */
struct sort {
	const char *prefix;              /* of its names */
	unsigned limit;                  /* of permits; 0: exclusive, or shared */
	bool shared;                     /* it may be taken with weight 1 */
	int (*open)(void **ret, const char *name, const dlock_attr_t *attr);
	int (*wait)(void *h, unsigned weight);
	int (*try)(void *h, unsigned weight);
	int (*timed)(void *h, unsigned weight, const struct timespec *abs);      /* CLOCK_MONOTONIC */
	int (*check)(void *h);
	int (*token)(void *h, uint64_t *ret);
	int (*give)(void *h, unsigned weight);
	int (*close)(void *h);           /* NULL: it is kept open */
	int (*leader)(void *h, uint64_t *ret);   /* the term; NULL: nobody leads there */
};

struct thing {
	const struct sort *sort;
	void *handle;
	unsigned number;                 /* at the resource */
	char name[16];
};

static struct {
	unsigned host, things;
	uint64_t random;
	int highest, taken;              /* the resource's two files */
	struct thing *thing;
	bool robust, brief;
	dlock_attr_t *attr;
	dlock_barrier_t *barrier;
} me;

/* --- Sorts --- */

static int lock_open(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_t *l;
	int r = dlock_open(&l, name, attr);

	if (r == 0)
		*ret = l;
	return r;
}

static int lock_wait(void *h, unsigned weight)
{
	return weight ? dlock_wait_shared(h) : dlock_wait(h);
}

static int lock_try(void *h, unsigned weight)
{
	return weight ? dlock_trywait_shared(h) : dlock_trywait(h);
}

static int lock_timed(void *h, unsigned weight, const struct timespec *abs)
{
	return weight ? dlock_clockwait_shared(h, CLOCK_MONOTONIC, abs) : dlock_clockwait(h, CLOCK_MONOTONIC, abs);
}

static int lock_check(void *h)
{
	return dlock_check(h);
}

static int lock_token(void *h, uint64_t *ret)
{
	return dlock_token(h, ret);
}

static int lock_give(void *h, unsigned weight)
{
	(void)weight;
	return dlock_post(h);
}

static int lock_close(void *h)
{
	return dlock_close(h);
}

#define PERMITS 4

static int sem_open_it(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_sem_t *s;
	int r = dlock_sem_open(&s, name, PERMITS, attr);

	if (r == 0)
		*ret = s;
	return r;
}

static int sem_wait_for(void *h, unsigned weight)
{
	return dlock_sem_wait_n(h, weight);
}

static int sem_try(void *h, unsigned weight)
{
	int r = dlock_sem_trywait_n(h, weight);

	return r == EAGAIN ? EBUSY : r;
}

static int sem_timed(void *h, unsigned weight, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(h, weight, CLOCK_MONOTONIC, abs);
}

static int sem_check(void *h)
{
	return dlock_sem_check(h);
}

static int sem_token(void *h, uint64_t *ret)
{
	return dlock_sem_token(h, ret);
}

static int sem_give(void *h, unsigned weight)
{
	return dlock_sem_post_n(h, weight);
}

static int sem_close_it(void *h)
{
	return dlock_sem_close(h);
}

static int elect_open_it(void **ret, const char *name, const dlock_attr_t *attr)
{
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, name, attr);

	if (r == 0)
		*ret = e;
	return r;
}

static int elect_wait(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_campaign(h, "me", 2);
}

static int elect_try(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_trycampaign(h, "me", 2);
}

static int elect_timed(void *h, unsigned weight, const struct timespec *abs)
{
	(void)weight;
	return dlock_elect_clockcampaign(h, "me", 2, CLOCK_MONOTONIC, abs);
}

static int elect_check(void *h)
{
	return dlock_elect_check(h);
}

static int elect_term(void *h, uint64_t *ret)
{
	return dlock_elect_term(h, ret);
}

static int elect_give(void *h, unsigned weight)
{
	(void)weight;
	return dlock_elect_resign(h);
}

static int elect_leader(void *h, uint64_t *ret)
{
	char value[8];
	size_t len = sizeof value;

	return dlock_elect_leader(h, value, &len, ret);
}

static const struct sort sorts[] = {
	{ "l", 0, true, lock_open, lock_wait, lock_try, lock_timed, lock_check, lock_token, lock_give, lock_close, NULL },
	{ "s", PERMITS, false, sem_open_it, sem_wait_for, sem_try, sem_timed, sem_check, sem_token, sem_give, sem_close_it, NULL },
	{ "e", 0, false, elect_open_it, elect_wait, elect_try, elect_timed, elect_check, elect_term, elect_give, NULL, elect_leader },
};

#define SORTS (sizeof sorts / sizeof *sorts)

/* --- */

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

static void call(const char *op, const struct thing *t)
{
	history_say("\"ev\":\"call\",\"host\":%u,\"op\":\"%s\",\"name\":\"%s\"", me.host, op, t->name);
}

static void call_to_take(const char *op, const struct thing *t, unsigned weight)
{
	char limit[32] = "";

	if (t->sort->limit)
		snprintf(limit, sizeof limit, ",\"limit\":%u", t->sort->limit);
	if (weight)
		history_say("\"ev\":\"call\",\"host\":%u,\"op\":\"%s\",\"name\":\"%s\",\"weight\":%u%s", me.host, op, t->name, weight, limit);
	else
		call(op, t);
}

static void back(const char *op, const struct thing *t, int error)
{
	history_say("\"ev\":\"return\",\"host\":%u,\"op\":\"%s\",\"name\":\"%s\",\"result\":\"%s\"", me.host, op, t->name,
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

static bool hold_take(const struct thing *t, unsigned weight, uint64_t *ret_token)
{
	static const char *const ops[] = { "wait", "trywait", "timedwait" };
	unsigned way = below(10) < 6 ? 0 : 1 + below(2);
	uint64_t token = 0;
	struct timespec now;
	int r;

	call_to_take(ops[way], t, weight);
	r = take_by(way, t, weight);
	if (r && r != EOWNERDEAD) {
		back(ops[way], t, r);
		return false;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	t->sort->token(t->handle, &token);
	history_say_at((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
		       "\"ev\":\"return\",\"host\":%u,\"op\":\"%s\",\"name\":\"%s\",\"result\":\"%s\",\"token\":%llu", me.host, ops[way], t->name,
		       history_result(r), (unsigned long long)token);
	if (r == EOWNERDEAD)
		dlock_consistent(t->handle);     /* only locks say so */
	*ret_token = token;
	return true;
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
		call("check", t);
		r = t->sort->check(t->handle);
		back("check", t, r);
	}
}

static void hold_use(const struct thing *t, unsigned weight, uint64_t token)
{
	if (!below(LONG_EVERY))
		hold_long(t);
	for (unsigned n = below(5); n; n--) {
		call("check", t);
		back("check", t, t->sort->check(t->handle));
		if (below(2))
			nap_us(below(below(20) ? 3000 : 300000));
		if (weight)
			continue;
		call("write", t);
		back("write", t, resource_write(t, token));
	}
}

static void hold_give(const struct thing *t, unsigned weight)
{
	call("post", t);
	back("post", t, t->sort->give(t->handle, weight));
}

static void leader_look(const struct thing *t)
{
	uint64_t term = 0;
	int r;

	call("leader", t);
	r = t->sort->leader(t->handle, &term);
	if (r)
		back("leader", t, r);
	else
		history_say("\"ev\":\"return\",\"host\":%u,\"op\":\"leader\",\"name\":\"%s\",\"result\":\"ok\",\"token\":%llu", me.host,
			    t->name, (unsigned long long)term);
}

/* --- The barrier --- */

static void meet(void)
{
	struct timespec until = in_ms(1 + below(1500));
	int r;

	history_say("\"ev\":\"call\",\"host\":%u,\"op\":\"barrier\",\"name\":\"b\",\"parties\":%u", me.host, PARTIES);
	r = dlock_barrier_clockwait(me.barrier, CLOCK_MONOTONIC, &until);
	history_say("\"ev\":\"return\",\"host\":%u,\"op\":\"barrier\",\"name\":\"b\",\"result\":\"%s\"", me.host,
		    r == DLOCK_SERIAL ? "serial" : history_result(r));
}

static void thing_open(struct thing *t)
{
	int r = t->sort->open(&t->handle, t->name, me.attr);

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
	if (!me.thing || dlock_attr_create(&me.attr))
		exit(1);
	dlock_attr_set_robust(me.attr, me.robust);
	dlock_attr_set_wait_daemon(me.attr, true);
	for (unsigned k = 0; k < SORTS; k++)
		for (unsigned i = 0; i < names; i++) {
			struct thing *t = &me.thing[me.things];

			t->sort = &sorts[k];
			t->number = me.things++;
			snprintf(t->name, sizeof t->name, "%s%u", t->sort->prefix, i);
			if (!me.brief || !t->sort->close)
				thing_open(t);
		}
	if (dlock_barrier_open(&me.barrier, "b", PARTIES, me.attr))
		exit(1);
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
	history_open(argv[3], argv[1]);
	me.host = (unsigned)atoi(argv[2]);
	names = (unsigned)atoi(argv[5]);
	me.random = strtoull(argv[6], NULL, 0);
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

		if (!below(8))
			meet();
		thing_reach(t);
		for (unsigned n = t->sort->leader ? 1 + below(3) : 0; n; n--)
			leader_look(t);
		if (hold_take(t, weight, &token)) {
			hold_use(t, weight, token);
			hold_give(t, weight);
		}
		thing_leave(t);
		nap_us(below(below(30) ? 2000 : 200000));
	}
	return 0;
}
