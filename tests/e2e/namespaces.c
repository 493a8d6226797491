/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node whose daemon lives in a pid namespace of its own, with clients inside, below and outside of
 * it; and daemons that lack something: SO_PEERPIDFD, io_uring, descriptors, room. Liveness is right in
 * any case, and what cannot be is refused clearly.
 *
 * The whole test is the first process of a new pid and mount namespace; only "outside" is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define LIMIT_MS 100u
#define TRIES    10

static struct daemon daemon_;
static struct actor outside;             /* born before the namespace */

/* --- A program in the daemon's place that takes something away, and becomes the daemon --- */

static void without_io_uring(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { sizeof f / sizeof *f, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static void become_daemon(char **argv)
{
	const char *n = getenv("TEST_NOFILE");

	if (getenv("TEST_NO_URING"))
		without_io_uring();
	if (n) {
		struct rlimit l = { (rlim_t)atol(n), (rlim_t)atol(n) };

		setrlimit(RLIMIT_NOFILE, &l);
	}
	execv(built("daemon/dlockd"), argv);
	_exit(127);
}

static bool start_without(const char *what, char *const *more)
{
	char self_path[300] = "";

	if (readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0)
		return false;
	return daemon_start(&daemon_, self_path, more, (char *[]){ (char *)what, NULL });
}

/* --- Things to do --- */

static int act_run_dir(struct stage *s, uint64_t arg)
{
	(void)arg;
	return setenv("DLOCK_RUN_DIR", s->text, 1);
}

static void begin(struct actor *a, const char *name)
{
	int r;

	actor_begin(a);
	r = actor_do(a, act_open, OPEN_ROBUST, name).r;
	if (r)
		give_up("an actor opens %s: %s", name, strerror(r));
}

static int shared_exec(struct stage *s, uint64_t arg)
{
	(void)s;
	(void)arg;
	if (fork() == 0) {
		for (;;)
			pause();
	}
	execlp("sleep", "sleep", "60", NULL);
	return -1;
}

static struct pace pace;                 /* of those who get what is freed */

/* The holder ends, or calls exec; the waiter has the lock, as a rule within LIMIT_MS. */
static void freed(struct actor *holder, const char *title, bool by_exec)
{
	struct actor waiter;
	struct result r = { .r = -1 };
	uint64_t since;
	int held;

	begin(&waiter, "ns");
	held = actor_do(holder, act_wait, 0, NULL).r;
	actor_send(&waiter, act_wait, 0, NULL);
	if (!asleep(waiter.pid))
		give_up("%s: the waiter sleeps", title);
	since = now_ns();
	if (by_exec)
		actor_send(holder, shared_exec, 0, NULL);
	else
		kill(holder->pid, SIGKILL);
	actor_result(&waiter, PATIENCE_MS, &r);
	pace_took(&pace, r.at_ns - since, LIMIT_MS);
	ok(taken(held) && r.r == EOWNERDEAD, "%s (%d, %d, %.3f ms)", title, held, r.r,
	   (double)(r.at_ns - since) / 1e6);
	actor_kill(holder, SIGKILL);
	actor_do(&waiter, act_consistent, 0, NULL);
	actor_kill(&waiter, SIGKILL);
}

/* --- Process ids that are used again --- */

static bool fork_as(pid_t pid, pid_t *ret)
{
	for (int tries = 0; tries < 50; tries++) {
		FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");

		if (!f || fprintf(f, "%d", (int)pid - 1) < 0 || fclose(f))
			return false;
		*ret = fork();
		if (*ret == 0) {
			end_with_parent();
			for (;;)
				pause();
		}
		if (*ret == pid)
			return true;
		kill(*ret, SIGKILL);
		waitpid(*ret, NULL, 0);
	}
	return false;
}

static void test_pid_reuse(void)
{
	struct actor holder, waiter;
	struct result r = { .r = -1 };
	pid_t pid, again = 0;
	bool same;

	begin(&holder, "ns");
	begin(&waiter, "ns");
	actor_do(&holder, act_wait, 0, NULL);
	pid = holder.pid;
	actor_send(&waiter, act_wait, 0, NULL);
	asleep(waiter.pid);
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&holder, SIGKILL);
	same = fork_as(pid, &again);
	ok(same, "the pid of a dead holder is given to another process (%d, %d)", (int)pid, (int)again);
	daemon_started(&daemon_);
	actor_result(&waiter, PATIENCE_MS, &r);
	ok(r.r == EOWNERDEAD, "a daemon that was away takes it for dead all the same (%d)",
	   r.r);
	ok(kill(again, 0) == 0, "… while the other lives");
	kill(again, SIGKILL);
	waitpid(again, NULL, 0);
	actor_do(&waiter, act_consistent, 0, NULL);
	ok(actor_do(&waiter, act_check, 0, NULL).r == 0, "and the end of the other means nothing");
	actor_kill(&waiter, SIGKILL);
}

/* --- Other namespaces --- */

/* A container: pid and mount namespaces of its own, with the run directory at another place. */
static int in_container(struct stage *s, uint64_t arg)
{
	char place[100];
	pid_t pid;

	(void)arg;
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
		return errno;
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	snprintf(place, sizeof place, "%s/container", harness.dir);
	mkdir(place, 0755);
	if (mount(harness.run, place, NULL, MS_BIND, NULL) < 0)
		return errno;
	setenv("DLOCK_RUN_DIR", place, 1);
	pid = fork();
	if (pid != 0) {
		/* The container's first process answers from now on; when it ends, so does this one. */
		waitpid(pid, NULL, 0);
		_exit(0);
	}
	end_with_parent();
	s->token = 0;
	return getpid() == 1 ? 0 : -1;
}

static void test_container(void)
{
	struct actor holder;
	int r;

	actor_begin(&holder);
	r = actor_do(&holder, in_container, 0, NULL).r;
	if (r) {
		skip("a client in a container", strerror(r));
		actor_kill(&holder, SIGKILL);
		return;
	}
	ok(actor_do(&holder, act_open, OPEN_ROBUST, "ns").r == 0, "a client in a pid and mount namespace below opens a lock");
	freed(&holder, "when its container ends the lock is free", false);
}

static void test_outside(bool fallback)
{
	int r;

	actor_do(&outside, act_run_dir, 0, harness.run);
	r = actor_do(&outside, act_open, OPEN_ROBUST, "outside").r;      /* of "ns", the last owner has died */
	if (fallback) {
		ok(r == ENOTSUP, "a client outside of the daemon's pid namespace is refused where it cannot be named (%s)",
		   strerror(r));
		return;
	}
	ok(r == 0 && actor_do(&outside, act_wait, 0, NULL).r == 0, "a client outside of the daemon's pid namespace gets a lock (%d)",
	   r);
	daemon_end(&daemon_, SIGKILL);
	daemon_started(&daemon_);
	ok(actor_do(&outside, act_check, 0, NULL).r == 0, "and keeps it over a restart");
	actor_do(&outside, act_post, 0, NULL);
	actor_do(&outside, act_close, 0, NULL);
}

static int open_elsewhen(struct stage *s, uint64_t seconds)
{
	int fd, r, status, n;
	char text[40];
	pid_t pid;

	if (unshare(CLONE_NEWTIME) < 0)
		return -errno;
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	n = snprintf(text, sizeof text, "boottime %d 0", (int)seconds);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		return -errno;
	close(fd);
	pid = fork();
	if (pid == 0) {
		r = act_open(s, 0);
		_exit(r);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void test_time(void)
{
	struct actor a;
	int r, r0;

	actor_begin(&a);
	r = actor_do(&a, open_elsewhen, 1000, "ns").r;
	actor_kill(&a, SIGKILL);
	if (r < 0) {
		skip("a client in a time namespace", strerror(-r));
		return;
	}
	actor_begin(&a);
	r0 = actor_do(&a, open_elsewhen, 0, "ns").r;
	actor_kill(&a, SIGKILL);
	ok(r == ENOTSUP && r0 == 0, "a client in a time namespace with an offset is refused, without one it is not (%s, %s)",
	   strerror(r), strerror(r0));
}

/* --- What a daemon may lack --- */

static void test_no_peerpidfd(void)
{
	struct actor holder;

	daemon_end(&daemon_, SIGTERM);
	if (!daemon_start(&daemon_, built("daemon/dlockd"), (char *[]){ "--x-no-peerpidfd", NULL }, NULL))
		give_up("the daemon starts without SO_PEERPIDFD");
	begin(&holder, "ns");
	freed(&holder, "without SO_PEERPIDFD the death of a holder is seen", false);
	begin(&holder, "ns");
	freed(&holder, "… and its exec, which a forked child outlives", true);
	test_outside(true);
	daemon_end(&daemon_, SIGTERM);
	daemon_started(&daemon_);
}

static void test_no_io_uring(void)
{
	bool started;

	daemon_end(&daemon_, SIGTERM);
	daemon_log_new();
	started = start_without("TEST_NO_URING=1", NULL);
	ok(!started && WIFEXITED(daemon_.status) &&
	   WEXITSTATUS(daemon_.status) == EX_UNAVAILABLE && daemon_said("io_uring"),
	   "without io_uring the daemon says so, and ends with %d (%d)", EX_UNAVAILABLE, WEXITSTATUS(daemon_.status));
	daemon_started(&daemon_);
}

static long cpu_ms(pid_t pid)
{
	char path[40], text[400], *at;
	unsigned long user = 0, system = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	read_file(path, text, sizeof text);
	at = strrchr(text, ')');
	if (at)
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
	return (long)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

#define CROWD 30

/* Too many clients for the daemon's descriptors: some wait, and come in when others have gone. */
static void test_no_descriptors(void)
{
	struct actor crowd[CROWD];
	struct result r[CROWD];
	bool in[CROWD] = { false };
	int n = 0, errors = 0, later = 0;
	long cpu;

	daemon_end(&daemon_, SIGTERM);
	if (!start_without("TEST_NOFILE=64", NULL))
		give_up("the daemon starts with few descriptors");
	for (int i = 0; i < CROWD; i++) {
		actor_begin(&crowd[i]);
		actor_send(&crowd[i], act_open, 0, "ns");
		in[i] = actor_result(&crowd[i], 200, &r[i]);
		n += in[i] && r[i].r == 0;
		errors += in[i] && r[i].r != 0;
		if (in[i] && r[i].r)
			note("client %d: %s", i, strerror(r[i].r));
	}
	for (int i = 0; i < 6; i++) {    /* they were only late */
		bool late = !in[i] && actor_result(&crowd[i], PATIENCE_MS, &r[i]);

		in[i] |= late;
		n += late && r[i].r == 0;
	}
	ok(n > 5 && n < CROWD, "a daemon with few descriptors serves some clients (%d of %d, %d errors)", n, CROWD, errors);
	ok(actor_do(&crowd[0], act_wait, 0, NULL).r == 0 && actor_do(&crowd[0], act_post, 0, NULL).r == 0,
	   "those that it has are served on");
	cpu = 1000;
	for (int tries = 0; cpu >= 100 && tries < TRIES; tries++) {
		cpu = -cpu_ms(daemon_.pid);
		nap_ns(1000 * MS);
		cpu += cpu_ms(daemon_.pid);
	}
	ok(cpu < 100, "it does not spin (%ld ms in a second)", cpu);
	for (int i = 0; i < CROWD / 2; i++)
		if (in[i])
			actor_kill(&crowd[i], SIGKILL);
	for (int i = CROWD - 5; i < CROWD; i++) {
		if (in[i])
			actor_send(&crowd[i], act_open, 0, "ns");
		later += actor_result(&crowd[i], PATIENCE_MS, &r[i]) && r[i].r == 0;
	}
	ok(later == 5, "when some have gone, others come in (%d)", later);
	for (int i = 0; i < CROWD; i++)
		if (crowd[i].pid)
			actor_kill(&crowd[i], SIGKILL);
	daemon_end(&daemon_, SIGTERM);
	daemon_started(&daemon_);
}

static int open_many(struct stage *s, uint64_t n)
{
	static dlock_t *many[20000];
	static unsigned at;
	char name[100];
	int r = 0;

	while (n-- && r == 0 && at < 20000) {
		snprintf(name, sizeof name, "full/a name of some length, that takes a record of its own, number %u", at);
		r = dlock_open(&many[at], name, NULL);
		at += r == 0;
	}
	s->token = at;
	return r;
}

static void test_full_tmpfs(void)
{
	struct actor greedy, holder;
	struct daemon d = { 0 };
	char dir[60], run[70], text[90];
	struct result r;
	int again;

	snprintf(dir, sizeof dir, "%s/small", harness.dir);
	snprintf(run, sizeof run, "%s/run", dir);
	mkdir(dir, 0755);
	if (mount("tmpfs", dir, "tmpfs", 0, "size=2m") < 0) {
		skip("a full tmpfs", strerror(errno));
		return;
	}
	if (!daemon_start(&d, built("daemon/dlockd"), (char *[]){ "--dir", dir, NULL }, NULL))
		give_up("the daemon starts in a small tmpfs");
	setenv("DLOCK_RUN_DIR", run, 1);
	begin(&holder, "full/held");
	actor_do(&holder, act_wait, 0, NULL);
	actor_begin(&greedy);
	r = actor_do(&greedy, open_many, 20000, NULL);
	ok(r.r == ENOSPC && r.token > 100, "a full tmpfs is ENOSPC for the one who opens too much (%s after %llu)", strerror(r.r),
	   (unsigned long long)r.token);
	ok(actor_do(&holder, act_check, 0, NULL).r == 0 && actor_do(&holder, act_post, 0, NULL).r == 0 &&
	   actor_do(&holder, act_pass, 0, NULL).r == 0 && !daemon_ended(&d, 0),
	   "and nothing for those who are there");
	daemon_end(&d, SIGKILL);
	ok(daemon_start(&d, built("daemon/dlockd"), (char *[]){ "--dir", dir, NULL }, NULL) &&
	   actor_do(&holder, act_pass, 0, NULL).r == 0,
	   "a daemon can start on a full tmpfs, and go on");
	actor_kill(&greedy, SIGKILL);
	actor_begin(&greedy);
	again = -1;
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; again != 0 && now_ns() < until;) {
		again = actor_do(&greedy, open_many, 50, NULL).r;
		nap_ns(20 * MS);
	}
	ok(again == 0, "when that one has ended there is room again (%s)", strerror(again));
	actor_kill(&greedy, SIGKILL);
	actor_kill(&holder, SIGKILL);
	daemon_end(&d, SIGTERM);
	snprintf(text, sizeof text, "umount -l %s", dir);
	if (system(text))
		note("%s", text);
	setenv("DLOCK_RUN_DIR", harness.run, 1);
}

static int run(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
		give_up("a /proc of this namespace: %s", strerror(errno));
	daemon_started(&daemon_);
	test_pid_reuse();
	test_container();
	test_outside(false);
	test_time();
	test_no_peerpidfd();
	test_no_io_uring();
	test_no_descriptors();
	test_full_tmpfs();
	ok(pace_is_quick(&pace), "what is freed is had soon (%u of %u times within %u ms)", pace.quick, pace.times, LIMIT_MS);
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	(void)argc;
	if (getenv("TEST_NO_URING") || getenv("TEST_NOFILE"))
		become_daemon(argv);
	actor_begin(&outside);
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0) {
		printf("1..0 # SKIP needs root: %s\n", strerror(errno));
		return 0;
	}
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		harness_begin(110);
		return run();
	}
	/* A first process dies with all of its namespace; what it made is removed in any case. */
	signal(SIGTERM, SIG_IGN);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	kill(outside.pid, SIGKILL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
