/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lock-delay on one node: after the death of who held exclusively nobody is granted for as long as that handle has asked for; and no
 * longer, and after nothing else. Where somebody is to wait, the test takes the time; where nobody is, the delay is so long that waiting
 * for it would be seen.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "sem_acts.h"

#define SHORT 700u                       /* ms */
#define LONG  DLOCK_DELAY_MAX
#define SOON  40000u                     /* a limit for what does not wait for LONG */

static struct daemon node;

/* arg: of lock 0 and 1: the delay, with the index of the lock above it. */
static int act_open_delayed(struct stage *s, uint64_t arg)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	r = r ? r : dlock_attr_set_delay_ms(a, (unsigned)(arg & 0xffff));
	r = r ? r : dlock_open(&s->lock[arg >> 16], s->text, a);
	dlock_attr_destroy(a);
	return r;
}

static int act_wait_shared(struct stage *s, uint64_t i)
{
	return dlock_wait_shared(s->lock[i]);
}

static int act_exec(struct stage *s, uint64_t arg)
{
	(void)s, (void)arg;
	return execlp("sleep", "sleep", "60", NULL);
}

static void *take(void *lock)
{
	return dlock_wait(lock) ? lock : NULL;
}

/* A thread takes it, and ends. */
static int act_thread(struct stage *s, uint64_t i)
{
	pthread_t t;
	void *ret;
	int r = pthread_create(&t, NULL, take, s->lock[i]);

	r = r ? r : pthread_join(t, &ret);
	return r ? r : ret ? EIO : 0;
}

static dlock_elect_t *election;

/* arg: the delay */
static int act_campaign(struct stage *s, uint64_t arg)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	r = r ? r : dlock_attr_set_delay_ms(a, (unsigned)arg);
	r = r ? r : dlock_elect_open(&election, s->text, a);
	dlock_attr_destroy(a);
	return r ? r : dlock_elect_campaign(election, "me", 2);
}

static int act_see_nobody(struct stage *s, uint64_t arg)
{
	char text[DLOCK_VALUE_MAX];
	size_t len = sizeof text;
	uint64_t term = 0, until = now_ns() + SOON * MS;
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, s->text, NULL);

	(void)arg;
	while (r == 0 && dlock_elect_leader(e, text, &(size_t){ len }, &term) != ENOENT)
		r = now_ns() < until ? 0 : ETIMEDOUT;
	return r;
}

/* --- Stories --- */

/* Two that have the name open: the first holds, with that delay. */
static void pair(struct actor a[2], const char *name, unsigned delay)
{
	for (int i = 0; i < 2; i++)
		actor_begin(&a[i]);
	if (actor_do(&a[0], act_open_delayed, delay, name).r || actor_do(&a[0], act_wait, 0, NULL).r ||
	    actor_do(&a[1], act_open, OPEN_ROBUST, name).r)
		give_up("the stage for %s cannot be set", name);
}

static void pair_end(struct actor a[2])
{
	actor_kill(&a[0], SIGKILL);
	actor_kill(&a[1], SIGKILL);
}

/* The second is granted it after the first has ended at `since`, and not before `ms`. */
static bool granted_after(struct actor *a, uint64_t since, unsigned ms, int r)
{
	struct result got;

	return actor_result(a, SOON, &got) && got.r == r && got.at_ns >= since + ms * MS;
}

static bool shows(const char *name, const char *what)
{
	char text[2000] = "", ask[60];

	snprintf(ask, sizeof ask, "show %s", name);
	dlock_command(text, sizeof text, ask);
	return strstr(text, what);
}

static void killed(void)
{
	struct actor a[2];
	uint64_t since;

	pair(a, "shown", LONG);
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	while (!shows("shown", "lock-delay") && now_ns() < since + SOON * MS)
		;
	ok(shows("shown", "lock-delay"), "the holder is killed: dlock show says what is waited for");
	pair_end(a);
	pair(a, "killed", SHORT);
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	ok(granted_after(&a[1], since, SHORT, EOWNERDEAD), "the next gets it when the delay is over, and is told");
	ok(actor_do(&a[1], act_post, 0, NULL).r == 0 && actor_do(&a[1], act_try, 0, NULL).r == EOWNERDEAD &&
	   actor_do(&a[1], act_consistent, 0, NULL).r == 0 && actor_do(&a[1], act_post, 0, NULL).r == 0 &&
	   actor_do(&a[1], act_try, 0, NULL).r == 0, "and from then on all is as ever");
	pair_end(a);
}

static void tried(void)
{
	struct actor a[2];
	uint64_t since;
	bool busy = true;
	int r = EBUSY;

	pair(a, "tried", SHORT);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	while (r == EBUSY && now_ns() < since + SOON * MS) {
		r = actor_do(&a[1], act_try, 0, NULL).r;
		busy &= r == EBUSY || now_ns() >= since + SHORT * MS;
	}
	ok(busy && r == EOWNERDEAD, "whoever only tries is told EBUSY for as long");
	pair_end(a);
}

static void released(void)
{
	struct actor a[2];
	struct result got;

	pair(a, "released", LONG);
	actor_send(&a[1], act_wait, 0, NULL);
	ok(actor_do(&a[0], act_post, 0, NULL).r == 0 && actor_result(&a[1], SOON, &got) && got.r == 0, "no delay follows a release");
	actor_do(&a[1], act_post, 0, NULL);
	actor_kill(&a[0], SIGKILL);
	ok(actor_do(&a[1], act_wait, 0, NULL).r == 0, "nor the death of one who does not hold");
	pair_end(a);
}

static void others(void)
{
	struct actor a[2], b;
	struct result got;

	pair(a, "others", 0);
	actor_begin(&b);
	ok(actor_do(&b, act_open_delayed, LONG, "others").r == 0 && actor_send(&a[1], act_wait, 0, NULL), "another has asked for a delay");
	actor_kill(&a[0], SIGKILL);
	ok(actor_result(&a[1], SOON, &got) && got.r == EOWNERDEAD, "the death of one who has not is followed by none");
	actor_kill(&b, SIGKILL);
	pair_end(a);
}

static void longest(void)
{
	struct actor a[2];
	uint64_t since;

	pair(a, "longest", 0);
	if (actor_do(&a[0], act_open_delayed, 1 << 16 | SHORT, "longest").r)
		give_up("it cannot be opened twice");
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	ok(granted_after(&a[1], since, SHORT, EOWNERDEAD), "of a process's handles the longest delay counts");
	pair_end(a);
}

static void exec(void)
{
	struct actor a[2];
	uint64_t since;

	pair(a, "exec", SHORT);
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	actor_send(&a[0], act_exec, 0, NULL);
	ok(granted_after(&a[1], since, SHORT, EOWNERDEAD), "it counts from an exec, too");
	pair_end(a);
}

static void threads(void)
{
	struct actor a[2];
	struct result got;

	pair(a, "threads", LONG);
	actor_do(&a[0], act_post, 0, NULL);
	ok(actor_do(&a[0], act_thread, 0, NULL).r == 0 && actor_send(&a[1], act_wait, 0, NULL) &&
	   actor_result(&a[1], SOON, &got) && got.r == EOWNERDEAD, "no delay follows the end of a thread of a process that lives on");
	pair_end(a);
}

static void reads(struct actor a[2], const char *name, unsigned delay)
{
	pair(a, name, delay);
	if (actor_do(&a[0], act_post, 0, NULL).r || actor_do(&a[0], act_wait_shared, 0, NULL).r)
		give_up("one reads, with a delay");
}

static void readers(void)
{
	struct actor a[2];
	struct result got;
	uint64_t since;

	reads(a, "readers", SHORT);
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	ok(granted_after(&a[1], since, SHORT, 0), "who writes is granted it a delay after the death of one who read");
	pair_end(a);
	reads(a, "reading", LONG);
	actor_kill(&a[0], SIGKILL);
	ok(actor_do(&a[1], act_try, 0, NULL).r == EBUSY && actor_send(&a[1], act_wait_shared, 0, NULL) && actor_result(&a[1], SOON, &got) &&
	   got.r == 0, "meanwhile it is read");
	pair_end(a);
	reads(a, "has read", LONG);
	actor_do(&a[0], act_post, 0, NULL);
	actor_kill(&a[0], SIGKILL);
	ok(actor_send(&a[1], act_wait, 0, NULL) && actor_result(&a[1], SOON, &got) && got.r == 0, "no delay follows one who has left");
	pair_end(a);
	reads(a, "over a restart", 2 * SHORT);
	actor_send(&a[1], act_wait, 0, NULL);
	daemon_end(&node, SIGKILL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	daemon_started(&node);
	daemon_end(&node, SIGTERM);
	daemon_started(&node);
	ok(granted_after(&a[1], since, 2 * SHORT, 0), "a reader dies while there is no daemon, and the next one goes as well: the delay goes on");
	pair_end(a);
}

/* --- Permits --- */

/* arg: the delay */
static int act_permits_open(struct stage *s, uint64_t arg)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	r = r ? r : dlock_attr_set_delay_ms(a, (unsigned)arg);
	r = r ? r : dlock_attr_set_wait_daemon(a, true);
	r = r ? r : dlock_sem_open(&sem, s->text, 3, a);
	dlock_attr_destroy(a);
	return r;
}

/* The first has had three, and holds two. */
static void permits_begin(struct actor a[2], const char *name, unsigned delay)
{
	for (int i = 0; i < 2; i++)
		actor_begin(&a[i]);
	if (actor_do(&a[0], act_permits_open, delay, name).r || actor_do(&a[0], act_take_n, 3, NULL).r ||
	    actor_do(&a[0], act_give_n, 1, NULL).r || actor_do(&a[1], act_permits_open, 0, name).r)
		give_up("the stage for %s cannot be set", name);
}

static void permits_lost(void)
{
	struct actor a[2];
	struct result got;
	uint64_t since;

	permits_begin(a, "permits", LONG);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	while (!shows("permits", "lock-delay") && now_ns() < since + SOON * MS)
		;
	ok(shows("permits", "lock-delay"), "one dies with permits: dlock show says what is waited for");
	ok(actor_send(&a[1], act_take_n, 1, NULL) && actor_result(&a[1], SOON, &got) && got.r == 0 &&
	   actor_do(&a[1], act_try_n, 1, NULL).r == EAGAIN, "what it did not hold is had at once, and no more");
	pair_end(a);
	permits_begin(a, "held-permits", 2 * SHORT);
	actor_send(&a[1], act_take_n, 3, NULL);
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	daemon_end(&node, SIGKILL);
	daemon_started(&node);
	ok(granted_after(&a[1], since, 2 * SHORT, 0), "what it held is had when the delay is over, also where the daemon is started anew meanwhile");
	pair_end(a);
	permits_begin(a, "posted-permits", LONG);
	actor_do(&a[0], act_give_n, 2, NULL);
	actor_kill(&a[0], SIGKILL);
	ok(actor_send(&a[1], act_take_n, 3, NULL) && actor_result(&a[1], SOON, &got) && got.r == 0, "no delay follows what was posted");
	pair_end(a);
}

static void restarted(bool dies_before)
{
	const char *name = dies_before ? "before" : "meanwhile";
	struct actor a[2];
	uint64_t since;

	pair(a, name, 2 * SHORT);
	actor_send(&a[1], act_wait, 0, NULL);
	since = now_ns();
	if (dies_before) {
		actor_kill(&a[0], SIGKILL);
		while (!daemon_said("nobody is granted it for") && now_ns() < since + SOON * MS)
			nap_ns(MS);
	}
	daemon_end(&node, SIGKILL);
	if (!dies_before)
		actor_kill(&a[0], SIGKILL);
	daemon_started(&node);
	ok(granted_after(&a[1], since, 2 * SHORT, EOWNERDEAD), "the holder dies, %s: the delay goes on",
	   dies_before ? "and then the daemon, which is started again" : "while there is no daemon");
	pair_end(a);
}

static void elected(void)
{
	struct actor a[3];
	uint64_t since;

	for (int i = 0; i < 3; i++)
		actor_begin(&a[i]);
	ok(actor_do(&a[0], act_campaign, SHORT, "led").r == 0, "one leads");
	actor_send(&a[1], act_campaign, 0, "led");
	since = now_ns();
	actor_kill(&a[0], SIGKILL);
	ok(actor_do(&a[2], act_see_nobody, 0, "led").r == 0, "it is killed: nobody leads, as others see");
	ok(granted_after(&a[1], since, SHORT, 0), "and until the delay is over, nobody is elected");
	for (int i = 0; i < 3; i++)
		actor_kill(&a[i], SIGKILL);
}

static void refused(void)
{
	dlock_attr_t *a;

	ok(dlock_attr_create(&a) == 0 && dlock_attr_set_delay_ms(a, DLOCK_DELAY_MAX) == 0 &&
	   dlock_attr_set_delay_ms(a, DLOCK_DELAY_MAX + 1) == EINVAL && dlock_attr_set_delay_ms(a, 0) == 0, "a delay has a limit");
	dlock_attr_destroy(a);
}

int main(void)
{
	harness_begin(120);
	daemon_started(&node);
	refused();
	killed();
	tried();
	released();
	others();
	longest();
	exec();
	threads();
	readers();
	permits_lost();
	restarted(true);
	restarted(false);
	elected();
	daemon_end(&node, SIGTERM);
	return harness_end();
}
