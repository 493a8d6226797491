/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The clients of a town: workers (worker.c), some on each host. Whoever dies is followed by another with another name. */
#ifndef CLUSTER_CROWD_H
#define CLUSTER_CROWD_H

#include <stdbool.h>

#define CROWD_EACH 3             /* a host's */

void crowd_begin(unsigned host, unsigned i);
void crowd_begin_all(void);
void crowd_kill(unsigned host, unsigned i);       /* the history says so, as what the nemesis does */
void crowd_freeze(unsigned host, unsigned i, bool freeze);

/* All end once they hold nothing. False: some did not within ms, and go on. */
bool crowd_end(unsigned ms);

/* When all have ended: another takes all of each thing, one after the other, and gives it back. */
bool crowd_finds_all(void);

#endif
