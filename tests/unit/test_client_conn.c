/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The library and its daemon: what either may do wrong, go away, come back, or lose. */
#include <signal.h>

#include "client_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int open_from_elsewhere(void *arg)
{
	char dir[200], *last;
	dlock_t *l;

	(void)arg;
	snprintf(dir, sizeof dir, "%s", fake.dir);
	last = strrchr(dir, '/');
	*last++ = 0;
	if (chdir(dir) < 0 || setenv("DLOCK_RUN_DIR", last, 1) < 0 || dlock_open(&l, "x", NULL))
		return 1;
	for (int fd = 3; fd < 100; fd++)         /* the connection, among others */
		close(fd);
	return chdir("/") < 0 || dlock_close(l) || dlock_open(&l, "y", NULL) ? 2 : 0;
}

/* Daemons change their directory. The first test, since the place of the socket is found once. */
static void the_run_directory_may_be_relative(void **state)
{
	(void)state;
	ok(rig_child(open_from_elsewhere, NULL));
}

static void nobody_there_is_said_at_once(void **state)
{
	dlock_t *l = NULL;

	(void)state;
	fake_away(&fake, true);
	fails(ENOTCONN, dlock_open(&l, "x", NULL));
	assert_null(l);
	fake_away(&fake, false);
	ok(dlock_open(&l, "x", NULL));
	ok(dlock_close(l));
}

static int open_waiting(void *ret)
{
	return rig_try_open("x", WAIT_DAEMON, ret);
}

static void an_open_waits_for_the_daemon_if_asked_to(void **state)
{
	struct rig_thread t;
	dlock_t *l;

	(void)state;
	fake_away(&fake, true);
	rig_spawn(&t, open_waiting, &l);
	nap_ms(120);
	assert_false(rig_done(&t));
	fake_away(&fake, false);
	ok(rig_join(&t));
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void credentials_are_sent_where_the_kernel_cannot_tell(void **state)
{
	dlock_t *l;

	(void)state;
	FAKE_SET(&fake, nonce, true);
	l = rig_open("x", 0);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	assert_int_equal(FAKE_GET(&fake, unnonced), 0);
	ok(dlock_close(l));
}

static void a_clock_with_an_offset_is_refused(void **state)
{
	dlock_t *l;

	(void)state;
	FAKE_SET(&fake, boottime_off, 3600000000000);
	fails(ENOTSUP, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, boottime_off, -3600000000000);
	fails(ENOTSUP, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, boottime_off, 0);
	ok(dlock_open(&l, "x", NULL));
	ok(dlock_close(l));
}

static void what_the_daemon_sends_is_checked(void **state)
{
	dlock_t *l;

	(void)state;
	FAKE_SET(&fake, hello_error, EACCES);
	fails(EACCES, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, hello_error, -3);
	fails(EPROTO, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, no_descriptors, true);
	fails(EPROTO, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, no_descriptors, false);
	FAKE_SET(&fake, error, ENOSPC);
	fails(ENOSPC, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, error, EPROTONOSUPPORT);
	fails(EPROTONOSUPPORT, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, open_slot, SEG_SLOTS_MAX);
	fails(EPROTO, dlock_open(&l, "x", NULL));
	FAKE_SET(&fake, open_slot, 0);
	FAKE_SET(&fake, strange_segment, true);
	fails(EPROTO, dlock_open(&l, "strange/x", NULL));
	FAKE_SET(&fake, strange_segment, false);
	FAKE_SET(&fake, short_segment, true);
	fails(EPROTO, dlock_open(&l, "short/x", NULL));
	FAKE_SET(&fake, short_segment, false);
	ok(dlock_open(&l, "good/x", NULL));
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

/* Errors that a wait gives a meaning of its own: the lock is not taken by an answer. */
static void an_error_of_the_daemon_is_not_mistaken_for_a_hold(void **state)
{
	static const int errors[] = { EALREADY, EOWNERDEAD, EDEADLK, EBUSY, ECANCELED, ETIMEDOUT, ESTALE, EPERM, EINTR };
	dlock_t *l = rig_open("x", ROBUST);

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		if (i % 7 == 0)
			fake_break(&fake, "default");
		FAKE_SET(&fake, error, errors[i]);
		fails(EPROTO, dlock_wait(l));
	}
	FAKE_SET(&fake, error, EAGAIN);          /* the space broke while it was being opened: again */
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void a_failed_open_leaves_nothing_open_at_the_daemon(void **state)
{
	dlock_t *l;

	(void)state;
	FAKE_SET(&fake, strange_segment, true);
	fails(EPROTO, dlock_open(&l, "strange/x", NULL));
	assert_int_equal(FAKE_GET(&fake, opens), 1);
	assert_int_equal(fake_closed(&fake, 1), 1);
	assert_int_equal(FAKE_GET(&fake, names[0].opens), 0);
}

static void no_descriptors_left_is_an_error_not_a_hang(void **state)
{
	struct rlimit old, tight;
	dlock_t *l;
	int r;

	(void)state;
	ok(dlock_open(&l, "one/x", NULL));
	ok(dlock_close(l));
	getrlimit(RLIMIT_NOFILE, &old);
	tight = old;
	tight.rlim_cur = (rlim_t)dup(0);         /* the lowest free one: nothing more can be had */
	close((int)tight.rlim_cur);
	setrlimit(RLIMIT_NOFILE, &tight);
	r = dlock_open(&l, "one/y", NULL);
	setrlimit(RLIMIT_NOFILE, &old);
	ok(r);                                   /* the segment is mapped, so none is needed */
	ok(dlock_close(l));
}

static void a_silent_daemon_holds_up_no_close(void **state)
{
	dlock_t *l[20], *k;
	char name[20];
	long begin;

	(void)state;
	FAKE_SET(&fake, forget, false);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "n%d", i);
		l[i] = rig_open(name, 0);
	}
	FAKE_SET(&fake, mute, true);
	nap_ms(10);
	begin = now_ms();
	for (int i = 0; i < 20; i++)
		ok(dlock_close(l[i]));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	FAKE_SET(&fake, mute, false);
	k = rig_open("n3", 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(FAKE_GET(&fake, names[i].opens), i == 3);
	ok(dlock_wait(k));
	ok(dlock_post(k));
	ok(dlock_close(k));
}

/* It was sent, and nobody says that it was heard before the socket broke. */
static void a_close_that_was_not_heard_is_said_again(void **state)
{
	dlock_t *l = rig_open("x", 0), *k;

	(void)state;
	FAKE_SET(&fake, forget, false);
	FAKE_SET(&fake, mute, true);
	nap_ms(10);
	ok(dlock_close(l));
	fake_away(&fake, true);
	fake_away(&fake, false);
	FAKE_SET(&fake, mute, false);
	k = rig_open("y", 0);
	assert_int_equal(fake_closed(&fake, 1), 1);
	assert_int_equal(FAKE_GET(&fake, names[0].opens), 0);
	ok(dlock_close(k));                      /* and heard, since an answer came after it */
	assert_int_equal(fake_closed(&fake, 2), 2);
	k = rig_open("z", 0);
	fake_away(&fake, true);
	fake_away(&fake, false);
	ok(dlock_close(k));
	k = rig_open("z", 0);
	assert_int_equal(fake_closed(&fake, 3), 3);
	ok(dlock_close(k));
}

static void open_and_close(const char *name, bool taken)
{
	dlock_t *l = rig_open(name, 0);

	if (taken) {
		ok(dlock_wait(l));
		ok(dlock_post(l));
	}
	ok(dlock_close(l));
}

static void opens_that_are_taken_at_once_foretell_the_next(void **state)
{
	dlock_t *l, *k;

	(void)state;
	for (int i = 0; i < 2; i++)
		open_and_close("x", true);
	assert_int_equal(FAKE_GET(&fake, soons), 0);
	open_and_close("x", true);
	assert_int_equal(FAKE_GET(&fake, soons), 1);
	open_and_close("x", false);              /* foretold, and not so */
	assert_int_equal(FAKE_GET(&fake, soons), 2);
	open_and_close("x", true);
	open_and_close("x", true);
	assert_int_equal(FAKE_GET(&fake, soons), 2);
	l = rig_open("x", 0);
	assert_int_equal(FAKE_GET(&fake, soons), 3);
	k = rig_open("y", 0);                    /* the one before it has not been taken yet */
	assert_int_equal(FAKE_GET(&fake, soons), 3);
	ok(dlock_close(l));
	ok(dlock_close(k));
}

static void what_listens_may_be_something_else(void **state)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	dlock_t *l;

	(void)state;
	fake_away(&fake, true);
	snprintf(a.sun_path, sizeof a.sun_path, "%s/dlockd.sock", fake.dir);
	unlink(a.sun_path);
	ok(bind(fd, (struct sockaddr *)&a, sizeof a));
	ok(listen(fd, 1));
	fails(EPROTO, dlock_open(&l, "x", NULL));
	close(fd);
	fails(ENOTCONN, dlock_open(&l, "x", NULL));
	fake_away(&fake, false);
}

static void a_close_without_descriptors_is_said_later(void **state)
{
	struct rlimit old, tight;
	dlock_t *l = rig_open("x", 0), *k;
	int r;

	(void)state;
	FAKE_SET(&fake, forget, false);
	fake_away(&fake, true);
	fake_away(&fake, false);
	getrlimit(RLIMIT_NOFILE, &old);
	tight = old;
	tight.rlim_cur = 3;                      /* as many as poll(2) is asked about */
	setrlimit(RLIMIT_NOFILE, &tight);
	r = dlock_close(l);
	setrlimit(RLIMIT_NOFILE, &old);
	ok(r);
	k = rig_open("y", 0);
	assert_int_equal(fake_closed(&fake, 1), 1);
	ok(dlock_close(k));
}

static int locked_open(void *arg)
{
	struct rlimit limit;
	dlock_t *l;

	(void)arg;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if ((geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY) || mlockall(MCL_FUTURE) < 0)
		return 77;
	if (dlock_open(&l, "locked/x", NULL) || dlock_wait(l) || dlock_post(l))
		return 1;
	return mlockall(MCL_CURRENT) < 0 ? 77 : dlock_close(l);
}

/* Programs with deadlines lock their memory; that of a space is mostly holes, which must not be filled. */
static void locked_memory_does_not_fill_the_segment(void **state)
{
	struct stat st;
	int r = rig_child(locked_open, NULL);

	(void)state;
	if (r == 77)
		skip();
	ok(r);
	ok(fstat(FAKE_GET(&fake, spaces[1].fd), &st));
	assert_in_range(st.st_blocks * 512, 4096, 1 << 20);
}

static void holds_outlive_a_restart_of_the_daemon(void **state)
{
	dlock_t *l = rig_open("x", 0), *k = rig_open("y", 0), *m;

	(void)state;
	FAKE_SET(&fake, forget, false);
	ok(dlock_wait(l));
	fake_away(&fake, true);
	ok(dlock_check(l));
	ok(dlock_post(l));                       /* cached: goes on without it */
	ok(dlock_wait(l));
	ok(dlock_close(k));                      /* is told later */
	fails(ENOTCONN, dlock_open(&m, "z", NULL));
	fake_away(&fake, false);
	ok(dlock_open(&m, "z", NULL));
	assert_int_equal(FAKE_GET(&fake, resumed), 1);
	assert_int_equal(fake_closed(&fake, 1), 1);
	ok(dlock_check(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(m));
}

static void a_daemon_that_forgot_us_means_that_holds_are_lost(void **state)
{
	dlock_t *l = rig_open("x", 0), *idle = rig_open("idle", 0), *m;
	uint64_t old, t;

	(void)state;
	ok(dlock_wait(idle));
	ok(dlock_post(idle));
	ok(dlock_wait(l));
	old = *fake_word(&fake, "x") & LOCK_OWNER;
	fake_away(&fake, true);
	fake_away(&fake, false);
	ok(dlock_open(&m, "y", NULL));           /* finds out */
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_token(l, &t));
	fake_release(&fake, "x");
	ok(dlock_wait(l));
	assert_int_not_equal(*fake_word(&fake, "x") & LOCK_OWNER, old);
	ok(dlock_check(l));
	ok(dlock_post(l));
	fails(ESTALE, dlock_post(l));            /* the first hold's post */
	fails(EPERM, dlock_post(l));
	ok(dlock_wait(idle));
	assert_int_not_equal(*fake_word(&fake, "idle") & LOCK_OWNER, old);
	ok(dlock_post(idle));
	ok(dlock_close(l));
	ok(dlock_close(idle));
	ok(dlock_close(m));
}

/* Whatever the abandoned memory says. */
static void a_hold_in_a_lost_space_is_not_released(void **state)
{
	dlock_t *l = rig_open("x", 0);
	uint64_t *word = fake_word(&fake, "x"), held;

	(void)state;
	ok(dlock_wait(l));
	held = LOCK_LOAD(word);
	fake_break(&fake, "default");
	__atomic_store_n(word, held, __ATOMIC_RELEASE);
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_post(l));
	assert_true(*word == held);
	ok(dlock_close(l));
}

static void waiters_find_out_that_the_daemon_forgot_them(void **state)
{
	dlock_t *l = rig_open("x", 0), *m;
	struct rig_thread t;

	(void)state;
	ok(dlock_wait(l));
	rig_spawn(&t, rig_wait, l);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	fake_away(&fake, true);
	fake_away(&fake, false);
	ok(dlock_open(&m, "y", NULL));
	fake_release(&fake, "x");
	ok(rig_join(&t));
	assert_int_equal(FAKE_GET(&fake, names[0].opens), 2);    /* x, as the first client and as the second */
	fails(ESTALE, dlock_post(l));
	ok(dlock_close(m));
	ok(dlock_close(l));
}

static void a_broken_space_is_opened_anew_by_the_wait(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t;
	uint64_t token;

	(void)state;
	ok(dlock_wait(l));
	rig_spawn(&t, rig_wait, l);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	fake_break(&fake, "default");
	ok(rig_join(&t));                        /* in the new space, and its thread's end releases it there */
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_token(l, &token));
	fails(ESTALE, dlock_post(l));
	fails(EPERM, dlock_post(l));
	ok(dlock_wait(l));
	ok(dlock_check(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
	assert_int_equal(FAKE_GET(&fake, opens), 2);
	assert_int_equal(fake_closed(&fake, 2), 2);
}

static void a_broken_space_may_be_waited_on_while_the_daemon_is_away(void **state)
{
	dlock_t *l = rig_open("x", 0), *fast = rig_open("x", FAILFAST);
	struct rig_thread t;

	(void)state;
	FAKE_SET(&fake, forget, false);
	fake_break(&fake, "default");
	fake_away(&fake, true);
	fails(ENOTCONN, dlock_wait(fast));
	fails(ENOTCONN, dlock_trywait(l));
	rig_spawn(&t, rig_wait, l);
	nap_ms(100);
	assert_false(rig_done(&t));
	fake_away(&fake, false);
	ok(rig_join(&t));
	ok(dlock_close(l));
	ok(dlock_close(fast));
}

static void a_deadline_that_has_passed_is_not_relied_on(void **state)
{
	dlock_t *l = rig_open("x", 0), *fast = rig_open("x", FAILFAST);
	struct node_line *line = fake_line(&fake, "default");
	struct timespec t;
	struct rig_thread w;
	uint64_t now;

	(void)state;
	ok(dlock_wait(l));
	clock_gettime(CLOCK_BOOTTIME, &t);
	now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	__atomic_store_n(&line->ns, now + UINT64_C(3600) * 1000000000, __ATOMIC_RELEASE);
	__atomic_store_n(&line->ticks, 0, __ATOMIC_RELEASE);     /* slow but right */
	ok(dlock_check(l));
	ok(dlock_post(l));
	ok(dlock_wait(l));
	__atomic_store_n(&line->ns, now, __ATOMIC_RELEASE);
	fails(ESTALE, dlock_check(l));
	fails(ESTALE, dlock_post(l));            /* given back all the same */
	fails(ENOTCONN, dlock_wait(fast));
	fails(EBUSY, dlock_trywait(fast));
	t = after_ms(CLOCK_MONOTONIC, 30);
	fails(ETIMEDOUT, dlock_clockwait(l, CLOCK_MONOTONIC, &t));
	rig_spawn(&w, rig_wait, l);
	nap_ms(60);
	assert_false(rig_done(&w));
	assert_false(*fake_word(&fake, "x") & LOCK_OWNER);
	__atomic_store_n(&line->ns, NODE_NEVER, __ATOMIC_RELEASE);
	__atomic_store_n(&line->ticks, UINT64_C(1) << 62, __ATOMIC_RELEASE);    /* by the counter */
	ok(rig_join(&w));
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(fast));
}

static dlock_t *open_onloss(int signo)
{
	dlock_attr_t *a;
	dlock_t *l;

	ok(dlock_attr_create(&a));
	ok(dlock_attr_set_onloss(a, signo));
	ok(dlock_open(&l, "x", a));
	dlock_attr_destroy(a);
	return l;
}

/* The daemon is told of one signal for all handles of a name, and again where the name is opened anew. */
static void a_signal_for_a_loss_is_asked_for(void **state)
{
	dlock_attr_t *a;
	dlock_t *plain, *usr, *kill;

	(void)state;
	ok(dlock_attr_create(&a));
	fails(EINVAL, dlock_attr_set_onloss(a, -1));
	fails(EINVAL, dlock_attr_set_onloss(a, 65));
	fails(EINVAL, dlock_attr_set_onloss(a, 32));     /* the C library cancels threads by it */
	ok(dlock_attr_set_onloss(a, SIGRTMIN));
	ok(dlock_attr_set_onloss(a, 0));
	dlock_attr_destroy(a);
	plain = rig_open("x", 0);
	assert_int_equal(fake.names[0].signo, 0);
	kill = open_onloss(SIGKILL);
	assert_int_equal(fake.names[0].signo, SIGKILL);
	usr = open_onloss(SIGUSR1);
	assert_int_equal(fake.names[0].signo, SIGKILL);
	ok(dlock_close(kill));
	fake_break(&fake, "default");
	ok(dlock_wait(plain));
	assert_int_equal(fake.names[fake.n_names - 1].signo, SIGUSR1);
	ok(dlock_post(plain));
	ok(dlock_close(usr));
	ok(dlock_close(plain));
}

static void failfast_notices_within_a_moment_that_the_daemon_is_away(void **state)
{
	dlock_t *l = rig_open("x", 0), *fast = rig_open("x", FAILFAST | PROCESS);
	struct rig_thread t;
	long begin;

	(void)state;
	FAKE_SET(&fake, forget, false);
	ok(dlock_wait(l));
	rig_spawn(&t, rig_wait, fast);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	nap_ms(150);
	assert_false(rig_done(&t));
	fake_away(&fake, true);
	begin = now_ms();
	fails(ENOTCONN, rig_join(&t));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	fails(ENOTCONN, dlock_wait(fast));
	fake_away(&fake, false);
	ok(dlock_post(l));
	ok(dlock_wait(fast));                    /* reconnects where it has to */
	ok(dlock_post(fast));
	ok(dlock_close(l));
	ok(dlock_close(fast));
}

static void a_silent_daemon_holds_up_no_wait_beyond_its_limit(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct timespec t;
	long begin = now_ms();

	(void)state;
	fake_break(&fake, "default");
	FAKE_SET(&fake, mute, true);
	nap_ms(10);
	t = after_ms(CLOCK_MONOTONIC, 50);
	fails(ETIMEDOUT, dlock_clockwait(l, CLOCK_MONOTONIC, &t));
	fails(EBUSY, dlock_trywait(l));
	assert_in_range(now_ms() - begin, 50, PATIENCE_MS);
	FAKE_SET(&fake, mute, false);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void failfast_does_not_wait_for_a_silent_daemon(void **state)
{
	dlock_t *l = rig_open("x", FAILFAST);
	long begin;

	(void)state;
	FAKE_SET(&fake, forget, false);
	fake_break(&fake, "default");            /* so the name has to be opened anew */
	FAKE_SET(&fake, mute, true);
	nap_ms(10);
	begin = now_ms();
	fails(ENOTCONN, dlock_wait(l));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	FAKE_SET(&fake, mute, false);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

/* The name is opened anew, and then the descriptor asked for. */
static void a_hint_that_does_not_come_holds_up_no_wait(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct timespec t;
	long begin;
	int fd, r;

	(void)state;
	FAKE_SET(&fake, forget, false);
	ok(dlock_fd(l, &fd));
	FAKE_SET(&fake, mute_hints, true);
	fake_break(&fake, "default");
	begin = now_ms();
	t = after_ms(CLOCK_MONOTONIC, 100);
	r = dlock_clockwait(l, CLOCK_MONOTONIC, &t);     /* the lock may be had in the very end: then it is taken */
	assert_true(r == ETIMEDOUT || r == 0);
	if (r == 0)
		ok(dlock_post(l));
	assert_in_range(now_ms() - begin, 90, PATIENCE_MS);
	FAKE_SET(&fake, mute_hints, false);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

/* Programs close what they do not know; the library must neither break nor write into their files. */
static void descriptors_closed_behind_its_back_are_replaced(void **state)
{
	dlock_t *l = rig_open("x", 0);
	char path[100], byte;
	int last, file[40], n = 0, keep[64], kept = 0;

	(void)state;
	FAKE_SET(&fake, forget, false);
	FAKE_SET(&fake, range, 1);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	/* Everything of the library's: what the fake has is known. */
	pthread_mutex_lock(&fake.lock);
	keep[kept++] = fake.listen;
	keep[kept++] = fake.page_fd;
	for (int i = 0; i < FAKE_CONNS; i++)
		if (fake.conn[i] >= 0)
			keep[kept++] = fake.conn[i];
	for (uint32_t i = 1; i <= fake.n_spaces; i++) {
		keep[kept++] = fake.spaces[i].fd;
		keep[kept++] = fake.spaces[i].bell;
	}
	last = dup(0);
	close(last);
	for (int fd = 3; fd < last + 20; fd++) {
		bool ours = false;

		for (int i = 0; i < kept; i++)
			ours |= keep[i] == fd;
		if (!ours)
			close(fd);
	}
	snprintf(path, sizeof path, "%s/precious", fake.dir);
	while (n < 20) {
		file[n] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		assert_true(file[n++] >= 0);
	}
	pthread_mutex_unlock(&fake.lock);
	for (int i = 0; i < 3; i++) {
		ok(dlock_wait(l));               /* each asks for a token, and rings */
		ok(dlock_post(l));
	}
	ok(dlock_close(l));
	assert_int_equal(pread(file[0], &byte, 1, 0), 0);        /* nothing was written into them */
	for (int i = 0; i < n; i++)
		ok(close(file[i]));              /* and none of them was closed */
	unlink(path);
}

static void the_hint_keeps_its_number_when_the_name_is_opened_anew(void **state)
{
	dlock_t *l = rig_open("x", 0);
	int fd, again;
	char c;

	(void)state;
	ok(dlock_fd(l, &fd));
	fake_break(&fake, "default");
	ok(dlock_wait(l));
	assert_int_equal(FAKE_GET(&fake, hints), 2);
	ok(dlock_fd(l, &again));
	assert_int_equal(fd, again);
	fake_hint(&fake, "x");
	assert_int_equal(read(fd, &c, 1), 1);
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static void one_mapping_serves_all_names_and_generations_are_kept_apart(void **state)
{
	dlock_t *l[20];
	char name[20];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 20; i++) {
			snprintf(name, sizeof name, "s%d/n%d", i % 2, i);
			ok(dlock_open(&l[i], name, NULL));
			ok(dlock_wait(l[i]));
		}
		for (int i = 0; i < 20; i++) {
			ok(dlock_check(l[i]));
			ok(dlock_post(l[i]));
			ok(dlock_close(l[i]));
		}
		fake_break(&fake, "s0");
	}
	assert_int_equal(FAKE_GET(&fake, opens), 60);
	assert_int_equal(fake_closed(&fake, 60), 60);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(the_run_directory_may_be_relative),
		test(nobody_there_is_said_at_once),
		test(an_open_waits_for_the_daemon_if_asked_to),
		test(credentials_are_sent_where_the_kernel_cannot_tell),
		test(a_clock_with_an_offset_is_refused),
		test(what_the_daemon_sends_is_checked),
		test(an_error_of_the_daemon_is_not_mistaken_for_a_hold),
		test(a_failed_open_leaves_nothing_open_at_the_daemon),
		test(no_descriptors_left_is_an_error_not_a_hang),
		test(a_silent_daemon_holds_up_no_close),
		test(what_listens_may_be_something_else),
		test(a_close_without_descriptors_is_said_later),
		test(a_close_that_was_not_heard_is_said_again),
		test(opens_that_are_taken_at_once_foretell_the_next),
		test(locked_memory_does_not_fill_the_segment),
		test(holds_outlive_a_restart_of_the_daemon),
		test(a_daemon_that_forgot_us_means_that_holds_are_lost),
		test(a_hold_in_a_lost_space_is_not_released),
		test(waiters_find_out_that_the_daemon_forgot_them),
		test(a_broken_space_is_opened_anew_by_the_wait),
		test(a_broken_space_may_be_waited_on_while_the_daemon_is_away),
		test(a_deadline_that_has_passed_is_not_relied_on),
		test(a_signal_for_a_loss_is_asked_for),
		test(failfast_notices_within_a_moment_that_the_daemon_is_away),
		test(a_silent_daemon_holds_up_no_wait_beyond_its_limit),
		test(failfast_does_not_wait_for_a_silent_daemon),
		test(a_hint_that_does_not_come_holds_up_no_wait),
		test(descriptors_closed_behind_its_back_are_replaced),
		test(the_hint_keeps_its_number_when_the_name_is_opened_anew),
		test(one_mapping_serves_all_names_and_generations_are_kept_apart),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
