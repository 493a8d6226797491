/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which faults happen when. Of eight seeds one is calm, one a storm, one of flapping connections, one of cuts or of a star, and four are mixed. */
#include <string.h>

#include "sim.h"

static struct node *any(struct sim *s)
{
	return &s->node[sim_random(s, s->nodes)];
}

/* --- Faults, and their ends --- */

static void resumed(struct sim *s, struct event *e)
{
	struct node *n = e->node;

	if (n->core && node_ready(s, n)) {
		node_inbox(s, n);
		if (n->core) {
			for (unsigned i = 0; i < s->names; i++)
				n->slot[i].dirty = true;
			slots_pump(s, n);
		}
	}
	sim_event_free(s, e);
}

static void pause_node(struct sim *s, struct node *n)
{
	uint64_t span = sim_random(s, sim_chance(s, 30) ? 6 * SEC : 400 * MSEC), until = s->now + span;
	bool host = sim_chance(s, 50);

	if (!n->core || !node_ready(s, n))
		return;
	s->counts->pauses++;
	s->counts->host_pauses += host;
	n->last_disturbed = until;
	if (host)
		n->host_paused_until = until;
	else
		n->paused_until = until;
	sim_trace(s, "%u: %s stops for %llu ms", n->id, host ? "the host" : "the daemon", (unsigned long long)(span / MSEC));
	sim_after(s, span, resumed, n, 0, 0);
}

static void healed(struct sim *s, struct event *e)
{
	if (s->now >= s->blocked_until)
		memset(s->blocked, 0, sizeof s->blocked);
	sim_event_free(s, e);
}

static void partition(struct sim *s)
{
	unsigned kind = (unsigned)sim_random(s, 3);
	struct node *a = any(s), *b = any(s);
	bool side[NODES_MAX];

	s->counts->partitions++;
	s->counts->one_ways += kind == 2;
	for (unsigned i = 0; i < s->nodes; i++)
		side[i] = sim_chance(s, 50);
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; k < s->nodes; k++)
			if (i != k && (kind == 0 ? side[i] != side[k] : kind == 1 ? (i == a->id && k == b->id) || (i == b->id && k == a->id) :
				       i == a->id && side[k]))
				net_block(s, &s->node[i], &s->node[k]);
	/* Every third lasts longer than grace + TTL. */
	uint64_t span = sim_chance(s, 33) ? 5 * SEC + sim_random(s, 5 * SEC) : sim_random(s, 5 * SEC);
	if (s->blocked_until < s->now + span)
		s->blocked_until = s->now + span;
	sim_after(s, span, healed, NULL, 0, 0);
}

static void store_back(struct sim *s, struct event *e)
{
	if (e->node)
		e->node->store_cut = false;
	else
		s->store_down = false;
	sim_event_free(s, e);
}

/* Leaves its shards to others, or may have them again. */
static void drain_toggle(struct sim *s, struct node *n)
{
	if (!node_ready(s, n) || n->leaves)
		return;
	n->drains = !n->drains;
	s->counts->drains += n->drains;
	s->counts->undrains += !n->drains;
	sim_trace(s, "%u: %s", n->id, n->drains ? "drains" : "drains no more");
	node_give(s, n, &(struct core_event){ .kind = CORE_EV_DRAIN, .drain.off = !n->drains });
}

static void leave(struct sim *s, struct node *n)
{
	if (!node_ready(s, n) || n->leaves)
		return;
	s->counts->leaves++;
	n->leaves = true;
	for (unsigned i = 0; i < s->names; i++)
		n->slot[i].dirty = true;
	sim_trace(s, "%u: leaves", n->id);
	node_give(s, n, &(struct core_event){ .kind = CORE_EV_LEAVE, .leave.patience = sim_random(s, 2 * SEC) });
}

static void fault(struct sim *s, struct event *e);

static void fault_one(struct sim *s)
{
	struct node *n = any(s);

	switch (sim_random(s, 10)) {
	case 0:
	case 1:
		pause_node(s, n);
		return;
	case 2:
		if (n->core)
			node_crash(s, n);
		return;
	case 3:
		/* One, or a rack: those come back one soon after the other. */
		for (unsigned i = 0, many = sim_chance(s, 20); i < s->nodes; i++)
			if (many ? sim_chance(s, 60) : &s->node[i] == n && sim_chance(s, 50))
				node_host_crash(s, &s->node[i], 500 * MSEC + sim_random(s, 5 * SEC));
		return;
	case 4:
		partition(s);
		return;
	case 5:
		s->counts->store_outages++;
		s->store_down = true;
		sim_after(s, sim_random(s, sim_chance(s, 30) ? 5 * SEC : SEC), store_back, NULL, 0, 0);
		return;
	case 6:
		s->counts->store_cuts++;
		n->store_cut = true;
		sim_after(s, sim_random(s, 5 * SEC), store_back, n, 0, 0);
		return;
	case 7:
		s->counts->store_lags++;
		for (unsigned i = 0, all = sim_chance(s, 20); i < s->nodes; i++)
			if (all || &s->node[i] == n || sim_chance(s, 10))
				s->node[i].store_lag_until = s->now + sim_random(s, 5 * SEC);
		return;
	case 8:
		if (sim_chance(s, 40))
			leave(s, n);
		else
			drain_toggle(s, n);
		return;
	case 9:
		/* A client scribbles over its slot, and the daemon dies of something else. */
		if (n->core && !n->slot[0].held && n->deadline) {
			s->counts->scribbles++;
#ifdef SIM_BREAK_ADOPT_SLOTS
			n->slot[0].held = s->name[0].limit;
			n->slot[0].range = (struct core_range){ ((uint64_t)1 << 40) + 1, 1 };
#endif
			node_crash(s, n);
		}
		return;
	}
}

static void fault(struct sim *s, struct event *e)
{
	if (s->faults) {
		fault_one(s);
		sim_after(s, sim_random(s, e->a), fault, NULL, e->a, 0);
	}
	sim_event_free(s, e);
}

/*
 * Every TTL / 2 masters move, since somebody leaves its shards or gets them back; in between one daemon after the
 * other is started anew, the coordinator's too, so that its shards have a new reign and it has observed nobody.
 * Every other death is the coordinator's. Whose host is dead meanwhile is not dead for longer.
 */
static void calm_move(struct sim *s, struct event *e)
{
	if (s->faults) {
		drain_toggle(s, any(s));
		sim_after(s, s->conf.ttl / 2, calm_move, NULL, 0, 0);
	}
	sim_event_free(s, e);
}

static void calm_restart(struct sim *s, struct event *e)
{
	struct node *n = &s->node[e->a % s->nodes];

	if (s->faults) {
		if (n->core)
			node_restart(s, n);
		sim_after(s, s->conf.ttl / 2, calm_restart, NULL, e->a + 1, 0);
	}
	sim_event_free(s, e);
}

static void calm_death(struct sim *s, struct event *e)
{
	struct node *n = sim_chance(s, 50) ? store_coordinator(s) : any(s);

	if (s->faults) {
		s->counts->deaths_judged++;
		judge_died(s, n);
		node_host_crash(s, n, 500 * MSEC + sim_random(s, 5 * SEC));
		sim_after(s, 8 * SEC, calm_death, NULL, 0, 0);
	}
	sim_event_free(s, e);
}

/*
 * A storm: sessions end and begin around changes of the map, while some read the map or the list of
 * members late, or are listed late. That is where the two orders of S4 count: session, then map; map, then
 * list. So again and again a host dies, its session is ended, and as it comes back another is drained, with
 * a newcomer that hears late of the map, a master that does, and a next master whose lists are slow.
 */
static void drains_end(struct sim *s)
{
	for (unsigned i = 0; i < s->nodes; i++)
		if (s->node[i].drains)
			drain_toggle(s, &s->node[i]);
}

static void storm_move(struct sim *s, struct event *e)
{
	if (s->faults && !e->node->drains)
		drain_toggle(s, e->node);
	sim_event_free(s, e);
}

static void newcomer_lags(struct sim *s, struct event *e)
{
	e->node->get_lag_until = s->now + 1 * SEC + sim_random(s, 2 * SEC);
	sim_event_free(s, e);
}

/* Half a second before the one that was dead is back. */
static void storm_near(struct sim *s, struct event *e)
{
	struct node *newcomer = e->node, *master = any(s);
	bool record = sim_chance(s, 50);

	sim_event_free(s, e);
	if (!s->faults)
		return;
	if (record) {
		/* The map changes while the newcomer's record is under way, and its master does not know. */
		newcomer->record_lag_until = s->now + 2 * SEC;
		master->get_lag_until = s->now + 1500 * MSEC + sim_random(s, 1500 * MSEC);
		sim_after(s, 200 * MSEC + sim_random(s, 500 * MSEC), storm_move, master, 0, 0);
	} else {
		/* The map changes when the newcomer has begun, and the next master's list is of before. */
		for (unsigned i = 0; i < s->nodes; i++)
			if (&s->node[i] != master && &s->node[i] != newcomer && sim_chance(s, 60))
				s->node[i].list_lag_until = s->now + 1 * SEC + sim_random(s, 1500 * MSEC);
		sim_after(s, 400 * MSEC + sim_random(s, 700 * MSEC), storm_move, master, 0, 0);
	}
	if (sim_chance(s, 30))
		sim_after(s, sim_random(s, 1500 * MSEC), storm_move, any(s), 0, 0);
}

static void storm(struct sim *s, struct event *e)
{
	if (s->faults) {
		struct node *n = any(s);
		uint64_t span = 2800 * MSEC + sim_random(s, 1200 * MSEC);

		drains_end(s);
		if (sim_chance(s, 15) && s->node[0].core)
			node_crash(s, &s->node[0]);
		else if (n->host)
			node_host_crash(s, n, span);
		sim_after(s, span - 500 * MSEC, storm_near, n, 0, 0);
		sim_after(s, span + 2 * SEC + sim_random(s, 1 * SEC), storm, NULL, 0, 0);
	}
	sim_event_free(s, e);
}

/* A daemon has started: it reads the map once in time. */
void script_begun(struct sim *s, struct node *n)
{
	if (s->kind == RUN_STORM && s->faults && sim_chance(s, 80))
		sim_after(s, 30 * MSEC + sim_random(s, 200 * MSEC), newcomer_lags, n, 0, 0);
}

static void faults_end(struct sim *s, struct event *e)
{
	s->faults = false;
	if (!s->star)                            /* who speaks through another is served too */
		memset(s->blocked, 0, sizeof s->blocked);
	s->store_down = false;
	for (unsigned i = 0; i < s->nodes; i++) {
		s->node[i].store_cut = false;
		s->node[i].store_lag_until = s->node[i].get_lag_until = s->node[i].list_lag_until =
			s->node[i].record_lag_until = 0;
	}
	sim_trace(s, "faults end");
	sim_event_free(s, e);
}

void script_start(struct sim *s)
{
	sim_after(s, s->healed_at, faults_end, NULL, 0, 0);
	if (s->calm) {
		sim_after(s, 5 * SEC, calm_move, NULL, 0, 0);
		sim_after(s, 5 * SEC + s->conf.ttl / 4, calm_restart, NULL, 0, 0);
		sim_after(s, 4 * SEC, calm_death, NULL, 0, 0);
		return;
	}
	if (s->kind == RUN_CUTS) {
		cuts_start(s);
		s->rate[3] = s->cuts_judged ? 0 : s->star ? 2 : 2 + (unsigned)sim_random(s, sim_chance(s, 50) ? 10 : 200);
		return;
	}
	if (s->kind == RUN_FLAPS) {
		s->rate[3] = 2 + (unsigned)sim_random(s, sim_chance(s, 50) ? 10 : 200);
		return;
	}
	if (s->kind == RUN_STORM) {
		s->rate[2] = (unsigned)sim_random(s, 10);
		s->rate[3] = (unsigned)sim_random(s, 30);
		sim_after(s, 2 * SEC, storm, NULL, 0, 0);
		sim_after(s, 5 * SEC, storm, NULL, 0, 0);
		return;
	}
	s->rate[0] = (unsigned)sim_random(s, 20);
	s->rate[1] = (unsigned)sim_random(s, 60);
	s->rate[2] = (unsigned)sim_random(s, 60);
	s->rate[3] = (unsigned)sim_random(s, 100);
	sim_after(s, 2 * SEC, fault, NULL, 300 * MSEC + sim_random(s, 4 * SEC), 0);
}
