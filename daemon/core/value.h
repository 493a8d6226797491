/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What names carry: up to CORE_VALUE_MAX bytes, with the version that they were published as: token of the
 * writer, and a count of what was published under it. So of two that somebody knows the one with the
 * higher version is the later one (S9).
 *
 * A value never changes. Whoever keeps one counts as a reference: member and master of one node keep the
 * same, and a message between them passes it by its handle. So only what comes in from outside, in an
 * event or a frame, needs memory. They lie in classes of sizes; a name without a value has none of this.
 *
 * What is given up stays readable until the next step begins: messages and actions point into it.
 */
#ifndef DLOCK_CORE_VALUE_H
#define DLOCK_CORE_VALUE_H

#include "core.h"
#include "pool.h"

#define VALUE_CLASSES 7

struct value {
	uint64_t token;
	uint32_t count;
	uint16_t len;
	uint8_t refs, unused;
	uint8_t bytes[];
};

struct values {
	struct pool pool[VALUE_CLASSES];
	uint32_t given_up;               /* chained by `token` */
};

void values_init(struct values *t, const struct core_memory *mem);
void values_done(struct values *t);

/* A step begins. */
void values_collect(struct values *t);

/* Copies it, KNOWN; the caller has the reference. -ENOMEM */
int value_make(struct values *t, const struct core_value *v, uint32_t *ret);
struct value *value_at(const struct values *t, uint32_t handle);

static inline uint32_t value_keep(const struct values *t, uint32_t handle)
{
	if (handle)
		value_at(t, handle)->refs++;
	return handle;
}

/* Gives the reference back. 0 is nobody's. */
void value_drop(struct values *t, uint32_t handle);

/* handle 0: none */
struct core_value value_describe(const struct values *t, uint32_t handle);

/* Whether the one is later than the other; anything is later than nothing. */
bool value_later(const struct values *t, uint32_t one, uint32_t other);

#endif
