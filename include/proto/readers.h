/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared holds: readers take a lock without writing to its word.
 *
 * Each thread that reads has a line of eight cells of its own in the segment. A cell says which slot is read, in which
 * era, and how often: so the processors of several readers do not contend for a cache line, and what a
 * process that died was reading is exactly its cells. The daemon gives lines out, and empties them.
 *
 *   cell   bits 43-63 slot + 1      gate   bits 43-63 grants    raised before the bias changes
 *               20-42 era                       20-42 era       another one: whatever was read before is lost
 *                0-19 how often                  0-15 upgrader  client that goes from shared to exclusive; 0: none
 *
 * What must hold, and who keeps it (tests/model steps these functions together with those of lockword.h):
 *
 *   a reader      finds its line marked in `readers`, sets its cell, then looks at the word (read_enter). It is inside if that has
 *                 L and R, or is a share (lockword.h), and no owner, Y or S, and the gate is as it was before. Else it empties
 *                 the cell again.
 *   an owner      of a word with R has it first, then looks at the cells of the lines that are marked
 *                 (readers_inside). Each of both has a full barrier in between, so one sees the other.
 *   the mark      is made before the cell is set. Only the daemon takes marks away, where it begins an era; whoever has been
 *                 stopped and makes one later has marked too much.
 *   leaving       empties the cell, then looks at `drain`. Who waits sets its bit there, then looks at the cells. Only who waits
 *                 has a barrier in between, but one for all processors. Who
 *                 empties it and is stopped before the wake costs a look of the waiting, every 10 ms.
 *   the era       is changed by the daemon alone, when holds are taken away: cells of an earlier one count for nothing.
 *                 A reader that was stopped between gate and word finds the gate changed.
 *   the number    of a reader's hold is bias + count as it came in (lockword.h). They belong together if the gate has
 *                 not changed, since grants are counted there.
 *   the upgrader  is one of the readers. There is one at most, and all others stand aside, owners too (they give the
 *                 word back), until it is over: so it waits for readers to leave and for nobody else.
 */
#ifndef DLOCK_READERS_H
#define DLOCK_READERS_H

#include <linux/membarrier.h>

#include "futex.h"
#include "lockword.h"
#include "segment.h"

#define GATE_UPGRADER UINT64_C(0xffff)
#define GATE_LOW      UINT64_C(0xfffff)
#define GATE_ERA      UINT64_C(0x7fffff00000)
#define GATE_ERA_ONE  UINT64_C(0x100000)
#define GATE_GRANT    UINT64_C(0x80000000000)
#define CELL_SHIFT    43
#define CELL_TIMES    UINT64_C(0xfffff)

_Static_assert(GATE_ERA + GATE_ERA_ONE == GATE_GRANT && GATE_GRANT == UINT64_C(1) << CELL_SHIFT, "no gaps");
_Static_assert(SEG_SLOTS_MAX < UINT64_C(1) << (64 - CELL_SHIFT), "a slot fits");

enum drain {
	DRAIN_OWNER = 1,                 /* one who owns the word, until the readers have left */
	DRAIN_DAEMON = 2,                /* the daemon, likewise: ring */
	DRAIN_ASIDE = 4,                 /* those who stand aside until an upgrade is over */
};

enum wants {
	WANTS_EXCLUSIVE = 1,             /* whoever asks for a lease wants to be alone ... */
	WANTS_SHARED = 2,                /* ... or to read ... */
	WANTS_UPGRADE = 4,               /* ... or reads, and wants to be alone before all others */

	WANTS = 7,                       /* said by those who sleep */
	WANTS_ASKED = 8,                 /* the daemon's, by so many bits higher: what it asks a lease for. It holds again if that comes to nothing */
};

/*
 * Each process that reads registers once, so that these barriers reach it. Without them, in a sandbox, looks are what is left.
 */
static inline void barrier_register(void)
{
	int saved = errno;

	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
	errno = saved;
}

static inline void barrier_everywhere(void)
{
	int saved = errno;

	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	errno = saved;
}

#ifndef LOCK_OPS                         /* the model brings its own */
#define READ_LOAD(p)    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define READ_EMPTY(p)   __atomic_store_n((p), 0, __ATOMIC_RELEASE)
#define READ_SWAP(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define READ_OR(p, v)   __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define READ_AND(p, v)  __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
#define READ_WAKE(p)    futex_wake_class((p), INT_MAX, LOCK_CLASS_ANY)
#endif

/* How a cell names its slot. */
static inline uint64_t cell_slot(uint32_t slot)
{
	return (uint64_t)(slot + 1) << CELL_SHIFT;
}

static inline uint64_t cell_of(uint32_t slot, uint64_t gate)
{
	return cell_slot(slot) | (gate & GATE_ERA);
}

static inline uint64_t line_mark(uint32_t line)
{
	return UINT64_C(1) << (line % 64);
}

static inline bool cell_is(uint64_t cell, uint64_t of)
{
	return !((cell ^ of) & ~CELL_TIMES);
}

/*
 * The cell is this thread's own and empty; gate: as it was read before. slow: LOCK_SLOW, with D for robust handles. *ret_number: of the
 * hold. false: it is not inside, and read_leave() is due.
 */
static inline bool read_enter(struct seg_slot *s, uint64_t *cell, uint64_t as, uint64_t gate, uint64_t mark, uint64_t slow,
			      uint64_t *ret_number)
{
	uint64_t w, bias;

	if (!(READ_LOAD(&s->readers) & mark))
		return false;            /* before the word: an owner of later is to see a mark that another line made */
	READ_SWAP(cell, as | 1);
	w = READ_LOAD(&s->word);
	if (!lock_may_read(w, slow))
		return false;
	bias = READ_LOAD(&s->bias);
	if (READ_LOAD(&s->gate) != gate)
		return false;
	*ret_number = bias + lock_count(w);
	return true;
}

/*
 * Returns whether somebody waits for readers to leave: then read_left() is due. Without a barrier: who is about to sleep brings
 * that about (barrier_everywhere), and where it cannot, looks again every 10 ms.
 */
static inline bool read_leave(struct seg_slot *s, uint64_t *cell)
{
	READ_EMPTY(cell);
	return READ_LOAD(&s->drain);
}

/* Wakes who waits for it. Returns whether the bell is to be rung for the slot (SEG_WANT). */
static inline bool read_left(struct seg_slot *s)
{
	uint32_t was = READ_AND(&s->drain, ~(uint32_t)(DRAIN_OWNER | DRAIN_DAEMON));

	if (was & DRAIN_OWNER)
		READ_WAKE(&s->drain);
	return was & DRAIN_DAEMON;
}

/*
 * The cell of one who is inside and is not `mine`, or NULL. By the owner of the word, or by the daemon after Y. used: lines that can be
 * looked at.
 */
static inline uint64_t *readers_inside(void *base, const struct seg_slot *s, uint64_t as, uint64_t used, const uint64_t *mine)
{
	uint64_t marks;

#ifndef __SANITIZE_THREAD__              /* which knows no fences */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	marks = READ_LOAD(&s->readers);
	for (uint64_t bits = marks; bits; bits &= bits - 1)
		for (uint32_t line = (uint32_t)__builtin_ctzll(bits); line < used; line += 64) {
			uint64_t *cells = seg_line(base, line);

			for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
				if (&cells[i] != mine && cell_is(READ_LOAD(&cells[i]), as))
					return &cells[i];
		}
	return NULL;
}

#endif
