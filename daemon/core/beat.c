/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "beat.h"

#include "bytes.h"

int beat_decode(const void *bytes, size_t n, struct beat_value *ret)
{
	const uint8_t *p = bytes;
	struct beat_value v;

	if (n != BEAT_BYTES || p[0] != BEAT_LAYOUT || p[1] > 1)
		return -CORE_EBADMSG;
	v.ended = p[1];
	v.id.incarnation = (uint32_t)le_load(p + 4, 4);
	v.id.session = le_load(p + 8, 8);
	v.counter = le_load(p + 16, 8);
	if (!v.id.session)
		return -CORE_EBADMSG;
	*ret = v;
	return 0;
}

void beat_encode(const struct beat_value *v, uint8_t ret[BEAT_BYTES])
{
	memset(ret, 0, BEAT_BYTES);
	ret[0] = BEAT_LAYOUT;
	ret[1] = v->ended;
	le_store(ret + 4, 4, v->id.incarnation);
	le_store(ret + 8, 8, v->id.session);
	le_store(ret + 16, 8, v->counter);
}

void beat_init(struct beat *b, struct msg_peer id)
{
	*b = (struct beat){ .last.id = id };
}

static core_nsec_t *sent_at(struct beat *b, uint64_t counter)
{
	return &b->sent[counter % BEAT_SENT_MAX];
}

void beat_send(struct beat *b, core_nsec_t now, uint8_t ret[BEAT_BYTES])
{
#ifdef CORE_BREAK_VALUE_TWICE
	if (!b->last.counter || b->unsure || b->landed >= *sent_at(b, b->last.counter))
#endif
	b->last.counter++;
	*sent_at(b, b->last.counter) = now;
	beat_encode(&b->last, ret);
}

static void landed(struct beat *b, uint64_t counter, core_nsec_t now)
{
	/* Of a value so old that its place has been taken since, nothing is known: it is not counted. */
	if (b->last.counter - counter >= BEAT_SENT_MAX)
		return;
#if defined CORE_BREAK_REPLY
	b->landed = now;
#elif defined CORE_BREAK_SENT_LAST
	b->landed = *sent_at(b, b->last.counter);
	(void)now;
#else
	(void)now;
	b->landed = max_u64(b->landed, *sent_at(b, counter));
#endif
}

void beat_written(struct beat *b, int error, uint64_t version, core_nsec_t now)
{
#ifdef CORE_BREAK_VALUE_TWICE
	if (error == -CORE_ETIMEDOUT)
		return;
#endif
	if (error || !version) {
		b->unsure = true;
		return;
	}
	b->exists = true;
	b->version = version;
	landed(b, b->last.counter, now);
}

enum beat_find beat_read(struct beat *b, const void *bytes, size_t n, uint64_t version, core_nsec_t now)
{
	struct beat_value v;

	if (!version) {
		b->unsure = false;
		return b->exists ? BEAT_ENDED : BEAT_NOT_YET;
	}
#ifdef CORE_BREAK_NODE_SESSION
	if (!b->landed && beat_decode(bytes, n, &v) == 0) {
		b->version = version;
		b->exists = true;
		b->unsure = false;
		b->last.counter = max_u64(b->last.counter, v.counter);
		return BEAT_OURS;
	}
#endif
	if (beat_decode(bytes, n, &v) < 0 || v.id.session != b->last.id.session)
		return BEAT_SUPERSEDED;
	if (v.ended)
		return BEAT_ENDED;
	if (v.id.incarnation > b->last.id.incarnation)
		return BEAT_SUPERSEDED;
	b->version = version;
	b->exists = true;
	b->unsure = false;
	if (v.id.incarnation == b->last.id.incarnation)
		landed(b, v.counter, now);
	else
		b->last.counter = max_u64(b->last.counter, v.counter);   /* adopted: ours are above the predecessor's */
	return BEAT_OURS;
}
