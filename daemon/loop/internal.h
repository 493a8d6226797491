/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the loop share: the loop's own state, and what each contributes to a turn. */
#ifndef DLOCK_LOOP_INTERNAL_H
#define DLOCK_LOOP_INTERNAL_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop.h"
#include "ring.h"
#include "source.h"

/* A completion's tag is the address of its source, or one of these. */
#define TAG_IGNORED 0
#define TAG_TIMEOUT 1

struct timers {
	struct loop_timer *first; /* a pairing heap */
	uint64_t serial;          /* of the last that was set: keeps the order within a moment */
	bool running;
	nsec_t armed_at; /* the kernel's one timeout; NSEC_NEVER: none. Too early is harmless */
	struct __kernel_timespec armed; /* read when it is submitted */
};

struct signals {
	int fd; /* a signalfd; -1: none yet */
	sigset_t mask;
	struct loop_read *read;
	struct {
		void (*fn)(void *arg, int signo);
		void *arg;
	} handlers[_NSIG];
};

/* Whether others want this thread's processor (crowd.c). */
struct crowd {
	int fd;                  /* -1: that cannot be known */
	bool is;
	nsec_t next;             /* when it is looked at again */
	uint64_t waited, runs;   /* at the last look: ns, how often */
};

#define QUIET_MAX 256

/* Sends that have no completion when they succeed (send.c). */
struct quiet {
	struct source *v[QUIET_MAX];
	unsigned n;
};

#define WAKES_MAX 256

/* Futexes that are woken in the next system call (wake.c). */
struct wakes {
	uint32_t *v[WAKES_MAX];
	unsigned n;
	bool together; /* the ring knows how to */
};

struct loop {
	struct ring ring;
	struct sources sources;
	struct timers timers;
	struct loop_defer deferred; /* heads of two rings: of this turn, and of the next */
	struct loop_defer deferred_next;
	struct loop_defer late;     /* and what is to be run when what was asked for is on its way ... */
	struct loop_defer late_end; /* ... of this turn, while that goes on */
	struct signals signals;
	struct quiet quiet;
	struct wakes wakes;
	uint64_t turn;
	nsec_t now;
	nsec_t spin;
	unsigned spin_misses; /* in a row */
	const struct loop_look *look; /* NULL: none */
	struct crowd crowd;
	bool busy;            /* something happened in the last turn */
	bool running;
	bool stopping;
	int code;
};

void timers_init(struct timers *ts);
void timers_run(struct loop *l); /* those that are due */
/* false: the loop may not sleep, since one is due or the kernel takes no more now */
bool timers_arm(struct loop *l);
void timers_elapsed(struct loop *l); /* the kernel's timeout has completed */

void defers_init(struct loop *l);
void defers_run(struct loop *l);
bool defers_late(const struct loop *l);
void defers_late_run(struct loop *l);
bool defers_left(const struct loop *l); /* for the next turn */

void sends_settle(struct loop *l); /* after completions have been run */

void wakes_init(struct loop *l);
void wakes_flush(struct loop *l); /* before anything else is submitted */
void wakes_end(struct loop *l);   /* there is no next system call */

void crowd_init(struct crowd *c);
void crowd_done(struct crowd *c);
bool crowd_is(struct crowd *c, nsec_t now);

void signals_init(struct signals *s);
void signals_done(struct signals *s);

#endif
