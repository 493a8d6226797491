/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The master's side of barriers (barrier.h): puts arrivals into rounds, decides, and drives verdicts home.
 *
 * round_look() derives from what has been noted of all members (barrier_master.c) what is to be done, and says it. So it does
 * not matter in which order things are heard, nor how often.
 */
#include "barrier_int.h"

#include "master.h"
#include "range.h"

/* At most so many messages come from one look. */
#define SAY_MAX 4

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
	r->next = 0;
}

/*
 * All have synced. If somebody is in a round of an earlier reign and nobody has its verdict, there is none: it goes on
 * as a new one, unless one of its parties wants out of it, or may have gone without our hearing. One to leave by goes on as it is.
 */
static void reign_settle(struct barriers *b, struct barrier_round *r)
{
	bool breaks = false;
	uint64_t round = r->dead;

	r->known = true;
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		if (c->state == CORE_BARRIER_IN)
			round = max_u64(round, c->round);
	if (r->announced || round <= r->last.round)
		return;
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		bool in = c->state == CORE_BARRIER_IN && c->round == round;

		breaks |= in && (c->wants_out || !listed(b, c->by));
		breaks |= c->ask == round;
	}
#ifndef CORE_BREAK_BARRIER_INSIDE
	if (r->paired && round_leaves(round)) {
		r->round = round;
		return;
	}
#endif
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

	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
#ifdef CORE_BREAK_BARRIER_STEP
		all &= c->state != CORE_BARRIER_IN || c->round != r->round || c->said_go;
	r->last = r->verdict;                    /* they are told to go as soon as they are told */
	if (!all)
#else
		all &= c->state != CORE_BARRIER_IN || c->round != r->round;
	if (!all && r->round > r->last.round)
#endif
		return false;
	if (r->round > r->last.round) {
		if (r->last.round == r->round - 1)
			r->entered = r->last;
		r->last = r->verdict;
		r->past = false;
	}
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		c->enrolled = 0;
		if (!r->next)
			c->places = 0;
	}
	r->announced = r->breaks = false;
	r->round = r->next;
	r->was = r->next = 0;
	return true;
}

static uint64_t round_number(struct barriers *b, const struct barrier_round *r)
{
	unsigned shard = names_at(&b->names, r->name)->shard;
	uint64_t *count = &b->shard[shard].count;

	if (!r->paired)
		return token_make(b->master->shard[shard].epoch, ++*count);
	*count |= 1;                             /* an even one; the next is to leave by it */
	*count += 2;
	return token_make(b->master->shard[shard].epoch, *count - 1);
}

/* All pass. If nobody else waits, the next round is likely to have the same parties. */
static void pass(struct barriers *b, struct barrier_round *r, const struct core_verdict *v)
{
	bool alike = true;

	decide(r, v);
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		alike &= c->held == c->enrolled;
	if (!alike || r->paired)
		return;
	r->next = round_number(b, r);
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		c->places = c->enrolled;
}

/* May it be in the round with more than it has said? */
static bool places_left(const struct barrier_round *r, const struct barrier_claim *c)
{
	bool in = c->state == CORE_BARRIER_IN && c->round == r->round;

#ifdef CORE_BREAK_BARRIER_PLACES
	return false;
#endif
	return c->places > (in ? c->in : 0);
}

static bool any_places_left(const struct barriers *b, const struct barrier_round *r)
{
	for (const struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		if (places_left(r, c))
			return true;
	return false;
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
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		if (c->enrolled || c->state != CORE_BARRIER_OUT || (c->held && !r->limit))
			r->limit = c->limit;
}

/* In order of arrival, but whoever is in stays in. Returns how many are. */
static uint64_t enrol(struct barriers *b, struct barrier_round *r)
{
	uint64_t sum = 0;

	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		if (c->state == CORE_BARRIER_TOLD || c->limit != r->limit)
			c->enrolled = 0;
		else if (c->enrolled > c->held)
			c->enrolled = c->held;
		sum += c->enrolled;
	}
	for (struct barrier_claim *c = arrival_of(b, r->claims); c && sum < r->limit; c = arrival_of(b, c->next)) {
		if (c->state == CORE_BARRIER_TOLD || c->limit != r->limit)
			continue;
		uint32_t more = (uint32_t)min_u64(r->limit - sum, c->held - c->enrolled);

		c->enrolled += more;
		sum += more;
	}
	return sum;
}

/* Some are in the round that do not fit, since they had places: it goes on as another one, of those who do. */
static bool too_many(const struct barriers *b, const struct barrier_round *r)
{
	for (const struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		if (c->state == CORE_BARRIER_IN && c->round == r->round && c->in > c->enrolled)
			return true;
	return false;
}

/* Is the round one to leave by, and this member about to be in it? */
static bool enters(const struct barrier_round *r, const struct barrier_claim *c)
{
	return r->paired && round_leaves(r->round) && c->state == CORE_BARRIER_TOLD && c->round == r->round - 1;
}

/* A reset is of all who had come before it, so it waits for those whose confirmation is under way. */
static bool settling(const struct barriers *b, const struct barrier_round *r)
{
	bool any = false;

	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		any |= (c->enrolled && !confirmed(r, c)) || places_left(r, c) || enters(r, c);
	return any && !r->announced;
}

static bool breaks(const struct barriers *b, const struct barrier_round *r)
{
	bool any = r->breaks, reset = false, in = false;

	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		in |= c->enrolled;
		any |= c->state == CORE_BARRIER_IN && c->round == r->round && c->wants_out;
		any |= c->ask && c->ask == r->was;
		reset |= c->reset_number;
	}
	return any || (reset && in && !settling(b, r));
}

/* Something else comes of the round than that those who have places take them. */
static bool places_end(const struct barriers *b, const struct barrier_round *r)
{
	for (const struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		bool in = c->state == CORE_BARRIER_IN && c->round == r->round;

		if (c->reset_number || (in ? c->in > c->places || c->held > c->in : c->state == CORE_BARRIER_IN) ||
		    (c->state == CORE_BARRIER_OUT && c->held))
			return true;
	}
	return r->breaks || breaks(b, r);
}

/* If nobody else is in the round whose places were lost there is no such round; else it breaks. */
static void lost_settle(struct barriers *b, struct barrier_round *r)
{
	if (!r->lost)
		return;
	r->lost = false;
	for (const struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		r->breaks |= c->state == CORE_BARRIER_IN && c->round == r->round;
	if (!r->breaks)
		r->round = 0;
}

/*
 * Is the round to leave by after the last one? Whoever lives and has entered by that says so. If nobody does, and by that was entered in an
 * earlier reign, all its parties have gone since, by a verdict that may have died with those who heard it: whoever asks for it is told that
 * nobody knows.
 */
static bool leaving_follows(const struct barriers *b, const struct barrier_round *r)
{
	bool any = !r->past;

#ifdef CORE_BREAK_BARRIER_PAST
	any = true;
#endif
	if (!verdict_enters(r->paired, &r->last))
		return false;
	for (const struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
		any |= (c->state == CORE_BARRIER_IN && c->round == r->last.round + 1) ||
		       (c->state == CORE_BARRIER_TOLD && c->round == r->last.round);
	return any;
}

/*
 * The verdict of a round to leave by, if there is one by now. All who may be in it are, or are about to be; if they are too few, some
 * have gone with their session, and it breaks.
 */
static void round_leave(struct barriers *b, struct barrier_round *r)
{
	struct core_verdict v = { .passed = true, .yes = true };
	bool over = r->breaks, ready = true, entering = false;
	uint64_t sum = 0;

	r->limit = 0;
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		over |= c->reset_number || c->ask == r->round;
		if (enters(r, c)) {
			entering = true;
			r->limit = c->limit;
		}
		if (c->state != CORE_BARRIER_IN || c->round != r->round)
			continue;
#ifndef CORE_BREAK_BARRIER_DEATH
		over |= c->wants_out;
#endif
#ifndef CORE_BREAK_BARRIER_READY
		ready &= c->ready;
#endif
#ifdef CORE_BREAK_BARRIER_COMER
		over |= c->held > c->in;
#endif
		sum += c->in;
		r->limit = c->limit;
		v.serial = b->peers->v[c->peer].id.session;
	}
#ifdef CORE_BREAK_BARRIER_ENTERS
	entering = false;
#endif
#ifndef CORE_BREAK_BARRIER_FEW
	over |= !sum || sum != r->limit;
#endif
	if (entering)
		return;
	if (over)
		decide(r, &(struct core_verdict){ 0 });
	else if (ready)
		decide(r, &v);
}

/* The parties of the forming round, and its verdict if there is one by now. */
static void round_form(struct barriers *b, struct barrier_round *r)
{
	struct core_verdict v = { .passed = true, .yes = true };
	bool all = !any_places_left(b, r);

	if (leaving_follows(b, r))
		r->round = r->last.round + 1;
	if (r->paired && round_leaves(r->round)) {
		round_leave(b, r);
		return;
	}
	lost_settle(b, r);
	r->voids = !all && places_end(b, r);
	if (all && r->round && breaks(b, r)) {
		decide(r, &(struct core_verdict){ 0 });
		return;
	}
	r->breaks &= !all;
	limit_settle(b, r);
	uint64_t sum = enrol(b, r);
	if (sum && (!r->round || (all && too_many(b, r))))
		r->round = round_number(b, r);
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next)) {
		all &= c->enrolled || c->state != CORE_BARRIER_IN || c->round != r->round;
		if (!c->enrolled)
			continue;
		all &= confirmed(r, c);
		v.yes &= c->enrolled <= c->yes;
		v.serial = b->peers->v[c->peer].id.session;
	}
	if (sum && sum == r->limit && all)
		pass(b, r, &v);
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
	m->flags |= verdict_flags(v);
	say(b, r, c, m, s);
}

/* What became of the round that it asks for. NULL: nobody knows. */
static const struct core_verdict *verdict_known(const struct barrier_round *r, const struct barrier_claim *c)
{
	if (c->ask == r->last.round)
		return &r->last;
	if (r->paired && c->ask == r->entered.round)
		return &r->entered;
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
		m.number = r->next;
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
	if (r->announced || (c->state == CORE_BARRIER_TOLD && !c->said_go))
		return false;
	if (r->voids && places_left(r, c) && !c->said_void) {
		m = (struct msg){ .kind = MSG_ENROL, .flags = MSG_FLAG_PLACES };
		c->said_void = true;
		say(b, r, c, &m, s);
		return true;
	}
	if (c->state == CORE_BARRIER_TOLD)
		return false;
	if (c->held && c->limit != r->limit) {
		m = (struct msg){ .kind = MSG_ANSWER, .number = c->number, .error = -CORE_EINVAL };
		c->held = 0;
		say(b, r, c, &m, s);
		return true;
	}
	if (r->paired && round_leaves(r->round))
		return false;
	bool wrong = c->enrolled ? !confirmed(r, c) : c->state == CORE_BARRIER_IN;

	if (c->state == CORE_BARRIER_IN && c->round == r->round && c->in > c->enrolled)
		return false;            /* too many, as soon as nobody has places left */
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
	return c->state == CORE_BARRIER_OUT && !c->held && !c->enrolled && !c->places && !c->ask && !c->reset_number;
}

static bool claims_sweep(struct barriers *b, struct barrier_round *r)
{
	uint32_t next;

	r->ready = true;                         /* a claim that goes is no news */
	for (uint32_t i = r->claims; i; i = next) {
		next = arrival_of(b, i)->next;
		if (claim_idle(arrival_of(b, i)))
			arrival_drop(b, r, i);
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
	for (struct barrier_claim *c = arrival_of(b, r->claims); c; c = arrival_of(b, c->next))
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
