/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The value of a lock: what a holder has set and released is there for the next one, as a whole; what he has set and not
 * released is not. Whoever dies in the midst, process or daemon, at whatever instruction or store.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"
#include "mortal.h"
#include "proto/value.h"
#include "step.h"

#define NAME      "valued"
#define BIG       ((size_t)DLOCK_VALUE_MAX)
#define BUDGET_NS (6000 * MS)
#define UNKNOWN   10000                  /* a value that is none of ours */

static struct daemon daemon_;
static struct actor one, two;

/* --- values that tell whether they are whole --- */

static size_t make(uint8_t *bytes, unsigned number)
{
	size_t len = number % 7 == 0 ? BIG : 4 + number * 37 % (BIG - 4);

	memset(bytes, (int)(number * 11), len);
	memcpy(bytes, &number, sizeof number);
	return len;
}

static int number_of(const uint8_t *bytes, size_t len)
{
	uint8_t expected[BIG];
	unsigned number;

	memcpy(&number, bytes, sizeof number);
	return number < UNKNOWN && make(expected, number) == len && !memcmp(bytes, expected, len) ? (int)number : UNKNOWN;
}

/* --- what actors do; a value is its number, none is -ENODATA --- */

static int set(struct stage *s, uint64_t number)
{
	uint8_t bytes[BIG];
	size_t len = make(bytes, (unsigned)number);

	return dlock_value_set(s->lock[0], bytes, len);
}

static int get(struct stage *s, uint64_t unused)
{
	uint8_t bytes[BIG];
	size_t len = sizeof bytes;
	int r = dlock_value_get(s->lock[0], bytes, &len);

	(void)unused;
	return r ? -r : number_of(bytes, len);
}

static int hold_and_get(struct stage *s, uint64_t unused)
{
	int r = act_wait(s, 0), value = get(s, unused), p;

	if (!taken(r))
		return UNKNOWN + r;
	p = dlock_post(s->lock[0]);
	return p ? UNKNOWN + p : value;
}

static int hold_and_set(struct stage *s, uint64_t number)
{
	int r = act_wait(s, 0), p;

	if (!taken(r))
		return r;
	r = set(s, number);
	p = dlock_post(s->lock[0]);
	return r ? r : p;
}

static int hold_and_set_only(struct stage *s, uint64_t number)
{
	int r = act_wait(s, 0);

	return taken(r) ? set(s, number) : r;
}

static int is(struct actor *a)
{
	return actor_do(a, hold_and_get, 0, NULL).r;
}

static void begin(struct actor *a)
{
	actor_begin(a);
	if (actor_do(a, act_open, OPEN_ROBUST | OPEN_WAIT_DAEMON, NAME).r)
		give_up("an actor opens the lock");
}

/* --- stories --- */

static void story_plain(void)
{
	int none = is(&one), first, second;

	actor_do(&one, hold_and_set, 1, NULL);
	first = is(&two);
	actor_do(&two, hold_and_set, 7, NULL);
	second = is(&one);
	ok(none == -ENODATA && first == 1 && second == 7 && is(&two) == 7,
	   "what is set is there after the release, in another process, and stays (%d, %d, %d)", none, first, second);
}

/* What one process alone can see. */
static int by_itself(struct stage *s, uint64_t unused)
{
	uint8_t bytes[BIG + 1] = { 0 };
	size_t len = 3;
	dlock_t *l = s->lock[0];
	int bad = 0;

	(void)unused;
	bad |= dlock_value_set(l, bytes, 1) != EPERM || dlock_value_get(l, bytes, &len) != EPERM;
	if (dlock_wait(l))
		return -1;
	bad |= (dlock_value_set(l, bytes, BIG + 1) != EMSGSIZE || dlock_value_set(l, NULL, 1) != EINVAL) << 1;
	bad |= (set(s, 14) || set(s, 15) || get(s, 0) != 15) << 2;
	bad |= (dlock_value_get(l, bytes, &len) != ERANGE || len != make(bytes, 15)) << 3;
	bad |= (dlock_value_set(l, NULL, 0) || (len = 3, dlock_value_get(l, NULL, &len)) != EINVAL) << 4;
	bad |= (dlock_value_get(l, bytes, &len) || len != 0) << 5;
	bad |= set(s, 16) << 6;
	bad |= (dlock_post(l) || dlock_value_get(l, bytes, &len) != EPERM) << 7;
	return bad;
}

static int in_levels(struct stage *s, uint64_t unused)
{
	dlock_attr_t *a;
	dlock_t *l, *plain = s->lock[0];
	uint8_t bytes[BIG];
	size_t len = make(bytes, 21);
	int r = dlock_attr_create(&a);

	(void)unused;
	dlock_attr_set_recursive(a, true);
	dlock_attr_set_owner(a, DLOCK_OWNER_PROCESS);
	r = r ? r : dlock_open(&l, NAME, a);
	dlock_attr_destroy(a);
	r = r ? r : dlock_wait(l);
	r = r ? r : dlock_wait(l);
	r = r ? r : dlock_value_set(l, bytes, len);
	r = r ? r : dlock_wait(l);
	r = r ? r : dlock_post(l);
	r = r ? r : dlock_post(l);
	s->lock[0] = l;
	if (r == 0 && get(s, 0) != 21)
		r = -2;
	s->lock[0] = plain;
	r = r ? r : dlock_post(l);
	return r ? r : dlock_close(l);
}

static void story_calls(void)
{
	int bad = actor_do(&one, by_itself, 0, NULL).r, after = is(&two), levels = actor_do(&one, in_levels, 0, NULL).r;

	ok(bad == 0 && after == 16, "errors as they are documented; a holder sees what it has set itself, and the last counts (%x, %d)", bad, after);
	ok(levels == 0 && is(&two) == 21, "with a recursive handle it is the last release that publishes (%d)", levels);
}

static void story_death(void)
{
	struct result r;

	actor_do(&one, hold_and_set, 2, NULL);
	actor_do(&one, hold_and_set_only, 3, NULL);
	actor_kill(&one, SIGKILL);
	r = actor_do(&two, act_wait, 0, NULL);
	ok(r.r == EOWNERDEAD && actor_do(&two, get, 0, NULL).r == 2, "what a holder that died had set and not released is not there");
	actor_do(&two, act_consistent, 0, NULL);
	actor_do(&two, act_post, 0, NULL);
	begin(&one);
	actor_do(&one, hold_and_set, 4, NULL);
	ok(is(&two) == 4, "and who comes after it sets others");
}

/* --- at every instruction --- */

static dlock_t *stepped;
static uint8_t after[BIG];
static size_t after_len;

static void stepped_open(void)
{
	if (dlock_open(&stepped, NAME, NULL) || dlock_wait(stepped))
		_exit(1);
	after_len = make(after, 6);
	if (dlock_value_set(stepped, after, 1))          /* the page is there */
		_exit(1);
}

static void stepped_set_and_post(void)
{
	if (dlock_value_set(stepped, after, after_len) || dlock_post(stepped))
		_exit(1);
}

static void story_instructions(void)
{
	static const struct stepper how = { stepped_open, stepped_set_and_post, NULL };
	uint64_t begin_ns = now_ns();
	long stride = 1, old = 0, new = 0, wrong = 0, count;
	struct step s;

	step_begin(&s, &how);
	step_to(&s, 1000000, false);
	count = s.at;
	step_kill(&s);
	stride = harness.full ? 1 : (long)((double)count * (double)(now_ns() - begin_ns) / (double)BUDGET_NS) + 1;
	for (long next = random_below((uint32_t)stride), at = 0; at <= count; at = at < count && next > count ? count : next, next += stride) {
		int value;

		actor_do(&two, hold_and_set, 5, NULL);
		step_begin(&s, &how);
		step_to(&s, at, false);
		step_kill(&s);
		value = is(&two);
		old += value == 5;
		new += value == 6;
		wrong += value != 5 && value != 6;
	}
	ok(wrong == 0 && old && new, "a holder is killed after each %ld of the %ld instructions of set and post: it is the old value %ld times, "
	   "the new one %ld times", stride, count, old, new);
}

/* --- the daemon --- */

static void story_restart(void)
{
	int held, kept;

	actor_do(&one, hold_and_set, 8, NULL);
	actor_do(&one, hold_and_set_only, 9, NULL);
	daemon_end(&daemon_, SIGKILL);
	daemon_started(&daemon_);
	held = actor_do(&one, get, 0, NULL).r;
	actor_do(&one, act_post, 0, NULL);
	kept = is(&two);
	ok(held == 9 && kept == 9, "a daemon that is killed takes no value with it: of who holds (%d), of who comes after (%d)", held, kept);
	daemon_end(&daemon_, SIGTERM);
	daemon_started(&daemon_);
	ok(is(&one) == 9, "nor does one that is told to stop");
}

static void story_closed(void)
{
	actor_do(&one, act_close, 0, NULL);
	actor_do(&two, act_close, 0, NULL);
	if (actor_do(&two, act_open, OPEN_ROBUST, NAME).r || actor_do(&one, act_open, OPEN_ROBUST, NAME).r)
		give_up("the actors open the name again");
	ok(is(&one) == 9, "a value stays when everybody has closed the name");
}

static int other_set(struct stage *s, uint64_t number)
{
	struct stage o = { .lock = { s->lock[1] } };

	return hold_and_set(&o, number);
}

static int other_get(struct stage *s, uint64_t unused)
{
	struct stage o = { .lock = { s->lock[1] } };

	return hold_and_get(&o, unused);
}

/* Asks again while the daemon is away. */
static int patiently(struct actor *a, actor_fn fn, uint64_t arg, const char *text)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS;;) {
		int r = actor_do(a, fn, arg, text).r;

		if (now_ns() > until || (r != ENOTCONN && r != -ENOTCONN))
			return r;
		nap_ns(20 * MS);
	}
}

/* What a lock that stays open carries, and one that is closed by all in between: that one a lone daemon forgets with its death. */
static bool daemon_faulty(long at)
{
	int kept, other, r = 0;

	patiently(&two, hold_and_set, 10, NULL);
	mortal_start(&daemon_, SIGTERM, at);
	kept = patiently(&two, hold_and_get, 0, NULL);
	r |= patiently(&one, act_open, 1 | OPEN_WAIT_DAEMON, "other");
	r |= patiently(&one, other_set, 12, NULL);
	r |= patiently(&one, act_close, 1, NULL);
	r |= patiently(&two, act_open, 1 | OPEN_WAIT_DAEMON, "other");
	other = patiently(&two, other_get, 0, NULL);
	r |= patiently(&two, act_close, 1, NULL);
	if (kept == 10 && !r && (other == 12 || (other == -ENODATA && mortal.deaths)))
		return true;
	note("killed at %ld: kept %d, of the other %d after %u deaths, calls %d", at, kept, other, mortal.deaths, r);
	return false;
}

static void story_daemon_stores(void)
{
	struct mortal_walk w = mortal_walk(harness.full ? 1 : 1 + random_below(4), BUDGET_NS, daemon_faulty);

	ok(w.wrong == 0 && w.places > 5, "the daemon dies at %ld of its %ld stores: values stay, or are known to be lost", w.places, w.at);
}

/* --- who writes where it should not --- */

static void story_hostile(void)
{
	pid_t pid = daemon_.pid;
	int bad = 0, pages = 0;

	actor_do(&one, act_open, 1, "aside/other");
	for (int round = 0; round < 300; round++) {
		int value;

		bad += actor_do(&one, hold_and_set, (uint64_t)round % 20, NULL).r != 0;
		pages += pages_scribble(3);
		value = is(&two);
		bad += value > UNKNOWN || (value < 0 && value != -ENODATA);
		if (round % 10 == 9) {           /* what is left there goes to the master, and comes back */
			pages_scribble(3);
			bad += actor_do(&one, act_close, 0, NULL).r || actor_do(&two, act_close, 0, NULL).r;
			bad += actor_do(&one, act_open, OPEN_ROBUST, NAME).r || actor_do(&two, act_open, OPEN_ROBUST, NAME).r;
		}
		bad += actor_do(&one, other_set, 13, NULL).r || actor_do(&one, other_get, 0, NULL).r != 13;
	}
	actor_do(&one, act_close, 1, NULL);
	ok(!bad && pages > 200 && !daemon_ended(&daemon_, 0) && daemon_.pid == pid,
	   "somebody scribbles over the pages: values are lost or wrong, and that is all, also for the daemon; another space has its own (%d)", bad);
}

int main(void)
{
	harness_begin(100);
	daemon_started(&daemon_);
	begin(&one);
	begin(&two);
	story_plain();
	story_calls();
	story_death();
	story_instructions();
	story_restart();
	story_closed();
	story_hostile();
	story_daemon_stores();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
