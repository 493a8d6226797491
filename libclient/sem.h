/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Semaphores in the library. All handles of a name share the process's account (proto/semword.h); so the threads that
 * wait stand in one line, in private memory: the first of them deals with the account and with the daemon, and the
 * others sleep apart until it is their turn. While they do, newcomers may take what is idle, until the first has waited
 * for SEM_FORCE_NS; so the line is served in order, one at least in that time and post.
 *
 * Whatever of this a process leaves when it dies is its own; nobody else waits for it.
 */
#ifndef DLOCK_SEM_H
#define DLOCK_SEM_H

#include "object.h"
#include "proto/semword.h"

struct dlock_sem {
	struct dlock h;
};

static inline struct sem_account *sem_own(const struct binding *b)
{
	return (struct sem_account *)b->own;
}

/* Positive errors. try: -EAGAIN instead of waiting for others. */
int sem_slow_wait(struct dlock *l, uint32_t n, const struct limit *limit, bool try);
int sem_slow_post(struct dlock *l, uint32_t n);
void sem_given_away(struct dlock *l, struct binding *b);          /* what A asks for */
void sem_undo(struct dlock *l, struct binding *b, uint32_t n);   /* what was taken past the deadline */
void sem_wake(struct dlock *l);

/* A question to the daemon. Negative errors. */
int sem_box_ask(struct dlock *l, enum sem_box question, uint32_t arg, uint32_t *ret_answer);

#endif
