/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef DLOCK_ATTR_H
#define DLOCK_ATTR_H

#include <stdbool.h>

#include "dlock.h"

struct dlock_attr {
	bool robust, recursive, failfast, wait_daemon;
	enum dlock_owner owner;
	unsigned try_ms;
	bool free;
	unsigned priority;
	unsigned delay_ms;
	int onloss;                      /* a signal; 0: none */
};

#define ATTR_DEFAULT { .owner = DLOCK_OWNER_THREAD, .try_ms = 1000 }

#endif
