/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pieces of a cluster alone: the deadline's arithmetic, observing, and who gets which shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
	observe_beat(&o, &v, 10, 100);
	observe_end(&o, 100);
	assert_null(observe_expired(&o, 50, 149));
	assert_non_null(observe_expired(&o, 50, 150));

	observe_begin(&o);
	observe_beat(&o, &v, 11, 150);                           /* another version: it lives */
	observe_end(&o, 150);
	assert_null(observe_expired(&o, 50, 199));
	observe_begin(&o);
	observe_beat(&o, &v, 11, 190);
	observe_absent(&o, 8, 190);                              /* a member without a beat */
	observe_end(&o, 190);
	assert_int_equal(observe_expired(&o, 50, 200)->id.session, 7);
	v.ended = true;
	observe_begin(&o);
	observe_beat(&o, &v, 12, 210);
	observe_absent(&o, 8, 210);
	observe_end(&o, 210);
	assert_null(observe_expired(&o, 50, 239));
	assert_int_equal(observe_expired(&o, 50, 240)->id.session, 8);
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
			v[i] = (struct mapplan_node){ { 100 + i, 1 }, 1 + i, true, false, true };
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

static void incarnations_and_drains(void **state)
{
	(void)state;
	struct mapplan_node v[3] = { { { 1, 1 }, 1, true, false, true }, { { 2, 1 }, 2, true, false, true }, { { 3, 1 }, 3, false, false, true } };
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "a deadline counts from the first sending of the value that has landed", beat_counts_from_first_sending, NULL, NULL, NULL },
		{ "a beat tells when the session has ended, or has a later incarnation", beat_ends, NULL, NULL, NULL },
		{ "a session expires when one version of its beat has stood for long enough", observed, NULL, NULL, NULL },
		{ "shards are spread evenly, and few move when nodes come and go", few_shards_move, NULL, NULL, NULL },
		{ "a new incarnation gets a new reign, and who drains gives its shards away", incarnations_and_drains, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_cluster", tests, NULL, NULL);
}
