/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "place.h"

#include "core_int.h"
#include "grant.h"
#include "mapplan.h"

void place_init(struct place *p, core_nsec_t span, uint32_t least)
{
	*p = (struct place){ .span = span, .least = least };
}

void place_begin(struct place *p, unsigned shard, core_nsec_t now)
{
	p->use[shard] = (struct place_use){ .halved = now, .since = now, .ours = now };
	p->due &= ~shard_bit(shard);
}

void place_halve(struct place *p, unsigned shard, core_nsec_t now)
{
	struct place_use *u = &p->use[shard];
	uint64_t n = min_u64((now - u->halved) / (p->span / 4), 31);

	if (4 * (uint64_t)u->its < 3 * (uint64_t)u->all)
		u->since = now;
	u->votes >>= n;
	u->its >>= n;
	u->own >>= n;
	u->all >>= n;
	u->halved = now;
	p->due |= shard_bit(shard);
}

/* --- The master --- */

/* It may well be given a shard, and we reach it ourselves. */
static bool fit(struct core *c, uint64_t session)
{
	const struct peer *p = peers_find(&c->peers, session);

	return p && p->listed && !p->ended && p->may_master && !p->drains && p->conn && !p->via;
}

/* Somebody has something of it; or it has many names that are remembered for what was left behind. */
static bool held(const struct master *m, unsigned shard)
{
	name_t n = m->shard[shard].names;

	for (unsigned i = 0; n && i < PLACE_NAMES; i++) {
		const struct master_name *r = record_of(m, n);

		if (r->claims)
			return true;
		n = r->shard_next;
	}
	return n;
}

/* No claims for long, and nobody has anything of it: to move it costs nobody anything. */
static bool idle(const struct core *c, unsigned shard, core_nsec_t now)
{
	const struct place *p = &c->cluster.place;

	return now - p->use[shard].halved >= PLACE_IDLE * p->span && !held(&c->master, shard);
}

/* What is to be said of it: the session that it should go to, or 0: it need not stay. false: nothing. */
static bool wish(struct core *c, unsigned shard, core_nsec_t now, uint64_t *ret)
{
	const struct place *p = &c->cluster.place;
	struct place_use *u = &c->cluster.place.use[shard];
	bool used = u->all >= p->least, placed = c->cluster.map.map.placed & shard_bit(shard);

	if (!used || 2 * (uint64_t)u->own >= u->all)
		u->ours = now;
	bool most = used && now - u->since >= p->span;
#ifdef CORE_BREAK_PLACE_EAGER
	most = u->its;
#endif
	*ret = most && (u->who == c->cluster.session.self.session ? !placed : fit(c, u->who)) ? u->who : 0;
	return *ret || (placed && (now - u->ours >= PLACE_REST * p->span || idle(c, shard, now)));
}

void place_idle(struct core *c, core_nsec_t now)
{
	struct place *p = &c->cluster.place;

	for (shard_set_t left = p->span ? c->cluster.map.map.placed & c->master.open : 0; left; left &= left - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(left);

		if (idle(c, shard, now))
			p->due |= shard_bit(shard);
	}
}

bool place_work(struct core *c, struct step *s)
{
	struct place *p = &c->cluster.place;
	const struct peer *to = peers_find(&c->peers, c->cluster.map.coordinator);

	for (; p->due; p->due &= p->due - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(p->due);
		struct msg msg = { .kind = MSG_PLACE, .shard = (uint8_t)shard, .epoch = c->master.shard[shard].epoch,
				   .from = c->cluster.session.self };

		if (!to || !(c->master.open & shard_bit(shard)) || s->now - p->use[shard].said < p->span / 2 ||
		    !wish(c, shard, s->now, &msg.number))
			continue;
		p->use[shard].said = s->now;
		p->due &= p->due - 1;
		msg.to = to->id;
		step_send(s, &msg);
		return true;
	}
	return false;
}

/* --- The coordinator --- */

/* Only the master knows, and only what is said of its present reign is news. */
void place_hear(struct core *c, const struct msg *msg, core_nsec_t now)
{
	const struct map_reign *r = &c->cluster.map.map.shard[msg->shard];
	struct place_wish *w = &c->cluster.place.wish[msg->shard];

	if (!msg_peer_same(r->master, msg->from) || r->epoch != msg->epoch)
		return;
	w->session = msg->number;
	w->epoch = msg->epoch;
	w->at = now;
	c->cluster.plan_due = true;
}

void place_seen(struct place *p, const struct map *old, const struct map *new, core_nsec_t now)
{
	for (shard_set_t left = p->span ? new->placed : 0; left; left &= left - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(left);
		struct place_wish *w = &p->wish[shard];

		if (!old->shard[shard].epoch || msg_peer_same(old->shard[shard].master, new->shard[shard].master))
			continue;
		bool soon = w->rest && now - w->moved < 2 * w->rest;
		w->rest = soon ? min_u64(2 * w->rest, PLACE_REST_MAX * p->span) : PLACE_REST * p->span;
		w->moved = now;
	}
}

static bool rested(const struct place_wish *w, core_nsec_t now)
{
#ifdef CORE_BREAK_PLACE_EAGER
	return true;
#endif
	return now - w->moved >= w->rest;
}

void place_plan(struct core *c, struct map *m, const struct mapplan_node *v, unsigned n, core_nsec_t now)
{
	struct place *p = &c->cluster.place;

	if (!p->span)
		m->placed = 0;
	if (!p->span || now < c->cluster.cut.wary_until)
		return;
	for (unsigned i = 0, moves = 0; i < CORE_SHARDS && moves < PLACE_MOVES; i++) {
		const struct place_wish *w = &p->wish[i];

		if (!w->at || w->epoch != m->shard[i].epoch || now - w->at > p->span)
			continue;
		if (!w->session)
			m->placed &= ~shard_bit(i);
		else if (rested(w, now))
			moves += mapplan_place(m, v, n, i, w->session);
	}
}
