/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client can truncate or punch a segment that it may write. When the daemon then touches it, the
 * kernel raises SIGBUS: the handler puts a page of zeroes there, so that the daemon goes on, and
 * notes the address; after the turn the space is declared broken. A SIGBUS anywhere else kills.
 */
#ifndef DLOCK_SIGBUS_H
#define DLOCK_SIGBUS_H

#include <stdbool.h>
#include <stddef.h>

int sigbus_install(void);

/* Memory in which a SIGBUS is to be survived. At most SIGBUS_REGIONS_MAX: -ENOSPC. */
#define SIGBUS_REGIONS_MAX 1024
int sigbus_guard(void *base, size_t size);
void sigbus_unguard(void *base);

/* Was there one in this memory since the last question? One load where there was none anywhere. */
bool sigbus_hit(void *base);

#endif
