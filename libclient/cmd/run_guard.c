/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guard: one thread, all signals blocked, woken by the front's end, the front's messages and
 * SIGCHLD. It never stops by itself, so that it can kill while front and command are stopped.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "proto/segment.h"
#include "run.h"

#define NS_PER_MS UINT64_C(1000000)
#define KILL_NS_MIN (20 * NS_PER_MS)     /* KILL goes out so long before the deadline: what it ends takes a moment to go */
#define KILL_NS_MAX (200 * NS_PER_MS)
#define LOOK_MS_MIN 2
#define LOOK_MS_MAX 100                  /* between looks for what is not dead yet */

struct guard {
	struct run *run;
	struct family family;
	int channel, children;           /* children: a signalfd */
	pid_t command;
	int status;
	bool over;                       /* the command is, with that status */
	bool alone;                      /* no children at all */
	bool front_stopped;              /* we have told it to stop, as the command did */
	bool continued;                  /* the command was, and not by us */
	bool killing, ending;
	uint64_t kill_at_ms;             /* while ending */
	int look_ms;
	int clock;                       /* a timer of CLOCK_BOOTTIME, which goes on while the machine sleeps */
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* --- The command --- */

static void environment_set(const struct run *run)
{
	const char *full = run->full_name, *slash = strchr(full, '/');
	char token[24], space[80];

	snprintf(space, sizeof(space), "%.*s", (int)(slash - full), full);
	snprintf(token, sizeof(token), "%llu", (unsigned long long)run->token);
	setenv("DLOCK_SPACE", space, 1);
	setenv("DLOCK_NAME", slash + 1, 1);
	setenv("DLOCK_TOKEN", token, 1);
}

static _Noreturn void command_exec(const struct run *run, pid_t guard, int go)
{
	char byte;
	int e;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != guard || read(go, &byte, 1) != 1)
		_exit(128 + SIGKILL);
	run_cgroup_join(&run->cgroup);
	environment_set(run);
	sigaction(SIGCHLD, &run->child_action, NULL);
	sigprocmask(SIG_SETMASK, &run->mask, NULL);
	execvp(run->argv[0], run->argv);
	e = errno;
	fprintf(stderr, "dlock run: %s: %s\n", run->argv[0], strerror(e));
	_exit(e == ENOENT ? 127 : 126);
}

/*
 * It is born into the front's process group, which we leave after that. So what a terminal sends
 * reaches it from its first moment, and what came before, it gets from us. It does nothing before we
 * have left: who kills the group would kill the guard of what it has begun.
 */
static int command_start(struct guard *g)
{
	pid_t me = getpid();
	sigset_t came;
	int go[2], e;

	if (pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	sigpending(&came);
	g->command = fork();
	e = errno;
	if (g->command == 0) {
		close(go[1]);            /* so that we hear of the guard's end */
		command_exec(g->run, me, go[0]);
	}
	close(go[0]);
	if (g->command < 0) {
		close(go[1]);
		return -e;
	}
	setpgid(0, 0);
	if (write(go[1], "", 1) != 1)
		kill(g->command, SIGKILL);
	close(go[1]);
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGCHLD && sigismember(&came, sig) == 1)
			kill(g->command, sig);
	return 0;
}

/* Whoever reads our user's output sees its end when the command's descendants have ended it. */
static void stdio_drop(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
}

/* --- What happens --- */

static void tell(struct guard *g, enum run_what what, int arg)
{
	struct run_message m = { what, arg };

	/* A front that is gone is noticed by its pidfd. */
	if (send(g->channel, &m, sizeof(m), MSG_NOSIGNAL) < 0)
		errno = 0;
}

static void command_changed(struct guard *g, int status)
{
	if (WIFSTOPPED(status)) {
		g->continued = false;
		g->front_stopped = g->run->terminal;
		if (g->run->terminal)
			tell(g, RUN_STOPPED, WSTOPSIG(status));
	} else if (WIFCONTINUED(status)) {
		g->continued = true;
		if (g->front_stopped)
			syscall(SYS_pidfd_send_signal, g->run->front_pidfd, SIGCONT, NULL, 0);
		g->front_stopped = false;
	} else {
		g->over = true;
		g->status = status;
	}
}

static void reap(struct guard *g)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0)
		if (pid == g->command && !g->over)
			command_changed(g, status);
	g->alone = pid < 0 && errno == ECHILD;
}

static void children_happened(struct guard *g)
{
	struct signalfd_siginfo si;

	while (read(g->children, &si, sizeof(si)) > 0)
		;
	reap(g);
}

/* "fg" has continued the command already: a second SIGCONT would redraw its screen twice. */
static void pass_on(struct guard *g, int sig)
{
	reap(g);
	if (g->over) {
		family_signal(sig);
	} else if (sig == SIGCONT && g->continued) {
		g->continued = false;
	} else {
		kill(g->command, sig);
		if (sig != SIGCONT)
			return;
		reap(g);
		g->continued = false;
	}
}

static void kill_begin(struct guard *g)
{
	if (g->killing)
		return;
	g->killing = true;
	g->look_ms = LOOK_MS_MIN;
	run_cgroup_kill(&g->run->cgroup);
}

static void end_begin(struct guard *g, int grace_ms)
{
	if (g->ending)
		return;
	g->ending = true;
	g->kill_at_ms = now_ms() + (uint64_t)grace_ms;
	family_signal(SIGTERM);
	family_signal(SIGCONT);          /* who is stopped cannot end in order */
}

static void messages_receive(struct guard *g)
{
	struct run_message m;
	ssize_t n;

	while ((n = recv(g->channel, &m, sizeof(m), MSG_DONTWAIT)) == (ssize_t)sizeof(m)) {
		if (m.what == RUN_SIGNAL)
			pass_on(g, m.arg);
		else if (m.what == RUN_END)
			end_begin(g, m.arg);
	}
	if (n == 0)
		kill_begin(g);           /* the front has gone */
}

/* --- The lease --- */

static uint64_t boottime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 * NS_PER_MS + (uint64_t)t.tv_nsec;
}

static uint64_t within(uint64_t v, uint64_t min, uint64_t max)
{
	return v < min ? min : v > max ? max : v;
}

/*
 * When to send TERM and when KILL, should the lease not be renewed. The grace is the whole of the time in which a loss is
 * prepared, at most: more would end the command while all is well.
 */
static void lease_times(const struct guard *g, uint64_t deadline, uint64_t *ret_term, uint64_t *ret_kill)
{
	uint64_t loss = __atomic_load_n(g->run->loss_ns, __ATOMIC_ACQUIRE);
	uint64_t kill = within(loss / 4, KILL_NS_MIN, KILL_NS_MAX), term = kill + g->run->grace_ms * NS_PER_MS;

	term = term < loss ? term : loss > kill ? loss : kill;
	*ret_term = deadline > term ? deadline - term : 0;
	*ret_kill = deadline > kill ? deadline - kill : 0;
}

static void clock_set(struct guard *g, uint64_t when)
{
	struct itimerspec at = { .it_value = { (time_t)(when / (1000 * NS_PER_MS)), (long)(when % (1000 * NS_PER_MS)) } };

	if (!when)
		at.it_value.tv_nsec = 1;         /* 0 would stop it */
	timerfd_settime(g->clock, TFD_TIMER_ABSTIME, &at, NULL);
}

/* A space that is gone for good (GONE) is the front's to notice. */
static bool lease_ends(uint64_t deadline)
{
	return deadline != NODE_NEVER && deadline != NODE_GONE;
}

/* Renewed in time, the lease has the clock set anew when it rings: not with every renewal. */
static void lease_look(struct guard *g)
{
	uint64_t deadline = __atomic_load_n(g->run->deadline_ns, __ATOMIC_ACQUIRE), now = boottime_ns(), term, kill;

	if (!lease_ends(deadline) || g->killing)
		return;
	lease_times(g, deadline, &term, &kill);
	if (now < term && !g->ending) {
		clock_set(g, term);
		return;
	}
	if (!g->ending) {
		tell(g, RUN_LOST, 0);
		end_begin(g, (int)g->run->grace_ms);
	}
	if (now >= kill)
		kill_begin(g);
	else
		clock_set(g, kill);
}

static int wait_ms(const struct guard *g)
{
	uint64_t now = now_ms();

	if (g->killing)
		return g->look_ms;
	if (!g->ending)
		return -1;
	return g->kill_at_ms > now ? (int)(g->kill_at_ms - now) : 0;
}

static void turn(struct guard *g)
{
	struct pollfd fds[] = {
		{ .fd = g->run->front_pidfd, .events = POLLIN },
		{ .fd = g->killing ? -1 : g->channel, .events = POLLIN },
		{ .fd = g->children, .events = POLLIN },
		{ .fd = g->killing ? -1 : g->clock, .events = POLLIN },
	};
	uint64_t rings;

	poll(fds, 4, wait_ms(g));
	if (fds[3].revents && read(g->clock, &rings, sizeof(rings)) == sizeof(rings))
		lease_look(g);
	if (fds[0].revents)
		kill_begin(g);
	if (fds[1].revents)
		messages_receive(g);
	if (g->ending && now_ms() >= g->kill_at_ms)
		kill_begin(g);
	children_happened(g);
	if (!g->killing)
		return;
	family_kill(&g->family);
	g->look_ms = g->look_ms * 2 < LOOK_MS_MAX ? g->look_ms * 2 : LOOK_MS_MAX;
}

/* With -o, who outlives the command is left alone, unless the run was to be ended before it was over. */
static bool done(const struct guard *g)
{
	return g->alone || (g->run->closes && g->over && !g->killing && !g->ending);
}

_Noreturn void run_guard(struct run *run, int channel)
{
	struct guard g = { .run = run, .channel = channel };
	sigset_t all, child;
	int r;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "dlock-guard");
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	g.children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	g.clock = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	r = g.children < 0 || g.clock < 0 ? -errno : family_begin(&g.family);
	if (r == 0)
		r = command_start(&g);
	if (r < 0) {
		fprintf(stderr, "dlock run: cannot start the command: %s\n", strerror(-r));
		tell(&g, RUN_OVER, W_EXITCODE(EX_OSERR, 0));
		_exit(0);
	}
	stdio_drop();
	lease_look(&g);
	do {
		turn(&g);
	} while (!done(&g));
	run_cgroup_remove(&run->cgroup);
	tell(&g, RUN_OVER, g.status);
	_exit(0);
}
