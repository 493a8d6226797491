/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * In whatever way a holder ends, its lock is free within milliseconds: for one who waits already, and
 * for one who comes later. And whatever does not end the holder takes nothing from it.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"

#define ROUNDS   10
#define LIMIT_MS 100u
#define TRIES    10

extern char **environ;

static struct shared {
	uint64_t ending_ns;              /* when the end began */
	pid_t child;                     /* that the holder left behind; to be killed */
	int r[4];
} *shared;

static void end_begins(void)
{
	__atomic_store_n(&shared->ending_ns, now_ns(), __ATOMIC_RELEASE);
}

/* --- Ends of a process, each run in a holder of locks 0 and 1 --- */

static int end_exit(struct stage *s, uint64_t arg)
{
	(void)s;
	(void)arg;
	end_begins();
	exit(0);
}

static int end_underscore(struct stage *s, uint64_t arg)
{
	(void)s;
	(void)arg;
	end_begins();
	_exit(3);
}

static int end_signal(struct stage *s, uint64_t signo)
{
	(void)s;
	signal((int)signo, SIG_DFL);
	end_begins();
	raise((int)signo);
	return -1;
}

static int end_fault(struct stage *s, uint64_t arg)
{
	volatile int *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)s;
	signal(SIGSEGV, SIG_DFL);        /* a sanitizer would tell its story first */
	end_begins();
	*nothing = (int)arg;
	return -1;
}

static int end_exec(struct stage *s, uint64_t arg)
{
	(void)s;
	(void)arg;
	end_begins();
	execlp("sleep", "sleep", "60", NULL);
	return -1;
}

static void *exec_in_thread(void *arg)
{
	end_exec(NULL, 0);
	return arg;
}

static int end_exec_thread(struct stage *s, uint64_t arg)
{
	pthread_t t;

	(void)s;
	(void)arg;
	pthread_create(&t, NULL, exec_in_thread, NULL);
	pthread_join(t, NULL);
	return -1;
}

/* --- The same, with a child that goes on living with all descriptors that there are --- */

static pid_t raw_fork(void)
{
#ifdef SYS_fork
	return (pid_t)syscall(SYS_fork);
#else
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}

static void leave_child(uint64_t raw)
{
	pid_t pid = raw ? raw_fork() : fork();

	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		for (;;)
			sigsuspend(&none);
	}
	shared->child = pid;
}

static int end_exit_child(struct stage *s, uint64_t raw)
{
	(void)s;
	leave_child(raw);
	end_begins();
	_exit(0);
}

static int end_kill_child(struct stage *s, uint64_t raw)
{
	(void)s;
	leave_child(raw);
	end_begins();
	raise(SIGKILL);
	return -1;
}

static int end_exec_child(struct stage *s, uint64_t raw)
{
	(void)s;
	leave_child(raw);
	return end_exec(s, 0);
}

/* The child shares the address space, which so outlives the holder. */
static int end_kill_vfork(struct stage *s, uint64_t arg)
{
	pid_t parent = getpid(), pid = vfork();

	(void)s;
	(void)arg;
	if (pid == 0) {
		shared->child = (pid_t)syscall(SYS_getpid);
		end_begins();
		kill(parent, SIGKILL);
		for (;;)
			pause();
	}
	return -1;
}

/* --- Ends of a thread, in a process that goes on --- */

static struct stage *thread_stage;       /* one such thread at a time */
static uint64_t thread_token;
static int user_rounds;

enum thread_end {
	BY_RETURN, BY_EXIT, BY_CANCEL,
	KEY_SET,                         /* a destructor of the program's runs too */
	KEY_AGAIN,                       /* in all rounds */
	KEY_TAKES,                       /* it is the destructor that takes the locks, in a thread that never did */
	KEY_LATE = 16,                   /* its key is younger than the library's, so it runs after the library's */
};

/* Destructors run in the order in which the keys were made. */
static pthread_key_t early_key, late_key;

static void take_both(void)
{
	for (int i = 0; i < 2; i++)
		if (!taken(dlock_wait(thread_stage->lock[i])))
			abort();
	dlock_token(thread_stage->lock[0], &thread_token);
}

/* A destructor of the program's, which uses locks too. */
static void user_destructor(void *p)
{
	unsigned how = (unsigned)(uintptr_t)p;

	user_rounds++;
	if ((how & ~KEY_LATE) == KEY_TAKES && user_rounds == 1)
		take_both();
	if ((how & ~KEY_LATE) == KEY_AGAIN && user_rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
		pthread_setspecific(how & KEY_LATE ? late_key : early_key, p);
	end_begins();
}

/* Before the constructors of libraries. */
static void make_early_key(void)
{
	pthread_key_create(&early_key, user_destructor);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = make_early_key;

static void *thread_main(void *arg)
{
	unsigned how = (unsigned)(uintptr_t)arg;

	user_rounds = 0;
	if ((how & ~KEY_LATE) >= KEY_SET)
		pthread_setspecific(how & KEY_LATE ? late_key : early_key, arg);
	if ((how & ~KEY_LATE) != KEY_TAKES)
		take_both();
	__atomic_store_n(&shared->r[0], 1, __ATOMIC_RELEASE);
	while (how == BY_CANCEL)
		pause();
	while (__atomic_load_n(&shared->r[0], __ATOMIC_ACQUIRE) == 1)
		sched_yield();
	end_begins();
	if (how == BY_EXIT)
		pthread_exit(NULL);
	return NULL;
}

static pthread_t thread_running;

static int thread_take(struct stage *s, uint64_t how)
{
	thread_stage = s;
	shared->r[0] = 0;
	if (pthread_create(&thread_running, NULL, thread_main, (void *)(uintptr_t)how))
		return -1;
	while (!__atomic_load_n(&shared->r[0], __ATOMIC_ACQUIRE))
		sched_yield();
	s->token = thread_token;
	return 0;
}

static int thread_leave(struct stage *s, uint64_t how)
{
	(void)s;
	if (how == BY_CANCEL) {
		end_begins();
		pthread_cancel(thread_running);
	}
	__atomic_store_n(&shared->r[0], 2, __ATOMIC_RELEASE);
	return pthread_join(thread_running, NULL);
}

/* The first thread ends, and another keeps the process alive. */
static void *remain(void *arg)
{
	sleep(60);
	return arg;
}

static int end_first_thread(struct stage *s, uint64_t arg)
{
	pthread_t t;

	(void)s;
	(void)arg;
	pthread_create(&t, NULL, remain, NULL);
	end_begins();
	pthread_exit(NULL);
}

/* --- Looking at the end --- */

struct look {
	struct pace pace;
	uint64_t sum_ns;
	int wrong;                       /* rounds that were not as they should be */
	uint64_t token;
};

static struct actor waiter, second;

/* Lock i went to somebody who had it after so long; robust ones are told. It may be late; not each time. */
static void judge(struct look *l, const struct result *r, const char *what, int wanted)
{
	uint64_t began = __atomic_load_n(&shared->ending_ns, __ATOMIC_ACQUIRE);
	uint64_t took = r->at_ns > began ? r->at_ns - began : 0;

	bool quick = pace_took(&l->pace, took, LIMIT_MS), right = r->r == wanted && r->token > l->token;

	if (!quick || !right)
		note("%s: result %d (%s), token %llu after %llu, %.3f ms", what, r->r, strerror(r->r < 0 ? 0 : r->r),
		     (unsigned long long)r->token, (unsigned long long)l->token, (double)took / 1e6);
	l->wrong += !right;
	l->token = r->token;
	l->sum_ns += took;
}

static void open_both(struct actor *a, uint64_t flags)
{
	if (actor_do(a, act_open, 0 | flags, "first").r || actor_do(a, act_open, 1 | flags, "second").r)
		give_up("opened in an actor");
}

static void mend_and_post(struct actor *a, uint64_t i)
{
	actor_do(a, act_consistent, i, NULL);
	if (actor_do(a, act_post, i, NULL).r)
		give_up("a lock that was taken is given back");
}

/*
 * One waits for lock 0 while the holder ends; another comes for lock 1 after that, and neither robust
 * nor patient: in time it must not need patience.
 */
static void watch_end(struct look *l, const char *what, struct actor *holder, actor_fn end, uint64_t arg)
{
	struct result r = { .r = -1 };

	actor_send(&waiter, act_wait, 0, NULL);
	if (!asleep(waiter.pid))
		give_up("%s: the waiter sleeps", what);
	shared->ending_ns = UINT64_MAX;
	actor_send(holder, end, arg, NULL);
	if (!actor_result(&waiter, PATIENCE_MS, &r))
		r.r = -1;
	judge(l, &r, what, EOWNERDEAD);
	if (r.r == -1)
		give_up("%s: the waiter is served at all", what);
	mend_and_post(&waiter, 0);
	uint64_t token = l->token;

	l->token = 0;                    /* another lock's */
	r = actor_do(&second, act_wait, 1, NULL);
	judge(l, &r, "the other lock", 0);
	l->token = token;
	if (r.r == 0)
		actor_do(&second, act_post, 1, NULL);
	if (actor_do(&waiter, act_wait, 1, NULL).r == EOWNERDEAD)
		actor_do(&waiter, act_consistent, 1, NULL);
	l->token = actor_do(&waiter, act_wait, 0, NULL).token;
	actor_do(&waiter, act_post, 0, NULL);
	actor_do(&waiter, act_post, 1, NULL);
}

static void told(const struct look *l, const char *what)
{
	ok(!l->wrong && pace_is_quick(&l->pace), "%s: free within %d ms, also for who comes later, and told to the robust", what, LIMIT_MS);
	note("%.3f ms on average, %.3f at most", (double)l->sum_ns / 2e6 / ROUNDS, (double)l->pace.worst_ns / 1e6);
}

static void end_child(void)
{
	if (shared->child)
		kill(shared->child, SIGKILL);
	shared->child = 0;
}

static void test_process_end(const char *what, actor_fn end, uint64_t arg)
{
	struct look l = { 0 };

	for (int i = 0; i < ROUNDS; i++) {
		struct actor holder;

		actor_begin(&holder);
		open_both(&holder, 0);
		if (actor_do(&holder, act_wait, 0, NULL).r || actor_do(&holder, act_wait, 1, NULL).r)
			give_up("%s: the holder holds", what);
		watch_end(&l, what, &holder, end, arg);
		actor_kill(&holder, SIGKILL);
		end_child();
	}
	told(&l, what);
}

static void test_thread_end(const char *what, unsigned how)
{
	struct actor holder;
	struct look l = { 0 };

	actor_begin(&holder);
	open_both(&holder, 0);
	for (int i = 0; i < ROUNDS; i++) {
		if ((how & ~KEY_LATE) == KEY_TAKES) {
			/* It takes when it is on its way already: nobody can wait before. */
			struct result r;

			actor_do(&holder, thread_take, how, NULL);
			actor_do(&holder, thread_leave, how, NULL);
			r = actor_do(&waiter, act_wait, 0, NULL);
			judge(&l, &r, what, EOWNERDEAD);
			mend_and_post(&waiter, 0);
			continue;
		}
		if (actor_do(&holder, thread_take, how, NULL).r)
			give_up("%s: the thread holds", what);
		watch_end(&l, what, &holder, thread_leave, how);
		if (!actor_result(&holder, PATIENCE_MS, &(struct result){ 0 }))
			give_up("%s: the thread has ended", what);
	}
	actor_kill(&holder, SIGKILL);
	told(&l, what);
}

/* --- What ends nobody --- */

static int child_tries(struct stage *s, uint64_t raw)
{
	pid_t pid = raw ? raw_fork() : fork();

	if (pid == 0) {
		shared->r[0] = dlock_post(s->lock[0]);
		shared->r[1] = dlock_check(s->lock[0]);
		shared->r[2] = dlock_trywait(s->lock[0]);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return dlock_check(s->lock[0]);
}

static int child_waits(struct stage *s, uint64_t raw)
{
	pid_t pid = raw ? raw_fork() : fork();

	if (pid == 0) {
		shared->r[0] = dlock_wait(s->lock[0]);
		shared->r[1] = dlock_check(s->lock[0]);
		shared->r[2] = dlock_post(s->lock[0]);
		shared->ending_ns = now_ns();
		_exit(0);
	}
	shared->child = pid;
	return 0;
}

static int spawn_some(struct stage *s, uint64_t how)
{
	char *argv[] = { "true", NULL };
	pid_t pid = -1;

	if (how == 0) {
		pid = vfork();
		if (pid == 0) {
			execvp("true", argv);
			_exit(127);
		}
	} else if (how == 1) {
		if (posix_spawnp(&pid, "true", NULL, NULL, argv, environ))
			return -1;
	} else {
		return system("true") ? -1 : dlock_check(s->lock[0]);
	}
	waitpid(pid, NULL, 0);
	return dlock_check(s->lock[0]);
}

static void test_living_parent(uint64_t raw)
{
	const char *how = raw ? "a bare fork(2)" : "fork()";
	struct actor parent;
	int state;

	actor_begin(&parent);
	open_both(&parent, 0);
	actor_do(&parent, act_wait, 0, NULL);
	state = actor_do(&parent, child_tries, raw, NULL).r;
	ok(state == 0 && shared->r[0] == EPERM && shared->r[1] == EPERM && shared->r[2] == EBUSY,
	   "after %s the parent holds on; the child gets EPERM for post and check, and EBUSY (%d, %d, %d, %d)", how,
	   state, shared->r[0], shared->r[1], shared->r[2]);

	actor_do(&parent, child_waits, raw, NULL);
	asleep(shared->child);
	nap_ns(20 * MS);
	ok(actor_do(&parent, act_check, 0, NULL).r == 0, "%s: the parent holds on while its child waits", how);
	shared->r[0] = shared->r[1] = shared->r[2] = -1;
	actor_do(&parent, act_post, 0, NULL);
	for (unsigned i = 0; i < PATIENCE_MS && __atomic_load_n(&shared->r[2], __ATOMIC_ACQUIRE) == -1; i++)
		nap_ns(MS);
	ok(actor_do(&parent, act_wait, 0, NULL).r == 0 && shared->r[0] == 0 && shared->r[1] == 0 && shared->r[2] == 0,
	   "%s: the child waits, holds and posts on its own (%d, %d, %d)", how, shared->r[0], shared->r[1], shared->r[2]);
	actor_kill(&parent, SIGKILL);
}

static void test_spawn(void)
{
	static const char *const how[] = { "vfork and exec", "posix_spawn", "system" };
	struct actor parent;
	struct result r;

	actor_begin(&parent);
	open_both(&parent, 0);
	actor_do(&parent, act_wait, 0, NULL);
	actor_send(&waiter, act_wait, 0, NULL);
	asleep(waiter.pid);
	for (uint64_t i = 0; i < 3; i++) {
		int state = actor_do(&parent, spawn_some, i, NULL).r;

		nap_ns(30 * MS);
		ok(state == 0 && actor_do(&parent, act_check, 0, NULL).r == 0 && !actor_result(&waiter, 0, &r),
		   "%s takes nothing from the holder", how[i]);
	}
	ok(actor_do(&parent, act_post, 0, NULL).r == 0 && actor_result(&waiter, PATIENCE_MS, &r) && r.r == 0,
	   "and the waiter is served by a post, not by a death");
	actor_do(&waiter, act_post, 0, NULL);
	actor_kill(&parent, SIGKILL);
}

/* A holder that forks and dies: the child, once told, takes the lock as anybody would. */
static int child_inherits(struct stage *s, uint64_t raw)
{
	pid_t parent = getpid(), pid = raw ? raw_fork() : fork();

	if (pid == 0) {
		while (getppid() == parent)
			nap_ns(MS / 10);
		shared->r[0] = dlock_wait(s->lock[0]);
		shared->r[1] = (int)((now_ns() - shared->ending_ns) / 1000);
		shared->r[2] = dlock_post(s->lock[0]);
		_exit(0);
	}
	end_begins();
	raise(SIGKILL);
	return -1;
}

static void orphan(struct pace *pace, uint64_t raw)
{
	struct actor parent;

	actor_begin(&parent);
	open_both(&parent, OPEN_ROBUST);
	actor_do(&parent, act_wait, 0, NULL);
	shared->r[2] = -1;
	actor_send(&parent, child_inherits, raw, NULL);
	for (unsigned i = 0; i < PATIENCE_MS && __atomic_load_n(&shared->r[2], __ATOMIC_ACQUIRE) == -1; i++)
		nap_ns(MS);
	pace_took(pace, (uint64_t)shared->r[1] * 1000, LIMIT_MS);
	actor_kill(&parent, SIGKILL);
	actor_do(&waiter, act_wait, 0, NULL);
	mend_and_post(&waiter, 0);
}

/* Again where it was late. */
static void test_orphan(uint64_t raw)
{
	struct pace pace = { 0 };
	bool good = true;

	for (int tries = 0; good && !pace.quick && tries < TRIES; tries++) {
		orphan(&pace, raw);
		good = shared->r[0] == EOWNERDEAD && shared->r[2] == 0;
	}
	ok(good && pace.quick, "%s: the child of a holder that died gets the lock itself, and is told (%d, after %.3f ms)",
	   raw ? "a bare fork(2)" : "fork()", shared->r[0], shared->r[1] / 1e3);
}

int main(void)
{
	struct daemon d = { 0 };

	harness_begin(110);
	pthread_key_create(&late_key, user_destructor);
	shared = shared_memory(sizeof *shared);
	daemon_started(&d);
	actor_begin(&waiter);
	open_both(&waiter, OPEN_ROBUST);
	actor_begin(&second);
	open_both(&second, 0);

	test_process_end("exit", end_exit, 0);
	test_process_end("_exit", end_underscore, 0);
	test_process_end("SIGKILL", end_signal, SIGKILL);
	test_process_end("SIGTERM", end_signal, SIGTERM);
	test_process_end("abort", end_signal, SIGABRT);
	test_process_end("a segmentation fault", end_fault, 0);
	test_process_end("exec", end_exec, 0);
	test_process_end("exec by another thread", end_exec_thread, 0);
	for (uint64_t raw = 0; raw < 2; raw++) {
		test_process_end(raw ? "exit, leaving a child by fork(2)" : "exit, leaving a child", end_exit_child, raw);
		test_process_end(raw ? "SIGKILL, leaving a child by fork(2)" : "SIGKILL, leaving a child", end_kill_child, raw);
		test_process_end(raw ? "exec, leaving a child by fork(2)" : "exec, leaving a child", end_exec_child, raw);
	}
	test_process_end("SIGKILL during vfork", end_kill_vfork, 0);
	test_process_end("the end of the first thread", end_first_thread, 0);
	test_thread_end("a thread's return", BY_RETURN);
	test_thread_end("pthread_exit", BY_EXIT);
	test_thread_end("pthread_cancel", BY_CANCEL);
	for (unsigned late = 0; late <= KEY_LATE; late += KEY_LATE) {
		const char *when = late ? "after the library's" : "before the library's";
		char text[100];

		snprintf(text, sizeof text, "a thread's end, with a destructor %s", when);
		test_thread_end(text, KEY_SET | late);
		snprintf(text, sizeof text, "a thread's end, with a destructor %s in each round", when);
		test_thread_end(text, KEY_AGAIN | late);
		snprintf(text, sizeof text, "a thread's end, in which a destructor %s takes the locks", when);
		test_thread_end(text, KEY_TAKES | late);
	}
	for (uint64_t raw = 0; raw < 2; raw++) {
		test_living_parent(raw);
		test_orphan(raw);
	}
	test_spawn();
	daemon_end(&d, SIGTERM);
	return harness_end();
}
