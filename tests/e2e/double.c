/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Double barriers on one node, and across nodes (far.sh): those who have entered leave together, and whoever dies inside, closes or loses patience breaks that
 * for all the others alike, whether they wait already or are inside yet; the next ones enter. A party that is killed after any
 * instruction of entering and leaving, and a daemon that is killed in between, or at one of its stores, change nothing of that.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"
#include "barrier_acts.h"
#include "harness.h"
#include "step.h"

#define CREW      4
#define NAME      "double"
#define CYCLES    100
#define BUDGET_NS ((harness.full ? 60000 : 1500) * MS)  /* for what is tried at random places */
#define LATE_MS   200                    /* it may be, or there is nothing to be said */

static struct daemon daemon_;
static struct actor crew[CREW];
static char name_[32];
static struct shared {
	unsigned inside, most, done;     /* now; at once; have been done inside, ever */
} *shared;

/* --- What actors do --- */

static int d_close(struct stage *s, uint64_t unused)
{
	dlock_barrier_t *b = bar;

	(void)s;
	(void)unused;
	bar = NULL;
	return dlock_barrier_close(b);
}

/* How often it was the serial one of those who entered, and a thousand times that of those who left. */
static int d_cycles(struct stage *s, uint64_t n)
{
	unsigned parties = 0;
	int in, out, serials = 0;

	(void)s;
	for (uint64_t i = 0; i < n; i++) {
		in = dlock_barrier_enter(bar);
		parties = __atomic_add_fetch(&shared->inside, 1, __ATOMIC_SEQ_CST);
		if (parties > __atomic_load_n(&shared->most, __ATOMIC_SEQ_CST))
			__atomic_store_n(&shared->most, parties, __ATOMIC_SEQ_CST);
		unsigned done = __atomic_add_fetch(&shared->done, 1, __ATOMIC_SEQ_CST);
		__atomic_sub_fetch(&shared->inside, 1, __ATOMIC_SEQ_CST);
		out = dlock_barrier_leave(bar);
		if (in > 0 || out > 0)
			return -1000 - (in > 0 ? in : out);
		if (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < (done + 2) / 3 * 3)
			return -2;       /* not all three of them were done */
		serials += (in == DLOCK_SERIAL) + 1000 * (out == DLOCK_SERIAL);
	}
	return serials;
}

static int d_child_leaves(struct stage *s, uint64_t unused)
{
	pid_t pid = fork();
	int status;

	(void)s;
	(void)unused;
	if (pid == 0)
		_exit(dlock_barrier_leave(bar));
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static pid_t leaver;

static void *leaves(void *unused)
{
	(void)unused;
	__atomic_store_n(&leaver, gettid(), __ATOMIC_RELEASE);
	return (void *)(intptr_t)dlock_barrier_leave(bar);
}

static int d_thread_leaves(struct stage *s, uint64_t unused)
{
	pthread_t t;
	void *r;

	(void)s;
	(void)unused;
	if (pthread_create(&t, NULL, leaves, NULL))
		return -1;
	pthread_join(t, &r);
	return (int)(intptr_t)r;
}

static int d_close_busy(struct stage *s, uint64_t unused)
{
	pthread_t t;
	void *left;
	int r;

	(void)s;
	(void)unused;
	if (pthread_create(&t, NULL, leaves, NULL))
		return -1;
	while (!__atomic_load_n(&leaver, __ATOMIC_ACQUIRE))
		nap_ns(MS);
	if (!asleep(leaver))
		return -1;
	r = dlock_barrier_close(bar);
	dlock_barrier_reset(bar);
	pthread_join(t, &left);
	return r == EBUSY ? (int)(intptr_t)left : -1000 - r;
}

static int d_exec(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	execl("/bin/sleep", "sleep", "60", NULL);
	return -1;
}

/* --- The test's side --- */

static void fresh(const char *story, unsigned parties, int n)
{
	snprintf(name_, sizeof name_, "d/%s", story);
	for (int i = 0; i < n; i++) {
		struct result r = actor_do(&crew[i], b_open_patient, parties, name_);

		if (r.r)
			give_up("%s: a barrier of %u opens: %d", story, parties, r.r);
	}
}

static void replace(int i)
{
	actor_kill(&crew[i], SIGKILL);
	actor_begin(&crew[i]);
	if (actor_do(&crew[i], b_open_patient, 3, name_).r)
		give_up("%s: another party opens", name_);
}

static void comes(int i, actor_fn fn, uint64_t arg)
{
	actor_send(&crew[i], fn, arg, NULL);
}

static int told(int i, unsigned ms)
{
	struct result r;

	return actor_result(&crew[i], ms, &r) ? r.r : NOTHING;
}

static void sleeps(int i)
{
	if (!asleep(crew[i].pid))
		give_up("%s: party %d sleeps", name_, i);
}

static bool all(int n, actor_fn fn)
{
	int serials = 0, good = 0;

	for (int i = 0; i < n; i++)
		comes(i, fn, 0);
	for (int i = 0; i < n; i++) {
		int r = told(i, PATIENCE_MS);

		good += passed(r);
		serials += r == DLOCK_SERIAL;
		if (!passed(r))
			note("%s: party %d of %d: %d", name_, i, n, r);
	}
	return good == n && serials == 1;
}

static bool cycle_works(int n)
{
	return all(n, d_enter) && all(n, d_leave);
}

static void many_cycles(void)
{
	int serials = 0;

	fresh("cycles", 3, 3);
	*shared = (struct shared){ 0 };
	for (int i = 0; i < 3; i++)
		comes(i, d_cycles, CYCLES);
	for (int i = 0; i < 3; i++)
		serials += told(i, 60000);
	ok(serials == 1001 * CYCLES && shared->most <= 3,
	   "three processes enter and leave %d times, each time one is the serial one, and none goes before all are done (%d, %u)", CYCLES,
	   serials, shared->most);
}

static void others_enter_after(void)
{
	fresh("after", 2, 4);
	bool in = all(2, d_enter);
	comes(2, d_enter, 0);
	comes(3, d_enter, 0);
	sleeps(2);
	sleeps(3);
	comes(0, d_leave, 0);
	sleeps(0);
	bool apart = told(0, 50) == NOTHING && told(2, 0) == NOTHING && told(3, 0) == NOTHING;
	comes(1, d_leave, 0);
	bool out = passed(told(0, PATIENCE_MS)) && passed(told(1, PATIENCE_MS));
	bool next = passed(told(2, PATIENCE_MS)) && passed(told(3, PATIENCE_MS));
	comes(2, d_leave, 0);
	comes(3, d_leave, 0);
	ok(in && apart && out && next && passed(told(2, PATIENCE_MS)) && passed(told(3, PATIENCE_MS)), "others enter after those who are inside have left");
}

/* --- What breaks it --- */

static void dies(void)
{
	replace(2);
}

static void closes(void)
{
	if (actor_do(&crew[2], d_close, 0, NULL).r || actor_do(&crew[2], b_open_patient, 3, name_).r)
		give_up("a party closes and opens again");
}

static void exits(void)
{
	actor_send(&crew[2], act_exit, 0, NULL);
	if (!actor_is_gone(&crew[2], PATIENCE_MS))
		give_up("a party exits");
	replace(2);
}

static void execs(void)
{
	actor_send(&crew[2], d_exec, 0, NULL);
}

static void resets(void)
{
	if (actor_do(&crew[2], b_reset, 0, NULL).r)
		give_up("a party resets");
	comes(2, d_leave, 0);
	if (told(2, PATIENCE_MS) != EPIPE)
		give_up("who resets is told that it broke, too");
}

static void has_had_enough(void)
{
	comes(2, d_leave_within, 20);
	if (told(2, PATIENCE_MS) != ETIMEDOUT)
		give_up("who has waited for long enough is told so");
}

static void daemon_away(void)
{
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&crew[2], SIGKILL);
	if (!daemon_start(&daemon_, built("daemon/dlockd"), NULL, NULL))
		give_up("the daemon starts again");
	replace(2);
}

static const struct ending {
	const char *title, *name;
	void (*fn)(void);
} endings[] = {
	{ "one dies", "dies", dies },
	{ "one closes its handle", "closes", closes },
	{ "one exits", "exits", exits },
	{ "one becomes another program", "execs", execs },
	{ "somebody resets", "resets", resets },
	{ "one has had enough of waiting for the others", "enough", has_had_enough },
	{ "one dies while no daemon is there", "away", daemon_away },
};

/* The first waits already, the second is inside yet. */
static void ends_inside(const struct ending *e)
{
	fresh(e->name, 3, 3);
	bool in = all(3, d_enter);
	comes(0, d_leave, 0);
	sleeps(0);
	e->fn();
	int a = told(0, PATIENCE_MS);
	comes(1, d_leave, 0);
	int b = told(1, PATIENCE_MS);
	if (e->fn == execs)
		replace(2);
	bool works = cycle_works(3);
	ok(in && a == EPIPE && b == EPIPE && works, "while they are inside %s: EPIPE for who waits and who comes later (%d, %d), and the next ones work", e->title,
	   a, b);
}

static void nobody_is_left(void)
{
	fresh("nobody", 3, 3);
	bool in = all(3, d_enter);
	for (int i = 0; i < 3; i++)
		replace(i);
	ok(in && cycle_works(3), "all die inside: others enter");
}

static void handle_in_use(void)
{
	fresh("busy", 3, 3);
	bool in = all(3, d_enter);
	comes(0, d_close_busy, 0);
	int a = told(0, PATIENCE_MS);
	comes(1, d_leave, 0);
	comes(2, d_leave, 0);
	int b = told(1, PATIENCE_MS), c = told(2, PATIENCE_MS);
	ok(in && a == EPIPE && b == EPIPE && c == EPIPE, "a handle through which somebody leaves cannot be closed (%d, %d, %d)", a, b, c);
}

static void who_is_not_inside(void)
{
	fresh("outside", 2, 2);
	int never = actor_do(&crew[0], d_leave, 0, NULL).r;
	bool in = all(2, d_enter);
	int child = actor_do(&crew[0], d_child_leaves, 0, NULL).r;
	comes(0, d_thread_leaves, 0);
	comes(1, d_leave, 0);
	bool out = passed(told(0, PATIENCE_MS)) && passed(told(1, PATIENCE_MS));
	int twice = actor_do(&crew[0], d_leave, 0, NULL).r;
	ok(never == EPERM && twice == EPERM && child == EPERM && in && out,
	   "who has not entered does not leave, nor a child; another thread does (%d, %d, %d)", never, twice, child);
}

static void daemon_restarts(void)
{
	bool works = true;

	fresh("restart", 3, 3);
	for (int i = 0; i < (harness.nodes && !harness.full ? 2 : 4) && works; i++) {
		works = all(3, d_enter);
		comes(0, d_leave, 0);
		sleeps(0);
		daemon_end(&daemon_, SIGKILL);
		if (i & 1)
			comes(1, d_leave, 0);
		if (!daemon_start(&daemon_, built("daemon/dlockd"), NULL, NULL))
			give_up("the daemon starts again");
		if (!(i & 1))
			comes(1, d_leave, 0);
		works &= told(0, 50) == NOTHING;
		comes(2, d_leave, 0);
		int r[3] = { told(0, PATIENCE_MS), told(1, PATIENCE_MS), told(2, PATIENCE_MS) };
		works &= passed(r[0]) && passed(r[1]) && passed(r[2]);
		if (!works)
			note("restart %d: %d %d %d", i, r[0], r[1], r[2]);
	}
	ok(works, "a daemon that is killed and started again while some are inside knows them");
}

/* --- At any instruction --- */

static long wrong, places, at_, ends[4];     /* passed, broke as they entered, broke as they left, passed with another one */

static void prepare(void)
{
	if (bar_opened(NAME, 3, true))
		_exit(1);
	dlock_barrier_enter(bar);        /* so that all is there that is made once */
	dlock_barrier_leave(bar);
}

static void in_and_out(void)
{
	dlock_barrier_enter(bar);
	step_mark(1);
	dlock_barrier_leave(bar);
}

/* 0: in and out; which of both went wrong, and how. */
static int d_cycle(struct stage *s, uint64_t unused)
{
	int in = dlock_barrier_enter(bar), out = in > 0 ? 0 : dlock_barrier_leave(bar);

	(void)s;
	(void)unused;
	return in > 0 ? 1000 + in : out > 0 ? 2000 + out : 0;
}

static void beside(void)
{
	comes(0, d_cycle, 0);
	comes(1, d_cycle, 0);
}

static void expect(bool good, const char *what, int a, int b)
{
	if (good)
		return;
	note("at %ld: %s: %d, %d", at_, what, a, b);
	wrong++;
}

/* Two have come; the third one has died somewhere. Whatever comes of it is told to both, unless they wait for another to enter. */
static void two_of_three(void)
{
	int a = told(0, LATE_MS), b, c = 0;
	bool another = a == NOTHING;

	if (another) {
		comes(2, d_cycle, 0);
		a = told(0, PATIENCE_MS);
	}
	b = told(1, PATIENCE_MS);
	if (a == NOTHING || b == NOTHING)
		give_up("at %ld: somebody is forgotten: %d, %d", at_, a, b);
	expect(a == b && (!a || a == 1000 + EPIPE || a == 2000 + EPIPE), "one is dead", a, b);
	if (another && a == 0)
		c = told(2, PATIENCE_MS);
	if (another && (a || c == NOTHING)) {    /* they were only late, and it waits for two others */
		beside();
		expect(told(0, PATIENCE_MS) + told(1, PATIENCE_MS) + told(2, PATIENCE_MS) == 0, "others come", 0, 0);
	} else {
		expect(c == 0, "another one comes", a, c);
	}
	ends[!another || a || c == NOTHING ? a / 1000 : 3]++;
}

static struct stepper how = { prepare, in_and_out, NULL };

static void step_play(long k)
{
	struct step s;

	at_ = k;
	beside();                        /* with its first cycle, in prepare() */
	step_begin(&s, &how);
	int a = told(0, PATIENCE_MS), b = told(1, PATIENCE_MS);
	expect(!a && !b, "the first cycle", a, b);
	beside();
	step_to(&s, k, false);
	step_kill(&s);
	two_of_three();
	if (!cycle_works(3))
		give_up("at %ld: the next cycle does not work", at_);
	places++;
}

/* How many instructions it is. */
static long step_count(void)
{
	struct step s;

	beside();
	step_begin(&s, &how);
	if (told(0, PATIENCE_MS) || told(1, PATIENCE_MS))
		give_up("the first cycle");
	beside();
	step_to(&s, 1000000, false);
	step_kill(&s);
	two_of_three();
	return s.at;
}

static void steps(void)
{
	uint64_t begin = now_ns();

	snprintf(name_, sizeof name_, NAME);
	for (int i = 0; i < 3; i++)
		if (actor_do(&crew[i], b_open_patient, 3, NAME).r)
			give_up("an actor opens");
	wrong = places = 0;
	long n = step_count();
	do
		step_play(random_below((uint32_t)n + 1));
	while (now_ns() - begin < 2 * BUDGET_NS || places < 4);
	ok(wrong == 0, "killed at any instruction of entering and leaving, at %ld of some %ld: all passed %ld times, none entered %ld, none left %ld, "
	   "another one came in its place %ld", places, n, ends[0], ends[1], ends[2], ends[3]);
}

/* --- The daemon is killed at its stores --- */

static void follow_up(void)
{
	if (!daemon_ended(&daemon_, 0))
		return;
	if (!daemon_start(&daemon_, built("daemon/dlockd"), NULL, NULL))
		give_up("the daemon starts again");
}

static void faults_story(void)
{
	int a, b;

	if (!cycle_works(3))
		give_up("at %ld: a cycle works", at_);
	expect(all(3, d_enter), "three enter", 0, 0);
	comes(0, d_leave, 0);
	replace(2);
	a = told(0, PATIENCE_MS);
	comes(1, d_leave, 0);
	b = told(1, PATIENCE_MS);
	expect(a == EPIPE && b == EPIPE, "one dies inside", a, b);
	if (!cycle_works(3))
		give_up("at %ld: the next cycle works", at_);
}

static void faults(void)
{
	uint64_t begin = now_ns();
	long deaths = 0;

	wrong = places = 0;
	actor_meanwhile = follow_up;
	do {
		char text[40];

		at_ = 1 + random_below(500);
		snprintf(text, sizeof text, "DLOCK_FAULT_AT=%ld", at_);
		daemon_end(&daemon_, SIGKILL);
		if (!daemon_start(&daemon_, built("tests/e2e/dlockd-fault"), NULL, (char *[]){ text, NULL })) {
			deaths++;
			follow_up();
		}
		pid_t pid = daemon_.pid;
		faults_story();
		deaths += daemon_.pid != pid;
		places++;
	} while (now_ns() - begin < (deaths ? 2 * BUDGET_NS : PATIENCE_MS * MS));
	actor_meanwhile = NULL;
	ok(wrong == 0 && deaths > 0, "the daemon killed at its stores, %ld times in %ld", deaths, places);
}

int main(void)
{
	harness_begin(harness.full || getenv("DLOCK_CHECK_FULL") ? 900 : 110);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !daemon_start(&daemon_, built("daemon/dlockd"), NULL, NULL))
		give_up("the daemon starts");
	for (int i = 0; i < CREW; i++)
		actor_begin(&crew[i]);
	many_cycles();
	others_enter_after();
	for (unsigned i = 0; i < sizeof endings / sizeof *endings; i++)
		ends_inside(&endings[i]);
	nobody_is_left();
	handle_in_use();
	who_is_not_inside();
	daemon_restarts();
	if (!skipped_across("killed at any instruction of entering and leaving", "who comes first on another node is not known"))
		steps();
	faults();
	for (int i = 0; i < CREW; i++)
		actor_kill(&crew[i], SIGKILL);
	daemon_done(&daemon_);
	return harness_end();
}
