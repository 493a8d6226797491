/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What clients and daemon say to each other about latches, condition variables and worker ids, whose truth lies in
 * the store: too rarely for a fast path, but not over the attach socket, on which one answer would wait for the other.
 *
 * The account's slot is a letter box, for one request at a time (the threads of a process take turns):
 *
 *   client   arg, then request = number << 32 | op, release; sets the slot's SEG_WANT bit, rings
 *   daemon   value, then answer = number << 32 | errno, release; raises the bell, wakes those who sleep on its low half
 *
 * Numbers rise by one. A request stays until it is answered, over restarts of the daemon too, and is carried out
 * once. Only SMALL_CANCEL may be written over one that is not answered (SMALL_ENTER, which has the number before).
 *
 * The object's slot: what all may see without asking. The daemon writes it, but for an id's word.
 *
 * Little-endian words of 64 bits; the daemon believes none of them beyond what their writer could have asked for.
 */
#ifndef DLOCK_SMALL_H
#define DLOCK_SMALL_H

#include <stdbool.h>
#include <stdint.h>

#define SMALL_OPS(X)                                                                                    \
	X(OPEN)           /* latch: made with the count arg, where it is not there. As LOOK, whose        \
	                     value is birth << 32 | count */                                             \
	X(LOOK)           /* latch: its birth in arg's high half. ENOENT: unlinked, also if made anew */  \
	X(COUNT)          /* latch: down by arg's low half; the high half and ENOENT likewise */         \
	X(UNLINK)         /* latch: the record goes. ENOENT */                                           \
	X(ENTER)          /* condition: waits, with the request's number as its ticket. ENOSPC */        \
	X(CANCEL)         /* condition: no more with ticket arg. value 1: it was signalled before */     \
	X(SIGNAL)         /* condition: arg waiters, UINT32_MAX all */                                   \
	X(RESERVE)        /* ids: answered when some are to be had. ENOSPC: all numbers are taken */

enum small_op {
	SMALL_NONE,
#define X(name) SMALL_##name,
	SMALL_OPS(X)
#undef X
};

struct small_account {
	uint64_t bell;                   /* the daemon's: rises with each change below */
	uint64_t request, arg;           /* the client's */
	uint64_t answer, value;          /* the daemon's */
	uint64_t passed;                 /* condition, the daemon's: tickets up to this one are signalled */
	uint64_t taken;                  /* condition, the client's: how many threads have left their wait, being signalled */
	uint64_t reserved;
};

/*
 * A latch: its state is slept on. A state does not come back: the generation, above it, rises. A birth, never 0, tells a latch from one of the
 * same name that was unlinked before; in a request 0 stands for whichever is there.
 */
enum latch_state {
	LATCH_UNKNOWN,                   /* the store has not been read yet */
	LATCH_CLOSED,
	LATCH_OPEN,
	LATCH_GONE,                      /* unlinked */
};
#define LATCH_STATE UINT32_C(3)

struct small_latch {
	uint64_t state;                  /* birth << 32 | low half: generation << 2 | enum latch_state */
	uint64_t count;                  /* as last seen */
	uint64_t reserved[6];
};

/*
 * Ids: the word is the last id that was given out, 41 bits of milliseconds since 2024-01-01, 10 of worker,
 * 12 of sequence; clients raise it by compare-and-swap, to below the ceiling. With ID_CLOSED there is no number.
 */
#define ID_EPOCH_MS UINT64_C(1704067200000)
#define ID_MS_MAX   ((UINT64_C(1) << 41) - 1)
#define ID_MS_SHIFT 22
#define ID_WORKERS  1024u
#define ID_SEQUENCE UINT64_C(0xfff)
#define ID_WORKER   UINT64_C(0x3ff000)
#define ID_CLOSED   (UINT64_C(1) << 63)
#define ID_LEAD_MS  3000u                /* so far ahead the ceiling is raised ... */
#define ID_LOW_MS   2000u                /* ... when less than this is left; then a client sets the object's SEG_WANT bit */
#define ID_AHEAD_MS 10000u               /* ids run ahead of the clock by so much, at most */

struct small_id {
	uint64_t word;
	uint64_t ceiling_ms;             /* written while the word is closed, or raised */
	uint64_t asked_ms;               /* the ceiling that a client has found low; one of them rings */
	uint64_t reserved[5];
};

_Static_assert(sizeof(struct small_account) == 64 && sizeof(struct small_latch) == 64 && sizeof(struct small_id) == 64,
	       "a slot");

static inline uint64_t small_request(uint32_t number, enum small_op op)
{
	return (uint64_t)number << 32 | (uint64_t)op;
}

/* The id after the last one, at this time; not above the last one's time by more than it must be. */
static inline uint64_t id_after(uint64_t last, uint64_t now_ms)
{
	uint64_t ms = last >> ID_MS_SHIFT;

	if (now_ms > ms)
		return now_ms << ID_MS_SHIFT | (last & ID_WORKER);
	if ((last & ID_SEQUENCE) != ID_SEQUENCE)
		return last + 1;
	return (ms + 1) << ID_MS_SHIFT | (last & ID_WORKER);
}

#endif
