/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The parties of a barrier and the daemon as players (play.h): what they ask, and what is broken on purpose.
 */
#ifndef MODEL_BARRIER_PLAYERS_H
#define MODEL_BARRIER_PLAYERS_H

#include <stdbool.h>
#include <stdint.h>

#define PARTIES 3u
#define ROLES   (PARTIES + 1)
#define DAEMON_ROLE PARTIES
#define NOTES   1u
#define CELL    (1 + NOTES)             /* the place of the first */

/* --- What can be asked of the world; play.c does not mind what the numbers mean --- */

enum {
	Q_LOAD, Q_STORE, Q_CAS, Q_WAKE, Q_RING, Q_WATCHED, Q_WATCH, Q_SLEEP, Q_NAP, Q_GUESS, Q_IDLE, Q_GONE, Q_TOLD, Q_END,
};
enum { SLEPT_WOKEN_, SLEPT_LATE_, SLEPT_AGAIN_ };
enum { HEARS_BELL, HEARS_LOOK, HEARS_DEATH };

/* --- Scenarios --- */

enum slip {
	SLIP_NONE, SLIP_NO_NOTE, SLIP_NO_SETTLE, SLIP_DROP_FIRST, SLIP_NO_SWEEP, SLIP_NO_CELL, SLIP_NO_WAKE, SLIP_NO_W,
	SLIP_NO_RING, SLIP_NO_DEATH, SLIP_NO_BURIAL, SLIP_BLIND_LOOK, SLIP_NO_LOOK, SLIP_ANY_ROUND, SLIP_NO_RESCAN,
};
enum { FAULT_KILL = 1, FAULT_STOP = 2, FAULT_DAEMON = 4 };

/* A letter for each call: w waits, n votes no, t loses patience at any moment, r resets. */
struct scenario {
	const char *title, *script[PARTIES];
	uint8_t parties, faults, victims, looks, spurious;
	bool noted;                      /* there is no room for a note from the beginning */
	enum slip slip;
};

extern const struct scenario *scenario;

void barrier_party(unsigned role, unsigned unused);
void barrier_daemon(unsigned role, unsigned again);      /* again: it starts after a kill */

#endif
