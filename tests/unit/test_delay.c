/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lock-delay as this node's words see it: who has died is mourned, and a claim always says the longest delay that there is. */
#include <errno.h>
#include <unistd.h>

#include "shm_rig.h"

#define DELAY 500                        /* ms */
#define TURNS 50                         /* what the rig's turns take of it, at most */

/* many: among other nodes. */
static void scene_open(struct rig_two *x, uint32_t delay, bool many)
{
	rig_open(&x->r);
	x->r.config.many = x->r.shm->config.many = many;
	rig_two(x, delay);
	assert_int_equal(name_at(x->s, x->slot)->delay, delay);
}

static bool clients_are(struct rig_two *x, unsigned n)
{
	return x->r.shm->ledger.clients.n == n;
}

/* --- A holder that dies --- */

static void mourned(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x, DELAY, false);
	held = rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	assert_true(rig_said(&x.r, "owner-died x/n"));
	assert_int_equal(LOCK_LOAD(x.word) & LOCK_IDENTITY, held & LOCK_IDENTITY);
	assert_in_range(delay_left(x.s, x.slot), DELAY - TURNS, DELAY + 1);
	assert_true(clients_are(&x, 2));         /* its index is not given to another */
	fake_loop_advance(x.r.loop, (DELAY - TURNS) * NSEC_PER_MSEC);
	assert_false(rig_take(x.s, x.slot, &x.b));
	fake_loop_advance(x.r.loop, (TURNS + 2) * NSEC_PER_MSEC);
	assert_true(LOCK_LOAD(x.word) & LOCK_D);
	assert_true(clients_are(&x, 1));
	rig_two_take(&x, &x.b);
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

/* The longest is observed as well, to its end. */
static void mourned_for_longest(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, LEDGER_DELAY_MAX, false);
	rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	assert_in_range(delay_left(x.s, x.slot), LEDGER_DELAY_MAX - TURNS, LEDGER_DELAY_MAX + 1);
	fake_loop_advance(x.r.loop, (LEDGER_DELAY_MAX - TURNS) * NSEC_PER_MSEC);
	assert_false(rig_take(x.s, x.slot, &x.b));
	fake_loop_advance(x.r.loop, (TURNS + 2) * NSEC_PER_MSEC);
	rig_two_take(&x, &x.b);
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

/* Others who ask for it back, or try, are told what they are of a lock that is held. */
static void mourned_among_others(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, DELAY, true);
	rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	assert_false(space_revoke_idle(x.s, x.slot));
	space_revoke(x.s, x.slot);
	fake_loop_advance(x.r.loop, (DELAY - TURNS) * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 0);
	fake_loop_advance(x.r.loop, (TURNS + 20) * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 1);
	assert_true(x.r.died);
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

static void nobody_to_mourn(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x, DELAY, false);
	rig_two_take(&x, &x.b);                          /* asks for none itself */
	rig_client_end(&x.r, &x.b);
	rig_turn(&x.r);
	held = rig_two_take(&x, &x.a);
	assert_true(lock_release(x.word, held, 0));
	rig_client_end(&x.r, &x.a);              /* holds nothing */
	rig_turn(&x.r);
	assert_true(clients_are(&x, 0));
	x.a = rig_client(&x.r);
	x.b = rig_client(&x.r);
	rig_two_done(&x);
}

/* A lapse has its own word to say: the hold is lost at once, and whoever is granted it next has waited. */
static void mourned_over_a_lapse(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, DELAY, true);
	rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	shm_lapse(x.r.shm);
	assert_false(LOCK_LOAD(x.word) & (LOCK_OWNER | LOCK_L));
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	rig_two_take(&x, &x.b);
	fake_loop_advance(x.r.loop, 2 * DELAY * NSEC_PER_MSEC);
	assert_int_equal(LOCK_LOAD(x.word) & LOCK_OWNER, x.b.index);     /* what was mourned is not b's */
	assert_true(clients_are(&x, 1));
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

/* a reads: it has a line, with this slot in it, and another's that it has no delay for. */
static uint32_t reads(struct rig_two *x)
{
	struct client_what what = { KIND_LOCK, 0, "other", 5 };
	uint32_t line, account, other;

	assert_int_equal(client_open(x->a.c, x->r.shm, x->s, &what, &other, &account), 0);
	assert_int_equal(reader_line(x->a.c, x->s, &line), 0);
	READ_OR(&seg_slot(x->s->base, x->slot)->readers, line_mark(line));
	READ_SWAP(&seg_line(x->s->base, line)[0], cell_of(x->slot, seg_slot(x->s->base, x->slot)->gate) | 1);
	READ_SWAP(&seg_line(x->s->base, line)[1], cell_of(other, seg_slot(x->s->base, other)->gate) | 1);
	return line;
}

/* One who reads has died. Returns its line. */
static uint32_t scene_open_reader(struct rig_two *x)
{
	uint32_t line;

	scene_open(x, DELAY, false);
	line = reads(x);
	rig_client_end(&x->r, &x->a);
	rig_turn(&x->r);
	return line;
}

static void reader_mourned(void **state)
{
	struct rig_two x;
	uint32_t line;

	(void)state;
	line = scene_open_reader(&x);
	assert_true(readers_inside_now(x.s, x.slot));
	assert_int_equal(seg_line(x.s->base, line)[1], 0);
	assert_in_range(delay_left(x.s, x.slot), DELAY - TURNS, DELAY + 1);
	fake_loop_advance(x.r.loop, (DELAY - TURNS) * NSEC_PER_MSEC);
	assert_true(readers_inside_now(x.s, x.slot));
	rig_two_take(&x, &x.b);                          /* who writes has the word, and waits for those inside */
	READ_OR(&seg_slot(x.s->base, x.slot)->drain, (uint32_t)DRAIN_OWNER);
	fake_loop_advance(x.r.loop, (TURNS + 2) * NSEC_PER_MSEC);
	assert_false(readers_inside_now(x.s, x.slot));
	assert_int_equal(seg_slot(x.s->base, x.slot)->drain, 0);
	assert_int_equal(LOCK_LOAD(x.word) & LOCK_OWNER, x.b.index);
	assert_true(clients_are(&x, 1));
	assert_false(table_in_use(&x.s->lines, line));
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

static void reader_mourned_over_a_restart(void **state)
{
	struct rig_two x;
	uint32_t line;

	(void)state;
	line = scene_open_reader(&x);
	fake_loop_advance(x.r.loop, DELAY / 2 * NSEC_PER_MSEC);
	rig_stop(&x.r);
	assert_int_equal(rig_adopt(&x.r), 0);
	x.s = rig_space(&x.r, "x");
	assert_true(readers_inside_now(x.s, x.slot));
	fake_loop_advance(x.r.loop, (DELAY + 3) * NSEC_PER_MSEC);
	assert_false(readers_inside_now(x.s, x.slot));
	assert_true(clients_are(&x, 1) && !table_in_use(&x.s->lines, line));
	close(x.b.anchor);
	rig_done(&x.r);
}

static void mourned_over_a_restart(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, DELAY, false);
	rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	fake_loop_advance(x.r.loop, DELAY / 2 * NSEC_PER_MSEC);
	rig_stop(&x.r);
	assert_int_equal(rig_adopt(&x.r), 0);
	x.s = rig_space(&x.r, "x");
	x.word = rig_word(x.s, x.slot);
	assert_true(LOCK_LOAD(x.word) & LOCK_OWNER);
	fake_loop_advance(x.r.loop, (DELAY + 3) * NSEC_PER_MSEC);
	assert_false(LOCK_LOAD(x.word) & LOCK_OWNER);
	assert_true(LOCK_LOAD(x.word) & LOCK_D);
	assert_true(clients_are(&x, 1));
	close(x.b.anchor);
	rig_done(&x.r);
}

/* --- A longer delay than the claim says --- */

static void free_lease_goes_back(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, 0, true);
	assert_int_equal(rig_two_open(&x, &x.b, DELAY), 0);
	assert_int_equal(x.r.yields, 1);
	assert_false(rig_take(x.s, x.slot, &x.b));
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	rig_two_take(&x, &x.b);
	assert_int_equal(x.r.yields, 1);
	assert_int_equal(rig_two_open(&x, &x.a, DELAY), 0);           /* as long, or shorter: the claim says it */
	assert_int_equal(rig_two_open(&x, &x.a, 1), 0);
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	rig_two_done(&x);
}

/* Not even where a burst is allowed. */
static void held_lease_goes_back_next(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x, 0, true);
	x.r.shm->burst = (struct shm_burst){ 100, NSEC_PER_SEC };
	held = rig_two_take(&x, &x.a);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);               /* another node waits: a burst begins */
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	assert_int_equal(rig_two_open(&x, &x.b, DELAY), 0);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	assert_true(lock_release(x.word, held, 0));
	assert_false(rig_take(x.s, x.slot, &x.b));
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

static void grant_under_way_goes_back(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, 0, true);
	space_revoke(x.s, x.slot);
	x.r.silent = true;
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_ASKED);
	assert_int_equal(rig_two_open(&x, &x.b, DELAY), 0);
	x.r.silent = false;
	rig_grant(&x.r, x.s, x.slot);
	assert_int_equal(x.r.yields, 2);
	assert_false(rig_take(x.s, x.slot, &x.b));
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	rig_two_take(&x, &x.b);
	rig_two_done(&x);
}

static void alone_nothing_goes_back(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, 0, false);
	assert_int_equal(rig_two_open(&x, &x.b, DELAY), 0);
	assert_int_equal(x.r.yields, 0);
	rig_two_take(&x, &x.b);
	rig_two_done(&x);
}

/* The daemon dies before the holder has given back: nobody takes it from its successor, either. */
static void goes_back_over_a_restart(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x, 0, true);
	held = rig_two_take(&x, &x.a);
	assert_int_equal(rig_two_open(&x, &x.b, DELAY), 0);
	assert_true(lock_release(x.word, held, 0));      /* and does not ring any more */
	rig_stop(&x.r);
	assert_int_equal(rig_adopt(&x.r), 0);
	x.s = rig_space(&x.r, "x");
	x.word = rig_word(x.s, x.slot);
	assert_int_equal(x.r.yields, 1);
	assert_false(LOCK_LOAD(x.word) & LOCK_L);
	assert_int_equal(name_at(x.s, x.slot)->delay, DELAY);
	close(x.a.anchor);
	close(x.b.anchor);
	rig_done(&x.r);
}

static void refused(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x, LEDGER_DELAY_MAX, false);
	assert_int_equal(rig_two_open(&x, &x.b, LEDGER_DELAY_MAX + 1), -EINVAL);
	rig_two_done(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(mourned, "the word of a holder that has died stays its own until the delay is over"),
		STORY(mourned_for_longest, "and the longest that one may ask for is one too"),
		STORY(mourned_among_others, "and so long the lease is not given back to other nodes"),
		STORY(nobody_to_mourn, "who has asked for no delay, or does not hold, is not mourned"),
		STORY(mourned_over_a_lapse, "what is mourned is lost with the lease, and frees nobody else's hold"),
		STORY(reader_mourned, "the cells of a reader that has died stay where they have a delay, and who writes waits for them"),
		STORY(reader_mourned_over_a_restart, "... which another daemon goes on with"),
		STORY(mourned_over_a_restart, "another daemon goes on with the delay"),
		STORY(free_lease_goes_back, "where one asks for a longer delay than the lease's, that is claimed anew"),
		STORY(held_lease_goes_back_next, "where it is held, with the next release, whoever waits here"),
		STORY(grant_under_way_goes_back, "a grant of the shorter claim goes back unused"),
		STORY(alone_nothing_goes_back, "a node alone has nobody to tell"),
		STORY(goes_back_over_a_restart, "another daemon has it given back, and nobody takes it in between"),
		STORY(refused, "a delay has a limit"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("delay", tests, NULL, NULL);
}
