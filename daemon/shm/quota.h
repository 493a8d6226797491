/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What one user may have of the node at a time, so that none can keep all others out. Everybody may
 * come to the attach socket, also those whom no space lets in.
 *
 * Root and the daemon's own user are not limited: they could end the daemon anyway.
 */
#ifndef DLOCK_QUOTA_H
#define DLOCK_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Name, and how many: a quarter of what the node has, where that is bounded. */
#define QUOTAS(X)                                                                              \
	X(CONNS, 17408)          /* as many as clients, and some who have not said yet who they are */ \
	X(CLIENTS, 16384)                                                                      \
	X(SPACES, 64)            /* that it made on demand */                                  \
	X(OPENS, 2097152)        /* names that its clients have open, each counted for each of them */ \
	X(HINTS, 8192)           /* descriptors from dlock_fd() */

enum quota_kind {
#define X(name, max) QUOTA_##name,
	QUOTAS(X)
#undef X
	QUOTA_KINDS
};

struct quota;

struct quotas {
	struct quota *bucket[64];        /* by user; those who have nothing are not kept */
};

/* -EDQUOT: it has as many as it may have; -ENOMEM. */
int quota_take(struct quotas *q, uid_t uid, enum quota_kind kind);
void quota_note(struct quotas *q, uid_t uid, enum quota_kind kind);      /* of before a restart: it has that already */
void quota_give(struct quotas *q, uid_t uid, enum quota_kind kind);
bool quota_room(uint32_t has, uid_t uid, enum quota_kind kind);  /* for one more, where the caller counts */
uint32_t quota_of(const struct quotas *q, uid_t uid, enum quota_kind kind);
void quotas_done(struct quotas *q);

#endif
