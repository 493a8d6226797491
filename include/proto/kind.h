/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a name can be. Each kind has a namespace of its own: a lock "s/n" and a semaphore "s/n" are two things.
 *
 * Locks and elections have a word that is taken exclusively (lockword.h). All others are objects
 * (daemon/shm/object.h): what their slot means is theirs, and each client that has one open has an
 * account of its own in it, another slot.
 */
#ifndef DLOCK_KIND_H
#define DLOCK_KIND_H

#include <stdbool.h>
#include <stdint.h>

/* The kind, its name for people, and whether it is an object. In the protocol and in the ledger: only additions. */
#define KINDS_LIST(X)                                                                          \
	X(LOCK, "lock", false)                                                                 \
	X(SEM, "semaphore", true)                                                              \
	X(BARRIER, "barrier", true)                                                            \
	X(ELECT, "election", false)                                                            \
	X(LATCH, "latch", true)                                                                \
	X(COND, "condition", true)                                                             \
	X(ID, "id", true)                                                                      \
	X(POOL, "free semaphore", true)                                                        \
	X(LEAVE, "barrier to leave by", true) /* of older libraries */                         \
	X(DOUBLE, "double barrier", true)

enum kind {
#define X(name, text, object) KIND_##name,
	KINDS_LIST(X)
#undef X
	KINDS
};

static inline const char *kind_text(enum kind k)
{
	static const char *const text[KINDS] = {
#define X(name, text, object) text,
		KINDS_LIST(X)
#undef X
	};

	return text[k];
}

static inline bool kind_is_object(enum kind k)
{
	static const bool is[KINDS] = {
#define X(name, text, object) object,
		KINDS_LIST(X)
#undef X
	};

	return is[k];
}

/* The node that masters the name grants it to others, as claims with weights; the rest lie in the store, or are rounds. */
static inline bool kind_is_granted(enum kind k)
{
	return k == KIND_LOCK || k == KIND_SEM || k == KIND_ELECT || k == KIND_POOL;
}

/* Between space and name in the key by which the cluster knows it. Names have no control characters, and spaces no slash. */
static inline char kind_mark(enum kind k)
{
	return k == KIND_LOCK ? '/' : (char)k;
}

#endif
