/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each call of dlock.h, each error that it names, one process, a fake daemon. */
#include "client_rig.h"

#include <sys/syscall.h>

static void names_are_checked(void **state)
{
	char space[80], name[300];
	dlock_t *l;

	(void)state;
	memset(space, 's', sizeof space);
	memset(name, 'n', sizeof name);
	fails(EINVAL, dlock_open(&l, NULL, NULL));
	fails(EINVAL, dlock_open(NULL, "x", NULL));
	fails(EINVAL, dlock_open(&l, "", NULL));
	fails(EINVAL, dlock_open(&l, "/x", NULL));
	fails(EINVAL, dlock_open(&l, "x/", NULL));
	fails(EINVAL, dlock_open(&l, "a b/x", NULL));
	fails(EINVAL, dlock_open(&l, "line\nbreak", NULL));
	fails(EINVAL, dlock_open(&l, "del\x7f", NULL));
	fails(EINVAL, dlock_open(&l, "c1\xc2\x85", NULL));
	fails(EINVAL, dlock_open(&l, "latin1 \xe4", NULL));
	fails(EINVAL, dlock_open(&l, "overlong \xc0\xaf", NULL));
	fails(EINVAL, dlock_open(&l, "surrogate \xed\xa0\x80", NULL));
	name[256] = 0;
	fails(ENAMETOOLONG, dlock_open(&l, name, NULL));
	space[65] = '/';
	space[66] = 'x';
	space[67] = 0;
	fails(ENAMETOOLONG, dlock_open(&l, space, NULL));
	name[255] = 0;
	ok(dlock_open(&l, name, NULL));
	assert_int_equal(strlen(dlock_name(l)), 8 + 255);
	ok(dlock_close(l));
	ok(dlock_open(&l, "J\xc3\xbcrgen \xf0\x9f\x94\x92 a/b", NULL) == EINVAL ? 0 : 1);  /* "J… a" is no space */
	ok(dlock_open(&l, "my-Space_1/a/b \xf0\x9f\x94\x92", NULL));
	assert_string_equal(dlock_name(l), "my-Space_1/a/b \xf0\x9f\x94\x92");
	ok(dlock_close(l));
	assert_string_equal(dlock_version(), "0.1.0");
}

static void a_lock_is_taken_and_given_back(void **state)
{
	dlock_t *l = rig_open("x", 0), *same;
	uint64_t a, b, none = 7;

	(void)state;
	fails(EPERM, dlock_post(l));
	fails(EPERM, dlock_check(l));
	fails(EPERM, dlock_token(l, &none));
	fails(EPERM, dlock_consistent(l));
	assert_int_equal(none, 7);
	ok(dlock_wait(l));
	ok(dlock_check(l));
	ok(dlock_token(l, &a));
	fails(EDEADLK, dlock_wait(l));
	fails(EBUSY, dlock_trywait(l));
	fails(EBUSY, dlock_close(l));
	ok(dlock_post(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_trywait(l));
	ok(dlock_token(l, &b));
	assert_true(b == a + 1);
	ok(dlock_post(l));

	ok(dlock_open(&same, "default/x", NULL));
	ok(dlock_wait(same));
	fails(EDEADLK, dlock_wait(l));
	fails(EBUSY, dlock_trywait(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_post(same));
	ok(dlock_close(same));
	ok(dlock_close(NULL));
	assert_int_equal(FAKE_GET(&fake, opens), 1);
	assert_int_equal(fake_closed(&fake, 1), 1);
	assert_int_equal(FAKE_GET(&fake, hellos) <= 2, 1);
}

/* Ranges of one, two and three tokens: each acquisition has the next number, across ranges too. */
static void tokens_rise_by_one_within_and_across_ranges(void **state)
{
	dlock_t *l = rig_open("x", 0);
	uint64_t last = 0, t;

	(void)state;
	for (uint64_t range = 1; range <= 3; range++) {
		FAKE_SET(&fake, range, range);
		for (int i = 0; i < 12; i++) {
			ok(dlock_wait(l));
			ok(dlock_token(l, &t));
			assert_true(t == last + 1);
			last = t;
			ok(dlock_post(l));
		}
	}
	assert_true(FAKE_GET(&fake, grants) >= 12 + 6 + 4);
	ok(dlock_close(l));
}

static void the_largest_range_works(void **state)
{
	dlock_t *l = rig_open("x", PROCESS | RECURSIVE), *k = rig_open("x", 0);

	(void)state;
	FAKE_SET(&fake, range, UINT64_C(1) << 39);       /* the word is LOCK_L alone */
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_wait(k));
	ok(dlock_post(k));
	ok(dlock_close(l));
	ok(dlock_close(k));
}

static void other_threads_are_told_apart(void **state)
{
	dlock_t *l = rig_open("x", 0);

	(void)state;
	ok(dlock_wait(l));
	fails(EPERM, rig_elsewhere(rig_post, l));
	fails(EPERM, rig_elsewhere(rig_check, l));
	fails(EBUSY, rig_elsewhere(rig_trywait, l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void a_hold_of_the_process_may_be_posted_by_any_thread(void **state)
{
	dlock_t *l = rig_open("x", PROCESS);
	struct timespec t = after_ms(CLOCK_MONOTONIC, 20);

	(void)state;
	ok(rig_elsewhere(rig_wait, l));          /* and outlives its taker */
	ok(dlock_check(l));
	fails(EBUSY, dlock_trywait(l));
	fails(ETIMEDOUT, dlock_clockwait(l, CLOCK_MONOTONIC, &t));       /* no EDEADLK */
	ok(rig_elsewhere(rig_post, l));
	fails(EPERM, dlock_post(l));
	ok(dlock_close(l));
}

static void recursive_handles_count(void **state)
{
	dlock_t *l = rig_open("x", RECURSIVE), *p = rig_open("y", RECURSIVE | PROCESS);

	(void)state;
	ok(dlock_wait(l));
	ok(dlock_wait(l));
	ok(dlock_trywait(l));
	fails(EBUSY, rig_elsewhere(rig_trywait, l));
	ok(dlock_post(l));
	ok(dlock_post(l));
	ok(dlock_check(l));
	fails(EBUSY, rig_elsewhere(rig_trywait, l));
	ok(dlock_post(l));
	fails(EPERM, dlock_post(l));

	ok(dlock_wait(p));
	ok(rig_elsewhere(rig_wait, p));
	ok(rig_elsewhere(rig_post, p));
	ok(dlock_check(p));
	ok(rig_elsewhere(rig_post, p));
	fails(EPERM, dlock_post(p));
	ok(dlock_close(l));
	ok(dlock_close(p));
}

static int wait_and_end(void *l)
{
	return dlock_wait(l);
}

static void a_thread_that_ends_releases_and_robust_handles_are_told(void **state)
{
	dlock_t *l = rig_open("x", ROBUST), *plain = rig_open("x", 0);

	(void)state;
	fails(EINVAL, (dlock_wait(l), dlock_consistent(l)));
	ok(dlock_post(l));
	ok(rig_elsewhere(wait_and_end, l));
	ok(dlock_wait(plain));                   /* not robust: just gets it, and leaves the mark */
	fails(EINVAL, dlock_consistent(plain));
	ok(dlock_post(plain));
	fails(EOWNERDEAD, dlock_wait(l));
	ok(dlock_check(l));
	ok(dlock_post(l));
	fails(EOWNERDEAD, dlock_trywait(l));     /* nobody has mended it */
	ok(dlock_consistent(l));
	fails(EINVAL, dlock_consistent(l));
	ok(dlock_post(l));
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(plain));
}

static void limits_are_kept_on_both_clocks(void **state)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	dlock_t *l = rig_open("x", 0), *k = rig_open("x", PROCESS);
	struct timespec t, bad = { 1, 1000000000 }, past = { -5, 0 };

	(void)state;
	ok(dlock_wait(l));
	for (int i = 0; i < 2; i++) {
		long begin = now_ms();

		t = after_ms(clocks[i], 50);
		fails(ETIMEDOUT, dlock_clockwait(k, clocks[i], &t));
		assert_in_range(now_ms() - begin, 45, PATIENCE_MS);
	}
	t = after_ms(CLOCK_REALTIME, -1000);
	fails(ETIMEDOUT, dlock_timedwait(k, &t));
	fails(ETIMEDOUT, dlock_timedwait(k, &past));
	fails(EINVAL, dlock_timedwait(k, &bad));
	fails(EINVAL, dlock_timedwait(k, NULL));
	fails(EINVAL, dlock_clockwait(k, CLOCK_BOOTTIME, &t));
	ok(dlock_post(l));
	ok(dlock_timedwait(k, &past));           /* free: taken all the same, as POSIX has it */
	ok(dlock_post(k));
	fails(EINVAL, dlock_clockwait(k, CLOCK_BOOTTIME, &t));
	ok(dlock_close(l));
	ok(dlock_close(k));
}

/* The library's calls come here; the kernel's clock stays as it is. So a clock that is set back can be played. */
static int64_t realtime_off;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (clock == CLOCK_REALTIME)
		ret->tv_sec += __atomic_load_n(&realtime_off, __ATOMIC_ACQUIRE);
	return r;
}

static int wait_some_hours(void *l)
{
	struct timespec t = after_ms(CLOCK_REALTIME, 4 * 3600 * 1000);

	return dlock_timedwait(l, &t);
}

static void a_clock_that_is_set_back_stretches_no_moment(void **state)
{
	dlock_t *l = rig_open("x", 0), *fast = rig_open("y", FAILFAST | PROCESS);
	struct rig_thread t, f;
	long begin;

	(void)state;
	FAKE_SET(&fake, forget, false);
	ok(dlock_wait(fast));
	__atomic_store_n(&realtime_off, 3 * 3600, __ATOMIC_RELEASE);
	fake_break(&fake, "default");
	ok(dlock_wait(fast));
	rig_spawn(&f, wait_some_hours, fast);
	assert_true(rig_sleeps_on(fake_word(&fake, "y")));
	fake_away(&fake, true);
	rig_spawn(&t, wait_some_hours, l);       /* looks for the daemon, now and then */
	nap_ms(20);
	__atomic_store_n(&realtime_off, 0, __ATOMIC_RELEASE);
	begin = now_ms();
	fails(ENOTCONN, rig_join(&f));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	fake_away(&fake, false);
	ok(rig_join(&t));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	ok(dlock_cancel(l));
	ok(dlock_post(fast));
	ok(dlock_close(fast));
}

static void a_try_asks_the_daemon_but_not_for_ever(void **state)
{
	dlock_t *l = rig_open("x", 0), *never;
	dlock_attr_t *a;
	long begin;

	(void)state;
	FAKE_SET(&fake, range, 0);
	begin = now_ms();
	fails(EBUSY, dlock_trywait(l));
	assert_in_range(now_ms() - begin, 290, PATIENCE_MS);
	ok(dlock_attr_create(&a));
	ok(dlock_attr_set_try_ms(a, 0));
	ok(dlock_open(&never, "y", a));
	for (int tries = 0; tries < TRIES; tries++) {    /* again where it was late: it asks nobody */
		begin = now_ms();
		fails(EBUSY, dlock_trywait(never));
		begin = now_ms() - begin;
		if (begin <= 100)
			break;
	}
	assert_in_range(begin, 0, 100);
	fails(EINVAL, dlock_attr_set_owner(a, (enum dlock_owner)7));
	dlock_attr_destroy(a);
	dlock_attr_destroy(NULL);
	FAKE_SET(&fake, range, 5);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_trywait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(never));
}

static void wanted_shows_a_waiter(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t;

	(void)state;
	ok(dlock_wait(l));
	ok(dlock_post(l));                       /* this thread itself has waited, for the first token */
	ok(dlock_wanted(l));
	ok(dlock_wait(l));
	ok(dlock_wanted(l));
	rig_spawn(&t, rig_wait, l);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	fails(EBUSY, dlock_wanted(l));
	fails(EBUSY, dlock_close(l));
	ok(dlock_post(l));
	ok(rig_join(&t));
	ok(dlock_close(l));
}

static void a_forced_release_is_noticed(void **state)
{
	dlock_t *l = rig_open("x", RECURSIVE), *k = rig_open("x", 0);
	uint64_t t;

	(void)state;
	ok(dlock_wait(l));
	ok(dlock_wait(l));
	fake_release(&fake, "x");
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_token(l, &t));
	fails(ESTALE, dlock_consistent(l));
	ok(dlock_wait(k));
	fails(ESTALE, dlock_post(l));
	fails(ESTALE, dlock_post(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_check(k));
	ok(dlock_post(k));
	ok(dlock_wait(l));                       /* the handle is good to wait on again */
	ok(dlock_post(l));

	/* A lost hold in the way of another thread through the same handle. */
	ok(dlock_wait(l));
	fake_release(&fake, "x");
	ok(rig_elsewhere(rig_trywait, l));
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_post(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(k));
}

static int wait_check_post(void *l)
{
	int r = dlock_wait(l);

	if (r == 0)
		r = dlock_check(l);
	return r ? r : dlock_post(l);
}

static void a_hold_that_is_lost_while_others_wait_through_the_handle(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t;

	(void)state;
	ok(dlock_wait(l));
	rig_spawn(&t, wait_check_post, l);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	nap_ms(20);
	fake_release(&fake, "x");
	ok(rig_join(&t));
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_post(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_close(l));
}

/* Nobody looks after sleepers: whatever is needed has to be asked for, with the bell. */
static void the_bell_rings_for_every_token(void **state)
{
	dlock_t *l = rig_open("x", 0);
	long begin = 0;

	(void)state;
	FAKE_SET(&fake, blind, true);
	FAKE_SET(&fake, range, 1);
	for (int tries = 0; tries < TRIES; tries++) {
		begin = now_ms();
		for (int i = 0; i < 50; i++) {
			ok(dlock_wait(l));
			ok(dlock_post(l));
		}
		begin = now_ms() - begin;
		if (begin <= 900)
			break;
	}
	assert_in_range(begin, 0, 900);          /* a sleeper looks by itself after a second */
	ok(dlock_close(l));
}

static void the_descriptor_hints(void **state)
{
	dlock_t *l = rig_open("x", 0);
	int fd, again;
	char c;

	(void)state;
	ok(dlock_fd(l, &fd));
	ok(dlock_fd(l, &again));
	assert_int_equal(fd, again);
	assert_int_equal(FAKE_GET(&fake, hints), 1);
	ok(dlock_wait(l));
	ok(dlock_check(l));
	fake_hint(&fake, "x");
	assert_int_equal(read(fd, &c, 1), 1);
	fake_hint(&fake, "x");
	ok(dlock_check(l));                      /* drains it */
	assert_int_equal(read(fd, &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
	ok(dlock_post(l));
	ok(dlock_close(l));
	assert_int_equal(read(fd, &c, 1), -1);
	assert_int_equal(errno, EBADF);
}

static void errno_is_left_alone(void **state)
{
	struct timespec t = { 0, 0 };
	dlock_t *l, *k;
	int fd;

	(void)state;
	errno = 4711;
	l = rig_open("x", 0);
	k = rig_open("x", PROCESS);
	assert_int_equal(errno, 4711);
	ok(dlock_wait(l));
	fails(ETIMEDOUT, dlock_timedwait(k, &t));
	fails(EBUSY, dlock_trywait(k));
	ok(dlock_fd(l, &fd));
	ok(dlock_check(l));
	ok(dlock_post(l));
	fake_away(&fake, true);
	fails(ENOTCONN, dlock_open(&k, "y", NULL));
	ok(dlock_close(l));
	assert_int_equal(errno, 4711);
	ok(dlock_close(k));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(names_are_checked),
		test(a_lock_is_taken_and_given_back),
		test(tokens_rise_by_one_within_and_across_ranges),
		test(the_largest_range_works),
		test(other_threads_are_told_apart),
		test(a_hold_of_the_process_may_be_posted_by_any_thread),
		test(recursive_handles_count),
		test(a_thread_that_ends_releases_and_robust_handles_are_told),
		test(limits_are_kept_on_both_clocks),
		test(a_clock_that_is_set_back_stretches_no_moment),
		test(a_try_asks_the_daemon_but_not_for_ever),
		test(wanted_shows_a_waiter),
		test(a_forced_release_is_noticed),
		test(a_hold_that_is_lost_while_others_wait_through_the_handle),
		test(the_bell_rings_for_every_token),
		test(the_descriptor_hints),
		test(errno_is_left_alone),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
