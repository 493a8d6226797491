/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What members and masters say to each other, and the queue for what both are on one node.
 *
 *   SYNC      member -> master   in this epoch, of one name: I hold `range`, I wait, or I have
 *                                released; `last`: that was all of the shard (then without a name)
 *   CLAIM     member -> master   I have `held`, want `wanted`. wanted == held: more tokens for what I have
 *   GRANT     master -> member   claim `number` has `range`; its place in the queue was `stamp`
 *   REFUSED   master -> member   claim `number` cannot be served: `error`
 *   RELEASE   member -> master   I have 0 now, and `used` so many of the tokens of grant `seen`
 *   RELEASED  master -> member   known; forget claim `number`
 *
 * Every message states all that its sender has of the name (S10), so saying it again changes
 * nothing: a grant that the claim's `seen` does not reach is granted again as it was, a release
 * of what is not held is acknowledged. Only messages of the present epoch and of the very
 * session and incarnation are taken (S5).
 */
#ifndef DLOCK_CORE_MSG_H
#define DLOCK_CORE_MSG_H

#include "base.h"
#include "core.h"

#define MSG_KINDS(X) X(SYNC) X(CLAIM) X(GRANT) X(REFUSED) X(RELEASE) X(RELEASED)

enum msg_kind {
#define X(name) MSG_##name,
	MSG_KINDS(X)
#undef X
};

#define MSG_WEIGHT_ALL UINT32_MAX

struct msg_peer {
	uint64_t session;
	uint32_t incarnation;
};

struct msg {
	enum msg_kind kind;
	uint8_t shard;
	bool last;
	uint16_t key_len;
	const void *key;                 /* belongs to the sender, valid until the message is taken */
	struct msg_peer from, to;
	uint32_t epoch;                  /* of the shard, as the sender knows it */
	uint32_t held, wanted;           /* total weights; wanted 0: waits for nothing */
	uint64_t number;                 /* of the claim, given by the member */
	uint64_t stamp;                  /* its place in the queue: epoch << 40 | n; 0: none yet */
	uint64_t seen;                   /* the last grant that the member has seen: its first token; 0: none */
	uint64_t used;                   /* tokens of that grant that it has used */
	struct core_range range;         /* SYNC: what it owns; GRANT: what it now owns */
	int error;
};

/* An event leads to a claim and its grant, or a release and its acknowledgement: one waits at a time. */
#define MSG_QUEUE_MAX 4

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

static inline bool msg_peer_same(struct msg_peer a, struct msg_peer b)
{
	return a.session == b.session && a.incarnation == b.incarnation;
}

#endif
