/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a node of a cluster asks of the store: of each kind one request at a time. The bytes of key and
 * value stay until the answer, as the action promises.
 */
#ifndef DLOCK_CORE_ASK_H
#define DLOCK_CORE_ASK_H

#include "map.h"
#include "step.h"

#define ASK_KINDS(X)                                                                           \
	X(BEAT)           /* read or write our own beat */                                     \
	X(RECORD)         /* read or write our own member record */                            \
	X(MAP)            /* read the map */                                                   \
	X(PLAN)           /* write the map */                                                  \
	X(MEMBERS)        /* list the member records */                                        \
	X(BEATS)          /* list the beats */                                                 \
	X(BURY)           /* end a session, clear away what is left of one */                  \
	X(BURY_2) X(BURY_3) X(BURY_4)                                                          \
	X(CUT)            /* read or write our own record of whom we do not reach */           \
	X(CUTS)           /* list those records */                                             \
	X(DELAYS)         /* read or write the longest lock-delays */

enum ask_kind {
#define X(name) ASK_##name,
	ASK_KINDS(X)
#undef X
	ASK_N
};

#define ASK_BURIALS (ASK_BURY_4 - ASK_BURY + 1)

#define ASK_KEY_MAX 24

struct ask {
	uint32_t op;                     /* 0: nothing is asked */
	bool stale;                      /* asked in an earlier session: the answer is for nobody */
	char key[ASK_KEY_MAX];
	uint8_t value[CLUSTERMAP_BYTES_MAX];
};

struct asks {
	uint32_t op;
	struct ask v[ASK_N];
};

static inline bool asking(const struct asks *a, enum ask_kind kind)
{
	return a->v[kind].op;
}

/* prefix and 16 hex digits of the session */
void ask_key(struct ask *a, const char *prefix, uint64_t session);

/* Each sends a->v[kind], whose key, and for a write whose value, have been filled in. */
void ask_get(struct asks *a, enum ask_kind kind, struct step *s);
void ask_list(struct asks *a, enum ask_kind kind, struct step *s);
void ask_cas(struct asks *a, enum ask_kind kind, uint64_t version, uint32_t len, struct step *s);
void ask_delete(struct asks *a, enum ask_kind kind, uint64_t version, struct step *s);

/* What is asked now is for nobody. */
void ask_forget(struct asks *a, enum ask_kind kind);

/* The kind that this answer is of, which then asks nothing. ASK_N: a stale one. -EINVAL: nobody waits for it. */
int ask_answered(struct asks *a, uint32_t op);

#endif
