/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who of those that sleep on a lock's word is woken next: the one with the highest priority, and of the same priority who
 * came first, as the kernel has it. To be included in place of lockword.h by whoever wakes for real.
 *
 * A waiter with a priority sleeps in one more class, that of its rank, and says in the slot that there is one such. The wake of
 * one asks for the ranks that are there, the highest first; for one that nobody sleeps in any more the slot forgets it. A name
 * without priorities costs one load more, when somebody is to be woken.
 *
 * What lockword.h promises does not depend on whom a wake reaches, but that it reaches one if any sleeps: a rank that has
 * been forgotten too early costs its waiter the order, since all sleep in the class of waiters besides. Who has been woken, or is the heir,
 * comes first whatever its priority.
 */
#ifndef DLOCK_RANKED_H
#define DLOCK_RANKED_H

#ifdef DLOCK_LOCKWORD_H
#error "ranked.h comes before lockword.h"
#endif

#include "futex.h"
#include "segment.h"

/* Classes: 2 below are lockword.h's, 8 above the library's. */
#define RANK_CLASSES UINT32_C(0x00fffffc)
#define RANK_EXACT   16u                 /* priorities 1 to 16 have a rank each; those above share six */
#define RANK_STEP    40u

/* Of a priority, 0 to 255. 0 has none. */
static inline uint32_t rank_class(unsigned priority)
{
	if (!priority)
		return 0;
	return UINT32_C(4) << (priority <= RANK_EXACT ? priority - 1 : RANK_EXACT + (priority - RANK_EXACT - 1) / RANK_STEP);
}

/* Wakes one of the class, the first in rank. */
static inline int rank_wake(uint64_t *word, unsigned class)
{
	struct seg_slot *slot = (struct seg_slot *)word;
	uint32_t ranks = class & 1 ? (uint32_t)__atomic_load_n(&slot->ranked, __ATOMIC_ACQUIRE) & RANK_CLASSES : 0;

	while (ranks) {
		uint32_t top = UINT32_C(1) << (31 - __builtin_clz(ranks));
		int woken = futex_wake_class((uint32_t *)word, 1, top);

		if (woken)
			return woken;
		ranks &= ~top;
		__atomic_fetch_and(&slot->ranked, ~(uint64_t)top, __ATOMIC_RELAXED);
	}
	return futex_wake_class((uint32_t *)word, 1, class);
}

#ifndef LOCK_OPS
#define LOCK_WAKE_NEXT(p, class) rank_wake((p), (class))
#endif

#endif
