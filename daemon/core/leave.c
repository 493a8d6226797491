/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "leave.h"

#include "core_int.h"
#include "member_int.h"

#define MEMORY_RETRY_NS 100000000ull

void leave_begin(struct core *c, core_nsec_t patience)
{
	struct leave *l = &c->cluster.leave;

	if (l->on)
		return;
	cluster_drain(c, true);
	*l = (struct leave){ .on = true, .walking = true, .until = c->now + patience };
	c->cluster.session.leaving = true;
	barriers_leave(&c->barriers, c->cluster.session.state >= SESSION_BEATING && c->cluster.session.state <= SESSION_LIVE);
}

/* It may be that nobody else can master anything: then nobody is waited for. */
static bool heirs(const struct core *c)
{
	for (unsigned i = 1; i < c->peers.n; i++) {
		const struct peer *p = &c->peers.v[i];

		if (p->listed && p->may_master && !p->drains)
			return true;
	}
	return false;
}

/* Whoever only observes holds nobody up. */
static bool holds(const struct core *c)
{
	const struct member *m = &c->member;

	for (core_ref_t ref = 0; m->leases && ref / MEMBER_PIECE < m->pieces_max; ref++) {
		const struct lease *l = lease_at(m, ref);

		if (!l)
			ref |= MEMBER_PIECE - 1;
		else if (l->state != LEASE_NONE && l->state != LEASE_OBSERVING)
			return true;
	}
	return false;
}

static bool done(const struct core *c, core_nsec_t now)
{
	const struct cluster *cl = &c->cluster;

	if (now >= cl->leave.until)
		return true;
	return !holds(c) && !barriers_left_over(&c->barriers) && (cl->session.state != SESSION_LIVE || cl->drained || !heirs(c));
}

void leave_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (!cl->leave.on || cl->leave.walking || !session_on(&cl->session))
		return;
	if (done(c, s->now))
		session_leave(&cl->session, holds(c), s);
}

/* --- Leases --- */

static void refused_say(core_ref_t ref, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_REFUSED);

	a->name.ref = ref;
	a->name.error = -CORE_ESHUTDOWN;
}

/* REFUSED says that the ref is free; nobody claims by it any more, so the lease can stay until the master has forgotten the claim. */
static void refuse_waiting(struct core *c, core_ref_t ref, struct lease *l, struct step *s)
{
	struct member *m = &c->member;

	refused_say(ref, s);
	l->wanted = 0;
	l->silent = true;
	lease_become(m, l, LEASE_RELEASING);
	if (m->told & shard_bit(names_at(m->names, l->name)->shard))
		tell(m, MSG_RELEASE, l, s);
	else
		lease_end(m, ref);
}

static void refuse_more(struct core *c, core_ref_t ref, struct lease *l, struct step *s)
{
	struct member *m = &c->member;

	refused_say(ref, s);
	l->wanted = 0;
	l->upgrade = false;
	l->number = ++m->number;
	lease_become(m, l, LEASE_HELD);
	tell(m, MSG_CLAIM, l, s);
}

static void ask_back(core_ref_t ref, struct step *s)
{
	step_act(s, CORE_ACT_REVOKE)->name.ref = ref;
}

bool leave_work(struct core *c, struct step *s)
{
	struct leave *v = &c->cluster.leave;

	if (!v->walking)
		return false;
	if (v->cursor / MEMBER_PIECE >= c->member.pieces_max) {
		v->walking = false;
		return true;
	}
	struct lease *l = lease_at(&c->member, v->cursor);
	if (!l) {
		v->cursor = (v->cursor / MEMBER_PIECE + 1) * MEMBER_PIECE;
		return true;
	}
	if (l->state == LEASE_REFILLING && master_reserve(&c->master) < 0) {
		c->memory_at = s->now + MEMORY_RETRY_NS;
		return false;
	}
	core_ref_t ref = v->cursor++;
	switch ((enum lease_state)l->state) {
	case LEASE_NONE:
	case LEASE_OBSERVING:
	case LEASE_RELEASING:
		return true;
	case LEASE_WAITING:
		refuse_waiting(c, ref, l, s);
		return true;
	case LEASE_REFILLING:
		refuse_more(c, ref, l, s);
		ask_back(ref, s);
		return true;
	case LEASE_HELD:
		ask_back(ref, s);
		return true;
	}
	return true;
}
