/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared holds in a process, while things happen to the word that only another node, or the end of a session, brings about: here the
 * test does them by hand.
 */
#include "client_rig.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "proto/futex.h"
#include "proto/readers.h"

#define STRANGER 60000u                  /* a client that owns the word, to all appearances */

static struct seg_slot *slot;
static dlock_t *reader;

static void begin(unsigned flags)
{
	reader = rig_open("x", flags);
	slot = fake_slot(&fake, "x");
}

/* A thread that reads, and then wants to be alone. */
struct upgrade {
	struct rig_thread t;
	int reads, go;
};

static int read_and_upgrade(void *arg)
{
	struct upgrade *u = arg;
	int r = dlock_wait_shared(reader);

	__atomic_store_n(&u->reads, 1, __ATOMIC_RELEASE);
	while (r == 0 && !__atomic_load_n(&u->go, __ATOMIC_ACQUIRE))
		nap_ms(1);
	if (r)
		return r;
	r = dlock_upgrade(reader);
	dlock_post(reader);
	return r;
}

static void upgrade_spawn(struct upgrade *u)
{
	*u = (struct upgrade){ 0 };
	rig_spawn(&u->t, read_and_upgrade, u);
	while (!__atomic_load_n(&u->reads, __ATOMIC_ACQUIRE))
		nap_ms(1);
}

static void upgrade_go(struct upgrade *u)
{
	__atomic_store_n(&u->go, 1, __ATOMIC_RELEASE);
}

/* -1: it goes on. */
static int upgrade_within(struct upgrade *u, long ms)
{
	for (long until = now_ms() + ms; now_ms() < until; nap_ms(1))
		if (rig_done(&u->t))
			return rig_join(&u->t);
	return -1;
}

/* Somebody else owns the word, and is not inside. */
static uint64_t stranger_takes(void)
{
	struct lock_waiter t = { .me = STRANGER };
	uint64_t w;

	assert_int_equal(lock_turn(&slot->word, &t, &w), LOCK_TAKEN);
	return w;
}

static void wake_all(void)
{
	futex_wake_class(lock_futex(&slot->word), INT_MAX, LOCK_CLASS_ANY);
}

/* As the daemon does it: all is lost, and then the lease comes again, before the one who waits has looked. */
static void lapse_and_come_back(void)
{
	uint64_t gate;

	lock_lapse(&slot->word);
	gate = READ_LOAD(&slot->gate);
	READ_SWAP(&slot->gate, (gate & ~(GATE_ERA | GATE_LOW)) | ((gate + GATE_ERA_ONE) & GATE_ERA));
	READ_SWAP(&slot->readers, 0);
	__atomic_fetch_add(&slot->gate, GATE_GRANT, __ATOMIC_SEQ_CST);
	assert_true(lock_grant(&slot->word, 1000));
	wake_all();
}

static void upgrade_of_what_was_lost(void **state)
{
	struct upgrade u;

	(void)state;
	begin(0);
	upgrade_spawn(&u);
	stranger_takes();
	upgrade_go(&u);
	assert_true(rig_sleeps_on(&slot->word));
	lapse_and_come_back();
	assert_int_equal(upgrade_within(&u, PATIENCE_MS), ESTALE);
	assert_int_equal(LOCK_LOAD(&slot->word) & LOCK_OWNER, 0);
	ok(dlock_wait(reader));
	ok(dlock_post(reader));
	ok(dlock_close(reader));
}

/* In the new era another thread of the same process is upgrading already. */
static void upgrade_of_another_era(void **state)
{
	uint64_t client, gate;
	struct upgrade u;

	(void)state;
	begin(0);
	upgrade_spawn(&u);
	stranger_takes();
	upgrade_go(&u);
	assert_true(rig_sleeps_on(&slot->word));
	client = READ_LOAD(&slot->gate) & GATE_UPGRADER;
	assert_int_not_equal(client, 0);
	lock_lapse(&slot->word);
	gate = READ_LOAD(&slot->gate);
	READ_SWAP(&slot->gate, (gate & ~(GATE_ERA | GATE_LOW)) | ((gate + GATE_ERA_ONE) & GATE_ERA) | client);
	assert_true(lock_grant(&slot->word, 1000));
	wake_all();
	assert_int_equal(upgrade_within(&u, PATIENCE_MS), ESTALE);
	assert_int_equal(READ_LOAD(&slot->gate) & GATE_UPGRADER, client);
	READ_AND(&slot->gate, ~GATE_LOW);
	ok(dlock_close(reader));
}

/* --- A handler forks while the thread upgrades: in the child it is over, in the parent it is not --- */

static volatile pid_t child;

static void fork_now(int signo)
{
	(void)signo;
	child = fork();
}

static int upgrade_or_end(void *l)
{
	int r = dlock_wait_shared(l);

	if (r == 0)
		r = dlock_upgrade(l);
	if (child == 0)
		_exit(r == ESTALE ? 0 : 1);
	return r ? r : dlock_post(l);
}

static void upgrade_is_not_the_childs(void **state)
{
	struct sigaction act = { .sa_handler = fork_now }, was;
	struct rig_thread t;
	int status;
	uint64_t w;

	(void)state;
	begin(0);
	child = -1;
	ok(sigaction(SIGUSR1, &act, &was));
	ok(dlock_wait_shared(reader));           /* it waits for us */
	rig_spawn(&t, upgrade_or_end, reader);
	while (!(READ_LOAD(&slot->drain) & DRAIN_OWNER))
		nap_ms(1);
	w = READ_LOAD(&slot->gate);
	pthread_kill(t.id, SIGUSR1);
	while (child <= 0)
		nap_ms(1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(READ_LOAD(&slot->gate), w);
	fails(EDEADLK, dlock_upgrade(reader));
	ok(dlock_post(reader));
	ok(rig_join(&t));
	ok(sigaction(SIGUSR1, &was, NULL));
	ok(dlock_close(reader));
}

/* Another node waits for all who read, and the tokens are used up: none will come before we give back what we have. */
static void upgrade_without_tokens(void **state)
{
	struct upgrade u;
	uint64_t w;

	(void)state;
	begin(0);
	upgrade_spawn(&u);
	FAKE_SET(&fake, range, 0);
	w = LOCK_LOAD(&slot->word);
	__atomic_store_n(&slot->word, (w & ~LOCK_COUNT) | LOCK_Y, __ATOMIC_SEQ_CST);
	upgrade_go(&u);
	assert_int_equal(upgrade_within(&u, PATIENCE_MS), EDEADLK);
	ok(dlock_close(reader));
}

static int write_once(void *l)
{
	int r = dlock_wait(l);

	return r ? r : dlock_post(l);
}

static int try_shared(void *l)
{
	int r = dlock_trywait_shared(l);

	return r ? r : dlock_post(l);
}

/* It owns the word on its way in, and gets no processor for a while: that is no reason to refuse another. Where it is stopped, it is. */
static void a_try_waits_for_a_reader_on_its_way_in(void **state)
{
	struct lock_waiter passing = { .me = STRANGER };         /* without X, as readers do */
	struct rig_thread t;
	long from;
	uint64_t w;

	(void)state;
	begin(0);
	ok(dlock_wait_shared(reader));           /* once, so that there is a line */
	ok(dlock_post(reader));
	assert_int_equal(lock_turn(&slot->word, &passing, &w), LOCK_TAKEN);
	assert_false(w & LOCK_EXCLUSIVE);
	from = now_ms();
	fails(EBUSY, try_shared(reader));
	assert_in_range(now_ms() - from, 290, PATIENCE_MS);
	READ_OR(&slot->drain, (uint32_t)DRAIN_OWNER);            /* it was a writer, who waits for readers */
	fails(EBUSY, try_shared(reader));
	READ_AND(&slot->drain, ~(uint32_t)DRAIN_OWNER);
	for (int tries = 0; tries < TRIES; tries++) {
		rig_spawn(&t, try_shared, reader);
		nap_ms(30);
		assert_true(lock_release(&slot->word, w, LOCK_READERS));
		if (rig_join(&t) == 0)
			break;
		assert_true(tries + 1 < TRIES);  /* the machine has had no time for it for longer than try_ms */
		assert_int_equal(lock_turn(&slot->word, &passing, &w), LOCK_TAKEN);
	}
	ok(dlock_close(reader));
}

/* A writer who stands aside for an upgrade wakes it, though another node waits, and so nobody else could come. */
static void who_stands_aside_wakes_the_upgrade(void **state)
{
	dlock_t *writer;
	unsigned late = 0;

	(void)state;
	begin(0);
	writer = rig_open("x", 0);
	FAKE_SET(&fake, blind, true);
	for (unsigned i = 0; i < 10; i++) {
		struct rig_thread w;
		struct upgrade u;
		long from;

		upgrade_spawn(&u);
		rig_spawn(&w, write_once, writer);
		while (!(READ_LOAD(&slot->drain) & DRAIN_OWNER))
			nap_ms(1);
		nap_ms(2);
		assert_true(lock_yield(&slot->word));
		from = now_ms();
		upgrade_go(&u);
		ok(upgrade_within(&u, PATIENCE_MS));
		late += now_ms() - from > 500;
		__atomic_fetch_and(&slot->word, ~LOCK_Y, __ATOMIC_SEQ_CST);     /* that node has given up */
		wake_all();
		ok(rig_join(&w));
	}
	if (late > 5)
		fail_msg("%u of 10 upgrades slept on", late);
	ok(dlock_close(writer));
	ok(dlock_close(reader));
}

/* --- Of the process: threads share a cell, and one gives back what another is about to join --- */

static int read_often(void *l)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < 30000; i++) {
		r = dlock_wait_shared(l);
		if (r == 0)
			r = dlock_check(l);
		if (r == 0)
			r = dlock_post(l);
	}
	return r;
}

static void threads_of_the_process(void **state)
{
	struct rig_thread t[3];

	(void)state;
	begin(PROCESS);
	for (unsigned i = 0; i < 3; i++)
		rig_spawn(&t[i], read_often, reader);
	for (unsigned i = 0; i < 3; i++)
		ok(rig_join(&t[i]));
	fails(EPERM, dlock_post(reader));
	ok(dlock_trywait(reader));
	ok(dlock_post(reader));
	ok(dlock_close(reader));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(upgrade_of_what_was_lost),
		test(upgrade_of_another_era),
		test(upgrade_is_not_the_childs),
		test(upgrade_without_tokens),
		test(a_try_waits_for_a_reader_on_its_way_in),
		test(who_stands_aside_wakes_the_upgrade),
		test(threads_of_the_process),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
