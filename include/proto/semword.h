/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client's account of one semaphore: a cache line in shared memory, written by its process and by the daemon.
 *
 *   word    bits  0-30  sum     permits that the process has: held, or idle and cached for its next wait
 *                31     A       attention: a post goes the long way
 *                32-62  taken   how many have been taken in all, modulo 2^31
 *                63     B       barred: newcomers take nothing, only the first in line does
 *   given   bits  0-30          how many have been given back in all, modulo 2^31
 *   lost    bits  0-30          what `taken` was at the last lapse, while
 *                31     L       not all of those have been given back yet: the first that are given are these
 *
 * So held = taken - given, or taken - lost where that is less, and idle = sum - held. A wait is one compare-and-swap of the word. A post changes
 * `given`, which the daemon leaves alone: where the process has one thread only, a store is enough for it.
 *
 * What must hold, and who keeps it (tests/unit/test_semword.c steps these very functions through every order of
 * clients and the daemon, with a death of either side at any step):
 *
 *   the sum     is changed by the daemon alone. So what a dead client leaves is exactly its sum, and nothing that
 *               happens between two instructions can lose or make a permit. The daemon's ledger has each sum
 *               besides: written before a grant reaches the word, and after what is taken back has left it. So the
 *               ledger's sum is never below the word's; a word that says more has been scribbled on, and counts as
 *               "all held".
 *   idle        what the daemon reads of `given` may be old, and then idle is more than it sees, never less, as long as the
 *               word is still what it was: that is what its swap asks for.
 *   A           is set while anybody of the process waits, the daemon wants permits back (SEM_YIELD), or some
 *               were lost that have not been posted since. Whoever clears it looks for all three again after that. A post looks
 *               for A before and after; with one thread, there is no barrier in between, and the daemon looks again.
 *   no lost     `bell` is the futex. Who waits reads it, then sets A, then looks whether it can take, and sleeps while the bell
 *   wake        is what it was; who grants or gives looks for A after that, raises the bell and wakes.
 *               Who rings the daemon may be stopped before he does: while anybody waits it looks every 10 to 50 ms.
 *   asking      the first in line writes what it wants, then sets the account's bit in SEG_WANT and rings, unless the daemon
 *               says that it has it in its queue (SEM_QUEUED). Each asking has a turn of its own; what the daemon refuses
 *               it refuses to a turn. What it grants it adds to the sum.
 *   a lapse     takes all away: lost = taken, sum = 0. Posts of what was lost go on raising `given`, also one that is on its way
 *               at this moment, and give back nothing; nor do they ever give back what was taken since. L is cleared by the
 *               post that gives back the last of them, long before `taken` could come round to `lost` again.
 *
 *   transition   by       from                    to                          order
 *   take         client   idle >= n, !B or first  taken + n                   acquire (given: acquire)
 *   give         client   taken - given >= n      given + n                   release
 *   announce     client   any                     A; first for long: B        seq_cst
 *   clear        client   A, B                    !A, !B                      seq_cst
 *   settle       client   L, given at lost        !L                          seq_cst
 *   grant        daemon   sum as in the ledger    sum + k                     release
 *   reclaim      daemon   sum as in the ledger    sum - k, k <= idle          acquire (given: acquire)
 *   bar, unbar   daemon   any                     A B; !B                     seq_cst
 *   lapse        daemon   any                     lost = taken, L; then sum 0, A      acquire
 *   reset        daemon   sum not the ledger's    all of the ledger's sum is held     relaxed
 */
#ifndef DLOCK_SEMWORD_H
#define DLOCK_SEMWORD_H

#include <stdbool.h>
#include <stdint.h>

#define SEM_SUM      UINT64_C(0x000000007fffffff)
#define SEM_A        UINT64_C(0x0000000080000000)
#define SEM_TAKEN    UINT64_C(0x7fffffff00000000)
#define SEM_B        UINT64_C(0x8000000000000000)
#define SEM_GIVEN    UINT64_C(0x000000007fffffff)
#define SEM_L        UINT32_C(0x80000000)
#define SEM_PERMITS_MAX 0x7fffffffu

struct sem_account {
	uint64_t word;
	uint64_t token;                  /* the daemon: of the newest grant */
	uint64_t given;                  /* seg_slot.watched: of no use for an account */
	uint64_t want;                   /* the client: permits (bits 0-30), SEM_TRIES, turn (high half); permits 0: nothing */
	uint64_t answer;                 /* the daemon: errno (low half) to that turn (high half) */
	uint64_t state;                  /* the daemon: SEM_YIELD, SEM_QUEUED */
	uint32_t bell;                   /* the futex */
	uint32_t lost;                   /* the daemon sets it, the client clears it */
	uint64_t box;                    /* a question to the daemon: enum sem_box (low half, a futex), argument or answer (high half) */
};
_Static_assert(sizeof(struct sem_account) == 64, "a slot of the segment");

#define SEM_WANTS    UINT64_C(0x000000007fffffff)
#define SEM_TRIES    UINT64_C(0x0000000080000000)

#define SEM_YIELD    UINT64_C(1)         /* permits are wanted elsewhere: who posts rings, and nobody here takes */
#define SEM_QUEUED   UINT64_C(2)         /* the daemon knows of what is wanted */

/* Any other value: free. The client goes from free to a question, and from an answer to free; the daemon from a question to an answer. */
enum sem_box {
	SEM_BOX_FREE,
	SEM_BOX_RESIZE,                  /* argument: permits */
	SEM_BOX_VALUE,
	SEM_BOX_DONE,                    /* answer: the value, or 0 */
	SEM_BOX_FAILED,                  /* answer: errno */
};

/* A process stands back for its own first in line after so long. */
#define SEM_FORCE_NS 750000u

#ifndef SEM_OPS                          /* daemon/shm/sem.h and the model bring their own */
#define SEM_LOAD(p, order) __atomic_load_n((p), (order))
#define SEM_STORE(p, v, order) __atomic_store_n((p), (v), (order))
#define SEM_CAS(p, old, new, order)                                                            \
	__atomic_compare_exchange_n((p), (old), (new), false, (order), __ATOMIC_RELAXED)
#endif

static inline uint32_t sem_sum(uint64_t w)
{
	return (uint32_t)(w & SEM_SUM);
}

/* Waits that no post has followed yet, of what was lost too. */
static inline uint32_t sem_out(uint64_t w, uint64_t g)
{
	return ((uint32_t)(w >> 32) - (uint32_t)g) & SEM_PERMITS_MAX;
}

/* Of those, how many were lost. */
static inline uint32_t sem_stale(uint64_t w, uint64_t g, uint32_t lost)
{
	uint32_t out = sem_out(w, g), since = ((uint32_t)(w >> 32) - lost) & SEM_PERMITS_MAX;

	return (lost & SEM_L) && since < out ? out - since : 0;
}

static inline uint32_t sem_idle(uint64_t w, uint64_t g, uint32_t lost)
{
	uint32_t held = sem_out(w, g) - sem_stale(w, g, lost);

	return held < sem_sum(w) ? sem_sum(w) - held : 0;
}

/* n >= 1. bar: SEM_B, or 0 for the first in line. Without regard to what was lost (0) it is only more careful. */
static inline bool sem_may_take(uint64_t w, uint64_t g, uint32_t lost, uint32_t n, uint64_t bar)
{
	return !(w & bar) && sem_idle(w, g, lost) >= n;
}

static inline uint64_t sem_taken(uint64_t w, uint32_t n)
{
	return (w & ~SEM_TAKEN) | ((w + ((uint64_t)n << 32)) & SEM_TAKEN);
}

static inline bool sem_may_give(uint64_t w, uint64_t g, uint32_t n)
{
	return sem_out(w, g) >= n;
}

static inline uint64_t sem_given(uint64_t g, uint32_t n)
{
	return (g & ~SEM_GIVEN) | ((g + n) & SEM_GIVEN);
}

/* --- The client --- */

static inline bool sem_take(struct sem_account *a, uint32_t n, uint64_t bar)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_RELAXED);

	do {
		if (!sem_may_take(w, SEM_LOAD(&a->given, __ATOMIC_ACQUIRE), SEM_LOAD(&a->lost, __ATOMIC_ACQUIRE), n, bar))
			return false;
	} while (!SEM_CAS(&a->word, &w, sem_taken(w, n), __ATOMIC_ACQUIRE));
	return true;
}

/* Beside other threads. *ret_a: A is set now, and what it asks for is the caller's to do. *ret_stale: so many had been lost. */
static inline bool sem_give(struct sem_account *a, uint32_t n, bool *ret_a, uint32_t *ret_stale)
{
	uint64_t g = SEM_LOAD(&a->given, __ATOMIC_RELAXED), w;

	do {
		w = SEM_LOAD(&a->word, __ATOMIC_SEQ_CST);
		if (!sem_may_give(w, g, n))
			return false;
		*ret_stale = sem_stale(w, g, SEM_LOAD(&a->lost, __ATOMIC_SEQ_CST));
	} while (!SEM_CAS(&a->given, &g, sem_given(g, n), __ATOMIC_SEQ_CST));
	*ret_a = SEM_LOAD(&a->word, __ATOMIC_SEQ_CST) & SEM_A;
	return true;
}

/* The only thread of its process. false: it holds fewer, or A is set: all is as it was. */
static inline bool sem_give_alone(struct sem_account *a, uint32_t n, bool *ret_a)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_RELAXED), g = SEM_LOAD(&a->given, __ATOMIC_RELAXED);

	if ((w & SEM_A) || !sem_may_give(w, g, n))
		return false;
	SEM_STORE(&a->given, sem_given(g, n), __ATOMIC_RELEASE);
	*ret_a = SEM_LOAD(&a->word, __ATOMIC_RELAXED) & SEM_A;
	return true;
}

/* Is something lost that has not been posted yet? What has all been posted is forgotten. */
static inline bool sem_owes(struct sem_account *a)
{
	uint32_t lost = SEM_LOAD(&a->lost, __ATOMIC_SEQ_CST);
	uint64_t g = SEM_LOAD(&a->given, __ATOMIC_SEQ_CST), w = SEM_LOAD(&a->word, __ATOMIC_SEQ_CST);

	if (!(lost & SEM_L))
		return false;
	return sem_stale(w, g, lost) || !SEM_CAS(&a->lost, &lost, 0, __ATOMIC_SEQ_CST);
}

/* --- Both --- */

static inline void sem_set(uint64_t *word, uint64_t bits)
{
	uint64_t w = SEM_LOAD(word, __ATOMIC_RELAXED);

	while ((w & bits) != bits && !SEM_CAS(word, &w, w | bits, __ATOMIC_SEQ_CST))
		;
}

/* Whoever clears looks again for what the bits stand for. */
static inline void sem_clear(uint64_t *word, uint64_t bits)
{
	uint64_t w = SEM_LOAD(word, __ATOMIC_RELAXED);

	while ((w & bits) && !SEM_CAS(word, &w, w & ~bits, __ATOMIC_SEQ_CST))
		;
}

/* --- The daemon. sum: what its ledger says, before the change. --- */

/* false: the word is not what the ledger allows. */
static inline bool sem_grant(struct sem_account *a, uint32_t k, uint32_t sum)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_RELAXED);

	do {
		if (sem_sum(w) != sum || k > SEM_PERMITS_MAX - sum)
			return false;
	} while (!SEM_CAS(&a->word, &w, w + k, __ATOMIC_RELEASE));
	return true;
}

/* How many have been taken out. */
static inline uint32_t sem_reclaim(struct sem_account *a, uint32_t most, uint32_t sum)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_RELAXED);
	uint32_t k;

	do {
		k = sem_idle(w, SEM_LOAD(&a->given, __ATOMIC_ACQUIRE), SEM_LOAD(&a->lost, __ATOMIC_RELAXED));
		k = k < most ? k : most;
		if (sem_sum(w) != sum || !k)
			return 0;
	} while (!SEM_CAS(&a->word, &w, w - k, __ATOMIC_ACQUIRE));
	return k;
}

/* All of it is lost. */
static inline void sem_lapse(struct sem_account *a)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_SEQ_CST);

	do {
		SEM_STORE(&a->lost, (uint32_t)(w >> 32 & SEM_GIVEN) | SEM_L, __ATOMIC_SEQ_CST);
	} while (!SEM_CAS(&a->word, &w, (w & ~SEM_SUM) | SEM_A, __ATOMIC_SEQ_CST));
}

/* What cannot be is taken for all held. */
static inline void sem_reset(struct sem_account *a, uint32_t sum)
{
	uint64_t w = SEM_LOAD(&a->word, __ATOMIC_RELAXED), taken;

	SEM_STORE(&a->lost, 0, __ATOMIC_SEQ_CST);
	do {
		taken = (SEM_LOAD(&a->given, __ATOMIC_RELAXED) + sum) & SEM_GIVEN;
	} while (!SEM_CAS(&a->word, &w, (w & (SEM_A | SEM_B)) | sum | taken << 32, __ATOMIC_RELAXED));
}

#endif
