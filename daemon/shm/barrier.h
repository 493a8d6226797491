/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers on this node (barrierword.h), and a place for faults around every store of the daemon's to one.
 */
#ifndef DLOCK_BARRIER_H
#define DLOCK_BARRIER_H

#include "../fault.h"
#include "object.h"

#ifdef DLOCK_FAULTS
#include "../../include/proto/futex.h"
#define BARRIER_OPS
#define BARRIER_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define BARRIER_STORE(p, v) FAULT_AROUND(__atomic_store_n((p), (v), __ATOMIC_RELEASE))
#define BARRIER_CAS(p, old, new) FAULT_CAS(p, old, new, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define BARRIER_WAKE(p)                                                                        \
	do {                                                                                   \
		futex_wake_class((uint32_t *)(p), INT_MAX, FUTEX_BITSET_MATCH_ANY);            \
		fault_point();                                                                 \
	} while (0)
#include "../../include/proto/barrierword.h"
#undef BARRIER_OPS
#else
#include "../../include/proto/barrierword.h"
#endif

extern const struct object_kind barrier_kind;

/* The number of parties is v[0] of the note, its number (rounds.h) v[1]: 0: its rounds are completed here. */
struct barrier {
	struct object o;
	uint32_t parties;
	uint32_t far;                    /* its number */
	bool watched;
	uint64_t seen;                   /* the round, at the last look */
	nsec_t span;
	struct loop_timer timer;
	struct loop_defer tell;          /* some have been told since the last turn: all are woken at once, after what is to be sent */
	bool expects;                    /* some of those who have passed since then: they are likely to come again */
	struct loop_timer expected;      /* ... until then */
};

struct barrier_account {
	struct account a;
	uint16_t asked;                  /* the last reset that the one under way answers */
};

static inline struct barrier *barrier_of(struct object *o)
{
	return (struct barrier *)o;
}

static inline struct barrier_at barrier_at(const struct object *o)
{
	uint64_t *words = object_words(o, o->slot);

	return (struct barrier_at){ words, words + BARRIER_AT_NOTES };
}

/* The lines of an account are linked in its notes. What heads say is for the client. */
static inline uint32_t line_next(const struct object *o, uint32_t line)
{
	return (uint32_t)note_at(o->space, line)->v[0];
}

void lines_grow(struct object *o, const struct account *a);      /* if its threads have asked for that */
void line_head(const struct object *o, uint32_t line);   /* says which is the next */

/* How many parties of this node have come, and have not been told yet; if any are inside, those. */
uint32_t barrier_here(struct object *o, bool *ret_inside);

/* --- barrier_far.c: barriers whose rounds are completed among nodes --- */

int far_make(struct object *o);
int far_recall(struct object *o);
void far_ring(struct object *o, struct account *a);
void far_leave(struct object *o, struct account *a);
void far_unused(struct object *o);
void far_tell(void *object);             /* whoever sleeps looks at its cell */
void far_expected(void *object);         /* whoever has come is seen, and whoever comes rings */

void parties_init(struct shm *shm);
void parties_recall(struct shm *shm);   /* after all objects: whose cell is still what the ledger says */
void parties_begin(struct shm *shm);    /* those are let go that nobody waits for, barriers closed that nobody has open; and from time to time */
void parties_end(struct shm *shm);

/* The core's answers. */
void barrier_verdict(struct shm *shm, uint32_t party, enum barrier_verdict v, bool serial);
void barrier_entered(struct shm *shm, uint32_t party, bool serial);      /* it is inside, and another verdict follows */
void barrier_reset_done(struct shm *shm, uint32_t barrier);
void barrier_closed(struct shm *shm, uint32_t barrier, bool gone);       /* not gone: it is in use yet, and asked for again */

#endif
