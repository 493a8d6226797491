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

/* Where this node begins: if all did at the same place, only one of them would get on. */
static unsigned bury_from(const struct cluster *cl)
{
	return cl->observe.n ? (unsigned)(mapplan_mix(cl->session.self.session) % cl->observe.n) : 0;
}

/* What is free of the requests for this; ASK_N: none. */
static enum ask_kind bury_free(const struct cluster *cl)
{
	for (unsigned i = 0; i < ASK_BURIALS; i++)
		if (!asking(&cl->asks, (enum ask_kind)(ASK_BURY + i)))
			return (enum ask_kind)(ASK_BURY + i);
	return ASK_N;
}

static void bury(struct cluster *cl, enum ask_kind kind, const char *prefix, uint64_t session, enum bury_what what, uint64_t version)
{
	struct bury *b = &cl->bury[kind - ASK_BURY];

	*b = (struct bury){ .session = session, .what = what, .version = version };
	ask_key(&cl->asks.v[kind], prefix, session);
}

static void name_copy(char *to, const char *from, size_t max)
{
	size_t n = 0;

	for (; from[n] && n < max; n++)
		to[n] = from[n];
	to[n] = 0;
}

static void tombstone(struct core *c, enum ask_kind kind, struct observed *e, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct bury *b = &cl->bury[kind - ASK_BURY];
	struct beat_value v = { .id = e->id, .counter = e->counter, .ended = true };
	const struct peer *p = listed(c, e->id.session);

	e->done = true;
	bury(cl, kind, BEAT_PREFIX, e->id.session, BURY_END, e->version);
	if (p) {
		name_copy(b->name, peer_name(p), CORE_NODE_NAME_MAX);
		name_copy(b->address, peer_address(p), CORE_ADDRESS_MAX);
	}
	beat_encode(&v, cl->asks.v[kind].value);
	ask_cas(&cl->asks, kind, e->version, BEAT_BYTES, s);
}

/* Ended sessions lose their member record, and long afterwards the tombstone. */
static bool clear_this(struct core *c, enum ask_kind kind, struct observed *e, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (!e->ended || e->done)
		return false;
	if (e->record) {
		bury(cl, kind, MEMBER_PREFIX, e->id.session, BURY_MEMBER, e->version);
		ask_delete(&cl->asks, kind, e->record, s);
		return e->done = true;
	}
	if (coordinator_is(c) && s->now - e->since >= TOMBSTONE_WAITS * wait_of(&cl->conf)) {
		bury(cl, kind, BEAT_PREFIX, e->id.session, BURY_BEAT, e->version);
		ask_delete(&cl->asks, kind, e->version, s);
		return e->done = true;
	}
	return false;
}

static bool clear_one(struct core *c, enum ask_kind kind, struct step *s)
{
	const struct observe *o = &c->cluster.observe;

	for (unsigned k = 0, from = bury_from(&c->cluster); k < o->n; k++)
		if (clear_this(c, kind, &o->v[(from + k) % o->n], s))
			return true;
	return false;
}

/* What has been done is known here at once; what others have done, by the next lists. */
static void buried(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;
	struct bury *b = &cl->bury[kind - ASK_BURY];
	struct observed *e = observe_find(&cl->observe, b->session);
	struct peer *p = listed(c, b->session);

	cl->bury_news = true;
	if (ev->store.error && ev->store.error != -CORE_EAGAIN)
		cl->list_want = cl->beats_due = true;
	if (ev->store.error || b->what != BURY_END)
		return;
	cl->told = *b;
	if (!e || e->version != b->version || b->session == cl->session.self.session)
		return;
	e->ended = true;
	e->done = false;
	e->version = ev->store.version;
	e->since = now;
	e->record = p ? p->record : 0;
	if (p)
		cluster_ended(c, p);
}

/* Returns whether there was something to do. */
static bool bury_one(struct core *c, enum ask_kind kind, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct observed *e = observe_expired(&cl->observe, bury_from(cl), wait_of(&cl->conf), s->now);

	if (e) {
		tombstone(c, kind, e, s);
		return true;
	}
	return clear_one(c, kind, s) || cut_clear(c, kind, s);
}

static bool burying(const struct cluster *cl)
{
	for (unsigned i = 0; i < ASK_BURIALS; i++)
		if (asking(&cl->asks, (enum ask_kind)(ASK_BURY + i)))
			return true;
	return false;
}

static void bury_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct observed *own = observe_find(&cl->observe, cl->session.self.session);
	enum ask_kind kind;

	/* Also while lists are under way, which may be always: who has sent a beat meanwhile is known by its version. */
	if (own)
		own->done = true;                /* it ends by our own deadline */
	while ((kind = bury_free(cl)) != ASK_N && bury_one(c, kind, s))
		;
	if (!burying(cl) && cl->bury_news) {
		cl->bury_news = false;
		cl->list_want = cl->beats_due = true;
	}
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

static bool maps_differ(const struct map *a, const struct map *b)
{
	bool differ = a->placed != b->placed;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		differ |= a->shard[i].epoch != b->shard[i].epoch;
	return differ;
}

static bool plan(struct core *c, struct clustermap *m, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;
	unsigned n = nodes_fill(c, now);
	bool changed;

	if (!first_map(m, cl->nodes, n))
		return false;
	place_plan(c, &m->map, cl->nodes, n, now);
	mapplan_apply(&m->map, cl->nodes, n);
	changed = maps_differ(&m->map, &cl->map.map);
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

	if (asking(&cl->asks, ASK_PLAN) || cl->plan_unread || cl->plan_reading || s->now < cl->plan_at)
		return;
	bool current = cl->map_read && !cl->list_want && !asking(&cl->asks, ASK_MEMBERS);
	bool leads = current && cl->beats_known && !asking(&cl->asks, ASK_BEATS) &&
		     (coordinator_is(c) || !coordinator_listed(c));
	bool plans = leads && cl->plan_due;

	if (!cl->raise && !plans)
		return;
	struct clustermap m = cl->map;
	if (leads)
		m.coordinator = cl->session.self.session;
	cl->plan_due &= !plans;
	write = plans && plan(c, &m, s->now);
	write |= cl->map.serial && raises(c, &m);
	if (!write)
		return;
	m.serial++;
	ask_key(&cl->asks.v[ASK_PLAN], MAP_KEY, 0);
	ask_cas(&cl->asks, ASK_PLAN, cl->map_version, clustermap_encode(&m, cl->asks.v[ASK_PLAN].value), s);
}

/* --- Time and answers --- */

/* The last look is not through: where a list takes longer than a look, nothing else would ever be done. */
bool coord_looking(const struct core *c)
{
	const struct cluster *cl = &c->cluster;

	return cl->beats_due || cl->beats_want || asking(&cl->asks, ASK_MEMBERS) || asking(&cl->asks, ASK_BEATS);
}

void coord_look(struct core *c, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;

	if (!cl->map_read || now < cl->beats_at)
		return;
	if (coord_looking(c)) {
		cl->beats_at = now + cl->conf.look / 4;
		return;
	}
	cl->beats_at = now + look_every(c);
	cl->list_want = cl->beats_due = true;
}

/* The beats are listed after the members, so that what is planned knows each of them. */
static bool beats_askable(const struct core *c)
{
	const struct cluster *cl = &c->cluster;

	return cl->beats_want && !cl->list_want && !asking(&cl->asks, ASK_MEMBERS) && !asking(&cl->asks, ASK_BEATS);
}

static bool at_work(const struct cluster *cl)
{
	return cl->session.state == SESSION_LIVE && cl->map_read;
}

void coord_act(struct core *c, struct step *s)
{
	if (!at_work(&c->cluster))
		return;
	bury_tick(c, s);
	plan_tick(c, s);
}

void coord_beats(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (!at_work(cl) || !beats_askable(c))
		return;
	cl->beats_want = false;
	ask_key(&cl->asks.v[ASK_BEATS], BEAT_PREFIX, 0);
	ask_list(&cl->asks, ASK_BEATS, s);
}

static void beats_take(struct core *c, const struct core_event *ev, core_nsec_t now)
{
	struct observe *o = &c->cluster.observe;
	struct odd *odd = &c->cluster.odd;
	struct beat_value v;
	uint64_t id;

	observe_begin(o);
	odd->beats = 0;
	for (uint32_t i = 0; i < ev->store.records_n; i++) {
		const struct core_record *rec = &ev->store.records[i];

		if (!cluster_key_session(rec->key, sizeof BEAT_PREFIX - 1, &id) || !id) {
			odd_note(odd, &odd->beats, rec->key);
			continue;
		}
		if (beat_decode(rec->value, rec->value_len, &v) < 0 || v.id.session != id) {
			odd_note(odd, &odd->beats, rec->key);
			v = (struct beat_value){ .id.session = id };
		}
		observe_beat(o, &v, rec->version, listed(c, id), now);
	}
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
	if (kind >= ASK_BURY && kind <= ASK_BURY_4) {
		buried(c, kind, ev, now);
		return;
	}
	/* Whether our map has landed is read from the store, as everybody else's. A read that is under way may be of before. */
	cl->plan_unread = true;
	cl->look_at = now;
	cl->plan_at = now + (ev->store.error ? cl->conf.look / 4 : 0);
}

unsigned coord_silent(const struct core *c)
{
	unsigned n = 0;

	for (unsigned i = 1; i < c->peers.n; i++) {
		const struct peer *p = &c->peers.v[i];
		const struct observed *e = p->listed && !p->conn ? observe_find(&c->cluster.observe, p->id.session) : NULL;

		n += e && !e->version;
	}
	return n;
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
