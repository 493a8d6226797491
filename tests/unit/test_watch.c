/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The watch list and the bell: when the daemon looks, when it does not, and how much at a time. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "shm_rig.h"

#define MS NSEC_PER_MSEC

struct stage {
	struct rig r;
	struct space *s;
	struct rig_client a, b;
	uint32_t slot;
};

/* a holds, in a space that is known to two. */
static void stage_open(struct stage *t)
{
	rig_open(&t->r);
	t->s = rig_space(&t->r, "x");
	t->a = rig_client(&t->r);
	t->b = rig_client(&t->r);
	t->slot = rig_name(&t->r, &t->a, t->s, "n");
	rig_name(&t->r, &t->b, t->s, "n");
	rig_want(t->s, t->slot);
	rig_turn(&t->r);
	assert_true(rig_take(t->s, t->slot, &t->a));
}

static void stage_done(struct stage *t)
{
	rig_client_end(&t->r, &t->a);
	rig_client_end(&t->r, &t->b);
	rig_done(&t->r);
}

static bool has_k(const struct stage *t)
{
	return LOCK_LOAD(rig_word(t->s, t->slot)) & LOCK_K;
}

static bool bit(const struct stage *t)
{
	return seg_level1(t->s->base, SEG_WATCH)[t->slot / 64] >> (t->slot % 64) & 1;
}

/* A releaser that stops between its store and its wake-up; nobody sleeps in truth, so no wake takes K back. */
static void free_with_waiter(struct stage *t)
{
	uint64_t *word = rig_word(t->s, t->slot);

	*word = (*word & ~(LOCK_OWNER | LOCK_MODE)) | LOCK_W | LOCK_H;
}

static void looks_soon(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	assert_false(rig_take(t.s, t.slot, &t.b));
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	assert_int_equal(t.s->n_watch, 1);
	assert_true(rig_said(&t.r, "contended x/n\n"));
	*rig_word(t.s, t.slot) |= LOCK_K;        /* whoever was to take it back is stopped */
	fake_loop_advance(t.r.loop, 9 * MS);
	assert_true(has_k(&t));
	fake_loop_advance(t.r.loop, 1 * MS);
	assert_false(has_k(&t));
	stage_done(&t);
}

/* One who really sleeps on the word. */
static void *sleeper(void *word)
{
	futex_wait_class(word, *(uint32_t *)word, LOCK_CLASS_WAITER, CLOCK_MONOTONIC, NULL);
	return NULL;
}

static pthread_t sleeper_begin(struct stage *t)
{
	uint32_t *word = lock_futex(rig_word(t->s, t->slot));
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, sleeper, word), 0);
	while (futex_sleepers(word, *word) != 1)
		sched_yield();
	return thread;
}

static void sleeper_end(struct stage *t, pthread_t thread)
{
	futex_wake_class(lock_futex(rig_word(t->s, t->slot)), INT_MAX, LOCK_CLASS_ANY);
	pthread_join(thread, NULL);
}

/* Nobody sleeps on a held word that has W: it is taken back, and the slot dropped. */
static void settles(void **state)
{
	pthread_t thread;
	struct stage t;

	(void)state;
	stage_open(&t);
	assert_false(rig_take(t.s, t.slot, &t.b));
	thread = sleeper_begin(&t);
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	fake_loop_advance(t.r.loop, 10 * MS);
	assert_int_equal(t.s->n_watch, 1);
	assert_true(LOCK_LOAD(rig_word(t.s, t.slot)) & LOCK_W);
	sleeper_end(&t, thread);
	fake_loop_advance(t.r.loop, 50 * MS);
	assert_int_equal(t.s->n_watch, 0);
	assert_false(bit(&t));
	assert_false(LOCK_LOAD(rig_word(t.s, t.slot)) & LOCK_W);
	assert_true(LOCK_LOAD(rig_word(t.s, t.slot)) & LOCK_OWNER);
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);
	stage_done(&t);
}

/* While the word is closed nobody is woken for nothing, and loses his place; the grant wakes. Who has gone is not looked after. */
static void closed(void **state)
{
	pthread_t thread;
	struct stage t;

	(void)state;
	stage_open(&t);
	t.slot = rig_name(&t.r, &t.b, t.s, "far");
	*rig_word(t.s, t.slot) |= LOCK_W;
	thread = sleeper_begin(&t);
	t.r.silent = true;
	rig_want(t.s, t.slot);
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	for (int i = 0; i < 10; i++) {
		uint64_t w = LOCK_LOAD(rig_word(t.s, t.slot));

		assert_int_equal(w, LOCK_W);
		assert_int_equal(futex_sleepers(lock_futex(rig_word(t.s, t.slot)), (uint32_t)w), 1);
		fake_loop_advance(t.r.loop, 50 * MS);
	}
	assert_int_equal(t.s->n_watch, 1);
	rig_grant(&t.r, t.s, t.slot);
	pthread_join(thread, NULL);
	assert_true(has_k(&t));
	stage_done(&t);

	stage_open(&t);
	t.slot = rig_name(&t.r, &t.b, t.s, "far");
	*rig_word(t.s, t.slot) |= LOCK_W;
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	fake_loop_advance(t.r.loop, 50 * MS);
	assert_false(LOCK_LOAD(rig_word(t.s, t.slot)) & LOCK_W);
	fake_loop_advance(t.r.loop, 50 * MS);
	assert_int_equal(t.s->n_watch, 0);
	stage_done(&t);
}

static void grows_rarer(void **state)
{
	nsec_t last, next, spans[6];
	pthread_t thread;
	struct stage t;

	(void)state;
	stage_open(&t);
	assert_false(rig_take(t.s, t.slot, &t.b));
	thread = sleeper_begin(&t);
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	loop_timer_cancel(t.r.loop, &t.s->sweep_timer);  /* of hatches; that is another story */
	last = loop_now(t.r.loop);
	for (int i = 0; i < 6; i++) {
		next = fake_loop_next_timer(t.r.loop);
		spans[i] = next - last;
		fake_loop_advance(t.r.loop, spans[i]);
		last = next;
	}
	assert_int_equal(spans[0], 10 * MS);
	for (int i = 1; i < 6; i++)
		assert_true(spans[i] >= spans[i - 1] || i == 1);
	assert_int_equal(spans[4], 50 * MS);
	assert_int_equal(spans[5], 50 * MS);
	*rig_word(t.s, t.slot) += LOCK_ONE;      /* it moves: looks come sooner again */
	fake_loop_advance(t.r.loop, 50 * MS);
	assert_int_equal(fake_loop_next_timer(t.r.loop) - loop_now(t.r.loop), 10 * MS);
	sleeper_end(&t, thread);
	stage_done(&t);
}

static void dropped(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	assert_false(rig_take(t.s, t.slot, &t.b));
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	*rig_word(t.s, t.slot) &= ~(LOCK_W | LOCK_OWNER | LOCK_MODE);
	fake_loop_advance(t.r.loop, 10 * MS);
	assert_int_equal(t.s->n_watch, 0);
	assert_false(bit(&t));
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);    /* nobody waits: nothing wakes the node */
	assert_true(rig_take(t.s, t.slot, &t.a));
	assert_false(rig_take(t.s, t.slot, &t.b));
	rig_watch(t.s, t.slot);
	rig_turn(&t.r);
	assert_int_equal(t.s->n_watch, 1);
	*rig_word(t.s, t.slot) &= ~(LOCK_OWNER | LOCK_MODE);
	stage_done(&t);
	assert_int_equal(t.r.releases, 1);
}

static void bit_without_name(void **state)
{
	struct stage t;

	(void)state;
	stage_open(&t);
	rig_watch(t.s, 700);
	rig_want(t.s, 700);
	rig_want(t.s, 0);
	rig_want(t.s, SEG_SLOTS_MAX - 1);
	rig_turn(&t.r);
	assert_int_equal(t.s->n_watch, 0);
	assert_int_equal(t.r.wants, 1);
	fake_loop_advance(t.r.loop, 10 * MS);
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);
	stage_done(&t);
}

static void stage_open_free_with_waiter(struct stage *t)
{
	stage_open(t);
	rig_watch(t->s, t->slot);
	rig_turn(&t->r);
	free_with_waiter(t);
}

static void wakes_again(void **state)
{
	struct stage t;

	(void)state;
	stage_open_free_with_waiter(&t);
	fake_loop_advance(t.r.loop, 10 * MS);
	/* The heir does not sleep, in truth nobody does: the word is clean, and free for all. */
	assert_int_equal(LOCK_LOAD(rig_word(t.s, t.slot)) & (LOCK_H | LOCK_S), 0);
	assert_true(rig_take(t.s, t.slot, &t.b));
	stage_done(&t);
}

/* As in a turn of another node, which none has asked for: whoever waits would wait for ever, and the daemon look. */
static void turn_of_nobody(void **state)
{
	struct stage t;

	(void)state;
	stage_open_free_with_waiter(&t);
	*rig_word(t.s, t.slot) = (*rig_word(t.s, t.slot) & ~LOCK_K) | LOCK_Y;
	fake_loop_advance(t.r.loop, 100 * MS);
	assert_true(rig_take(t.s, t.slot, &t.b));
	fake_loop_advance(t.r.loop, 100 * MS);
	assert_int_equal(t.s->n_watch, 0);
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);
	stage_done(&t);
}

static void long_list(void **state)
{
	enum { N = 3000 };
	static uint32_t slots[N];
	unsigned turns = 0, seen = 0, before;
	struct stage t;
	char text[16];
	nsec_t began;

	(void)state;
	stage_open(&t);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		slots[i] = rig_name(&t.r, &t.a, t.s, text);
		*rig_word(t.s, slots[i]) = lock_range_word(9) | t.a.index | LOCK_EXCLUSIVE | LOCK_W | LOCK_K;
		rig_watch(t.s, slots[i]);
	}
	began = loop_now(t.r.loop);
	while (seen < N) {
		before = seen;
		fake_loop_advance(t.r.loop, MS / 2);
		seen = 0;
		for (int i = 0; i < N; i++)
			seen += !(LOCK_LOAD(rig_word(t.s, slots[i])) & LOCK_K);
		assert_true(seen - before <= 256);
		assert_true(++turns < 1000);
	}
	assert_true(loop_now(t.r.loop) - began < 100 * MS);
	stage_done(&t);
}

static void flood_of_wants(void **state)
{
	enum { N = 5000 };
	static uint32_t slots[N];
	struct stage t;
	char text[16];
	unsigned before;

	(void)state;
	stage_open(&t);
	for (int i = 0; i < N; i++) {
		snprintf(text, sizeof text, "%d", i);
		slots[i] = rig_name(&t.r, &t.a, t.s, text);
	}
	for (int i = 0; i < N; i++)
		rig_say(t.s, slots[i]);
	rig_ring(t.s);
	for (int i = 0; t.r.wants < N + 1; i++) {
		before = t.r.wants;
		fake_loop_advance(t.r.loop, 1 * MS);
		assert_true(t.r.wants - before <= 2 * (512 + 64));
		assert_true(i < 200);
	}
	fake_loop_advance(t.r.loop, 10 * MS);
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);
	for (int i = 0; i < N; i++)
		assert_true(LOCK_LOAD(rig_word(t.s, slots[i])) & LOCK_L);
	stage_done(&t);
}

static void flood_of_rings(void **state)
{
	char bytes[4096] = { 0 };
	unsigned quiet = 0, turns = 0;
	struct stage t;
	uint32_t slot;

	(void)state;
	stage_open(&t);
	slot = rig_name(&t.r, &t.b, t.s, "other");
	for (int ms = 0; ms < 20; ms++) {
		while (write(t.s->bell_clients, bytes, sizeof bytes) > 0)
			;
		if (ms == 10)
			rig_say(t.s, slot);  /* and its ring is lost among them */
		for (int i = 0; i < 1000 && write(t.s->bell_clients, bytes, 512) != 0; i++) {
			turns++;
			quiet += !fake_loop_turn(t.r.loop);
		}
		fake_loop_advance(t.r.loop, 1 * MS);
	}
	assert_true(quiet > turns * 3 / 4);      /* though there was always something to read */
	fake_loop_advance(t.r.loop, 100 * MS);
	assert_true(LOCK_LOAD(rig_word(t.s, slot)) & LOCK_L);
	assert_int_equal(fake_loop_next_timer(t.r.loop), NSEC_NEVER);
	stage_done(&t);
}

static void drained(void **state)
{
	struct stage t;
	uint32_t slot;
	char byte;

	(void)state;
	stage_open(&t);
	slot = rig_name(&t.r, &t.b, t.s, "other");
	rig_want(t.s, slot);
	while (read(t.s->bell_clients, &byte, 1) == 1)
		;
	rig_turn(&t.r);
	assert_int_equal(t.r.wants, 1);
	rig_ring(t.s);                           /* the next ring, whoever's, makes up for it */
	rig_turn(&t.r);
	assert_int_equal(t.r.wants, 2);
	stage_done(&t);
}

static void name_gone(void **state)
{
	struct stage t;
	uint32_t slot = 0;
	char text[16];
	long before;

	(void)state;
	stage_open(&t);
	for (int i = 0; slot < 1030; i++) {
		snprintf(text, sizeof text, "%d", i);
		slot = rig_name(&t.r, &t.b, t.s, text);
	}
	*rig_word(t.s, slot) = LOCK_W;
	rig_watch(t.s, slot);
	rig_turn(&t.r);
	assert_int_equal(t.s->n_watch, 1);
	for (uint32_t i = 1024; i <= slot; i++)
		assert_int_equal(client_close(t.b.c, t.r.shm, t.s, i), 0);
	before = rig_blocks(&t.r);
	fake_loop_advance(t.r.loop, 50 * MS);
	assert_int_equal(t.s->n_watch, 0);
	assert_int_equal(rig_blocks(&t.r), before);
	stage_done(&t);
}

/* Its client has been served, or has rung for another reason: there is nobody to claim a lease for. */
static void left_over(void **state)
{
	struct stage t;
	uint32_t slot;
	unsigned before;

	(void)state;
	stage_open(&t);
	slot = rig_name(&t.r, &t.b, t.s, "other");
	before = t.r.wants;
	seg_bit_set(t.s->base, SEG_WANT, slot);
	rig_ring(t.s);
	fake_loop_advance(t.r.loop, 100 * MS);
	assert_int_equal(t.r.wants, before);
	rig_want(t.s, slot);
	fake_loop_advance(t.r.loop, 5 * MS);
	assert_int_equal(t.r.wants, before + 1);
	stage_done(&t);
}

static void rescanned(void **state)
{
	struct stage t;
	uint32_t slot;

	(void)state;
	stage_open(&t);
	slot = rig_name(&t.r, &t.b, t.s, "other");
	rig_say(t.s, slot);
	/* The daemon had taken the second level, and died before it came to the first. */
	memset(seg_level2(t.s->base, SEG_WANT), 0, SEG_L2_WORDS * 8);
	rig_stop(&t.r);
	assert_int_equal(rig_adopt(&t.r), 0);
	t.s = rig_space(&t.r, "x");
	fake_loop_advance(t.r.loop, 5 * MS);
	assert_true(LOCK_LOAD(rig_word(t.s, slot)) & LOCK_L);
	stage_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(looks_soon, "the daemon looks ten milliseconds after the bell"),
		STORY(grows_rarer, "looks grow rarer, to one in 50 ms, and come sooner when something moves"),
		STORY(settles, "who holds alone in the end is not looked after"),
		STORY(closed, "who waits for another node sleeps until the grant, and keeps his place"),
		STORY(dropped, "a slot on which nobody sleeps is dropped, and an empty list sets no timer"),
		STORY(bit_without_name, "bits of slots without a name are nothing"),
		STORY(left_over, "nor is one that is left over from somebody who wants nothing any more"),
		STORY(wakes_again, "a wake-up that a stopped process owes is given"),
		STORY(turn_of_nobody, "another node's turn that none has asked for is nobody's"),
		STORY(long_list, "a long list is looked through in parts, all of it within 100 ms"),
		STORY(flood_of_wants, "five thousand wants at once are met, a ration a millisecond"),
		STORY(flood_of_rings, "who rings without end is heard once in a while, and nothing is lost"),
		STORY(drained, "a ring that somebody drained costs promptness until the next"),
		STORY(name_gone, "the memory of a name that is gone is not looked at"),
		STORY(rescanned, "after a restart bits count whatever the second level says"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
