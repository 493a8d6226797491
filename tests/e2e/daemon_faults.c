/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon is killed before and after each of its stores to a segment or to the ledger (fault.h),
 * while it takes over from another and while it serves; and at random moments under load. Each time
 * its successor finds: nobody has lost a lock that he holds, nobody who waits is forgotten, nobody is
 * inside with another, and what was closed is free.
 *
 * All places are tried where that takes no longer than the budget, else every n-th from a random one
 * on; with $DLOCK_CHECK_FULL all.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actor.h"
#include "guard.h"
#include "harness.h"

#define BUDGET_NS (60000 * MS)
#define SOON_MS   1000                   /* after the new daemon is ready */
#define REFILL    ((1 << 20) + 3)        /* more than the first range of tokens */

enum { A, B, D, E, NAMES };

static struct daemon daemon_;
static struct guard *guards;
static uint64_t ready_ns;                /* when the present daemon was */
static unsigned deaths;                  /* of daemons, in this round */
static const char *round_title;
static long round_at, wrong;
static struct pace pace;

/* --- The daemon --- */

static void start_plain(void)
{
	daemon_started(&daemon_);
	ready_ns = now_ns();
}

static void start_faulty(long at)
{
	char text[40];

	snprintf(text, sizeof text, "DLOCK_FAULT_AT=%ld", at);
	deaths = 0;
	if (daemon_start(&daemon_, built("tests/e2e/dlockd-fault"), NULL, (char *[]){ text, NULL })) {
		ready_ns = now_ns();
		return;
	}
	deaths++;
	start_plain();
}

/* While anything is waited for: a daemon that died is followed by a sound one. */
static void follow_up(void)
{
	if (!daemon_ended(&daemon_, 0))
		return;
	if (!WIFSIGNALED(daemon_.status) || WTERMSIG(daemon_.status) != SIGKILL)
		give_up("the daemon died by itself: status %x", daemon_.status);
	deaths++;
	start_plain();
}

/* --- Things that actors do --- */

static int guarded(struct stage *s, uint64_t name)
{
	return guard_pass(&guards[name], s->lock[name], true);
}

static int hold_guarded(struct stage *s, uint64_t name)
{
	int r = dlock_wait(s->lock[name]);

	if (taken(r))
		guard_enter(&guards[name], s->lock[name], r, true);
	return taken(r) ? 0 : r;
}

static int let_go_guarded(struct stage *s, uint64_t name)
{
	int r = dlock_check(s->lock[name]);

	guard_leave(&guards[name]);
	return r ? r : dlock_post(s->lock[name]);
}

static int use_up(struct stage *s, uint64_t name)
{
	int r = 0;

	for (int i = 0; i < REFILL && r == 0; i++) {
		r = dlock_wait(s->lock[name]);
		if (r == 0)
			r = dlock_post(s->lock[name]);
	}
	return r;
}

static int ask_fd(struct stage *s, uint64_t name)
{
	int fd, r;

	do {
		r = dlock_fd(s->lock[name], &fd);
	} while (r == ENOTCONN && usleep(10000) == 0);
	return r;
}

/* --- The script --- */

static struct actor holder, first, second, user;

static void expect(bool good, const char *what, int r)
{
	if (good)
		return;
	note("%s, killed at %ld: %s (%d)", round_title, round_at, what, r);
	wrong++;
}

static void open_as(struct actor *a, unsigned name, const char *text)
{
	int r = actor_do(a, act_open, name | OPEN_ROBUST | OPEN_WAIT_DAEMON, text).r;

	expect(r == 0, "an open", r);
	if (r)
		give_up("without this open nothing goes on");
}

static void start(struct actor *a, actor_fn fn, uint64_t name)
{
	actor_send(a, fn, name, NULL);
	if (!asleep(a->pid))
		give_up("one who is to wait waits");
}

/* Its pace is noted, the time without a daemon left out. */
static void served(struct actor *a, const char *what)
{
	uint64_t since = now_ns();
	struct result r = { .r = -1 };

	if (!actor_result(a, PATIENCE_MS, &r)) {
		expect(false, what, -1);
		give_up("%s, killed at %ld: forgotten: %s", round_title, round_at, what);
	}
	if (ready_ns > since)
		since = ready_ns;
	expect(r.r == 0, what, r.r);
	pace_took(&pace, r.at_ns > since ? r.at_ns - since : 0, SOON_MS);
}

static void done(struct actor *a, actor_fn fn, uint64_t name, const char *what)
{
	int r = actor_do(a, fn, name, NULL).r;

	expect(r == 0, what, r);
}

/* Before the daemon that is to fall: one holds, one waits for it; one died holding, one waits for that. */
static void set_up(struct actor *fresh)
{
	struct actor victim;

	done(&holder, hold_guarded, A, "the holder holds");
	start(&first, guarded, A);
	actor_begin(&victim);
	open_as(&victim, B, "b");
	done(&victim, hold_guarded, B, "the victim holds");
	start(&second, guarded, B);
	actor_begin(fresh);
	open_as(fresh, D, "d");
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&victim, SIGKILL);
	start(fresh, guarded, D);
}

static void killed_waiter(void)
{
	struct actor a;

	actor_begin(&a);
	open_as(&a, A, "a");
	start(&a, guarded, A);
	actor_kill(&a, SIGKILL);
}

static void killed_holder(void)
{
	struct actor a;

	actor_begin(&a);
	open_as(&a, B, "b");
	done(&a, hold_guarded, B, "one holds");
	start(&second, guarded, B);
	actor_kill(&a, SIGKILL);
	served(&second, "who waits for one that is killed");
}

static void script(struct actor *fresh)
{
	char name[60];
	int r;

	served(&second, "who waits for a holder that died without a daemon");
	served(fresh, "the first who wants a name");
	r = actor_do(&holder, act_check, A, NULL).r;
	expect(r == 0, "the holder's check", r);
	snprintf(name, sizeof name, "a name that does not fit into its record, number %ld", round_at);
	open_as(&user, E, name);
	done(&user, guarded, E, "a first acquisition");
	done(&user, ask_fd, E, "a descriptor");
	done(&user, use_up, E, "tokens of another range");
	killed_waiter();
	done(&user, act_close, E, "a close");
	killed_holder();
	done(&holder, let_go_guarded, A, "the holder's post");
	served(&first, "who waits for a living holder");
	actor_kill(fresh, SIGKILL);
	done(&user, guarded, A, "an acquisition");
}

/* The names and clients that are known in the end. A death becomes known in its own time. */
static void look_at_the_rest(void)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;
	long names = 0, clients = 0;

	for (int i = 0; now_ns() < until; i++) {
		follow_up();
		names = status_number("names");
		clients = status_number("clients");
		if (names == 2 && clients == 4)
			return;
		nap_ns(10 * MS);
		/* A close that no daemon heard is made up for with the next request. */
		if (i % 10)
			continue;
		open_as(&user, D, "d");
		done(&user, act_close, D, "another close");
	}
	note("%s, killed at %ld: %ld names and %ld clients are left", round_title, round_at, names, clients);
	wrong++;
}

static bool play(long at)
{
	struct actor fresh;

	round_at = at;
	set_up(&fresh);
	start_faulty(at);
	script(&fresh);
	look_at_the_rest();
	if (guards[A].inside || guards[B].inside)
		expect(false, "somebody is left inside", guards[A].inside);
	return deaths > 0;
}

static void begin(struct actor *a)
{
	actor_begin(a);
	open_as(a, A, "a");
	open_as(a, B, "b");
}

static void violations(const char *title)
{
	uint64_t n = 0, passes = 0, dead = 0;

	for (int i = 0; i < NAMES; i++) {
		n += guards[i].violations;
		passes += guards[i].passes;
		dead += guards[i].deaths;
		if (guards[i].violations)
			note("name %d: %s", i, guards[i].what);
	}
	ok(n == 0 && dead > 0, "%s: one inside at a time, and tokens that rise (%llu passes, %llu deaths inside)", title,
	   (unsigned long long)passes, (unsigned long long)dead);
}

/* A daemon that never ran before, and a space that was not there. */
static bool play_first(long at)
{
	char command[100];
	struct actor a;
	bool clean = false;

	round_at = at;
	daemon_end(&daemon_, SIGKILL);
	snprintf(command, sizeof command, "rm -rf %s/run %s/state", harness.dir, harness.dir);
	if (system(command))
		give_up("%s", command);
	memset(guards, 0, NAMES * sizeof *guards);
	start_faulty(at);
	actor_begin(&a);
	open_as(&a, A, "new/a");
	open_as(&a, B, "a name of some length, so that it is kept elsewhere");
	done(&a, guarded, A, "an acquisition in a new space");
	done(&a, guarded, B, "another");
	done(&a, act_close, B, "a close");
	follow_up();
	done(&a, guarded, A, "and one more");
	actor_kill(&a, SIGKILL);
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !clean && now_ns() < until;) {
		follow_up();
		clean = status_number("names") == 0 && status_number("clients") == 0;
		if (!clean)
			nap_ns(10 * MS);
	}
	expect(clean, "something is left", -1);
	return deaths > 0 || daemon_ended(&daemon_, 0);          /* perhaps at a store that it makes in its own time */
}

static void test_first_stores(void)
{
	long at = 1;

	wrong = 0;
	round_title = "first stores";
	while (play_first(at))
		at++;
	ok(wrong == 0 && at > 20 && guards[A].violations + guards[B].violations == 0,
	   "the daemon killed at each of the %ld stores of its first start and of a new space", at);
}

static void test_every_store(void)
{
	uint64_t begin_ns = now_ns();
	long n = 0, rounds = 0, stride, at;

	round_title = "every store";
	while (play(1 << 30))            /* once without a death, for the time that it takes */
		give_up("the daemon with fault points survives without one");
	stride = 1;
	for (at = 1; play(at); at += stride, rounds++) {
		if (rounds == 9 && !harness.full) {
			/* As many places as the longest run so far had, at this price. */
			n = 700;
			stride = (long)((double)(now_ns() - begin_ns) / 10 * (double)n / (double)BUDGET_NS) + 1;
			at += random_below((uint32_t)stride);
		}
		if (at % 50 == 0)
			note("%ld", at);
	}
	ok(wrong == 0 && rounds > 9 && pace_is_quick(&pace), "the daemon killed at each %ld. of about %ld stores: nobody lost, nobody forgotten, all freed", stride, at);
	note("%ld rounds, %.1f s", rounds, (double)(now_ns() - begin_ns) / 1e9);
	violations("killed at its stores");
}

/* --- Under load --- */

#define WORKERS   6
#define LOAD_NS   ((harness.full ? 60000 : 10000) * MS)

static struct load {
	bool stop;
	uint64_t errors, opens;
	int error;
} *load;

static void load_error(int r)
{
	__atomic_store_n(&load->error, r, __ATOMIC_RELAXED);
	__atomic_fetch_add(&load->errors, 1, __ATOMIC_RELAXED);
}

/* Once in a while somebody stays inside for a moment, so that the others have to sleep. */
static int pass(struct guard *g, dlock_t *l, bool robust, unsigned stay_us)
{
	int r = dlock_wait(l);

	if (!taken(r))
		return r;
	guard_enter(g, l, r, robust);
	if (stay_us)
		nap_ns(stay_us * (MS / 1000));
	guard_leave(g);
	return dlock_post(l);
}

/*
 * Passes through three names all the time, which it closes and opens again now and then. Somebody else
 * has two of them open all the time; the third is forgotten when all have closed it, and with it the
 * death of its last holder.
 */
static int work(struct stage *s, uint64_t seed)
{
	static const char *const names[] = { "load/a", "load/b", "load/c" };
	unsigned state = (unsigned)seed;
	dlock_attr_t *attr;

	dlock_attr_create(&attr);
	dlock_attr_set_robust(attr, true);
	dlock_attr_set_wait_daemon(attr, true);
	while (!__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		unsigned i = (unsigned)rand_r(&state) % 3;
		int r = 0;

		if (!s->lock[i]) {
			r = dlock_open(&s->lock[i], names[i], attr);
			__atomic_fetch_add(&load->opens, 1, __ATOMIC_RELAXED);
		}
		for (int n = rand_r(&state) % 200; n > 0 && r == 0; n--)
			r = pass(&guards[i], s->lock[i], i != 2, n % 50 ? 0 : (unsigned)rand_r(&state) % 3000);
		if (r == 0 && rand_r(&state) % 2) {
			r = dlock_close(s->lock[i]);
			s->lock[i] = NULL;
		}
		if (r)
			load_error(r);
	}
	dlock_attr_destroy(attr);
	return 0;
}

static void begin_worker(struct actor *a)
{
	actor_begin(a);
	actor_send(a, work, random_below(1 << 30), NULL);
}

static void test_load(void)
{
	struct actor worker[WORKERS], keeper;
	uint64_t until = now_ns() + LOAD_NS;
	unsigned restarts = 0, kills = 0;

	memset(guards, 0, NAMES * sizeof *guards);
	load = shared_memory(sizeof *load);
	daemon_end(&daemon_, SIGTERM);
	start_plain();
	actor_begin(&keeper);
	open_as(&keeper, 0, "load/a");
	open_as(&keeper, 1, "load/b");
	for (int i = 0; i < WORKERS; i++)
		begin_worker(&worker[i]);
	while (now_ns() < until || ((restarts <= 20 || load->opens <= 50) && now_ns() < until + PATIENCE_MS * MS)) {
		struct actor *a = &worker[random_below(WORKERS)];
		bool known = random_below(2);

		daemon_end(&daemon_, SIGKILL);
		if (random_below(3) == 0) {
			actor_kill(a, SIGKILL);
			begin_worker(a);
			kills++;
		}
		nap_ns(random_below(5) * MS);
		if (known)
			start_faulty(1 + random_below(400));
		else
			start_plain();
		restarts++;
		if (random_below(2)) {
			actor_kill(a, SIGKILL);
			begin_worker(a);
			kills++;
		}
		for (int i = (int)random_below(40); i > 0 && !daemon_ended(&daemon_, 1); i--)
			;
	}
	if (daemon_ended(&daemon_, 0))
		start_plain();
	__atomic_store_n(&load->stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < WORKERS; i++) {
		struct result r = { .r = -1 };

		if (!actor_result(&worker[i], PATIENCE_MS, &r) || r.r)
			wrong++;
		actor_kill(&worker[i], SIGKILL);
	}
	actor_kill(&keeper, SIGKILL);
	ok(wrong == 0 && load->errors == 0 && restarts > 20 && kills && load->opens > 50,
	   "%u daemons and %u workers killed under load: nobody is stuck, no call fails (%llu errors, the last %d)", restarts,
	   kills, (unsigned long long)load->errors, load->error);
	violations("under load");
}

int main(int argc, char **argv)
{
	harness_begin(getenv("DLOCK_CHECK_FULL") ? 3500 : 170);
	guards = shared_memory(NAMES * sizeof *guards);
	start_plain();
	actor_meanwhile = follow_up;
	actor_meanwhile_fd = &daemon_.pidfd;
	if (argc < 2 || !strcmp(argv[1], "stores")) {
		begin(&holder);
		begin(&first);
		begin(&second);
		begin(&user);
		if (argc > 2) {
			round_title = "one";
			play(atol(argv[2]));
		} else {
			test_every_store();
		}
		actor_kill(&holder, SIGKILL);
		actor_kill(&first, SIGKILL);
		actor_kill(&second, SIGKILL);
		actor_kill(&user, SIGKILL);
	}
	if (argc < 2 || !strcmp(argv[1], "first"))
		test_first_stores();
	actor_meanwhile = NULL;
	if (argc < 2 || !strcmp(argv[1], "load"))
		test_load();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
