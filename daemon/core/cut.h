/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who does not reach whom, and what becomes of it (S12).
 *
 * A node that has not reached a listed session for a quarter of the grace, by no connection and no path, names it
 * in its own record; in a cluster of more than CUT_SMALL only if either of the two masters anything, so that a death is
 * written down by few. First those that are in the way of what it masters: it has
 * claims of theirs, or a shard does not open without them. That is a complaint. The record is state: it says who is not reached
 * now, is written again when that changes, and deleted when nobody is left; a dead session's is cleared away.
 *
 *   u8 layout, 1    u8 0    u16 n, 1 to CUT_MAX    u16 how many of them, the first, are in the way    u16 0
 *   u64 session, whose record it is    n times u64 session, not reached
 *
 * A node that has not reached some master for half the grace reads these records. If a master complains of it, and
 * it has not reached that one for the whole grace, it ends itself: no beats any more, a deadline of now + loss, and then
 * as with every lapse (session.h). Both count from when one of them has begun to master anything: before that nobody
 * looks for a path (path.h). No clock is compared: each counts by itself since when it has not reached the other.
 *
 * Both sides of a cut may master shards, and complain of each other. So the coordinator, which reads the records with each
 * look, takes the shards away from one side, well before the grace is over; who masters nothing any more complains to no avail:
 *  - from whoever more than half of the others name (where they are many: of the other masters), two at least, and for a
 *    look; a newcomer's word counts after a grace;
 *  - else from whom it has lost itself for half the grace, unless it is such a one. If all are (two halves) only this counts.
 *
 * None of it may go to and fro while the cut lasts, though the sessions of the lesser side end and begin anew:
 *  - a node from which shards were taken gets none before twice the grace;
 *  - the coordinator gives none to whom it has never reached, and moves none without need while it does not reach half
 *    of the others: it may have come anew into the lesser side;
 *  - while there are such records, or were until twice the grace ago, newcomers get shards only after a grace, when it is
 *    known who reaches them.
 */
#ifndef DLOCK_CORE_CUT_H
#define DLOCK_CORE_CUT_H

#include "ask.h"
#include "peers.h"

#define CUT_PREFIX "cut/"
#define CUT_MAX 128
#define CUT_BYTES(n) (16 + 8 * (n))
#define CUT_LAYOUT 1
#define CUT_SMALL 64

struct cut_record {
	uint64_t session;
	unsigned n, in_the_way;
	uint64_t v[CUT_MAX];
};

/* -EBADMSG; *ret is untouched then */
int cut_decode(const void *bytes, size_t n, struct cut_record *ret);
uint32_t cut_encode(const struct cut_record *r, uint8_t ret[CUT_BYTES(CUT_MAX)]);

/* Of this node's part in it. */
struct cut {
	uint64_t version;                /* of our record; 0: there is none */
	bool unsure;                     /* read it before writing */
	bool doubt;                      /* something that we have sent, or our predecessor, may land yet */
	core_nsec_t again;               /* therefore it is read once more; 0: no need */
	bool reading;
	uint64_t said;                   /* a sum of what it says */
	core_nsec_t at;                  /* look at who is reached; 0: everybody was */
	core_nsec_t list_at;             /* read the records not before */
	uint64_t stale, stale_version;   /* the record of a session that is not listed; 0: none */
	core_nsec_t wary_until;          /* there has been a record lately */
	unsigned complaints;             /* to be told to the caller */
};

struct core;

/* A new session of ours: it has no record yet, or, adopted, may have one. */
void cut_begin(struct cut *u, bool adopted);

void cut_tick(struct core *c, struct step *s);
core_nsec_t cut_next(const struct core *c);
void cut_answer(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now);

/* Deletes a record that nobody will. false: there is none to delete. */
bool cut_clear(struct core *c, enum ask_kind kind, struct step *s);

/* A complaint that the caller has not been told of yet. false: none. */
bool cut_work(struct core *c, struct step *s);

/* For how long a newcomer gets no shards. UINT64_MAX: while we reach less than half of the others nothing is moved without need. */
core_nsec_t cut_steady(const struct core *c, core_nsec_t now);

/* Sets avoid_until of those that shall master nothing. */
void cut_avoid(struct core *c, core_nsec_t now);

#endif
