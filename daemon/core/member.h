/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The member: what this node claims and holds. It is the ground truth that masters are told (S4).
 *
 *   state      holds  waits  leaves by
 *   NONE       -      -      claim -> WAITING; adopt -> HELD
 *   OBSERVING  -      -      as NONE; observe off -> NONE. Whatever else becomes NONE becomes this, as long as it observes
 *   WAITING    -      yes    GRANT, PASS -> HELD; REFUSED -> NONE; release -> RELEASING, or NONE if no master knows
 *   HELD       yes    -      refill, change -> REFILLING; change -> WAITING; release -> RELEASING
 *   REFILLING  yes    yes    GRANT, REFUSED -> HELD; change -> HELD, WAITING; release -> RELEASING
 *   RELEASING  -      -      RELEASED -> NONE
 *
 * What holds is in the ledger. Every change of what is held or waited for takes a new claim number,
 * but for a refill, which is told from its grant by the first token.
 *
 * Whoever holds has the value that the grant brought, or a later one that was published here. What
 * is given back with a value, with word of a death, or straight to another node, is owed to the master (S9): kept, and told in
 * each sync, until an answer to that claim number shows that the master knows.
 *
 * A shard has a master once the map says so, and must then be synced: the member tells of every
 * lease in it, a name a message, and that it was the last. So it does once more whenever a new
 * connection to the master has come up, and when the master asks. It may claim and release meanwhile,
 * since what it says is always all that it has. Grants are taken only in the epoch that it last
 * began to sync to, and only by a lease that waits with the very claim number (S5).
 */
#ifndef DLOCK_CORE_MEMBER_H
#define DLOCK_CORE_MEMBER_H

#include "msg.h"
#include "names.h"
#include "peers.h"
#include "shard.h"
#include "step.h"
#include "value.h"

#define LEASE_STATES(X) X(NONE) X(OBSERVING) X(WAITING) X(HELD) X(REFILLING) X(RELEASING)

enum lease_state {
#define X(name) LEASE_##name,
	LEASE_STATES(X)
#undef X
};

enum lease_heir { HEIR_NONE, HEIR_NAMED, HEIR_PASSED };

enum lease_says { SAYS_NOTHING, SAYS_NOBODY, SAYS_LEADS };

/* Of a name that has been resized, is observed, of which this node tells who leads, or which is to go to another straight away. */
struct lease_more {
	uint64_t stamp;                  /* of `present`; 0: it has not been resized yet */
	uint32_t present;
	uint32_t resize;                 /* owed: what this node has asked for; 0: nothing */
	uint64_t term;                   /* the latest news that this node was told ... */
	uint32_t count;
	uint32_t say_count;              /* owed: what it has to tell */
	uint64_t say_term;
	struct msg_peer heir;            /* NAMED: who is to get it; PASSED, owed: who was given it (member_pass.c) */
	uint64_t heir_of, heir_number;   /* NAMED: of this grant of ours; for that claim */
	struct core_range heir_range;
	uint64_t heir_secret;            /* ... which is told this */
	uint64_t secret, secret_of;      /* that a PASS must know to that claim of ours; 0: none */
	uint8_t heir_state;              /* enum lease_heir */
	bool observes;
	bool unsure;                     /* the session has ended since: what it was told last is news again */
	uint8_t says;                    /* enum lease_says */
};

struct lease {
	struct core_range range;         /* RELEASING: first, and how many were used */
	uint64_t number;                 /* of the claim */
	uint64_t stamp;                  /* its place in the queue; 0: not told yet */
	name_t name;
	uint8_t state;
	bool upgrade : 1;                /* of `wanted` */
	bool tries : 1;                  /* of `wanted` */
	uint8_t priority;                /* of `wanted` */
	bool owes : 1;                   /* value and `died` have been published, and no master has said that it knows */
	bool given : 1;                  /* by a PASS, and no master has said that it knows */
	bool died : 1;                   /* who held it exclusively, or it was not mended */
	bool unmended : 1;               /* shared: whoever holds exclusively next is to be told of a death or loss */
	bool lost : 1;                   /* what was left behind may be; held */
	bool silent : 1;                 /* the caller has been told that the ref is free */
	uint16_t delay;                  /* of what is held, and of what is wanted */
	uint32_t held, wanted;           /* totals */
	uint32_t limit;                  /* that it was opened with */
	uint32_t more;                   /* a lease_more; 0: none of that */
	uint32_t value;                  /* what was left behind, while it holds or owes; 0: nothing */
};

/* Refs are dense, so leases lie in an array, in pieces that come and go. */
#define MEMBER_PIECE 512

struct member_piece {
	struct lease *lease;
	uint32_t live;
};

struct member {
	const struct core_memory *mem;
	struct names *names;
	struct peers *peers;
	struct values *values;
	struct msg_peer self;
	struct pool mores;
	struct member_piece *piece;
	uint32_t pieces_max;
	uint64_t number;                 /* the last claim number given */
	uint32_t held_epoch;             /* the highest of what was adopted */
	shard_set_t syncing;             /* the walk under way tells these */
	shard_set_t beginning;           /* of these not even that has been said */
	shard_set_t told;                /* the telling to the present epoch has begun */
	shard_set_t begun;               /* have come into `syncing` since the caller last cleared this */
	core_ref_t cursor;               /* of the walk that tells the leases in `syncing` */
	uint32_t leases, waiting;
	uint64_t grants, refills, releases, absurd;
	uint32_t epoch[CORE_SHARDS];
	struct msg_peer master[CORE_SHARDS];
	struct core_party account[CORE_PARTIES_MAX];    /* the last one told */
};

void member_init(struct member *m, const struct core_memory *mem, struct names *names, struct peers *peers, struct values *values);
void member_done(struct member *m);
void member_begin(struct member *m, struct msg_peer self);

/* After an adoption: numbers above all of earlier incarnations, which masters may remember. */
void member_renumber(struct member *m);

/* The events, with core_step()'s errors; `value` is the handle of the one that comes with it, or 0. */
int member_adopt(struct member *m, const struct core_event *ev, uint32_t value);
int member_claim(struct member *m, const struct core_event *ev, struct step *s);
int member_refill(struct member *m, core_ref_t ref, uint64_t used, struct step *s);
int member_release(struct member *m, const struct core_event *ev, uint32_t value, struct step *s);
int member_change(struct member *m, const struct core_event *ev, uint32_t value, struct step *s);
int member_observe(struct member *m, const struct core_event *ev, struct step *s);
int member_proclaim(struct member *m, const struct core_event *ev, uint32_t value, struct step *s);
int member_keep(struct member *m, core_ref_t ref, struct step *s);
int member_resize(struct member *m, const struct core_event *ev, struct step *s);
int member_enquire(struct member *m, const struct core_event *ev, struct step *s);

/* The map says that `master` has the shard in this epoch, later than the last. */
void member_reign(struct member *m, unsigned shard, struct msg_peer master, uint32_t epoch);

/* A connection to that session has come up. */
void member_linked(struct member *m, uint64_t session);

/* Nothing is held any more. What was waited for is waited for in the next session, behind all others. */
void member_lapse(struct member *m);
void member_receive(struct member *m, const struct msg *msg, struct step *s);

/* Tells a master of the next lease. false: all are told. Little enough for a step to do many. */
bool member_work(struct member *m, struct step *s);
bool member_busy(const struct member *m);

/* What is to be said next is of no name: it needs no memory. */
bool member_ending(const struct member *m);

#endif
