/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Players: the clients' threads and the daemon, as coroutines that ask the world for every step
 * they take in common memory, and go on with its answer.
 *
 * A player between two steps is its stack and its saved registers, and nothing else: a "copy". But
 * compilers leave old values in dead cells, so many copies are one and the same player. Copies are
 * therefore taken for one player if they ask the same thing at the same place and know the same
 * (play_known, which the players' code keeps up to date). That this is right is not believed but
 * tried: the copies of a player, the first play_copies_max of them or all, are given every answer
 * that one of them gets, and must end up as copies of one player again. If the code does not say all
 * that it knows, the program stops.
 *
 * Players are numbers, and what an answer makes of a number is remembered. So the code runs once for
 * each thing that can happen to it, and exploring costs look-ups.
 */
#ifndef MODEL_PLAY_H
#define MODEL_PLAY_H

#include <stdbool.h>
#include <stdint.h>

/* Asked at once when reached ("now"), or a step of its own that others may precede ("step"). */
enum ask_kind {
	ASK_LOAD,        /* step: the word */
	ASK_CAS,         /* step: a: old, b: new. Answer: yes, or no and the word */
	ASK_WAKE,        /* step: a: how many, b: class. Answer: how many were woken */
	ASK_SLEEPERS,    /* step: a: expected low half. Answer: how many sleep; one more if it differs */
	ASK_SLEEP,       /* step: a: expected low half, b: class, c: how it may end. Answer: enum slept */
	ASK_GUESS,       /* step: what the time decides. Both answers are tried */
	ASK_GET,         /* step: a: enum flag. Answer: 0 or 1 */
	ASK_SET,         /* step: a: enum flag, b: 0 or 1. Answer: what it was */
	ASK_RANGE,       /* step: the next range is written to the ledger, its bias to the slot. Answer: n */
	ASK_IDLE,        /* step: the daemon waits for an event; a: it is watching. Answer: enum event */
	ASK_LEAVE,       /* step: the critical section ends */
	ASK_GONE,        /* now: a: client. Is it dead? */
	ASK_ENTER,       /* now: a: the word as taken */
	ASK_POSTED,      /* now: a: what lock_release said */
	ASK_MENDED,      /* now: a: what lock_mend said */
	ASK_ROUND,       /* now: the round is over */
	ASK_NOTHING,     /* never answered: all rounds are over */
};

enum flag {
	FLAG_WATCH, FLAG_WANT,           /* the slot's bits, level 1 */
	FLAG_WATCHED,                    /* the slot's word that says the daemon has it on its list */
	FLAG_BELL,                       /* level 2 and the bell: one without the other calls nobody */
	FLAG_CANCEL, FLAG_CANCELLABLE,   /* in private memory of a client */
};

enum { SLEEP_DEADLINE = 1, SLEEP_FORCE = 2 };

enum slept { SLEPT_WOKEN, SLEPT_AGAIN, SLEPT_LATE, SLEPT_FORCE };

enum event { EVENT_BELL, EVENT_LOOK, EVENT_CLOSE, EVENT_STEAL, EVENT_DEATH /* + client */ };

/* Which function of lockword.h asks: for the mutants and for the telling. */
enum function {
	FN_NONE, FN_FAST, FN_TURN, FN_RELEASE, FN_LEAVE, FN_MEND, FN_LOOK, FN_DIED, FN_GRANT, FN_CLOSE, FN_YIELD, FN_CANCEL,
};

struct ask {
	uint64_t a, b;
	uint16_t c;
	uint16_t line;                   /* where it is asked: compilers make one call of two */
	uint16_t kind, fn;
};

struct answer {
	uint64_t value;
	bool yes;
};

/* How many copies of a player are tried. */
extern uint32_t play_copies_max;

/* Forgets all players. */
void play_reset(void);

/* The player at the beginning of a round; body: what it runs, ending with ASK_ROUND or ASK_NOTHING. */
uint32_t play_start(unsigned role, unsigned round, void (*body)(unsigned role, unsigned round));

/* What the player asks. The pointer is good until the next call of play_start or play_answer. */
const struct ask *play_ask(uint32_t player);
unsigned play_round(uint32_t player);

/* The player that has got this answer. */
uint32_t play_answer(uint32_t player, struct answer answer);

uint32_t play_players(void);
uint32_t play_copies(void);

/* --- For the players' code --- */

struct known {
	uint64_t word, rest;             /* local variables that are still needed */
	uint32_t fn;                     /* enum function */
	uint32_t where;                  /* way through functions that are called from several places */
	uint64_t more[3];                /* the memory of what a function keeps in a struct of its caller's */
};

extern struct known play_known;

struct answer play_do_at(enum ask_kind kind, uint64_t a, uint64_t b, unsigned c, unsigned line);
#define play_do(kind, a, b, c) play_do_at((kind), (a), (b), (c), __LINE__)

#endif
