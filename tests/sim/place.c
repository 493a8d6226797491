/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shards go where they are used (core/place.h). In some runs one node uses the names most, each of them for once, or two
 * take turns at that; the judges look at the map in the store, and at nothing else.
 */
#include <string.h>

#include "core/mapplan.h"
#include "core/session.h"
#include "sim.h"

/* Without a draw of the run's: what else happens in a seed does not depend on it. */
void place_draw(struct sim *s)
{
	uint64_t chance = mapplan_mix(s->seed);

	if (s->seed % 8 != 5 && s->seed % 16 != 8 && s->seed % 16 != 12)
		return;
	s->conf.place = 500 * MSEC + chance % 300 * MSEC;
	s->conf.place_least = 1;
	s->favourites = 1 + (chance >> 16) % 3 / 2;
	s->favourite_turn = s->conf.place / 2 + (chance >> 32) % (8 * s->conf.place);
}

bool place_favours(const struct sim *s, const struct node *n)
{
	uint64_t turn = s->favourites == 2 ? s->now / s->favourite_turn % 2 : 0;

	return s->favourites && !s->exam && n->id == (s->seed / 8 + turn) % s->nodes;
}

uint64_t place_think(const struct sim *s, const struct node *n)
{
	if (!s->favourites || s->exam)
		return n->think_max;
	return place_favours(s, n) ? 20 * MSEC : 10 * SEC;
}

void judge_member(struct sim *s, const void *value, uint32_t size)
{
	struct member_record m;

	for (unsigned i = 0; member_record_decode(value, size, &m) == 0 && i < s->nodes; i++)
		if (s->node[i].session == m.session)
			s->unfit_since[i] = !m.drains && m.may_master ? 0 : s->unfit_since[i] ? s->unfit_since[i] : s->now;
}

/* Nobody looks at the members less often than this, if nothing is wrong: he knows that this one gets no shards. */
static bool known_unfit(const struct sim *s, uint64_t session)
{
	for (unsigned i = 0; i < s->nodes; i++)
		if (s->node[i].session == session)
			return s->unfit_since[i] && s->now - s->unfit_since[i] > 3 * s->conf.look + 100 * MSEC;
	return false;
}

/*
 * Whoever coordinates, and whatever it has forgotten: a shard that has been moved for its use is not moved again for that
 * before its new master has looked on for a span.
 */
void judge_map(struct sim *s, const void *value, uint32_t size)
{
	struct clustermap old, new;

	if (!store_map(s, &old) || clustermap_decode(value, size, &new) < 0)
		return;
	if (new.map.placed && !s->conf.place)
		sim_no(s, "shards are moved for their use where they should not be");
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		uint64_t to = new.map.shard[i].master.session, *at = &s->placed_at[i];

		if (!(new.map.placed >> i & 1) || msg_peer_same(old.map.shard[i].master, new.map.shard[i].master))
			continue;
		s->counts->placements++;
		if (*at && s->now - *at < s->conf.place / 100 * 98)
			sim_no(s, "shard %u is moved for its use %llu ms after it was", i, (unsigned long long)((s->now - *at) / MSEC));
		if (s->calm && known_unfit(s, to))
			sim_no(s, "shard %u is moved for its use to a node that drains, or may not master", i);
		*at = s->now;
	}
}

static bool undisturbed(const struct sim *s, const struct node *n)
{
	return n->core && n->host && !s->unfit_since[n->id] && !n->leaves && node_ready(s, n) && node_clock(s, n) < n->deadline;
}

/* Nothing has gone wrong for some seconds: what one node uses it masters. Of many names each is used too seldom. */
void place_exam(struct sim *s)
{
	const struct node *n = &s->node[s->seed / 8 % s->nodes];
	struct clustermap m;

	if (s->favourites != 1 || s->names == NAMES_MAX || !undisturbed(s, n) || !store_map(s, &m) || sim_safety_only)
		return;
	for (unsigned i = 0; i < s->names; i++) {
		unsigned shard = shard_of(s->name[i].key, strlen(s->name[i].key));

		s->counts->places_judged++;
		if (m.map.shard[shard].master.session != n->session)
			sim_no(s, "%s: node %u alone uses it, and does not master shard %u", s->name[i].key, n->id, shard);
	}
}
