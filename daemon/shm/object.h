/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names that are not locks: semaphores, barriers, latches and so on, as daemon/shm knows them.
 *
 *   struct object    one per name that somebody has open, in the daemon's memory; the kind's own begins with it
 *   struct account   one per client that has it open; the kind's own begins with it. It has a slot in the segment,
 *                    a cache line that this client and the daemon share: object_words()
 *   notes            what the daemon must believe of either after a restart: in the ledger (struct ledger_note). The
 *                    object's own note has a slot too, which nobody hears of
 *
 * A client that wants something sets the SEG_WANT bit of its account's slot, or of the object's, and rings: ring().
 *
 * What must hold: whatever is read from a slot is a claim of a client, checked against the note. An object
 * lives until its kind says object_end(), after unused().
 */
#ifndef DLOCK_OBJECT_H
#define DLOCK_OBJECT_H

#include "shm.h"

struct account {
	struct account *next, **at;      /* of the object's */
	struct account *hash_next;
	struct object *object;
	uint32_t slot, client;
};

struct object {
	struct object *next, **at;       /* of the space's */
	struct space *space;
	uint32_t slot;
	uint32_t note;                   /* the slot of its own note */
	enum kind kind;
	bool made;                       /* else make() is still to be called: a daemon died before it had been */
	bool unused;                     /* unused() has been called, and nobody has come since */
	uint32_t n_accounts;
	struct account *accounts;        /* newest first */
};

/* Those that may be NULL say so. Errors are negative. */
struct object_kind {
	size_t size, account_size;
	/* The first to open it. The object and its note are zeroed. */
	int (*make)(struct object *o, uint32_t arg);
	/* Another, or one who has it open already: -EINVAL where arg is not what it may be. May be NULL. */
	int (*check)(struct object *o, uint32_t arg);
	/* An account is there: new, or of before a restart (its note says what it had). May be NULL. */
	void (*joined)(struct object *o, struct account *a, bool adopted);
	void (*ring)(struct object *o, struct account *a);       /* a NULL: the object's own bit */
	/* The client has closed it, or is dead: what it had is taken back. The account goes after this. */
	void (*leave)(struct object *o, struct account *a, bool died);
	/* Nobody has it open. object_end() when it may go, here or later; until then it may be opened again (check). */
	void (*unused)(struct object *o);
	/* It is unused, and something was to be done before it goes; then its space broke. NULL: that goes on without the space. */
	void (*broken)(struct object *o);
	/* After a restart: a client's note that the kind has made besides (`made`). false: it belongs to nothing. May be NULL. */
	bool (*further)(struct object *o, uint32_t slot);
	/* After a restart, twice: before the core starts, when all accounts have joined, those of the dead too (early) ... */
	int (*recall)(struct object *o);                         /* may be NULL */
	/* ... and when the dead have left and clients may come. May be NULL. */
	void (*adopt)(struct object *o);
	void (*lapse)(struct object *o);                         /* the session is over; may be NULL */
	void (*free)(struct object *o);                          /* what it has beyond `size`; may be NULL */
};

extern const struct object_kind *object_kinds[KINDS];     /* fixed, but for tests */

static inline bool object_kind_known(enum kind k)
{
	return !kind_is_object(k) || object_kinds[k];
}

/* What the client and the daemon share; 8 words. */
static inline uint64_t *object_words(const struct object *o, uint32_t slot)
{
	return (uint64_t *)seg_slot(o->space->base, slot);
}

static inline struct ledger_note *object_note(const struct object *o)
{
	return note_at(o->space, o->note);
}

static inline struct ledger_note *account_note(const struct account *a)
{
	return note_at(a->object->space, a->slot);
}

/* By the object's slot. NULL where there is none. */
struct object *object_at(const struct space *s, uint32_t slot);
struct account *account_of(const struct space *s, uint32_t slot, uint32_t client);

void object_end(struct object *o);       /* nobody has it open: it goes, with its name */

/* --- for client.c, name.c and the like --- */

/* The client's open stands in the ledger already; also again. Where it fails, the open is taken back. */
int object_open(struct space *s, uint32_t slot, uint32_t client, uint32_t arg, uint32_t *ret_account);
void object_leave(struct space *s, uint32_t slot, uint32_t client, bool died);
void object_unused(struct space *s, uint32_t slot);
void object_lapse(struct space *s, uint32_t slot);
void object_adopt(struct space *s, uint32_t slot);
bool object_is(const struct space *s, uint32_t slot);   /* an object's slot, or an account's */
void object_ring(struct space *s, uint32_t slot);
void object_end_note(struct space *s, uint32_t slot);   /* in a broken space: one that belongs to nothing any more */
int objects_adopt(struct space *s);      /* from the ledger */
void objects_free(struct space *s);      /* the memory alone */

#endif
