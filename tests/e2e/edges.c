/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whoever waits and loses patience, is cancelled, is killed or stopped, at any instruction of his call, just before he is granted what he
 * waits for or just after it: either he has it, or he has not, and is told so. It is nobody's who does not exist, it is not lost, and
 * whoever comes behind him is served at once. For everything that can be waited for (edges.h).
 *
 * Both sides are brought about, and not hoped for: he is led to an instruction, and there the one thing happens to him; and then to
 * another, perhaps after his sleep, and there the other thing. The places are taken at random, as many as there is time for.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "barrier_acts.h"
#include "edges.h"
#include "kinds_stage.h"
#include "step.h"
#include "things_acts.h"

#define SCENE_NS  ((harness.full ? 20000 : 250) * MS)
#define PLAYS_MIN 6                      /* each order is among them */
#define PLAYS_MAX 200
#define TRIES     10                     /* where it was late: the machine may have had other work */
#define SPAN_NS   (6 * MS)              /* his patience, at first */
#define SPAN_MAX  (2000 * MS)
#define SETTLE_NS (20 * MS)              /* asleep for so long after one thing has happened to him, he waits for the next */
#define AGAIN_MS  20                     /* until he is cancelled once more: the first time he had not begun to wait */
#define SOME      1000000                /* instructions, more than there are */
#define NEAR      150                    /* instructions from the one thing to the other, as often as not */
#define BEFORE    3000                   /* instructions: some spin for longer before they sleep */

static struct daemon daemon_;
static struct actor other, behind, next;
static const struct edge *edge;
static enum edge_event event;

enum order { GRANT_FIRST, EVENT_FIRST, EVENT_ALONE };    /* alone: the grant comes when he has gone */
static const char *const order_names[] = { "after the grant", "before the grant", "with no grant" };

static struct shared {
	uint64_t until_ns, span_ns;      /* his time */
	int called, told;                /* he is in his call; through it and what comes after */
	int r, after;
	int cancel, cancelling, cancelled;       /* so many were asked for, have begun, have ended */
} *shared;

static struct tally {
	long plays, wrong, late, got, refused;
	long waited;                     /* so often there was one behind him */
	long before, after;              /* instructions to his sleep, or so many, and from there on, as far as we have seen */
} tally;

/* --- He --- */

static void *canceller(void *unused)
{
	for (int n = 0;; nap_ns(MS / 20))
		if (__atomic_load_n(&shared->cancel, __ATOMIC_ACQUIRE) > n) {
			__atomic_store_n(&shared->cancelling, ++n, __ATOMIC_RELEASE);
			edge->cancel();
			__atomic_store_n(&shared->cancelled, n, __ATOMIC_RELEASE);
		}
	return unused;
}

static void prepare(void)
{
	pthread_t t;

	if (edge->open() || (edge->ready && !passed(edge->ready())))
		_exit(1);
	if (event == EDGE_CANCEL && pthread_create(&t, NULL, canceller, NULL))
		_exit(1);
	shared->until_ns = now_ns() + shared->span_ns;
}

static void call(void)
{
	struct timespec abs = as_timespec(shared->until_ns);
	int r;

	__atomic_store_n(&shared->called, 1, __ATOMIC_RELEASE);
	r = edge->wait(event == EDGE_TIME ? &abs : NULL);
	step_mark(1);
	shared->r = r;
	shared->after = edge->after(r);
	__atomic_store_n(&shared->told, 1, __ATOMIC_RELEASE);
}

/* --- The others --- */

typedef int (*deed)(void);

static int act(struct stage *s, uint64_t fn)
{
	(void)s;
	return ((deed)(uintptr_t)fn)();
}

static void does(struct actor *a, deed fn, const char *what)
{
	int r = fn ? actor_do(a, act, (uint64_t)(uintptr_t)fn, NULL).r : 0;

	if (r)
		give_up("%s: %s: %d (%s)", edge->who, what, r, strerror(r));
}

static void begins(struct actor *a, deed fn)
{
	actor_send(a, act, (uint64_t)(uintptr_t)fn, NULL);
}

/* --- A play --- */

static struct play {
	enum order order;
	bool early;                      /* led from his first instruction on, else from his sleep on */
	long at[2];                      /* where things happen: instructions from there, and from the first of them on */
	struct step s;
	bool granted, happened, late;
	bool unsure;                     /* his time was over before the one behind him had come, who may have found nobody */
	uint64_t last_ns;
} play;

static void expect(bool good, const char *what, long a, long b)
{
	if (good)
		return;
	note("%s, %s%s, at %ld and %ld: %s: %ld, %ld", edge->who, order_names[play.order], play.early ? ", from his call on" : "", play.at[0],
	     play.at[1], what, a, b);
	tally.wrong++;
}

static void grant(void)
{
	play.granted = true;
	if (edge->together)
		begins(&other, edge->grant);
	else
		does(&other, edge->grant, "the grant");
}

static void cancel(void)
{
	int n = ++shared->cancel;

	/* It has begun, and sleeps until he has noticed; or has ended. */
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; __atomic_load_n(&shared->cancelling, __ATOMIC_ACQUIRE) < n && now_ns() < until;)
		nap_ns(MS / 20);
	for (uint64_t until = now_ns() + MS; __atomic_load_n(&shared->cancelled, __ATOMIC_ACQUIRE) < n && now_ns() < until;)
		nap_ns(MS / 20);
}

static void time_passes(void)
{
	if (now_ns() > shared->until_ns && shared->span_ns < SPAN_MAX)
		shared->span_ns *= 2;    /* the machine has other work: it was over before */
	while (now_ns() <= shared->until_ns)
		nap_ns(MS / 10);
}

static void befalls(void)
{
	play.happened = true;
	switch (event) {
	case EDGE_TIME:
		time_passes();
		break;
	case EDGE_CANCEL:
		cancel();
		break;
	case EDGE_KILL:
		step_kill(&play.s);
		break;
	case EDGE_STOP:
		step_detach_stopped(&play.s);
		break;
	}
}

static bool is_gone(void)
{
	return play.happened && (event == EDGE_KILL || event == EDGE_STOP);
}

/* The next of what is to happen. */
static void happens(void)
{
	play.last_ns = now_ns();
	if (!play.granted && (play.order == GRANT_FIRST || (play.happened && play.order == EVENT_FIRST)))
		grant();
	else if (!play.happened)
		befalls();
	else if (event == EDGE_CANCEL)
		cancel();                /* the first time he had not begun to wait */
}

/* In the midst of an instruction nobody can be killed or stopped: a grant gets him on. */
static void happens_asleep(void)
{
	bool ends = event == EDGE_KILL || event == EDGE_STOP;

	if (!ends)
		happens();
	else if (!play.granted || edge->alone)
		grant();
	play.last_ns = now_ns();
}

static void as_he_sleeps(void)
{
	if (play.granted || play.happened)
		return;
	if (play.early && play.s.at < tally.before)
		tally.before = play.s.at;
	happens_asleep();
}

static void as_he_sleeps_on(void)
{
	if (now_ns() - play.last_ns > SETTLE_NS)
		happens_asleep();
}

static struct stepper how = { prepare, call, as_he_sleeps };

/* Has something to say. */
static bool has_come(const struct actor *a)
{
	struct pollfd p = { a->fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

/*
 * Or need not: where the machine has other work his time may be over by now, so that he is through; or the daemon has not heard of him before
 * it hears of the one behind him.
 */
static void sleeps(pid_t pid)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !asleep_within(pid, 0); nap_ns(MS / 20)) {
		if (__atomic_load_n(&shared->told, __ATOMIC_ACQUIRE) || (pid == behind.pid && has_come(&behind)))
			return;
		if (now_ns() > until)
			give_up("%s: somebody sleeps", edge->who);
	}
	tally.waited += pid == behind.pid;
}

static void one_waits(pid_t pid)
{
	if (edge->waits)
		does(&other, edge->waits, "somebody waits");
	else
		sleeps(pid);
}

static int told(struct actor *a, unsigned ms)
{
	struct result r;

	return actor_result(a, ms, &r) ? r.r : NOTHING;
}

static void another_comes(void)
{
	if (edge->together && edge->ready && !(passed(told(&other, PATIENCE_MS)) && passed(told(&behind, PATIENCE_MS))))
		give_up("%s: all are ready", edge->who);
	begins(&behind, edge->pass);
	if (edge->alone) {
		one_waits(behind.pid);
		tally.waited++;
	} else {
		sleeps(behind.pid);
	}
	play.unsure = event == EDGE_TIME && !play.early && now_ns() > shared->until_ns;
}

static void led_from_his_call(void)
{
	step_begin(&play.s, &how);
	play.s.still = as_he_sleeps_on;
	another_comes();
	play.last_ns = now_ns();
	step_to(&play.s, play.at[0], false);
}

static void led_from_his_sleep(void)
{
	step_begin_free(&play.s, &how);
	play.s.still = as_he_sleeps_on;
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !__atomic_load_n(&shared->called, __ATOMIC_ACQUIRE);)
		if (now_ns() > until)
			give_up("%s: he does not come to it", edge->who);
	one_waits(play.s.pid);
	does(&other, edge->then, "the other goes on");
	another_comes();
	play.last_ns = now_ns();
	if (play.order != GRANT_FIRST && event == EDGE_KILL)
		return;
	step_attach(&play.s);
	if (play.order == GRANT_FIRST || event != EDGE_STOP)
		step_to(&play.s, 1, false);
}

/* Both things happen to him, and then he goes on by himself. */
static void lead(void)
{
	long from;

	if (play.early)
		led_from_his_call();
	else
		led_from_his_sleep();
	if (!play.granted && !play.happened)
		happens();
	if (is_gone())
		return;
	from = play.s.at;
	step_to(&play.s, from + play.at[1], false);
	if (play.s.ended && play.s.at - from > tally.after)
		tally.after = play.s.at - from;
	if (!play.happened || (!play.granted && play.order == EVENT_FIRST))
		happens();
	if (!is_gone())
		step_detach(&play.s, 0);
}

/* --- What comes of it --- */

static void in_time(uint64_t since_ns, uint64_t at_ns)
{
	if (at_ns > since_ns + LIMIT_MS * MS)
		play.late = true;
}

static void is_served(struct actor *a, uint64_t since_ns, const char *who)
{
	struct result r = { .r = -1 };

	if (!actor_result(a, PATIENCE_MS, &r))
		give_up("%s, %s: %s is forgotten", edge->who, order_names[play.order], who);
	expect(r.r == 0, who, r.r, shared->r);
	in_time(since_ns, r.at_ns);
}

/* He was cancelled before he waited, or had no grant of his own: then again. */
static void he_comes_through(void)
{
	const uint64_t until = now_ns() + PATIENCE_MS * MS;

	while (!step_comes_through(&play.s, AGAIN_MS)) {
		if (now_ns() > until)
			give_up("%s, %s, at %ld and %ld: he waits on", edge->who, order_names[play.order], play.at[0], play.at[1]);
		if (event == EDGE_CANCEL)
			cancel();
		if (event == EDGE_STOP && edge->alone)
			grant();
	}
}

static bool is_refusal(int r)
{
	if (event == EDGE_TIME)
		return r == ETIMEDOUT;
	return event == EDGE_CANCEL && r == ECANCELED;
}

/* Of one who is through. He lives on to the end: his death would give back what he should not have. */
static void judge_him(void)
{
	bool got = passed(shared->r), refused = is_refusal(shared->r);

	expect(got || refused, "he is told", shared->r, 0);
	expect(shared->after == 0, "it is not as he was told", shared->r, shared->after);
	tally.got += got;
	tally.refused += refused;
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; __atomic_load_n(&shared->cancelled, __ATOMIC_ACQUIRE) < shared->cancel;)
		if (now_ns() > until)
			give_up("%s: a cancel does not end", edge->who);
}

static void whole_again(void)
{
	uint64_t since = now_ns();

	does(&next, edge->whole, "the end");
	in_time(since, now_ns());
	if (!edge->alone)
		return;
	does(&other, edge->set, "set again");
	begins(&next, edge->pass);
	one_waits(next.pid);
	since = now_ns();
	does(&other, edge->grant, "one more grant");
	is_served(&next, since, "who comes at the end");
}

/* He is stopped. Either he has it, or who comes behind gets it. True: that one has. */
static bool beside_one_that_is_stopped(uint64_t since_ns)
{
	struct result r = { .r = -1 };

	if (actor_result_unless_asleep(&behind, LIMIT_MS, &r)) {
		expect(r.r == 0, "who comes behind one that is stopped", r.r, 0);
		in_time(since_ns, r.at_ns);
		return true;
	}
	if (!edge->is_taken || actor_do(&next, act, (uint64_t)(uintptr_t)edge->is_taken, NULL).r)
		play.late = true;        /* nobody has it */
	return false;
}

static void judge_one_that_is_stopped(void)
{
	uint64_t since;

	if (!play.granted)
		grant();
	if (edge->alone)
		grant();                 /* one of the two is his */
	since = now_ns();
	bool served = beside_one_that_is_stopped(since);
	kill(play.s.pid, SIGCONT);
	he_comes_through();
	since = now_ns();
	judge_him();
	if (!served)
		is_served(&behind, since, "who comes behind one that was stopped");
	whole_again();
}

/* Each has a grant of his own: one that he had is not theirs. Did he have it? */
static bool he_had_it(void)
{
	if (event == EDGE_KILL) {
		does(&next, edge->whole, "the end");
		return play.s.mark || crowd->died_inside;
	}
	return passed(shared->r);
}

static void who_comes_behind(uint64_t since_ns)
{
	struct result r = { .r = -1 };

	if (!edge->alone || !he_had_it()) {
		is_served(&behind, since_ns, "who comes behind");
		return;
	}
	if (actor_result_unless_asleep(&behind, 1, &r)) {
		expect(r.r == 0, "who comes behind", r.r, 0);
		return;
	}
	since_ns = now_ns();
	does(&other, edge->grant, "another grant");
	is_served(&behind, since_ns, "who comes behind, with a grant of his own");
}

static void judge(void)
{
	uint64_t since = now_ns();
	bool served;

	if (event != EDGE_KILL) {
		he_comes_through();
		since = now_ns();
		judge_him();
	}
	served = edge->fits && !play.granted;
	if (served)
		is_served(&behind, since, "who comes behind, and waited for him alone");
	if (!play.granted)
		grant();
	if (!served)
		who_comes_behind(since);
	whole_again();
}

/* --- Parties: all of them are told the same --- */

/* Who has come for a round that nobody else will come to is sent away. */
static int sent_away(struct actor *a, int r)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; r == NOTHING && now_ns() < until; r = told(a, AGAIN_MS))
		does(&next, edge->whole, "a reset");
	return r;
}

static void next_round(void)
{
	struct actor *const all[] = { &other, &behind, &next };
	int serials = 0;

	for (int turn = edge->ready ? 0 : 1; turn < 2; turn++) {
		for (int i = 0; i < 3; i++)
			begins(all[i], turn ? edge->pass : edge->ready);
		for (int i = 0; i < 3; i++) {
			int r = told(all[i], PATIENCE_MS);

			expect(passed(r), "the next round", r, i);
			serials += r == DLOCK_SERIAL;
		}
	}
	expect(serials == (edge->ready ? 2 : 1), "serial parties of the next round", serials, 0);
}

static void judge_parties(void)
{
	int his = NOTHING, b, o, serials;

	if (event == EDGE_TIME) {
		he_comes_through();
		judge_him();
		his = shared->r;
	}
	if (!play.granted)
		grant();
	b = told(&behind, his == NOTHING || play.unsure ? LIMIT_MS : PATIENCE_MS);
	o = told(&other, b == NOTHING || b == EPIPE ? AGAIN_MS : PATIENCE_MS);
	if ((his == NOTHING || play.unsure) && b == NOTHING && o != NOTHING)
		b = told(&behind, PATIENCE_MS);
	serials = (his == DLOCK_SERIAL) + (b == DLOCK_SERIAL) + (o == DLOCK_SERIAL);
	if (his != NOTHING && passed(his))
		expect(passed(b) && passed(o) && serials == 1, "all have passed with him", b, o);
	else if (his != NOTHING)
		expect((b == EPIPE && (o == EPIPE || o == NOTHING)) || (play.unsure && b == NOTHING && o == NOTHING), "it broke for him, and for all", b, o);
	else
		expect((passed(b) && passed(o)) || (b == EPIPE && (o == EPIPE || o == NOTHING)) || (b == NOTHING && o == NOTHING),
		       "told the same beside one that is dead", b, o);
	o = sent_away(&other, o);
	b = sent_away(&behind, b);
	expect((passed(b) || b == EPIPE) && (passed(o) || o == EPIPE), "sent away", b, o);
	next_round();
}

/* --- Scenes --- */

static void opened(struct actor *a)
{
	actor_begin(a);
	does(a, edge->open, "opened");
}

static void all_open(void)
{
	static unsigned number;

	snprintf(edge_name, sizeof edge_name, "edge-%s-%u", edge->word, number++);
	opened(&other);
	opened(&behind);
	opened(&next);
}

static void all_leave(void)
{
	actor_kill(&other, SIGKILL);
	actor_kill(&behind, SIGKILL);
	actor_kill(&next, SIGKILL);
}

static void set(void)
{
	*shared = (struct shared){ .span_ns = shared->span_ns };
	crowd->died_inside = false;
	does(&other, edge->set, "set");
	if (edge->together && edge->ready) {
		begins(&other, edge->ready);
		begins(&behind, edge->ready);
	}
}

/* Returns whether it was late. */
static bool play_once(const struct play *as)
{
	play = *as;
	if (edge->anew)
		all_open();
	set();
	lead();
	if (edge->together)
		judge_parties();
	else if (event == EDGE_STOP)
		judge_one_that_is_stopped();
	else
		judge();
	if (play.s.pid)
		step_kill(&play.s);
	if (edge->anew)
		all_leave();
	return play.late;
}

static void play_at_random(long n)
{
	struct play as = { .order = n <= EVENT_ALONE ? n : random_below(5) / 2, .early = !edge->asleep && n > EVENT_ALONE && !random_below(4) };

	if (edge->sure && as.order == EVENT_ALONE && event != EDGE_KILL)
		as.order = EVENT_FIRST;
	as.at[0] = random_below((uint32_t)(tally.before + tally.before / 2) + 1);        /* often in the midst of his sleep */
	as.at[1] = tally.after ? (long)random_below((uint32_t)(random_below(2) ? NEAR : tally.after) + 1) : SOME;
	for (int i = 0; play_once(&as); i++) {
		note("%s, %s%s, at %ld and %ld: late", edge->who, order_names[play.order], play.early ? ", from his call on" : "", play.at[0], play.at[1]);
		tally.late++;
		if (i == TRIES) {
			expect(false, "late each time", i, 0);
			return;
		}
	}
}

static bool both_sides(void)
{
	if (edge->sure || !tally.waited)
		return tally.waited && !tally.refused;
	return !(event & (EDGE_TIME | EDGE_CANCEL)) || (tally.got && tally.refused);
}

static void scene_of(enum edge_event which, const char *what)
{
	uint64_t until = now_ns() + SCENE_NS;

	event = which;
	tally = (struct tally){ .before = BEFORE };
	shared->span_ns = SPAN_NS;
	do {
		play_at_random(tally.plays++);
	} while (!tally.wrong && tally.plays < PLAYS_MAX &&
		 (now_ns() < until || tally.plays < PLAYS_MIN || !both_sides()));
	ok(tally.wrong == 0 && both_sides(), "%s %s, just before the grant and just after it, at %ld of some %ld and %ld instructions", edge->who,
	   what, tally.plays, tally.before, tally.after);
	if (event & (EDGE_TIME | EDGE_CANCEL))
		note("%ld had it, %ld had not", tally.got, tally.refused);
}

static void stories(const struct edge *e)
{
	static const struct {
		enum edge_event event;
		const char *what;
	} all[] = { { EDGE_TIME, "loses patience" }, { EDGE_CANCEL, "is cancelled" }, { EDGE_KILL, "is killed" }, { EDGE_STOP, "is stopped" } };

	edge = e;
	if (!e->anew)
		all_open();
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (e->events & all[i].event)
			scene_of(all[i].event, all[i].what);
	if (!e->anew)
		all_leave();
}

int main(int argc, char **argv)
{
	harness_begin(getenv("DLOCK_CHECK_FULL") ? 1500 : 120);
	shared = shared_memory(sizeof *shared);
	crowd = shared_memory(sizeof *crowd);
	daemon_started(&daemon_);
	for (unsigned i = 0; i < kinds_count; i++) {
		struct edge e = edge_of_kind(&kinds[i]);

		scene.kind = &kinds[i];
		if (argc < 2 || strstr(e.word, argv[1]))
			stories(&e);
	}
	for (unsigned i = 0; i < edges_count; i++)
		if (argc < 2 || strstr(edges[i].word, argv[1]))
			stories(&edges[i]);
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
