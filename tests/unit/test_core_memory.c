/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the core takes, that it gives it back, and that it can do without. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core_rig.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

/* Every allocation of a create fails once. */
static void create_fails(void **state)
{
	(void)state;
	struct rig r = { .countdown = 0 };
	struct core *c = (struct core *)&r;

	for (;; r.countdown = (long)r.allocs + 1, r.allocs = 0) {
		struct core_memory mem = rig_memory(&r);
		int e = core_create(&mem, &c);

		if (!e)
			break;
		assert_int_equal(e, -ENOMEM);
		assert_int_equal(r.bytes, 0);
		assert_ptr_equal(c, &r);
	}
	assert_true(r.allocs >= 3);
	core_free(c);
	assert_int_equal(r.bytes, 0);
	core_free(NULL);
}

static bool stats_same(const struct core_stats *a, const struct core_stats *b)
{
	return a->epoch == b->epoch && a->names == b->names && a->waiting == b->waiting && a->grants == b->grants &&
	       a->refills == b->refills && a->releases == b->releases && a->absurd == b->absurd && a->raises == b->raises &&
	       a->store_error == b->store_error && a->open == b->open;
}

static const char *const keys[] = { "default/a", "default/b", "other/some-longer-name-of-another-size-class", "default/105" };

/* A script, during which the at-th allocation and those after it fail until a step has said so; that step is repeated. */
static bool script(unsigned at, char *trace, size_t size)
{
	struct rig r;
	bool failed = false;

	rig_init(&r);
	r.countdown = at;
	for (unsigned i = 0; i < 14; i++) {
		struct core_stats before, after;
		int e = 0;

		core_stats(r.core, &before);
		for (unsigned tries = 0; tries < 2; tries++) {
			size_t trace_len = r.trace_len;
			switch (i) {
			case 0: e = rig_adopt(&r, 700, "default/adopted", 3, 1, 10); break;
			case 1: e = rig_claim(&r, 0, keys[0]); break;
			case 2: e = rig_start(&r, 7, 2); break;
			case 3: e = rig_store_map(&r, 1, 7, 1, 3); break;
			case 4: e = rig_claim(&r, 1, keys[1]); break;
			case 5: e = rig_store_landed(&r, 2); break;
			case 6: e = rig_claim(&r, 5000, keys[2]); break;
			case 7: e = rig_refill(&r, 0, 1); break;
			case 8: e = rig_refill(&r, 700, 1); break;
			case 9: e = rig_release(&r, 1, 1); break;
			case 10: e = rig_claim(&r, 1, keys[3]); break;
			case 11: e = rig_release(&r, 5000, 1); break;
			case 12: e = rig_claim(&r, 100000, keys[2]); break;
			case 13: e = rig_release(&r, 0, 0); break;
			}
			if (e != -ENOMEM)
				break;
			assert_true(i == 0 || i == 1 || i == 4 || i == 6 || i == 10 || i == 12);
			core_stats(r.core, &after);
			assert_true(stats_same(&before, &after));
			failed = true;
			r.countdown = -1;
			r.trace_len = trace_len;
			r.trace[trace_len] = '\0';
		}
		assert_int_equal(e, 0);
	}
	snprintf(trace, size, "%s", r.trace);
	rig_done(&r);
	return failed;
}

/* Whichever allocation of a run fails: the step says so, and said again it does what it would have done. */
static void steps_fail(void **state)
{
	(void)state;
	static char smooth[1 << 14], bumpy[1 << 14];
	unsigned at;

	script(1000, smooth, sizeof smooth);
	for (at = 0; script(at, bumpy, sizeof bumpy); at++)
		assert_string_equal(bumpy, smooth);
	assert_string_equal(bumpy, smooth);
	assert_true(at >= 10);
	printf("# %u allocations failed\n", at);
}

/* No memory for the master's records while an epoch opens: it is tried again, and nobody is forgotten. */
static void opening_fails(void **state)
{
	(void)state;
	enum { N = 3000 };
	struct rig r;
	char key[32];
	unsigned grants = 0, pauses = 0;

	rig_init(&r);
	r.silent = true;
	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof key, "default/%u", i);
		assert_int_equal(rig_claim(&r, i, key), 0);
	}
	rig_start(&r, 7, 1);
	rig_store_absent(&r);
	r.countdown = 1;
	for (rig_store_landed(&r, 1);;) {
		bool pause = false;

		for (unsigned i = 0; i < r.actions.n; i++) {
			grants += r.actions.v[i].kind == CORE_ACT_GRANT;
			pause |= r.actions.v[i].kind == CORE_ACT_TIMER;
		}
		if (pause) {
			assert_false(r.actions.more);
			assert_int_equal(grants, 0);
			pauses++;
			assert_int_equal(rig_continue(&r), 0);
			assert_int_equal(r.actions.n, 0);
			r.now = r.core->memory_at;
			r.countdown = pauses < 3 ? 0 : -1;
			rig_timer(&r);
		} else if (r.actions.more) {
			rig_continue(&r);
		} else {
			break;
		}
	}
	assert_int_equal(pauses, 3);
	assert_int_equal(grants, N);
	rig_done(&r);
}

static void million(void **state)
{
	(void)state;
	enum { N = 1000000, STRIDE = 611953 };      /* coprime: every name is closed once, in no order */
	struct rig r;
	char key[32];

	rig_open(&r);
	r.silent = true;
	snprintf(key, sizeof key, "default/%016u", 0);
	rig_claim(&r, 0, key);
	rig_release(&r, 0, 0);
	size_t start = r.bytes;
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < N; i++) {
			snprintf(key, sizeof key, "default/%016u", i);
			assert_int_equal(rig_claim(&r, i, key), 0);
			assert_int_equal(r.actions.n, 2);
		}
		size_t each = (r.bytes - start) / N;
		printf("# %zu bytes a name of %zu bytes\n", each, strlen(key));
		assert_true(each <= 224);
		for (unsigned i = 0, ref = 0; i < N; i++, ref = (ref + STRIDE) % N) {
			assert_int_equal(rig_release(&r, ref, 1), 0);
			assert_int_equal(r.actions.n, 2);
		}
		printf("# %zu bytes at first, %zu at the most, %zu after\n", start, r.peak, r.bytes);
		assert_true(r.bytes <= r.peak / 200);
	}
	/* And the tokens still rise. */
	rig_claim(&r, 0, key);
	assert_true(token_counter(r.actions.v[0].name.range.first) > 2);
	rig_done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "a core that cannot be made leaves nothing behind", create_fails, NULL, NULL, NULL },
		{ "whichever allocation fails, nothing has changed, and the step can be repeated", steps_fail, NULL, NULL, NULL },
		{ "an epoch that opens without memory is gone on with later", opening_fails, NULL, NULL, NULL },
		{ "a million names opened and closed: at most 224 bytes each, and all come back", million, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_memory", tests, NULL, NULL);
}
