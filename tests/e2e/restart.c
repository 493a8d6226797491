/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon goes and comes back under a thousand holds, of all kinds in turn: all keep what they have, who waits is
 * served. While it is stopped, cached locks go on, and everything else waits for it. With nothing to
 * do it does not wake up.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "kinds.h"

#define HOLDERS   52
#define EACH      20                     /* of each holder, the first one a lock */
#define WAITERS   20                     /* waiter w sleeps on the first lock of holder w */
#define RESTARTS  8
#define LIMIT_MS  100u
#define STOP_MS   3000

static struct daemon daemon_;
static struct actor holder[HOLDERS], waiter[WAITERS];

/* --- A holder of many --- */

static struct held {
	const struct kind *kind;
	void *thing;
	uint64_t token;
} held[EACH];

static int hold_one(struct held *h, const char *name)
{
	int r = h->kind->open(&h->thing, name);

	r = r ? r : h->kind->holds.take(h->thing);
	return r ? r : h->kind->holds.token(h->thing, &h->token);
}

static int hold_many(struct stage *s, uint64_t which)
{
	char name[40];
	int r = 0;

	for (unsigned i = 0; i < EACH && r == 0; i++) {
		snprintf(name, sizeof name, "held/%d/%u", (int)which, i);
		held[i].kind = &kinds[i % kinds_count];
		r = hold_one(&held[i], name);
	}
	s->lock[0] = held[0].thing;
	return r;
}

/* How many it does not hold any more, under the token of then. */
static int lost_of_many(struct stage *s, uint64_t from)
{
	uint64_t token;
	int lost = 0;

	(void)s;
	for (const struct held *h = held + from; h < held + EACH; h++)
		lost += h->kind->holds.check(h->thing) != 0 || h->kind->holds.token(h->thing, &token) != 0 || token != h->token;
	return lost;
}

static int post_many(struct stage *s, uint64_t from)
{
	int r = 0;

	(void)s;
	for (const struct held *h = held + from; h < held + EACH && r == 0; h++)
		r = h->kind->holds.give(h->thing);
	return r;
}

/* --- Restarts --- */

static void gather(void)
{
	char name[40];

	for (int p = 0; p < HOLDERS; p++) {
		actor_begin(&holder[p]);
		actor_send(&holder[p], hold_many, (uint64_t)p, NULL);
	}
	for (int p = 0; p < HOLDERS; p++) {
		struct result r = { .r = -1 };

		if (!actor_result(&holder[p], PATIENCE_MS, &r) || r.r)
			give_up("a holder of %d: %d", EACH, r.r);
	}
	for (int w = 0; w < WAITERS; w++) {
		snprintf(name, sizeof name, "held/%d/0", w);
		actor_begin(&waiter[w]);
		if (actor_do(&waiter[w], act_open, 0, name).r)
			give_up("a waiter opens its name");
		actor_send(&waiter[w], act_wait, 0, NULL);
	}
	for (int w = 0; w < WAITERS; w++)
		if (!asleep(waiter[w].pid))
			give_up("a waiter sleeps");
}

static int lost(uint64_t from)
{
	int n = 0;

	for (int p = 0; p < HOLDERS; p++)
		actor_send(&holder[p], lost_of_many, p < WAITERS ? from : 0, NULL);
	for (int p = 0; p < HOLDERS; p++) {
		struct result r = { .r = EACH };

		actor_result(&holder[p], PATIENCE_MS, &r);
		n += r.r;
	}
	return n;
}

static int awake(void)
{
	struct result r;
	int n = 0;

	for (int w = 0; w < WAITERS; w++)
		n += actor_result(&waiter[w], 0, &r);
	return n;
}

/* Of all spaces. */
static int waiters_counted(void)
{
	static char text[1 << 16];
	const char *at = text, key[] = "\"waiters\": ";
	int n = 0;

	dlock_command(text, sizeof text, "status --json");
	while ((at = strstr(at, key)))
		n += atoi(at += sizeof key - 1);
	return n;
}

static void status_is_right(const char *when, long incarnation)
{
	int waiters = -1;

	ok(status_number("incarnation") == incarnation && status_number("clients") == HOLDERS + WAITERS &&
	   status_number("names") == HOLDERS * EACH,
	   "%s: dlock status counts %d clients, %d names, and incarnation %ld", when, HOLDERS + WAITERS, HOLDERS * EACH,
	   incarnation);
	/* Each name counts until the daemon has seen that nobody waits for it, a few looks later. */
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; (waiters = waiters_counted()) != WAITERS && now_ns() < until;)
		nap_ns(10 * MS);
	ok(waiters == WAITERS, "%s: it counts %d waiters (%d)", when, WAITERS, waiters);
}

static void test_restarts(void)
{
	long incarnation = status_number("incarnation");
	uint64_t slowest = 0;
	int n_lost = 0, n_awake = 0;

	status_is_right("before", incarnation);
	for (int i = 0; i < RESTARTS; i++) {
		uint64_t begin;

		daemon_end(&daemon_, i % 2 ? SIGTERM : SIGKILL);
		n_lost += lost(0);
		begin = now_ns();
		daemon_started(&daemon_);
		if (now_ns() - begin > slowest)
			slowest = now_ns() - begin;
		n_lost += lost(0);
		n_awake += awake();
	}
	ok(n_lost == 0, "%d holds of all kinds outlive %d restarts, by SIGKILL and SIGTERM in turn (%d lost)", HOLDERS * EACH, RESTARTS,
	   n_lost);
	ok(n_awake == 0, "nobody who waits is let in, or sent away (%d)", n_awake);
	note("%.1f ms from start to ready, at most", (double)slowest / 1e6);
	status_is_right("afterwards", incarnation + RESTARTS);
}

static void test_waiters_served(void)
{
	struct pace pace = { 0 };
	int n = 0;

	for (int w = 0; w < WAITERS; w++) {
		struct result r = { .r = -1 };
		uint64_t begin;

		/* Every other post comes while there is no daemon. */
		if (w % 2)
			daemon_end(&daemon_, SIGKILL);
		begin = now_ns();
		n += actor_do(&holder[w], act_post, 0, NULL).r != 0;
		n += !actor_result(&waiter[w], PATIENCE_MS, &r) || r.r;
		pace_took(&pace, r.at_ns - begin, LIMIT_MS);
		if (w % 2)
			daemon_started(&daemon_);
	}
	ok(n == 0 && pace_is_quick(&pace), "who waited is served within %d ms of the post, with a daemon and without", LIMIT_MS);
	note("%.3f ms at most", (double)pace.worst_ns / 1e6);
	n = 0;
	for (int w = 0; w < WAITERS; w++)
		n += actor_do(&waiter[w], act_check, 0, NULL).r != 0;
	ok(n == 0 && lost(1) == 0, "and all hold what they hold");
}

/* Holders and waiters die while no daemon is there. */
static void test_deaths_meanwhile(void)
{
	struct result r = { .r = -1 };
	uint64_t begin;

	for (int i = 0; i < 2; i++)
		actor_send(&holder[i], act_wait, 0, NULL);
	for (int i = 0; i < 2; i++)
		asleep(holder[i].pid);
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&waiter[0], SIGKILL); /* holds what holder 0 waits for */
	actor_kill(&waiter[1], SIGTERM);
	daemon_started(&daemon_);
	begin = now_ns();
	for (int i = 0; i < 2; i++) {
		bool came = actor_result(&holder[i], PATIENCE_MS, &r);

		ok(came && r.r == 0, "a holder that died without a daemon gives way when there is one (result %d, %.3f ms)", r.r,
		   r.at_ns < begin ? 0 : (double)(r.at_ns - begin) / 1e6);
	}
}

/* --- Idle --- */

/* Over all threads of the process. */
static long wakeups(pid_t pid)
{
	char path[400], text[4096], *at;
	struct dirent *e;
	long n = 0;
	DIR *d;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, e->d_name);
		read_file(path, text, sizeof text);
		at = strstr(text, "\nvoluntary_ctxt_switches:");
		n += at ? atol(at + strlen("\nvoluntary_ctxt_switches:")) : 0;
	}
	if (d)
		closedir(d);
	return n;
}

/* Again where there was something: what a busy machine has put off. A daemon that does not sleep does so each time. */
static void test_idle(void)
{
	long before = 0, after = -1;

	for (int tries = 0; after != before && tries < 10; tries++) {
		nap_ns(500 * MS);
		before = wakeups(daemon_.pid);
		nap_ns(3000 * MS);
		after = wakeups(daemon_.pid);
	}
	ok(before > 0 && after == before, "with %d holds of %d clients and nobody waiting the daemon sleeps for three seconds (%ld)",
	   HOLDERS * EACH, HOLDERS + WAITERS - 2, after - before);
}

/* --- Stopped --- */

static int pass_often(struct stage *s, uint64_t n)
{
	int r = 0;

	while (n-- && r == 0)
		r = act_pass(s, 0);
	return r;
}

static void stopped(struct actor *a, const char *name)
{
	actor_begin(a);
	if (name && actor_do(a, act_open, 0, name).r)
		give_up("an actor opens %s", name);
}

static void test_stopped(void)
{
	struct actor busy, busy2, opener, taker, victim, heir;
	uint64_t begin, resumed;
	struct result r[3];
	bool early;

	stopped(&busy, "stop/busy");
	stopped(&busy2, "stop/busy");
	stopped(&opener, NULL);
	stopped(&taker, "stop/fresh");
	stopped(&victim, "stop/victim");
	stopped(&heir, "stop/victim");
	actor_do(&busy, act_pass, 0, NULL);
	actor_do(&victim, act_wait, 0, NULL);

	kill(daemon_.pid, SIGSTOP);
	begin = now_ns();
	actor_send(&busy, pass_often, 100000, NULL);
	actor_send(&busy2, pass_often, 100000, NULL);
	ok(actor_result(&busy, PATIENCE_MS, &r[0]) && actor_result(&busy2, PATIENCE_MS, &r[1]) && r[0].r == 0 && r[1].r == 0,
	   "while the daemon is stopped two processes pass through a cached lock a hundred thousand times each");
	note("%.1f ms", (double)(now_ns() - begin) / 1e6);
	struct pace woken = { 0 };
	bool good = true;
	for (int tries = 0; good && !woken.quick && tries < 10; tries++) {
		actor_do(&busy, act_wait, 0, NULL);
		actor_send(&busy2, act_wait, 0, NULL);
		good = asleep(busy2.pid);
		begin = now_ns();
		actor_do(&busy, act_post, 0, NULL);
		good &= actor_result(&busy2, PATIENCE_MS, &r[0]) && r[0].r == 0;
		pace_took(&woken, r[0].at_ns - begin, LIMIT_MS);
		actor_do(&busy2, act_post, 0, NULL);
	}
	ok(good && woken.quick, "and a sleeper is woken by the holder's post");

	actor_send(&heir, act_wait, 0, NULL);
	asleep(heir.pid);
	actor_kill(&victim, SIGKILL);
	actor_send(&opener, act_open, 0, "stop/other");
	actor_send(&taker, act_wait, 0, NULL);
	nap_ns(STOP_MS * MS);
	early = actor_result(&opener, 0, &r[0]) || actor_result(&taker, 0, &r[1]) || actor_result(&heir, 0, &r[2]);
	ok(!early, "whoever needs the daemon waits: an open, a first acquisition, a waiter whose holder has died");
	resumed = now_ns();
	kill(daemon_.pid, SIGCONT);
	memset(r, 0xff, sizeof r);
	actor_result(&opener, PATIENCE_MS, &r[0]);
	actor_result(&taker, PATIENCE_MS, &r[1]);
	actor_result(&heir, PATIENCE_MS, &r[2]);
	for (int i = 0; i < 3; i++)
		ok(r[i].r == 0, "%s is served when it goes on (%d, %.3f ms)",
		   i == 0 ? "the open" : i == 1 ? "the first acquisition" : "the waiter", r[i].r,
		   (double)(r[i].at_ns - resumed) / 1e6);
	ok(lost(1) == 0, "and nothing is lost");
	actor_kill(&busy, SIGKILL);
	actor_kill(&busy2, SIGKILL);
	actor_kill(&opener, SIGKILL);
	actor_kill(&taker, SIGKILL);
	actor_kill(&heir, SIGKILL);
}

static void test_end(void)
{
	for (int p = 0; p < HOLDERS; p++) {
		actor_do(&holder[p], post_many, p < WAITERS ? 1 : 0, NULL);
		actor_kill(&holder[p], SIGKILL);
	}
	for (int w = 0; w < WAITERS; w++)
		actor_kill(&waiter[w], SIGKILL);
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; (status_number("names") || status_number("clients")) && now_ns() < until;)
		nap_ns(10 * MS);
	ok(status_number("names") == 0 && status_number("clients") == 0, "when all have ended nothing is left of them");
}

int main(void)
{
	harness_begin(110);
	daemon_started(&daemon_);
	gather();
	test_restarts();
	test_waiters_served();
	test_deaths_meanwhile();
	test_idle();
	test_stopped();
	test_end();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
