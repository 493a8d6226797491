/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The master's side of barriers (barrier.h): who has come, and where they say that they stand.
 *
 * Whatever a member says is noted, and the barrier put on its shard's list. What follows from it is barrier_round.c's matter.
 */
#include "barrier_int.h"

#include "master.h"

struct barrier_claim *arrival_of(const struct barriers *b, uint32_t handle)
{
	return handle ? pool_at(&b->claims, handle) : NULL;
}

struct barrier_round *round_of(const struct barriers *b, name_t n)
{
	uint32_t handle = n ? names_at(&b->names, n)->record : 0;

	return handle ? pool_at(&b->rounds, handle) : NULL;
}

/* --- Barriers that nobody waits at --- */

static void idle_leave(struct barriers *b, struct barrier_round *r)
{
	if (!r->idle)
		return;
	r->idle = false;
	if (r->idle_prev)
		round_of(b, r->idle_prev)->idle_next = r->idle_next;
	else
		b->idle_first = r->idle_next;
	if (r->idle_next)
		round_of(b, r->idle_next)->idle_prev = r->idle_prev;
	else
		b->idle_last = r->idle_prev;
	r->idle_next = r->idle_prev = 0;
	b->idle--;
}

void ready_put(struct barriers *b, struct barrier_round *r)
{
	unsigned shard = names_at(&b->names, r->name)->shard;
	struct barrier_shard *sh = &b->shard[shard];

	if (r->ready)
		return;
	idle_leave(b, r);
	r->ready = true;
	r->ready_next = 0;
	if (sh->ready_last)
		round_of(b, sh->ready_last)->ready_next = r->name;
	else
		sh->ready_first = r->name;
	sh->ready_last = r->name;
	b->ready |= shard_bit(shard);
}

void round_drop(struct barriers *b, struct barrier_round *r)
{
	name_t n = r->name;
	struct barrier_shard *sh = &b->shard[names_at(&b->names, n)->shard];

	core_assert(!r->claims && !r->ready);
	idle_leave(b, r);
	if (r->shard_prev)
		round_of(b, r->shard_prev)->shard_next = r->shard_next;
	else
		sh->rounds = r->shard_next;
	if (r->shard_next)
		round_of(b, r->shard_next)->shard_prev = r->shard_prev;
	pool_give(&b->rounds, names_at(&b->names, n)->record);
	names_at(&b->names, n)->record = 0;
	names_drop(&b->names, n);
}

void idle_enter(struct barriers *b, struct barrier_round *r)
{
	if (r->idle)
		return;
	r->idle = true;
	r->idle_prev = b->idle_last;
	if (b->idle_last)
		round_of(b, b->idle_last)->idle_next = r->name;
	else
		b->idle_first = r->name;
	b->idle_last = r->name;
	if (++b->idle > BARRIER_IDLE_MAX)
		round_drop(b, round_of(b, b->idle_first));
}

static struct barrier_round *round_make(struct barriers *b, name_t n)
{
	struct barrier_round *r = round_of(b, n);
	struct barrier_shard *sh = &b->shard[names_at(&b->names, n)->shard];

	if (r)
		return r;
	names_at(&b->names, n)->record = pool_take(&b->rounds);
	r = round_of(b, n);
	r->name = n;
	r->shard_next = sh->rounds;
	if (sh->rounds)
		round_of(b, sh->rounds)->shard_prev = n;
	sh->rounds = n;
	return r;
}

/* --- Claims --- */

static uint32_t claim_find(const struct barriers *b, const struct barrier_round *r, unsigned peer)
{
	uint32_t i = r->claims;

	while (i && arrival_of(b, i)->peer != peer)
		i = arrival_of(b, i)->next;
	return i;
}

/* Behind those who came before. */
static struct barrier_claim *claim_make(struct barriers *b, struct barrier_round *r, unsigned peer)
{
	struct peer *p = &b->peers->v[peer];
	uint32_t handle = pool_take(&b->claims), *link = &r->claims;
	struct barrier_claim *c = arrival_of(b, handle);

	*c = (struct barrier_claim){ .name = r->name, .peer = (uint16_t)peer, .peer_next = p->barriers };
	if (p->barriers)
		arrival_of(b, p->barriers)->peer_prev = handle;
	p->barriers = handle;
	while (*link)
		link = &arrival_of(b, *link)->next;
	*link = handle;
	idle_leave(b, r);
	return c;
}

void arrival_drop(struct barriers *b, struct barrier_round *r, uint32_t handle)
{
	struct barrier_claim *c = arrival_of(b, handle);
	uint32_t *link = &r->claims;

	if (c->enrolled || (c->state == CORE_BARRIER_IN && c->round == r->round))
		r->breaks = true;
	else if (c->state == CORE_BARRIER_IN)
		r->dead = max_u64(r->dead, c->round);
	while (*link != handle)
		link = &arrival_of(b, *link)->next;
	*link = c->next;
	if (c->peer_prev)
		arrival_of(b, c->peer_prev)->peer_next = c->peer_next;
	else
		b->peers->v[c->peer].barriers = c->peer_next;
	if (c->peer_next)
		arrival_of(b, c->peer_next)->peer_prev = c->peer_prev;
	pool_give(&b->claims, handle);
	ready_put(b, r);
}

/* --- What members say --- */

/* Somebody has a verdict that not all may know: it is the verdict. */
static void verdict_found(struct barrier_round *r, const struct core_verdict *v)
{
#ifdef CORE_BREAK_BARRIER_DRIVE
	return;
#endif
	if (v->round <= r->last.round || (r->announced && v->round <= r->round))
		return;
	r->announced = true;
	r->round = v->round;
	r->verdict = *v;
}

/*
 * Who stands after the round whose verdict gave it places says whether it has them yet. Before, that verdict may be on
 * its way to it.
 */
static void places_heard(const struct barrier_round *r, struct barrier_claim *c, bool yes)
{
	if (!yes && (c->state == CORE_BARRIER_OUT || (c->state == CORE_BARRIER_IN && !r->announced)))
		c->places = 0;
}

static void take_arrive(struct barriers *b, struct barrier_round *r, unsigned peer, const struct msg *m)
{
	uint32_t handle = claim_find(b, r, peer);
	struct barrier_claim *c = arrival_of(b, handle);

	if (c)
		c->conn = b->peers->v[peer].round;
	if (c && m->number < c->number)
		return;
	if (!c) {
		if (!m->held && !(m->flags & (MSG_FLAG_IN | MSG_FLAG_TOLD)))
			return;
		c = claim_make(b, r, peer);
		c->conn = b->peers->v[peer].round;
	}
	c->number = m->number;
	c->held = m->held;
	c->in = m->wanted;
	c->yes = (uint32_t)m->used;
	c->limit = m->limit;
	c->round = m->stamp;
	c->state = m->flags & MSG_FLAG_TOLD ? CORE_BARRIER_TOLD : m->flags & MSG_FLAG_IN ? CORE_BARRIER_IN : CORE_BARRIER_OUT;
	c->by = c->state == CORE_BARRIER_IN ? m->seen : 0;
	c->wants_out = m->flags & MSG_FLAG_BREAK;
	c->ready = m->flags & MSG_FLAG_READY;
	c->said_enrol = c->said_void = c->said_announce = c->said_go = false;
	places_heard(r, c, m->flags & MSG_FLAG_PLACES);
	if (c->state == CORE_BARRIER_TOLD) {
		struct core_verdict v = verdict_of(m);
		verdict_found(r, &v);
	}
}

static void take_ask(struct barriers *b, struct barrier_round *r, unsigned peer, const struct msg *m)
{
	struct barrier_claim *c = arrival_of(b, claim_find(b, r, peer));

	if (!c)
		c = claim_make(b, r, peer);
	c->conn = b->peers->v[peer].round;
	if (m->flags & MSG_FLAG_RESET) {
		c->reset_number = m->number;
	} else {
		c->ask = m->stamp;
		c->ask_number = m->number;
	}
}

static void take_past(struct barrier_round *r, const struct msg *m)
{
	if (m->stamp <= r->last.round)
		return;
	r->last = verdict_of(m);
	r->past = true;
}

void barriers_master_receive(struct barriers *b, const struct msg *m, struct step *s)
{
	struct master *ma = b->master;
	struct peer *p = peers_find(b->peers, m->from.session);
	shard_set_t bit = shard_bit(m->shard);
	name_t n;

	if (!p || !msg_peer_same(p->id, m->from) || p->ended || m->epoch != ma->shard[m->shard].epoch ||
	    !((ma->opening | ma->open | ma->raise) & bit))
		return;
	/* What there is no memory for is heard when the member syncs again. */
	if (barriers_reserve(b) < 0 || names_make(&b->names, m->key, m->key_len, &n) < 0) {
		if (peers_index(b->peers, p))
			p->ask |= bit;
		return;
	}
	struct barrier_round *r = round_make(b, n);
	unsigned peer = peers_index(b->peers, p);
	r->paired |= (m->kind == MSG_ARRIVE || m->kind == MSG_PAST) && m->flags & MSG_FLAG_PAIRED;
	if (m->kind == MSG_ARRIVE)
		take_arrive(b, r, peer, m);
	else if (m->kind == MSG_ASK)
		take_ask(b, r, peer, m);
	else if (m->kind == MSG_PAST)
		take_past(r, m);
	else
		(void)NEVER(true);
	ready_put(b, r);
	(void)s;
}

/* --- Reigns and sessions --- */

void barriers_purge(struct barriers *b, unsigned shard)
{
	if (!b)
		return;
	struct barrier_shard *sh = &b->shard[shard];

	b->ready &= ~shard_bit(shard);
	while (sh->rounds) {
		struct barrier_round *r = round_of(b, sh->rounds);

		r->ready = true;                 /* nothing is listed while this lasts */
		while (r->claims)
			arrival_drop(b, r, r->claims);
		r->ready = false;
		round_drop(b, r);
	}
	*sh = (struct barrier_shard){ 0 };
}

bool barriers_ended(struct barriers *b, struct peer *p)
{
	if (!b || !p->barriers)
		return false;
	struct barrier_claim *c = arrival_of(b, p->barriers);
	struct barrier_round *r = round_of(b, c->name);

	if (c->places && !r->announced)
		r->lost = true;
	arrival_drop(b, r, p->barriers);
	return true;
}

/* Of what it has not said anything there is nobody any more. */
void barriers_synced(struct barriers *b, unsigned peer, unsigned shard)
{
	if (!b)
		return;
	struct peer *p = &b->peers->v[peer];
	uint32_t next;

	for (uint32_t i = peer ? p->barriers : 0; i; i = next) {
		struct barrier_claim *c = arrival_of(b, i);

		next = c->peer_next;
		if (names_at(&b->names, c->name)->shard != shard || c->conn == p->round)
			continue;
#ifndef CORE_BREAK_BARRIER_UNHEARD
		if (c->state != CORE_BARRIER_IN)
			c->enrolled = 0;         /* it was not in that round when its parties went, or it would say so */
#endif
		arrival_drop(b, round_of(b, c->name), i);
	}
}
