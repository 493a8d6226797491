/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lock-delay: who waits for how long after a holder was lost with its node, whoever masters. One story each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster_rig.h"

#include <cmocka.h>

#define DELAY 7000                       /* ms: longer than all that a fail-over takes here */
#define STEP (CRIG_SECOND / 20)

static struct crig r;

static int claim(unsigned node, core_ref_t ref, const char *key, uint16_t delay, bool tries)
{
	r.node[node].refused[ref] = 0;
	return crig_give(&r, node, &(struct core_event){ .kind = CORE_EV_CLAIM, .claim = {
		.ref = ref, .key = key, .key_len = (uint16_t)strlen(key), .delay = delay, .tries = tries } });
}

/* limit 0: a lock. */
static int claim_some(unsigned node, core_ref_t ref, const char *key, uint32_t weight, uint32_t limit, uint16_t delay, bool tries)
{
	r.node[node].refused[ref] = 0;
	return crig_give(&r, node, &(struct core_event){ .kind = CORE_EV_CLAIM, .claim = {
		.ref = ref, .key = key, .key_len = (uint16_t)strlen(key), .weight = weight, .limit = limit, .delay = delay, .tries = tries } });
}

static void take_some(unsigned node, core_ref_t ref, const char *key, uint32_t weight, uint32_t limit, uint16_t delay)
{
	assert_int_equal(claim_some(node, ref, key, weight, limit, delay, false), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[node].held[ref], weight);
}

static void take(unsigned node, core_ref_t ref, const char *key, uint16_t delay)
{
	assert_int_equal(claim(node, ref, key, delay, false), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[node].held[ref], CORE_WEIGHT_ALL);
}

/* How long until it holds; gives up after a minute. */
static core_nsec_t until_held(unsigned node, core_ref_t ref)
{
	core_nsec_t since = r.now;

	while (!r.node[node].held[ref] && r.now < since + 60 * CRIG_SECOND)
		crig_run(&r, STEP);
	assert_true(r.node[node].held[ref]);
	return r.now - since;
}

static core_nsec_t ms(unsigned n)
{
	return n * (CRIG_SECOND / 1000);
}

/* Two names of one master; node 1 dies and had both, one of them with a delay. */
static void of_the_hold_that_is_lost(void **state)
{
	(void)state;
	char with[16], without[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, with);
	crig_key(&r, 0, 1, without);
	take(1, 5, with, DELAY);
	take(1, 6, without, 0);
	assert_int_equal(claim(2, 5, with, 0, false), 0);
	assert_int_equal(claim(2, 6, without, CORE_DELAY_MAX, false), 0);        /* its own has no say yet */
	crig_kill(&r, 1);
	core_nsec_t first = until_held(2, 6);
	assert_true(first < ms(DELAY) && r.node[2].lost[6]);
	core_nsec_t second = until_held(2, 5);
	assert_true(second >= ms(DELAY) - STEP && second <= ms(DELAY) + STEP);
	assert_true(r.node[2].lost[5]);
	crig_done(&r);
}

static void not_of_a_release(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	take(1, 5, key, CORE_DELAY_MAX);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	crig_run(&r, STEP);
	assert_int_equal(crig_release(&r, 1, 5), 0);
	assert_true(until_held(2, 5) <= STEP && !r.node[2].lost[5]);
	crig_done(&r);
}

/* Who writes waits, who reads does not; of one that was cut down to a share too. */
static void of_a_share(void **state)
{
	(void)state;
	char key[16], lowered[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	crig_key(&r, 0, 1, lowered);
	take_some(1, 5, key, 1, 0, DELAY);
	take(1, 6, lowered, DELAY);
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_CHANGE, .change = { .ref = 6, .held = 1, .used = 1 } }), 0);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	assert_int_equal(claim(2, 6, lowered, 0, false), 0);
	crig_run(&r, STEP);
	crig_kill(&r, 1);
	core_nsec_t since = r.now;
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, STEP);
	take_some(2, 7, key, 1, 0, 0);
	assert_int_equal(crig_release(&r, 2, 7), 0);
	crig_run(&r, STEP);
	assert_int_equal(claim(2, 8, key, 0, false), 0);
	until_held(2, 8);
	assert_true(r.now - since >= 3 * CRIG_SECOND / 2 + ms(DELAY) && r.now - since <= 5 * CRIG_SECOND + ms(DELAY));
	assert_true(until_held(2, 6) <= STEP);
	assert_false(r.node[2].lost[8]);         /* nobody is told of readers */
	crig_done(&r);
}

/* So many of them are not there; all others are. */
static void of_permits(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 4);
	crig_key(&r, 0, 0, key);
	take_some(1, 5, key, 2, 4, DELAY);
	take_some(3, 5, key, 1, 4, 0);
	crig_kill(&r, 1);
	crig_run(&r, 4 * CRIG_SECOND);
	take_some(2, 5, key, 1, 4, 0);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, STEP);
	assert_int_equal(claim_some(2, 5, key, 3, 4, 0, true), 0);
	crig_run(&r, STEP);
	assert_int_equal(r.node[2].refused[5], -EBUSY);
	assert_int_equal(claim_some(2, 6, key, 3, 4, 0, false), 0);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(r.node[2].held[6], 0);
	until_held(2, 6);
	crig_done(&r);
}

/* What is lost stands beside what others hold: they give theirs, and that is enough. */
static void beside_others(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 4);
	crig_key(&r, 0, 0, key);
	take_some(1, 5, key, 1, 3, CORE_DELAY_MAX);
	take_some(3, 5, key, 2, 3, 0);
	crig_kill(&r, 1);
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(claim_some(2, 5, key, 2, 3, 0, false), 0);
	crig_run(&r, STEP);
	assert_int_equal(r.node[2].held[5], 0);
	assert_int_equal(crig_release(&r, 3, 5), 0);
	assert_true(until_held(2, 5) <= 2 * STEP);
	crig_done(&r);
}

static void not_of_a_share_given_back(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	take_some(1, 5, key, 1, 0, CORE_DELAY_MAX);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	crig_run(&r, STEP);
	assert_int_equal(crig_release(&r, 1, 5), 0);
	crig_run(&r, STEP);
	crig_kill(&r, 1);
	assert_true(until_held(2, 5) <= STEP);
	crig_done(&r);
}

static void tries(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	take(1, 5, key, DELAY);
	crig_kill(&r, 1);
	crig_run(&r, 4 * CRIG_SECOND);
	assert_int_equal(claim(2, 5, key, 0, true), 0);
	crig_run(&r, STEP);
	assert_int_equal(r.node[2].refused[5], -EBUSY);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	until_held(2, 5);
	crig_done(&r);
}

/* The master was the holder too: of names that nobody speaks of, all in its shard may have been held with that delay; no other shard's. */
static void master_lost(void **state)
{
	(void)state;
	char held[16], near[16], far[16];
	const struct crig_record *rec;
	uint16_t delays[DELAY_KINDS][CORE_SHARDS];

	crig_init(&r, 3);
	crig_key(&r, 1, 0, held);
	unsigned shard = shard_of(held, (uint16_t)strlen(held));
	take(1, 5, held, DELAY);
	rec = crig_record(&r, DELAYS_KEY);
	assert_non_null(rec);
	assert_int_equal(delays_decode(rec->value, rec->size, delays), 0);
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		assert_int_equal(delays[DELAY_ALONE][i], i == shard ? DELAY : 0);
	for (unsigned i = 1; ; i++) {
		crig_key(&r, 1, i, near);
		if (shard_of(near, (uint16_t)strlen(near)) == shard)
			break;
	}
	for (unsigned i = 1; ; i++) {
		crig_key(&r, 1, i, far);
		if (shard_of(far, (uint16_t)strlen(far)) != shard)
			break;
	}
	take(2, 7, near, 0);                     /* somebody speaks of it */
	assert_int_equal(claim(0, 5, held, 0, false), 0);
	assert_int_equal(claim(0, 6, far, 0, false), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[0].held[6], CORE_WEIGHT_ALL);    /* which it had not: the shard's master grants it */
	assert_int_equal(crig_release(&r, 0, 6), 0);
	crig_run(&r, CRIG_SECOND / 10);
	crig_kill(&r, 1);
	assert_int_equal(claim(0, 6, far, 0, false), 0);
	core_nsec_t first = until_held(0, 6);
	assert_true(first < ms(DELAY));
	assert_int_equal(crig_release(&r, 2, 7), 0);
	assert_int_equal(claim(0, 7, near, 0, false), 0);
	assert_true(until_held(0, 7) <= 2 * STEP);
	core_nsec_t second = until_held(0, 5);
	assert_true(first + second >= ms(DELAY) && r.node[0].lost[5]);
	crig_done(&r);
}

/*
 * The master held a share, and a permit: nobody knows of them. Beside a share another one is granted, but nobody is alone where it is not known
 * that somebody else was; nor are permits granted, though there may be enough. Where nobody has asked for a delay, all is as ever.
 */
static void master_lost_with_shares(void **state)
{
	(void)state;
	char held[16], sem[16], other[16], alone[16];
	const struct crig_record *rec;
	uint16_t delays[DELAY_KINDS][CORE_SHARDS];
	unsigned n = 0;

	crig_init(&r, 3);
	crig_key(&r, 1, n++, held);
	unsigned shard = shard_of(held, (uint16_t)strlen(held));
	do
		crig_key(&r, 1, n++, sem);
	while (shard_of(sem, (uint16_t)strlen(sem)) != shard);
	do
		crig_key(&r, 1, n++, alone);
	while (shard_of(alone, (uint16_t)strlen(alone)) != shard);
	do
		crig_key(&r, 1, n++, other);
	while (shard_of(other, (uint16_t)strlen(other)) == shard);
	take_some(1, 5, held, 1, 0, DELAY);
	take_some(1, 6, sem, 1, 3, DELAY);
	take_some(2, 5, held, 1, 0, 0);
	take_some(2, 6, sem, 1, 3, 0);
	take(2, 7, alone, 0);
	take_some(1, 8, other, 1, 3, 0);
	rec = crig_record(&r, DELAYS_KEY);
	assert_non_null(rec);
	assert_int_equal(delays_decode(rec->value, rec->size, delays), 0);
	assert_int_equal(delays[DELAY_SHARED][shard], DELAY);
	assert_int_equal(delays[DELAY_ALONE][shard], 0);
	crig_kill(&r, 1);
	core_nsec_t since = r.now;
	assert_int_equal(claim_some(0, 8, other, 3, 3, 0, false), 0);
	until_held(0, 8);
	take_some(0, 5, held, 1, 0, 0);
	assert_int_equal(crig_release(&r, 2, 7), 0);
	assert_int_equal(claim(0, 7, alone, 0, false), 0);
	assert_true(until_held(0, 7) <= 2 * STEP);
	assert_int_equal(claim_some(0, 6, sem, 1, 3, 0, false), 0);
	assert_int_equal(crig_release(&r, 0, 5), 0);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, STEP);
	assert_int_equal(claim(0, 9, held, 0, false), 0);
	crig_run(&r, STEP);
	assert_true(!r.node[0].held[6] && !r.node[0].held[9]);
	until_held(0, 9);
	assert_true(r.now - since >= 3 * CRIG_SECOND / 2 + ms(DELAY));
	assert_true(until_held(0, 6) <= STEP);
	crig_done(&r);
}

/* Nothing is granted with a delay that the store does not know of; without one it is. */
static void store_away(void **state)
{
	(void)state;
	char with[16], without[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, with);
	crig_key(&r, 0, 1, without);
	r.store_cut[0] = true;
	assert_int_equal(claim(2, 5, with, DELAY, false), 0);
	take(2, 6, without, 0);
	assert_int_equal(r.node[2].held[5], 0);
	r.store_cut[0] = false;
	until_held(2, 5);
	assert_non_null(crig_record(&r, DELAYS_KEY));
	crig_done(&r);
}

/* The shard moves after the holder's death, before and after that is noticed: the next master keeps what is left of the delay. */
static void handed_over(bool noticed, uint32_t weight)
{
	char key[16];

	crig_init(&r, 4);
	crig_key(&r, 0, 0, key);
	take_some(1, 5, key, weight, 0, DELAY);
	if (weight == 1)
		take_some(3, 5, key, 1, 0, 0);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	crig_run(&r, STEP);
	if (weight == 1)
		assert_int_equal(crig_release(&r, 3, 5), 0);
	crig_kill(&r, 1);
	core_nsec_t since = r.now;
	crig_run(&r, noticed ? 4 * CRIG_SECOND : STEP);
	assert_int_equal(crig_give(&r, 0, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	until_held(2, 5);
	/* The last beat was sent half a second before at most, and the session ended two seconds after it at least. */
	assert_true(r.now - since >= 3 * CRIG_SECOND / 2 + ms(DELAY));
	assert_true(r.now - since <= 5 * CRIG_SECOND + ms(DELAY));
	assert_int_equal(crig_shards(&r, 0), 0);
	assert_true(r.node[2].lost[5] == (weight != 1));
	crig_done(&r);
}

static void handed_over_before(void **state)
{
	(void)state;
	handed_over(false, CORE_WEIGHT_ALL);
}

static void handed_over_after(void **state)
{
	(void)state;
	handed_over(true, CORE_WEIGHT_ALL);
}

static void share_handed_over_before(void **state)
{
	(void)state;
	handed_over(false, 1);
}

static void share_handed_over_after(void **state)
{
	(void)state;
	handed_over(true, 1);
}

/* Twice, while all live: nobody waits for a share that is there, or has been given back meanwhile. */
static void handed_over_alive(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 4);
	crig_key(&r, 0, 0, key);
	take_some(1, 5, key, 1, 0, CORE_DELAY_MAX);
	take_some(3, 5, key, 1, 0, CORE_DELAY_MAX);
	assert_int_equal(crig_give(&r, 0, &(struct core_event){ .kind = CORE_EV_DRAIN }), 0);
	assert_int_equal(crig_release(&r, 3, 5), 0);
	for (unsigned i = 0; crig_shards(&r, 0) && i < 200; i++)
		crig_run(&r, STEP);
	assert_int_equal(crig_shards(&r, 0), 0);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	crig_run(&r, CRIG_SECOND / 2);
	assert_int_equal(r.node[2].held[5], 0);
	assert_int_equal(crig_release(&r, 1, 5), 0);
	assert_true(until_held(2, 5) <= CRIG_SECOND);
	crig_done(&r);
}

/* A node has others who ask for more: it gives back, and claims with that. */
static void claimed_anew(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	take(1, 5, key, 0);
	assert_int_equal(crig_give(&r, 1, &(struct core_event){ .kind = CORE_EV_CHANGE, .change = {
		.ref = 5, .wanted = CORE_WEIGHT_ALL, .used = 1, .delay = DELAY } }), 0);
	crig_run(&r, CRIG_SECOND / 10);
	assert_int_equal(r.node[1].held[5], CORE_WEIGHT_ALL);
	assert_int_equal(claim(2, 5, key, 0, false), 0);
	crig_kill(&r, 1);
	assert_true(until_held(2, 5) >= ms(DELAY));
	crig_done(&r);
}

static void gives_back_unmended(unsigned node, core_ref_t ref)
{
	assert_int_equal(crig_give(&r, node, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { .ref = ref, .used = 1, .died = true } }), 0);
	crig_run(&r, STEP);
}

/* A fail-over leaves it unclear of each name whether its holder was lost; no name has to be remembered for that. */
static void unmended_in_a_suspect_reign(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 2, 0, key);
	crig_kill(&r, 2);
	assert_int_equal(claim(1, 5, key, 0, false), 0);
	until_held(1, 5);
	unsigned shard = shard_of(key, strlen(key));
	const struct master *m = &r.node[crig_master(&r, shard)].core->master;
	assert_true(m->suspect & shard_bit(shard));
	for (unsigned i = 0; i < 3; i++) {
		assert_true(r.node[1].lost[5]);
		gives_back_unmended(1, 5);
		assert_int_equal(m->records.live, 0);
		take(1, 5, key, 0);
	}
	crig_done(&r);
}

/* What was left unmended is remembered, unless there is very much of it; that a session was lost always is. */
static void unmended_in_another(void **state)
{
	(void)state;
	char key[16];

	crig_init(&r, 3);
	crig_key(&r, 0, 0, key);
	struct master *m = &r.node[0].core->master;
	take(1, 5, key, 0);
	gives_back_unmended(1, 5);
	assert_int_equal(m->kept, 1);
	take(2, 5, key, 0);
	assert_true(r.node[2].lost[5]);
	assert_int_equal(crig_release(&r, 2, 5), 0);
	crig_run(&r, STEP);
	assert_int_equal(m->kept, 0);
	assert_int_equal(m->records.live, 0);

	m->kept = MASTER_KEPT;
	take(1, 5, key, 0);
	gives_back_unmended(1, 5);
	assert_int_equal(m->records.live, 0);
	take(1, 5, key, 0);
	crig_kill(&r, 1);
	crig_run(&r, 10 * CRIG_SECOND);          /* and nobody has it open */
	take(2, 5, key, 0);
	assert_true(r.node[2].lost[5]);
	assert_int_equal(m->kept, MASTER_KEPT);
	crig_done(&r);
}

static void refused(void **state)
{
	(void)state;

	crig_init(&r, 3);
	assert_int_equal(claim(0, 5, "test/x", CORE_DELAY_MAX + 1, false), -EINVAL);
	assert_int_equal(claim_some(0, 5, "test/x", 1, 3, CORE_DELAY_MAX + 1, false), -EINVAL);
	take(0, 5, "test/x", CORE_DELAY_MAX);
	assert_int_equal(crig_give(&r, 0, &(struct core_event){ .kind = CORE_EV_CHANGE, .change = {
		.ref = 5, .wanted = CORE_WEIGHT_ALL, .delay = CORE_DELAY_MAX + 1 } }), -EINVAL);
	crig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_the_hold_that_is_lost), cmocka_unit_test(not_of_a_release), cmocka_unit_test(of_a_share),
		cmocka_unit_test(of_permits), cmocka_unit_test(beside_others), cmocka_unit_test(not_of_a_share_given_back),
		cmocka_unit_test(master_lost_with_shares), cmocka_unit_test(share_handed_over_before), cmocka_unit_test(share_handed_over_after),
		cmocka_unit_test(handed_over_alive),
		cmocka_unit_test(tries), cmocka_unit_test(master_lost), cmocka_unit_test(store_away),
		cmocka_unit_test(handed_over_before), cmocka_unit_test(handed_over_after),
		cmocka_unit_test(claimed_anew), cmocka_unit_test(refused),
		cmocka_unit_test(unmended_in_a_suspect_reign), cmocka_unit_test(unmended_in_another),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("lock-delay", tests, NULL, NULL);
}
