/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barrier rounds: a round opens when as many parties have come as the barrier has.
 *
 * What must hold: all parties of a round that get a verdict get the same one, whoever dies; it is "passed"
 * only with as many as there should be, and then says the AND of exactly their votes; one party of a round
 * is told that it is the serial one; nobody concludes alone.
 *
 * The member counts the parties of its node, in the order of their arrival, and states totals. The master puts
 * the first of them into the round that is forming (ENROL), and a member that is in a round has that in
 * its ledger and says so. Then and only then does the master count it. So a round that has passed, or broken,
 * has as its parties those who say that they are in it, and a later master needs nobody's list of them.
 *
 *   of a member:  OUT --ENROL--> IN --ANNOUNCE--> TOLD --GO--> OUT       each in the ledger before it is said
 *                      <--ENROL 0--'
 *
 *   of a master:  forming --all there, or one wants out or is gone--> announced --all are TOLD--> forming, the next
 *
 * Most rounds are like the one before. So a verdict that all passed gives places in the next round: each node as many as it had
 * in this one, together just as many as there should be. Whoever comes and finds a place is IN at once: that is in the ledger
 * before it is said, and nobody needs to be asked. As long as a node has places left it may be IN with more than the master
 * knows of; so nothing is decided then, neither "passed" nor "broken": the master first says that the places are not good
 * any more, and waits until each has confirmed that. It does so when somebody has come who has no place, wants
 * out, or is gone. Places are in memory only: a daemon that is started anew has none, and says so. They end with the
 * reign, and a session that ends with places left breaks the round, since some of its parties may have been in it.
 *
 *   of a member:  OUT, places in r --somebody comes--> IN r, with as many as have come, up to the places
 *
 * GO is said only when every live member of the round has its verdict in the ledger. So as long as one of them
 * has none, nobody has acted on it; and as soon as one has acted, all have it, and every later master completes
 * just that verdict. A round in which a member says it is, and of which nobody has a verdict, has none: a later
 * master breaks it if somebody wants out of it or its own master has gone (with whom parties may have gone that
 * nobody else knows of), and else lets its parties into a new one.
 *
 * Whoever waits and is not IN may go at once, since no verdict can include it until its member confirms. Whoever is
 * IN asks (flag BREAK), and waits for the verdict. A session that ends takes its arrivals with it; if some were
 * IN or TOLD, the next session ASKs what became of that round. Of a node that leaves for good, whoever is in no
 * round is sent away, and for the others it wants out; if its session ends first, nobody can ask, and they hear ESTALE.
 *
 * A paired barrier (double barriers) has every second round to leave by: the one after round e, of the same parties, is e + 1. Who
 * hears GO e, which has passed, is IN e + 1 by the same record, before it can do anything inside. So it is no matter of somebody's
 * memory who is inside: it is who says that it is IN e + 1, or TOLD e still, and as long as all of them live they are as many as the
 * barrier has parties. Nobody else is put into e + 1, and no other round begins before it has its verdict:
 *
 *   passed    all are IN e + 1, as many as there should be, and each node says that all of its are done (READY)
 *   broken    nobody is TOLD e any more, and they are too few: some have gone with their session. Or somebody wants out
 *             (it is dead, or has waited for long enough), or asks what became of it, or for a RESET
 *
 * Where nobody lives who has entered, a later master does not know that verdict, nor whether there is one.
 *
 * Whoever is inside hears of that at once, not only when it is done. Rounds to leave by outlive reigns under their own number.
 *
 *   of a member:  OUT --ENROL--> IN e --ANNOUNCE--> TOLD e --GO e, passed--> IN e + 1 --ANNOUNCE--> TOLD e + 1 --GO--> OUT
 *
 * Names of barriers are in a table of their own, so those of locks cost nothing more.
 */
#ifndef DLOCK_CORE_BARRIER_H
#define DLOCK_CORE_BARRIER_H

#include "msg.h"
#include "names.h"
#include "peers.h"
#include "pool.h"
#include "shard.h"
#include "step.h"

struct member;
struct master;

/* --- The member's --- */

/* Who has a result is handed it soon, and is not counted any more. */
struct barrier_party {
	uint64_t order;
	uint64_t id;                     /* the caller's */
	uint64_t round;                  /* of its result */
	uint32_t next;                   /* of the barrier's, by order */
	int error;                       /* its result */
	bool yes;                        /* its vote */
	bool gives_up;                   /* asks to be let go */
	bool ready;                      /* is done inside, and waits to leave */
	bool settled;                    /* has a result */
	bool enters;                     /* ... and stays, since that is to be inside */
	bool all_yes, serial;            /* its result, too */
};

struct barrier {
	struct core_barrier rec;         /* as in the ledger, or to be written next */
	uint64_t number;                 /* of the present statement */
	uint64_t ask_number, reset_number; /* of what is asked; 0: nothing */
	uint64_t places;                 /* in this round, for so many as come; 0: in none. Of this daemon's memory only */
	uint32_t places_n;
	name_t name;
	core_ref_t ref;
	uint32_t next, prev;             /* of all */
	uint32_t parties, last;          /* who have come, by order */
	uint32_t settled;                /* so many of them have results */
	uint32_t due_next;
	bool paired;
	bool due;                        /* in the list of what is to be handed over or written */
	bool write;                      /* the record, after that */
	bool going;                      /* GO has come: OUT, or inside, as soon as all have their results */
	bool orphaned;                   /* ... and the session has ended since */
	bool answered;                   /* nothing is asked any more, as soon as all have their results ... */
	bool entered;                    /* ... but what became of those who were inside by that answer */
	bool say;                        /* where the node stands, once those who were sent away have heard it */
};

/* --- The master's --- */

/* What one member has said of a barrier, and what it has been told. */
struct barrier_claim {
	name_t name;
	uint32_t next;                   /* of the round's, in order of arrival */
	uint32_t peer_next, peer_prev;   /* of the peer's */
	uint64_t number;
	uint64_t round;                  /* IN, TOLD */
	uint64_t by;                     /* IN */
	uint64_t ask, ask_number;        /* a round that it asks for */
	uint64_t reset_number;           /* it asks for a break */
	uint32_t held, in, yes;          /* have come; of those, are in `round`; the first that voted yes */
	uint32_t limit;
	uint32_t enrolled;               /* so many shall be in the round that is forming */
	uint32_t places;                 /* and so many may be without being told, as far as is known; 0: none any more */
	uint32_t said;                   /* so many ENROL has named, since the last statement */
	uint16_t peer;
	uint16_t conn;                   /* the connection in which it was last stated */
	uint8_t state;                   /* enum core_barrier_state */
	bool wants_out;
	bool ready;                      /* all who are IN a round to leave by */
	bool said_enrol, said_void, said_announce, said_go; /* since the last statement */
	uint64_t said_round;             /* in ENROL */
};

struct barrier_round {
	name_t name;
	name_t shard_next, shard_prev;   /* all of the shard */
	name_t ready_next;
	name_t idle_next, idle_prev;     /* nobody is here, but the last verdict is known */
	uint32_t claims;
	uint32_t limit;
	uint64_t round;                  /* forming or announced; 0: neither */
	uint64_t next;                   /* announced: the round in which those of it have places; 0: nobody has */
	uint64_t was;                    /* the round of an earlier reign whose parties `round` took over */
	uint64_t dead;                   /* a round of an earlier reign, of which somebody has gone */
	struct core_verdict verdict;     /* announced */
	struct core_verdict last;
	struct core_verdict entered;     /* paired: of the round before that, if that was one to leave by */
	bool paired;
	bool past;                       /* `last` was told by members: an earlier reign may have known more */
	bool announced;
	bool known;                      /* all have synced, and what they said of earlier reigns is settled */
	bool breaks;                     /* somebody of `round` has gone */
	bool voids;                      /* the places in it are not good any more */
	bool lost;                       /* a session with places in it has ended: some of it may have been in it */
	bool ready, idle;
};

/* So many last verdicts are kept of barriers that nobody waits at. */
#define BARRIER_IDLE_MAX 1024

struct barrier_shard {
	name_t rounds;
	name_t ready_first, ready_last;
	uint64_t count;                  /* rounds of this epoch */
};

struct barriers {
	const struct core_memory *mem;
	struct member *member;
	struct master *master;
	struct peers *peers;
	struct names names;              /* made with the first one */
	struct pool records, parties, rounds, claims;
	uint64_t number;                 /* the last that was given to an arrival, a statement or a question */
	uint32_t all, due_first, due_last;
	uint32_t cursor;                 /* of the walk that tells them while syncing */
	shard_set_t told;                /* of the shards that are being synced, these barriers have been told */
	bool walking;
	bool leaving;                    /* this node, for good: whoever is in a round wants out of it */
	bool over;                       /* its last session, too: nobody answers any more */
	shard_set_t ready;
	struct barrier_shard shard[CORE_SHARDS];
	name_t idle_first, idle_last;
	uint32_t idle;
};

void barriers_init(struct barriers *b, const struct core_memory *mem, struct member *member, struct master *master,
		   struct peers *peers);
void barriers_done(struct barriers *b);

/* Room for one more of everything. -ENOMEM */
int barriers_reserve(struct barriers *b);

/* Member. The session has begun: what was adopted of another is asked for. */
void barriers_begin(struct barriers *b);

/* Arrivals end with their session. */
void barriers_lapse(struct barriers *b);

/* The node leaves for good. `lasting`: its session goes on for the time being, so that masters can be heard. */
void barriers_leave(struct barriers *b, bool lasting);

/* Somebody waits yet for a verdict, or for the end of a reset. */
bool barriers_left_over(const struct barriers *b);

/* The events ADOPT_BARRIER to CLOSE, with core_step()'s errors. */
int barriers_event(struct barriers *b, const struct core_event *ev, struct step *s);

/* Tells what is to be told between the leases of the shards being synced and the end of that. 0: all is told. -ENOMEM */
int barriers_sync(struct barriers *b, struct step *s);

void barriers_member_receive(struct barriers *b, const struct msg *m, struct step *s);
bool barriers_member_work(struct barriers *b, struct step *s);

/* Master; nothing if b is NULL. Called by master.c for a shard, a peer that has ended (one claim a time; false: none is left), and a sync. */
void barriers_purge(struct barriers *b, unsigned shard);
bool barriers_ended(struct barriers *b, struct peer *p);
void barriers_synced(struct barriers *b, unsigned peer, unsigned shard);

void barriers_master_receive(struct barriers *b, const struct msg *m, struct step *s);
bool barriers_master_work(struct barriers *b, struct step *s);
bool barriers_busy(const struct barriers *b);

/* Is it a round to leave by, of a paired barrier? */
static inline bool round_leaves(uint64_t round)
{
	return round & 1;
}

/* The verdict by which its parties are inside. */
static inline bool verdict_enters(bool paired, const struct core_verdict *v)
{
	return paired && v->passed && !round_leaves(v->round);
}

#endif
