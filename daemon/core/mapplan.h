/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who shall master what. Rendezvous hashing (Thaler and Ravishankar 1998) over hosts and shards: each
 * shard goes to the host that draws the highest number for it, so that a host that goes leaves
 * its shards to all others evenly, and one that comes takes its part from all; no other shard moves.
 *
 * A shard whose master lives stays until the one that it belongs to has been there for a steady
 * time; a shard whose master is gone, drains or is to be avoided moves at once. One that has been placed (place.h) stays with
 * a master that is fine whoever it belongs to.
 */
#ifndef DLOCK_CORE_MAPPLAN_H
#define DLOCK_CORE_MAPPLAN_H

#include "map.h"

struct mapplan_node {
	struct msg_peer id;
	uint64_t node;
	bool may_master;
	bool drains;                     /* masters what nobody else can */
	bool steady;
	bool avoid;                      /* too many do not reach it */
	bool met;                        /* the leader has reached it: may stay what it is */
};

/* Changes the masters in *m, and the epochs of those shards. Returns how many. */
unsigned mapplan_apply(struct map *m, const struct mapplan_node *v, unsigned n);

/*
 * Places a shard with that session, if it may be given one now, and if its present master is fine: that hands it over. true:
 * it has moved.
 */
bool mapplan_place(struct map *m, const struct mapplan_node *v, unsigned n, unsigned shard, uint64_t session);

/* A 64 bit mix (murmur3's fmix64), part of the layout of the map as shard_of() is. */
static inline uint64_t mapplan_mix(uint64_t h)
{
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
	return h ^ h >> 33;
}

#endif
