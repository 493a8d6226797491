/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elections, as those see them who look on: they read who leads, what it says, and that nobody does; no term follows a
 * higher one; and what is read was said, as a whole, by whoever had that term. Whoever dies in the midst, at whatever
 * instruction or store.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "mortal.h"
#include "proto/value.h"
#include "step.h"

#define NAME      "led"
#define SOON_MS   100u
#define BUDGET_NS (6000 * MS)

static struct daemon daemon_;
static struct actor one, two;

/* --- what a leader says: its term, and how often it has spoken, over and over --- */

static size_t speech(uint8_t bytes[DLOCK_VALUE_MAX], uint64_t term, uint32_t nth)
{
	size_t len = 16 + (term * 13 + nth * 7) % (DLOCK_VALUE_MAX - 16);

	memset(bytes, (int)(term + nth), len);
	memcpy(bytes, &term, sizeof term);
	memcpy(bytes + 8, &nth, sizeof nth);
	return len;
}

static bool is_speech(const uint8_t *bytes, size_t len, uint64_t term, uint32_t *ret_nth)
{
	uint8_t expected[DLOCK_VALUE_MAX];
	uint64_t of;

	memcpy(&of, bytes, sizeof of);
	memcpy(ret_nth, bytes + 8, sizeof *ret_nth);
	return len >= 16 && of == term && speech(expected, term, *ret_nth) == len && !memcmp(bytes, expected, len);
}

/* --- those who look on, in a process of their own --- */

static struct seen {
	uint64_t term, highest, changes, none, looks;
	uint64_t at_ns;                  /* when it last changed */
	uint64_t back, torn, errors;     /* what must not be */
	bool stop;
} *reads, *waits;                        /* one who reads all the time, and one who waits */

static void see(struct seen *s, uint64_t term)
{
	if (term == s->term)
		return;
	s->back += term && term <= s->highest;
	s->highest = term > s->highest ? term : s->highest;
	s->changes++;
	s->none += !term;
	__atomic_store_n(&s->at_ns, now_ns(), __ATOMIC_RELEASE);
	__atomic_store_n(&s->term, term, __ATOMIC_RELEASE);
}

static void *reader(void *arg)
{
	dlock_elect_t *e = arg;
	uint32_t nth, last = 0;

	while (!__atomic_load_n(&reads->stop, __ATOMIC_ACQUIRE)) {
		uint8_t bytes[DLOCK_VALUE_MAX];
		size_t len = sizeof bytes;
		uint64_t term = 0, before = reads->term;
		int r = dlock_elect_leader(e, bytes, &len, &term);

		reads->errors += r && r != ENOENT;
		reads->looks++;
		if (r == 0 && len == 5 && !memcmp(bytes, "begin", 5))
			nth = 0;                 /* elected, and has not spoken yet */
		else if (r == 0 && !is_speech(bytes, len, term, &nth))
			reads->torn++;
		see(reads, term);
		if (r == 0 && term == before)
			reads->back += nth < last;
		last = r ? 0 : nth;
		if (reads->looks % 64 == 0)
			usleep(50);
	}
	return NULL;
}

static void *waiter(void *arg)
{
	dlock_elect_t *e = arg;
	uint64_t term = 0;

	while (!__atomic_load_n(&waits->stop, __ATOMIC_ACQUIRE)) {
		struct timespec t;
		int r;

		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_sec += 2;
		r = dlock_elect_clockobserve(e, &term, CLOCK_MONOTONIC, &t);
		waits->errors += r && r != ETIMEDOUT;
		if (r == 0)
			see(waits, term);
	}
	return NULL;
}

static pid_t audience;

static void audience_begin(void)
{
	reads = shared_memory(2 * sizeof *reads);
	waits = reads + 1;
	fflush(stdout);
	audience = fork();
	if (audience == 0) {
		dlock_attr_t *a;
		dlock_elect_t *e;
		pthread_t t[2];

		end_with_parent();
		dlock_attr_create(&a);
		dlock_attr_set_wait_daemon(a, true);
		if (dlock_elect_open(&e, NAME, a))
			_exit(1);
		pthread_create(&t[0], NULL, reader, e);
		pthread_create(&t[1], NULL, waiter, e);
		pthread_join(t[0], NULL);
		pthread_join(t[1], NULL);
		_exit(0);
	}
}

static bool both_see(uint64_t term, unsigned ms)
{
	for (uint64_t until = now_ns() + ms * MS;; nap_ns(MS / 10)) {
		bool good = __atomic_load_n(&reads->term, __ATOMIC_ACQUIRE) == term &&
			    __atomic_load_n(&waits->term, __ATOMIC_ACQUIRE) == term;

		if (good || now_ns() > until)
			return good;
	}
}

static struct pace pace;

/* Soon, as a rule. */
static bool soon_both_see(uint64_t term)
{
	uint64_t since = now_ns();
	bool good = both_see(term, PATIENCE_MS);

	pace_took(&pace, now_ns() - since, SOON_MS);
	return good;
}

static void is_seen_soon(void)
{
	ok(pace_is_quick(&pace), "what there is to see is seen soon");
	note("within %u ms %u of %u times", SOON_MS, pace.quick, pace.times);
}

static bool all_well(void)
{
	bool good = !reads->back && !waits->back && !reads->torn && !reads->errors && !waits->errors;

	if (!good)
		note("went back %lu and %lu times, torn %lu, errors %lu and %lu", reads->back, waits->back, reads->torn, reads->errors, waits->errors);
	return good;
}

/* --- what actors do --- */

static dlock_elect_t *election;

static int open_it(struct stage *s, uint64_t unused)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	(void)unused;
	dlock_attr_set_wait_daemon(a, true);
	r = r ? r : dlock_elect_open(&election, s->text, a);
	dlock_attr_destroy(a);
	return r;
}

static int say(struct stage *s, uint64_t nth)
{
	uint8_t bytes[DLOCK_VALUE_MAX];
	int r = dlock_elect_term(election, &s->token);

	return r ? r : dlock_elect_proclaim(election, bytes, speech(bytes, s->token, (uint32_t)nth));
}

static int lead(struct stage *s, uint64_t unused)
{
	int r = dlock_elect_campaign(election, "begin", 5);

	(void)unused;
	return r ? r : say(s, 1);
}

static int resign(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_elect_resign(election);
}

static int check(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_elect_check(election);
}

static int lead_and_resign(struct stage *s, uint64_t unused)
{
	int r = lead(s, unused);

	return r ? r : dlock_elect_resign(election);
}

static void begin(struct actor *a)
{
	actor_begin(a);
	if (actor_do(a, open_it, 0, NAME).r)
		give_up("an actor opens the election");
}

/* --- stories --- */

static void story_terms(void)
{
	struct result first, second;
	bool good;

	first = actor_do(&one, lead, 0, NULL);
	good = !first.r && soon_both_see(first.token);
	for (uint64_t nth = 2; nth < 200; nth++)
		good &= actor_do(&one, say, nth, NULL).r == 0;
	good &= !actor_do(&one, resign, 0, NULL).r && soon_both_see(0);
	second = actor_do(&two, lead, 0, NULL);
	good &= !second.r && second.token > first.token && soon_both_see(second.token);
	good &= !actor_do(&two, resign, 0, NULL).r && soon_both_see(0);
	ok(good && all_well(), "who leads is seen, and what it says, and that it has resigned; the next term is higher");
}

static int by_itself(struct stage *s, uint64_t unused)
{
	char big[DLOCK_VALUE_MAX + 1] = { 0 }, buf[8];
	size_t len = sizeof buf;
	struct timespec past = { 1, 0 };
	uint64_t term, own;
	dlock_elect_t *other;
	int bad = 0;

	(void)s;
	(void)unused;
	bad |= dlock_elect_leader(election, buf, &len, &term) != ENOENT || len != sizeof buf;
	bad |= (dlock_elect_proclaim(election, buf, 1) != EPERM || dlock_elect_resign(election) != EPERM || dlock_elect_check(election) != EPERM) << 1;
	bad |= (dlock_elect_campaign(election, big, sizeof big) != EMSGSIZE || dlock_elect_campaign(election, NULL, 1) != EINVAL) << 2;
	bad |= (dlock_elect_trycampaign(election, NULL, 0) || dlock_elect_check(election) || dlock_elect_campaign(election, "", 0) != EDEADLK) << 3;
	bad |= (dlock_elect_close(election) != EBUSY) << 4;
	bad |= (dlock_elect_leader(election, buf, &len, &term) || len != 0 || dlock_elect_term(election, &own) || own != term) << 5;
	bad |= (dlock_elect_proclaim(election, "something", 9) || (len = sizeof buf, dlock_elect_leader(election, buf, &len, NULL)) != ERANGE || len != 9) << 6;
	bad |= (dlock_elect_leader(election, NULL, NULL, &term) || term != own) << 7;
	bad |= (dlock_elect_clockobserve(election, &term, CLOCK_MONOTONIC, &past) != ETIMEDOUT || term != own) << 8;
	bad |= (dlock_elect_open(&other, "alone", NULL) || dlock_elect_trycampaign(other, "", 0) != EBUSY || dlock_elect_close(other)) << 9;
	bad |= (dlock_elect_resign(election) || dlock_elect_observe(election, &term) || term != 0) << 10;
	bad |= (dlock_elect_clockcampaign(election, big, 3, CLOCK_MONOTONIC, &past) || dlock_elect_resign(election)) << 11;
	return bad;
}

static void story_calls(void)
{
	struct actor a;
	int bad;

	actor_begin(&a);
	/* Once before, so that the daemon need not be asked any more: whoever tries does so for a second only. */
	bad = actor_do(&a, open_it, 0, "alone").r || actor_do(&a, lead_and_resign, 0, NULL).r ? -1 : actor_do(&a, by_itself, 0, NULL).r;
	actor_kill(&a, SIGKILL);
	ok(bad == 0, "errors as they are documented (%x)", bad);
}

/* A lock of the same name is another thing. */
static int with_lock(struct stage *s, uint64_t unused)
{
	dlock_t *l;
	int r = dlock_open(&l, NAME, NULL);

	(void)s;
	(void)unused;
	r = r ? r : dlock_wait(l);
	r = r ? r : dlock_post(l);
	return r ? r : dlock_close(l);
}

static void *thread_leads(void *arg)
{
	return (void *)(intptr_t)(dlock_elect_campaign(election, "begin", 5) || dlock_elect_term(election, arg));
}

static int thread_ends(struct stage *s, uint64_t unused)
{
	pthread_t t;
	void *r;

	(void)unused;
	pthread_create(&t, NULL, thread_leads, &s->token);
	pthread_join(t, &r);
	return r != NULL;
}

static void story_ends(void)
{
	struct result r = actor_do(&one, lead, 0, NULL);
	bool good = !r.r && soon_both_see(r.token) && !actor_do(&two, with_lock, 0, NULL).r;
	uint64_t before = r.token, changes = waits->changes;

	actor_send(&two, lead, 0, NULL);
	good &= asleep(two.pid);
	actor_kill(&one, SIGKILL);
	good &= actor_result(&two, PATIENCE_MS, &r) && !r.r && r.token > before && soon_both_see(r.token) && waits->changes > changes;
	ok(good && all_well(), "a leader is killed: the next candidate leads, and is seen");
	actor_kill(&two, SIGKILL);
	ok(soon_both_see(0) && all_well(), "the last one is killed: it is seen that nobody leads");
	begin(&one);
	begin(&two);
	r = actor_do(&one, thread_ends, 0, NULL);
	ok(!r.r && soon_both_see(0) && reads->highest <= r.token && all_well(), "the leader's thread ends: the same");
}

static int poll_for(struct stage *s, uint64_t ms)
{
	struct pollfd p = { .events = POLLIN };
	int r = dlock_elect_fd(election, &p.fd);

	(void)s;
	if (r)
		return -r;
	dlock_elect_check(election);
	return poll(&p, 1, (int)ms);
}

/* Across nodes what was to be seen last may only just be arriving. */
static bool has_nothing_new(struct actor *a)
{
	uint64_t until = now_ns() + (harness.nodes ? PATIENCE_MS * MS : 0);
	int r;

	do {
		r = actor_do(a, poll_for, 30, NULL).r;
	} while (r && now_ns() < until);
	return r == 0;
}

static void story_fd(void)
{
	bool good = has_nothing_new(&two);
	struct result r;

	actor_send(&two, poll_for, PATIENCE_MS, NULL);
	nap_ns(20 * MS);
	good &= !actor_do(&one, lead, 0, NULL).r && actor_result(&two, PATIENCE_MS, &r) && r.r == 1;
	actor_send(&two, poll_for, PATIENCE_MS, NULL);
	nap_ns(20 * MS);
	good &= !actor_do(&one, say, 2, NULL).r && actor_result(&two, PATIENCE_MS, &r) && r.r == 1;
	actor_send(&two, poll_for, PATIENCE_MS, NULL);
	nap_ns(20 * MS);
	good &= !actor_do(&one, resign, 0, NULL).r && actor_result(&two, PATIENCE_MS, &r) && r.r == 1;
	ok(good, "dlock_elect_fd() is readable when there is something new, and else is not");
}

static void story_restart(void)
{
	struct result r = actor_do(&one, lead, 0, NULL);
	bool good = soon_both_see(r.token);

	daemon_end(&daemon_, SIGKILL);
	good &= !actor_do(&one, say, 2, NULL).r;
	daemon_started(&daemon_);
	good &= !actor_do(&one, check, 0, NULL).r && !actor_do(&one, say, 3, NULL).r && soon_both_see(r.token);
	ok(good && all_well(), "the daemon goes and comes back: who leads leads, and is seen to");
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&one, SIGKILL);
	good = both_see(r.token, 0);
	daemon_started(&daemon_);
	ok(good && soon_both_see(0) && all_well(), "a leader that ended while no daemon was there is gone when the next one is");
	begin(&one);
	r = actor_do(&two, lead_and_resign, 0, NULL);
	ok(!r.r && soon_both_see(0) && reads->highest <= r.token && all_well(), "and the next candidate is elected");
}

/* --- at every instruction --- */

static void stepped_open(void)
{
	dlock_attr_t *a;

	dlock_attr_create(&a);
	dlock_attr_set_wait_daemon(a, true);
	if (dlock_elect_open(&election, NAME, a) || dlock_elect_campaign(election, "begin", 5) || dlock_elect_resign(election))
		_exit(1);
}

static void stepped_term(void)
{
	struct stage s;

	if (lead(&s, 0) || say(&s, 2) || dlock_elect_resign(election))
		_exit(1);
}

static void story_instructions(void)
{
	static const struct stepper how = { stepped_open, stepped_term, NULL };
	uint64_t begin_ns = now_ns(), before = reads->changes;
	long stride, count, wrong = 0;
	struct step s;

	step_begin(&s, &how);
	step_to(&s, 1000000, false);
	count = s.at;
	step_kill(&s);
	stride = harness.full ? 1 : (long)((double)count * (double)(now_ns() - begin_ns) / (double)BUDGET_NS) + 1;
	for (long at = random_below((uint32_t)stride); at <= count; at += stride) {
		struct result r;

		step_begin(&s, &how);
		step_to(&s, at, false);
		step_kill(&s);
		wrong += !soon_both_see(0);
		r = actor_do(&two, lead_and_resign, 0, NULL);
		wrong += r.r != 0 || r.token < reads->highest;
	}
	ok(!wrong && all_well() && reads->changes > before,
	   "a leader is killed after each %ld of the %ld instructions of a term: nobody leads then, and the next is elected",
	   stride, count);
}

/* --- the daemon --- */

/* A term before, one that the audience sees the end of by a death, one after; of a name that is closed in between, too. */
static bool term_with_deaths(long at)
{
	struct result r, next = { .r = -1 };
	bool good;

	r = actor_do(&one, lead, 0, NULL);
	good = !r.r && soon_both_see(r.token);
	mortal_start(&daemon_, SIGTERM, at);
	good &= !actor_do(&one, check, 0, NULL).r && soon_both_see(r.token);
	actor_send(&two, lead, 0, NULL);
	asleep_within(two.pid, 1000);     /* or waits for a daemon */
	actor_kill(&one, SIGKILL);
	good &= actor_result(&two, PATIENCE_MS, &next) && !next.r && next.token > r.token && soon_both_see(next.token);
	begin(&one);
	good &= !actor_do(&two, resign, 0, NULL).r && soon_both_see(0);
	return good && all_well();
}

static void story_daemon_stores(void)
{
	struct mortal_walk w = mortal_walk(harness.full ? 1 : 1 + random_below(3), BUDGET_NS, term_with_deaths);

	daemon_end(&daemon_, SIGTERM);   /* the one that has not come to its place yet */
	daemon_started(&daemon_);
	ok(w.wrong == 0 && w.places > 4, "the daemon dies at %ld of its %ld stores while a leader is followed by the next", w.places, w.at);
}

/* --- who writes where it should not --- */

static void story_hostile(void)
{
	struct actor aside;
	int bad = 0, pages = 0;

	actor_begin(&aside);
	bad += actor_do(&aside, open_it, 0, "aside/led").r != 0;
	for (int round = 0; round < 200; round++) {
		struct actor *a = round % 2 ? &one : &two;

		bad += actor_do(a, lead, 0, NULL).r != 0;
		pages += pages_scribble(1);
		bad += actor_do(a, say, 2, NULL).r != 0;
		if (round % 20 == 7) {
			actor_kill(a, SIGKILL);
			begin(a);
		} else {
			pages += pages_scribble(1);
			bad += actor_do(a, resign, 0, NULL).r != 0;
		}
		bad += actor_do(&aside, lead_and_resign, 0, NULL).r != 0;
	}
	actor_kill(&aside, SIGKILL);
	ok(!bad && pages > 200 && !daemon_ended(&daemon_, 0), "somebody scribbles over the pages: that misleads those who read them, and nobody else (%d)", bad);
}

int main(void)
{
	harness_begin(110);
	daemon_started(&daemon_);
	audience_begin();
	begin(&one);
	begin(&two);
	story_terms();
	story_calls();
	story_ends();
	story_fd();
	story_restart();
	if (!skipped_across("deaths at any instruction, and of the daemon at its stores", "for nodes tests/sim and elections_nodes.sh tell of deaths")) {
		story_instructions();
		story_daemon_stores();
	}
	note("%lu changes seen by who reads (%lu reads), %lu by who waits; nobody led %lu times", reads->changes, reads->looks, waits->changes, waits->none);
	is_seen_soon();
	if (!skipped_across("somebody scribbles over the pages", "they are a node's own"))
		story_hostile();
	daemon_done(&daemon_);
	return harness_end();
}
