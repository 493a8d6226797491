/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shards go where they are used. A name that is claimed on the node that masters it costs no message; so the node that makes
 * clearly most of a shard's claims shall be its master.
 *
 * What must hold:
 *  - Where a shard lies is a hint, and no more. It moves by the map alone, to another reign in another epoch, as it does
 *    when a node drains: its master lives, freezes and hands over (S9), the next one opens as every new master does (S4).
 *    Nothing in here decides who may grant what. Counts and wishes may be lost, late, or wrong.
 *  - A shard moves seldom. It is moved for its use only while it is open, and after its master has seen for `span`
 *    from its opening on that another makes three quarters of the claims; and then not before it has rested, for
 *    four spans at first, for twice as long each time that follows soon, up to sixteen. Where nobody has that much, as
 *    where two nodes take turns, nothing moves. With one look of the coordinator no more than PLACE_MOVES move.
 *  - It goes to nobody who would not be given a shard otherwise: who drains, may not master, is new, is not reached; and
 *    nowhere while somebody says that he does not reach somebody (cut.h).
 *  - A shard that is nobody's in particular lies where mapplan.h has it. One that has been moved for its use stays until
 *    its master goes, or drains, or has said that it makes less than half of the claims any more (for four spans),
 *    or that there have been none (for PLACE_IDLE spans) and nobody holds anything of it.
 *
 * The master counts claims, and halves what it has counted each quarter of a span. Whom to count for, of up to a thousand, it
 * finds by a vote (Boyer and Moore 1981): a claim of the candidate's is a vote for it, any other one against it, and who
 * claims when there are none left is the next. It says what it sees to the coordinator, PLACE, again and again as long as it is
 * so and nothing has come of it; also that it makes most of the claims itself, so that no newcomer gets the shard. No claims, no word.
 */
#ifndef DLOCK_CORE_PLACE_H
#define DLOCK_CORE_PLACE_H

#include "base.h"
#include "map.h"
#include "msg.h"
#include "shard.h"

#define PLACE_MOVES 16
#define PLACE_IDLE 64
#define PLACE_NAMES 16           /* that a look goes through */
#define PLACE_REST 4
#define PLACE_REST_MAX 16

/* Of a shard that this node masters. */
struct place_use {
	uint64_t who;                    /* the candidate, a session */
	uint32_t votes;                  /* for it, less those against it */
	uint32_t its, own, all;          /* claims: of the candidate since it is one, of this node, of all */
	core_nsec_t halved;              /* last; claims have come since, or just before */
	core_nsec_t since;               /* the candidate had three quarters each time that they were halved */
	core_nsec_t ours;                /* this node had half of them, or there were few */
	core_nsec_t said;
};

/* The coordinator's. `moved` and `rest` are known to everybody who has seen the maps. */
struct place_wish {
	uint64_t session;                /* 0: no place in particular */
	uint32_t epoch;                  /* of the master that said so */
	core_nsec_t at;                  /* 0: nobody has */
	core_nsec_t moved, rest;
};

struct place {
	core_nsec_t span;                /* 0: shards lie where mapplan.h has them */
	uint32_t least;                  /* claims in a quarter of it: fewer are not worth a move */
	shard_set_t due;                 /* of these the master is to look at what it has counted */
	struct place_use use[CORE_SHARDS];
	struct place_wish wish[CORE_SHARDS];
};

struct core;
struct mapplan_node;
struct step;

void place_init(struct place *p, core_nsec_t span, uint32_t least);

/* Our reign over it begins: nothing is known of its use. */
void place_begin(struct place *p, unsigned shard, core_nsec_t now);

void place_halve(struct place *p, unsigned shard, core_nsec_t now);

/* That session has claimed something in a shard of ours, who are `self`. */
static inline void place_count(struct place *p, unsigned shard, uint64_t session, uint64_t self, core_nsec_t now)
{
	struct place_use *u = &p->use[shard];

	if (!p->span)
		return;
	if (now - u->halved >= p->span / 4)
		place_halve(p, shard, now);
	if (u->who != session && u->votes) {
		u->votes--;
	} else {
		if (u->who != session) {
			u->who = session;
			u->its = 0;
			u->since = now;
		}
		u->votes++;
		u->its++;
	}
	u->own += session == self;
	u->all++;
}

/* The map has been read: shards that were moved here and are not used any more are to be looked at too. */
void place_idle(struct core *c, core_nsec_t now);

/* Says a wish to the coordinator. false: there is none to say. */
bool place_work(struct core *c, struct step *s);

/* The coordinator hears one. */
void place_hear(struct core *c, const struct msg *msg, core_nsec_t now);

/* Another map is known. */
void place_seen(struct place *p, const struct map *old, const struct map *new, core_nsec_t now);

/* Does what is wished, where it may be, in a map that is planned. */
void place_plan(struct core *c, struct map *m, const struct mapplan_node *v, unsigned n, core_nsec_t now);

#endif
