/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The master of shards: queues claims and grants them. It knows of members only what they say.
 *
 * A shard of a master is in one of three sets, or in none:
 *
 *            master_reign()            all members synced            a counter ends
 *     (none) -------------> opening ------------------------> open ----------------> raise
 *                              ^                                                       |
 *                              '------------------- master_reign(), a higher epoch ----'
 *
 * opening: claims are queued, nothing is granted. open: granted in order of arrival. raise: the
 * epoch must rise before anything can be granted; claims are dropped, since every member will
 * state its claims anew when it syncs to the next epoch. Releases are taken in all three.
 *
 * The caller reserves memory (master_reserve) before each message that may bring a claim.
 */
#ifndef DLOCK_CORE_MASTER_H
#define DLOCK_CORE_MASTER_H

#include "msg.h"
#include "names.h"
#include "pool.h"
#include "shard.h"
#include "step.h"

#define MASTER_CLAIM_FLAGS(X)                                                                  \
	X(HELD, 1)        /* the member owns `range`, as far as the master knows */            \
	X(WAITING, 2)     /* the member waits for a grant: its first, or one more */           \
	X(LISTED, 4)      /* the name is in its shard's list of waiting ones */

enum master_claim_flag {
#define X(name, bit) CLAIM_##name = bit,
	MASTER_CLAIM_FLAGS(X)
#undef X
};

/* One member's claim on a name. */
struct master_claim {
	name_t next;                     /* LISTED */
	uint16_t member;
	uint16_t flags;
	union {
		core_nsec_t granted_at;  /* HELD */
		uint64_t stamp;          /* not HELD */
	};
	uint64_t number;
	struct core_range range;
};

struct master_member {
	struct msg_peer peer;
	shard_set_t synced;              /* has told all in the shard's present epoch */
};

/* With the embedded store the only session is our own. */
#define MASTER_MEMBERS_MAX 1

struct master_shard {
	uint32_t epoch;                  /* 0: never ours */
	name_t waiting_first, waiting_last;
	uint64_t floor;                  /* the highest token that a forgotten name has used in this epoch */
	uint64_t stamp;                  /* the last one given */
};

struct master {
	struct names *names;
	struct msg_peer self;
	struct pool claims;
	unsigned members;
	struct master_member member[MASTER_MEMBERS_MAX];
	shard_set_t opening, open, raise;
	shard_set_t waiting;             /* has a list of waiting names */
	shard_set_t opened;              /* opened since the caller last cleared this */
	struct master_shard shard[CORE_SHARDS];
};

void master_init(struct master *m, const struct core_memory *mem, struct names *names);
void master_done(struct master *m);

/* Who we are, and whom we need before we grant: the sessions that were there after the map was read. */
void master_begin(struct master *m, struct msg_peer self, const struct msg_peer *members, unsigned n);

/* The map in the store names us for this epoch, higher than the last. */
void master_reign(struct master *m, unsigned shard, uint32_t epoch);

/* -ENOMEM */
int master_reserve(struct master *m);
void master_receive(struct master *m, const struct msg *msg, struct step *s);

/* Serves one that waits. false: there was none. */
bool master_work(struct master *m, struct step *s);
bool master_busy(const struct master *m);

#endif
