/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who can reach whom, and what becomes of those who cannot. Three to five nodes, one story each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster_rig.h"
#include "core/envelope.h"

#include <cmocka.h>

static unsigned cut_offs(const struct crig *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n; i++)
		n += r->node[i].cut_offs;
	return n;
}

static void relayed(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);

	/* 0 and 1 see each other no more, but 2 sees both. */
	crig_block(&r, 0, 1, true);
	assert_int_equal(crig_claim(&r, 2, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 2);
	assert_int_equal(r.node[0].relayed, 1);
	assert_int_equal(r.node[1].relayed, 1);
	assert_int_equal(r.node[1].revoked[5], 0);
	assert_int_equal(crig_release(&r, 1, 5), 0);
	crig_run(&r, CRIG_SECOND / 100);
	assert_int_equal(r.node[2].held[5], CORE_WEIGHT_ALL);
	assert_true(r.relayed_frames > 0);

	/* The relay's connection breaks and comes back: another path, and all is said again. */
	crig_block(&r, 0, 2, true);
	crig_run(&r, CRIG_SECOND / 100);
	crig_block(&r, 0, 2, false);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	assert_int_equal(r.node[1].relayed, 2);

	/* A connection replaces the path. */
	crig_block(&r, 0, 1, false);
	crig_run(&r, CRIG_SECOND / 10);
	unsigned before = r.relayed_frames;
	assert_int_equal(crig_release(&r, 1, 5), 0);
	crig_run(&r, 5 * CRIG_SECOND);
	assert_int_equal(r.relayed_frames, before);
	assert_int_equal(cut_offs(&r), 0);
	assert_int_equal(crig_records(&r, "cut/"), 0);
	crig_done(&r);
}

static void alone_among_three(void **state)
{
	(void)state;

	/* Whoever it is, and whether or not it coordinates: it ends itself, nobody else does. */
	for (unsigned who = 0; who < 3; who++) {
		static struct crig r;
		unsigned other = (who + 1) % 3, third = (who + 2) % 3;
		char key[16], own[16];

		crig_init(&r, 3);
		crig_key(&r, other, 0, key);
		crig_key(&r, who, 0, own);
		assert_int_equal(crig_claim(&r, who, 5, key), 0);
		assert_int_equal(crig_claim(&r, who, 6, own), 0);
		crig_run(&r, CRIG_SECOND / 10);
		assert_int_equal(r.node[who].held[5], CORE_WEIGHT_ALL);
		assert_int_equal(crig_claim(&r, third, 5, key), 0);
		assert_int_equal(crig_claim(&r, third, 6, own), 0);
		r.node[who].loss_slow = true;
		crig_block(&r, who, other, true);
		crig_block(&r, who, third, true);

		crig_run(&r, 2 * CRIG_SECOND - CRIG_SECOND / 10);
		assert_int_equal(r.node[who].cut_offs, 0);
		assert_int_equal(r.node[who].held[5], CORE_WEIGHT_ALL);
		assert_true(r.node[other].complaints > 0);
		assert_int_equal(crig_shards(&r, who), 0);       /* the others have its shards already */
		crig_run(&r, CRIG_SECOND / 2);
		assert_int_equal(r.node[who].cut_offs, 1);
		assert_int_equal(r.node[who].lapses, 1);
		assert_int_equal(r.node[who].losses, 1);
		assert_int_equal(r.node[third].held[5], 0);      /* not before its actions on loss are done */
		crig_give(&r, who, &(struct core_event){ .kind = CORE_EV_LOSS_DONE });
		crig_run(&r, CRIG_SECOND);
		assert_int_equal(r.node[third].held[5], CORE_WEIGHT_ALL);
		assert_int_equal(r.node[third].held[6], CORE_WEIGHT_ALL);
		assert_true(r.node[third].lost[5] && r.node[third].lost[6]);

		/* It stays, with another session, in nobody's way; and once it is back it masters again. */
		crig_run(&r, 10 * CRIG_SECOND);
		assert_int_equal(cut_offs(&r), 1);
		assert_int_equal(crig_shards(&r, who), 0);
		crig_block(&r, who, other, false);
		crig_block(&r, who, third, false);
		crig_run(&r, 10 * CRIG_SECOND);
		assert_true(crig_shards(&r, who) > 0);
		assert_int_equal(crig_records(&r, "cut/"), 0);
		assert_int_equal(cut_offs(&r), 1);
		crig_done(&r);
	}
}

static void two_halves(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	/* Two of two, then two and two: the half that coordinates goes on, the other ends itself. */
	for (unsigned n = 2; n <= 4; n += 2) {
		crig_init(&r, n);
		for (unsigned a = 0; a < n / 2; a++)
			for (unsigned b = n / 2; b < n; b++)
				crig_block(&r, a, b, true);
		crig_run(&r, 12 * CRIG_SECOND);
		unsigned first = 0, second = 0, winner;
		for (unsigned i = 0; i < n; i++) {
			*(i < n / 2 ? &first : &second) += r.node[i].cut_offs;
			assert_true(r.node[i].cut_offs <= 1);
		}
		assert_true((first == n / 2 && !second) || (second == n / 2 && !first));
		winner = first ? n - 1 : 0;
		assert_int_equal(crig_claim(&r, winner, 5, crig_key(&r, winner, 0, key)), 0);
		crig_run(&r, CRIG_SECOND / 10);
		assert_int_equal(r.node[winner].held[5], CORE_WEIGHT_ALL);
		crig_done(&r);
	}
}

/* A complaint that is moot is no reason to end, and a short cut none to complain. */
static void short_cut(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 2);
	assert_int_equal(crig_claim(&r, 1, 5, crig_key(&r, 0, 0, key)), 0);
	crig_run(&r, CRIG_SECOND / 10);
	crig_block(&r, 0, 1, true);
	crig_run(&r, 9 * CRIG_SECOND / 10);
	crig_block(&r, 0, 1, false);
	crig_run(&r, 10 * CRIG_SECOND);
	assert_int_equal(cut_offs(&r), 0);
	assert_int_equal(crig_records(&r, "cut/"), 0);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	crig_done(&r);
}

/* Nobody reads the complaint of whom nobody but a cut-off node could heed: it has no store either. */
static void no_store_either(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(crig_claim(&r, 2, 5, key), 0);
	r.store_cut[1] = true;
	crig_block(&r, 1, 0, true);
	crig_block(&r, 1, 2, true);
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(r.node[1].cut_offs, 0);
	assert_int_equal(r.node[1].lapses, 1);
	assert_int_equal(r.node[2].held[5], CORE_WEIGHT_ALL);
	crig_done(&r);
}

/* A record whose writing was in doubt, and which was not there when it was looked for, comes after all: it is found, and goes. */
static void late_record(void **state)
{
	(void)state;
	static struct crig r;
	struct cut_record late = { .n = 1 };
	uint8_t bytes[CUT_BYTES(CUT_MAX)];
	char key[32];

	crig_init(&r, 3);
	late.session = r.node[0].session;
	late.v[0] = r.node[1].session;
	snprintf(key, sizeof key, CUT_PREFIX "%016llx", (unsigned long long)late.session);
	for (unsigned i = 1; i < 3; i++)
		crig_block(&r, 0, i, true);
	crig_run(&r, CRIG_SECOND / 2 - CRIG_SECOND / 20);
	r.store_cut[0] = true;
	crig_run(&r, CRIG_SECOND / 4);
	for (unsigned i = 1; i < 3; i++)
		crig_block(&r, 0, i, false);
	r.store_cut[0] = false;
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(crig_records(&r, CUT_PREFIX), 0);

	crig_plant(&r, key, bytes, cut_encode(&late, bytes));
	crig_run(&r, 5 * CRIG_SECOND);
	assert_int_equal(crig_records(&r, CUT_PREFIX), 0);
	assert_int_equal(cut_offs(&r), 0);
	crig_done(&r);
}

/* The only one that could relay is asked with each attempt, not with each other one. */
static void only_relay(void **state)
{
	(void)state;
	static struct crig r;

	crig_init(&r, 3);
	crig_block(&r, 0, 1, true);
	r.lose[ENVELOPE_KIND] = 1u << 2;
	crig_run(&r, 3 * CRIG_SECOND / 8);               /* one attempt, a detour after the cut, is lost */
	assert_int_equal(r.node[0].relayed + r.node[1].relayed, 0);
	r.lose[ENVELOPE_KIND] = 0;
	crig_run(&r, CRIG_SECOND / 4);
	assert_int_equal(r.node[0].relayed, 1);
	assert_int_equal(r.node[1].relayed, 1);
	crig_done(&r);
}

/* Two that have not seen each other for long, which did not matter. Now one becomes a master: they have the grace to find a way. */
static void new_master(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	for (unsigned i = 1; i < 3; i++)
		assert_int_equal(crig_give(&r, i, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(crig_shards(&r, 0), CORE_SHARDS);
	crig_block(&r, 1, 2, true);
	crig_run(&r, 8 * CRIG_SECOND);
	assert_int_equal(r.node[1].relayed, 0);
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_DRAIN, .drain.off = true }), 0);
	crig_run(&r, 8 * CRIG_SECOND);
	assert_true(crig_shards(&r, 1) > 0);
	assert_int_equal(r.node[1].relayed, 1);
	assert_int_equal(r.node[1].complaints + r.node[2].complaints, 0);
	assert_int_equal(cut_offs(&r), 0);
	assert_int_equal(crig_claim(&r, 2, 5, crig_key(&r, 1, 0, key)), 0);
	crig_run(&r, CRIG_SECOND / 100);
	assert_int_equal(r.node[2].held[5], CORE_WEIGHT_ALL);
	crig_done(&r);
}

/* --- One pass --- */

static void one_pass(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];
	unsigned n = 0;

	/* Node 1 has a lease in each of many shards that node 0 masters, and a few of those that 2 masters. */
	crig_init(&r, 3);
	for (; n < 40; n++)
		assert_int_equal(crig_claim(&r, 1, n, crig_key(&r, 0, n, key)), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(crig_claim(&r, 1, 100 + i, crig_key(&r, 2, i, key)), 0);
	crig_run(&r, CRIG_SECOND / 10);
	unsigned moved = crig_shards(&r, 0);

	/* Node 0 drains, so that all its shards move at once: to 2, as 1 drains too. */
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	crig_run(&r, CRIG_SECOND);
	moved = crig_shards(&r, 0);
	memset(r.syncs_of_names, 0, sizeof r.syncs_of_names);
	memset(r.syncs_of_no_name, 0, sizeof r.syncs_of_no_name);
	crig_kill(&r, 0);
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(crig_shards(&r, 2), CORE_SHARDS);
	printf("# %u shards moved from a dead master: %u statements, %u frames FIRST and LAST\n", moved, r.syncs_of_names[1],
	       r.syncs_of_no_name[1]);
	assert_true(moved >= 10);
	/* Each lease of theirs, no other, and not once a shard; but again if the master had not read the map that node 1 wrote. */
	unsigned passes = r.syncs_of_no_name[1] / (2 * moved);
	assert_in_range(passes, 1, 2);
	assert_int_equal(r.syncs_of_no_name[1], passes * 2 * moved);
	assert_in_range(r.syncs_of_names[1], 1, passes * 40);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(r.node[1].held[i], CORE_WEIGHT_ALL);
	crig_done(&r);
}

/* --- What others have written into the store --- */

static void junk(struct crig *r, const char *prefix, uint64_t session, const void *value, uint32_t size)
{
	struct crig_record *rec = &r->record[r->records_n++];

	*rec = (struct crig_record){ .size = size, .version = ++r->version };
	assert_true(r->records_n <= CRIG_RECORDS);
	snprintf(rec->key, sizeof rec->key, "%s%016llx", prefix, (unsigned long long)session);
	memcpy(rec->value, value, size);
}

static void junk_of_all_kinds(struct crig *r)
{
	struct member_record m = { .session = 50000, .node = 50000, .may_master = true };
	struct beat_value v = { .id = { r->node[2].session, 1 }, .counter = 3 };
	uint8_t member[MEMBER_BYTES_MAX], beat[BEAT_BYTES];

	assert_int_equal(member_text_of("nowhere:1", "nobody", &m.text), 0);
	for (unsigned i = 0; i < 20; i++, m.session++)           /* nodes without a beat */
		junk(r, MEMBER_PREFIX, m.session, member, member_record_encode(&m, member));
	m.session = r->node[1].session;
	for (unsigned i = 0; i < 5; i++) {
		uint32_t n = member_record_encode(&m, member);

		junk(r, MEMBER_PREFIX, 60000 + i, member, n);     /* a node's under another's key */
		beat_encode(&v, beat);
		junk(r, BEAT_PREFIX, 60000 + i, beat, sizeof beat);
		junk(r, MEMBER_PREFIX, 70000 + i, "????", i);     /* what cannot be read */
		junk(r, BEAT_PREFIX, 70000 + i, member, n);
		junk(r, CUT_PREFIX, 70000 + i, member, n);
	}
	junk(r, MEMBER_PREFIX "x", 1, member, 24);               /* what no session can have */
}

/* Node 0 dies, in a store full of that: its shards open as after any death, and only what no session can have stays. */
static void junk_in_store(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 10);
	junk_of_all_kinds(&r);
	crig_run(&r, CRIG_SECOND / 2);
	assert_int_equal(r.node[1].odd, 5 + 5 + 5 + 5 + 1);
	crig_kill(&r, 0);
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(crig_shards(&r, 0), 0);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(r.node[i].core->master.opening, 0);
		assert_int_equal(r.node[i].lapses, 0);
	}
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	assert_int_equal(crig_records(&r, MEMBER_PREFIX), 3);
	assert_int_equal(crig_records(&r, CUT_PREFIX), 0);
	assert_int_equal(r.node[1].ended + r.node[2].ended, 20 + 5 + 5 + 1);
	assert_int_equal(r.node[1].core->cluster.odd.members, 1);
	crig_run(&r, 12 * CRIG_SECOND);                          /* tombstones are there for a while */
	assert_int_equal(crig_records(&r, BEAT_PREFIX), 2);
	assert_int_equal(r.node[1].lapses + r.node[2].lapses, 0);
	crig_done(&r);
}

/* --- A store that takes its time, nodes that have theirs taken --- */

/* Steps of a millisecond until node 0 masters nothing. */
static bool masters_nothing_within(struct crig *r, core_nsec_t span)
{
	for (core_nsec_t until = r->now + span; r->now < until; crig_run(r, CRIG_SECOND / 1000))
		if (!crig_shards(r, 0))
			return true;
	return false;
}

/*
 * Node 0 dies, and as its shards begin to open node 2, so that they wait for its end. However slow everything is, if beats land in time both
 * are ended and followed: TTL and what is added to it, a look, and of requests what is made one after the other.
 */
static void two_die(core_nsec_t store_span, core_nsec_t turn)
{
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	r.store_span = store_span;
	r.turn = turn;
	crig_run(&r, 3 * CRIG_SECOND);
	core_nsec_t request = store_span + turn, limit = 5 * CRIG_SECOND / 2 + 12 * request;
	crig_kill(&r, 0);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	assert_true(masters_nothing_within(&r, limit));
	crig_kill(&r, 2);
	for (core_nsec_t until = r.now + limit; r.now < until && ~r.node[1].core->master.open; )
		crig_run(&r, CRIG_SECOND / 1000);
	assert_int_equal(crig_shards(&r, 1), CORE_SHARDS);
	assert_int_equal(r.node[1].core->master.opening, 0);
	crig_run(&r, 2 * request);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	assert_int_equal(r.node[1].lapses, 0);
	crig_done(&r);
}

static void slow_store(void **state)
{
	(void)state;
	for (unsigned ms = 1; ms < 300; ms += 46)
		two_die(ms * (CRIG_SECOND / 1000), 0);
}

static void late_nodes(void **state)
{
	(void)state;
	for (unsigned ms = 1; ms < 300; ms += 46)
		two_die(CRIG_SECOND / 1000, ms * (CRIG_SECOND / 1000));
}

/* --- Leaving --- */

static struct core_event leave_event(core_nsec_t patience)
{
	return (struct core_event){ .kind = CORE_EV_LEAVE, .leave.patience = patience };
}

static void leaves(void **state)
{
	(void)state;
	static struct crig r;
	char held[16], waits[16], more[16], member[40], beat[40];
	struct beat_value v;

	crig_init(&r, 3);
	crig_key(&r, 0, 0, held);
	crig_key(&r, 1, 0, waits);
	crig_key(&r, 2, 0, more);
	assert_int_equal(crig_claim(&r, 1, 5, held), 0);
	assert_int_equal(crig_claim(&r, 2, 6, waits), 0);
	crig_run(&r, CRIG_SECOND / 100);
	assert_int_equal(crig_claim(&r, 1, 6, waits), 0);
	assert_int_equal(crig_claim(&r, 2, 5, held), 0);
	crig_run(&r, CRIG_SECOND / 100);
	snprintf(member, sizeof member, "member/%016llx", (unsigned long long)r.node[1].session);
	snprintf(beat, sizeof beat, "beat/%016llx", (unsigned long long)r.node[1].session);

	/* Who waits is refused, who holds is asked, nobody new is let in. */
	struct core_event ev = leave_event(10 * CRIG_SECOND);
	assert_int_equal(crig_give(&r, 1, &ev), 0);
	assert_int_equal(r.node[1].refused[6], -ESHUTDOWN);
	assert_int_equal(r.node[1].revoked[5], 0);
	assert_int_equal(crig_claim(&r, 1, 7, more), -ESHUTDOWN);
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_DRAIN, .drain.off = true }), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(crig_shards(&r, 1), 0);
	assert_int_equal(r.node[1].drained, 1);
	assert_int_equal(r.node[1].left, 0);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);

	/* The holder gives back: the next one gets it, and nothing was lost. */
	assert_int_equal(crig_release(&r, 1, 5), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[1].left, 1);
	assert_int_equal(r.node[1].left_error, 0);
	assert_int_equal(r.node[1].losses, 0);
	assert_int_equal(r.node[2].held[5], CORE_WEIGHT_ALL);
	assert_false(r.node[2].lost[5]);
	assert_null(crig_record(&r, member));
	const struct crig_record *tomb = crig_record(&r, beat);
	assert_non_null(tomb);
	assert_int_equal(beat_decode(tomb->value, tomb->size, &v), 0);
	assert_true(v.ended);

	/* Nothing comes after it; the others go on without waiting for anybody. */
	assert_int_equal(crig_claim(&r, 1, 8, more), -ESHUTDOWN);
	assert_int_equal(crig_release(&r, 2, 6), 0);
	assert_int_equal(crig_claim(&r, 0, 6, waits), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(r.node[0].held[6], CORE_WEIGHT_ALL);
	assert_int_equal(r.node[1].left, 1);
	crig_done(&r);
}

static void leaves_without_patience(void **state)
{
	(void)state;
	static struct crig r;
	char held[16];

	crig_init(&r, 2);
	crig_key(&r, 0, 0, held);
	assert_int_equal(crig_claim(&r, 1, 5, held), 0);
	crig_run(&r, CRIG_SECOND / 100);
	assert_int_equal(crig_claim(&r, 0, 5, held), 0);
	r.node[1].loss_slow = true;
	struct core_event ev = leave_event(CRIG_SECOND / 2);
	assert_int_equal(crig_give(&r, 1, &ev), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(r.node[1].losses, 1);
	assert_int_equal(r.node[1].lapses, 1);
	assert_int_equal(r.node[1].left, 0);                     /* not before the actions on loss are done */
	assert_int_equal(r.node[0].held[5], 0);
	crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_LOSS_DONE });
	crig_run(&r, CRIG_SECOND / 2);
	assert_int_equal(r.node[1].left, 1);
	assert_int_equal(r.node[0].held[5], CORE_WEIGHT_ALL);
	assert_true(r.node[0].lost[5]);
	crig_done(&r);
}

/* The last one has nobody to hand anything to; and without a store it says that it could not end its session. */
static void last_one_leaves(void **state)
{
	(void)state;

	for (unsigned cut = 0; cut < 2; cut++) {
		static struct crig r;

		crig_init(&r, 1);
		struct core_event ev = leave_event(CRIG_SECOND);
		r.store_cut[0] = cut;
		assert_int_equal(crig_give(&r, 0, &ev), 0);
		crig_run(&r, 4 * CRIG_SECOND);
		assert_int_equal(r.node[0].left, 1);
		assert_int_equal(r.node[0].left_error, cut ? -ETIMEDOUT : 0);
		assert_int_equal(crig_records(&r, "member/"), cut);
		crig_done(&r);
	}
}

/* A daemon that adopts, does not reach the store, and leaves: what it adopted is not forgotten, but ended. */
static void leaves_before_it_has_read(void **state)
{
	(void)state;

	for (unsigned back = 0; back < 2; back++) {
		static struct crig r;
		struct crig_node *n = &r.node[1];
		char beat[40];
		struct beat_value v;

		crig_init(&r, 3);
		snprintf(beat, sizeof beat, "beat/%016llx", (unsigned long long)n->session);
		struct core_event ev = { .kind = CORE_EV_START, .start = { .session = n->session, .incarnation = n->incarnation + 1,
			.cluster = &n->conf, .deadline = n->deadline } };
		crig_kill(&r, 1);
		assert_int_equal(core_create(&n->mem, &n->core), 0);
		r.store_cut[1] = true;
		assert_int_equal(crig_give(&r, 1, &ev), 0);
		ev = leave_event(CRIG_SECOND / 2);
		assert_int_equal(crig_give(&r, 1, &ev), 0);
		crig_run(&r, CRIG_SECOND / 10);
		r.store_cut[1] = !back;
		crig_run(&r, 8 * CRIG_SECOND);
		assert_int_equal(n->left, 1);
		assert_int_equal(n->left_error, back ? 0 : -ETIMEDOUT);
		const struct crig_record *tomb = crig_record(&r, beat);
		if (back) {
			assert_non_null(tomb);
			assert_int_equal(beat_decode(tomb->value, tomb->size, &v), 0);
			assert_true(v.ended);
		}
		crig_done(&r);
	}
}

/* What a daemon does that is told to stop: one sync, and its successor may adopt all that it had. */
static void drains(void **state)
{
	(void)state;
	static struct crig r;
	char key[16], own[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	crig_key(&r, 1, 0, own);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	assert_int_equal(crig_claim(&r, 2, 6, own), 0);
	crig_run(&r, CRIG_SECOND / 100);
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(r.node[1].drained, 1);
	assert_int_equal(crig_shards(&r, 1), 0);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);

	/* It dies. What it mastered goes on at once, what it holds stays its own until the deadline. */
	uint64_t deadline = r.node[1].deadline;
	crig_kill(&r, 1);
	assert_int_equal(crig_claim(&r, 0, 5, key), 0);
	assert_int_equal(crig_release(&r, 2, 6), 0);
	assert_int_equal(crig_claim(&r, 0, 6, own), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[0].held[6], CORE_WEIGHT_ALL);
	assert_int_equal(r.node[0].held[5], 0);
	assert_true(r.now < deadline);

	/* A drain that is taken back. */
	assert_int_equal(crig_give(&r, 2, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(crig_shards(&r, 2), 0);
	assert_int_equal(crig_give(&r, 2, &(struct core_event){ .kind = CORE_EV_DRAIN, .drain.off = true }), 0);
	crig_run(&r, 8 * CRIG_SECOND);
	assert_true(crig_shards(&r, 2) > 0);
	crig_done(&r);
}

/* --- Envelopes and records --- */

/* A name that is given back while its shard moves, and that nobody wants again. */
static void given_back_in_a_move(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];
	unsigned n = 0, node = 0;

	crig_init(&r, 3);
	while (r.node[node].core->master.suspect)
		node++;                          /* of those everything is remembered */
	unsigned shard = shard_of(crig_key(&r, node, n, key), strlen(key)), other = (node + 1) % 3;
	assert_int_equal(crig_claim(&r, other, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 50);
	assert_int_equal(r.node[other].held[5], CORE_WEIGHT_ALL);
	r.lose[MSG_RELEASE] = 1u << node;
	assert_int_equal(crig_release(&r, other, 5), 0);
	crig_give(&r, node, &(struct core_event){ .kind = CORE_EV_DRAIN });
	crig_run(&r, 2 * CRIG_SECOND);
	unsigned next = crig_master(&r, shard);
	assert_int_not_equal(next, node);
	assert_true(r.node[next].core->master.open & shard_bit(shard));
	assert_int_equal(r.node[next].core->master.shard[shard].names, 0);
	assert_int_equal(r.node[next].core->master.suspect & shard_bit(shard), 0);
	crig_done(&r);
}

/* The next masters read the map late: whoever has drained may stop all the same, and nothing waits for him, or is suspect. */
static void drains_to_the_late(void **state)
{
	(void)state;
	static struct crig r;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	shard_set_t of = 0, suspect = r.node[0].core->master.suspect;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		of |= crig_master(&r, i) == 0 ? shard_bit(i) : 0;
	r.lose[MSG_SYNC] = r.lose[MSG_HANDOVER] = r.lose[MSG_MARK] = 6;
	crig_give(&r, 0, &(struct core_event){ .kind = CORE_EV_DRAIN });
	while (crig_shards(&r, 0))
		crig_run(&r, CRIG_SECOND / 1000);
	crig_run(&r, CRIG_SECOND / 5);
	r.lose[MSG_SYNC] = r.lose[MSG_HANDOVER] = r.lose[MSG_MARK] = 0;
	for (unsigned i = 0; !r.node[0].drained && i < 5000; i++)
		crig_run(&r, CRIG_SECOND / 1000);
	assert_int_equal(r.node[0].drained, 1);
	r.node[0].stopped = true;
	crig_run(&r, CRIG_SECOND / 20);
	assert_int_equal((r.node[1].core->master.open | r.node[2].core->master.open) & of, of);
	assert_int_equal((r.node[1].core->master.suspect | r.node[2].core->master.suspect) & of & ~suspect, 0);
	assert_int_equal(crig_claim(&r, 1, 5, key), 0);
	crig_run(&r, CRIG_SECOND / 20);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	crig_done(&r);
}

static void envelopes(void **state)
{
	(void)state;
	static const uint8_t open[ENVELOPE_HEAD] = {
		48, 0, 1, 64, ENVELOPE_OPEN, 1, 0, 0,   8, 7, 6, 5, 4, 3, 2, 1,   9, 0, 0, 0, 3, 0, 0, 0,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,   5, 0, 0, 0, 0, 0, 0, 0,   6, 0, 0, 0, 0, 0, 0, 0,
	};
	struct envelope e = { .what = ENVELOPE_OPEN, .from = true, .sender = { 0x0102030405060708, 9 }, .incarnation = 3,
			      .conn = 0x1122334455667788, .far = 5, .path = 6 }, g;
	uint8_t bytes[CORE_FRAME_MAX], again[CORE_FRAME_MAX];

	assert_int_equal(envelope_encode(&e, bytes), ENVELOPE_HEAD);
	assert_memory_equal(bytes, open, ENVELOPE_HEAD);
	assert_true(envelope_is(bytes, ENVELOPE_HEAD));
	assert_int_equal(envelope_decode(bytes, ENVELOPE_HEAD, &g), 0);
	assert_int_equal(envelope_decode(bytes, ENVELOPE_HEAD - 1, &g), -EBADMSG);

	e.what = ENVELOPE_FRAME;
	e.frame = open;
	e.n = sizeof open;
	uint32_t n = envelope_encode(&e, bytes);
	for (uint32_t i = 0; i < ENVELOPE_HEAD; i++) {
		uint8_t bad[CORE_FRAME_MAX];

		memcpy(bad, bytes, n);
		bad[i] ^= 0x81;
		if (envelope_decode(bad, n, &g) == 0) {
			assert_int_equal(envelope_encode(&g, again), n);
			assert_memory_equal(bad, again, n);
		}
	}
	bytes[2] = 2;
	assert_int_equal(envelope_decode(bytes, n, &g), -EPROTONOSUPPORT);
	bytes[2] = 1, bytes[4] = ENVELOPE_N;
	assert_int_equal(envelope_decode(bytes, n, &g), -EBADMSG);
	bytes[4] = ENVELOPE_OPEN;                                /* and a frame behind it */
	assert_int_equal(envelope_decode(bytes, n, &g), -EBADMSG);
}

static void cut_records(void **state)
{
	(void)state;
	struct cut_record r = { .session = 7, .n = 2, .in_the_way = 1, .v = { 8, 9 } }, o;
	uint8_t bytes[CUT_BYTES(CUT_MAX) + 8];

	assert_int_equal(cut_encode(&r, bytes), 32);
	assert_int_equal(cut_decode(bytes, 32, &o), 0);
	assert_true(o.session == 7 && o.n == 2 && o.in_the_way == 1 && o.v[0] == 8 && o.v[1] == 9);
	assert_int_equal(cut_decode(bytes, 31, &o), -EBADMSG);
	assert_int_equal(cut_decode(bytes, 24, &o), -EBADMSG);
	assert_int_equal(cut_decode(bytes, 16, &o), -EBADMSG);
	bytes[4] = 3;
	assert_int_equal(cut_decode(bytes, 32, &o), -EBADMSG);
	bytes[4] = 1, bytes[0] = 2;
	assert_int_equal(cut_decode(bytes, 32, &o), -EBADMSG);
	r.n = CUT_MAX;
	assert_int_equal(cut_encode(&r, bytes), CUT_BYTES(CUT_MAX));
	assert_int_equal(cut_decode(bytes, CUT_BYTES(CUT_MAX), &o), 0);
	bytes[2] = CUT_MAX + 1;
	assert_int_equal(cut_decode(bytes, sizeof bytes, &o), -EBADMSG);
}

static unsigned frames(const struct crig *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 256; i++)
		n += r->frames[i];
	return n;
}

static unsigned holder_of(const struct crig *r, core_ref_t ref)
{
	unsigned found = CRIG_NODES;

	for (unsigned i = 0; i < r->n; i++)
		if (r->node[i].held[ref]) {
			assert_int_equal(found, CRIG_NODES);
			found = i;
		}
	assert_int_not_equal(found, CRIG_NODES);
	return found;
}

/* Frames that go while the lease goes from node to node once around, and all but the master's always want it. */
static unsigned frames_of_a_handover(unsigned waiters)
{
	static struct crig r;
	char key[16];

	crig_init(&r, waiters + 1);
	unsigned master = crig_master(&r, 0), before, last = CRIG_NODES;
	for (unsigned i = 0; shard_of(key, (size_t)snprintf(key, sizeof key, "test/%u", i)); i++)
		;
	for (unsigned i = 0; i < r.n; i++)
		if (i != master) {
			assert_int_equal(crig_claim(&r, i, 5, key), 0);
			crig_run(&r, CRIG_SECOND / 1000);
		}
	before = frames(&r);
	for (unsigned i = 0; i < waiters; i++) {
		unsigned now = holder_of(&r, 5);

		assert_int_not_equal(now, last);
		last = now;
		assert_int_equal(crig_release(&r, now, 5), 0);
		crig_run(&r, CRIG_SECOND / 1000);
		r.node[now].held[5] = 0;
		assert_int_equal(crig_claim(&r, now, 5, key), 0);
		crig_run(&r, CRIG_SECOND / 1000);
	}
	unsigned all = frames(&r) - before;
	assert_int_equal(all % waiters, 0);
	crig_done(&r);
	return all / waiters;
}

static void waiters_cost_nothing(void **state)
{
	unsigned two = frames_of_a_handover(2), many = frames_of_a_handover(64);

	(void)state;
	print_message("# a hand-over takes %u frames, a claim among them, with 2 nodes that wait and %u with 64\n", two, many);
	assert_int_equal(many, two);
	assert_in_range(two, 1, 7);              /* PASS, and GRANT, which is the same again */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "two that do not see each other speak through a third; a connection replaces the path", relayed, NULL, NULL, NULL },
		{ "one of three that reaches nobody ends itself, with its actions on loss first, and gives its shards to the others",
		  alone_among_three, NULL, NULL, NULL },
		{ "of two halves one ends itself, the other goes on", two_halves, NULL, NULL, NULL },
		{ "a cut that is shorter than the grace ends nobody", short_cut, NULL, NULL, NULL },
		{ "a record of a cut that lands late is found and deleted", late_record, NULL, NULL, NULL },
		{ "the only one that can relay is asked with each attempt", only_relay, NULL, NULL, NULL },
		{ "nobody complains of whom nobody has tried to reach before", new_master, NULL, NULL, NULL },
		{ "who has neither peers nor store lapses by its deadline", no_store_either, NULL, NULL, NULL },
		{ "many shards of a dead master are told of in one pass", one_pass, NULL, NULL, NULL },
		{ "what others have written into the store costs a TTL, and is cleared away", junk_in_store, NULL, NULL, NULL },
		{ "the dead are followed however long the store takes to answer, if beats land", slow_store, NULL, NULL, NULL },
		{ "the same however seldom nodes have a processor", late_nodes, NULL, NULL, NULL },
		{ "a node that leaves refuses, asks back, hands over, and ends its session itself", leaves, NULL, NULL, NULL },
		{ "who does not give back in time loses it, with the actions on loss before the end", leaves_without_patience, NULL, NULL, NULL },
		{ "the last one leaves", last_one_leaves, NULL, NULL, NULL },
		{ "a daemon that adopted and could read nothing ends what it adopted, or says that it has not",
		  leaves_before_it_has_read, NULL, NULL, NULL },
		{ "a node that drains masters nothing, and keeps what it holds", drains, NULL, NULL, NULL },
		{ "what is given back while a shard moves leaves nothing behind", given_back_in_a_move, NULL, NULL, NULL },
		{ "it says so only when the next masters need it no more, however late they read the map", drains_to_the_late, NULL, NULL, NULL },
		{ "a hand-over takes as many messages with 64 nodes that wait as with 2", waiters_cost_nothing, NULL, NULL, NULL },
		{ "envelopes: written-down bytes, and nothing else is one", envelopes, NULL, NULL, NULL },
		{ "records of whom one does not reach", cut_records, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_reach", tests, NULL, NULL);
}
