/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CORE_BREAK_* are for tests/unit/core_mutants.sh and tests/sim/mutants.sh: each takes away one rule,
 * and a test must see it.
 */
#include "master.h"

#include "barrier.h"
#include "grant.h"
#include "range.h"

void master_init(struct master *m, const struct core_memory *mem, struct names *names, struct peers *peers, struct values *values)
{
	memset(m, 0, sizeof *m);
	m->names = names;
	m->peers = peers;
	m->values = values;
	m->telling_shard = CORE_SHARDS;
	pool_init(&m->records, mem, sizeof(struct master_name));
	pool_init(&m->claims, mem, sizeof(struct master_claim));
	pool_init(&m->queues, mem, sizeof(struct master_queue));
	pool_init(&m->waits, mem, sizeof(struct master_wait));
	pool_init(&m->watchers, mem, sizeof(struct watcher));
	pool_init(&m->extras, mem, sizeof(struct master_extra));
	pool_init(&m->mourned, mem, sizeof(struct master_mourned));
}

void master_done(struct master *m)
{
	pool_done(&m->records);
	pool_done(&m->claims);
	pool_done(&m->queues);
	pool_done(&m->waits);
	pool_done(&m->extras);
	pool_done(&m->watchers);
	pool_done(&m->mourned);
}

void master_begin(struct master *m, struct msg_peer self)
{
	m->self = self;
}

int master_reserve(struct master *m)
{
	struct pool *pools[] = { &m->records, &m->claims, &m->queues, &m->waits, &m->extras, &m->watchers };

	for (unsigned i = 0; i < CORE_ARRAY_N(pools); i++) {
		int r = pool_reserve(pools[i], 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- Reigns --- */

static void opened(struct master *m, shard_set_t shards)
{
	m->opening &= ~shards;
	m->open |= shards;
	m->opened |= shards;
	for (; shards; shards &= shards - 1) {
		struct master_shard *sh = &m->shard[__builtin_ctzll(shards)];

		sh->opened_at = m->now;
		sh->not_before = m->now + delay_span(sh->recorded[DELAY_ALONE]);
		mourn_settle(m, (unsigned)(sh - m->shard));
	}
}

void open_when_synced(struct master *m)
{
	shard_set_t synced = m->opening & m->listed;

#ifndef CORE_BREAK_SYNC
	for (unsigned i = 0; i < m->peers->n; i++)
		if (m->peers->v[i].id.session && (!i || m->peers->v[i].listed))
			synced &= m->peers->v[i].synced | ~m->peers->v[i].needed;
#endif
	m->asking = synced & m->suspect & ~m->delays_known;
#ifdef CORE_BREAK_DELAY_EARLY
	m->asking = 0;
#endif
	opened(m, synced & ~m->asking);
}

/* Names that wait until the store has been told. Others are looked at again in vain. */
static void later_over(struct master *m, unsigned shard)
{
	struct name_list *l = &m->shard[shard].later;

	while (l->first) {
		name_t n = l->first;
		struct master_name *r = record_of(m, n);

		l->first = r->next;
		r->listed = false;
		if (r->queue)
			queue_at(m, r)->look_at = 0;
		record_list(m, n);
	}
	l->last = 0;
	m->later &= ~shard_bit(shard);
}

static bool is_recorded(const struct master_shard *sh)
{
	return sh->record_want[DELAY_ALONE] <= sh->recorded[DELAY_ALONE] && sh->record_want[DELAY_SHARED] <= sh->recorded[DELAY_SHARED];
}

void master_delays(struct master *m, const uint16_t delay[DELAY_KINDS][CORE_SHARDS], shard_set_t asked)
{
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		struct master_shard *sh = &m->shard[i];
		bool waits = m->record & shard_bit(i);

		for (unsigned kind = 0; kind < DELAY_KINDS; kind++)
			sh->recorded[kind] = delay[kind][i];
		if (waits && is_recorded(sh)) {
			m->record &= ~shard_bit(i);
			sh->record_want[DELAY_ALONE] = sh->record_want[DELAY_SHARED] = 0;
			later_over(m, i);
		}
	}
	m->delays_known |= asked & m->asking;
	open_when_synced(m);
}

/* The session that holds it alone. 0: none does. */
static uint64_t holder_of(const struct master *m, const struct master_name *r)
{
	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next)
		if (claim_at(m, i)->held == MSG_WEIGHT_ALL)
			return m->peers->v[claim_at(m, i)->peer].id.session;
	return 0;
}

/* Forgets the shard, but for which holders were lost, or may be, if that is to be kept. */
static void shard_purge(struct master *m, unsigned shard, bool keep_lost)
{
	struct master_shard *sh = &m->shard[shard];
	name_t next;

	barriers_purge(m->barriers, shard);
	sh->ready = sh->later = (struct name_list){ 0 };
	m->ready &= ~shard_bit(shard);
	m->later &= ~shard_bit(shard);
	if (m->telling_shard == shard)
		m->telling_shard = CORE_SHARDS;
	m->telling &= ~shard_bit(shard);
	m->record &= ~shard_bit(shard);
	sh->record_want[DELAY_ALONE] = sh->record_want[DELAY_SHARED] = 0;
	if (!keep_lost)
		mourn_purge(m, shard);
	for (name_t n = sh->names; n; n = next) {
		struct master_name *r = record_of(m, n);

		next = r->shard_next;
		r->listed = false;
		if (r->queue)
			queue_at(m, r)->look_at = 0;
		watchers_forget(m, r);           /* they say so again */
		r->known &= keep_lost;
		r->alone = false;
		if (keep_lost) {
			pass_settle(m, shard, r);
			mourn_frozen(m, n);
		}
		if (keep_lost && r->claims) {
			r->holder = holder_of(m, r);
			r->heard = false;
		}
		while (r->claims) {
			r->lost |= claim_at(m, r->claims)->told_lost;
			r->unmended &= !claim_at(m, r->claims)->told_lost;
			claim_drop(m, n, r->claims);
		}
		if (!keep_lost) {
			r->lost = false;
			r->holder = 0;
			r->delay = 0;
			if (r->queue)
				queue_at(m, r)->passed_to = (struct msg_peer){ 0 };
			extra_forget(m, r);
		}
		record_drop_if_idle(m, n);
	}
}

void master_reign(struct master *m, unsigned shard, uint32_t epoch, bool alone)
{
	struct master_shard *sh = &m->shard[shard];
	shard_set_t bit = shard_bit(shard), ours = m->open | m->raise;
	bool heir = ours & bit && epoch == sh->epoch + 1;

	core_assert(epoch > sh->epoch && epoch <= EPOCH_MAX);
	m->open &= ~bit;
	m->raise &= ~bit;
	shard_purge(m, shard, heir);
	sh->epoch = epoch;
	sh->floor = token_make(epoch, 0);
	sh->stamp = token_make(epoch, 0);
	for (unsigned i = 0; i < m->peers->n; i++) {
		m->peers->v[i].synced &= ~bit;
		m->peers->v[i].hearing &= ~bit;
		m->peers->v[i].needed &= ~bit;
	}
	if (alone)
		peers_self(m->peers)->needed |= bit;
	m->frozen &= ~bit;
	m->opening |= bit;
	m->asking &= ~bit;
	m->delays_known &= ~bit;
	if (alone)
		sh->recorded[DELAY_ALONE] = sh->recorded[DELAY_SHARED] = CORE_DELAY_MAX;        /* nobody else will ever follow */
	m->handing &= ~bit;
	m->listed = alone ? m->listed | bit : m->listed & ~bit;
	if (!heir) {
		m->suspect = alone || epoch == 1 ? m->suspect & ~bit : m->suspect | bit;
		m->unknown = m->suspect & bit ? m->unknown | bit : m->unknown & ~bit;
		sh->marks = 0;
		m->forgot = epoch == 1 ? m->forgot & ~bit : m->forgot | bit;
	}
#ifdef CORE_BREAK_SYNC
	opened(m, bit);
#endif
}

void master_yield(struct master *m, unsigned shard)
{
	shard_set_t bit = shard_bit(shard);
	bool complete = m->open & bit || m->raise & bit;

	if (!((m->opening | m->open | m->raise) & bit)) {
		if (m->frozen & bit)             /* a second reign after ours: nobody asks us any more */
			shard_purge(m, shard, false);
		m->frozen &= ~bit;
		return;
	}
	m->open &= ~bit;
	m->opening &= ~bit;
	m->raise &= ~bit;
	shard_purge(m, shard, complete);
	m->opened &= ~bit;
	if (complete)
		m->frozen |= bit;
}

/* Whoever is listed for the first time later has read the map after its record was there, and holds nothing of before. */
void master_listed(struct master *m, shard_set_t shards)
{
	for (unsigned i = 0; i < m->peers->n; i++)
		if (!i || m->peers->v[i].listed)
			m->peers->v[i].needed |= shards & ~m->listed;
	m->listed |= shards;
	open_when_synced(m);
}

void master_ended(struct master *m, struct peer *p)
{
	if (p->ended)
		return;
	p->ended = true;
	p->listed = false;
	m->ended++;
	open_when_synced(m);
}

void master_lapse(struct master *m)
{
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		shard_purge(m, i, false);
		m->shard[i] = (struct master_shard){ 0 };
	}
	m->opening = m->open = m->raise = m->frozen = m->listed = m->suspect = m->forgot = m->opened = 0;
	m->asking = m->delays_known = m->record = m->unknown = 0;
	m->ended = 0;
}

/* --- Work --- */

bool master_busy(const struct master *m)
{
	return m->open & m->ready || m->ended;
}

/* An exclusive holder that never released: what it guarded may be half done. */
static void ended_claim_drop(struct master *m, struct peer *p, core_nsec_t now)
{
	uint32_t handle = p->claims;
	struct master_claim *c = claim_at(m, handle);
	name_t n = c->name;
	struct master_name *r = record_of(m, n);
	unsigned shard = names_at(m->names, n)->shard;

	if (c->held)
		grant_void(m, shard, r, c);
	if (c->held != MSG_WEIGHT_ALL)
		mourn(m, n, c->held, now);
	if (c->held == MSG_WEIGHT_ALL && r->limit == MSG_WEIGHT_ALL) {
#ifdef CORE_BREAK_DELAY
		r->delay = 0;
#endif
		lost_alone(m, r, now);
	}
	claim_drop(m, n, handle);
	if (queue_head(m, r))
		record_list(m, n);
	record_drop_if_idle(m, n);
}

static void ended_work(struct master *m, struct step *s)
{
	unsigned i = 0;

	while (!m->peers->v[i].ended)
		i++;
	struct peer *p = &m->peers->v[i];
	if (p->claims) {
		ended_claim_drop(m, p, s->now);
		return;
	}
	if (barriers_ended(m->barriers, p))
		return;
	if (p->watches) {
		watcher_ended(m, p);
		return;
	}
	if (p->link_wanted)
		step_act(s, CORE_ACT_UNLINK)->send.session = p->id.session;
	peers_drop(m->peers, p);
	m->ended--;
}

static name_t ready_get(struct master *m, unsigned shard)
{
	struct master_shard *sh = &m->shard[shard];
	name_t n = sh->ready.first;
	struct master_name *r = record_of(m, n);

	core_assert(r && r->listed);
	r->listed = false;
	sh->ready.first = r->next;
	if (!sh->ready.first) {
		sh->ready.last = 0;
		m->ready &= ~shard_bit(shard);
	}
	return n;
}

/* Who held it alone when the master before stopped has told this one that he has given it back. */
static void given_back_forget(struct master *m, name_t n)
{
	struct master_name *r = record_of(m, n);

	if (r->heard)
		r->holder = 0;
	r->heard = false;
	record_drop_if_idle(m, n);
}

bool master_work(struct master *m, struct step *s)
{
	if (m->ended) {
		ended_work(m, s);
		return true;
	}
	if (!master_busy(m))
		return false;
	name_t n = ready_get(m, (unsigned)__builtin_ctzll(m->open & m->ready));
	if (limit_work(m, n, s))
		return true;
	grant_serve(m, n, s);
	const struct master_name *r = record_of(m, n);
	if (r && is_watched(m, r))
		news_work(m, n, s);
	else if (r && !queue_head(m, r))
		given_back_forget(m, n);
	return true;
}

core_nsec_t master_tick(struct master *m, core_nsec_t now)
{
	core_nsec_t next = 0;

	for (shard_set_t left = m->later & m->open; left; left &= left - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(left);
		struct name_list *l = &m->shard[shard].later;

		while (l->first && look_at_of(m, record_of(m, l->first)) <= now) {
			name_t n = l->first;
			struct master_name *r = record_of(m, n);

			l->first = r->next;
			if (!l->first)
				l->last = 0;
			r->listed = false;
			if (r->queue)
				queue_at(m, r)->look_at = 0;
			record_list(m, n);
		}
		if (!l->first)
			m->later &= ~shard_bit(shard);
		else if (look_at_of(m, record_of(m, l->first)) != NEVER_YET && (!next || look_at_of(m, record_of(m, l->first)) < next))
			next = look_at_of(m, record_of(m, l->first));
	}
	core_nsec_t mourned = mourn_tick(m, now);
	return mourned && (!next || mourned < next) ? mourned : next;
}
