/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many small things of one size, in chunks, each called by a 32 bit handle.
 *
 * A handle is the thing's index + 1; 0 is nobody. Things never move. A chunk in which nothing is
 * left goes back, but for one that is kept so that opening and closing a single name does not
 * allocate. Only pool_reserve() allocates: a caller reserves first, then cannot fail.
 */
#ifndef DLOCK_CORE_POOL_H
#define DLOCK_CORE_POOL_H

#include "base.h"
#include "core.h"

struct pool_chunk {
	uint8_t *data;                   /* NULL: not allocated */
	uint16_t live;
	uint16_t fresh;                  /* the things from here on have never been used, and their pages not touched */
	uint16_t free;                   /* first of the list of given-back things, + 1 */
	uint32_t prev, next;             /* the list of chunks with room, + 1 */
};

struct pool {
	const struct core_memory *mem;
	uint32_t size;                   /* of a thing */
	uint32_t per_chunk;
	uint32_t chunks, chunks_max;
	uint32_t hole;                   /* no chunk below this one is missing */
	uint32_t room;                   /* first of the list of chunks with room, + 1 */
	uint32_t spare;                  /* an empty chunk, + 1 */
	uint32_t live;
	uint64_t free;
	struct pool_chunk *chunk;
};

void pool_init(struct pool *p, const struct core_memory *mem, uint32_t size);
void pool_done(struct pool *p);

/* Sees to it that n things can be taken. -ENOMEM */
int pool_reserve(struct pool *p, uint32_t n);

/* The thing is filled with zeros. There must be one: reserve before. */
uint32_t pool_take(struct pool *p);
void pool_give(struct pool *p, uint32_t handle);
void *pool_at(const struct pool *p, uint32_t handle);

#endif
