/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A slow cable: frames between two interfaces arrive late, in order, in both directions. Instead of the kernel's netem,
 * which not every machine has.
 */
#ifndef CLUSTER_PUMP_H
#define CLUSTER_PUMP_H

/*
 * Does nothing else, for ever, in the network it is called in: what comes in at `a` goes out at `b` after `ms`, give or take
 * `jitter_ms`, and so the other way. Ends the process when an interface is gone.
 */
__attribute__((noreturn)) void pump_run(const char *a, const char *b, unsigned ms, unsigned jitter_ms);

/* Frames leave that interface whole and with their sums: what a pump passes on must be as it was on a real cable. */
void pump_prepare(const char *interface);

#endif
