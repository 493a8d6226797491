/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What barriers (barrier.c) and double barriers (double.c) share. */
#ifndef DLOCK_BARRIER_H
#define DLOCK_BARRIER_H

#include "object.h"
#include "proto/barrierword.h"

struct dlock_barrier {
	struct dlock h;
	struct dlock_barrier *twice;     /* the double barrier of that name; NULL: it was not asked for yet */
	struct inside *inside;           /* of a double barrier: who has entered through it and has not left, oldest first. Under lib */
};

/* One party, from coming to leaving. */
struct party {
	struct dlock_barrier *x;
	const struct limit *limit;
	bool no;
	bool departs;                    /* it is inside, and leaves */
	bool away;                       /* it asked to be let go */
	struct binding *b;
	struct barrier_at at;
	struct barrier_turn turn;
	struct seg_cell *shown;
	enum barrier_verdict verdict;
	bool serial;
};

/* What a step of a party leads to; negative: an error. */
enum { ENDED = 0, AGAIN = 1 };

/* A party of its own from coming to its verdict. 0: passed, inside if it is a double barrier's: turn.cell. Positive errors. */
int party_pass(struct party *p);

/* The daemon knows of it, or is about to: waits until its cell says what came of it. */
int party_told(struct party *p);
void party_hide(struct party *p);

/* Has a signal handler forked meanwhile, and is this the child? Nothing of the party is the child's then. */
bool party_is_child(struct party *p);

int barrier_error(enum barrier_verdict v);       /* 0, or positive */
struct barrier_at barrier_at(const struct binding *b);
int barrier_open(struct dlock_barrier **ret, const char *name, uint32_t parties, const struct dlock_attr *attr, enum kind kind);

/* --- double.c --- */

int double_of(struct dlock_barrier *b, struct dlock_barrier **ret);      /* opened if it is not. Positive errors */
int double_close(struct dlock_barrier *b);       /* who is inside through it has gone. EBUSY: somebody waits */

#endif
