/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What lies in the store for good: latches, free semaphores, values, whether anybody has them open or not. */
#ifndef DLOCK_CMD_STORED_H
#define DLOCK_CMD_STORED_H

#include <stdbool.h>

struct json_object;

extern const char *const stored_kinds[];         /* as ListStored calls them; NULL after the last */

/* fn is called with each one of the space, to which name and state have been added. Exit codes, as client_ask(). */
int stored_each(const char *space, const char *kind, void (*fn)(void *arg, struct json_object *stored), void *arg);

/* full: SPACE/NAME or NAME. kind NULL: the first there is. *ret NULL: there is none. */
int stored_find(const char *full, const char *kind, struct json_object **ret);

#endif
