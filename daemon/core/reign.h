/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How this node comes to reign: its conversation with the store about the map.
 *
 *   NONE --start--> READING <------------------------------.
 *                    |   ^ \                               |
 *           not ours |   |  '-- ours --> RULING --raise--> WRITING
 *                    v   | EAGAIN, ETIMEDOUT                |
 *                   WRITING ----------------- ours --> RULING
 *   PAUSED: as READING, when it is time again.   DEAD: a sentence has been said.
 *
 * One request is out at a time, and what is believed is only what the store has said: after a
 * compare that failed or an answer that was lost the map is read, and if this very session and
 * incarnation stand there, the write was ours and is the reign. A read that is behind an earlier
 * one means that the store has lost an acknowledged write: the assumption under every token, so
 * the node stops.
 */
#ifndef DLOCK_CORE_REIGN_H
#define DLOCK_CORE_REIGN_H

#include "map.h"
#include "shard.h"
#include "step.h"

#define REIGN_STATES(X) X(NONE) X(READING) X(WRITING) X(RULING) X(PAUSED) X(DEAD)

enum reign_state {
#define X(name) REIGN_##name,
	REIGN_STATES(X)
#undef X
};

#define REIGN_RETRY_NS 1000000000ull         /* after an error of the store */
#define REIGN_LOSS_NS 100000000ull           /* after compares that failed one after the other */
#define REIGN_LOSSES_QUICK 3
#define REIGN_LOSSES_MAX 20                  /* at START: somebody else is writing all the time */

struct reign {
	enum reign_state state;
	bool begun;                      /* has reigned since START */
	bool written;                    /* has tried to write since START */
	struct msg_peer self;
	uint32_t held_epoch;             /* the ledger's leases are of epochs up to this one */
	uint32_t epoch_min;              /* this node has seen epochs up to this one */
	shard_set_t raise;               /* wanted */
	struct map map;                  /* as the store last said; epoch 0: has said nothing */
	struct map next;                 /* what is being written */
	uint64_t version;                /* of `map` */
	uint32_t op;
	unsigned losses;
	core_nsec_t retry_at;            /* PAUSED */
	int error;                       /* of the store, since it last worked */
	uint8_t bytes[MAP_BYTES];
};

void reign_start(struct reign *r, struct msg_peer self, uint32_t held_epoch, uint32_t epoch_min,
		 struct step *s);

/* ret_new: the shards whose epoch in r->map begins now. -EINVAL: nobody waits for this answer. */
int reign_answer(struct reign *r, const struct core_event *ev, struct step *s, shard_set_t *ret_new);

/* These shards need a higher epoch, which must exist. At most one action, as all of these. */
void reign_raise(struct reign *r, shard_set_t shards, struct step *s);
void reign_tick(struct reign *r, struct step *s);

#endif
