/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "grant.h"

#include "range.h"

/* --- Answers --- */

void claim_answer(struct master *m, name_t n, const struct master_claim *c, struct step *s, struct msg *msg)
{
	const struct name *name = names_at(m->names, n);

	msg->key = name->key;
	msg->key_len = name->len;
	msg->shard = name->shard;
	msg->epoch = m->shard[name->shard].epoch;
	msg->from = m->self;
	msg->to = m->peers->v[c->peer].id;
	msg->number = c->number;
	step_send(s, msg);
}

void claim_grant_say(struct master *m, name_t n, const struct master_claim *c, uint64_t stamp, struct step *s)
{
	const struct master_name *r = record_of(m, n);
	struct msg grant = { .kind = MSG_GRANT, .range = c->range, .stamp = stamp, .held = c->held,
			     .flags = c->told_lost ? MSG_FLAG_LOST : 0, .value = value_state(m, r), .kept = value_of(m, r) };

	if (c->held == MSG_WEIGHT_ALL && is_watched(m, r)) {
		grant.flags |= MSG_FLAG_OBSERVED;
		extra_at(m, r)->asked = true;
	}
	claim_answer(m, n, c, s, &grant);
}

/* --- The rule --- */

static bool exclusive(const struct master_name *r, uint32_t weight)
{
	return r->limit == MSG_WEIGHT_ALL && weight == MSG_WEIGHT_ALL;
}

/* The counter has come to its end. The next epoch begins it anew, if there is one. */
static void shard_raise(struct master *m, name_t n, uint32_t handle, struct step *s)
{
	unsigned shard = names_at(m->names, n)->shard;
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, handle);

	if (m->shard[shard].epoch < EPOCH_MAX) {
		m->open &= ~shard_bit(shard);
		m->raise |= shard_bit(shard);
		return;
	}
	struct msg refused = { .kind = MSG_REFUSED, .error = -CORE_EOVERFLOW };
	claim_wait_not(m, r, handle);
	claim_answer(m, n, c, s, &refused);
	if (!c->held)
		claim_drop(m, n, handle);
	record_list(m, n);
}

/* The next token: above all that were granted. Of exclusive ranges only this claim's own can be in use. */
static struct core_range range_choose(const struct master *m, unsigned shard, const struct master_name *r,
				      const struct master_claim *c, core_nsec_t now)
{
	const struct master_shard *sh = &m->shard[shard];
	uint32_t wanted = wait_at(m, c)->wanted;
	bool refill = c->held == wanted && token_epoch(c->range.first) == sh->epoch;
	struct core_range next = { .first = sh->floor + 1, .count = exclusive(r, wanted) ? RANGE_FIRST : 1 };

	if (c->held && token_epoch(c->range.first) == sh->epoch)
		next.first = c->range.first + c->range.count;
	if (!refill)
		next.first = max_u64(next.first, sh->floor + 1);
	else if (exclusive(r, wanted))
		next.count = range_next_count(c->range.count, now - claim_granted_at(c));
#ifdef CORE_BREAK_REFILL
	if (refill)
		next.first = c->range.first + c->range.count / 2;
#endif
	return next;
}

/* The first grant after a holder was lost, or that nobody knew whether one was, says so; readers do not settle it. */
static bool lost_say(struct master *m, unsigned shard, struct master_name *r, uint32_t weight)
{
	bool say = r->lost;

#ifndef CORE_BREAK_SUSPECT
	say |= m->suspect & shard_bit(shard) && !r->known;
#else
	(void)m, (void)shard;
#endif
	bool unknown = !r->known, suspect = m->suspect & shard_bit(shard), forgot = m->forgot & shard_bit(shard);
#ifdef CORE_BREAK_VALUE_SUSPECT
	suspect = forgot = false;
#endif
	if (unknown && (suspect || forgot))
		value_blank(m, r);
	r->lost = say && r->limit == MSG_WEIGHT_ALL && weight != MSG_WEIGHT_ALL;
	r->unmended &= r->lost;
	r->known = true;
	return say;
}

void claim_grant(struct master *m, name_t n, uint32_t handle, struct step *s)
{
	unsigned shard = names_at(m->names, n)->shard;
	struct master_shard *sh = &m->shard[shard];
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, handle);
	struct master_queue *q = queue_at(m, r);
	bool heir = q->heir == handle;
	struct core_range next = heir ? q->heir_range : range_choose(m, shard, r, c, s->now);
	core_nsec_t since = heir ? q->heir_at : s->now;

#ifndef CORE_BREAK_RAISE
	if (!heir && (next.first > token_make(sh->epoch, COUNTER_LAST_FIRST) || token_counter(sh->stamp) > COUNTER_LAST_FIRST)) {
		shard_raise(m, n, handle, s);
		return;
	}
#endif
	uint64_t stamp = c->held ? 0 : wait_at(m, c)->stamp;
	uint32_t wanted = wait_at(m, c)->wanted;

	/* Of those who share it, also of those who are lost, the longest counts. */
	r->delay = !exclusive(r, wanted) && r->held && r->delay > wait_at(m, c)->delay ? r->delay : wait_at(m, c)->delay;
	r->alone |= exclusive(r, wanted);
	if (heir)
		q->heir = 0;
	claim_wait_not(m, r, handle);
	c->refill = c->held == wanted;
	c->tried = c->pressed = false;
	claim_hold(m, r, c, wanted);
	c->range = next;
	claim_granted(c, since);
	c->keep = CLAIM_KEEP_ALL;
	if (next.count == 1)
		sh->floor = max_u64(sh->floor, next.first);
	c->told_lost = lost_say(m, shard, r, wanted);
	if (c->limit_old)
		limit_tell(m, n, c, s);
	claim_grant_say(m, n, c, stamp, s);
}

/* `missing` of `wanted` is what does not fit. */
static uint32_t keep_of(const struct master_name *r, const struct master_claim *c, uint32_t wanted, uint64_t missing)
{

	if (r->limit == MSG_WEIGHT_ALL)
		return wanted == MSG_WEIGHT_ALL ? 0 : 1;
	return missing >= c->held ? 0 : c->held - (uint32_t)missing;
}

/* The priority of the first in line: an heir may be before it, until the holder has let go of that one. */
static uint8_t pressing(const struct master *m, const struct master_name *r)
{
	uint32_t first = r->queue ? queue_at(m, r)->first : 0;

	return first ? wait_at(m, claim_at(m, first))->priority : 0;
}

void revoke_say(struct master *m, name_t n, const struct master_claim *c, struct step *s)
{
	struct msg msg = { .kind = MSG_REVOKE, .held = c->keep, .seen = c->range.first, .flags = c->tried ? MSG_FLAG_TRY : 0 };

	msg.priority = pressing(m, record_of(m, n));
	heir_say(m, record_of(m, n), c, &msg);
#ifdef CORE_BREAK_PASS_HEIR
	if (queue_at(m, record_of(m, n)))
		heir_end(m, names_at(m->names, n)->shard, queue_at(m, record_of(m, n)));
#endif
	claim_answer(m, n, c, s, &msg);
}

/* false: there may be more to ask. */
static bool revoke(struct master *m, name_t n, uint32_t handle, struct step *s)
{
	struct master_name *r = record_of(m, n);
	const struct master_claim *next = claim_at(m, handle);
	uint32_t wanted = wait_at(m, next)->wanted;
	bool tries = wait_at(m, next)->tries, presses = pressing(m, r);
	uint64_t missing = r->held - next->held + wanted - r->limit;
	unsigned asked = 0;

	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next) {
		struct master_claim *c = claim_at(m, i);
		uint32_t keep = keep_of(r, c, wanted, missing);

		if (c == next || c->held <= keep)
			continue;
		bool named = heir_make(m, n, c, handle, s->now) || heir_overtaken(queue_at(m, r));
		if (c->keep <= keep && c->tried == tries && c->pressed >= presses && !named)
			continue;
		if (asked++ == GRANT_REVOKES)
			return false;
		c->keep = keep;
		c->tried = tries;
		c->pressed = presses;
		revoke_say(m, n, c, s);
	}
	return true;
}

void lost_alone(struct master *m, struct master_name *r, core_nsec_t from)
{
	r->lost = true;
	r->unmended = false;
	value_blank(m, r);
	if (r->delay)
		queue_make(m, r)->not_before = max_u64(not_before_of(m, r), from + delay_span(r->delay));
	r->delay = 0;
}

/* The master before knew of a holder, who has not told of it: it was lost, or what it left was. */
static void holder_settle(struct master *m, unsigned shard, struct master_name *r)
{
	/* One that is still there has given back in a way that it does not know any more: was started anew. */
	if (r->holder && !r->heard)
		lost_alone(m, r, m->shard[shard].opened_at);
	r->holder = 0;
	r->heard = false;
}

/* Of the suspect names nothing is known but that it may have been held until the reign before ended. */
static core_nsec_t delay_of(const struct master *m, unsigned shard, const struct master_name *r)
{
	core_nsec_t when = r->lost ? not_before_of(m, r) : 0;

#ifndef CORE_BREAK_DELAY_SUSPECT
	if (m->suspect & shard_bit(shard) && !r->known)
		when = max_u64(when, m->shard[shard].not_before);
#else
	(void)shard;
#endif
	return when;
}

/* Shares and permits may be lost that nobody knows of: only what fits beside any number of them is granted. */
static core_nsec_t unknown_of(const struct master *m, unsigned shard, const struct master_name *r, const struct master_claim *c)
{
	uint32_t wanted = wait_at(m, c)->wanted;
	bool share = r->limit == MSG_WEIGHT_ALL && wanted != MSG_WEIGHT_ALL;

#ifdef CORE_BREAK_DELAY_UNKNOWN
	return 0;
#endif
	return share || r->alone || wanted <= c->held ? 0 : m->shard[shard].unknown_until;
}

/* If what is lost did not count any more, it would fit. */
static bool mourned_in_the_way(const struct master *m, const struct master_name *r, const struct master_claim *c)
{
	return r->held - queue_at(m, r)->mourned_weight - c->held + wait_at(m, c)->wanted <= r->limit;
}

/* Once it is granted, a later master must know that there may be such delays: the store is told before. */
static bool delay_recorded(struct master *m, unsigned shard, const struct master_name *r, const struct master_wait *w)
{
	struct master_shard *sh = &m->shard[shard];

#ifndef CORE_BREAK_DELAY_RECORD
	enum delay_kind kind = exclusive(r, w->wanted) ? DELAY_ALONE : DELAY_SHARED;

	if (w->delay > sh->recorded[kind]) {
		sh->record_want[kind] = w->delay > sh->record_want[kind] ? w->delay : sh->record_want[kind];
		m->record |= shard_bit(shard);
		return false;
	}
#endif
	return true;
}

static void refuse_busy(struct master *m, name_t n, uint32_t handle, struct step *s)
{
	claim_refuse(m, n, handle, -CORE_EBUSY, s);
	if (names_at(m->names, n)->record)
		record_list(m, n);
}

void grant_serve(struct master *m, name_t n, struct step *s)
{
	unsigned shard = names_at(m->names, n)->shard;
	struct master_name *r = record_of(m, n);
	uint32_t handle = queue_head(m, r);

	if (!(m->open & shard_bit(shard)))
		return;
	if (!handle) {
		limit_enforce(m, n, s);
		return;
	}
	struct master_claim *c = claim_at(m, handle);
	holder_settle(m, shard, r);
	pass_settle(m, shard, r);
	core_nsec_t when = delay_of(m, shard, r);
	core_nsec_t unknown = unknown_of(m, shard, r, c);
	bool fits = wait_at(m, c)->wanted <= c->held || r->held - c->held + wait_at(m, c)->wanted <= r->limit;

	if (wait_at(m, c)->tries && (s->now < when || s->now < unknown || (!fits && mourned_in_the_way(m, r, c)))) {
		refuse_busy(m, n, handle, s);
		return;
	}
	if (s->now < when || s->now < unknown) {
		if (s->now < when)
			queue_at(m, r)->not_before = when;
		record_list_later(m, n, max_u64(when, unknown));
		return;
	}
	queue_at(m, r)->not_before = 0;
	if (!fits) {
		if (!revoke(m, n, handle, s))
			record_list(m, n);
		return;
	}
	if (!delay_recorded(m, shard, r, wait_at(m, c))) {
		record_list_later(m, n, NEVER_YET);
		return;
	}
	claim_grant(m, n, handle, s);
	if (names_at(m->names, n)->record && queue_head(m, r))
		record_list(m, n);
}
