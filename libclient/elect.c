/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elections. Who leads holds the name's word as one holds a lock; what he says of himself stands in its page
 * (proto/value.h), which every process of the node reads. A term is the token of the hold.
 *
 * What must hold: whoever has the word says so before he is told that he leads, and takes it back before he lets go, so that
 * the page names him only while he leads. Where he cannot, because he is dead or his lease has gone, the daemon does.
 * Nobody believes the page after the deadline: then other nodes may have another leader already.
 */
#include <errno.h>

#include "conn.h"
#include "deadline.h"
#include "object.h"
#include "proto/value.h"
#include "thread.h"

#define LOOK_NS   UINT64_C(1000000000)   /* somebody may have been stopped between what he wrote and the wake-up */
#define ATTACH_NS UINT64_C(1000000000)   /* for dlock_elect_leader(), where the name has to be opened anew */

struct dlock_elect {
	struct dlock h;
	uint32_t count;                  /* of what was proclaimed in this term */
};

int dlock_elect_open(dlock_elect_t **ret, const char *name, const dlock_attr_t *attr)
{
	struct dlock_attr a = ATTR_DEFAULT;
	void *e;
	int r;

	if (!ret)
		return EINVAL;
	if (attr)
		a = *attr;
	a.robust = a.recursive = false;
	r = handle_open(&e, sizeof(dlock_elect_t), name, &a, KIND_ELECT, 0, NULL);
	if (r == 0)
		*ret = e;
	return r;
}

int dlock_elect_close(dlock_elect_t *e)
{
	return handle_close(e ? &e->h : NULL);
}

/* --- leading --- */

/* Other nodes, and those who poll, hear of it from the daemon, if there are any. */
static void elect_ring(const struct binding *b)
{
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_SEQ_CST);         /* either this sees that they are, or the daemon what was written */
#endif
	if (!__atomic_load_n(&b->value->observed, __ATOMIC_SEQ_CST))
		return;
	seg_bit_set(b->space->base, SEG_WANT, b->slot);
	space_ring(b->space);
}

/* Whatever stands there while the hold is good, nobody can have come later. */
static void elect_insist(struct value_page *p, const struct value_head *h, const void *buf)
{
	uint64_t claim;

	for (unsigned tries = 0; tries < VALUE_TRIES; tries++) {
		if (!value_claim(p, value_load(p), &claim))
			continue;
		value_fill(p, claim, h, buf);
		if (value_publish(p, claim, h, true, false) == 0)
			return;
	}
}

static int elect_say(const struct binding *b, const struct value_head *h, const void *buf)
{
	if (!value_tell(b->value, h, buf, false)) {
		if (!hold_good(b))
			return -ESTALE;
		elect_insist(b->value, h, buf);
	}
	elect_ring(b);
	return 0;
}

static int elect_count(dlock_elect_t *e, uint32_t *ret)
{
	uint32_t count = __atomic_load_n(&e->count, __ATOMIC_RELAXED);

	do {
		if (count >= VALUE_NOBODY - 1)
			return -EOVERFLOW;
		*ret = count + 1;
	} while (!__atomic_compare_exchange_n(&e->count, &count, count + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 0;
}

static int elect_proclaim(dlock_elect_t *e, const void *buf, size_t len)
{
	struct value_head h = { .state = VALUE_KNOWN, .len = (uint32_t)len };
	struct binding *b;
	int r = hold_find(&e->h, &b);

	if (r == 0)
		r = hold_token(b, &h.token);
	if (r == 0)
		r = elect_count(e, &h.count);
	return r == 0 ? elect_say(b, &h, buf) : r;
}

/* The word is taken. Who has lost it already has never led; nor has a child, of a signal handler that forked just now (-EPERM). */
static int elect_begin(dlock_elect_t *e, const void *buf, size_t len)
{
	struct binding *b;
	int r = hold_find(&e->h, &b);

	if (r < 0)
		return r;
	if (__atomic_load_n(&b->held, __ATOMIC_RELAXED) & LOCK_D)
		hold_mend(b);
	__atomic_store_n(&e->count, 0, __ATOMIC_RELAXED);
	r = elect_proclaim(e, buf, len);
	if (r < 0)
		dlock_post(&e->h);
	return r;
}

static int value_valid(const void *buf, size_t len)
{
	if (len > VALUE_MAX)
		return EMSGSIZE;
	return buf || !len ? 0 : EINVAL;
}

int dlock_elect_campaign(dlock_elect_t *e, const void *value, size_t len)
{
	int r = value_valid(value, len);

	if (r)
		return r;
	do {
		r = dlock_wait(&e->h);
		if (r == 0)
			r = -elect_begin(e, value, len);
	} while (r == ESTALE || r == EPERM);
	return r;
}

int dlock_elect_clockcampaign(dlock_elect_t *e, const void *value, size_t len, clockid_t clock, const struct timespec *abs)
{
	int r = value_valid(value, len);

	if (r)
		return r;
	do {
		r = dlock_clockwait(&e->h, clock, abs);
		if (r == 0)
			r = -elect_begin(e, value, len);
	} while (r == ESTALE || r == EPERM);
	return r;
}

int dlock_elect_trycampaign(dlock_elect_t *e, const void *value, size_t len)
{
	int r = value_valid(value, len);

	if (r == 0)
		r = dlock_trywait(&e->h);
	if (r == 0)
		r = -elect_begin(e, value, len);
	return r == ESTALE || r == EPERM ? EBUSY : r;
}

int dlock_elect_proclaim(dlock_elect_t *e, const void *value, size_t len)
{
	int r = value_valid(value, len);

	return r ? r : -elect_proclaim(e, value, len);
}

void elect_ended(const struct binding *b)
{
	struct value_head h = { .state = VALUE_NONE, .count = VALUE_NOBODY };

	if (b->value && hold_token(b, &h.token) == 0)
		elect_say(b, &h, NULL);
}

int dlock_elect_resign(dlock_elect_t *e)
{
	struct binding *b;
	int r = hold_find(&e->h, &b);

	if (r < 0)
		return -r;
	elect_ended(b);
	return dlock_post(&e->h);
}

int dlock_elect_check(dlock_elect_t *e)
{
	return dlock_check(&e->h);
}

int dlock_elect_term(dlock_elect_t *e, uint64_t *ret)
{
	return dlock_token(&e->h, ret);
}

int dlock_elect_fd(dlock_elect_t *e, int *ret)
{
	return dlock_fd(&e->h, ret);
}

/* --- looking --- */

/* Opened anew, where that goes at once. */
__attribute__((noinline)) static int elect_bind(dlock_elect_t *e, struct binding **ret)
{
	struct limit soon = limit_none;
	int saved = errno, r;

	soon.until_ns = limit_slice(&limit_none, ATTACH_NS);
	r = object_enter(&e->h);
	if (r == 0) {
		r = object_bind(&e->h, &soon, ret);
		object_exit(&e->h);
	}
	errno = saved;
	return r == -ETIMEDOUT || r == -ENOTCONN || (r == 0 && !(*ret)->value) ? -ENOENT : r;
}

/* In all cases. */
__attribute__((noinline)) static int leader_read(dlock_elect_t *e, void *buf, size_t *len, uint64_t *ret_term)
{
	struct binding *b = binding_now(&e->h);
	struct value_head h;
	int r = 0;

	if (__builtin_expect(!b->value || !deadline_good(b->line), 0)) {
		r = b->value && !binding_lost(b) ? -ENOENT : elect_bind(e, &b);
		if (r < 0)
			return -r;
	}
	if (value_read(b->value, &h, buf, len ? *len : 0) < 0 || h.state != VALUE_KNOWN || !deadline_good(b->line))
		return ENOENT;
	if (len && h.len > *len)
		r = ERANGE;
	if (len)
		*len = h.len;
	if (ret_term && !r)
		*ret_term = h.token;
	return r;
}

#define SHORT 64u

/* Without a call: in two pieces, that overlap where they have to. */
static inline void copy_short(char *to, const char *from, size_t n)
{
#ifdef __SANITIZE_THREAD__
	value_copy(to, from, n);
#else
	if (n >= 32) {
		memcpy(to, from, 32);
		memcpy(to + n - 32, from + n - 32, 32);
	} else if (n >= 16) {
		memcpy(to, from, 16);
		memcpy(to + n - 16, from + n - 16, 16);
	} else if (n >= 8) {
		memcpy(to, from, 8);
		memcpy(to + n - 8, from + n - 8, 8);
	} else {
		for (size_t i = 0; i < n; i++)
			to[i] = from[i];
	}
#endif
}

/*
 * Nearly always: somebody leads, and what he said of himself is short, and fits. The same as value_read(), for a word that is not torn.
 *
 * What is promised: at some moment of the call this was published here, and the lease was good. A daemon that lives publishes the end of the
 * lease itself, which changes the word; the deadline is for one that is stopped, and so is asked of nobody but the counter, at each read. It
 * comes last: it was not over yet when the word was the same still. The processor may read the counter before what stands in front of it,
 * by no more than it looks ahead; the deadline is early by far more. To read it is nearly all that this call costs, at any place in it.
 */
int dlock_elect_leader(dlock_elect_t *e, void *buf, size_t *len, uint64_t *ret_term)
{
	const struct binding *b = binding_now(&e->h);
	const struct value_page *p = b->value;
	const struct value_buf *from;
	uint64_t w, token;
	size_t n;

	if (__builtin_expect(!p || !len, 0))
		return leader_read(e, buf, len, ret_term);
	w = value_load(p);
	from = &p->buf[w & 1];
	n = __atomic_load_n(&from->mark.len, __ATOMIC_RELAXED);
	token = __atomic_load_n(&from->mark.token, __ATOMIC_RELAXED);
	if (__builtin_expect((w & (VALUE_STATE | VALUE_NOTE | VALUE_TORN)) != VALUE_KNOWN || n - 1 >= SHORT || n > *len, 0))
		return leader_read(e, buf, len, ret_term);
	copy_short(buf, (const char *)from->bytes, n);
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	if (__builtin_expect(((value_load(p) ^ w) & (VALUE_CUR | VALUE_PUBS)) || !deadline_good_ticks(b->line), 0))
		return leader_read(e, buf, len, ret_term);
	*len = n;
	if (ret_term)
		*ret_term = token;
	return 0;
}

static uint64_t term_now(const struct binding *b)
{
	struct value_head h;

	return value_read(b->value, &h, NULL, 0) == 0 && h.state == VALUE_KNOWN && deadline_good(b->line) ? h.token : 0;
}

/* Until the next look: the daemon may be stopped, and the deadline pass. */
static uint64_t look_span(const struct binding *b)
{
	uint64_t ns = __atomic_load_n(&b->line->ns, __ATOMIC_ACQUIRE), now;

	if (ns == NODE_NEVER)
		return LOOK_NS;
	now = boottime_ns();
	return ns > now && ns - now < LOOK_NS ? ns - now + 1 : LOOK_NS;
}

/* 0: look again. */
static int observe_sleep(const struct binding *b, uint64_t pub, const struct limit *limit)
{
	struct timespec until;
	int r;

	if (!value_announce(b->value, &pub))
		return 0;
	until = limit_timespec(limit_slice(limit, look_span(b)));
	r = futex_wait_class((uint32_t *)&b->value->pub, (uint32_t)pub, UINT32_MAX, limit->clock, &until);
	return r == -ETIMEDOUT || r == -EINTR ? limit_over(limit) : 0;
}

/* 1: look again. Where the name has to be opened anew nobody is known to lead meanwhile. */
static int observe_once(dlock_elect_t *e, uint64_t *term, const struct limit *limit)
{
	struct binding *b = binding_now(&e->h);
	uint64_t pub, now = 0;
	int r;

	if (!thread_serial()) {          /* a child now */
		r = object_enter(&e->h);
		return r < 0 ? r : 1;
	}
	if (!b->value || binding_lost(b)) {
		if (*term) {
			*term = 0;
			return 0;
		}
		r = object_bind(&e->h, limit, &b);
		return r < 0 ? r : 1;
	}
	pub = value_load(b->value);
	now = term_now(b);
	if (now != *term) {
		*term = now;
		return 0;
	}
	r = observe_sleep(b, pub, limit);
	return r < 0 ? r : 1;
}

static int elect_observe(dlock_elect_t *e, uint64_t *term, const struct limit *limit)
{
	int saved = errno, r = object_enter(&e->h);

	if (r == 0) {
		do {
			r = observe_once(e, term, limit);
		} while (r == 1);
		object_exit(&e->h);
	}
	errno = saved;
	return -r;
}

int dlock_elect_observe(dlock_elect_t *e, uint64_t *term)
{
	return term ? elect_observe(e, term, &limit_none) : EINVAL;
}

int dlock_elect_clockobserve(dlock_elect_t *e, uint64_t *term, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;

	if (!term || limit_parse(&limit, clock, abs) < 0)
		return EINVAL;
	return elect_observe(e, term, &limit);
}
