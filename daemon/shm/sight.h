/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Since when names are held, as far as anybody has looked. Who takes a lock whose lease is here tells nobody, so a hold has no
 * beginning that the daemon knows; it knows what it has seen: at `before` it was not there yet, and since `from` it is.
 *
 * What must hold: both are true of the very hold that is asked about, whatever has been closed, opened or forgotten meanwhile. A hold is
 * what name, kind and token say together (of permits: client, grant and count); another one under the same key begins anew.
 *
 * There are looks when names have been opened or granted (a tenth of a second later), while somebody waits (watch.c), when
 * somebody asks, and at a restart: none of them makes an idle daemon wake. The table is of fixed size: what falls out is
 * seen anew at its next look. Nothing of it outlives the daemon.
 */
#ifndef DLOCK_SHM_SIGHT_H
#define DLOCK_SHM_SIGHT_H

#include "shm.h"

struct sight_span {
	nsec_t before, from;             /* CLOCK_BOOTTIME; 0: not known */
};

/* --- the table --- */

struct sight_table;

struct sight_table *sight_table_new(void);       /* NULL: no memory, and nothing is known ever */
void sight_table_free(struct sight_table *t);

/* Under `key` there is `what` now: not 0. `then`: what was seen there otherwise; 0 times: nothing was. Any table may be NULL. */
void sight_note(struct sight_table *t, uint64_t key, uint64_t what, struct sight_span then, nsec_t now);
void sight_note_none(struct sight_table *t, uint64_t key, nsec_t now);   /* there is nothing */
struct sight_span sight_of(const struct sight_table *t, uint64_t key, uint64_t what);

/* --- names; those that are no locks are ignored --- */

void sights_init(struct shm *shm);
void sights_done(struct shm *shm);
void sight_soon(struct space *s, uint32_t slot);         /* somebody may take it now */
void sight_lock(struct space *s, uint32_t slot);         /* is looked at */

/* Looks, too. Of a lock: of whom it belongs to now; of a semaphore: of the permits of that client. */
struct sight_span sight_hold(struct space *s, uint32_t slot, uint32_t client);

#endif
