/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Forks of all kinds: the parent goes on, the child holds nothing and is a client of its own. */
#include "client_rig.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int child_holds_nothing(void *arg)
{
	dlock_t *l = arg;
	uint64_t t;

	if (dlock_post(l) != EPERM || dlock_check(l) != EPERM || dlock_token(l, &t) != EPERM)
		return 1;
	if (dlock_trywait(l) != EBUSY)           /* attaches; the parent holds it */
		return 2;
	if (dlock_post(l) != EPERM || dlock_consistent(l) != EPERM)
		return 3;
	return dlock_close(l) ? 4 : 0;
}

static void the_child_of_a_holder_holds_nothing(void **state)
{
	dlock_t *l = rig_open("x", 0), *p = rig_open("p", PROCESS), *r = rig_open("r", RECURSIVE | PROCESS);

	(void)state;
	ok(dlock_wait(l));
	ok(dlock_wait(p));
	ok(dlock_wait(r));
	ok(rig_child(child_holds_nothing, l));
	ok(rig_child(child_holds_nothing, p));
	ok(rig_child(child_holds_nothing, r));
	ok(dlock_check(l));
	ok(dlock_post(l));
	ok(dlock_check(p));
	ok(dlock_post(p));
	ok(dlock_post(r));
	ok(dlock_close(l));
	ok(dlock_close(p));
	ok(dlock_close(r));
}

static int child_takes(void *arg)
{
	dlock_t *l = arg, *k;

	if (dlock_wait(l) || dlock_check(l))
		return 1;
	if (dlock_open(&k, "y", NULL) || dlock_wait(k) || dlock_post(k) || dlock_close(k))
		return 2;
	if (dlock_close(l) != EBUSY || dlock_post(l))
		return 3;
	return dlock_close(l) ? 4 : 0;
}

static void the_child_is_a_client_of_its_own(void **state)
{
	dlock_t *l = rig_open("x", 0);
	unsigned hellos = FAKE_GET(&fake, hellos);

	(void)state;
	ok(rig_child(child_takes, l));
	assert_int_equal(FAKE_GET(&fake, hellos), hellos + 1);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

static int child_waits_for_parent(void *arg)
{
	return dlock_wait(arg) || dlock_post(arg);
}

static void parent_and_child_exclude_each_other(void **state)
{
	dlock_t *l = rig_open("x", 0);
	pid_t pid;
	int status;

	(void)state;
	ok(dlock_wait(l));
	pid = fork();
	if (pid == 0)
		_exit(child_waits_for_parent(l));
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	ok(dlock_post(l));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	ok(dlock_wait(l));
	ok(dlock_post(l));
	ok(dlock_close(l));
}

/* A fork that runs no handlers, from a thread. */
static int raw_fork(rig_fn fn, void *arg)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	int status;

	if (pid == 0)
		_exit(fn(arg) & 0xff);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void a_bare_clone_is_noticed_too(void **state)
{
	dlock_t *l = rig_open("x", 0);

	(void)state;
	ok(dlock_wait(l));
	ok(raw_fork(child_holds_nothing, l));
	ok(dlock_check(l));
	ok(dlock_post(l));
	ok(raw_fork(child_takes, l));
	ok(dlock_close(l));
}

static int grandchild(void *arg)
{
	if (dlock_wait(arg))
		return 1;
	if (rig_child(child_holds_nothing, arg))
		return 2;
	return dlock_post(arg) ? 3 : 0;
}

static void grandchildren_too(void **state)
{
	dlock_t *l = rig_open("x", 0);

	(void)state;
	ok(rig_child(grandchild, l));
	ok(dlock_close(l));
}

static int child_asks_for_its_own_hint(void *arg)
{
	int fd, parents = dup(0);
	char c;

	close(parents);
	if (dlock_fd(arg, &fd))
		return 1;
	return read(fd, &c, 1) < 0 && errno == EAGAIN ? 0 : 2;
}

static void the_hint_of_the_parent_is_not_the_childs(void **state)
{
	dlock_t *l = rig_open("x", 0);
	int fd;

	(void)state;
	ok(dlock_fd(l, &fd));
	ok(rig_child(child_asks_for_its_own_hint, l));
	assert_int_equal(FAKE_GET(&fake, hints), 2);
	ok(dlock_close(l));
}

static int stop;

static int busy(void *arg)
{
	dlock_t *l = arg, *k;
	int r = 0;

	while (r == 0 && !__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		r = dlock_wait(l);
		if (r == 0)
			r = dlock_post(l);
		if (r == 0)
			r = dlock_open(&k, "busy", NULL);
		if (r == 0)
			r = dlock_close(k);
	}
	return r;
}

static int child_of_a_busy_process(void *arg)
{
	dlock_t *k;

	(void)arg;
	return dlock_open(&k, "c", NULL) || dlock_wait(k) || dlock_post(k) || dlock_close(k);
}

/* Other threads are in the middle of opening, waiting and asking. */
static void a_busy_process_may_fork(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t[3];

	(void)state;
	FAKE_SET(&fake, range, 5);
	for (int i = 0; i < 3; i++)
		rig_spawn(&t[i], busy, l);
	for (int i = 0; i < 100; i++)
		ok(rig_child(child_of_a_busy_process, NULL));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		ok(rig_join(&t[i]));
	ok(dlock_close(l));
}

static int child_of_a_silent_daemon(void *arg)
{
	(void)arg;
	return 0;
}

static int open_silent(void *arg)
{
	dlock_t *l;

	(void)arg;
	return dlock_open(&l, "silent", NULL) || dlock_close(l);
}

static void a_fork_does_not_wait_for_the_daemon(void **state)
{
	dlock_t *l = rig_open("x", 0);
	struct rig_thread t;
	long begin;

	(void)state;
	FAKE_SET(&fake, mute, true);
	nap_ms(20);
	rig_spawn(&t, open_silent, NULL);
	nap_ms(50);
	begin = now_ms();
	ok(rig_child(child_of_a_silent_daemon, NULL));
	assert_in_range(now_ms() - begin, 0, PATIENCE_MS);
	assert_false(rig_done(&t));
	FAKE_SET(&fake, mute, false);
	ok(rig_join(&t));
	ok(dlock_close(l));
}

static pid_t forked;

static void fork_here(int signal)
{
	(void)signal;
	forked = fork();
	if (forked == 0)
		alarm(PATIENCE_MS / 1000);
}

static int interrupt_and_post(void *arg)
{
	dlock_t *l = arg;
	int r = dlock_wait(l);

	if (r == 0 && rig_sleeps_on(fake_word(&fake, "x"))) {
		nap_ms(20);
		kill(getpid(), SIGUSR1);
		nap_ms(100);
		r = dlock_post(l);
	}
	return r;
}

static int takes_and_lets_go(dlock_t *l)
{
	if (dlock_check(l))
		return 1;
	if (dlock_post(l))
		return 2;
	if (dlock_cancel(l))                     /* waits for ever where the wait is still counted */
		return 3;
	return dlock_close(l) ? 4 : 0;
}

/* The child returns from the handler, into the wait. */
static void a_wait_in_which_a_handler_forks_goes_on_in_both(void **state)
{
	struct sigaction handle = { .sa_handler = fork_here }, old;
	dlock_t *l = rig_open("x", 0), *k = rig_open("x", 0);
	struct rig_thread t;
	sigset_t usr1, mask;
	int status, r;

	(void)state;
	sigaction(SIGUSR1, &handle, &old);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, &mask);
	ok(dlock_wait(l));
	rig_spawn(&t, interrupt_and_post, k);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	assert_true(rig_sleeps_on(fake_word(&fake, "x")));
	ok(dlock_post(l));
	while (dlock_trywait(l) == 0) {          /* until the other has it */
		ok(dlock_post(l));
		nap_ms(1);
	}
	r = dlock_wait(l);
	if (forked == 0)
		_exit(r ? 5 : takes_and_lets_go(l));
	ok(r);
	ok(takes_and_lets_go(l));
	assert_int_equal(waitpid(forked, &status, 0), forked);
	assert_int_equal(status, 0);
	ok(rig_join(&t));
	sigaction(SIGUSR1, &old, NULL);
	ok(dlock_close(k));
}

#ifndef __SANITIZE_THREAD__              /* takes the child of a bare clone for this process */
static int try_again_and_again(void *l)
{
	int r = EBUSY;

	while (r == EBUSY && !__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		r = dlock_trywait(l);            /* looks whether this thread holds it through another handle */
	return r;
}

static int child_forks(void *arg)
{
	pid_t pid;
	int status;

	(void)arg;
	alarm(PATIENCE_MS / 1000);
	pid = fork();
	if (pid == 0)
		_exit(0);
	return waitpid(pid, &status, 0) != pid || status;
}

/* The library's lock may be another thread's in a child that no handler has told of its birth. */
static void the_child_of_a_bare_clone_may_fork(void **state)
{
	dlock_t *l = rig_open("x", 0), *k = rig_open("x", 0);
	struct rig_thread t;

	(void)state;
	ok(dlock_wait(l));
	__atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
	rig_spawn(&t, try_again_and_again, k);
	for (int i = 0; i < 200; i++)
		ok(raw_fork(child_forks, NULL));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	fails(EBUSY, rig_join(&t));
	ok(dlock_post(l));
	ok(dlock_close(l));
	ok(dlock_close(k));
}
#endif

int main(void)
{
	static const struct CMUnitTest tests[] = {
		test(the_child_of_a_holder_holds_nothing),
		test(the_child_is_a_client_of_its_own),
		test(parent_and_child_exclude_each_other),
		test(a_bare_clone_is_noticed_too),
		test(grandchildren_too),
		test(the_hint_of_the_parent_is_not_the_childs),
		test(a_busy_process_may_fork),
		test(a_fork_does_not_wait_for_the_daemon),
		test(a_wait_in_which_a_handler_forks_goes_on_in_both),
#ifndef __SANITIZE_THREAD__
		test(the_child_of_a_bare_clone_may_fork),
#endif
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
