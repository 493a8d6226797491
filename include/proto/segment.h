/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What daemon and clients share in memory. Fixed-width little-endian types, no pointers.
 *
 * A space's segment (read-write for its clients, RUN/shm/SPACE):
 *
 *   offset 0          head            what this is, written once
 *   SEG_BITS2_OFF     bits, level 2   one bit per 64-bit word of level 1
 *   SEG_BITS1_OFF     bits, level 1   one bit per slot; SEG_WATCH and SEG_WANT
 *   SEG_HATCH1_OFF    hatch bits      one bit per client (hatch.h); their second level is in the page of the head
 *   SEG_AREA_OFF      client areas    one page per client index: its waiting threads, for display; and its hatch (hatch.h)
 *   SEG_LINE_OFF      readers' lines  one cache line for each thread that reads (readers.h)
 *   SEG_SLOT_OFF      slots           one cache line per open name
 *   SEG_VALUE_OFF     value pages     one per slot, of those that have one (value.h). Behind SEG_SIZE, which is what
 *                                     clients map: each maps the pages that it needs
 *
 * The file has its full size from the start and is sparse; the daemon allocates a chunk
 * (fallocate) before it hands out anything in it, so a full tmpfs is an error at open, never a
 * SIGBUS. Whoever may open the space may scribble over all of it: the daemon copies, then checks.
 *
 * The node page (read-only for clients, RUN/shm/node.page) has a line per space with the deadline
 * after which a client must not rely on that space. Line 0 is the node's own.
 *
 * Bits. A client that sets W puts the slot on the daemon's watch list: unless the slot says that it
 * is watched, it sets its bit in SEG_WATCH and rings the bell. A bit that is set already does not
 * excuse it: who set that may have been stopped before he rang. The daemon clears watched and the
 * bit when it drops the slot, and looks once more after that, with all that belongs to a look. A
 * client that needs tokens sets the bit in SEG_WANT and rings. Bits are set level 1 first; the
 * daemon clears level 2 first.
 *
 * The bell of a space is a FIFO, RUN/shm/SPACE.bell, open for reading and writing on both sides:
 * so it outlives the daemon, a ring meanwhile is kept, and nobody gets SIGPIPE (an eventfd would
 * be lost with the daemon's process). While the daemon is awake a word in memory does for it (seg_ring() in hatch.h).
 */
#ifndef DLOCK_SEGMENT_H
#define DLOCK_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#define SEG_MAGIC       UINT64_C(0x3147455342434c44)    /* "DLCBSEG1" */
#define SEG_MAJOR       1
#define SEG_MINOR       0

#define SEG_SLOTS_MAX   (UINT32_C(1) << 20)             /* names open at a time in a space */
#define SEG_CLIENTS_MAX (UINT32_C(1) << 16)             /* indices 1 .. 65535 */
#define SEG_AREA_SIZE   4096u
#define SEG_CHUNK_SLOTS 1024u                           /* allocated together: 64 KiB */

#define SEG_LINES_MAX   (UINT32_C(1) << 16)             /* threads that read in a space; number 0 is nobody's */
#define SEG_LINE_CELLS  8u
#define SEG_CHUNK_LINES 64u                             /* allocated together: 4 KiB */
#define SEG_LINES_USED_OFF UINT64_C(2048)               /* a 64-bit word: numbers from this on have not been given out yet */
#define SEG_AWAKE_OFF      UINT64_C(2560)               /* three lines; and the second level of the hatches' bits: hatch.h */
#define SEG_HATCH2_OFF     UINT64_C(3072)
#define SEG_HATCH_WORDS    (SEG_CLIENTS_MAX / 64)
#define SEG_HATCH2_WORDS   (SEG_HATCH_WORDS / 64)

enum seg_bits { SEG_WATCH, SEG_WANT, SEG_BITS };

struct seg_head {
	uint64_t magic;
	uint16_t major, minor;
	uint32_t must_understand;        /* bits unknown to a client: it must not use the segment */
	uint64_t generation;             /* never used twice; the ledger and the node page know it */
	uint32_t slot_size, area_size;
	uint32_t slots_max, clients_max;
	uint64_t bits2_off, bits1_off, area_off, slot_off, size;
	uint64_t line_off;
	uint32_t lines_max, reserved;
};

struct seg_slot {
	uint64_t word;                   /* lockword.h */
	uint64_t bias;                   /* token of a hold = bias + its count; the daemon writes it while the word is closed */
	uint64_t watched;                /* 1: on the daemon's watch list. The daemon alone writes it */

	/* Of a lock: readers.h. Objects have uses of their own. */
	uint64_t gate;
	uint64_t readers;                /* a bit for the lines whose number is that modulo 64: its thread may read */
	uint32_t drain;                  /* a futex: who waits for readers to leave */
	uint32_t wants;
	uint64_t ranked;                 /* bit 0: somebody has waited here whose priority is not 0; the ranks that may sleep (ranked.h) */
	uint64_t reserved;
};

/* A thread that waits, for display, and for the priority of this node's claim. */
struct seg_cell {
	uint32_t slot_plus_one;          /* 0: not in use */
	uint32_t tid;                    /* as the thread sees itself */
	uint64_t since_ns;               /* CLOCK_BOOTTIME, of which 56 bits are enough; above them the priority */
};
#define SEG_SINCE_BITS 56
#define SEG_SINCE ((UINT64_C(1) << SEG_SINCE_BITS) - 1)
#define SEG_HATCH_AT 2048u                               /* the rest of an area is the client's hatch */
#define SEG_CELLS (SEG_HATCH_AT / sizeof(struct seg_cell))

#define SEG_L1_WORDS (SEG_SLOTS_MAX / 64)
#define SEG_L2_WORDS (SEG_L1_WORDS / 64)

#define SEG_BITS2_OFF UINT64_C(4096)
#define SEG_BITS1_OFF UINT64_C(8192)
#define SEG_HATCH1_OFF (UINT64_C(1) << 19)
#define SEG_HATCH1_SIZE (SEG_HATCH_WORDS * 8)
#define SEG_AREA_OFF  (UINT64_C(1) << 20)
#define SEG_LINE_OFF  (SEG_AREA_OFF + (uint64_t)SEG_CLIENTS_MAX * SEG_AREA_SIZE)
#define SEG_SLOT_OFF  (SEG_LINE_OFF + (uint64_t)SEG_LINES_MAX * SEG_LINE_CELLS * sizeof(uint64_t))
#define SEG_SIZE      (SEG_SLOT_OFF + (uint64_t)SEG_SLOTS_MAX * sizeof(struct seg_slot))
#define SEG_VALUE_SIZE 4096u
#define SEG_VALUE_OFF SEG_SIZE
#define SEG_FILE_SIZE (SEG_VALUE_OFF + (uint64_t)SEG_SLOTS_MAX * SEG_VALUE_SIZE)

_Static_assert(sizeof(struct seg_slot) == 64, "one cache line");
_Static_assert(sizeof(struct seg_cell) == 16, "layout");
_Static_assert(sizeof(struct seg_head) <= SEG_LINES_USED_OFF, "layout");
_Static_assert(SEG_BITS * SEG_L2_WORDS * 8 <= 4096, "level 2 fits its page");
_Static_assert(SEG_VALUE_OFF % 65536 == 0, "whole pages, whatever their size");
_Static_assert(SEG_BITS1_OFF + SEG_BITS * SEG_L1_WORDS * 8 <= SEG_HATCH1_OFF, "level 1 fits");
_Static_assert(SEG_HATCH1_OFF + SEG_HATCH1_SIZE <= SEG_AREA_OFF, "the hatches' bits fit");
_Static_assert(SEG_AWAKE_OFF + 192 <= SEG_HATCH2_OFF, "before the bits");
_Static_assert(SEG_HATCH2_OFF + SEG_HATCH2_WORDS * 8 <= SEG_BITS2_OFF, "with the head");

/*
 * Deadlines. NEVER is what a node alone publishes; GONE is for good; LAPSED is any moment that has
 * passed: nothing is held, and the lease may come again.
 */
#define NODE_NEVER  UINT64_MAX
#define NODE_GONE   UINT64_C(0)
#define NODE_LAPSED UINT64_C(1)
#define NODE_LINES  1024u            /* line 0: the node; 1 ..: spaces */
#define NODE_MAGIC  UINT64_C(0x3145444f4e434c44)        /* "DLCNODE1" */

struct node_line {
	uint64_t ticks;                  /* counter value before which the space is good without another look; 0: ask ns */
	uint64_t ns;                     /* CLOCK_BOOTTIME deadline; NODE_GONE: whatever was held is lost */
	uint64_t generation;             /* of the segment that this line speaks of; 0: none */
	uint64_t session;                /* line 0 only */
	uint64_t magic;                  /* line 0 only */
	uint64_t loss_ns;                /* line 0 only: actions on loss begin so long before the deadline */
	uint64_t reserved[2];
};
#define NODE_PAGE_SIZE (NODE_LINES * sizeof(struct node_line))

_Static_assert(sizeof(struct node_line) == 64, "one cache line");

static inline uint64_t *seg_level2(void *base, enum seg_bits which)
{
	return (uint64_t *)((char *)base + SEG_BITS2_OFF) + which * SEG_L2_WORDS;
}

static inline uint64_t *seg_level1(void *base, enum seg_bits which)
{
	return (uint64_t *)((char *)base + SEG_BITS1_OFF) + which * SEG_L1_WORDS;
}

static inline struct seg_slot *seg_slot(void *base, uint32_t slot)
{
	return (struct seg_slot *)((char *)base + SEG_SLOT_OFF) + slot;
}

static inline uint64_t *seg_line(void *base, uint32_t line)
{
	return (uint64_t *)((char *)base + SEG_LINE_OFF) + line * SEG_LINE_CELLS;
}

static inline uint64_t *seg_lines_used(void *base)
{
	return (uint64_t *)((char *)base + SEG_LINES_USED_OFF);
}

static inline struct seg_cell *seg_cells(void *base, uint32_t client)
{
	return (struct seg_cell *)((char *)base + SEG_AREA_OFF + (uint64_t)client * SEG_AREA_SIZE);
}

/*
 * Sets the slot's bit, on both levels: where it is still set on the first, whoever set it may have
 * been stopped before it came to the second. Returns whether it was clear before. After it the bell
 * has to be rung.
 */
static inline bool seg_bit_set(void *base, enum seg_bits which, uint32_t slot)
{
	uint64_t *one = &seg_level1(base, which)[slot / 64];
	uint64_t bit = UINT64_C(1) << (slot % 64);
	bool was = __atomic_fetch_or(one, bit, __ATOMIC_SEQ_CST) & bit;

	__atomic_fetch_or(&seg_level2(base, which)[slot / 4096], UINT64_C(1) << (slot / 64 % 64),
			  __ATOMIC_SEQ_CST);
	return !was;
}

/*
 * Is the slot on the daemon's list? Sequentially consistent with seg_watched_set(): either this
 * sees that it is dropped, or the daemon's look after dropping sees what the caller wrote to the
 * word before.
 */
static inline bool seg_watched(void *base, uint32_t slot)
{
#ifndef __SANITIZE_THREAD__              /* which knows no fences */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	return __atomic_load_n(&seg_slot(base, slot)->watched, __ATOMIC_SEQ_CST);
}

static inline void seg_watched_set(void *base, uint32_t slot, bool to)
{
	__atomic_store_n(&seg_slot(base, slot)->watched, to, __ATOMIC_SEQ_CST);
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void seg_bit_clear(void *base, enum seg_bits which, uint32_t slot)
{
	__atomic_fetch_and(&seg_level1(base, which)[slot / 64], ~(UINT64_C(1) << (slot % 64)),
			   __ATOMIC_SEQ_CST);
}

#endif
