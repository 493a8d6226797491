/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A party of a barrier of three is killed, or stopped, after a single instruction of its call: the first, the second or the last to come, or one
 * whose time is over. The two others are told the same, soon: that the round passed or broke; or they wait on, as it had not
 * come, and a third one makes the round. The next round works. And a daemon that is killed at one of its stores while parties
 * come, give up and die is followed by one that makes good.
 *
 * The places are taken at random, as many as there is time for.
 */
#include <errno.h>
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
#include "step.h"

#define NAME      "stepped"
#define BUDGET_NS ((harness.full ? 60000 : 1500) * MS)  /* for each scene */
#define SOON_MS   200
#define TRIES     10                     /* where it was late: the machine may have had other work */

static struct daemon daemon_;
static struct actor crew[3];
static long wrong, places, late, at_;
static const char *title;

/* --- What they do --- */

static void prepare(void)
{
	if (bar_opened(NAME, 3, true))
		_exit(1);
}

static void come(void)
{
	dlock_barrier_wait(bar);
}

static void come_in_vain(void)
{
	b_timed(NULL, 0);
}

/* --- The others --- */

static int told(int i, unsigned ms)
{
	struct result r;

	return actor_result(&crew[i], ms, &r) ? r.r : NOTHING;
}

static void expect(bool good, const char *what, int a, int b)
{
	if (good)
		return;
	note("%s, at %ld: %s: %d, %d", title, at_, what, a, b);
	wrong++;
}

static void wait_too(int n)
{
	for (int i = 0; i < n; i++) {
		actor_send(&crew[i], b_wait, 0, NULL);
		if (!asleep(crew[i].pid))
			give_up("%s: a party sleeps", title);
	}
}

static void whole_round(void)
{
	int serials = 0, good = 0;

	for (int i = 0; i < 3; i++)
		actor_send(&crew[i], b_wait, 0, NULL);
	for (int i = 0; i < 3; i++) {
		int r = told(i, PATIENCE_MS);

		good += passed(r);
		serials += r == DLOCK_SERIAL;
	}
	if (good < 3)
		give_up("%s, at %ld: the next round does not work: %d passed", title, at_, good);
	expect(serials == 1, "serial parties of the next round", serials, 1);
}

/* Sends those away who came for a round that needed nobody any more: what they are told. */
static void send_away(int from, int *ret)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;

	for (int i = from; i < 3; i++) {
		while ((ret[i] = told(i, 20)) == NOTHING && now_ns() < until)
			actor_do(&crew[0], b_reset, 0, NULL);
		expect(ret[i] == EPIPE || passed(ret[i]), "one who came too late", ret[i], i);
	}
}

/*
 * The first `come` have come already, and need the others. Where they had their answer, and were only late to tell, the others are sent
 * away again. Returns what all of the former are told, or NOTHING if not the same.
 */
static int told_with_others(int come)
{
	int r[3] = { 0 };

	for (int i = come; i < 3; i++)
		actor_send(&crew[i], b_wait, 0, NULL);
	for (int i = 0; i < come; i++) {
		r[i] = told(i, PATIENCE_MS);
		if (r[i] == NOTHING)
			give_up("%s, at %ld: somebody is forgotten: %d", title, at_, i);
	}
	for (int i = come; i < 3; i++) {
		r[i] = told(i, passed(r[0]) ? 1000 : 0);
		if (r[i] == NOTHING) {
			late++;
			send_away(i, r);
			break;
		}
	}
	if (come == 2 && (passed(r[0]) != passed(r[1]) || (!passed(r[0]) && r[0] != r[1])))
		return NOTHING;
	return r[0];
}

/* They hear the same, by themselves or with the third; who is stopped in the midst of having come is not waited for. */
static void two_are_told(void)
{
	int a = told(0, SOON_MS), b;

	if (a == NOTHING) {
		a = told_with_others(2);
		expect(passed(a) || a == EPIPE, "told differently, with the third", a, 0);
		return;
	}
	b = told(1, PATIENCE_MS);
	expect(b != NOTHING && passed(a) == passed(b) && (passed(a) || (a == EPIPE && b == EPIPE)), "told differently", a, b);
}

/* The one who waits beside one that is dead. */
static void one_is_told(void)
{
	int a = told(0, SOON_MS);

	if (a == NOTHING) {
		a = told_with_others(1);
		expect(passed(a) || a == EPIPE, "told with two more", a, 0);
	} else {
		expect(a == EPIPE, "told beside one that is dead", a, EPIPE);
	}
}

/* --- Scenes --- */

struct scene {
	const char *title;
	struct stepper how;
	bool last;                       /* the two others are there before */
	bool stop;
};

static const struct scene scenes[] = {
	{ "the first to come is killed", { prepare, come, NULL }, false, false },
	{ "the last to come is killed", { prepare, come, NULL }, true, false },
	{ "the last to come is stopped", { prepare, come, NULL }, true, true },
	{ "one who gives up is killed", { prepare, come_in_vain, NULL }, false, false },
	{ "one who gives up is stopped", { prepare, come_in_vain, NULL }, false, true },
};

static void play_at(const struct scene *c, long k, bool *ret_ended)
{
	struct step s;

	at_ = k;
	step_begin(&s, &c->how);
	if (c->last)
		wait_too(2);
	step_to(&s, k, false);
	*ret_ended = s.ended;
	if (!c->last && !c->stop)
		wait_too(1);
	if (c->stop)
		step_detach_stopped(&s);
	else
		step_kill(&s);
	if (!c->last && c->stop) {       /* with the stopped one they are three, if that has come */
		actor_send(&crew[0], b_wait, 0, NULL);
		actor_send(&crew[1], b_wait, 0, NULL);
	}
	if (c->last || c->stop)
		two_are_told();
	else
		one_is_told();
	if (c->stop) {
		kill(s.pid, SIGKILL);
		kill(s.pid, SIGCONT);
		while (waitpid(s.pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	whole_round();
	places++;
}

static long count(const struct scene *c)
{
	struct step s;

	at_ = -1;
	step_begin(&s, &c->how);
	if (c->last)
		wait_too(2);
	step_to(&s, c->last ? 1000000 : 600, false);
	if (!c->last)
		wait_too(1);
	step_kill(&s);
	if (c->last)
		two_are_told();
	else
		one_is_told();
	whole_round();
	return s.at;
}

static void play(const struct scene *c)
{
	uint64_t begin = now_ns();
	bool ended;

	title = c->title;
	wrong = places = 0;
	long n = count(c);
	do {
		long k = random_below((uint32_t)n + 1), before;
		int tries = 0;

		do {
			before = late;
			play_at(c, k, &ended);
		} while (late > before && ++tries < TRIES);
		expect(tries < TRIES, "late each time", tries, 0);
	} while (now_ns() - begin < BUDGET_NS || places <= 3);
	ok(wrong == 0 && places > 3, "%s: at %ld of some %ld instructions", c->title, places, n);
}

/* --- The daemon is killed at its stores --- */

static char **options;

static void follow_up(void)
{
	if (!daemon_ended(&daemon_, 0))
		return;
	if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
		give_up("the daemon starts again");
}

static void faults_story(void)
{
	struct actor doomed;
	int a, b;

	actor_begin(&doomed);
	actor_send(&doomed, b_open_patient, 3, NAME);
	struct result r = { .r = -1 };
	if (!actor_result(&doomed, PATIENCE_MS, &r) || r.r)
		give_up("%s, at %ld: the doomed opens: %d", title, at_, r.r);
	whole_round();
	actor_send(&crew[0], b_wait, 0, NULL);
	actor_send(&crew[1], b_timed, 30, NULL);
	b = told(1, PATIENCE_MS);
	a = told(0, 500);
	expect(b == ETIMEDOUT && (a == EPIPE || a == NOTHING), "one gives up", a, b);
	if (a == NOTHING) {              /* no daemon was there: it had not come */
		a = told_with_others(1);
		expect(passed(a) || a == EPIPE, "three come all the same", a, b);
	}
	actor_send(&crew[0], b_wait, 0, NULL);
	actor_send(&doomed, b_wait, 0, NULL);
	nap_ns(30 * MS);
	actor_kill(&doomed, SIGKILL);
	a = told(0, 1000);
	if (a == NOTHING) {              /* the doomed had not come as yet, so it was not there */
		a = told_with_others(1);
		expect(passed(a) || a == EPIPE, "three come instead", a, 0);
	} else {
		expect(a == EPIPE, "one dies", a, EPIPE);
	}
	whole_round();
}

static void faults(const char *how, char **with)
{
	uint64_t begin = now_ns();
	long deaths = 0;

	title = how;
	options = with;
	wrong = places = late = 0;
	actor_meanwhile = follow_up;
	do {
		char text[40];

		at_ = 1 + random_below(400);
		snprintf(text, sizeof text, "DLOCK_FAULT_AT=%ld", at_);
		daemon_end(&daemon_, SIGKILL);
		if (!daemon_start(&daemon_, built("tests/e2e/dlockd-fault"), options, (char *[]){ text, NULL })) {
			deaths++;
			follow_up();
		}
		pid_t pid = daemon_.pid;
		faults_story();
		deaths += daemon_.pid != pid;
		places++;
	} while (now_ns() - begin < 2 * BUDGET_NS || (!deaths && places < 1000));
	actor_meanwhile = NULL;
	ok(wrong == 0 && deaths > 0 && late * 4 <= places * 3, "%s: the daemon killed at its stores, %ld times in %ld", how, deaths, places);
}

int main(void)
{
	static char *none[] = { NULL }, *as_many[] = { "--x-as-many", NULL };

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 900 : 110);
	for (int far = 0; far < 2; far++) {
		options = far ? as_many : none;
		if (!daemon_start(&daemon_, built("daemon/dlockd"), options, NULL))
			give_up("the daemon starts");
		for (int i = 0; i < 3; i++) {
			actor_begin(&crew[i]);
			if (actor_do(&crew[i], b_open_patient, 3, NAME).r)
				give_up("an actor opens");
		}
		for (unsigned i = 0; i < sizeof scenes / sizeof *scenes && !far; i++)
			play(&scenes[i]);
		faults(far ? "as many" : "here", options);
		for (int i = 0; i < 3; i++)
			actor_kill(&crew[i], SIGKILL);
		daemon_end(&daemon_, SIGTERM);
	}
	return harness_end();
}
