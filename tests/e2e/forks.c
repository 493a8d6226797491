/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A signal handler forks, after any instruction of a call, and the child goes on with that call when the handler has returned. What it does
 * there must not be done in its parent's name: the parent has what it asked for, and gives it back; the child has come
 * to it by itself, or holds nothing; and when both are through, and live on, nobody holds anything. For everything that can
 * be held (kinds.h), and for latches, conditions and barriers.
 *
 * The places are taken at random, as many as there is time for.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barrier_acts.h"
#include "harness.h"
#include "kinds_stage.h"
#include "step.h"
#include "things_acts.h"

#define SCENE_NS ((harness.full ? 20000 : 700) * MS)
#define SOON_MS  PATIENCE_MS
#define LATE_MS  300                     /* whoever has been told, and sleeps so long, has not been told */
#define ALONE_MS 20                      /* then the child of a party waits for others to come */
#define COUNT    1000000
#define FIRST    400                     /* so many instructions, about, until a party sleeps */

enum { PARENT, CHILD };

static struct daemon daemon_;
static struct actor next, other;
static long at_, wrong;

static struct shared {
	struct told {
		int phase, take, give;   /* phase: of what it has done */
	} told[2];
	int go;
} *shared;

/* --- In the two --- */

static int who;

static void fork_here(int signo)
{
	(void)signo;
	if (fork() == 0) {
		who = CHILD;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(200);
	}
}

static void told(int take, int give)
{
	struct told *t = &shared->told[who];

	t->take = take;
	t->give = give;
	__atomic_fetch_add(&t->phase, 1, __ATOMIC_RELEASE);
}

static void handle(void)
{
	who = PARENT;
	signal(SIGUSR1, fork_here);
}

static void opens_and_uses(void)
{
	handle();
	if (scene.kind->open(&scene.thing, scene.name) || scene.kind->holds.take(scene.thing) || scene.kind->holds.give(scene.thing))
		_exit(1);
}

/* Once, and when both are through again. */
static void twice(int (*does_take)(void), int (*does_give)(void))
{
	for (int i = 0; i < 2; i++) {
		int take = does_take(), give = does_give();

		step_mark(1);
		told(take, give);
		while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
			nap_ns(MS / 10);
	}
}

static int kind_take(void)
{
	return scene.kind->holds.take(scene.thing);
}

static int kind_give(void)
{
	return scene.kind->holds.give(scene.thing);
}

static void takes_and_gives(void)
{
	twice(kind_take, kind_give);
}

/* --- The audience --- */

static bool comes_to(int whose, int phase, unsigned ms)
{
	for (uint64_t until = now_ns() + ms * MS; __atomic_load_n(&shared->told[whose].phase, __ATOMIC_ACQUIRE) < phase; nap_ns(MS / 20))
		if (now_ns() > until)
			return false;
	return true;
}

static void expect(bool good, const char *what)
{
	const struct told *p = &shared->told[PARENT], *c = &shared->told[CHILD];

	if (good)
		return;
	note("forked after %ld: %s. The parent: %d, %d (%d); the child: %d, %d (%d)", at_, what, p->take, p->give, p->phase, c->take, c->give,
	     c->phase);
	wrong++;
}

static void take_in(struct step *s)
{
	step_kill(s);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/* The most that a child may be told that finds itself in its parent's call. */
static bool nothing_here(int r)
{
	return r == 0 || r == EPERM || r == ESTALE;
}

/* Through n instructions of the first call, and then it forks. False: it was through before. */
static bool forks_after(struct step *s, const struct stepper *how, long n)
{
	at_ = n;
	memset(shared, 0, sizeof *shared);
	crowd->in = 0;
	step_begin(s, how);
	while (s->at < n && !s->mark)
		step_to(s, s->at + 1, false);
	if (s->mark)
		take_in(s);
	else
		step_detach(s, SIGUSR1);
	return !s->mark;
}

static void both_again(void)
{
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
}

/* --- What can be held --- */

/* All of a semaphore's permits are free. */
static int act_all_free(struct stage *s, uint64_t unused)
{
	int n = 0, r = dlock_sem_getvalue(scene.thing, &n);

	(void)s;
	(void)unused;
	return r ? r : n == 3 ? 0 : EDOM;
}

static void nobody_holds(const char *what)
{
	int r = actor_do(&next, act_take_and_give, 1, NULL).r;

	if (r == 0 && !strcmp(scene.kind->word, "sem"))
		r = actor_do(&next, act_all_free, 0, NULL).r;
	expect(r == 0, what);
}

static bool forked_after(const struct stepper *how, long n)
{
	const struct told *p = &shared->told[PARENT], *c = &shared->told[CHILD];
	struct step s;

	if (!forks_after(&s, how, n))
		return true;
	expect(comes_to(PARENT, 1, SOON_MS) && comes_to(CHILD, 1, SOON_MS), "somebody waits on");
	expect(p->take == 0 && p->give == 0, "the parent goes on");
	expect(c->take == 0 && nothing_here(c->give), "the child begins anew, or has nothing");
	nobody_holds("somebody holds it afterwards");
	both_again();
	expect(comes_to(PARENT, 2, SOON_MS) && comes_to(CHILD, 2, SOON_MS), "somebody waits for ever the next time");
	expect(!p->take && !p->give && !c->take && !c->give, "the next time both have it");
	nobody_holds("somebody holds it after the next time");
	take_in(&s);
	return wrong == 0;
}

static long instructions(const struct stepper *how)
{
	struct step s;

	memset(shared, 0, sizeof *shared);
	step_begin(&s, how);
	while (!s.mark)
		step_to(&s, s.at + 1, false);
	step_kill(&s);
	return s.at;
}

/* As many places as there is time for. */
static void story(const struct stepper *how, bool (*play)(const struct stepper *how, long n), const char *what, const char *property)
{
	uint64_t until = now_ns() + SCENE_NS;
	long all, places = 0;

	wrong = 0;
	all = instructions(how);
	do
		places++;
	while (play(how, random_below((uint32_t)all)) && now_ns() < until);
	ok(wrong == 0, "%s: forked after %ld of %ld instructions, %s", what, places, all, property);
}

static void story_kind(void)
{
	static const struct stepper how = { opens_and_uses, takes_and_gives, NULL };

	scene_new();
	enters(&next);
	story(&how, forked_after, scene.kind->name, "parent and child have no more than they hold");
	actor_kill(&next, SIGKILL);
}

/* --- A latch: each counts for itself, once a call --- */

static int count_once(void)
{
	return dlock_latch_countdown(mine.latch, 1);
}

static int nothing(void)
{
	return 0;
}

static void latch_opens(void)
{
	handle();
	if (latch_opened("forked", 0))
		_exit(1);
}

static void latch_counts(void)
{
	twice(count_once, nothing);
}

static long latch_value(void)
{
	struct result r = actor_do(&next, l_value, 0, NULL);

	if (r.r)
		give_up("a latch's count: %s", strerror(r.r));
	return (long)r.token;
}

static bool latch_forked_after(const struct stepper *how, long n)
{
	const struct told *c = &shared->told[CHILD];
	long before, then;
	struct step s;

	before = latch_value();
	if (!forks_after(&s, how, n))
		return true;
	expect(comes_to(PARENT, 1, SOON_MS) && comes_to(CHILD, 1, SOON_MS), "somebody waits on");
	then = latch_value();
	expect(shared->told[PARENT].take == 0 && nothing_here(c->take), "what the two are told");
	expect(then == before - 1 || (then == before - 2 && c->take == 0), "the count is that of those who counted");
	both_again();
	expect(comes_to(PARENT, 2, SOON_MS) && comes_to(CHILD, 2, SOON_MS), "somebody waits for ever the next time");
	expect(!shared->told[PARENT].take && !c->take && latch_value() == then - 2, "the next time both have counted");
	take_in(&s);
	return wrong == 0;
}

static void story_latch(void)
{
	static const struct stepper how = { latch_opens, latch_counts, NULL };

	story(&how, latch_forked_after, "a latch", "parent and child have counted no more than they know of");
}

/* --- A condition: who waits is woken by a signal of his own, and has the lock then --- */

static void cond_opens(void)
{
	handle();
	if (cond_opened("forked", false))
		_exit(1);
}

static int lock_and_wait(void)
{
	return cond_waited(NULL);
}

static int unlock(void)
{
	return dlock_post(mine.lock);
}

static void cond_waits(void)
{
	twice(lock_and_wait, unlock);
}

static bool signalling;

/* It sleeps: perhaps before it has come. */
static void signal_when_in(void)
{
	signalling = true;
	actor_send(&next, c_signal_one, 1, NULL);
}

static bool signal_is_given(void)
{
	struct result r = { .r = 0 };

	if (signalling && !actor_result(&next, SOON_MS, &r))
		give_up("a signal");
	signalling = false;
	return r.r == 0;
}

/* Whoever of the two waits is signalled, as often as need be. */
static bool both_come_to(int phase)
{
	expect(signal_is_given(), "the first signal");
	for (uint64_t until = now_ns() + SOON_MS * MS; now_ns() < until;) {
		if (comes_to(PARENT, phase, ALONE_MS) && comes_to(CHILD, phase, ALONE_MS))
			return true;
		if (actor_do(&next, c_signal, 0, NULL).r)
			return false;
	}
	return false;
}

/* A signal for each of those who are in, and no more. */
static void each_has_a_signal(unsigned n, const char *what)
{
	expect(actor_do(&next, c_are_in, n, NULL).r == 0, what);
	for (unsigned i = 0; i < n; i++)
		expect(actor_do(&next, c_signal, 0, NULL).r == 0, "a signal");
}

static bool cond_forked_after(const struct stepper *how, long n)
{
	const struct told *p = &shared->told[PARENT], *c = &shared->told[CHILD];
	struct result r = { .r = -1 };
	struct step s;

	signal_is_given();
	if (!forks_after(&s, how, n))
		return true;
	expect(both_come_to(1), "somebody waits on");
	expect(p->take == 0 && p->give == 0, "the parent goes on");
	expect(nothing_here(c->take) && nothing_here(c->give), "the child begins anew, or has nothing");
	crowd->in = 0;
	both_again();
	each_has_a_signal(2, "both wait the next time");
	expect(comes_to(PARENT, 2, SOON_MS) && comes_to(CHILD, 2, SOON_MS), "a signal is lost");
	expect(!p->take && !p->give && !c->take && !c->give, "the next time both have waited");
	crowd->in = 0;
	actor_send(&other, c_wait, 0, NULL);
	each_has_a_signal(1, "another waits");
	expect(actor_result(&other, SOON_MS, &r) && r.r == 0, "another's signal is lost");
	take_in(&s);
	return wrong == 0;
}

static void story_cond(void)
{
	static const struct stepper how = { cond_opens, cond_waits, signal_when_in };

	story(&how, cond_forked_after, "a condition", "each who waits has a signal, and has had the lock");
}

/* --- Barriers of two --- */

static void party_opens(void)
{
	handle();
	if (bar_opened("forked", 2, false))
		_exit(1);
}

static void party_comes(void)
{
	int r = dlock_barrier_wait(bar);

	step_mark(1);
	told(r, 0);
}

static bool waits_there[2];              /* other, next */

static void comes_too(int who)
{
	waits_there[who] = true;
	actor_send(who ? &next : &other, b_wait, 0, NULL);
}

/*
 * Until the two have passed, and nobody waits any more. How many come by themselves nobody knows: the child may have passed with its parent,
 * or with another in its parent's place, or not have come yet. So whenever nobody gets on, one more comes.
 */
static bool all_pass(bool forks)
{
	struct actor *const spare[] = { &other, &next };
	const uint64_t until = now_ns() + SOON_MS * MS;
	bool good = true;

	while (good && now_ns() < until) {
		bool through = comes_to(PARENT, 1, ALONE_MS) && (!forks || comes_to(CHILD, 1, ALONE_MS));
		int idle = -1;

		for (int i = 0; i < 2; i++) {
			struct result r = { .r = 0 };

			if (waits_there[i] && actor_result_unless_asleep(spare[i], ALONE_MS, &r))
				waits_there[i] = false;
			if (!waits_there[i])
				idle = i;
			good &= passed(r.r);
		}
		if (through && !waits_there[0] && !waits_there[1])
			return good;
		if (idle >= 0)
			comes_too(idle);
	}
	return false;
}

static bool party_forked_after(long n, bool last)
{
	static const struct stepper how = { party_opens, party_comes, NULL };
	struct result a = { .r = -1 }, b = { .r = -1 };
	struct step s;
	bool forks;

	at_ = n;
	memset(shared, 0, sizeof *shared);
	step_begin(&s, &how);
	if (last) {
		comes_too(0);
		if (!asleep(other.pid))
			give_up("a party sleeps");
	}
	while (s.at < n && !s.mark)
		step_to(&s, s.at + 1, false);
	forks = !s.mark;
	step_detach(&s, forks ? SIGUSR1 : 0);
	if (!last)
		comes_too(0);
	expect(all_pass(forks), "somebody waits on");
	expect(passed(shared->told[PARENT].take) && (!forks || passed(shared->told[CHILD].take)), "both have passed");
	actor_send(&other, b_wait, 0, NULL);
	actor_send(&next, b_wait, 0, NULL);
	expect(actor_result(&other, SOON_MS, &a) && actor_result(&next, SOON_MS, &b) && passed(a.r) && passed(b.r) && a.r + b.r == DLOCK_SERIAL,
	       "the next round, of two others");
	take_in(&s);
	return wrong == 0;
}

static void story_barrier(bool last, const char *title)
{
	uint64_t until = now_ns() + SCENE_NS;
	long places = 0;

	wrong = 0;
	do
		places++;
	while (party_forked_after(random_below(FIRST), last) && now_ns() < until);
	ok(wrong == 0, "a barrier: %s forks after %ld of some instructions: it, its child and all others pass", title, places);
}

/* Two of them, who have nothing left from what was played before. */
static void audience_begin(actor_fn open, uint64_t arg)
{
	actor_begin(&next);
	actor_begin(&other);
	if (actor_do(&next, open, arg, "forked").r || actor_do(&other, open, arg, "forked").r)
		give_up("the audience opens what is played");
}

static void audience_end(void)
{
	actor_kill(&next, SIGKILL);
	actor_kill(&other, SIGKILL);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "";

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 400 : 100);
	shared = shared_memory(sizeof *shared);
	crowd = shared_memory(sizeof *crowd);
	daemon_started(&daemon_);
	for (unsigned i = 0; i < kinds_count; i++) {
		scene.kind = &kinds[i];
		if (strstr(scene.kind->word, only))
			story_kind();
	}
	if (strstr("barrier", only)) {
		audience_begin(b_open, 2);
		story_barrier(true, "the last party");
		story_barrier(false, "the first party");
		audience_end();
	}
	if (strstr("latch", only)) {
		audience_begin(l_open, COUNT);
		story_latch();
		audience_end();
	}
	if (strstr("condition", only)) {
		audience_begin(c_open, false);
		story_cond();
		audience_end();
	}
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
