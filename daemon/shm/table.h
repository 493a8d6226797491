/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A table of fixed-size records in a file of the daemon's own, mapped: one part of the ledger.
 *
 * What must hold:
 *  - A record is in use when its first 32 bits are not zero. They are written last when it is made
 *    and first when it goes, so a daemon that dies in between leaves either the whole or nothing.
 *  - The file belongs to one session of one daemon: its header names the session, and the inode
 *    that it was made as. A copy, or what another session left, is -ESTALE, never read.
 *  - A chunk is allocated (fallocate) before its first record is handed out, and given back with
 *    its last (the first chunk stays): a full file system is -ENOSPC here and never a SIGBUS later.
 *
 * Indices run from 1; 0 means none.
 */
#ifndef DLOCK_TABLE_H
#define DLOCK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table {
	int fd;
	char *base;
	uint32_t record, max;            /* bytes; highest index + 1 */
	uint32_t chunk;                  /* records that are allocated together */
	uint32_t n, hint;                /* in use; no free one below */
	uint64_t *used;                  /* a bit per record, in private memory */
	uint32_t *chunk_n;               /* in use, per chunk */
	bool begun;                      /* the first chunk is allocated, and stays so */
};

struct table_spec {
	uint32_t record, max;
};

/*
 * Opens name below dirfd; fresh: makes it anew, whatever is there. -ENOENT, -ESTALE (not of this
 * session, a copy, or of another shape), or what the system said.
 */
int table_open(struct table *t, int dirfd, const char *name, const struct table_spec *spec,
	       uint64_t session, bool fresh);
void table_close(struct table *t);       /* the file stays */

/* A zeroed record that is not in use yet: the caller fills it and then calls table_commit(). */
int table_take(struct table *t, uint32_t *ret_index);
void table_commit(struct table *t, uint32_t index, uint32_t first_word);
void table_drop(struct table *t, uint32_t index);

static inline void *table_at(const struct table *t, uint32_t index)
{
	return t->base + 4096 + (size_t)index * t->record;
}

static inline bool table_in_use(const struct table *t, uint32_t index)
{
	return index && index < t->max && (t->used[index / 64] >> (index % 64) & 1);
}

/* The next index in use after this one, or 0. */
uint32_t table_next(const struct table *t, uint32_t index);

#endif
