/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What names carry: values, word of a death, limits (DESIGN S9). Whole cores that are alone, and a master for itself. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/frame.h"
#include "core/grant.h"
#include "core_rig.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

#define KEY "default/a"

static struct core_value text(const char *s, uint64_t token)
{
	return (struct core_value){ .state = CORE_VALUE_KNOWN, .len = (uint16_t)strlen(s), .count = 1, .token = token, .bytes = s };
}

static int leave(struct rig *r, core_ref_t ref, struct core_value v, bool died)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_RELEASE, .release = { .ref = ref, .used = 1, .value = v, .died = died } });
}

static const struct core_action *granted(const struct rig *r)
{
	for (unsigned i = 0; i < r->actions.n; i++)
		if (r->actions.v[i].kind == CORE_ACT_GRANT)
			return &r->actions.v[i];
	fail_msg("no grant");
	return NULL;
}

static void reads(const struct rig *r, const char *s)
{
	const struct core_value *v = &granted(r)->name.value;

	assert_int_equal(v->state, s ? CORE_VALUE_KNOWN : CORE_VALUE_NONE);
	assert_true(!s || (v->len == strlen(s) && !memcmp(v->bytes, s, v->len)));
}

static struct core_value none = { .state = CORE_VALUE_NONE };

static void next_one_reads(void **state)
{
	(void)state;
	struct rig r;
	char long_one[CORE_VALUE_MAX + 1];

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	reads(&r, NULL);
	uint64_t token = granted(&r)->name.range.first;
	assert_int_equal(leave(&r, 0, text("one", token), false), 0);
	rig_claim(&r, 1, KEY);
	reads(&r, "one");
	assert_int_equal(granted(&r)->name.value.token, token);

	/* Whoever leaves nothing leaves what was there. */
	assert_int_equal(leave(&r, 1, none, false), 0);
	rig_claim(&r, 2, KEY);
	reads(&r, "one");
	token = granted(&r)->name.range.first;

	/* An older version changes nothing; one beyond the range is none. */
	struct core_value v = text("zero", 1 + ((uint64_t)1 << TOKEN_COUNTER_BITS));
	v.count = 0;
	uint64_t end = token + granted(&r)->name.range.count;
	assert_int_equal(leave(&r, 2, v, false), -EINVAL);
	assert_int_equal(leave(&r, 2, text("absurd", end), false), -EINVAL);
	v.count = 1;
	v.token = token - 1;
	memset(long_one, 'x', sizeof long_one - 1);
	long_one[CORE_VALUE_MAX] = 0;
	assert_int_equal(leave(&r, 2, text(long_one, token), false), 0);
	rig_claim(&r, 0, KEY);
	reads(&r, long_one);
	assert_int_equal(leave(&r, 0, v, false), 0);
	rig_claim(&r, 0, KEY);
	reads(&r, long_one);
	rig_done(&r);
}

static void downgrade_publishes(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	uint64_t token = granted(&r)->name.range.first;
	struct core_event ev = { .kind = CORE_EV_CHANGE, .change = { .ref = 0, .held = 1, .used = 1, .value = text("one", token), .died = true } };
	assert_int_equal(rig_step(&r, &ev), 0);
	/* A reader has nothing to publish. */
	ev.change.held = 0;
	assert_int_equal(rig_step(&r, &ev), -EINVAL);
	ev.change.value = none;
	ev.change.wanted = MSG_WEIGHT_ALL;
	ev.change.died = false;
	assert_int_equal(rig_step(&r, &ev), 0);
	reads(&r, "one");
	assert_true(granted(&r)->name.lost);
	rig_done(&r);
}

static void death_is_told_once(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	assert_false(granted(&r)->name.lost);
	assert_int_equal(leave(&r, 0, none, true), 0);

	/* A reader is told, and so is the next writer; then nobody. */
	struct core_event ev = { .kind = CORE_EV_CLAIM, .claim = { .ref = 0, .key = KEY, .key_len = sizeof KEY - 1, .weight = 1 } };
	assert_int_equal(rig_step(&r, &ev), 0);
	assert_true(granted(&r)->name.lost);
	rig_release(&r, 0, 1);
	rig_claim(&r, 1, KEY);
	assert_true(granted(&r)->name.lost);
	assert_int_equal(granted(&r)->name.value.state, CORE_VALUE_NONE);
	rig_release(&r, 1, 1);
	rig_claim(&r, 2, KEY);
	assert_false(granted(&r)->name.lost);
	rig_done(&r);
}

/* A restarted node knows what its ledger and segment know; of anything else it says that it may be lost. */
static void restart(void **state)
{
	(void)state;
	struct rig r;
	struct core_event ev = { .kind = CORE_EV_ADOPT, .adopt = { .ref = 0, .key = KEY, .key_len = sizeof KEY - 1,
				 .range = { token_make(3, 1), 10 }, .value = text("one", token_make(3, 2)) } };

	rig_init(&r);
	ev.adopt.value.token = token_make(3, 11);
	assert_int_equal(rig_step(&r, &ev), -EINVAL);
	ev.adopt.value.token = token_make(3, 2);
	assert_int_equal(rig_step(&r, &ev), 0);
	rig_start(&r, 7, 2);
	rig_store_map(&r, 1, 7, 1, 3);
	rig_store_landed(&r, 2);
	rig_release(&r, 0, 5);
	rig_claim(&r, 0, KEY);
	reads(&r, "one");
	rig_claim(&r, 1, "default/other");
	assert_int_equal(granted(&r)->name.value.state, CORE_VALUE_LOST);
	assert_false(granted(&r)->name.lost);

	/* It stays so, until something is published. */
	uint64_t token = granted(&r)->name.range.first;
	rig_release(&r, 1, 1);
	rig_claim(&r, 1, "default/other");
	assert_int_equal(granted(&r)->name.value.state, CORE_VALUE_LOST);
	token = granted(&r)->name.range.first;
	assert_int_equal(leave(&r, 1, text("two", token), false), 0);
	rig_claim(&r, 1, "default/other");
	reads(&r, "two");
	rig_done(&r);
}

/* Names are remembered for their values, but not without end: then it is said. */
static void kept_within_bounds(void **state)
{
	(void)state;
	enum { N = MASTER_KEPT + 1 };
	struct rig r;
	char key[32];
	size_t start = 0;

	rig_open(&r);
	r.silent = true;
	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof key, "default/%u", i);
		assert_int_equal(rig_claim(&r, 0, key), 0);
		assert_int_equal(granted(&r)->name.value.state, CORE_VALUE_NONE);
		assert_int_equal(leave(&r, 0, text(key, granted(&r)->name.range.first), false), 0);
		start = i == 0 ? r.bytes : start;
	}
	assert_int_equal(r.core->master.kept, MASTER_KEPT);
	printf("# %zu bytes for each of %u names that nobody has open\n", (r.bytes - start) / N, MASTER_KEPT);
	rig_claim(&r, 0, key);
	assert_int_equal(granted(&r)->name.value.state, CORE_VALUE_LOST);
	rig_claim(&r, 1, "default/0");
	reads(&r, "default/0");
	assert_int_equal(r.core->master.kept, MASTER_KEPT - 1);
	rig_done(&r);
}

/* Whatever is refused: nothing has changed, and said again it is as if it had been said once. */
static void without_memory(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	uint64_t token = granted(&r)->name.range.first;
	r.countdown = 0;
	assert_int_equal(leave(&r, 0, text("a value of some length", token), true), -ENOMEM);
	r.countdown = -1;
	assert_int_equal(leave(&r, 0, text("a value of some length", token), true), 0);
	rig_claim(&r, 0, KEY);
	reads(&r, "a value of some length");
	assert_true(granted(&r)->name.lost);
	rig_done(&r);
}

static const struct core_action *action(const struct rig *r, enum core_action_kind kind)
{
	for (unsigned i = 0; i < r->actions.n; i++)
		if (r->actions.v[i].kind == kind)
			return &r->actions.v[i];
	return NULL;
}

static int want(struct rig *r, uint32_t held, uint32_t wanted)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_CHANGE, .change = { .ref = 0, .held = held, .wanted = wanted } });
}

static uint32_t resized(struct rig *r, uint32_t limit)
{
	assert_int_equal(rig_step(r, &(struct core_event){ .kind = CORE_EV_RESIZE, .resize = { 0, limit } }), 0);
	return action(r, CORE_ACT_RESIZED)->name.weight;
}

/* Of a semaphore. */
static const struct core_event all_three = {
	.kind = CORE_EV_CLAIM, .claim = { .ref = 0, .key = KEY, .key_len = sizeof KEY - 1, .weight = 3, .limit = 3 },
};

static void grows_and_shrinks(void **state)
{
	(void)state;
	struct rig r;
	struct core_event ev = all_three;

	rig_open(&r);
	assert_int_equal(rig_step(&r, &(struct core_event){ .kind = CORE_EV_RESIZE, .resize = { 0, 5 } }), -ENOENT);
	assert_int_equal(rig_step(&r, &ev), 0);
	assert_int_equal(want(&r, 3, 5), -EINVAL);
	assert_int_equal(rig_step(&r, &(struct core_event){ .kind = CORE_EV_RESIZE, .resize = { 0, 0 } }), -EINVAL);
	assert_int_equal(resized(&r, 5), 5);
	assert_int_equal(want(&r, 3, 5), 0);
	assert_int_equal(action(&r, CORE_ACT_GRANT)->name.weight, 5);

	/* What is held stays; nothing new is granted until it fits, and then at once. */
	uint64_t stamp = action(&r, CORE_ACT_GRANT)->name.range.first;
	assert_int_equal(resized(&r, 2), 2);
	assert_int_equal(want(&r, 3, 4), 0);
	assert_null(action(&r, CORE_ACT_GRANT));
	assert_int_equal(resized(&r, 4), 4);
	assert_int_equal(action(&r, CORE_ACT_GRANT)->name.weight, 4);
	assert_true(action(&r, CORE_ACT_GRANT)->name.range.first > stamp);

	/* Once nobody has it open, it is as whoever opens it says. */
	rig_release(&r, 0, 1);
	assert_int_equal(rig_step(&r, &ev), 0);
	assert_int_equal(want(&r, 3, 4), -EINVAL);
	rig_done(&r);
}

/* Though nobody waits; and who has had it open all along says so again. */
static void is_asked_for_too_much(void **state)
{
	(void)state;
	struct rig r;
	struct core_event ev = all_three;

	rig_open(&r);
	assert_int_equal(rig_step(&r, &ev), 0);
	assert_int_equal(resized(&r, 1), 1);
	assert_int_equal(action(&r, CORE_ACT_REVOKE)->name.weight, 1);
	ev.claim.limit_stamp = action(&r, CORE_ACT_RESIZED)->name.number;
	ev.claim.present = 1;
	ev.claim.weight = 1;
	rig_release(&r, 0, 1);
	assert_int_equal(rig_step(&r, &ev), 0);
	assert_int_equal(action(&r, CORE_ACT_GRANT)->name.weight, 1);
	assert_int_equal(want(&r, 1, 2), 0);
	assert_null(action(&r, CORE_ACT_GRANT));
	rig_done(&r);
}

static void lock_has_no_limit(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	assert_int_equal(rig_step(&r, &(struct core_event){ .kind = CORE_EV_RESIZE, .resize = { 0, 5 } }), -EINVAL);
	rig_done(&r);
}

static int observe(struct rig *r, core_ref_t ref, bool on)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_OBSERVE, .observe = { ref, KEY, sizeof KEY - 1, on } });
}

static int proclaim(struct rig *r, core_ref_t ref, struct core_value v)
{
	return rig_step(r, &(struct core_event){ .kind = CORE_EV_PROCLAIM, .proclaim = { ref, v } });
}

static void news_are(const struct rig *r, const char *leader, uint64_t term)
{
	const struct core_action *a = action(r, CORE_ACT_NEWS);

	assert_non_null(a);
	assert_int_equal(a->name.value.state, leader ? CORE_VALUE_KNOWN : CORE_VALUE_NONE);
	assert_true(!leader || (a->name.value.len == strlen(leader) && !memcmp(a->name.value.bytes, leader, strlen(leader))));
	assert_true(!term || a->name.value.token == term);
}

static void observers(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	assert_int_equal(observe(&r, 0, true), 0);
	news_are(&r, NULL, 0);                                   /* nobody leads, and that is told */
	assert_int_equal(observe(&r, 0, true), -EALREADY);
	assert_int_equal(rig_release(&r, 0, 0), -ENOENT);        /* it claims nothing */

	/* The same node stands for election, and is told that it is watched. */
	assert_int_equal(rig_claim(&r, 0, KEY), 0);
	assert_true(granted(&r)->name.observed);
	uint64_t term = granted(&r)->name.range.first;
	assert_null(action(&r, CORE_ACT_NEWS));
	assert_int_equal(proclaim(&r, 0, text("first", term)), 0);
	news_are(&r, "first", term);
	struct core_value v = text("again", term);
	v.count = 2;
	assert_int_equal(proclaim(&r, 0, v), 0);
	news_are(&r, "again", term);

	/* Another of its clients leads next: by the same lease, and by the next token. What is older is not news. */
	assert_int_equal(proclaim(&r, 0, text("second", term + 1)), 0);
	news_are(&r, "second", term + 1);
	assert_int_equal(proclaim(&r, 0, v), 0);
	assert_null(action(&r, CORE_ACT_NEWS));
	assert_int_equal(proclaim(&r, 0, (struct core_value){ .state = CORE_VALUE_NONE, .token = term + 1 }), 0);
	news_are(&r, NULL, term + 1);
	assert_int_equal(rig_release(&r, 0, 2), 0);
	assert_non_null(action(&r, CORE_ACT_FORGOTTEN));
	assert_int_equal(proclaim(&r, 0, v), -ENOENT);

	/* What it proclaimed last is what it left; it goes on observing. */
	assert_int_equal(rig_claim(&r, 0, KEY), 0);
	reads(&r, "second");
	rig_release(&r, 0, 1);
	assert_int_equal(observe(&r, 0, false), 0);
	assert_non_null(action(&r, CORE_ACT_FORGOTTEN));
	assert_int_equal(observe(&r, 0, false), -EALREADY);
	assert_int_equal(r.core->master.watchers.live, 0);
	assert_int_equal(r.core->member.leases, 0);
	rig_done(&r);
}

/* Who begins to observe while somebody leads: the leader's node is asked. */
static void observed_later(void **state)
{
	(void)state;
	struct rig r;

	rig_open(&r);
	rig_claim(&r, 0, KEY);
	assert_false(granted(&r)->name.observed);
	uint64_t term = granted(&r)->name.range.first;
	assert_int_equal(observe(&r, 0, true), 0);
	assert_non_null(action(&r, CORE_ACT_OBSERVED));
	assert_null(action(&r, CORE_ACT_NEWS));
	assert_int_equal(proclaim(&r, 0, text("leader", term)), 0);
	news_are(&r, "leader", term);

	/* It gives back without a word: then nobody leads. */
	rig_release(&r, 0, 1);
	news_are(&r, NULL, 0);
	assert_true(action(&r, CORE_ACT_NEWS)->name.value.token >= term);
	rig_done(&r);
}

/* --- A master for itself --- */

struct bench {
	struct rig rig;                  /* its memory */
	struct names names;
	struct values values;
	struct peers peers;
	struct master master;
	struct msg_queue queue;
	struct core_actions actions;
	struct step step;
	unsigned shard;
	uint32_t epoch;
};

static const struct msg_peer self = { 7, 1 };

static void bench_init(struct bench *b)
{
	memset(b, 0, sizeof *b);
	rig_init(&b->rig);
	assert_int_equal(names_init(&b->names, &b->rig.core->mem), 0);
	values_init(&b->values, &b->rig.core->mem);
	peers_init(&b->peers, &b->rig.core->mem);
	peers_self(&b->peers)->id = self;
	master_init(&b->master, &b->rig.core->mem, &b->names, &b->peers, &b->values);
	master_begin(&b->master, self);
	b->shard = shard_of(KEY, sizeof KEY - 1);
	b->step = (struct step){ .now = 1000, .actions = &b->actions, .queue = &b->queue };
}

static void bench_done(struct bench *b)
{
	values_collect(&b->values);
	master_done(&b->master);
	names_done(&b->names);
	values_done(&b->values);
	peers_done(&b->peers);
	rig_done(&b->rig);
}

/* As cluster.c does. Returns the last answer; kind -1: none. */
static struct msg say(struct bench *b, struct msg m)
{
	struct msg answer = { .kind = (enum msg_kind)-1 };
	name_t n;

	m.shard = (uint8_t)b->shard;
	m.from = m.to = peers_self(&b->peers)->id;
	m.epoch = b->epoch;
	if (!m.last && !(m.flags & MSG_FLAG_FIRST) && m.kind != MSG_HANDOVER)
		m.key = KEY, m.key_len = sizeof KEY - 1;
	values_collect(&b->values);
	assert_int_equal(names_make(&b->names, KEY, sizeof KEY - 1, &n), 0);
	names_at(&b->names, n)->ref = 0;
	assert_int_equal(master_reserve(&b->master), 0);
	if (m.value.state == CORE_VALUE_KNOWN)
		assert_int_equal(value_make(&b->values, &m.value, &m.kept), 0);
	master_receive(&b->master, &m, &b->step);
	if (b->master.asking)            /* of whom the store says that there are none */
		master_delays(&b->master, (const uint16_t[DELAY_KINDS][CORE_SHARDS]){ { 0 } }, b->master.asking);
	value_drop(&b->values, m.kept);
	while (msg_get(&b->queue, &m))
		answer = m;
	while (master_work(&b->master, &b->step))
		while (msg_get(&b->queue, &m))
			answer = m;
	return answer;
}

static void reign(struct bench *b, uint32_t epoch)
{
	b->epoch = epoch;
	master_reign(&b->master, b->shard, epoch, false);
	master_listed(&b->master, shard_bit(b->shard));
	say(b, (struct msg){ .kind = MSG_SYNC, .flags = MSG_FLAG_FIRST });
}

static struct msg synced(struct bench *b)
{
	return say(b, (struct msg){ .kind = MSG_SYNC, .last = true });
}

/* Everybody has synced to that epoch, and nobody holds anything. */
static void bench_open(struct bench *b, uint32_t epoch)
{
	bench_init(b);
	reign(b, epoch);
	synced(b);
}

static struct msg claim(uint64_t number)
{
	return (struct msg){ .kind = MSG_CLAIM, .number = number, .wanted = MSG_WEIGHT_ALL };
}

static struct msg release(enum msg_kind kind, uint64_t number, uint64_t seen, struct core_value v, bool died)
{
	return (struct msg){ .kind = kind, .number = number, .seen = seen, .used = 1, .value = v,
			     .flags = (uint16_t)(MSG_FLAG_OWES | (died ? MSG_FLAG_DIED : 0)) };
}

static void said_twice(void **state)
{
	(void)state;
	struct bench b;

	bench_open(&b, 1);
	uint64_t first = say(&b, claim(1)).range.first;
	assert_int_equal(say(&b, release(MSG_RELEASE, 2, first, text("one", first), true)).kind, MSG_RELEASED);
	struct msg grant = say(&b, claim(3));
	assert_true(grant.flags & MSG_FLAG_LOST && grant.value.state == CORE_VALUE_KNOWN && grant.value.len == 3);
	uint64_t second = grant.range.first;
	say(&b, release(MSG_RELEASE, 4, second, text("two!", second), false));

	/* The answer to the first had been lost; nothing of it comes back. */
	assert_int_equal(say(&b, release(MSG_SYNC, 2, first, text("one", first), true)).kind, MSG_RELEASED);
	grant = say(&b, claim(5));
	assert_false(grant.flags & MSG_FLAG_LOST);
	assert_int_equal(grant.value.len, 4);
	bench_done(&b);
}

static void heard(void **state)
{
	(void)state;
	struct bench b;
	struct msg m;

	bench_open(&b, 1);
	uint64_t first = say(&b, claim(1)).range.first;
	m = release(MSG_CLAIM, 2, first, text("one", first), true);
	m.held = 1;
	m.range = (struct core_range){ first, 1 };
	assert_int_equal(say(&b, m).kind, MSG_STAMP);
	assert_int_equal(say(&b, m).kind, MSG_STAMP);
	m.flags = 0;
	assert_int_equal((int)say(&b, m).kind, -1);
	bench_done(&b);
}

/* Nobody knows what came after a release that waits for its acknowledgement; whoever holds knows. */
static void suspect(void **state)
{
	(void)state;
	struct bench b;
	struct msg m;

	bench_init(&b);
	reign(&b, 5);
	say(&b, release(MSG_SYNC, 2, token_make(4, 1), text("one", token_make(4, 1)), false));
	synced(&b);
	m = say(&b, claim(3));
	assert_int_equal(m.value.state, CORE_VALUE_LOST);
	assert_true(m.flags & MSG_FLAG_LOST);
	bench_done(&b);

	bench_init(&b);
	reign(&b, 5);
	m = (struct msg){ .kind = MSG_SYNC, .number = 3, .held = 1, .seen = token_make(4, 3), .range = { token_make(4, 3), 1 },
			  .value = text("two!", token_make(4, 2)) };
	say(&b, m);
	say(&b, release(MSG_SYNC, 4, token_make(4, 3), none, false));
	m.number = 5;
	say(&b, m);
	synced(&b);
	m = (struct msg){ .kind = MSG_CLAIM, .number = 6, .held = 1, .wanted = MSG_WEIGHT_ALL, .seen = token_make(4, 3),
			  .range = { token_make(4, 3), 1 }, .flags = MSG_FLAG_UPGRADE };
	m = say(&b, m);
	assert_int_equal(m.kind, MSG_GRANT);
	assert_int_equal(m.value.len, 4);
	assert_false(m.flags & MSG_FLAG_LOST);
	bench_done(&b);
}

/* The former master tells; what members know besides is later or not. */
static void planned(void **state)
{
	(void)state;
	struct bench b;
	struct msg mark = { .kind = MSG_MARK, .flags = MSG_FLAG_KNOWN, .value = text("two!", token_make(4, 2)) };
	struct msg over = { .kind = MSG_HANDOVER, .number = 4, .flags = MSG_FLAG_CLEAN };

	for (unsigned i = 0; i < 6; i++) {
		bench_init(&b);
		reign(&b, 5);
		mark.value = text("two!", token_make(4, 2));
		mark.number = 0;
		over.flags = MSG_FLAG_FIRST;
		if (i != 5)
			say(&b, over);
		over.flags = MSG_FLAG_CLEAN;
		if (i == 2)
			mark.value = (struct core_value){ .state = CORE_VALUE_LOST };
		if (i == 3)
			over.flags |= MSG_FLAG_FORGOT;
		if (i == 4)
			mark.number = self.session;      /* and says nothing of it itself */
		if (i != 3)
			say(&b, mark);
		if (i < 3)
			say(&b, release(MSG_SYNC, 2, token_make(4, 1), text("one", token_make(4, i == 1 ? 3 : 1)), false));
		say(&b, over);
		synced(&b);
		struct msg m = say(&b, claim(3));
		assert_int_equal(m.value.state, i < 2 || i == 5 ? CORE_VALUE_KNOWN : CORE_VALUE_LOST);
		assert_int_equal(m.value.len, i == 0 || i == 5 ? 4 : i == 1 ? 3 : 0);
		/* Of a handing over of which the beginning was not heard nothing is believed but its marks. */
		assert_int_equal(b.master.suspect != 0, i == 5);
		assert_int_equal(m.flags & MSG_FLAG_LOST, i == 4 ? MSG_FLAG_LOST : 0);
		bench_done(&b);
	}
}

static void hand_over(struct bench *b, struct msg over)
{
	struct msg begin = over;

	begin.flags = MSG_FLAG_FIRST;
	say(b, begin);
	say(b, over);
}

/* A daemon gives back and dies before a master has heard it; the one that follows claims the name without a word of it. */
static void forgot_what_it_gave_back(void **state)
{
	(void)state;
	struct bench b;
	struct msg mark = { .kind = MSG_MARK, .number = self.session, .flags = MSG_FLAG_KNOWN, .value = text("old", token_make(4, 1)) };
	struct msg over = { .kind = MSG_HANDOVER, .number = 4, .flags = MSG_FLAG_CLEAN }, m;

	for (unsigned reborn = 0; reborn < 2; reborn++) {
		uint64_t number = number_first(1 + reborn);

		/* To the same master: as a new claim, and as one that is taken back at once. */
		for (unsigned back = 0; back < 2; back++) {
			bench_init(&b);
			reign(&b, 5);
			hand_over(&b, over);
			synced(&b);
			m = say(&b, claim(3));
			assert_int_equal(m.kind, MSG_GRANT);
			assert_int_equal(m.flags & MSG_FLAG_LOST, 0);
			if (back)
				say(&b, (struct msg){ .kind = MSG_RELEASE, .number = number + 4 });
			m = say(&b, claim(number + 5));
			assert_int_equal(m.kind, MSG_GRANT);
			assert_int_equal(m.flags & MSG_FLAG_LOST, reborn ? MSG_FLAG_LOST : 0);
			assert_int_equal(m.value.state, reborn ? CORE_VALUE_LOST : CORE_VALUE_NONE);
			bench_done(&b);
		}

		/* To the next one, whom the former tells who held it, before or afterwards. */
		for (unsigned after = 0; after < 2; after++) {
			bench_init(&b);
			peers_self(&b.peers)->id.incarnation = 1 + reborn;
			reign(&b, 5);
			if (!after)
				say(&b, mark);
			m = claim(number + 5);
			m.kind = MSG_SYNC;
			say(&b, m);
			if (after)
				say(&b, mark);
			hand_over(&b, over);
			m = synced(&b);
			assert_int_equal(m.kind, MSG_GRANT);
			assert_int_equal(m.flags & MSG_FLAG_LOST, reborn ? MSG_FLAG_LOST : 0);
			assert_int_equal(m.value.state, reborn ? CORE_VALUE_LOST : CORE_VALUE_KNOWN);
			bench_done(&b);
		}
	}
}

/* A former master tells what it has, as long as it is the last one. */
static void tells(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, mark = { 0 }, over = { 0 };
	struct msg_peer other = { 8, 1 };

	bench_open(&b, 1);
	uint64_t first = say(&b, claim(1)).range.first;
	say(&b, release(MSG_RELEASE, 2, first, text("one", first), true));
	master_yield(&b.master, b.shard);
	master_tell(&b.master, b.shard, other, 2);
	b.peers.own.id = other;          /* so that what is sent stays in the queue */
	while (master_tell_work(&b.master, &b.step))
		while (msg_get(&b.queue, &m))
			*(m.kind == MSG_MARK ? &mark : &over) = m;
	assert_true(mark.flags & MSG_FLAG_LOST && mark.flags & MSG_FLAG_KNOWN && !mark.number);
	assert_true(mark.value.state == CORE_VALUE_KNOWN && mark.value.len == 3);
	assert_int_equal(over.flags, MSG_FLAG_CLEAN);
	master_yield(&b.master, b.shard);
	assert_int_equal(b.master.kept, 0);
	assert_int_equal(b.master.records.live, 0);
	b.peers.own.id = self;
	bench_done(&b);
}

static struct msg permits(enum msg_kind kind, uint64_t number, uint32_t held, uint32_t limit)
{
	struct msg m = { .kind = kind, .number = number, .held = held, .wanted = held ? 0 : 1, .limit = limit };

	if (held) {
		m.seen = token_make(4, number);
		m.range = (struct core_range){ m.seen, 1 };
	}
	return m;
}

/* Of limits that members know the one with the highest stamp counts, in whatever order they tell. */
static void latest_limit(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, other;

	for (unsigned turn = 0; turn < 2; turn++) {
		bench_init(&b);
		b.peers.own.id = self;
		reign(&b, 5);
		struct msg mark = permits(MSG_MARK, 0, 0, 3);
		mark.flags = MSG_FLAG_LIMIT;
		mark.limit_stamp = token_make(4, 7);
		mark.present = 6;
		m = permits(MSG_SYNC, 2, 2, 3);
		m.flags = MSG_FLAG_LIMIT;
		m.limit_stamp = token_make(4, 6);
		m.present = 1;
		if (turn)
			say(&b, mark);
		other = say(&b, m);
		assert_int_equal(other.kind, turn ? MSG_LIMIT : (enum msg_kind)-1);
		if (!turn)
			say(&b, mark);
		other = synced(&b);
		name_t n = names_find(&b.names, KEY, sizeof KEY - 1);
		assert_int_equal(record_of(&b.master, n)->limit, 6);
		assert_int_equal(record_of(&b.master, n)->held, 2);
		if (!turn)
			assert_true(other.kind == MSG_LIMIT && other.limit == 6 && other.stamp == token_make(4, 7) && other.held == 3);
		bench_done(&b);
	}
}

/* A semaphore of three permits in epoch 5, one of them held, is resized to five. Returns the claim that says so. */
static struct msg three_made_five(struct bench *b)
{
	struct msg m = permits(MSG_CLAIM, 3, 1, 3);

	bench_open(b, 5);
	assert_int_equal(say(b, permits(MSG_CLAIM, 2, 0, 3)).kind, MSG_GRANT);
	m.seen = m.range.first = token_make(5, 1);
	m.flags = MSG_FLAG_RESIZE | MSG_FLAG_OWES;
	m.resize = 5;
	assert_int_equal(say(b, m).kind, MSG_LIMIT);
	return m;
}

/* Neither the grant nor the limit was heard: both are said again, and the grant last, since it was granted under that limit. */
static void limit_before_grant(void **state)
{
	(void)state;
	struct bench b;
	struct msg m = three_made_five(&b);

	m.number = 4;
	m.flags = 0;
	m.wanted = 4;
	say(&b, m);
	m = say(&b, m);
	assert_true(m.kind == MSG_GRANT && m.held == 4);
	bench_done(&b);
}

/* Who opens it with another number than it was opened with, or has now, is refused. */
static void other_number(void **state)
{
	(void)state;
	struct bench b;
	struct msg_peer another = { 8, 1 };

	three_made_five(&b);
	assert_int_equal(peers_reserve(&b.peers), 0);
	struct peer *p = peers_add(&b.peers, another.session);
	p->id = another;
	p->listed = true;
	p->conn = 1;
	for (unsigned i = 0; i < 3; i++) {
		static const struct { uint32_t limit; enum msg_kind answer; } of[] = { { 3, MSG_GRANT }, { 4, MSG_REFUSED }, { 5, MSG_GRANT } };
		struct frame f = { .conn = 1, .msg = permits(MSG_CLAIM, 10 + i, 0, of[i].limit) }, g;
		uint8_t frames[CORE_ACTIONS_MAX][CORE_FRAME_MAX];

		b.step.peers = &b.peers;
		b.step.frame = frames;
		b.actions.n = 0;
		f.msg.from = another;
		f.msg.to = self;
		f.msg.epoch = 5;
		f.msg.shard = (uint8_t)b.shard;
		f.msg.key = KEY;
		f.msg.key_len = sizeof KEY - 1;
		assert_int_equal(master_reserve(&b.master), 0);
		master_receive(&b.master, &f.msg, &b.step);
		while (master_work(&b.master, &b.step))
			continue;
		bool found = false;
		for (unsigned k = 0; k < b.actions.n; k++)
			found |= frame_decode(b.actions.v[k].send.bytes, b.actions.v[k].send.n, &g) == 0 && g.msg.kind == of[i].answer;
		assert_true(found);
	}
	bench_done(&b);
}

/* Sessions beside our own, and what they are told: the kinds of the answers to this one, in order of sending. */
static struct msg of_other(struct bench *b, uint64_t session, struct msg m)
{
	static uint8_t frames[CORE_ACTIONS_MAX][CORE_FRAME_MAX];
	struct msg answer = { .kind = (enum msg_kind)-1 };
	struct peer *p = peers_find(&b->peers, session);
	struct frame g;

	if (!p) {
		assert_int_equal(peers_reserve(&b->peers), 0);
		p = peers_add(&b->peers, session);
		p->id = (struct msg_peer){ session, 1 };
		p->listed = true;
		p->conn = session;
	}
	b->step.peers = &b->peers;
	b->step.frame = frames;
	b->actions.n = 0;
	m.from = p->id;
	m.to = self;
	m.epoch = b->epoch;
	m.shard = (uint8_t)b->shard;
	m.key = KEY;
	m.key_len = sizeof KEY - 1;
	name_t n;
	assert_int_equal(names_make(&b->names, KEY, sizeof KEY - 1, &n), 0);
	assert_int_equal(master_reserve(&b->master), 0);
	master_receive(&b->master, &m, &b->step);
	while (master_work(&b->master, &b->step))
		continue;
	for (unsigned k = 0; k < b->actions.n; k++)
		if (b->actions.v[k].kind == CORE_ACT_SEND && frame_decode(b->actions.v[k].send.bytes, b->actions.v[k].send.n, &g) == 0 &&
		    g.msg.kind != MSG_STAMP && g.msg.kind != MSG_RELEASED)
			answer = g.msg, answer.to.session = b->actions.v[k].send.session;
	return answer;
}

static struct msg give_back(uint64_t number, const struct msg *grant)
{
	return (struct msg){ .kind = MSG_RELEASE, .number = number, .seen = grant->range.first, .used = 1 };
}

static void priorities(void **state)
{
	(void)state;
	struct bench b;
	struct msg m, grant;

	bench_open(&b, 1);
	grant = of_other(&b, 10, claim(1));
	assert_int_equal(grant.kind, MSG_GRANT);
	assert_int_equal(of_other(&b, 11, claim(1)).kind, MSG_REVOKE);
	of_other(&b, 12, claim(1));
	m = claim(1);
	m.priority = 7;
	/* The holder hears that it is another now who comes next; it is not told again of those behind. */
	m = of_other(&b, 13, m);
	assert_true(m.kind == MSG_REVOKE && m.priority == 7 && m.to.session == 10);
	m = claim(1);
	m.priority = 7;
	assert_true(of_other(&b, 14, m).kind != MSG_REVOKE);
	m.priority = 200;
	of_other(&b, 15, m);

	/* The highest first, of one priority those who came first. */
	static const uint64_t order[] = { 15, 13, 14, 11, 12 };
	uint64_t holder = 10;
	for (unsigned i = 0; i < 5; i++) {
		struct msg granted_to;

		m = of_other(&b, holder, give_back(2, &grant));
		granted_to = m;
		if (m.kind == MSG_REVOKE)        /* the next in line wants it already: of this grant */
			granted_to.range.first = m.seen;
		assert_int_equal(m.to.session, order[i]);
		grant = granted_to;
		holder = order[i];
	}
	bench_done(&b);
}

static void tries(void **state)
{
	(void)state;
	struct bench b;
	struct msg grant, m, try = claim(5);

	try.flags = MSG_FLAG_TRY;
	bench_open(&b, 1);
	grant = of_other(&b, 10, claim(1));

	/* In use: the holder says so, and the other is refused; nothing is left of it. */
	m = of_other(&b, 11, try);
	assert_true(m.kind == MSG_REVOKE && m.flags & MSG_FLAG_TRY && m.to.session == 10);
	m = of_other(&b, 10, (struct msg){ .kind = MSG_KEEP, .number = 1, .seen = grant.range.first });
	assert_true(m.kind == MSG_REFUSED && m.error == -EBUSY && m.to.session == 11);
	name_t n = names_find(&b.names, KEY, sizeof KEY - 1);
	assert_int_equal(queue_head(&b.master, record_of(&b.master, n)), 0);

	/* Idle: it is given back, and granted. */
	try.number++;
	of_other(&b, 11, try);
	m = of_other(&b, 10, give_back(2, &grant));
	assert_true(m.kind == MSG_GRANT && m.to.session == 11);
	grant = m;

	/* Somebody waits already: at once. And who waits is asked for in earnest, though one has tried before. */
	try.number = 1;
	m = of_other(&b, 12, try);
	assert_true(m.kind == MSG_REVOKE && m.flags & MSG_FLAG_TRY);
	of_other(&b, 12, (struct msg){ .kind = MSG_RELEASE, .number = 1 });
	m = of_other(&b, 13, claim(1));
	assert_true(m.kind == MSG_REVOKE && !(m.flags & MSG_FLAG_TRY) && m.to.session == 11);
	try.number = 2;
	m = of_other(&b, 12, try);
	assert_true(m.kind == MSG_REFUSED && m.error == -EBUSY && m.to.session == 12);

	/* An answer that comes late refuses nobody. */
	assert_int_equal((int)of_other(&b, 11, (struct msg){ .kind = MSG_KEEP, .number = 6, .seen = grant.range.first }).kind, -1);
	bench_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "the next one reads what the last exclusive holder has published", next_one_reads, NULL, NULL, NULL },
		{ "whoever becomes a reader publishes, and readers publish nothing", downgrade_publishes, NULL, NULL, NULL },
		{ "a death is told to the next exclusive holder, once", death_is_told_once, NULL, NULL, NULL },
		{ "after a restart a value that nobody brought is called lost", restart, NULL, NULL, NULL },
		{ "values of closed names are kept within bounds, and beyond called lost", kept_within_bounds, NULL, NULL, NULL },
		{ "a release without memory can be said again", without_memory, NULL, NULL, NULL },
		{ "a semaphore grows and shrinks under its holders", grows_and_shrinks, NULL, NULL, NULL },
		{ "after a resize to fewer a holder is asked for what is too much; a claim tells of an earlier resize", is_asked_for_too_much, NULL, NULL, NULL },
		{ "a lock is not resized", lock_has_no_limit, NULL, NULL, NULL },
		{ "of limits the latest counts, and those who know an older one are told", latest_limit, NULL, NULL, NULL },
		{ "what was granted under another limit is said again after that limit", limit_before_grant, NULL, NULL, NULL },
		{ "whoever opens a semaphore with another number is refused", other_number, NULL, NULL, NULL },
		{ "observers are told who leads, at each hand-over, and that nobody does", observers, NULL, NULL, NULL },
		{ "a leader that was there before its observers is asked", observed_later, NULL, NULL, NULL },
		{ "higher priorities are granted first, and then whoever came first", priorities, NULL, NULL, NULL },
		{ "whoever tries gets what is idle, and is refused what is in use or waited for", tries, NULL, NULL, NULL },
		{ "a release that is said again brings back neither value nor death", said_twice, NULL, NULL, NULL },
		{ "what is owed is acknowledged, however often it is said", heard, NULL, NULL, NULL },
		{ "a suspect reign believes holders, and calls lost what others know", suspect, NULL, NULL, NULL },
		{ "a planned move forgets nothing", planned, NULL, NULL, NULL },
		{ "what a daemon gave back unheard is called lost once it has been started anew", forgot_what_it_gave_back, NULL, NULL, NULL },
		{ "a former master tells values, deaths and what it knew, and then forgets them", tells, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_values", tests, NULL, NULL);
}
