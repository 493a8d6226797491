/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop of loop.h without io_uring and without a clock: a test turns it by hand, and says how
 * much time goes by. So what depends on time happens the same way each time, and at once.
 *
 * Descriptors are real, and asked without waiting. It differs from the real loop in one thing: a
 * watch calls in every turn in which its descriptor is ready.
 */
#ifndef DLOCK_FAKE_LOOP_H
#define DLOCK_FAKE_LOOP_H

#include "../../daemon/loop/loop.h"

/* One turn, in which no time goes by. Returns how many callbacks ran. */
unsigned fake_loop_turn(struct loop *l);

/* Turns until nothing happens. False: something still happened in the last of max turns. */
bool fake_loop_settle(struct loop *l, unsigned max);

/* Lets time go by, in which timers fire at their moments, each followed by turns until it is quiet. */
void fake_loop_advance(struct loop *l, nsec_t span);

nsec_t fake_loop_next_timer(const struct loop *l);       /* NSEC_NEVER: none is set */
unsigned fake_loop_sources(const struct loop *l);        /* that have not been stopped */

#endif
