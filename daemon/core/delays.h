/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The record `delays`: for each shard the longest lock-delay that may have been granted in it. A master that is followed by one that
 * does not know what it granted (S9) must not take this with it.
 *
 * What must hold: no master grants a delay before the record says as much, and what it says never falls. A suspect master reads it after
 * everybody has synced or ended, when nothing more can be granted by those before it.
 *
 *   layout u32, 0 u32, then milliseconds u16 for each shard: of exclusive holds; in layout 2, which there is once somebody has asked for
 *   one, then of shares and permits
 */
#ifndef DLOCK_CORE_DELAYS_H
#define DLOCK_CORE_DELAYS_H

#include "core.h"
#include "master.h"
#include "shard.h"
#include "step.h"

#define DELAYS_KEY "delays"
#define DELAYS_BYTES(kinds) (8 + (kinds) * 2 * CORE_SHARDS)       /* the layout is the number of kinds */

struct delays {
	core_nsec_t at;                  /* the next request, where one is due: not before, after an error */
	shard_set_t asked;               /* suspect, and the request under way is for them too */
	bool writing;                    /* that is it, and this is what it writes: */
	uint16_t value[DELAY_KINDS][CORE_SHARDS];
};

struct core;

void delays_tick(struct core *c, struct step *s);

/* -EBADMSG: the record is none of this version. */
int delays_answer(struct core *c, const struct core_event *ev, struct step *s);

/* When something is due; 0: never. */
core_nsec_t delays_next(const struct core *c);

/* -EBADMSG */
int delays_decode(const void *bytes, uint32_t n, uint16_t ret[DELAY_KINDS][CORE_SHARDS]);

/* Returns how long it is. */
uint32_t delays_encode(const uint16_t delay[DELAY_KINDS][CORE_SHARDS], uint8_t ret[DELAYS_BYTES(DELAY_KINDS)]);

#endif
