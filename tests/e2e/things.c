/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What lies in the store: latches, condition variables, worker ids and values; with deaths of those who use them, and of the daemon, by
 * SIGKILL between any two of its stores. Across nodes (far.sh) two of the crew are on each, and it is the first node's daemon that dies.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "things_acts.h"

#define CREW     6
#define SOON_MS  500u
#define LONG_MS  PATIENCE_MS
#define DEATHS   (harness.full ? 200 : harness.nodes ? 3u : 14)
#define NODES    (harness.nodes ? 3 : 1)

static struct daemon daemon_;
static struct actor crew[CREW];
static unsigned deaths;

static struct shared {
	uint32_t counted[CREW];          /* by each, acknowledged */
	uint32_t stop;
	uint64_t made, taken;            /* what lies under the lock */
} *shared;

/* --- In the actors --- */

/* A child, with what it has from its parent. */
static int l_fork(struct stage *s, uint64_t unused)
{
	pid_t child = fork();
	int status = 0;

	(void)s;
	(void)unused;
	if (child == 0)
		_exit(dlock_latch_countdown(mine.latch, 1));
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static int l_close(struct stage *s, uint64_t unused)
{
	int r = dlock_latch_close(mine.latch);

	(void)s;
	(void)unused;
	mine.latch = NULL;
	return r;
}

static int l_count_many(struct stage *s, uint64_t me)
{
	(void)s;
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		unsigned n = 1 + shared->counted[me] % 3;
		int r = dlock_latch_countdown(mine.latch, n);

		if (r)
			return r;
		shared->counted[me] += n;
	}
	return 0;
}

static int c_take(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_wait(mine.lock);
}

static int c_try(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_trywait(mine.lock);
}

static int c_post(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_post(mine.lock);
}

/* Takes the lock, waits, and says whether it holds the lock after that; which it gives back. */
static int c_wait_held(struct stage *s, uint64_t ms)
{
	struct timespec t = abs_in_ms(ms);
	int r = dlock_wait(mine.lock);

	if (r && r != EOWNERDEAD)
		return r;
	r = ms ? dlock_cond_clockwait(mine.cond, mine.lock, CLOCK_MONOTONIC, &t) : dlock_cond_wait(mine.cond, mine.lock);
	s->token = dlock_check(mine.lock) == 0;
	dlock_post(mine.lock);
	return r;
}

static int c_wait_unheld(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_cond_wait(mine.cond, mine.lock);
}

/* What a child that was forked while its parent holds the lock, or waits for the condition, finds: that it does neither. Which look was wrong. */
static int child_looks(bool held)
{
	const struct timespec now = abs_in_ms(0);

	if (dlock_check(mine.lock) != EPERM || dlock_post(mine.lock) != EPERM)
		return 1;
	if (dlock_cond_wait(mine.cond, mine.lock) != EPERM || dlock_cond_clockwait(mine.cond, mine.lock, CLOCK_MONOTONIC, &now) != EPERM)
		return 2;
	if (dlock_trywait(mine.lock) != (held ? EBUSY : 0) || (!held && dlock_post(mine.lock)))
		return 3;
	return dlock_cond_close(mine.cond) || dlock_close(mine.lock) ? 4 : 0;
}

static int c_fork(struct stage *s, uint64_t held)
{
	pid_t child = fork();
	int status = 0;

	(void)s;
	if (child == 0)
		exit(child_looks(held));
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static pthread_t aside;

static void *waits_aside(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)c_wait(NULL, 0);
}

/* In another thread. */
static int c_wait_aside(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return pthread_create(&aside, NULL, waits_aside, NULL);
}

static int c_join(struct stage *s, uint64_t unused)
{
	void *r;

	(void)s;
	(void)unused;
	pthread_join(aside, &r);
	return (int)(intptr_t)r;
}

static int c_produce(struct stage *s, uint64_t n)
{
	int r = 0;

	(void)s;
	for (; n && r == 0; n--) {
		r = dlock_wait(mine.lock);
		if (r)
			return r;
		shared->made++;
		r = dlock_cond_signal(mine.cond);
		if (r == 0)
			r = dlock_post(mine.lock);
	}
	return r;
}

static int c_consume(struct stage *s, uint64_t total)
{
	int r;

	(void)s;
	for (;;) {
		r = dlock_wait(mine.lock);
		while (r == 0 && shared->taken == shared->made && shared->taken < total)
			r = dlock_cond_wait(mine.cond, mine.lock);
		if (r)
			return r;
		if (shared->taken == total) {
			dlock_cond_broadcast(mine.cond);
			return dlock_post(mine.lock);
		}
		shared->taken++;
		r = dlock_post(mine.lock);
		if (r)
			return r;
	}
}

#define IDS 20000
static uint64_t *ids;                    /* CREW * IDS, shared */

/* Naps in between, so that daemons come and go meanwhile. What it could not get at once it asks for again. */
static int i_take(struct stage *s, uint64_t me)
{
	uint64_t last = 0, *to = ids + me * IDS;

	(void)s;
	for (unsigned i = 0; i < IDS; i++) {
		int r;

		do {
			r = dlock_id_next(mine.gen, &to[i]);
		} while (r == ENOTCONN);
		if (r)
			return r;
		if (to[i] <= last)
			return EBADMSG;
		last = to[i];
		if (i % 64 == 0)
			nap_ns(MS);
	}
	return 0;
}

/* Until there are none any more, or for so long: how long that went, in milliseconds. */
static int i_take_all(struct stage *s, uint64_t ms)
{
	uint64_t begun = now_ns(), id;
	int r;

	do {
		r = dlock_id_next(mine.gen, &id);
		nap_ns(MS);
	} while (r == 0 && now_ns() - begun < ms * MS);
	s->token = (now_ns() - begun) / MS;
	return r;
}

/* --- The crew --- */

static bool all(actor_fn fn, uint64_t arg, const char *text)
{
	bool good = true;

	for (int i = 0; i < CREW; i++)
		good &= actor_do(&crew[i], fn, arg, text).r == 0;
	return good;
}

static void crew_begin(void)
{
	for (int i = 0; i < CREW; i++)
		actor_begin(&crew[i]);
}

static void crew_end(void)
{
	for (int i = 0; i < CREW; i++)
		actor_kill(&crew[i], SIGKILL);
}

static struct pace pace;                 /* of what is to be soon */

static bool result_is(int i, unsigned ms, int r)
{
	uint64_t since = now_ns();
	struct result res;

	if (!actor_result(&crew[i], PATIENCE_MS, &res)) {
		note("nothing from %d", i);
		return false;
	}
	if (res.r != r)
		note("%d says %s", i, strerror(res.r));
	if (ms == SOON_MS)
		pace_took(&pace, res.at_ns > since ? res.at_ns - since : 0, ms);
	return res.r == r;
}

/* Of a latch that is unlinked elsewhere. Whoever waits where it was open may pass until that is heard of there. */
static bool wait_ends_gone(int i)
{
	int r = 0;

	for (uint64_t until = now_ns() + PATIENCE_MS * MS; r == 0 && now_ns() < until;)
		r = actor_do(&crew[i], l_wait, PATIENCE_MS, "").r;
	return r == ENOENT;
}

static bool nothing_from(int i, unsigned ms)
{
	struct result res;

	return !actor_result(&crew[i], ms, &res);
}

/* By dlock show, sooner or later. */
static bool shown(const char *name, const char *part)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;
	char text[4096];

	do {
		dlock_command(text, sizeof text, "show --json %s", name);
		if (strstr(text, part))
			return true;
		nap_ns(MS);
	} while (now_ns() < until);
	note("%s", text);
	return false;
}

/* Waits for the condition, as the n-th. */
static void waits_as(int i, const char *name, int n)
{
	char what[60], count[20];

	actor_send(&crew[i], c_wait_held, 0, "");
	snprintf(what, sizeof what, "--kind condition %s", name);
	snprintf(count, sizeof count, "\"count\": %d", n);
	if (!shown(what, count))
		give_up("%s: somebody waits as number %d", name, n);
}

/* --- Daemons that die at one of their stores, one after the other --- */

static void start_faulty(void)
{
	char text[40];

	for (;;) {
		snprintf(text, sizeof text, "DLOCK_FAULT_AT=%u", 20 + random_below(400));
		if (daemon_start(&daemon_, built("tests/e2e/dlockd-fault"), NULL, (char *[]){ text, NULL }))
			return;
		deaths++;
	}
}

static void die_again_and_again(unsigned n)
{
	daemon_end(&daemon_, SIGKILL);
	for (deaths = 0; deaths < n;) {
		start_faulty();
		if (daemon_ended(&daemon_, 1000)) {
			deaths++;
		} else {
			daemon_end(&daemon_, deaths % 2 ? SIGTERM : SIGKILL);
			deaths++;
		}
	}
	daemon_started(&daemon_);
}

/* --- Latches --- */

static bool says(const char *command, int code, const char *part)
{
	char text[1024];
	int r = dlock_command(text, sizeof text, "%s", command);

	if (r != code || !strstr(text, part))
		note("%s: %d, %s", command, r, text);
	return r == code && strstr(text, part);
}

/* A close is on its way for some milliseconds. */
static bool is_removed(void)
{
	char text[1024];
	int r = 1;

	for (uint64_t until = now_ns() + PATIENCE_MS * MS; r == 1 && now_ns() < until; nap_ns(MS))
		r = dlock_command(text, sizeof text, "rm --kind latch left");
	if (r)
		note("rm --kind latch left: %d, %s", r, text);
	return r == 0;
}

/* What is left behind is removed without a program. */
static void removed_by_command(void)
{
	ok(actor_do(&crew[3], l_open, 4, "left").r == 0 && says("rm --kind latch left", 1, "is in use: open in 1 process"),
	   "a latch that is in use is not removed by dlock rm");
	ok(actor_do(&crew[3], l_close, 0, "").r == 0 && is_removed() && says("rm --kind latch left", 66, "no latch"),
	   "... one that was left is");
	ok(actor_do(&crew[3], l_open, 4, "left").r == 0 && says("rm -f -k la left", 0, "") && actor_do(&crew[3], l_value, 0, "").r == ENOENT,
	   "... and one that is in use if it has to be");
	ok(says("rm --kind condition left", 64, "leaves nothing behind") && says("rm -k id left", 64, "never removed") &&
	   says("rm -k free left", 66, "no free semaphore") && says("rm -f left", 64, "--kind"), "of other kinds there is nothing to remove");
	actor_do(&crew[3], l_close, 0, "");
}

static void latches(void)
{
	struct result res;

	crew_begin();
	ok(actor_do(&crew[0], l_open, 5, "door").r == 0 && all(l_open, 9, "door"), "a latch is opened by all, and made by the first");
	res = actor_do(&crew[3], l_value, 0, "");
	ok(res.r == 0 && res.token == 5, "... with its count");
	ok(actor_do(&crew[0], l_wait, 50, "").r == ETIMEDOUT, "a wait ends at its time");
	for (int i = 0; i < 3; i++)
		actor_send(&crew[i], l_wait, 0, "");
	ok(actor_do(&crew[3], l_count, 2, "").r == 0 && actor_do(&crew[4], l_count, 2, "").r == 0 && nothing_from(0, 100),
	   "it stays closed until the last");
	ok(shown("door", "\"state\": \"closed\"") && shown("door", "\"count\": 1") && shown("door", "\"limit\": 5") &&
	   shown("door", harness.nodes ? "\"waiterCount\": 1" : "\"waiterCount\": 3"), "... as dlock show tells");
	ok(actor_do(&crew[4], l_fork, 0, "").r == 0 && result_is(0, SOON_MS, 0) && result_is(1, SOON_MS, 0) && result_is(2, SOON_MS, 0),
	   "and then all go on; a child may be the last");
	ok(actor_do(&crew[5], l_wait, 0, "").r == 0 && actor_do(&crew[5], l_count, 7, "").r == 0 &&
	   actor_do(&crew[4], l_count, 1, "").r == 0, "it stays open");
	crew_end();
	crew_begin();
	res.r = all(l_open, 9, "door");
	ok(res.r && actor_do(&crew[0], l_value, 0, "").token == 0 && actor_do(&crew[1], l_wait, PATIENCE_MS, "").r == 0,
	   "it outlives all who use it");
	ok(actor_do(&crew[0], l_unlink, 0, "door").r == 0 && actor_do(&crew[1], l_count, 1, "").r == ENOENT &&
	   (harness.nodes ? wait_ends_gone(2) : actor_do(&crew[2], l_wait, PATIENCE_MS, "").r == ENOENT), "unlinked it is gone for all");
	ok(actor_do(&crew[0], l_unlink, 0, "door").r == ENOENT, "... and cannot be unlinked again");
	ok(actor_do(&crew[0], l_open, 3, "anew").r == 0 && actor_do(&crew[1], l_open, 3, "anew").r == 0, "another");
	actor_send(&crew[1], l_wait, 0, "");
	ok(actor_do(&crew[2], l_unlink, 0, "anew").r == 0 && actor_do(&crew[2], l_open, 3, "anew").r == 0 && result_is(1, SOON_MS, ENOENT) &&
	   actor_do(&crew[0], l_count, 1, "").r == ENOENT && actor_do(&crew[2], l_value, 0, "").token == 3,
	   "made anew it is another: who has the former one open is told, who waits there too");
	removed_by_command();
	crew_end();
}

static uint32_t counted(void)
{
	uint32_t n = 0;

	for (int i = 0; i < CREW; i++)
		n += __atomic_load_n(&shared->counted[i], __ATOMIC_RELAXED);
	return n;
}

static void latch_deaths(void)
{
	uint32_t total = 0;
	struct result res;

	crew_begin();
	memset(shared, 0, sizeof *shared);
	ok(all(l_open, 1000000, "many"), "a latch of a million");
	for (int i = 0; i < CREW; i++)
		actor_send(&crew[i], l_count_many, (uint64_t)i, "");
	die_again_and_again(DEATHS);
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; counted() <= 100 && now_ns() < until;)
		nap_ns(50 * MS);
	shared->stop = 1;
	for (int i = 0; i < CREW; i++) {
		if (!result_is(i, LONG_MS, 0))
			note("%d does not end", i);
		total += shared->counted[i];
	}
	res = actor_do(&crew[0], l_value, 0, "");
	note("counted %u over %u deaths of the daemon", total, deaths);
	ok(res.r == 0 && res.token == 1000000 - total && total > 100, "every countdown is counted once, whenever the daemon dies");
	ok(actor_do(&crew[0], l_unlink, 0, "many").r == 0, "unlinked");
	crew_end();
}

/* --- Conditions --- */

static void conditions(void)
{
	struct result res;

	crew_begin();
	ok(all(c_open, 0, "room"), "a condition and its lock are opened");
	ok(actor_do(&crew[0], c_wait_unheld, 0, "").r == EPERM, "who does not hold the lock cannot wait");
	res = actor_do(&crew[0], c_wait_held, 50, "");
	ok(res.r == ETIMEDOUT && res.token == 1, "a wait ends at its time, with the lock held");
	for (int i = 0; i < 4; i++)
		waits_as(i, "room", i + 1);
	ok(shown("--kind condition room", "\"count\": 4") &&
	   shown("--kind condition room", harness.nodes ? "\"waiterCount\": 2" : "\"waiterCount\": 4") &&
	   shown("room", "\"kind\": \"lock\""), "they wait, as dlock show tells");
	ok(actor_do(&crew[5], c_signal, 0, "").r == 0 && result_is(0, SOON_MS, 0) && nothing_from(1, 50), "a signal wakes the first");
	actor_kill(&crew[1], SIGKILL);
	ok(actor_do(&crew[5], c_signal, 0, "").r == 0 && result_is(2, SOON_MS, 0), "... of those who live");
	actor_do(&crew[5], c_take, 0, "");
	ok(actor_do(&crew[5], c_signal, 1, "").r == 0 && nothing_from(3, 100), "who is woken waits for the lock");
	ok(actor_do(&crew[5], c_post, 0, "").r == 0 && result_is(3, SOON_MS, 0), "... and has it then");
	ok(actor_do(&crew[5], c_signal, 0, "").r == 0 && actor_do(&crew[4], c_wait_held, 100, "").r == ETIMEDOUT,
	   "a signal for nobody is nobody's");
	crew_end();

	crew_begin();
	ok(all(c_open, 1, "robust"), "with a robust lock");
	waits_as(0, "robust", 1);
	actor_do(&crew[1], c_take, 0, "");
	ok(actor_do(&crew[1], c_signal, 0, "").r == 0, "signalled");
	actor_kill(&crew[1], SIGKILL);
	ok(result_is(0, SOON_MS, EOWNERDEAD), "who is woken is told that the lock's holder died");
	crew_end();
}

/* A process that has been signalled and is stopped, then dies: its signal is another's. */
static void condition_deaths(void)
{
	crew_begin();
	ok(all(c_open, 0, "deaths"), "opened anew");
	for (int i = 0; i < 3; i++)
		waits_as(i, "deaths", i + 1);
	kill(crew[0].pid, SIGSTOP);
	ok(actor_do(&crew[5], c_signal, 0, "").r == 0 && nothing_from(1, 50), "a signal for one who is stopped");
	actor_kill(&crew[0], SIGKILL);
	ok(result_is(1, SOON_MS, 0) && nothing_from(2, 50), "... wakes the next when that one dies");
	daemon_end(&daemon_, SIGKILL);
	daemon_started(&daemon_);
	ok(nothing_from(2, 100), "a restart of the daemon wakes nobody");
	daemon_end(&daemon_, SIGTERM);
	actor_send(&crew[5], c_signal, 0, "");
	nap_ns(50 * MS);
	daemon_started(&daemon_);
	ok(result_is(5, LONG_MS, 0) && result_is(2, SOON_MS, 0), "a signal while no daemon is there arrives when one is");
	crew_end();
}

/* A child holds nothing and waits for nothing, and its end takes nothing from its parent. */
static void condition_forks(void)
{
	int child;

	crew_begin();
	ok(all(c_open, 0, "forked"), "opened once more");
	actor_do(&crew[0], c_take, 0, "");
	child = actor_do(&crew[0], c_fork, true, "").r;
	ok(child == 0 && actor_do(&crew[1], c_try, 0, "").r == EBUSY && actor_do(&crew[0], c_post, 0, "").r == 0,
	   "forked with the lock held: the child has neither the lock nor the condition, the parent has (%d)", child);
	crowd->in = 0;
	ok(actor_do(&crew[0], c_wait_aside, 0, "").r == 0 && actor_do(&crew[1], c_are_in, 1, "").r == 0, "one waits");
	child = actor_do(&crew[0], c_fork, false, "").r;
	actor_send(&crew[0], c_join, 0, "");
	ok(child == 0 && nothing_from(0, 50), "forked while a thread waits: the child does not wait, the thread does (%d)", child);
	ok(actor_do(&crew[1], c_signal, 0, "").r == 0 && result_is(0, SOON_MS, 0), "... and is the one who is woken");
	crew_end();
}

static void condition_restarts(void)
{
	const uint64_t total = harness.nodes && !harness.full ? 120 : 600;

	crew_begin();
	memset(shared, 0, sizeof *shared);
	ok(all(c_open, 0, "queue"), "a queue");
	for (int i = 1; i < CREW; i++)
		actor_send(&crew[i], c_consume, total, "");
	actor_send(&crew[0], c_produce, total, "");
	die_again_and_again(DEATHS);
	for (int i = 0; i < CREW; i++)
		if (!result_is(i, LONG_MS, 0))
			note("%d does not end: %d made, %d taken", i, (int)shared->made, (int)shared->taken);
	ok(shared->made == total && shared->taken == total, "all that one makes is taken by five, over %u deaths of the daemon", deaths);
	crew_end();
}

/* --- Ids --- */

/* As many of them are of the first's worker as are on its node. */
static bool of_their_workers(uint64_t worker)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CREW * IDS; i++)
		n += (ids[i] >> 12 & 1023) == worker;
	return n == CREW * IDS / (unsigned)NODES;
}

static void identifiers(void)
{
	struct result res[CREW];
	bool same = true;
	uint64_t worker;

	crew_begin();
	for (int i = 0; i < CREW; i++) {
		res[i] = actor_do(&crew[i], i_open, 0, "orders");
		same &= res[i].r == 0 && res[i].token == res[i % NODES].token;
	}
	same &= !harness.nodes || (res[0].token != res[1].token && res[1].token != res[2].token && res[2].token != res[0].token);
	ok(same, "a worker's number, the same for all of a node");
	worker = res[0].token;
	ok(shown("orders", "\"state\": \"leased\""), "dlock show tells of it");
	for (int i = 0; i < CREW; i++)
		actor_send(&crew[i], i_take, (uint64_t)i, "");
	die_again_and_again(DEATHS / 2);
	for (int i = 0; i < CREW; i++)
		ok(result_is(i, LONG_MS, 0), "%d ids, each above the last", IDS);
	ok(!ids_twice(ids, CREW * IDS) && ids[0], "none twice, over %u deaths of the daemon", deaths);
	ok(of_their_workers(worker), "all of their node's worker");
	/* Again where it is short: a daemon that had to wait for its turn has not raised the ceiling in time. */
	for (int tries = 0; tries < 10; tries++) {
		actor_do(&crew[0], i_take_all, 300, "");
		kill(daemon_.pid, SIGSTOP);
		res[0] = actor_do(&crew[0], i_take_all, PATIENCE_MS / 2, "");
		kill(daemon_.pid, SIGCONT);
		note("without the daemon for %d ms", (int)res[0].token);
		if (res[0].r != ENOTCONN || res[0].token >= 1500)
			break;
		for (uint64_t until = now_ns() + PATIENCE_MS * MS; actor_do(&crew[0], i_take_all, 300, "").r && now_ns() < until;)
			;
	}
	ok(res[0].r == ENOTCONN && res[0].token >= 1500, "they go on while the daemon is stopped, up to the ceiling");
	ok(actor_do(&crew[0], i_take_all, 300, "").r == 0, "... and after that");
	crew_end();
	crew_begin();
	ok(actor_do(&crew[0], i_open, 0, "orders").r == 0 && actor_do(&crew[0], i_close, 0, "").r == 0 &&
	   actor_do(&crew[0], i_open, 0, "orders").token == worker, "closed and opened again: the same number");
	crew_end();
}

/* --- Values --- */

static void values(void)
{
	char text[1024];

	ok(dlock_command(text, sizeof text, "put config/a one") == 0 && dlock_command(text, sizeof text, "get config/a") == 0 &&
	   !strcmp(text, "one"), "a value is put and got");
	daemon_end(&daemon_, SIGKILL);
	daemon_started(&daemon_);
	ok(dlock_command(text, sizeof text, "get config/a") == 0 && !strcmp(text, "one"), "it outlives the daemon");
	ok(dlock_command(text, sizeof text, "put --if-version 0 config/a two") == 1, "under another version nothing is written");
	ok(dlock_command(text, sizeof text, "rm config/a") == 0 && dlock_command(text, sizeof text, "get config/a") == 66, "removed");
}

int main(void)
{
	harness_begin(150);
	shared = shared_memory(sizeof *shared);
	crowd = shared_memory(sizeof *crowd);
	ids = shared_memory(sizeof *ids * CREW * IDS);
	daemon_started(&daemon_);
	latches();
	latch_deaths();
	conditions();
	condition_deaths();
	condition_forks();
	condition_restarts();
	identifiers();
	values();
	ok(pace_is_quick(&pace), "what is to be soon is soon (%u of %u times within %u ms)", pace.quick, pace.times, SOON_MS);
	daemon_done(&daemon_);
	return harness_end();
}
