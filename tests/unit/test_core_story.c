/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The core's behaviour, story by story: what goes in and exactly what comes out. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core_rig.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

#define SECOND 1000000000ull
#define STORY(name, title) { title, name, NULL, NULL, NULL }

/* --- Beginning --- */

static void fresh_store(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	struct core_stats st;
	core_stats(r.core, &st);
	assert_int_equal(st.epoch, 1);
	assert_true(st.open);
	rig_done(&r);
}

static void later_run(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 3);
	rig_store_map(&r, 12, 7, 2, 40);
	rig_store_landed(&r, 13);
	rig_claim(&r, 0, "default/a");
	rig_expect(&r, "START 7.3\n  STORE_GET map\n"
		   "STORE version 12\n  STORE_CAS map version 12: 7.3 epoch 41\n"
		   "STORE version 13\n  OPENED epoch 41\n"
		   "CLAIM 0 default/a\n  LEDGER_GRANT 0 41:1+1048576\n  GRANT 0 41:1+1048576\n");
	rig_done(&r);
}

static void highest_epoch_counts(void **state)
{
	(void)state;
	struct rig r;
	struct map m = rig_map(3, 9, 5);
	uint8_t bytes[MAP_BYTES];

	m.shard[17].epoch = 90;
	map_encode(&m, bytes);
	rig_init(&r);
	rig_start(&r, 7, 1);
	rig_store(&r, 0, bytes, sizeof bytes, 2);
	rig_expect(&r, "START 7.1\n  STORE_GET map\n"
		   "STORE version 2\n  STORE_CAS map version 2: 7.1 epoch 91\n");
	rig_done(&r);
}

/* The store is an older copy: its map has come to 5, but the ledger remembers tokens of epoch 12. */
static void ledger_remembers_more(void **state)
{
	(void)state;
	struct rig r;
	struct map m = rig_map(3, 9, 5);
	uint8_t bytes[MAP_BYTES];

	map_encode(&m, bytes);
	rig_init(&r);
	rig_step(&r, &(struct core_event){ .kind = CORE_EV_START, .start = { 7, 1, 12 } });
	rig_store(&r, 0, bytes, sizeof bytes, 2);
	rig_expect(&r, "START 7.1\n  STORE_GET map\n"
		   "STORE version 2\n  STORE_CAS map version 2: 7.1 epoch 13\n");
	rig_done(&r);
}

static void claims_wait_for_the_epoch(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_claim(&r, 0, "default/a");
	rig_start(&r, 7, 1);
	rig_claim(&r, 1, "default/b");
	rig_store_absent(&r);
	rig_claim(&r, 2, "default/c");
	rig_store_landed(&r, 1);
	rig_expect(&r, "CLAIM 0 default/a\n"
		   "START 7.1\n  STORE_GET map\n"
		   "CLAIM 1 default/b\n"
		   "STORE version 0\n  STORE_CAS map version 0: 7.1 epoch 1\n"
		   "CLAIM 2 default/c\n"
		   "STORE version 1\n  OPENED epoch 1\n"
		   "  LEDGER_GRANT 1 1:1+1048576\n  GRANT 1 1:1+1048576\n"      /* shard by shard: 19, 34, 44 */
		   "  LEDGER_GRANT 0 1:1+1048576\n  GRANT 0 1:1+1048576\n"
		   "  LEDGER_GRANT 2 1:1+1048576\n  GRANT 2 1:1+1048576\n");
	rig_done(&r);
}

/* Twenty thousand wait: none is forgotten, the list never overflows, OPENED comes first. */
static void many_claims_wait(void **state)
{
	(void)state;
	enum { N = 20000 };
	static uint8_t granted[N];
	struct rig r;
	unsigned grants = 0, steps = 0;
	bool opened = false;

	memset(granted, 0, sizeof granted);
	rig_init(&r);
	r.silent = true;
	for (unsigned i = 0; i < N; i++) {
		char key[32];
		snprintf(key, sizeof key, "default/%u", i);
		assert_int_equal(rig_claim(&r, i, key), 0);
	}
	rig_start(&r, 7, 1);
	rig_store_absent(&r);
	for (rig_store_landed(&r, 1);; rig_continue(&r)) {
		for (unsigned i = 0; i < r.actions.n; i++) {
			const struct core_action *a = &r.actions.v[i];
			opened |= a->kind == CORE_ACT_OPENED;
			if (a->kind == CORE_ACT_GRANT) {
				assert_true(opened);
				assert_int_equal(granted[a->name.ref]++, 0);
				grants++;
			}
		}
		steps++;
		if (!r.actions.more)
			break;
	}
	assert_int_equal(grants, N);
	assert_true(steps >= N * 2 / CORE_ACTIONS_MAX);
	rig_done(&r);
}

/* --- Tokens --- */

static void reopened_name(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	r.now += SECOND;
	rig_release(&r, 0, 5);
	rig_claim(&r, 0, "default/a");
	rig_release(&r, 0, 0);
	rig_claim(&r, 4, "default/a");
	rig_expect(&r, "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:1+1048576\n  GRANT 0 1:1+1048576\n"
		   "RELEASE 0 5\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:6+1048576\n  GRANT 0 1:6+1048576\n"
		   "RELEASE 0 0\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 4 default/a\n  LEDGER_GRANT 4 1:7+1048576\n  GRANT 4 1:7+1048576\n");
	rig_done(&r);
}

static void refills_grow(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	r.now += 1 << 20;
	rig_refill(&r, 0, 1 << 20);
	r.now += 1000;
	rig_refill(&r, 0, 1 << 24);
	r.now += 100 * 1000;
	rig_refill(&r, 0, 1 << 16);
	rig_expect(&r, "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:1+1048576\n  GRANT 0 1:1+1048576\n"
		   "REFILL 0 1048576\n  LEDGER_GRANT 0 1:1048577+16777216\n  GRANT 0 1:1048577+16777216\n"
		   "REFILL 0 16777216\n  LEDGER_GRANT 0 1:17825793+65536\n  GRANT 0 1:17825793+65536\n"
		   "REFILL 0 65536\n  LEDGER_GRANT 0 1:17891329+1048576\n  GRANT 0 1:17891329+1048576\n");
	rig_done(&r);
}

static void absurd_use(void **state)
{
	(void)state;
	struct rig r;
	struct core_stats st;

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	r.now += 1000;
	rig_release(&r, 0, UINT64_MAX);
	rig_claim(&r, 0, "default/a");
	r.now += 3600 * SECOND;
	rig_release(&r, 0, UINT64_MAX);
	rig_claim(&r, 0, "default/a");
	/* 1000 ns, a 64th more for drift, and the slack; an hour, but no more than it had. */
	rig_expect(&r, "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:1+1048576\n  GRANT 0 1:1+1048576\n"
		   "RELEASE 0 18446744073709551615\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:66552+1048576\n  GRANT 0 1:66552+1048576\n"
		   "RELEASE 0 18446744073709551615\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 0 default/a\n  LEDGER_GRANT 0 1:1115128+1048576\n  GRANT 0 1:1115128+1048576\n");
	core_stats(r.core, &st);
	assert_int_equal(st.absurd, 2);
	rig_done(&r);
}

/* Refills an hour apart until the counter is near its end. */
static void use_up(struct rig *r, core_ref_t ref)
{
	r->silent = true;
	for (;;) {
		r->now += 3600 * SECOND;
		rig_refill(r, ref, RANGE_MAX);
		if (r->actions.v[0].kind != CORE_ACT_LEDGER_GRANT)
			break;
	}
	r->silent = false;
}

static void epoch_raised(void **state)
{
	(void)state;
	struct rig r;
	struct core_stats st;

	assert_int_equal(shard_of("default/a", 9), 34);
	assert_int_equal(shard_of("default/105", 11), 34);
	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	rig_claim(&r, 1, "default/b");
	rig_forget(&r);
	use_up(&r, 0);
	assert_int_equal(r.actions.n, 1);
	assert_int_equal(r.actions.v[0].kind, CORE_ACT_STORE_CAS);
	/* Meanwhile: another shard is granted from, this one waits, and a claim that waits can be given up. */
	rig_claim(&r, 2, "default/c");
	rig_claim(&r, 3, "default/105");
	rig_release(&r, 3, 0);
	rig_claim(&r, 3, "default/105");
	rig_store_landed(&r, 2);
	rig_release(&r, 0, 1);
	rig_claim(&r, 0, "default/a");
	rig_expect(&r, "CLAIM 2 default/c\n  LEDGER_GRANT 2 1:1+1048576\n  GRANT 2 1:1+1048576\n"
		   "CLAIM 3 default/105\n"
		   "RELEASE 3 0\n  FORGOTTEN 3\n"
		   "CLAIM 3 default/105\n"
		   "STORE version 2\n  OPENED epoch 2\n"
		   "  LEDGER_GRANT 0 2:1+1048576\n  GRANT 0 2:1+1048576\n"
		   "  LEDGER_GRANT 3 2:1+1048576\n  GRANT 3 2:1+1048576\n"
		   "RELEASE 0 1\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 0 default/a\n  LEDGER_GRANT 0 2:2+1048576\n  GRANT 0 2:2+1048576\n");
	core_stats(r.core, &st);
	assert_int_equal(st.raises, 1);
	assert_int_equal(st.epoch, 2);
	rig_done(&r);
}

static void held_ranges_survive_a_raise(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	rig_claim(&r, 3, "default/105");
	use_up(&r, 0);
	rig_store_landed(&r, 2);
	rig_forget(&r);
	/* The release of the old epoch's range leaves the new floor alone. */
	rig_release(&r, 3, 1000);
	rig_claim(&r, 3, "default/105");
	rig_expect(&r, "RELEASE 3 1000\n  LEDGER_RELEASE 3\n  FORGOTTEN 3\n"
		   "CLAIM 3 default/105\n  LEDGER_GRANT 3 2:1+1048576\n  GRANT 3 2:1+1048576\n");
	rig_done(&r);
}

static void raise_meets_a_broken_store(void **state)
{
	(void)state;
	struct rig r;
	struct core_stats st;

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	use_up(&r, 0);
	rig_forget(&r);
	rig_store_error(&r, -ENOSPC);
	core_stats(r.core, &st);
	assert_int_equal(st.store_error, -ENOSPC);
	assert_int_equal(st.waiting, 1);
	assert_false(st.open);
	r.now += SECOND / 2;
	rig_timer(&r);
	r.now += SECOND / 2;
	rig_timer(&r);
	rig_store_map(&r, 1, 7, 1, 1);
	rig_store_error(&r, -EIO);
	r.now += SECOND;
	rig_claim(&r, 3, "default/105");           /* any event will do */
	rig_store_map(&r, 1, 7, 1, 1);
	rig_store_landed(&r, 2);
	core_stats(r.core, &st);
	assert_int_equal(st.store_error, 0);
	assert_true(st.open);
	rig_expect(&r, "STORE ENOSPC\n  TIMER in 1000 ms\n"
		   "TIMER\n  TIMER in 500 ms\n"
		   "TIMER\n  STORE_GET map\n"
		   "STORE version 1\n  STORE_CAS map version 1: 7.1 epoch 1, shard 34 7.1 epoch 2\n"
		   "STORE EIO\n  TIMER in 1000 ms\n"
		   "CLAIM 3 default/105\n  STORE_GET map\n"
		   "STORE version 1\n  STORE_CAS map version 1: 7.1 epoch 1, shard 34 7.1 epoch 2\n"
		   "STORE version 2\n  OPENED epoch 2\n"
		   "  LEDGER_GRANT 0 2:1+1048576\n  GRANT 0 2:1+1048576\n"
		   "  LEDGER_GRANT 3 2:1+1048576\n  GRANT 3 2:1+1048576\n");
	rig_done(&r);
}

static void raise_was_carried_out(void **state)
{
	(void)state;
	struct rig r;
	struct map m = rig_map(7, 1, 1);
	uint8_t bytes[MAP_BYTES];

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	use_up(&r, 0);
	rig_forget(&r);
	rig_store_error(&r, -ETIMEDOUT);
	m.shard[34].epoch = 2;
	map_encode(&m, bytes);
	rig_store(&r, 0, bytes, sizeof bytes, 2);
	rig_expect(&r, "STORE ETIMEDOUT\n  STORE_GET map\n"
		   "STORE version 2\n  OPENED epoch 2\n  LEDGER_GRANT 0 2:1+1048576\n  GRANT 0 2:1+1048576\n");
	rig_done(&r);
}

static void no_epoch_left_to_raise(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 2);
	rig_store_map(&r, 1, 7, 1, EPOCH_MAX - 1);
	rig_store_landed(&r, 2);
	rig_claim(&r, 0, "default/a");
	rig_claim(&r, 3, "default/105");
	use_up(&r, 0);
	assert_int_equal(r.actions.v[0].kind, CORE_ACT_REFUSED);
	rig_forget(&r);
	rig_refill(&r, 0, 1);
	rig_refill(&r, 3, 1 << 20);              /* this one's own counter is not at its end */
	rig_release(&r, 0, RANGE_MAX);
	rig_claim(&r, 0, "default/a");
	rig_claim(&r, 0, "default/b");           /* another shard */
	rig_expect(&r, "REFILL 0 1\n  REFUSED 0 EOVERFLOW\n"
		   "REFILL 3 1048576\n  LEDGER_GRANT 3 8388607:1048577+16777216\n  GRANT 3 8388607:1048577+16777216\n"
		   "RELEASE 0 68719476736\n  LEDGER_RELEASE 0\n  FORGOTTEN 0\n"
		   "CLAIM 0 default/a\n  REFUSED 0 EOVERFLOW\n"
		   "CLAIM 0 default/b\n  LEDGER_GRANT 0 8388607:1+1048576\n  GRANT 0 8388607:1+1048576\n");
	rig_done(&r);
}

/* --- Adopting --- */

static void adopted(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_adopt(&r, 0, "default/a", 4, 100, 1 << 20);
	rig_adopt(&r, 1, "default/b", 3, 1, 1 << 20);
	rig_start(&r, 7, 2);
	rig_release(&r, 1, 7);                   /* its last user went before the store answered */
	rig_claim(&r, 1, "default/b");
	rig_claim(&r, 2, "default/b");
	rig_claim(&r, 2, "default/a");
	rig_store_map(&r, 5, 7, 1, 4);
	rig_store_landed(&r, 6);
	rig_refill(&r, 0, 1 << 20);
	rig_claim(&r, 1, "default/b");
	rig_expect(&r, "ADOPT 0 default/a\n"
		   "ADOPT 1 default/b\n"
		   "START 7.2\n  STORE_GET map\n"
		   "RELEASE 1 7\n  LEDGER_RELEASE 1\n"
		   "CLAIM 1 default/b\n  = EINVAL\n"
		   "CLAIM 2 default/b\n  = EBUSY\n"
		   "CLAIM 2 default/a\n  = EEXIST\n"
		   "STORE version 5\n  STORE_CAS map version 5: 7.2 epoch 5\n"
		   "STORE version 6\n  FORGOTTEN 1\n  OPENED epoch 5\n"
		   "REFILL 0 1048576\n  LEDGER_GRANT 0 5:1+1048576\n  GRANT 0 5:1+1048576\n"
		   "CLAIM 1 default/b\n  LEDGER_GRANT 1 5:1+1048576\n  GRANT 1 5:1+1048576\n");
	rig_done(&r);
}

static void adopted_and_refilling(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_adopt(&r, 0, "default/a", 4, 100, 1 << 20);
	rig_start(&r, 7, 2);
	rig_refill(&r, 0, 1 << 20);
	rig_refill(&r, 0, 1 << 20);
	rig_store_map(&r, 5, 7, 1, 4);
	rig_store_landed(&r, 6);
	rig_expect(&r, "ADOPT 0 default/a\n"
		   "START 7.2\n  STORE_GET map\n"
		   "REFILL 0 1048576\n"
		   "REFILL 0 1048576\n  = EALREADY\n"
		   "STORE version 5\n  STORE_CAS map version 5: 7.2 epoch 5\n"
		   "STORE version 6\n  OPENED epoch 5\n  LEDGER_GRANT 0 5:1+1048576\n  GRANT 0 5:1+1048576\n");
	rig_done(&r);
}

static void adopted_nonsense(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_adopt(&r, 0, "a", 0, 1, 1);
	rig_adopt(&r, 0, "a", 1, 0, 1);
	rig_adopt(&r, 0, "a", 1, 1, 0);
	rig_adopt(&r, 0, "a", EPOCH_MAX + 1, 1, 1);
	rig_adopt(&r, 0, "a", 1, COUNTER_END - 1, 2);
	rig_adopt(&r, 0, "", 1, 1, 1);
	rig_adopt(&r, CORE_REFS, "a", 1, 1, 1);
	rig_adopt(&r, 0, "a", 1, COUNTER_END - 1, 1);
	rig_adopt(&r, 0, "b", 1, 1, 1);
	rig_adopt(&r, 1, "a", 1, 1, 1);
	rig_expect(&r, "ADOPT 0 a\n  = EINVAL\nADOPT 0 a\n  = EINVAL\nADOPT 0 a\n  = EINVAL\nADOPT 0 a\n  = EINVAL\n"
		   "ADOPT 0 a\n  = EINVAL\nADOPT 0 \n  = EINVAL\nADOPT 67108864 a\n  = EINVAL\n"
		   "ADOPT 0 a\nADOPT 0 b\n  = EALREADY\nADOPT 1 a\n  = EEXIST\n");
	rig_done(&r);
}

/* --- The store --- */

static void compare_failed(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 1);
	rig_store_map(&r, 1, 6, 1, 1);
	rig_store_error(&r, -EAGAIN);
	rig_store_map(&r, 2, 6, 2, 2);
	rig_store_landed(&r, 3);
	rig_expect(&r, "START 7.1\n  STORE_GET map\n"
		   "STORE version 1\n  STORE_CAS map version 1: 7.1 epoch 2\n"
		   "STORE EAGAIN\n  STORE_GET map\n"
		   "STORE version 2\n  STORE_CAS map version 2: 7.1 epoch 3\n"
		   "STORE version 3\n  OPENED epoch 3\n");
	rig_done(&r);
}

static void lost_answer(void **state)
{
	(void)state;
	static const int lost[] = { -ETIMEDOUT, -EAGAIN };

	for (unsigned i = 0; i < 2; i++) {
		struct rig r;

		rig_init(&r);
		rig_start(&r, 7, 1);
		rig_store_absent(&r);
		rig_store_error(&r, lost[i]);
		rig_store_map(&r, 1, 7, 1, 1);   /* it had been carried out */
		assert_int_equal(r.actions.n, 1);
		assert_int_equal(r.actions.v[0].kind, CORE_ACT_OPENED);
		rig_done(&r);

		rig_init(&r);
		rig_start(&r, 7, 1);
		rig_store_absent(&r);
		rig_store_error(&r, lost[i]);
		rig_store_absent(&r);            /* it had not */
		rig_store_landed(&r, 1);
		assert_int_equal(r.actions.v[0].kind, CORE_ACT_OPENED);
		rig_done(&r);
	}
}

static void never_rests(int error, int said)
{
	struct rig r;
	unsigned gets = 0, pauses = 0;

	rig_init(&r);
	r.silent = true;
	rig_start(&r, 7, 1);
	for (unsigned i = 0; r.actions.v[0].kind != CORE_ACT_FATAL; i++) {
		assert_true(i < 100);
		if (r.actions.v[0].kind == CORE_ACT_STORE_GET) {
			gets++;
			rig_store_map(&r, i + 1, 6, 1, i + 1);
		} else if (r.actions.v[0].kind == CORE_ACT_STORE_CAS) {
			rig_store_error(&r, error);
		} else {
			assert_int_equal(r.actions.v[0].kind, CORE_ACT_TIMER);
			pauses++;
			r.now += REIGN_LOSS_NS;
			rig_timer(&r);
		}
	}
	assert_int_equal(r.actions.v[0].node.error, said);
	assert_int_equal(gets, REIGN_LOSSES_MAX + 1);
	assert_int_equal(pauses, REIGN_LOSSES_MAX - REIGN_LOSSES_QUICK);
	rig_done(&r);
}

static void map_never_rests(void **state)
{
	(void)state;
	never_rests(-EAGAIN, -EAGAIN);
	never_rests(-ETIMEDOUT, -ETIMEDOUT);
}

/* The core says a sentence, and nothing after it. */
static void expect_fatal(struct rig *r, const char *text)
{
	rig_expect(r, text);
	assert_int_equal(rig_claim(r, 9, "default/z"), -ENOTRECOVERABLE);
	assert_int_equal(rig_continue(r), -ENOTRECOVERABLE);
	assert_false(r->actions.more);
	rig_done(r);
}

static void broken_at_start(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 1);
	rig_forget(&r);
	rig_store_error(&r, -EIO);
	expect_fatal(&r, "STORE EIO\n  FATAL EIO: the map cannot be read from the store\n");

	rig_init(&r);
	rig_start(&r, 7, 1);
	rig_store_absent(&r);
	rig_forget(&r);
	rig_store_error(&r, -ENOSPC);
	expect_fatal(&r, "STORE ENOSPC\n  FATAL ENOSPC: the map cannot be written to the store\n");
}

static void superseded(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 3);
	rig_forget(&r);
	rig_store_map(&r, 1, 7, 4, 9);
	expect_fatal(&r, "STORE version 1\n  FATAL ESTALE: superseded: a later daemon has taken over this node's session\n");

	/* In one shard of the map, and while an epoch is being raised. */
	struct map m = rig_map(7, 1, 1);
	uint8_t bytes[MAP_BYTES];
	m.shard[5].master.incarnation = 2;
	m.shard[5].epoch = 2;
	map_encode(&m, bytes);
	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	use_up(&r, 0);
	rig_forget(&r);
	rig_store_error(&r, -EAGAIN);
	rig_store(&r, 0, bytes, sizeof bytes, 2);
	expect_fatal(&r, "STORE EAGAIN\n  STORE_GET map\n"
		     "STORE version 2\n  FATAL ESTALE: superseded: a later daemon has taken over this node's session\n");

	rig_open(&r);
	rig_claim(&r, 0, "default/a");
	use_up(&r, 0);
	rig_forget(&r);
	rig_store_error(&r, -EAGAIN);
	rig_store_map(&r, 2, 8, 1, 2);
	expect_fatal(&r, "STORE EAGAIN\n  STORE_GET map\nSTORE version 2\n"
		     "  FATAL ESTALE: superseded: another daemon has taken over shards of this node\n");
}

static void twin(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 3);
	rig_forget(&r);
	rig_store_map(&r, 1, 7, 3, 9);
	expect_fatal(&r, "STORE version 1\n  FATAL EEXIST: the map in the store names this very session and incarnation "
		     "already: another daemon runs with a copy of this node's identity\n");
}

static void store_went_back(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_adopt(&r, 0, "default/a", 10, 1, 100);
	rig_start(&r, 7, 3);
	rig_forget(&r);
	rig_store_map(&r, 1, 7, 2, 9);
	expect_fatal(&r, "STORE version 1\n  FATAL ESTALE: the store has gone back: this node holds leases of an epoch that "
		     "the map in the store has not come to; is it an old copy?\n");

	rig_init(&r);
	rig_start(&r, 7, 3);
	rig_store_map(&r, 5, 7, 2, 9);
	rig_store_error(&r, -EAGAIN);
	rig_forget(&r);
	rig_store_absent(&r);
	expect_fatal(&r, "STORE version 0\n  FATAL ESTALE: the store has gone back to an older map: it has lost a write that "
		     "it had acknowledged\n");
}

static void last_epoch(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_start(&r, 7, 3);
	rig_forget(&r);
	rig_store_map(&r, 5, 7, 2, EPOCH_MAX);
	expect_fatal(&r, "STORE version 5\n  FATAL EOVERFLOW: the map in the store has come to its last epoch: tokens cannot "
		     "rise any more, and this cluster can grant no locks\n");
}

static void garbage_map(void **state)
{
	(void)state;
	struct map good = rig_map(7, 2, 9);

	for (unsigned i = 0; i < 6; i++) {
		uint8_t bytes[MAP_BYTES + 1] = { 0 };
		uint32_t len = MAP_BYTES;
		bool layout = false;
		struct rig r;

		map_encode(&good, bytes);
		switch (i) {
		case 0: len = 0; break;
		case 1: len = MAP_BYTES - 1; break;
		case 2: len = MAP_BYTES + 1; break;
		case 3: bytes[0] = 2; layout = true; break;
		case 4: bytes[4] = 65; layout = true; break;
		case 5: memset(bytes + 8 + 63 * 16 + 12, 0xff, 4); break;
		}
		rig_init(&r);
		rig_start(&r, 7, 3);
		rig_forget(&r);
		rig_store(&r, 0, bytes, len, 1);
		expect_fatal(&r, layout ?
			"STORE version 1\n  FATAL EPROTONOSUPPORT: the map in the store has another layout: was it written by "
			"another version of dlock?\n" :
			"STORE version 1\n  FATAL EBADMSG: the map in the store is damaged, and is left as it is; restore the "
			"store's state, or remove it if no lock of this cluster is held and no resource remembers its tokens\n");
	}
}

/* --- What callers may do wrong --- */

static void wrong_events(void **state)
{
	(void)state;
	struct rig r;
	char key[CORE_KEY_MAX + 2];

	memset(key, 'k', sizeof key);
	key[sizeof key - 1] = '\0';
	rig_open(&r);
	assert_int_equal(rig_claim(&r, 0, key), -EINVAL);
	key[CORE_KEY_MAX] = '\0';
	assert_int_equal(rig_claim(&r, 0, key), 0);
	assert_int_equal(r.actions.n, 2);
	assert_int_equal(rig_release(&r, 0, 0), 0);
	rig_forget(&r);
	rig_refill(&r, 0, 0);
	rig_release(&r, 0, 0);
	rig_claim(&r, CORE_REF_NONE, "a");
	rig_release(&r, CORE_REF_NONE, 0);
	rig_start(&r, 7, 1);
	rig_adopt(&r, 0, "a", 1, 1, 1);
	rig_store_landed(&r, 4);
	rig_claim(&r, 0, "a");
	rig_claim(&r, 0, "a");
	rig_claim(&r, 0, "b");
	rig_claim(&r, 1, "a");
	rig_expect(&r, "REFILL 0 0\n  = ENOENT\nRELEASE 0 0\n  = ENOENT\n"
		   "CLAIM 4294967295 a\n  = EINVAL\nRELEASE 4294967295 0\n  = ENOENT\n"
		   "START 7.1\n  = EINVAL\nADOPT 0 a\n  = EINVAL\nSTORE version 4\n  = EINVAL\n"
		   "CLAIM 0 a\n  LEDGER_GRANT 0 1:1+1048576\n  GRANT 0 1:1+1048576\n"
		   "CLAIM 0 a\n  = EALREADY\nCLAIM 0 b\n  = EALREADY\nCLAIM 1 a\n  = EEXIST\n");
	rig_done(&r);
}

static void given_up_before_start(void **state)
{
	(void)state;
	struct rig r;

	rig_init(&r);
	rig_claim(&r, 0, "default/a");
	rig_release(&r, 0, 0);
	rig_start(&r, 7, 1);
	rig_store_absent(&r);
	rig_claim(&r, 1, "default/b");
	rig_release(&r, 1, 0);
	rig_store_landed(&r, 1);
	rig_expect(&r, "CLAIM 0 default/a\nRELEASE 0 0\n  FORGOTTEN 0\n"
		   "START 7.1\n  STORE_GET map\nSTORE version 0\n  STORE_CAS map version 0: 7.1 epoch 1\n"
		   "CLAIM 1 default/b\nRELEASE 1 0\n  FORGOTTEN 1\n"
		   "STORE version 1\n  OPENED epoch 1\n");
	rig_done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		STORY(fresh_store, "an empty store gets a map of ours in epoch 1"),
		STORY(later_run, "a later run reigns in the next epoch and grants above everything before"),
		STORY(highest_epoch_counts, "the new epoch is above the highest of any shard"),
		STORY(ledger_remembers_more, "the new epoch is above what the node remembers, where the store has gone back"),
		STORY(claims_wait_for_the_epoch, "claims wait until the epoch is in the store"),
		STORY(many_claims_wait, "twenty thousand waiting claims are all granted once, after OPENED"),
		STORY(reopened_name, "a name that was forgotten opens above what it had used"),
		STORY(refills_grow, "ranges grow sixteenfold if time allows that they were used, else shrink"),
		STORY(absurd_use, "absurd use is believed as far as time and range allow"),
		STORY(epoch_raised, "before the counter ends the epoch is raised; only that shard waits"),
		STORY(held_ranges_survive_a_raise, "a range held across a raise stays, and leaves the new floor alone"),
		STORY(raise_meets_a_broken_store, "an epoch that cannot be raised is tried again each second"),
		STORY(raise_was_carried_out, "a raise whose answer was lost is found in the map"),
		STORY(no_epoch_left_to_raise, "after the last epoch's counter claims are refused, leases go on"),
		STORY(adopted, "leases of the ledger stay held, and are released and refilled in the new epoch"),
		STORY(adopted_and_refilling, "an adopted lease that is used up is refilled when the epoch opens"),
		STORY(adopted_nonsense, "a ledger that holds nonsense is refused"),
		STORY(compare_failed, "a compare that failed reads again and goes above"),
		STORY(lost_answer, "a write whose answer was lost may have been carried out, or not"),
		STORY(map_never_rests, "a map that keeps changing ends with a sentence, not in a storm"),
		STORY(broken_at_start, "a store that fails at the start is fatal"),
		STORY(superseded, "a later incarnation, or another session in our shards, is fatal"),
		STORY(twin, "a map that names us before we wrote it is fatal"),
		STORY(store_went_back, "a store that has gone back is fatal"),
		STORY(last_epoch, "the last epoch is fatal"),
		STORY(garbage_map, "what is not a map is fatal and stays in the store"),
		STORY(wrong_events, "impossible events are errors and change nothing"),
		STORY(given_up_before_start, "claims can be given up before there is an epoch"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_story", tests, NULL, NULL);
}
