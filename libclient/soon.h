/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef DLOCK_SOON_H
#define DLOCK_SOON_H

#include "handle.h"

bool soon_expected(void);                /* the lock that is about to be opened is going to be taken at once */
void soon_opened(const struct dlock *l);
void soon_closes(const struct dlock *l); /* before its bindings are gone */

#endif
