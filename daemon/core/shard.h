/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which shard a name belongs to. Every node of a cluster, in every version, must answer alike, or
 * two masters would grant one name: so this is a fixed function without a seed, part of the map's
 * layout version, and tested against written-down values.
 *
 *   h = FNV-1a, 64 bits, over the bytes of "space/name"
 *   h = murmur3's fmix64(h)             (the top bits of FNV alone mix badly for short keys)
 *   shard = h >> 58
 */
#ifndef DLOCK_CORE_SHARD_H
#define DLOCK_CORE_SHARD_H

#include "core.h"

_Static_assert(CORE_SHARDS == 64, "six bits of the hash, and one bit each in a 64 bit set of shards");

typedef uint64_t shard_set_t;    /* bit i: shard i */

static inline shard_set_t shard_bit(unsigned shard)
{
	return (shard_set_t)1 << shard;
}

static inline unsigned shard_of(const void *key, size_t len)
{
	const uint8_t *k = key;
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < len; i++)
		h = (h ^ k[i]) * 0x100000001b3;
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
	h ^= h >> 33;
	return (unsigned)(h >> 58);
}

#endif
