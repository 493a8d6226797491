/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The threads of clients and the daemon, as libclient and daemon/shm go about the word. The word's
 * functions are those of lockword.h, compiled here with each access to common memory made a
 * question to the world. Spinning is left out: loads that change nothing are a delay, and each
 * step may be delayed as it is.
 */
#include "players.h"
#include "play.h"

#include <stdint.h>

static uint64_t the_word;        /* never read: accesses go to the world */

static inline bool word_cas(uint64_t *old, uint64_t new, unsigned line)
{
	struct answer r = play_do_at(ASK_CAS, *old, new, 0, line);

	if (!r.yes)
		*old = r.value;
	return r.yes;
}

static inline int word_wake(uint64_t n, unsigned class, unsigned line)
{
	return (int)play_do_at(ASK_WAKE, n, class, 0, line).value;
}

#define LOCK_OPS
#define LOCK_LOAD(p) ((void)(p), play_do(ASK_LOAD, 0, 0, 0).value)
#define LOCK_CAS(p, old, new, order) ((void)(p), (void)(order), word_cas((old), (new), __LINE__))
#define LOCK_WAKE(p, n, class) ((void)(p), word_wake((n), (class), __LINE__))
#include "proto/lockword.h"

struct players players;

#define WORD (&the_word)
#define CLASS_CANCEL 4u          /* one more futex class, for the waits that a cancel has to reach */

/* Says which of the word's functions is at work. Its own variables need not be told: that they carry
 * nothing from one attempt to the next, but what it asks with, is tried. */
#define AS(which, call) (play_known.fn = (which), (call))

/* Says by which of several places a function is called. */
#define VIA(n, call) (play_known.where = play_known.where * 8 + (n), via(call))

static inline bool via(bool result)
{
	play_known.where /= 8;
	return result;
}

static inline bool flag_do(enum ask_kind kind, enum flag f, bool to, unsigned line)
{
	return play_do_at(kind, f, to, 0, line).value;
}

#define get(f) flag_do(ASK_GET, (f), false, __LINE__)
#define set(f, to) flag_do(ASK_SET, (f), (to), __LINE__)        /* returns what it was */

/* --- A client's thread --- */

struct wait {
	uint64_t me, held;
	bool deadline, cancellable;
};

/*
 * W is in the word; now the daemon has to know. Nobody relies on another to ring: he may be stopped
 * between setting the bit and ringing. Only the daemon's own word that it watches makes it needless.
 */
static void announce(uint64_t w)
{
	bool watched = players.slip == SLIP_NO_WATCH, ring = false;

	if (!watched && players.slip != SLIP_RING_IF_CLEAR)
		watched = get(FLAG_WATCHED);
	if (!watched)
		ring = !set(FLAG_WATCH, true) || players.slip != SLIP_RING_IF_CLEAR;
	if (lock_is_free(w) && !(w & LOCK_L) && players.slip != SLIP_NO_WANT) {
		set(FLAG_WANT, true);
		ring = true;
	}
	if (ring)
		set(FLAG_BELL, true);
}

enum { KNOWS_WOKEN = 1, KNOWS_HEIR = 2, KNOWS_FORCE = 4 };

static void know(uint64_t w, const struct lock_waiter *t)
{
	play_known.word = w;
	play_known.rest = (t->woken ? KNOWS_WOKEN : 0) | (t->heir ? KNOWS_HEIR : 0) | (t->force ? KNOWS_FORCE : 0);
}

static bool is_cancelled(const struct wait *c)
{
	return c->cancellable && get(FLAG_CANCEL);
}

/* Returns whether the wait is over. */
static bool sleep_on(const struct wait *c, struct lock_waiter *t, uint64_t w)
{
	unsigned class = lock_class(t) | (c->cancellable ? CLASS_CANCEL : 0);
	unsigned ends = (c->deadline ? SLEEP_DEADLINE : 0) | (t->heir && !t->force && players.force ? SLEEP_FORCE : 0);
	enum slept how = (enum slept)play_do(ASK_SLEEP, (uint32_t)w, class, ends).value;

	t->woken = players.slip == SLIP_WOKEN_ALWAYS || (how == SLEPT_WOKEN && players.slip != SLIP_WOKEN_NEVER);
	t->force |= how == SLEPT_FORCE;
	know(0, t);
	return how == SLEPT_LATE || is_cancelled(c) || (c->deadline && play_do(ASK_GUESS, 0, 0, 0).yes);
}

static bool wait_slowly(struct wait *c)
{
	struct lock_waiter t = { .me = c->me };
	bool over = false;
	uint64_t w;

	while (!over) {
		if (AS(FN_TURN, lock_turn(WORD, &t, &w)) == LOCK_TAKEN) {
			c->held = w;
			return true;
		}
		play_known.fn = FN_NONE;
		know(w, &t);
		if (players.daemon)
			announce(w);
		over = is_cancelled(c) || sleep_on(c, &t, w);
	}
	know(0, &t);
	if (players.slip != SLIP_NO_LEAVE)
		AS(FN_LEAVE, lock_leave(WORD, &t));
	return false;
}

static bool take_fast(struct wait *c, uint64_t slow)
{
	uint64_t w;

	play_known.fn = FN_FAST;
	w = LOCK_LOAD(WORD);
	c->held = w + LOCK_ONE + c->me;
	return !((w ^ LOCK_L) & slow & ~players.slow_less) && LOCK_CAS(WORD, &w, c->held, __ATOMIC_ACQUIRE);
}

static bool take(struct wait *c, uint64_t slow)
{
	bool taken;

	if (c->cancellable)
		set(FLAG_CANCELLABLE, true);
	taken = take_fast(c, slow) || wait_slowly(c);
	play_known = (struct known){ .word = taken ? c->held : 0 };
	if (c->cancellable)
		set(FLAG_CANCELLABLE, false);
	return taken;
}

static bool post(uint64_t held)
{
	uint64_t w = held;
	unsigned how = 0;

	play_known.fn = FN_RELEASE;
	if (!(held & LOCK_W) &&
	    LOCK_CAS(WORD, &w, held & ~(LOCK_OWNER | LOCK_MODE), __ATOMIC_RELEASE))
		return true;
	if (players.force && play_do(ASK_GUESS, 0, 0, 0).yes)
		how = LOCK_PRESS;
	play_known.rest = how;
	return lock_release(WORD, held, how);
}

/* Another node waits for this release: the daemon hears of it. */
static bool tell_yield(void)
{
	if (!players.yields)
		return true;
	play_known = (struct known){ .fn = FN_YIELD, .where = play_known.where };
	if (LOCK_LOAD(WORD) & LOCK_Y) {
		play_known.rest = 1;
		set(FLAG_WANT, true);
		play_known.rest = 2;
		set(FLAG_BELL, true);
	}
	return true;
}

/* As a release would be that did not care whose hold it is. */
static bool post_blindly(void)
{
	uint64_t w;

	play_known.fn = FN_RELEASE;
	do {
		w = LOCK_LOAD(WORD);
	} while (!LOCK_CAS(WORD, &w, (w & ~(LOCK_OWNER | LOCK_MODE)) | (w & LOCK_W ? LOCK_K : 0), __ATOMIC_RELEASE));
	if ((w & LOCK_W) && !(w & LOCK_K))
		lock_wake(WORD, w);
	return true;
}

static void hold(struct wait *c, char how)
{
	bool told = (how == 'r' || how == 'n') && (c->held & LOCK_D), good;

	play_known = (struct known){ .word = c->held };
	play_do(ASK_ENTER, c->held, 0, 0);
	if (told && how == 'r')
		play_do(ASK_MENDED, AS(FN_MEND, lock_mend(WORD, c->held)), 0, 0);
	play_known.fn = FN_NONE;
	play_do(ASK_LEAVE, 0, 0, 0);
	if (players.slip == SLIP_POST_BLINDLY)
		good = post_blindly();
	else if (how == 'd')
		good = AS(FN_RELEASE, lock_release(WORD, c->held, LOCK_DIED));
	else
		good = post(c->held) && VIA(5, tell_yield());
	play_do(ASK_POSTED, good, 0, 0);
}

/* The word does not change by it, so one wake may come between a waiter's last look and its sleep. */
static void cancel(void)
{
	set(FLAG_CANCEL, true);
	do {
		AS(FN_CANCEL, LOCK_WAKE(WORD, INT_MAX, CLASS_CANCEL));
	} while (get(FLAG_CANCELLABLE));
}

void players_client(unsigned role, unsigned round)
{
	char how = players.script[role][round];
	struct wait c = {
		.me = LOCK_EXCLUSIVE | players.index[role], .deadline = how == 't', .cancellable = how == 'x',
	};

	if (how == '\0')
		play_do(ASK_NOTHING, 0, 0, 0);
	else if (how == 'c')
		cancel();
	else if (how == 'y' ? take_fast(&c, LOCK_SLOW)
			    : take(&c, how == 'r' || how == 'n' ? LOCK_SLOW | LOCK_D : LOCK_SLOW))
		hold(&c, how);
	play_do(ASK_ROUND, 0, 0, 0);
}

/* --- The daemon --- */

/* What another node waits for goes there, and soon comes back for whoever waits here. Returns whether it went. */
static bool give_away(void)
{
	uint64_t was;

	while (!AS(FN_CLOSE, lock_close(WORD, 0, &was)))
		if (AS(FN_YIELD, lock_yield(WORD)))
			return false;
	play_known.fn = FN_NONE;
	return true;
}

/* A free and closed word is given a range if somebody waits for it. */
static bool serve(bool wanted)
{
	uint64_t w;

	play_known.fn = FN_NONE;
	w = LOCK_LOAD(WORD);
	if (players.yields && lock_is_free(w) && (w & LOCK_Y) && !lock_is_promised(w)) {
		play_known.rest ^= 1u << 30;
		VIA(6, give_away());
		play_known.rest ^= 1u << 30;
		w = LOCK_LOAD(WORD);
	}
	if (lock_is_free(w) && !(w & LOCK_L) && (wanted || (w & LOCK_W))) {
		play_known.word = play_do(ASK_RANGE, 0, 0, 0).value;
		AS(FN_GRANT, lock_grant(WORD, play_known.word));
	}
	play_known.word = 0;
	play_known.fn = FN_NONE;
	return true;
}

/* The bell has been silenced, and level 2 cleared, before. */
static bool consume(bool watching)
{
	if (players.slip == SLIP_RING_IF_CLEAR) {
		watching |= get(FLAG_WATCH);
		play_known.rest = watching;
	} else if (set(FLAG_WATCH, false) && !watching) {
		set(FLAG_WATCHED, true);
		watching = true;
		play_known.rest = watching;
	}
	if (set(FLAG_WANT, false))
		VIA(1, serve(true));
	return watching;
}

static bool look(void)
{
	bool more = AS(FN_LOOK, lock_look(WORD));

	play_known.fn = FN_NONE;
	play_known.rest = more;
	VIA(2, serve(false));
	return more;
}

/* Where the word has not moved since the last look, and nobody sleeps on a held one, W is taken back. */
static bool settle(void)
{
	uint64_t w;

	if (!play_do(ASK_GUESS, 0, 0, 0).yes)
		return false;
	w = LOCK_LOAD(WORD);
	play_known.word = w;
	if (!lock_is_free(w) && (w & LOCK_W) && play_do(ASK_SLEEPERS, (uint32_t)w, 0, 0).value == 0)
		LOCK_CAS(WORD, &w, w & ~(LOCK_W | LOCK_K | LOCK_H | LOCK_S), __ATOMIC_RELAXED);
	play_known.word = 0;
	return true;
}

/* One look, in its turn. Returns whether the word stays on the list. */
static bool look_on(void)
{
	settle();
	if (VIA(1, look()))
		return true;
	set(players.slip == SLIP_RING_IF_CLEAR ? FLAG_WATCH : FLAG_WATCHED, false);
	if (players.slip == SLIP_DROP_UNSEEN)
		return false;
	if (players.slip == SLIP_DROP_W_ONLY ? !(LOCK_LOAD(WORD) & LOCK_W) : !VIA(2, look()))
		return false;
	set(players.slip == SLIP_RING_IF_CLEAR ? FLAG_WATCH : FLAG_WATCHED, true);
	return true;
}

static void close_and_open(void)
{
	uint64_t was;

	if (players.yields) {
		if (!AS(FN_YIELD, lock_promise(WORD)) && VIA(7, give_away()))
			VIA(3, serve(false));
		play_known.fn = FN_NONE;
		return;
	}
	if (AS(FN_CLOSE, lock_close(WORD, 0, &was)) && (was & LOCK_W))
		VIA(3, serve(true));
	play_known.fn = FN_NONE;
}

static bool bury(unsigned client)
{
	play_known.word = client;
	AS(FN_DIED, lock_died(WORD, client));
	play_known.word = 0;
	return VIA(4, serve(false));
}

/* A hold is taken away from a living client, as by a lapse of the lease. */
static void steal(void)
{
	uint64_t w = LOCK_LOAD(WORD);

	if (!lock_is_free(w))
		VIA(1, bury(w & LOCK_OWNER));
}

static bool start_again(void)
{
	if (players.slip == SLIP_NO_RESCAN)
		return get(FLAG_WATCHED);
	for (unsigned c = 1; c <= CLIENTS_MAX; c++) {
		play_known.rest = c;
		if (play_do(ASK_GONE, c, 0, 0).value)
			VIA(2, bury(c));
	}
	if (!VIA(3, consume(false)) && !get(FLAG_WATCHED) && !(LOCK_LOAD(WORD) & LOCK_W))
		return false;
	set(FLAG_WATCHED, true);
	return VIA(4, look_on());
}

/* Returns whether the word is on the list after it. */
static bool daemon_hears(uint64_t event, bool watching)
{
	switch (event) {
	case EVENT_BELL:
		return VIA(1, consume(watching));
	case EVENT_LOOK:
		return VIA(2, look_on());
	case EVENT_CLOSE:
		close_and_open();
		return watching;
	case EVENT_STEAL:
		steal();
		return watching;
	default:
		VIA(3, bury((unsigned)(event - EVENT_DEATH)));
		return VIA(4, consume(watching));
	}
}

void players_daemon(unsigned role, unsigned round)
{
	bool watching = round == DAEMON_WATCHES || (round == DAEMON_AGAIN && start_again());

	(void)role;
	for (;;) {
		play_known = (struct known){ .rest = watching };
		watching = daemon_hears(play_do(ASK_IDLE, watching, 0, 0).value, watching);
	}
}
