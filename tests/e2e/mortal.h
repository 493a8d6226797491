/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a test does to a daemon that has to survive it: it dies at one of its stores (daemon/fault.h), and a sound one follows; somebody
 * scribbles over the pages that names carry.
 */
#ifndef E2E_MORTAL_H
#define E2E_MORTAL_H

#include <stdbool.h>

#include "harness.h"

extern struct mortal {
	unsigned deaths;                 /* since the last mortal_start() */
	uint64_t ready_ns;               /* when the present daemon was */
} mortal;

/* In the place of *d, which is ended first by that signal: one that dies at that store. Whoever dies is followed up while a result is waited for. */
void mortal_start(struct daemon *d, int signo, long at);
void mortal_over(void);                  /* nobody is followed up any more */

/*
 * Plays with deaths at the first store, and at others from there on: each `stride`, more rarely once span_ns has passed, until no daemon
 * dies any more. play() calls mortal_start(at).
 */
struct mortal_walk {
	long at, places, wrong;
};
struct mortal_walk mortal_walk(long stride, uint64_t span_ns, bool (*play)(long at));

/* So many words of each page of the default space's get other contents. How many pages that were. */
int pages_scribble(unsigned words);

#endif
