/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "coord.h"

#include "core_int.h"
#include "cut.h"
#include "range.h"

/* Tombstones stay for so many waits of an observer, until everybody has looked at least once. */
#define TOMBSTONE_WAITS 4

static core_nsec_t wait_of(const struct core_cluster *conf)
{
#ifdef CORE_BREAK_EXPIRE_EARLY
	return conf->ttl / 2;
#endif
	return conf->ttl + session_margin(conf);
}

static bool coordinator_listed(const struct core *c)
{
	uint64_t who = c->cluster.map.coordinator;

	for (unsigned i = 0; who && i < c->peers.n; i++)
		if (c->peers.v[i].id.session == who)
			return c->peers.v[i].listed;
	return false;
}

bool coordinator_is(const struct core *c)
{
	return c->cluster.map.coordinator == c->cluster.session.self.session;
}

/* How many listed sessions, but for the coordinator's, come before ours. */
static unsigned rank(const struct core *c)
{
	uint64_t self = c->cluster.session.self.session;
	unsigned n = 0;

	for (unsigned i = 1; i < c->peers.n; i++)
		n += c->peers.v[i].listed && c->peers.v[i].id.session < self &&
		     c->peers.v[i].id.session != c->cluster.map.coordinator;
	return n;
}

static core_nsec_t look_every(const struct core *c)
{
	unsigned n = coordinator_is(c) ? 0 : rank(c);

	return c->cluster.conf.look * (n < CLUSTER_DEPUTIES ? 1 : n);
}

/* --- Ending sessions --- */

static struct peer *listed(struct core *c, uint64_t session)
{
	struct peer *p = peers_find(&c->peers, session);

	return p && p->listed ? p : NULL;
}

static void tombstone(struct core *c, const struct observed *e, struct step *s)
{
	struct ask *a = &c->cluster.asks.v[ASK_BURY];
	struct beat_value v = { .id = e->id, .counter = e->counter, .ended = true };

	ask_key(a, BEAT_PREFIX, e->id.session);
	beat_encode(&v, a->value);
	ask_cas(&c->cluster.asks, ASK_BURY, e->version, BEAT_BYTES, s);
}

/* Ended sessions lose their member record, and long afterwards the tombstone. */
static bool clear_one(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	for (unsigned i = 0; i < cl->observe.n; i++) {
		const struct observed *e = &cl->observe.v[i];

		if (!e->ended)
			continue;
		const struct peer *p = listed(c, e->id.session);
		if (p && peers_index(&c->peers, p)) {
			ask_key(&cl->asks.v[ASK_BURY], MEMBER_PREFIX, e->id.session);
			ask_delete(&cl->asks, ASK_BURY, p->record, s);
			return true;
		}
		if (!p && coordinator_is(c) && s->now - e->since >= TOMBSTONE_WAITS * wait_of(&cl->conf)) {
			ask_key(&cl->asks.v[ASK_BURY], BEAT_PREFIX, e->id.session);
			ask_delete(&cl->asks, ASK_BURY, e->version, s);
			return true;
		}
	}
	return false;
}

static void bury_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (asking(&cl->asks, ASK_BURY) || asking(&cl->asks, ASK_BEATS) || asking(&cl->asks, ASK_MEMBERS) ||
	    cl->list_want || !cl->beats_known)
		return;
	const struct observed *e = observe_expired(&cl->observe, wait_of(&cl->conf), s->now);
	if (e && e->id.session != cl->session.self.session)
		tombstone(c, e, s);
	else if (!clear_one(c, s))
		cut_clear(c, s);
}

/* --- Planning --- */

static uint64_t roster_of(const struct core *c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < c->peers.n; i++)
		if (c->peers.v[i].listed)
			sum += mapplan_mix(c->peers.v[i].id.session);
	return sum;
}

static unsigned nodes_fill(struct core *c, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;
	unsigned n = 0;
	core_nsec_t steady = cut_steady(c, now);

	cut_avoid(c, now);
	for (unsigned i = 0; i < c->peers.n; i++) {
		const struct peer *p = &c->peers.v[i];
		const struct observed *e = p->listed ? observe_find(&cl->observe, p->id.session) : NULL;

		if (!e || e->ended || !e->id.incarnation)
			continue;
		cl->nodes[n++] = (struct mapplan_node){
			.id = { p->id.session, e->id.incarnation }, .node = p->node,
			.may_master = p->may_master, .drains = p->drains,
			.steady = (!i || p->met) && now - p->since >= steady, .avoid = now < p->avoid_until,
			.met = !i || p->met,
		};
	}
	return n;
}

/* The very first map: epoch 1 of everything, so that nothing before it can be lost. */
static bool first_map(struct clustermap *m, const struct mapplan_node *v, unsigned n)
{
	if (m->serial)
		return true;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		m->map.shard[i].master = (struct msg_peer){ 0 };
	return mapplan_apply(&m->map, v, n) == CORE_SHARDS;
}

static bool plan(struct core *c, struct clustermap *m, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;
	unsigned n = nodes_fill(c, now), changed;

	if (!first_map(m, cl->nodes, n))
		return false;
	changed = mapplan_apply(&m->map, cl->nodes, n);
	m->roster = roster_of(c);
	return changed || m->roster != cl->map.roster || m->coordinator != cl->map.coordinator || !cl->map.serial;
}

/* Our own shards whose counters have come to their end. */
static bool raises(struct core *c, struct clustermap *m)
{
	bool changed = false;

	for (shard_set_t left = c->cluster.raise; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		struct map_reign *r = &m->map.shard[i];

		if (!msg_peer_same(r->master, c->cluster.session.self) || r->epoch != c->master.shard[i].epoch || r->epoch == EPOCH_MAX)
			continue;
		r->epoch++;
		changed = true;
	}
	return changed;
}

static void plan_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;
	bool write;

	if (asking(&cl->asks, ASK_PLAN) || asking(&cl->asks, ASK_MAP) || s->now < cl->plan_at)
		return;
	bool current = cl->map_read && !cl->list_want && !asking(&cl->asks, ASK_MEMBERS);
	bool leads = current && cl->beats_known && !asking(&cl->asks, ASK_BEATS) &&
		     (coordinator_is(c) || !coordinator_listed(c));

	if (!cl->raise && !leads)
		return;
	struct clustermap m = cl->map;
	if (leads)
		m.coordinator = cl->session.self.session;
	write = leads && plan(c, &m, s->now);
	write |= cl->map.serial && raises(c, &m);
	if (!write)
		return;
	m.serial++;
	clustermap_encode(&m, cl->asks.v[ASK_PLAN].value);
	ask_key(&cl->asks.v[ASK_PLAN], MAP_KEY, 0);
	ask_cas(&cl->asks, ASK_PLAN, cl->map_version, CLUSTERMAP_BYTES, s);
}

/* --- Time and answers --- */

void coord_look(struct core *c, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;

	if (!cl->map_read || now < cl->beats_at)
		return;
	cl->beats_at = now + look_every(c);
	cl->list_want = cl->beats_due = true;
}

/* The beats are listed after the members, so that what is planned knows each of them. */
static bool beats_askable(const struct core *c)
{
	const struct cluster *cl = &c->cluster;

	return cl->beats_want && !cl->list_want && !asking(&cl->asks, ASK_MEMBERS) && !asking(&cl->asks, ASK_BEATS);
}

void coord_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (cl->session.state != SESSION_LIVE || !cl->map_read)
		return;
	if (beats_askable(c)) {
		cl->beats_want = false;
		ask_key(&cl->asks.v[ASK_BEATS], BEAT_PREFIX, 0);
		ask_list(&cl->asks, ASK_BEATS, s);
	}
	bury_tick(c, s);
	plan_tick(c, s);
}

static void beats_take(struct core *c, const struct core_event *ev, core_nsec_t now)
{
	struct observe *o = &c->cluster.observe;
	struct beat_value v;

	observe_begin(o);
	for (uint32_t i = 0; i < ev->store.records_n; i++)
		if (beat_decode(ev->store.records[i].value, ev->store.records[i].value_len, &v) == 0)
			observe_beat(o, &v, ev->store.records[i].version, now);
	for (unsigned i = 0; i < c->peers.n; i++) {
		const struct peer *p = &c->peers.v[i];
		struct observed *e = p->listed ? observe_find(o, p->id.session) : NULL;

		if (p->listed && (!e || !e->present))
			observe_absent(o, p->id.session, now);
	}
	observe_end(o, now);
	c->cluster.beats_known = true;
}

void coord_answer(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;

	if (kind == ASK_BEATS) {
		if (!ev->store.error)
			beats_take(c, ev, now);
		return;
	}
	if (kind == ASK_BURY) {
		cl->list_want = cl->beats_due = true;
		return;
	}
	/* Whether our map has landed is read from the store, as everybody else's. */
	cl->look_at = now;
	cl->plan_at = now + (ev->store.error ? cl->conf.look / 4 : 0);
}

core_nsec_t coord_next(const struct core *c)
{
	const struct cluster *cl = &c->cluster;
	core_nsec_t at = 0;

	if (!cl->map_read)
		return 0;
	at = beats_askable(c) ? 1 : cl->beats_at;
	if (cl->raise && cl->plan_at && (!at || cl->plan_at < at) && !asking(&cl->asks, ASK_PLAN))
		at = cl->plan_at;
	return at;
}
