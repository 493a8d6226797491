/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the players do. A client's script is a string with a letter for each round:
 *
 *   w  wait, post                        t  wait with a deadline, post
 *   y  trywait, post                     x  wait that may be cancelled, post
 *   r  robust wait, mend if told, post   n  robust wait, post without mending
 *   d  wait; the thread ends holding     c  cancels the waits "x" that are going on
 */
#ifndef MODEL_PLAYERS_H
#define MODEL_PLAYERS_H

#include <stdbool.h>
#include <stdint.h>

#define CLIENTS_MAX 3u
#define DAEMON CLIENTS_MAX              /* the daemon's role */
#define DAEMON_AGAIN 1u                 /* its "round" when it starts after a kill */
#define DAEMON_WATCHES 2u               /* its "round" when it has the word on its list from the beginning */

/* What is broken on purpose in the code around the word's functions. */
enum slip {
	SLIP_NONE,
	SLIP_NO_LEAVE,           /* a waiter gives up without lock_leave() */
	SLIP_NO_WATCH,           /* a sleeper does not ask to be watched */
	SLIP_NO_WANT,            /* nor for tokens */
	SLIP_RING_IF_CLEAR,      /* a sleeper rings only if it was the one to set the bit */
	SLIP_DROP_UNSEEN,        /* the daemon drops a word without another look */
	SLIP_DROP_W_ONLY,        /* its other look reads W, and wakes nobody if it is clear */
	SLIP_NO_RESCAN,          /* a restarted daemon looks at nothing */
	SLIP_NO_DEATH,           /* the daemon does not hear of deaths */
	SLIP_POST_BLINDLY,       /* a release frees the word whoever owns it */
	SLIP_WOKEN_ALWAYS,       /* a sleeper thinks that each end of a sleep was a wake */
	SLIP_WOKEN_NEVER,        /* … that none was */
};

struct players {
	const char *script[CLIENTS_MAX];
	unsigned char index[CLIENTS_MAX]; /* the client that this thread is of: 1 .. 3 */
	bool daemon;
	bool yields;                      /* what is closed goes to another node, and comes back */
	bool force;                       /* heirs and releasers may run out of patience */
	uint64_t slow_less;               /* bits that a broken fast path does not mind */
	enum slip slip;
};

extern struct players players;

void players_client(unsigned role, unsigned round);
void players_daemon(unsigned role, unsigned round);

#endif
