/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a client does with the kinds that are not held: barriers, ids, free semaphores, latches, conditions. */
#ifndef CLUSTER_DEEDS_H
#define CLUSTER_DEEDS_H

/* Each time another one, by chance; what it needs is opened at the first time. */
void deed_do(void);

/* All is whole and everybody else has ended: takes what the free semaphore has left. */
void deed_drain(void);

#endif
