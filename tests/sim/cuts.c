/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network is cut in parts that last, while the store is reached by all (S12). In half of these seeds all speak through one, whose
 * connections flap: paths come and go, and frames of old ones come late (net_relayed). In most others one shape stays for long enough to
 * be judged: no client may wait because somebody who cannot be reached is in the way; in the rest shapes change all the time.
 */
#include <string.h>

#include "core/map.h"
#include "core/shard.h"
#include "sim.h"

#define LOOK (100 * MSEC)

/* --- Shapes --- */

static void block_pair(struct sim *s, unsigned a, unsigned b)
{
	net_block(s, &s->node[a], &s->node[b]);
	net_block(s, &s->node[b], &s->node[a]);
}

static void shape_draw(struct sim *s)
{
	unsigned kind = s->star ? 6 : (unsigned)sim_random(s, 6), a = s->star ? 0 : (unsigned)sim_random(s, s->nodes), many = 20 + (unsigned)sim_random(s, 60);
	bool side[NODES_MAX];

	s->counts->partitions++;
	s->counts->one_ways += kind == 3;
	s->cut_alone = kind == 1 ? a : NODES_MAX;
	for (unsigned i = 0; i < s->nodes; i++)
		side[i] = sim_chance(s, 50);
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; k < i; k++)
			switch (kind) {
			case 0:                  /* two parts */
				if (side[i] != side[k])
					block_pair(s, i, k);
				break;
			case 1:                  /* one alone */
				if (i == a || k == a)
					block_pair(s, i, k);
				break;
			case 2:                  /* two that do not see each other */
				if ((i == a || k == a) && (i + k - a == (a + 1) % s->nodes))
					block_pair(s, i, k);
				break;
			case 3:                  /* one whom some do not hear */
				if (i == a && side[k])
					net_block(s, &s->node[i], &s->node[k]);
				else if (k == a && side[i])
					net_block(s, &s->node[k], &s->node[i]);
				break;
			case 4:                  /* a chain */
				if (k + 1 != i)
					block_pair(s, i, k);
				break;
			case 5:                  /* this and that */
				if (sim_chance(s, many))
					block_pair(s, i, k);
				break;
			case 6:                  /* one that reaches all, who do not reach each other */
				if (k != a)
					block_pair(s, i, k);
				break;
			}
	sim_trace(s, "net: cut, shape %u", kind);
}

static void cut(struct sim *s, struct event *e);

static void whole(struct sim *s, struct event *e)
{
	memset(s->blocked, 0, sizeof s->blocked);
	s->cut_since = 0;
	sim_trace(s, "net: whole");
	if (s->faults)
		sim_after(s, s->cuts_judged ? SEC + sim_random(s, 3 * SEC) : sim_random(s, 300 * MSEC), cut, NULL, 0, 0);
	sim_event_free(s, e);
}

static void cut(struct sim *s, struct event *e)
{
	if (s->faults) {
		shape_draw(s);
		s->cut_since = s->now;
		if (!s->star)
			sim_after(s, s->cuts_judged ? 14 * SEC + sim_random(s, 4 * SEC) : sim_random(s, 2500 * MSEC), whole, NULL, 0, 0);
	}
	sim_event_free(s, e);
}

/* --- The judge --- */

static bool linkable(const struct sim *s, unsigned a, unsigned b)
{
	return s->node[a].core && s->node[b].core && !s->blocked[a][b] && !s->blocked[b][a];
}

static bool reaches(const struct sim *s, unsigned a, unsigned b)
{
	if (a == b || linkable(s, a, b))
		return true;
	for (unsigned i = 0; i < s->nodes; i++)
		if (linkable(s, a, i) && linkable(s, i, b))
			return true;
	return false;
}

/* NULL: none, by the map in the store. */
static const struct node *master_of(const struct sim *s, const char *key)
{
	struct clustermap m;
	const struct record *r = s->records;

	while (r < s->records + s->records_n && strcmp(r->key, MAP_KEY))
		r++;
	if (r == s->records + s->records_n || clustermap_decode(r->value, r->size, &m) < 0)
		return NULL;
	for (unsigned i = 0; i < s->nodes; i++)
		if (s->node[i].session == m.map.shard[shard_of(key, strlen(key))].master.session)
			return &s->node[i];
	return NULL;
}

/* Grace, then an end by itself or a TTL without beats, then everybody before it in the queue. */
static uint64_t bound(const struct sim *s)
{
	return s->conf.grace + 2 * s->conf.ttl + 8 * s->conf.look + 2 * s->delay * MSEC + s->nodes * CLIENTS_MAX * 150 * MSEC;
}

static void look(struct sim *s, struct event *e)
{
	for (unsigned k = 0; k < s->names; k++) {
		const struct node *m = master_of(s, s->name[k].key);

		for (unsigned i = 0; i < s->nodes; i++) {
			struct node *n = &s->node[i];

			if (!s->cut_since || !m || !reaches(s, i, m->id))
				n->reach_since[k] = s->now;
			for (unsigned j = 0; j < CLIENTS_MAX; j++) {
				const struct client *c = &n->client[j];
				uint64_t since = c->since > n->reach_since[k] ? c->since : n->reach_since[k];

				if (c->state != WAITING || c->name != k)
					continue;
				s->counts->cut_waits += s->now - since > SEC;
				if (s->now - since > bound(s))
					sim_no(s, "%s: a client of node %u has waited for %llu ms, and reaches the master, node %u", s->name[k].key,
					       i, (unsigned long long)((s->now - since) / MSEC), m->id);
			}
		}
	}
	if (s->faults)
		sim_after(s, LOOK, look, NULL, 0, 0);
	sim_event_free(s, e);
}

/* It has ended itself. Where one reaches nobody it is that one's turn, not that of those who reach each other. */
void cuts_ended(struct sim *s, const struct node *n)
{
	if (s->cuts_judged && s->cut_since && s->cut_alone < s->nodes && n->id != s->cut_alone)
		sim_no(s, "node %u ends itself, and it is node %u that reaches nobody", n->id, s->cut_alone);
}

void cuts_start(struct sim *s)
{
	s->conf.grace = s->conf.ttl + sim_random(s, s->conf.ttl / 2);
	sim_after(s, 2 * SEC + sim_random(s, 2 * SEC), cut, NULL, 0, 0);
	if (s->cuts_judged)
		sim_after(s, 0, look, NULL, 0, 0);
}
