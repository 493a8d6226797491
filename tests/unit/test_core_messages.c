/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Member and master each alone, spoken to in messages: what is stale, repeated or out of turn, which
 * within one node never happens.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core_rig.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

#define EPOCH 5
#define KEY "default/a"

static const struct msg_peer self = { 7, 2 }, earlier = { 7, 1 }, stranger = { 8, 2 };

/* A master or a member with its surroundings. */
struct bench {
	struct rig rig;
	struct names names;
	struct peers peers;
	struct values values;
	struct msg_queue queue;
	struct core_actions actions;
	struct step step;
	struct master master;
	struct member member;
	unsigned shard;
};

static void bench_init(struct bench *b)
{
	memset(b, 0, sizeof *b);
	rig_init(&b->rig);
	assert_int_equal(names_init(&b->names, &b->rig.core->mem), 0);
	peers_init(&b->peers, &b->rig.core->mem);
	values_init(&b->values, &b->rig.core->mem);
	peers_self(&b->peers)->id = self;
	master_init(&b->master, &b->rig.core->mem, &b->names, &b->peers, &b->values);
	member_init(&b->member, &b->rig.core->mem, &b->names, &b->peers, &b->values);
	master_begin(&b->master, self);
	member_begin(&b->member, self);
	b->shard = shard_of(KEY, strlen(KEY));
	b->step = (struct step){ .now = 1000, .actions = &b->actions, .queue = &b->queue };
}

static void bench_done(struct bench *b)
{
	master_done(&b->master);
	member_done(&b->member);
	names_done(&b->names);
	values_done(&b->values);
	peers_done(&b->peers);
	rig_done(&b->rig);
}

static struct msg message(const struct bench *b, enum msg_kind kind, uint64_t number)
{
	return (struct msg){
		.kind = kind, .shard = (uint8_t)b->shard, .key = KEY, .key_len = sizeof KEY - 1,
		.from = self, .to = self, .epoch = EPOCH, .number = number,
	};
}

/* What was sent since the last look: exactly one message, or none (then kind is -1). */
static int sent(struct bench *b, struct msg *ret)
{
	struct msg another;

	if (!msg_get(&b->queue, ret))
		return -1;
	assert_false(msg_get(&b->queue, &another));
	return (int)ret->kind;
}

/* --- The master --- */

/* As core.c does: memory first, and the name is there because the member has it. */
static int master_hears(struct bench *b, struct msg m, struct msg *ret)
{
	name_t n;

	assert_int_equal(names_make(&b->names, KEY, sizeof KEY - 1, &n), 0);
	names_at(&b->names, n)->ref = 0;
	assert_int_equal(master_reserve(&b->master), 0);
	master_receive(&b->master, &m, &b->step);
	return sent(b, ret);
}

/* The end of a sync of whose names all have been told. */
static void master_hears_last(struct bench *b)
{
	struct msg m = message(b, MSG_SYNC, 0), answer;

	m.key = NULL;
	m.key_len = 0;
	m.flags = MSG_FLAG_FIRST;
	assert_int_equal(master_hears(b, m, &answer), -1);
	m.flags = 0;
	m.last = true;
	assert_int_equal(master_hears(b, m, &answer), -1);
}

static void master_open(struct bench *b)
{
	master_reign(&b->master, b->shard, EPOCH, true);
	master_hears_last(b);
	assert_true(b->master.open & shard_bit(b->shard));
}

static struct msg claim_message(const struct bench *b, uint64_t number)
{
	struct msg m = message(b, MSG_CLAIM, number);

	m.wanted = MSG_WEIGHT_ALL;
	return m;
}

static void opens_when_synced(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, answer;

	bench_init(&b);
	master_reign(&b.master, b.shard, EPOCH, true);
	assert_int_equal(master_hears(&b, claim_message(&b, 1), &answer), -1);
	assert_false(master_work(&b.master, &b.step));
	m = message(&b, MSG_SYNC, 0);
	m.key_len = 0;
	m.flags = MSG_FLAG_FIRST;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	m.flags = 0;
	m.last = true;
	m.epoch = EPOCH - 1;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	m.epoch = EPOCH;
	m.from = earlier;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	assert_false(b.master.open);
	m.from = self;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	assert_true(master_work(&b.master, &b.step));
	assert_int_equal(sent(&b, &answer), MSG_GRANT);
	assert_int_equal(answer.number, 1);
	assert_int_equal(answer.range.first, token_make(EPOCH, 1));
	bench_done(&b);
}

static void stale_claims(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, answer;

	bench_init(&b);
	master_open(&b);
	m = claim_message(&b, 1);
	m.epoch = EPOCH - 1;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	m = claim_message(&b, 1);
	m.from = earlier;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	m.from = stranger;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	m = claim_message(&b, 1);
	m.held = MSG_WEIGHT_ALL;                 /* of what the master knows nothing */
	m.seen = token_make(EPOCH, 9);
	assert_int_equal(master_hears(&b, m, &answer), -1);
	bench_done(&b);
}

static void repeated_claims(void **state)
{
	(void)state;
	struct bench b;
	struct msg grant, again, m;

	bench_init(&b);
	master_open(&b);
	assert_int_equal(master_hears(&b, claim_message(&b, 1), &grant), MSG_GRANT);
	assert_int_equal(master_hears(&b, claim_message(&b, 1), &again), MSG_GRANT);
	assert_true(again.range.first == grant.range.first && again.range.count == grant.range.count);

	/* A refill, said twice: the second time as if the answer to the first had been lost. */
	m = claim_message(&b, 1);
	m.held = MSG_WEIGHT_ALL;
	m.seen = grant.range.first;
	assert_int_equal(master_hears(&b, m, &again), MSG_GRANT);
	assert_true(again.range.first == grant.range.first + grant.range.count);
	grant = again;
	assert_int_equal(master_hears(&b, m, &again), MSG_GRANT);
	assert_true(again.range.first == grant.range.first && again.range.count == grant.range.count);
	bench_done(&b);
}

static void repeated_releases(void **state)
{
	(void)state;
	struct bench b;
	struct msg grant, m, answer;

	bench_init(&b);
	master_open(&b);
	master_hears(&b, claim_message(&b, 1), &grant);
	m = message(&b, MSG_RELEASE, 1);
	m.seen = grant.range.first;
	m.used = 10;
	assert_int_equal(master_hears(&b, m, &answer), MSG_RELEASED);
	assert_int_equal(answer.number, 1);
	assert_int_equal(master_hears(&b, m, &answer), MSG_RELEASED);

	/* The next claim stands, whatever is still said of the one before. */
	assert_int_equal(master_hears(&b, claim_message(&b, 2), &grant), MSG_GRANT);
	assert_int_equal(grant.range.first, token_make(EPOCH, 11));
	assert_int_equal(master_hears(&b, m, &answer), MSG_RELEASED);
	assert_int_equal(master_hears(&b, claim_message(&b, 2), &answer), MSG_GRANT);
	assert_int_equal(answer.range.first, grant.range.first);
	bench_done(&b);
}

static void grant_never_seen(void **state)
{
	(void)state;
	struct bench b;
	struct msg grant, m, answer;

	bench_init(&b);
	master_open(&b);
	master_hears(&b, claim_message(&b, 1), &grant);
	m = message(&b, MSG_RELEASE, 1);         /* crossed the grant: it says that it has seen none */
	assert_int_equal(master_hears(&b, m, &answer), MSG_RELEASED);
	assert_int_equal(master_hears(&b, claim_message(&b, 2), &answer), MSG_GRANT);
	assert_true(answer.range.first == grant.range.first + grant.range.count);
	bench_done(&b);
}

static void sync_repeated(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, answer;

	bench_init(&b);
	master_reign(&b.master, b.shard, EPOCH, true);
	m = message(&b, MSG_SYNC, 1);
	m.held = m.wanted = MSG_WEIGHT_ALL;
	m.range = (struct core_range){ token_make(EPOCH - 1, 77), 100 };
	m.seen = m.range.first;
	assert_int_equal(master_hears(&b, m, &answer), -1);
	assert_int_equal(master_hears(&b, m, &answer), -1);
	master_hears_last(&b);
	assert_true(master_work(&b.master, &b.step));
	assert_int_equal(sent(&b, &answer), MSG_GRANT);
	assert_int_equal(answer.range.first, token_make(EPOCH, 1));
	assert_false(master_work(&b.master, &b.step));
	bench_done(&b);
}

/* --- The member --- */

static void member_hears(struct bench *b, struct msg m)
{
	b->actions.n = 0;
	member_receive(&b->member, &m, &b->step);
}

static struct msg grant_message(const struct bench *b, uint64_t number)
{
	struct msg m = message(b, MSG_GRANT, number);

	m.range = (struct core_range){ token_make(EPOCH, 50), 100 };
	m.held = MSG_WEIGHT_ALL;
	return m;
}

static uint64_t member_claims(struct bench *b, struct msg *ret)
{
	struct core_event ev = { .kind = CORE_EV_CLAIM, .claim = { 0, KEY, sizeof KEY - 1 } };

	assert_int_equal(member_claim(&b->member, &ev, &b->step), 0);
	assert_int_equal(sent(b, ret), MSG_CLAIM);
	assert_int_equal(ret->wanted, MSG_WEIGHT_ALL);
	assert_int_equal(ret->held, 0);
	return ret->number;
}

static void member_sync(struct bench *b)
{
	struct msg m;

	member_reign(&b->member, b->shard, self, EPOCH);
	while (member_work(&b->member, &b->step))
		if (sent(b, &m) >= 0)
			assert_int_equal(m.kind, MSG_SYNC);
	assert_true(m.last);
}

static void grants_out_of_turn(void **state)
{
	(void)state;
	struct bench b;
	struct msg m;

	bench_init(&b);
	member_reign(&b.member, b.shard, self, EPOCH);
	uint64_t number = member_claims(&b, &m);
	while (member_work(&b.member, &b.step))
		sent(&b, &m);
	assert_true(m.last);

	m = grant_message(&b, number + 1);                       /* another claim */
	member_hears(&b, m);
	assert_int_equal(b.actions.n, 0);
	m = grant_message(&b, number);
	m.epoch = EPOCH - 1;                                     /* an older reign */
	member_hears(&b, m);
	assert_int_equal(b.actions.n, 0);
	m = grant_message(&b, number);
	m.from = stranger;                                       /* not the master */
	member_hears(&b, m);
	assert_int_equal(b.actions.n, 0);

	member_hears(&b, grant_message(&b, number));
	assert_int_equal(b.actions.n, 2);
	assert_int_equal(b.actions.v[0].kind, CORE_ACT_LEDGER_GRANT);
	assert_int_equal(b.actions.v[1].kind, CORE_ACT_GRANT);
	m = grant_message(&b, number);                           /* a second one, which nobody waits for */
	m.range.first += 100;
	member_hears(&b, m);
	assert_int_equal(b.actions.n, 0);
	bench_done(&b);
}

static void grant_crosses_release(void **state)
{
	(void)state;
	struct bench b;
	struct msg m;

	bench_init(&b);
	member_sync(&b);
	uint64_t number = member_claims(&b, &m);
	assert_int_equal(member_release(&b.member, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { 0, 0 } }, 0, &b.step), 0);
	assert_int_equal(sent(&b, &m), MSG_RELEASE);
	member_hears(&b, grant_message(&b, number));
	assert_int_equal(b.actions.n, 0);
	member_hears(&b, message(&b, MSG_RELEASED, number + 1));
	assert_int_equal(b.actions.n, 0);
	member_hears(&b, message(&b, MSG_RELEASED, number));
	assert_int_equal(b.actions.n, 1);
	assert_int_equal(b.actions.v[0].kind, CORE_ACT_FORGOTTEN);
	member_hears(&b, message(&b, MSG_RELEASED, number));
	assert_int_equal(b.actions.n, 0);
	bench_done(&b);
}

static void sync_states_everything(void **state)
{
	(void)state;
	struct bench b;
	struct msg m;

	bench_init(&b);
	member_sync(&b);
	uint64_t number = member_claims(&b, &m);
	member_hears(&b, grant_message(&b, number));
	b.actions.n = 0;
	assert_int_equal(member_release(&b.member, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { 0, 30 } }, 0, &b.step), 0);
	assert_int_equal(b.actions.n, 1);
	assert_int_equal(b.actions.v[0].kind, CORE_ACT_LEDGER_RELEASE);
	assert_int_equal(sent(&b, &m), MSG_RELEASE);
	assert_int_equal(m.used, 30);

	/* The release was not acknowledged: the next reign hears of it. */
	member_reign(&b.member, b.shard, self, EPOCH + 1);
	do
		assert_true(member_work(&b.member, &b.step));
	while (sent(&b, &m) < 0 || m.flags & MSG_FLAG_FIRST);
	assert_int_equal(m.kind, MSG_SYNC);
	assert_false(m.last);
	assert_int_equal(m.epoch, EPOCH + 1);
	assert_int_equal(m.number, number);
	assert_true(m.held == 0 && m.wanted == 0 && m.used == 30 && m.seen == token_make(EPOCH, 50));
	bench_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "a master grants nothing before its members have synced to its epoch", opens_when_synced, NULL, NULL, NULL },
		{ "a master takes no claim of another epoch, incarnation or session", stale_claims, NULL, NULL, NULL },
		{ "a claim said again gets the grant it got", repeated_claims, NULL, NULL, NULL },
		{ "a release said again is acknowledged, and does not touch the next claim", repeated_releases, NULL, NULL, NULL },
		{ "a grant that its member never saw is skipped whole", grant_never_seen, NULL, NULL, NULL },
		{ "a sync said again changes nothing", sync_repeated, NULL, NULL, NULL },
		{ "a member takes grants only of its master, in the synced epoch, for the claim that waits", grants_out_of_turn, NULL, NULL, NULL },
		{ "a grant that crosses the release of its claim is nobody's", grant_crosses_release, NULL, NULL, NULL },
		{ "a release that was not acknowledged is told to the next reign", sync_states_everything, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_messages", tests, NULL, NULL);
}
