/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared holds, in processes against the real daemon: what the calls return, what others see of it, who comes in when,
 * and what deaths, stops and a daemon that comes back change.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

enum { ROBUST = 1, RECURSIVE = 2, PROCESS = 4, FAILFAST = 8 };

static dlock_t *open_lock(const char *name, unsigned flags)
{
	dlock_t *l = NULL;
	dlock_attr_t *a;
	int r;

	OK(dlock_attr_create(&a));
	OK(dlock_attr_set_robust(a, flags & ROBUST));
	OK(dlock_attr_set_recursive(a, flags & RECURSIVE));
	OK(dlock_attr_set_failfast(a, flags & FAILFAST));
	OK(dlock_attr_set_owner(a, flags & PROCESS ? DLOCK_OWNER_PROCESS : DLOCK_OWNER_THREAD));
	r = dlock_open(&l, name, a);
	dlock_attr_destroy(a);
	if (r)
		give_up("opening %s: %s", name, strerror(r));
	return l;
}

static uint64_t token(dlock_t *l)
{
	uint64_t t = 0;

	OK(dlock_token(l, &t));
	return t;
}

static int wait_ms(dlock_t *l, unsigned ms)
{
	struct timespec t = abs_in_ms(ms);

	return dlock_clockwait(l, CLOCK_MONOTONIC, &t);
}

static int wait_shared_ms(dlock_t *l, unsigned ms)
{
	struct timespec t = abs_in_ms(ms);

	return dlock_clockwait_shared(l, CLOCK_MONOTONIC, &t);
}

/* --- Other threads and processes --- */

/* Whatever it may have asked the daemon is answered, and it sleeps. */
static bool still_waits(struct thread *t)
{
	return spawned_sleeps(t) && (nap_ns(30 * MS), spawned_sleeps(t));
}

static bool not_done(struct thread *t)
{
	nap_ns(30 * MS);
	return !__atomic_load_n(&t->done, __ATOMIC_ACQUIRE);
}

static int do_pass(void *l) { int r = dlock_wait(l); return r ? r : dlock_post(l); }
static int do_read(void *l) { int r = dlock_wait_shared(l); return r ? r : dlock_post(l); }
static int do_try(void *l) { int r = dlock_trywait(l); return r ? r : dlock_post(l); }
static int do_try_shared(void *l) { int r = dlock_trywait_shared(l); return r ? r : dlock_post(l); }
static int do_wait_20ms(void *l) { int r = wait_ms(l, 20); return r ? r : dlock_post(l); }
static int do_wait_shared_20ms(void *l) { int r = wait_shared_ms(l, 20); return r ? r : dlock_post(l); }
static int do_read_two(void *l)          /* two threads at a time have two lines */
{
	int r = dlock_wait_shared(l);

	if (r == 0)
		r = elsewhere(do_read, l);
	return r ? r : dlock_post(l);
}
static int do_post(void *l) { return dlock_post(l); }
static int do_keep_shared(void *l) { return dlock_wait_shared(l); }
static int do_shared_upgrade(void *l)
{
	int r = dlock_wait_shared(l);

	if (r == 0)
		r = dlock_upgrade(l);
	if (r == 0)
		return dlock_post(l);
	dlock_post(l);
	return r;
}

/* --- Another process: does as it is told over a pipe --- */

struct other {
	pid_t pid;
	int to, from;
};

static void other_serve(const char *name, int in, int out, unsigned flags)
{
	dlock_t *l = open_lock(name, flags);
	char c;

	while (read(in, &c, 1) == 1) {
		uint64_t t = 0;
		int r = c == 'w' ? dlock_wait(l) : c == 's' ? dlock_wait_shared(l) : c == 'p' ? dlock_post(l) :
			c == 'u' ? dlock_upgrade(l) : c == 'd' ? dlock_downgrade(l) : c == 'c' ? dlock_check(l) :
			c == 't' ? dlock_trywait(l) : c == 'T' ? dlock_trywait_shared(l) : EINVAL;

		if (write(out, &r, sizeof r) < 0 || write(out, &t, 0) < 0)
			_exit(1);
	}
	_exit(0);
}

static void other_begin(struct other *o, const char *name, unsigned flags)
{
	int to[2], from[2];

	if (pipe(to) < 0 || pipe(from) < 0)
		give_up("pipe: %s", strerror(errno));
	o->pid = fork();
	if (o->pid == 0) {
		end_with_parent();
		close(to[1]);
		close(from[0]);
		other_serve(name, to[0], from[1], flags);
	}
	close(to[0]);
	close(from[1]);
	o->to = to[1];
	o->from = from[0];
}

static void tell(struct other *o, char what)
{
	if (write(o->to, &what, 1) != 1)
		give_up("the other is gone");
}

static int hear(struct other *o)
{
	struct pollfd p = { o->from, POLLIN, 0 };
	int r = -1;

	if (poll(&p, 1, PATIENCE_MS) != 1 || read(o->from, &r, sizeof r) != (ssize_t)sizeof r)
		return -1;
	return r;
}

static int ask(struct other *o, char what)
{
	tell(o, what);
	return hear(o);
}

static bool silent(struct other *o)
{
	struct pollfd p = { o->from, POLLIN, 0 };

	return poll(&p, 1, 40) == 0;
}

static void other_end(struct other *o, int signo)
{
	int status;

	kill(o->pid, signo);
	waitpid(o->pid, &status, 0);
	close(o->to);
	close(o->from);
}

/* --- Stories --- */

static void one_process(void)
{
	dlock_t *l = open_lock("s1", 0), *k = open_lock("s1", 0);

	IS(EPERM, dlock_post(l));
	for (int i = 0; i < 3; i++) {            /* the long way, then the short one */
		OK(dlock_wait_shared(l));
		OK(dlock_check(l));
		IS(EPERM, elsewhere(do_post, l));
		OK(elsewhere(do_read, l));
		OK(elsewhere(do_try_shared, k));
		IS(EBUSY, elsewhere(do_try, l));
		IS(ETIMEDOUT, elsewhere(do_wait_20ms, k));
		OK(elsewhere(do_read, l));
		IS(EBUSY, dlock_close(l));
		OK(dlock_post(l));
		IS(EPERM, dlock_post(l));
		IS(EPERM, dlock_check(l));
	}
	OK(dlock_wait(l));
	IS(EBUSY, elsewhere(do_try_shared, k));
	IS(ETIMEDOUT, elsewhere(do_wait_shared_20ms, k));
	OK(dlock_post(l));
	OK(elsewhere(do_read, k));
	IS(EINVAL, dlock_clockwait_shared(l, CLOCK_PROCESS_CPUTIME_ID, NULL));
	OK(dlock_close(l));
	OK(dlock_close(k));
}

static void nested(void)
{
	dlock_t *l = open_lock("s2", 0), *k = open_lock("s2", 0), *m = open_lock("s2b", 0);

	OK(dlock_wait_shared(l));
	OK(dlock_wait_shared(l));
	OK(dlock_wait_shared(k));
	IS(EDEADLK, dlock_wait(l));
	IS(EDEADLK, dlock_wait(k));
	IS(EBUSY, dlock_trywait(k));
	IS(EDEADLK, dlock_upgrade(l));           /* it would wait for itself */
	OK(dlock_post(l));
	OK(dlock_post(l));
	IS(EPERM, dlock_post(l));
	IS(EBUSY, elsewhere(do_try, l));         /* k still holds */
	OK(dlock_post(k));
	IS(EPERM, dlock_post(k));
	OK(elsewhere(do_try, l));
	OK(dlock_wait(l));
	IS(EDEADLK, dlock_wait_shared(l));
	IS(EDEADLK, dlock_wait_shared(k));
	IS(EBUSY, dlock_trywait_shared(k));
	OK(dlock_post(l));
	OK(dlock_wait_shared(m));
	OK(dlock_wait(l));                       /* another name */
	OK(dlock_post(l));
	OK(dlock_post(m));
	OK(dlock_close(l));
	OK(dlock_close(k));
	OK(dlock_close(m));
}

/* More names than a line has cells; more handles than it has records. */
static void many(void)
{
	dlock_t *l[30];
	char name[16];

	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof name, "many%d", i < 20 ? i : 0);
		l[i] = open_lock(name, 0);
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 30; i++)
			OK(dlock_wait_shared(l[i]));
		for (int i = 0; i < 20; i++)
			IS(EBUSY, elsewhere(do_try, l[i]));
		for (int i = 0; i < 30; i++)
			OK(dlock_post(l[round & 1 ? 29 - i : i]));
		for (int i = 0; i < 20; i++)
			OK(elsewhere(do_try, l[i]));
	}
	for (int i = 0; i < 30; i++)
		OK(dlock_close(l[i]));
}

static void tokens(void)
{
	dlock_t *l = open_lock("s3", 0);
	uint64_t last = 0, t;

	for (int i = 0; i < 200; i++) {
		OK(dlock_wait(l));
		t = token(l);
		TRUE(t > last);
		last = t;
		OK(dlock_post(l));
		OK(dlock_wait_shared(l));
		t = token(l);
		TRUE(t > last);
		OK(dlock_post(l));
		OK(dlock_wait_shared(l));
		TRUE(token(l) >= t);
		last = token(l);
		if (i % 3 == 0) {
			OK(dlock_upgrade(l));
			TRUE(token(l) > last);
			last = token(l);
			OK(dlock_downgrade(l));
			TRUE(token(l) > last);
			last = token(l);
		}
		OK(dlock_post(l));
		for (int k = 0; k < 70 && i == 100; k++) {       /* nobody reads for long */
			OK(dlock_wait(l));
			TRUE(token(l) > last);
			last = token(l);
			OK(dlock_post(l));
		}
	}
	OK(dlock_close(l));
}

static void order(void)
{
	dlock_t *l = open_lock("s4", 0);
	struct thread w, r;

	OK(dlock_wait_shared(l));
	spawn(&w, do_pass, l);
	TRUE(still_waits(&w));
	IS(EBUSY, dlock_wanted(l));
	spawn(&r, do_read, l);                   /* behind the writer */
	TRUE(still_waits(&r));
	OK(dlock_wait_shared(l));                /* but who reads already reads on */
	OK(dlock_post(l));
	OK(dlock_post(l));
	OK(join(&w));
	OK(join(&r));
	OK(dlock_wait(l));
	spawn(&w, do_read, l);
	spawn(&r, do_read, l);
	TRUE(still_waits(&w) && still_waits(&r));
	OK(dlock_post(l));
	OK(join(&w));
	OK(join(&r));
	OK(dlock_close(l));
}

static void cancelled(void)
{
	dlock_t *l = open_lock("s5", 0), *k = open_lock("s5", 0);
	struct thread t;

	OK(dlock_wait_shared(k));
	spawn(&t, do_pass, l);
	TRUE(still_waits(&t));
	OK(dlock_cancel(l));
	IS(ECANCELED, join(&t));
	OK(elsewhere(do_read, l));               /* nobody waits any more */
	OK(dlock_post(k));
	OK(dlock_wait(k));
	spawn(&t, do_read, l);
	TRUE(still_waits(&t));
	OK(dlock_cancel(l));
	IS(ECANCELED, join(&t));
	OK(dlock_post(k));
	OK(dlock_wait_shared(k));
	spawn(&t, do_shared_upgrade, l);
	TRUE(still_waits(&t));
	OK(dlock_cancel(l));
	IS(ECANCELED, join(&t));
	OK(elsewhere(do_read, l));
	OK(dlock_post(k));
	OK(dlock_close(l));
	OK(dlock_close(k));
}

static void upgrades(void)
{
	dlock_t *l = open_lock("s6", 0), *k = open_lock("s6", 0);
	struct thread w, u;

	IS(EPERM, dlock_upgrade(l));
	IS(EPERM, dlock_downgrade(l));
	OK(dlock_wait_shared(l));
	IS(EINVAL, dlock_downgrade(l));
	OK(dlock_tryupgrade(l));
	OK(dlock_check(l));
	IS(EINVAL, dlock_upgrade(l));
	IS(EBUSY, elsewhere(do_try_shared, k));
	spawn(&w, do_read, k);
	TRUE(still_waits(&w));
	OK(dlock_downgrade(l));                  /* readers come in */
	OK(join(&w));
	IS(EBUSY, elsewhere(do_try, k));
	spawn(&w, do_pass, k);                   /* a writer waits for us, and we go before it */
	TRUE(still_waits(&w));
	OK(dlock_upgrade(l));
	TRUE(still_waits(&w));
	OK(dlock_downgrade(l));
	TRUE(still_waits(&w));
	OK(dlock_post(l));
	OK(join(&w));
	OK(dlock_wait_shared(l));
	spawn(&u, do_shared_upgrade, k);
	TRUE(still_waits(&u));
	IS(EDEADLK, dlock_upgrade(l));
	IS(EDEADLK, dlock_tryupgrade(l));
	IS(EBUSY, elsewhere(do_try_shared, l));
	OK(dlock_check(l));
	OK(dlock_post(l));
	OK(join(&u));
	OK(dlock_wait_shared(l));
	spawn(&u, do_keep_shared, k);            /* the thread ends: its hold does too */
	OK(join(&u));
	OK(dlock_tryupgrade(l));
	OK(dlock_post(l));
	OK(dlock_close(l));
	OK(dlock_close(k));
}

static void of_the_process(void)
{
	dlock_t *l = open_lock("s7", PROCESS), *k = open_lock("s7", 0), *r = open_lock("s7r", PROCESS | RECURSIVE);

	OK(elsewhere(do_keep_shared, l));
	OK(dlock_check(l));
	OK(dlock_wait_shared(l));
	IS(EBUSY, elsewhere(do_try, k));
	OK(elsewhere(do_post, l));
	OK(dlock_post(l));
	IS(EPERM, dlock_post(l));
	OK(elsewhere(do_try, k));
	OK(dlock_wait_shared(l));
	OK(dlock_upgrade(l));
	IS(EBUSY, elsewhere(do_try_shared, k));
	OK(dlock_downgrade(l));
	OK(elsewhere(do_try_shared, k));
	OK(dlock_post(l));
	OK(dlock_wait_shared(r));
	OK(dlock_wait_shared(r));
	OK(dlock_post(r));
	OK(dlock_check(r));
	OK(dlock_post(r));
	OK(dlock_close(l));
	OK(dlock_close(k));
	OK(dlock_close(r));
}

static void forked(void)
{
	dlock_t *l = open_lock("s8", 0);
	int status;
	pid_t pid;

	OK(dlock_wait_shared(l));
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(dlock_post(l) != EPERM || do_read(l) || do_try(l) != EBUSY ? 1 : dlock_close(l));
	waitpid(pid, &status, 0);
	IS(0, status);
	OK(dlock_check(l));
	OK(dlock_post(l));
	OK(elsewhere(do_try, l));
	OK(dlock_close(l));
}

static void deaths(void)
{
	dlock_t *l = open_lock("s9", ROBUST);
	struct other a, b;

	other_begin(&a, "s9", 0);
	other_begin(&b, "s9", 0);
	OK(ask(&a, 's'));
	OK(ask(&b, 's'));
	IS(EBUSY, dlock_trywait(l));
	other_end(&a, SIGKILL);                  /* a reader's death is no loss */
	IS(EBUSY, dlock_trywait(l));
	other_end(&b, SIGKILL);
	OK(wait_ms(l, PATIENCE_MS));
	OK(dlock_post(l));
	other_begin(&a, "s9", 0);
	other_begin(&b, "s9", 0);
	OK(ask(&a, 's'));
	tell(&b, 'w');                           /* dies while it waits for readers */
	TRUE(silent(&b));
	other_end(&b, SIGKILL);
	OK(wait_shared_ms(l, PATIENCE_MS));
	OK(dlock_post(l));
	OK(ask(&a, 'u'));
	other_end(&a, SIGKILL);                  /* a writer's is */
	IS(EOWNERDEAD, wait_shared_ms(l, PATIENCE_MS));
	IS(EINVAL, dlock_consistent(l));
	IS(EOWNERDEAD, dlock_upgrade(l));
	OK(dlock_consistent(l));
	OK(dlock_downgrade(l));
	OK(dlock_post(l));
	OK(dlock_wait_shared(l));
	other_begin(&a, "s9", 0);
	OK(ask(&a, 's'));
	tell(&a, 'u');                           /* dies while it upgrades */
	TRUE(silent(&a));
	other_end(&a, SIGKILL);
	nap_ns(50 * MS);
	OK(elsewhere(do_read, l));
	OK(dlock_upgrade(l));
	OK(dlock_post(l));
	OK(dlock_close(l));
}

static void stopped(void)
{
	dlock_t *l = open_lock("s10", 0);
	struct other a;

	other_begin(&a, "s10", 0);
	OK(ask(&a, 's'));
	kill(a.pid, SIGSTOP);
	IS(ETIMEDOUT, wait_ms(l, 100));          /* it holds on */
	OK(wait_shared_ms(l, PATIENCE_MS));
	OK(dlock_post(l));
	kill(a.pid, SIGCONT);
	OK(ask(&a, 'p'));
	OK(wait_ms(l, PATIENCE_MS));
	tell(&a, 's');
	TRUE(silent(&a));
	kill(a.pid, SIGSTOP);
	OK(dlock_post(l));
	OK(wait_ms(l, PATIENCE_MS));                    /* whoever was woken and does not run holds up nobody */
	OK(dlock_post(l));
	kill(a.pid, SIGCONT);
	IS(0, hear(&a));
	OK(ask(&a, 'p'));
	other_end(&a, SIGTERM);
	OK(dlock_close(l));
}

static void restarted(void)
{
	dlock_t *l = open_lock("s11", 0), *k = open_lock("s11b", 0);
	struct other a, b;
	struct thread t;

	other_begin(&a, "s11", 0);
	other_begin(&b, "s11", 0);
	OK(dlock_wait_shared(l));
	OK(ask(&a, 's'));
	OK(ask(&b, 's'));
	OK(ask(&b, 'p'));
	daemon_end(&node, SIGKILL);
	OK(ask(&b, 's'));
	OK(ask(&b, 'p'));
	spawn(&t, do_read_two, k);               /* has to ask for a line first */
	TRUE(not_done(&t));
	tell(&b, 'w');
	TRUE(silent(&b));
	daemon_started(&node);
	OK(dlock_check(l));
	OK(join(&t));
	TRUE(silent(&b));
	other_end(&a, SIGKILL);
	TRUE(silent(&b));
	OK(dlock_post(l));
	IS(0, hear(&b));
	OK(ask(&b, 'p'));
	other_begin(&a, "s11", 0);
	OK(ask(&a, 's'));
	IS(EPERM, ask(&b, 'c'));
	daemon_end(&node, SIGKILL);
	other_end(&a, SIGKILL);                  /* while nobody looks */
	daemon_started(&node);
	OK(wait_ms(l, PATIENCE_MS));
	OK(dlock_post(l));
	OK(dlock_wait_shared(l));
	IS(0, ask(&b, 's'));
	OK(ask(&b, 'p'));
	OK(dlock_post(l));
	other_end(&b, SIGTERM);
	OK(dlock_close(l));
	OK(dlock_close(k));
}

/* The word says still that it may be read, and the new daemon has no line of anybody. */
static void readers_gone_before_the_daemon(void)
{
	dlock_t *l = open_lock("s12", 0);
	struct other a;

	other_begin(&a, "s12", 0);
	OK(ask(&a, 's'));
	OK(ask(&a, 'p'));
	other_end(&a, SIGKILL);
	nap_ns(50 * MS);
	daemon_end(&node, SIGKILL);
	daemon_started(&node);
	OK(wait_ms(l, PATIENCE_MS));
	OK(dlock_post(l));
	OK(dlock_close(l));
}

/* --- Everybody at once --- */

struct crowd {
	uint64_t a, b;                   /* alike, unless a writer is inside, or has died there */
	uint64_t wrong, last;
	uint64_t wrote[8], read[8], upgraded[8], downgraded[8];
	int end;
};

static void crowd_wrong(struct crowd *c, unsigned what)
{
	__atomic_fetch_add(&c->wrong, UINT64_C(1) << what, __ATOMIC_RELAXED);
}

static void crowd_write(struct crowd *c, bool died)
{
	volatile uint64_t *a = &c->a, *b = &c->b;

	if (died)
		*b = *a;
	if (*a != *b)
		crowd_wrong(c, 8);
	++*a;
	for (volatile int i = 0; i < 20; i++)
		;
	++*b;
}

static void crowd_read(struct crowd *c, bool died)
{
	volatile uint64_t *a = &c->a, *b = &c->b;
	uint64_t was = *b;

	for (volatile int i = 0; i < 20; i++)
		;
	if (*a != was && !died)
		crowd_wrong(c, 8);
}

static void crowd_member(struct crowd *c, unsigned me, unsigned writes, bool kills)
{
	dlock_t *l = open_lock("crowd", kills ? ROBUST : 0);
	unsigned seed = (unsigned)harness.seed + me;

	while (!__atomic_load_n(&c->end, __ATOMIC_RELAXED)) {
		bool write = (unsigned)rand_r(&seed) % 100 < writes, alone = write;
		int r = write ? dlock_wait(l) : dlock_wait_shared(l);

		if (r != 0 && r != EOWNERDEAD) {
			crowd_wrong(c, 16);
			break;
		}
		if (!write && rand_r(&seed) % 16 == 0) {
			r = dlock_upgrade(l);
			alone = r == 0 || r == EOWNERDEAD;
			c->upgraded[me] += alone;
		}
		if (alone) {
			uint64_t t;

			if (dlock_token(l, &t) || t <= c->last)
				crowd_wrong(c, 0);
			c->last = t;
			crowd_write(c, r == EOWNERDEAD);
			c->wrote[me]++;
			if (r == EOWNERDEAD)
				r = dlock_consistent(l);
			if (rand_r(&seed) % 8 == 0) {
				alone = false;
				if (dlock_downgrade(l))
					crowd_wrong(c, 24);
				c->downgraded[me]++;
			}
		}
		if (!alone) {
			crowd_read(c, r == EOWNERDEAD);
			c->read[me]++;
		}
		if (dlock_post(l))
			crowd_wrong(c, 32);
	}
	_exit(0);
}

static pid_t crowd_fork(struct crowd *c, unsigned me, unsigned writes, bool kills)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		end_with_parent();
		crowd_member(c, me, writes, kills);
	}
	return pid;
}

/* Each has done what there is to do, or where some are killed, one of them has. */
static bool crowd_all_in(const struct crowd *c, unsigned n, bool one)
{
	unsigned wrote = 0, read = 0;
	bool up = false, down = false;

	for (unsigned i = 0; i < n; i++) {
		read += __atomic_load_n(&c->read[i], __ATOMIC_RELAXED) > 0;
		wrote += __atomic_load_n(&c->wrote[i], __ATOMIC_RELAXED) > 0;
		up |= __atomic_load_n(&c->upgraded[i], __ATOMIC_RELAXED) > 0;
		down |= __atomic_load_n(&c->downgraded[i], __ATOMIC_RELAXED) > 0;
	}
	return up && down && read >= (one ? 1 : n) && wrote >= (one ? 1 : n);
}

/* kills: one after the other is killed, wherever it is, and replaced. */
static void crowd(unsigned n, unsigned writes, unsigned ms, bool kills)
{
	struct crowd *c = shared_memory(sizeof *c);
	pid_t pid[8];
	uint64_t until, wrote = 0, read = 0;
	int status;

	for (unsigned i = 0; i < n; i++)
		pid[i] = crowd_fork(c, i, writes, kills);
	for (until = now_ns() + ms * MS; now_ns() < until || (!crowd_all_in(c, n, kills) && now_ns() < until + PATIENCE_MS * MS);) {
		unsigned i = random_below(n);

		nap_ns((kills ? 1 + random_below(10) : 20) * MS);
		if (!kills)
			continue;
		kill(pid[i], SIGKILL);
		waitpid(pid[i], &status, 0);
		pid[i] = crowd_fork(c, i, writes, kills);
	}
	__atomic_store_n(&c->end, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < n; i++) {
		waitpid(pid[i], &status, 0);
		IS(0, status);
		wrote += c->wrote[i];
		read += c->read[i];
	}
	TRUE(crowd_all_in(c, n, kills));
	IS(0, c->wrong);
	note("%u processes, %u %% writers: wrote %llu, read %llu", n, writes, (unsigned long long)wrote, (unsigned long long)read);
}

static void crowd_half(void) { crowd(4, 50, 1500, false); }
static void crowd_readers(void) { crowd(8, 10, 1500, false); }
static void crowd_killed(void) { crowd(6, 30, 3000, true); }

/* --- Neither starves the other --- */

struct endless {
	uint64_t n[4];
	int end;
};

static void endless(struct endless *e, unsigned me, bool write, unsigned hold_us)
{
	dlock_t *l = open_lock("endless", 0);

	end_with_parent();
	while (!__atomic_load_n(&e->end, __ATOMIC_RELAXED)) {
		if (write ? dlock_wait(l) : dlock_wait_shared(l))
			_exit(1);
		nap_ns(hold_us * 1000);
		if (dlock_post(l))
			_exit(1);
		e->n[me]++;
	}
	_exit(0);
}

static bool endless_enough(const struct endless *e)
{
	for (unsigned i = 0; i < 4; i++)
		if (__atomic_load_n(&e->n[i], __ATOMIC_RELAXED) < 100)
			return false;
	return true;
}

static void starving(bool writers)
{
	struct endless *e = shared_memory(sizeof *e);
	pid_t pid[4];
	int status;

	fflush(stdout);
	for (unsigned i = 0; i < 4; i++)
		if ((pid[i] = fork()) == 0)
			endless(e, i, writers ? i == 0 : i != 0, 500);   /* three that overlap, and one */
	/* All of them go on. How often is the machine's matter; that none of them has no share, ours. */
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !endless_enough(e) && now_ns() < until;)
		nap_ns(100 * MS);
	__atomic_store_n(&e->end, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < 4; i++) {
		waitpid(pid[i], &status, 0);
		IS(0, status);
	}
	note("one %s %llu, three others %llu %llu %llu", writers ? "writer" : "reader", (unsigned long long)e->n[0],
	     (unsigned long long)e->n[1], (unsigned long long)e->n[2], (unsigned long long)e->n[3]);
	for (unsigned i = 0; i < 4; i++)
		TRUE(e->n[i] >= 100);
}

static void starving_writer(void) { starving(true); }
static void starving_reader(void) { starving(false); }

static void story(const char *title, void (*fn)(void))
{
	good = true;
	fn();
	ok(good, "%s", title);
}

int main(void)
{
	harness_begin(110);
	daemon_started(&node);
	story("all readers have gone, and then the daemon is killed", readers_gone_before_the_daemon);   /* first: we have no line yet */
	story("one process: shared beside shared, never beside exclusive", one_process);
	story("the same thread again, and through other handles", nested);
	story("more names and handles than a line has cells", many);
	story("tokens of readers lie between those of writers", tokens);
	story("who reads reads on; who comes waits behind the writer", order);
	story("waits of each kind are cancelled", cancelled);
	story("up and down, before those who wait, one at a time", upgrades);
	story("a hold that belongs to the process", of_the_process);
	story("a fork's child reads nothing", forked);
	story("readers, waiting writers and upgraders die", deaths);
	story("a stopped reader holds on; a stopped waiter holds up nobody", stopped);
	story("the daemon is killed and comes back", restarted);
	story("four, half of them writing", crowd_half);
	story("eight that mostly read", crowd_readers);
	story("and some are killed all the time", crowd_killed);
	story("a writer among readers without end", starving_writer);
	story("a reader among writers without end", starving_reader);
	daemon_end(&node, SIGTERM);
	return harness_end();
}
