/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "path.h"

#include "core_int.h"

static struct msg_peer self_of(const struct core *c)
{
	return c->cluster.session.self;
}

bool path_masters(const struct core *c, uint64_t session)
{
	for (unsigned i = 0; c->cluster.map.serial && i < CORE_SHARDS; i++)
		if (c->cluster.map.map.shard[i].master.session == session)
			return true;
	return false;
}

static bool worth_it(const struct core *c, const struct peer *p, bool we_master)
{
	return we_master || c->cluster.map.coordinator == self_of(c).session || path_masters(c, p->id.session);
}

/* --- Reached and lost --- */

static bool leads_through(const struct peer *p, const struct peer *hop)
{
	return p->conn && p->via && p->via == hop->id.session;
}

void path_hop_lost(struct core *c, const struct peer *hop)
{
	for (unsigned i = 1; i < c->peers.n; i++)
		if (leads_through(&c->peers.v[i], hop))
			path_lost(c, &c->peers.v[i]);
}

void path_lost(struct core *c, struct peer *p)
{
	bool was_direct = p->conn && !p->via;

	p->conn = p->via = p->hop = p->path_open = 0;
	p->cut = c->now ? c->now : 1;
	p->sought = worth_it(c, p, path_masters(c, self_of(c).session)) ? p->cut : 0;
	p->path_at = p->cut + (was_direct ? path_detour(&c->cluster.conf) : 0);
	c->cluster.path_at = c->cluster.cut.at = 1;
	if (was_direct)
		path_hop_lost(c, p);
}

void path_reached(struct core *c, struct peer *p, uint64_t conn, uint32_t incarnation, const struct peer *via)
{
	if (!via)
		path_hop_lost(c, p);             /* what led through an earlier connection */
	p->conn = conn;
	p->via = via ? via->id.session : 0;
	p->hop = via ? via->conn : 0;
	p->path_open = 0;
	p->path_left = 0;
	p->cut = p->sought = 0;
	p->met = true;
	p->id.incarnation = incarnation;
	p->round++;
	p->hearing = p->synced = 0;
	if (!p->listed)
		c->cluster.list_want = true;
	member_linked(&c->member, p->id.session);
}

/* --- Sending --- */

static void say(struct core *c, const struct peer *hop, struct envelope e, struct step *s)
{
	unsigned i = s->actions->n;
	struct core_action *a = step_act(s, CORE_ACT_SEND);

	e.sender = self_of(c);
	e.conn = hop->conn;
	if (!e.incarnation)
		e.incarnation = e.sender.incarnation;
	a->send.session = hop->id.session;
	a->send.conn = hop->conn;
	a->send.bytes = s->frame[i];
	a->send.n = envelope_encode(&e, s->frame[i]);
}

static bool direct(const struct peer *p)
{
	return p->id.session && p->conn && !p->via && !p->ended;
}

/* --- Receiving --- */

/* As the relay. What it hands on it vouches for: it is from that origin, and a frame of that path. */
static int relay(struct core *c, const struct peer *origin, const struct envelope *e, struct step *s)
{
	const struct peer *to = peers_find(&c->peers, e->far);
	struct frame f;

	bool sound = true;

#ifdef CORE_BREAK_OLD_PATH
	sound = false;
#endif
	if (sound && e->incarnation != origin->id.incarnation)
		return -CORE_EBADMSG;
	if (sound && e->what == ENVELOPE_FRAME) {
		int r = frame_decode(e->frame, e->n, &f);
		if (r < 0)
			return r;
		if (!msg_peer_same(f.msg.from, origin->id) || f.conn != e->path)
			return -CORE_EBADMSG;
	}
	struct envelope on = { .what = e->what, .from = true, .incarnation = e->incarnation, .far = origin->id.session,
			       .path = e->path, .frame = e->frame, .n = e->n };
	if (to && to != peers_self(&c->peers) && direct(to)) {
		say(c, to, on, s);
		return 0;
	}
	struct envelope back = { .what = ENVELOPE_CLOSED, .from = true, .incarnation = e->incarnation, .far = e->far, .path = e->path };
	if (e->what == ENVELOPE_FRAME || e->what == ENVELOPE_OPEN || e->what == ENVELOPE_OPENED)
		say(c, origin, back, s);
	return 0;
}

static void answer(struct core *c, const struct peer *hop, const struct envelope *e, enum envelope_what what, uint64_t path,
		   struct step *s)
{
	struct envelope back = { .what = what, .far = e->far, .path = path };

	say(c, hop, back, s);
}

static void relayed_say(const struct peer *p, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_RELAYED);

	a->session.session = p->id.session;
	a->session.node = p->node;
	a->session.name = peer_name(p);
	a->session.via = p->via;
}

static void take_open(struct core *c, struct peer *p, const struct peer *hop, const struct envelope *e, struct step *s)
{
	if (!p || !p->listed || p->ended) {
		c->cluster.list_want = true;
		return;
	}
	if (direct(p) || e->incarnation < p->id.incarnation || e->path == p->path_last)
		return;
	if (e->path < p->path_last) {
		answer(c, hop, e, ENVELOPE_OLD, p->path_last, s);
		return;
	}
	p->path_last = e->path;
	answer(c, hop, e, ENVELOPE_OPENED, e->path, s);
	path_reached(c, p, e->path, e->incarnation, hop);
	relayed_say(p, s);
}

static void take_opened(struct core *c, struct peer *p, const struct peer *hop, const struct envelope *e, struct step *s)
{
	if (p->conn || e->path != p->path_open || e->incarnation < p->id.incarnation)
		return;
	path_reached(c, p, e->path, e->incarnation, hop);
	relayed_say(p, s);
}

static bool path_current(const struct peer *p, const struct peer *hop, const struct core_event *ev, const struct envelope *e)
{
#ifdef CORE_BREAK_OLD_PATH
	return p->conn;
#endif
	return p->conn == e->path && p->via == hop->id.session && p->hop == ev->recv.conn && p->id.incarnation == e->incarnation;
}

static int take_frame(struct core *c, struct peer *p, const struct peer *hop, const struct core_event *ev,
		      const struct envelope *e, struct step *s)
{
	struct frame f;
	int r = frame_decode(e->frame, e->n, &f);

	if (r < 0)
		return r;
	if (f.msg.from.session != e->far || f.conn != e->path)
		return -CORE_EBADMSG;
	if (p && path_current(p, hop, ev, e))
		return cluster_frame(c, p, &f, s);
	answer(c, hop, e, ENVELOPE_CLOSED, e->path, s);
	return 0;
}

int path_recv(struct core *c, struct peer *hop, const struct core_event *ev, struct step *s)
{
	struct envelope e;
	int r = envelope_decode(ev->recv.bytes, ev->recv.n, &e);

	if (r < 0)
		return r;
#ifdef CORE_BREAK_OLD_PATH
	if (e.what == ENVELOPE_FRAME)
		return e.from ? take_frame(c, peers_find(&c->peers, e.far), hop, ev, &e, s) : relay(c, hop, &e, s);
#endif
	if (!direct(hop) || ev->recv.conn != hop->conn || e.conn != hop->conn || !msg_peer_same(e.sender, hop->id))
		return 0;
	if (!e.from)
		return relay(c, hop, &e, s);
	struct peer *p = e.far == self_of(c).session ? NULL : peers_find(&c->peers, e.far);
	switch (e.what) {
	case ENVELOPE_FRAME:
		return take_frame(c, p, hop, ev, &e, s);
	case ENVELOPE_OPEN:
		take_open(c, p, hop, &e, s);
		return 0;
	case ENVELOPE_OPENED:
		if (p)
			take_opened(c, p, hop, &e, s);
		return 0;
	case ENVELOPE_OLD:
		if (p && e.path > p->path_last) {
			p->path_last = e.path;
			p->path_at = c->now;             /* with a higher number at once */
			c->cluster.path_at = 1;
		}
		return 0;
	case ENVELOPE_CLOSED:
		if (p && leads_through(p, hop) && p->conn == e.path)
			path_lost(c, p);
		return 0;
	case ENVELOPE_N:
		break;
	}
	return -CORE_EBADMSG;
}

/* --- Opening --- */

static bool wanted(const struct peer *p)
{
	return p->listed && !p->ended && !p->conn && p->cut;
}

static unsigned relays(const struct core *c)
{
	unsigned n = 0;

	for (unsigned i = 1; i < c->peers.n; i++)
		n += direct(&c->peers.v[i]);
	return n;
}

static void open_begin(struct core *c, struct peer *p, unsigned tries)
{
	uint64_t low = self_of(c).session > p->id.session;

	p->path_last = ((p->path_last >> 1) + 1) << 1 | low;
	p->path_open = p->path_last;
	p->path_left = (uint8_t)tries;
	c->cluster.paths_opening |= tries > 0;
}

void path_tick(struct core *c, core_nsec_t now)
{
	struct cluster *cl = &c->cluster;

	if (cl->session.state != SESSION_LIVE || !cl->map_read || !cl->path_at || now < cl->path_at)
		return;
	bool we_master = path_masters(c, self_of(c).session);
	unsigned n = relays(c);

	cl->path_at = 0;
	for (unsigned i = 1; i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];

		if (!wanted(p))
			continue;
		if (now >= p->path_at) {
			p->path_at = now + path_detour(&c->cluster.conf);
			if (!worth_it(c, p, we_master)) {
				p->sought = 0;
			} else {
				p->sought = p->sought ? p->sought : now;
				open_begin(c, p, n < PATH_TRIES ? n : PATH_TRIES);
			}
		}
		if (!cl->path_at || p->path_at < cl->path_at)
			cl->path_at = p->path_at;
	}
}

/* The next one in the table, so that the next attempt goes on where this one ends; the same if there is no other. */
static const struct peer *relay_next(struct core *c, struct peer *p)
{
	for (unsigned i = 0; i < c->peers.n; i++) {
		const struct peer *hop = &c->peers.v[++p->path_next % c->peers.n];

		if (hop != peers_self(&c->peers) && hop != p && direct(hop))
			return hop;
	}
	return NULL;
}

bool path_work(struct core *c, struct step *s)
{
#ifdef CORE_BREAK_PATH
	c->cluster.paths_opening = false;
#endif
	for (unsigned i = 1; c->cluster.paths_opening && i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];
		const struct peer *hop = wanted(p) && p->path_left ? relay_next(c, p) : NULL;

		if (!hop) {
			p->path_left = 0;
			continue;
		}
		p->path_left--;
		struct envelope e = { .what = ENVELOPE_OPEN, .far = p->id.session, .path = p->path_open };
		say(c, hop, e, s);
		return true;
	}
	c->cluster.paths_opening = false;
	return false;
}
