/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Paired barriers, story by story: who has entered is inside, and is told once more: that all have left together, or that this broke,
 * since one of them has gone, however that came about. Node 0 masters the barrier, unless it is said otherwise; party i is at
 * node i, 1 to 3.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster_rig.h"
#include "core_rig.h"

#include <cmocka.h>

#define NONE 1                   /* no verdict yet */
#define MS (CRIG_SECOND / 1000)
#define PARTIES 16

static struct told {
	int in, out;                     /* what it was told as it entered, and as it left */
	bool serial_in, serial_out;
	unsigned node;
	uint64_t order;
} told[PARTIES];
static struct core_barrier ledger[CRIG_NODES];
static unsigned resets;

static void verdict(struct told *t, const struct core_action *a)
{
	if (a->barrier.inside && t->in == 0)
		return;                  /* once more, by the next daemon */
	if (t->in == NONE) {
		t->in = a->barrier.error;
		t->serial_in = a->barrier.serial;
		assert_int_equal(a->barrier.inside, a->barrier.error == 0);
	} else {
		assert_int_equal(t->out, NONE);
		t->out = a->barrier.error;
		t->serial_out = a->barrier.serial;
	}
	if (!a->barrier.inside)
		t->order = 0;
}

static void barrier_act(struct crig *r, unsigned node, const struct core_action *a)
{
	struct told *t = &told[a->barrier.party];

	(void)r;
	if (a->kind == CORE_ACT_LEDGER_ARRIVE) {
		t->node = node;
		t->order = a->barrier.order;
	} else if (a->kind == CORE_ACT_LEDGER_BARRIER) {
		ledger[node] = *a->barrier.record;
	} else if (a->kind == CORE_ACT_VERDICT) {
		verdict(t, a);
	} else {
		resets++;
	}
}

static struct crig rig;
static char key[16];

static struct crig *begin(void)
{
	crig_init(&rig, 4);
	rig.barrier = barrier_act;
	crig_key(&rig, 0, 0, key);
	for (unsigned i = 0; i < PARTIES; i++)
		told[i] = (struct told){ .in = NONE, .out = NONE };
	memset(ledger, 0, sizeof ledger);
	resets = 0;
	return &rig;
}

static struct core_event event_of(enum core_event_kind kind, uint64_t party)
{
	return (struct core_event){ .kind = kind, .barrier = { .ref = 9, .key = key, .key_len = (uint16_t)strlen(key), .parties = 3,
							       .party = party, .yes = true, .paired = true } };
}

static void does(struct crig *r, enum core_event_kind kind, unsigned node, uint64_t party)
{
	struct core_event ev = event_of(kind, party);

	assert_int_equal(crig_give(r, node, &ev), 0);
}

static void arrive(struct crig *r, unsigned from)
{
	for (unsigned i = 1; i <= 3; i++)
		does(r, CORE_EV_ARRIVE, i, from + i);
	crig_run(r, 20 * MS);
}

static void all_in(unsigned from, int error)
{
	unsigned serials = 0;

	for (unsigned i = from + 1; i <= from + 3; i++) {
		assert_int_equal(told[i].in, error);
		serials += told[i].serial_in;
	}
	assert_int_equal(serials, error == 0);
}

static struct crig *begin_inside(void)
{
	struct crig *r = begin();

	arrive(r, 0);
	all_in(0, 0);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(told[i].out, NONE);
		assert_int_equal(ledger[i].state, CORE_BARRIER_IN);
	}
	return r;
}

static void out_is(unsigned a, int error_a, unsigned b, int error_b)
{
	assert_int_equal(told[a].out, error_a);
	assert_int_equal(told[b].out, error_b);
}

/* Three enter at these nodes and leave. */
static void cycle_at(struct crig *r, unsigned from, const unsigned node[3])
{
	for (unsigned i = 0; i < 3; i++)
		does(r, CORE_EV_ARRIVE, node[i], from + 1 + i);
	crig_run(r, 20 * MS);
	all_in(from, 0);
	for (unsigned i = 0; i < 3; i++)
		does(r, CORE_EV_DEPART, node[i], from + 1 + i);
	crig_run(r, 20 * MS);
	unsigned serials = 0;
	for (unsigned i = from + 1; i <= from + 3; i++) {
		assert_int_equal(told[i].out, 0);
		serials += told[i].serial_out;
	}
	assert_int_equal(serials, 1);
}

static const unsigned all_nodes[3] = { 1, 2, 3 };

static void in_and_out(void **state)
{
	(void)state;
	struct crig *r = begin_inside();

	/* Others wait until those inside have left, and one is not enough for that. */
	arrive(r, 3);
	does(r, CORE_EV_DEPART, 1, 1);
	does(r, CORE_EV_DEPART, 2, 2);
	crig_run(r, 20 * MS);
	out_is(1, NONE, 2, NONE);
	all_in(3, NONE);
	struct core_event ev = event_of(CORE_EV_DEPART, 2);
	assert_int_equal(crig_give(r, 2, &ev), -EALREADY);
	ev = event_of(CORE_EV_DEPART, 9);
	assert_int_equal(crig_give(r, 2, &ev), -ENOENT);
	ev = event_of(CORE_EV_CLOSE, 0);
	assert_int_equal(crig_give(r, 2, &ev), -EBUSY);
	does(r, CORE_EV_DEPART, 3, 3);
	crig_run(r, 20 * MS);
	out_is(1, 0, 2, 0);
	assert_int_equal(told[3].out, 0);
	assert_int_equal(told[1].serial_out + told[2].serial_out + told[3].serial_out, 1);
	all_in(3, 0);
	crig_done(r);
}

static void one_dies(void **state)
{
	(void)state;

	/* Who waits is told at once, and who is inside too, before it is done. */
	for (unsigned done = 0; done < 3; done++) {
		struct crig *r = begin_inside();

		if (done > 0)
			does(r, CORE_EV_DEPART, 1, 1);
		if (done > 1)
			does(r, CORE_EV_DEPART, 2, 2);
		does(r, CORE_EV_WITHDRAW, 3, 3);
		crig_run(r, 20 * MS);
		out_is(1, -EPIPE, 2, -EPIPE);
		assert_int_equal(told[3].out, -ETIMEDOUT);
		assert_int_equal(ledger[1].state, CORE_BARRIER_OUT);
		cycle_at(r, 3, all_nodes);
		crig_done(r);
	}
}

/* What it wanted before it was told that it has entered counts no more: its caller says it again. */
static void one_dies_entering(void **state)
{
	(void)state;
	struct crig *r = begin();

	r->lose[MSG_GO] = 1u << 3;
	arrive(r, 0);
	assert_int_equal(ledger[3].state, CORE_BARRIER_TOLD);
	does(r, CORE_EV_WITHDRAW, 3, 3);
	does(r, CORE_EV_DEPART, 1, 1);
	does(r, CORE_EV_DEPART, 2, 2);
	crig_run(r, 20 * MS);
	out_is(1, NONE, 2, NONE);
	r->lose[MSG_GO] = 0;
	crig_block(r, 0, 3, true);
	crig_block(r, 0, 3, false);
	crig_run(r, 50 * MS);
	all_in(0, 0);
	out_is(1, NONE, 2, NONE);
	does(r, CORE_EV_WITHDRAW, 3, 3);
	crig_run(r, 20 * MS);
	out_is(1, -EPIPE, 2, -EPIPE);
	crig_done(r);
}

static void node_ends(void **state)
{
	(void)state;

	/* Inside, or so near that it did not know yet. */
	for (unsigned near = 0; near < 2; near++) {
		struct crig *r = begin();

		r->lose[MSG_GO] = near ? 1u << 3 : 0;
		arrive(r, 0);
		assert_int_equal(ledger[3].state, near ? CORE_BARRIER_TOLD : CORE_BARRIER_IN);
		does(r, CORE_EV_DEPART, 1, 1);
		crig_kill(r, 3);
		crig_run(r, 6 * CRIG_SECOND);
		assert_int_equal(told[1].in | told[2].in, 0);
		out_is(1, -EPIPE, 2, -EPIPE);
		cycle_at(r, 3, (unsigned[]){ 0, 1, 2 });
		crig_done(r);
	}
}

/* All the same where the master, too, is another by then: they are too few. */
static void node_ends_with_master(void **state)
{
	(void)state;

	for (unsigned near = 0; near < 2; near++) {
		struct crig *r = begin();

		r->lose[MSG_GO] = near ? 1u << 2 | 1u << 3 : 0;
		arrive(r, 0);
		crig_kill(r, 0);
		crig_kill(r, 3);
		r->lose[MSG_GO] = 0;
		crig_run(r, 8 * CRIG_SECOND);
		assert_int_equal(told[1].in | told[2].in, 0);
		out_is(1, -EPIPE, 2, -EPIPE);
		cycle_at(r, 3, (unsigned[]){ 1, 2, 2 });
		crig_done(r);
	}
}

static void master_ends(void **state)
{
	(void)state;

	/* It has nobody inside, so all go on as they are; also those who did not hear that all know. */
	for (unsigned deaf = 0; deaf < 8; deaf++) {
		struct crig *r = begin();

		r->lose[MSG_GO] = deaf << 1;
		arrive(r, 0);
		crig_kill(r, 0);
		r->lose[MSG_GO] = 0;
		for (unsigned i = 1; i <= 2; i++)
			if (!(deaf >> (i - 1) & 1))
				does(r, CORE_EV_DEPART, i, i);
		crig_run(r, 8 * CRIG_SECOND);
		all_in(0, 0);
		out_is(1, NONE, 2, NONE);
		for (unsigned i = 1; i <= 3; i++)
			if (i == 3 || deaf >> (i - 1) & 1)
				does(r, CORE_EV_DEPART, i, i);
		crig_run(r, 20 * MS);
		out_is(1, 0, 2, 0);
		assert_int_equal(told[3].out, 0);
		cycle_at(r, 3, all_nodes);
		crig_done(r);
	}
}

/* As they leave, the master ends: whoever has heard the verdict, all hear it; nobody has: the next one finds the same. */
static void master_ends_as_they_leave(void **state)
{
	(void)state;

	for (unsigned deaf = 0; deaf < 8; deaf++) {
		struct crig *r = begin_inside();

		r->lose[MSG_ANNOUNCE] = deaf << 1;
		for (unsigned i = 1; i <= 3; i++)
			does(r, CORE_EV_DEPART, i, i);
		crig_run(r, 20 * MS);
		crig_kill(r, 0);
		r->lose[MSG_ANNOUNCE] = 0;
		crig_run(r, 8 * CRIG_SECOND);
		out_is(1, 0, 2, 0);
		assert_int_equal(told[3].out, 0);
		cycle_at(r, 3, all_nodes);
		crig_done(r);
	}
}

static struct core_barrier at_death;

static void adopt(struct crig *r, unsigned node)
{
	struct core_event ev = event_of(CORE_EV_ADOPT_BARRIER, 0);

	ev.barrier.record = &at_death;
	if (at_death.parties)
		assert_int_equal(crig_give(r, node, &ev), 0);
	for (unsigned i = 0; i < PARTIES; i++) {
		if (!told[i].order || told[i].node != node)
			continue;
		ev = event_of(CORE_EV_ADOPT_PARTY, i);
		ev.barrier.order = told[i].order;
		assert_int_equal(crig_give(r, node, &ev), 0);
	}
}

/* The daemon dies, and another adopts session and ledger. */
static void restart(struct crig *r, unsigned node)
{
	at_death = ledger[node];
	crig_restart(r, node, adopt);
}

static void daemons_restart(void **state)
{
	(void)state;
	struct crig *r = begin();

	/* A member that has the verdict and one that is inside, and the master: nobody is forgotten. What is wanted is said again. */
	r->lose[MSG_GO] = 1u << 1;
	arrive(r, 0);
	assert_int_equal(ledger[1].state, CORE_BARRIER_TOLD);
	does(r, CORE_EV_DEPART, 2, 2);
	restart(r, 1);
	r->lose[MSG_GO] = 0;
	restart(r, 2);
	restart(r, 0);
	restart(r, 1);
	all_in(0, 0);
	does(r, CORE_EV_DEPART, 1, 1);
	does(r, CORE_EV_DEPART, 3, 3);
	crig_run(r, 20 * MS);
	out_is(1, NONE, 3, NONE);
	does(r, CORE_EV_DEPART, 2, 2);
	crig_run(r, 20 * MS);
	out_is(1, 0, 2, 0);
	assert_int_equal(told[3].out, 0);
	cycle_at(r, 3, all_nodes);
	crig_done(r);
}

/* Cut off for longer than its session lasts, inside or about to be: it hears what the others heard. */
static void node_lapses(void **state)
{
	(void)state;

	for (unsigned near = 0; near < 2; near++) {
		struct crig *r = begin();

		r->lose[MSG_GO] = near ? 1u << 1 : 0;
		arrive(r, 0);
		assert_int_equal(told[1].in, near ? NONE : 0);
		r->lose[MSG_GO] = 0;
		r->store_cut[1] = true;
		for (unsigned i = 0; i < 4; i++)
			if (i != 1)
				crig_block(r, 1, i, true);
		crig_run(r, 10 * CRIG_SECOND);
		out_is(2, -EPIPE, 3, -EPIPE);
		r->store_cut[1] = false;
		for (unsigned i = 0; i < 4; i++)
			if (i != 1)
				crig_block(r, 1, i, false);
		crig_run(r, 10 * CRIG_SECOND);
		all_in(0, 0);
		assert_int_equal(told[1].out, -EPIPE);
		cycle_at(r, 3, all_nodes);
		crig_done(r);
	}
}

/*
 * ... and where all who heard it have ended since: that nobody knows, not that it broke, though it is known to all that its parties
 * had entered. The others had left, since it was not there any more.
 */
static void nobody_left_who_knows(void **state)
{
	(void)state;
	struct crig *r = begin_inside();

	r->lose[MSG_ANNOUNCE] = 1u << 1;
	for (unsigned i = 1; i <= 3; i++)
		does(r, CORE_EV_DEPART, i, i);
	crig_run(r, 20 * MS);
	r->store_cut[1] = true;
	for (unsigned i = 0; i < 4; i++)
		if (i != 1)
			crig_block(r, 1, i, true);
	crig_run(r, 10 * CRIG_SECOND);
	out_is(2, 0, 3, 0);
	assert_int_equal(told[1].out, NONE);
	r->lose[MSG_ANNOUNCE] = 0;
	for (unsigned i = 0; i < 4; i++)
		if (i != 1)
			crig_kill(r, i);
	r->store_cut[1] = false;
	crig_run(r, 10 * CRIG_SECOND);
	assert_int_equal(told[1].out, -ESTALE);
	assert_int_equal(ledger[1].state, CORE_BARRIER_OUT);
	cycle_at(r, 3, (unsigned[]){ 1, 1, 1 });
	crig_done(r);
}

static void reset_breaks(void **state)
{
	(void)state;
	struct crig *r = begin_inside();

	does(r, CORE_EV_DEPART, 1, 1);
	does(r, CORE_EV_RESET, 0, 0);
	crig_run(r, 20 * MS);
	assert_int_equal(resets, 1);
	out_is(1, -EPIPE, 2, -EPIPE);
	assert_int_equal(told[3].out, -EPIPE);
	cycle_at(r, 3, all_nodes);
	crig_done(r);
}

/* Who is inside on a node that leaves for good breaks it, as one who dies does. */
static void node_leaves(void **state)
{
	(void)state;
	struct crig *r = begin_inside();
	struct core_event ev = { .kind = CORE_EV_LEAVE, .leave.patience = 3 * CRIG_SECOND };

	does(r, CORE_EV_DEPART, 2, 2);
	assert_int_equal(crig_give(r, 1, &ev), 0);
	crig_run(r, 3 * CRIG_SECOND);
	out_is(1, -EPIPE, 2, -EPIPE);
	assert_int_equal(told[3].out, -EPIPE);
	cycle_at(r, 3, (unsigned[]){ 0, 2, 3 });
	crig_done(r);
}

int main(void)
{
#define STORY(name, title) { title, name, NULL, NULL, NULL }
	static const struct CMUnitTest tests[] = {
		STORY(in_and_out, "three enter, and leave when all of them are done; others wait until then"),
		STORY(one_dies, "one dies inside: all the others hear that it broke, done or not, and others enter"),
		STORY(one_dies_entering, "what one wanted before it was told that it is inside counts no more"),
		STORY(node_ends, "a node ends inside, or about to be: the others hear that it broke"),
		STORY(node_ends_with_master, "its master ends with it: the next one finds that they are too few"),
		STORY(master_ends, "a master ends that has nobody inside: nobody notices, whoever has heard what"),
		STORY(master_ends_as_they_leave, "it ends as they leave: all hear the same, whoever has heard it before"),
		STORY(daemons_restart, "daemons are started anew, members' and the master's: nobody inside is forgotten"),
		STORY(node_lapses, "who lapsed inside, or about to be, hears what the others heard"),
		STORY(nobody_left_who_knows, "and where all who heard it have ended since: that nobody knows"),
		STORY(reset_breaks, "a reset breaks it for all who are inside"),
		STORY(node_leaves, "so does a node that leaves for good with one inside"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_double", tests, NULL, NULL);
}
