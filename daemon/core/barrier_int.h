/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of barriers share. */
#ifndef DLOCK_CORE_BARRIER_INT_H
#define DLOCK_CORE_BARRIER_INT_H

#include "barrier.h"

/* --- The member's --- */

struct barrier *barrier_at(const struct barriers *b, uint32_t handle);
uint32_t barrier_find(const struct barriers *b, const void *key, size_t len);

/* Finds or makes it; there is room for one more. */
int barrier_make(struct barriers *b, const struct core_event *ev, uint32_t *ret);
void barrier_drop(struct barriers *b, uint32_t handle);

/* Something is to be handed over, written or said of it. */
void due_put(struct barriers *b, struct barrier *x);

struct barrier_party *party_at(const struct barriers *b, uint32_t handle);
void party_add(struct barriers *b, struct barrier *x, uint64_t id, uint64_t order, bool yes);
struct barrier_party *party_find(const struct barriers *b, const struct barrier *x, uint64_t id);

struct census {
	uint32_t held;                   /* wait for a round, or for the verdict of the one that they are in */
	uint32_t in;                     /* are in it */
	uint32_t yes;                    /* the first so many voted yes */
	bool wants_out;                  /* somebody who is in it */
	bool ready;                      /* all who are in it, of a round to leave by */
};

struct census census(const struct barriers *b, const struct barrier *x);

void settle(struct barriers *b, struct barrier *x, struct barrier_party *p, int error);

/* Those up to `upto` have this verdict, of a round in which they were in `session`. */
void settle_round(struct barriers *b, struct barrier *x, const struct core_verdict *v, uint64_t session, uint64_t upto);

/* Those above `from` and up to `upto`. */
void settle_error(struct barriers *b, struct barrier *x, uint64_t from, uint64_t upto, int error);

/* Whoever wants out and is in no round may go. */
void settle_out(struct barriers *b, struct barrier *x);

/* Has it places in a round of the present reign? */
bool places_good(const struct barriers *b, const struct barrier *x);

/* The order of the k-th of those who wait. 0: there are not so many. */
uint64_t order_of(const struct barriers *b, const struct barrier *x, uint32_t k);

/* All that this node has of it. If there is no master yet, or no way to it, the sync will tell. */
void state_say(const struct barriers *b, const struct barrier *x, struct step *s);
void state_say_anew(struct barriers *b, struct barrier *x, struct step *s);
void ask_say(const struct barriers *b, const struct barrier *x, uint64_t number, bool reset, struct step *s);
void reset_done(struct barrier *x, int error, struct step *s);
void ask_anew(struct barriers *b, struct barrier *x);    /* what became of that round, under a new number */
void record_write(struct barriers *b, struct barrier *x, struct step *s);

/* --- The master's --- */

struct barrier_claim *arrival_of(const struct barriers *b, uint32_t handle);

/* Whose parties were in a round has broken it by this, unless there is a verdict. */
void arrival_drop(struct barriers *b, struct barrier_round *r, uint32_t handle);

struct barrier_round *round_of(const struct barriers *b, name_t n);
void round_drop(struct barriers *b, struct barrier_round *r);

/* There is something to be looked at. */
void ready_put(struct barriers *b, struct barrier_round *r);

/* Nobody is here, but the last verdict is kept. */
void idle_enter(struct barriers *b, struct barrier_round *r);

/* --- Both --- */

static inline struct core_verdict verdict_of(const struct msg *m)
{
	return (struct core_verdict){ .round = m->stamp, .serial = m->seen, .passed = m->flags & MSG_FLAG_PASSED,
				      .yes = m->flags & MSG_FLAG_YES };
}

static inline uint16_t verdict_flags(const struct core_verdict *v)
{
	return (uint16_t)((v->passed ? MSG_FLAG_PASSED : 0) | (v->passed && v->yes ? MSG_FLAG_YES : 0));
}

#endif
