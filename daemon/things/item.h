/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Users' small values: a record each, read and written as they ask, for as long as ITEM_PATIENCE.
 *
 * What must hold: who is told that his value is written has it in the store. A write whose answer was lost is looked for: without a
 * version it counts as written if the record has the same bytes. Who is told that it is in doubt may find either.
 */
#ifndef DLOCK_THINGS_ITEM_H
#define DLOCK_THINGS_ITEM_H

#include "record.h"

#define ITEM_PATIENCE (5 * NSEC_PER_SEC)

enum item_op { ITEM_GET, ITEM_PUT, ITEM_REMOVE };

struct item_call {
	enum item_op op;
	const char *key;                 /* of the store */
	const void *bytes;               /* PUT */
	size_t n;
	bool compare;                    /* PUT, REMOVE: only if it has this version; 0: only if it is absent */
	uint64_t version;
};

/*
 * error    0. -ENOENT: it is absent. -EAGAIN: it has another version, this one. -ENOSPC: the store has no room. -ETIMEDOUT: the store
 *          has not answered, or not let us write. in_doubt: it may have been written all the same, or may be yet.
 * bytes    of GET, until the callback returns
 */
struct item_result {
	int error;
	bool in_doubt;
	uint64_t version;
	const void *bytes;
	size_t n;
};

typedef void (*item_done_fn)(void *arg, const struct item_result *res);

struct item;
struct items {
	struct record_store *in;
	struct item *first;
};

/* done is called once, perhaps before this returns; not after item_drop(), which a write outlives that is under way. NULL: no memory. */
struct item *item_start(struct items *vs, const struct item_call *call, item_done_fn done, void *arg);
void item_drop(struct item *v);
/* After record_store.wake_at's time; when to call it again. */
nsec_t items_turn(struct items *vs, nsec_t now);
void items_done(struct items *vs);     /* all that is under way is told -ETIMEDOUT */

#endif
