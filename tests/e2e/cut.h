/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process is killed, or stopped, after a single instruction of its call, and two others see what comes of it. The places are taken at
 * random, as many as there is time for.
 */
#ifndef E2E_CUT_H
#define E2E_CUT_H

#include "actor.h"
#include "harness.h"
#include "step.h"

#define LONG_MS  PATIENCE_MS
#define SOON_MS  500                     /* it could sleep for a second, until it looks by itself */
#define WHILE_MS 100                     /* for what need not come */

/* The two others, one who does and one who waits; and what the scene is about. */
extern struct actor first, second;
extern char thing_name[40];
extern bool stops;                       /* in this scene it is stopped, and not killed */

enum when { KILLED = 1, STOPPED = 2 };

struct scene {
	const char *who;
	struct stepper how;
	void (*play)(struct step *s, long n);    /* up to n instructions, to cut(), and what is to be seen then */
	bool begins;                     /* play() is given what has begun */
	unsigned when;
};

/* All of them, in all ways that they say; a result each. */
void play_all(const struct scene *c, size_t n);

void crew_begin(actor_fn open, uint64_t arg);
void crew_end(void);

/* --- In play() --- */

void cut(struct step *s);                /* from here on it does nothing more */
void goes_on(struct step *s);            /* what is stopped goes on, to the end of its call */

void expect(bool good, const char *what, long a, long b);
long does(struct actor *a, actor_fn fn, uint64_t arg);
void must_do(struct actor *a, actor_fn fn, uint64_t arg, const char *what);
bool told(struct actor *a, unsigned ms, int *ret);
void waits(struct actor *a, actor_fn fn);

/* There is something: the one who waits gets it, and within SOON_MS; where it was late the place is tried again. */
void is_served(const char *what);

#endif
