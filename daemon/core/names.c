/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Buckets 0 .. n-1, where 2^k <= n < 2^(k+1): a hash belongs to bucket (hash mod 2^(k+1)) if there is
 * one, else to (hash mod 2^k). So bucket n is filled from bucket n - 2^k alone, and emptied into it.
 * Hashes are not kept: a split computes them again for the few names of one bucket.
 */
#include "names.h"

#include "shard.h"
#include "siphash.h"

#define SEGMENT_BITS 10
#define SEGMENT_BUCKETS (1u << SEGMENT_BITS)
#define SEGMENT_BYTES (SEGMENT_BUCKETS * sizeof(uint32_t))
#define HANDLE_BITS 27

_Static_assert(NAMES_CLASSES <= 1 << (32 - HANDLE_BITS), "the class fits above the handle");
_Static_assert(CORE_REFS < 1u << HANDLE_BITS, "as many names of one class as there can be refs");

/* Sizes in steps of 8 bytes to 128, then of 32: short names are the many ones. */
static unsigned class_of(size_t len)
{
	size_t size = offsetof(struct name, key) + len;
	return (unsigned)(size <= 128 ? (size + 7) / 8 - 1 : 16 + (size - 129) / 32);
}

static uint32_t class_size(unsigned class)
{
	return class < 16 ? (class + 1) * 8 : 128 + (class - 15) * 32;
}

static uint32_t *bucket_at(const struct names *t, uint32_t i)
{
	return &t->segment[i >> SEGMENT_BITS][i & (SEGMENT_BUCKETS - 1)];
}

/* The largest power of two that is not above n. */
static uint32_t power_below(uint32_t n)
{
	return 1u << (31 - __builtin_clz(n));
}

static uint32_t *bucket_of(const struct names *t, const void *key, size_t len)
{
	uint64_t h = siphash13(t->mem->seed, key, len);
	uint32_t half = power_below(t->buckets);
	uint32_t i = (uint32_t)h & (2 * half - 1);

	return bucket_at(t, i < t->buckets ? i : i & (half - 1));
}

static int segment_add(struct names *t, uint32_t i)
{
	if (i == t->segments_max) {
		uint32_t max = t->segments_max ? t->segments_max * 2 : 8;
		uint32_t **v = t->mem->alloc(t->mem->arg, max * sizeof *v);

		if (!v)
			return -CORE_ENOMEM;
		memset(v, 0, max * sizeof *v);
		if (t->segment) {
			memcpy(v, t->segment, t->segments_max * sizeof *v);
			t->mem->free(t->mem->arg, t->segment, t->segments_max * sizeof *v);
		}
		t->segment = v;
		t->segments_max = max;
	}
	t->segment[i] = t->mem->alloc(t->mem->arg, SEGMENT_BYTES);
	return t->segment[i] ? 0 : -CORE_ENOMEM;
}

static void segment_remove(struct names *t, uint32_t i)
{
	t->mem->free(t->mem->arg, t->segment[i], SEGMENT_BYTES);
	t->segment[i] = NULL;
}

static void table_grow(struct names *t)
{
	uint32_t n = t->buckets, half = power_below(n);

	if (!(n & (SEGMENT_BUCKETS - 1)) && segment_add(t, n >> SEGMENT_BITS) < 0)
		return;
	*bucket_at(t, n) = 0;
	t->buckets++;

	uint32_t *from = bucket_at(t, n - half);
	name_t next, all = *from;
	*from = 0;
	for (name_t i = all; i; i = next) {
		struct name *e = names_at(t, i);
		uint32_t *to = bucket_of(t, e->key, e->len);

		next = e->next;
		e->next = *to;
		*to = i;
	}
}

static void table_shrink(struct names *t)
{
	uint32_t n = t->buckets - 1;
	uint32_t *from = bucket_at(t, n), *to = bucket_at(t, n - power_below(n));

	while (*to)
		to = &names_at(t, *to)->next;
	*to = *from;
	t->buckets = n;
	if (!(n & (SEGMENT_BUCKETS - 1)))
		segment_remove(t, n >> SEGMENT_BITS);
}

int names_init(struct names *t, const struct core_memory *mem)
{
	memset(t, 0, sizeof *t);
	t->mem = mem;
	for (unsigned i = 0; i < NAMES_CLASSES; i++)
		pool_init(&t->pool[i], mem, class_size(i));
	core_assert(class_of(CORE_KEY_MAX) < NAMES_CLASSES);

	int r = segment_add(t, 0);
	if (r < 0)
		return r;
	memset(t->segment[0], 0, SEGMENT_BYTES);
	t->buckets = SEGMENT_BUCKETS;
	return 0;
}

void names_done(struct names *t)
{
	for (uint32_t i = 0; i < t->segments_max; i++)
		if (t->segment[i])
			segment_remove(t, i);
	if (t->segment)
		t->mem->free(t->mem->arg, t->segment, t->segments_max * sizeof *t->segment);
	t->segment = NULL;
	t->segments_max = 0;
	for (unsigned i = 0; i < NAMES_CLASSES; i++)
		pool_done(&t->pool[i]);
}

struct name *names_at(const struct names *t, name_t n)
{
	core_assert(n >> HANDLE_BITS < NAMES_CLASSES);
	return pool_at(&t->pool[n >> HANDLE_BITS], n & ((1u << HANDLE_BITS) - 1));
}

name_t names_find(const struct names *t, const void *key, size_t len)
{
	for (name_t i = *bucket_of(t, key, len); i; i = names_at(t, i)->next) {
		const struct name *e = names_at(t, i);
		if (e->len == len && !memcmp(e->key, key, len))
			return i;
	}
	return 0;
}

int names_make(struct names *t, const void *key, size_t len, name_t *ret)
{
	unsigned class = class_of(len);

	core_assert(len > 0 && len <= CORE_KEY_MAX);
	*ret = names_find(t, key, len);
	if (*ret)
		return 0;
	int r = pool_reserve(&t->pool[class], 1);
	if (r < 0)
		return r;

	name_t n = (name_t)class << HANDLE_BITS | pool_take(&t->pool[class]);
	struct name *e = names_at(t, n);
	uint32_t *bucket = bucket_of(t, key, len);
	e->ref = CORE_REF_NONE;
	e->len = (uint16_t)len;
	e->shard = (uint8_t)shard_of(key, len);
	memcpy(e->key, key, len);
	e->next = *bucket;
	*bucket = n;
	if (++t->count > t->buckets)
		table_grow(t);
	*ret = n;
	return 0;
}

void names_drop(struct names *t, name_t n)
{
	struct name *e = names_at(t, n);

	if (e->ref != CORE_REF_NONE || e->record)
		return;

	uint32_t *link = bucket_of(t, e->key, e->len);
	while (*link != n)
		link = &names_at(t, *link)->next;
	*link = e->next;
	pool_give(&t->pool[n >> HANDLE_BITS], n & ((1u << HANDLE_BITS) - 1));
	t->count--;
	/* Two buckets for a name, or a table at half its load would stay at half its size. */
	for (int i = 0; i < 2 && t->count < t->buckets / 2 && t->buckets > SEGMENT_BUCKETS; i++)
		table_shrink(t);
}
