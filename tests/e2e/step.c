/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "step.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define SLEEP_MAX (10000 * MS)           /* nothing here sleeps so long */
#define SLEEPS_MAX 10000                 /* instructions: on a busy machine the daemon may have ended each of its sleeps before we saw it */
#define PATIENCE_NS 100000               /* with a step that does not end, before it is asked whether it sleeps */

static struct {
	int begun, ended, mark;
} *shared;

void step_mark(int mark)
{
	__atomic_store_n(&shared->mark, mark, __ATOMIC_RELAXED);
}

/* Between two processors a step costs ten times as much. */
static void pin(void)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	CPU_ZERO(&set);
	CPU_SET(cpu < 0 ? 0 : cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void unpin(const cpu_set_t *was)
{
	sched_setaffinity(0, sizeof *was, was);
}

static void run(const struct stepper *how, bool traced)
{
	end_with_parent();
	if (how->prepare)
		how->prepare();
	if (traced) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		syscall(SYS_tgkill, syscall(SYS_getpid), syscall(SYS_gettid), SIGSTOP);  /* prepare() may have made threads */
	}
	__atomic_store_n(&shared->begun, 1, __ATOMIC_RELAXED);
	how->target();
	__atomic_store_n(&shared->ended, 1, __ATOMIC_RELAXED);
	for (;;)
		pause();
}

static char state_of(pid_t pid)
{
	char path[40], text[300], *at;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	read_file(path, text, sizeof text);
	at = strrchr(text, ')');
	return at && at[1] ? at[2] : 0;
}

/*
 * The step of before has ended; false: not yet, and nothing else happens either. The end of a step is a
 * SIGCHLD; to yield until it comes would give the processor to whoever else wants it, step by step.
 */
static bool step_done(struct step *s)
{
	const struct timespec patience = { 0, PATIENCE_NS };
	sigset_t set;
	int status;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	while (waitpid(s->pid, &status, WNOHANG | __WALL) != s->pid)
		if (sigtimedwait(&set, NULL, &patience) < 0 && state_of(s->pid) == 'S' &&
		    waitpid(s->pid, &status, WNOHANG | __WALL) != s->pid)
			return false;
	if (!WIFSTOPPED(status) || (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP))
		give_up("a step ended the process, or brought it a signal: status %x", status);
	return true;
}

static void step_once(struct step *s, bool within)
{
	if (!s->blocked && ptrace(PTRACE_SINGLESTEP, s->pid, NULL, NULL) < 0)
		give_up("a step: %s", strerror(errno));
	s->last_blocked = s->blocked;
	for (uint64_t until = now_ns() + SLEEP_MAX; !step_done(s);) {
		s->last_blocked = true;
		if (within) {
			s->blocked = true;
			return;
		}
		if (!s->told && s->how->blocked)
			s->how->blocked();
		else if (s->told && s->still)
			s->still();
		s->told = true;
		if (now_ns() > until)
			give_up("after %ld instructions it sleeps on", s->at);
	}
	s->blocked = false;
}

static void begin(struct step *s, const struct stepper *how, bool traced)
{
	static cpu_set_t before;
	sigset_t set;

	if (!shared)
		shared = shared_memory(sizeof *shared);
	memset(shared, 0, sizeof *shared);
	*s = (struct step){ .how = how };
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sched_getaffinity(0, sizeof before, &before);
	pin();
	fflush(stdout);
	s->pid = fork();
	if (s->pid == 0)
		run(how, traced);
	unpin(&before);
}

static void wait_stopped(struct step *s)
{
	int status;

	if (s->pid < 0 || waitpid(s->pid, &status, __WALL) != s->pid || !WIFSTOPPED(status))
		give_up("a process to step through");
}

void step_begin(struct step *s, const struct stepper *how)
{
	begin(s, how, true);
	wait_stopped(s);
	while (!__atomic_load_n(&shared->begun, __ATOMIC_RELAXED))
		step_once(s, false);
	s->told = s->last_blocked = false;
}

void step_begin_free(struct step *s, const struct stepper *how)
{
	begin(s, how, false);
}

void step_attach(struct step *s)
{
	if (ptrace(PTRACE_ATTACH, s->pid, NULL, NULL) < 0)
		give_up("a process to step through: %s", strerror(errno));
	wait_stopped(s);
}

/* To where the process is. */
static void pin_beside(const struct step *s, cpu_set_t *ret_before)
{
	cpu_set_t its;

	sched_getaffinity(0, sizeof *ret_before, ret_before);
	sched_getaffinity(s->pid, sizeof its, &its);
	sched_setaffinity(0, sizeof its, &its);
}

static bool has_ended(struct step *s)
{
	return s->ended = __atomic_load_n(&shared->ended, __ATOMIC_RELAXED);
}

void step_to(struct step *s, long n, bool within)
{
	cpu_set_t before;

	pin_beside(s, &before);
	while (s->at < n && !has_ended(s)) {
		step_once(s, false);
		s->at++;
	}
	if (within && !s->ended)
		step_once(s, true);
	s->mark = __atomic_load_n(&shared->mark, __ATOMIC_RELAXED);
	unpin(&before);
}

void step_past_sleep(struct step *s)
{
	cpu_set_t before;

	pin_beside(s, &before);
	while (!s->last_blocked && !has_ended(s)) {
		if (s->at == SLEEPS_MAX && !s->told && s->how->blocked) {
			s->how->blocked();
			s->told = true;
		}
		step_once(s, false);
		s->at++;
	}
	unpin(&before);
}

bool step_comes_through(struct step *s, unsigned ms)
{
	for (uint64_t until = now_ns() + ms * MS; !has_ended(s); nap_ns(MS / 10))
		if (now_ns() > until)
			return false;
	s->mark = __atomic_load_n(&shared->mark, __ATOMIC_RELAXED);
	return true;
}

void step_kill(struct step *s)
{
	int status;

	kill(s->pid, SIGKILL);
	do {
		if (waitpid(s->pid, &status, __WALL) < 0 && errno != EINTR)
			break;
	} while (!WIFSIGNALED(status));
	s->pid = 0;
}

void step_detach_stopped(struct step *s)
{
	kill(s->pid, SIGSTOP);
	ptrace(PTRACE_DETACH, s->pid, NULL, (void *)(long)SIGSTOP);
}

void step_detach(struct step *s, int signo)
{
	ptrace(PTRACE_DETACH, s->pid, NULL, (void *)(long)signo);
}
