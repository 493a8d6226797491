/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shards go where they are used, and nowhere else. Three or four nodes, one story each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster_rig.h"

#include <cmocka.h>

#define SPAN CRIG_SECOND
#define TURN (CRIG_SECOND / 1000)
#define BURST 8

/* Names that are used once each. */
static unsigned names;

static void begin(struct crig *r, unsigned node, core_ref_t ref)
{
	char key[16];

	snprintf(key, sizeof key, "new/%u", names++);
	crig_claim(r, node, ref, key);           /* or its last name is being given back yet */
}

/* Each turn some names for so long, by those nodes (bit i: node i); one after the other for `each`, or all at once (0). */
static void use(struct crig *r, unsigned who, core_nsec_t span, core_nsec_t each)
{
	core_nsec_t from = r->now;

	for (unsigned turn = 0; r->now - from < span; turn++) {
		for (unsigned i = 0, rank = 0; i < r->n; i++) {
			if (!(who >> i & 1) || !r->node[i].core)
				continue;
			bool its = !each || ((r->now - from) / each) % (unsigned)__builtin_popcount(who) == rank;

			rank++;
			for (unsigned k = 0; k < BURST; k++) {
				core_ref_t ref = 100 + (turn % 4 * BURST + k);

				if (r->node[i].held[ref])
					crig_release(r, i, ref);
				else if (its)
					begin(r, i, ref);
			}
		}
		crig_run(r, TURN);
	}
}

static void give_all_back(struct crig *r, unsigned node)
{
	for (core_ref_t ref = 100; ref < 100 + 4 * BURST; ref++)
		if (r->node[node].held[ref])
			crig_release(r, node, ref);
	crig_run(r, 10 * TURN);
}

static unsigned reigns(const struct crig *r)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		sum += crig_epoch(r, i);
	return sum;
}

static shard_set_t suspects(const struct crig *r)
{
	shard_set_t all = 0;

	for (unsigned i = 0; i < r->n; i++)
		all |= r->node[i].core ? r->node[i].core->master.suspect & r->node[i].core->master.open : 0;
	return all;
}

static unsigned coordinator(const struct crig *r)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->node[i].core && r->node[i].core->cluster.map.coordinator == r->node[i].session)
			return i;
	return CRIG_NODES;
}

/* Where each shard is by itself. */
static void homes(const struct crig *r, unsigned ret[CORE_SHARDS])
{
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		ret[i] = crig_master(r, i);
}

static void assert_at_home(const struct crig *r, const unsigned home[CORE_SHARDS])
{
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		assert_int_equal(crig_master(r, i), home[i]);
}

static void drain(struct crig *r, unsigned node, bool on)
{
	crig_give(r, node, &(struct core_event){ .kind = CORE_EV_DRAIN, .drain.off = !on });
}

static void goes_where_used(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init_placing(&r, 3, SPAN);
	crig_key(&r, 1, 0, key);
	assert_int_equal(crig_claim(&r, 2, 5, key), 0);
	unsigned before = reigns(&r);
	shard_set_t suspect = suspects(&r);
	use(&r, 1, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	assert_true(reigns(&r) - before < CORE_SHARDS);          /* each has moved once, or not at all */
	assert_int_equal(suspects(&r) & ~suspect, 0);            /* they were handed over: nothing may be lost */

	/* Its names cost no message any more. */
	before = reigns(&r);
	memset(r.frames, 0, sizeof r.frames);
	use(&r, 1, 2 * SPAN, 0);
	for (unsigned i = 0; i < 256; i++)
		assert_int_equal(r.frames[i], 0);
	assert_int_equal(reigns(&r), before);

	/* What was held is held; who wants it gets it. */
	assert_int_equal(r.node[2].held[5], CORE_WEIGHT_ALL);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 50);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, CRIG_SECOND / 50);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	crig_done(&r);
}

/* Whoever uses a shard for less than a span, or together with others, or seldom, has it moved nowhere. */
static void stays_where_nobody_dominates(void **state)
{
	(void)state;
	static struct crig r;

	crig_init_placing(&r, 3, SPAN);
	unsigned before = reigns(&r);
	use(&r, 3, 4 * SPAN, 0);
	use(&r, 7, 4 * SPAN, 0);
	use(&r, 3, 8 * SPAN, SPAN / 2);
	for (unsigned i = 0; i < 40; i++) {
		use(&r, 2, 2 * TURN, 0);
		crig_run(&r, SPAN / 4);
	}
	assert_int_equal(reigns(&r), before);
	assert_int_equal(r.frames[MSG_PLACE], 0);
	crig_done(&r);
}

/* Two that take turns that are long enough for all to move: sooner or later it stays for sixteen spans. */
static void rests(void **state)
{
	(void)state;
	static struct crig r;

	crig_init_placing(&r, 3, SPAN);
	use(&r, 1, 3 * SPAN, 0);
	unsigned before = reigns(&r);
	use(&r, 3, 48 * SPAN, 2 * SPAN);
	assert_true(reigns(&r) - before <= 5 * CORE_SHARDS);

	/* Once it is one's alone for good it goes there. */
	use(&r, 2, 20 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 1), CORE_SHARDS);
	crig_done(&r);
}

/* What is used elsewhere too, or by nobody, goes home again. */
static void goes_home(void **state)
{
	(void)state;
	static struct crig r;
	unsigned home[CORE_SHARDS];

	crig_init_placing(&r, 3, SPAN);
	homes(&r, home);
	use(&r, 1, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	use(&r, 7, 8 * SPAN, 0);
	assert_at_home(&r, home);

	use(&r, 2, 40 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 1), CORE_SHARDS);
	crig_run(&r, (PLACE_IDLE + 2) * SPAN);
	assert_true(crig_shards(&r, 1) > CORE_SHARDS / 3);       /* there are names of some that are held */
	for (unsigned i = 0; i < 3; i++)
		give_all_back(&r, i);
	crig_run(&r, SPAN);
	assert_at_home(&r, home);
	crig_done(&r);
}

/* Who drains gets none, though it makes all claims, and gives away what it had. */
static void not_to_who_drains(void **state)
{
	(void)state;
	static struct crig r;

	crig_init_placing(&r, 3, SPAN);
	use(&r, 1, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	drain(&r, 0, true);
	use(&r, 1, 8 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), 0);
	assert_int_equal(r.node[0].drained, 1);
	assert_true(crig_shards(&r, 1) > 0 && crig_shards(&r, 2) > 0);
	drain(&r, 0, false);
	use(&r, 1, 8 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);

	/* The wish has been said, and is heard when it drains already. */
	crig_init_placing(&r, 3, SPAN);
	unsigned leads = coordinator(&r), user = (leads + 1) % 3;
	r.lose[MSG_PLACE] = 1u << leads;
	use(&r, 1u << user, 2 * SPAN, 0);
	drain(&r, user, true);
	crig_run(&r, SPAN);
	unsigned of = (leads + 2) % 3;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (crig_master(&r, i) == of)
			place_hear(r.node[leads].core, &(struct msg){ .kind = MSG_PLACE, .shard = (uint8_t)i, .epoch = crig_epoch(&r, i),
				   .from = { r.node[of].session, 1 }, .number = r.node[user].session }, r.now);
	crig_run(&r, SPAN);
	assert_int_equal(crig_shards(&r, user), 0);
	crig_done(&r);
}

/* A newcomer has its part, but not of what is used. */
static void newcomer(void **state)
{
	(void)state;
	static struct crig r;
	unsigned home[CORE_SHARDS];

	crig_init_placing(&r, 3, SPAN);
	homes(&r, home);
	use(&r, 1, 4 * SPAN, 0);
	unsigned before = reigns(&r);
	r.n = 4;
	crig_start(&r, 3);
	use(&r, 1, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	assert_int_equal(reigns(&r), before);

	/* Nobody uses it any more. */
	give_all_back(&r, 0);
	crig_run(&r, (PLACE_IDLE + 2) * SPAN);
	assert_true(crig_shards(&r, 3) > 0);
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		assert_true(crig_master(&r, i) == home[i] || crig_master(&r, i) == 3);
	crig_done(&r);
}

/* While somebody does not reach somebody nothing goes anywhere for its use. */
static void not_over_a_cut(void **state)
{
	(void)state;
	static struct crig r;

	crig_init_placing(&r, 3, SPAN);
	unsigned user = coordinator(&r), other = (user + 1) % 3;
	for (unsigned i = 0; i < 3; i++)
		if (i != other)
			crig_block(&r, i, other, true);
	crig_run(&r, CRIG_SECOND - CRIG_SECOND / 10);
	assert_true(crig_records(&r, "cut/") > 0);
	for (unsigned i = 0; i < 3; i++)
		crig_block(&r, i, other, false);
	unsigned before = reigns(&r);
	use(&r, 1u << user, 3 * SPAN, 0);
	assert_int_equal(reigns(&r), before);
	use(&r, 1u << user, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, user), CORE_SHARDS);
	crig_done(&r);
}

/* Whoever dies at whatever moment around a move: what is claimed is granted, as fast as after any death. */
static void deaths(void **state)
{
	(void)state;
	static struct crig r;
	unsigned moved = 0;

	for (unsigned who = 0; who < 3; who++)
		for (unsigned at = 0; at < 12; at++) {
			char key[3][16];

			crig_init_placing(&r, 3, SPAN);
			unsigned user = 1, dead = who == 0 ? coordinator(&r) : who == 1 ? user : 3 - user - (coordinator(&r) == user ? 0 : coordinator(&r));
			unsigned asks = dead == 2 ? 0 : 2;
			unsigned before = reigns(&r);

			for (unsigned i = 0; i < 3; i++)
				crig_key(&r, i, 0, key[i]);
			use(&r, 1u << user, SPAN, 0);
			while (reigns(&r) == before && r.now < 1010 * CRIG_SECOND)
				use(&r, 1u << user, TURN, 0);
			moved += reigns(&r) != before;
			use(&r, 1u << user, at % 6 * TURN + (at / 6) * SPAN / 5, 0);
			crig_kill(&r, dead);
			for (unsigned i = 0; i < 3; i++)
				assert_int_equal(crig_claim(&r, asks, i, key[i]), 0);
			/* TTL + 2d + o, the map, the sync. */
			crig_run(&r, 2 * CRIG_SECOND + CRIG_SECOND / 10 + 4 * CRIG_SECOND / 5);
			for (unsigned i = 0; i < 3; i++)
				assert_int_equal(r.node[asks].held[i], CORE_WEIGHT_ALL);
			crig_done(&r);
		}
	assert_int_equal(moved, 3 * 12);
}

/* The next coordinator goes on with what it hears; what was placed is in the map. */
static void next_coordinator(void **state)
{
	(void)state;
	static struct crig r;

	crig_init_placing(&r, 4, SPAN);
	unsigned first = coordinator(&r), user = (first + 1) % 4;
	use(&r, 1u << user, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, user), CORE_SHARDS);
	unsigned before = reigns(&r);
	crig_kill(&r, first);
	use(&r, 1u << user, 6 * SPAN, 0);
	assert_int_not_equal(coordinator(&r), first);
	assert_int_equal(reigns(&r), before);
	assert_int_equal(crig_shards(&r, user), CORE_SHARDS);
	unsigned next = (user + 1) % 4 == first ? (user + 2) % 4 : (user + 1) % 4;
	use(&r, 1u << next, 20 * SPAN, 0);
	assert_int_equal(crig_shards(&r, next), CORE_SHARDS);
	crig_done(&r);
}

/* A coordinator that places nothing has all go home, whatever the others say. */
static void switched_off(void **state)
{
	(void)state;
	static struct crig r;
	unsigned home[CORE_SHARDS];

	crig_init_placing(&r, 3, SPAN);
	homes(&r, home);
	use(&r, 1, 4 * SPAN, 0);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	r.node[coordinator(&r)].core->cluster.place.span = 0;
	use(&r, 1, 4 * SPAN, 0);
	assert_at_home(&r, home);
	crig_done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "the node that uses the shards becomes their master, and then its names cost no message", goes_where_used, NULL, NULL, NULL },
		{ "nothing moves where nobody makes most of the claims, not for long enough, or only a few", stays_where_nobody_dominates, NULL, NULL, NULL },
		{ "where two take long turns it moves less and less often", rests, NULL, NULL, NULL },
		{ "what is used by all, or by nobody, goes home", goes_home, NULL, NULL, NULL },
		{ "who drains gets nothing, and hands over what it had", not_to_who_drains, NULL, NULL, NULL },
		{ "a newcomer gets its part of what is not used elsewhere", newcomer, NULL, NULL, NULL },
		{ "nothing goes where it is used while somebody does not reach somebody", not_over_a_cut, NULL, NULL, NULL },
		{ "coordinator, user or another dies around a move: all is granted in time", deaths, NULL, NULL, NULL },
		{ "the next coordinator leaves what was placed, and goes on", next_coordinator, NULL, NULL, NULL },
		{ "a coordinator that is told to place nothing has all go home", switched_off, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_place", tests, NULL, NULL);
}
