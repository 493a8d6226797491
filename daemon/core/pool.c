/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A chunk is in the list of chunks with room exactly if live < per_chunk, and `free` of the pool is
 * the sum of what they lack. The given-back things of a chunk are chained by their first two bytes.
 */
#include "pool.h"

void pool_init(struct pool *p, const struct core_memory *mem, uint32_t size)
{
	core_assert(size >= sizeof(uint16_t) && size % 8 == 0 && size <= CORE_CHUNK);
	memset(p, 0, sizeof *p);
	p->mem = mem;
	p->size = size;
	p->per_chunk = CORE_CHUNK / size;
}

void pool_done(struct pool *p)
{
	for (uint32_t i = 0; i < p->chunks; i++)
		if (p->chunk[i].data)
			p->mem->free(p->mem->arg, p->chunk[i].data, CORE_CHUNK);
	if (p->chunk)
		p->mem->free(p->mem->arg, p->chunk, p->chunks_max * sizeof *p->chunk);
	memset(p, 0, sizeof *p);
}

static void room_add(struct pool *p, uint32_t i)
{
	struct pool_chunk *c = &p->chunk[i];

	c->prev = 0;
	c->next = p->room;
	if (c->next)
		p->chunk[c->next - 1].prev = i + 1;
	p->room = i + 1;
}

static void room_remove(struct pool *p, uint32_t i)
{
	struct pool_chunk *c = &p->chunk[i];

	if (c->prev)
		p->chunk[c->prev - 1].next = c->next;
	else
		p->room = c->next;
	if (c->next)
		p->chunk[c->next - 1].prev = c->prev;
}

static int directory_grow(struct pool *p)
{
	uint32_t max = p->chunks_max ? p->chunks_max * 2 : 8;
	struct pool_chunk *v = p->mem->alloc(p->mem->arg, max * sizeof *v);

	if (!v)
		return -CORE_ENOMEM;
	if (p->chunk) {
		memcpy(v, p->chunk, p->chunks * sizeof *v);
		p->mem->free(p->mem->arg, p->chunk, p->chunks_max * sizeof *v);
	}
	p->chunk = v;
	p->chunks_max = max;
	return 0;
}

static int chunk_add(struct pool *p)
{
	uint32_t i = p->hole;

	while (i < p->chunks && p->chunk[i].data)
		i++;
	p->hole = i;
	if (i == p->chunks_max) {
		int r = directory_grow(p);
		if (r < 0)
			return r;
	}

	uint8_t *data = p->mem->alloc(p->mem->arg, CORE_CHUNK);
	if (!data)
		return -CORE_ENOMEM;
	p->chunk[i] = (struct pool_chunk){ .data = data };
	if (i == p->chunks)
		p->chunks++;
	p->free += p->per_chunk;
	room_add(p, i);
	return 0;
}

static void chunk_remove(struct pool *p, uint32_t i)
{
	room_remove(p, i);
	p->mem->free(p->mem->arg, p->chunk[i].data, CORE_CHUNK);
	p->chunk[i].data = NULL;
	p->free -= p->per_chunk;
	if (i < p->hole)
		p->hole = i;
	while (p->chunks && !p->chunk[p->chunks - 1].data)
		p->chunks--;
}

int pool_reserve(struct pool *p, uint32_t n)
{
	while (p->free < n) {
		int r = chunk_add(p);
		if (r < 0)
			return r;
	}
	return 0;
}

uint32_t pool_take(struct pool *p)
{
	core_assert(p->room);
	uint32_t i = p->room - 1;
	struct pool_chunk *c = &p->chunk[i];
	uint32_t slot;

	if (c->free) {
		slot = c->free - 1u;
		memcpy(&c->free, c->data + slot * p->size, sizeof c->free);
	} else {
		slot = c->fresh++;
	}
	core_assert(slot < p->per_chunk);
	memset(c->data + slot * p->size, 0, p->size);
	if (p->spare == i + 1)
		p->spare = 0;
	if (++c->live == p->per_chunk)
		room_remove(p, i);
	p->free--;
	p->live++;
	return i * p->per_chunk + slot + 1;
}

void pool_give(struct pool *p, uint32_t handle)
{
	core_assert(pool_at(p, handle));
	uint32_t i = (handle - 1) / p->per_chunk, slot = (handle - 1) % p->per_chunk;
	struct pool_chunk *c = &p->chunk[i];

	core_assert(c->live > 0 && slot < c->fresh);
	memcpy(c->data + slot * p->size, &c->free, sizeof c->free);
	c->free = (uint16_t)(slot + 1);
	if (c->live-- == p->per_chunk)
		room_add(p, i);
	p->free++;
	p->live--;
	if (c->live)
		return;
	/* Of two empty chunks the lower stays: what is left shall not hold the directory's end. */
	if (!p->spare) {
		p->spare = i + 1;
	} else {
		uint32_t lower = p->spare - 1 < i ? p->spare - 1 : i, upper = p->spare - 1 + i - lower;
		p->spare = lower + 1;
		chunk_remove(p, upper);
	}
}

void *pool_at(const struct pool *p, uint32_t handle)
{
	uint32_t i = (handle - 1) / p->per_chunk;

	core_assert(handle && i < p->chunks && p->chunk[i].data);
	return p->chunk[i].data + (handle - 1) % p->per_chunk * p->size;
}
