/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long a node keeps a free semaphore that others want: with nothing in it, and somebody who waits for it here, longer each
 * time; but not from one who brings posts. The store answers at once, the master is the test.
 */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../daemon/shm/pool.h"
#include "../../include/proto/futex.h"

#define MS NSEC_PER_MSEC

struct scene {
	struct rig r;
	struct space *s;
	struct rig_client c;
	struct pool *p;
	uint32_t slot, account;
	pid_t sleeper;
};

/* --- what the node would do --- */

static unsigned claims, presses, releases;
static bool presses_said;
static uint8_t record[POOL_RECORD_SIZE];
static uint64_t version;

static void claim(void *arg, struct pool *p)
{
	(void)arg;
	claims++;
	presses_said = p->presses;
}

static void press(void *arg, struct pool *p)
{
	(void)arg, (void)p;
	presses++;
}

static void release(void *arg, struct pool *p)
{
	(void)arg;
	releases++;
	pool_ledger_release(p->o.space, p->o.slot);
	pool_forgotten(p->o.space, p->o.slot);
}

static int store(void *arg, struct pool *p, const void *bytes, size_t n)
{
	(void)arg;
	if (p->op == POOL_PUT) {
		memcpy(record, bytes, n);
		version++;
	}
	pool_answered(p, &(struct pool_answer){ 0, version, record, sizeof record });
	return 0;
}

static void drop(void *arg, struct pool *p)
{
	(void)arg, (void)p;
}

static const struct pool_ops ops = { claim, press, release, store, drop };

/* --- the stage --- */

static void passes(struct scene *x, unsigned ms)
{
	fake_loop_advance(x->r.loop, ms * MS);
}

static void value_lies_there(uint32_t value)
{
	uint64_t v[2] = { (uint64_t)value << 32 | 1, 77 };

	memcpy(record, v, sizeof record);
	version = 5;
}

static void scene_open(struct scene *x)
{
	struct client_what what = { KIND_POOL, 0, "n", 1 };

	claims = presses = releases = 0;
	value_lies_there(0);
	rig_open(&x->r);
	x->r.shm->ops.pool = &ops;
	x->s = rig_space(&x->r, "x");
	x->c = rig_client(&x->r);
	assert_int_equal(client_open(x->c.c, x->r.shm, x->s, &what, &x->slot, &x->account), 0);
	rig_turn(&x->r);
	x->p = pool_in(x->s, x->slot);
	assert_non_null(x->p);
}

static void rings(struct scene *x)
{
	seg_bit_set(x->s->base, SEG_WANT, x->account);
	rig_ring(x->s);
	rig_turn(&x->r);
}

/* A process that sleeps on the word, whatever it is, until the scene is over. */
static void waits_here(struct scene *x)
{
	struct pool_words *w = (struct pool_words *)seg_slot(x->s->base, x->slot);
	int r = 0;

	__atomic_fetch_add(&w->waiters, 1, __ATOMIC_SEQ_CST);
	x->sleeper = fork();
	if (x->sleeper == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);        /* a test that fails does not come to scene_done() */
	for (; x->sleeper == 0;)
		futex_wait_class((uint32_t *)&w->value, (uint32_t)w->value, UINT32_MAX, CLOCK_MONOTONIC, &(struct timespec){ INT32_MAX, 0 });
	assert_true(x->sleeper > 0);
	for (int i = 0; i < 20000 && (r = futex_sleepers((uint32_t *)&w->value, (uint32_t)w->value)) == 0; i++)
		usleep(1000);
	assert_true(r);
}

/* It is woken whenever something changes, and soon asleep again. */
static void sleeps(struct scene *x)
{
	struct pool_words *w = (struct pool_words *)seg_slot(x->s->base, x->slot);

	for (int i = 0; i < 20000 && futex_sleepers((uint32_t *)&w->value, (uint32_t)w->value) == 0; i++)
		usleep(1000);
}

static void granted(struct scene *x)
{
	assert_int_equal(x->p->state, POOL_ASKED);
	pool_ledger_grant(x->s, x->slot, &(struct pool_lease){ ++x->r.next_token, 1 });
	pool_granted(x->s, x->slot);
	rig_turn(&x->r);
	assert_int_equal(x->p->state, POOL_OPEN);
}

static void scene_done(struct scene *x)
{
	if (x->sleeper > 0) {
		kill(x->sleeper, SIGKILL);
		waitpid(x->sleeper, NULL, 0);
	}
	rig_client_end(&x->r, &x->c);
	rig_done(&x->r);
}

/* Opened in vain so often that it stays for long. */
static void in_vain(struct scene *x)
{
	waits_here(x);
	rings(x);
	for (int i = 0; i < 8; i++) {
		granted(x);
		sleeps(x);
		pool_revoke(x->s, x->slot, false);
		rig_turn(&x->r);
		for (int k = 0; k < 1000 && x->p->state == POOL_OPEN; k++)
			passes(x, 1);
		sleeps(x);                       /* closing it has woken them */
		rings(x);
		assert_int_equal(x->p->state, POOL_ASKED);       /* given back, and wanted again */
	}
	granted(x);
	sleeps(x);
	releases = 0;
}

/* Others want it too, and for so long it stays. */
static void kept_for_its_own(struct scene *x)
{
	scene_open(x);
	in_vain(x);
	pool_revoke(x->s, x->slot, false);
	rig_turn(&x->r);
}

static void kept(void **state)
{
	struct scene x = { 0 };

	(void)state;
	kept_for_its_own(&x);
	for (int i = 0; i < 10; i++) {
		sleeps(&x);
		passes(&x, 5);
	}
	assert_int_equal(releases, 0);
	scene_done(&x);
}

static void given_to_posts(void **state)
{
	struct scene x = { 0 };

	(void)state;
	scene_open(&x);
	in_vain(&x);
	pool_revoke(x.s, x.slot, true);
	rig_turn(&x.r);
	assert_int_equal(releases, 1);
	scene_done(&x);
}

static void given_to_posts_that_come_later(void **state)
{
	struct scene x = { 0 };

	(void)state;
	kept_for_its_own(&x);
	assert_int_equal(releases, 0);
	pool_revoke(x.s, x.slot, true);
	rig_turn(&x.r);
	assert_int_equal(releases, 1);
	scene_done(&x);
}

/* While it is elsewhere: the claim says so, and where one waits already, that is raised. */
static void posts_press(void **state)
{
	struct scene x = { 0 };
	struct pool_words *w;

	(void)state;
	scene_open(&x);
	w = (struct pool_words *)seg_slot(x.s->base, x.slot);
	__atomic_fetch_add(&w->posts, 1, __ATOMIC_SEQ_CST);
	rings(&x);
	assert_int_equal(claims, 1);
	assert_true(presses_said);
	assert_int_equal(presses, 0);
	granted(&x);
	assert_int_equal(pool_word_value(x.p), 1);
	pool_revoke(x.s, x.slot, false);
	passes(&x, 10);
	assert_int_equal(releases, 1);           /* nobody here waits for what is in it */
	assert_int_equal(record[4], 1);
	waits_here(&x);
	rings(&x);
	assert_int_equal(claims, 2);
	assert_false(presses_said);
	__atomic_fetch_add(&w->posts, 1, __ATOMIC_SEQ_CST);
	rings(&x);
	assert_int_equal(presses, 1);
	rings(&x);
	assert_int_equal(presses, 1);
	granted(&x);
	assert_int_equal(pool_word_value(x.p), 2);
	scene_done(&x);
}

/* Others wait too, and the node keeps it for its own: a post that nobody here takes goes on at once. */
static void post_in_vain(void **state)
{
	struct scene x = { 0 };
	struct pool_words *w;

	(void)state;
	kept_for_its_own(&x);
	w = (struct pool_words *)seg_slot(x.s->base, x.slot);
	passes(&x, 5);
	sleeps(&x);
	assert_int_equal(releases, 0);
	assert_int_equal(w->written, 1);         /* the next change rings */
	assert_int_equal(pool_give(&w->value, 1), POOL_GIVEN);
	rings(&x);
	passes(&x, 1);
	assert_int_equal(releases, 1);
	assert_int_equal(record[4], 1);
	scene_done(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(kept, "a node where somebody waits keeps what has been in vain so far"),
		STORY(given_to_posts, "one who brings posts gets it at once"),
		STORY(given_to_posts_that_come_later, "also when others had asked for it before"),
		STORY(posts_press, "posts for a value that is elsewhere are asked for with priority, and raise a claim that waits"),
		STORY(post_in_vain, "a post here makes it go on as soon as any value does"),
	};

	rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
