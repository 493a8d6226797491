/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers whose rounds are completed among nodes: what the ledger keeps of them, by a number that the core knows them by.
 *
 *   RUN/ledger/barriers      where this node stands in the rounds of one: what the core wants written, in turn in two places
 *   RUN/ledger/parties       one record per party of this node that has come
 *
 * What must hold:
 *  - A party is here before any other node hears of it, and until it has been told. It outlives its client, the space and the
 *    session: the core has to be asked to let it go.
 *  - A barrier is here as long as the core knows of it. Objects come and go: the same barrier may be one of a
 *    space that is lost, and of the next.
 *  - The record is found whole after a death at any store: the place that is not valid is written, then `turn` says that it is.
 */
#ifndef DLOCK_ROUNDS_H
#define DLOCK_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../include/proto/name.h"
#include "../loop/loop.h"
#include "table.h"

struct shm;
struct object;

#define ROUNDS_MAX  (UINT32_C(1) << 17)
#define PARTIES_MAX (UINT32_C(1) << 20)

struct rounds_verdict {
	uint64_t round, serial;
	uint32_t passed, yes;
};

/* As core.h's struct core_barrier. */
struct rounds_state {
	uint32_t state, parties;
	uint64_t session, by, upto;
	struct rounds_verdict now, last;
	uint64_t ask_round, ask_session, ask_upto;
};

struct ledger_barrier {
	uint32_t used;                   /* length of the key, not 0 */
	uint32_t parties;                /* that it was opened with last */
	uint64_t turn;                   /* state[turn & 1] is valid; 0: neither */
	struct rounds_state state[2];
	char key[NAME_KEY_MAX];          /* space, kind_mark(), name */
};

struct ledger_party {
	uint32_t used;                   /* 1 */
	uint32_t barrier;
	uint32_t space;                  /* of its cell; 0: nobody waits for it any more */
	uint32_t line;                   /* a slot */
	uint16_t cell;                   /* 1 .. BARRIER_CELLS */
	uint16_t out;                    /* it has been asked for that it be let go; made anew after a restart */
	uint16_t yes;
	uint16_t done;                   /* it has been said that it wants to leave; made anew after a restart */
	uint64_t arrival;                /* of those in the cell */
	uint64_t order;                  /* the core's */
};

/* What is made anew after a restart. */
struct tally {
	struct object *object;           /* NULL: nobody has it open */
	bool resets;                     /* a reset is under way */
};

struct rounds {
	struct table barriers, parties;
	struct tally *tally;             /* by index */
	uint32_t tally_cap;
	struct loop_timer retry;
};

static inline struct ledger_barrier *rounds_barrier(const struct rounds *r, uint32_t i)
{
	return table_at(&r->barriers, i);
}

static inline struct ledger_party *rounds_party(const struct rounds *r, uint32_t i)
{
	return table_at(&r->parties, i);
}

int rounds_open(struct shm *shm, bool fresh);
void rounds_close(struct shm *shm);

/* That of this key, made where there is none. -ENOMEM, -ENOSPC. */
int rounds_find(struct shm *shm, const char *key, uint32_t len, uint32_t *ret);
bool rounds_paired(const struct ledger_barrier *b);      /* a double barrier's */
struct tally *rounds_tally(const struct shm *shm, uint32_t barrier);
void rounds_drop(struct shm *shm, uint32_t barrier);       /* the core has forgotten it */

/* A record for one who comes; not in the ledger before rounds_arrived(). */
int party_take(struct shm *shm, const struct ledger_party *p, uint32_t *ret);

/* --- the core's answers, by daemon/node --- */

bool rounds_is(const struct shm *shm, uint32_t barrier, uint32_t party);
void rounds_arrived(struct shm *shm, uint32_t party, uint64_t order);
void rounds_note(struct shm *shm, uint32_t barrier, const struct rounds_state *state);
/* NULL: none has been written. */
const struct rounds_state *rounds_state(const struct shm *shm, uint32_t barrier);

/* Calls fn for each party of the barrier that the ledger knows, in their order. -ENOMEM */
int rounds_each_party(struct shm *shm, uint32_t barrier, void (*fn)(void *arg, uint32_t party), void *arg);

#endif
