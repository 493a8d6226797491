/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The names that this node knows, each once: member and master hang their records on it.
 *
 * A name lives while either of them has a record. The table is a linear hash (Litwin 1980): it
 * grows and shrinks by a bucket at a time, so no step pays for all names at once, and it needs
 * four bytes a name. If there is no memory for the next bucket the chains get longer, nothing else.
 */
#ifndef DLOCK_CORE_NAMES_H
#define DLOCK_CORE_NAMES_H

#include "core.h"
#include "pool.h"

typedef uint32_t name_t;         /* size class above, handle in that class's pool below; 0: none */

struct name {
	name_t next;                     /* in the bucket */
	uint32_t record;                 /* the master's, a handle of its pool; 0: none */
	core_ref_t ref;                  /* the member's record, or CORE_REF_NONE */
	uint16_t len;
	uint8_t shard;
	char key[];
};

#define NAMES_CLASSES 23

struct names {
	const struct core_memory *mem;
	uint32_t **segment;
	uint32_t segments_max;
	uint32_t buckets;
	uint32_t count;
	struct pool pool[NAMES_CLASSES];
};

int names_init(struct names *t, const struct core_memory *mem);
void names_done(struct names *t);

name_t names_find(const struct names *t, const void *key, size_t len);

/* Finds or makes it. A new one has neither record yet: give it one, or names_drop() it. -ENOMEM */
int names_make(struct names *t, const void *key, size_t len, name_t *ret);
struct name *names_at(const struct names *t, name_t n);

/* Forgets the name if no record hangs on it any more. */
void names_drop(struct names *t, name_t n);

#endif
