/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What must never be seen from outside, and what must come in time. */
#include <string.h>

#include "core/beat.h"
#include "sim.h"

/* Those who would be told "held" at this instant: by the node's own clock and the published deadline. */
bool holds(const struct sim *s, const struct node *n)
{
	return n->host && node_clock(s, n) < n->deadline;
}

/* Until then its lock-delay runs, at least. A dead host's session has ended no earlier than its deadline. */
static uint64_t delay_end(const struct sim *s, const struct node *n, unsigned name)
{
	uint64_t at = s->now, clock = node_clock(s, n);

	if (n->deadline && clock > n->deadline)
		at -= (clock - n->deadline) / 100 * 99;
	return at + n->slot[name].delay * MSEC / 100 * 98;
}

/* Where there is no place for it nobody is accused. */
static void mourn_add(struct sim *s, struct node *n, unsigned name)
{
	struct judge_name *j = &s->name[name];
	unsigned i = 0;

	n->slot[name].accounted = true;
	while (i < MOURNED_MAX && j->mourned[i].until > s->now)
		i++;
	if (i == MOURNED_MAX || !n->slot[name].delay)
		return;
	j->mourned[i].until = delay_end(s, n, name);
	j->mourned[i].weight = n->slot[name].held;
	s->counts->mourned++;
}

/* What has been lost and counts still; of nodes that have lapsed and do not know it yet, too. */
static uint64_t mourned_now(struct sim *s, unsigned name)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < s->nodes; i++) {
		struct node *m = &s->node[i];

		if (m->slot[name].held && m->slot[name].held != CORE_WEIGHT_ALL && !holds(s, m) && !m->slot[name].accounted && m->deadline)
			mourn_add(s, m, name);
	}
	for (unsigned i = 0; i < MOURNED_MAX; i++)
		sum += s->name[name].mourned[i].until > s->now ? s->name[name].mourned[i].weight : 0;
	return sum;
}

static void weights_look(struct sim *s, struct node *n, unsigned name, uint32_t weight)
{
	uint64_t sum = weight, mourned = weight > n->slot[name].held ? mourned_now(s, name) : 0;

	for (unsigned i = 0; i < s->nodes; i++) {
		const struct node *m = &s->node[i];

		if (m != n && m->slot[name].held && holds(s, m))
			sum += m->slot[name].held;
	}
	/* Who has asked knowing the latest limit is granted nothing that does not fit; else it may have been granted before. */
	uint64_t limit = s->name[name].limit_most, stamp = s->name[name].limit_stamp;
	if (stamp && n->slot[name].limit_stamp == stamp && n->slot[name].asked_stamp == stamp && weight > n->slot[name].held)
		limit = s->name[name].limit_now;
	if (sum > limit)
		sim_no(s, "%s: node %u is granted %u, which with what others hold is more than the limit", s->name[name].key,
		       n->id, weight);
	s->counts->mourned_beside += mourned > 0;
	if (sum + mourned > limit)
		sim_no(s, "%s: node %u is granted %u before the lock-delay of %u is over that are lost", s->name[name].key, n->id, weight,
		       (unsigned)mourned);
}

/* Whoever was cut off killed what it had to kill before another got the lock; if it was running at all. */
static void loss_look(struct sim *s, const struct node *n, unsigned name)
{
	for (unsigned i = 0; i < s->nodes; i++) {
		const struct node *m = &s->node[i];

		if (m != n && m->loss_due > s->now && m->loss_names & 1u << name && m->last_disturbed + 2 * s->conf.ttl < s->now)
			sim_no(s, "%s: node %u is granted it while node %u is still ending those who had it", s->name[name].key, n->id, m->id);
	}
}

/* Exclusive leases that ended by their deadline or with their host, and of which nobody has been told. */
static bool abnormal(struct sim *s, const struct node *n, unsigned name)
{
	struct judge_name *j = &s->name[name];
	bool found = j->abnormal;

	for (unsigned i = 0; i < s->nodes; i++) {
		struct node *m = &s->node[i];

		if (m == n || m->slot[name].held != CORE_WEIGHT_ALL || holds(s, m) || m->slot[name].accounted)
			continue;
		found = true;
		m->slot[name].accounted = true;
		if (m->deadline && node_clock(s, m) > m->deadline && delay_end(s, m, name) > j->not_before)
			j->not_before = delay_end(s, m, name);
	}
	return found;
}

void judge_grant(struct sim *s, struct node *n, const struct core_action *a)
{
	unsigned name = a->name.ref;
	struct judge_name *j = &s->name[name];

	if (!holds(s, n))
		sim_no(s, "%s: node %u takes a grant after its deadline", j->key, n->id);
	if (store_session_ended(s, n->session))
		sim_no(s, "%s: node %u takes a grant after its session has been ended", j->key, n->id);
	weights_look(s, n, name, a->name.weight);
	judge_released(s, name);
	loss_look(s, n, name);
	if (!abnormal(s, n, name))
		return;
	s->counts->delays += j->not_before > 0 && s->delay;
	if (!a->name.lost)
		sim_no(s, "%s: node %u is not told that a holder was lost", j->key, n->id);
	if (s->now < j->not_before)
		sim_no(s, "%s: node %u is granted it before the lock-delay is over", j->key, n->id);
	j->abnormal = false;
	j->not_before = 0;
}

/* A lease of this node is no more, and was not given back. */
void judge_lost(struct sim *s, struct node *n, unsigned name)
{
	struct judge_name *j = &s->name[name];

	if (n->slot[name].accounted)
		return;
	if (n->slot[name].held != CORE_WEIGHT_ALL) {
		mourn_add(s, n, name);
		return;
	}
	j->abnormal = true;
	if (delay_end(s, n, name) > j->not_before)
		j->not_before = delay_end(s, n, name);
}

void judge_deadline(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < s->names; i++)
		if (n->slot[i].held && n->deadline && node_clock(s, n) >= n->deadline)
			sim_no(s, "node %u holds, and its deadline is put off after it has passed", n->id);
}

/* Whoever ends a session may be sure that it holds nothing any more. */
void judge_record(struct sim *s, const struct node *by, const char *key, const void *value, uint32_t size)
{
	struct beat_value v;

	if (!strcmp(key, MAP_KEY))
		judge_map(s, value, size);
	if (!strncmp(key, "member/", 7) && size)
		judge_member(s, value, size);
	if (strncmp(key, "beat/", 5) || !size || beat_decode(value, size, &v) < 0 || !v.ended)
		return;
	if (by->session == v.id.session && by->core && by->loss_due > s->now && by->loss_any)
		sim_no(s, "node %u ends its session, and is still ending those who held", by->id);
	for (unsigned i = 0; i < s->nodes; i++)
		if (s->node[i].session == v.id.session && holds(s, &s->node[i]))
			sim_no(s, "the session of node %u is ended, and by its own clock it goes on", i);
}

/* How long a wait may take once nothing goes wrong. */
static uint64_t bound(const struct sim *s)
{
	return 3 * s->conf.ttl + 8 * s->conf.look + 2 * s->delay * MSEC + s->nodes * CLIENTS_MAX * 150 * MSEC;
}

static void wait_look(struct sim *s, const struct node *n, const struct client *c)
{
	uint64_t since = s->calm || c->since > s->healed_at ? c->since : s->healed_at;

	if (s->now <= since || (s->faults && !s->calm) || sim_safety_only)
		return;
	s->counts->waits_judged++;
	if (s->now - since > bound(s))
		sim_no(s, "%s: a client of node %u has waited for %llu ms", s->name[c->name].key, n->id,
		       (unsigned long long)((s->now - since) / MSEC));
}

static void holders_look(struct sim *s, const struct node *n, const struct client *c)
{
	uint64_t permits = c->permits;

	for (unsigned i = 0; i < s->nodes; i++) {
		const struct node *m = &s->node[i];

		for (unsigned k = 0; holds(s, m) && k < CLIENTS_MAX; k++) {
			const struct client *o = &m->client[k];

			if (o == c || o->state != HOLDING || o->name != c->name || o->lost)
				continue;
			if (c->mode == EXCLUSIVE || o->mode == EXCLUSIVE)
				sim_no(s, "%s: clients of the nodes %u and %u hold it, one of them exclusively", s->name[c->name].key, n->id, m->id);
			permits += o->permits;
		}
	}
	if (c->mode == PERMITS && permits > s->name[c->name].limit_most)
		sim_no(s, "%s: %llu permits are held of %u", s->name[c->name].key, (unsigned long long)permits, s->name[c->name].limit_most);
}

static void token_look(struct sim *s, const struct node *n, const struct client *c)
{
	struct judge_name *j = &s->name[c->name];

	if (c->token <= j->exclusive_max || (c->mode == EXCLUSIVE && c->token <= j->shared_max))
		sim_no(s, "%s: node %u has token %llx after %llx and %llx", j->key, n->id, (unsigned long long)c->token,
		       (unsigned long long)j->exclusive_max, (unsigned long long)j->shared_max);
	uint64_t *max = c->mode == EXCLUSIVE ? &j->exclusive_max : &j->shared_max;
	if (c->token > *max)
		*max = c->token;
}

void judge_acquired(struct sim *s, struct node *n, struct client *c)
{
	s->counts->acquires++;
	s->counts->exclusives += c->mode == EXCLUSIVE;
	s->counts->shareds += c->mode == SHARED;
	s->counts->permits += c->mode == PERMITS;
	c->order = ++s->name[c->name].order;
	holders_look(s, n, c);
	if (c->mode != PERMITS)
		token_look(s, n, c);
	exam_passed(s, c);
	if (c->state == HOLDING && c->since)
		wait_look(s, n, c);
	c->since = 0;
	sim_trace(s, "%u: a client has %s %s, token %llx", n->id, s->name[c->name].key,
		  c->mode == EXCLUSIVE ? "exclusively" : c->mode == SHARED ? "shared" : "in part", (unsigned long long)c->token);
}

/* The resource takes a write unless it has seen a higher token. */
void judge_write(struct sim *s, struct client *c)
{
	struct judge_name *j = &s->name[c->name];

	if (c->token < j->written_token) {
		s->counts->refused_writes++;
		return;
	}
	if (c->token == j->written_token && c->order != j->written_order)
		sim_no(s, "%s: two holders write with one token", j->key);
	if (c->order < j->written_order)
		sim_no(s, "%s: an older holder's write is taken after a newer one's", j->key);
	j->written_token = c->token;
	j->written_order = c->order;
}

void judge_resized(struct sim *s, struct node *n, unsigned name)
{
	struct judge_name *j = &s->name[name];

	if (n->slot[name].limit_stamp > j->limit_stamp) {
		j->limit_stamp = n->slot[name].limit_stamp;
		j->limit_now = n->slot[name].limit;
	} else if (n->slot[name].limit_stamp == j->limit_stamp && n->slot[name].limit != j->limit_now) {
		sim_no(s, "%s: node %u is told of another limit than others were, under the same stamp", j->key, n->id);
	}
}

void judge_news(struct sim *s, struct node *n, const struct core_action *a)
{
	struct slot *sl = &n->slot[a->name.ref];
	struct left was = sl->leader;

	s->counts->news++;
	s->counts->news_nobody += a->name.value.state == CORE_VALUE_NONE;
	sl->leader = left_of(s, &a->name.value);
	sl->leader.token = a->name.value.token;
	sl->leader.count = a->name.value.count;
	if (sl->news && (sl->leader.token < was.token || (sl->leader.token == was.token && sl->leader.count < was.count)))
		sim_no(s, "%s: node %u observes the term %llx.%x after %llx.%x", s->name[a->name.ref].key, n->id,
		       (unsigned long long)sl->leader.token, sl->leader.count, (unsigned long long)was.token, was.count);
	sl->news = true;
}

/* Everybody stands still: all observers know who leads, and what it has proclaimed. */
static void leader_look(struct sim *s, unsigned name)
{
	const struct client *leader = NULL;

	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; holds(s, &s->node[i]) && k < CLIENTS_MAX; k++) {
			const struct client *c = &s->node[i].client[k];

			if (c->state == HOLDING && c->name == name && c->mode == EXCLUSIVE && !c->lost)
				leader = c;
		}
	for (unsigned i = 0; i < s->nodes; i++) {
		const struct slot *sl = &s->node[i].slot[name];
		bool leads = sl->news && sl->leader.state == CORE_VALUE_KNOWN;

		if (!sl->observes || !holds(s, &s->node[i]))
			continue;
		if (!sl->news || leads != (leader != NULL) || (leader && (sl->leader.token != leader->token || sl->leader.id != s->name[name].published)))
			sim_no(s, "%s: node %u believes that %llx leads, and it is %llx", s->name[name].key, i, leads ? (unsigned long long)sl->leader.token : 0,
			       leader ? (unsigned long long)leader->token : 0);
	}
}

/* All who have it open go by one limit. */
static void limits_look(struct sim *s, unsigned name)
{
	const struct node *one = NULL;

	for (unsigned i = 0; i < s->nodes; i++) {
		const struct node *n = &s->node[i];

		if (!n->core || !holds(s, n) || !n->slot[name].in_core || n->slot[name].releasing || !n->slot[name].held)
			continue;
		if (one && slot_limit(s, one, name) != slot_limit(s, n, name))
			sim_no(s, "%s: for node %u the limit is %u, for node %u it is %u", s->name[name].key, one->id, slot_limit(s, one, name),
			       n->id, slot_limit(s, n, name));
		one = n;
	}
}

/* Nobody has to wait for its session to expire. */
void judge_left(struct sim *s, const struct node *n, int error)
{
	struct beat_value v;
	char key[32];

	if (holds(s, n))
		sim_no(s, "node %u has left, and by its own clock it goes on", n->id);
	if (n->rows_n)
		sim_no(s, "node %u has left, and %u parties have heard nothing", n->id, n->rows_n);
	snprintf(key, sizeof key, "beat/%016llx", (unsigned long long)n->session);
	for (size_t i = 0; !error && i < s->records_n; i++) {
		const struct record *r = &s->records[i];

		if (r->version && !strcmp(r->key, key) && (beat_decode(r->value, r->size, &v) < 0 || !v.ended))
			sim_no(s, "node %u has left, and its session stands in the store", n->id);
	}
}

void judge_end(struct sim *s)
{
	for (unsigned i = 0; i < s->names; i++) {
		limits_look(s, i);
		leader_look(s, i);
	}
	for (unsigned i = 0; i < s->nodes; i++) {
		const struct node *n = &s->node[i];

		if (!n->core)
			sim_no(s, "node %u has not come back", i);
		for (unsigned k = 0; n->host && k < CLIENTS_MAX; k++)
			if (n->client[k].state == WAITING)
				wait_look(s, n, &n->client[k]);
	}
	exam_end(s, bound(s));
}
