/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What members and masters say to each other, and the queue for what both are on one node. Between
 * nodes they go as frames (frame.h); docs/PROTOCOL.md says who sends what when.
 *
 *   SYNC      member -> master   in this epoch, of one name: all that I have of it; without a name:
 *                                now I begin with this shard (flag FIRST), or that was all (`last`)
 *   CLAIM     member -> master   I hold `held`, want `wanted`. wanted == held: more tokens for what I have
 *   RELEASE   member -> master   I have 0 now, and `used` so many of the tokens of grant `seen`
 *   STAMP     master -> member   claim `number` waits, its place in the queue is `stamp`
 *   GRANT     master -> member   claim `number` now holds `held`, and owns `range`
 *   REFUSED   master -> member   claim `number` cannot be served: `error`
 *   RELEASED  master -> member   known; forget claim `number`
 *   REVOKE    master -> member   of grant `seen`, keep no more than `held`: another node waits. Flag PASS: for claim `heir_number` of
 *                                `heir`, which is to have `range`: hand it on (master_pass.c). OFF: not to that one any more
 *   PASS      member -> member   claim `number` now holds the name alone, and owns `range`: the master has set it aside for you
 *   LIMIT     master -> member   the limit is `limit` now, since `stamp`; the name was opened with `held`
 *   OBSERVE   member -> master   I want to hear who leads; not any more (flag OFF)
 *   NEWS      master -> member   (term, count) leads, by this value; or nobody does (no flag LEADS)
 *   OBSERVED  master -> member   of grant `seen`: tell who leads, others want to hear
 *   KEEP      member -> master   of grant `seen`: it is in use, whoever tries cannot have it. Flag OFF: it will not be handed on to `heir`
 *   REIGN     master -> member   I reign over the shard in this epoch: sync
 *   ARRIVE    member -> master   of a barrier of `limit` parties: `held` have come here, the first `used` of them voted
 *                                yes; the first `wanted` are in round `stamp`, by the session `seen` (flag IN; BREAK: one
 *                                of them wants out), or are told its verdict (flags TOLD, PASSED, YES; serial `seen`);
 *                                PLACES: this node has places in the next round. PAIRED: every second round is to leave by; READY:
 *                                all who are in such a round here are done inside
 *   ENROL     master -> member   of arrival `number`, the first `held` are in round `stamp`; 0: none is in any. Or, flag PLACES:
 *                                places are not good any more
 *   ANNOUNCE  master -> member   this is the verdict of round `stamp`; write it down, and say so. As many as were in it have
 *                                places in round `number`; 0: nobody has
 *   GO        master -> member   all have written it down
 *   ASK       member -> master   what became of round `stamp`? Or, flag RESET: break the one that is forming
 *   ANSWER    master -> member   to ASK `number`; or arrival `number` cannot be: `error`
 *   PAST      member -> master   while syncing: this was the verdict of the last round that I know of
 *   HANDOVER  master -> master   I reigned until now, in the epoch `number`, and knew all (flag CLEAN). Shares and permits may be
 *                                lost that are not marked, and count for `used` ns (flag SHARED)
 *   PLACE     master -> coordinator   the session `number` makes most of the shard's claims; 0: it need not stay here
 *   ENQUIRE   member -> master   who has this name, and who waits for it? Somebody here asks, under `number`
 *   ACCOUNT   master -> member   to ENQUIRE `number`: so much of `limit` is held, `wanted` nodes hold or wait, the first of which are these `parties`
 *   MARK      master -> master   of one name: the session `number` held it alone; LOST: a holder was
 *                                lost, and is not to be followed for `used` ns; and its value. `delay` is the holder's. Flag SHARED: the
 *                                session held `held` of it; or, `number` 0, so much was lost, and is taken for `used` ns (mourn.c)
 *
 * Every statement of a member's (SYNC, CLAIM, RELEASE) says all that it has of the name, in totals
 * (S10), under the number of its claim. A number stands for one pair of held and wanted: whoever
 * changes either takes a new number, and a grant is for exactly the number that it names. So saying
 * something again changes nothing: a claim whose grant `seen` does not reach is granted again as it was,
 * a release of what is not held is acknowledged, a grant that crossed a change is nobody's.
 */
#ifndef DLOCK_CORE_MSG_H
#define DLOCK_CORE_MSG_H

#include "base.h"
#include "core.h"

/* Each with who receives it. */
#define MSG_KINDS(X)                                                                           \
	X(SYNC, MASTER) X(CLAIM, MASTER) X(GRANT, MEMBER) X(REFUSED, MEMBER)                   \
	X(RELEASE, MASTER) X(RELEASED, MEMBER) X(STAMP, MEMBER) X(REVOKE, MEMBER)              \
	X(REIGN, MEMBER) X(HANDOVER, MASTER) X(MARK, MASTER) X(LIMIT, MEMBER)                  \
	X(ARRIVE, BARRIER_MASTER) X(ENROL, BARRIER_MEMBER) X(ANNOUNCE, BARRIER_MEMBER)         \
	X(GO, BARRIER_MEMBER) X(ASK, BARRIER_MASTER) X(ANSWER, BARRIER_MEMBER)                 \
	X(PAST, BARRIER_MASTER)                                                                \
	X(OBSERVE, MASTER) X(NEWS, MEMBER) X(OBSERVED, MEMBER) X(KEEP, MASTER)                 \
	X(PLACE, COORDINATOR) X(PASS, MEMBER) X(ENQUIRE, MASTER) X(ACCOUNT, MEMBER)

enum msg_kind {
#define X(name, to) MSG_##name,
	MSG_KINDS(X)
#undef X
};

enum msg_receiver { MSG_TO_MASTER, MSG_TO_MEMBER, MSG_TO_BARRIER_MASTER, MSG_TO_BARRIER_MEMBER, MSG_TO_COORDINATOR };

static inline enum msg_receiver msg_receiver(enum msg_kind kind)
{
	static const uint8_t of[] = {
#define X(name, to) [MSG_##name] = MSG_TO_##to,
		MSG_KINDS(X)
#undef X
	};

	return (enum msg_receiver)of[kind];
}

#define MSG_WEIGHT_ALL CORE_WEIGHT_ALL

#define MSG_FLAGS(X)                                                                           \
	X(LAST, 1)        /* SYNC: that was all */                                             \
	X(UPGRADE, 2)     /* statement: goes before the queue */                               \
	X(SHARED, 2)      /* MARK, HANDOVER: of shares and permits */                          \
	X(IN, 0x8000)     /* of barriers, as said above; some bits are another's in other kinds */ \
	X(TOLD, 0x4000) X(BREAK, 0x2000) X(PLACES, 1024) X(PASSED, 128) X(YES, 256) X(RESET, 512) \
	X(PAIRED, 2) X(READY, 8)                                                               \
	X(FIRST, 16)      /* SYNC: all of the shard follows; HANDOVER: the marks follow */     \
	X(LOST, 4)        /* GRANT, PASS, MARK: a former holder died, or was lost */           \
	X(TRY, 8)         /* statement: now or never. REVOKE: only if it is idle */            \
	X(CLEAN, 8)       /* HANDOVER: of every name it was known whether a holder was lost */ \
	X(VALUE, 32)      /* a value follows */                                                \
	X(VALUE_LOST, 64) /* ... or may have been lost */                                      \
	X(DIED, 128)      /* statement: who held it exclusively died, or left what was not mended */ \
	X(OWES, 256)      /* statement: of value and DIED the member wants to hear that they are known */ \
	X(KNOWN, 512)     /* MARK: it is known whether a holder was lost */                    \
	X(PASS, 512)      /* REVOKE: hand it on. Statement: it was handed on */                \
	X(LIMIT, 2048)    /* statement, MARK: it has been resized */                           \
	X(RESIZE, 4096)   /* statement: resize it */                                           \
	X(NEWS, 8192)     /* statement, NEWS: who leads */                                     \
	X(LEADS, 16384)   /* ... somebody does */                                              \
	X(OFF, 32768)     /* OBSERVE, REVOKE, KEEP: not any more */                          \
	X(OBSERVED, 32768) /* GRANT: as OBSERVED */                                            \
	X(DELAY, 1024)    /* statement, MARK: of who holds it, or wants to */                  \
	X(FORGOT, 1024)   /* HANDOVER: values may be missing of names that are not marked */

enum msg_flag {
#define X(name, bit) MSG_FLAG_##name = bit,
	MSG_FLAGS(X)
#undef X
};

#define MSG_PARTY 16

struct msg_peer {
	uint64_t session;
	uint32_t incarnation;
};

struct msg {
	enum msg_kind kind;
	uint8_t shard;
	uint8_t priority;                /* statement: of what is wanted. REVOKE: of the next in line */
	bool last;
	uint16_t key_len;
	uint16_t flags;
	const void *key;                 /* belongs to the sender, valid until the message is taken */
	struct msg_peer from, to;
	uint32_t epoch;                  /* of the shard, as the sender knows it */
	uint32_t held, wanted;           /* total weights; wanted 0: waits for nothing */
	uint32_t limit;                  /* of the name, as it was opened; 0: all. LIMIT: its present one */
	uint32_t present;                /* flag LIMIT: its present limit ... */
	uint64_t limit_stamp;            /* ... and since when; later ones are higher */
	uint32_t resize;                 /* flag RESIZE: to this */
	uint64_t term;                   /* flag NEWS: of who leads, or led last ... */
	uint32_t count;                  /* ... and how often it has proclaimed; UINT32_MAX: it leads no more */
	uint16_t delay;                  /* lock-delay in ms */
	struct msg_peer heir;            /* flags PASS, OFF: to whom ... */
	uint64_t heir_number;            /* ... REVOKE, PASS: which claim of its; else the first token of what is, or was, set aside for it */
	uint64_t number;                 /* of the claim, given by the member */
	uint64_t stamp;                  /* its place in the queue: epoch << 40 | n; 0: none yet */
	uint64_t seen;                   /* the last grant that the member has seen: its first token; 0: none */
	uint64_t used;                   /* tokens of that grant that it has used; STAMP, PASS, REVOKE with PASS: the secret of the claim that waits */
	struct core_range range;         /* SYNC: what it owns; GRANT, PASS: what it now owns; REVOKE, flag PASS: what the heir is to own */
	int error;
	struct core_value value;
	uint32_t kept;                   /* the value's handle on this node; 0: none, or not yet */
	uint16_t parties;                /* ACCOUNT: so many ... */
	const void *party;               /* ... as MSG_PARTY bytes each: u64 session, u32 held, u32 wanted */
};

/* One event leads to a handful of messages within the node; the rest is work for later. */
#define MSG_QUEUE_MAX 16

struct msg_queue {
	unsigned first, n;
	struct msg v[MSG_QUEUE_MAX];
};

static inline void msg_put(struct msg_queue *q, const struct msg *m)
{
	core_assert(q->n < MSG_QUEUE_MAX);
	q->v[(q->first + q->n++) % MSG_QUEUE_MAX] = *m;
}

static inline bool msg_get(struct msg_queue *q, struct msg *ret)
{
	if (!q->n)
		return false;
	*ret = q->v[q->first];
	q->first = (q->first + 1) % MSG_QUEUE_MAX;
	q->n--;
	return true;
}

/* Claim numbers count on from here in each incarnation of a session. */
static inline uint64_t number_first(uint32_t incarnation)
{
	return (uint64_t)(incarnation - 1) << 40;
}

/* Whether the one is of a later incarnation than the other. */
static inline bool number_reborn(uint64_t one, uint64_t other)
{
	return one >> 40 > other >> 40;
}

static inline bool msg_peer_same(struct msg_peer a, struct msg_peer b)
{
	return a.session == b.session && a.incarnation == b.incarnation;
}

#endif
