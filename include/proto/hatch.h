/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The hatch: opening and closing locks without the attach socket, and mostly without a system call. It lies in the client's
 * area of a space (segment.h), and is for names of that space only, which the client has had open by the socket before.
 *
 * A client says one thing at a time: its threads take turns. Either it closes (a DROP of attach.h: a slot in `drop`, then
 * `drops`), which is not answered; or it asks to open a lock (`open`, then `asked`), and waits until `answered` has become
 * the same. Then it sets its bit (on both levels, as for slots), and rings the space's bell, unless the daemon says that it
 * is awake. The daemon says so only as long as it looks at the bits before it sleeps, and takes it back before its last look:
 *
 *     client: bit, then reads awake       daemon: awake = 0, then reads the bits
 *
 * both in one order for all (seq_cst), so one of them sees the other. Likewise `sleeps` and `answered`, the other way round.
 * A drop alone is in no hurry: unless the daemon sleeps for good it sets the first level's bit only, which the daemon looks at every few
 * milliseconds while it is awake, and once after that.
 * Whoever rings for anything else (segment.h) sets `rung` instead of the hatches' bits. A daemon that is killed leaves `awake` as it is:
 * its successor takes it back before it looks at all there is.
 *
 * Order. Of what stands in the hatch the drops come before the open. All that stands in a client's hatches comes before what it
 * says by the socket next; and it opens by the hatch only when all drops that it has said by the socket have been heard.
 *
 * Any error means: ask again by the socket, which says what is wrong. What was not heard when a connection ended is
 * void: the daemon's WELCOME takes it as read, and the client says it again by the socket, as it does with a DROP there. That another
 * daemon has come shows in `era`: then the hatch is of no use before the next WELCOME.
 *
 * Whoever may open the space may write to it, as to all of a segment: the daemon copies, then checks, and does for a
 * client only what that one might have asked for by its socket.
 */
#ifndef DLOCK_HATCH_H
#define DLOCK_HATCH_H

#include "segment.h"

#define HATCH_DROPS 64u

struct hatch_open {
	uint8_t flags;                   /* enum attach_open_flags */
	uint8_t len;
	uint8_t reserved[6];
	char name[256];                  /* not terminated */
};

struct hatch {
	/* The daemon's. */
	uint32_t answered;               /* the `asked` of the last answer; a futex */
	uint32_t heard;                  /* so many drops, modulo 2^32 */
	int32_t error;                   /* of that answer; 0: `slot` is good */
	uint32_t slot;
	uint64_t reserved[6];

	/* The client's. */
	uint32_t asked;                  /* its number; each its own */
	uint32_t drops;                  /* so many have been said, modulo 2^32 */
	uint32_t sleeps;                 /* 1: until it is answered. The daemon clears it */
	uint32_t reserved_too;
	struct hatch_open open;
	uint32_t drop[HATCH_DROPS];
};

_Static_assert(sizeof(struct hatch) <= SEG_AREA_SIZE - SEG_HATCH_AT, "it fits the area");
_Static_assert(__builtin_offsetof(struct hatch, asked) == 64, "the daemon's line, and the client's");

static inline struct hatch *seg_hatch(void *base, uint32_t client)
{
	return (struct hatch *)((char *)base + SEG_AREA_OFF + (uint64_t)client * SEG_AREA_SIZE + SEG_HATCH_AT);
}

enum seg_awake {
	SEG_ASLEEP,                      /* whoever wants anything has to ring */
	SEG_AWAKE,
	SEG_DOZES,                       /* as asleep; but it looks at the first level of the hatches' bits once more in a few milliseconds */
};

/* enum seg_awake. The daemon's. */
static inline uint32_t *seg_awake(void *base)
{
	return (uint32_t *)((char *)base + SEG_AWAKE_OFF);
}

/* 1: a client has rung. The daemon clears it before it looks. */
static inline uint32_t *seg_rung(void *base)
{
	return (uint32_t *)((char *)base + SEG_AWAKE_OFF + 128);
}

/*
 * 1: somebody is about to ring the bell for a hatch, or has; the daemon clears it when it has heard, and before it sleeps. So of many who open
 * names at once one rings. He may be stopped before he does: the others sleep on their answer for some milliseconds, and then ring themselves.
 */
static inline uint32_t *seg_belled(void *base)
{
	return seg_rung(base) + 1;
}

/* Rings a daemon that is awake. false: it is to be rung by the bell. What it is to see has been written before. */
static inline bool seg_ring(void *base)
{
	__atomic_store_n(seg_rung(base), 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(seg_awake(base), __ATOMIC_SEQ_CST) == SEG_AWAKE;
}

/* Another one for each daemon; 0: none yet. What a client says counts for the daemon that it has heard last by the socket. */
static inline uint64_t *seg_era(void *base)
{
	return (uint64_t *)((char *)base + SEG_AWAKE_OFF + 64);
}

static inline uint64_t *seg_hatch_level2(void *base)
{
	return (uint64_t *)((char *)base + SEG_HATCH2_OFF);
}

static inline uint64_t *seg_hatch_level1(void *base)
{
	return (uint64_t *)((char *)base + SEG_HATCH1_OFF);
}

/* Says that something stands in it. true: the bell has to be rung, unless somebody else does (seg_belled). */
static inline bool seg_hatch_say(void *base, uint32_t client)
{
	__atomic_fetch_or(&seg_hatch_level1(base)[client / 64], UINT64_C(1) << (client % 64), __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&seg_hatch_level2(base)[client / 4096], UINT64_C(1) << (client / 64 % 64), __ATOMIC_SEQ_CST);
	return __atomic_load_n(seg_awake(base), __ATOMIC_SEQ_CST) != SEG_AWAKE;
}

/* Says that a drop stands in it, which can wait for a few milliseconds, and so goes along with the open that may follow. Likewise. */
static inline bool seg_hatch_say_later(void *base, uint32_t client)
{
	__atomic_fetch_or(&seg_hatch_level1(base)[client / 64], UINT64_C(1) << (client % 64), __ATOMIC_SEQ_CST);
	return __atomic_load_n(seg_awake(base), __ATOMIC_SEQ_CST) == SEG_ASLEEP && seg_hatch_say(base, client);
}

#endif
