/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers: parties that come with a vote, wait, lose patience, die; the daemon's rows for them; and their judge.
 *
 * The judge goes by what parties are told and by what ledgers say of who is in which round: of each round one
 * verdict; as many parties as there should be, or it did not pass; the AND of just their votes; one serial
 * party; and whoever has lost patience hears something, once faults have stopped.
 *
 * Of a paired barrier who has passed is inside for a while, then wants to leave. To the judge that is another arrival: as many leave
 * in one round as have entered in the one before, and they are the same; nobody is told that it has passed who was not done;
 * and who is done hears something, whoever else has died inside.
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

/* --- The judge --- */

struct judge_party *judge_party(struct sim *s, uint64_t id)
{
	return &s->arrivals[id - 1];
}

static struct judge_round *round_find(struct sim *s, unsigned barrier, uint64_t round)
{
	for (size_t i = s->rounds_n; i--;)
		if (s->rounds[i].round == round && s->rounds[i].barrier == barrier)
			return &s->rounds[i];
	if (s->rounds_n == s->rounds_max) {
		s->rounds_max = s->rounds_max ? 2 * s->rounds_max : 256;
		s->rounds = realloc(s->rounds, s->rounds_max * sizeof *s->rounds);
		if (!s->rounds)
			abort();
	}
	s->rounds[s->rounds_n] = (struct judge_round){ .barrier = barrier, .round = round };
	return &s->rounds[s->rounds_n++];
}

static void judge_verdict(struct sim *s, struct node *n, struct judge_party *p, const struct core_action *a)
{
	bool passed = !a->barrier.error;
	struct judge_round *r = round_find(s, p->barrier, a->barrier.round);

	if (passed && p->round != a->barrier.round)
		sim_no(s, "barrier %u: a party of node %u passes in a round that it is not in", p->barrier, n->id);
	if (r->known && (r->passed != passed || (passed && r->yes != a->barrier.yes)))
		sim_no(s, "barrier %u: parties of one round are told different things", p->barrier);
	r->known = true;
	r->passed = passed;
	r->yes = a->barrier.yes;
	r->serials += a->barrier.serial;
	p->told_of = a->barrier.round;
	if (r->serials > 1)
		sim_no(s, "barrier %u: a round has two serial parties", p->barrier);
}

static void judge_round_end(struct sim *s, const struct judge_round *r)
{
	unsigned passed = 0, unsure = 0;
	uint32_t parties = 0;
	bool yes = true, unsure_yes = true;

	if (!r->passed || !r->round)
		return;
	for (uint64_t i = 0; i < s->arrivals_n; i++) {
		const struct judge_party *p = &s->arrivals[i];
		bool told = p->result == PARTY_PASSED && p->told_of == r->round;

		if (p->barrier != r->barrier || (!told && p->round != r->round))
			continue;
		if (told) {
			passed++;
			yes &= p->yes;
			parties = p->parties;
		} else if (p->result == PARTY_PENDING || p->result == PARTY_LOST) {
			unsure++;
			unsure_yes &= p->yes;
		}
	}
	s->counts->rounds_judged++;
	if (passed > parties || passed + unsure < parties)
		sim_no(s, "barrier %u: of %u parties %u have passed, and %u may have", r->barrier, parties, passed, unsure);
	if (r->yes && !yes)
		sim_no(s, "barrier %u: all have said yes, it says, but one has not", r->barrier);
	if (!r->yes && yes && (unsure_yes || passed == parties))
		sim_no(s, "barrier %u: somebody has said no, it says, but none has", r->barrier);
	if (passed == parties && r->serials != 1)
		sim_no(s, "barrier %u: a round has no serial party", r->barrier);
}

/* How long an answer may take once nothing goes wrong. */
static uint64_t bound(const struct sim *s)
{
	return 4 * s->conf.ttl + 10 * s->conf.look + s->nodes * 100 * MSEC;
}

/* Is anybody inside, or has somebody just left? Then others wait, as many as they may be. */
static bool occupied(const struct sim *s, unsigned barrier)
{
	if (!s->barrier[barrier].paired)
		return false;
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; k < s->node[i].rows_n; k++)
			if (s->node[i].row[k].barrier == barrier && s->node[i].row[k].leaves)
				return true;
	return s->now < s->barrier[barrier].left_at + SEC + bound(s);
}

/* Once all goes well nobody loses patience while as many as there should be have waited for a second. */
static void together_look(struct sim *s, const struct party *of)
{
	uint32_t here = 0;

	if (s->faults || sim_safety_only || s->now < s->healed_at + bound(s) || of->inside || occupied(s, of->barrier))
		return;
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; s->node[i].host && k < PARTIES_MAX; k++) {
			const struct party *p = &s->node[i].party[k];

			here += p->id && !p->out_at && p->barrier == of->barrier && p->parties == of->parties && p->since + SEC < s->now;
		}
	s->counts->patience_judged++;
	if (here >= of->parties)
		sim_no(s, "barrier %u: %u parties of %u have waited together for a second", of->barrier, here, of->parties);
}

/* How long those inside take, at most, until they are done. */
#define INSIDE_MAX SEC

static void patience_look(struct sim *s, const struct node *n, uint64_t since)
{
	since = since > s->healed_at ? since : s->healed_at;
	if (!sim_safety_only && s->now > since + bound(s))
		sim_no(s, "a party of node %u has waited for an answer for %llu ms", n->id, (unsigned long long)((s->now - since) / MSEC));
}

static void party_look(struct sim *s, const struct node *n, const struct party *p)
{
	if (p->out_at)
		patience_look(s, n, p->out_at);
	if (p->done_at)
		patience_look(s, n, p->done_at + INSIDE_MAX);
}

void judge_barriers_end(struct sim *s)
{
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; k < PARTIES_MAX; k++)
			if (s->node[i].host && s->node[i].party[k].id)
				party_look(s, &s->node[i], &s->node[i].party[k]);
	for (size_t i = 0; i < s->rounds_n; i++)
		judge_round_end(s, &s->rounds[i]);
	free(s->rounds);
	free(s->arrivals);
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
	party_look(s, n, p);
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

static struct judge_party *arrival_make(struct sim *s)
{
	if (s->arrivals_n == s->arrivals_max) {
		s->arrivals_max = s->arrivals_max ? 2 * s->arrivals_max : 256;
		s->arrivals = realloc(s->arrivals, s->arrivals_max * sizeof *s->arrivals);
		if (!s->arrivals)
			abort();
	}
	return &s->arrivals[s->arrivals_n++];
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
	struct judge_party of = *judge_party(s, row->id);

	row->out_told = row->done_told = false;
	if (row->leaves)
		return;
	if (!s->barrier[row->barrier].paired)
		sim_no(s, "barrier %u: a party is inside where nobody enters", row->barrier);
	judge_party(s, row->id)->result = PARTY_PASSED;
	*arrival_make(s) = (struct judge_party){ .barrier = of.barrier, .parties = of.parties, .yes = true, .entered = round };
	row->leaves = s->arrivals_n;
	s->counts->entered++;
	if (p) {
		p->inside = true;
		party_after(s, n, (unsigned)(p - n->party), draw(s, INSIDE_MAX), done);
	}
}

/* Who leaves has entered in the round before, and was done; and it has left a barrier that others may enter now. */
static void judge_leave(struct sim *s, struct node *n, const struct barrier_row *row, const struct core_action *a)
{
	const struct party *p = party_of(n, row->id);

	s->barrier[row->barrier].left_at = s->now;
	s->counts->broken_inside += a->barrier.error == -EPIPE;
	if (a->barrier.round && a->barrier.round != judge_party(s, row->leaves)->entered + 1)
		sim_no(s, "barrier %u: a party that is inside is told of another round", row->barrier);
	if (!a->barrier.error && (!row->done_told || (p && !p->done_at)))
		sim_no(s, "barrier %u: a party of node %u has left, which was not done inside", row->barrier, n->id);
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
		judge_leave(s, n, row, a);
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
	row->done_told = true;
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
		together_look(s, p);
		p->out_at = s->now;
		parties_pump(s, n);
	}
	sim_event_free(s, e);
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
		node_give(s, n, &ev);
		s->counts->barriers_closed += ev.kind == CORE_EV_CLOSE && n->core && !n->result;
		if (n->core && !n->result && ev.kind == CORE_EV_CLOSE)
			n->barrier[barrier] = (struct core_barrier){ 0 };
	}
}

static void come(struct sim *s, struct node *n, struct party *p)
{
	unsigned i = (unsigned)(p - n->party);
	struct judge_party *judged = arrival_make(s);

	p->id = s->arrivals_n;
	p->since = s->now;
	p->barrier = (unsigned)draw(s, s->barriers);
	p->parties = s->barrier[p->barrier].parties + (chance(s, 1) && s->faults);
	p->yes = chance(s, 90);
	p->generation++;
	*judged = (struct judge_party){ .barrier = p->barrier, .parties = p->parties, .yes = p->yes };
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
