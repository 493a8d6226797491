/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Judges of whole runs: how long the locks of a dead node take to be had again, whether a node that loses them
 * was warned, whether one takes a grant whose session has been ended, and whether in the end everything can
 * be had that there is.
 */
#include "core/session.h"
#include "sim.h"

/*
 * The bound of DESIGN section 7, for a waiter that was there: ttl + 2d + o + lock-delay + map write + sync. An
 * observer of rank n looks every n looks, and of those that have observed all the time some may be dead or have
 * been started anew, so one round is n looks in the worst case: the last beat is seen a round after it was
 * sent, and found too old a round after it is. Then the map is read, in a look.
 */
static uint64_t release_bound(const struct sim *s)
{
	unsigned ranks = s->nodes > 3 ? s->nodes - 3 : 1;

	return s->conf.ttl + 2 * session_margin(&s->conf) + 2 * ranks * s->conf.look + 2 * s->conf.look + s->delay * MSEC + 500 * MSEC;
}

/* It held these alone, and is no more. */
void judge_died(struct sim *s, const struct node *n)
{
	for (unsigned i = 0; i < s->names; i++)
		if (n->slot[i].held == CORE_WEIGHT_ALL && !s->name[i].died_at && holds(s, n))
			s->name[i].died_at = s->now;
}

/* The name is granted again: for how long has anybody been kept waiting by the death? */
void judge_released(struct sim *s, unsigned name)
{
	struct judge_name *j = &s->name[name];
	uint64_t first = UINT64_MAX, since;

	for (unsigned i = 0; i < s->nodes * CLIENTS_MAX; i++) {
		const struct client *c = &s->node[i / CLIENTS_MAX].client[i % CLIENTS_MAX];

		if (c->state == WAITING && c->name == name && c->since < first)
			first = c->since;
	}
	since = j->died_at;
	j->died_at = 0;
	if (!since || first == UINT64_MAX)
		return;
	since = first > since ? first : since;
	unsigned slot = (unsigned)((s->now - since) / RELEASE_STEP);
	s->counts->release[slot < RELEASE_SLOTS ? slot : RELEASE_SLOTS - 1]++;
	s->counts->releases_judged++;
	if (s->kind == RUN_CALM && s->now - since > release_bound(s) && !sim_safety_only)
		sim_no(s, "%s: it was free only %llu ms after its holder's node had died", j->key, (unsigned long long)((s->now - since) / MSEC));
}

/* Actions on loss begin while the node still holds: it has said before that renewals fail. */
void judge_warned(struct sim *s, const struct node *n)
{
	if (holds(s, n) && !n->jeopardy && !n->leaves)
		sim_no(s, "node %u begins its actions on loss and has not said that it is in jeopardy", n->id);
}

/* --- In the end --- */

/*
 * When all has been quiet for a while, each name is asked for whole once, a lock exclusively and a
 * semaphore with all its permits: so what is held and what is free add up to what there is.
 */
bool exam_ask(struct sim *s, const struct node *n, struct client *c)
{
	if (s->exams == s->names)
		return false;
	c->name = s->exams++;
	c->mode = s->name[c->name].limit == CORE_WEIGHT_ALL ? EXCLUSIVE : PERMITS;
	c->permits = c->mode == PERMITS ? slot_limit(s, n, c->name) : 0;
	return true;
}

void exam_passed(struct sim *s, const struct client *c)
{
	if (!s->exam || c->since < s->exam)
		return;                          /* it has been waiting for less since before */
	s->name[c->name].examined = true;
	s->counts->exams++;
}

void exam_end(struct sim *s, uint64_t bound)
{
	for (unsigned i = 0; i < s->names && s->now - s->exam > bound && !sim_safety_only; i++)
		if (!s->name[i].examined)
			sim_no(s, "%s: in the end, when all is quiet, it cannot be had whole", s->name[i].key);
}
