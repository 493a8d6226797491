/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bytes on their way, in pieces of one size that are used again; and queues of them. A piece is in one place at a time: with whoever has
 * taken it, in one queue, in the pool, or with the loop that sends it.
 */
#ifndef DLOCK_NET_CHUNK_H
#define DLOCK_NET_CHUNK_H

#include <stddef.h>

struct loop_bytes;

#define CHUNK_BYTES 16128        /* in TLS, one record with what it adds */
#define CHUNK_MORE 256           /* what TLS adds to it, and more */
#define CHUNK_POOL_MAX 64        /* kept for the next who needs one */

struct chunk_pool {
	struct loop_bytes *first;
	unsigned n;
};

struct chunks {
	struct loop_bytes *first, *last;
};

struct loop_bytes *chunk_take(struct chunk_pool *p);             /* empty; NULL: no memory */
void chunk_give(struct chunk_pool *p, struct loop_bytes *b);     /* takes NULL */
void chunk_pool_done(struct chunk_pool *p);

void chunks_push(struct chunks *c, struct loop_bytes *b);        /* behind all others */
struct loop_bytes *chunks_pop(struct chunks *c);                 /* the first; NULL: none */
void chunks_give(struct chunk_pool *p, struct chunks *c);        /* all of them */

/* Whole into one chunk, of which at most `room` bytes are used. -ENOMEM */
int chunks_append(struct chunk_pool *p, struct chunks *c, const void *data, size_t n, size_t room);

#endif
