/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads of one process against each other. Runs under ThreadSanitizer too. */
#include "client_rig.h"

#include <stdio.h>

#define THREADS 8
#define ROUNDS  2000

static dlock_t *handle[THREADS];
static long counter;                     /* protected by the lock alone: TSan judges */
static int stop;

static long longest_ms;                  /* of all waits */

static int timed(dlock_t *l)
{
	long begin = now_ms(), seen = __atomic_load_n(&longest_ms, __ATOMIC_RELAXED), ms;
	int r = dlock_wait(l);

	ms = now_ms() - begin;
	while (ms > seen && !__atomic_compare_exchange_n(&longest_ms, &seen, ms, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return r;
}

static int stop_checks;

static int count_up(void *arg)
{
	dlock_t *l = arg;
	int r = 0;

	for (int i = 0; i < ROUNDS && r == 0; i++) {
		r = timed(l);
		if (r)
			break;
		counter++;
		r = dlock_post(l);
	}
	return r;
}

static void exclude(unsigned flags, bool share)
{
	struct rig_thread t[THREADS];

	counter = 0;
	for (int i = 0; i < THREADS; i++)
		handle[i] = share && i ? handle[0] : rig_open("x", flags);
	for (int i = 0; i < THREADS; i++)
		rig_spawn(&t[i], count_up, handle[i]);
	for (int i = 0; i < THREADS; i++)
		ok(rig_join(&t[i]));
	assert_int_equal(counter, THREADS * ROUNDS);
	for (int i = 0; i < (share ? 1 : THREADS); i++)
		ok(dlock_close(handle[i]));
}

static void one_handle_each(void **state)
{
	(void)state;
	exclude(0, false);
}

/* A wake-up that is lost shows as a wait of a second, after which a sleeper looks by itself. */
static void no_wake_up_is_lost_without_anybody_looking(void **state)
{
	dlock_t *first = rig_open("x", 0);

	(void)state;
	FAKE_SET(&fake, range, UINT64_C(1) << 30);
	ok(dlock_wait(first));
	ok(dlock_post(first));
	FAKE_SET(&fake, blind, true);
	for (int tries = 0; tries < TRIES; tries++) {
		longest_ms = 0;
		for (int i = 0; i < 5; i++)
			exclude(0, i % 2);
		if (longest_ms <= 900)
			break;
	}
	assert_in_range(longest_ms, 0, 900);
	ok(dlock_close(first));
}

static void one_handle_for_all(void **state)
{
	(void)state;
	exclude(0, true);
}

static void ranges_of_three_tokens(void **state)
{
	(void)state;
	FAKE_SET(&fake, range, 3);
	exclude(ROBUST, true);
}

static void holds_of_the_process(void **state)
{
	(void)state;
	exclude(PROCESS, true);
}

static int wait_until_stopped(void *arg)
{
	dlock_t *l = arg;
	int r, taken = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		r = timed(l);
		if (r == ECANCELED)
			continue;
		if (r != 0)
			return -r;
		counter++;
		taken++;
		r = dlock_post(l);
		if (r != 0)
			return -r;
	}
	return taken;
}

static int time_out_often(void *arg)
{
	dlock_t *l = arg;
	int r = 0, taken = 0;

	for (int i = 0; i < 300 && r == 0; i++) {
		struct timespec t = after_ms(CLOCK_MONOTONIC, 0);

		t.tv_nsec += (i * 7919) % 200000;        /* up to 0.2 ms: about when the lock comes */
		if (t.tv_nsec >= 1000000000) {
			t.tv_sec++;
			t.tv_nsec -= 1000000000;
		}
		r = dlock_clockwait(l, CLOCK_MONOTONIC, &t);
		if (r == ETIMEDOUT) {
			r = 0;
			continue;
		}
		counter++;
		taken++;
		r = r ? r : dlock_post(l);
	}
	return r ? -r : taken;
}

static void timing_out_as_the_lock_comes_orphans_nothing(void **state)
{
	struct rig_thread t[THREADS], patient;
	dlock_t *l = rig_open("x", 0);
	long taken = 0;

	(void)state;
	FAKE_SET(&fake, range, UINT64_C(1) << 30);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	FAKE_SET(&fake, blind, true);            /* what one who leaves does not pass on is lost for a second */
	for (int tries = 0; tries < TRIES; tries++) {
		counter = taken = 0;
		stop = 0;
		longest_ms = 0;
		rig_spawn(&patient, wait_until_stopped, l);
		for (int i = 0; i < THREADS; i++)
			rig_spawn(&t[i], time_out_often, l);
		for (int i = 0; i < THREADS; i++) {
			int r = rig_join(&t[i]);

			assert_true(r >= 0);
			taken += r;
		}
		__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
		taken += rig_join(&patient);
		assert_int_equal(counter, taken);
		if (longest_ms <= 900)
			break;
	}
	assert_in_range(longest_ms, 0, 900);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void cancel_ends_the_waits_of_its_handle_only(void **state)
{
	struct rig_thread t[4], other;
	dlock_t *l = rig_open("x", 0), *k = rig_open("x", 0), *holder = rig_open("x", PROCESS);

	(void)state;
	ok(dlock_cancel(l));                     /* nobody there */
	ok(dlock_wait(holder));
	for (int i = 0; i < 4; i++)
		rig_spawn(&t[i], rig_wait, l);
	rig_spawn(&other, rig_wait, k);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	do {                                     /* not all of them may have begun to wait */
		ok(dlock_cancel(l));
		nap_ms(1);
	} while (!rig_done(&t[0]) || !rig_done(&t[1]) || !rig_done(&t[2]) || !rig_done(&t[3]));
	for (int i = 0; i < 4; i++)
		fails(ECANCELED, rig_join(&t[i]));
	assert_false(rig_done(&other));
	ok(dlock_post(holder));
	ok(rig_join(&other));
	ok(dlock_wait(l));                       /* later waits are not affected */
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(k));
	ok(dlock_close(holder));
}

static int cancel_often(void *arg)
{
	for (int i = 0; i < 200; i++) {
		dlock_cancel(arg);
		nap_ms(1);
	}
	return 0;
}

static void cancels_race_with_grants(void **state)
{
	struct rig_thread t[4], c[2];
	dlock_t *l = rig_open("x", 0);
	long taken = 0;

	(void)state;
	counter = 0;
	stop = 0;
	for (int i = 0; i < 4; i++)
		rig_spawn(&t[i], wait_until_stopped, l);
	for (int i = 0; i < 2; i++)
		rig_spawn(&c[i], cancel_often, l);
	for (int i = 0; i < 2; i++)
		rig_join(&c[i]);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 4; i++) {
		int r = rig_join(&t[i]);

		assert_true(r >= 0);
		taken += r;
	}
	assert_int_equal(counter, taken);
	ok(dlock_close(l));
}

static int wait_and_post(void *l)
{
	int r = timed(l);

	return r ? r : dlock_post(l);
}

/* The release wakes the first; before that one has run, it is cancelled. The second must not sleep on. */
static void one_who_is_cancelled_after_the_wake_passes_it_on(void **state)
{
	dlock_t *h = rig_open("x", 0), *a = rig_open("x", 0), *b = rig_open("x", 0);
	struct rig_thread first, second;
	int cancelled = 0;

	(void)state;
	FAKE_SET(&fake, range, UINT64_C(1) << 30);
	ok(dlock_wait(h));
	ok(dlock_post(h));
	FAKE_SET(&fake, blind, true);
	for (int tries = 0; tries < TRIES; tries++) {
		longest_ms = 0;
		for (int i = 0; i < 50; i++) {
			ok(dlock_wait(h));
			rig_spawn(&first, wait_and_post, a);
			assert_true(rig_sleeps_on(fake_word(&fake, "x")));
			rig_spawn(&second, wait_and_post, b);
			nap_ms(2);
			ok(dlock_post(h));
			ok(dlock_cancel(a));
			cancelled += rig_join(&first) == ECANCELED;
			ok(rig_join(&second));
		}
		if (longest_ms <= 900 && cancelled)
			break;
	}
	assert_in_range(longest_ms, 0, 900);
	assert_true(cancelled > 0);
	ok(dlock_close(h));
	ok(dlock_close(a));
	ok(dlock_close(b));
}

static int open_and_close(void *arg)
{
	char name[20];
	dlock_t *l;
	int r = 0;

	for (int i = 0; i < 100 && r == 0; i++) {
		snprintf(name, sizeof name, "n%d", (i + *(int *)arg) % 5);
		r = dlock_open(&l, name, NULL);
		if (r == 0)
			r = dlock_wait(l);
		if (r == 0)
			r = dlock_post(l);
		if (r == 0)
			r = dlock_close(l);
	}
	return r;
}

static void names_are_opened_and_closed_by_all_at_once(void **state)
{
	static int number[THREADS];
	struct rig_thread t[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++) {
		number[i] = i;
		rig_spawn(&t[i], open_and_close, &number[i]);
	}
	for (int i = 0; i < THREADS; i++)
		ok(rig_join(&t[i]));
	assert_int_equal(fake_closed(&fake, FAKE_GET(&fake, opens)), FAKE_GET(&fake, opens));
}

static int hold_and_end(void *arg)
{
	return dlock_wait(arg);
}

static void threads_that_end_while_holding_pass_the_lock_on(void **state)
{
	struct rig_thread t[THREADS];
	dlock_t *l = rig_open("x", 0);

	(void)state;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < THREADS; i++)
			rig_spawn(&t[i], hold_and_end, l);       /* none of them posts */
		for (int i = 0; i < THREADS; i++)
			ok(rig_join(&t[i]));
	}
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static int check_until_stopped(void *l)
{
	while (!__atomic_load_n(&stop_checks, __ATOMIC_ACQUIRE))
		dlock_check(l);
	return 0;
}

/* The check empties it. */
static void a_descriptor_is_renewed_beside_those_who_check(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t;
	int fd;

	(void)state;
	stop_checks = 0;
	rig_spawn(&t, check_until_stopped, l);
	for (int i = 0; i < FAKE_SPACES - 1; i++) {
		ok(dlock_fd(l, &fd));
		fake_break(&fake, "default");
		nap_ms(2);
	}
	__atomic_store_n(&stop_checks, 1, __ATOMIC_RELEASE);
	ok(rig_join(&t));
	ok(dlock_close(l));
}

static pthread_key_t user_key;
static int in_destructor = -1;

static void user_destructor(void *l)
{
	in_destructor = dlock_check(l) ? 1 : dlock_post(l);
}

static int hold_for_the_destructor(void *l)
{
	pthread_setspecific(user_key, l);
	return dlock_wait(l);
}

static void destructors_of_others_still_hold(void **state)
{
	dlock_t *l = rig_open("x", 0);

	(void)state;
	ok(pthread_key_create(&user_key, user_destructor));
	ok(rig_elsewhere(hold_for_the_destructor, l));
	ok(in_destructor);
	pthread_key_delete(user_key);
	ok(dlock_close(l));
}

static int cancelled_in_wait(void *l)
{
	pthread_cancel(pthread_self());          /* stays pending: no call is a cancellation point */
	return dlock_wait(l) || dlock_post(l) || dlock_check(l) != EPERM;
}

static void no_call_is_a_cancellation_point(void **state)
{
	dlock_t *l = rig_open("x", 0), *k;
	struct rig_thread t;

	(void)state;
	FAKE_SET(&fake, range, 1);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	rig_spawn(&t, cancelled_in_wait, l);     /* has to ask the daemon, and sleep */
	ok(rig_join(&t));
	assert_true(rig_done(&t));
	ok(dlock_open(&k, "y", NULL));
	ok(dlock_close(k));
	ok(dlock_close(l));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(one_handle_each),
		test(no_wake_up_is_lost_without_anybody_looking),
		test(one_handle_for_all),
		test(ranges_of_three_tokens),
		test(holds_of_the_process),
		test(timing_out_as_the_lock_comes_orphans_nothing),
		test(cancel_ends_the_waits_of_its_handle_only),
		test(cancels_race_with_grants),
		test(one_who_is_cancelled_after_the_wake_passes_it_on),
		test(names_are_opened_and_closed_by_all_at_once),
		test(threads_that_end_while_holding_pass_the_lock_on),
		test(a_descriptor_is_renewed_beside_those_who_check),
		test(destructors_of_others_still_hold),
		test(no_call_is_a_cancellation_point),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
