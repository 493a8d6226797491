/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cluster.h"

#include "coord.h"
#include "core_int.h"
#include "path.h"
#include "range.h"

static void text_keep(struct cluster *cl, struct member_text *t)
{
	memcpy(cl->address, t->address, t->address_len);
	memcpy(cl->name, t->name, t->name_len);
	cl->address[t->address_len] = cl->name[t->name_len] = 0;
	t->address = cl->conf.address = cl->address;
	t->name = cl->conf.name = cl->name;
}

int cluster_start(struct core *c, const struct core_event *ev, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct msg_peer self = { ev->start.session, ev->start.incarnation };
	struct member_text text;
	int r = member_text_of(ev->start.cluster->address, ev->start.cluster->name, &text);

	if (r == 0)
		r = peers_reserve(&c->peers);
	if (r < 0)
		return r;
	if (!cl->observe.v)
		cl->observe.v = c->mem.alloc(c->mem.arg, OBSERVE_MAX * sizeof *cl->observe.v);
	if (!cl->nodes)
		cl->nodes = c->mem.alloc(c->mem.arg, CORE_MEMBERS_MAX * sizeof *cl->nodes);
	if (!cl->observe.v || !cl->nodes)
		return -CORE_ENOMEM;
	cl->on = true;
	cl->conf = *ev->start.cluster;
	text_keep(cl, &text);
	if (!cl->conf.grace)
		cl->conf.grace = cl->conf.ttl;
	cut_begin(&cl->cut, ev->start.deadline);
	session_start(&cl->session, &cl->conf, &text, &cl->asks, c->mem.seed, self, ev->start.deadline, s);
	peers_self(&c->peers)->id = cl->session.self;
	member_begin(&c->member, cl->session.self);
	if (ev->start.deadline)
		member_renumber(&c->member);
	master_begin(&c->master, cl->session.self);
	place_init(&cl->place, cl->conf.place, cl->conf.place_least);
	c->master.place = &cl->place;
	return 0;
}

void cluster_done(struct core *c)
{
	struct cluster *cl = &c->cluster;

	if (cl->observe.v)
		c->mem.free(c->mem.arg, cl->observe.v, OBSERVE_MAX * sizeof *cl->observe.v);
	if (cl->nodes)
		c->mem.free(c->mem.arg, cl->nodes, CORE_MEMBERS_MAX * sizeof *cl->nodes);
}

static void fatal(struct core *c, int error, const char *why, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_FATAL);

	a->node.error = error;
	a->node.why = why;
	c->reign.state = REIGN_DEAD;
}

/* --- The session --- */

/* The next session starts from nothing, but for the others' sessions, which are what they were. */
static void lapsed(struct core *c)
{
	struct cluster *cl = &c->cluster;

	member_lapse(&c->member);
	barriers_lapse(&c->barriers);
	master_lapse(&c->master);
	for (unsigned i = 0; i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];
		p->synced = p->hearing = p->needed = p->ask = 0;
		p->listed = p->ended = p->blames = p->complained = p->complain_say = false;
	}
	cl->map = (struct clustermap){ 0 };
	cl->map_version = 0;
	cl->map_read = false;
	cl->members_for = cl->members_want = cl->raise = 0;
	cl->list_want = cl->beats_due = cl->beats_want = cl->beats_known = cl->plan_unread = cl->plan_reading = false;
	cut_begin(&cl->cut, false);
	cl->delays = (struct delays){ 0 };
	for (unsigned i = ASK_MAP; i < ASK_N; i++)
		ask_forget(&cl->asks, (enum ask_kind)i);
}

static void unreached(struct peer *p)
{
	p->conn = p->via = p->hop = p->path_open = 0;
	p->shunned = p->avoid_until = 0;
	p->cut = p->sought = 0;                  /* from when it is listed, in this session */
	p->met = p->blames = p->complained = p->complain_say = false;
}

/* A new session has begun, or the first. */
static void identity(struct core *c)
{
	struct msg_peer self = c->cluster.session.self;
	struct peer *own = peers_self(&c->peers);

	if (msg_peer_same(own->id, self))
		return;
	peers_drop(&c->peers, own);
	own->id = self;
	for (unsigned i = 1; i < c->peers.n; i++) {
		unreached(&c->peers.v[i]);       /* greeted by another name: the connections of two sessions are counted anew */
		c->peers.v[i].conn_last = 0;
	}
	member_begin(&c->member, self);
	master_begin(&c->master, self);
}

/* --- The map --- */

static bool serial_newer(const struct clustermap *a, const struct clustermap *b)
{
	return a->serial > b->serial;
}

static void reign_apply(struct core *c, unsigned shard, const struct map_reign *r)
{
	struct msg_peer self = c->cluster.session.self, master = r->master;

#ifdef CORE_BREAK_NODE_KEY
	if (master.session == self.session)
		master = self;
#endif
	bool ours = msg_peer_same(master, self);

#ifndef CORE_BREAK_LIST_REIGN
	c->cluster.members_for &= ~shard_bit(shard);     /* the list under way was asked for before this epoch was seen */
#endif
	c->cluster.delays.asked &= ~shard_bit(shard);    /* likewise */
	if (ours) {
		master_reign(&c->master, shard, r->epoch, false);
		place_begin(&c->cluster.place, shard, c->now);
		c->cluster.members_want |= shard_bit(shard);
		/* Most see it in the map as soon as we do, and need no word of ours to say all: not twice. */
		c->cluster.remind_at = max_u64(c->cluster.remind_at, c->now + c->cluster.conf.look / 8);
	} else {
		master_yield(&c->master, shard);
		c->cluster.yielded = c->now;
	}
	member_reign(&c->member, shard, master, r->epoch);
}

static void map_apply(struct core *c, const struct clustermap *m, uint64_t version)
{
	struct cluster *cl = &c->cluster;

	if (cl->map_read && !serial_newer(m, &cl->map))
		return;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (m->map.shard[i].epoch > c->member.epoch[i])
			reign_apply(c, i, &m->map.shard[i]);
#ifdef CORE_BREAK_EXPIRE_MAP
	for (unsigned i = 0; i < cl->observe.n; i++)
		if (!cl->observe.v[i].ended)
			cl->observe.v[i].since = c->now;
#endif
	cl->raise &= ~cl->members_want;
	place_seen(&cl->place, &cl->map.map, &m->map, c->now);
	cl->map = *m;
	cl->map_version = version;
	cl->list_want = true;
}

static void map_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	struct clustermap m;

	bool live = c->cluster.session.state == SESSION_LIVE;

	c->cluster.plan_unread |= c->cluster.plan_reading && ev->store.error;
	c->cluster.plan_reading = false;
#ifdef CORE_BREAK_MAP_EARLY
	live |= c->cluster.session.state == SESSION_ENROLLING;
#endif
	if (ev->store.error || !live)
		return;
	if (ev->store.version) {
		int e = clustermap_decode(ev->store.value, ev->store.value_len, &m);
		if (e < 0) {
			fatal(c, e, "the map in the store is not one of a cluster of this version", s);
			return;
		}
		map_apply(c, &m, ev->store.version);
	} else {
		c->cluster.list_want = true;
	}
	c->cluster.map_read = true;
	place_idle(c, s->now);
}

/* --- The members --- */

/* r NULL: its record cannot be read. false: there is no room for it. */
static bool member_seen(struct core *c, uint64_t session, const struct member_record *r, uint64_t version, core_nsec_t now)
{
	struct peer *p = peers_find(&c->peers, session);

	if (!p)
		p = peers_add(&c->peers, session);
	if (!p)
		return false;
	if (p->ended)
		return true;                     /* it was gone, and holds nothing: it is listed anew once its claims are dropped */
	if (!p->since)
		p->since = now;
	if (!p->listed && peers_index(&c->peers, p))
		p->ask = c->master.opening | c->master.open;
	p->listed = true;
	if (!p->conn && !p->cut && peers_index(&c->peers, p)) {
		p->cut = now ? now : 1;
		p->path_at = now + path_detour(&c->cluster.conf);
		c->cluster.path_at = c->cluster.cut.at = 1;
	}
	p->record = version;
	if (!r) {
		p->may_master = false;
		return true;
	}
	p->node = r->node;
	p->may_master = r->may_master;
	p->drains = r->drains;
	if (peers_text(&c->peers, p, r->text.address, r->text.address_len, r->text.name, r->text.name_len))
		p->link_wanted = false;
	return true;
}

bool cluster_key_session(const char *key, unsigned prefix, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 16; i++) {
		char ch = key[prefix + i];
		if (!(ch >= '0' && ch <= '9') && !(ch >= 'a' && ch <= 'f'))
			return false;
		v = v << 4 | (uint64_t)(ch <= '9' ? ch - '0' : ch - 'a' + 10);
	}
	*ret = v;
	return !key[prefix + 16];
}

void odd_note(struct odd *o, unsigned *count, const char *key)
{
	unsigned n = 0;

	if ((*count)++ || o->key[0])
		return;
	for (; key[n] && n < ODD_KEY_MAX - 1; n++)
		o->key[n] = key[n];
	o->key[n] = 0;
}

/* Our own session ends by what its beat says to us. */
static bool has_ended(const struct core *c, uint64_t session)
{
	const struct observed *e = session == c->cluster.session.self.session ? NULL : observe_find(&c->cluster.observe, session);

	return e && e->ended;
}

/* false: there is no room for one. It may hold something, by the word of an earlier master. */
static bool members_seen(struct core *c, const struct core_event *ev, core_nsec_t now)
{
	struct odd *odd = &c->cluster.odd;
	struct member_record r;
	uint64_t id;

	odd->members = odd->left_out = 0;
	odd->key[0] = 0;
	for (uint32_t i = 0; i < ev->store.records_n; i++) {
		const struct core_record *rec = &ev->store.records[i];
		bool key = cluster_key_session(rec->key, sizeof MEMBER_PREFIX - 1, &id) && id;
		bool good = key && member_record_decode(rec->value, rec->value_len, &r) == 0 && r.session == id;

		if (!good)
			odd_note(odd, &odd->members, rec->key);
		if (key && has_ended(c, id))
			continue;                /* its record is still to be cleared away */
		if (key && !member_seen(c, id, good ? &r : NULL, rec->version, now))
			odd_note(odd, &odd->left_out, rec->key);
	}
	return !odd->left_out;
}

void cluster_ended(struct core *c, struct peer *p)
{
	if (p->ended)
		return;
	master_ended(&c->master, p);
	path_hop_lost(c, p);
	for (unsigned i = 0; i < c->peers.n; i++)
		c->peers.v[i].named = 0;         /* by whom? The next list says it */
}

/* Who was listed and is not any more, or has a tombstone: that is for ever. */
static void gone_end(struct core *c, const struct core_event *ev)
{
	struct observe *o = &c->cluster.observe;
	uint64_t id;
	struct peer *p;

	for (unsigned i = 0; i < o->n; i++)
		o->v[i].record = 0;
	for (uint32_t i = 0; i < ev->store.records_n; i++) {
		const struct core_record *rec = &ev->store.records[i];

		if (!cluster_key_session(rec->key, sizeof MEMBER_PREFIX - 1, &id))
			continue;
		if (has_ended(c, id))
			observe_find(o, id)->record = rec->version;
		else if ((p = peers_find(&c->peers, id)))
			p->seen = true;
	}
	for (unsigned i = 1; i < c->peers.n; i++) {
		p = &c->peers.v[i];
		if (p->id.session && p->since && !p->seen)
			cluster_ended(c, p);
		p->seen = false;
	}
}

static void members_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (ev->store.error || cl->session.state != SESSION_LIVE) {
		cl->members_want |= cl->members_for;
		cl->list_want = true;
		cl->list_at = s->now + cl->conf.look / 4;
		return;
	}
	gone_end(c, ev);
	if (!members_seen(c, ev, s->now)) {
		cl->members_want |= cl->members_for; /* nothing opens by a list of which some are left out */
		cl->members_for = 0;
		cl->list_at = s->now + cl->conf.look;
	}
#ifdef CORE_BREAK_LIST_EARLY
	cl->members_for = c->master.opening;
#endif
	master_listed(&c->master, cl->members_for & c->master.opening);
	cl->members_for = 0;
	cl->beats_known = false;
	cl->beats_want |= cl->beats_due || coordinator_is(c);
	cl->beats_due = false;
}

/* --- Answers --- */

static void ended_say(struct cluster *cl, struct step *s)
{
	struct bury *b = &cl->told;

	if (!b->session)
		return;
	struct core_action *a = step_act(s, CORE_ACT_ENDED);
	a->session.session = b->session;
	a->session.name = b->name;
	a->session.address = b->address;
	b->session = 0;
}

int cluster_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	int kind = ask_answered(&c->cluster.asks, ev->store.op), r;

	if (kind < 0)
		return kind;
	c->cluster.plan_due = true;
	switch ((enum ask_kind)kind) {
	case ASK_BEAT:
	case ASK_RECORD:
		r = session_answer(&c->cluster.session, (enum ask_kind)kind, ev, s);
		if (r == -CORE_ESTALE)
			fatal(c, r, "superseded: a later daemon has taken over this node's session", s);
		else if (r > 0)
			lapsed(c);
		identity(c);
		break;
	case ASK_MAP:
		map_answer(c, ev, s);
		break;
	case ASK_MEMBERS:
		members_answer(c, ev, s);
		break;
	case ASK_PLAN:
	case ASK_BEATS:
	case ASK_BURY:
	case ASK_BURY_2:
	case ASK_BURY_3:
	case ASK_BURY_4:
		coord_answer(c, (enum ask_kind)kind, ev, s->now);
		ended_say(&c->cluster, s);
		break;
	case ASK_CUT:
	case ASK_CUTS:
		cut_answer(c, (enum ask_kind)kind, ev, s->now);
		break;
	case ASK_DELAYS:
		r = delays_answer(c, ev, s);
		if (r < 0)
			fatal(c, r, "the record of lock-delays in the store is not one of a cluster of this version", s);
		break;
	case ASK_N:
		break;
	}
	return 0;
}

/* --- Hints --- */

void cluster_drain(struct core *c, bool on)
{
	c->cluster.session.drains = on;
	c->cluster.drained = false;
	c->cluster.session.record_stale = true;
}

void cluster_hint(struct core *c, core_nsec_t now)
{
	core_nsec_t soon = now + c->cluster.conf.look / 16;

	if (c->cluster.look_at > soon)
		c->cluster.look_at = soon;
}

/* --- Time --- */

static void view_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;
	bool live = cl->session.state == SESSION_LIVE;

#ifdef CORE_BREAK_MAP_EARLY
	live |= cl->session.state == SESSION_ENROLLING;
#endif
	if (!live)
		return;
	if (!asking(&cl->asks, ASK_MAP) && s->now >= cl->look_at) {
		ask_key(&cl->asks.v[ASK_MAP], MAP_KEY, 0);
		ask_get(&cl->asks, ASK_MAP, s);
		cl->plan_reading = cl->plan_unread;
		cl->plan_unread = false;
		cl->look_at = s->now + cl->conf.look;
	}
	if ((cl->list_want || cl->members_want) && cl->map_read && !asking(&cl->asks, ASK_MEMBERS) && s->now >= cl->list_at) {
		cl->list_want = false;
		cl->members_for = cl->members_want;
		cl->members_want = 0;
		ask_key(&cl->asks.v[ASK_MEMBERS], MEMBER_PREFIX, 0);
		ask_list(&cl->asks, ASK_MEMBERS, s);
	}
}

/* Whom an opening shard still waits for is reminded with each look, and may have ended. */
static void opening_look(struct core *c, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;

	if (!c->master.opening || now < cl->remind_at)
		return;
	for (unsigned i = 1; i < c->peers.n; i++)
		if (c->peers.v[i].listed)
			c->peers.v[i].ask |= c->master.opening & ~c->peers.v[i].synced & ~c->peers.v[i].hearing;
	cl->list_want |= !coord_looking(c);
	cl->remind_at = now + cl->conf.look;
}

/*
 * What we have told a next master that had not read the map by then it has not taken; it asks once more when it has, and whoever
 * were gone then would keep its shards closed, and suspect.
 */
static void drained_look(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (c->master.frozen && s->now - cl->yielded < 2 * cl->conf.look)
		return;
	if (!cl->session.drains || cl->drained || !cl->map_read || cl->session.record_stale ||
	    asking(&cl->asks, ASK_RECORD) || c->member.syncing || c->master.telling)
		return;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (cl->map.map.shard[i].master.session == cl->session.self.session)
			return;
	cl->drained = true;
	step_act(s, CORE_ACT_DRAINED);
}

void cluster_tick(struct core *c, struct step *s)
{
	leave_tick(c, s);
	if (session_tick(&c->cluster.session, s))
		lapsed(c);
	identity(c);
	if (c->cluster.session.state != SESSION_LIVE && c->cluster.session.state != SESSION_ENROLLING)
		return;
	coord_act(c, s);
	opening_look(c, s->now);
	coord_look(c, s->now);
	view_tick(c, s);
	coord_beats(c, s);
	path_tick(c, s->now);
	cut_tick(c, s);
	delays_tick(c, s);
	drained_look(c, s);
}

static unsigned odd_n(const struct odd *o)
{
	return o->members + o->beats + o->left_out;
}

/* The caller hears of it when there are more than before, and when it is over. */
static bool odd_news(const struct odd *o)
{
	return odd_n(o) > o->said || (o->said && !odd_n(o));
}

static bool odd_work(struct core *c, struct step *s)
{
	struct odd *o = &c->cluster.odd;

	if (!odd_news(o))
		return false;
	o->said = odd_n(o);
	struct core_action *a = step_act(s, CORE_ACT_ODD);
	a->odd.records = o->members + o->beats;
	a->odd.left_out = o->left_out;
	a->odd.key = o->key;
	return true;
}

static void earlier(core_nsec_t *at, core_nsec_t when)
{
	if (!*at || when < *at)
		*at = when ? when : 1;
}

core_nsec_t cluster_next(const struct core *c, core_nsec_t now)
{
	const struct cluster *cl = &c->cluster;
	core_nsec_t at = session_next(&cl->session);

	if (cl->leave.on && session_on(&cl->session))
		earlier(&at, cl->leave.until);

	if (cl->session.state == SESSION_LIVE) {
		if (!asking(&cl->asks, ASK_MAP))
			earlier(&at, cl->look_at);
		if (c->master.opening)
			earlier(&at, cl->remind_at);
		if ((cl->list_want || cl->members_want) && cl->map_read && !asking(&cl->asks, ASK_MEMBERS))
			earlier(&at, cl->list_at ? cl->list_at : 1);
		core_nsec_t coord = coord_next(c);
		if (coord)
			earlier(&at, coord);
		if (cl->map_read && cl->path_at)
			earlier(&at, cl->path_at);
		core_nsec_t delays = delays_next(c);
		if (delays)
			earlier(&at, delays);
		core_nsec_t cut = cut_next(c);
		if (cut)
			earlier(&at, cut);
	}
	return at && at <= now ? now + 1 : at;
}

/* --- Work --- */

static struct peer *peer_wanting(const struct core *c, bool *ret_link)
{
	for (unsigned i = 1; i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];

		*ret_link = p->listed && !p->link_wanted && p->text;
		if (*ret_link || (p->listed && p->conn && p->ask & (c->master.opening | c->master.open)))
			return p;
	}
	return NULL;
}

bool cluster_busy(const struct core *c)
{
	bool link;

	return c->cluster.on && (c->master.telling || odd_news(&c->cluster.odd) || c->cluster.leave.walking ||
				 c->cluster.paths_opening || c->cluster.cut.complaints || c->cluster.place.due || peer_wanting(c, &link));
}

static void reign_say(struct core *c, struct peer *p, struct step *s)
{
	unsigned shard = (unsigned)__builtin_ctzll(p->ask & (c->master.opening | c->master.open));
	struct msg msg = { .kind = MSG_REIGN, .shard = (uint8_t)shard, .epoch = c->master.shard[shard].epoch,
			   .from = c->cluster.session.self, .to = p->id };

	p->ask &= ~shard_bit(shard);
	step_send(s, &msg);
}

bool cluster_work(struct core *c, struct step *s)
{
	bool link;
	struct peer *p;

	if (!c->cluster.on)
		return false;
	if (odd_work(c, s) || leave_work(c, s) || path_work(c, s) || cut_work(c, s) || master_tell_work(&c->master, s) ||
	    place_work(c, s))
		return true;
	/* Not once more for every name that the member tells of: who has come since waits until it is through. */
	if (c->cluster.nobody_asked && member_busy(&c->member))
		return false;
	p = peer_wanting(c, &link);
	c->cluster.nobody_asked = !p;
	if (!p)
		return false;
	if (link) {
		p->link_wanted = true;
		struct core_action *a = step_act(s, CORE_ACT_LINK);
		a->session.session = p->id.session;
		a->session.node = p->node;
		a->session.name = peer_name(p);
		a->session.address = peer_address(p);
	} else {
		reign_say(c, p, s);
	}
	return true;
}
