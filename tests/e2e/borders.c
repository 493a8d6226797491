/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the calls of every kind say at the borders of what they take: the least and the most, twice the same, by the wrong
 * thread, for times that are none. In one process, with several handles of a name. Each call leaves errno alone.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dlock.h"
#include "dlock/semaphore.h"
#include "harness.h"
#include "threads.h"

#define UNTOUCHED 4242

static bool good;

static void expect(int line, const char *text, long got, long wanted, int error)
{
	if (got == wanted && error == UNTOUCHED)
		return;
	good = false;
	note("line %d: %s is %ld, not %ld%s", line, text, got, wanted, error == UNTOUCHED ? "" : ", and errno another");
}
#define IS(wanted, call)                                                       \
	do {                                                                   \
		errno = UNTOUCHED;                                             \
		long got_ = (long)(call);                                      \
		expect(__LINE__, #call, got_, (long)(wanted), errno);          \
	} while (0)
#define OK(call)   IS(0, call)
#define TRUE(what) IS(true, (what) != 0)

static const struct timespec past = { 0, 0 }, before = { -1, 0 }, odd = { 1, 1000000000 }, less = { 1, -1 };

/* Calls of the same form, at each time that is none, and at one that has passed. */
#define AT_NO_TIME(passed, CALL)                                                                           \
	do {                                                                                               \
		IS(EINVAL, CALL(CLOCK_REALTIME, &odd));                                                    \
		IS(EINVAL, CALL(CLOCK_MONOTONIC, &less));                                                  \
		IS(EINVAL, CALL(CLOCK_MONOTONIC, NULL));                                                   \
		IS(EINVAL, CALL(CLOCK_BOOTTIME, &past));                                                   \
		IS(passed, CALL(CLOCK_REALTIME, &past));                                                   \
		IS(passed, CALL(CLOCK_MONOTONIC, &before));                                                \
	} while (0)

static void attributes(void)
{
	dlock_attr_t *a;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_priority(a, 255));
	IS(EINVAL, dlock_attr_set_priority(a, 256));
	OK(dlock_attr_set_delay_ms(a, DLOCK_DELAY_MAX));
	IS(EINVAL, dlock_attr_set_delay_ms(a, DLOCK_DELAY_MAX + 1));
	OK(dlock_attr_set_onloss(a, 0));
	OK(dlock_attr_set_onloss(a, SIGKILL));
	OK(dlock_attr_set_onloss(a, SIGRTMAX));
	IS(EINVAL, dlock_attr_set_onloss(a, SIGRTMAX + 1));
	IS(EINVAL, dlock_attr_set_onloss(a, -1));
	IS(EINVAL, dlock_attr_set_owner(a, (enum dlock_owner)2));
	OK(dlock_attr_set_try_ms(a, UINT_MAX));
	dlock_attr_destroy(a);
	dlock_attr_destroy(NULL);
}

/* --- Locks --- */

static int do_try(void *l)
{
	int r = dlock_trywait(l);

	return r ? r : dlock_post(l);
}

static int do_read(void *l)
{
	int r = dlock_wait_shared(l);

	return r ? r : dlock_post(l);
}

static int do_try_read(void *l)
{
	int r = dlock_trywait_shared(l);

	return r ? r : dlock_post(l);
}

static int do_post(void *l)
{
	return dlock_post(l);
}

static void nobody_holds(dlock_t *l)
{
	uint64_t token = 7;
	size_t n = 1;
	char c;

	IS(EPERM, dlock_post(l));
	IS(EPERM, dlock_check(l));
	IS(EPERM, dlock_upgrade(l));
	IS(EPERM, dlock_tryupgrade(l));
	IS(EPERM, dlock_downgrade(l));
	IS(EPERM, dlock_consistent(l));
	IS(EPERM, dlock_token(l, &token));
	IS(7, token);
	IS(EPERM, dlock_value_get(l, &c, &n));
	IS(EPERM, dlock_value_set(l, "x", 1));
}

#define WAIT(clock, abs) dlock_clockwait(m, clock, abs)
#define READ(clock, abs) dlock_clockwait_shared(m, clock, abs)

static void shared_holds(void)
{
	uint64_t reading, writing;
	dlock_t *l, *m;

	OK(dlock_open(&l, "shared", NULL));
	OK(dlock_open(&m, "default/shared", NULL));
	nobody_holds(l);
	OK(dlock_wait_shared(l));
	OK(dlock_wait_shared(m));
	IS(EDEADLK, dlock_wait(l));
	IS(EDEADLK, dlock_timedwait(m, &past));
	IS(EBUSY, dlock_trywait(m));
	IS(EDEADLK, dlock_upgrade(l));
	IS(EDEADLK, dlock_tryupgrade(l));
	IS(EINVAL, dlock_downgrade(l));
	IS(EINVAL, dlock_consistent(l));
	IS(EPERM, dlock_value_set(l, "x", 1));
	IS(EPERM, elsewhere(do_post, l));
	IS(EBUSY, dlock_close(l));
	OK(dlock_post(m));
	nobody_holds(m);
	OK(dlock_upgrade(l));
	IS(EINVAL, dlock_upgrade(l));
	IS(EINVAL, dlock_tryupgrade(l));
	IS(EDEADLK, dlock_wait_shared(l));
	IS(EDEADLK, dlock_timedwait_shared(m, &past));
	IS(EBUSY, dlock_trywait_shared(m));
	IS(EBUSY, elsewhere(do_try_read, l));
	OK(dlock_downgrade(l));
	OK(elsewhere(do_read, m));
	IS(EBUSY, elsewhere(do_try, m));
	OK(dlock_token(l, &reading));
	OK(dlock_post(l));
	OK(dlock_wait(l));
	OK(dlock_token(l, &writing));
	TRUE(writing > reading);
	OK(dlock_post(l));
	nobody_holds(l);
	OK(dlock_timedwait_shared(m, &past));
	OK(dlock_post(m));
	OK(dlock_timedwait(m, &past));
	OK(dlock_post(m));
	OK(dlock_close(l));
	OK(dlock_close(m));
}

static dlock_t *other;

static int no_time(void *m)
{
	AT_NO_TIME(ETIMEDOUT, WAIT);
	AT_NO_TIME(ETIMEDOUT, READ);
	return 0;
}

static void times(void)
{
	OK(dlock_open(&other, "times", NULL));
	OK(dlock_wait(other));
	OK(elsewhere(no_time, other));
	OK(dlock_post(other));
	OK(dlock_close(other));
}

static void recursion(void)
{
	dlock_attr_t *a;
	dlock_t *l;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_recursive(a, true));
	OK(dlock_open(&l, "levels", a));
	dlock_attr_destroy(a);
	OK(dlock_wait(l));
	OK(dlock_wait(l));
	IS(EDEADLK, dlock_downgrade(l));
	IS(EDEADLK, dlock_wait_shared(l));
	OK(dlock_post(l));
	OK(dlock_downgrade(l));
	OK(dlock_post(l));
	IS(EPERM, dlock_post(l));
	OK(dlock_close(l));
}

static void values(void)
{
	char most[DLOCK_VALUE_MAX + 1], got[DLOCK_VALUE_MAX + 1];
	dlock_t *l;
	size_t n;

	memset(most, 'v', sizeof most);
	OK(dlock_open(&l, "values", NULL));
	OK(dlock_wait(l));
	n = sizeof got;
	IS(ENODATA, dlock_value_get(l, got, &n));
	IS(EMSGSIZE, dlock_value_set(l, most, DLOCK_VALUE_MAX + 1));
	IS(EMSGSIZE, dlock_value_set(l, most, SIZE_MAX));
	OK(dlock_value_set(l, most, DLOCK_VALUE_MAX));
	OK(dlock_post(l));
	OK(dlock_wait(l));
	n = DLOCK_VALUE_MAX - 1;
	IS(ERANGE, dlock_value_get(l, got, &n));
	IS(DLOCK_VALUE_MAX, n);
	OK(dlock_value_get(l, got, &n));
	TRUE(n == DLOCK_VALUE_MAX && !memcmp(got, most, n));
	n = 0;
	IS(ERANGE, dlock_value_get(l, NULL, &n));
	OK(dlock_value_set(l, NULL, 0));
	OK(dlock_post(l));
	OK(dlock_wait(l));
	n = 0;
	OK(dlock_value_get(l, NULL, &n));
	IS(0, n);
	OK(dlock_post(l));
	OK(dlock_close(l));
}

/* --- Semaphores --- */

static int do_sem_wait(void *s)
{
	return dlock_sem_wait(s);
}

static int do_sem_post(void *s)
{
	return dlock_sem_post(s);
}

#define SEM_WAIT(clock, abs) dlock_sem_clockwait(s, clock, abs)

static bool value_is(dlock_sem_t *s, int wanted)
{
	int v = -1;

	return dlock_sem_getvalue(s, &v) == 0 && v == wanted;
}

static void most_permits(void)
{
	dlock_sem_t *s;

	IS(EINVAL, dlock_sem_open(&s, "most", 0, NULL));
	IS(EINVAL, dlock_sem_open(&s, "most", 1u << 31, NULL));
	OK(dlock_sem_open(&s, "most", INT_MAX, NULL));
	if (!harness.nodes)              /* one of many says how many it has cached */
		TRUE(value_is(s, INT_MAX));
	IS(EINVAL, dlock_sem_wait_n(s, 0));
	IS(EINVAL, dlock_sem_wait_n(s, 1u << 31));
	IS(EINVAL, dlock_sem_trywait_n(s, UINT_MAX));
	IS(EINVAL, dlock_sem_post_n(s, 0));
	IS(EINVAL, dlock_sem_resize(s, 0));
	IS(EINVAL, dlock_sem_resize(s, 1u << 31));
	OK(dlock_sem_wait_n(s, INT_MAX));
	TRUE(value_is(s, 0));
	IS(EAGAIN, dlock_sem_trywait(s));
	IS(EAGAIN, dlock_sem_trywait_n(s, INT_MAX));
	OK(dlock_sem_post_n(s, INT_MAX));
	IS(EPERM, dlock_sem_post(s));
	TRUE(value_is(s, INT_MAX));
	OK(dlock_sem_close(s));
	OK(dlock_sem_close(NULL));
}

static void permits(void)
{
	dlock_sem_t *s, *t;
	uint64_t token;

	OK(dlock_sem_open(&s, "permits", 2, NULL));
	IS(EINVAL, dlock_sem_open(&t, "permits", 3, NULL));
	OK(dlock_sem_open(&t, "permits", 2, NULL));
	IS(EPERM, dlock_sem_check(s));
	IS(EPERM, dlock_sem_token(s, &token));
	OK(elsewhere(do_sem_wait, s));           /* its thread has ended: the process has it */
	OK(dlock_sem_check(t));
	OK(dlock_sem_token(t, &token));
	OK(elsewhere(do_sem_post, t));
	IS(EPERM, dlock_sem_post(s));
	IS(EINVAL, dlock_sem_wait_n(s, 3));
	OK(dlock_sem_wait_n(s, 2));
	AT_NO_TIME(ETIMEDOUT, SEM_WAIT);
	IS(ETIMEDOUT, dlock_sem_timedwait_n(s, 2, &past));
	IS(EINVAL, dlock_sem_timedwait_n(s, 3, &odd));
	OK(dlock_sem_close(t));
	IS(EBUSY, dlock_sem_close(s));
	OK(dlock_sem_post_n(s, 2));
	OK(dlock_sem_timedwait(s, &past));
	OK(dlock_sem_post(s));
	OK(dlock_sem_close(s));
}

/* With the resize's return those who hold too many know it. */
static void fewer_permits(void)
{
	dlock_sem_t *s;

	OK(dlock_sem_open(&s, "fewer", 2, NULL));
	for (int i = 0; i < 200 && good; i++) {
		OK(dlock_sem_wait_n(s, 2));
		OK(dlock_sem_resize(s, 1));
		OK(dlock_sem_post(s));
		IS(EAGAIN, dlock_sem_trywait(s));
		TRUE(value_is(s, 0));
		OK(dlock_sem_post(s));
		TRUE(value_is(s, 1));
		IS(EINVAL, dlock_sem_wait_n(s, 2));
		OK(dlock_sem_resize(s, 2));
	}
	OK(dlock_sem_close(s));
}

static void free_permits(void)
{
	dlock_sem_t *s, *t;
	dlock_attr_t *a;
	uint64_t token;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_free(a, true));
	IS(EINVAL, dlock_sem_unlink(""));
	IS(ENOENT, dlock_sem_unlink("free"));
	IS(EINVAL, dlock_sem_open(&s, "free", 1u << 31, a));
	OK(dlock_sem_open(&s, "free", 0, a));
	IS(EAGAIN, dlock_sem_trywait(s));
	OK(dlock_sem_post(s));
	OK(dlock_sem_post(s));
	TRUE(value_is(s, 2));
	IS(EPERM, dlock_sem_check(s));
	IS(EPERM, dlock_sem_token(s, &token));
	IS(EINVAL, dlock_sem_resize(s, 4));
	OK(dlock_sem_wait_n(s, 2));
	AT_NO_TIME(ETIMEDOUT, SEM_WAIT);
	OK(dlock_sem_post_n(s, INT_MAX));
	IS(EOVERFLOW, dlock_sem_post(s));
	IS(EOVERFLOW, dlock_sem_post_n(s, INT_MAX));
	OK(dlock_sem_trywait_n(s, INT_MAX));
	OK(dlock_sem_open(&t, "free", 7, a));
	TRUE(value_is(t, 0));                    /* it was there */
	OK(dlock_sem_close(t));
	OK(dlock_sem_unlink("free"));
	OK(dlock_sem_post(s));                   /* it goes on with the one that it has */
	OK(dlock_sem_wait(s));
	OK(dlock_sem_close(s));
	IS(ENOENT, dlock_sem_unlink("free"));
	OK(dlock_sem_open(&s, "free", INT_MAX, a));
	TRUE(value_is(s, INT_MAX));
	OK(dlock_sem_close(s));
	OK(dlock_sem_unlink("free"));
	dlock_attr_destroy(a);
}

/* -1 and errno, as POSIX says it. */
#define FAILS(error, failed)                                                   \
	do {                                                                   \
		bool failed_ = (failed);                                       \
		expect(__LINE__, #failed, failed_ ? errno : 0, error, UNTOUCHED); \
	} while (0)
#define REFUSED(...) (dlock_posix_sem_open("/posix", __VA_ARGS__) == DLOCK_POSIX_SEM_FAILED)

static void posix_permits(void)
{
	dlock_posix_sem_t *s;
	int v;

	FAILS(ENOENT, REFUSED(0));
	FAILS(EINVAL, REFUSED(O_CREAT, 0600, 1u << 31));
	FAILS(ENOENT, dlock_posix_sem_unlink("/posix") == -1);
	s = dlock_posix_sem_open("/posix", O_CREAT | O_EXCL, 0600, 1);
	if (s == DLOCK_POSIX_SEM_FAILED)
		give_up("/posix: %s", strerror(errno));
	FAILS(EEXIST, REFUSED(O_CREAT | O_EXCL, 0600, 1));
	OK(dlock_posix_sem_timedwait(s, &past));
	FAILS(EAGAIN, dlock_posix_sem_trywait(s) == -1);
	FAILS(ETIMEDOUT, dlock_posix_sem_timedwait(s, &past) == -1);
	FAILS(EINVAL, dlock_posix_sem_timedwait(s, &odd) == -1);
	FAILS(ETIMEDOUT, dlock_posix_sem_clockwait(s, CLOCK_MONOTONIC, &past) == -1);
	FAILS(EINVAL, dlock_posix_sem_clockwait(s, CLOCK_BOOTTIME, &past) == -1);
	OK(dlock_posix_sem_post(s));
	OK(dlock_posix_sem_getvalue(s, &v));
	IS(1, v);
	OK(dlock_posix_sem_unlink("/posix"));
	OK(dlock_posix_sem_wait(s));
	OK(dlock_posix_sem_close(s));
}

/* --- Barriers --- */

#define MEET(clock, abs) dlock_barrier_clockwait(b, clock, abs)

static void barriers(void)
{
	dlock_barrier_t *b, *c;
	bool all;

	IS(EINVAL, dlock_barrier_open(&b, "parties", 0, NULL));
	IS(EINVAL, dlock_barrier_open(&b, "parties", 1u << 31, NULL));
	OK(dlock_barrier_open(&b, "parties", 1, NULL));
	IS(EINVAL, dlock_barrier_open(&c, "parties", 2, NULL));
	for (int i = 0; i < 3; i++)
		IS(DLOCK_SERIAL, dlock_barrier_wait(b));
	AT_NO_TIME(DLOCK_SERIAL, MEET);
	for (int yes = 0; yes < 2; yes++) {
		IS(DLOCK_SERIAL, dlock_barrier_vote(b, yes, &all));
		IS(yes, all);
	}
	IS(DLOCK_SERIAL, dlock_barrier_vote(b, false, NULL));
	OK(dlock_barrier_reset(b));
	IS(EPERM, dlock_barrier_leave(b));
	for (int i = 0; i < 20; i++) {           /* who has come is seen, however late it is */
		IS(DLOCK_SERIAL, dlock_barrier_timedwait(b, &past));
		IS(DLOCK_SERIAL, dlock_barrier_enter(b));
		IS(DLOCK_SERIAL, i % 2 ? dlock_barrier_clockleave(b, CLOCK_MONOTONIC, &past) : dlock_barrier_leave(b));
		IS(EPERM, dlock_barrier_leave(b));
	}
	OK(dlock_barrier_close(b));
	OK(dlock_barrier_open(&b, "crowd", INT_MAX, NULL));
	AT_NO_TIME(ETIMEDOUT, MEET);
	OK(dlock_barrier_close(b));
	OK(dlock_barrier_close(NULL));
}

/* --- Elections --- */

#define CAMPAIGN(clock, abs) dlock_elect_clockcampaign(e, "x", 1, clock, abs)
#define OBSERVE(clock, abs) dlock_elect_clockobserve(f, &seen, clock, abs)

static int campaign_no_time(void *e)
{
	AT_NO_TIME(ETIMEDOUT, CAMPAIGN);
	return 0;
}

static void elections(void)
{
	char most[DLOCK_VALUE_MAX + 1], got[DLOCK_VALUE_MAX];
	uint64_t term = 1, mine, seen = 0;
	dlock_elect_t *e, *f;
	size_t n = sizeof got;

	memset(most, 'e', sizeof most);
	OK(dlock_elect_open(&e, "leader", NULL));
	OK(dlock_elect_open(&f, "leader", NULL));
	IS(ENOENT, dlock_elect_leader(f, got, &n, &term));
	TRUE(n == sizeof got && term == 1);
	IS(EPERM, dlock_elect_resign(e));
	IS(EPERM, dlock_elect_proclaim(e, "x", 1));
	IS(EPERM, dlock_elect_check(e));
	IS(EPERM, dlock_elect_term(e, &term));
	IS(EMSGSIZE, dlock_elect_campaign(e, most, sizeof most));
	IS(EMSGSIZE, dlock_elect_trycampaign(e, most, sizeof most));
	OK(dlock_elect_campaign(e, most, DLOCK_VALUE_MAX));
	IS(EDEADLK, dlock_elect_campaign(f, "x", 1));
	IS(EBUSY, dlock_elect_trycampaign(f, "x", 1));
	OK(elsewhere(campaign_no_time, f));
	n = DLOCK_VALUE_MAX - 1;
	IS(ERANGE, dlock_elect_leader(f, got, &n, &term));
	IS(DLOCK_VALUE_MAX, n);
	OK(dlock_elect_leader(f, got, &n, &term));
	OK(dlock_elect_term(e, &mine));
	TRUE(term == mine && !memcmp(got, most, n));
	IS(EMSGSIZE, dlock_elect_proclaim(e, most, sizeof most));
	OK(dlock_elect_proclaim(e, NULL, 0));
	OK(dlock_elect_leader(f, got, &n, NULL));
	IS(0, n);
	OK(dlock_elect_leader(f, NULL, NULL, NULL));
	OK(dlock_elect_observe(f, &seen));
	IS(mine, seen);
	AT_NO_TIME(ETIMEDOUT, OBSERVE);
	IS(EBUSY, dlock_elect_close(e));
	OK(dlock_elect_resign(e));
	OK(dlock_elect_observe(f, &seen));
	IS(0, seen);
	OK(dlock_elect_close(e));
	OK(dlock_elect_close(f));
	OK(dlock_elect_close(NULL));
}

/* --- What lies in the store --- */

#define LATCH_WAIT(clock, abs) dlock_latch_clockwait(c, clock, abs)

static void latches(void)
{
	dlock_latch_t *c, *d;
	unsigned v;

	IS(EINVAL, dlock_latch_unlink(""));
	IS(ENOENT, dlock_latch_unlink("latch"));
	for (int i = 0; i < 20; i++) {           /* whoever unlinks finds it unlinked */
		OK(dlock_latch_open(&c, "latch", 0, NULL));
		OK(dlock_latch_wait(c));
		OK(dlock_latch_countdown(c, 1));
		OK(dlock_latch_getvalue(c, &v));
		IS(0, v);
		OK(dlock_latch_unlink("latch"));
		IS(ENOENT, dlock_latch_wait(c));
		IS(ENOENT, dlock_latch_countdown(c, 1));
		IS(ENOENT, dlock_latch_getvalue(c, &v));
		OK(dlock_latch_close(c));
	}
	OK(dlock_latch_open(&c, "latch", UINT_MAX, NULL));
	OK(dlock_latch_open(&d, "latch", 5, NULL));
	OK(dlock_latch_countdown(d, 0));
	OK(dlock_latch_countdown(d, UINT_MAX - 1));
	OK(dlock_latch_getvalue(c, &v));
	IS(1, v);
	AT_NO_TIME(ETIMEDOUT, LATCH_WAIT);
	OK(dlock_latch_countdown(d, UINT_MAX));
	OK(dlock_latch_wait(c));
	OK(dlock_latch_close(d));
	OK(dlock_latch_unlink("latch"));
	for (int i = 0; i < 20; i++) {           /* made anew it is another one */
		OK(dlock_latch_open(&d, "latch", 1 + i % 2, NULL));
		if (i % 3 == 0)
			OK(dlock_latch_countdown(d, 1));
		IS(ENOENT, dlock_latch_wait(c));
		IS(ENOENT, dlock_latch_countdown(c, 1));
		IS(ENOENT, dlock_latch_getvalue(c, &v));
		OK(dlock_latch_getvalue(d, &v));
		IS(1 + i % 2 - (i % 3 == 0), v);
		OK(dlock_latch_close(c));
		c = d;
		OK(dlock_latch_unlink("latch"));
	}
	OK(dlock_latch_close(c));
	OK(dlock_latch_close(NULL));
}

#define COND_WAIT(clock, abs) dlock_cond_clockwait(c, l, clock, abs)

static void conditions(void)
{
	dlock_t *l, *m, *deep;
	dlock_cond_t *c;
	dlock_attr_t *a;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_recursive(a, true));
	OK(dlock_cond_open(&c, "cond", NULL));
	OK(dlock_open(&l, "cond", NULL));
	OK(dlock_open(&m, "cond", NULL));
	OK(dlock_open(&deep, "cond", a));
	dlock_attr_destroy(a);
	OK(dlock_cond_signal(c));
	OK(dlock_cond_broadcast(c));
	IS(EPERM, dlock_cond_wait(c, l));
	for (int read = 0; read < 2; read++) {   /* it is the same lock after it has been read */
		OK(dlock_wait(l));
		IS(EPERM, dlock_cond_wait(c, m));
		AT_NO_TIME(ETIMEDOUT, COND_WAIT);
		OK(dlock_check(l));
		OK(dlock_post(l));
		OK(dlock_wait(deep));
		OK(dlock_wait(deep));
		IS(EINVAL, dlock_cond_wait(c, deep));
		OK(dlock_post(deep));
		OK(dlock_post(deep));
		OK(dlock_wait_shared(l));
		IS(EPERM, dlock_cond_wait(c, l));
		OK(dlock_check(l));
		OK(dlock_post(l));
	}
	OK(dlock_close(deep));
	OK(dlock_close(m));
	OK(dlock_close(l));
	OK(dlock_cond_close(c));
	OK(dlock_cond_close(NULL));
}

static void numbers(void)
{
	dlock_id_t *g, *h;
	uint64_t id = 0, last;
	unsigned v, w;

	IS(EINVAL, dlock_id_open(&g, "", NULL));
	OK(dlock_id_open(&g, "numbers", NULL));
	OK(dlock_id_open(&h, "numbers", NULL));
	OK(dlock_id_worker(g, &v));
	OK(dlock_id_worker(h, &w));
	IS(v, w);
	for (int i = 0; i < 10000; i++) {
		last = id;
		OK(dlock_id_next(i % 2 ? g : h, &id));
		TRUE(id > last);
	}
	IS(v, id >> 12 & 1023);
	IS(0, id >> 63);
	OK(dlock_id_close(g));
	OK(dlock_id_close(h));
	OK(dlock_id_close(NULL));
}

static void tell(void (*story)(void), const char *title)
{
	good = true;
	story();
	ok(good, "%s", title);
}

int main(void)
{
	static char *as_many[] = { "--x-as-many", NULL };
	static struct daemon node;

	harness_begin(60);
	daemon_started(&node);
	tell(attributes, "attributes: the most, and more");
	tell(shared_holds, "shared holds, up, down and up again, by two handles");
	tell(times, "times that are none, for locks");
	tell(recursion, "a recursive hold goes down when it is held once");
	tell(values, "values of no bytes, of the most, and of more");
	tell(most_permits, "permits: the most, more, and none");
	tell(permits, "permits of the process, by two handles and another thread");
	tell(fewer_permits, "after a resize to fewer nothing is taken, from its return on, that others would have to give");
	tell(free_permits, "free permits: none, the most, unlinked and made again");
	tell(posix_permits, "the same with POSIX's calls: -1 and errno");
	tell(barriers, "barriers of one party and of more than there are");
	tell(elections, "elections: who leads says nothing, the most, or more");
	tell(latches, "latches: open at once, the most, unlinked, made anew");
	tell(conditions, "conditions: with a lock that is held enough, also after it has been read");
	tell(numbers, "numbers by two handles rise together");
	daemon_done(&node);
	if (skipped_across("barriers, where the daemon completes their rounds", "it did"))
		return harness_end();
	if (daemon_start(&node, built("daemon/dlockd"), as_many, NULL)) {
		tell(barriers, "barriers, where the daemon completes their rounds");
		daemon_end(&node, SIGTERM);
	}
	return harness_end();
}
