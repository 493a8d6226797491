/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers, story by story: what each party is told. Node 0 masters the barrier, unless it is said otherwise;
 * the parties are at the nodes 1 to 3. What is lost is lost with its connection, which then breaks.
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
#define PARTIES 64

/* By party; and what the ledger of each node has. */
static struct told {
	int error;
	bool yes, serial;
	unsigned node;
	uint64_t order;
	bool vote;
} told[PARTIES];
static struct core_barrier ledger[CRIG_NODES];
static unsigned resets;

static void barrier_act(struct crig *r, unsigned node, const struct core_action *a)
{
	struct told *t = &told[a->barrier.party];

	(void)r;
	switch (a->kind) {
	case CORE_ACT_LEDGER_ARRIVE:
		t->node = node;
		t->order = a->barrier.order;
		t->vote = a->barrier.yes;
		break;
	case CORE_ACT_LEDGER_BARRIER:
		ledger[node] = *a->barrier.record;
		break;
	case CORE_ACT_VERDICT:
		assert_int_equal(t->error, NONE);
		t->error = a->barrier.error;
		t->yes = a->barrier.yes;
		t->serial = a->barrier.serial;
		t->order = 0;
		break;
	default:
		resets++;
	}
}

static struct crig rig;
static char key[16];

static struct crig *begin(unsigned nodes)
{
	crig_init(&rig, nodes);
	rig.barrier = barrier_act;
	crig_key(&rig, 0, 0, key);
	for (unsigned i = 0; i < PARTIES; i++)
		told[i] = (struct told){ .error = NONE };
	memset(ledger, 0, sizeof ledger);
	resets = 0;
	return &rig;
}

static struct core_event event_of(enum core_event_kind kind, uint64_t party)
{
	struct core_event ev = { .kind = kind };

	ev.barrier.ref = 9;
	ev.barrier.key = key;
	ev.barrier.key_len = (uint16_t)strlen(key);
	ev.barrier.parties = 3;
	ev.barrier.party = party;
	ev.barrier.yes = true;
	return ev;
}

static void arrives(struct crig *r, unsigned node, uint64_t party)
{
	struct core_event ev = event_of(CORE_EV_ARRIVE, party);

	assert_int_equal(crig_give(r, node, &ev), 0);
}

static void arrives_no(struct crig *r, unsigned node, uint64_t party)
{
	struct core_event ev = event_of(CORE_EV_ARRIVE, party);

	ev.barrier.yes = false;
	assert_int_equal(crig_give(r, node, &ev), 0);
}

static void withdraws(struct crig *r, unsigned node, uint64_t party)
{
	struct core_event ev = event_of(CORE_EV_WITHDRAW, party);

	assert_int_equal(crig_give(r, node, &ev), 0);
}

/* The connection breaks, and there is another. */
static void reconnect(struct crig *r, unsigned a, unsigned b)
{
	crig_block(r, a, b, true);
	crig_block(r, a, b, false);
	crig_run(r, 50 * MS);
}

static void all_told(unsigned from, unsigned to, int error, unsigned serials)
{
	for (unsigned i = from; i <= to; i++) {
		assert_int_equal(told[i].error, error);
		serials -= told[i].serial;
	}
	assert_int_equal(serials, 0);
}

static void passes(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	arrives(r, 1, 1);
	arrives_no(r, 2, 2);
	crig_run(r, 20 * MS);
	all_told(1, 3, NONE, 0);
	arrives(r, 3, 3);
	crig_run(r, 20 * MS);
	all_told(1, 3, 0, 1);
	assert_false(told[1].yes || told[2].yes || told[3].yes);

	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, 10 + i);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);
	assert_true(told[11].yes && told[12].yes && told[13].yes);
	assert_int_equal(ledger[1].state, CORE_BARRIER_OUT);
	struct core_event ev = event_of(CORE_EV_CLOSE, 0);
	assert_int_equal(crig_give(r, 1, &ev), 0);
	assert_int_equal(crig_give(r, 1, &ev), -ENOENT);
	crig_done(r);
}

static void more_than_expected(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	/* Two of node 1 are in, its third and fourth wait: and vote in the next round only. */
	arrives(r, 2, 5);
	crig_run(r, 20 * MS);
	arrives(r, 1, 1);
	arrives(r, 1, 2);
	arrives_no(r, 1, 3);
	arrives(r, 1, 4);
	crig_run(r, 20 * MS);
	all_told(1, 2, 0, 1);
	assert_int_equal(told[5].error, 0);
	assert_true(told[1].yes && told[5].yes);
	all_told(3, 4, NONE, 0);
	arrives(r, 3, 6);
	crig_run(r, 20 * MS);
	assert_int_equal(told[6].error, 0);
	assert_false(told[6].yes);
	all_told(3, 4, 0, !told[6].serial);
	crig_done(r);
}

/* Three come one by one at nodes 1 to 3, and pass. */
static void round_of_three(struct crig *r, uint64_t party)
{
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, party + i);
	crig_run(r, 20 * MS);
	all_told((unsigned)party + 1, (unsigned)party + 3, 0, 1);
	memset(r->frames, 0, sizeof r->frames);
}

static void places(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	/* Of one round like the one before each node says and hears two things. */
	round_of_three(r, 0);
	arrives(r, 1, 11);
	assert_int_equal(ledger[1].state, CORE_BARRIER_IN);
	arrives(r, 2, 12);
	arrives_no(r, 3, 13);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);
	assert_false(told[11].yes);
	assert_int_equal(r->frames[MSG_ENROL], 0);
	assert_int_equal(r->frames[MSG_ARRIVE], 6);
	assert_int_equal(r->frames[MSG_ANNOUNCE], 3);
	assert_int_equal(r->frames[MSG_GO], 3);

	/* One of the others comes instead, then one more than there are places. */
	arrives(r, 1, 21);
	arrives(r, 1, 22);
	crig_run(r, 20 * MS);
	all_told(21, 22, NONE, 0);
	assert_true(r->frames[MSG_ENROL] > 0);
	arrives(r, 3, 23);
	crig_run(r, 20 * MS);
	all_told(21, 23, 0, 1);

	/* Somebody else, and one of those who have places comes no more. */
	struct core_event close = event_of(CORE_EV_CLOSE, 0);
	assert_int_equal(crig_give(r, 3, &close), 0);
	arrives(r, 2, 31);
	arrives(r, 1, 32);
	arrives(r, 1, 33);
	crig_run(r, 20 * MS);
	all_told(31, 33, 0, 1);

	/* Of as many as come at once one statement is made. */
	struct core_event ev = event_of(CORE_EV_ARRIVE, 41);
	memset(r->frames, 0, sizeof r->frames);
	ev.barrier.further = true;
	assert_int_equal(crig_give(r, 1, &ev), 0);
	assert_int_equal(ledger[1].state, CORE_BARRIER_OUT);
	arrives(r, 1, 42);
	assert_int_equal(ledger[1].state, CORE_BARRIER_IN);
	assert_int_equal(r->frames[MSG_ARRIVE], 1);
	arrives(r, 2, 43);
	crig_run(r, 20 * MS);
	all_told(41, 43, 0, 1);

	/* The last of them is refused: the others are told all the same. */
	ev.barrier.party = 51;
	assert_int_equal(crig_give(r, 1, &ev), 0);
	ev.barrier.further = false;
	assert_int_equal(crig_give(r, 1, &ev), -EALREADY);
	arrives(r, 1, 52);
	arrives(r, 2, 53);
	crig_run(r, 20 * MS);
	all_told(51, 53, 0, 1);
	crig_done(r);
}

/* Whoever may be in the round without the master's knowing is waited for. */
static void places_unheard(void **state)
{
	(void)state;

	for (unsigned what = 0; what < 3; what++) {
		struct crig *r = begin(4);

		round_of_three(r, 0);
		r->lose[MSG_ARRIVE] = 1;
		arrives(r, 2, 12);
		assert_int_equal(ledger[2].state, CORE_BARRIER_IN);
		crig_run(r, 20 * MS);
		r->lose[MSG_ARRIVE] = 0;
		r->lose[MSG_ENROL] = 1u << 2;
		arrives(r, 3, 13);
		crig_run(r, 20 * MS);
		if (what == 0) {
			arrives(r, 1, 11);
			arrives(r, 1, 14);               /* would be one too many */
		} else if (what == 1) {
			withdraws(r, 3, 13);
		} else {
			struct core_event ev = event_of(CORE_EV_RESET, 0);
			assert_int_equal(crig_give(r, 1, &ev), 0);
		}
		crig_run(r, 20 * MS);
		all_told(11, 14, NONE, 0);
		assert_int_equal(resets, 0);
		r->lose[MSG_ENROL] = 0;
		reconnect(r, 0, 2);
		if (what == 0) {
			unsigned serials = 0, passed = 0;

			for (unsigned i = 11; i <= 14; i++) {
				passed += told[i].error == 0;
				serials += told[i].error == 0 && told[i].serial;
			}
			assert_int_equal(passed, 3);
			assert_int_equal(serials, 1);
		} else {
			all_told(12, 12, -EPIPE, 0);
			all_told(13, 13, what == 1 ? -ETIMEDOUT : -EPIPE, 0);
			assert_int_equal(resets, what == 2);
			round_of_three(r, 20);
		}
		crig_done(r);
	}
}

static void gives_up(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	arrives(r, 1, 1);
	arrives(r, 2, 2);
	crig_run(r, 20 * MS);
	withdraws(r, 1, 1);
	assert_int_equal(told[1].error, NONE);           /* it asks, and waits */
	struct core_event ev = event_of(CORE_EV_WITHDRAW, 1);
	assert_int_equal(crig_give(r, 1, &ev), -EALREADY);
	crig_run(r, 20 * MS);
	all_told(1, 1, -ETIMEDOUT, 0);
	all_told(2, 2, -EPIPE, 0);
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, 10 + i);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);

	/* Whoever finds a place is in the round, heard or not; whoever finds none may go at once, though the master hears nothing. */
	for (unsigned i = 0; i < 4; i++)
		if (i != 1)
			crig_block(r, 1, i, true);
	arrives(r, 1, 20);
	withdraws(r, 1, 20);
	assert_int_equal(told[20].error, NONE);
	arrives(r, 1, 21);
	withdraws(r, 1, 21);
	all_told(21, 21, -ETIMEDOUT, 0);
	for (unsigned i = 0; i < 4; i++)
		crig_block(r, 1, i, false);
	crig_run(r, 50 * MS);
	all_told(20, 20, -ETIMEDOUT, 0);
	crig_done(r);
}

/* Nobody can be in a round who is not there when its node has said all that it has: what it had been put into unheard is nobody's. */
static void gave_up_unheard(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	r->lose[MSG_ENROL] = 1u << 1;
	arrives(r, 1, 1);
	crig_run(r, 20 * MS);
	crig_block(r, 0, 1, true);
	withdraws(r, 1, 1);
	all_told(1, 1, -ETIMEDOUT, 0);
	arrives(r, 2, 2);                                /* after that it comes to the same round */
	crig_run(r, 20 * MS);
	assert_int_equal(ledger[2].state, CORE_BARRIER_IN);
	r->lose[MSG_ENROL] = 0;
	crig_block(r, 0, 1, false);
	crig_run(r, 50 * MS);
	all_told(2, 2, NONE, 0);
	arrives(r, 3, 3);
	arrives(r, 1, 4);
	crig_run(r, 20 * MS);
	all_told(2, 4, 0, 1);
	crig_done(r);
}

static void verdict_came_first(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	r->lose[MSG_ANNOUNCE] = 1u << 1;
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, i);
	crig_run(r, 20 * MS);
	all_told(1, 3, NONE, 0);                         /* nobody goes before all have it */
	assert_int_equal(ledger[2].state, CORE_BARRIER_TOLD);
	assert_int_equal(ledger[1].state, CORE_BARRIER_IN);
	withdraws(r, 1, 1);
	withdraws(r, 2, 2);
	crig_run(r, 20 * MS);
	all_told(1, 3, NONE, 0);
	r->lose[MSG_ANNOUNCE] = 0;
	reconnect(r, 0, 1);
	all_told(1, 3, 0, 1);
	crig_done(r);
}

static void answers_lost(void **state)
{
	(void)state;
	static const struct { enum msg_kind kind; unsigned to, from; } lost[] = {
		{ MSG_ENROL, 1, 0 }, { MSG_ANNOUNCE, 1, 0 }, { MSG_ARRIVE, 0, 1 }, { MSG_GO, 1, 0 },
	};

	for (unsigned i = 0; i < sizeof lost / sizeof *lost; i++) {
		struct crig *r = begin(4);

		arrives(r, 2, 2);
		arrives(r, 3, 3);
		crig_run(r, 20 * MS);
		if (lost[i].kind == MSG_ARRIVE) {            /* the acknowledgement of the verdict */
			r->lose[MSG_ANNOUNCE] = 1u << 1;
			arrives(r, 1, 1);
			crig_run(r, 20 * MS);
			r->lose[MSG_ANNOUNCE] = 0;
			r->lose[MSG_ARRIVE] = 0;
			crig_block(r, 0, 1, true);
			crig_block(r, 0, 1, false);
			r->lose[MSG_GO] = 1u << 1;
			crig_run(r, 50 * MS);
			assert_int_equal(ledger[1].state, CORE_BARRIER_TOLD);
		} else {
			r->lose[lost[i].kind] = 1u << lost[i].to;
			arrives(r, 1, 1);
		}
		crig_run(r, 20 * MS);
		assert_int_equal(told[1].error, NONE);
		assert_int_equal(told[2].error, lost[i].kind == MSG_ENROL || lost[i].kind == MSG_ANNOUNCE ? NONE : 0);
		memset(r->lose, 0, sizeof r->lose);
		reconnect(r, 0, 1);
		all_told(1, 3, 0, 1);
		crig_done(r);
	}
}

static void node_ends(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	arrives(r, 1, 1);
	arrives(r, 2, 2);
	crig_run(r, 20 * MS);
	crig_kill(r, 2);
	crig_run(r, 6 * CRIG_SECOND);
	all_told(1, 1, -EPIPE, 0);
	arrives(r, 1, 11);
	arrives(r, 3, 12);
	arrives(r, 0, 13);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);
	crig_done(r);
}

static void master_dies_after_announcing(void **state)
{
	(void)state;

	/* Whichever single member has heard it, all hear it. */
	for (unsigned heard = 1; heard <= 3; heard++) {
		struct crig *r = begin(4);

		r->lose[MSG_ANNOUNCE] = 0xe & ~(1u << heard);
		arrives_no(r, 1, 1);
		arrives(r, 2, 2);
		arrives(r, 3, 3);
		crig_run(r, 20 * MS);
		all_told(1, 3, NONE, 0);
		crig_kill(r, 0);
		memset(r->lose, 0, sizeof r->lose);
		crig_run(r, 8 * CRIG_SECOND);
		all_told(1, 3, 0, 1);
		assert_false(told[1].yes || told[2].yes || told[3].yes);
		for (unsigned i = 1; i <= 3; i++)
			arrives(r, i, 10 + i);
		crig_run(r, 20 * MS);
		all_told(11, 13, 0, 1);
		crig_done(r);
	}
}

static void master_dies_before_all_go(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	r->lose[MSG_GO] = 1u << 1 | 1u << 2;
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, i);
	crig_run(r, 20 * MS);
	all_told(1, 2, NONE, 0);
	assert_int_equal(told[3].error, 0);
	crig_kill(r, 0);
	memset(r->lose, 0, sizeof r->lose);
	crig_run(r, 8 * CRIG_SECOND);
	all_told(1, 3, 0, 1);
	crig_done(r);
}

/* With it parties may have gone that nobody else knew of. */
static void master_dies_before_announcing(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	arrives(r, 0, 7);
	arrives(r, 1, 1);
	crig_run(r, 20 * MS);
	crig_kill(r, 0);
	crig_run(r, 8 * CRIG_SECOND);
	all_told(1, 1, -EPIPE, 0);
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, 10 + i);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);
	crig_done(r);
}

static void master_moves(void **state)
{
	(void)state;
	struct crig *r = begin(4);
	unsigned shard = shard_of(key, strlen(key));

	arrives(r, 0, 1);
	arrives(r, 2, 2);
	crig_run(r, 20 * MS);
	assert_int_equal(crig_give(r, 0, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	crig_run(r, 3 * CRIG_SECOND);
	assert_int_not_equal(crig_master(r, shard), 0);
	all_told(1, 3, NONE, 0);
	arrives(r, 3, 3);
	crig_run(r, 20 * MS);
	all_told(1, 3, 0, 1);
	crig_done(r);
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
		ev.barrier.yes = told[i].vote;
		assert_int_equal(crig_give(r, node, &ev), 0);
	}
}

/* The daemon dies, and another adopts session and ledger. */
static void restart(struct crig *r, unsigned node)
{
	at_death = ledger[node];
	crig_restart(r, node, adopt);
}

static void daemon_restarts(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	/* A member that is in, a master with a party of its own, a member that has the verdict: nobody notices. */
	arrives_no(r, 1, 1);
	arrives(r, 0, 2);
	crig_run(r, 20 * MS);
	restart(r, 1);
	restart(r, 0);
	all_told(1, 3, NONE, 0);
	r->lose[MSG_GO] = 1u << 1;
	for (unsigned i = 0; i < 4; i++)                 /* whoever masters it now */
		r->lose[MSG_GO] |= 1u << i;
	arrives(r, 3, 3);
	crig_run(r, 20 * MS);
	assert_int_equal(ledger[1].state, CORE_BARRIER_TOLD);
	memset(r->lose, 0, sizeof r->lose);
	restart(r, 1);
	restart(r, 3);
	restart(r, 0);
	all_told(1, 3, 0, 1);
	assert_false(told[1].yes || told[2].yes || told[3].yes);
	crig_done(r);
}

static void places_lost(void **state)
{
	(void)state;

	/* A daemon that is started anew has none; what it had taken, it has. */
	for (unsigned taken = 0; taken < 2; taken++) {
		struct crig *r = begin(4);

		round_of_three(r, 0);
		if (taken)
			arrives(r, 2, 12);
		crig_run(r, 20 * MS);
		restart(r, 2);
		crig_run(r, 4 * CRIG_SECOND);
		all_told(11, 13, NONE, 0);
		if (!taken)
			arrives(r, 2, 12);
		arrives(r, 1, 11);
		arrives(r, 3, 13);
		crig_run(r, 20 * MS);
		all_told(11, 13, 0, 1);
		round_of_three(r, 20);
		crig_done(r);
	}

	/* A session that ends may have taken its own: whoever is in that round is told that it broke; who comes later is not. */
	for (unsigned early = 0; early < 2; early++) {
		struct crig *r = begin(4);

		round_of_three(r, 0);
		if (early)
			arrives(r, 1, 11);
		crig_kill(r, 2);
		crig_run(r, 8 * CRIG_SECOND);
		if (early) {
			all_told(11, 11, -EPIPE, 0);
			arrives(r, 1, 11 + 3);
		} else {
			arrives(r, 1, 14);
		}
		arrives(r, 3, 15);
		arrives(r, 3, 16);
		crig_run(r, 20 * MS);
		all_told(14, 16, 0, 1);
		crig_done(r);
	}
}

static void node_lapses(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	/* In a round: it breaks for all. In none: nothing came of it. */
	arrives(r, 1, 1);
	arrives(r, 2, 2);
	crig_run(r, 20 * MS);
	r->store_cut[2] = true;
	crig_run(r, 6 * CRIG_SECOND);
	all_told(1, 1, -EPIPE, 0);
	assert_int_equal(told[2].error, NONE);
	arrives(r, 2, 4);
	r->store_cut[2] = false;
	crig_run(r, 4 * CRIG_SECOND);
	all_told(2, 2, -EPIPE, 0);
	assert_int_equal(told[4].error, NONE);           /* of the new session: it waits */
	arrives(r, 1, 5);
	arrives(r, 3, 6);
	crig_run(r, 20 * MS);
	all_told(4, 6, 0, 1);

	/* It has the verdict, but lapses before it hears that it may go. It asks. */
	r->lose[MSG_GO] = 1u << 2;
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, 10 + i);
	crig_run(r, 20 * MS);
	assert_int_equal(told[12].error, NONE);
	for (unsigned i = 0; i < 4; i++)
		if (i != 2)
			crig_block(r, 2, i, true);
	r->store_cut[2] = true;
	crig_run(r, 6 * CRIG_SECOND);
	r->store_cut[2] = false;
	memset(r->lose, 0, sizeof r->lose);
	for (unsigned i = 0; i < 4; i++)
		crig_block(r, 2, i, false);
	crig_run(r, 4 * CRIG_SECOND);
	all_told(11, 13, 0, 1);
	crig_done(r);
}

static void nobody_knows(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	/* In no round at the lapse. */
	for (unsigned i = 0; i < 4; i++)
		if (i != 2)
			crig_block(r, 2, i, true);
	arrives(r, 2, 2);
	r->store_cut[2] = true;
	crig_run(r, 6 * CRIG_SECOND);
	all_told(2, 2, -ESTALE, 0);
	r->store_cut[2] = false;
	for (unsigned i = 0; i < 4; i++)
		crig_block(r, 2, i, false);
	crig_run(r, 4 * CRIG_SECOND);

	/* In a round, of which the master has gone with all that knew it. */
	arrives(r, 2, 3);
	crig_run(r, 20 * MS);
	assert_int_equal(ledger[2].state, CORE_BARRIER_IN);
	crig_kill(r, 0);
	r->store_cut[2] = true;
	crig_run(r, 6 * CRIG_SECOND);
	r->store_cut[2] = false;
	crig_run(r, 6 * CRIG_SECOND);
	all_told(3, 3, -ESTALE, 0);
	crig_done(r);
}

static void leave(struct crig *r, unsigned node, core_nsec_t patience)
{
	assert_int_equal(crig_give(r, node, &(struct core_event){ .kind = CORE_EV_LEAVE, .leave.patience = patience }), 0);
}

static void node_leaves(void **state)
{
	(void)state;

	/* Also one that masters the barrier itself. Who is in no round, here because there is one too many, is sent away at once. */
	for (unsigned node = 0; node < 3; node += 2) {
		struct crig *r = begin(4);
		struct core_event ev = event_of(CORE_EV_ARRIVE, 9), reset_ev = event_of(CORE_EV_RESET, 0);

		arrives(r, 1, 1);
		arrives(r, node, 2);
		crig_run(r, 20 * MS);
		r->lose[MSG_ENROL] = 1u << node;
		if (node)
			arrives(r, node, 3);
		leave(r, node, 10 * CRIG_SECOND);
		if (node)
			all_told(3, 3, -ESHUTDOWN, 0);
		all_told(1, 1, NONE, 0);
		assert_int_equal(crig_give(r, node, &ev), -ESHUTDOWN);
		assert_int_equal(crig_give(r, node, &reset_ev), -ESHUTDOWN);
		crig_run(r, 20 * MS);
		all_told(1, 2, -EPIPE, 0);
		r->lose[MSG_ENROL] = 0;
		crig_run(r, CRIG_SECOND);
		assert_int_equal(r->node[node].left, 1);
		assert_int_equal(r->node[node].losses, 0);
		arrives(r, 1, 11);
		arrives(r, 3, 12);
		arrives(r, 3, 13);
		crig_run(r, 50 * MS);
		all_told(11, 13, 0, 1);
		crig_done(r);
	}
}

/* The verdict came first, and whoever leaves waits for it: all the others hear the same. */
static void leaves_with_a_verdict(void **state)
{
	(void)state;
	struct crig *r = begin(4);

	r->lose[MSG_ANNOUNCE] = 1u << 1;
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, i);
	crig_run(r, 20 * MS);
	leave(r, 1, 10 * CRIG_SECOND);
	leave(r, 2, 10 * CRIG_SECOND);
	crig_run(r, 20 * MS);
	all_told(1, 3, NONE, 0);
	assert_int_equal(r->node[1].left + r->node[2].left, 0);
	r->lose[MSG_ANNOUNCE] = 0;
	reconnect(r, 0, 1);
	crig_run(r, CRIG_SECOND);
	all_told(1, 3, 0, 1);
	assert_int_equal(r->node[1].left + r->node[2].left, 2);
	crig_done(r);
}

/* Nobody answers any more: ESTALE, since no next session of this node will ask. */
static void leaves_unheard(void **state)
{
	(void)state;
	struct core_event reset_ev;

	for (unsigned told_of = 0; told_of < 2; told_of++) {
		struct crig *r = begin(4);

		if (told_of)
			r->lose[MSG_GO] = 1u << 2;
		for (unsigned i = told_of ? 1 : 2; i <= 3; i++)
			arrives(r, i, i);
		crig_run(r, 20 * MS);
		for (unsigned i = 0; i < 4; i++)
			if (i != 2)
				crig_block(r, 2, i, true);
		reset_ev = event_of(CORE_EV_RESET, 0);
		assert_int_equal(crig_give(r, 2, &reset_ev), 0);
		leave(r, 2, CRIG_SECOND / 2);
		crig_run(r, 400 * MS);
		all_told(2, 2, NONE, 0);
		assert_int_equal(resets, 0);
		crig_run(r, 400 * MS);
		all_told(2, 2, -ESTALE, 0);
		assert_int_equal(resets, 1);
		assert_int_equal(r->node[2].left, 1);
		assert_int_equal(r->node[2].losses, 0);          /* a party holds nothing */
		all_told(3, 3, told_of ? 0 : -EPIPE, told_of && told[3].serial);
		crig_done(r);
	}

	/* It had lapsed before, and was about to ask. */
	struct crig *r = begin(4);

	arrives(r, 2, 2);
	crig_run(r, 20 * MS);
	r->node[2].loss_slow = true;
	r->store_cut[2] = true;
	crig_run(r, 6 * CRIG_SECOND);
	all_told(2, 2, NONE, 0);
	leave(r, 2, CRIG_SECOND);
	all_told(2, 2, -ESTALE, 0);
	crig_done(r);
}

static void parties_differ(void **state)
{
	(void)state;
	struct crig *r = begin(4);
	struct core_event ev = event_of(CORE_EV_ARRIVE, 2);

	arrives(r, 1, 1);
	crig_run(r, 20 * MS);
	ev.barrier.parties = 2;
	assert_int_equal(crig_give(r, 1, &ev), -EINVAL);
	assert_int_equal(crig_give(r, 2, &ev), 0);
	crig_run(r, 20 * MS);
	all_told(2, 2, -EINVAL, 0);
	all_told(1, 1, NONE, 0);
	arrives(r, 2, 3);
	arrives(r, 3, 4);
	crig_run(r, 20 * MS);
	assert_int_equal(told[1].error, 0);
	all_told(3, 4, 0, !told[1].serial);
	ev.barrier.parties = 0;
	assert_int_equal(crig_give(r, 2, &ev), -EINVAL);
	crig_done(r);
}

static void reset(void **state)
{
	(void)state;
	struct crig *r = begin(4);
	struct core_event ev = event_of(CORE_EV_RESET, 0), again = event_of(CORE_EV_CLOSE, 0);

	/* All who came before it, though their arrival may be just under way. */
	arrives(r, 1, 1);
	arrives(r, 2, 2);
	assert_int_equal(crig_give(r, 2, &ev), 0);
	assert_int_equal(crig_give(r, 2, &ev), -EALREADY);
	assert_int_equal(crig_give(r, 2, &again), -EBUSY);
	crig_run(r, 20 * MS);
	all_told(1, 2, -EPIPE, 0);
	assert_int_equal(resets, 1);

	/* With nobody there, and by somebody who is not there. */
	assert_int_equal(crig_give(r, 3, &ev), 0);
	crig_run(r, 20 * MS);
	assert_int_equal(resets, 2);
	for (unsigned i = 1; i <= 3; i++)
		arrives(r, i, 10 + i);
	crig_run(r, 20 * MS);
	all_told(11, 13, 0, 1);
	crig_done(r);
}

static int alone_step(struct rig *r, enum core_event_kind kind, uint64_t party, bool yes)
{
	struct core_event ev = { .kind = kind };

	ev.barrier.ref = 4;
	ev.barrier.key = "default/b";
	ev.barrier.key_len = 9;
	ev.barrier.parties = 2;
	ev.barrier.party = party;
	ev.barrier.yes = yes;
	return rig_step(r, &ev);
}

static void alone(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	alone_step(&r, CORE_EV_ARRIVE, 21, true);
	rig_expect(&r, "ARRIVE 4 party 21\n"
		   "  LEDGER_BARRIER 4 out of 2\n  LEDGER_ARRIVE 4 party 21 order 1 yes\n"
		   "  LEDGER_BARRIER 4 in of 2 round 1:1 upto 1\n");
	alone_step(&r, CORE_EV_ARRIVE, 22, false);
	rig_expect(&r, "ARRIVE 4 party 22\n"
		   "  LEDGER_ARRIVE 4 party 22 order 2 no\n"
		   "  LEDGER_BARRIER 4 in of 2 round 1:1 upto 2\n"
		   "  LEDGER_BARRIER 4 told of 2 round 1:1 upto 2\n"
		   "  VERDICT 4 party 21 round 1:1 passed\n"
		   "  VERDICT 4 party 22 round 1:1 passed serial\n"
		   "  LEDGER_BARRIER 4 out of 2\n");
	alone_step(&r, CORE_EV_ARRIVE, 23, true);
	rig_forget(&r);
	alone_step(&r, CORE_EV_WITHDRAW, 23, true);
	rig_expect(&r, "WITHDRAW 4 party 23\n"
		   "  LEDGER_BARRIER 4 told of 2 round 1:2 upto 4\n"
		   "  VERDICT 4 party 23 round 1:2 ETIMEDOUT\n"
		   "  LEDGER_BARRIER 4 out of 2\n");
	assert_int_equal(alone_step(&r, CORE_EV_CLOSE, 0, false), 0);
	rig_done(&r);
}

static void no_memory(void **state)
{
	(void)state;
	struct rig r;

	/* However many allocations succeed before: refused and nothing changed, or done. */
	for (int i = 0, e = -ENOMEM; e; i++) {
		rig_open(&r);
		r.countdown = i;
		e = alone_step(&r, CORE_EV_ARRIVE, 21, true);
		assert_true(e == 0 || e == -ENOMEM);
		assert_true(i > 0 || e);
		r.countdown = -1;
		if (e)
			assert_int_equal(alone_step(&r, CORE_EV_ARRIVE, 21, true), 0);
		rig_forget(&r);
		alone_step(&r, CORE_EV_ARRIVE, 22, true);
		assert_non_null(strstr(r.trace, "VERDICT 4 party 21 round 1:1 passed yes"));
		assert_non_null(strstr(r.trace, "VERDICT 4 party 22 round 1:1 passed yes serial"));
		rig_done(&r);
	}
}

/* The last verdict is known for a while though nobody is there; there is a bound to how many are. */
static void many_barriers(void **state)
{
	(void)state;
	enum { N = 3 * BARRIER_IDLE_MAX };
	struct rig r;
	size_t before = 0;

	rig_open(&r);
	r.silent = true;
	for (unsigned i = 0; i < N; i++) {
		struct core_event ev = { .kind = CORE_EV_ARRIVE };
		char name[24];

		ev.barrier.key = name;
		ev.barrier.key_len = (uint16_t)snprintf(name, sizeof name, "default/%u", i);
		ev.barrier.parties = 1;
		assert_int_equal(rig_step(&r, &ev), 0);
		assert_false(r.actions.more);
		ev.kind = CORE_EV_CLOSE;
		assert_int_equal(rig_step(&r, &ev), 0);
		assert_true(r.core->barriers.idle <= BARRIER_IDLE_MAX);
		if (i == N / 2)
			before = r.bytes;
	}
	assert_int_equal(r.core->barriers.idle, BARRIER_IDLE_MAX);
	assert_int_equal(r.core->barriers.names.count, BARRIER_IDLE_MAX);
	assert_true(r.bytes <= before + 2 * CORE_CHUNK);
	rig_done(&r);
}

/* However many, each is told once, and the list of actions never overflows. */
static void alone_with_many(void **state)
{
	(void)state;
	enum { N = 2000 };
	static uint8_t heard[N];
	struct rig r;
	unsigned serials = 0;

	memset(heard, 0, sizeof heard);
	rig_open(&r);
	r.silent = true;
	for (unsigned i = 0; i < N; i++) {
		struct core_event ev = { .kind = CORE_EV_ARRIVE };

		ev.barrier.key = "default/b";
		ev.barrier.key_len = 9;
		ev.barrier.parties = N;
		ev.barrier.party = i;
		assert_int_equal(rig_step(&r, &ev), 0);
		for (;; rig_continue(&r)) {
			for (unsigned k = 0; k < r.actions.n; k++)
				if (r.actions.v[k].kind == CORE_ACT_VERDICT) {
					assert_int_equal(r.actions.v[k].barrier.error, 0);
					heard[r.actions.v[k].barrier.party]++;
					serials += r.actions.v[k].barrier.serial;
				}
			if (!r.actions.more)
				break;
		}
	}
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(heard[i], 1);
	assert_int_equal(serials, 1);
	rig_done(&r);
}

int main(void)
{
#define STORY(name, title) { title, name, NULL, NULL, NULL }
	static const struct CMUnitTest tests[] = {
		STORY(passes, "three come, all pass with the AND of their votes, one is serial; and again"),
		STORY(more_than_expected, "who is too many waits for the next round, and votes there"),
		STORY(places, "the same parties again: nobody is asked; others: as ever"),
		STORY(places_unheard, "who may be in the round unheard is waited for, and then nothing else comes of it"),
		STORY(places_lost, "places that are lost with a daemon are nobody's; with a session they break the round"),
		STORY(gives_up, "who has waited for long enough asks, and the round breaks for all; who is in none goes at once"),
		STORY(gave_up_unheard, "who has given up before it heard that it was in breaks nothing for those who come later"),
		STORY(verdict_came_first, "nobody goes before all have the verdict, and then it counts more than a time-out"),
		STORY(answers_lost, "whichever word is lost with its connection, it is said again"),
		STORY(node_ends, "a node that ends breaks the round for all, and the next one works"),
		STORY(master_dies_after_announcing, "a verdict that a single member has is completed by the next master"),
		STORY(master_dies_before_all_go, "so is one that some have acted on"),
		STORY(master_dies_before_announcing, "a master that dies breaks the round: its parties may have died with it"),
		STORY(master_moves, "a master that is followed in peace breaks nothing"),
		STORY(daemon_restarts, "a daemon that is started anew changes nothing"),
		STORY(node_lapses, "who lapsed asks what became of its round, and hears the same as the others"),
		STORY(nobody_knows, "if nobody knows it hears ESTALE"),
		STORY(node_leaves, "a node that leaves breaks its rounds, and sends away who is in none"),
		STORY(leaves_with_a_verdict, "but a verdict that came first is waited for"),
		STORY(leaves_unheard, "who leaves and hears of none in time says ESTALE"),
		STORY(parties_differ, "another number of parties is refused to the later one"),
		STORY(reset, "a reset breaks the round of all who had come"),
		STORY(alone, "alone it is the same, in one step"),
		STORY(no_memory, "without memory nobody comes, and nothing has changed"),
		STORY(many_barriers, "of barriers that nobody waits at a bounded number is remembered"),
		STORY(alone_with_many, "thousands at one node are each told once"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_barrier", tests, NULL, NULL);
}
