/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the records of users' things lie in the store: below a prefix for each kind, so that none can meet
 * one of the daemon's own ("beat/", "member/", "cut/", "map", "terms", "session").
 *
 *   value/SPACE/NAME     latch/SPACE/NAME     cond/SPACE/NAME     pool/SPACE/NAME     id/SPACE/NAME/0000 … /1023
 *
 * NAME has its bytes other than A-Z a-z 0-9 . _ - written as %XX. One that would be longer than THING_NAME_MAX
 * then is "%~" and 32 hexadecimal digits instead, a hash of it: no other name looks like that.
 */
#ifndef DLOCK_THINGS_KEY_H
#define DLOCK_THINGS_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "../store/store.h"

#define THING_NAME_MAX 160

#define THING_VALUES "value/"
#define THING_LATCHES "latch/"
#define THING_CONDS "cond/"
#define THING_IDS "id/"
#define THING_POOLS "pool/"

/* space and name are valid ones (proto/name.h). */
void thing_key(const char *prefix, const char *space, const char *name, size_t len, char ret[STORE_KEY_MAX + 1]);

/* What stands behind the last slash of such a key. false: it is a hash, or none of ours; ret is of no use then. */
bool thing_name(const char *text, char ret[THING_NAME_MAX + 1]);

#endif
