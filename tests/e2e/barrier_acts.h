/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What actors do with a barrier: each has one. */
#ifndef E2E_BARRIER_ACTS_H
#define E2E_BARRIER_ACTS_H

#include "actor.h"

#define NOTHING 9999                     /* in the place of what a party was told */

extern dlock_barrier_t *bar;

int bar_opened(const char *name, unsigned parties, bool patient);        /* in the place of the one before; patient: waits for a daemon */

static inline bool passed(int r)
{
	return r == 0 || r == DLOCK_SERIAL;
}

/* --- As acts: the text is the name --- */

int b_open(struct stage *s, uint64_t parties);
int b_open_patient(struct stage *s, uint64_t parties);
int b_wait(struct stage *s, uint64_t unused);
int b_timed(struct stage *s, uint64_t ms);
int b_reset(struct stage *s, uint64_t unused);

int d_enter(struct stage *s, uint64_t unused);
int d_leave(struct stage *s, uint64_t unused);
int d_leave_within(struct stage *s, uint64_t ms);

#endif
