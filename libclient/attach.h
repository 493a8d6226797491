/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whoever talks to the daemon, or changes what the process has open, does it alone.
 *
 * Its holder may wait for the daemon, so everyone takes the lock with a limit, and a fork does not wait for it.
 */
#ifndef DLOCK_LIB_ATTACH_H
#define DLOCK_LIB_ATTACH_H

#include <stdbool.h>

#include "limit.h"

/* Also keeps pthread_cancel() away, and errno as it was. -ETIMEDOUT, -ECANCELED. */
int attach_lock(const struct limit *limit);
void attach_unlock(void);
bool attach_wanted(void);                /* somebody waits for it */
void attach_child(void);                 /* after a fork: nobody has it */

#endif
