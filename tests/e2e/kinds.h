/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What can be held, as one table: the stories of kinds.c are told once, and run for each row.
 *
 * A row has two roles. The holder has the thing so that nobody else can have what the other, who wants it, asks for;
 * and once the holder has given it back, or has ended, the other one gets it.
 */
#ifndef E2E_KINDS_H
#define E2E_KINDS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct role {
	int (*take)(void *h);
	int (*timed)(void *h, const struct timespec *abs);       /* the same until that of CLOCK_MONOTONIC */
	int (*try)(void *h);
	int (*give)(void *h);
	int (*check)(void *h);           /* 0 while it is held */
	int (*token)(void *h, uint64_t *ret);
};

struct kind {
	const char *name;                /* for people */
	const char *word;                /* part of the names of things */
	int (*open)(void **ret, const char *name);
	int (*close)(void *h);
	int busy;                        /* what try says while another holds */
	bool of_thread;                  /* the end of the thread that took it gives it back */
	struct role holds, wants;
	bool rides;                      /* its token is that of the node's grant: not lower, but perhaps the same */
	unsigned delay_ms;               /* for so long nobody has it after the end of a process that held it */
	int (*fd)(void *h, int *ret);    /* that hints at a loss; NULL: there is none */
	int (*cancel)(void *h);          /* those who wait through the handle; NULL: there is no such thing */
};

extern const struct kind kinds[];
extern const unsigned kinds_count;
extern int kinds_onloss;                 /* the signal that whoever opens something from here on asks for; 0: none */

#endif
