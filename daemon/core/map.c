/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "map.h"

#include "bytes.h"
#include "range.h"

int map_decode(const void *bytes, size_t n, struct map *ret)
{
	const uint8_t *p = bytes;
	struct map m = { .placed = 0 };

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

int clustermap_decode(const void *bytes, size_t n, struct clustermap *ret)
{
	const uint8_t *p = bytes;
	struct clustermap m;

	if (n < 8)
		return -CORE_EBADMSG;
	bool placed = le_load(p, 4) == CLUSTERMAP_LAYOUT_PLACED;
	if ((le_load(p, 4) != CLUSTERMAP_LAYOUT && !placed) || le_load(p + 4, 4))
		return -CORE_EPROTONOSUPPORT;
	if (n != (placed ? CLUSTERMAP_BYTES_MAX : CLUSTERMAP_BYTES))
		return -CORE_EBADMSG;
	m.serial = le_load(p + 8, 8);
	m.coordinator = le_load(p + 16, 8);
	m.roster = le_load(p + 24, 8);
	if (!m.serial || !m.coordinator)
		return -CORE_EBADMSG;
	int r = map_decode(p + 32, MAP_BYTES, &m.map);
	if (r < 0)
		return r;
	if (placed && !(m.map.placed = le_load(p + CLUSTERMAP_BYTES, 8)))
		return -CORE_EBADMSG;
	*ret = m;
	return 0;
}

uint32_t clustermap_encode(const struct clustermap *m, uint8_t ret[CLUSTERMAP_BYTES_MAX])
{
	le_store(ret, 4, m->map.placed ? CLUSTERMAP_LAYOUT_PLACED : CLUSTERMAP_LAYOUT);
	le_store(ret + 4, 4, 0);
	le_store(ret + 8, 8, m->serial);
	le_store(ret + 16, 8, m->coordinator);
	le_store(ret + 24, 8, m->roster);
	map_encode(&m->map, ret + 32);
	if (!m->map.placed)
		return CLUSTERMAP_BYTES;
	le_store(ret + CLUSTERMAP_BYTES, 8, m->map.placed);
	return CLUSTERMAP_BYTES_MAX;
}
