/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lockword.h as the daemon uses it: a place for faults around every store, and no belief in what a
 * look has found. Every store of the daemon's to a segment goes through here.
 */
#ifndef DLOCK_WORD_H
#define DLOCK_WORD_H

#include "../fault.h"

#ifdef DLOCK_FAULTS
#define LOCK_OPS
#include "../../include/proto/ranked.h"
#define LOCK_LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define LOCK_CAS(p, old, new, order) FAULT_CAS(p, old, new, order, __ATOMIC_RELAXED)
#define LOCK_WAKE(p, n, class)                                                                 \
	({                                                                                     \
		int woken_ = futex_wake_class(lock_futex(p), (n), (class));                    \
		fault_point();                                                                 \
		woken_;                                                                        \
	})
#define LOCK_WAKE_NEXT(p, class)                                                                \
	({                                                                                     \
		int woken_ = rank_wake((p), (class));                                          \
		fault_point();                                                                 \
		woken_;                                                                        \
	})
#include "../../include/proto/lockword.h"
#undef LOCK_OPS
#else
#include "../../include/proto/ranked.h"
#include "../../include/proto/lockword.h"
#endif

#include "../../include/proto/readers.h"

static inline void word_store(uint64_t *field, uint64_t value)
{
	FAULT_AROUND(__atomic_store_n(field, value, __ATOMIC_RELEASE));
}

static inline void word_store32(uint32_t *field, uint32_t value)
{
	FAULT_AROUND(__atomic_store_n(field, value, __ATOMIC_RELEASE));
}

#endif
