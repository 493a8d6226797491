/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that is led through a call instruction by instruction (ptrace), and left, ended or stopped
 * after any of them.
 */
#ifndef E2E_STEP_H
#define E2E_STEP_H

#include <stdbool.h>
#include <sys/types.h>

struct stepper {
	void (*prepare)(void);           /* in the process: what comes before the first counted instruction */
	void (*target)(void);            /* what is stepped through; may call step_mark() */
	void (*blocked)(void);           /* in the test, when a step sleeps for the first time; may be NULL */
};

struct step {
	pid_t pid;
	long at;                         /* instructions that are done */
	bool ended;                      /* target has returned */
	bool blocked;                    /* asleep within instruction at + 1 */
	bool last_blocked;               /* the last instruction slept, and is done */
	int mark;                        /* as the process has set it */
	const struct stepper *how;
	void (*still)(void);             /* in the test, again and again while a step sleeps after that; may be NULL */
	bool told;                       /* blocked() has been called */
};

void step_mark(int mark);                /* in the process */

/* Stopped before the first instruction of target. */
void step_begin(struct step *s, const struct stepper *how);

/* The same, but that it runs by itself until step_attach(), which may find it asleep. */
void step_begin_free(struct step *s, const struct stepper *how);
void step_attach(struct step *s);

/*
 * Until n instructions are done, or target has returned. within: one further, if that sleeps; and
 * then the process is left asleep.
 */
void step_to(struct step *s, long n, bool within);

/* Until it has slept once, and been woken by what blocked() did. */
void step_past_sleep(struct step *s);
void step_kill(struct step *s);
void step_detach_stopped(struct step *s);        /* goes on in the stopped state, without a tracer: SIGCONT continues it */
bool step_comes_through(struct step *s, unsigned ms);    /* target returns within that time, without a tracer */
void step_detach(struct step *s, int signo);     /* goes on without a tracer, with that signal; 0: none. step_kill() ends it as ever */

#endif
