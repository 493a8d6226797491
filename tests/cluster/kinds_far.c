/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What tests/e2e/kinds.c tells of one node, for two nodes of a cluster: everything that can be held (kinds.h) is held on host 1
 * and wanted on host 2, all rows of the table at once.
 *
 * The holder gives back, or dies: the other gets it. Its daemon goes and comes back in time: held is held. Its daemon is frozen,
 * or killed for good: nobody else has it before the holder's own check, which asks no daemon, has said that it is lost. Its host hears
 * nobody any more: by then it has also been told, by its descriptor and by the signal that it has asked for. At last, for nobody, its
 * cable is slow.
 *
 * Where it is who waits whose daemon is frozen, or killed, he is granted nothing of what is given back meanwhile, by the claim of a session that
 * has ended: whoever waits behind him has it, and he himself when that one has given it back. Who waits to upgrade there hears that he reads no more.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../e2e/harness.h"
#include "../e2e/kinds_stage.h"
#include "town.h"

#define TTL_MS   6000                    /* what is to be held over a restart is held on a busy machine */
#define SOON_MS  500                     /* less than any time-out within */
#define TRIPS    4
#define ROWS_MAX 24

static struct cast {
	struct scene scene;
	struct actor holder, other, next;        /* next: of the other's host, too */
	uint64_t token;
	struct pace pace;
} cast[ROWS_MAX], awaited[ROWS_MAX];             /* in the second the other is of host 1, which holder and next are not */

static bool good;

static struct cast *row(struct cast *of, unsigned i)
{
	scene = of[i].scene;
	return &of[i];
}

#define EACH_OF(of, c) for (unsigned i_ = 0; i_ < kinds_count && (c = row(of, i_)); i_++)
#define EACH_ROW(c) EACH_OF(cast, c)

static void expect(bool right, const char *what, int r)
{
	if (right)
		return;
	note("%s: %s (%s)", scene.kind->name, what, r < 0 ? "nothing came" : r ? strerror(r) : "0");
	good = false;
}

static void at_host(unsigned host)
{
	setenv("DLOCK_RUN_DIR", town_run_dir(host), 1);
}

/* Whoever holds is of that host, who wants it of the other one. */
static void enter_all(struct cast *of, unsigned host, unsigned next)
{
	struct cast *c;

	for (unsigned i = 0; i < kinds_count; i++) {
		scene.kind = &kinds[i];
		scene_new();
		of[i] = (struct cast){ .scene = scene };
	}
	EACH_OF(of, c) {
		at_host(host);
		enters(&c->holder);
		at_host(3 - host);
		enters(&c->other);
		at_host(next);
		enters(&c->next);
		c->token = takes(&c->holder);
	}
}

static void curtain_up(void)
{
	good = true;
	enter_all(cast, 1, 2);
}

static void all_go(struct cast *of)
{
	struct cast *c;

	EACH_OF(of, c) {
		actor_kill(&c->holder, SIGKILL);
		actor_kill(&c->other, SIGKILL);
		actor_kill(&c->next, SIGKILL);
	}
}

static void curtain_down(const char *title)
{
	all_go(cast);
	ok(good, "%s", title);
}

static void others_wait(void)
{
	struct cast *c;

	EACH_ROW(c)
		waits(&c->other, act_take);
}

static struct result comes(struct actor *a, unsigned ms, uint64_t above, const char *what)
{
	struct result r = { .r = -1 };

	actor_result(a, ms, &r);
	expect(r.r == 0, what, r.r);
	if (r.r == 0 && r.token <= above) {
		note("%s: %s, but with token %llx after %llx", scene.kind->name, what, (unsigned long long)r.token, (unsigned long long)above);
		good = false;
	}
	return r;
}

static void does(struct actor *a, actor_fn fn, uint64_t arg, int wanted, const char *what)
{
	int r = actor_do(a, fn, arg, NULL).r;

	expect(r == wanted, what, r);
}

/* A try asks the other nodes, for a second: all at once. */
static void all_busy(void)
{
	struct cast *c;

	EACH_ROW(c)
		actor_send(&c->next, act_try_it, 1, NULL);
	EACH_ROW(c) {
		struct result r = { .r = -1 };

		actor_result(&c->next, PATIENCE_MS, &r);
		expect(r.r == c->scene.kind->busy, "a try on the other host", r.r);
	}
}

/* From one to the other, who waits; its pace is noted. */
static void hand_over(struct cast *c, struct actor *from, bool back, struct actor *to)
{
	uint64_t since = now_ns();

	does(from, act_give, back, 0, "who has it gives it back");
	struct result r = comes(to, PATIENCE_MS, c->token, "who waits on the other host has it");
	pace_took(&c->pace, r.at_ns > since ? r.at_ns - since : 0, SOON_MS);
	c->token = r.token;
}

static void story_hand_over(void)
{
	struct cast *c;

	curtain_up();
	all_busy();
	EACH_ROW(c) {
		for (unsigned i = 0; i < TRIPS && good; i++) {
			waits(&c->other, act_take);
			hand_over(c, &c->holder, false, &c->other);
			actor_send(&c->holder, act_take, 0, NULL);
			if (!asleep(c->holder.pid))
				give_up("%s: who comes back waits", scene.kind->name);
			hand_over(c, &c->other, true, &c->holder);
		}
		expect(pace_is_quick(&c->pace), "each time it takes as long as some time-out", 0);
	}
	curtain_down("everything that can be held goes from host to host, and back, and nobody is woken by a time-out");
}

static void story_death(void)
{
	struct cast *c;

	curtain_up();
	others_wait();
	EACH_ROW(c) {
		uint64_t since = now_ns();

		actor_kill(&c->holder, SIGKILL);
		struct result r = comes(&c->other, PATIENCE_MS, c->token, "who waits on the other host for one that is killed has it");
		expect(r.r || r.at_ns >= since + c->scene.kind->delay_ms * MS, "who waits on the other host has it before the lock-delay is over", 0);
	}
	curtain_down("a holder is killed, and who waits on another host has it");
}

static void story_restart(void)
{
	struct cast *c;

	curtain_up();
	others_wait();
	daemon_kill(1, SIGKILL);
	daemon_begin(1);
	daemon_await(1);
	EACH_ROW(c)
		does(&c->holder, act_still, 0, 0, "the holder's check after a restart");
	all_busy();
	EACH_ROW(c) {
		does(&c->holder, act_give, 0, 0, "the holder gives back after a restart");
		comes(&c->other, PATIENCE_MS, c->token, "who waits since before the restart has it");
	}
	curtain_down("the holder's daemon dies and comes back in time: held is held");
}

/* Until the check says that it is lost; the token is then the last moment at which it was good. */
static int act_watch(struct stage *s, uint64_t arg)
{
	int r;

	(void)arg;
	do {
		s->token = now_ns();
		r = scene.kind->holds.check(scene.thing);
		nap_ns(MS / 10);
	} while (r == 0);
	return r;
}

/* --- Who waits at a host that is lost --- */

static struct {
	struct scene scene;
	struct actor climber, reader;    /* on hosts 1 and 2, both read */
} stairs;

static int act_upgrade(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_upgrade(scene.thing);
}

static bool by_readers(void)
{
	return !strcmp(scene.kind->word, "toread");
}

static void waiters_up(void)
{
	struct cast *c;

	enter_all(awaited, 2, 2);
	EACH_OF(awaited, c)
		waits(&c->other, act_take);
	scene.kind = kinds;
	while (strcmp(scene.kind->word, "read"))
		scene.kind++;
	scene_new();
	stairs.scene = scene;
	at_host(1);
	enters(&stairs.climber);
	at_host(2);
	enters(&stairs.reader);
	takes(&stairs.climber);
	takes(&stairs.reader);
	waits(&stairs.climber, act_upgrade);
}

/* Host 1 does not hear of it. */
static void waiters_are_next(void)
{
	struct cast *c;

	EACH_OF(awaited, c) {
		does(&c->holder, act_give, 0, 0, "one gives back, for one whose host is lost");
		actor_send(&c->next, act_take, 1, NULL);
	}
}

static void waiters_are_passed(void)
{
	struct cast *c;

	EACH_OF(awaited, c) {
		struct result r = { .r = -1 };

		actor_result(&c->next, PATIENCE_MS, &r);
		expect(r.r == 0, "who waits behind one whose host is lost", r.r);
		c->token = r.token;
	}
	scene = stairs.scene;
	does(&stairs.reader, act_give, 0, 0, "who reads beside one whose host is lost");
	does(&stairs.reader, act_take, 1, 0, "who writes after one whose host is lost");
}

static void waiters_come_later(void)
{
	struct cast *c;
	struct result r = { .r = -1 };

	EACH_OF(awaited, c) {
		if (!by_readers())
			expect(!actor_result(&c->other, 0, &r), "who waited at the host that was lost has it beside another", 0);
		does(&c->next, act_still, 1, 0, "the next one's check");
		does(&c->next, act_give, 1, 0, "the next one gives it back");
		comes(&c->other, PATIENCE_MS, by_readers() ? 0 : c->token, "who waited at the host that was lost has it at last");
	}
	scene = stairs.scene;
	actor_result(&stairs.climber, PATIENCE_MS, &r);
	expect(r.r == ESTALE, "who was to upgrade at the host that was lost", r.r);
	actor_kill(&stairs.climber, SIGKILL);
	actor_kill(&stairs.reader, SIGKILL);
	all_go(awaited);
}

static void story_lapse(int signo, const char *title)
{
	struct cast *c;
	double margin = 1e9;

	curtain_up();
	waiters_up();
	others_wait();
	EACH_ROW(c)
		actor_send(&c->holder, act_watch, 0, NULL);
	nap_ns((100 + random_below(300)) * MS);
	daemon_kill(1, signo);
	waiters_are_next();
	EACH_ROW(c) {
		struct result had = comes(&c->other, PATIENCE_MS, c->token, "who waits has it once the holder's node is lost"), lost = { .r = -1 };

		actor_result(&c->holder, PATIENCE_MS, &lost);
		expect(lost.r == ESTALE, "the holder's check", lost.r);
		expect(lost.token < had.at_ns, "the holder could believe that it had it, and another had it", 0);
		if (((double)had.at_ns - (double)lost.token) / 1e6 < margin)
			margin = ((double)had.at_ns - (double)lost.token) / 1e6;
	}
	note("from the last good check to the next holder: %.0f ms at least", margin);
	waiters_are_passed();
	if (signo == SIGSTOP)
		daemon_thaw(1);
	else
		daemon_begin(1);
	daemon_await(1);
	EACH_ROW(c) {
		does(&c->holder, act_give, 0, ESTALE, "the holder gives back what is lost");
		does(&c->other, act_still, 1, 0, "the next one's check");
		uint64_t token = c->token;
		actor_send(&c->holder, act_take, 0, NULL);
		does(&c->other, act_give, 1, 0, "the next one gives it back");
		comes(&c->holder, PATIENCE_MS, token, "the first has it once more");
	}
	waiters_come_later();
	curtain_down(title);
}

/* --- A loss that is foreseen --- */

#define TOLD_TRIES 4
#define NOTICE_MS  10000                 /* who has not heard of it then never will */

/* What a holder was told, and when; 0: not yet. */
static struct signs {
	uint64_t alive, signalled, hinted;
} *signs;

static unsigned me;                      /* in an actor: its row */

static void note_once(uint64_t *at)
{
	if (!*at)
		__atomic_store_n(at, now_ns(), __ATOMIC_RELEASE);
}

static void on_loss(int signo)
{
	(void)signo;
	note_once(&signs[me].signalled);
}

/* Until its check says that it is lost, or it is killed. */
static int act_heed(struct stage *s, uint64_t row_of)
{
	struct pollfd p = { .fd = -1, .events = POLLIN };
	int r;

	(void)s;
	me = (unsigned)row_of;
	signal(SIGUSR1, on_loss);
	if (scene.kind->fd && scene.kind->fd(scene.thing, &p.fd))
		return EBADF;
	do {                             /* the check would empty it */
		__atomic_store_n(&signs[me].alive, now_ns(), __ATOMIC_RELEASE);
		r = p.fd < 0 ? scene.kind->holds.check(scene.thing) : 0;
		if (poll(&p, 1, 1) > 0) {
			note_once(&signs[me].hinted);
			p.fd = -1;
		}
	} while (r == 0);
	return r;
}

/* Every second one asks for SIGKILL, every other for another signal. */
static int signal_of(unsigned i)
{
	return (i + harness.seed) % 2 ? SIGKILL : SIGUSR1;
}

static void reenters(unsigned i)
{
	actor_kill(&cast[i].holder, SIGKILL);
	kinds_onloss = signal_of(i);
	at_host(1);
	enters(&cast[i].holder);
	kinds_onloss = 0;
	cast[i].token = takes(&cast[i].holder);
	actor_send(&cast[i].holder, act_heed, i, NULL);
}

/* In the order in which it has to be: told, then ended or lost, then another's. Whether all were; what it was is noted. */
static bool told_in_time(unsigned i, uint64_t granted)
{
	const struct signs *t = &signs[i];
	bool killed = signal_of(i) == SIGKILL, hints = scene.kind->fd;

	if (killed ? t->alive < granted : t->signalled && t->signalled < granted && (!hints || (t->hinted && t->hinted < granted)))
		return true;
	note("%s: granted %.0f ms after its last sign of life, %.0f after the signal, %.0f after the hint", scene.kind->name,
	     ((double)granted - (double)t->alive) / 1e6, t->signalled ? ((double)granted - (double)t->signalled) / 1e6 : -1.,
	     t->hinted ? ((double)granted - (double)t->hinted) / 1e6 : -1.);
	return false;
}

static bool play_told(void)
{
	bool in_time = true;
	struct cast *c;

	memset(signs, 0, ROWS_MAX * sizeof *signs);
	curtain_up();
	EACH_ROW(c)
		reenters(i_);
	lab_cable(1, false);
	nap_ns(100 * MS);
	others_wait();
	EACH_ROW(c) {
		struct result lost = { .r = -1 };
		uint64_t granted;

		actor_result(&c->other, PATIENCE_MS, &lost);
		granted = lost.at_ns;
		expect(lost.r == 0, "who waits on the other host has it", lost.r);
		if (signal_of(i_) == SIGKILL)
			expect(actor_is_gone(&c->holder, PATIENCE_MS), "it is killed", 0);
		else if (actor_result(&c->holder, NOTICE_MS, &lost))
			expect(lost.r == ESTALE, "the holder's check", lost.r);
		in_time &= told_in_time(i_, granted);
	}
	town_mend();
	daemon_await(1);
	return in_time;
}

/* Again where a process was not given the processor to notice; what does not tell is late each time. */
static void story_told(void)
{
	bool in_time = play_told();

	for (unsigned tries = 1; !in_time && good && tries < TOLD_TRIES; tries++) {
		all_go(cast);
		in_time = play_told();
	}
	expect(in_time, "a holder was not told before it was another's", 0);
	curtain_down("the holder's host is cut off: its descriptor, its signal or its end come before the next holder");
}

/* It has to find a store anew to which it takes more than a twentieth of TTL there and back, and that twice with the connection. */
static void story_slow(void)
{
	lab_slow(1, TTL_MS / 36, 0);
	daemon_kill(1, SIGKILL);
	daemon_begin(1);
	ok(daemon_ready(1, PATIENCE_MS), "a daemon that is started anew behind a slow cable comes in again");
	lab_slow(1, 0, 0);
}

int main(void)
{
	if (kinds_count > ROWS_MAX)
		give_up("more rows than this test has room for");
	harness_begin(320);
	if (!town_possible())
		return harness_end();
	signs = shared_memory(ROWS_MAX * sizeof *signs);
	town_begin(2, TTL_MS);
	story_hand_over();
	story_death();
	story_restart();
	story_lapse(SIGSTOP, "a daemon is frozen: nobody has what is held there before the holder has lost it, and who waits there is passed over; then all goes on");
	story_lapse(SIGKILL, "a daemon is killed: the same");
	story_told();
	story_slow();
	return harness_end();
}
