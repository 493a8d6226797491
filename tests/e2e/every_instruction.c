/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process is killed after each single instruction of wait and post, alone and among others. Each
 * time those who slept already are served, and another process gets the lock: within 100 ms, and with
 * a higher token; where the victim held it and had asked for a lock-delay, after that, and not before.
 *
 * Where all instructions would take too long, every n-th is taken from a random start on; with
 * $DLOCK_CHECK_FULL all of them are.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "step.h"

#define LIMIT_MS   100
#define TRIES      10
#define NAME       "stepped"
#define FRESH      "fresh"
#define DELAY_MS   30u
#define BEFORE     "before"
#define BUDGET_NS  (10000 * MS)          /* for each scene */
#define TIMEOUT_NS (3 * MS)
#define COUNTS     3

/* Who plays: a holder, two who sleep before the victim or behind it, and one who comes after its end. */
static struct actor holder, first, second, next;
static bool holder_holds, first_waits, second_waits;

static struct {
	uint64_t since_ns, worst_ns;
	uint64_t token, before;          /* the highest; and as the present victim began */
	unsigned taken;                  /* how often the lock was taken since then, as far as we know */
	uint64_t delay_ns, killed_ns;    /* it held when it was killed, then: so long nobody is granted the lock */
	long wrong, late, kills;         /* late: served, but not within LIMIT_MS */
} seen;

/* --- The victim --- */

static dlock_t *lock, *before;
static uint64_t timeout_at;

static void open_lock(void)
{
	if (dlock_open(&lock, NAME, NULL))
		_exit(1);
}

static void open_used(void)
{
	open_lock();
	if (dlock_wait(lock) || dlock_post(lock))
		_exit(1);
}

static void open_delayed(void)
{
	dlock_attr_t *a;

	if (dlock_attr_create(&a) || dlock_attr_set_delay_ms(a, DELAY_MS) || dlock_open(&lock, NAME, a) || dlock_wait(lock) || dlock_post(lock))
		_exit(1);
}

static void open_fresh(void)
{
	if (dlock_open(&lock, FRESH, NULL))
		_exit(1);
}

static void open_held(void)
{
	open_lock();
	if (dlock_wait(lock))
		_exit(1);
	step_mark(1);
}

/* The space is known, so all of it goes by memory (proto/hatch.h); and so does the end of a name before it. */
static void open_before(void)
{
	open_lock();
	if (dlock_open(&before, BEFORE, NULL))
		_exit(1);
}

static void use_once(void)
{
	dlock_t *once;

	if (dlock_close(before) || dlock_open(&once, FRESH, NULL) || dlock_wait(once))
		_exit(1);
	step_mark(1);
	if (dlock_post(once) || dlock_close(once))
		_exit(1);
}

/* The mark: how often it has had the lock. */
static void wait_and_post(void)
{
	if (dlock_wait(lock))
		_exit(1);
	step_mark(1);
	if (dlock_post(lock))
		_exit(1);
}

static void post(void)
{
	if (dlock_post(lock))
		_exit(1);
}

static void open_to_time_out(void)
{
	open_used();
	timeout_at = now_ns() + TIMEOUT_NS;
}

static void time_out(void)
{
	struct timespec t = { (time_t)(timeout_at / 1000000000u), (long)(timeout_at % 1000000000u) };

	if (dlock_clockwait(lock, CLOCK_MONOTONIC, &t) == 0) {
		step_mark(1);
		dlock_post(lock);
	}
}

/* --- The others --- */

static void hold(void)
{
	struct result r = actor_do(&holder, act_wait, 0, NULL);

	if (r.r || r.token <= seen.token)
		give_up("the holder holds: %d", r.r);
	seen.token = r.token;
	seen.taken++;
	holder_holds = true;
}

static void let_go(void)
{
	if (!holder_holds)
		return;
	if (actor_do(&holder, act_post, 0, NULL).r)
		give_up("the holder posts");
	holder_holds = false;
	seen.since_ns = now_ns();
}

static void sleep_too(struct actor *a, bool *waits)
{
	actor_send(a, act_pass, 0, NULL);
	if (!asleep(a->pid))
		give_up("one who is to sleep sleeps");
	*waits = true;
}

static void both_sleep(void)
{
	sleep_too(&first, &first_waits);
	sleep_too(&second, &second_waits);
}

static void held_and_waited_for(void)
{
	hold();
	sleep_too(&first, &first_waits);
}

/* The victim sleeps, and somebody behind it; then the victim is woken. */
static void queue_up_and_let_go(void)
{
	sleep_too(&second, &second_waits);
	let_go();
}

/* --- Looking --- */

static void served(const char *who, const struct step *s, const struct result *r, uint64_t above)
{
	uint64_t took = r->at_ns > seen.since_ns ? r->at_ns - seen.since_ns : 0;

	bool early = seen.delay_ns && r->at_ns < seen.killed_ns + seen.delay_ns;
	bool wrong = r->r != 0 || r->token <= above || early, late = took > LIMIT_MS * MS + seen.delay_ns;

	if (wrong || late) {
		note("killed after %ld instructions%s: %s: result %d, token %llx after %llx, %.3f ms%s", s->at,
		     s->blocked ? ", asleep" : "", who, r->r, (unsigned long long)r->token, (unsigned long long)above,
		     (double)took / 1e6, early ? ", before the lock-delay is over" : "");
	}
	seen.wrong += wrong;
	seen.late += late;
	if (r->r < 0)
		give_up("killed after %ld instructions%s: %s sleeps on", s->at, s->blocked ? ", asleep" : "", who);
	if (took > seen.worst_ns)
		seen.worst_ns = took;
	if (r->token > seen.token)
		seen.token = r->token;
	seen.taken++;
}

/* Two of them pass in whatever order. */
static void sleepers_served(const struct step *s)
{
	uint64_t above = seen.token;
	struct result r;

	if (first_waits) {
		r.r = -1;
		actor_result(&first, PATIENCE_MS, &r);
		served("one who slept", s, &r, above);
	}
	if (second_waits) {
		r.r = -1;
		actor_result(&second, PATIENCE_MS, &r);
		served("the other who slept", s, &r, above);
	}
	first_waits = second_waits = false;
}

/* Above all tokens that we have seen, and above the victim's, which we have not. */
static uint64_t token_below(void)
{
	uint64_t n = seen.before + seen.taken;

	return n > seen.token ? n : seen.token;
}

static void next_gets_it(const struct step *s)
{
	struct result r = { .r = -1 };

	seen.since_ns = now_ns();
	actor_send(&next, act_pass, 0, NULL);
	actor_result(&next, PATIENCE_MS, &r);
	served("the next", s, &r, token_below());
}

static void next_opens_it(const struct step *s)
{
	struct result r = { .r = -1 };

	seen.since_ns = now_ns();
	if (actor_do(&next, act_open, 1, FRESH).r)
		give_up("the next opens the name");
	actor_send(&next, act_pass, 1, NULL);
	actor_result(&next, PATIENCE_MS, &r);
	served("the next", s, &r, token_below());
	if (actor_do(&next, act_close, 1, NULL).r)
		give_up("the next closes the name");
}

/* Does it hold the lock, there where it stands? */
static bool is_held(void)
{
	struct result r = actor_do(&next, act_try, 0, NULL);

	if (r.r == EBUSY)
		return true;
	if (r.r || actor_do(&next, act_post, 0, NULL).r)
		give_up("the next tries: %d", r.r);
	seen.taken++;
	return false;
}

/* --- Scenes --- */

struct scene {
	const char *title;
	struct stepper how;
	void (*set_up)(void);            /* when the victim stands before its first instruction */
	void (*check)(const struct step *s);
	bool delayed;                    /* it has asked for a lock-delay */
};

static const struct scene scenes[] = {
	{ "wait and post, alone", { open_used, wait_and_post, NULL }, NULL, next_gets_it, false },
	{ "wait and post, alone, with a lock-delay", { open_delayed, wait_and_post, NULL }, NULL, next_gets_it, true },
	{ "the first acquisition, which asks the daemon", { open_fresh, wait_and_post, NULL }, NULL, next_opens_it, false },
	{ "a name closed, another one opened, used once and closed", { open_before, use_once, NULL }, NULL, next_opens_it, false },
	{ "post, while two sleep", { open_held, post, NULL }, both_sleep, next_gets_it, false },
	{ "wait behind a holder and a sleeper, and post", { open_used, wait_and_post, let_go }, held_and_waited_for, next_gets_it, false },
	{ "wait, being woken, and post, with a sleeper behind", { open_used, wait_and_post, queue_up_and_let_go }, hold,
	  next_gets_it, false },
	{ "wait until the time is over, before a sleeper", { open_to_time_out, time_out, NULL }, held_and_waited_for,
	  next_gets_it, false },
};

/* Returns whether the last instruction slept; *ret_ended: that many are all. */
static bool kill_at(const struct scene *c, long k, bool within, bool *ret_ended)
{
	struct step s;

	seen.before = seen.token;
	seen.taken = 0;
	step_begin(&s, &c->how);
	if (c->set_up)
		c->set_up();
	step_to(&s, k, within);
	*ret_ended = s.ended;
	seen.delay_ns = c->delayed && is_held() ? DELAY_MS * MS : 0;
	seen.killed_ns = now_ns();
	step_kill(&s);
	seen.since_ns = now_ns();
	let_go();
	sleepers_served(&s);
	seen.taken += s.mark != 0;
	c->check(&s);
	seen.kills++;
	return s.last_blocked;
}

/*
 * A wake-up that nobody owes any more comes late each time somebody is killed there; one that the
 * machine has delayed does not. So a place where one was late is tried again.
 */
static bool kill_surely_at(const struct scene *c, long k, bool within, bool *ret_ended)
{
	bool blocked = false;

	for (int tries = 0; tries < TRIES; tries++) {
		long late = seen.late;

		blocked = kill_at(c, k, within, ret_ended);
		if (seen.late == late)
			return blocked;
	}
	seen.wrong++;
	return blocked;
}

/*
 * So many are walked at most. Where stepping is slow there is no end: whoever is stepped comes so late after it was woken that others are
 * woken in its place, and sleeps again.
 */
static long most(void)
{
	return harness.full ? 1000000 : 20000;
}

/* How many there are, and how many to leave out so that it takes no longer than the budget. */
static long count_once(const struct scene *c, long *ret_stride)
{
	struct step s;
	uint64_t begin = now_ns(), begun, ended;
	double one, all;

	step_begin(&s, &c->how);
	if (c->set_up)
		c->set_up();
	begun = now_ns();
	step_to(&s, most(), false);
	ended = now_ns();
	step_kill(&s);
	seen.since_ns = now_ns();
	let_go();
	sleepers_served(&s);
	c->check(&s);
	one = (double)(begun - begin) + (double)(now_ns() - ended);
	all = (double)s.at * (one + (double)(ended - begun) / 2);
	*ret_stride = harness.full ? 1 : (long)(all / (double)BUDGET_NS) + 1;
	return s.at;
}

/* One count may be far too high: whoever was to be woken came too late, and went to sleep again. */
static long count_all(const struct scene *c, long *ret_stride)
{
	long n = 0, stride = 1;

	for (int i = 0; i < COUNTS; i++) {
		long m = count_once(c, &stride);

		if (i == 0 || m < n)
			n = m;
		if (i == 0 || stride < *ret_stride)
			*ret_stride = stride;
	}
	return n;
}

static void play(const struct scene *c)
{
	long stride = 1, n, k;
	bool ended = false, again;
	uint64_t begin = now_ns(), late_ns = 2 * BUDGET_NS;

	memset(&seen, 0, sizeof seen);
	n = count_all(c, &stride);
	note("%s: %ld instructions, of which each %ld.", c->title, n, stride);
	for (k = random_below((uint32_t)stride); !ended && k < most(); k += stride) {
		if (kill_surely_at(c, k, false, &ended) && k > 0)
			kill_surely_at(c, k - 1, true, &again);
		if (!harness.full && now_ns() - begin > late_ns) {
			stride *= 2;             /* something else has come to need the processors: each step waits for it */
			late_ns += BUDGET_NS / 2;
		}
	}
	ok(seen.wrong == 0 && seen.kills > 3, "%s: killed at %ld places; whoever slept or came was served within %d ms",
	   c->title, seen.kills, LIMIT_MS);
	note("%.3f ms at most, %ld late and not again, %.1f s in all", (double)seen.worst_ns / 1e6, seen.late,
	     (double)(now_ns() - begin) / 1e9);
}

static void begin(struct actor *a)
{
	actor_begin(a);
	if (actor_do(a, act_open, 0, NAME).r || actor_do(a, act_pass, 0, NULL).r)
		give_up("an actor opens the lock");
}

/* The handle is one that its parent opened: the first wait attaches a new client. */
static void play_child(void)
{
	static const struct scene child = { "the first wait after a fork, and post", { NULL, wait_and_post, NULL }, NULL,
					    next_gets_it, false };

	open_used();
	play(&child);
}

int main(int argc, char **argv)
{
	struct daemon d = { 0 };

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 3500 : 400);
	daemon_started(&d);
	begin(&holder);
	begin(&first);
	begin(&second);
	begin(&next);
	for (unsigned i = 0; i < sizeof scenes / sizeof *scenes; i++)
		if (argc < 2 || strstr(scenes[i].title, argv[1]))
			play(&scenes[i]);
	if (argc < 2 || strstr("fork", argv[1]))
		play_child();
	daemon_end(&d, SIGTERM);
	return harness_end();
}
