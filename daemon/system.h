/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What systemd says of the whole machine: that it is about to sleep, or going down. Without it, or without its bus,
 * nothing is ever said.
 *
 * Sleep: while logind has our inhibitor (of the kind "delay") it tells us first, and waits until we have let go of
 * it, five seconds at most. fn(arg, true): a suspend is announced from now on; fn(arg, false): it comes now, or will
 * not be announced any more. After fn(arg, false) has returned the machine may sleep.
 */
#ifndef DLOCK_SYSTEM_H
#define DLOCK_SYSTEM_H

#include <stdbool.h>

struct loop;
struct system;

/* Never waits. NULL in *ret where there is nothing to watch. */
void system_watch(struct loop *loop, void (*fn)(void *arg, bool announced), void *arg, struct system **ret);
void system_done(struct system *s);      /* takes NULL */

/* Is the whole machine being shut down? Waits for the answer, SYSTEM_WAIT_MS at most. */
#define SYSTEM_WAIT_MS 300
bool system_goes_down(void);

#endif
