/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A free semaphore: permits that belong to nobody. While a node has the name's lease, its value is a word in the object's
 * slot, which all processes of the node change as they would a sem_t; otherwise the word is closed.
 *
 *   value    bits 0-30   the value; the low half is the futex
 *                31      closed: nobody changes the value
 *                32-63   how many of `posts` are in it, modulo 2^32
 *   posts    how many came while it was closed, in all: the daemon adds them when it has opened it
 *   waiters  how many sleep, or may: who dies in its sleep stays counted, which costs system calls only
 *
 * What must hold:
 *   no lost wake  who waits is counted, then looks at the value, and sleeps while that is what it saw. A post changes the
 *                 value, then looks for waiters. Whoever opens or closes wakes all. For those who were stopped in between, or stopped
 *                 when they had been woken, the daemon looks every 10 to 50 ms while anybody sleeps; whoever sleeps rings unless it does.
 *                 When one dies it wakes all.
 *   written       is set before the daemon reads the value that it writes to the store, and cleared after a change: so no
 *                 change goes unnoticed
 *   no lost post  one that finds the word closed adds to `posts`, then rings. The daemon adds them to the value, and to the
 *                 number of those that are in it, by one swap: so none is lost or added twice, whenever it dies.
 */
#ifndef DLOCK_POOLWORD_H
#define DLOCK_POOLWORD_H

#include <stdbool.h>
#include <stdint.h>

#define POOL_VALUE_MAX 0x7fffffffu
#define POOL_CLOSED    UINT64_C(0x80000000)

struct pool_words {
	uint64_t value;
	uint64_t posts;
	uint64_t watched;                /* seg_slot.watched: the daemon looks after those who sleep */
	uint64_t waiters;
	uint64_t written;                /* 1: the value is in the store; whoever changes it clears this, and rings */
	uint64_t more[3];
};
_Static_assert(sizeof(struct pool_words) == 64, "a slot of the segment");

/* Questions in the account's box (semword.h), with the initial value as argument. They are answered when the store has been asked. */
enum pool_box {
	POOL_BOX_OPEN = 16,              /* ENOENT */
	POOL_BOX_CREATE,                 /* where it is not there */
	POOL_BOX_CREATE_NEW,             /* EEXIST */
	POOL_BOX_UNLINK,                 /* ENOENT */
};

/* Posts that are not in the value yet. */
static inline uint32_t pool_pending(uint64_t value, uint64_t posts)
{
	return (uint32_t)posts - (uint32_t)(value >> 32);
}

static inline bool pool_take(uint64_t *value, uint32_t n)
{
	uint64_t v = __atomic_load_n(value, __ATOMIC_SEQ_CST);

	do {
		if ((v & POOL_CLOSED) || (v & POOL_VALUE_MAX) < n)
			return false;
	} while (!__atomic_compare_exchange_n(value, &v, v - n, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return true;
}

enum pool_given { POOL_GIVEN, POOL_FULL, POOL_IS_CLOSED };

static inline enum pool_given pool_give(uint64_t *value, uint32_t n)
{
	uint64_t v = __atomic_load_n(value, __ATOMIC_RELAXED);

	do {
		if (v & POOL_CLOSED)
			return POOL_IS_CLOSED;
		if ((v & POOL_VALUE_MAX) + n > POOL_VALUE_MAX)
			return POOL_FULL;
	} while (!__atomic_compare_exchange_n(value, &v, v + n, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	return POOL_GIVEN;
}

#endif
