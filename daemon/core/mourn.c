/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lock-delay of shares and permits: what is lost with its node counts as held until the delay is over. So whatever fits beside it is
 * granted, and only what does not fit waits.
 *
 * An entry is one of two things:
 *
 *   lost         counts in `held` of its name, until the time comes (mourn_tick)
 *   in doubt     while the shard is frozen or opens: a session had so much when the former reign ended. When the shard opens (mourn_settle)
 *                that incarnation has said all that it has, so what it had is its own affair; or it has ended, or was started anew and says
 *                nothing of it: then it is lost from then on.
 *
 * A master that hands over tells the next of both, by MARK with SHARED, numbered: what is said twice is passed over by its number. A
 * reign that begins without that knows nothing of who held: whatever it grants might be one of the lost. So it grants, but for
 * what may be granted beside any number of shares, and names of which it knows that they were held alone, nothing before `unknown_until`: the longest
 * such delay of the shard in the store, counted from its opening.
 *
 * Where there is no memory for an entry all of the shard waits, instead of one name.
 */
#include "grant.h"

static struct master_mourned *mourned_at(const struct master *m, uint32_t handle)
{
	return handle ? pool_at(&m->mourned, handle) : NULL;
}

/* By time; those in doubt are the last. */
static void link_in(struct master *m, unsigned shard, uint32_t handle)
{
	struct master_shard *sh = &m->shard[shard];
	struct master_mourned *e = mourned_at(m, handle);
	uint32_t *at = &sh->mourned;

	m->mourns |= shard_bit(shard);
	if (sh->mourned && mourned_at(m, sh->mourned_last)->until <= e->until)
		at = &mourned_at(m, sh->mourned_last)->next;
	while (*at && mourned_at(m, *at)->until <= e->until)
		at = &mourned_at(m, *at)->next;
	e->next = *at;
	*at = handle;
	if (!e->next)
		sh->mourned_last = handle;
}

static void link_out_first(struct master *m, unsigned shard)
{
	struct master_shard *sh = &m->shard[shard];

	sh->mourned = mourned_at(m, sh->mourned)->next;
	if (sh->mourned)
		return;
	sh->mourned_last = 0;
	m->mourns &= ~shard_bit(shard);
}

static void count(struct master *m, const struct master_mourned *e)
{
	struct master_name *r = record_of(m, e->name);

	if (e->until == NEVER_YET)
		return;
	r->held += e->weight;
	queue_at(m, r)->mourned_weight += e->weight;
}

static void count_not(struct master *m, const struct master_mourned *e)
{
	struct master_name *r = record_of(m, e->name);

	if (e->until == NEVER_YET)
		return;
	r->held -= e->weight;
	queue_at(m, r)->mourned_weight -= e->weight;
}

/* false: there is no memory. */
static bool entry_make(struct master *m, const struct master_mourned *what)
{
	struct master_name *r = record_of(m, what->name);

	if (pool_reserve(&m->mourned, 1) < 0 || (!r->queue && pool_reserve(&m->queues, 1) < 0))
		return false;
	uint32_t handle = pool_take(&m->mourned);
	*mourned_at(m, handle) = *what;
	queue_make(m, r)->mourned++;
	count(m, what);
	link_in(m, names_at(m->names, what->name)->shard, handle);
	return true;
}

/* Takes the first of the shard away. The record may be dropped. */
static void entry_end(struct master *m, unsigned shard)
{
	uint32_t handle = m->shard[shard].mourned;
	struct master_mourned *e = mourned_at(m, handle);
	name_t n = e->name;
	struct master_name *r = record_of(m, n);

	link_out_first(m, shard);
	count_not(m, e);
	queue_at(m, r)->mourned--;
	pool_give(&m->mourned, handle);
	queue_drop_if_idle(m, r);
}

static void all_wait(struct master *m, unsigned shard, core_nsec_t until)
{
	m->shard[shard].unknown_until = max_u64(m->shard[shard].unknown_until, until);
}

void mourn(struct master *m, name_t n, uint32_t weight, core_nsec_t from)
{
	unsigned shard = names_at(m->names, n)->shard;
	uint16_t delay = record_of(m, n)->delay;
	struct master_mourned e = { .name = n, .weight = weight, .delay = delay, .until = from + delay_span(delay) };

#ifndef CORE_BREAK_DELAY_SHARE
	if (weight && delay && !entry_make(m, &e))
		all_wait(m, shard, e.until);
#endif
}

void mourn_frozen(struct master *m, name_t n)
{
	const struct master_name *r = record_of(m, n);
	unsigned shard = names_at(m->names, n)->shard;

	for (uint32_t i = r->delay ? r->claims : 0; i; i = claim_at(m, i)->next) {
		const struct master_claim *c = claim_at(m, i);
		struct master_mourned e = { .name = n, .weight = c->held, .delay = r->delay, .until = NEVER_YET, .holder = m->peers->v[c->peer].id };

		if (c->held && c->held != MSG_WEIGHT_ALL && !entry_make(m, &e))
			m->unsure |= shard_bit(shard);
	}
}

/* Whether what it had is lost. What an ended session has said in this reign is taken away with its claims. */
static bool doubt_is_lost(const struct master *m, const struct master_mourned *e)
{
	const struct peer *p = peers_find(m->peers, e->holder.session);
	uint32_t handle = p ? claim_find(m, record_of(m, e->name), peers_index(m->peers, p)) : 0;

	if (!p || (!p->ended && p != m->peers->v && !p->listed))
		return true;
	if (p->ended)
		return !handle;
	return !msg_peer_same(p->id, e->holder) && (!handle || claim_at(m, handle)->unaware);
}

/* They are the last of the list. */
static uint32_t doubts_take(struct master *m, unsigned shard)
{
	struct master_shard *sh = &m->shard[shard];
	uint32_t last = 0, i = sh->mourned;

	while (i && mourned_at(m, i)->until != NEVER_YET) {
		last = i;
		i = mourned_at(m, i)->next;
	}
	if (last)
		mourned_at(m, last)->next = 0;
	else
		sh->mourned = 0;
	sh->mourned_last = last;
	if (!last)
		m->mourns &= ~shard_bit(shard);
	return i;
}

void mourn_settle(struct master *m, unsigned shard)
{
	struct master_shard *sh = &m->shard[shard];
	uint32_t next;

	if ((m->unknown | m->unsure) & shard_bit(shard))
		all_wait(m, shard, sh->opened_at + delay_span(sh->recorded[DELAY_SHARED]));
	m->unknown &= ~shard_bit(shard);
	m->unsure &= ~shard_bit(shard);
	for (uint32_t i = doubts_take(m, shard); i; i = next) {
		struct master_mourned *e = mourned_at(m, i);
		name_t n = e->name;

		next = e->next;
		if (doubt_is_lost(m, e)) {
			e->until = sh->opened_at + delay_span(e->delay);
			count(m, e);
			link_in(m, shard, i);
			continue;
		}
		queue_at(m, record_of(m, n))->mourned--;
		pool_give(&m->mourned, i);
		queue_drop_if_idle(m, record_of(m, n));
		record_list(m, n);               /* it may be idle */
	}
}

void mourn_purge(struct master *m, unsigned shard)
{
	while (m->shard[shard].mourned)
		entry_end(m, shard);
	m->shard[shard].unknown_until = 0;
	m->unsure &= ~shard_bit(shard);
}

core_nsec_t mourn_tick(struct master *m, core_nsec_t now)
{
	core_nsec_t next = 0;

	for (shard_set_t left = m->mourns & m->open; left; left &= left - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(left);
		const struct master_shard *sh = &m->shard[shard];

		while (sh->mourned && mourned_at(m, sh->mourned)->until <= now) {
			name_t n = mourned_at(m, sh->mourned)->name;

			entry_end(m, shard);
			record_list(m, n);
		}
		if (sh->mourned && (!next || mourned_at(m, sh->mourned)->until < next))
			next = mourned_at(m, sh->mourned)->until;
	}
	return next;
}

/* --- To the next master --- */

bool mourn_unknown(const struct master *m, unsigned shard, core_nsec_t *ret_left)
{
	core_nsec_t until = m->shard[shard].unknown_until;

	*ret_left = m->unsure & shard_bit(shard) ? delay_span(CORE_DELAY_MAX) : until > m->now ? until - m->now : 0;
	return *ret_left;
}

void mourn_mark(struct master *m, name_t n, const struct msg *msg)
{
	struct master_shard *sh = &m->shard[msg->shard];
	struct master_mourned e = { .name = n, .weight = msg->held, .delay = msg->delay, .until = NEVER_YET,
				    .holder = { msg->number, (uint32_t)msg->seen } };

	if (msg->stamp <= sh->marks)
		return;
	sh->marks = msg->stamp;
	if (!msg->number)
		e.until = m->now + min_u64(msg->used, delay_span(CORE_DELAY_MAX));
	record_make(m, n, msg->limit ? msg->limit : MSG_WEIGHT_ALL);
	if (!entry_make(m, &e))
		m->unsure |= shard_bit(msg->shard);
	record_drop_if_idle(m, n);
}

/* Returns whether there was one more. */
bool mourn_say(struct master *m, struct msg *mark, name_t *ret)
{
	const struct master_mourned *e = mourned_at(m, m->telling_mourned);

	if (!e)
		return false;
	bool lost = e->until != NEVER_YET;
	mark->flags = MSG_FLAG_SHARED;
	mark->stamp = ++m->telling_marks;
	mark->held = e->weight;
	mark->limit = record_of(m, e->name)->limit;
	mark->delay = e->delay;
	mark->number = e->holder.session;
	mark->seen = e->holder.incarnation;
	mark->used = lost && e->until > m->now ? e->until - m->now : 0;
	*ret = e->name;
	m->telling_mourned = e->next;
	return true;
}
