/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers: parties that come with a vote, wait, lose patience, die; and the daemon's rows for them. Of a paired barrier who has passed is
 * inside for a while, then wants to leave. What they are told is rounds.c's to judge.
 *
 * What is drawn here is drawn from a generator of its own, so that seeds without barriers are what they were.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static void think(struct sim *s, struct event *e);

static uint64_t draw(struct sim *s, uint64_t n)
{
	uint64_t saved = s->rng, got;

	s->rng = s->barrier_rng;
	got = sim_random(s, n);
	s->barrier_rng = s->rng;
	s->rng = saved;
	return got;
}

static bool chance(struct sim *s, unsigned percent)
{
	return draw(s, 100) < percent;
}

static void party_after(struct sim *s, struct node *n, unsigned i, uint64_t span, event_fn fn)
{
	struct event *e = sim_after(s, span, fn, n, i, n->party[i].generation);

	e->generation = 0;               /* parties outlive daemons */
}

static bool of_this_life(const struct event *e)
{
	return e->node->party[e->a].generation == e->b;
}

/* --- The daemon's rows --- */

static struct barrier_row *row_find(struct node *n, uint64_t id)
{
	for (unsigned i = 0; i < n->rows_n; i++)
		if (n->row[i].id == id)
			return &n->row[i];
	return NULL;
}

static struct party *party_of(struct node *n, uint64_t id)
{
	for (unsigned i = 0; i < PARTIES_MAX; i++)
		if (id && n->party[i].id == id)
			return &n->party[i];
	return NULL;
}

static void row_strike(struct node *n, struct barrier_row *row)
{
	unsigned i = (unsigned)(row - n->row);

	for (n->rows_n--; i < n->rows_n; i++)
		n->row[i] = n->row[i + 1];
}

/* The party goes on with something else. */
static void party_free(struct sim *s, struct node *n, struct party *p, uint64_t span)
{
	p->id = p->out_at = p->done_at = 0;
	p->inside = false;
	p->generation++;
	party_after(s, n, (unsigned)(p - n->party), span, think);
}

static void party_told(struct sim *s, struct node *n, uint64_t id)
{
	struct party *p = party_of(n, id);

	if (!p)
		return;
	judge_answered(s, n, p);
	party_free(s, n, p, MSEC + draw(s, 300 * MSEC));
}

static struct core_event event_of(const struct sim *s, enum core_event_kind kind, unsigned barrier)
{
	struct core_event ev = { .kind = kind };

	ev.barrier.ref = barrier;
	ev.barrier.key = s->barrier[barrier].key;
	ev.barrier.key_len = (uint16_t)strlen(s->barrier[barrier].key);
	ev.barrier.parties = s->barrier[barrier].parties;
	ev.barrier.paired = s->barrier[barrier].paired;
	return ev;
}

/* Which arrival of its the judge hears of now. */
static struct judge_party *row_judged(struct sim *s, const struct barrier_row *row)
{
	return judge_party(s, row->leaves ? row->leaves : row->id);
}

/* Who is in a round, as this ledger says from now on. */
static void rounds_note(struct sim *s, struct node *n, unsigned barrier, const struct core_barrier *rec)
{
	for (unsigned i = 0; i < n->rows_n; i++) {
		struct barrier_row *row = &n->row[i];

		if (row->barrier != barrier || (rec->ask_round && row->order <= rec->ask_upto))
			continue;
		if (row->leaves && !(rec->now.round & 1) && rec->state != CORE_BARRIER_OUT)
			continue;        /* it has been told, and the rest of its node has not been yet */
		row_judged(s, row)->round = rec->state != CORE_BARRIER_OUT && row->order <= rec->upto ? rec->now.round : 0;
	}
}

static void done(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct party *p = &n->party[e->a];

	if (of_this_life(e) && p->inside && !p->done_at && !p->out_at) {
		p->done_at = s->now;
		parties_pump(s, n);
	}
	sim_event_free(s, e);
}

/* It is told that it has entered: the first time, or again by the next daemon. */
static void enters(struct sim *s, struct node *n, struct barrier_row *row, uint64_t round)
{
	struct party *p = party_of(n, row->id);

	row->out_told = row->done_told = false;
	if (row->leaves)
		return;
	row->leaves = judge_entered(s, n, row->id, round);
	if (p) {
		p->inside = true;
		party_after(s, n, (unsigned)(p - n->party), draw(s, INSIDE_MAX), done);
	}
}

static void act_verdict(struct sim *s, struct node *n, const struct core_action *a)
{
	struct barrier_row *row = row_find(n, a->barrier.party);

	if (!row) {
		sim_no(s, "node %u: a verdict for a party that is not here", n->id);
		return;
	}
	if (a->barrier.inside && row->leaves) {
		enters(s, n, row, a->barrier.round);
		return;
	}
	struct judge_party *p = row_judged(s, row);
	if (row->leaves)
		judge_leave(s, n, p, a);
	s->counts->serials += a->barrier.serial;
	switch (a->barrier.error) {
	case 0:
	case -EPIPE:
	case -ETIMEDOUT:
		s->counts->passes += !a->barrier.error;
		s->counts->vetoes += !a->barrier.error && !a->barrier.yes;
		s->counts->broken += a->barrier.error == -EPIPE;
		s->counts->timeouts += a->barrier.error == -ETIMEDOUT;
		if (a->barrier.round)
			judge_verdict(s, n, p, a);
		break;
	case -ESTALE:
		s->counts->stales++;
		break;
	case -EINVAL:
		s->counts->mismatches++;
		break;
	case -ESHUTDOWN:
		s->counts->sent_away++;
		break;
	default:
		sim_no(s, "node %u: a verdict of %d", n->id, a->barrier.error);
	}
	if (a->barrier.inside) {
		enters(s, n, row, a->barrier.round);
		return;
	}
	uint64_t id = row->id;
	p->result = !a->barrier.error ? PARTY_PASSED : a->barrier.error == -ESTALE ? PARTY_LOST : PARTY_BROKEN;
	row_strike(n, row);
	party_told(s, n, id);
}

/* Until then it may have broken a round. */
static void reset_over(struct sim *s, struct node *n, unsigned barrier, uint64_t when)
{
	if (!(n->resets & 1u << barrier))
		return;
	n->resets &= ~(1u << barrier);
	if (when > s->barrier[barrier].reset_at)
		s->barrier[barrier].reset_at = when;
}

void barrier_act(struct sim *s, struct node *n, const struct core_action *a)
{
	unsigned barrier = a->barrier.ref;

	switch (a->kind) {
	case CORE_ACT_LEDGER_ARRIVE:
		n->row[n->rows_n++] = (struct barrier_row){
			.id = a->barrier.party, .order = a->barrier.order, .barrier = barrier, .yes = a->barrier.yes };
		return;
	case CORE_ACT_LEDGER_BARRIER:
		n->barrier[barrier] = *a->barrier.record;
		s->counts->asks += a->barrier.record->ask_round != 0;
		rounds_note(s, n, barrier, a->barrier.record);
		return;
	case CORE_ACT_VERDICT:
		act_verdict(s, n, a);
		return;
	case CORE_ACT_RESET_DONE:
		s->counts->resets++;
		reset_over(s, n, barrier, s->now);
		return;
	default:
		return;
	}
}

/* What a missing ledger knew is lost. */
static void rows_lose(struct sim *s, struct node *n)
{
	while (n->rows_n) {
		uint64_t id = n->row[0].id;

		row_judged(s, &n->row[0])->result = PARTY_LOST;
		row_strike(n, &n->row[0]);
		party_told(s, n, id);
	}
	memset(n->barrier, 0, sizeof n->barrier);
}

void barriers_adopt(struct sim *s, struct node *n, bool ledger)
{
	if (!ledger)
		rows_lose(s, n);
	for (unsigned i = 0; i < s->barriers; i++) {
		reset_over(s, n, i, s->now + s->conf.ttl);       /* the daemon that wanted it is no more, and a master may have heard of it */
		if (!n->barrier[i].parties)
			continue;
		struct core_event ev = event_of(s, CORE_EV_ADOPT_BARRIER, i);
		struct core_barrier rec = n->barrier[i];

		ev.barrier.record = &rec;
		node_give(s, n, &ev);
		for (unsigned k = 0; n->core && k < n->rows_n; k++) {
			if (n->row[k].barrier != i)
				continue;
			ev = event_of(s, CORE_EV_ADOPT_PARTY, i);
			ev.barrier.party = n->row[k].id;
			ev.barrier.order = n->row[k].order;
			ev.barrier.yes = n->row[k].yes;
			n->row[k].out_told = n->row[k].done_told = false;
			s->counts->parties_adopted++;
			node_give(s, n, &ev);
		}
	}
}

/* --- Dealings with the daemon --- */

/* Does another one come to the same barrier next? */
static bool further(const struct sim *s, struct node *n, const struct party *p)
{
	for (const struct party *next = p + 1; next < n->party + PARTIES_MAX; next++)
		if (next->id && !row_find(n, next->id))
			return !next->out_at && next->barrier == p->barrier && n->rows_n + 1 < ROWS_MAX && !s->verdict[0];
	return false;
}

static bool arrive(struct sim *s, struct node *n, struct party *p)
{
	struct core_event ev = event_of(s, CORE_EV_ARRIVE, p->barrier);
	uint64_t id = p->id;

	if (n->rows_n == ROWS_MAX || n->leaves)
		return false;
	ev.barrier.party = id;
	ev.barrier.parties = p->parties;
	ev.barrier.yes = p->yes;
	ev.barrier.further = further(s, n, p);
	node_give(s, n, &ev);
	if (n->core && n->result == -EINVAL) {
		s->counts->mismatches++;
		judge_party(s, id)->result = PARTY_BROKEN;
		party_told(s, n, id);
	}
	return true;
}

/* Whoever wants out, or is dead. */
static bool withdraw(struct sim *s, struct node *n, struct barrier_row *row)
{
	const struct party *p = party_of(n, row->id);
	struct core_event ev = event_of(s, CORE_EV_WITHDRAW, row->barrier);

	if (row->out_told || (p && !p->out_at))
		return false;
	row->out_told = true;
	row_judged(s, row)->out = s->now;
	ev.barrier.party = row->id;
	s->counts->withdrawals++;
	node_give(s, n, &ev);
	return true;
}

/* Whoever is done inside. */
static bool depart(struct sim *s, struct node *n, struct barrier_row *row)
{
	const struct party *p = party_of(n, row->id);
	struct core_event ev = event_of(s, CORE_EV_DEPART, row->barrier);

	if (row->done_told || !row->leaves || !p || !p->done_at)
		return false;
	row->done_told = row_judged(s, row)->done = true;
	ev.barrier.party = row->id;
	s->counts->departs++;
	node_give(s, n, &ev);
	return true;
}

static bool pump_one(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < PARTIES_MAX; i++) {
		struct party *p = &n->party[i];

		if (!p->id || row_find(n, p->id))
			continue;
		if (p->out_at) {
			judge_party(s, p->id)->result = PARTY_BROKEN; /* it never came */
			party_told(s, n, p->id);
			return true;
		}
		if (arrive(s, n, p))
			return true;
	}
	for (unsigned i = 0; i < n->rows_n; i++)
		if (withdraw(s, n, &n->row[i]) || depart(s, n, &n->row[i]))
			return true;
	return false;
}

void parties_pump(struct sim *s, struct node *n)
{
	unsigned depth = n->depth++;

	while (!s->verdict[0] && node_ready(s, n) && pump_one(s, n))
		;
	n->depth = depth;
}

/* --- Parties --- */

static void give_up(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct party *p = &n->party[e->a];

	if (of_this_life(e) && p->id && !p->out_at) {
		judge_impatient(s, p);
		p->out_at = s->now;
		parties_pump(s, n);
	}
	sim_event_free(s, e);
}

/* A connection breaks, and with it what it would have been told: some that have just come are gone before there is another. */
void parties_startle(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < PARTIES_MAX; i++) {
		const struct party *p = &n->party[i];

		if (sim_flaps(s) && p->id && !p->inside && s->now < p->since + 100 * MSEC && chance(s, 30))
			party_after(s, n, i, draw(s, 40 * MSEC), give_up);
	}
}

static void dies(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct party *p = &n->party[e->a];

	if (of_this_life(e) && p->id) {
		s->counts->party_deaths++;
		if (!row_find(n, p->id))
			judge_party(s, p->id)->result = PARTY_BROKEN;
		party_free(s, n, p, draw(s, SEC));
		parties_pump(s, n);
	}
	sim_event_free(s, e);
}

static void reset(struct sim *s, struct node *n, unsigned barrier)
{
	struct core_event ev = event_of(s, chance(s, 70) ? CORE_EV_RESET : CORE_EV_CLOSE, barrier);

	if (node_ready(s, n)) {
		n->resets |= ev.kind == CORE_EV_RESET ? 1u << barrier : 0;
		node_give(s, n, &ev);
		s->counts->barriers_closed += ev.kind == CORE_EV_CLOSE && n->core && !n->result;
		if (n->core && !n->result && ev.kind == CORE_EV_CLOSE)
			n->barrier[barrier] = (struct core_barrier){ 0 };
	}
}

static void come(struct sim *s, struct node *n, struct party *p)
{
	unsigned i = (unsigned)(p - n->party);

	p->since = s->now;
	p->barrier = (unsigned)draw(s, s->barriers);
	p->parties = s->barrier[p->barrier].parties + (chance(s, 1) && s->faults);
	p->yes = chance(s, 90);
	p->generation++;
	p->id = judge_arrival(s, &(struct judge_party){ .barrier = p->barrier, .node = n->id, .parties = p->parties, .yes = p->yes });
	s->counts->arrivals++;
	party_after(s, n, i, chance(s, 10) ? draw(s, 300 * MSEC) : 300 * MSEC + draw(s, 4 * SEC), give_up);
	if (chance(s, 4) && s->faults)
		party_after(s, n, i, draw(s, SEC), dies);
}

static void think(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct party *p = &n->party[e->a];

	if (!of_this_life(e) || p->id) {
		sim_event_free(s, e);
		return;
	}
	if (!n->host || s->now < n->host_paused_until) {
		party_after(s, n, (unsigned)e->a, 500 * MSEC, think);
		sim_event_free(s, e);
		return;
	}
	if (chance(s, 3))
		reset(s, n, (unsigned)draw(s, s->barriers));
	come(s, n, p);
	parties_pump(s, n);
	sim_event_free(s, e);
}

void barriers_draw(struct sim *s)
{
	s->barrier_rng = s->seed * 0xd1342543de82ef95 + 1;
	if (!((s->seed ^ s->seed >> 3) & 1))
		return;
	s->barriers = 1 + (unsigned)draw(s, BARRIERS_MAX);
	for (unsigned i = 0; i < s->barriers; i++) {
		snprintf(s->barrier[i].key, sizeof s->barrier[i].key, "sim/b%u", (unsigned)draw(s, 1000) * 10 + i);
		s->barrier[i].parties = 1 + (uint32_t)draw(s, 6);
		s->barrier[i].paired = (s->seed >> 1 ^ i) & 1;
	}
}

void parties_start(struct sim *s, struct node *n)
{
	for (unsigned i = 0; s->barriers && n->id < 8 && i < PARTIES_MAX; i++)
		party_after(s, n, i, draw(s, SEC), think);
}

/* The machine dies, with the ledger. */
void parties_kill(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < n->rows_n; i++)
		row_judged(s, &n->row[i])->result = PARTY_LOST;
	n->rows_n = 0;
	memset(n->barrier, 0, sizeof n->barrier);
	for (unsigned i = 0; s->barriers && n->id < 8 && i < PARTIES_MAX; i++)
		party_free(s, n, &n->party[i], draw(s, 2 * SEC));
}
