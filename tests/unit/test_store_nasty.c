/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The nasty engine: that it keeps the contract, and that it is nasty.
 */
#include "store_contract.h"
#include "store_nasty.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct nasty_bench {
	struct store_contract contract;
	struct nasty_world *world;
	struct nasty_knobs knobs;
};

static const struct nasty_knobs late = { .late_turns = 5, .hint_turns = 3, .false_hint_percent = 5 };

static uint64_t seed(void)
{
	const char *given = getenv("DLOCK_SEED");
	uint64_t s = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	print_message("# seed: DLOCK_SEED=%llu\n", (unsigned long long)s);
	return s;
}

static void pump(struct store_contract *c)
{
	struct pollfd p = { .fd = store_fd(c->store), .events = POLLIN };

	poll(&p, 1, 10);
	store_ready(c->store);
}

static void reopen(struct store_contract *c)
{
	struct nasty_bench *b = (struct nasty_bench *)c;

	store_close(c->store);
	assert_int_equal(nasty_open(b->world, &b->knobs, &c->store), 0);
}

static int setup(void **state)
{
	struct nasty_bench *b = calloc(1, sizeof *b);

	if (!b || !(b->world = nasty_world_new(seed())))
		return -1;
	b->knobs = late;
	b->contract.reopen = reopen;
	b->contract.pump = pump;
	*state = b;
	return nasty_open(b->world, &b->knobs, &b->contract.store);
}

static int teardown(void **state)
{
	struct nasty_bench *b = *state;

	store_close(b->contract.store);
	nasty_world_free(b->world);
	free(b);
	return 0;
}

/* --- Nasty enough? --- */

static void note_order(void *arg, const struct store_result *result)
{
	int *order = arg;

	(void)result;
	*order = ++*(order - *order);
}

static void test_out_of_order(void **state)
{
	struct nasty_bench *b = *state;
	int order[21] = { 0 }, swapped = 0;

	/* Each slot knows its place until its answer writes down the turn it came in; order[0] counts. */
	for (int i = 1; i <= 20; i++) {
		order[i] = i;
		store_get(b->contract.store, "key", note_order, &order[i]);
	}
	while (order[0] < 20)
		pump(&b->contract);
	for (int i = 2; i <= 20; i++)
		swapped += order[i] < order[i - 1];
	assert_true(swapped > 0);
}

struct tally {
	unsigned acked, doubts, failed, raced, spurious;
};

/* One increment of a counter, as careful as the contract makes one be. */
static void increment(struct store_contract *c, struct tally *t)
{
	struct answer a = ask_get(c, "counter"), w;
	char text[24];

	t->spurious += store_changed(c->store);
	if (a.error) {
		t->failed++;
		answer_done(&a);
		return;
	}
	snprintf(text, sizeof text, "%d", (a.n ? atoi(a.records[0].value) : 0) + 1);
	w = ask_cas(c, "counter", a.version, text, strlen(text));
	if (w.error == 0)
		t->acked++;
	else if (w.error == -EAGAIN)
		t->raced++;
	else if (w.in_doubt)
		t->doubts++;
	else
		t->failed++;
	answer_done(&a);
	answer_done(&w);
}

/* Both clients' requests under way at a time: the other one's turns are taken while this one waits. */
static struct store *others;

static void pump_both(struct store_contract *c)
{
	store_ready(others);
	pump(c);
}

static void collide(void *arg, const struct store_result *result)
{
	unsigned *rival = arg;	/* won, in doubt */

	rival[0] += result->error == 0;
	rival[1] += result->in_doubt;
}

static void test_counter(void **state)
{
	struct nasty_bench *b = *state;
	struct store_contract second = { .pump = pump_both };
	struct tally t = { 0 };
	const struct store_record *r;
	unsigned rival[2] = { 0, 0 };
	int counted;

	b->knobs = (struct nasty_knobs){ 4, 10, 20, 6, 10 };
	reopen(&b->contract);
	assert_int_equal(nasty_open(b->world, &b->knobs, &second.store), 0);
	others = b->contract.store;
	for (int i = 0; i < 400; i++) {
		r = nasty_look(b->world, "counter");
		/* A rival that sees the same version. */
		if (i % 3 == 0 && r) {
			char text[24];

			snprintf(text, sizeof text, "%d", atoi(r->value) + 1);
			store_cas(b->contract.store, "counter", r->version, text, strlen(text), collide, rival);
		}
		increment(&second, &t);
	}
	while (!nasty_quiet(b->world)) {
		store_ready(b->contract.store);
		store_ready(second.store);
	}
	r = nasty_look(b->world, "counter");
	assert_non_null(r);
	counted = atoi(r->value);
	print_message("# counted %d; acknowledged %u and %u, in doubt %u, raced %u, failed %u\n", counted, t.acked, rival[0],
		      t.doubts, t.raced, t.failed);
	/* All that was acknowledged is in it; what was in doubt may be. */
	assert_true(counted >= (int)(t.acked + rival[0]));
	assert_true(counted <= (int)(t.acked + rival[0] + t.doubts + rival[1]));
	assert_true(t.acked && rival[0] && t.doubts && t.raced && t.failed && t.spurious);
	assert_true(counted > (int)(t.acked + rival[0]));
	store_close(second.store);
}

/* A write in doubt may land after a later read has not seen it. */
static void test_late_landing(void **state)
{
	struct nasty_bench *b = *state;
	int late_ones = 0;

	b->knobs = (struct nasty_knobs){ .late_turns = 3, .doubt_percent = 100 };
	reopen(&b->contract);
	for (int i = 0; i < 60; i++) {
		char key[16];
		struct answer a, w;

		snprintf(key, sizeof key, "k%d", i);
		w = ask_cas(&b->contract, key, 0, "x", 1);
		assert_true(w.in_doubt);
		a = ask_get(&b->contract, key);
		for (int turn = 0; turn < 60; turn++)
			store_ready(b->contract.store);
		late_ones += a.n == 0 && nasty_look(b->world, key);
		answer_done(&a);
		answer_done(&w);
	}
	assert_true(late_ones > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_CONTRACT_TESTS(setup, teardown),
		STORY("answers come in another order than the questions", test_out_of_order, setup, teardown),
		STORY("a counter under failures, doubts and a rival loses nothing that was acknowledged", test_counter, setup,
		      teardown),
		STORY("what is in doubt can land after a read that does not see it", test_late_landing, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store, the nasty one", tests, NULL, NULL);
}
