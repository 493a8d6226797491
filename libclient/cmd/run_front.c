/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The front. Signals are blocked and read one by one:
 *
 *   from a terminal     (si_code SI_KERNEL) they have reached the command as well, since it is in the same
 *                       process group. Nothing is passed on, so ^C arrives once.
 *   from anybody else   they are passed on. A kill of the whole group arrives twice then, as with timeout(1).
 *   ^Z                  we stop when the command has stopped, by the same signal, so that the shell notices.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "run.h"

#define LOOK_MS 1000                     /* between looks at the hold: its descriptor is a hint that may not come */

struct front {
	struct run *run;
	struct family family;
	pid_t guard;
	int channel, signals, hint;
	bool lost;
	bool over, guard_died;
	int status;                      /* of the command, once it is over */
};

/* All but those that a fault of our own raises, and those that nobody can block. */
static void passed_on_set(sigset_t *ret)
{
	static const int not_these[] = {
		SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGXCPU, SIGXFSZ, SIGPIPE,
		SIGCHLD, SIGKILL, SIGSTOP,
	};

	sigfillset(ret);
	for (size_t i = 0; i < sizeof(not_these) / sizeof(not_these[0]); i++)
		sigdelset(ret, not_these[i]);
}

static void ask(struct front *f, enum run_what what, int arg)
{
	struct run_message m = { what, arg };

	/* A guard that has gone is noticed where its answers are read. */
	if (send(f->channel, &m, sizeof(m), MSG_NOSIGNAL) < 0)
		errno = 0;
}

static void hold_lost(struct front *f, const char *what)
{
	if (f->lost)
		return;
	f->lost = true;
	fprintf(stderr, "dlock run: %s: %s; ending %s\n", f->run->full_name, what, f->run->argv[0]);
	ask(f, RUN_END, (int)f->run->grace_ms);
}

static void hold_look(struct front *f)
{
	if (!f->lost && hold_check(f->run) == ESTALE)
		hold_lost(f, "the hold was lost");
}

/* --- Signals --- */

static bool sent_by_terminal(const struct run *run, const struct signalfd_siginfo *si)
{
	switch (si->ssi_signo) {
	case SIGINT: case SIGQUIT: case SIGHUP: case SIGTSTP: case SIGTTIN: case SIGTTOU: case SIGCONT: case SIGWINCH:
		return run->terminal && si->ssi_code == SI_KERNEL;
	}
	return false;
}

static void signals_read(struct front *f)
{
	struct signalfd_siginfo si;

	while (read(f->signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		/* The guard continues us when the command was continued. */
		if (sent_by_terminal(f->run, &si) || (pid_t)si.ssi_pid == f->guard)
			continue;
		if (si.ssi_signo == SIGTERM && f->run->ends)
			ask(f, RUN_END, (int)f->run->grace_ms);
		else
			ask(f, RUN_SIGNAL, (int)si.ssi_signo);
	}
}

/* Returns when somebody has continued us. A hold that was lost meanwhile is noticed before that is passed on. */
static void stop(struct front *f, int sig)
{
	sigset_t only;

	sigemptyset(&only);
	sigaddset(&only, sig);
	signal(sig, SIG_DFL);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	sigprocmask(SIG_BLOCK, &only, NULL);
	hold_look(f);
}

/* --- The guard --- */

static void messages_receive(struct front *f)
{
	struct run_message m;
	ssize_t n;

	while ((n = recv(f->channel, &m, sizeof(m), MSG_DONTWAIT)) == (ssize_t)sizeof(m) && !f->over) {
		f->over = m.what == RUN_OVER;
		f->status = m.arg;
		if (m.what == RUN_STOPPED)
			stop(f, m.arg);
		else if (m.what == RUN_LOST)
			hold_lost(f, "this node's lease is about to end");
	}
	if (!f->over && (n == 0 || (n < 0 && errno != EAGAIN)))
		f->guard_died = true;
}

static int guard_start(struct front *f)
{
	int pair[2];
	sigset_t passed_on;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	passed_on_set(&passed_on);
	f->channel = pair[0];
	f->signals = signalfd(-1, &passed_on, SFD_CLOEXEC | SFD_NONBLOCK);
	if (f->signals < 0)
		return -errno;
	sigprocmask(SIG_BLOCK, &passed_on, NULL);
	f->guard = fork();
	if (f->guard < 0)
		return -errno;
	if (f->guard == 0) {
		close(pair[0]);
		run_guard(f->run, pair[1]);
	}
	close(pair[1]);
	return 0;
}

static void watch(struct front *f)
{
	while (!f->over && !f->guard_died) {
		struct pollfd fds[] = {
			{ .fd = f->channel, .events = POLLIN },
			{ .fd = f->signals, .events = POLLIN },
			{ .fd = f->lost ? -1 : f->hint, .events = POLLIN },
		};

		poll(fds, 3, f->lost ? -1 : LOOK_MS);
		hold_look(f);
		if (fds[0].revents)
			messages_receive(f);
		if (fds[1].revents)
			signals_read(f);
	}
}

/* --- Beginning and end --- */

static int prepare(struct front *f)
{
	struct run *run = f->run;
	struct sigaction plain = { .sa_handler = SIG_DFL };
	int tty;

	f->hint = hold_fd(run);
	tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	run->terminal = tty >= 0;
	if (tty >= 0)
		close(tty);
	run->front_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (run->front_pidfd < 0)
		return -errno;
	sigprocmask(SIG_BLOCK, NULL, &run->mask);
	sigaction(SIGCHLD, &plain, &run->child_action);   /* ignored, children would vanish without a status */
	run_cgroup_make(&run->cgroup);
	return family_begin(&f->family);
}

/* What reads our user's output must not wait for us, and what writes to it no longer can must not end us. */
static void stdio_drop(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	signal(SIGPIPE, SIG_IGN);
	for (int fd = 0; fd < 2 && null >= 0; fd++)
		dup2(null, fd);
}

/*
 * A command that was ended by a signal may have left its work half done, as a holder that died: then
 * the hold is not given back, and a robust handle gets EOWNERDEAD after us.
 */
static int result(struct front *f)
{
	struct run *run = f->run;

	if (f->guard_died) {
		fprintf(stderr, "dlock run: %s: the guard (pid %d) was killed; so is what it guarded\n",
			run->full_name, (int)f->guard);
		run_cgroup_kill(&run->cgroup);
		family_end(&f->family);
		run_cgroup_remove(&run->cgroup);
		return f->lost ? EX_TEMPFAIL : 128 + SIGKILL;
	}
	while (waitpid(f->guard, NULL, 0) < 0 && errno == EINTR)
		;
	hold_look(f);
	if (f->lost)
		return EX_TEMPFAIL;
	if (WIFSIGNALED(f->status))
		return 128 + WTERMSIG(f->status);
	return hold_give(run) == ESTALE ? EX_TEMPFAIL : WEXITSTATUS(f->status);
}

int run_front(struct run *run)
{
	struct front f = { .run = run };
	int r = prepare(&f);

	if (r == 0)
		r = guard_start(&f);
	if (r < 0) {
		run_cgroup_remove(&run->cgroup);
		hold_give(run);
		fprintf(stderr, "dlock run: cannot start a process: %s\n", strerror(-r));
		r = EX_OSERR;
	} else {
		stdio_drop();
		watch(&f);
		r = result(&f);
	}
	family_done(&f.family);
	return r;
}
