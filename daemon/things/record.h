/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One record of the store, and what somebody here wants of it: read, compare-and-set, and again until it is so.
 *
 * Its owner never says "do this"; it is shown the record (look) and says what should be there instead, if anything. So
 * it does not matter whether an answer was lost, others have written meanwhile, or this is the second try: look finds out from
 * the record what has happened already.
 *
 * What must hold:
 *  - look is shown what was there at a moment not before `asof`: one that record_want() has given out. What was wanted by
 *    record_want(fresh) is not answered from older knowledge. A compare-and-set that succeeds proves that what look had seen still was so.
 *  - A write in doubt may land later. It is over only when the version that it expected is: as long as that is there,
 *    the owner is shown `fence`, and what it does not change is written anew as it is.
 *  - One request at a time. After failures the pause between tries grows, to PAUSE_MAX.
 *
 * No clock and no loop in here: who owns it calls record_turn() when record_due() has come.
 */
#ifndef DLOCK_THINGS_RECORD_H
#define DLOCK_THINGS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../store/store.h"
#include "../units.h"

#define RECORD_PAUSE_MIN (20 * NSEC_PER_MSEC)
#define RECORD_PAUSE_MAX NSEC_PER_SEC

struct record_view {
	const uint8_t *bytes;
	size_t n;
	uint64_t version;                /* 0: absent, and n is 0 */
	uint64_t asof;
	bool fence;
	bool landed;                     /* it is what was wanted at the last look, and has just been written */
};

struct record_want {
	enum { RECORD_KEEP, RECORD_WRITE, RECORD_REMOVE, RECORD_READ } what;     /* READ: shown again when it has been read anew */
	const void *bytes;               /* until look is called again */
	size_t n;
};

struct record_ops {
	void (*look)(void *arg, const struct record_view *v, struct record_want *ret);
	/* The store cannot be reached, or refuses; tried again. -EFBIG, -ENOSPC: it is full. */
	void (*failed)(void *arg, int error);
};

/* What the records of a daemon share. */
struct record_store {
	struct store *store;
	bool open;                       /* false: nothing is asked now */
	uint64_t random;                 /* for pauses */
	void *arg;
	nsec_t (*now)(void *arg);
	void (*wake_at)(void *arg, nsec_t when);         /* record_due() may have become this */
	int (*room)(void *arg);          /* for one record more: 0, or -ENOSPC. NULL: there is */
};

struct record_request;

struct record {
	struct record_store *in;
	const struct record_ops *ops;
	void *arg;
	char key[STORE_KEY_MAX + 1];
	uint8_t *bytes;
	size_t n;
	uint64_t version;
	bool known, stale, wanted, running, landed;
	bool doubt, doubt_any;           /* any: of the version that is read next */
	uint64_t doubt_version;
	uint64_t clock, asof, asked_at, fresh_at;        /* moments; what is known must not be older than fresh_at */
	nsec_t pause_until;
	unsigned failures, races;
	struct record_request *request;  /* under way */
};

void record_init(struct record *r, struct record_store *in, const char *key, const struct record_ops *ops, void *arg);
void record_done(struct record *r);      /* an answer under way is nobody's */

/* Something is wanted: the moment that has to be reached. fresh: it has to be read. record_go() then looks, perhaps before it returns. */
uint64_t record_want(struct record *r, bool fresh);
void record_go(struct record *r);
static inline void record_need(struct record *r, bool fresh)
{
	record_want(r, fresh);
	record_go(r);
}

/* What was written before a restart may still be under way. */
void record_doubt(struct record *r);

nsec_t record_due(const struct record *r);       /* NSEC_NEVER: an answer or somebody's need comes first */
void record_turn(struct record *r, nsec_t now);

/* Nothing is under way, wanted or in doubt. */
static inline bool record_quiet(const struct record *r)
{
	return !r->request && !r->wanted && !r->doubt;
}

#endif
