/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../loop/loop.h"

struct loop_bytes *chunk_take(struct chunk_pool *p)
{
	struct loop_bytes *b = p->first;

	if (b) {
		p->first = b->next;
		p->n--;
	} else {
		b = malloc(sizeof *b + CHUNK_BYTES + CHUNK_MORE);
		if (!b)
			return NULL;
	}
	b->n = b->done = 0;
	b->room = CHUNK_BYTES + CHUNK_MORE;
	b->next = NULL;
	return b;
}

void chunk_give(struct chunk_pool *p, struct loop_bytes *b)
{
	if (!b)
		return;
	if (p->n == CHUNK_POOL_MAX) {
		free(b);
		return;
	}
	b->next = p->first;
	p->first = b;
	p->n++;
}

void chunk_pool_done(struct chunk_pool *p)
{
	struct loop_bytes *b;

	while ((b = p->first)) {
		p->first = b->next;
		free(b);
	}
	p->n = 0;
}

void chunks_push(struct chunks *c, struct loop_bytes *b)
{
	b->next = NULL;
	if (c->last)
		c->last->next = b;
	else
		c->first = b;
	c->last = b;
}

struct loop_bytes *chunks_pop(struct chunks *c)
{
	struct loop_bytes *b = c->first;

	if (b) {
		c->first = b->next;
		if (!c->first)
			c->last = NULL;
		b->next = NULL;
	}
	return b;
}

void chunks_give(struct chunk_pool *p, struct chunks *c)
{
	struct loop_bytes *b;

	while ((b = chunks_pop(c)))
		chunk_give(p, b);
}

int chunks_append(struct chunk_pool *p, struct chunks *c, const void *data, size_t n, size_t room)
{
	struct loop_bytes *b = c->last;

	if (!b || b->n + n > room) {
		b = chunk_take(p);
		if (!b)
			return -ENOMEM;
		chunks_push(c, b);
	}
	memcpy(b->data + b->n, data, n);
	b->n += (uint32_t)n;
	return 0;
}
