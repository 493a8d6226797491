/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The judge of barriers. It goes by what parties are told, by what their daemons have been told of them, and by what ledgers say of
 * who is in which round:
 *
 *   of each round there is one verdict, whoever is told it, in which there are as many parties as there should be, or it did not
 *   pass; the AND of just their votes; and one serial party;
 *   a round breaks for a reason: somebody who is in it wanted out, or is dead; somebody asked for a reset; or a session has ended;
 *   whoever has lost patience hears something, once faults have stopped.
 *
 * Of a paired barrier who has passed is inside for a while, then wants to leave. To the judge that is another arrival, of the round
 * after the one by which it entered:
 *
 *   they leave together who have entered together: none is told that it has passed before all of them are done, and so none is if one
 *   has died inside; and none that it broke, unless one of just those has gone;
 *   nobody enters while others are inside: where a session lives, what became of those whom it has inside is in its ledger by then;
 *   who is done hears something, whoever else has died inside.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim.h"

struct judge_party *judge_party(struct sim *s, uint64_t id)
{
	return &s->arrivals[id - 1];
}

uint64_t judge_arrival(struct sim *s, const struct judge_party *p)
{
	if (s->arrivals_n == s->arrivals_max) {
		s->arrivals_max = s->arrivals_max ? 2 * s->arrivals_max : 256;
		s->arrivals = realloc(s->arrivals, s->arrivals_max * sizeof *s->arrivals);
		if (!s->arrivals)
			abort();
	}
	s->arrivals[s->arrivals_n] = *p;
	s->arrivals[s->arrivals_n].came = s->now;
	return ++s->arrivals_n;
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

/* How long an answer may take once nothing goes wrong. */
static uint64_t bound(const struct sim *s)
{
	return 4 * s->conf.ttl + 10 * s->conf.look + s->nodes * 100 * MSEC;
}

/* --- Why a round may break --- */

/* Its session has ended since then, or is about to. */
static bool ended_since(const struct sim *s, const struct node *n, uint64_t when)
{
	return n->leaves || (n->ended_at && n->ended_at >= when) || (n->deadline && node_clock(s, n) >= n->deadline);
}

/*
 * A session has ended that this party may have been beside. Inside it is beside those who came in with it. Else it may be anybody's: others
 * may have been in the round, or had places in it, that no ledger knows of any more, and masters hear of it late.
 */
static bool session_ended(const struct sim *s, const struct judge_party *of)
{
	uint64_t since = of->came > bound(s) ? of->came - bound(s) : 0;

	for (uint64_t i = 0; of->entered && i < s->arrivals_n; i++) {
		const struct judge_party *p = &s->arrivals[i];

		if (p->barrier == of->barrier && (p->entered == of->entered || p->round == of->entered || p->told_of == of->entered) &&
		    ended_since(s, &s->node[p->node], p->came))
			return true;
	}
	for (unsigned i = 0; !of->entered && i < s->nodes; i++)
		if (ended_since(s, &s->node[i], since))
			return true;
	return false;
}

static bool was_reset(const struct sim *s, unsigned barrier, uint64_t came)
{
	for (unsigned i = 0; i < s->nodes; i++)
		if (s->node[i].resets & 1u << barrier)
			return true;
	return s->barrier[barrier].reset_at >= came;
}

static bool somebody_left_it(const struct sim *s, unsigned barrier, uint64_t round)
{
	for (uint64_t i = 0; i < s->arrivals_n; i++) {
		const struct judge_party *p = &s->arrivals[i];

		if (p->barrier == barrier && p->out && (p->round == round || p->told_of == round))
			return true;
	}
	return false;
}

static void judge_broken(struct sim *s, const struct node *n, const struct judge_party *p, uint64_t round)
{
	if (session_ended(s, p))
		return;
	s->counts->breaks_judged++;
	if (!was_reset(s, p->barrier, p->came) && !somebody_left_it(s, p->barrier, round))
		sim_no(s, "barrier %u: a party of node %u hears that its round broke, which all of its parties wait for", p->barrier, n->id);
}

/* --- What parties are told --- */

void judge_verdict(struct sim *s, const struct node *n, struct judge_party *p, const struct core_action *a)
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
	if (a->barrier.error == -EPIPE)
		judge_broken(s, n, p, a->barrier.round);
}

/* Does that ledger say that its parties are inside, or about to be, and is its session one that lives? 0, or the round by which they came. */
static uint64_t inside_by(const struct sim *s, const struct node *n, unsigned barrier)
{
	const struct core_barrier *rec = &n->barrier[barrier];

	if (rec->session != n->session || !n->deadline || node_clock(s, n) >= n->deadline)
		return 0;
	if (rec->state == CORE_BARRIER_IN && rec->now.round & 1)
		return rec->now.round - 1;
	return rec->state == CORE_BARRIER_TOLD && !(rec->now.round & 1) && rec->now.passed ? rec->now.round : 0;
}

/* Nobody enters while others are inside. Who asks with a new session hears that it had entered, though it has been given up since. */
static void judge_alone(struct sim *s, const struct node *n, unsigned barrier, uint64_t round)
{
	if (n->barrier[barrier].ask_round == round)
		return;
	for (unsigned i = 0; i < s->nodes; i++) {
		uint64_t by = inside_by(s, &s->node[i], barrier);

		if (by && by != round)
			sim_no(s, "barrier %u: a party of node %u enters by round %llx, and those of node %u are inside by round %llx", barrier, n->id,
			       (unsigned long long)round, i, (unsigned long long)by);
	}
}

uint64_t judge_entered(struct sim *s, const struct node *n, uint64_t id, uint64_t round)
{
	struct judge_party *p = judge_party(s, id);

	if (!s->barrier[p->barrier].paired)
		sim_no(s, "barrier %u: a party is inside where nobody enters", p->barrier);
	judge_alone(s, n, p->barrier, round);
	p->result = PARTY_PASSED;
	s->counts->entered++;
	return judge_arrival(s, &(struct judge_party){
		.barrier = p->barrier, .node = n->id, .parties = p->parties, .yes = true, .entered = round });
}

/* All who entered with it are done, and they are as many as there should be. */
static void judge_together(struct sim *s, const struct node *n, const struct judge_party *of)
{
	uint32_t done = 0;

	for (uint64_t i = 0; i < s->arrivals_n; i++) {
		const struct judge_party *p = &s->arrivals[i];

		done += p->barrier == of->barrier && p->entered == of->entered && p->done;
	}
	s->counts->leaves_judged++;
	if (done != of->parties)
		sim_no(s, "barrier %u: a party of node %u has left as if all had, and of %u inside %u are done", of->barrier, n->id, of->parties, done);
}

void judge_leave(struct sim *s, const struct node *n, const struct judge_party *p, const struct core_action *a)
{
	s->barrier[p->barrier].left_at = s->now;
	s->counts->broken_inside += a->barrier.error == -EPIPE;
	if (a->barrier.round && a->barrier.round != p->entered + 1)
		sim_no(s, "barrier %u: a party that is inside is told of another round", p->barrier);
	if (!a->barrier.error)
		judge_together(s, n, p);
}

/* --- At the end --- */

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

void judge_impatient(struct sim *s, const struct party *of)
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

static void patience_look(struct sim *s, const struct node *n, uint64_t since)
{
	since = since > s->healed_at ? since : s->healed_at;
	if (!sim_safety_only && s->now > since + bound(s))
		sim_no(s, "a party of node %u has waited for an answer for %llu ms", n->id, (unsigned long long)((s->now - since) / MSEC));
}

void judge_answered(struct sim *s, const struct node *n, const struct party *p)
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
				judge_answered(s, &s->node[i], &s->node[i].party[k]);
	for (size_t i = 0; i < s->rounds_n; i++)
		judge_round_end(s, &s->rounds[i]);
	free(s->rounds);
	free(s->arrivals);
}
