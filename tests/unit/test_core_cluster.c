/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pieces of a cluster alone: the deadline's arithmetic, observing, and who gets which shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_int.h"
#include "core/mapplan.h"
#include "core/observe.h"
#include "core/session.h"

#include <cmocka.h>

#define SECOND 1000000000ull

/* --- The beat --- */

static void beat_counts_from_first_sending(void **state)
{
	(void)state;
	struct beat b;
	struct beat_value v;
	uint8_t bytes[BEAT_BYTES];

	beat_init(&b, (struct msg_peer){ 7, 1 });
	beat_send(&b, 10, bytes);
	beat_written(&b, 0, 1, 90);
	assert_int_equal(b.landed, 10);

	/* The second one's answer is lost; the record shows that it had landed. */
	beat_send(&b, 100, bytes);
	beat_written(&b, -CORE_ETIMEDOUT, 0, 200);
	assert_true(b.unsure);
	assert_int_equal(b.landed, 10);
	assert_int_equal(beat_read(&b, bytes, BEAT_BYTES, 2, 300), BEAT_OURS);
	assert_int_equal(b.landed, 100);

	/* The third is lost on the way, so a fourth value is sent; then the third lands after all, and counts as of its own sending. */
	beat_send(&b, 400, bytes);
	uint8_t third[BEAT_BYTES];
	memcpy(third, bytes, sizeof third);
	beat_written(&b, -CORE_ETIMEDOUT, 0, 500);
	beat_encode(&(struct beat_value){ .id = { 7, 1 }, .counter = 2 }, bytes);
	assert_int_equal(beat_read(&b, bytes, BEAT_BYTES, 2, 600), BEAT_OURS);
	beat_send(&b, 700, bytes);
	assert_memory_not_equal(third, bytes, BEAT_BYTES);
	beat_written(&b, -CORE_EAGAIN, 0, 800);
	assert_int_equal(beat_read(&b, third, BEAT_BYTES, 3, 900), BEAT_OURS);
	assert_int_equal(b.landed, 400);
	assert_int_equal(beat_decode(third, BEAT_BYTES, &v), 0);
	assert_int_equal(v.counter, 3);
}

static void beat_ends(void **state)
{
	(void)state;
	struct beat b;
	uint8_t bytes[BEAT_BYTES];

	beat_init(&b, (struct msg_peer){ 7, 2 });
	assert_int_equal(beat_read(&b, NULL, 0, 0, 1), BEAT_NOT_YET);
	beat_encode(&(struct beat_value){ .id = { 7, 1 }, .counter = 50 }, bytes);
	assert_int_equal(beat_read(&b, bytes, BEAT_BYTES, 5, 2), BEAT_OURS);
	assert_int_equal(b.landed, 0);                           /* the predecessor's beat is not ours */
	beat_send(&b, 3, bytes);
	assert_int_equal(b.last.counter, 51);
	beat_encode(&(struct beat_value){ .id = { 7, 3 }, .counter = 60 }, bytes);
	assert_int_equal(beat_read(&b, bytes, BEAT_BYTES, 6, 4), BEAT_SUPERSEDED);
	beat_encode(&(struct beat_value){ .id = { 7, 2 }, .counter = 60, .ended = true }, bytes);
	assert_int_equal(beat_read(&b, bytes, BEAT_BYTES, 6, 4), BEAT_ENDED);
	assert_int_equal(beat_read(&b, NULL, 0, 0, 5), BEAT_ENDED);
}

/* --- Observing --- */

static void observed(void **state)
{
	(void)state;
	static struct observed room[OBSERVE_MAX];
	struct observe o = { .v = room };
	struct beat_value v = { .id = { 7, 1 }, .counter = 1 };

	observe_begin(&o);
	observe_beat(&o, &v, 10, true, 100);
	observe_end(&o, 100);
	assert_null(observe_expired(&o, 0, 50, 149));
	assert_non_null(observe_expired(&o, 0, 50, 150));

	observe_begin(&o);
	observe_beat(&o, &v, 11, true, 150);                           /* another version: it lives */
	observe_end(&o, 150);
	assert_null(observe_expired(&o, 0, 50, 199));
	observe_begin(&o);
	observe_beat(&o, &v, 11, true, 190);
	observe_absent(&o, 8, 190);                              /* a member without a beat */
	observe_end(&o, 190);
	assert_int_equal(observe_expired(&o, 0, 50, 200)->id.session, 7);
	v.ended = true;
	observe_begin(&o);
	observe_beat(&o, &v, 12, true, 210);
	observe_absent(&o, 8, 210);
	observe_end(&o, 210);
	assert_null(observe_expired(&o, 0, 50, 239));
	assert_int_equal(observe_expired(&o, 0, 50, 240)->id.session, 8);
	observe_begin(&o);
	observe_end(&o, 250);
	assert_int_equal(o.n, 0);
}

/* --- Planning --- */

static unsigned count(const struct map *m, uint64_t session)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		n += m->shard[i].master.session == session;
	return n;
}

static void few_shards_move(void **state)
{
	(void)state;

	for (unsigned n = 2; n <= 16; n *= 2) {
		struct mapplan_node v[17];
		struct map m = { 0 }, before;
		unsigned most = 0, least = CORE_SHARDS;

		for (unsigned i = 0; i <= n; i++)
			v[i] = (struct mapplan_node){ { 100 + i, 1 }, 1 + i, true, false, true, false, true };
		assert_int_equal(mapplan_apply(&m, v, n), CORE_SHARDS);
		assert_int_equal(mapplan_apply(&m, v, n), 0);
		for (unsigned i = 0; i < n; i++) {
			unsigned k = count(&m, 100 + i);
			most = k > most ? k : most;
			least = k < least ? k : least;
		}

		/* One more: it gets its part, and nothing moves between the others; not before it is steady. */
		before = m;
		v[n].steady = false;
		assert_int_equal(mapplan_apply(&m, v, n + 1), 0);
		v[n].steady = true;
		unsigned came = mapplan_apply(&m, v, n + 1);
		assert_int_equal(count(&m, 100 + n), came);
		for (unsigned i = 0; i < CORE_SHARDS; i++)
			if (m.shard[i].master.session != 100 + n)
				assert_true(msg_peer_same(m.shard[i].master, before.shard[i].master) && m.shard[i].epoch == before.shard[i].epoch);

		/* It goes again: only its shards move, to where they were. */
		assert_int_equal(mapplan_apply(&m, v, n), came);
		for (unsigned i = 0; i < CORE_SHARDS; i++)
			assert_true(msg_peer_same(m.shard[i].master, before.shard[i].master));
		printf("# %u nodes: %u to %u of 64 shards each; one more takes %u\n", n, least, most, came);
	}
}

/* To a leader that has come lately, or is wary, nobody is steady: that is no reason to move anything away, and soon back again. */
static void masters_stay(void **state)
{
	(void)state;
	struct mapplan_node v[10];
	struct map m = { 0 };

	for (unsigned i = 0; i < 10; i++)
		v[i] = (struct mapplan_node){ { 100 + i, 1 }, 1 + i, true, false, true, false, true };
	mapplan_apply(&m, v, 10);
	for (unsigned i = 0; i < 10; i++)
		v[i].steady = false;
	for (unsigned i = 0; i < 10; i++) {
		v[i].steady = true;
		assert_int_equal(mapplan_apply(&m, v, 10), 0);
	}

	/* But whom the leader has never reached must make room, and whom too many do not reach. */
	for (unsigned i = 0; i < 10; i++)
		v[i].steady = v[i].met = i == 3;
	unsigned had = count(&m, 103);
	assert_int_equal(mapplan_apply(&m, v, 10), CORE_SHARDS - had);
	assert_int_equal(count(&m, 103), CORE_SHARDS);
}

/* As docs/LEASE.md has it: of 64 shards, how many a node has, and how many move when one comes, goes, or is another. */
static void shards_table(void **state)
{
	(void)state;

	printf("# nodes   64/n   least  most   one more takes: mean, most   of 64/(n+1)\n");
	for (unsigned n = 3; n <= 50; n++) {
		struct mapplan_node v[51];
		unsigned least = CORE_SHARDS, most = 0, sum = 0, worst = 0;
		const unsigned rounds = 200;

		for (unsigned round = 0; round < rounds; round++) {
			struct map m = { 0 }, before;

			for (unsigned i = 0; i <= n; i++)
				v[i] = (struct mapplan_node){ { 100 + i, 1 }, mapplan_mix(1000 * round + i + 1), true, false, true, false, true };
			mapplan_apply(&m, v, n);
			before = m;
			for (unsigned i = 0; i < n; i++) {
				unsigned k = count(&m, 100 + i);
				least = k < least ? k : least;
				most = k > most ? k : most;
			}
			unsigned came = mapplan_apply(&m, v, n + 1);
			assert_int_equal(came, count(&m, 100 + n));      /* nothing moves but to it */
			assert_int_equal(mapplan_apply(&m, v, n), came); /* nothing moves but from it */
			for (unsigned i = 0; i < CORE_SHARDS; i++)
				assert_true(msg_peer_same(m.shard[i].master, before.shard[i].master));
			sum += came;
			worst = came > worst ? came : worst;
		}
		double mean = (double)sum / rounds, ideal = 64.0 / (n + 1);
		if (n <= 5 || n % 10 == 0)
			printf("# %5u  %5.1f   %5u %5u   %5.1f %5u   %5.1f\n", n, 64.0 / n, least, most, mean, worst, ideal);
		assert_true(mean > ideal * 0.8 && mean < ideal * 1.2);
		assert_true(worst <= 3 * ideal + 8);
	}
}

static void incarnations_and_drains(void **state)
{
	(void)state;
	struct mapplan_node v[3] = { { { 1, 1 }, 1, true, false, true, false, true }, { { 2, 1 }, 2, true, false, true, false, true },
		{ { 3, 1 }, 3, false, false, true, false, true } };
	struct map m = { 0 };

	mapplan_apply(&m, v, 3);
	assert_int_equal(count(&m, 3), 0);                       /* may not be a master */
	unsigned of_first = count(&m, 1);
	v[0].id.incarnation = 2;
	assert_int_equal(mapplan_apply(&m, v, 3), of_first);     /* the same hands, but a new reign */
	assert_int_equal(count(&m, 1), of_first);
	v[0].drains = true;
	assert_int_equal(mapplan_apply(&m, v, 3), of_first);
	assert_int_equal(count(&m, 2), CORE_SHARDS);
	v[1].drains = true;
	assert_int_equal(mapplan_apply(&m, v, 3), 0);            /* better an unwilling master than none */
	assert_int_equal(count(&m, 2), CORE_SHARDS);
	v[1].id.session = 4;
	assert_int_equal(mapplan_apply(&m, v, 3), CORE_SHARDS);
	assert_int_equal(count(&m, 3), 0);
}

/* --- A node and its store, answered by hand --- */

#define SHARDS_ALL UINT64_MAX

struct bench {
	struct core *core;
	struct core_actions actions;
	core_nsec_t now;
	uint32_t op_map, op_list;        /* asked for and not answered; 0: nothing */
	uint64_t version;
	bool garbled;                    /* session 8's record */
	bool down;                       /* the store: what is asked of it times out */
	char said[16];                   /* J jeopardy, L loss, X lapsed */
};

static void *bench_alloc(void *arg, size_t n)
{
	(void)arg;
	return malloc(n);
}

static void bench_free(void *arg, void *p, size_t n)
{
	(void)arg;
	(void)n;
	free(p);
}

/* Writes land at once; reads of the map and lists of the members wait for the test. */
static void bench_say(struct bench *b, enum core_action_kind kind)
{
	const char *what = kind == CORE_ACT_JEOPARDY ? "J" : kind == CORE_ACT_LOSS ? "L" : kind == CORE_ACT_LAPSED ? "X" : "";

	assert_true(strlen(b->said) + 1 < sizeof b->said);
	strcat(b->said, what);
}

static void bench_step(struct bench *b, const struct core_event *first)
{
	struct core_event queue[64] = { *first };
	unsigned n = 1;

	for (unsigned at = 0; at < n; at++) {
		queue[at].now = b->now;
		assert_int_equal(core_step(b->core, &queue[at], &b->actions), 0);
		for (unsigned i = 0; i < b->actions.n; i++) {
			const struct core_action *a = &b->actions.v[i];

			assert_true(n < 63 && a->kind != CORE_ACT_FATAL);
			bench_say(b, a->kind);
			if (b->down && (a->kind == CORE_ACT_STORE_CAS || a->kind == CORE_ACT_STORE_GET)) {
				queue[n] = (struct core_event){ .kind = CORE_EV_STORE };
				queue[n].store.op = a->store.op;
				queue[n++].store.error = -CORE_ETIMEDOUT;
			} else if (a->kind == CORE_ACT_STORE_CAS) {
				queue[n] = (struct core_event){ .kind = CORE_EV_STORE };
				queue[n].store.op = a->store.op;
				queue[n++].store.version = ++b->version;
			} else if (a->kind == CORE_ACT_STORE_GET && !strcmp(a->store.key, MAP_KEY)) {
				b->op_map = a->store.op;
			} else if (a->kind == CORE_ACT_STORE_GET && !strcmp(a->store.key, DELAYS_KEY)) {
				queue[n] = (struct core_event){ .kind = CORE_EV_STORE };        /* there is none */
				queue[n++].store.op = a->store.op;
			} else if (a->kind == CORE_ACT_STORE_LIST && !strcmp(a->store.key, MEMBER_PREFIX)) {
				b->op_list = a->store.op;
			} else if (a->kind == CORE_ACT_STORE_LIST) {     /* of the beats: nobody expires here */
				queue[n] = (struct core_event){ .kind = CORE_EV_STORE };
				queue[n].store.op = a->store.op;
				queue[n++].store.error = -CORE_ETIMEDOUT;
			}
		}
		if (b->actions.more)
			queue[n++] = (struct core_event){ .kind = CORE_EV_CONTINUE };
	}
}

static void bench_wait(struct bench *b, core_nsec_t span)
{
	b->now += span;
	bench_step(b, &(struct core_event){ .kind = CORE_EV_TIMER });
}

/* The map, which names this session for all shards. */
static void bench_map(struct bench *b, uint64_t serial, uint64_t session, uint32_t epoch)
{
	struct clustermap m = { .serial = serial, .coordinator = 8 };
	uint8_t bytes[CLUSTERMAP_BYTES_MAX];
	struct core_event ev = { .kind = CORE_EV_STORE };

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		m.map.shard[i] = (struct map_reign){ { session, 1 }, epoch };
	clustermap_encode(&m, bytes);
	assert_int_not_equal(b->op_map, 0);
	ev.store.op = b->op_map;
	ev.store.value = bytes;
	ev.store.value_len = CLUSTERMAP_BYTES;
	ev.store.version = 1000 + serial;
	b->op_map = 0;
	bench_step(b, &ev);
}

/* The members are session 7, ourselves, and perhaps 8. */
static void bench_list(struct bench *b, uint32_t op, unsigned n)
{
	static const char *const key[2] = { MEMBER_PREFIX "0000000000000007", MEMBER_PREFIX "0000000000000008" };
	uint8_t bytes[2][MEMBER_BYTES_MAX] = { 0 };
	struct core_record v[2];
	struct core_event ev = { .kind = CORE_EV_STORE };

	for (unsigned i = 0; i < n; i++) {
		struct member_record m = { .session = 7 + i, .node = 7 + i, .may_master = true };

		assert_int_equal(member_text_of("h:1", "h", &m.text), 0);
		v[i] = (struct core_record){ key[i], bytes[i], member_record_encode(&m, bytes[i]), 500 + i };
	}
	bytes[1][0] ^= b->garbled ? 0x80 : 0;
	assert_int_not_equal(op, 0);
	ev.store.op = op;
	ev.store.records = v;
	ev.store.records_n = n;
	bench_step(b, &ev);
}

static void bench_init(struct bench *b)
{
	static const struct core_memory mem = { .alloc = bench_alloc, .free = bench_free, .seed = { 1, 2 } };
	static const struct core_cluster conf = {
		.ttl = 40 * SECOND, .guard = SECOND / 10, .drift_ppm = 10000, .beat = 10 * SECOND, .look = SECOND,
		.steady = 40 * SECOND, .loss = 10 * SECOND, .node = 7, .name = "h", .address = "h:1", .may_master = true,
	};
	struct core_event start = { .kind = CORE_EV_START };

	*b = (struct bench){ .now = 100 * SECOND };
	assert_int_equal(core_create(&mem, &b->core), 0);
	start.start.session = 7;
	start.start.incarnation = 1;
	start.start.cluster = &conf;
	bench_step(b, &start);
	bench_wait(b, SECOND / 100);
	assert_int_equal(b->core->cluster.session.state, SESSION_LIVE);
}

/* docs/model/lease.pml shows why: session 8 may have joined, and got locks of the reign in between. */
static void list_counts_for_its_reign(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	bench_map(&b, 1, 7, 1);
	uint32_t old = b.op_list;
	assert_int_equal(b.core->cluster.members_for, SHARDS_ALL);

	/* That list stays under way while another reigns, and then we again. */
	bench_wait(&b, SECOND + SECOND / 100);
	bench_map(&b, 2, 8, 2);
	bench_wait(&b, SECOND + SECOND / 100);
	bench_map(&b, 3, 7, 3);
	bench_list(&b, old, 1);
	assert_int_equal(b.core->master.opening, SHARDS_ALL);
	assert_int_equal(b.core->master.open, 0);

	/* The next one was asked for after the epoch had been seen. */
	assert_int_not_equal(b.op_list, old);
	bench_list(&b, b.op_list, 1);
	assert_int_equal(b.core->master.open, SHARDS_ALL);
	core_free(b.core);
}

/* The same, when nothing is under way: the right list opens. */
static void list_opens(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	bench_map(&b, 1, 7, 1);
	bench_list(&b, b.op_list, 2);
	assert_int_equal(b.core->master.opening, SHARDS_ALL);    /* 8 has not synced */
	bench_wait(&b, SECOND + SECOND / 100);
	bench_list(&b, b.op_list, 1);                            /* and now has ended */
	assert_int_equal(b.core->master.open, SHARDS_ALL);
	core_free(b.core);
}

static void bench_link(struct bench *b, enum core_event_kind kind, uint64_t session)
{
	bench_step(b, &(struct core_event){ .kind = kind, .link = { session, 1, session } });
}

/* A session that is listed and for which there is no room may hold something, by the word of an earlier master. */
static void no_room_for_a_member(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	for (uint64_t i = 0; i < CORE_MEMBERS_MAX - 1; i++)
		bench_link(&b, CORE_EV_LINK_UP, 5000 + i);
	bench_map(&b, 1, 7, 1);
	bench_list(&b, b.op_list, 2);
	assert_int_equal(b.core->master.opening, SHARDS_ALL);
	bench_link(&b, CORE_EV_LINK_DOWN, 5000);
	bench_wait(&b, SECOND + SECOND / 100);
	bench_list(&b, b.op_list, 2);
	assert_int_equal(b.core->master.opening, SHARDS_ALL);    /* 8 has not synced */
	assert_int_equal(b.core->master.listed, SHARDS_ALL);
	bench_wait(&b, SECOND + SECOND / 100);
	bench_list(&b, b.op_list, 1);
	assert_int_equal(b.core->master.open, SHARDS_ALL);
	core_free(b.core);
}

/* So may one whose record cannot be read. */
static void unreadable_member(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	bench_map(&b, 1, 7, 1);
	b.garbled = true;
	bench_list(&b, b.op_list, 2);
	assert_int_equal(b.core->master.opening, SHARDS_ALL);    /* it is waited for as anybody else */
	assert_int_equal(b.core->master.listed, SHARDS_ALL);
	assert_int_equal(b.core->cluster.odd.members, 1);
	bench_wait(&b, SECOND + SECOND / 100);
	bench_list(&b, b.op_list, 1);
	assert_int_equal(b.core->master.open, SHARDS_ALL);
	core_free(b.core);
}

/* A record that was long under way comes after its session's end, and before all is done with that. */
static void member_comes_back(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	bench_map(&b, 1, 7, 1);
	bench_list(&b, b.op_list, 2);
	bench_wait(&b, SECOND + SECOND / 100);
	b.core->memory_at = b.now + 10 * SECOND;                 /* nothing is gone on with */
	bench_list(&b, b.op_list, 1);
	assert_int_equal(b.core->master.ended, 1);
	bench_wait(&b, SECOND + SECOND / 100);
	bench_list(&b, b.op_list, 2);
	b.core->memory_at = 0;
	bench_wait(&b, SECOND + SECOND / 100);
	assert_int_equal(b.core->master.ended, 0);
	bench_list(&b, b.op_list, 2);
	assert_true(b.core->peers.v[1].id.session == 8 && b.core->peers.v[1].listed);
	core_free(b.core);
}

/* With the spans in the proportions that the daemon chooses: a warning is worth something only before the loss. */
static void jeopardy_before_loss(void **state)
{
	(void)state;
	struct bench b;

	bench_init(&b);
	b.down = true;
	for (unsigned i = 0; i < 41; i++) {
		bench_wait(&b, SECOND);
		if (i == 21)
			assert_string_equal(b.said, "J");
	}
	assert_string_equal(b.said, "JLX");
	core_free(b.core);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "a deadline counts from the first sending of the value that has landed", beat_counts_from_first_sending, NULL, NULL, NULL },
		{ "a beat tells when the session has ended, or has a later incarnation", beat_ends, NULL, NULL, NULL },
		{ "a session expires when one version of its beat has stood for long enough", observed, NULL, NULL, NULL },
		{ "shards are spread evenly, and few move when nodes come and go", few_shards_move, NULL, NULL, NULL },
		{ "a master that is fine stays until a better one is steady", masters_stay, NULL, NULL, NULL },
		{ "the table of how many shards move", shards_table, NULL, NULL, NULL },
		{ "a new incarnation gets a new reign, and who drains gives its shards away", incarnations_and_drains, NULL, NULL, NULL },
		{ "jeopardy is said before the actions on loss begin, and these before the lapse", jeopardy_before_loss, NULL, NULL, NULL },
		{ "a shard opens once all in a list have synced or ended", list_opens, NULL, NULL, NULL },
		{ "no shard opens while a listed session has no place in the table", no_room_for_a_member, NULL, NULL, NULL },
		{ "nor while a member's record cannot be read", unreadable_member, NULL, NULL, NULL },
		{ "a member that has ended is done with before it is one again", member_comes_back, NULL, NULL, NULL },
		{ "a list of the members counts only for the reign that it was asked for", list_counts_for_its_reign, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_cluster", tests, NULL, NULL);
}
