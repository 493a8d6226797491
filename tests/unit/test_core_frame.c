/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frames and the records of the store: written-down bytes, and nothing else is one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/beat.h"
#include "core/frame.h"
#include "core/range.h"
#include "core/session.h"
#include "core/shard.h"

#include <cmocka.h>

#define KEY "default/a"

/* What a barrier's frame says cannot be what a lock's says. */
static void barrier_of(struct msg *m)
{
	m->limit = 5;
	m->held = 3;
	m->wanted = 2;
	m->used = 1;
	if (m->kind == MSG_ARRIVE)
		m->flags = MSG_FLAG_TOLD | MSG_FLAG_PLACES;
	if (m->kind == MSG_ANNOUNCE)
		m->number = m->stamp + 1;
	if (m->kind == MSG_ARRIVE || m->kind == MSG_ANNOUNCE || m->kind == MSG_PAST)
		m->flags |= MSG_FLAG_PASSED | MSG_FLAG_YES;
}

static struct frame frame_of(enum msg_kind kind)
{
	struct frame f = { .conn = 0x1122334455667788, .msg = {
		.kind = kind, .shard = (uint8_t)shard_of(KEY, 9), .key = KEY, .key_len = 9,
		.from = { 0x0102030405060708, 9 }, .epoch = 5, .held = 1, .wanted = MSG_WEIGHT_ALL, .limit = MSG_WEIGHT_ALL,
		.number = 77, .limit_stamp = token_make(5, 9), .present = 4, .resize = 7, .term = token_make(5, 8), .count = 2,
		.stamp = token_make(5, 3), .seen = token_make(5, 4), .used = 6,
		.range = { token_make(5, 4), 100 }, .error = -EINVAL } };

	if (kind >= MSG_ARRIVE && kind <= MSG_PAST)
		barrier_of(&f.msg);
	return f;
}

static struct frame permits(enum msg_kind kind)
{
	struct frame f = frame_of(kind);

	f.msg.held = 1;
	f.msg.wanted = 2;
	f.msg.limit = 5;
	return f;
}

static void both_ways(const struct frame *f, uint32_t size)
{
	uint8_t bytes[CORE_FRAME_MAX], again[CORE_FRAME_MAX], bad[CORE_FRAME_MAX];
	struct frame g;
	uint32_t n = frame_encode(f, bytes);

	assert_int_equal(n, size);
	assert_int_equal(frame_length(bytes, 2), n);
	assert_int_equal(frame_length(bytes, 1), 0);
	assert_int_equal(frame_decode(bytes, n, &g), 0);
	assert_int_equal(g.msg.kind, f->msg.kind);
	assert_true(g.conn == f->conn && msg_peer_same(g.msg.from, f->msg.from) && g.msg.epoch == 5);
	assert_int_equal(g.msg.value.state, f->msg.value.state);
	assert_int_equal(frame_encode(&g, again), n);
	assert_memory_equal(bytes, again, n);

	/* A byte too few or too many, and each single byte gone wrong: refused, or another frame; never read beyond. */
	assert_int_equal(frame_decode(bytes, n - 1, &g), -EBADMSG);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(bad, bytes, n);
		bad[i] ^= 0x81;
		if (frame_decode(bad, n, &g) == 0) {
			assert_int_equal(frame_encode(&g, again), n);
			assert_memory_equal(bad, again, n);
		}
	}
}

static void there_and_back(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {
		[MSG_SYNC] = 92 + 9, [MSG_CLAIM] = 92 + 9, [MSG_RELEASE] = 56 + 9, [MSG_STAMP] = 56 + 9, [MSG_GRANT] = 68 + 9,
		[MSG_REFUSED] = 44 + 9, [MSG_RELEASED] = 40 + 9, [MSG_REVOKE] = 52 + 9, [MSG_REIGN] = 32, [MSG_MARK] = 48 + 9,
		[MSG_HANDOVER] = 40, [MSG_LIMIT] = 56 + 9,
		[MSG_ARRIVE] = 76 + 9, [MSG_ENROL] = 52 + 9, [MSG_ANNOUNCE] = 56 + 9, [MSG_GO] = 40 + 9, [MSG_ASK] = 48 + 9,
		[MSG_ANSWER] = 60 + 9, [MSG_PAST] = 48 + 9, [MSG_OBSERVE] = 32 + 9, [MSG_NEWS] = 44 + 9,
		[MSG_OBSERVED] = 48 + 9, [MSG_KEEP] = 48 + 9, [MSG_PLACE] = 40, [MSG_PASS] = 64 + 9, [MSG_ENQUIRE] = 40 + 9, [MSG_ACCOUNT] = 54 + 9,
	};

	for (unsigned kind = 0; kind <= MSG_ACCOUNT; kind++) {
		struct frame f = kind == MSG_LIMIT ? permits(MSG_LIMIT) : frame_of((enum msg_kind)kind);

		f.msg.flags |= kind == MSG_NEWS ? MSG_FLAG_NEWS : 0;
		both_ways(&f, sizes[kind]);
	}
}

static void with_values(void **state)
{
	(void)state;
	static const struct { enum msg_kind kind; uint32_t size; } carries[] = {
		{ MSG_SYNC, 92 + 9 }, { MSG_CLAIM, 92 + 9 }, { MSG_RELEASE, 56 + 9 }, { MSG_GRANT, 68 + 9 }, { MSG_MARK, 48 + 9 },
		{ MSG_PASS, 64 + 9 },
	};
	static const uint16_t lens[] = { 0, 1, 100, CORE_VALUE_MAX };
	static uint8_t bytes[CORE_VALUE_MAX];

	for (unsigned i = 0; i < sizeof carries / sizeof *carries; i++) {
		struct frame f = frame_of(carries[i].kind);

		for (unsigned k = 0; k < sizeof lens / sizeof *lens; k++) {
			f.msg.value = (struct core_value){ CORE_VALUE_KNOWN, lens[k], 3, token_make(5, 4), bytes };
			memset(bytes, (int)k + 1, sizeof bytes);
			both_ways(&f, carries[i].size + 14 + lens[k]);
		}
		f.msg.value = (struct core_value){ .state = CORE_VALUE_LOST };
		both_ways(&f, carries[i].size);
	}
}

static void refused(const struct frame *f, int error)
{
	uint8_t bytes[CORE_FRAME_MAX];
	struct frame g;

	assert_int_equal(frame_decode(bytes, frame_encode(f, bytes), &g), error);
}

static void with_parties(void **state)
{
	static uint8_t parties[CORE_PARTIES_MAX * MSG_PARTY];
	static char key[CORE_KEY_MAX];
	struct frame f = frame_of(MSG_ACCOUNT);

	(void)state;
	memset(parties, 1, sizeof parties);
	f.msg.party = parties;
	for (unsigned i = 0; i <= CORE_PARTIES_MAX; i += CORE_PARTIES_MAX / 4) {
		f.msg.parties = (uint16_t)i;
		both_ways(&f, 54 + i * MSG_PARTY + 9);
	}
	f.msg.wanted = CORE_PARTIES_MAX - 1, refused(&f, -EBADMSG);      /* fewer in all than it names */
	f.msg.wanted = CORE_PARTIES_MAX;
	memset(parties + sizeof parties - 8, 0, 8);
	refused(&f, -EBADMSG);           /* one who neither has any of it nor waits for some */
	memset(parties + sizeof parties - 8, 1, 8);
	memset(parties, 0, 8), refused(&f, -EBADMSG);
	memset(parties, 1, 8);
	memset(key, 'k', sizeof key);
	f.msg.key = key;
	f.msg.key_len = sizeof key;
	f.msg.shard = (uint8_t)shard_of(key, sizeof key);
	both_ways(&f, 54 + sizeof parties + sizeof key);
}

static struct frame heir_of(enum msg_kind kind, uint16_t flag)
{
	struct frame f = frame_of(kind);

	f.msg.flags = flag;
	f.msg.held = 0;
	f.msg.heir = (struct msg_peer){ 0x0807060504030201, 2 };
	f.msg.heir_number = token_make(5, 4);
	return f;
}

static void with_heirs(void **state)
{
	(void)state;
	static const enum msg_kind statement[] = { MSG_SYNC, MSG_CLAIM, MSG_RELEASE };
	struct frame f = heir_of(MSG_REVOKE, MSG_FLAG_PASS);
	static uint8_t most[CORE_VALUE_MAX];
	static char key[CORE_KEY_MAX];

	both_ways(&f, 52 + 44 + 9);
	f = heir_of(MSG_REVOKE, MSG_FLAG_OFF), both_ways(&f, 52 + 20 + 9);
	f = heir_of(MSG_KEEP, MSG_FLAG_OFF), both_ways(&f, 48 + 20 + 9);
	for (unsigned i = 0; i < 3; i++) {
		f = heir_of(statement[i], MSG_FLAG_PASS);
		both_ways(&f, (statement[i] == MSG_RELEASE ? 56 : 92) + 20 + 9);
		f.msg.heir.session = 0, refused(&f, -EBADMSG);
		f = heir_of(statement[i], MSG_FLAG_PASS), f.msg.heir_number = 4, refused(&f, -EBADMSG);
	}
	f = heir_of(MSG_CLAIM, MSG_FLAG_PASS | MSG_FLAG_TRY), both_ways(&f, 92 + 20 + 9);
	f = heir_of(MSG_SYNC, MSG_FLAG_PASS), f.msg.held = 1, refused(&f, -EBADMSG);
	f = heir_of(MSG_SYNC, MSG_FLAG_PASS | MSG_FLAG_NEWS), refused(&f, -EBADMSG);
	f = heir_of(MSG_REVOKE, MSG_FLAG_PASS), f.msg.range.count = 0, refused(&f, -EBADMSG);
	f = heir_of(MSG_REVOKE, MSG_FLAG_PASS | MSG_FLAG_OFF), refused(&f, -EBADMSG);
	f = heir_of(MSG_REVOKE, MSG_FLAG_PASS | MSG_FLAG_TRY), refused(&f, -EBADMSG);
	f = heir_of(MSG_GRANT, MSG_FLAG_PASS), refused(&f, -EBADMSG);
	f = frame_of(MSG_PASS), f.msg.range.count = 0, refused(&f, -EBADMSG);

	/* The longest of all. */
	memset(key, 'k', sizeof key);
	f = heir_of(MSG_SYNC, MSG_FLAG_PASS | MSG_FLAG_LIMIT | MSG_FLAG_RESIZE);
	f.msg.limit = 5;
	f.msg.wanted = 5;
	f.msg.key = key;
	f.msg.key_len = sizeof key;
	f.msg.shard = (uint8_t)shard_of(key, sizeof key);
	f.msg.value = (struct core_value){ CORE_VALUE_KNOWN, sizeof most, 3, token_make(5, 4), most };
	both_ways(&f, 92 + 16 + 20 + 14 + CORE_VALUE_MAX + CORE_KEY_MAX);
}

static struct frame shares(void)
{
	struct frame f = permits(MSG_MARK);

	f.msg.flags = MSG_FLAG_SHARED;
	f.msg.seen = 2;
	f.msg.delay = 1;
	return f;
}

static void with_limits(void **state)
{
	(void)state;
	struct frame f = permits(MSG_CLAIM);

	f.msg.wanted = 6;                                        /* more than it was opened with, but it has been resized */
	f.msg.flags = MSG_FLAG_LIMIT;
	both_ways(&f, 92 + 12 + 9);
	f.msg.flags |= MSG_FLAG_RESIZE;
	both_ways(&f, 92 + 12 + 4 + 9);
	f = frame_of(MSG_CLAIM);
	f.msg.priority = 255;
	f.msg.flags = MSG_FLAG_TRY;
	both_ways(&f, 92 + 9);
	f.msg.flags = MSG_FLAG_NEWS;
	both_ways(&f, 92 + 12 + 9);
	f.msg.flags |= MSG_FLAG_LEADS;
	both_ways(&f, 92 + 12 + 9);
	f.msg.delay = CORE_DELAY_MAX;
	both_ways(&f, 92 + 12 + 2 + 9);
	f = frame_of(MSG_NEWS);
	f.msg.flags = MSG_FLAG_NEWS | MSG_FLAG_LEADS;
	f.msg.value = (struct core_value){ CORE_VALUE_KNOWN, 3, 1, token_make(5, 8), "abc" };
	both_ways(&f, 44 + 14 + 3 + 9);
	f = permits(MSG_RELEASE);
	f.msg.flags = MSG_FLAG_RESIZE | MSG_FLAG_OWES;
	both_ways(&f, 56 + 4 + 4 + 9);
	f = permits(MSG_MARK);
	f.msg.flags = MSG_FLAG_LIMIT;
	f.msg.delay = 1;
	both_ways(&f, 48 + 4 + 12 + 2 + 9);
	f = permits(MSG_CLAIM), f.msg.delay = 1, both_ways(&f, 92 + 2 + 9);
	f = shares(), both_ways(&f, 48 + 8 + 8 + 4 + 4 + 2 + 9);
	f = shares(), f.msg.number = f.msg.seen = 0, both_ways(&f, 48 + 8 + 8 + 4 + 4 + 2 + 9);
	f = frame_of(MSG_HANDOVER), f.msg.flags = MSG_FLAG_SHARED, both_ways(&f, 48);
}

static void written_down(void **state)
{
	(void)state;
	static const uint8_t reign[32] = {
		32, 0, 1, MSG_REIGN, 34, 0, 0, 0,   8, 7, 6, 5, 4, 3, 2, 1,   9, 0, 0, 0, 5, 0, 0, 0,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
	};
	uint8_t bytes[CORE_FRAME_MAX];
	struct frame f = frame_of(MSG_REIGN);

	assert_int_equal(frame_encode(&f, bytes), 32);
	assert_memory_equal(bytes, reign, 32);
}

static void nonsense(void **state)
{
	(void)state;
	struct frame f;
	uint8_t bytes[CORE_FRAME_MAX] = { 32 };

	f = permits(MSG_LIMIT), f.msg.limit = 0, refused(&f, -EBADMSG);
	f = permits(MSG_LIMIT), f.msg.stamp = 0, refused(&f, -EBADMSG);
	f = permits(MSG_CLAIM), f.msg.flags = MSG_FLAG_LIMIT, f.msg.present = 0, refused(&f, -EBADMSG);
	f = permits(MSG_CLAIM), f.msg.flags = MSG_FLAG_RESIZE, f.msg.resize = MSG_WEIGHT_ALL, refused(&f, -EBADMSG);
	f = permits(MSG_CLAIM), f.msg.flags = MSG_FLAG_LIMIT, f.msg.limit = MSG_WEIGHT_ALL, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.priority = 1, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.flags = MSG_FLAG_TRY, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.delay = CORE_DELAY_MAX + 1, refused(&f, -EBADMSG);
	f = shares(), f.msg.delay = 0, refused(&f, -EBADMSG);
	f = shares(), f.msg.held = 0, refused(&f, -EBADMSG);
	f = shares(), f.msg.stamp = 0, refused(&f, -EBADMSG);
	f = shares(), f.msg.number = 0, refused(&f, -EBADMSG);
	f = shares(), f.msg.seen = UINT64_C(1) << 32, refused(&f, -EBADMSG);
	f = shares(), f.msg.flags |= MSG_FLAG_LOST, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.flags = MSG_FLAG_DELAY, refused(&f, -EBADMSG);
	f = frame_of(MSG_NEWS), refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.flags = MSG_FLAG_LEADS, refused(&f, -EBADMSG);
	f = frame_of(MSG_NEWS), f.msg.flags = MSG_FLAG_NEWS, f.msg.term = 0, refused(&f, -EBADMSG);
	f = permits(MSG_GRANT), f.msg.flags = MSG_FLAG_LIMIT, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.shard ^= 1, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.from.session = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.from.incarnation = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.epoch = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.epoch = EPOCH_MAX + 1, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.limit = 3, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.held = 3, f.msg.wanted = 2, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.range = (struct core_range){ 0 }, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.range.count = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_CLAIM), f.msg.range.count = COUNTER_END, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.range = (struct core_range){ 0 }, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.flags = MSG_FLAG_UPGRADE, refused(&f, -EBADMSG);
	f = frame_of(MSG_REFUSED), f.msg.error = 1, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.limit = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.used = 4, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.wanted = 4, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.stamp = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.flags = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.flags = MSG_FLAG_TOLD | MSG_FLAG_IN, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.flags = MSG_FLAG_IN | MSG_FLAG_PASSED, refused(&f, -EBADMSG);
	f = frame_of(MSG_ARRIVE), f.msg.flags = MSG_FLAG_TOLD | MSG_FLAG_BREAK, refused(&f, -EBADMSG);
	f = frame_of(MSG_ENROL), f.msg.held = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_ENROL), f.msg.flags = MSG_FLAG_PLACES, refused(&f, -EBADMSG);
	f = frame_of(MSG_ANNOUNCE), f.msg.flags = MSG_FLAG_YES, refused(&f, -EBADMSG);
	f = frame_of(MSG_ANNOUNCE), f.msg.number = f.msg.stamp, refused(&f, -EBADMSG);
	f = frame_of(MSG_ANNOUNCE), f.msg.flags = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_GO), f.msg.stamp = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_ASK), f.msg.flags = MSG_FLAG_RESET, refused(&f, -EBADMSG);
	f = frame_of(MSG_ANSWER), f.msg.flags = MSG_FLAG_PASSED, refused(&f, -EBADMSG);
	f = frame_of(MSG_REIGN), f.msg.shard = 64, refused(&f, -EBADMSG);
	struct core_value v = { CORE_VALUE_KNOWN, 1, 1, token_make(5, 4), "x" };
	f = frame_of(MSG_STAMP), f.msg.value = v, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.value = v, f.msg.value.count = 0, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.value = v, f.msg.value.token = 4, refused(&f, -EBADMSG);
	f = frame_of(MSG_GRANT), f.msg.flags = MSG_FLAG_DIED, refused(&f, -EBADMSG);
	f = frame_of(MSG_SYNC), f.msg.flags = MSG_FLAG_FIRST | MSG_FLAG_DIED, refused(&f, -EBADMSG);
	assert_int_equal(frame_decode(bytes, 32, &f), -EPROTONOSUPPORT);
	bytes[2] = FRAME_LAYOUT;
	bytes[3] = MSG_ACCOUNT + 1;
	assert_int_equal(frame_decode(bytes, 32, &f), -EBADMSG);
	assert_int_equal(frame_length((const uint8_t[]){ 31, 0 }, 2), -EBADMSG);
	assert_int_equal(frame_length((const uint8_t[]){ 0, 7 }, 2), -EBADMSG);
}

static void records(void **state)
{
	(void)state;
	struct beat_value b = { .id = { 7, 3 }, .counter = 9, .ended = true }, c;
	struct member_record m = { .session = 7, .node = 8, .may_master = true, .drains = true }, o;
	char address[CORE_ADDRESS_MAX + 2], name[CORE_NODE_NAME_MAX + 2];
	struct clustermap map = { .serial = 4, .coordinator = 7, .roster = 1 }, p;
	uint8_t bytes[CLUSTERMAP_BYTES_MAX];

	beat_encode(&b, bytes);
	assert_int_equal(beat_decode(bytes, BEAT_BYTES, &c), 0);
	assert_true(msg_peer_same(b.id, c.id) && c.counter == 9 && c.ended);
	assert_int_equal(beat_decode(bytes, BEAT_BYTES - 1, &c), -EBADMSG);
	bytes[1] = 2;
	assert_int_equal(beat_decode(bytes, BEAT_BYTES, &c), -EBADMSG);

	assert_int_equal(member_text_of("[::1]:7117", "alpha", &m.text), 0);
	uint32_t n = member_record_encode(&m, bytes);
	assert_int_equal(n, MEMBER_HEAD + 10 + 5);
	assert_int_equal(member_record_decode(bytes, n, &o), 0);
	assert_true(o.session == 7 && o.node == 8 && o.may_master && o.drains);
	assert_true(o.text.address_len == 10 && !memcmp(o.text.address, "[::1]:7117", 10));
	assert_true(o.text.name_len == 5 && !memcmp(o.text.name, "alpha", 5));
	assert_int_equal(member_record_decode(bytes, n - 1, &o), -EBADMSG);
	assert_int_equal(member_record_decode(bytes, n + 1, &o), -EBADMSG);
	for (unsigned i = 0; i < n; i++) {
		uint8_t bad[MEMBER_BYTES_MAX], again[MEMBER_BYTES_MAX];

		memcpy(bad, bytes, n);
		bad[i] ^= 0x81;
		if (member_record_decode(bad, n, &o) == 0) {
			assert_int_equal(member_record_encode(&o, again), n);
			assert_memory_equal(bad, again, n);
		}
	}
	bytes[0] = 1;
	assert_int_equal(member_record_decode(bytes, n, &o), -EBADMSG);

	memset(address, 'a', sizeof address);
	memset(name, 'n', sizeof name);
	address[CORE_ADDRESS_MAX] = name[CORE_NODE_NAME_MAX] = 0;
	assert_int_equal(member_text_of(address, name, &m.text), 0);
	n = member_record_encode(&m, bytes);
	assert_int_equal(n, MEMBER_BYTES_MAX);
	assert_int_equal(member_record_decode(bytes, n, &o), 0);
	assert_int_equal(member_text_of("", name, &m.text), -EINVAL);
	assert_int_equal(member_text_of(address, NULL, &m.text), -EINVAL);
	assert_int_equal(member_text_of(address, "a b", &m.text), -EINVAL);
	assert_int_equal(member_text_of("a\n", name, &m.text), -EINVAL);
	address[CORE_ADDRESS_MAX] = 'a';
	address[CORE_ADDRESS_MAX + 1] = 0;
	assert_int_equal(member_text_of(address, name, &m.text), -EINVAL);

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		map.map.shard[i] = (struct map_reign){ { 7, 1 }, i + 1 };
	assert_int_equal(clustermap_encode(&map, bytes), CLUSTERMAP_BYTES);
	assert_int_equal(clustermap_decode(bytes, CLUSTERMAP_BYTES, &p), 0);
	assert_true(p.serial == 4 && p.coordinator == 7 && p.map.shard[63].epoch == 64);
	assert_int_equal(clustermap_decode(bytes, MAP_BYTES, &p), -EBADMSG);
	assert_int_equal(clustermap_decode(bytes + 32, MAP_BYTES, &p), -EPROTONOSUPPORT);
	assert_int_equal(p.map.placed, 0);

	map.map.placed = 0x8000000000000003;
	assert_int_equal(clustermap_encode(&map, bytes), CLUSTERMAP_BYTES_MAX);
	assert_int_equal(clustermap_decode(bytes, CLUSTERMAP_BYTES_MAX, &p), 0);
	assert_true(p.map.placed == 0x8000000000000003 && p.map.shard[63].epoch == 64);
	assert_int_equal(clustermap_decode(bytes, CLUSTERMAP_BYTES, &p), -EBADMSG);
	memset(bytes + CLUSTERMAP_BYTES, 0, 8);
	assert_int_equal(clustermap_decode(bytes, CLUSTERMAP_BYTES_MAX, &p), -EBADMSG);
	bytes[0] = CLUSTERMAP_LAYOUT;
	assert_int_equal(clustermap_decode(bytes, CLUSTERMAP_BYTES_MAX, &p), -EBADMSG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "each kind of frame is what was put in, and no byte of it can go wrong unnoticed and unbounded", there_and_back, NULL, NULL, NULL },
		{ "values of all sizes travel with what carries them, and so does their loss", with_values, NULL, NULL, NULL },
		{ "a name that is handed on: to whom, and what for", with_heirs, NULL, NULL, NULL },
		{ "an account of who has a name travels, and no party in it that cannot be", with_parties, NULL, NULL, NULL },
		{ "limits and news travel with statements", with_limits, NULL, NULL, NULL },
		{ "a frame has the written-down bytes", written_down, NULL, NULL, NULL },
		{ "what cannot be is not a frame", nonsense, NULL, NULL, NULL },
		{ "beats, member records and the cluster's map come back as they went", records, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_frame", tests, NULL, NULL);
}
