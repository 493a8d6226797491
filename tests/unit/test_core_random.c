/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random worlds (core_world.h), each from a seed. CORE_SEED=N runs that one alone; CORE_SEEDS=N that
 * many. A seed that fails says so, and fails again.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_rig.h"
#include "core_world.h"
#include "core/range.h"

#include <setjmp.h>
#include <cmocka.h>

#define STEPS 1500

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : otherwise;
}

static void worlds(void **state)
{
	(void)state;
	struct world_counts n = { 0 };
	uint64_t seeds = number_from("CORE_SEEDS", 200), one = number_from("CORE_SEED", 0);

	if (one) {
		assert_true(world_run(one, STEPS, &n));
		return;
	}
	for (uint64_t seed = 1; seed <= seeds; seed++)
		assert_true(world_run(seed, STEPS, &n));
	printf("# %" PRIu64 " seeds: %" PRIu64 " steps, %" PRIu64 " grants, %" PRIu64 " refills, %" PRIu64 " releases, %" PRIu64
	       " given up, %" PRIu64 " raises, %" PRIu64 " adopted\n", seeds, n.steps, n.grants, n.refills, n.releases, n.cancels,
	       n.raises, n.adopted);
	printf("# %" PRIu64 " crashes (%" PRIu64 " within a list of actions), %" PRIu64 " reboots, %" PRIu64 " zombies, answers lost %"
	       PRIu64 " after and %" PRIu64 " before the deed, %" PRIu64 " repeated, %" PRIu64 " errors, %" PRIu64 " fatal\n",
	       n.crashes, n.torn, n.reboots, n.zombies, n.lost_done, n.lost_undone, n.repeated, n.errors, n.fatal);

	/* Every kind of event and of fault really happened. */
	assert_true(n.grants && n.refills && n.releases && n.cancels && n.tokens && n.raises && n.adopted);
	assert_true(n.crashes && n.torn && n.reboots && n.zombies && n.lost_done && n.lost_undone && n.repeated && n.errors && n.fatal);
}

/*
 * One client does nothing but lie, for a tenth of a second and a hundred thousand events: it opens,
 * refills and closes names of one shard, always with all tokens used. No epoch ends.
 */
static void liar(void **state)
{
	(void)state;
	static const char *const key[] = { "default/a", "default/105" };
	struct core_stats st;
	struct rig r;

	rig_open(&r);
	r.silent = true;
	for (unsigned i = 0; i < 100000; i++) {
		core_ref_t ref = i % 2;

		r.now += 1000;
		switch (i / 2 % 8) {
		case 0: rig_claim(&r, ref, key[ref]); break;
		case 7: rig_release(&r, ref, UINT64_MAX); break;
		default: rig_refill(&r, ref, UINT64_MAX); break;
		}
		assert_int_equal(r.actions.n, 2);
	}
	core_stats(r.core, &st);
	assert_int_equal(st.raises, 0);
	assert_true(token_counter(r.core->master.shard[34].floor) < COUNTER_END / 32);
	rig_done(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		{ "random worlds with crashes, restarts and a store that fails: tokens rise, everybody is served", worlds, NULL, NULL, NULL },
		{ "a client that lies about its use does not end an epoch", liar, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core_random", tests, NULL, NULL);
}
