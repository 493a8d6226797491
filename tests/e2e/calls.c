/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The calls of dlock.h, in a process against the real daemon: what they return, what threads, children
 * and other processes see of it, and what a daemon that ends, stops or comes back changes.
 *
 * Each story is a function; what it finds wrong it notes, with the line.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dlock.h"
#include "harness.h"
#include "threads.h"

static struct daemon node;
static bool good;

static void expect(int line, const char *text, long got, long wanted)
{
	if (got == wanted)
		return;
	good = false;
	note("line %d: %s is %ld, not %ld", line, text, got, wanted);
}
#define IS(wanted, call) expect(__LINE__, #call, (long)(call), (long)(wanted))
#define OK(call)         IS(0, call)
#define TRUE(what)       IS(true, (what) != 0)

enum { ROBUST = 1, RECURSIVE = 2, PROCESS = 4, FAILFAST = 8, WAIT_DAEMON = 16 };

static int try_open(const char *name, unsigned flags, dlock_t **ret)
{
	dlock_attr_t *a;
	int r;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_robust(a, flags & ROBUST));
	OK(dlock_attr_set_recursive(a, flags & RECURSIVE));
	OK(dlock_attr_set_owner(a, flags & PROCESS ? DLOCK_OWNER_PROCESS : DLOCK_OWNER_THREAD));
	OK(dlock_attr_set_failfast(a, flags & FAILFAST));
	OK(dlock_attr_set_wait_daemon(a, flags & WAIT_DAEMON));
	r = dlock_open(ret, name, a);
	dlock_attr_destroy(a);
	return r;
}

static dlock_t *open_lock(const char *name, unsigned flags)
{
	dlock_t *l = NULL;
	int r = try_open(name, flags, &l);

	if (r)
		give_up("opening %s: %s", name, strerror(r));
	return l;
}

/* --- Other threads and processes --- */

static pid_t child(deed fn, void *l)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		end_with_parent();
		_exit(fn(l) & 0xff);
	}
	return pid;
}

static int child_end(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int do_wait(void *l)
{
	return dlock_wait(l);
}

static int do_try(void *l)
{
	return dlock_trywait(l);
}

static int do_post(void *l)
{
	return dlock_post(l);
}

static int do_check(void *l)
{
	return dlock_check(l);
}

static int do_pass(void *l)
{
	int r = dlock_wait(l);

	return r ? r : dlock_post(l);
}

static int do_hold(void *l)
{
	int r = dlock_wait(l);

	if (r == 0)
		pause();
	return r;
}

static bool soon_wanted(dlock_t *l)
{
	for (unsigned i = 0; i < PATIENCE_MS && dlock_wanted(l) == 0; i++)
		nap_ns(MS);
	return dlock_wanted(l) == EBUSY;
}

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec t;

	clock_gettime(clock, &t);
	t.tv_nsec += ms % 1000 * 1000000;
	t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* --- Stories --- */

static void one_lock(void)
{
	dlock_t *l = open_lock("one", 0), *same = open_lock("default/one", 0);
	uint64_t a = 0, b = 0;

	TRUE(!strcmp(dlock_name(l), "default/one"));
	IS(EPERM, dlock_post(l));
	IS(EPERM, dlock_check(l));
	IS(EPERM, dlock_token(l, &a));
	OK(dlock_wait(l));
	OK(dlock_check(l));
	OK(dlock_token(l, &a));
	TRUE(a > 0 && a >> 63 == 0);
	IS(EDEADLK, dlock_wait(l));
	IS(EDEADLK, dlock_wait(same));
	IS(EBUSY, dlock_trywait(same));
	IS(EPERM, dlock_post(same));
	IS(EBUSY, dlock_close(l));
	IS(EPERM, elsewhere(do_post, l));
	IS(EPERM, elsewhere(do_check, l));
	IS(EBUSY, elsewhere(do_try, same));
	OK(dlock_post(l));
	IS(EPERM, dlock_post(l));
	OK(dlock_trywait(same));
	OK(dlock_token(same, &b));
	TRUE(b > a);
	OK(dlock_post(same));
	OK(dlock_close(l));
	OK(dlock_close(same));
	OK(dlock_close(NULL));
}

static void names(void)
{
	char name[300];
	dlock_t *l;

	memset(name, 'n', sizeof name);
	name[256] = 0;
	IS(ENAMETOOLONG, dlock_open(&l, name, NULL));
	name[255] = 0;
	OK(dlock_open(&l, name, NULL));
	OK(do_pass(l));
	OK(dlock_close(l));
	IS(EINVAL, dlock_open(&l, "", NULL));
	IS(EINVAL, dlock_open(&l, "bad space/x", NULL));
	IS(EINVAL, dlock_open(&l, "tab\there", NULL));
	IS(EINVAL, dlock_open(&l, "\xff", NULL));
	OK(dlock_open(&l, "on-demand/with/slashes \xe2\x9c\x93", NULL));
	TRUE(!strcmp(dlock_name(l), "on-demand/with/slashes \xe2\x9c\x93"));
	OK(do_pass(l));
	OK(dlock_close(l));
	for (int i = 0; i < (harness.nodes ? 300 : 3000); i++) { /* over a chunk of the segment, and each name closed again */
		snprintf(name, sizeof name, "many/%d", i);
		IS(0, dlock_open(&l, name, NULL));
		OK(do_pass(l));
		OK(dlock_close(l));
	}
}

/* As long as can be, of both parts, and told apart by the last byte. */
static void longest_names(void)
{
	struct timespec soon = in_ms(CLOCK_MONOTONIC, PATIENCE_MS);
	char name[64 + 1 + 255 + 1] = { 0 };
	dlock_t *a, *b;

	memset(name, 's', 64);
	name[64] = '/';
	memset(name + 65, 'n', 255);
	OK(dlock_open(&a, name, NULL));
	name[319] = 'm';
	OK(dlock_open(&b, name, NULL));
	OK(dlock_clockwait(a, CLOCK_MONOTONIC, &soon));
	OK(dlock_clockwait(b, CLOCK_MONOTONIC, &soon));
	OK(dlock_post(a));
	OK(dlock_post(b));
	OK(dlock_close(a));
	OK(dlock_close(b));
}

static void time_limits(void)
{
	dlock_t *l = open_lock("limits", 0), *k = open_lock("limits", PROCESS);
	struct timespec t, bad = { 1, -1 };
	uint64_t begin;

	OK(dlock_wait(l));
	for (int i = 0; i < 2; i++) {
		clockid_t clock = i ? CLOCK_REALTIME : CLOCK_MONOTONIC;

		begin = now_ns();
		t = in_ms(clock, 60);
		IS(ETIMEDOUT, dlock_clockwait(k, clock, &t));
		TRUE(now_ns() - begin > 55 * MS);
	}
	t = (struct timespec){ 0, 0 };
	IS(ETIMEDOUT, dlock_timedwait(k, &t));
	IS(EINVAL, dlock_timedwait(k, &bad));
	IS(EINVAL, dlock_clockwait(k, CLOCK_BOOTTIME, &t));
	OK(dlock_post(l));
	OK(dlock_timedwait(k, &t));
	OK(dlock_post(k));
	OK(dlock_close(l));
	OK(dlock_close(k));
}

static void owners(void)
{
	dlock_t *p = open_lock("owned", PROCESS), *r = open_lock("owned", RECURSIVE);

	OK(elsewhere(do_wait, p));               /* its thread has ended; the process holds on */
	OK(dlock_check(p));
	IS(EBUSY, dlock_trywait(r));
	OK(elsewhere(do_post, p));
	OK(dlock_wait(r));
	OK(dlock_wait(r));
	OK(dlock_post(r));
	OK(dlock_check(r));
	IS(EBUSY, dlock_trywait(p));
	OK(dlock_post(r));
	IS(EPERM, dlock_post(r));
	OK(dlock_close(p));
	OK(dlock_close(r));
}

static void deaths(void)
{
	dlock_t *l = open_lock("deaths", ROBUST), *plain = open_lock("deaths", 0);
	uint64_t before = 0, after = 0;
	pid_t pid;

	OK(dlock_wait(l));
	OK(dlock_token(l, &before));
	IS(EINVAL, dlock_consistent(l));
	OK(dlock_post(l));
	OK(elsewhere(do_wait, plain));           /* a thread that ends */
	IS(EOWNERDEAD, dlock_wait(l));
	OK(dlock_consistent(l));
	OK(dlock_post(l));
	OK(dlock_wait(l));
	OK(dlock_post(l));

	pid = child(do_hold, plain);             /* a process that is killed, with one waiting */
	for (unsigned i = 0; i < PATIENCE_MS && dlock_trywait(plain) == 0; i++) {
		OK(dlock_post(plain));
		nap_ns(MS);
	}
	kill(pid, SIGKILL);
	IS(EOWNERDEAD, dlock_wait(l));
	OK(dlock_token(l, &after));
	TRUE(after > before);
	OK(dlock_post(l));                       /* not mended */
	OK(dlock_wait(plain));
	OK(dlock_post(plain));
	IS(EOWNERDEAD, dlock_wait(l));
	OK(dlock_consistent(l));
	OK(dlock_post(l));
	IS(256 + SIGKILL, child_end(pid));
	OK(dlock_close(l));
	OK(dlock_close(plain));
}

static int die_alone(void *name)
{
	dlock_t *l = open_lock(name, 0);

	if (dlock_wait(l) == 0)
		raise(SIGKILL);
	return 1;
}

/* Nobody has the name open between the death and the next one who comes, nor between him and the one after him. */
static void lonely_death(void)
{
	dlock_t *l;

	IS(256 + SIGKILL, child_end(child(die_alone, "alone")));
	l = open_lock("alone", 0);
	OK(dlock_wait(l));                       /* leaves the mark */
	OK(dlock_post(l));
	OK(dlock_close(l));
	for (int i = 0; i < 3; i++) {
		l = open_lock("alone", ROBUST);
		IS(i < 2 ? EOWNERDEAD : 0, dlock_wait(l));
		if (i == 1)
			OK(dlock_consistent(l));
		OK(dlock_post(l));
		OK(dlock_close(l));
	}
}

static int child_of_holder(void *l)
{
	if (dlock_post(l) != EPERM || dlock_check(l) != EPERM)
		return 1;
	if (dlock_trywait(l) != EBUSY)
		return 2;
	return dlock_close(l) ? 3 : 0;
}

static void forks(void)
{
	dlock_t *l = open_lock("forks", 0);
	pid_t pid;

	OK(dlock_wait(l));
	OK(child_end(child(child_of_holder, l)));
	pid = child(do_pass, l);
	TRUE(soon_wanted(l));
	IS(0, waitpid(pid, NULL, WNOHANG));
	OK(dlock_check(l));
	OK(dlock_post(l));
	OK(child_end(pid));
	OK(do_pass(l));
	OK(dlock_close(l));
}

static int cancelled_waits(void *l)
{
	int r = dlock_wait(l);

	if (r == 0)
		r = dlock_post(l);
	return r == ECANCELED ? 0 : r;
}

static void cancels(void)
{
	dlock_t *l = open_lock("cancels", 0), *h = open_lock("cancels", 0);
	struct thread t[4];

	OK(dlock_wait(h));
	OK(dlock_cancel(l));
	for (int i = 0; i < 4; i++)
		spawn(&t[i], do_wait, l);
	TRUE(soon_wanted(h));
	for (int i = 0; i < 4; i++)
		TRUE(spawned_sleeps(&t[i]));
	OK(dlock_cancel(l));
	for (int i = 0; i < 4; i++)
		IS(ECANCELED, join(&t[i]));
	OK(dlock_post(h));
	for (int round = 0; round < 200; round++) {      /* as the lock comes */
		OK(dlock_wait(h));
		for (int i = 0; i < 4; i++)
			spawn(&t[i], cancelled_waits, l);
		if (round % 2)
			nap_ns(random_below(200000));
		OK(dlock_post(h));
		OK(dlock_cancel(l));
		for (int i = 0; i < 4; i++)
			OK(join(&t[i]));
	}
	OK(do_pass(l));
	OK(dlock_close(l));
	OK(dlock_close(h));
}

#define PASSES 3000

static unsigned passes_begun, passes_done;       /* atomic */

static int passes(void *l, int (*take)(dlock_t *l))
{
	int r = 0;

	for (unsigned i = 1; i <= PASSES; i++) {
		int p;

		while (__atomic_load_n(&passes_begun, __ATOMIC_ACQUIRE) < i)
			sched_yield();
		p = take(l);
		r = r ? r : p;
		if (p == 0)
			p = dlock_post(l);
		r = r ? r : p;
		__atomic_fetch_add(&passes_done, 1, __ATOMIC_ACQ_REL);
	}
	return r;
}

static int passes_in(void *l)
{
	return passes(l, dlock_wait_shared);
}

static int passes_trying(void *l)
{
	return passes(l, dlock_trywait_shared);
}

/* The first readers of a word own it for a moment, one after the other: that is no reason to refuse another. */
static void passing_readers(void)
{
	dlock_t *l = open_lock("passing", 0);
	struct thread t[4];

	passes_begun = passes_done = 0;
	for (int i = 0; i < 4; i++)
		spawn(&t[i], i < 2 ? passes_in : passes_trying, l);
	for (unsigned i = 0; i < PASSES; i++) {
		for (int k = 0; k < 70; k++) {   /* so often alone, and readers have to go the long way again */
			OK(dlock_wait(l));
			OK(dlock_post(l));
		}
		__atomic_fetch_add(&passes_begun, 1, __ATOMIC_ACQ_REL);
		while (__atomic_load_n(&passes_done, __ATOMIC_ACQUIRE) < 4 * (i + 1))
			sched_yield();
	}
	for (int i = 0; i < 4; i++)
		OK(join(&t[i]));
	OK(dlock_close(l));
}

/* Waits on a condition, and lets go of the lock that it then has. */
static dlock_cond_t *cond;

static int cond_waits(void *l)
{
	int r = dlock_wait(l), p;

	if (r)
		return r;
	r = dlock_cond_wait(cond, l);
	p = dlock_post(l);
	return r ? r : p;
}

static int cond_cancelled(void *l)
{
	int r = cond_waits(l);

	return r == ECANCELED ? 0 : r;
}

/* Their entries are in the record, and they have let go of the lock. */
static bool soon_queued(const char *name, const char *count)
{
	char text[4096] = "";

	for (uint64_t until = now_ns() + PATIENCE_MS * MS; now_ns() < until;) {
		dlock_command(text, sizeof text, "show --json --kind condition %s", name);
		if (strstr(text, count))
			return true;
		nap_ns(5 * MS);
	}
	note("%s", text);
	return false;
}

static void cond_cancels(void)
{
	dlock_t *l = open_lock("cond-cancels", 0), *h = open_lock("cond-cancels", 0);
	struct thread t[4];

	OK(dlock_cond_open(&cond, "cond-cancels", NULL));
	for (int i = 0; i < 4; i++)
		spawn(&t[i], cond_waits, l);
	TRUE(soon_queued("cond-cancels", "\"waiterCount\": 4"));
	OK(dlock_cancel(l));
	for (int i = 0; i < 4; i++)
		IS(ECANCELED, join(&t[i]));
	for (int round = 0; round < 50; round++) {       /* as they enter, are signalled, or take the lock again */
		uint64_t begun = now_ns();

		for (int i = 0; i < 4; i++)
			spawn(&t[i], cond_cancelled, l);
		nap_ns(random_below(20 * MS));
		if (round % 2)
			OK(dlock_cond_signal(cond));
		do {                     /* whoever had not begun yet */
			OK(dlock_cancel(l));
			nap_ns(MS);
		} while (!__atomic_load_n(&t[0].done, __ATOMIC_ACQUIRE) || !__atomic_load_n(&t[1].done, __ATOMIC_ACQUIRE) ||
			 !__atomic_load_n(&t[2].done, __ATOMIC_ACQUIRE) || !__atomic_load_n(&t[3].done, __ATOMIC_ACQUIRE));
		for (int i = 0; i < 4; i++)
			OK(join(&t[i]));
		TRUE(now_ns() - begun < PATIENCE_MS * MS);
	}
	OK(do_pass(l));
	OK(dlock_cond_close(cond));
	OK(dlock_close(l));
	OK(dlock_close(h));
}

static void hints(void)
{
	dlock_t *l = open_lock("hints", 0), *other = open_lock("hints", 0);
	struct pollfd p = { .events = POLLIN };
	struct thread t;
	int again;

	OK(do_pass(l));
	OK(dlock_wanted(l));
	OK(dlock_wait(l));
	OK(dlock_fd(l, &p.fd));
	OK(dlock_fd(l, &again));
	IS(p.fd, again);
	TRUE(fcntl(p.fd, F_GETFD) & FD_CLOEXEC);
	OK(dlock_check(l));
	spawn(&t, do_pass, other);
	IS(1, poll(&p, 1, (int)PATIENCE_MS));
	TRUE(soon_wanted(l));
	OK(dlock_check(l));
	OK(dlock_post(l));
	OK(join(&t));
	OK(dlock_close(l));
	OK(dlock_close(other));
}

static void no_daemon(void)
{
	dlock_t *l = open_lock("away", 0), *fast = open_lock("away", FAILFAST | PROCESS), *k;
	struct thread t;
	uint64_t a = 0, b = 0;

	OK(dlock_wait(l));
	OK(dlock_token(l, &a));
	daemon_end(&node, SIGKILL);
	OK(dlock_check(l));                      /* held, and stays held */
	IS(ENOTCONN, dlock_open(&k, "away2", NULL));
	IS(ENOTCONN, dlock_wait(fast));
	OK(dlock_post(l));
	OK(do_pass(fast));                       /* cached: nobody is asked */
	OK(dlock_wait(l));
	spawn(&t, do_pass, fast);                /* fails, since it has to wait */
	IS(ENOTCONN, join(&t));
	daemon_started(&node);
	OK(dlock_check(l));
	IS(0, dlock_open(&k, "away2", NULL));
	OK(do_pass(k));
	OK(dlock_close(k));
	OK(dlock_token(l, &b));
	TRUE(b > a);
	spawn(&t, do_pass, fast);
	TRUE(soon_wanted(l));
	OK(dlock_post(l));
	OK(join(&t));
	OK(dlock_close(l));
	OK(dlock_close(fast));
}

static int open_and_pass(void *name)
{
	dlock_t *l;
	int r = try_open(name, WAIT_DAEMON, &l);

	if (r == 0)
		r = do_pass(l);
	return r ? r : dlock_close(l);
}

static void late_daemon(void)
{
	struct thread t;

	daemon_end(&node, SIGTERM);
	spawn(&t, open_and_pass, "late");
	nap_ns(120 * MS);
	IS(0, __atomic_load_n(&t.done, __ATOMIC_ACQUIRE));
	daemon_started(&node);
	OK(join(&t));
}

static void stopped_daemon(void)
{
	dlock_t *l = open_lock("stopped", 0), *k = open_lock("stopped", PROCESS), *fresh;
	struct thread t, u;
	uint64_t begin;

	OK(do_pass(l));
	fresh = open_lock("never taken", 0);
	kill(node.pid, SIGSTOP);
	for (int i = 0; i < 1000; i++)
		OK(do_pass(l));
	OK(dlock_wait(l));
	spawn(&t, do_pass, k);
	TRUE(soon_wanted(l));
	OK(dlock_post(l));
	OK(join(&t));                            /* processes pass it on without the daemon */
	begin = now_ns();
	IS(EBUSY, dlock_trywait(fresh));         /* asks, for a second */
	TRUE(now_ns() - begin > 900 * MS && now_ns() - begin < PATIENCE_MS * MS);
	spawn(&u, do_pass, fresh);
	nap_ns(50 * MS);
	IS(0, __atomic_load_n(&u.done, __ATOMIC_ACQUIRE));
	kill(node.pid, SIGCONT);
	OK(join(&u));
	OK(dlock_close(l));
	OK(dlock_close(k));
	OK(dlock_close(fresh));
}

static int open_without_descriptors(void *unused)
{
	struct rlimit limit = { 64, 64 };
	int fd, r;
	dlock_t *l;

	(void)unused;
	setrlimit(RLIMIT_NOFILE, &limit);
	while ((fd = open("/dev/null", O_RDONLY)) >= 0)
		;
	r = dlock_open(&l, "tight/x", NULL);
	if (r != EMFILE)
		return 1;
	for (int i = 1; i <= 6; i++) {           /* with one more each time: an error, or it works */
		close(64 - i);
		r = dlock_open(&l, "tight/x", NULL);
		if (r == 0)
			return do_pass(l) || dlock_close(l) ? 2 : 0;
		if (r != EMFILE)
			return 10 + r;
	}
	return 3;
}

static void no_descriptors(void)
{
	OK(child_end(child(open_without_descriptors, NULL)));
}

int dlock_internal_inherit(int *ret_fd);         /* the library's own commands use it */

/* Holds, leaves a grandchild behind, and ends. */
static int leave_heir(void *out)
{
	int fd = -1, kept = *(int *)out;
	dlock_t *l;

	if (dlock_internal_inherit(&fd) || fcntl(fd, F_GETFD) & FD_CLOEXEC)
		return 1;
	if (dlock_internal_inherit(&fd) != EBUSY)
		return 2;
	if (dlock_open(&l, "inherited", NULL) || dlock_wait(l))
		return 3;
	if (fork() == 0) {
		char c;

		/* It outlives its parent, and is not told to end with him even for a moment. */
		_exit(read(kept, &c, 1) > 0);    /* until the test closes the other end */
	}
	return 0;
}

static void inherited_holds(void)
{
	dlock_t *l;
	struct timespec t;
	int end[2], kept;
	pid_t pid;

	OK(pipe2(end, O_CLOEXEC));
	kept = end[0];
	pid = fork();
	if (pid == 0) {
		close(end[1]);
		end_with_parent();
		_exit(leave_heir(&kept));
	}
	OK(child_end(pid));
	l = open_lock("inherited", ROBUST);
	t = in_ms(CLOCK_MONOTONIC, 100);
	IS(ETIMEDOUT, dlock_clockwait(l, CLOCK_MONOTONIC, &t));
	close(end[1]);                           /* the last one ends */
	t = in_ms(CLOCK_MONOTONIC, PATIENCE_MS);
	IS(EOWNERDEAD, dlock_clockwait(l, CLOCK_MONOTONIC, &t));
	OK(dlock_post(l));
	OK(dlock_close(l));
	close(end[0]);
}

static void many_threads(void)
{
	dlock_t *l = open_lock("threads", 0);
	struct thread t[16];

	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 16; i++)
			spawn(&t[i], i % 4 ? do_pass : do_wait, l);      /* every fourth ends while holding */
		for (int i = 0; i < 16; i++)
			OK(join(&t[i]));
	}
	OK(do_pass(l));
	OK(dlock_close(l));
}

static void tell(void (*story)(void), const char *title)
{
	good = true;
	story();
	ok(good, "%s", title);
}

int main(void)
{
	static char *nonce[] = { "--x-no-peerpidfd", NULL }, *counter[] = { "--x-counter-deadline", NULL };

	harness_begin(100);
	daemon_started(&node);
	tell(one_lock, "a lock is taken, given back, and refused to whom it should be");
	tell(names, "names of all kinds and lengths, and thousands of them");
	tell(longest_names, "names as long as can be, which the last byte tells apart");
	tell(time_limits, "limits on both clocks");
	tell(owners, "holds of a thread, of the process, and recursive ones");
	tell(deaths, "the end of a thread and of a process: free at once, and robust handles are told");
	tell(lonely_death, "... also where nobody has the name open between the death and the next one");
	tell(forks, "a child holds nothing and is a client of its own");
	tell(cancels, "a cancel ends the waits, also as the lock comes");
	tell(passing_readers, "to try a shared hold does not fail for readers who are on their way in");
	tell(cond_cancels, "... and those on a condition, with the lock held again");
	tell(inherited_holds, "a hold that children inherit lasts until the last of them has ended");
	tell(hints, "the descriptor hints that the hold is wanted");
	tell(many_threads, "threads that end while holding pass the lock on");
	tell(no_descriptors, "without descriptors an open fails, and works when there are some");
	tell(stopped_daemon, "while the daemon is stopped cached locks go on");
	tell(no_daemon, "while the daemon is away holds stay, and its return changes nothing");
	if (!skipped_across("an open waits for a daemon that is not there yet", "it asks its own node's"))
		tell(late_daemon, "an open waits for a daemon that is not there yet");
	daemon_done(&node);
	if (skipped_across("the same with other options of the daemon", "they are about processes of the node"))
		return harness_end();
	if (daemon_start(&node, built("daemon/dlockd"), nonce, NULL)) {
		tell(one_lock, "the same where the kernel cannot name the peer");
		tell(forks, "children too");
		daemon_end(&node, SIGTERM);
	}
	if (daemon_start(&node, built("daemon/dlockd"), counter, NULL)) {
		tell(one_lock, "the same with deadlines by the counter");
		tell(deaths, "deaths too");
		daemon_end(&node, SIGTERM);
	}
	return harness_end();
}
