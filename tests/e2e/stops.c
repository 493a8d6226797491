/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whoever stops, dies or gives up in the middle of handing over holds nobody up: a waiter after the
 * wake-up was his, a releaser between his store and his wake-up, an heir, one whose time is over, or
 * who is cancelled, at the very moment of the grant. The next one runs within 100 ms, and the lock
 * never belongs to one who has been told that he did not get it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "step.h"
#include "../../include/proto/hatch.h"

#define NAME     "stops"
#define LIMIT_MS 100u
#define TRIES    10                      /* where it was late: the machine may have had other work */
#define TURNS    (harness.full ? 3000 : 300)

static struct actor holder, first, second, next;
static uint64_t highest, floor_;         /* the tokens that were seen; and when this turn began */

struct look {
	uint64_t since_ns;
	struct pace pace;
	long wrong, late, turns;
};

static void saw(const struct result *r)
{
	if (r->r == 0 && r->token > highest)
		highest = r->token;
}

/* Who got the lock in this turn, by a token that is higher than all of before. It may be late; not each time. */
static void judge(struct look *l, const char *who, bool came, const struct result *r)
{
	uint64_t took = came && r->at_ns > l->since_ns ? r->at_ns - l->since_ns : 0;

	bool quick = pace_took(&l->pace, took, LIMIT_MS), right = came && r->r == 0 && r->token > floor_;

	if (!quick || !right)
		note("turn %ld: %s: %s, result %d, token %llx after %llx, %.3f ms", l->turns, who, came ? "came" : "sleeps on",
		     r->r, (unsigned long long)r->token, (unsigned long long)floor_, (double)took / 1e6);
	l->wrong += !right;
	l->late += !quick;
	if (!came)
		give_up("%s sleeps on", who);
	saw(r);
}

static void told(const struct look *l, const char *title)
{
	ok(l->wrong == 0 && l->turns > 0 && pace_is_quick(&l->pace), "%s (%ld times)", title, l->turns);
	note("%ld late, %.3f ms at most", l->late, (double)l->pace.worst_ns / 1e6);
}

static void begin(struct actor *a)
{
	actor_begin(a);
	if (actor_do(a, act_open, 0, NAME).r || actor_do(a, act_pass, 0, NULL).r)
		give_up("an actor opens the lock");
}

static void hold(void)
{
	struct result r = actor_do(&holder, act_wait, 0, NULL);

	if (r.r || r.token <= highest)
		give_up("the holder holds: %d, token %llx", r.r, (unsigned long long)r.token);
	highest = floor_ = r.token;
}

static void sleeps(struct actor *a, actor_fn fn, uint64_t arg)
{
	actor_send(a, fn, arg, NULL);
	if (!asleep(a->pid))
		give_up("one who is to sleep sleeps");
}

static void spend(uint64_t ns)
{
	for (uint64_t until = now_ns() + ns; now_ns() < until;)
		;
}

static void next_passes(struct look *l)
{
	struct result r = { .r = -1 };
	bool came;

	floor_ = highest;                /* whoever else got it, did so before */
	l->since_ns = now_ns();
	actor_send(&next, act_pass, 0, NULL);
	came = actor_result(&next, PATIENCE_MS, &r);
	judge(l, "one who comes later", came, &r);
}

/* Nobody has come: then the lock must not be free, or it has been free for a moment only. */
static void must_be_held(struct look *l)
{
	struct result r = actor_do(&next, act_try, 0, NULL);

	if (r.r == EBUSY)
		return;
	note("turn %ld: the lock is free, and whoever sleeps sleeps on (%d)", l->turns, r.r);
	l->wrong += r.r != 0;
	l->late++;
	pace_took(&l->pace, 2 * LIMIT_MS * MS, LIMIT_MS);
	saw(&r);
	if (r.r == 0)
		actor_do(&next, act_post, 0, NULL);
}

/* --- Waiters that stop or die around their wake-up --- */

/* The post is under way in another process, while this one stops the waiter somewhere near its wake-up. */
static void test_stopped_waiter(int signo)
{
	struct look l = { 0 };
	struct result r;
	long got = 0;

	for (l.turns = 0; l.turns < TURNS; l.turns++) {
		struct actor waiter;
		bool came;

		begin(&waiter);
		hold();
		sleeps(&waiter, act_wait, 0);
		sleeps(&second, act_pass, 0);
		actor_send(&holder, act_post, 0, NULL);
		spend(random_below(60) * (MS / 1000));
		kill(waiter.pid, signo);
		l.since_ns = now_ns();
		if (actor_result(&waiter, 0, &r)) {
			/* It has got it, and keeps it while it is stopped: that is its right. */
			got++;
			kill(waiter.pid, SIGCONT);
			l.since_ns = now_ns();
			saw(&r);
			actor_kill(&waiter, SIGKILL);
			came = actor_result(&second, PATIENCE_MS, &r);
			judge(&l, "the one behind", came, &r);
		} else if (!actor_result_unless_asleep(&second, LIMIT_MS, &r)) {
			/* It has taken the lock, and was stopped before it could say so. */
			got++;
			must_be_held(&l);
			l.since_ns = now_ns();
			actor_kill(&waiter, SIGKILL);
			came = actor_result(&second, PATIENCE_MS, &r);
			judge(&l, "the one behind", came, &r);
		} else {
			judge(&l, "the one behind", true, &r);
			actor_kill(&waiter, SIGKILL);
		}
		next_passes(&l);
		actor_result(&holder, PATIENCE_MS, &r);
	}
	note("%ld of them had the lock by then", got);
	told(&l, signo == SIGSTOP ? "a waiter stopped around its wake-up holds up nobody"
				  : "a waiter killed around its wake-up holds up nobody");
}

/* --- A process that is led to an instruction and stopped there --- */

static dlock_t *lock;

static void open_lock(void)
{
	if (dlock_open(&lock, NAME, NULL) || dlock_wait(lock) || dlock_post(lock))
		_exit(1);
}

static void open_held(void)
{
	open_lock();
	if (dlock_wait(lock))
		_exit(1);
}

static void post(void)
{
	dlock_post(lock);
}

static void wait_and_post(void)
{
	if (dlock_wait(lock) == 0) {
		step_mark(1);
		dlock_post(lock);
		step_mark(2);
	}
}

/* The victim waits and sleeps, and one behind it; then the victim is woken. */
static bool victim_woken;

static void wake_victim(void)
{
	victim_woken = true;
	sleeps(&second, act_pass, 0);
	if (actor_do(&holder, act_post, 0, NULL).r)
		give_up("the holder posts");
}

static void stop_releaser_at(struct look *l, long k, bool *ret_ended)
{
	static const struct stepper how = { open_held, post, NULL };
	struct result r[2];
	struct step s;
	uint64_t held;
	bool came;

	floor_ = highest;
	step_begin(&s, &how);
	sleeps(&first, act_pass, 0);
	sleeps(&second, act_pass, 0);
	step_to(&s, k, false);
	*ret_ended = s.ended;
	/* Stopped here for good: either it has not given the lock back, or the next one has it soon. */
	l->since_ns = now_ns();
	came = actor_result_unless_asleep(&first, LIMIT_MS, &r[0]);
	if (!came) {
		must_be_held(l);
		held = now_ns();
		step_kill(&s);
		l->since_ns = now_ns();
		came = actor_result(&first, PATIENCE_MS, &r[0]);
		l->late += came && r[0].at_ns < held;
		if (*ret_ended)
			note("the post was over, and the sleeper slept on"), l->late++;
	}
	judge(l, "a sleeper", came, &r[0]);
	came = actor_result(&second, PATIENCE_MS, &r[1]);
	judge(l, "the other sleeper", came, &r[1]);
	if (s.pid)
		step_kill(&s);
	next_passes(l);
	l->turns++;
}

/* Again where it was late: each time, and it is wrong. */
static void at_place(struct look *l, void (*stop_at)(struct look *l, long k, bool *ret_ended), long k, bool *ret_ended)
{
	for (int tries = 0; tries < TRIES; tries++) {
		long late = l->late;

		stop_at(l, k, ret_ended);
		if (l->late == late)
			return;
	}
	l->wrong++;
}

static void test_stopped_releaser(void)
{
	struct look l = { 0 };
	bool ended = false;

	for (long k = 0; !ended; k++)
		at_place(&l, stop_releaser_at, k, &ended);
	told(&l, "a releaser stopped after each instruction of a contended post holds up nobody, once the lock is free");
}

static long holding;                     /* how many have been stopped with the lock in hand */

static void stop_heir_at(struct look *l, long k, bool *ret_ended)
{
	static const struct stepper how = { open_lock, wait_and_post, wake_victim };
	struct result r;
	struct step s;
	bool came;

	step_begin(&s, &how);
	victim_woken = false;
	hold();
	step_to(&s, k, false);
	*ret_ended = s.ended;
	if (!victim_woken) {
		/* It stands before its sleep: W may be set already. */
		sleeps(&second, act_pass, 0);
		actor_do(&holder, act_post, 0, NULL);
	}
	l->since_ns = now_ns();
	came = actor_result_unless_asleep(&second, LIMIT_MS, &r);
	if (!came) {
		/* It may be that it has taken the lock and not come back yet; a kill tells. */
		holding++;
		must_be_held(l);
		step_kill(&s);
		l->since_ns = now_ns();
		came = actor_result(&second, PATIENCE_MS, &r);
		l->late += *ret_ended;
	}
	judge(l, "the one behind", came, &r);
	if (s.pid)
		step_kill(&s);
	next_passes(l);
	l->turns++;
}

/*
 * Where stepping is slow there is no end: whoever is stepped comes so late after it was woken that others are woken in its place, and sleeps
 * again. So it is walked for so long.
 */
#define WALK_NS (20000 * MS)

static void test_stopped_heir(void)
{
	struct look l = { 0 };
	bool ended = false;
	long stride = harness.full ? 1 : 9;
	uint64_t begin = now_ns();

	holding = 0;
	for (long k = random_below((uint32_t)stride); !ended && (harness.full || now_ns() - begin < WALK_NS); k += stride)
		at_place(&l, stop_heir_at, k, &ended);
	note("%ld of the stops were with the lock in hand", holding);
	ok(holding < l.turns / 2, "most places in a wait are without the lock in hand");
	told(&l, "a waiter or heir stopped after its instructions holds up nobody, unless it has the lock");
}

/* --- Time-outs and cancels that meet the grant --- */

struct edge {
	struct look look;
	int error;                       /* of a wait that does not get it */
	long refused, got;
	int64_t off_ns;                  /* so much later is the post, that half of them get it */
};

#define NUDGE_NS 20000

/* A wait that may end with `error` just when the holder posts, every other time with another behind it. */
static void edge_turn(struct edge *e, actor_fn wait, uint64_t arg, uint64_t post_at)
{
	struct look *l = &e->look;
	struct result r, r2 = { .r = -1 };
	bool came;

	hold();
	actor_send(&first, wait, arg, NULL);
	if (l->turns % 2)
		actor_send(&second, act_pass, 0, NULL);
	post_at += (uint64_t)e->off_ns;
	while (now_ns() < post_at)
		;
	actor_do(&holder, act_post, 0, NULL);
	l->since_ns = now_ns();
	if (!actor_result(&first, PATIENCE_MS, &r))
		give_up("a wait that may end with %s ends", strerrorname_np(e->error));
	e->off_ns += r.r == 0 ? NUDGE_NS : -NUDGE_NS;
	if (r.r == 0) {
		e->got++;
		if (actor_do(&first, act_check, 0, NULL).r || actor_do(&first, act_post, 0, NULL).r)
			l->wrong++;
	} else if (r.r == e->error) {
		e->refused++;
		if (actor_do(&first, act_check, 0, NULL).r != EPERM)
			l->wrong++;
	} else {
		l->wrong++;
	}
	if (l->turns % 2) {
		came = actor_result(&second, PATIENCE_MS, &r2);
		judge(l, "the one behind", came, &r2);
	}
	saw(&r);
	next_passes(l);
	l->turns++;
}

static bool both_sides(const struct edge *e)
{
	note("%ld ended with %s, %ld got it", e->refused, strerrorname_np(e->error), e->got);
	return e->refused > e->look.turns / 20 && e->got > e->look.turns / 20;
}

static bool more_turns(const struct edge *e, long turns)
{
	return e->look.turns < turns || (e->look.turns < 10 * turns && (e->refused <= e->look.turns / 20 || e->got <= e->look.turns / 20));
}

static void test_timeouts(void)
{
	struct edge e = { .error = ETIMEDOUT };

	while (more_turns(&e, TURNS * 3)) {
		uint64_t at = now_ns() + 2 * MS;
		int64_t off = (int64_t)random_below(400) - 200;

		/* The post comes at the moment when the time is over, give or take 200 µs. */
		edge_turn(&e, act_timed, at, at - 20 * (MS / 1000) + (uint64_t)(off * (int64_t)(MS / 1000)));
	}
	ok(both_sides(&e), "times out on both sides of the grant");
	told(&e.look, "a time that is over at the moment of the grant leaves nothing behind");
}

static void *cancel_later(void *arg)
{
	struct stage *s = arg;
	unsigned seed = (unsigned)s->token;

	spend(1500 * (MS / 1000) + (unsigned)rand_r(&seed) % 400 * (MS / 1000));
	dlock_cancel(s->lock[0]);
	return NULL;
}

static int wait_cancelled(struct stage *s, uint64_t seed)
{
	struct stage copy = *s;
	pthread_t t;
	int r;

	copy.token = seed;
	pthread_create(&t, NULL, cancel_later, &copy);
	r = act_wait(s, 0);
	pthread_join(t, NULL);
	return r;
}

static void test_cancels(void)
{
	struct edge e = { .error = ECANCELED };

	while (more_turns(&e, TURNS * 2)) {
		uint64_t at = now_ns() + (1500 + random_below(400)) * (MS / 1000);

		edge_turn(&e, wait_cancelled, random_below(1 << 30), at);
	}
	ok(both_sides(&e), "cancels on both sides of the grant");
	told(&e.look, "a cancel at the moment of the grant leaves nothing behind");
}

/* He has said that he would ring for all who open names now (proto/hatch.h), and does not. */
static void test_stopped_ringer(void)
{
	char path[300];
	struct pace pace = { 0 };
	void *base;
	int fd;

	snprintf(path, sizeof path, "%s/run/shm/default", harness.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	base = mmap(NULL, SEG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (fd < 0 || base == MAP_FAILED)
		give_up("%s can be mapped", path);
	for (int i = 0; i < 10; i++) {
		while (__atomic_load_n(seg_awake(base), __ATOMIC_SEQ_CST) != SEG_ASLEEP)
			nap_ns(MS);
		__atomic_store_n(seg_belled(base), 1, __ATOMIC_SEQ_CST);
		uint64_t begin = now_ns();
		if (actor_do(&next, act_open, 1, "rung for").r || actor_do(&next, act_close, 1, NULL).r)
			give_up("the name is opened and closed");
		pace_took(&pace, now_ns() - begin, 2000);
	}
	ok(pace_is_quick(&pace), "whoever opens a name while one is stopped who was to ring for him rings himself soon");
	note("%.1f ms at most", (double)pace.worst_ns / 1e6);
	munmap(base, SEG_SIZE);
	close(fd);
}

int main(int argc, char **argv)
{
	struct daemon d = { 0 };
	const char *only = argc > 1 ? argv[1] : "";

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 1700 : 170);
	daemon_started(&d);
	begin(&holder);
	begin(&first);
	begin(&second);
	begin(&next);
	if (strstr("kill", only))
		test_stopped_waiter(SIGKILL);
	if (strstr("stop", only))
		test_stopped_waiter(SIGSTOP);
	if (strstr("releaser", only))
		test_stopped_releaser();
	if (strstr("heir", only))
		test_stopped_heir();
	if (strstr("ringer", only))
		test_stopped_ringer();
	if (strstr("timeout", only))
		test_timeouts();
	if (strstr("cancel", only))
		test_cancels();
	daemon_end(&d, SIGTERM);
	return harness_end();
}
