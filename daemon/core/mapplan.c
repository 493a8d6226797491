/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mapplan.h"

#include "range.h"

static uint64_t draw(uint64_t node, unsigned shard)
{
	return mapplan_mix(mapplan_mix(node) + 0x9e3779b97f4a7c15 * (shard + 1));
}

static bool willing(const struct mapplan_node *v)
{
	return v->may_master && !v->drains;
}

static bool fine(const struct mapplan_node *v)
{
	return willing(v) && !v->avoid;
}

static bool fine_and_steady(const struct mapplan_node *v)
{
	return fine(v) && v->steady;
}

static bool allowed(const struct mapplan_node *v)
{
	return v->may_master;
}

/* Of those that are fit, the host with the highest number. */
static const struct mapplan_node *best(const struct mapplan_node *v, unsigned n, unsigned shard,
				       bool (*fit)(const struct mapplan_node *))
{
	const struct mapplan_node *b = NULL;

	for (unsigned i = 0; i < n; i++)
		if (fit(&v[i]) && (!b || draw(v[i].node, shard) > draw(b->node, shard)))
			b = &v[i];
	return b;
}

static const struct mapplan_node *find(const struct mapplan_node *v, unsigned n, struct msg_peer id)
{
	for (unsigned i = 0; i < n; i++)
#ifndef CORE_BREAK_NODE_KEY
		if (msg_peer_same(v[i].id, id))
#else
		if (v[i].id.session == id.session)
#endif
			return &v[i];
	return NULL;
}

/* It has the higher number of the two, and but for its steadiness all that is asked for. */
static bool stays(const struct mapplan_node *now, const struct mapplan_node *want, unsigned shard)
{
	return now && want && fine(now) && now->met && draw(now->node, shard) > draw(want->node, shard);
}

unsigned mapplan_apply(struct map *m, const struct mapplan_node *v, unsigned n)
{
	unsigned changed = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		struct map_reign *r = &m->shard[i];
		const struct mapplan_node *now = find(v, n, r->master), *want = best(v, n, i, fine_and_steady);

#ifndef CORE_BREAK_PLACE_HOME
		if (m->placed & shard_bit(i) && now && fine(now) && now->met)
			continue;
#endif
		m->placed &= ~shard_bit(i);
		if (!want && (!now || !fine(now)))
			want = best(v, n, i, fine);
		if (!want && (!now || !willing(now)))
			want = best(v, n, i, willing);
		if (!want && !now)
			want = best(v, n, i, allowed);
		if (!want || want == now || stays(now, want, i) || r->epoch == EPOCH_MAX)
			continue;
		r->master = want->id;
		r->epoch++;
		changed++;
	}
	return changed;
}

bool mapplan_place(struct map *m, const struct mapplan_node *v, unsigned n, unsigned shard, uint64_t session)
{
	struct map_reign *r = &m->shard[shard];
	const struct mapplan_node *now = find(v, n, r->master), *to = NULL;

	for (unsigned i = 0; i < n; i++)
		if (v[i].id.session == session)
			to = &v[i];
	if (!to || !fine_and_steady(to) || !now || !fine(now) || r->epoch == EPOCH_MAX)
		return false;
	m->placed |= shard_bit(shard);
	if (to == now)
		return false;
	r->master = to->id;
	r->epoch++;
	return true;
}
