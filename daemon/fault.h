/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Places where a test may kill the daemon. In the daemon that is shipped they are nothing. Built
 * with DLOCK_FAULTS, the environment variable DLOCK_FAULT_AT=N raises SIGKILL at the N-th that is
 * passed. There is one before and one after each store to a segment or to the ledger.
 */
#ifndef DLOCK_FAULT_H
#define DLOCK_FAULT_H

#ifdef DLOCK_FAULTS
void fault_point(void);
void fault_arm(long n);                  /* instead of the variable; 0: none */
#else
static inline void fault_point(void)
{
}
#endif

/* Carries out one store between two such places. */
#define FAULT_AROUND(store)                                                                    \
	do {                                                                                   \
		fault_point();                                                                 \
		store;                                                                         \
		fault_point();                                                                 \
	} while (0)

/* Likewise a compare-and-swap: *old is what was there. */
#define FAULT_CAS(p, old, new, order, order_else)                                              \
	({                                                                                     \
		bool done_;                                                                    \
		FAULT_AROUND(done_ = __atomic_compare_exchange_n((p), (old), (new), false, (order), (order_else))); \
		done_;                                                                         \
	})

#endif
