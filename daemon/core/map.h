/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The map: which session, in which incarnation, masters each shard, and in which epoch.
 *
 * As a record, all little-endian:
 *
 *   u32 layout, 1      u32 shards, 64      then 64 times: u64 session, u32 incarnation, u32 epoch
 *
 * Nothing else is a map: not another length, no session 0, incarnation 0 or epoch 0, no epoch of more
 * than 23 bits. What is not a map is never overwritten; it takes a human to say that it may go.
 */
#ifndef DLOCK_CORE_MAP_H
#define DLOCK_CORE_MAP_H

#include "base.h"
#include "core.h"
#include "msg.h"
#include "shard.h"

#define MAP_KEY "map"
#define MAP_LAYOUT 1
#define MAP_BYTES (8 + CORE_SHARDS * 16)

struct map_reign {
	struct msg_peer master;
	uint32_t epoch;
};

struct map {
	struct map_reign shard[CORE_SHARDS];
	shard_set_t placed;              /* they lie where they are used (place.h); in a cluster's map only */
};

/* -EPROTONOSUPPORT: another layout or number of shards; -EBADMSG: not a map. *ret is untouched then. */
int map_decode(const void *bytes, size_t n, struct map *ret);
void map_encode(const struct map *m, uint8_t ret[MAP_BYTES]);

/* 0 if there is none. */
uint32_t map_epoch_max(const struct map *m);

/*
 * A cluster's map has more to say, before those bytes:
 *
 *   u32 layout, 2    u32 0    u64 serial    u64 coordinator's session    u64 roster
 *
 * Each write raises the serial. The roster is a sum over the sessions that the writer saw listed: it
 * changes when they do, so that who watches this one record learns of both.
 *
 * Where shards lie with who uses them most (place.h) it is of layout 3, and ends with u64, bit i: shard i; not 0.
 */
#define CLUSTERMAP_LAYOUT 2
#define CLUSTERMAP_LAYOUT_PLACED 3
#define CLUSTERMAP_BYTES (32 + MAP_BYTES)
#define CLUSTERMAP_BYTES_MAX (CLUSTERMAP_BYTES + 8)

struct clustermap {
	uint64_t serial, coordinator, roster;
	struct map map;
};

int clustermap_decode(const void *bytes, size_t n, struct clustermap *ret);

/* The length. */
uint32_t clustermap_encode(const struct clustermap *m, uint8_t ret[CLUSTERMAP_BYTES_MAX]);

#endif
