/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The parties and the daemon, as libclient and daemon/shm go about a barrier. The functions are those of barrierword.h, compiled here
 * with each access to common memory made a question to the world.
 */
#include "barrier_players.h"
#include "play.h"

static uint64_t the_word, the_notes[NOTES], the_cells[PARTIES];        /* never read: accesses go to the world */

static unsigned place_of(const uint64_t *p)
{
	if (p == &the_word)
		return 0;
	return p >= the_cells && p < the_cells + PARTIES ? CELL + (unsigned)(p - the_cells) : 1 + (unsigned)(p - the_notes);
}

#define ask_do(kind, a, b, c) play_do((enum ask_kind)(kind), (a), (b), (c))

static inline bool op_cas(const uint64_t *p, uint64_t *old, uint64_t new, unsigned line)
{
	struct answer r = play_do_at((enum ask_kind)Q_CAS, *old, new, place_of(p), line);

	if (!r.yes)
		*old = r.value;
	return r.yes;
}

#define BARRIER_OPS
#define BARRIER_NOTES NOTES
#define BARRIER_LOAD(p) (ask_do(Q_LOAD, 0, 0, place_of(p)).value)
#define BARRIER_STORE(p, v) ((void)ask_do(Q_STORE, (v), 0, place_of(p)))
#define BARRIER_CAS(p, old, new) op_cas((p), (old), (new), __LINE__)
#define BARRIER_WAKE(p) ((void)(p), (void)ask_do(Q_WAKE, 0, 0, 0))
#include "proto/barrierword.h"

const struct scenario *scenario;
static const struct barrier_at at = { &the_word, the_notes };

/* --- Players --- */

/* What a party's functions keep between two steps is in play_known, and so told. */
#define TURN ((struct barrier_turn *)(void *)play_known.more)

static void ring(void)
{
	ask_do(Q_RING, 0, 0, 0);
}

static void told(enum barrier_verdict v, bool serial)
{
	ask_do(Q_TOLD, v, serial, 0);
}

/* 0: woken, or not asleep at all; else patience is lost. */
static bool sleeps(bool timed)
{
	bool announced = scenario->slip == SLIP_NO_W;

	if (announced)
		TURN->word = BARRIER_LOAD(&the_word);
	else
		announced = barrier_announce(&at, TURN);
	if (barrier_round(TURN->word) != TURN->round)
		return false;
	if (scenario->slip != SLIP_NO_RING && (!announced || !ask_do(Q_WATCHED, 0, 0, 0).value))
		ring();
	TURN->word = (uint32_t)TURN->word;
	return ask_do(Q_SLEEP, TURN->word, timed, 0).value == SLEPT_LATE_;
}

static void nap(void)
{
	TURN->word = 0;
	ring();
	ask_do(Q_NAP, TURN->round, 0, 0);
}

/* Is it in a round now? */
static bool comes(bool no, bool timed)
{
	enum barrier_come r;

	play_known.fn = 1;
	while ((r = barrier_come(&at, TURN, scenario->parties, no)) == BARRIER_FULL) {
		if (timed && ask_do(Q_GUESS, 0, 0, 0).yes)
			return false;
		nap();
	}
	if (r == BARRIER_WAIT)
		return true;
	told(r == BARRIER_OPENED ? BARRIER_PASSED : BARRIER_VETOED, true);
	return false;
}

static void waits(bool timed)
{
	enum barrier_verdict v;
	bool late = false;

	play_known.fn = 2;
	while (!barrier_look(&at, TURN, &v)) {
		if (!late) {
			late = sleeps(timed);
			play_known.where = (play_known.where & ~1u) | late;
			continue;
		}
		if (scenario->slip == SLIP_ANY_ROUND)
			TURN->round = barrier_round(BARRIER_LOAD(&the_word));
		enum barrier_break b = barrier_break(&at, TURN);

		if (b == BARRIER_BROKE) {
			told(BARRIER_TIMED_OUT, false);
			return;
		}
		if (b == BARRIER_NO_ROOM)
			nap();
	}
	told(v, false);
}

static void resets(void)
{
	play_known.fn = 3;
	TURN->word = BARRIER_LOAD(&the_word);
	TURN->round = barrier_round(TURN->word);
	while (barrier_break(&at, TURN) == BARRIER_NO_ROOM)
		nap();
}

void barrier_party(unsigned role, unsigned unused)
{
	const char *script = scenario->script[role];

	(void)unused;
	for (unsigned i = 0; script[i]; i++) {
		play_known = (struct known){ .where = i << 1 };
		TURN->cell = &the_cells[role];
		if (script[i] == 'r') {
			resets();
			continue;
		}
		if (comes(script[i] == 'n', script[i] == 't'))
			waits(script[i] == 't');
		play_known.where = i << 1;
		play_known.fn = 4;
		TURN->word = TURN->round = 0;
		barrier_leave(TURN);
	}
	play_known = (struct known){ 0 };
	ask_do(Q_END, 0, 0, 0);
}

static void sweep(void)
{
	if (scenario->slip == SLIP_NO_SWEEP)
		return;
	for (unsigned i = 0; i < NOTES; i++) {
		play_known.word = i << 4;
		uint64_t note = BARRIER_LOAD(&the_notes[i]);

		play_known.word = i << 4 | note << 8;
		if (!note)
			continue;
		if (scenario->slip == SLIP_DROP_FIRST)
			barrier_note_drop(&the_notes[i], note);
		for (unsigned k = 0; k < PARTIES && scenario->slip != SLIP_NO_SETTLE; k++) {
			play_known.word = k | i << 4 | note << 8;
			barrier_cell_settle(&the_cells[k], note);
		}
		if (scenario->slip != SLIP_DROP_FIRST)
			barrier_note_drop(&the_notes[i], note);
	}
	play_known.word = 0;
}

static void watch_set(bool to)
{
	ask_do(Q_WATCH, to, 0, 0);
}

/* play_known.rest: whether it watches, and the round of the last look. */
static void watch(void)
{
	if (play_known.rest & 1)
		return;
	watch_set(true);
	play_known.rest = 1 | barrier_round(BARRIER_LOAD(&the_word)) << 1;
	BARRIER_WAKE(&the_word);
}

static void look(void)
{
	uint64_t round = barrier_round(BARRIER_LOAD(&the_word));
	bool moved = round != play_known.rest >> 1;

	play_known.rest = 1 | round << 1;
	if (moved && scenario->slip != SLIP_BLIND_LOOK)
		BARRIER_WAKE(&the_word);
	play_known.word = 1;
	if (barrier_watch(&at))
		return;
	play_known.word = 2;
	watch_set(false);
	if (scenario->slip != SLIP_NO_LOOK && barrier_watch(&at))
		watch_set(true);
	else
		play_known.rest = 0;
}

static void bury(unsigned client)
{
	play_known.where = client + 1;
	TURN->cell = &the_cells[client];
	uint64_t c = BARRIER_LOAD(TURN->cell);

	TURN->round = barrier_cell_round(c);
	if (barrier_cell_state(c) == BARRIER_HERE && scenario->slip != SLIP_NO_BURIAL)
		while (barrier_break(&at, TURN) == BARRIER_NO_ROOM)
			sweep();
	BARRIER_WAKE(&the_word);
	BARRIER_STORE(TURN->cell, 0);
	play_known = (struct known){ .rest = play_known.rest, .fn = play_known.fn };
}

static void heed(void)
{
	sweep();
	if (BARRIER_LOAD(&the_word) & BARRIER_W)
		watch();
	else
		BARRIER_WAKE(&the_word);
}

static void start_again(void)
{
	if (scenario->slip == SLIP_NO_RESCAN)
		return;
	play_known.fn = 4;
	for (unsigned i = 0; i < PARTIES; i++) {
		play_known.where = i + 1;
		if (ask_do(Q_GONE, i, 0, 0).value)
			bury(i);
	}
	play_known = (struct known){ .fn = 4 };
	sweep();
	watch();
}

void barrier_daemon(unsigned role, unsigned again)
{
	(void)role;
	if (again)
		start_again();
	for (;;) {
		play_known = (struct known){ .rest = play_known.rest };
		uint64_t event = ask_do(Q_IDLE, play_known.rest & 1, 0, 0).value;

		play_known.fn = event < HEARS_DEATH ? (uint32_t)event + 1 : 3;
		if (event == HEARS_BELL)
			heed();
		else if (event == HEARS_LOOK)
			look();
		else
			bury((unsigned)event - HEARS_DEATH);
	}
}
