/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers (double ones: double.c): on one node told twice, once with the rounds completed by the parties themselves, and once by the
 * daemon as where there are many nodes; and once more where there are (far.sh).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"
#include "barrier_acts.h"
#include "harness.h"

#define CREW      8
#define ROUNDS    400
#define TRIES     10
#define SOON_MS   300                    /* for what has no reason to wait */
#define VETO      0x100

static struct daemon daemon_;
static char *no_options[] = { NULL }, *as_many[] = { "--x-as-many", NULL };
static char **options;
static const char *mode;
static struct actor crew[CREW];
static char name_[32];

/* --- What actors do --- */

static int b_open_too(struct stage *s, uint64_t parties)
{
	dlock_barrier_t *b;
	int r = dlock_barrier_open(&b, s->text, (unsigned)parties, NULL);

	return r ? r : dlock_barrier_close(b);
}

static int b_vote(struct stage *s, uint64_t yes)
{
	bool all = false;
	int r = dlock_barrier_vote(bar, yes, &all);

	(void)s;
	return r == 0 || r == DLOCK_SERIAL ? !all * VETO : r;
}

/* How often it was the serial one. */
static int b_rounds(struct stage *s, uint64_t n)
{
	int serials = 0;

	(void)s;
	for (uint64_t i = 0; i < n; i++) {
		int r = dlock_barrier_wait(bar);

		if (r > 0)
			return -1000 - r;
		serials += r == DLOCK_SERIAL;
	}
	return serials;
}

static void *thread_rounds(void *n)
{
	return (void *)(intptr_t)b_rounds(NULL, *(uint64_t *)n);
}

static int b_threads(struct stage *s, uint64_t threads)
{
	pthread_t t[64];
	uint64_t rounds = 20;
	int serials = 0;

	(void)s;
	for (uint64_t i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, thread_rounds, &rounds))
			return -1;
	for (uint64_t i = 0; i < threads; i++) {
		void *r;

		pthread_join(t[i], &r);
		serials += (int)(intptr_t)r;
	}
	return serials;
}

static int b_fork(struct stage *s, uint64_t unused)
{
	pid_t pid = fork();
	int r, status;

	(void)s;
	(void)unused;
	if (pid == 0)
		_exit(dlock_barrier_wait(bar) & 0xff);
	r = dlock_barrier_wait(bar);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 1000;
	return (r == DLOCK_SERIAL) + (WEXITSTATUS(status) == 0xff) == 1 ? 0 : 1001;
}

static void *thread_waits(void *tid)
{
	uint64_t one = 1;

	__atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELEASE);
	return thread_rounds(&one);
}

static int b_close_busy(struct stage *s, uint64_t unused)
{
	pthread_t t;
	pid_t tid = 0;
	int r;

	(void)s;
	(void)unused;
	if (pthread_create(&t, NULL, thread_waits, &tid))
		return -1;
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		nap_ns(MS);
	if (!asleep(tid))
		return -1;
	r = dlock_barrier_close(bar);
	dlock_barrier_reset(bar);
	pthread_join(t, NULL);
	return r;
}

/* --- The test's side --- */

static void fresh(const char *story, unsigned parties, int n)
{
	snprintf(name_, sizeof name_, "b/%s", story);
	for (int i = 0; i < n; i++) {
		struct result r = actor_do(&crew[i], b_open, parties, name_);

		if (r.r)
			give_up("%s: a barrier of %u opens: %d", story, parties, r.r);
	}
}

static void comes(int i, actor_fn fn, uint64_t arg)
{
	actor_send(&crew[i], fn, arg, NULL);
}

static void sleeps(int i)
{
	if (!asleep(crew[i].pid))
		give_up("party %d sleeps", i);
}

/* How many have come on the node of the k-th client, as everybody can see: its daemon knows of them too. */
static int come_at(unsigned k, char *text, size_t size)
{
	const char *at;

	setenv("DLOCK_RUN_DIR", run_dir_of(k), 1);
	dlock_command(text, size, "show --json %s", name_);
	setenv("DLOCK_RUN_DIR", harness.run, 1);
	at = strstr(text, "\"count\": ");
	return at ? atoi(at + 9) : 0;
}

static bool here_within(int n, unsigned ms)
{
	static char text[1 << 14];
	uint64_t until = now_ns() + ms * MS;
	int come;

	do {
		come = 0;
		for (unsigned k = 0; k < (harness.nodes ? 3 : 1); k++)
			come += come_at(k, text, sizeof text);
		if (come == n)
			return true;
	} while (now_ns() < until);
	note("%s: %d have come, not %d; says dlock show: %s", mode, come, n, text);
	return false;
}

static void here(int n)
{
	if (!here_within(n, PATIENCE_MS))
		give_up("%s: %d come", mode, n);
}

static void waits(int i)
{
	comes(i, b_wait, 0);
	sleeps(i);
}

static int told(int i, unsigned ms)
{
	struct result r;

	return actor_result(&crew[i], ms, &r) ? r.r : NOTHING;
}

/*
 * Comes, and gives up after a while, which breaks the other's round. On a busy machine it may give up before it has come: then it breaks
 * nothing, and gets more time.
 */
static int gives_up(int who, actor_fn fn, int other, int *ret_other)
{
	unsigned ms = 100;
	int r;

	do {
		comes(who, fn, ms);
		r = told(who, PATIENCE_MS);
		*ret_other = told(other, ms * 5);
		ms *= 3;
	} while (r == ETIMEDOUT && *ret_other == NOTHING && ms < PATIENCE_MS);
	return r;
}

/* All of them come; exactly one is the serial one. */
static bool round_works(int n)
{
	int serials = 0, good = 0;

	for (int i = 0; i < n; i++)
		comes(i, b_wait, 0);
	for (int i = 0; i < n; i++) {
		int r = told(i, PATIENCE_MS);

		good += passed(r);
		serials += r == DLOCK_SERIAL;
	}
	if (good != n || serials != 1)
		note("%d of %d passed, %d serial", good, n, serials);
	return good == n && serials == 1;
}

static void many_rounds(void)
{
	int serials = 0;

	fresh("rounds", CREW, CREW);
	for (int i = 0; i < CREW; i++)
		comes(i, b_rounds, ROUNDS);
	for (int i = 0; i < CREW; i++)
		serials += told(i, PATIENCE_MS);
	ok(serials == ROUNDS, "%s: %d processes, %d rounds, and one serial party in each (%d)", mode, CREW, ROUNDS, serials);
}

static void more_than_there_should_be(void)
{
	fresh("more", 2, 4);
	waits(0);
	comes(1, b_wait, 0);
	bool two = passed(told(0, PATIENCE_MS)) && passed(told(1, PATIENCE_MS));
	waits(2);
	bool third = told(2, 50) == NOTHING;
	comes(3, b_wait, 0);
	ok(two && third && passed(told(2, PATIENCE_MS)) && passed(told(3, PATIENCE_MS)), "%s: who is too many waits for the next round", mode);
}

static void time_is_over(void)
{
	fresh("time", 3, 3);
	waits(0);
	here(1);
	int other, one = gives_up(1, b_timed, 0, &other);
	bool next = round_works(3);
	ok(one == ETIMEDOUT && other == EPIPE && next, "%s: who gives up breaks the round (%d, %d), the next one works", mode, one, other);
	comes(0, b_timed, PATIENCE_MS);
	comes(1, b_timed, PATIENCE_MS);
	comes(2, b_timed, PATIENCE_MS);
	ok(passed(told(0, PATIENCE_MS)) && passed(told(1, PATIENCE_MS)) && passed(told(2, PATIENCE_MS)), "%s: who is in time passes", mode);
}

/* Again where it was late, since the machine may have had other work. */
static void a_party_dies(void)
{
	struct pace pace = { 0 };
	bool good = true;

	for (int i = 0; i < TRIES && good && !pace.quick; i++) {
		struct actor doomed;
		uint64_t at;

		fresh("death", 3, 3);
		waits(0);
		actor_begin(&doomed);
		if (actor_do(&doomed, b_open, 3, name_).r)
			give_up("the doomed opens");
		actor_send(&doomed, b_wait, 0, NULL);
		if (!asleep(doomed.pid))
			give_up("the doomed sleeps");
		here(2);
		at = now_ns();
		actor_kill(&doomed, SIGKILL);
		good = told(0, PATIENCE_MS) == EPIPE;
		pace_took(&pace, now_ns() - at, SOON_MS);
		good &= round_works(3);
	}
	ok(good && pace.quick, "%s: a party's death breaks the round (%.1f ms at most), the next one works", mode, (double)pace.worst_ns / 1e6);
}

static void they_vote(void)
{
	int r[3];

	fresh("vote", 3, 3);
	for (int yes = 0; yes < 8; yes++) {
		for (int i = 0; i < 3; i++)
			comes(i, b_vote, yes >> i & 1);
		for (int i = 0; i < 3; i++)
			r[i] = told(i, PATIENCE_MS);
		int right = yes == 7 ? 0 : VETO;
		if (r[0] != right || r[1] != right || r[2] != right) {
			ok(false, "%s: votes %d: %x %x %x", mode, yes, r[0], r[1], r[2]);
			return;
		}
	}
	ok(true, "%s: all are told alike whether all voted yes", mode);
}

static void reset_breaks(void)
{
	fresh("reset", 3, 3);
	waits(0);
	waits(1);
	here(2);
	int r = actor_do(&crew[2], b_reset, 0, NULL).r, a = told(0, PATIENCE_MS), b = told(1, PATIENCE_MS);
	bool again = actor_do(&crew[2], b_reset, 0, NULL).r == 0;
	ok(r == 0 && a == EPIPE && b == EPIPE && again && round_works(3), "%s: a reset breaks the round (%d, %d, %d)", mode, r, a, b);
}

static void daemon_restarts(void)
{
	bool works = true;

	fresh("restart", 3, 3);
	for (int i = 0; i < (harness.nodes && !harness.full ? 2 : 5) && works; i++) {
		waits(0);
		waits(1);
		here(2);
		daemon_end(&daemon_, SIGKILL);
		if (i & 1)
			comes(2, b_wait, 0);
		if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
			give_up("the daemon starts again");
		if (!(i & 1))
			comes(2, b_wait, 0);
		int r[3] = { told(0, PATIENCE_MS), told(1, PATIENCE_MS), told(2, PATIENCE_MS) };
		works = passed(r[0]) && passed(r[1]) && passed(r[2]) &&
			(r[0] == DLOCK_SERIAL) + (r[1] == DLOCK_SERIAL) + (r[2] == DLOCK_SERIAL) == 1;
		if (!works)
			note("restart %d: %d %d %d", i, r[0], r[1], r[2]);
	}
	ok(works && round_works(3), "%s: a daemon that is killed and started again in the middle of a round changes nothing", mode);
	for (unsigned ms = 2000;; ms *= 3) {
		waits(0);
		comes(1, b_timed, ms);
		if (here_within(2, ms / 2) || ms > PATIENCE_MS)
			break;
		told(1, PATIENCE_MS);            /* the machine is busy: again, with more time */
		actor_do(&crew[2], b_reset, 0, NULL);
		told(0, PATIENCE_MS);
	}
	daemon_end(&daemon_, SIGKILL);
	nap_ns(200 * MS);
	if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
		give_up("the daemon starts again");
	int one = told(1, PATIENCE_MS), other = told(0, PATIENCE_MS);
	ok(one == ETIMEDOUT && other == EPIPE && round_works(3), "%s: nor does it keep anybody from giving up (%d, %d)", mode, one, other);
}

static void party_dies_with_daemon(void)
{
	struct actor doomed;

	fresh("both", 3, 3);
	waits(0);
	actor_begin(&doomed);
	if (actor_do(&doomed, b_open, 3, name_).r)
		give_up("the doomed opens");
	actor_send(&doomed, b_wait, 0, NULL);
	if (!asleep(doomed.pid))
		give_up("the doomed sleeps");
	here(2);
	daemon_end(&daemon_, SIGKILL);
	actor_kill(&doomed, SIGKILL);
	if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
		give_up("the daemon starts again");
	int r = told(0, PATIENCE_MS);
	ok(r == EPIPE && round_works(3), "%s: a party that dies while no daemon is there breaks the round too (%d)", mode, r);
}

/* The stopped one has its round's verdict, whatever has come to pass since. */
static void stopped_party(bool breaks)
{
	bool works = true;

	fresh(breaks ? "stop-broken" : "stop", 2, 4);
	waits(0);
	here(1);
	kill(crew[0].pid, SIGSTOP);
	comes(1, breaks ? b_reset : b_wait, 0);
	int one = told(1, PATIENCE_MS);
	for (int i = 0; i < 10 && works; i++) {
		comes(1, b_vote, 0);
		comes(2, b_vote, i & 1);
		int a = told(1, PATIENCE_MS), b = told(2, PATIENCE_MS);
		comes(1, b_timed, 20);
		int c = told(1, PATIENCE_MS);
		works = a == VETO && b == VETO && c == ETIMEDOUT;
		if (!works)
			note("beside a stopped party: %x %x %d", a, b, c);
	}
	kill(crew[0].pid, SIGCONT);
	int r = told(0, PATIENCE_MS);
	if (breaks)
		ok(works && one == 0 && r == EPIPE, "%s: a stopped party holds nobody up, and learns that its round broke (%d)", mode, r);
	else
		ok(works && passed(one) && passed(r) && (one == DLOCK_SERIAL) + (r == DLOCK_SERIAL) == 1,
		   "%s: a stopped party holds nobody up, and learns that its round passed (%d)", mode, r);
}

static void threads(void)
{
	fresh("threads", 60, 2);
	comes(0, b_threads, 25);
	comes(1, b_threads, 35);
	int serials = told(0, PATIENCE_MS) + told(1, PATIENCE_MS);
	ok(serials == 20, "%s: sixty threads of two processes, twenty rounds (%d)", mode, serials);
}

static void odds(void)
{
	fresh("fork", 2, 1);
	comes(0, b_fork, 0);
	int r = told(0, PATIENCE_MS);
	ok(r == 0, "%s: a child is a party of its own (%d)", mode, r);
	fresh("other", 3, 1);            /* across nodes: of the same one */
	int none = actor_do(&crew[3], b_open_too, 0, name_).r, four = actor_do(&crew[3], b_open_too, 4, name_).r;
	ok(four == EINVAL && none == EINVAL && actor_do(&crew[3], b_open_too, 3, name_).r == 0, "%s: all say the same number of parties (%d)",
	   mode, four);
	fresh("busy", 2, 1);
	comes(0, b_close_busy, 0);
	r = told(0, PATIENCE_MS);
	ok(r == EBUSY, "%s: a barrier at which somebody waits cannot be closed (%d)", mode, r);
}

/* Who is alone needs no daemon for its rounds. */
static void without_daemon(void)
{
	fresh("alone", 3, 3);
	waits(0);
	kill(daemon_.pid, SIGSTOP);
	int other, one = gives_up(1, b_timed, 0, &other);
	bool works = round_works(3) && round_works(3);
	kill(daemon_.pid, SIGCONT);
	ok(works && one == ETIMEDOUT && other == EPIPE, "%s: rounds pass and break while the daemon is stopped (%d, %d)", mode, one, other);
}

static void tell(const char *how, char **with)
{
	mode = how;
	options = with;
	if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
		give_up("the daemon starts");
	for (int i = 0; i < CREW; i++)
		actor_begin(&crew[i]);
	many_rounds();
	more_than_there_should_be();
	time_is_over();
	a_party_dies();
	they_vote();
	reset_breaks();
	threads();
	odds();
	stopped_party(false);
	stopped_party(true);
	if (with == no_options)
		without_daemon();
	daemon_restarts();
	party_dies_with_daemon();
	for (int i = 0; i < CREW; i++)
		actor_kill(&crew[i], SIGKILL);
	daemon_done(&daemon_);
}

int main(void)
{
	harness_begin(110);
	if (harness.nodes) {
		tell("far", as_many);
		return harness_end();
	}
	tell("here", no_options);
	tell("as many", as_many);
	return harness_end();
}
