/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects whose truth lies in the store (latches, conditions, worker ids): what daemon/shm does of them is to pass on what happens
 * to those who know the store (struct shm_ops, small), and to keep the words and notes.
 *
 *   notes of an account   v[0] its id, random   v[1] number of the last answer | error << 32   v[2] its value
 *                         v[3] passed | signalled << 32 (condition)
 *   note of an object     ids: v[0] worker + 1, 0: none   v[1] ceiling   v[2] the session that has it
 *
 * What must hold: an answer is noted before the client sees it, so that a daemon that comes after can tell it again, and does
 * not carry out the request a second time.
 */
#ifndef DLOCK_SHM_SMALL_H
#define DLOCK_SHM_SMALL_H

#include "../../include/proto/small.h"
#include "object.h"

struct small {
	struct object o;
	void *thing;                     /* theirs */
};

struct small_client {
	struct account a;
	void *party;                     /* theirs */
};

struct small_request {
	uint32_t number, op;
	uint64_t arg;
};

/* All are called for objects of these kinds only, with the arg of shm_ops. */
struct small_ops {
	int (*make)(void *arg, struct small *s); /* thing is set; -ENOTSUP, -ENOMEM or what keeps the store from being opened */
	int (*join)(void *arg, struct small *s, struct small_client *c, bool adopted);  /* party is set; its note has an id */
	void (*request)(void *arg, struct small_client *c, const struct small_request *rq);
	void (*low)(void *arg, struct small *s);         /* the object's own bit */
	void (*leave)(void *arg, struct small_client *c, bool died, uint64_t taken);
	void (*unused)(void *arg, struct small *s);
	void (*used)(void *arg, struct small *s);        /* again */
	void (*free)(void *arg, struct small *s);        /* thing, and what parties are left */
};

extern const struct object_kind small_kind;

/* Notes it, then tells the client. */
void small_answer(struct small_client *c, uint32_t number, int error, uint64_t value);
void small_passed(struct small_client *c, uint32_t passed, uint32_t signalled);
void small_latch(struct small *s, enum latch_state state, uint32_t count, uint32_t birth);
uint64_t small_id_word(struct small *s, bool close);      /* as it was, with ID_CLOSED */
void small_id_open(struct small *s, uint32_t worker, uint64_t ceiling, uint64_t session, uint64_t last);

#endif
