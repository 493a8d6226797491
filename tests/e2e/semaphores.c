/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Semaphores on one node, and across nodes (far.sh): order and weight, resizing, threads, what a crowd of processes that are killed,
 * stopped and served by a daemon that is killed can do to the number of permits (nothing), and what one that scribbles can.
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
#include "dlock.h"
#include "harness.h"
#include "proto/segment.h"
#include "sem_acts.h"

#define CROWD   6
#define PERMITS 3
#define CROWD_MS (harness.full ? 60000 : harness.nodes ? 2000 : 4000)
#define SOON_MS 1500u

static struct daemon daemon_;
static struct pace pace;                 /* of those who come */

/* --- In the actors --- */

static int act_open_of(struct stage *s, uint64_t permits)
{
	return dlock_sem_open(&sem, s->text, (unsigned)permits, NULL);
}

static int act_within(struct stage *s, uint64_t ms_and_n)
{
	struct timespec t;

	(void)s;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)(ms_and_n / 100 % 1000) * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return dlock_sem_clockwait_n(sem, (unsigned)(ms_and_n % 100), CLOCK_MONOTONIC, &t);
}

static int act_resize(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_sem_resize(sem, (unsigned)n);
}

/* 1000 + value, or the error. */
static int act_value(struct stage *s, uint64_t unused)
{
	int v, r = dlock_sem_getvalue(sem, &v);

	(void)s;
	(void)unused;
	return r ? r : 1000 + v;
}

static int act_close_it(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_sem_close(sem);
}

static struct actor a, b, c;

static void curtain_up(const char *name, unsigned permits)
{
	struct actor *all[] = { &a, &b, &c };

	for (unsigned i = 0; i < 3; i++) {
		int r;

		actor_begin(all[i]);
		r = actor_do(all[i], act_open_of, permits, name).r;
		if (r)
			give_up("%s cannot be opened: %s", name, strerror(r));
	}
}

static void curtain_down(void)
{
	actor_kill(&a, SIGKILL);
	actor_kill(&b, SIGKILL);
	actor_kill(&c, SIGKILL);
}

static bool does(struct actor *who, actor_fn fn, uint64_t arg, int wanted)
{
	int r = actor_do(who, fn, arg, NULL).r;

	if (r != wanted)
		note("an answer is %d instead of %d", r, wanted);
	return r == wanted;
}

static bool waits(struct actor *who, uint64_t n)
{
	actor_send(who, act_take_n, n, NULL);
	return asleep(who->pid);
}

static bool comes(struct actor *who)
{
	struct result r = { .r = -1 };
	uint64_t since = now_ns();
	bool good = actor_result(who, PATIENCE_MS, &r) && r.r == 0;

	pace_took(&pace, r.at_ns > since ? r.at_ns - since : 0, SOON_MS);
	return good;
}

static bool comes_not(struct actor *who)
{
	struct result r;

	return !actor_result(who, 150, &r);
}

static bool value_is(int wanted)
{
	int r = -1;

	if (harness.nodes)               /* one of many says how many it has cached */
		return true;
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; r != 1000 + wanted && now_ns() < until;) {
		r = actor_do(&c, act_value, 0, NULL).r;
		if (r != 1000 + wanted)
			nap_ns(10 * MS);
	}
	if (r != 1000 + wanted)
		note("the value is %d instead of %d", r - 1000, wanted);
	return r == 1000 + wanted;
}

static void story_weights(void)
{
	bool good;

	curtain_up("weights", 5);
	good = does(&a, act_take_n, 3, 0) && value_is(2);
	good &= does(&b, act_try_n, 3, EAGAIN) && does(&b, act_try_n, 2, 0) && does(&c, act_try_n, 1, EAGAIN);
	good &= does(&b, act_within, 20 * 100 + 1, ETIMEDOUT) && does(&b, act_take_n, 6, EINVAL) && does(&b, act_give_n, 3, EPERM);
	ok(good, "permits are taken by weight, all or nothing; a try and a limit find too few");
	good = waits(&c, 4) && does(&a, act_give_n, 3, 0) && comes_not(&c);
	good &= does(&a, act_try_n, 1, EAGAIN);          /* somebody waits, though for more */
	good &= does(&b, act_give_n, 1, 0) && comes(&c);
	ok(good, "who waits for many is served before those who come later and want few");
	good = does(&c, act_close_it, 0, EBUSY) && does(&c, act_give_n, 4, 0) && does(&b, act_give_n, 1, 0) && value_is(5);
	ok(good, "in the end all are there; the last handle of a holder cannot be closed");
	curtain_down();
}

static void story_timed_out(void)
{
	struct result r = { .r = -1 }, next = { .r = -1 };
	uint64_t until;
	bool good;

	curtain_up("left", 2);
	good = does(&a, act_take_n, 1, 0);
	until = now_ns() + 400 * MS;
	actor_send(&b, act_within, 400 * 100 + 2, NULL);
	asleep_within(b.pid, 200);
	actor_send(&c, act_take_n, 1, NULL);
	good &= actor_result(&b, PATIENCE_MS, &r) && r.r == ETIMEDOUT;
	good &= actor_result(&c, PATIENCE_MS, &next) && next.r == 0 && next.at_ns >= until;
	ok(good, "one who gives up waiting for many makes room at once for those behind");
	curtain_down();
}

static void story_resize(void)
{
	bool good;

	curtain_up("size", 2);
	good = does(&a, act_take_n, 2, 0) && waits(&b, 1) && does(&c, act_resize, 3, 0) && comes(&b);
	ok(good, "more permits: who waits notices at once");
	good = does(&c, act_resize, 1, 0) && does(&c, act_try_n, 1, EAGAIN) && does(&a, act_give_n, 2, 0) && does(&a, act_try_n, 1, EAGAIN) &&
	       value_is(0) && does(&b, act_give_n, 1, 0) && value_is(1) && does(&c, act_try_n, 1, 0);
	ok(good, "fewer than are held: nothing is granted, nor taken again, until enough have been posted");
	good = waits(&b, 1) && does(&c, act_resize, 4, 0) && comes(&b) && waits(&a, 4) && does(&c, act_resize, 3, 0);
	struct result r = { .r = -1 };
	good &= actor_result(&a, PATIENCE_MS, &r) && r.r == EINVAL;
	ok(good, "who waits for more than there are any more is told so at once");
	curtain_down();
}

/* --- Idle permits are anybody's --- */

static void story_idle(void)
{
	bool good = true;

	curtain_up("idle", 2);
	for (int i = 0; i < 20 && good; i++) {
		struct actor *who[] = { &a, &b, &c };

		good = does(who[i % 3], act_try_n, 2, 0) && does(who[i % 3], act_give_n, 2, 0);
	}
	ok(good, "what one process has cached, and does not hold, another takes by a try");
	struct pace taken = { 0 };
	for (int i = 0; i < 10 && good && !taken.quick; i++) {
		good = does(&a, act_take_n, 2, 0) && does(&a, act_give_n, 2, 0);
		kill(a.pid, SIGSTOP);
		uint64_t since = now_ns();
		good &= does(&b, act_take_n, 2, 0);
		pace_took(&taken, now_ns() - since, 500);
		kill(a.pid, SIGCONT);
		good &= waits(&a, 1) && does(&b, act_give_n, 2, 0) && comes(&a) && does(&a, act_give_n, 1, 0);
	}
	good &= taken.quick > 0;
	ok(good, "... also from one that is stopped, within a moment");
	curtain_down();
}

/* --- Threads --- */

static int in_now, in_most;

static void *one_thread(void *arg)
{
	intptr_t bad = 0;

	for (int i = 0; i < 3000 && !bad; i++) {
		if (dlock_sem_wait(arg)) {
			bad = 1;
			break;
		}
		int n = __atomic_add_fetch(&in_now, 1, __ATOMIC_SEQ_CST);
		if (n > in_most)
			in_most = n;
		if (i % 64 == 0)
			sched_yield();
		__atomic_sub_fetch(&in_now, 1, __ATOMIC_SEQ_CST);
		bad |= dlock_sem_post(arg) != 0;
	}
	return (void *)bad;
}

static int act_threads(struct stage *s, uint64_t n)
{
	pthread_t t[8];
	intptr_t bad = 0;

	(void)s;
	for (uint64_t i = 0; i < n; i++)
		pthread_create(&t[i], NULL, one_thread, sem);
	for (uint64_t i = 0; i < n; i++) {
		void *r;

		pthread_join(t[i], &r);
		bad |= (intptr_t)r;
	}
	return bad ? -2 : in_most;
}

static void story_threads(void)
{
	struct result r = { .r = -1 }, q = { .r = -1 };

	curtain_up("threads", 2);
	actor_send(&a, act_threads, 8, NULL);
	actor_send(&b, act_threads, 3, NULL);
	bool good = actor_result(&a, PATIENCE_MS, &r) && actor_result(&b, PATIENCE_MS, &q) && r.r >= 1 && r.r <= 2 && q.r >= 1 && q.r <= 2 && value_is(2);
	ok(good, "eight threads of one process and three of another share two permits (%d and %d at most at a time)", r.r, q.r);
	curtain_down();
}

/* --- A crowd --- */

struct seat {
	uint64_t in;                     /* so many permits it holds, or is about to give back; low half of it the pid */
	uint64_t rounds;
};

static struct seat *seats;

static void play(struct seat *seat, bool greedy)
{
	dlock_attr_t *attr;
	dlock_sem_t *s;

	end_with_parent();
	setenv("DLOCK_RUN_DIR", run_dir_of((unsigned)(seat - seats)), 1);
	if (dlock_attr_create(&attr) || dlock_attr_set_wait_daemon(attr, true) || dlock_sem_open(&s, "crowd", PERMITS, attr))
		_exit(1);
	for (;;) {
		unsigned n = 1 + random_below(greedy ? PERMITS : 1);

		if (dlock_sem_wait_n(s, n))
			_exit(2);
		__atomic_store_n(&seat->in, n, __ATOMIC_SEQ_CST);
		if (random_below(50) == 0)
			nap_ns(random_below(2000) * 1000);
		__atomic_store_n(&seat->in, 0, __ATOMIC_SEQ_CST);
		if (dlock_sem_post_n(s, n))
			_exit(3);
		seat->rounds++;
	}
}

static pid_t begin(unsigned i)
{
	pid_t pid = fork();

	if (pid == 0)
		play(&seats[i], i % 2);
	return pid;
}

/* Those who say that they are in hold that many at this moment: what is read last may have ended before, so it is read twice. */
static unsigned together(void)
{
	unsigned n = 0;
	uint64_t in[CROWD];

	for (unsigned i = 0; i < CROWD; i++)
		in[i] = __atomic_load_n(&seats[i].in, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < CROWD; i++) {
		uint64_t rounds = seats[i].rounds;

		n += in[i] && in[i] == __atomic_load_n(&seats[i].in, __ATOMIC_SEQ_CST) && rounds == seats[i].rounds ? (unsigned)in[i] : 0;
	}
	return n;
}

static bool ended_well(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (WIFEXITED(status))
		note("one of the crowd has ended with %d", WEXITSTATUS(status));
	return !WIFEXITED(status);
}

static uint64_t rounds_now(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < CROWD; i++)
		n += __atomic_load_n(&seats[i].rounds, __ATOMIC_RELAXED);
	return n;
}

static void story_crowd(void)
{
	pid_t pid[CROWD];
	uint64_t until = now_ns() + CROWD_MS * MS, rounds = 0;
	unsigned kills = 0, stops = 0, restarts = 0;
	bool good = true;

	seats = shared_memory(CROWD * sizeof *seats);
	for (unsigned i = 0; i < CROWD; i++)
		pid[i] = begin(i);
	for (unsigned turn = 0; good && (now_ns() < until || ((rounds + rounds_now() <= 1000 || !restarts) && now_ns() < until + PATIENCE_MS * MS)); turn++) {
		unsigned i = random_below(CROWD);

		nap_ns(random_below(20) * MS);
		if (turn % 20 == 19) {
			daemon_end(&daemon_, SIGKILL);
			nap_ns(random_below(30) * MS);
			daemon_started(&daemon_);
			restarts++;
		} else if (turn % 3 == 0) {
			kill(pid[i], SIGSTOP);
			nap_ns(random_below(30) * MS);
			kill(pid[i], SIGCONT);
			stops++;
		} else {
			kill(pid[i], SIGKILL);
			good &= ended_well(pid[i]);
			seats[i].in = 0;
			rounds += seats[i].rounds;
			seats[i].rounds = 0;
			pid[i] = begin(i);
			kills++;
		}
	}
	for (unsigned i = 0; i < CROWD; i++) {
		kill(pid[i], SIGKILL);
		good &= ended_well(pid[i]);
		rounds += seats[i].rounds;
	}
	curtain_up("crowd", PERMITS);
	good &= value_is(PERMITS) && does(&a, act_take_n, PERMITS, 0) && value_is(0) && does(&a, act_give_n, PERMITS, 0);
	ok(good && rounds > 1000 && kills && stops && restarts, "after %u kills, %u stops and %u deaths of the daemon all permits are there (%llu rounds)", kills, stops, restarts,
	   (unsigned long long)rounds);
	curtain_down();
}

/* --- A look at whether more are in than may be --- */

static bool all_came_through(void)
{
	for (unsigned i = 0; i < CROWD; i++)
		if (__atomic_load_n(&seats[i].rounds, __ATOMIC_RELAXED) <= 20)
			return false;
	return true;
}

static void story_together(void)
{
	pid_t pid[CROWD];
	unsigned most = 0;
	uint64_t until = now_ns() + 1500 * MS;
	bool good = true, all;

	seats = shared_memory(CROWD * sizeof *seats);
	for (unsigned i = 0; i < CROWD; i++)
		pid[i] = begin(i);
	while (now_ns() < until || ((most < 2 || !all_came_through()) && now_ns() < until + PATIENCE_MS * MS))
		for (unsigned k = 0; k < 2000; k++) {
			unsigned n = together();

			most = n > most ? n : most;
		}
	all = all_came_through();
	for (unsigned i = 0; i < CROWD; i++) {
		kill(pid[i], SIGKILL);
		good &= ended_well(pid[i]);
	}
	ok(good && all && most >= 2 && most <= PERMITS, "no more than %d are ever in (%u seen), and everybody comes through again and again", PERMITS, most);
}

/* --- Free ones, and daemons that die --- */

#define DEATHS (harness.full ? 300 : harness.nodes ? 2 : 20)

static int free_open(dlock_sem_t **ret, unsigned value)
{
	dlock_attr_t *attr;
	int r = dlock_attr_create(&attr);

	if (r)
		return r;
	dlock_attr_set_wait_daemon(attr, true);
	dlock_attr_set_free(attr, true);
	r = dlock_sem_open(ret, "free", value, attr);
	dlock_attr_destroy(attr);
	return r;
}

/* Each round adds one, and has it open for itself: so it comes from the store and goes there again. */
static int act_add(struct stage *s, uint64_t rounds)
{
	int r = 0;

	(void)s;
	for (uint64_t i = 0; i < rounds && r == 0; i++) {
		r = free_open(&sem, 0);
		for (unsigned k = 0; k < 3 && r == 0; k++) {
			r = dlock_sem_post(sem);
			if (r == 0)
				r = dlock_sem_wait(sem);
		}
		if (r == 0)
			r = dlock_sem_post(sem);
		if (r == 0)
			r = dlock_sem_close(sem);
	}
	return r;
}

static int act_free_value(struct stage *s, uint64_t unused)
{
	int v = -1, r = free_open(&sem, 0);

	(void)s;
	(void)unused;
	if (r == 0)
		r = dlock_sem_getvalue(sem, &v);
	if (r == 0)
		r = dlock_sem_close(sem);
	return r ? -r : v;
}

static void begin_to_die(unsigned at)
{
	char fault[40];
	char *environment[] = { fault, NULL };

	snprintf(fault, sizeof fault, "DLOCK_FAULT_AT=%u", at);
	daemon_start(&daemon_, built("tests/e2e/dlockd-fault"), NULL, environment);      /* it may be dead by now */
}

/* What an actor says, whenever the daemon dies meanwhile. */
static bool result_over_death(struct actor *who, struct result *ret, unsigned *died)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; now_ns() < until;) {
		if (actor_result(who, 20, ret))
			return true;
		if (daemon_ended(&daemon_, 0)) {
			daemon_started(&daemon_);
			++*died;
		}
	}
	return false;
}

static void story_free(void)
{
	struct actor who[2];
	unsigned rounds = 0, died = 0;
	bool good = true;
	int value;

	actor_begin(&who[0]);
	actor_begin(&who[1]);
	for (unsigned i = 0; i < (unsigned)DEATHS && good; i++) {
		struct result r = { .r = -1 };

		daemon_end(&daemon_, harness.nodes ? SIGKILL : SIGTERM);         /* whoever stops hands over first, which takes its time */
		begin_to_die(1 + random_below(160));
		for (unsigned k = 0; k < 2; k++)
			actor_send(&who[k], act_add, 3, NULL);
		for (unsigned k = 0; k < 2; k++) {
			good &= result_over_death(&who[k], &r, &died) && r.r == 0;
			rounds += 3;
		}
		if (!good)
			note("what was to be added was not: %d", r.r);
	}
	daemon_end(&daemon_, harness.nodes ? SIGKILL : SIGTERM);
	daemon_started(&daemon_);
	value = good ? actor_do(&who[0], act_free_value, 0, NULL).r : -1;
	if (value != (int)rounds)
		note("the value is %d instead of %u", value, rounds);
	ok(good && value == (int)rounds && died > (harness.nodes ? 0 : 3), "a free semaphore loses and gains nothing when daemons die between any two of their stores (%u of them)",
	   died);
	actor_kill(&who[0], SIGKILL);
	actor_kill(&who[1], SIGKILL);
}

int main(void)
{
	harness_begin(120);
	daemon_started(&daemon_);
	story_weights();
	story_timed_out();
	story_resize();
	story_idle();
	story_threads();
	story_together();
	story_crowd();
	story_free();
	ok(pace_is_quick(&pace), "who is to come comes soon (%u of %u times within %u ms)", pace.quick, pace.times, SOON_MS);
	daemon_done(&daemon_);
	return harness_end();
}
