/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "grant.h"

#include "range.h"

/* --- Records --- */

struct master_name *record_of(const struct master *m, name_t n)
{
	uint32_t handle = names_at(m->names, n)->record;

	return handle ? pool_at(&m->records, handle) : NULL;
}

struct master_name *record_make(struct master *m, name_t n, uint32_t limit)
{
	struct name *name = names_at(m->names, n);
	struct master_name *r;

	if (name->record)
		return pool_at(&m->records, name->record);
	name->record = pool_take(&m->records);
	r = pool_at(&m->records, name->record);
	r->limit = limit;
	r->shard_next = m->shard[name->shard].names;
	if (r->shard_next)
		record_of(m, r->shard_next)->shard_prev = n;
	m->shard[name->shard].names = n;
	return r;
}

/* --- What a name carries --- */

struct master_extra *extra_make(struct master *m, struct master_name *r)
{
	if (!r->extra)
		r->extra = pool_take(&m->extras);
	return extra_at(m, r);
}

void extra_drop_if_empty(struct master *m, struct master_name *r)
{
	if (!r->extra || extra_at(m, r)->value || extra_at(m, r)->limit_stamp || extra_at(m, r)->watchers)
		return;
	pool_give(&m->extras, r->extra);
	r->extra = 0;
}

void value_take(struct master *m, struct master_name *r, uint32_t value)
{
	struct master_extra *x = extra_make(m, r);

	value_keep(m->values, value);
	value_drop(m->values, x->value);
	x->value = value;
	r->blank = false;
}

/* It may be lost. */
void value_blank(struct master *m, struct master_name *r)
{
	r->blank = r->limit == MSG_WEIGHT_ALL;
	if (!r->extra)
		return;
	value_drop(m->values, extra_at(m, r)->value);
	extra_at(m, r)->value = 0;
	extra_drop_if_empty(m, r);
}

/* Whether the record stays for what it carries, though nobody has the name open. */
static bool extra_keep_alone(struct master *m, const struct name *name, struct master_name *r)
{
	/* Until it is open, what others say may be older. */
	if (!(m->open & shard_bit(name->shard)) && (r->blank || (r->extra && extra_at(m, r)->limit_stamp)))
		return true;
	if (!r->kept && value_of(m, r) && m->kept < MASTER_KEPT) {
		r->kept = true;
		m->kept++;
	}
	if (!r->kept && (r->blank || value_of(m, r)))
		m->forgot |= shard_bit(name->shard);
	return r->kept;
}

void extra_forget(struct master *m, struct master_name *r)
{
	watchers_forget(m, r);
	if (r->extra)
		extra_at(m, r)->limit_stamp = 0;
	value_blank(m, r);
	r->blank = false;
	if (r->kept)
		m->kept--;
	r->kept = false;
}

static bool passed_on(const struct master *m, const struct master_name *r)
{
	return r->queue && queue_at(m, r)->passed_to.session;
}

static bool mourned(const struct master *m, const struct master_name *r)
{
	return r->queue && queue_at(m, r)->mourned;
}

/* What is listed is not unlinked: its turn comes, and finds that nobody waits. */
void record_drop_if_idle(struct master *m, name_t n)
{
	struct name *name = names_at(m->names, n);
	struct master_name *r = pool_at(&m->records, name->record);

	if (r->claims || r->listed || is_watched(m, r) || r->lost || r->holder || passed_on(m, r) || mourned(m, r) || extra_keep_alone(m, name, r))
		return;
	if (m->telling_at == n)
		m->telling_at = r->shard_next;
	if (r->queue)
		pool_give(&m->queues, r->queue);
	extra_forget(m, r);
	if (r->shard_prev)
		record_of(m, r->shard_prev)->shard_next = r->shard_next;
	else
		m->shard[name->shard].names = r->shard_next;
	if (r->shard_next)
		record_of(m, r->shard_next)->shard_prev = r->shard_prev;
	pool_give(&m->records, name->record);
	name->record = 0;
	names_drop(m->names, n);
}

static void list_put(struct master *m, struct name_list *l, name_t n)
{
	struct master_name *r = record_of(m, n);

	r->listed = true;
	r->next = 0;
	if (l->last)
		record_of(m, l->last)->next = n;
	else
		l->first = n;
	l->last = n;
}

void record_list(struct master *m, name_t n)
{
	unsigned shard = names_at(m->names, n)->shard;

	if (record_of(m, n)->listed)
		return;
	list_put(m, &m->shard[shard].ready, n);
	m->ready |= shard_bit(shard);
}

/* In order of time. Nearly all come to its end: delays are alike. */
static void record_list_later(struct master *m, name_t n, core_nsec_t when)
{
	unsigned shard = names_at(m->names, n)->shard;

	struct name_list *l = &m->shard[shard].later;
	struct master_name *r = record_of(m, n);

	if (r->listed)
		return;
	queue_at(m, r)->look_at = when;
	m->later |= shard_bit(shard);
	if (!l->last || look_at_of(m, record_of(m, l->last)) <= when) {
		list_put(m, l, n);
		return;
	}
	r->listed = true;
	name_t *at = &l->first;
	while (look_at_of(m, record_of(m, *at)) <= when)
		at = &record_of(m, *at)->next;
	r->next = *at;
	*at = n;
}

uint32_t claim_find(const struct master *m, const struct master_name *r, unsigned peer)
{
	uint32_t i = r ? r->claims : 0;

	while (i && claim_at(m, i)->peer != peer)
		i = claim_at(m, i)->next;
	return i;
}

uint32_t claim_make(struct master *m, name_t n, struct master_name *r, unsigned peer)
{
	struct peer *p = &m->peers->v[peer];
	uint32_t i = pool_take(&m->claims);
	struct master_claim *c = claim_at(m, i);

	if (r->kept)
		m->kept--;
	r->kept = false;
	c->name = n;
	c->limit_old = r->extra && extra_at(m, r)->limit_stamp;
	c->peer = (uint16_t)peer;
	c->keep = CLAIM_KEEP_ALL;
	c->next = r->claims;
	r->claims = i;
	c->peer_next = p->claims;
	if (c->peer_next)
		claim_at(m, c->peer_next)->peer_prev = i;
	p->claims = i;
	return i;
}

void claim_drop(struct master *m, name_t n, uint32_t handle)
{
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, handle);
	uint32_t *link = &r->claims;

	claim_hold(m, r, c, 0);
	if (r->queue && queue_at(m, r)->heir == handle)
		heir_gone(m, names_at(m->names, n)->shard, queue_at(m, r));
	claim_wait_not(m, r, handle);
	while (*link != handle)
		link = &claim_at(m, *link)->next;
	*link = c->next;
	if (c->peer_prev)
		claim_at(m, c->peer_prev)->peer_next = c->peer_next;
	else
		m->peers->v[c->peer].claims = c->peer_next;
	if (c->peer_next)
		claim_at(m, c->peer_next)->peer_prev = c->peer_prev;
	pool_give(&m->claims, handle);
}

void claim_hold(struct master *m, struct master_name *r, struct master_claim *c, uint32_t held)
{
	bool leads = c->held == MSG_WEIGHT_ALL;

	r->held = r->held - c->held + held;
	c->held = held;
	if (leads != (held == MSG_WEIGHT_ALL) && is_watched(m, r) && m->open & shard_bit(names_at(m->names, c->name)->shard)) {
		extra_at(m, r)->asked = false;
		record_list(m, c->name);
	}
}

struct master_queue *queue_make(struct master *m, struct master_name *r)
{
	if (!r->queue)
		r->queue = pool_take(&m->queues);
	return queue_at(m, r);
}

void queue_drop_if_idle(struct master *m, struct master_name *r)
{
	const struct master_queue *q = queue_at(m, r);

	if (q->first || q->upgrade || q->not_before || q->look_at || q->passed_to.session || q->mourned)
		return;
	pool_give(&m->queues, r->queue);
	r->queue = 0;
}

static void queue_unlink(struct master *m, struct master_queue *q, const struct master_wait *w)
{
	if (w->prev)
		wait_at(m, claim_at(m, w->prev))->next = w->next;
	else
		q->first = w->next;
	if (w->next)
		wait_at(m, claim_at(m, w->next))->prev = w->prev;
	else
		q->last = w->prev;
}

void claim_wait_not(struct master *m, struct master_name *r, uint32_t handle)
{
	struct master_claim *c = claim_at(m, handle);
	struct master_wait *w = wait_at(m, c);
	struct master_queue *q = queue_at(m, r);

	if (!w)
		return;
	if (NEVER(q->heir == handle))
		heir_gone(m, names_at(m->names, c->name)->shard, q);
	if (w->upgrade)
		q->upgrade = 0;
	else
		queue_unlink(m, q, w);
	pool_give(&m->waits, c->wait);
	c->wait = 0;
	queue_drop_if_idle(m, r);
}

static bool wait_before(const struct master_wait *a, const struct master_wait *b)
{
	return a->priority > b->priority || (a->priority == b->priority && a->stamp < b->stamp);
}

/* Behind all that are before it; new ones have the highest stamp, so this is short. */
static void queue_link(struct master *m, struct master_queue *q, uint32_t handle, struct master_wait *w)
{
	uint32_t after = q->last;

	while (after && wait_before(w, wait_at(m, claim_at(m, after))))
		after = wait_at(m, claim_at(m, after))->prev;
	w->prev = after;
	w->next = after ? wait_at(m, claim_at(m, after))->next : q->first;
	if (after)
		wait_at(m, claim_at(m, after))->next = handle;
	else
		q->first = handle;
	if (w->next)
		wait_at(m, claim_at(m, w->next))->prev = handle;
	else
		q->last = handle;
}

void claim_wait(struct master *m, struct master_name *r, uint32_t handle, const struct master_wait *what)
{
	struct master_claim *c = claim_at(m, handle);
	struct master_queue *q = queue_make(m, r);

	core_assert(!c->wait);
	c->wait = pool_take(&m->waits);
	struct master_wait *w = wait_at(m, c);
	*w = *what;
	if (w->upgrade)
		q->upgrade = handle;
	else
		queue_link(m, q, handle, w);
}

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
