/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cut.h"

#include "bytes.h"
#include "coord.h"
#include "core_int.h"
#include "path.h"

_Static_assert(CUT_BYTES(CUT_MAX) <= CLUSTERMAP_BYTES, "fits into an ask");

int cut_decode(const void *bytes, size_t n, struct cut_record *ret)
{
	const uint8_t *p = bytes;

	if (n < CUT_BYTES(1) || n > CUT_BYTES(CUT_MAX) || p[0] != CUT_LAYOUT || p[1] || p[6] || p[7])
		return -CORE_EBADMSG;
	unsigned names = (unsigned)le_load(p + 2, 2), in_the_way = (unsigned)le_load(p + 4, 2);
	if (n != CUT_BYTES(names) || in_the_way > names || !le_load(p + 8, 8))
		return -CORE_EBADMSG;
	ret->session = le_load(p + 8, 8);
	ret->n = names;
	ret->in_the_way = in_the_way;
	for (unsigned i = 0; i < names; i++)
		ret->v[i] = le_load(p + 16 + 8 * i, 8);
	return 0;
}

uint32_t cut_encode(const struct cut_record *r, uint8_t ret[CUT_BYTES(CUT_MAX)])
{
	memset(ret, 0, 16);
	ret[0] = CUT_LAYOUT;
	le_store(ret + 2, 2, r->n);
	le_store(ret + 4, 2, r->in_the_way);
	le_store(ret + 8, 8, r->session);
	for (unsigned i = 0; i < r->n; i++)
		le_store(ret + 16 + 8 * i, 8, r->v[i]);
	return (uint32_t)CUT_BYTES(r->n);
}

void cut_begin(struct cut *u, bool adopted)
{
	*u = (struct cut){ .unsure = adopted, .doubt = adopted, .at = 1 };
}

/* --- Who is not reached --- */

static unsigned listed_n(const struct core *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->peers.n; i++)
		n += c->peers.v[i].listed;
	return n;
}

/* Everybody says whom it does not reach, and everybody's word counts; where they are many, that of masters, and of them. */
static bool few(const struct core *c)
{
	return listed_n(c) <= CUT_SMALL;
}

static bool cut_for(const struct peer *p, core_nsec_t span, core_nsec_t now)
{
	return p->listed && !p->ended && !p->conn && p->cut && now - p->cut >= span;
}

/* Whom nobody has tried to reach is in nobody's way: a pair of which one has just become a master has the grace before it. */
static bool sought_for(const struct peer *p, core_nsec_t span, core_nsec_t now)
{
	return cut_for(p, span, now) && p->sought && now - p->sought >= span;
}

static bool in_the_way(const struct core *c, const struct peer *p)
{
	return p->claims || (c->master.opening & c->master.listed & p->needed & ~p->synced);
}

static void name(struct core *c, struct cut_record *r, struct peer *p, bool complaint)
{
	if (r->n == CUT_MAX)
		return;
	r->v[r->n++] = p->id.session;
	r->in_the_way += complaint;
	if (complaint && !p->complained) {
		p->complained = p->complain_say = true;
		c->cluster.cut.complaints++;
	}
}

static void record_fill(struct core *c, struct cut_record *r, core_nsec_t now)
{
	bool we_master = path_masters(c, c->cluster.session.self.session), all = we_master || few(c);

	*r = (struct cut_record){ .session = c->cluster.session.self.session };
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 1; i < c->peers.n; i++) {
			struct peer *p = &c->peers.v[i];

			if (!cut_for(p, c->cluster.conf.grace / 4, now)) {
				p->complained = false;
				continue;
			}
			bool complaint = we_master && in_the_way(c, p) && sought_for(p, c->cluster.conf.grace / 4, now);
			if (complaint == !pass && (all || path_masters(c, p->id.session)))
				name(c, r, p, complaint);
		}
}

static uint64_t sum_of(const struct cut_record *r)
{
	uint64_t sum = r->n ? 1 + r->in_the_way : 0;

	for (unsigned i = 0; i < r->n; i++)
		sum = mapplan_mix(sum ^ r->v[i]);
	return sum;
}

static void record_write(struct core *c, struct step *s)
{
	struct cut *u = &c->cluster.cut;
	struct ask *a = &c->cluster.asks.v[ASK_CUT];
	struct cut_record r;

	record_fill(c, &r, s->now);
	u->reading = u->unsure;
	if (sum_of(&r) == u->said && !u->unsure)
		return;
	ask_key(a, CUT_PREFIX, r.session);
	if (u->unsure) {
		ask_get(&c->cluster.asks, ASK_CUT, s);
		return;
	}
	u->said = sum_of(&r);
	if (r.n)
		ask_cas(&c->cluster.asks, ASK_CUT, u->version, cut_encode(&r, a->value), s);
	else if (u->version)
		ask_delete(&c->cluster.asks, ASK_CUT, u->version, s);
}

static void record_answer(struct core *c, const struct core_event *ev, core_nsec_t now)
{
	struct cut *u = &c->cluster.cut;

	if (ev->store.error) {
		u->unsure = true;
		u->doubt |= !u->reading;
		return;
	}
	if (u->reading && u->doubt)
		u->again = now + 2 * c->cluster.conf.grace;
	u->doubt &= !u->reading;
	u->version = ev->store.version;
	if (u->reading)
		u->said = u->version ? ~(uint64_t)0 : 0;  /* whatever it says, it is not what we would */
	u->unsure = false;
}

/* --- What others say --- */

static void blame(struct core *c, struct peer *by, const struct cut_record *r, core_nsec_t now)
{
	uint64_t self = c->cluster.session.self.session;
	bool counts = coordinator_is(c) && now - by->since >= c->cluster.conf.grace && (few(c) || path_masters(c, by->id.session));

	for (unsigned i = 0; i < r->n; i++) {
		struct peer *p = counts ? peers_find(&c->peers, r->v[i]) : NULL;

		if (p)
			p->named++;
		if (r->v[i] == self && i < r->in_the_way)
			by->blames = true;
	}
}

static void records_answer(struct core *c, const struct core_event *ev, core_nsec_t now)
{
	struct cut *u = &c->cluster.cut;
	struct cut_record r;

	if (ev->store.error)
		return;
	for (unsigned i = 0; i < c->peers.n; i++) {
		c->peers.v[i].named = 0;
		c->peers.v[i].blames = false;
	}
	u->stale = 0;
	for (uint32_t i = 0; i < ev->store.records_n; i++) {
		const struct core_record *rec = &ev->store.records[i];
		struct peer *by;
		uint64_t id;

		if (!cluster_key_session(rec->key, sizeof CUT_PREFIX - 1, &id))
			continue;
		by = peers_find(&c->peers, id);
		if (!by || !by->listed) {
			u->stale = id;
			u->stale_version = rec->version;
		} else if (cut_decode(rec->value, rec->value_len, &r) == 0 && r.session == id) {
			u->wary_until = now + 2 * c->cluster.conf.grace;
			blame(c, by, &r, now);
		}
	}
}

void cut_answer(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now)
{
	if (kind == ASK_CUT)
		record_answer(c, ev, now);
	else
		records_answer(c, ev, now);
	c->cluster.cut.at = now + (ev->store.error ? c->cluster.conf.look / 4 : 0);
}

bool cut_clear(struct core *c, enum ask_kind kind, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct peer *p = cl->cut.stale ? peers_find(&c->peers, cl->cut.stale) : NULL;

	if (!cl->cut.stale || (p && p->listed))
		return false;
	cl->bury[kind - ASK_BURY] = (struct bury){ .session = cl->cut.stale, .what = BURY_CUT };
	ask_key(&cl->asks.v[kind], CUT_PREFIX, cl->cut.stale);
	ask_delete(&cl->asks, kind, cl->cut.stale_version, s);
	cl->cut.stale = 0;
	return true;
}

/* --- What follows --- */

/* The master that complains of us, and that we have not reached for all the grace. NULL: none. */
static const struct peer *blamed_by(const struct core *c, core_nsec_t now)
{
	for (unsigned i = 1; i < c->peers.n; i++) {
		const struct peer *p = &c->peers.v[i];

		if (p->blames && sought_for(p, c->cluster.conf.grace, now) && path_masters(c, p->id.session))
			return p;
	}
	return NULL;
}

static void end_if_blamed(struct core *c, struct step *s)
{
	const struct peer *by = blamed_by(c, s->now);

#ifdef CORE_BREAK_MEEK
	by = NULL;
#endif
	if (!by || c->cluster.session.condemned)
		return;
	struct core_action *a = step_act(s, CORE_ACT_CUT_OFF);
	a->session.session = by->id.session;
	a->session.node = by->node;
	a->session.name = peer_name(by);
	session_condemn(&c->cluster.session, s);
}

static bool records_wanted(const struct core *c, core_nsec_t now)
{
	for (unsigned i = 1; i < c->peers.n; i++)
		if (sought_for(&c->peers.v[i], c->cluster.conf.grace / 2, now) && path_masters(c, c->peers.v[i].id.session))
			return true;
	return false;
}

static bool anybody_cut(const struct core *c)
{
	for (unsigned i = 1; i < c->peers.n; i++)
		if (cut_for(&c->peers.v[i], 0, c->now))
			return true;
	return false;
}

void cut_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct cut *u = &cl->cut;

	if (cl->session.state != SESSION_LIVE || !cl->map_read)
		return;
	if (s->now >= u->list_at && !asking(&cl->asks, ASK_CUTS) && (coordinator_is(c) || (u->at && records_wanted(c, s->now)))) {
		u->list_at = s->now + cl->conf.look;
		ask_key(&cl->asks.v[ASK_CUTS], CUT_PREFIX, 0);
		ask_list(&cl->asks, ASK_CUTS, s);
	}
	if (!u->at || s->now < u->at)
		return;
	if (u->again && s->now >= u->again) {
		u->unsure = true;
		u->again = 0;
	}
	if (!asking(&cl->asks, ASK_CUT))
		record_write(c, s);
	end_if_blamed(c, s);
	u->at = anybody_cut(c) || u->unsure || u->version ? s->now + cl->conf.look / 2 : u->again;
}

core_nsec_t cut_next(const struct core *c)
{
	const struct cluster *cl = &c->cluster;
	core_nsec_t at = cl->cut.at;

	if (!cl->map_read)
		return 0;
	if (coordinator_is(c) && !asking(&cl->asks, ASK_CUTS) && (!at || cl->cut.list_at < at))
		at = cl->cut.list_at ? cl->cut.list_at : 1;
	return at;
}

bool cut_work(struct core *c, struct step *s)
{
	for (unsigned i = 1; c->cluster.cut.complaints && i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];

		if (!p->complain_say)
			continue;
		p->complain_say = false;
		c->cluster.cut.complaints--;
		struct core_action *a = step_act(s, CORE_ACT_COMPLAINT);
		a->session.session = p->id.session;
		a->session.node = p->node;
		a->session.name = peer_name(p);
		return true;
	}
	c->cluster.cut.complaints = 0;
	return false;
}

/* --- The coordinator --- */

/* The word of this one counts. */
static bool votes(const struct core *c, const struct peer *p, bool all)
{
	return p->listed && (all || path_masters(c, p->id.session));
}

static unsigned voters_n(const struct core *c, bool all)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->peers.n; i++)
		n += votes(c, &c->peers.v[i], all);
	return n;
}

core_nsec_t cut_steady(const struct core *c, core_nsec_t now)
{
	const struct core_cluster *conf = &c->cluster.conf;
	unsigned n = 0;

	for (unsigned i = 1; i < c->peers.n; i++)
		n += c->peers.v[i].listed && c->peers.v[i].conn;
	if (2 * n < listed_n(c) - 1)
		return UINT64_MAX;
	return now < c->cluster.cut.wary_until ? max_u64(conf->steady, conf->grace) : conf->steady;
}

/* In two looks, one after the other: not only because some have said so a little earlier than the rest. */
static bool long_shunned(const struct core *c, const struct peer *p, core_nsec_t now)
{
	return p->shunned && now - p->shunned >= c->cluster.conf.look;
}

void cut_avoid(struct core *c, core_nsec_t now)
{
#ifdef CORE_BREAK_AVOID
	return;
#endif
	core_nsec_t grace = c->cluster.conf.grace;
	bool all = few(c), others = false;
	unsigned n = voters_n(c, all);

	for (unsigned i = 0; i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];

		if (!p->listed || p->named < 2 || 2 * (unsigned)p->named <= n - votes(c, p, all))
			p->shunned = 0;
		else if (!p->shunned)
			p->shunned = now;
		others |= p->listed && p->may_master && !p->drains && !p->shunned;
	}
	bool ours = !peers_self(&c->peers)->shunned;
	for (unsigned i = 0; i < c->peers.n; i++) {
		struct peer *p = &c->peers.v[i];
		bool unreached = p->met && cut_for(p, grace / 2, now);

		if (others ? long_shunned(c, p, now) || (ours && unreached) : unreached)
			p->avoid_until = now + 2 * grace;
	}
}
