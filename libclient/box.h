/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The letter box in which a process asks its daemon for what lies in the store (proto/small.h): the calls of
 * latch.c, cond.c and ids.c go through it, one at a time.
 *
 * What must hold: whoever has the box (box_take) finds it empty: what was asked before is answered, but for what box_call() has left
 * there with an error. The lock lies in the account, which is this process's alone; a child has another one.
 */
#ifndef DLOCK_BOX_H
#define DLOCK_BOX_H

#include "object.h"
#include "proto/small.h"

static inline struct small_account *box_of(const struct binding *b)
{
	return (struct small_account *)binding_account(b);
}

struct box_request {
	enum small_op op;
	uint64_t arg;
	uint32_t number;                 /* set by box_call() */
	uint64_t value;                  /* of the answer */
};

/*
 * Asks, and waits for the answer: 0, or its error. -ESTALE: what the process had open was lost meanwhile, and it is not known
 * what became of it; -ENOTCONN (failfast), -ETIMEDOUT: it stays asked for. Errors are negative.
 */
int box_call(struct dlock *l, struct binding *b, struct box_request *rq, const struct limit *limit);

/* The same in place of an SMALL_ENTER that was left there: SMALL_CANCEL of it. */
int box_cancel(struct dlock *l, struct binding *b, uint32_t ticket, uint64_t *ret_value);

/* Sleeps while *word is still that, for a second at most; -ESTALE, -ENOTCONN (failfast), -ETIMEDOUT, -ECANCELED. */
int box_sleep(struct dlock *l, struct binding *b, uint64_t *word, uint64_t seen, const struct limit *limit);

void box_wake(struct dlock *l);          /* struct dlock, wake */

#endif
