/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "mapplan.h"

#include "range.h"

static uint64_t draw(uint64_t node, unsigned shard)
{
	return mapplan_mix(mapplan_mix(node) + 0x9e3779b97f4a7c15 * (shard + 1));
}

/* The host with the highest number; of two sessions of one host the one that was made later stands higher in the list. */
static const struct mapplan_node *best(const struct mapplan_node *v, unsigned n, unsigned shard, bool steady)
{
	const struct mapplan_node *b = NULL;

	for (unsigned i = 0; i < n; i++)
		if (v[i].may_master && (v[i].steady || !steady) && (!b || draw(v[i].node, shard) > draw(b->node, shard)))
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

unsigned mapplan_apply(struct map *m, const struct mapplan_node *v, unsigned n)
{
	unsigned changed = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		struct map_reign *r = &m->shard[i];
		const struct mapplan_node *now = find(v, n, r->master), *want = best(v, n, i, true);

		if (!want && (!now || !now->may_master))
			want = best(v, n, i, false);
		if (!want || want == now || r->epoch == EPOCH_MAX)
			continue;
		r->master = want->id;
		r->epoch++;
		changed++;
	}
	return changed;
}
