/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who has a name and who waits for it, as any node is told that asks (daemon/core/master_account.c). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "cluster_rig.h"

#include <cmocka.h>

#define REF 5
#define MSEC (CRIG_SECOND / 1000)
#define ALL CORE_WEIGHT_ALL

static uint64_t number;

static int enquire(struct crig *r, unsigned node, const char *key)
{
	struct core_event ev = { .kind = CORE_EV_ENQUIRE, .enquire = { .number = ++number, .key = key, .key_len = (uint16_t)strlen(key) } };

	r->node[node].account = (struct core_action){ .kind = CORE_ACT_TIMER };
	return crig_give(r, node, &ev);
}

static void claim(struct crig *r, unsigned node, const char *key, uint32_t weight, uint32_t limit)
{
	struct core_event ev = { .kind = CORE_EV_CLAIM, .claim = { .ref = REF, .key = key, .key_len = (uint16_t)strlen(key), .weight = weight, .limit = limit } };

	assert_int_equal(crig_give(r, node, &ev), 0);
	crig_run(r, 10 * MSEC);
}

/* The answer has come. */
static void told(struct crig *r, unsigned node, uint32_t held, uint32_t limit, unsigned n, unsigned all)
{
	const struct core_action *a = &r->node[node].account;

	crig_run(r, 10 * MSEC);
	assert_int_equal(a->kind, CORE_ACT_ACCOUNT);
	assert_true(a->account.number == number);
	assert_int_equal(a->account.held, held);
	assert_int_equal(a->account.limit, limit);
	assert_int_equal(a->account.n, n);
	assert_int_equal(a->account.all, all);
}

static void party(const struct crig *r, unsigned node, unsigned i, unsigned who, uint32_t held, uint32_t wanted)
{
	const struct core_party *p = &r->node[node].party[i];

	assert_true(p->session == r->node[who].session);
	assert_int_equal(p->held, held);
	assert_int_equal(p->wanted, wanted);
}

static void of_a_lock(void **state)
{
	char key[16];
	struct crig r;

	(void)state;
	crig_init(&r, 4);
	for (unsigned master = 0; master < 4; master++) {
		crig_key(&r, master, 0, key);
		for (unsigned i = 0; i < 4; i++) {
			assert_int_equal(enquire(&r, i, key), 0);
			told(&r, i, 0, 0, 0, 0);
		}
	}
	claim(&r, 2, key, 0, 0);
	claim(&r, 0, key, 1, 0);
	claim(&r, 1, key, 0, 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(enquire(&r, i, key), 0);
		told(&r, i, ALL, ALL, 3, 3);
		party(&r, i, 0, 2, ALL, 0);
		party(&r, i, 1, 0, 0, 1);
		party(&r, i, 2, 1, 0, ALL);
	}
	assert_int_equal(crig_release(&r, 2, REF), 0);
	crig_run(&r, 10 * MSEC);
	assert_int_equal(enquire(&r, 2, key), 0);
	told(&r, 2, 1, ALL, 2, 2);
	party(&r, 2, 0, 0, 1, 0);
	party(&r, 2, 1, 1, 0, ALL);
	crig_done(&r);
}

/* Who has some and wants more is one node. */
static void of_permits(void **state)
{
	struct core_event more = { .kind = CORE_EV_CHANGE, .change = { .ref = REF, .held = 2, .wanted = 4 } };
	char key[16];
	struct crig r;

	(void)state;
	crig_init(&r, 4);
	crig_key(&r, 3, 0, key);
	claim(&r, 0, key, 2, 5);
	claim(&r, 1, key, 3, 5);
	claim(&r, 2, key, 1, 5);
	assert_int_equal(crig_give(&r, 0, &more), 0);
	crig_run(&r, 10 * MSEC);
	assert_int_equal(enquire(&r, 2, key), 0);
	told(&r, 2, 5, 5, 3, 3);
	unsigned first = r.node[2].party[0].session == r.node[0].session ? 0 : 1;        /* those who have some, in whatever order */
	party(&r, 2, first, 0, 2, 4);
	party(&r, 2, 1 - first, 1, 3, 0);
	party(&r, 2, 2, 2, 0, 1);
	crig_done(&r);
}

/* All have it shared. So many are told, and how many there are. */
static void of_many(void **state)
{
	static struct crig r;
	char key[16];

	(void)state;
	crig_init(&r, CRIG_NODES);
	crig_key(&r, 3, 0, key);
	for (unsigned i = 0; i < CRIG_NODES; i++)
		claim(&r, i, key, 1, 0);
	assert_int_equal(enquire(&r, 7, key), 0);
	told(&r, 7, CRIG_NODES, ALL, CORE_PARTIES_MAX, CRIG_NODES);
	crig_done(&r);
}

/* Node 3 masters it, and node 0 has it. */
static void begin(struct crig *r, char key[16])
{
	crig_init(r, 4);
	crig_key(r, 3, 0, key);
	claim(r, 0, key, 0, 0);
}

/* Who masters it after node 3. */
static unsigned follows(struct crig *r, const char *key)
{
	unsigned shard = shard_of(key, strlen(key));

	while (crig_master(r, shard) >= 3)
		crig_run(r, 100 * MSEC);
	return crig_master(r, shard);
}

/* The one who would know is dead, or does not know all yet: nothing is told that may be wrong. */
static void nobody_knows(void **state)
{
	char key[16];
	struct crig r;

	(void)state;
	begin(&r, key);
	r.lose[MSG_ENQUIRE] = 1u << 3;
	assert_int_equal(enquire(&r, 1, key), 0);
	crig_run(&r, 10 * MSEC);
	assert_int_equal(r.node[1].account.kind, CORE_ACT_TIMER);
	r.lose[MSG_ENQUIRE] = 0;
	crig_kill(&r, 3);
	crig_run(&r, 10 * MSEC);
	assert_int_equal(enquire(&r, 1, key), -EAGAIN);
	follows(&r, key);
	for (unsigned i = 0; i < 50 && r.node[1].account.kind != CORE_ACT_ACCOUNT; i++) {
		(void)enquire(&r, 1, key);
		crig_run(&r, 100 * MSEC);
	}
	told(&r, 1, ALL, ALL, 1, 1);
	party(&r, 1, 0, 0, ALL, 0);
	assert_int_equal(enquire(&r, 1, ""), -EINVAL);
	crig_done(&r);
}

/* A new master asks all what they have; while one has not told, whoever asks is told nothing rather than that nobody has it. */
static void while_it_opens(void **state)
{
	char key[16];
	struct crig r;

	(void)state;
	begin(&r, key);
	r.hold[MSG_SYNC] = 0xf;
	crig_kill(&r, 3);
	unsigned next = follows(&r, key);
	crig_run(&r, CRIG_SECOND / 2);
	for (unsigned i = 0; i < 3; i++) {
		int e = enquire(&r, i, key);

		assert_true(e == 0 || e == -EAGAIN);
		crig_run(&r, 10 * MSEC);
		assert_int_equal(r.node[i].account.kind, CORE_ACT_TIMER);
	}
	crig_let_go(&r);
	crig_run(&r, CRIG_SECOND);
	assert_int_equal(enquire(&r, (next + 1) % 3, key), 0);
	told(&r, (next + 1) % 3, ALL, ALL, 1, 1);
	crig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "of a lock: who has it, and who waits, in order; every node is told, also of names that nobody has", of_a_lock, NULL, NULL, NULL },
		{ "of permits: how many each has, and wants", of_permits, NULL, NULL, NULL },
		{ "of more nodes than fit the first are told, and their number", of_many, NULL, NULL, NULL },
		{ "where the master is not reached nothing is told; the next one knows", nobody_knows, NULL, NULL, NULL },
		{ "a master that does not know all yet tells nothing", while_it_opens, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
