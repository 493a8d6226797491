/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The value of a lock: proto/value.h says how it is kept. Setting it claims the page's other buffer and writes to that; the
 * release publishes it (value_turn), which the fast path leaves to slow_post(): STATE_VALUE keeps it away.
 *
 * Who has lost the hold may get as far as the claim: then the page's floor or a later token is above his (they are read after
 * the word that he claims from), or whoever holds now claims after him, and his turn fails.
 */
#include <errno.h>

#include "conn.h"
#include "handle.h"
#include "proto/value.h"
#include "thread.h"

static int value_page_of(struct dlock *l, struct binding *b, struct value_page **ret)
{
	int r = 0;

	*ret = __atomic_load_n(&b->value, __ATOMIC_ACQUIRE);
	if (*ret)
		return 0;
	r = attach_lock(&limit_none);
	if (r < 0)
		return r;
	if (!b->value)
		r = name_value(l, b, &limit_none);
	*ret = b->value;
	attach_unlock();
	return r;
}

static bool value_is_set(const struct binding *b)
{
	return __atomic_load_n(&b->state, __ATOMIC_ACQUIRE) & STATE_VALUE;
}

/* A second value in the same hold goes where the first has gone. */
static int value_claim_mine(struct value_page *p, struct binding *b, const struct value_head *h)
{
	for (unsigned tries = 0; tries < VALUE_TRIES; tries++) {
		uint64_t pub = value_load(p);

		if (value_is_set(b) && !((pub ^ b->claim) & (VALUE_CLAIMS | VALUE_CLAIMED)))
			return 0;
		bool late = h->token < __atomic_load_n(&p->floor, __ATOMIC_ACQUIRE) || !value_may_follow(p, pub, h, false);

		if (late && !hold_good(b))
			return -ESTALE;  /* somebody came later; nobody can have while it is held, whatever stands there */
		if (value_claim(p, pub, &b->claim))
			return 0;
	}
	return -ESTALE;
}

static int value_set(struct dlock *l, const void *buf, size_t len)
{
	struct value_head h = { .state = VALUE_KNOWN, .count = 1, .len = (uint32_t)len };
	struct value_page *p;
	struct binding *b;
	int r = hold_find(l, &b);

	if (r == 0)
		r = hold_token(b, &h.token);
	if (r == 0)
		r = value_page_of(l, b, &p);
	if (r == 0)
		r = value_claim_mine(p, b, &h);
	if (r < 0)
		return r;
	value_fill(p, b->claim, &h, buf);
	__atomic_fetch_or(&b->state, STATE_VALUE, __ATOMIC_RELEASE);
	return hold_good(b) ? 0 : -ESTALE;
}

void value_turn(struct binding *b)
{
	struct value_head h = { .state = VALUE_KNOWN };

	if (hold_good(b))
		value_publish(b->value, b->claim, &h, true, false);
}

/* What this hold has set: in the buffer that it has claimed, which nobody else writes to. */
static int value_read_mine(const struct value_page *p, const struct binding *b, struct value_head *ret, void *bytes)
{
	const struct value_buf *mine = &p->buf[value_other(b->claim)];

	*ret = (struct value_head){ .state = VALUE_KNOWN, .len = __atomic_load_n(&mine->mark.len, __ATOMIC_RELAXED) };
	if (ret->len > VALUE_MAX)
		return -EIO;
	value_copy(bytes, mine->bytes, ret->len);
	return 0;
}

/* Of either kind; *ret_mine: it is exclusive. */
static int value_hold(struct dlock *l, struct binding **ret, bool *ret_mine)
{
	uint64_t number;
	int r = hold_find(l, ret);

	*ret_mine = r == 0;
	if (r == -EPERM)
		return hold_shared(l, &number, ret);
	return r == 0 && !hold_good(*ret) ? -ESTALE : r;
}

static int value_get(struct dlock *l, void *buf, size_t *len)
{
	uint8_t bytes[VALUE_MAX];
	struct value_head h;
	struct value_page *p;
	struct binding *b;
	bool mine;
	int r = value_hold(l, &b, &mine);

	if (r == 0)
		r = value_page_of(l, b, &p);
	if (r < 0)
		return r;
	r = mine && value_is_set(b) ? value_read_mine(p, b, &h, bytes) : value_read(p, &h, bytes, sizeof bytes);
	if (value_hold(l, &b, &mine) < 0)
		return -ESTALE;
	if (r < 0 || h.state != VALUE_KNOWN)
		return -ENODATA;
	if (h.len > *len) {
		*len = h.len;
		return -ERANGE;
	}
	memcpy(buf, bytes, h.len);
	*len = h.len;
	return 0;
}

int dlock_value_set(dlock_t *l, const void *buf, size_t len)
{
	int saved = errno, r = EINVAL;

	if (len > VALUE_MAX)
		return EMSGSIZE;
	if (buf || !len)
		r = -value_set(l, buf, len);
	errno = saved;
	return r;
}

int dlock_value_get(dlock_t *l, void *buf, size_t *len)
{
	int saved = errno, r = EINVAL;

	if (len && (buf || !*len))
		r = -value_get(l, buf, len);
	errno = saved;
	return r;
}
