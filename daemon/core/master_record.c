/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a master has of a name: its record, what the name carries, its claims, and the line of those who wait. The rule is in grant.c. */
#include "grant.h"

/* --- Records --- */

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

static bool keep_alone(struct master *m, struct master_name *r)
{
	if (!r->kept && m->kept < MASTER_KEPT) {
		r->kept = true;
		m->kept++;
	}
	return r->kept;
}

/* ... since the next grant would not say that somebody was lost. It does in a suspect reign, of all that have no record. */
static bool lost_keep_alone(struct master *m, const struct name *name, struct master_name *r)
{
	if (!r->lost || r->queue)
		return r->lost;
	if (m->suspect & m->open & shard_bit(name->shard) && !r->extra)
		return false;
	return !r->unmended || keep_alone(m, r);
}

/* Whether the record stays for what it carries, though nobody has the name open. */
static bool extra_keep_alone(struct master *m, const struct name *name, struct master_name *r)
{
	/* Until it is open, what others say may be older. */
	if (!(m->open & shard_bit(name->shard)) && (r->blank || (r->extra && extra_at(m, r)->limit_stamp)))
		return true;
	if (value_of(m, r))
		keep_alone(m, r);
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

/* --- The end of a record, and its turn --- */

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

	if (r->claims || r->listed || is_watched(m, r) || r->holder || passed_on(m, r) || mourned(m, r))
		return;
	if (lost_keep_alone(m, name, r) || extra_keep_alone(m, name, r))
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
void record_list_later(struct master *m, name_t n, core_nsec_t when)
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

/* --- Claims --- */

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

/* --- Those who wait --- */

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
