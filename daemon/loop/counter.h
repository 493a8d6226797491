/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A deadline in ticks of the processor's counter, which a process reads for a third of what the clock costs.
 *
 * What must hold: a tick that is given out is never later than the moment of CLOCK_BOOTTIME that it stands
 * for. So it is only given where
 *  - the kernel itself tells time by this counter, which it does not where processors disagree about it;
 *  - the counter goes at one rate whatever the processor does, sleeping included;
 *  - the machine cannot be suspended without us being told first: the counter may stand still then, or begin anew,
 *    while CLOCK_BOOTTIME goes on.
 * and is computed from a reading of the counter before one of the clock, by the lowest rate that two
 * such readings allow, with a hundredth of the span taken off for what the clock's rate may be steered by.
 */
#ifndef DLOCK_LOOP_COUNTER_H
#define DLOCK_LOOP_COUNTER_H

#include <stdbool.h>
#include <stdint.h>

#include "../units.h"

struct counter_reading {
	uint64_t before, after;          /* the counter, around */
	nsec_t at;
};

struct counter {
	bool steady;                     /* by what the processor says of itself */
	bool can_suspend;
	bool guarded;                    /* whoever suspends tells us first */
	nsec_t slept;                    /* how far the clock is ahead of one that stands still in suspend */
	struct counter_reading last;
};

void counter_init(struct counter *c);

/* 0: none can be given now. */
uint64_t counter_deadline(struct counter *c, nsec_t deadline);

/* Suspends are announced to us from now on, or no longer: then what was given out must be taken back. */
void counter_guard(struct counter *c, bool guarded);

#endif
