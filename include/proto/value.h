/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page of a name that carries something: a lock's value, or who leads an election.
 *
 * It lies in the space's segment behind what clients map (segment.h): one page per slot, which the daemon allocates when it is
 * asked for (ATTACH_VALUE) or when a lease brings a value. What is published is never written to; what decides is one word,
 * `pub`, the low half of which is a futex word:
 *
 *   bits  0-1   cur      what is published: one of two buffers, or one of two notes, which have no bytes
 *   bits  2-3   state    of it: none, known, lost (of a lock), unsure (of an election)
 *   bit   4     claimed  somebody writes to the buffer that is not published, or has ended while he did
 *   bit   5     torn     a claim was taken over from one who may still be writing
 *   bit   6     W        somebody may sleep on the word
 *   bits  8-31  pubs     how often something has been published
 *   bits 32-47  claims   how often a buffer has been claimed
 *   bits 48-63  stamp    the claim by which the present buffer was written
 *
 * What must hold:
 *
 *   publishing  is three steps: a compare-and-swap that claims, the bytes, a compare-and-swap that makes them cur, if nobody
 *               has claimed since. Whoever dies, or is overtaken, before the last one has published nothing. What has no
 *               bytes the daemon alone publishes: a note, in one step.
 *   a lock      is claimed and written to by dlock_value_set(), and published by the release. `floor` is the first token of
 *               the lease: who still believes in a hold of an earlier one finds his token below it.
 *   an election is written to by whoever leads and, what other nodes tell, by the daemon. (token, count) only rises: whoever
 *               finds something later published leaves it. So it does not matter who comes first.
 *   reading     copies, and holds only if the word is the same afterwards. One who was stopped in the middle of his bytes,
 *               and goes on when others write where he did, is the exception: their claim has seen his, and says so
 *               for good (torn); from then on the sum tells, which is made with the stamp.
 *
 * Whoever may open the space may scribble here too, and upset what this node knows of its names. The daemon copies, then checks.
 */
#ifndef DLOCK_VALUE_H
#define DLOCK_VALUE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "futex.h"

#define VALUE_MAX 1024u

#define VALUE_CUR     UINT64_C(0x03)
#define VALUE_NOTE    UINT64_C(0x02)             /* of cur: 2 and 3 are notes */
#define VALUE_STATE   UINT64_C(0x0c)
#define VALUE_CLAIMED UINT64_C(0x10)
#define VALUE_TORN    UINT64_C(0x20)
#define VALUE_W       UINT64_C(0x40)
#define VALUE_PUBS    UINT64_C(0x00000000ffffff00)
#define VALUE_CLAIMS  UINT64_C(0x0000ffff00000000)
#define VALUE_STAMP   UINT64_C(0xffff000000000000)
#define VALUE_PUB     UINT64_C(0x0000000000000100)
#define VALUE_CLAIM   UINT64_C(0x0000000100000000)

#define VALUE_TRIES   1000u              /* of what only a hostile neighbour could fail so often */

enum value_state {
	VALUE_NONE = 0x0,                /* of an election: nobody leads after that term */
	VALUE_KNOWN = 0x4,
	VALUE_LOST = 0x8,                /* of an election: who leads is not known at present */
};

/* The count that says that after this term nobody leads: above all that it had. */
#define VALUE_NOBODY UINT32_MAX

struct value_mark {
	uint64_t token;                  /* of the hold that published it */
	uint32_t count;                  /* of what was published under it, from 1 */
	uint32_t len;
	uint64_t sum;
	uint64_t reserved;
};

struct value_buf {
	struct value_mark mark;
	uint8_t bytes[VALUE_MAX];
	uint8_t padding[32];
};

struct value_page {
	uint64_t pub;
	uint64_t floor;
	uint64_t observed;               /* elections: 1: the daemon wants to be rung at each publication */
	uint64_t reserved[5];
	struct value_mark note[2];
	struct value_buf buf[2];
};

_Static_assert(sizeof(struct value_mark) == 32 && sizeof(struct value_buf) == 1088 && sizeof(struct value_page) <= 4096, "layout");

/* What is published, without its bytes. */
struct value_head {
	enum value_state state;
	uint64_t token;
	uint32_t count, len;
};

#ifndef VALUE_STEP                       /* the daemon's places for faults */
#define VALUE_STEP()
#endif

static inline uint64_t value_load(const struct value_page *p)
{
	return __atomic_load_n(&p->pub, __ATOMIC_ACQUIRE);
}

static inline enum value_state value_state(uint64_t pub)
{
	uint64_t s = pub & VALUE_STATE;

	return s == VALUE_KNOWN ? VALUE_KNOWN : s == VALUE_NONE ? VALUE_NONE : VALUE_LOST;
}

static inline const struct value_mark *value_mark(const struct value_page *p, uint64_t pub)
{
	return pub & VALUE_NOTE ? &p->note[pub & 1] : &p->buf[pub & 1].mark;
}

/* Where it goes, who claims from this word, or has claimed it. */
static inline unsigned value_other(uint64_t pub)
{
	return (pub & VALUE_CUR) == 0;
}

/* Bytes that another may be writing at the same time; whether they hold is said by the word. */
static inline void value_copy(void *to, const void *from, size_t n)
{
#ifdef __SANITIZE_THREAD__               /* which knows of no word */
	for (size_t i = 0; i < n; i++)
		__atomic_store_n((char *)to + i, __atomic_load_n((const char *)from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
#else
	memcpy(to, from, n);
#endif
}

static inline uint64_t value_sum(const struct value_head *h, uint64_t stamp, const void *bytes)
{
	uint64_t sum = (h->token + stamp) * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)h->count << 32 | h->len), word;

	for (uint32_t i = 0; i < h->len; i += 8) {
		word = 0;
		memcpy(&word, (const char *)bytes + i, h->len - i < 8 ? h->len - i : 8);
		sum = (sum ^ word) * UINT64_C(0xff51afd7ed558ccd);
		sum ^= sum >> 32;
	}
	return sum;
}

/* The stamp of what is published by this claim. */
static inline uint64_t value_stamp(uint64_t claim)
{
	return (claim & VALUE_CLAIMS) << 16;
}

static inline void value_mark_set(struct value_mark *m, const struct value_head *h, uint64_t sum)
{
	__atomic_store_n(&m->token, h->token, __ATOMIC_RELAXED);
	__atomic_store_n(&m->count, h->count, __ATOMIC_RELAXED);
	__atomic_store_n(&m->len, h->len, __ATOMIC_RELAXED);
	__atomic_store_n(&m->sum, sum, __ATOMIC_RELAXED);
}

/* Claims the buffer that is not published, if the word is still `pub`. */
static inline bool value_claim(struct value_page *p, uint64_t pub, uint64_t *ret_claim)
{
	uint64_t n = (pub & ~VALUE_CLAIMS) | ((pub + VALUE_CLAIM) & VALUE_CLAIMS) | VALUE_CLAIMED |
		     (pub & VALUE_CLAIMED ? VALUE_TORN : 0);

	VALUE_STEP();
	if (!__atomic_compare_exchange_n(&p->pub, &pub, n, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return false;
	VALUE_STEP();
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_RELEASE);         /* no byte is seen before the claim */
#endif
	*ret_claim = n;
	return true;
}

static inline void value_fill(struct value_page *p, uint64_t claim, const struct value_head *h, const void *bytes)
{
	struct value_buf *b = &p->buf[value_other(claim)];

	VALUE_STEP();
	value_mark_set(&b->mark, h, value_sum(h, value_stamp(claim), bytes));
	VALUE_STEP();
	if (h->len)
		value_copy(b->bytes, bytes, h->len);
	VALUE_STEP();
}

static inline void value_wake(struct value_page *p)
{
	futex_wake_class((uint32_t *)&p->pub, INT_MAX, UINT32_MAX);
}

static inline bool value_is_later(uint64_t token, uint32_t count, uint64_t than_token, uint32_t than_count)
{
	return token > than_token || (token == than_token && count > than_count);
}

/* May this follow what the word says is published? again: also the same, where the state is another. */
static inline bool value_may_follow(const struct value_page *p, uint64_t pub, const struct value_head *h, bool again)
{
	const struct value_mark *m = value_mark(p, pub);
	uint64_t token = __atomic_load_n(&m->token, __ATOMIC_RELAXED);
	uint32_t count = __atomic_load_n(&m->count, __ATOMIC_RELAXED);

	if (token == h->token && count == h->count)
		return again && value_state(pub) != h->state;
	return value_is_later(h->token, h->count, token, count);
}

/*
 * Makes cur what was written by that claim, if nobody has claimed since (else -EAGAIN), and it may follow what is published
 * by now (else -ESTALE; always: it may).
 */
static inline int value_publish(struct value_page *p, uint64_t claim, const struct value_head *h, bool always, bool again)
{
	uint64_t w = value_load(p), n;
	bool may;

	VALUE_STEP();
	do {
		if ((w ^ claim) & (VALUE_CLAIMS | VALUE_CLAIMED))
			return -EAGAIN;
		may = always || value_may_follow(p, w, h, again);
		n = w & ~VALUE_CLAIMED;
		if (may)
			n = (w & (VALUE_CLAIMS | VALUE_TORN)) | value_stamp(claim) | value_other(claim) | (uint64_t)h->state |
			    ((w + VALUE_PUB) & VALUE_PUBS);
	} while (!__atomic_compare_exchange_n(&p->pub, &w, n, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE));
	VALUE_STEP();
	if (may && (w & VALUE_W))
		value_wake(p);
	VALUE_STEP();
	return may ? 0 : -ESTALE;
}

/* The daemon's, of what has no bytes. False: it is not later than what is published. */
static inline bool value_publish_note(struct value_page *p, const struct value_head *h, bool again)
{
	uint64_t w = value_load(p), n;

	do {
		unsigned other = (w & VALUE_CUR) == VALUE_NOTE;
		uint64_t stamp = w & VALUE_STAMP;

		if (!value_may_follow(p, w, h, again) && value_load(p) == w)
			return false;
		VALUE_STEP();
		value_mark_set(&p->note[other], h, value_sum(h, stamp, NULL));
		VALUE_STEP();
		n = (w & ~(VALUE_CUR | VALUE_STATE | VALUE_W | VALUE_PUBS)) | VALUE_NOTE | other | (uint64_t)h->state |
		    ((w + VALUE_PUB) & VALUE_PUBS);
	} while (!__atomic_compare_exchange_n(&p->pub, &w, n, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	VALUE_STEP();
	if (w & VALUE_W)
		value_wake(p);
	VALUE_STEP();
	return true;
}

/*
 * Copies what is published, up to `room` bytes of it (ret->len is how many there are). -EIO: it changes all the time,
 * or is not what was written: of something lost, so that nobody needs to ask twice.
 */
static inline int value_read(const struct value_page *p, struct value_head *ret, void *bytes, size_t room)
{
	for (unsigned tries = 0; tries < VALUE_TRIES; tries++) {
		uint64_t w = value_load(p), sum;
		const struct value_mark *m = value_mark(p, w);
		struct value_head h = {
			value_state(w), __atomic_load_n(&m->token, __ATOMIC_RELAXED),
			__atomic_load_n(&m->count, __ATOMIC_RELAXED),
			w & VALUE_NOTE ? 0 : __atomic_load_n(&m->len, __ATOMIC_RELAXED),
		};

		sum = __atomic_load_n(&m->sum, __ATOMIC_RELAXED);
		if (h.len && h.len <= room && h.len <= VALUE_MAX)
			value_copy(bytes, p->buf[w & 1].bytes, h.len);
#ifndef __SANITIZE_THREAD__
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
		if ((value_load(p) ^ w) & (VALUE_CUR | VALUE_PUBS))
			continue;
		if (h.len > VALUE_MAX || ((w & VALUE_TORN) && h.len <= room && sum != value_sum(&h, w & VALUE_STAMP, bytes)))
			return -EIO;
		*ret = h;
		return 0;
	}
	return -EIO;
}

/*
 * An election's news, unless something later is published. again: also if just this is published already, in
 * another state. Returns whether it is published now.
 */
static inline bool value_tell(struct value_page *p, const struct value_head *h, const void *bytes, bool again)
{
	for (unsigned tries = 0; tries < VALUE_TRIES; tries++) {
		uint64_t w = value_load(p), claim;
		int r;

		if (!value_may_follow(p, w, h, again)) {
			if (value_load(p) == w)
				return false;
			continue;
		}
		if (!value_claim(p, w, &claim))
			continue;
		value_fill(p, claim, h, bytes);
		r = value_publish(p, claim, h, false, again);
		if (r != -EAGAIN)
			return r == 0;
	}
	return false;
}

/* Before sleeping on the word while it is *pub, which it sets to what to sleep on. false: it is another by now. */
static inline bool value_announce(struct value_page *p, uint64_t *pub)
{
	if (*pub & VALUE_W)
		return true;
	if (!__atomic_compare_exchange_n(&p->pub, pub, *pub | VALUE_W, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return false;
	*pub |= VALUE_W;
	return true;
}

#endif
