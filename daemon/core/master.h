/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The master of shards: queues claims and grants them. It knows of members only what they say.
 *
 * A shard of a master is in one of four sets, or in none:
 *
 *            master_reign()       listed, all synced           a counter ends
 *     (none) -------------> opening ------------------> open ----------------> raise
 *       ^                      ^                          |                      |
 *       |                      '------- master_reign(), a higher epoch ----------'
 *       '-- frozen <-- master_yield(): the map names another
 *
 * opening: statements are taken, nothing is granted. open: granted in order of stamps. raise: the
 * epoch must rise before anything can be granted; every member will state its claims anew when it
 * syncs to the next epoch. frozen: only which holders were lost is kept, for the next master.
 *
 * Whom it needs before it opens (S4): whoever is in a list of the sessions that was asked for after
 * the epoch had been seen in the map. Each of them syncs, or is missing in a later list, and then has ended.
 *
 * A reign is suspect if it knows only what living members hold, and not what became of names that
 * nobody holds (S9): the first grant of each such name says so, after the lock-delay. It is not
 * suspect if it is the first of all, or if the master before it, alive, has handed over.
 *
 * Lock-delay: if a session ends, or comes back as a daemon that does not know what it held, and it held a name
 * exclusively, then nobody is granted that name before the delay of that hold has passed. A delay may not be granted before the
 * store knows that there are such in the shard (`recorded`, delays.h). A suspect reign reads this once nobody can be granted anything
 * by those before it, opens then, and observes it for all that it suspects. Of shares and permits: mourn.c.
 *
 * A name has the value that its last exclusive holder has published (value.c), or none, or is `blank`: what was
 * published may be lost. While the shard is open a value is taken from the exclusive holder only, so what is
 * said twice brings nothing back; while it opens, the latest counts that members and the master before
 * know. A suspect reign believes in it only if somebody holds the name: whoever merely waits for an acknowledgement
 * may have been followed by others. Names with values are remembered though nobody has them open, up to
 * MASTER_KEPT; a shard that had to forget one says of all that it does not know that their values may be lost.
 *
 * That a holder was lost is remembered until it has been said; what members have left unmended up to MASTER_KEPT, together with values. A suspect
 * reign remembers neither: it says so of each name that it does not know.
 *
 * The caller reserves memory (master_reserve) before each message that may bring a claim.
 */
#ifndef DLOCK_CORE_MASTER_H
#define DLOCK_CORE_MASTER_H

#include "msg.h"
#include "names.h"
#include "peers.h"
#include "pool.h"
#include "shard.h"
#include "step.h"
#include "value.h"

#define CLAIM_KEEP_ALL UINT32_MAX
#define MASTER_KEPT 65536

/* One member's claim on a name. There are as many as names that are merely cached, so what only a waiting one has lies apart. */
struct master_claim {
	name_t name;
	uint32_t next;                   /* of the name's claims */
	uint32_t peer_next, peer_prev;   /* of the peer's */
	uint32_t wait;                   /* a master_wait; 0: it waits for nothing */
	uint32_t held;                   /* in total, a grant under way included */
	uint32_t keep;                   /* it has been asked to hold no more than this */
	uint16_t peer;                   /* its place in the table of peers */
	uint16_t round;                  /* of the connection in which it was last stated */
	uint64_t told_lost : 1;          /* the grant said LOST, and has not been seen yet */
	uint64_t tried : 1;              /* `keep` was asked for somebody who only tries */
	uint64_t pressed : 1;            /* ... for somebody with a priority */
	uint64_t refused : 8;            /* the statement of this number was, with this error */
	uint64_t limit_old : 1;          /* it has not been told the present limit */
	uint64_t refill : 1;             /* the grant gave more tokens for what it had, and has not been seen yet */
	uint64_t unaware : 1;            /* said by a daemon that was started anew, and knows of no grant */
	uint64_t granted : 50;           /* when `held` was, see claim_granted_at() */
	uint64_t number;
	struct core_range range;         /* held */
};

struct master_wait {
	uint32_t next, prev;             /* claims, in the queue of the name; an upgrade is in none */
	uint32_t wanted;                 /* in total */
	bool upgrade : 1;
	bool tries : 1;                  /* is granted or refused as soon as the holders have answered */
	uint8_t priority;
	uint16_t delay;                  /* of what is wanted */
	uint64_t stamp;
};

/* Of a name for which somebody waits, or waited lately. */
struct master_queue {
	uint32_t first, last;            /* claims that wait, by priority, then by stamp */
	uint32_t upgrade;                /* goes before them */
	uint32_t heir;                   /* goes before all: it may have been given it by the holder (master_pass.c) ... */
	core_nsec_t heir_at;             /* ... since then ... */
	struct core_range heir_range;    /* ... with these */
	bool heir_off;                   /* the holder has been asked not to, and has not answered yet */
	struct msg_peer passed_to;       /* said while the shard opened: that one may have had it; session 0: nobody */
	core_nsec_t not_before;          /* lock-delay */
	uint32_t mourned;                /* so many master_mourned are of this name ... */
	uint64_t mourned_weight;         /* ... and so much of it is lost */
	core_nsec_t look_at;             /* in the list of names to look at later: when; NEVER_YET: when the store has been told. 0: it is not */
};

#define NEVER_YET UINT64_MAX

/* Shares or permits with a lock-delay: lost, or perhaps (mourn.c). */
struct master_mourned {
	name_t name;
	uint32_t next;                   /* of the shard's, by `until` */
	uint32_t weight;
	uint16_t delay;
	struct msg_peer holder;          /* in doubt: who had it. session 0: it is lost */
	core_nsec_t until;               /* NEVER_YET: in doubt */
};

/* Of a name that carries something. */
struct master_extra {
	uint32_t value;                  /* handle; 0: none */
	uint32_t opened;                 /* the limit that it was opened with, if it has been resized ... */
	uint64_t limit_stamp;            /* ... which is so if this is not 0 */
	uint32_t watchers;               /* who observes it; 0: nobody */
	uint32_t at;                     /* of them, the next to be told the news */
	uint64_t term;                   /* the news: who leads, or led; 0: not known yet */
	uint32_t count;
	uint32_t news;                   /* the leader's value, a handle */
	bool leads;
	bool asked;                      /* the exclusive holder knows that it is observed */
	bool telling;                    /* those whose limit is old are being told */
};

/* An observer of a name. */
struct watcher {
	name_t name;
	uint32_t next;                   /* of the name's */
	uint32_t peer_next, peer_prev;   /* of the peer's */
	uint16_t peer, round;            /* as of claims */
	uint32_t count;                  /* what it was told last */
	uint64_t term;
};

struct master_name {
	uint64_t held;                   /* the sum over its claims, and what is lost and still counts */
	uint64_t holder;                 /* the session that held it alone, as the master before knew; 0: settled */
	name_t next;                     /* LISTED: in its shard's list of names to look at, or to look at later */
	name_t shard_next, shard_prev;   /* all of the shard */
	uint32_t limit;
	uint32_t claims;
	uint32_t queue;                  /* a master_queue; 0: nobody waits, and there is no lock-delay */
	uint32_t extra;                  /* a master_extra; 0: it carries nothing */
	bool listed : 1;
	bool lost : 1;                   /* a holder died, or its session has ended, or its grant said so and was not seen */
	bool known : 1;                  /* granted, or synced as held, in this reign: not suspect */
	bool blank : 1;                  /* what was left behind may be lost */
	bool heard : 1;                  /* `holder` has given it back, and told so */
	bool kept : 1;                   /* nobody has it open: counted in `kept` */
	bool unmended : 1;               /* lost: a member has said so, of one who died there, or of what was not mended */
	bool alone : 1;                  /* held exclusively in this reign: no share can be lost that was granted before it */
	uint16_t delay;                  /* of who holds it alone, or did in the reign before (`holder`); of those who share it the longest */
};

enum delay_kind { DELAY_ALONE, DELAY_SHARED, DELAY_KINDS };

struct name_list {
	name_t first, last;
};

struct master_shard {
	uint32_t epoch;                  /* of our reign; when frozen, of the last. 0: never ours */
	name_t names;
	struct name_list ready, later;
	uint64_t floor;                  /* the highest token used in this epoch, but for what exclusive holders own */
	uint64_t stamp;                  /* the last one given */
	core_nsec_t opened_at;
	core_nsec_t not_before;          /* of suspect names */
	uint32_t mourned, mourned_last;  /* master_mourned */
	uint64_t marks;                  /* of those that the former master has told, the last one's number */
	core_nsec_t unknown_until;       /* shares and permits may be lost that nobody knows of, and count so long */
	uint16_t recorded[DELAY_KINDS];          /* the store says: there may be delays so long ... */
	uint16_t record_want[DELAY_KINDS];       /* ... and shall say this before they are granted */
};

struct barriers;
struct place;

struct master {
	struct place *place;             /* counts who claims what; NULL: nobody does */
	struct barriers *barriers;       /* the master's side of them is done with its shards and peers */
	struct names *names;
	struct peers *peers;
	struct values *values;
	struct msg_peer self;
	struct pool records, claims, queues, waits, extras, watchers, mourned;
	uint32_t kept;                   /* names that are remembered for their values alone, or for what was not mended */
	core_nsec_t now;                 /* as the caller last said */
	shard_set_t opening, open, raise, frozen;
	shard_set_t listed;              /* a list of the sessions was asked for after the epoch was seen */
	shard_set_t suspect;
	shard_set_t handing;             /* the former master's handing over has been heard from the first word on */
	shard_set_t forgot;              /* values of names that have no record may have been published */
	shard_set_t ready, later;        /* those lists are not empty */
	shard_set_t opened;              /* opened since the caller last cleared this */
	shard_set_t asking;              /* suspect, and opens once it is known what the store says of delays, asked for from now on */
	shard_set_t delays_known;        /* ... which it is */
	shard_set_t record;              /* the store is to be told of longer delays */
	shard_set_t mourns;              /* has master_mourned */
	shard_set_t unknown;             /* opens without knowing who held shares and permits before */
	shard_set_t unsure;              /* ... without knowing all of them: there was no memory */
	shard_set_t telling;             /* frozen, and the next master is being told */
	unsigned telling_shard;          /* whose names the walk is at; CORE_SHARDS: none */
	name_t telling_at;
	uint32_t telling_mourned;        /* then these */
	uint64_t telling_marks;          /* so many have been told */
	uint32_t telling_epoch[CORE_SHARDS];
	struct msg_peer telling_to[CORE_SHARDS];
	unsigned ended;                  /* peers whose claims are still to be dropped */
	uint8_t account[CORE_PARTIES_MAX * MSG_PARTY];  /* of the one that is being told */
	struct master_shard shard[CORE_SHARDS];
};

void master_init(struct master *m, const struct core_memory *mem, struct names *names, struct peers *peers, struct values *values);
void master_done(struct master *m);
void master_begin(struct master *m, struct msg_peer self);

/*
 * The map in the store names us for this epoch, higher than the last. alone: no other session can be.
 */
void master_reign(struct master *m, unsigned shard, uint32_t epoch, bool alone);

/* The map names another. */
void master_yield(struct master *m, unsigned shard);

/* The shards in `listed` may open once all listed peers have synced. */
void master_listed(struct master *m, shard_set_t shards);

/* So the store says, or has been told. The shards in `asked` were in `asking` before it was asked. */
void master_delays(struct master *m, const uint16_t delay[DELAY_KINDS][CORE_SHARDS], shard_set_t asked);

/* The session has ended, or will not be heard of again: its claims are dropped, as work. */
void master_ended(struct master *m, struct peer *p);

/* The next master of these frozen shards, to whom this node's member is syncing: is told first. */
void master_tell(struct master *m, unsigned shard, struct msg_peer to, uint32_t epoch);

/* Our session is over: nothing is ours, nothing is known. */
void master_lapse(struct master *m);

/* -ENOMEM */
int master_reserve(struct master *m);
void master_receive(struct master *m, const struct msg *msg, struct step *s);

/* A piece of work. false: there was none. */
bool master_tell_work(struct master *m, struct step *s);
bool master_work(struct master *m, struct step *s);
bool master_busy(const struct master *m);

/* Names whose lock-delay is over become work; returns when the next one is, 0: never. */
core_nsec_t master_tick(struct master *m, core_nsec_t now);

#endif
