/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is promised to cost a look into shared memory costs no system call: a process that has used each thing a few times may make
 * none from then on, by seccomp, and goes on to use them. On a node without a deadline, and on one where each use compares it.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dlock.h"
#include "harness.h"

#define WARM  5
#define TIMES 300
#define TRIES 10

static dlock_t *lock, *book;
static dlock_sem_t *sem;
static dlock_elect_t *election;
static dlock_latch_t *latch;
static dlock_id_t *ids;

static int use_lock(void)
{
	uint64_t token;

	return dlock_wait(lock) || dlock_check(lock) || dlock_token(lock, &token) || dlock_wanted(lock) || dlock_post(lock) ||
	       dlock_trywait(lock) || dlock_post(lock);
}

static int use_book(void)
{
	return dlock_wait_shared(book) || dlock_check(book) || dlock_post(book);
}

static int use_sem(void)
{
	return dlock_sem_wait(sem) || dlock_sem_check(sem) || dlock_sem_post(sem) || dlock_sem_trywait_n(sem, 2) || dlock_sem_post_n(sem, 2);
}

static int use_election(void)
{
	uint64_t term, mine;
	char says[8];
	size_t n = sizeof says;

	return dlock_elect_leader(election, says, &n, &term) || dlock_elect_term(election, &mine) || term != mine || n != 2 ||
	       dlock_elect_check(election);
}

static int use_ids(void)
{
	static uint64_t last;
	uint64_t id;
	int r = dlock_id_next(ids, &id);

	r |= id <= last;
	last = id;
	return r;
}

static int use_latch(void)
{
	return dlock_latch_wait(latch);
}

static const struct use {
	const char *what;
	int (*once)(void);
} uses[] = {
	{ "a cached lock is taken, looked at and given back", use_lock },
	{ "... read", use_book },
	{ "permits that are cached are taken, looked at and given back", use_sem },
	{ "who leads, and in which term", use_election },
	{ "the next number", use_ids },
	{ "a latch that is open is waited for", use_latch },
};
#define USES (sizeof uses / sizeof *uses)

/* But the end, and a clock that user space cannot read. */
static void no_calls_any_more(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { sizeof f / sizeof *f, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		_exit(2);
}

static void open_all(void)
{
	if (dlock_open(&lock, "lock", NULL) || dlock_open(&book, "book", NULL) || dlock_sem_open(&sem, "sem", 3, NULL) ||
	    dlock_elect_open(&election, "led", NULL) || dlock_elect_campaign(election, "me", 2) ||
	    dlock_latch_open(&latch, "latch", 0, NULL) || dlock_id_open(&ids, "ids", NULL))
		_exit(2);
}

static int use_in_silence(const struct use *u)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int wrong = 0;

		end_with_parent();
		open_all();
		for (int i = 0; i < WARM; i++)
			wrong |= u->once();
		no_calls_any_more();
		for (int i = 0; i < TIMES; i++)
			wrong |= u->once();
		_exit(wrong);
	}
	waitpid(pid, &status, 0);
	return status;
}

/*
 * Again where it was not silent: whoever stands still for long meanwhile has the next ones to ask for, or to wake who wonders where
 * it is. What makes a call each time makes it in each try.
 */
static void each_in_silence(const char *node)
{
	for (unsigned i = 0; i < USES; i++) {
		int status = -1;

		for (unsigned tries = 0; tries < TRIES && status; tries++)
			status = use_in_silence(&uses[i]);
		ok(status == 0, "%s: without a system call, %d times: %s (%x)", node, TIMES, uses[i].what, (unsigned)status);
	}
}

int main(void)
{
	static char *counter[] = { "--x-counter-deadline", NULL };
	static struct daemon node;

	harness_begin(30);
	daemon_started(&node);
	each_in_silence("no deadline");
	daemon_end(&node, SIGTERM);
	if (daemon_start(&node, built("daemon/dlockd"), counter, NULL)) {
		each_in_silence("a deadline");
		daemon_end(&node, SIGTERM);
	}
	return harness_end();
}
