/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "map.h"

#include "range.h"

static uint64_t le_load(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static void le_store(uint8_t *p, unsigned n, uint64_t v)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

int map_decode(const void *bytes, size_t n, struct map *ret)
{
	const uint8_t *p = bytes;
	struct map m;

	if (n < 8)
		return -CORE_EBADMSG;
	if (le_load(p, 4) != MAP_LAYOUT || le_load(p + 4, 4) != CORE_SHARDS)
		return -CORE_EPROTONOSUPPORT;
	if (n != MAP_BYTES)
		return -CORE_EBADMSG;
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		const uint8_t *e = p + 8 + i * 16;
		struct map_reign *r = &m.shard[i];

		r->master.session = le_load(e, 8);
		r->master.incarnation = (uint32_t)le_load(e + 8, 4);
		r->epoch = (uint32_t)le_load(e + 12, 4);
		if (!r->master.session || !r->master.incarnation || !r->epoch || r->epoch > EPOCH_MAX)
			return -CORE_EBADMSG;
	}
	*ret = m;
	return 0;
}

void map_encode(const struct map *m, uint8_t ret[MAP_BYTES])
{
	le_store(ret, 4, MAP_LAYOUT);
	le_store(ret + 4, 4, CORE_SHARDS);
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		uint8_t *e = ret + 8 + i * 16;

		le_store(e, 8, m->shard[i].master.session);
		le_store(e + 8, 4, m->shard[i].master.incarnation);
		le_store(e + 12, 4, m->shard[i].epoch);
	}
}

uint32_t map_epoch_max(const struct map *m)
{
	uint32_t max = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (m->shard[i].epoch > max)
			max = m->shard[i].epoch;
	return max;
}
