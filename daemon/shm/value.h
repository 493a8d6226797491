/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* value.h as the daemon uses it: with a place for faults around every store. */
#ifndef DLOCK_SHM_VALUE_H
#define DLOCK_SHM_VALUE_H

#include "../fault.h"

#define VALUE_STEP() fault_point()

#include "../../include/proto/value.h"

/* What was left behind in a name, or who leads an election. */
struct shm_value {
	enum value_state state;
	uint32_t count, len;
	uint64_t token;
	const void *bytes;
};

#endif
