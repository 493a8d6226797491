/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What must hold for everything that can be held (kinds.h): whoever holds it and ends, in whatever way, at whatever
 * instruction, is followed within LIMIT_MS by whoever waits, after the lock-delay if there is one; whoever is only stopped, or has forked, or whose daemon went and came back,
 * still has it; and whoever waits and is stopped or dies holds nobody up.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "kinds_stage.h"
#include "step.h"

#define STEP_NS   ((harness.full ? 20000 : 600) * MS)    /* for each row and scene of single instructions */
#define STOPS     (harness.full ? 300 : 25)
#define RESTARTS  2
#define TRIES     10

static struct daemon daemon_;
static struct actor holder, first, second, next;

static struct shared {
	uint64_t ending_ns;
	int child[2];                    /* what the child was told */
} *shared;

/* --- In the actors --- */

static void end_now(void)
{
	__atomic_store_n(&shared->ending_ns, now_ns(), __ATOMIC_RELEASE);
}

static int end_kill(struct stage *s, uint64_t arg)
{
	(void)s;
	end_now();
	return kill(getpid(), SIGKILL) + (int)arg;
}

static int end_exit(struct stage *s, uint64_t arg)
{
	(void)s;
	end_now();
	exit((int)arg);
}

static int end_exec(struct stage *s, uint64_t arg)
{
	(void)s;
	(void)arg;
	end_now();
	execlp("sleep", "sleep", "60", NULL);
	return -1;
}

static void *take_and_end(void *arg)
{
	int *r = arg;

	*r = scene.kind->holds.take(scene.thing);
	return NULL;
}

/* It takes the thing itself: the holder is a thread that ends. */
static int end_thread(struct stage *s, uint64_t arg)
{
	pthread_t t;
	int r = -1;

	(void)s;
	(void)arg;
	pthread_create(&t, NULL, take_and_end, &r);
	pthread_join(t, NULL);
	end_now();
	return r;
}

/* The child holds nothing, and its end takes nothing away. */
static int fork_and_look(struct stage *s, uint64_t arg)
{
	pid_t pid = fork();

	(void)s;
	(void)arg;
	if (pid == 0) {
		shared->child[0] = scene.kind->holds.check(scene.thing);
		shared->child[1] = scene.kind->holds.give(scene.thing);
		exit(0);
	}
	return pid > 0 && waitpid(pid, NULL, 0) == pid ? scene.kind->holds.check(scene.thing) : -1;
}

/* --- The stage --- */

/* Everybody opens what nobody has used yet. */
static void curtain_up(void)
{
	scene_new();
	enters(&holder);
	enters(&first);
	enters(&second);
	enters(&next);
}

static void curtain_down(void)
{
	actor_kill(&holder, SIGKILL);
	actor_kill(&first, SIGKILL);
	actor_kill(&second, SIGKILL);
	actor_kill(&next, SIGKILL);
}

static bool passes(const char *who, uint64_t above)
{
	uint64_t since = now_ns();

	actor_send(&next, act_take_and_give, 1, NULL);
	return served(&next, since, above, who);
}

/* Those who were served in this story; the next one begins. */
static bool is_quick(void)
{
	bool quick = pace_is_quick(&served_pace);

	if (!quick)
		note("%s: %u of %u in time", scene.kind->name, served_pace.quick, served_pace.times);
	served_pace = (struct pace){ 0 };
	return quick;
}

/* --- Ends of the holder --- */

static bool ends_so(actor_fn end, bool in_thread)
{
	uint64_t token = 0;
	struct result r;
	bool good;

	curtain_up();
	if (!in_thread) {
		token = takes(&holder);
		waits(&first, act_take_and_give);
	}
	actor_send(&holder, end, 0, NULL);
	if (in_thread) {
		good = actor_result(&holder, PATIENCE_MS, &r) && r.r == 0;
		actor_send(&first, act_take_and_give, 1, NULL);
	} else {
		while (!__atomic_load_n(&shared->ending_ns, __ATOMIC_ACQUIRE))
			nap_ns(MS / 10);
		good = true;
	}
	good &= (in_thread ? served : inherits)(&first, shared->ending_ns, token, "who waits for one that ends");
	good &= passes("who comes after one that has ended", token);
	shared->ending_ns = 0;
	curtain_down();
	return good;
}

static void story_ends(void)
{
	static const struct {
		actor_fn end;
		const char *how;
	} ends[] = { { end_kill, "is killed" }, { end_exit, "exits" }, { end_exec, "becomes another program" } };
	bool good = true;

	for (unsigned i = 0; i < 3; i++)
		if (!ends_so(ends[i].end, false)) {
			note("%s: the holder %s", scene.kind->name, ends[i].how);
			good = false;
		}
	if (scene.kind->of_thread)
		good &= ends_so(end_thread, true);
	ok(is_quick() && good, "%s: whoever holds it and ends, by a signal, exit or exec%s, is followed by who waits", scene.kind->name,
	   scene.kind->of_thread ? ", or as a thread" : "");
}

/* --- What takes nothing away --- */

static bool is_busy(const char *when)
{
	int r = actor_do(&next, act_try_it, 1, NULL).r;

	if (r != scene.kind->busy)
		note("%s, %s: a try says %d", scene.kind->name, when, r);
	return r == scene.kind->busy;
}

static void story_keeps(void)
{
	uint64_t token;
	bool good;

	curtain_up();
	token = takes(&holder);
	good = is_busy("held");
	shared->child[0] = shared->child[1] = -1;
	good &= actor_do(&holder, fork_and_look, 0, NULL).r == 0;
	good &= shared->child[0] == EPERM && shared->child[1] == EPERM;
	if (!good)
		note("%s: the child is told %d and %d", scene.kind->name, shared->child[0], shared->child[1]);
	good &= is_busy("after a child of the holder has ended");
	kill(holder.pid, SIGSTOP);
	waits(&first, act_take_and_give);
	nap_ns(150 * MS);
	good &= is_busy("while the holder is stopped");
	kill(holder.pid, SIGCONT);
	good &= actor_do(&holder, act_still, 0, NULL).r == 0;
	uint64_t since = now_ns();
	good &= actor_do(&holder, act_give, 0, NULL).r == 0;
	good &= served(&first, since, token, "who waits for one that was stopped");
	good &= actor_do(&holder, act_give, 0, NULL).r == EPERM;
	ok(is_quick() && good, "%s: neither a fork nor a stop takes it from its holder; given back once, it is his no more", scene.kind->name);
	curtain_down();
}

/* --- Who waits and is stopped, or dies --- */

/* Around the moment of its wake-up. */
static bool waiter_dies(unsigned turn)
{
	uint64_t token = takes(&holder), since;
	struct actor victim;
	struct result r;

	enters(&victim);
	waits(&victim, act_take_and_give);
	waits(&first, act_take_and_give);
	since = now_ns();
	actor_send(&holder, act_give, 0, NULL);
	for (uint64_t until = now_ns() + random_below(turn % 2 ? 200000 : 20000); now_ns() < until;)
		;
	actor_kill(&victim, SIGKILL);
	actor_result(&holder, PATIENCE_MS, &r);
	return served(&first, since, token, "who waits beside one that dies") && passes("who comes later", token);
}

/* Stopped in its sleep, so that it cannot have what is given back. */
static bool waiter_stops(void)
{
	uint64_t token = takes(&holder), since;
	bool good;

	waits(&second, act_take_and_give);
	waits(&first, act_take_and_give);
	kill(second.pid, SIGSTOP);
	nap_ns(5 * MS);
	since = now_ns();
	good = actor_do(&holder, act_give, 0, NULL).r == 0;
	good &= served(&first, since, token, "who waits behind one that is stopped");
	good &= passes("who comes later", token);
	since = now_ns();
	kill(second.pid, SIGCONT);
	return served(&second, since, token, "who was stopped") && good;
}

static void story_waiters(void)
{
	bool good = true;

	curtain_up();
	for (unsigned i = 0; i < (unsigned)STOPS && good; i++)
		good = waiter_dies(i);
	for (unsigned i = 0; i < (unsigned)STOPS / 5 && good; i++)
		good = waiter_stops();
	ok(is_quick() && good, "%s: one who waits and dies (%d times), or is stopped (%d), holds nobody up", scene.kind->name, STOPS, STOPS / 5);
	curtain_down();
}

/* --- The daemon goes and comes back --- */

static void story_restart(void)
{
	bool good = true;

	curtain_up();
	for (unsigned i = 0; i < RESTARTS; i++) {
		uint64_t token = takes(&holder), since;

		waits(&first, act_take_and_give);
		daemon_end(&daemon_, i % 2 ? SIGTERM : SIGKILL);
		good &= actor_do(&holder, act_still, 0, NULL).r == 0;
		daemon_started(&daemon_);
		good &= actor_do(&holder, act_still, 0, NULL).r == 0;
		good &= is_busy("after a restart");
		since = now_ns();
		good &= actor_do(&holder, act_give, 0, NULL).r == 0;
		good &= served(&first, since, token, "who waited since before the restart");
		good &= passes("who comes after it", token);
		/* One that dies while there is no daemon. */
		token = takes(&holder);
		waits(&second, act_take_and_give);
		daemon_end(&daemon_, SIGKILL);
		actor_kill(&holder, SIGKILL);
		daemon_started(&daemon_);
		good &= served(&second, now_ns(), token, "who waits for one that died without a daemon");
		enters(&holder);
	}
	ok(is_quick() && good, "%s: the daemon comes and goes: held is held, who waits is served, also after one that died meanwhile", scene.kind->name);
	curtain_down();
}

/* --- Killed after each single instruction --- */

static bool holder_has;
static uint64_t since_;

static void victim_opens(void)
{
	if (scene.kind->open(&scene.thing, scene.name))
		_exit(1);
}

static void victim_has_used_it(void)
{
	victim_opens();
	if (scene.kind->holds.take(scene.thing) || scene.kind->holds.give(scene.thing))
		_exit(1);
}

static void victim_takes_and_gives(void)
{
	if (scene.kind->holds.take(scene.thing) || scene.kind->holds.give(scene.thing))
		_exit(1);
}

static void lets_go(void)
{
	if (holder_has && actor_do(&holder, act_give, 1, NULL).r)
		give_up("%s: the holder gives back", scene.kind->name);
	holder_has = false;
	since_ = now_ns();
}

/* So that the victim has to wait as well. */
static void somebody_has_it(void)
{
	struct result r = actor_do(&holder, act_take, 1, NULL);

	if (r.r)
		give_up("%s: the other holder: %s", scene.kind->name, strerror(r.r));
	holder_has = true;
}

/* What the other, who comes after the end, is told. Again if it was late, since the machine may have had other work. */
static bool killed_after(const struct stepper *how, bool contended, long n)
{
	struct step s;
	bool good;

	for (unsigned try = 0; try < TRIES; try++) {
		step_begin(&s, how);
		if (contended) {
			somebody_has_it();
			step_past_sleep(&s);
		}
		step_to(&s, s.at + n, false);
		if (contended && holder_has)
			lets_go();
		since_ = now_ns();
		step_kill(&s);
		good = passes("who comes after one that was killed at an instruction", 0);
		if (good && !served_late)
			return true;
		note("%s: it was killed after %ld instructions", scene.kind->name, n);
		if (!good)
			return false;
	}
	return false;
}

static long through(const struct stepper *how, bool contended)
{
	struct step s;
	long awake;

	step_begin(&s, how);
	if (contended) {
		somebody_has_it();
		step_past_sleep(&s);
	}
	awake = s.at;
	step_to(&s, 1000000, false);
	if (holder_has)
		lets_go();
	step_kill(&s);
	if (!s.ended)
		give_up("%s: it does not come through", scene.kind->name);
	return s.at > awake ? s.at - awake : 1;
}

/* As many places as there is time for, evenly; at least one. */
static void story_instructions(const struct stepper *how, bool contended, const char *title)
{
	uint64_t begun = now_ns(), until = begun + STEP_NS;
	long n, all, kills = 0, every = 1;
	bool good = true;

	curtain_up();
	all = through(how, contended);
	do {
		good = killed_after(how, contended, 1 + (long)random_below((uint32_t)all));
		kills++;
	} while (good && kills < 3 && now_ns() < until);
	if (now_ns() < until)
		every = (long)((double)(now_ns() - begun) / (double)(kills + 1) * (double)all / (double)(until - now_ns())) + 1;
	for (n = (long)random_below((uint32_t)every); n <= all && good && (harness.full || now_ns() < until); n += every, kills++)
		good = killed_after(how, contended, n);
	ok(good, "%s: %s (%ld instructions, killed after %ld of them)", scene.kind->name, title, all, kills);
	curtain_down();
}

int main(void)
{
	static const struct stepper alone = { victim_has_used_it, victim_takes_and_gives, NULL },
		new = { victim_opens, victim_takes_and_gives, NULL }, behind = { victim_has_used_it, victim_takes_and_gives, lets_go };

	harness_begin(600);
	shared = shared_memory(sizeof *shared);
	daemon_started(&daemon_);
	for (unsigned i = 0; i < kinds_count; i++) {
		scene.kind = &kinds[i];
		story_ends();
		story_keeps();
		story_waiters();
		story_restart();
		story_instructions(&alone, false, "killed at any instruction of taking and giving back");
		story_instructions(&new, false, "... of the first time");
		story_instructions(&behind, true, "... after another has given it back");
	}
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
