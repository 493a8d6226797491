/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Since when a name is held, as far as the daemon can know: never longer than it is said to be at most, nor shorter than at least. */
#include <errno.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../daemon/shm/sight.h"

#define MS NSEC_PER_MSEC

/* --- the table --- */

static void seen_between(void **state)
{
	struct sight_table *t = sight_table_new();
	struct sight_span s;

	(void)state;
	assert_non_null(t);
	s = sight_of(t, 7, 1);
	assert_int_equal(s.from, 0);
	sight_note(t, 7, 1, (struct sight_span){ 0 }, 100);
	s = sight_of(t, 7, 1);
	assert_int_equal(s.from, 100);
	assert_int_equal(s.before, 0);
	sight_note(t, 7, 1, (struct sight_span){ 0 }, 200);
	assert_int_equal(sight_of(t, 7, 1).from, 100);
	assert_int_equal(sight_of(t, 7, 2).from, 0);
	sight_note(t, 7, 2, (struct sight_span){ 0 }, 300);      /* another, after the first was last seen */
	s = sight_of(t, 7, 2);
	assert_int_equal(s.from, 300);
	assert_int_equal(s.before, 200);
	assert_int_equal(sight_of(t, 7, 1).from, 0);
	sight_note_none(t, 7, 400);
	assert_int_equal(sight_of(t, 7, 2).from, 0);
	sight_note(t, 7, 2, (struct sight_span){ 0 }, 500);
	s = sight_of(t, 7, 2);
	assert_int_equal(s.from, 500);
	assert_int_equal(s.before, 400);
	sight_table_free(t);
}

static void known_otherwise(void **state)
{
	struct sight_table *t = sight_table_new();
	struct sight_span s;

	(void)state;
	sight_note(t, 7, 1, (struct sight_span){ .from = 50 }, 100);
	assert_int_equal(sight_of(t, 7, 1).from, 50);
	sight_note(t, 7, 2, (struct sight_span){ .before = 150 }, 200);
	s = sight_of(t, 7, 2);
	assert_int_equal(s.from, 200);
	assert_int_equal(s.before, 150);
	sight_note(t, 7, 2, (struct sight_span){ .before = 120 }, 300);
	assert_int_equal(sight_of(t, 7, 2).before, 150);
	sight_table_free(t);
}

/* Whoever falls out of it is seen anew, and no other's times are told of it. */
static void more_than_fit(void **state)
{
	struct sight_table *t = sight_table_new();
	unsigned known = 0;

	(void)state;
	for (uint64_t key = 1; key <= 100000; key++)
		sight_note(t, key, 5, (struct sight_span){ 0 }, key);
	for (uint64_t key = 1; key <= 100000; key++) {
		nsec_t from = sight_of(t, key, 5).from;

		assert_true(from == 0 || from == key);
		known += from != 0;
	}
	assert_true(known > 1000);
	sight_note(NULL, 1, 1, (struct sight_span){ 0 }, 1);     /* no memory: nothing is known */
	sight_note_none(NULL, 1, 1);
	assert_int_equal(sight_of(NULL, 1, 1).from, 0);
	sight_table_free(t);
}

/* --- names --- */

static void scene_open(struct rig_two *x)
{
	rig_open(&x->r);
	rig_sees(&x->r);
	rig_two(x, 0);
}

static void passes(struct rig_two *x, unsigned ms)
{
	fake_loop_advance(x->r.loop, ms * MS);
}

static nsec_t now(const struct rig_two *x)
{
	return loop_now(x->r.loop);
}

/* It began between `begin` (the last moment when it was not there yet) and `seen`. */
static void held_since(struct rig_two *x, struct rig_client *c, nsec_t begin, nsec_t seen)
{
	struct sight_span s = sight_hold(x->s, x->slot, c->index);

	assert_true(s.from && s.from <= seen);
	assert_true(s.from >= begin);
	assert_true(s.before <= begin);
}

static void taken_when_opened(void **state)
{
	struct rig_two x;
	nsec_t begin;

	(void)state;
	scene_open(&x);
	begin = now(&x);
	rig_two_take(&x, &x.a);
	passes(&x, 60000);
	held_since(&x, &x.a, begin, begin + 200 * MS);
	assert_true(sight_hold(x.s, x.slot, x.a.index).before + 200 * MS >= begin);
	assert_int_equal(sight_hold(x.s, x.slot, x.b.index).from, 0);
	rig_two_done(&x);
}

/* Nobody looks at a name that lies around; who asks twice knows more. */
static void taken_later(void **state)
{
	struct rig_two x;
	nsec_t begin, asked;
	uint64_t held;

	(void)state;
	scene_open(&x);
	passes(&x, 5000);
	begin = now(&x);
	held = rig_two_take(&x, &x.a);
	passes(&x, 5000);
	asked = now(&x);
	held_since(&x, &x.a, begin, asked);
	assert_int_equal(sight_hold(x.s, x.slot, x.a.index).from, asked);
	passes(&x, 5000);
	held_since(&x, &x.a, begin, asked);
	assert_true(lock_release(x.word, held, 0));
	begin = now(&x);
	rig_two_take(&x, &x.a);                          /* the same process, but another hold */
	passes(&x, 5000);
	held_since(&x, &x.a, begin, now(&x));
	assert_int_equal(sight_hold(x.s, x.slot, x.a.index).from, now(&x));
	assert_true(sight_hold(x.s, x.slot, x.a.index).before >= asked);
	rig_two_done(&x);
}

/* Another opens it while it is held: it has been so for longer than that. */
static void held_when_opened(void **state)
{
	struct rig_two x;
	struct rig_client c;
	nsec_t begin, opened;

	(void)state;
	scene_open(&x);
	passes(&x, 5000);
	begin = now(&x);
	rig_two_take(&x, &x.a);
	passes(&x, 1000);
	c = rig_client(&x.r);
	opened = now(&x);
	rig_name(&x.r, &c, x.s, "n");
	passes(&x, 5000);
	held_since(&x, &x.a, begin, opened);
	rig_client_end(&x.r, &c);
	rig_two_done(&x);
}

/* Whoever waits has the daemon look. */
static void waited_for(void **state)
{
	struct rig_two x;
	nsec_t begin, waits;

	(void)state;
	scene_open(&x);
	passes(&x, 5000);
	begin = now(&x);
	rig_two_take(&x, &x.a);
	passes(&x, 300);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_SEQ_CST);
	waits = now(&x);
	rig_watch(x.s, x.slot);
	rig_turn(&x.r);
	passes(&x, 7000);
	held_since(&x, &x.a, begin, waits + 20 * MS);
	rig_two_done(&x);
}

/* Slots and tokens come again, under another name. */
static void another_name(void **state)
{
	struct rig_two x;
	uint32_t slot;
	nsec_t begin;
	uint64_t held, token;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	token = name_token(x.s, x.slot);
	passes(&x, 5000);
	assert_true(lock_release(x.word, held, 0));
	client_close(x.a.c, x.r.shm, x.s, x.slot);
	client_close(x.b.c, x.r.shm, x.s, x.slot);
	rig_turn(&x.r);
	slot = x.slot;
	x.r.next_token = token;
	x.slot = rig_name(&x.r, &x.a, x.s, "m");
	assert_int_equal(x.slot, slot);
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	begin = now(&x);
	rig_two_take(&x, &x.a);
	assert_int_equal(name_token(x.s, x.slot), token);
	passes(&x, 5000);
	held_since(&x, &x.a, begin, begin + 200 * MS);
	rig_two_done(&x);
}

/* A new daemon knows that it was held when it came. */
static void after_a_restart(void **state)
{
	struct rig_two x;
	nsec_t begin, came;
	uint32_t id;

	(void)state;
	scene_open(&x);
	id = x.s->id;
	rig_two_take(&x, &x.a);
	passes(&x, 5000);
	rig_stop(&x.r);
	assert_int_equal(rig_adopt(&x.r), 0);
	x.s = x.r.shm->spaces[id];
	came = now(&x);
	passes(&x, 5000);
	begin = sight_hold(x.s, x.slot, x.a.index).from;
	assert_true(begin && begin <= came + 100 * MS);
	assert_int_equal(sight_hold(x.s, x.slot, x.a.index).before, 0);
	x.a.c = x.r.shm->clients[x.a.index];
	x.b.c = x.r.shm->clients[x.b.index];
	rig_two_done(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(seen_between, "a hold began between the last look without it and the first with it"),
		STORY(known_otherwise, "what is known otherwise counts, where it says more"),
		STORY(more_than_fit, "what does not fit is seen anew"),
		STORY(taken_when_opened, "a lock that is taken when it has been opened is known within a tenth of a second or two"),
		STORY(taken_later, "of one that is taken later the first question tells little, and another hold is another one"),
		STORY(held_when_opened, "one that is held when others open it was so before"),
		STORY(waited_for, "whoever waits makes it known"),
		STORY(another_name, "a name in another's place, with the same token, is not taken for it"),
		STORY(after_a_restart, "a new daemon knows from when it came"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("sight", tests, NULL, NULL);
}
