/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What actors do with what lies in the store: a latch, a condition with its lock, and a worker's number, of which a process has one of
 * each. They wait for a daemon where there is none.
 */
#ifndef E2E_THINGS_ACTS_H
#define E2E_THINGS_ACTS_H

#include "actor.h"

extern struct mine {                     /* of this process */
	dlock_latch_t *latch;
	dlock_cond_t *cond;
	dlock_t *lock;
	dlock_id_t *gen;
} mine;

int latch_opened(const char *name, unsigned count);      /* in the place of the one before */
int cond_opened(const char *name, bool robust);
int ids_opened(const char *name);

/* Those who come to the condition. Under its lock; in memory that the test shares with all. */
extern struct crowd {
	unsigned in;
	bool died_inside;                /* one did, who had the lock */
} *crowd;

int lock_taken(int r);                   /* of a wait for it; a robust one is made consistent */
int cond_waited(const struct timespec *abs);     /* has come, and waited; NULL: as long as it takes. The lock is held after that, unless it cannot be had */

/* --- As acts: the text is the name --- */

int l_open(struct stage *s, uint64_t count);
int l_count(struct stage *s, uint64_t n);
int l_wait(struct stage *s, uint64_t ms);        /* 0: for ever */
int l_value(struct stage *s, uint64_t unused);   /* as the token */
int l_unlink(struct stage *s, uint64_t unused);

int c_open(struct stage *s, uint64_t robust);
int c_signal(struct stage *s, uint64_t all);
int c_wait(struct stage *s, uint64_t unused);            /* with its lock, which it gives back */
int c_are_in(struct stage *s, uint64_t n);               /* when so many have come, and have let go of the lock: so they wait */
int c_signal_one(struct stage *s, uint64_t n);           /* then */
int c_pass(struct stage *s, uint64_t unused);            /* takes the lock, and gives it back */

int i_open(struct stage *s, uint64_t unused);    /* the worker as the token */
int i_close(struct stage *s, uint64_t unused);

/* --- In the test --- */

unsigned ids_twice(uint64_t *ids, unsigned n);   /* how many of them are there twice; sorted afterwards. 0 is none */

#endif
