/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A lease that another node wants, and the end of a session, as the words of this node's segment see them. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rig.h"

static void scene_open(struct rig_two *x)
{
	rig_open(&x->r);
	rig_two(x, 0);
}

/* As libdlock releases: it rings where the daemon waits for that. */
static bool give(struct rig_two *x, uint64_t held)
{
	if (!lock_release(x->word, held, 0))
		return false;
	if (LOCK_LOAD(x->word) & LOCK_Y)
		rig_want(x->s, x->slot);
	rig_turn(&x->r);
	return true;
}

static void free_lease_goes_at_once(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	give(&x, rig_two_take(&x, &x.a));
	give(&x, rig_two_take(&x, &x.b));
	space_revoke(x.s, x.slot);
	assert_int_equal(x.r.yields, 1);
	assert_int_equal(x.r.yield_used, 2);
	assert_false(x.r.yield_again);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_IDLE);
	assert_int_equal(name_at(x.s, x.slot)->count, 0);
	assert_false(rig_take(x.s, x.slot, &x.a));
	space_revoke(x.s, x.slot);               /* said again: there is nothing left to give */
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

static void who_only_tries_gets_what_is_idle(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	assert_false(space_revoke_idle(x.s, x.slot));
	assert_true(lock_release(x.word, held, 0));
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	assert_false(space_revoke_idle(x.s, x.slot));    /* somebody here waits, or was woken */
	__atomic_fetch_and(x.word, ~LOCK_W, __ATOMIC_RELAXED);
	assert_int_equal(x.r.yields, 0);
	assert_int_equal(name_at(x.s, x.slot)->revoked, 0);
	assert_true(rig_take(x.s, x.slot, &x.b));        /* nothing has changed for anybody */
	assert_true(lock_release(x.word, LOCK_LOAD(x.word), 0));
	assert_true(space_revoke_idle(x.s, x.slot));
	assert_int_equal(x.r.yields, 1);
	assert_int_equal(x.r.yield_used, 2);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_IDLE);
	assert_false(rig_take(x.s, x.slot, &x.a));
	assert_true(space_revoke_idle(x.s, x.slot));     /* there is nothing left to give */
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

static void holder_keeps_it_and_is_the_last(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	space_revoke(x.s, x.slot);
	assert_int_equal(x.r.yields, 0);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	assert_true(lock_release(x.word, held, 0));
	assert_false(rig_take(x.s, x.slot, &x.b));       /* free, and yet not for anybody here */
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	assert_int_equal(x.r.yields, 1);
	assert_false(LOCK_LOAD(x.word) & (LOCK_Y | LOCK_L));
	rig_two_done(&x);
}

/* The one who owes the ring is stopped, or never rings. */
static void lost_ring_costs_ten_milliseconds(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	assert_true(lock_release(x.word, held, 0));
	fake_loop_advance(x.r.loop, 9 * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 0);
	fake_loop_advance(x.r.loop, 2 * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

static void dead_holder_gives_it_up(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	assert_int_equal(x.r.yields, 1);
	assert_true(x.r.died);
	assert_false(LOCK_LOAD(x.word) & LOCK_D);        /* from now on that is what the others say */
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

/* It is wanted back in the same breath as it is granted: he who was woken for it has it once. */
static void woken_has_it_once(void **state)
{
	struct lock_waiter newcomer = { .me = 1 | LOCK_EXCLUSIVE }, woken = { .me = 1 | LOCK_EXCLUSIVE, .woken = true };
	struct rig_two x;
	uint64_t w;

	(void)state;
	scene_open(&x);
	newcomer.me = woken.me = rig_two_take(&x, &x.a) & (LOCK_OWNER | LOCK_MODE);
	give(&x, LOCK_LOAD(x.word));
	__atomic_fetch_or(x.word, LOCK_W | LOCK_K, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);
	assert_int_equal(x.r.yields, 0);
	rig_want(x.s, x.slot);                   /* a ring of before */
	rig_turn(&x.r);
	assert_int_equal(x.r.yields, 0);
	assert_false(rig_take(x.s, x.slot, &x.b));
	assert_int_equal(lock_turn(x.word, &newcomer, &w), LOCK_SLEEP);
	assert_int_equal(lock_turn(x.word, &woken, &w), LOCK_TAKEN);
	woken.woken = true;
	assert_true(give(&x, w));
	assert_int_equal(x.r.yields, 1);
	assert_int_equal(lock_turn(x.word, &woken, &w), LOCK_SLEEP);
	rig_two_done(&x);
}

static void promise_is_bounded(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	give(&x, rig_two_take(&x, &x.a));
	__atomic_fetch_or(x.word, LOCK_W | LOCK_K, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);
	fake_loop_advance(x.r.loop, 9 * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 0);
	fake_loop_advance(x.r.loop, 2 * NSEC_PER_MSEC);
	assert_int_equal(x.r.yields, 1);
	assert_false(LOCK_LOAD(x.word) & (LOCK_Y | LOCK_L));
	rig_two_done(&x);
}

/* Somebody of this node waits: for the span, or the count, of the burst it is theirs. */
static void burst_is_bounded(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	x.r.shm->burst = (struct shm_burst){ 1000, 2 * NSEC_PER_MSEC };
	held = rig_two_take(&x, &x.a);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	give(&x, held);
	held = rig_two_take(&x, &x.b);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);     /* the release found nobody asleep */
	fake_loop_advance(x.r.loop, NSEC_PER_MSEC);
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	fake_loop_advance(x.r.loop, 2 * NSEC_PER_MSEC);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	give(&x, held);
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

static void burst_ends_by_its_count(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	x.r.shm->burst = (struct shm_burst){ 2, NSEC_PER_SEC };
	held = rig_two_take(&x, &x.a);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);
	for (int i = 0; i < 2; i++) {
		give(&x, held);
		held = rig_two_take(&x, i ? &x.a : &x.b);
		__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	}
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	fake_loop_advance(x.r.loop, NSEC_PER_SEC / 2);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	give(&x, held);
	assert_int_equal(x.r.yields, 1);
	rig_two_done(&x);
}

/* Nobody else of this node waits, however often he has taken it. */
static void who_is_alone_has_no_burst(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	x.r.shm->burst = (struct shm_burst){ 1000, NSEC_PER_SEC };
	for (int i = 0; i < 5; i++)
		give(&x, rig_two_take(&x, &x.a));
	held = rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	give(&x, held);
	assert_int_equal(x.r.yields, 1);
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	give(&x, rig_two_take(&x, &x.a));
	give(&x, rig_two_take(&x, &x.a));
	space_revoke(x.s, x.slot);               /* free at this moment */
	assert_int_equal(x.r.yields, 2);
	rig_two_done(&x);
}

static unsigned yielding(struct rig_two *x, const uint32_t *slots, unsigned n)
{
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++)
		found += (LOCK_LOAD(rig_word(x->s, slots[i])) & LOCK_Y) != 0;
	return found;
}

/* A client holds very many lines, and very many names that are wanted elsewhere: they are not all looked at in one go. */
static void looks_for_readers_are_rationed(void **state)
{
	enum { NAMES = 200 };
	uint32_t slots[NAMES];
	struct rig_two x;
	char name[16];

	(void)state;
	scene_open(&x);
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof name, "many%u", i);
		slots[i] = rig_name(&x.r, &x.a, x.s, name);
		rig_want(x.s, slots[i]);
		fake_loop_advance(x.r.loop, 2 * NSEC_PER_MSEC);
		assert_true(rig_take(x.s, slots[i], &x.a));
		__atomic_fetch_or(rig_word(x.s, slots[i]), LOCK_R, __ATOMIC_SEQ_CST);
		space_revoke(x.s, slots[i]);
	}
	assert_int_equal(yielding(&x, slots, NAMES), NAMES);
	for (unsigned i = 0; i < NAMES; i++)
		__atomic_fetch_and(rig_word(x.s, slots[i]), ~LOCK_Y, __ATOMIC_SEQ_CST);
	x.s->lines_used = 8192;
	fake_loop_advance(x.r.loop, 11 * NSEC_PER_MSEC);
	assert_in_range(yielding(&x, slots, NAMES), 1, NAMES / 2);
	fake_loop_advance(x.r.loop, 100 * NSEC_PER_MSEC);
	assert_int_equal(yielding(&x, slots, NAMES), NAMES);
	x.s->lines_used = 0;
	rig_two_done(&x);
}

static void revoked_while_it_asks_for_tokens(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	x.r.silent = true;
	x.r.shm->burst = (struct shm_burst){ 1000, NSEC_PER_SEC };
	uint64_t was;
	assert_true(lock_close(x.word, 0, &was));           /* all tokens are used */
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_ASKED);
	space_revoke(x.s, x.slot);
	assert_int_equal(x.r.yields, 1);
	assert_int_equal(x.r.yield_used, x.r.range);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_RETURNED);
	space_forget(x.s, x.slot);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_IDLE);
	rig_two_done(&x);
}

/* Given back, not forgotten yet, and closed by the last who had it open. */
static void returned_and_closed(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	x.r.silent = true;
	space_revoke(x.s, x.slot);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_RETURNED);
	rig_client_end(&x.r, &x.a);
	rig_client_end(&x.r, &x.b);
	rig_turn(&x.r);
	assert_true(name_is(x.s, x.slot));
	space_forget(x.s, x.slot);
	assert_false(name_is(x.s, x.slot));
	rig_done(&x.r);
}

/* --- the end of a session --- */

static void lapse_takes_what_is_held(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	shm_deadline(x.r.shm, 5000, 4000);
	assert_int_equal(x.r.shm->page.line[x.s->id].ns, 5000);
	assert_int_equal(x.r.shm->page.line[x.s->id].ticks, 4000);
	held = rig_two_take(&x, &x.a);
	shm_lapse(x.r.shm);
	assert_int_equal(x.r.shm->page.line[x.s->id].ns, NODE_LAPSED);
	assert_int_equal(x.r.shm->page.line[x.s->id].ticks, 0);
	assert_false(lock_release(x.word, held, 0));
	assert_int_equal(name_at(x.s, x.slot)->count, 0);
	assert_false(x.s->broken);
	rig_two_done(&x);
}

/* A daemon may have closed the word and died; another begins where it ended. Whoever read then reads no more. */
static void lapse_twice_takes_what_is_read(void **state)
{
	struct rig_two x;
	uint64_t gate;

	(void)state;
	scene_open(&x);
	assert_true(lock_release(x.word, rig_two_take(&x, &x.a), LOCK_READERS));
	gate = seg_slot(x.s->base, x.slot)->gate;
	lock_lapse(x.word);
	shm_lapse(x.r.shm);
	assert_true((seg_slot(x.s->base, x.slot)->gate ^ gate) & GATE_ERA);
	rig_two_done(&x);
}

/* The same client takes the name again and again: its lost hold must never be the same as a later one. */
static void lost_hold_is_like_no_later_one(void **state)
{
	struct rig_two x;
	uint64_t lost[8], held;

	(void)state;
	scene_open(&x);
	x.r.range = 1 << 10;
	for (int i = 0; i < 8; i++) {
		lost[i] = rig_two_take(&x, &x.a);
		shm_lapse(x.r.shm);
		shm_deadline(x.r.shm, NODE_NEVER, NODE_NEVER);
		rig_grant(&x.r, x.s, x.slot);
	}
	for (int round = 0; round < 3; round++) {
		for (;;) {
			struct lock_waiter t = { .me = x.a.index | LOCK_EXCLUSIVE };

			if (lock_turn(x.word, &t, &held) != LOCK_TAKEN)
				break;
			for (int i = 0; i < 8; i++)
				assert_true((held ^ lost[i]) & LOCK_IDENTITY);
			assert_true(lock_release(x.word, held, 0));
		}
		rig_grant(&x.r, x.s, x.slot);
	}
	rig_two_done(&x);
}

/* Tokens rise all the same, and none is another node's. */
static void short_ranges_have_the_tokens_of_their_grant(void **state)
{
	struct rig_two x;
	uint64_t held, token, first;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	(void)held;
	shm_lapse(x.r.shm);
	first = x.r.next_token;
	rig_grant(&x.r, x.s, x.slot);
	held = rig_two_take(&x, &x.a);
	token = seg_slot(x.s->base, x.slot)->bias + lock_count(held);
	assert_in_range(token, first, first + x.r.range - 1);
	assert_int_equal(token, name_token(x.s, x.slot));
	rig_two_done(&x);
}

static void last_tokens_of_a_range_cost_the_space(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	x.r.range = 8;
	rig_grant(&x.r, x.s, x.slot);
	rig_two_take(&x, &x.a);
	shm_lapse(x.r.shm);
	assert_non_null(x.s->broken);
	rig_two_done(&x);
}

static void claim_outlives_a_lapse(void **state)
{
	struct rig_two x;
	uint32_t other;

	(void)state;
	scene_open(&x);
	x.r.silent = true;
	other = rig_name(&x.r, &x.a, x.s, "other");
	rig_want(x.s, other);
	rig_turn(&x.r);
	shm_lapse(x.r.shm);
	assert_int_equal(name_at(x.s, other)->state, NAME_ASKED);
	assert_int_equal(name_at(x.s, x.slot)->state, NAME_IDLE);
	rig_grant(&x.r, x.s, other);
	assert_true(rig_take(x.s, other, &x.a));
	rig_two_done(&x);
}

/* A waiter has given up, or died. Whoever comes afterwards has it asked for anew. */
static void claim_that_nobody_waits_for_is_given_up(void **state)
{
	struct rig_two x;
	unsigned wants;
	uint32_t other;

	(void)state;
	scene_open(&x);
	x.r.silent = true;
	other = rig_name(&x.r, &x.a, x.s, "other");
	assert_false(rig_take(x.s, other, &x.a));        /* sets W, and then does not sleep */
	rig_watch(x.s, other);
	rig_want(x.s, other);
	rig_turn(&x.r);
	assert_int_equal(name_at(x.s, other)->state, NAME_ASKED);
	fake_loop_advance(x.r.loop, 200 * NSEC_PER_MSEC);
	assert_int_equal(x.r.releases, 1);
	assert_int_equal(name_at(x.s, other)->state, NAME_IDLE);
	wants = x.r.wants;
	rig_want(x.s, other);
	rig_turn(&x.r);
	assert_int_equal(x.r.wants, wants + 1);
	assert_int_equal(client_close(x.a.c, x.r.shm, x.s, other), 0);
	assert_int_equal(x.r.releases, 2);
	assert_false(name_is(x.s, other));
	rig_two_done(&x);
}

static void lost_grant_says_owner_died(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	space_revoke(x.s, x.slot);
	x.r.lost = true;
	rig_grant(&x.r, x.s, x.slot);
	assert_true(rig_two_take(&x, &x.a) & LOCK_D);
	rig_two_done(&x);
}

static void scene_again(struct rig_two *x)
{
	rig_stop(&x->r);
	assert_int_equal(rig_adopt(&x->r), 0);
	x->s = rig_space(&x->r, "x");
	x->word = rig_word(x->s, x->slot);
}

/* The daemon dies when the ledger has the grant and the word has not: nobody says again that a holder died. */
static void lost_grant_says_so_after_a_restart(void **state)
{
	struct name_grant g = { 5000, 1 << 20, 9, .lost = true };
	struct rig_two x;

	(void)state;
	scene_open(&x);
	space_revoke(x.s, x.slot);
	space_ledger_grant(x.s, x.slot, &g);
	scene_again(&x);
	rig_want(x.s, x.slot);
	rig_turn(&x.r);
	assert_true(rig_two_take(&x, &x.a) & LOCK_D);
	rig_two_done(&x);
}

static void yielded_no_further(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died, bool again)
{
	struct rig *r = arg;

	(void)s, (void)slot, (void)used, (void)again;
	r->died = died;
}

/* The daemon dies between closing the word and the ledger: what it gives back after that is a dead holder's as before. */
static void death_is_said_again_after_a_restart(void **state)
{
	struct rig_two x;

	(void)state;
	scene_open(&x);
	rig_two_take(&x, &x.a);
	rig_client_end(&x.r, &x.a);
	rig_turn(&x.r);
	x.r.shm->ops.yielded = yielded_no_further;
	space_revoke(x.s, x.slot);
	assert_true(x.r.died);
	x.r.died = false;
	scene_again(&x);
	space_revoke(x.s, x.slot);
	assert_true(x.r.died);
	assert_false(LOCK_LOAD(x.word) & LOCK_D);
	x.a = rig_client(&x.r);
	rig_two_done(&x);
}

/* What is left of an earlier wish, whose ring was in time, is not about the next range. */
static void burst_is_not_cut_short_by_an_earlier_wish(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	give(&x, held);
	assert_int_equal(x.r.yields, 1);
	rig_grant(&x.r, x.s, x.slot);
	x.r.shm->burst = (struct shm_burst){ 1000, NSEC_PER_SEC };
	held = rig_two_take(&x, &x.a);
	__atomic_fetch_or(x.word, LOCK_W, __ATOMIC_RELAXED);
	space_revoke(x.s, x.slot);
	fake_loop_advance(x.r.loop, 20 * NSEC_PER_MSEC);
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);
	give(&x, held);
	rig_two_done(&x);
}

static void restart_before_the_end_goes_on(void **state)
{
	struct rig_two x;
	uint64_t held;

	(void)state;
	scene_open(&x);
	held = rig_two_take(&x, &x.a);
	space_revoke(x.s, x.slot);
	assert_true(LOCK_LOAD(x.word) & LOCK_Y);
	rig_stop(&x.r);
	x.r.config.deadline_ns = 7000;
	assert_int_equal(rig_adopt(&x.r), 0);
	x.s = rig_space(&x.r, "x");
	x.word = rig_word(x.s, x.slot);
	assert_int_equal(x.r.shm->page.line[x.s->id].ns, 7000);
	assert_false(LOCK_LOAD(x.word) & LOCK_Y);        /* the master says it again */
	assert_true(give(&x, held));
	assert_int_equal(x.r.yields, 0);
	rig_two_done(&x);
}

static pid_t child_that_waits(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);        /* a test that fails leaves nobody behind */
		pause();
		_exit(0);
	}
	return pid;
}

static void loss_signals_whoever_asked(void **state)
{
	struct peer p = { .fd = -1, .pidfd = -1 };
	struct rig_two x;
	struct rig_client c = { 0 };
	pid_t pid = child_that_waits();
	int status;

	(void)state;
	scene_open(&x);
	p.pid = pid;
	assert_int_equal(peer_pidfd(&p), 0);
	assert_int_equal(client_new(x.r.shm, &p, 0, &c.c, &c.anchor), 0);
	c.index = c.c->index;
	uint32_t slot = rig_name(&x.r, &c, x.s, "k");
	rig_want(x.s, slot);
	rig_turn(&x.r);
	assert_int_equal(client_onloss(c.c, x.r.shm, x.s, slot, SIGKILL), 0);
	assert_int_equal(client_onloss(c.c, x.r.shm, x.s, slot, 65), -EINVAL);
	shm_loss(x.r.shm);
	assert_int_equal(x.r.loss_done, 1);              /* it holds nothing yet */
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_true(rig_take(x.s, slot, &c));
	shm_loss(x.r.shm);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(x.r.loss_done, 1);              /* not before its end is known */
	close(c.anchor);
	fake_loop_advance(x.r.loop, 5 * NSEC_PER_MSEC);
	assert_int_equal(x.r.loss_done, 2);
	rig_two_done(&x);
}

/* More than a slice's worth of names, the last of them held by a process that is to be killed. */
#define MANY 20000u

static void many_open(struct rig_two *x, struct rig_client *c, pid_t pid)
{
	struct peer p = { .fd = -1, .pidfd = -1, .pid = pid };
	char name[16];
	uint32_t slot;

	scene_open(x);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "m%u", i);
		rig_name(&x->r, &x->a, x->s, name);
	}
	assert_int_equal(peer_pidfd(&p), 0);
	assert_int_equal(client_new(x->r.shm, &p, 0, &c->c, &c->anchor), 0);
	c->index = c->c->index;
	slot = rig_name(&x->r, c, x->s, "k");
	assert_true(slot > MANY);                        /* looked at last */
	rig_want(x->s, slot);
	rig_turn(&x->r);
	assert_int_equal(client_onloss(c->c, x->r.shm, x->s, slot, SIGKILL), 0);
	assert_true(rig_take(x->s, slot, c));
}

static void many_done(struct rig_two *x, struct rig_client *c, pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(c->anchor);
	fake_loop_advance(x->r.loop, 5 * NSEC_PER_MSEC);
	rig_two_done(x);
}

static void loss_of_many_goes_in_slices(void **state)
{
	struct rig_client c = { 0 };
	pid_t pid = child_that_waits();
	struct rig_two x;
	int status;

	(void)state;
	many_open(&x, &c, pid);
	shm_loss(x.r.shm);
	assert_true(x.r.shm->loss_walk.on);              /* others have their turn */
	shm_loss_over(x.r.shm);                          /* a beat has landed meanwhile */
	rig_turn(&x.r);
	assert_int_equal(x.r.loss_done, 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	shm_loss(x.r.shm);
	shm_loss(x.r.shm);                               /* from the beginning */
	rig_turn(&x.r);
	assert_false(x.r.shm->loss_walk.on);
	assert_true(x.r.loss_done <= 1);                 /* it has been told, and may have ended by now */
	many_done(&x, &c, pid);
}

static void lapse_overtakes_a_loss(void **state)
{
	struct rig_client c = { 0 };
	pid_t pid = child_that_waits();
	struct rig_two x;

	(void)state;
	many_open(&x, &c, pid);
	shm_loss(x.r.shm);
	shm_lapse(x.r.shm);
	assert_false(x.r.shm->loss_walk.on);
	many_done(&x, &c, pid);
}

/* No daemon was there when the session ended: its successor tells who held something, and nobody else. */
static void lapse_before_a_restart_is_told_after_it(void **state)
{
	struct rig_two x;
	struct rig_client c = { 0 };
	struct peer p = { .fd = -1, .pidfd = -1, .pid = child_that_waits() };
	int status, fd[2];
	char byte[8];

	(void)state;
	scene_open(&x);
	assert_int_equal(peer_pidfd(&p), 0);
	assert_int_equal(client_new(x.r.shm, &p, 0, &c.c, &c.anchor), 0);
	c.index = c.c->index;
	uint32_t slot = rig_name(&x.r, &c, x.s, "k");
	rig_want(x.s, slot);
	rig_turn(&x.r);
	assert_int_equal(client_onloss(c.c, x.r.shm, x.s, slot, SIGUSR1), 0);
	assert_true(rig_take(x.s, slot, &c));
	rig_two_take(&x, &x.a);
	assert_int_equal(hint_open(x.a.c, x.r.shm, x.s, x.slot, &fd[0]), 0);
	assert_int_equal(hint_open(x.b.c, x.r.shm, x.s, x.slot, &fd[1]), 0);
	x.r.late = true;
	scene_again(&x);
	assert_int_equal(read(fd[0], byte, sizeof byte), 1);
	assert_true(read(fd[1], byte, sizeof byte) < 0);
	assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	scene_again(&x);
	assert_true(read(fd[0], byte, sizeof byte) < 0);         /* once */
	close(fd[0]);
	close(fd[1]);
	close(p.pidfd);
	rig_client_end(&x.r, &c);
	rig_two_done(&x);
}

/* Each of them has about half of what was left. */
static void passed_over_often(void **state)
{
	unsigned passed = 0;
	struct rig_two x;

	(void)state;
	scene_open(&x);
	for (unsigned i = 0; i < 40; i++) {
		uint64_t room = name_at(x.s, x.slot)->room ? name_at(x.s, x.slot)->room : x.r.range;
		uint64_t w = lock_range_word(room / 2) | LOCK_W | x.a.index;

		word_store(x.word, w);
		passed += readers_pass_over(x.s, x.slot, w);
	}
	assert_true(passed > 3);
	assert_true(name_at(x.s, x.slot)->room >= 4096);
	shm_lapse(x.r.shm);
	assert_null(x.s->broken);
	rig_two_done(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(free_lease_goes_at_once, "a free lease is given back at once"),
		STORY(who_only_tries_gets_what_is_idle, "one that only tries gets it if it is idle"),
		STORY(holder_keeps_it_and_is_the_last, "a holder keeps the lock, and nobody of this node takes it after him"),
		STORY(lost_ring_costs_ten_milliseconds, "whoever does not ring delays it by ten milliseconds"),
		STORY(dead_holder_gives_it_up, "a holder's death gives the lease up"),
		STORY(woken_has_it_once, "who was woken for a lease has it once before it goes"),
		STORY(promise_is_bounded, "... unless he does not come"),
		STORY(burst_is_bounded, "local hand-overs after a revoke last for the burst's span"),
		STORY(burst_ends_by_its_count, "and for its count"),
		STORY(who_is_alone_has_no_burst, "who is alone on his node has no burst"),
		STORY(looks_for_readers_are_rationed, "looks for readers of very many names take turns with others"),
		STORY(revoked_while_it_asks_for_tokens, "a lease whose tokens are used up goes too"),
		STORY(returned_and_closed, "closed while it is being given back"),
		STORY(lapse_takes_what_is_held, "a lapse takes the deadline and what is held"),
		STORY(lapse_twice_takes_what_is_read, "a session that ends once more, after a daemon died in the midst, takes what was read"),
		STORY(lost_hold_is_like_no_later_one, "a lost hold is like no later one"),
		STORY(short_ranges_have_the_tokens_of_their_grant, "tokens after a lapse are those of the grant"),
		STORY(last_tokens_of_a_range_cost_the_space, "a hold at the end of its range costs the space"),
		STORY(passed_over_often, "owners who are passed over do not wear a name down"),
		STORY(claim_outlives_a_lapse, "a claim outlives a lapse"),
		STORY(claim_that_nobody_waits_for_is_given_up, "a claim that nobody waits for any more is given up"),
		STORY(lost_grant_says_owner_died, "a grant that says lost is told to robust takers"),
		STORY(lost_grant_says_so_after_a_restart, "and so it does where the daemon dies between ledger and word"),
		STORY(death_is_said_again_after_a_restart, "a death is given back, or said again by the daemon's successor"),
		STORY(burst_is_not_cut_short_by_an_earlier_wish, "a burst is not cut short by an earlier wish for the lease"),
		STORY(restart_before_the_end_goes_on, "a restart keeps the deadline, and what is held"),
		STORY(lapse_before_a_restart_is_told_after_it, "who held something when no daemon was there is told by the next"),
		STORY(loss_of_many_goes_in_slices, "a loss of very many names takes turns with others"),
		STORY(lapse_overtakes_a_loss, "a lapse that comes before a loss is through tells the rest"),
		STORY(loss_signals_whoever_asked, "a loss kills whoever asked for that, and waits for the end"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	rig_private();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
