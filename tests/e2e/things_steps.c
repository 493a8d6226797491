/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that uses what nobody holds is killed, or stopped, after a single instruction of its call (cut.h):
 *
 *   a latch            is counted down once, or not at all, and never later; whoever waits for the last goes on
 *   a condition        a signal is had by one who has the lock again, or by another; the lock is free
 *   ids                none is given out twice, nor one below what was given out before, also by a successor of the only user
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cut.h"
#include "things_acts.h"

#define COUNT    1000000
#define IDS      3
#define IDS_MAX  100000

static struct daemon daemon_;
static struct shared {
	unsigned n_ids;
	uint64_t id[IDS_MAX];            /* all that were given out */
} *shared;

/* --- What they do --- */

static int i_take(struct stage *s, uint64_t n)
{
	int r = 0;

	(void)s;
	for (; n && r == 0; n--) {
		uint64_t id, until = now_ns() + PATIENCE_MS * MS;

		/* It waits for a second only, and the daemon may be given no processor for so long. */
		while ((r = dlock_id_next(mine.gen, &id)) == ENOTCONN && now_ns() < until)
			;
		if (r == 0)
			shared->id[__atomic_fetch_add(&shared->n_ids, 1, __ATOMIC_RELAXED) % IDS_MAX] = id;
	}
	return r;
}

/* --- What is stepped through --- */

static void must(int r)
{
	if (r)
		_exit(1);
}

static void prepare_latch(void)
{
	must(latch_opened(thing_name, COUNT));
}

static void latch_counts(void)
{
	must(dlock_latch_countdown(mine.latch, 1));
	step_mark(1);
}

static void prepare_cond(void)
{
	must(cond_opened("things", true));
}

static void cond_waits(void)
{
	must(cond_waited(NULL));
	step_mark(1);
	must(dlock_post(mine.lock));
}

static void cond_signals(void)
{
	must(dlock_cond_signal(mine.cond));
	step_mark(1);
}

static void prepare_ids(void)
{
	must(ids_opened("things"));
}

static void ids_are_taken(void)
{
	must(i_take(NULL, IDS));
	step_mark(1);
}

static void ids_are_opened(void)
{
	must(ids_opened("things"));
	must(i_take(NULL, IDS));
	step_mark(1);
}

/* --- Latches --- */

static long left = COUNT;

static long latch_value(void)
{
	struct result r = actor_do(&first, l_value, 0, thing_name);

	if (r.r)
		give_up("a latch's count: %d", r.r);
	return (long)r.token;
}

/* What the dead has asked for is carried out with what others ask for, or not at all. */
static void latch_one(struct step *s, long n)
{
	long v, then;

	step_to(s, n, false);
	cut(s);
	v = latch_value();
	expect(v == left - 1 || (v == left && !s->mark), "the count, of", v, left);
	must_do(&first, l_count, 1, "another counts");
	goes_on(s);
	then = latch_value();
	expect(then == left - 2 || (then == left - 1 && !s->mark && !stops), "the count after another's, of", then, left);
	must_do(&first, l_count, 1, "another counts");
	left = latch_value();
	expect(left == then - 1, "the count at the end, of", left, then);
}

static void latch_last(struct step *s, long n)
{
	static unsigned number;
	long v;

	snprintf(thing_name, sizeof thing_name, "last-%u", number++);
	must_do(&first, l_open, 1, "a latch");
	must_do(&second, l_open, 1, "a latch");
	waits(&second, l_wait);
	step_begin(s, s->how);
	step_to(s, n, false);
	cut(s);
	v = latch_value();
	expect(v == 0 || (v == 1 && !s->mark), "the count", v, s->mark);
	if (v)
		must_do(&first, l_count, 1, "another counts");
	is_served("who waits for the last");
	goes_on(s);
	expect(latch_value() == 0, "the count at the end", latch_value(), 0);
	must_do(&first, l_unlink, 0, "unlinked");
}

/* --- Conditions --- */

/* Somebody waits, and a signal wakes him; nor is the lock lost. */
static void cond_works(void)
{
	must_do(&first, c_pass, 0, "the lock is free");
	crowd->in = 0;
	actor_send(&second, c_wait, 0, thing_name);
	must_do(&first, c_signal_one, 1, "a signal");
	is_served("who waits after that");
}

static void signal_when_in(void)
{
	actor_send(&first, c_signal_one, 1, thing_name);
}

/* From taking the lock to giving it back. */
static void cond_waiter(struct step *s, long n)
{
	int r = -1;

	step_to(s, n, false);
	cut(s);
	__atomic_fetch_add(&crowd->in, 1, __ATOMIC_RELAXED);    /* so that the signal is given in any case */
	if (s->told)
		expect(told(&first, LONG_MS, &r) && r == 0, "the signal for one who was cut", r, 0);
	cond_works();
}

/* One who is stopped with the lock keeps it. */
static int c_pass_soon(struct stage *s, uint64_t ms)
{
	const struct timespec abs = abs_in_ms(ms);
	int r = lock_taken(dlock_clockwait(mine.lock, CLOCK_MONOTONIC, &abs));

	(void)s;
	return r ? r : dlock_post(mine.lock);
}

/* Stopped without the lock: others use both. It may be before them in the line, and then a signal is its own. */
static void cond_works_beside_it(void)
{
	int r = -1;

	crowd->in = 0;
	actor_send(&second, c_wait, 0, thing_name);
	must_do(&first, c_signal_one, 1, "a signal");
	if (told(&second, WHILE_MS, &r)) {
		expect(r == 0, "who waits beside one that is stopped", r, 0);
		return;
	}
	must_do(&first, c_signal, 0, "another signal");
	is_served("who waits behind one that is stopped");
}

/* What was signalled before it was stopped has its signal still; else it is given one. */
static void cond_stopped(struct step *s, long n)
{
	bool signalled;
	int r = -1;

	crowd->in = 0;
	step_to(s, n, false);
	cut(s);
	signalled = s->told && told(&first, WHILE_MS, &r);
	expect(!signalled || r == 0, "a signal", r, 0);
	if (signalled == s->told && does(&first, c_pass_soon, WHILE_MS) == 0)
		cond_works_beside_it();
	kill(s->pid, SIGCONT);
	if (s->told && !signalled)
		expect(told(&first, LONG_MS, &r) && r == 0, "the signal for one who was stopped with the lock", r, 0);
	for (unsigned i = 0; !s->told && i < LONG_MS / WHILE_MS && !step_comes_through(s, WHILE_MS); i++)
		must_do(&first, c_signal, 0, "a signal for who goes on");
	expect(step_comes_through(s, LONG_MS), "who was stopped does not come through", s->told, signalled);
	step_kill(s);
	cond_works();
}

static void signal_now(void)
{
	must_do(&first, c_signal, 0, "a signal");
}

static void cond_signalled(struct step *s, long n)
{
	int r = -1;
	bool came;

	crowd->in = 0;
	crowd->died_inside = false;
	step_begin_free(s, s->how);
	must_do(&first, c_are_in, 1, "one waits");
	actor_send(&second, c_wait, 0, thing_name);
	must_do(&first, c_are_in, 2, "two wait");
	step_attach(s);
	step_past_sleep(s);
	step_to(s, s->at + n, false);
	cut(s);
	if (!stops)
		must_do(&first, c_pass, 0, "the lock is free");
	came = told(&second, stops || s->mark || crowd->died_inside ? 1 : LONG_MS, &r);
	expect(came || stops || s->mark || crowd->died_inside, "a signal for one who was killed before it had the lock", r, 0);
	if (!came)
		must_do(&first, c_signal, 0, "another signal");
	goes_on(s);
	expect((came || told(&second, LONG_MS, &r)) && r == 0, "who waits beside one that was signalled and cut", r, s->mark);
	cond_works();
}

static void cond_signaller(struct step *s, long n)
{
	int r = -1;

	crowd->in = 0;
	actor_send(&second, c_wait, 0, thing_name);
	must_do(&first, c_are_in, 1, "one waits");
	step_to(s, n, false);
	cut(s);
	if (!told(&second, s->mark ? LONG_MS : WHILE_MS, &r)) {
		expect(!s->mark, "a signal that was given", 0, 0);
		must_do(&first, c_signal, 0, "another signal");
		expect(told(&second, LONG_MS, &r) && r == 0, "who waits", r, 0);
	}
	goes_on(s);
	cond_works();
}

/* --- Ids --- */

/* Another takes some, after what was given out since `before`. */
static void ids_rise(unsigned before)
{
	const unsigned between = shared->n_ids;
	uint64_t most = 0;

	for (unsigned i = before; i < between; i++)
		most = shared->id[i % IDS_MAX] > most ? shared->id[i % IDS_MAX] : most;
	must_do(&first, i_take, IDS, "ids of another");
	for (unsigned i = between; i < shared->n_ids; i++)
		expect(shared->id[i % IDS_MAX] > most, "an id below an earlier one", (long)i, (long)between);
}

static void ids_one(struct step *s, long n)
{
	unsigned before = shared->n_ids;

	step_to(s, n, false);
	cut(s);
	ids_rise(before);
	goes_on(s);
}

/* Nobody else has it open: the number goes back to the store when that one dies, and is leased anew. */
static void ids_alone(struct step *s, long n)
{
	static unsigned before;

	step_begin(s, s->how);
	step_to(s, n, false);
	cut(s);
	must_do(&first, i_open, 0, "opened by a successor");
	ids_rise(before);
	before = shared->n_ids;
	goes_on(s);
	must_do(&first, i_close, 0, "closed");
}

/*
 * Two who take ids at once. The clock is asked only where a call comes long after the last one: so nobody who is led from its beginning
 * on comes to the way that is to be fast. He is caught there as he runs, led some instructions further, and stands while another takes some.
 */
#define BATCH 20000                      /* he is caught long before */
#define CATCHES (harness.full ? 20000 : 500)
#define FAST  48                         /* instructions from an id to the next, and some more; some catches go on into the slow way */
#define SLOW  600

static struct race {
	unsigned turn, at, stop, over;   /* turn of his: at so many; is to stop, is over */
	uint64_t id[BATCH];
} *race;

static void ids_are_raced_for(void)
{
	for (unsigned turn = 1;; turn++) {
		while (__atomic_load_n(&race->turn, __ATOMIC_ACQUIRE) < turn)
			sched_yield();
		for (unsigned i = 0; i < BATCH && __atomic_load_n(&race->stop, __ATOMIC_RELAXED) < turn; i++) {
			must(dlock_id_next(mine.gen, &race->id[i]));
			__atomic_store_n(&race->at, i + 1, __ATOMIC_RELEASE);
		}
		__atomic_store_n(&race->over, turn, __ATOMIC_RELEASE);
	}
}

static void come_to(const unsigned *what, unsigned n)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; __atomic_load_n(what, __ATOMIC_ACQUIRE) < n; sched_yield())
		if (now_ns() > until)
			give_up("one who takes ids goes on");
}

static bool raced_twice(unsigned from)
{
	for (unsigned i = 0; i < race->at; i++)
		for (unsigned k = from; k < shared->n_ids; k++)
			if (race->id[i] == shared->id[k % IDS_MAX])
				return true;
	return false;
}

/* Whether he was in the midst of it. */
static bool ids_caught(struct step *s, unsigned turn, bool *ret_twice)
{
	unsigned from = shared->n_ids;
	bool inside;

	race->at = 0;
	__atomic_store_n(&race->turn, turn, __ATOMIC_RELEASE);
	come_to(&race->at, 1 + random_below(300));
	step_attach(s);
	step_to(s, s->at + random_below(random_below(4) ? FAST : SLOW), false);
	inside = __atomic_load_n(&race->over, __ATOMIC_ACQUIRE) < turn;
	must_do(&first, i_take, IDS, "ids of another");
	__atomic_store_n(&race->stop, turn, __ATOMIC_RELEASE);
	step_detach(s, 0);
	come_to(&race->over, turn);
	*ret_twice = raced_twice(from);
	return inside;
}

static void ids_raced_for(void)
{
	static const struct stepper how = { prepare_ids, ids_are_raced_for, NULL };
	unsigned turn = 0, caught = 0, twice = 0;
	struct step s;

	race = shared_memory(sizeof *race);
	step_begin_free(&s, &how);
	while (turn < CATCHES || (caught < CATCHES / 5 && turn < 20 * CATCHES)) {
		bool double_;

		caught += ids_caught(&s, ++turn, &double_);
		twice += double_;
	}
	step_kill(&s);
	ok(!twice && caught, "of two who take ids, one caught in the midst of it %u times, none gets the other's (%u)", caught, twice);
}

static void ids_judge(void)
{
	unsigned n = shared->n_ids < IDS_MAX ? shared->n_ids : IDS_MAX;

	ok(n > 10 && !ids_twice(shared->id, n), "of %u ids none is given out twice", n);
}

static const struct scene latches[] = {
	{ "one who counts a latch down", { prepare_latch, latch_counts, NULL }, latch_one, true, KILLED | STOPPED },
	{ "the last to count it down", { prepare_latch, latch_counts, NULL }, latch_last, false, KILLED | STOPPED },
};

static const struct scene conds[] = {
	{ "one who waits for a condition", { prepare_cond, cond_waits, signal_when_in }, cond_waiter, true, KILLED },
	{ "one who waits for a condition", { prepare_cond, cond_waits, signal_when_in }, cond_stopped, true, STOPPED },
	{ "one who has been signalled", { prepare_cond, cond_waits, signal_now }, cond_signalled, false, KILLED | STOPPED },
	{ "one who signals", { prepare_cond, cond_signals, NULL }, cond_signaller, true, KILLED | STOPPED },
};

static const struct scene ids[] = {
	{ "one who takes ids", { prepare_ids, ids_are_taken, NULL }, ids_one, true, KILLED | STOPPED },
	{ "the only one who takes ids", { NULL, ids_are_opened, NULL }, ids_alone, false, KILLED | STOPPED },
};

int main(void)
{
	harness_begin(getenv("DLOCK_CHECK_FULL") ? 400 : 100);
	shared = shared_memory(sizeof *shared);
	crowd = shared_memory(sizeof *crowd);
	daemon_started(&daemon_);
	strcpy(thing_name, "things");
	crew_begin(l_open, COUNT);
	play_all(latches, sizeof latches / sizeof *latches);
	crew_end();
	strcpy(thing_name, "things");
	crew_begin(c_open, true);
	play_all(conds, sizeof conds / sizeof *conds);
	crew_end();
	crew_begin(i_open, 0);
	play_all(ids, 1);
	ids_raced_for();
	crew_end();
	actor_begin(&first);
	play_all(ids + 1, 1);
	actor_kill(&first, SIGKILL);
	ids_judge();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
