/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The master's side of barriers (barrier.h): puts arrivals into rounds, decides, and drives verdicts home.
 *
 * Whatever a member says is noted, and the barrier put on its shard's list; round_look() then derives from what is
 * noted what is to be done, and says it. So it does not matter in which order things are heard, nor how often.
 */
#include "barrier.h"

#include "master.h"
#include "range.h"

/* At most so many messages come from one look. */
#define SAY_MAX 4

static struct barrier_claim *claim_of(const struct barriers *b, uint32_t handle)
{
	return handle ? pool_at(&b->claims, handle) : NULL;
}

static struct barrier_round *round_of(const struct barriers *b, name_t n)
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

static void ready_put(struct barriers *b, struct barrier_round *r)
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

static void round_drop(struct barriers *b, struct barrier_round *r)
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

static void idle_enter(struct barriers *b, struct barrier_round *r)
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

	while (i && claim_of(b, i)->peer != peer)
		i = claim_of(b, i)->next;
	return i;
}

/* Behind those who came before. */
static struct barrier_claim *claim_make(struct barriers *b, struct barrier_round *r, unsigned peer)
{
	struct peer *p = &b->peers->v[peer];
	uint32_t handle = pool_take(&b->claims), *link = &r->claims;
	struct barrier_claim *c = claim_of(b, handle);

	*c = (struct barrier_claim){ .name = r->name, .peer = (uint16_t)peer, .peer_next = p->barriers };
	if (p->barriers)
		claim_of(b, p->barriers)->peer_prev = handle;
	p->barriers = handle;
	while (*link)
		link = &claim_of(b, *link)->next;
	*link = handle;
	idle_leave(b, r);
	return c;
}

/* Whose parties were in a round has broken it by this, unless there is a verdict. */
static void claim_drop(struct barriers *b, struct barrier_round *r, uint32_t handle)
{
	struct barrier_claim *c = claim_of(b, handle);
	uint32_t *link = &r->claims;

	if (c->enrolled || (c->state == CORE_BARRIER_IN && c->round == r->round))
		r->breaks = true;
	else if (c->state == CORE_BARRIER_IN)
		r->dead = max_u64(r->dead, c->round);
	while (*link != handle)
		link = &claim_of(b, *link)->next;
	*link = c->next;
	if (c->peer_prev)
		claim_of(b, c->peer_prev)->peer_next = c->peer_next;
	else
		b->peers->v[c->peer].barriers = c->peer_next;
	if (c->peer_next)
		claim_of(b, c->peer_next)->peer_prev = c->peer_prev;
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

static struct core_verdict verdict_of(const struct msg *m)
{
	return (struct core_verdict){ .round = m->stamp, .serial = m->seen, .passed = m->flags & MSG_FLAG_PASSED,
				      .yes = m->flags & MSG_FLAG_YES };
}

static void take_arrive(struct barriers *b, struct barrier_round *r, unsigned peer, const struct msg *m)
{
	uint32_t handle = claim_find(b, r, peer);
	struct barrier_claim *c = claim_of(b, handle);

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
	c->said_enrol = c->said_announce = c->said_go = false;
	if (c->state == CORE_BARRIER_TOLD) {
		struct core_verdict v = verdict_of(m);
		verdict_found(r, &v);
	}
}

static void take_ask(struct barriers *b, struct barrier_round *r, unsigned peer, const struct msg *m)
{
	struct barrier_claim *c = claim_of(b, claim_find(b, r, peer));

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
	if (m->stamp > r->last.round)
		r->last = verdict_of(m);
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
			claim_drop(b, r, r->claims);
		r->ready = false;
		round_drop(b, r);
	}
	*sh = (struct barrier_shard){ 0 };
}

bool barriers_ended(struct barriers *b, struct peer *p)
{
	if (!b || !p->barriers)
		return false;
	claim_drop(b, round_of(b, claim_of(b, p->barriers)->name), p->barriers);
	return true;
}

void barriers_synced(struct barriers *b, unsigned peer, unsigned shard)
{
	if (!b)
		return;
	struct peer *p = &b->peers->v[peer];
	uint32_t next;

	for (uint32_t i = peer ? p->barriers : 0; i; i = next) {
		struct barrier_claim *c = claim_of(b, i);

		next = c->peer_next;
		if (names_at(&b->names, c->name)->shard == shard && c->conn != p->round)
			claim_drop(b, round_of(b, c->name), i);
	}
}

/* --- Deciding --- */

static bool listed(const struct barriers *b, uint64_t session)
{
	const struct peer *p = peers_find(b->peers, session);

	return p && !p->ended && (p == peers_self(b->peers) || p->listed);
}

static void decide(struct barrier_round *r, const struct core_verdict *v)
{
	r->announced = true;
	r->verdict = *v;
	r->verdict.round = r->round;
	r->breaks = false;
}

/*
 * All have synced. If somebody is in a round of an earlier reign and nobody has its verdict, there is none: it goes on
 * as a new one, unless one of its parties wants out of it, or may have gone without our hearing.
 */
static void reign_settle(struct barriers *b, struct barrier_round *r)
{
	bool breaks = false;
	uint64_t round = r->dead;

	r->known = true;
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
		if (c->state == CORE_BARRIER_IN)
			round = max_u64(round, c->round);
	if (r->announced || round <= r->last.round)
		return;
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next)) {
		bool in = c->state == CORE_BARRIER_IN && c->round == round;

		breaks |= in && (c->wants_out || !listed(b, c->by));
		breaks |= c->ask == round;
	}
	if (!breaks && r->dead != round) {
		r->was = round;
		return;
	}
	r->round = round;
	decide(r, &(struct core_verdict){ 0 });
}

/* Announced: all who are in it are told, and once they are, it is the last one. false: not all are yet. */
static bool round_drive(struct barriers *b, struct barrier_round *r)
{
	bool all = true;

	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
#ifdef CORE_BREAK_BARRIER_STEP
		all &= c->state != CORE_BARRIER_IN || c->round != r->round || c->said_go;
	r->last = r->verdict;                    /* they are told to go as soon as they are told */
	if (!all)
#else
		all &= c->state != CORE_BARRIER_IN || c->round != r->round;
	if (!all && r->round > r->last.round)
#endif
		return false;
	if (r->round > r->last.round)
		r->last = r->verdict;
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
		c->enrolled = 0;
	r->announced = r->breaks = false;
	r->round = r->was = 0;
	return true;
}

static bool confirmed(const struct barrier_round *r, const struct barrier_claim *c)
{
#ifdef CORE_BREAK_BARRIER_CONFIRM
	return r->round && c->state == CORE_BARRIER_IN && c->round == r->round;
#endif
	return r->round && c->state == CORE_BARRIER_IN && c->round == r->round && c->in == c->enrolled;
}

/* As many as the first who is here says; who says otherwise is refused. */
static void limit_settle(struct barriers *b, struct barrier_round *r)
{
	r->limit = 0;
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
		if (c->enrolled || c->state != CORE_BARRIER_OUT || (c->held && !r->limit))
			r->limit = c->limit;
}

/* In order of arrival, but whoever is in stays in. Returns how many are. */
static uint64_t enrol(struct barriers *b, struct barrier_round *r)
{
	uint64_t sum = 0;

	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next)) {
		if (c->state == CORE_BARRIER_TOLD || c->limit != r->limit)
			c->enrolled = 0;
		else if (c->enrolled > c->held)
			c->enrolled = c->held;
		sum += c->enrolled;
	}
	for (struct barrier_claim *c = claim_of(b, r->claims); c && sum < r->limit; c = claim_of(b, c->next)) {
		if (c->state == CORE_BARRIER_TOLD || c->limit != r->limit)
			continue;
		uint32_t more = (uint32_t)min_u64(r->limit - sum, c->held - c->enrolled);

		c->enrolled += more;
		sum += more;
	}
	return sum;
}

/* A reset is of all who had come before it, so it waits for those whose confirmation is under way. */
static bool settling(const struct barriers *b, const struct barrier_round *r)
{
	bool any = false;

	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
		any |= c->enrolled && !confirmed(r, c);
	return any && !r->announced;
}

static bool breaks(const struct barriers *b, const struct barrier_round *r)
{
	bool any = r->breaks, reset = false, in = false;

	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next)) {
		in |= c->enrolled;
		any |= c->state == CORE_BARRIER_IN && c->round == r->round && c->wants_out;
		any |= c->ask && c->ask == r->was;
		reset |= c->reset_number;
	}
	return any || (reset && in && !settling(b, r));
}

/* The parties of the forming round, and its verdict if there is one by now. */
static void round_form(struct barriers *b, struct barrier_round *r)
{
	unsigned shard = names_at(&b->names, r->name)->shard;
	struct core_verdict v = { .passed = true, .yes = true };
	bool all = true;

	if (r->round && breaks(b, r)) {
		decide(r, &(struct core_verdict){ 0 });
		return;
	}
	r->breaks = false;
	limit_settle(b, r);
	uint64_t sum = enrol(b, r);
	if (sum && !r->round)
		r->round = token_make(b->master->shard[shard].epoch, ++b->shard[shard].count);
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next)) {
		if (!c->enrolled)
			continue;
		all &= confirmed(r, c);
		v.yes &= c->enrolled <= c->yes;
		v.serial = b->peers->v[c->peer].id.session;
	}
	if (sum && sum == r->limit && all)
		decide(r, &v);
}

/* --- Saying --- */

static void say(struct barriers *b, const struct barrier_round *r, const struct barrier_claim *c, struct msg *m, struct step *s)
{
	const struct name *name = names_at(&b->names, r->name);

	m->key = name->key;
	m->key_len = name->len;
	m->shard = name->shard;
	m->epoch = b->master->shard[name->shard].epoch;
	m->from = b->master->self;
	m->to = b->peers->v[c->peer].id;
	step_send(s, m);
}

static void say_verdict(struct barriers *b, const struct barrier_round *r, const struct barrier_claim *c,
			const struct core_verdict *v, struct msg *m, struct step *s)
{
	m->stamp = v->round;
	m->seen = v->serial;
	m->flags |= (uint16_t)((v->passed ? MSG_FLAG_PASSED : 0) | (v->passed && v->yes ? MSG_FLAG_YES : 0));
	say(b, r, c, m, s);
}

/* What became of the round that it asks for. NULL: nobody knows. */
static const struct core_verdict *verdict_known(const struct barrier_round *r, const struct barrier_claim *c)
{
	if (c->ask == r->last.round)
		return &r->last;
	return c->ask == r->was && r->announced && !r->verdict.passed ? &r->verdict : NULL;
}

/* One thing. false: there is nothing to be said to it. */
static bool say_one(struct barriers *b, struct barrier_round *r, struct barrier_claim *c, struct step *s)
{
	struct msg m = { .number = c->number };

	if (c->reset_number && !settling(b, r)) {
		m = (struct msg){ .kind = MSG_ANSWER, .number = c->reset_number, .flags = MSG_FLAG_RESET };
		c->reset_number = 0;
		say(b, r, c, &m, s);
		return true;
	}
	if (c->ask && (c->ask != r->round || c->ask == r->last.round)) {
		const struct core_verdict *v = verdict_known(r, c), none = { 0 };

		m = (struct msg){ .kind = MSG_ANSWER, .number = c->ask_number, .error = v ? 0 : -CORE_ESTALE };
		c->ask = 0;
		say_verdict(b, r, c, v ? v : &none, &m, s);
		return true;
	}
	if (r->announced && c->state == CORE_BARRIER_IN && c->round == r->round && !c->said_announce) {
		m.kind = MSG_ANNOUNCE;
		c->said_announce = true;
		say_verdict(b, r, c, &r->verdict, &m, s);
		return true;
	}
	bool told = c->state == CORE_BARRIER_TOLD;
#ifdef CORE_BREAK_BARRIER_STEP
	told |= c->said_announce;
#endif
	if (told && c->round <= r->last.round && !c->said_go) {
		m.kind = MSG_GO;
		m.stamp = c->round;
		c->said_go = true;
		say(b, r, c, &m, s);
		return true;
	}
	if (r->announced || c->state == CORE_BARRIER_TOLD)
		return false;
	if (c->held && c->limit != r->limit) {
		m = (struct msg){ .kind = MSG_ANSWER, .number = c->number, .error = -CORE_EINVAL };
		c->held = 0;
		say(b, r, c, &m, s);
		return true;
	}
	bool wrong = c->enrolled ? !confirmed(r, c) : c->state == CORE_BARRIER_IN;
	if (!wrong || (c->said_enrol && c->said == c->enrolled && c->said_round == r->round))
		return false;
	m.kind = MSG_ENROL;
	m.held = c->enrolled;
	m.stamp = c->enrolled ? r->round : 0;
	c->said_enrol = true;
	c->said = c->enrolled;
	c->said_round = r->round;
	say(b, r, c, &m, s);
	return true;
}

/* Nothing here, and nothing asked. */
static bool claim_idle(const struct barrier_claim *c)
{
	return c->state == CORE_BARRIER_OUT && !c->held && !c->enrolled && !c->ask && !c->reset_number;
}

static bool claims_sweep(struct barriers *b, struct barrier_round *r)
{
	uint32_t next;

	r->ready = true;                         /* a claim that goes is no news */
	for (uint32_t i = r->claims; i; i = next) {
		next = claim_of(b, i)->next;
		if (claim_idle(claim_of(b, i)))
			claim_drop(b, r, i);
	}
	r->ready = false;
	return r->claims;
}

static void round_look(struct barriers *b, struct barrier_round *r, struct step *s)
{
	unsigned said = 0;

	if (!r->known)
		reign_settle(b, r);
	while (!r->announced || round_drive(b, r)) {
		round_form(b, r);
		if (!r->announced)
			break;
	}
	for (struct barrier_claim *c = claim_of(b, r->claims); c; c = claim_of(b, c->next))
		while (say_one(b, r, c, s))
			if (++said == SAY_MAX) {
				ready_put(b, r);
				return;
			}
	if (claims_sweep(b, r))
		return;
	if (r->last.round)
		idle_enter(b, r);
	else
		round_drop(b, r);
}

bool barriers_master_work(struct barriers *b, struct step *s)
{
	shard_set_t ready = b->ready & b->master->open;

	if (!ready)
		return false;
	struct barrier_shard *sh = &b->shard[__builtin_ctzll(ready)];
	struct barrier_round *r = round_of(b, sh->ready_first);

	sh->ready_first = r->ready_next;
	if (!sh->ready_first) {
		sh->ready_last = 0;
		b->ready &= ~shard_bit((unsigned)__builtin_ctzll(ready));
	}
	r->ready = false;
	round_look(b, r, s);
	return true;
}
