/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a lock has to protect, in memory that all processes share: one at a time inside, under tokens
 * that rise, and after a death inside the next one is told. Whoever finds it otherwise writes it down.
 */
#ifndef E2E_GUARD_H
#define E2E_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dlock.h"

struct guard {
	int32_t inside;                  /* pid; 0: nobody */
	uint64_t token;                  /* of the last who was inside */
	uint64_t passes, deaths;
	uint64_t violations;
	char what[160];                  /* the first of them */
};

/* The process can run no instruction any more. */
bool process_is_past(pid_t pid);

/* Called with the lock held, by a wait that returned r; robust: of the handle. */
void guard_enter(struct guard *g, dlock_t *l, int r, bool robust);
void guard_leave(struct guard *g);

/* Wait, enter, leave, post. What wait or post says, if that is an error. */
int guard_pass(struct guard *g, dlock_t *l, bool robust);

#endif
