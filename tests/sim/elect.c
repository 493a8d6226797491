/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Observers and the observed: a node whose exclusive lease is observed proclaims who holds it among its clients, at
 * each change, with a value; others are told. In the end everybody stands still, and all must know the same.
 */
#include <string.h>

#include "sim.h"

bool elect_frozen(const struct sim *s)
{
	return s->now >= SIM_STILL;
}

/* But for the last term that was told of here: it stays in the name's page when the lease goes, which a daemon that dies at that may find not gone. */
void elect_forget(struct slot *sl)
{
	sl->observed = sl->told = false;
	sl->told_term = 0;
}

static const struct client *leader_of(const struct node *n, unsigned name)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		const struct client *c = &n->client[i];

		if (c->state == HOLDING && c->name == name && c->mode == EXCLUSIVE && !c->lost)
			return c;
	}
	return NULL;
}

/* What is due to be told of who leads. */
bool elect_tell(struct sim *s, struct node *n, unsigned name)
{
	struct slot *sl = &n->slot[name];
	const struct client *c = leader_of(n, name);
	uint64_t term = c ? c->token : 0;
	struct core_event ev = { .kind = CORE_EV_PROCLAIM, .proclaim = { .ref = name } };
	uint8_t bytes[CORE_VALUE_MAX];

	if (!sl->observed || sl->held != CORE_WEIGHT_ALL || !holds(s, n) || (sl->told && sl->told_term == term))
		return false;
	sl->told = true;
	sl->told_term = term;
	s->counts->proclaims += term != 0;
	s->counts->nobodies += !term;
	if (term) {
		if (sl->left.state != CORE_VALUE_KNOWN || sl->left.token != term) {
			s->name[name].published = ++s->values;
			sl->left = (struct left){ CORE_VALUE_KNOWN, s->values, term, 1 };
			sl->left_fresh = true;
			sim_trace(s, "%u: proclaims %llu for %s", n->id, (unsigned long long)s->values, s->name[name].key);
		}
		ev.proclaim.value = left_value(&sl->left, bytes);
		sl->last_term = term;
	} else if (sl->last_term < sl->range.first + sl->range.count) {
		ev.proclaim.value.token = sl->last_term;
	}
	node_give(s, n, &ev);
	return true;
}

/* Some names are of interest to this node, from now on, or no more. */
void elect_observe(struct sim *s, struct node *n)
{
	unsigned name = (unsigned)sim_random(s, s->names);
	struct slot *sl = &n->slot[name];

	if (s->name[name].limit != CORE_WEIGHT_ALL || !n->core || !node_ready(s, n))
		return;
	struct core_event ev = { .kind = CORE_EV_OBSERVE, .observe = { name, s->name[name].key, (uint16_t)strlen(s->name[name].key), !sl->observes } };
	s->counts->observations++;
	sl->observes = !sl->observes;
	node_give(s, n, &ev);
}

/* A new daemon does not know who observes, nor that anybody does elsewhere. */
void elect_started(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < s->names && n->core; i++) {
		struct slot *sl = &n->slot[i];
		struct core_event ev = { .kind = CORE_EV_OBSERVE, .observe = { i, s->name[i].key, (uint16_t)strlen(s->name[i].key), true } };

		sl->observed = sl->told = false;
		if (sl->observes)
			node_give(s, n, &ev);
	}
}

/* Once all is still, most locks are taken once more, and kept. */
void elect_last(struct sim *s, struct event *e)
{
	for (unsigned name = 0; name < s->names; name++) {
		struct node *n = &s->node[sim_random(s, s->nodes)];
		unsigned i = (unsigned)sim_random(s, CLIENTS_MAX);
		struct client *c = &n->client[i];

		if (s->name[name].limit != CORE_WEIGHT_ALL || !sim_chance(s, 70) || !n->core || !n->host || c->state != IDLE)
			continue;
		c->name = name;
		c->mode = EXCLUSIVE;
		c->tries = false;
		c->priority = 0;
		client_waits(s, n, i);
		slots_pump(s, n);
	}
	sim_event_free(s, e);
}
