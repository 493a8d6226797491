/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the core is made of: hashes, map, ranges, pool and names. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_rig.h"
#include "core/range.h"
#include "core/siphash.h"

#include <setjmp.h>
#include <cmocka.h>

#define X(name, number) _Static_assert(name == number, #name);
CORE_ERRNOS(X)
#undef X

static void shards(void **state)
{
	(void)state;
	unsigned n[CORE_SHARDS] = { 0 };
	char key[32], longest[8 + 255];

	/* Written down: other nodes and other versions must agree. */
	memcpy(longest, "default/", 8);
	memset(longest + 8, 'x', 255);
	assert_int_equal(shard_of("", 0), 59);
	assert_int_equal(shard_of("space/name", 10), 17);
	assert_int_equal(shard_of("default/a", 9), 34);
	assert_int_equal(shard_of("default/b", 9), 19);
	assert_int_equal(shard_of(longest, sizeof longest), 24);

	for (unsigned i = 0; i < 64000; i++) {
		int len = snprintf(key, sizeof key, "default/%u", i);
		n[shard_of(key, (size_t)len)]++;
	}
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		assert_in_range(n[i], 850, 1150);
}

static void siphash(void **state)
{
	(void)state;
	static const uint64_t zero[2] = { 0, 0 }, other[2] = { 1, 0 };
	uint8_t count[63];

	/* From CPython 3.11, which hashes bytes so under PYTHONHASHSEED=0. */
	for (unsigned i = 0; i < sizeof count; i++)
		count[i] = (uint8_t)i;
	assert_true(siphash13(zero, "a", 1) == 0x407448d2b89b1813);
	assert_true(siphash13(zero, "abcdefg", 7) == 0x6db12aae9070f506);
	assert_true(siphash13(zero, "abcdefgh", 8) == 0x3f7b849c0b8e35ea);
	assert_true(siphash13(zero, "default/backup", 14) == 0x3d8b034988bed5f5);
	assert_true(siphash13(zero, count, sizeof count) == 0x385d3e39e5f37359);
	assert_true(siphash13(other, "a", 1) != siphash13(zero, "a", 1));
}

static void map_bytes(void **state)
{
	(void)state;
	struct map m = rig_map(0x1122334455667788, 0x99aabbcc, 0x7fffff), back;
	uint8_t bytes[MAP_BYTES];

	m.shard[1] = (struct map_reign){ { 1, 2 }, 3 };
	map_encode(&m, bytes);
	static const uint8_t begin[] = {
		1, 0, 0, 0, 64, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xcc, 0xbb, 0xaa, 0x99, 0xff, 0xff, 0x7f, 0,
		1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0,
	};
	assert_memory_equal(bytes, begin, sizeof begin);
	assert_int_equal(map_decode(bytes, sizeof bytes, &back), 0);
	assert_int_equal(map_epoch_max(&back), 0x7fffff);
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		assert_true(msg_peer_same(back.shard[i].master, m.shard[i].master));
		assert_int_equal(back.shard[i].epoch, m.shard[i].epoch);
	}

	/* No length but the right one; and each field of the last shard may be spoilt. */
	for (uint32_t n = 0; n < MAP_BYTES; n++)
		assert_int_equal(map_decode(bytes, n, &back), -EBADMSG);
	for (unsigned field = 0; field < 3; field++) {
		uint8_t bad[MAP_BYTES];
		memcpy(bad, bytes, sizeof bad);
		memset(bad + 8 + 63 * 16 + (field ? 4 + field * 4 : 0), 0, field ? 4 : 8);
		assert_int_equal(map_decode(bad, sizeof bad, &back), -EBADMSG);
	}
	bytes[MAP_BYTES - 1] = 1;
	assert_int_equal(map_decode(bytes, sizeof bytes, &back), -EBADMSG);
}

static void ranges(void **state)
{
	(void)state;
	struct core_range r = { token_make(1, 1), 1000 };

	assert_int_equal(range_believed(r, 10, 0), 10);
	assert_int_equal(range_believed(r, 0, 1000), 1);
	assert_int_equal(range_believed(r, 5000, 0), 1000);
	r.count = RANGE_MAX;
	assert_true(range_believed(r, UINT64_MAX, 0) == RANGE_SLACK);
	assert_true(range_believed(r, UINT64_MAX, 640) == RANGE_SLACK + 650);
	assert_true(range_believed(r, UINT64_MAX, UINT64_MAX) == RANGE_MAX);

	assert_true(range_next_count(RANGE_FIRST, RANGE_FIRST) == RANGE_FIRST * 16);
	assert_true(range_next_count(RANGE_FIRST, RANGE_FIRST - 1) == RANGE_FIRST - 1);
	assert_true(range_next_count(RANGE_FIRST, 0) == RANGE_MIN);
	assert_true(range_next_count(RANGE_MAX, UINT64_MAX) == RANGE_MAX);
	assert_true(range_next_count(RANGE_MAX / 2, UINT64_MAX) == RANGE_MAX);
}

/* Takes and gives at random beside a plain array of what should be there. */
static void pools(void **state)
{
	(void)state;
	enum { N = 5000 };
	static uint32_t handle[N];
	struct rig r;
	struct pool p;
	unsigned live = 0;

	rig_init(&r);
	size_t before = r.bytes;
	pool_init(&p, &r.core->mem, 40);
	srand(1);
	for (unsigned i = 0; i < 300000; i++) {
		/* It fills, then empties, four times over. */
		bool take = rand() % 100 < (i / 37500 % 2 ? 30 : 70);
		unsigned at = (unsigned)rand() % N;

		if (take && !handle[at]) {
			assert_int_equal(pool_reserve(&p, 1), 0);
			handle[at] = pool_take(&p);
			uint64_t *thing = pool_at(&p, handle[at]);
			assert_true(!thing[0] && !thing[4]);
			thing[0] = at;
			thing[4] = ~(uint64_t)at;
			live++;
		} else if (!take && handle[at]) {
			const uint64_t *thing = pool_at(&p, handle[at]);
			assert_true(thing[0] == at && thing[4] == ~(uint64_t)at);
			pool_give(&p, handle[at]);
			handle[at] = 0;
			live--;
		}
		assert_int_equal(p.live, live);
	}
	for (unsigned at = 0; at < N; at++)
		if (handle[at])
			pool_give(&p, handle[at]);
	assert_int_equal(p.live, 0);
	assert_true(r.bytes - before <= 2 * CORE_CHUNK);
	pool_done(&p);
	assert_int_equal(r.bytes, before);
	rig_done(&r);
}

static size_t key_make(char *key, unsigned i)
{
	size_t len = (size_t)sprintf(key, "space/%u", i);

	while (len < 16 + i % (CORE_KEY_MAX - 16))
		key[len++] = '.';
	return len;
}

/* Names of every length, found while the table grows and shrinks, also when it may not grow. */
static void names_found(void **state)
{
	(void)state;
	enum { N = 20000 };
	static name_t n[N];
	struct rig r;
	struct names t;
	char key[CORE_KEY_MAX];
	size_t len;

	rig_init(&r);
	assert_int_equal(names_init(&t, &r.core->mem), 0);
	for (unsigned i = 0; i < N; i++) {
		len = key_make(key, i);
		assert_int_equal(names_find(&t, key, len), 0);
		assert_int_equal(names_make(&t, key, len, &n[i]), 0);
		names_at(&t, n[i])->ref = i;
		for (unsigned j = i / 2; j <= i; j += 1 + i / 7) {
			len = key_make(key, j);
			assert_int_equal(names_find(&t, key, len), n[j]);
		}
	}
	assert_int_equal(t.buckets, N);
	for (unsigned i = 0; i < N; i++) {
		names_at(&t, n[i])->ref = CORE_REF_NONE;
		names_drop(&t, n[i]);
		len = key_make(key, i);
		assert_int_equal(names_find(&t, key, len), 0);
		if (i + 1 < N) {
			len = key_make(key, i + 1 + (N - i - 1) / 2 * (i % 2));
			assert_true(names_find(&t, key, len));
		}
	}
	assert_int_equal(t.count, 0);
	names_done(&t);
	rig_done(&r);
}

static void names_without_buckets(void **state)
{
	(void)state;
	enum { N = 4000 };
	struct rig r;
	struct names t;
	char key[32];
	name_t n;

	rig_init(&r);
	assert_int_equal(names_init(&t, &r.core->mem), 0);
	assert_int_equal(pool_reserve(&t.pool[3], N), 0);
	r.countdown = 0;
	for (unsigned i = 0; i < N; i++) {
		int len = snprintf(key, sizeof key, "default/%08u", i);
		assert_int_equal(names_make(&t, key, (size_t)len, &n), 0);
	}
	assert_int_equal(t.buckets, 1024);
	r.countdown = -1;
	for (unsigned i = 0; i < N; i++) {
		int len = snprintf(key, sizeof key, "default/%08u", i);
		assert_true(names_find(&t, key, (size_t)len));
	}
	names_done(&t);
	rig_done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "shards are the written-down ones, and evenly filled", shards, NULL, NULL, NULL },
		{ "SipHash-1-3 agrees with another implementation", siphash, NULL, NULL, NULL },
		{ "the map has the written-down bytes, and nothing else is a map", map_bytes, NULL, NULL, NULL },
		{ "use is believed as time allows, and ranges grow so", ranges, NULL, NULL, NULL },
		{ "a pool keeps things apart and gives its memory back", pools, NULL, NULL, NULL },
		{ "names of every length are found while the table grows and shrinks", names_found, NULL, NULL, NULL },
		{ "a table that may not grow still finds all", names_without_buckets, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_pieces", tests, NULL, NULL);
}
