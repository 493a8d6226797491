/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Links and frames: what comes from others, and whether it counts. Only what comes by the present connection, from the
 * incarnation that greeted, is looked at (S5); by a path, path.c has looked.
 */
#include "cluster.h"

#include "core_int.h"
#include "path.h"

void cluster_link_up(struct core *c, const struct core_event *ev)
{
	struct peer *p = peers_find(&c->peers, ev->link.session);

	if (ev->link.session == c->cluster.session.self.session)
		return;
	if (!p)
		p = peers_add(&c->peers, ev->link.session);
	if (!p || p->ended || ev->link.conn <= p->conn_last || ev->link.incarnation < p->id.incarnation)
		return;
	p->conn_last = ev->link.conn;
	c->cluster.plan_due = true;
	path_reached(c, p, ev->link.conn, ev->link.incarnation, NULL);
}

void cluster_link_down(struct core *c, const struct core_event *ev)
{
	struct peer *p = peers_find(&c->peers, ev->link.session);

	if (!p || !peers_index(&c->peers, p) || p->via || p->conn != ev->link.conn)
		return;
	c->cluster.plan_due = true;
	path_lost(c, p);
	if (!p->since)
		peers_drop(&c->peers, p);
}

static bool frame_current(const struct peer *p, const struct core_event *ev, const struct frame *f)
{
#ifdef CORE_BREAK_OLD_CONN
	(void)ev;
	return f->msg.from.session == p->id.session;
#endif
	return p->conn && !p->via && ev->recv.conn == p->conn && f->conn == p->conn && msg_peer_same(f->msg.from, p->id);
}

/* Whoever speaks of a reign that the map has not told us of knows a newer one. */
static void epoch_look(struct core *c, const struct msg *m, core_nsec_t now)
{
	if (m->epoch > c->member.epoch[m->shard])
		cluster_hint(c, now);
}

static int to_master(struct core *c, const struct msg *m, struct step *s)
{
	name_t n = 0;
	int r = master_reserve(&c->master);

	if (r == 0 && m->key_len)
		r = names_make(&c->names, m->key, m->key_len, &n);
	if (r < 0)
		return r;
	master_receive(&c->master, m, s);
	if (n && (n = names_find(&c->names, m->key, m->key_len)))
		names_drop(&c->names, n);
	return 0;
}

static int message_in(struct core *c, struct peer *p, struct frame *f, struct step *s)
{
	epoch_look(c, &f->msg, s->now);
	f->msg.to = c->cluster.session.self;
	switch (msg_receiver(f->msg.kind)) {
	case MSG_TO_MASTER:
		if (!p->listed || !((c->master.opening | c->master.open | c->master.raise) & shard_bit(f->msg.shard)))
			return 0;
		return to_master(c, &f->msg, s);
	case MSG_TO_MEMBER:
		member_receive(&c->member, &f->msg, s);
		return 0;
	case MSG_TO_BARRIER_MASTER:
		if (p->listed)
			barriers_master_receive(&c->barriers, &f->msg, s);
		return 0;
	case MSG_TO_BARRIER_MEMBER:
		barriers_member_receive(&c->barriers, &f->msg, s);
		return 0;
	case MSG_TO_COORDINATOR:
		if (p->listed)
			place_hear(c, &f->msg, s->now);
		return 0;
	}
	return 0;
}

int cluster_recv(struct core *c, const struct core_event *ev, struct step *s)
{
	struct peer *p = peers_find(&c->peers, ev->recv.session);
	struct frame f;

	if (envelope_is(ev->recv.bytes, ev->recv.n)) {
		c->cluster.plan_due = true;
		return p ? path_recv(c, p, ev, s) : 0;
	}
	int r = frame_decode(ev->recv.bytes, ev->recv.n, &f);
	if (r < 0)
		return r;
	return p && frame_current(p, ev, &f) ? cluster_frame(c, p, &f, s) : 0;
}

int cluster_frame(struct core *c, struct peer *p, struct frame *f, struct step *s)
{
	if (c->cluster.session.state != SESSION_LIVE)
		return 0;
	int r = 0;

	if (f->msg.value.state == CORE_VALUE_KNOWN)
		r = value_make(&c->values, &f->msg.value, &f->msg.kept);
	if (r < 0)
		return r;
	r = message_in(c, p, f, s);
	value_drop(&c->values, f->msg.kept);
	return r;
}
