/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers, writers among them, upgrades, and the daemon that takes the word back: the functions of readers.h and lockword.h, unchanged,
 * through every order in which three threads and the daemon can act. (What sleepers owe each other on the word itself, with
 * heirs, deadlines and stops, is in test_lockword.)
 *
 * A cell that is emptied without a barrier may be seen full for as long as its thread does not meet one: so is the store of
 * it here, until it lands. The judge knows who is inside, and believes nothing that is written anywhere:
 *   - a writer is alone, and so is who has upgraded, without having let go; readers are together
 *   - a reader's number is above that of each writer before it, a writer's is above all
 *   - where nobody can take a step any more, everybody is through; from everywhere such an end can be reached
 * A hold that was taken away with its session counts for nothing, and spoils nothing.
 *
 * The second half breaks one rule at a time, and each must be found out.
 */
#include "play.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3u
#define ROLES (THREADS + 1)
#define DAEMON_ROLE THREADS
#define STEPS_MAX 40u
#define SLOT 1u

enum { WORD, GATE, MARKS, BIAS, DRAIN, CELLS, PLACES = CELLS + THREADS };
enum { Q_LOAD, Q_CAS, Q_SWAP, Q_OR, Q_AND, Q_ADD, Q_EMPTY, Q_BARRIER, Q_WAKE, Q_WAKE_DRAIN, Q_SLEEP, Q_SLEEP_DRAIN, Q_RING, Q_GUESS,
       Q_RANGE, Q_ENTER, Q_LEAVE, Q_LAPSE, Q_IDLE, Q_GONE, Q_END };
enum { HEARS_BELL, HEARS_YIELD, HEARS_LAPSE, HEARS_DEATH };

#define ask_do(kind, a, b, c) play_do((enum ask_kind)(kind), (a), (b), (c))

static char *const nowhere = (char *)(uintptr_t)0x10000000;      /* the segment, of which only lines are asked for */

static unsigned place_of(const void *p);

static inline uint64_t op_load(const void *p, unsigned line)
{
	unsigned place = place_of(p);
	uint64_t v = place < PLACES ? play_do_at((enum ask_kind)Q_LOAD, 0, 0, place, line).value : 0;

	if (place == WORD)
		play_known.more[0] = v;
	if (place == MARKS || place == BIAS)
		play_known.more[1] = v;
	return v;
}

static inline bool op_cas(const void *p, uint64_t *old, uint64_t new, unsigned line)
{
	struct answer r = play_do_at((enum ask_kind)Q_CAS, *old, new, place_of(p), line);

	if (!r.yes)
		*old = r.value;
	return r.yes;
}

static inline uint64_t op_rmw(unsigned kind, const void *p, uint64_t v, unsigned line)
{
	uint64_t was = play_do_at((enum ask_kind)kind, v, 0, place_of(p), line).value;

	if (kind == Q_AND)
		play_known.more[2] = was;
	return was;
}

static inline int op_wake(uint64_t n, unsigned class, unsigned line)
{
	return (int)play_do_at((enum ask_kind)Q_WAKE, n, class, 0, line).value;
}

#define op_do(kind, p, v) op_rmw((kind), (p), (v), __LINE__)

#define LOCK_OPS
#define LOCK_LOAD(p) op_load((p), __LINE__)
#define LOCK_CAS(p, old, new, order) ((void)(order), op_cas((p), (old), (new), __LINE__))
#define LOCK_WAKE(p, n, class) ((void)(p), op_wake((n), (class), __LINE__))
#define READ_LOAD(p) op_load((p), __LINE__)
#define READ_EMPTY(p) ((void)op_do(Q_EMPTY, (p), 0))
#define READ_SWAP(p, v) op_do(Q_SWAP, (p), (v))
#define READ_OR(p, v) op_do(Q_OR, (p), (v))
#define READ_AND(p, v) op_do(Q_AND, (p), (uint64_t)(v))
#define READ_WAKE(p) ((void)(p), (void)ask_do(Q_WAKE_DRAIN, 0, 0, 0))
#include "proto/readers.h"

static struct seg_slot slot;             /* for its addresses */

static unsigned place_of(const void *p)
{
	const char *lines = nowhere + SEG_LINE_OFF;

	if (p == &slot.word)
		return WORD;
	if (p == &slot.gate)
		return GATE;
	if (p == &slot.readers)
		return MARKS;
	if (p == &slot.bias)
		return BIAS;
	if (p == &slot.drain)
		return DRAIN;
	size_t cell = (size_t)((const char *)p - lines) / sizeof(uint64_t);

	return cell % SEG_LINE_CELLS || !cell ? PLACES : CELLS + (unsigned)(cell / SEG_LINE_CELLS) - 1;
}

static uint64_t *cell_at(unsigned role)
{
	return seg_line(nowhere, role + 1);
}

/* --- Scenarios --- */

enum slip {
	SLIP_NONE, SLIP_NO_FENCE, SLIP_NO_BARRIER, SLIP_NO_SCAN, SLIP_NO_FLAG, SLIP_NO_WAKE, SLIP_STAY, SLIP_NO_MARK,
	SLIP_CLOSE, SLIP_ANY_ERA, SLIP_NO_BURIAL,
};

/* A letter for each call: r reads, w writes, u reads and upgrades, d writes and downgrades. */
struct scenario {
	const char *title, *script[THREADS];
	uint8_t yields, lapses, victims;
	bool drops;                      /* writers may take R away */
	bool short_range;
	enum slip slip;
};

static const struct scenario *scenario;

/* --- Threads. What they keep between two steps is in play_known --- */

enum { GOT, AGAIN };

static uint64_t owner_of(unsigned role)
{
	return role + 1;
}

static void know(uint64_t word, uint64_t rest)
{
	play_known.word = word;
	play_known.rest = rest;
	memset(play_known.more, 0, sizeof play_known.more);
}

/* Says by which of several places a function is called. */
#define VIA(n, call) do { play_known.where += (n) << 16; call; play_known.where -= (n) << 16; } while (0)

static unsigned era_of(uint64_t gate)
{
	return (unsigned)((gate & GATE_ERA) / GATE_ERA_ONE) + 1;
}

/* held: of a writer; 0: it reads, in the era of the gate. */
static void enter(uint64_t held, uint64_t number, uint64_t gate)
{
	ask_do(Q_ENTER, held, number, held ? 0 : era_of(gate));
}

/* It owns the word, and reads from now on; if it has it still. */
static void reads_now(uint64_t held, uint64_t number, uint64_t gate)
{
	ask_do(Q_ENTER, held, number, era_of(gate));
}

static void left(void)
{
	play_known.fn = 9;
	if (scenario->slip == SLIP_NO_WAKE)
		return;
	if (read_left(&slot))
		ask_do(Q_RING, 0, 0, 0);
}

static void leave(unsigned role)
{
	know(0, 0);
	play_known.fn = 8;
	if (read_leave(&slot, cell_at(role)))
		left();
}

/* The lease is asked back: the daemon looks when it is free. */
static void yielded(uint64_t gate)
{
	know(0, gate);
	play_known.fn = 7;
	if (LOCK_LOAD(&slot.word) & LOCK_Y)
		ask_do(Q_RING, 0, 0, 0);
	know(0, gate);
}

static void give(uint64_t held, unsigned how)
{
	know(held, how);
	play_known.fn = 6;
	lock_release(&slot.word, held, how);
	yielded(0);
}

static bool upgrading(void)
{
	bool up = READ_LOAD(&slot.gate) & GATE_UPGRADER;

	return up && scenario->slip != SLIP_STAY;
}

/* Somebody upgrades: until that is over. */
static void aside(void)
{
	know(0, 0);
	play_known.fn = 5;
	while (upgrading()) {
		uint64_t was = READ_OR(&slot.drain, DRAIN_ASIDE) | DRAIN_ASIDE;

		play_known.rest = was;
		if (READ_LOAD(&slot.gate) & GATE_UPGRADER)
			ask_do(Q_SLEEP_DRAIN, was, 0, 0);
		know(0, 0);
	}
}

/* Owns the word: as it was taken. play_known.rest keeps the waiter. */
static uint64_t own(unsigned role, bool exclusive, bool first)
{
	uint64_t w;

	know(0, 0);
	play_known.fn = 4;
	for (;;) {
		struct lock_waiter t = {
			.me = owner_of(role) | (exclusive ? LOCK_EXCLUSIVE : 0), .first = first,
			.woken = play_known.rest & 1, .heir = play_known.rest & 2,
		};

		if (lock_turn(&slot.word, &t, &w) == LOCK_TAKEN) {
			know(w, 0);
			return w;
		}
		know(w, (uint64_t)t.heir << 1);
		ask_do(Q_RING, 0, 0, 0);
		bool woken = ask_do(Q_SLEEP, (uint32_t)w, lock_class(&t), 0).yes;

		know(0, (uint64_t)t.heir << 1 | woken);
	}
}

static int read_as_owner(unsigned role, uint64_t w)
{
	uint64_t gate, bias;

	play_known.fn = 3;
	if (upgrading()) {
		VIA(1, give(w, 0));
		return AGAIN;
	}
	know(w, 0);
	if (scenario->slip != SLIP_NO_MARK && !(READ_LOAD(&slot.readers) & line_mark(role + 1)))
		READ_OR(&slot.readers, line_mark(role + 1));
	know(w, 0);
	gate = READ_LOAD(&slot.gate);
	know(w, gate);
	READ_SWAP(cell_at(role), cell_of(SLOT, gate) | 1);
	bias = READ_LOAD(&slot.bias);
	know(w, gate);
	reads_now(w, bias + (lock_count(w) ? lock_count(w) : UINT64_C(1) << LOCK_COUNT_BITS), gate);
	if (!lock_release(&slot.word, w, LOCK_READERS)) {
		ask_do(Q_LEAVE, 0, 0, 0);
		VIA(1, leave(role));
		return AGAIN;
	}
	VIA(6, yielded(gate));
	return GOT;
}

static int read_fast(unsigned role)
{
	uint64_t gate, number;

	know(0, 0);
	play_known.fn = 2;
	gate = READ_LOAD(&slot.gate);
	know(0, gate);
	if (gate & GATE_LOW)
		return AGAIN;
	if (!read_enter(&slot, cell_at(role), cell_of(SLOT, gate), gate, line_mark(role + 1), LOCK_SLOW, &number)) {
		VIA(2, leave(role));
		return AGAIN;
	}
	know(number, gate);
	enter(0, number, gate);
	know(0, gate);
	return GOT;
}

/* Inside, with the gate as it was then in play_known.rest. */
static void reads(unsigned role)
{
	if (read_fast(role) == GOT)
		return;
	uint64_t w;

	do {
		VIA(1, aside());
		VIA(1, w = own(role, false, false));
	} while (read_as_owner(role, w) != GOT);
}

static bool somebody(unsigned role, uint64_t w, uint64_t was, bool upgrades)
{
	play_known.more[2] = was;
	uint64_t gate = READ_LOAD(&slot.gate);

	know(w, gate);
	play_known.more[2] = was;
	bool there = readers_inside(nowhere, &slot, cell_of(SLOT, gate), THREADS + 1, upgrades ? cell_at(role) : NULL);

	know(w, 0);
	return there && scenario->slip != SLIP_NO_SCAN;
}

/* Owns a word with R. Returns what it holds, or 0. */
static uint64_t drain(unsigned role, uint64_t w, bool upgrades)
{
	know(w, 0);
	play_known.fn = upgrades ? 11 : 1;
	while (somebody(role, w, 0, upgrades)) {
		if (!upgrades && upgrading()) {
			VIA(2, give(w, 0));
			return 0;
		}
		uint64_t was = 0;

		if (scenario->slip != SLIP_NO_FLAG)
			was = READ_OR(&slot.drain, DRAIN_OWNER) | DRAIN_OWNER;
		know(w, was);
		if (scenario->slip != SLIP_NO_BARRIER)
			ask_do(Q_BARRIER, 0, 0, 0);
		bool there = somebody(role, w, was | UINT64_C(1) << 40, upgrades);       /* the second look */

		know(w, was);
		if (there && (upgrades || !(READ_LOAD(&slot.gate) & GATE_UPGRADER)))
			ask_do(Q_SLEEP_DRAIN, was, 0, 0);
		know(w, 0);
	}
	uint64_t held = w;
	bool drop = scenario->drops && ask_do(Q_GUESS, 0, 0, 0).yes;

	know(w, drop);
	return lock_enter(&slot.word, &held, drop) ? held : 0;
}

static uint64_t token(uint64_t held)
{
	uint64_t bias;

	uint32_t fn = play_known.fn;

	know(held, 1);
	play_known.fn = 17 + fn;
	bias = READ_LOAD(&slot.bias);
	play_known.fn = fn;
	know(held, 0);
	return bias + lock_number(held);
}

static void alone(uint64_t held)
{
	uint64_t number = token(held);

	enter(held, number, 0);
}

static uint64_t writes(unsigned role)
{
	uint64_t w, held;

	know(0, 0);
	play_known.fn = 12;
	w = LOCK_LOAD(&slot.word);
	held = w + LOCK_ONE + owner_of(role) + LOCK_EXCLUSIVE;
	know(held, 0);
	if ((w & LOCK_SLOW) == LOCK_L && LOCK_CAS(&slot.word, &w, held, __ATOMIC_ACQUIRE)) {
		VIA(8, alone(held));
		return held;
	}
	for (;;) {
		VIA(2, aside());
		VIA(2, held = own(role, true, false));
		if (held & LOCK_R)
			held = drain(role, held, false);
		if (!held)
			continue;
		play_known.fn = 12;
		VIA(9, alone(held));
		return held;
	}
}

static void stops_reading(unsigned role, uint64_t gate)
{
	know(0, gate & GATE_ERA);
	play_known.fn = 10;
	bool lost = (READ_LOAD(&slot.gate) ^ gate) & GATE_ERA;

	ask_do(Q_LEAVE, lost ? 2 : 1, 0, 0);
	VIA(3, leave(role));
}

static bool upgrade_begins(unsigned role, uint64_t era)
{
	uint64_t gate = READ_LOAD(&slot.gate);

	do {
		know(gate, era);
		if (((gate ^ era) & GATE_ERA) || (gate & GATE_LOW))
			return false;
	} while (!LOCK_CAS(&slot.gate, &gate, gate | owner_of(role), __ATOMIC_SEQ_CST));
	know(0, era);
	READ_AND(&slot.drain, ~(uint64_t)DRAIN_OWNER);
	READ_WAKE(&slot.drain);
	return true;
}

static void upgrade_ends(unsigned role, uint64_t held, uint64_t era)
{
	uint64_t gate;

	know(held, era);
	play_known.fn = 13;
	gate = READ_LOAD(&slot.gate);
	do {
		know(held, era);
		play_known.more[2] = gate;
		if ((gate & GATE_UPGRADER) != owner_of(role) || ((gate ^ era) & GATE_ERA))
			return;
	} while (!LOCK_CAS(&slot.gate, &gate, gate & ~GATE_LOW, __ATOMIC_SEQ_CST));
	know(held, era);
	if (READ_AND(&slot.drain, ~(uint64_t)DRAIN_ASIDE) & DRAIN_ASIDE)
		READ_WAKE(&slot.drain);
	know(held, era);
}

/* From reading to being alone; 0: it reads still. */
static uint64_t upgrades(unsigned role, uint64_t era)
{
	uint64_t held = 0;

	know(0, era);
	play_known.fn = 14;
	if (!upgrade_begins(role, era))
		return 0;
	uint64_t w;

	VIA(3, w = own(role, true, true));

	know(w, era);
	play_known.more[2] = era;
	bool lost = (READ_LOAD(&slot.gate) ^ era) & GATE_ERA;

	if (lost || !(w & LOCK_R)) {
		VIA(3, give(w, 0));
		return 0;
	}
	held = drain(role, w, true);
	if (held) {
		play_known.fn = 14;
		VIA(10, alone(held));
		know(held, era);
		play_known.fn = 15;
		if (read_leave(&slot, cell_at(role)))
			VIA(5, left());
	}
	return held;
}

static uint64_t gate_of_mine(void)
{
	return play_known.rest;
}

static bool downgrades(unsigned role, uint64_t held)
{
	uint64_t gate, bias, freed = lock_freed(held, LOCK_READERS);

	know(held, 0);
	play_known.fn = 16;
	gate = READ_LOAD(&slot.gate);
	know(held, gate);
	if (scenario->slip != SLIP_NO_MARK && !(READ_LOAD(&slot.readers) & line_mark(role + 1)))
		READ_OR(&slot.readers, line_mark(role + 1));
	know(held, gate);
	READ_SWAP(cell_at(role), cell_of(SLOT, gate) | 1);
	bias = READ_LOAD(&slot.bias);
	know(held, gate);
	reads_now(held, bias + (lock_count(freed) ? lock_count(freed) : UINT64_C(1) << LOCK_COUNT_BITS), gate);
	if (!lock_release(&slot.word, held, LOCK_READERS)) {
		ask_do(Q_LEAVE, 0, 0, 0);
		VIA(4, leave(role));
		return false;
	}
	VIA(7, yielded(gate));
	return true;
}

static void thread(unsigned role, unsigned unused)
{
	const char *script = scenario->script[role];
	uint64_t held;

	(void)unused;
	for (unsigned i = 0; script[i]; i++) {
		play_known = (struct known){ .where = i };
		switch (script[i]) {
		case 'r':
			reads(role);
			stops_reading(role, gate_of_mine());
			break;
		case 'u': {
			reads(role);
			uint64_t era = gate_of_mine() & GATE_ERA;

			play_known.where = i | 8 | (uint32_t)((era & GATE_ERA) / GATE_ERA_ONE) << 4;
			held = upgrades(role, era);
			play_known.where = i;
			if (!held) {
				upgrade_ends(role, 0, era);
				stops_reading(role, era);
				break;
			}
			upgrade_ends(role, held, era);
			ask_do(Q_LEAVE, 0, 0, 0);
			VIA(4, give(held, 0));
			break;
		}
		case 'd':
			held = writes(role);
			if (downgrades(role, held))
				stops_reading(role, gate_of_mine());
			break;
		default:
			held = writes(role);
			know(held, 0);
			ask_do(Q_LEAVE, 0, 0, 0);
			VIA(5, give(held, 0));
		}
	}
	play_known = (struct known){ 0 };
	ask_do(Q_END, 0, 0, 0);
}

/* --- The daemon. play_known.rest: 1: another node waits for the lease --- */

static void flags(uint64_t rest)
{
	play_known = (struct known){ .rest = rest, .fn = play_known.fn, .where = play_known.where };
}

static void served(void)
{
	uint64_t rest = play_known.rest, w, n;

	play_known.fn = 7;
	w = LOCK_LOAD(&slot.word);
	flags(rest);
	if (!lock_is_free(w) || (w & LOCK_L))
		return;
	ask_do(Q_ADD, GATE_GRANT, 0, GATE);
	n = ask_do(Q_RANGE, 0, 0, 0).value;      /* the bias with it: the word is closed */
	play_known.word = n;
	lock_grant(&slot.word, n);
	flags(rest);
}

static bool inside_now(void)
{
	uint64_t rest = play_known.rest, gate = READ_LOAD(&slot.gate);

	play_known.word = gate;
	bool there = readers_inside(nowhere, &slot, cell_of(SLOT, gate), THREADS + 1, NULL);

	flags(rest);
	return there && scenario->slip != SLIP_CLOSE;
}

static bool drained(void)
{
	uint64_t rest = play_known.rest;

	play_known.fn = 3;
	if (!inside_now())
		return true;
	READ_OR(&slot.drain, DRAIN_DAEMON);
	ask_do(Q_BARRIER, 0, 0, 0);
	flags(rest);
	play_known.fn = 4;
	return !inside_now();
}

static void upgrader_looks(void)
{
	uint64_t rest = play_known.rest;

	play_known.fn = 9;
	if (READ_LOAD(&slot.gate) & GATE_UPGRADER)
		LOCK_WAKE(&slot.word, INT_MAX, LOCK_CLASS_ANY);
	flags(rest);
}

/* What another node waits for goes there, and soon comes back. */
static void yields(void)
{
	uint64_t was, seen;

	for (;;) {
		play_known.fn = 1;
		if (lock_close(&slot.word, 0, &was))
			break;
		play_known.fn = 6;
		if (!lock_yield(&slot.word))
			continue;
		play_known.fn = 2;
		seen = LOCK_LOAD(&slot.word);
		flags(1 | seen << 1);            /* its top bit is L, and is known */
		bool free = lock_is_free(seen) && drained();

		play_known.fn = 5;
		seen = play_known.rest >> 1 | LOCK_L;
		if (free && lock_close(&slot.word, seen, &was))
			break;
		flags(1);
		upgrader_looks();
		return;
	}
	flags(0);
	play_known.where += 32;
	served();
	play_known.where -= 32;
}

static void lapses(void)
{
	uint64_t rest = play_known.rest, gate;

	play_known.fn = 10;
	ask_do(Q_LAPSE, 0, 0, 0);
	lock_lapse(&slot.word);
	flags(rest & 0);
	gate = READ_LOAD(&slot.gate);
	play_known.word = gate;
	if (scenario->slip != SLIP_ANY_ERA)
		READ_SWAP(&slot.gate, ((gate & ~(GATE_ERA | GATE_LOW)) | ((gate + GATE_ERA_ONE) & GATE_ERA)));
	flags(0);
	READ_SWAP(&slot.readers, 0);
	if (READ_SWAP(&slot.drain, 0))
		READ_WAKE(&slot.drain);
	served();
	play_known.fn = 12;
	LOCK_WAKE(&slot.word, INT_MAX, LOCK_CLASS_ANY);
}

static void bury(unsigned role)
{
	uint64_t rest = play_known.rest, gate;

	if (scenario->slip != SLIP_NO_BURIAL) {
		READ_SWAP(cell_at(role), 0);
		read_left(&slot);
	}
	play_known.fn = 11;
	gate = READ_LOAD(&slot.gate);
	do {
		play_known.word = gate;
		if ((gate & GATE_UPGRADER) != owner_of(role))
			break;
	} while (!LOCK_CAS(&slot.gate, &gate, gate & ~GATE_LOW, __ATOMIC_SEQ_CST));
	play_known.word = 0;
	READ_AND(&slot.drain, ~(uint64_t)DRAIN_ASIDE);
	READ_WAKE(&slot.drain);
	lock_died(&slot.word, (uint32_t)owner_of(role));
	flags(rest);
	play_known.where += 16;
	if (rest & 1)
		yields();
	play_known.where += 16;
	served();
}

static void serve(unsigned role, unsigned unused)
{
	(void)role, (void)unused;
	for (;;) {
		play_known = (struct known){ .rest = play_known.rest & 1 };
		uint64_t event = ask_do(Q_IDLE, play_known.rest & 1, 0, 0).value;

		play_known.where = 1 + (uint32_t)event;
		if (event == HEARS_YIELD) {
			flags(1);
			yields();
		} else if (event == HEARS_LAPSE) {
			lapses();
		} else if (event == HEARS_BELL) {
			if (play_known.rest & 1)
				yields();
			play_known.where += 16;
			served();
		} else {
			bury((unsigned)event - HEARS_DEATH);
		}
	}
}

/* --- The world and its judge --- */

struct world {
	uint64_t place[PLACES];
	uint64_t last, written;          /* the highest number of all, and of writers */
	uint64_t range;                  /* tokens given out */
	uint32_t who[ROLES];
	uint8_t asleep[THREADS];         /* 1: on the word, 2: on drain */
	uint8_t class[THREADS];
	uint8_t empties;                 /* bit of a thread whose emptied cell has not been seen yet */
	uint8_t alone, together;         /* who is inside */
	uint8_t lost;                    /* ... or was, when it was taken away */
	uint8_t bell, lapsing, grants, yields, lapses, dead, death;
	uint8_t unused[6];
};

static const char *wrong;

static void answer(struct world *w, unsigned role, uint64_t value, bool yes);

static void judge_enter(struct world *w, unsigned role, const struct ask *a)
{
	uint8_t me = (uint8_t)(1 << role);
	bool alone = !a->c, owns = a->a;
	uint64_t number = a->b;

	if (w->lapsing || (owns && ((w->place[WORD] ^ a->a) & LOCK_IDENTITY)) || (!alone && a->c != era_of(w->place[GATE]))) {
		w->lost |= me;           /* taken away before it got here */
		return;
	}
	w->alone &= (uint8_t)~me;
	w->together &= (uint8_t)~me;
	if (alone ? w->alone | w->together : w->alone)
		wrong = alone ? "a writer is not alone" : "a reader is beside a writer";
	if (alone ? number <= w->last : number <= w->written)
		wrong = alone ? "a writer's number is not above all" : "a reader's number is not above a writer's";
	if (number > w->range)
		wrong = "a number that was not given out";
	if (number > w->last)
		w->last = number;
	if (alone)
		w->written = number;
	*(alone ? &w->alone : &w->together) |= me;
}

static void now(struct world *w, unsigned role)
{
	for (const struct ask *a = play_ask(w->who[role]); a->kind == Q_ENTER || a->kind == Q_LEAVE || a->kind == Q_LAPSE;
	     a = play_ask(w->who[role])) {
		uint8_t me = (uint8_t)(1 << role);

		if (a->kind == Q_ENTER) {
			judge_enter(w, role, a);
		} else if (a->kind == Q_LEAVE) {
			if (a->a == 1 && (w->lost & me) && !w->lapsing)
				wrong = "a lost hold is said to be good";
			if (a->a == 2 && !(w->lost & me))
				wrong = "a good hold is said to be lost";
			w->alone &= (uint8_t)~me;
			w->together &= (uint8_t)~me;
			w->lost &= (uint8_t)~me;
		} else {
			w->lost |= w->alone | w->together;
			w->alone = w->together = 0;
			w->lapsing = 1;
		}
		w->who[role] = play_answer(w->who[role], (struct answer){ 0, false });
	}
}

static void answer(struct world *w, unsigned role, uint64_t value, bool yes)
{
	w->who[role] = play_answer(w->who[role], (struct answer){ value, yes });
	now(w, role);
}

static void land(struct world *w, unsigned role)
{
	if (role < THREADS && (w->empties >> role & 1)) {
		w->place[CELLS + role] = 0;
		w->empties &= (uint8_t)~(1 << role);
	}
}

/* Wakes all of them, or the given one. */
static unsigned wake(struct world *w, unsigned of, unsigned class, unsigned only)
{
	unsigned n = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		if (w->asleep[i] != of || (of == 1 && !(w->class[i] & class)) || (only < THREADS && i != only))
			continue;
		w->asleep[i] = w->class[i] = 0;
		n++;
		answer(w, i, 0, true);
	}
	return n;
}

static void do_rmw(struct world *w, unsigned role, const struct ask *a)
{
	uint64_t *p = &w->place[a->c], was = *p;

	if (a->kind == Q_SWAP && a->c >= CELLS && a->a && scenario->slip == SLIP_NO_FENCE) {
		/* the store waits: others see it empty until it lands, which is when this thread next meets a barrier */
		answer(w, role, was, false);
		return;
	}
	if (a->kind == Q_SWAP)
		*p = a->a;
	else if (a->kind == Q_OR)
		*p |= a->a;
	else if (a->kind == Q_AND)
		*p &= a->a;
	else
		*p += a->a;
	if (a->c == DRAIN)
		*p &= UINT32_MAX;
	answer(w, role, was, false);
}

/* The one step that its question is; false: it has to wait. A wake of one has as many outcomes as there are sleepers: only. */
static bool act(struct world *w, unsigned role, unsigned only)
{
	const struct ask a = *play_ask(w->who[role]);

	switch (a.kind) {
	case Q_LOAD:
		answer(w, role, w->place[a.c], false);
		return true;
	case Q_CAS: {
		uint64_t was = w->place[a.c];

		land(w, role);
		if (was == a.a)
			w->place[a.c] = a.b;
		answer(w, role, was == a.a ? 0 : was, was == a.a);
		return true;
	}
	case Q_SWAP: case Q_OR: case Q_AND: case Q_ADD:
		land(w, role);
		do_rmw(w, role, &a);
		return true;
	case Q_EMPTY:
		w->empties |= (uint8_t)(1 << role);
		answer(w, role, 0, false);
		return true;
	case Q_BARRIER:
		for (unsigned i = 0; i < THREADS; i++)
			land(w, i);
		answer(w, role, 0, false);
		return true;
	case Q_WAKE: {
		unsigned n = wake(w, 1, (unsigned)a.b, a.a == INT_MAX ? THREADS : only);

		answer(w, role, n, false);
		return true;
	}
	case Q_WAKE_DRAIN:
		wake(w, 2, 0, THREADS);
		answer(w, role, 0, false);
		return true;
	case Q_SLEEP: case Q_SLEEP_DRAIN: {
		unsigned place = a.kind == Q_SLEEP ? WORD : DRAIN;

		if (w->asleep[role])
			return false;
		land(w, role);
		if ((uint32_t)w->place[place] != (uint32_t)a.a) {
			answer(w, role, 0, false);
			return true;
		}
		w->asleep[role] = a.kind == Q_SLEEP ? 1 : 2;
		w->class[role] = a.kind == Q_SLEEP ? (uint8_t)a.b : 0;
		return true;
	}
	case Q_RING:
		w->bell = 1;
		answer(w, role, 0, false);
		return true;
	case Q_RANGE: {
		unsigned n = scenario->short_range && !w->grants ? 3 : 60 - 20 * (w->grants < 2 ? w->grants : 2);

		w->grants++;
		w->lapsing = 0;
		w->place[BIAS] = w->range - ((UINT64_C(1) << LOCK_COUNT_BITS) - n);
		w->range += n;
		answer(w, role, n, false);
		return true;
	}
	default:
		return false;
	}
}

struct step {
	struct world to;
	unsigned role;
	const char *what;
};

static struct step *step_add(struct step *v, unsigned *n, const struct world *w, unsigned role, const char *what)
{
	struct step *s = &v[(*n)++];

	assert(*n <= STEPS_MAX);
	s->to = *w;
	s->role = role;
	s->what = what;
	return s;
}

static void plain_steps(const struct world *w, unsigned role, struct step *v, unsigned *n)
{
	const struct ask *a = play_ask(w->who[role]);
	bool any = false;

	if (a->kind == Q_GUESS) {
		answer(&step_add(v, n, w, role, "no")->to, role, 0, false);
		answer(&step_add(v, n, w, role, "yes")->to, role, 0, true);
		return;
	}
	if (a->kind == Q_WAKE && a->a != INT_MAX) {
		for (unsigned i = 0; i < THREADS; i++) {
			if (w->asleep[i] != 1 || !(w->class[i] & a->b))
				continue;
			any = true;
			act(&step_add(v, n, w, role, NULL)->to, role, i);
		}
		if (any)
			return;
	}
	if (!act(&step_add(v, n, w, role, NULL)->to, role, THREADS))
		(*n)--;
}

static void daemon_steps(const struct world *w, struct step *v, unsigned *n)
{
	struct step *s;

	if (play_ask(w->who[DAEMON_ROLE])->kind != Q_IDLE) {
		plain_steps(w, DAEMON_ROLE, v, n);
		return;
	}
	if (w->bell) {
		s = step_add(v, n, w, DAEMON_ROLE, "hears the bell");
		s->to.bell = 0;
		answer(&s->to, DAEMON_ROLE, HEARS_BELL, false);
	}
	for (unsigned i = 0; i < THREADS; i++)
		if (w->death >> i & 1) {
			s = step_add(v, n, w, DAEMON_ROLE, "hears of a death");
			s->to.death = 0;
			answer(&s->to, DAEMON_ROLE, HEARS_DEATH + i, false);
		}
}

static bool moves(const struct world *w, unsigned role)
{
	return !(w->dead >> role & 1);
}

static unsigned steps_of(const struct world *w, struct step *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		if (!moves(w, i))
			continue;
		plain_steps(w, i, v, &n);
		if (w->empties >> i & 1)
			land(&step_add(v, &n, w, i, "its store lands")->to, i);
	}
	daemon_steps(w, v, &n);
	return n;
}

/* What need not happen. */
static void chance_steps(const struct world *w, struct step *v, unsigned *n)
{
	bool idle = play_ask(w->who[DAEMON_ROLE])->kind == Q_IDLE;
	struct step *s;

	if (idle && w->yields < scenario->yields) {
		s = step_add(v, n, w, DAEMON_ROLE, "another node wants it");
		s->to.yields++;
		answer(&s->to, DAEMON_ROLE, HEARS_YIELD, false);
	}
	if (idle && w->lapses < scenario->lapses) {
		s = step_add(v, n, w, DAEMON_ROLE, "the session ends");
		s->to.lapses++;
		answer(&s->to, DAEMON_ROLE, HEARS_LAPSE, false);
	}
	for (unsigned i = 0; i < scenario->victims && !w->dead; i++) {
		if (play_ask(w->who[i])->kind == Q_END)
			continue;
		s = step_add(v, n, w, i, "is killed");
		land(&s->to, i);
		s->to.dead = s->to.death = (uint8_t)(1 << i);
		s->to.asleep[i] = s->to.class[i] = 0;
		s->to.alone &= (uint8_t)~(1 << i);
		s->to.together &= (uint8_t)~(1 << i);
		s->to.lost &= (uint8_t)~(1 << i);
		s->to.who[i] = play_start(i, 1, thread);
	}
}

static bool good_end(const struct world *w)
{
	for (unsigned i = 0; i < THREADS; i++)
		if (moves(w, i) && play_ask(w->who[i])->kind != Q_END)
			return false;
	return true;
}

/* --- Walking --- */

#include "walk.h"

static void tell_way(uint32_t to)
{
	static const char *const names[] = { "load", "cas", "swap", "or", "and", "add", "empty", "barrier", "wake", "wake drain", "sleep",
					     "sleep drain", "ring", "guess", "range", "enter", "leave", "lapse", "idle", "gone", "end" };
	uint32_t way[512], n = 0;

	for (uint32_t i = to; i != UINT32_MAX && n < 512; i = parent[i])
		way[n++] = i;
	while (n-- > 1) {
		struct step v[STEPS_MAX];
		unsigned k, m = steps_of(&worlds[way[n]], v);

		chance_steps(&worlds[way[n]], v, &m);
		for (k = 0; k < m && memcmp(&v[k].to, &worlds[way[n - 1]], sizeof v[k].to); k++)
			;
		if (k == m)
			continue;
		const struct ask *a = play_ask(worlds[way[n]].who[v[k].role]);
		const struct world *t = &worlds[way[n - 1]];

		printf("# %c %-14s place %u %llx %llx: word %llx gate %llx marks %llx drain %llx cells %llx %llx %llx inside %x %x asleep %u%u%u\n",
		       "123D"[v[k].role], v[k].what ? v[k].what : names[a->kind], a->c, (unsigned long long)a->a, (unsigned long long)a->b,
		       (unsigned long long)t->place[WORD], (unsigned long long)t->place[GATE], (unsigned long long)t->place[MARKS],
		       (unsigned long long)t->place[DRAIN], (unsigned long long)t->place[CELLS], (unsigned long long)t->place[CELLS + 1],
		       (unsigned long long)t->place[CELLS + 2], t->alone, t->together, t->asleep[0], t->asleep[1], t->asleep[2]);
	}
}

static const char *explore(const struct scenario *s, bool tell)
{
	struct world begin;
	uint32_t bad = UINT32_MAX;

	scenario = s;
	wrong = NULL;
	n_worlds = n_edges = cap_worlds = 0;
	play_reset();
	memset(&begin, 0, sizeof begin);
	begin.grants = 1;
	begin.range = s->short_range ? 3 : 60;
	begin.place[WORD] = lock_range_word(begin.range);
	begin.place[BIAS] = begin.range - (UINT64_C(1) << LOCK_COUNT_BITS);
	begin.place[BIAS] = 0 - ((UINT64_C(1) << LOCK_COUNT_BITS) - begin.range);
	for (unsigned i = 0; i < THREADS; i++)
		begin.who[i] = play_start(i, 0, thread);
	begin.who[DAEMON_ROLE] = play_start(DAEMON_ROLE, 0, serve);
	number_of(&begin, UINT32_MAX);
	good = NULL;
	for (uint32_t i = 0; i < n_worlds && !wrong; i++) {
		struct step v[STEPS_MAX];
		struct world w = worlds[i];
		unsigned n = steps_of(&w, v);

		good = i & (i - 1) ? good : grown(good, i ? 2 * (size_t)i : 1);
		good[i] = !n;
		if (!n && !good_end(&w))
			wrong = "somebody waits for ever";
		chance_steps(&w, v, &n);
		if (wrong)
			bad = i;
		for (unsigned k = 0; k < n && !(wrong && bad == UINT32_MAX); k++)
			edge_add(i, number_of(&v[k].to, i));
		if (wrong && bad == UINT32_MAX)
			bad = n_worlds - 1;
		if (n_worlds > 12000000)
			wrong = "no more room";
	}
	if (!wrong && !all_end(&bad))
		wrong = "they go round in a circle";
	if (wrong && tell && bad != UINT32_MAX)
		tell_way(bad);
	free(good);
	return wrong;
}

#define PLAY(text, one, two, three, ...) { .title = text, .script = { one, two, three }, __VA_ARGS__ }

static const struct scenario scenarios[] = {
	PLAY("a reader and a writer", "rr", "w", "", .yields = 0),
	PLAY("two readers and a writer", "r", "r", "w", .yields = 0),
	PLAY("a reader and two writers", "r", "w", "w", .drops = true),
	PLAY("another node wants it", "rr", "w", "", .yields = 1),
	PLAY("the session ends", "r", "rw", "", .lapses = 1),
	PLAY("a range ends", "rr", "ww", "", .short_range = true),
	PLAY("one upgrades", "u", "r", "", .yields = 0),
	PLAY("one upgrades before a writer", "u", "w", "", .yields = 0),
	PLAY("two upgrade", "u", "u", "", .yields = 0),
	PLAY("one upgrades while another node wants it", "u", "r", "", .yields = 1),
	PLAY("one downgrades", "d", "r", "w", .yields = 0),
	PLAY("one of two is killed", "r", "w", "", .victims = 2),
	PLAY("one who upgrades is killed", "u", "w", "", .victims = 1),
};

static const struct scenario broken[] = {
	PLAY("a reader looks at the word before its cell can be seen", "rr", "w", "", .slip = SLIP_NO_FENCE),
	PLAY("who sleeps has no barrier for all", "r", "rr", "w", .slip = SLIP_NO_BARRIER),
	PLAY("a writer does not look at cells", "rr", "w", "", .slip = SLIP_NO_SCAN),
	PLAY("who sleeps does not say so", "r", "w", "", .slip = SLIP_NO_FLAG),
	PLAY("who leaves wakes nobody", "r", "w", "", .slip = SLIP_NO_WAKE),
	PLAY("nobody stands aside", "u", "w", "", .slip = SLIP_STAY),
	PLAY("a reader does not mark its line", "rr", "w", "", .slip = SLIP_NO_MARK),
	PLAY("the daemon closes the word under readers", "r", "w", "", .yields = 1, .slip = SLIP_CLOSE),
	PLAY("the era stays", "rr", "w", "", .lapses = 1, .slip = SLIP_ANY_ERA),
	PLAY("the cells of the dead stay", "r", "w", "", .victims = 1, .slip = SLIP_NO_BURIAL),
};

int main(int argc, char **argv)
{
	unsigned only = argc > 1 ? (unsigned)atoi(argv[1]) : 0, number = 0, failed = 0;
	const size_t n = sizeof scenarios / sizeof *scenarios, m = sizeof broken / sizeof *broken;

	for (size_t i = 0; i < n + m; i++) {
		const struct scenario *s = i < n ? &scenarios[i] : &broken[i - n];
		const char *r;
		bool fine;

		if (only && only != ++number)
			continue;
		r = explore(s, only || i < n);
		fine = !r == (i < n);
		failed += !fine;
		printf("%sok %zu - %s%s (%s%s%u worlds)\n", fine ? "" : "not ", i + 1, i < n ? "" : "found out: ", s->title, r ? r : "", r ? ", " : "",
		       n_worlds);
		fflush(stdout);
	}
	printf("1..%zu\n", only ? 1 : n + m);
	return failed != 0;
}
