/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Connections between daemons. One carries frames in order, each way with its own delay; when it
 * breaks, what was under way is lost, or arrives late, when the next one may be up already: or is held
 * back until then on purpose, and arrives among the first frames of the next.
 */
#include <stdlib.h>
#include <string.h>

#include "core/msg.h"
#include "sim.h"

static uint64_t latency(struct sim *s)
{
	uint64_t span = MSEC / 4 + sim_random(s, 4 * MSEC);

	if (sim_wild(s) && sim_chance(s, 1))
		span += sim_random(s, sim_chance(s, 5) ? 3 * SEC : 200 * MSEC);
	if (sim_flaps(s) && sim_chance(s, 3))
		span += sim_random(s, 40 * MSEC);
	return span;
}

/*
 * What a holder hands to the next one, and its word of that to the master, is now and then under way for long: while
 * masters change, either of them goes, or the next one has been done with it for long.
 */
static uint64_t pass_latency(struct sim *s, const struct core_action *a)
{
	const uint8_t *head = a->send.bytes;
	bool word = (head[3] == MSG_CLAIM || head[3] == MSG_RELEASE) && (head[6] | head[7] << 8) & MSG_FLAG_PASS;
	bool pass = head[3] == MSG_PASS || word;

	return pass && s->faults && s->kind != RUN_CUTS && sim_chance(s, 10) ? sim_random(s, 600 * MSEC) : 0;
}

/* How long after the one before it a frame comes that was held back: the first of them, or a further one. */
static uint64_t late_span(struct sim *s, bool first)
{
	if (!s->star)
		return 1 + sim_random(s, 3 * MSEC);
	return 1 + (first ? sim_random(s, 12 * MSEC) : 0);
}

static unsigned side(const struct conn *c, const struct node *n)
{
	return c->end[1] == n;
}

static struct conn *conn_find(struct sim *s, uint64_t number)
{
	return number <= s->conn_number && number ? s->conn[number] : NULL;
}

static void breaks(struct sim *s, struct event *e);

/* The node has heard of a later connection to the same other. */
static bool newer_up(const struct sim *s, const struct conn *than, const struct node *n)
{
	unsigned i = side(than, n);

	for (const struct conn *c = s->conns; c && c->number > than->number; c = c->next)
		if (c->up[side(c, n)] && c->end[side(c, n)] == n && c->end[!side(c, n)] == than->end[!i])
			return true;
	return false;
}

/* Frames of a connection that was before: their turn is soon, one after the other, or all in one gap of what the next one brings. */
static void late_release(struct sim *s, struct node *n, const struct node *other)
{
	struct event *e, *next;

	for (struct conn *c = s->conns; s->late_n && c; c = c->next) {
		unsigned i = side(c, n);

		if (!c->broken || c->end[i] != n || c->end[!i] != other)
			continue;
		for (e = c->late[i]; e; e = next) {
			next = e->next;
			c->late_until[i] = (c->late_until[i] > s->now ? c->late_until[i] : s->now) + late_span(s, e == c->late[i]);
			struct event *again = sim_after(s, c->late_until[i] - s->now, e->fn, n, e->a, 1);
			again->generation = e->generation;
			again->data = e->data;
			again->size = e->size;
			e->data = NULL;
			sim_event_free(s, e);
			s->late_n--;
		}
		c->late[i] = NULL;
		c->late_end[i] = &c->late[i];
	}
}

static void late_put(struct sim *s, struct conn *c, unsigned i, struct event *e)
{
	s->late_n++;
	e->next = NULL;
	*c->late_end[i] = e;
	c->late_end[i] = &e->next;
}

static void late_free(struct sim *s, struct conn *c)
{
	struct event *e, *next;

	for (unsigned i = 0; i < 2; i++)
		for (e = c->late[i]; e; e = next) {
			next = e->next;
			sim_event_free(s, e);
			s->late_n--;
		}
}

static void link_event(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct core_event ev = { .kind = (enum core_event_kind)e->b };

	if (n->generation == e->generation && !node_ready(s, n)) {
		node_defer(n, e);
		return;
	}
	struct conn *c = conn_find(s, e->a);
	if (n->generation == e->generation && c) {
		unsigned other = !side(c, n);

		ev.link.session = c->session[other];
		ev.link.incarnation = e->size;
		ev.link.conn = c->number;
		node_give(s, n, &ev);
		if (ev.kind == CORE_EV_LINK_UP) {
			c->up[!other] = true;
			if (!s->star)
				late_release(s, n, c->end[other]);
		}
	}
	sim_event_free(s, e);
}

static void connect(struct sim *s, struct node *a, struct node *b)
{
	struct conn *c = calloc(1, sizeof *c);

	c->number = ++s->conn_number;
	if (c->number >= s->conn_max) {
		s->conn_max = s->conn_max ? 2 * s->conn_max : 1024;
		s->conn = realloc(s->conn, s->conn_max * sizeof *s->conn);
		if (!s->conn)
			abort();
	}
	s->conn[c->number] = c;
	s->linked[a->id][b->id] = s->linked[b->id][a->id] = true;
	c->next = s->conns;
	s->conns = c;
	for (unsigned i = 0; i < 2; i++) {
		struct node *n = i ? b : a, *other = i ? a : b;
		uint64_t span = latency(s);

		c->end[i] = n;
		c->generation[i] = n->generation;
		c->session[i] = n->session;
		c->last[i] = s->now + span;
		c->late_end[i] = &c->late[i];
		sim_after(s, span, link_event, n, c->number, CORE_EV_LINK_UP)->size = other->incarnation;
	}
	s->counts->conns++;
	if (sim_flaps(s) && sim_chance(s, 25))
		sim_after(s, sim_random(s, 30 * MSEC), breaks, NULL, c->number, 0);
	sim_trace(s, "net: %u and %u have connection %llu", a->id, b->id, (unsigned long long)c->number);
}

/*
 * A path has begun at this end of it. Where all speak through one, what was held back of earlier paths comes among the first
 * frames of this one, on either leg; and what the ends tell each other at first, which is all they have, is often cut short.
 */
void net_relayed(struct sim *s, struct node *n, uint64_t via)
{
	struct conn *c = s->conns;

	if (!s->star || !s->faults)
		return;
	while (c && (c->broken || c->end[side(c, n)] != n || c->session[!side(c, n)] != via))
		c = c->next;
	if (!c)
		return;
	late_release(s, n, c->end[!side(c, n)]);
	late_release(s, c->end[!side(c, n)], n);
	if (sim_chance(s, 50))
		sim_after(s, sim_random(s, 8 * MSEC), breaks, NULL, c->number, 0);
}

static bool wants(const struct node *a, const struct node *b)
{
	for (unsigned i = 0; i < a->wants_n; i++)
		if (a->wants[i] == b->session)
			return true;
	return false;
}

/* Broken ones are kept until nothing of theirs can be under way. */
static void conns_sweep(struct sim *s)
{
	struct conn **link = &s->conns, *c;

	while ((c = *link)) {
		uint64_t last = c->last[0] > c->last[1] ? c->last[0] : c->last[1];

		/* Where nothing has been said for long, both ends are still to hear that it is over. */
		if (c->broken && s->now > (last > c->broken_at ? last : c->broken_at) + 10 * SEC) {
			*link = c->next;
			s->conn[c->number] = NULL;
			late_free(s, c);
			free(c);
		} else {
			link = &c->next;
		}
	}
}

static void dial(struct sim *s, struct event *e)
{
	for (unsigned i = 0; i < s->nodes; i++)
		for (unsigned k = 0; k < i; k++) {
			struct node *a = &s->node[i], *b = &s->node[k];

			if (!a->core || !b->core || s->blocked[i][k] || s->blocked[k][i] || s->linked[i][k])
				continue;
			if ((wants(a, b) || wants(b, a)) && sim_chance(s, 70))
				connect(s, a, b);
		}
	conns_sweep(s);
	sim_after(s, 20 * MSEC + sim_random(s, 40 * MSEC), dial, NULL, 0, 0);
	sim_event_free(s, e);
}

static void breaks(struct sim *s, struct event *e)
{
	struct conn *c = conn_find(s, e->a);

	if (c && !c->broken)
		net_break(s, c);
	sim_event_free(s, e);
}

void net_break(struct sim *s, struct conn *c)
{
	c->broken = true;
	c->broken_at = s->now;
	c->holds_back = s->faults && sim_chance(s, sim_flaps(s) ? 60 : 20);
	s->linked[c->end[0]->id][c->end[1]->id] = s->linked[c->end[1]->id][c->end[0]->id] = false;
	s->counts->breaks++;
	sim_trace(s, "net: connection %llu breaks", (unsigned long long)c->number);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t span = sim_random(s, 200 * MSEC), at = s->now + span;
		struct event *e = sim_after(s, at > c->last[i] ? span : c->last[i] - s->now, link_event, c->end[i], c->number, CORE_EV_LINK_DOWN);

		e->generation = c->generation[i];
		parties_startle(s, c->end[i]);
	}
}

/* What is sent from now on does not arrive, and sooner or later both ends notice. */
void net_block(struct sim *s, struct node *from, struct node *to)
{
	s->blocked[from->id][to->id] = true;
	for (struct conn *c = s->conns; c; c = c->next)
		if (!c->broken && !c->breaking && ((c->end[0] == from && c->end[1] == to) || (c->end[0] == to && c->end[1] == from))) {
			sim_after(s, 100 * MSEC + sim_random(s, 600 * MSEC), breaks, NULL, c->number, 0);
			c->breaking = true;
		}
}

void net_break_node(struct sim *s, struct node *n)
{
	for (struct conn *c = s->conns; c; c = c->next)
		if (!c->broken && (c->end[0] == n || c->end[1] == n))
			net_break(s, c);
}

static void delivered(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	struct conn *c = conn_find(s, e->a);

	if (!node_takes(s, e, c))
		return;
	if (!e->b && c->late_until[side(c, n)] >= s->now) {
		struct event *again = sim_after(s, ++c->late_until[side(c, n)] - s->now, delivered, n, e->a, 1);

		again->generation = e->generation;
		again->data = e->data;
		again->size = e->size;
		e->data = NULL;
		sim_event_free(s, e);
		return;
	}
	/* Behind what is held back already, also when no more faults are to come: a stream has an order. */
	if (c->late[side(c, n)] ||
	    (c->broken && c->holds_back && s->faults && s->now < c->last[side(c, n)] + 5 * SEC && !newer_up(s, c, n))) {
		s->counts->held_back++;
		late_put(s, c, side(c, n), e);
		return;
	}
	if (c->broken) {
		if (c->cut[side(c, n)] || sim_chance(s, s->star ? 1 : 10)) {
			c->cut[side(c, n)] = true;       /* what arrives of a stream is its beginning */
			sim_event_free(s, e);
			return;
		}
		s->counts->stale_frames++;
	}
	s->counts->frames++;
	struct core_event ev = { .kind = CORE_EV_RECV, .recv = { c->number, c->session[!side(c, n)], e->data, e->size } };
	uint64_t grants = s->counts->grants;
	bool pass = e->size > 3 && ((const uint8_t *)e->data)[3] == MSG_PASS;
	node_give(s, n, &ev);
	s->counts->passed_on += pass && s->counts->grants > grants;
	s->counts->passed_late += pass && s->counts->grants == grants;
	if (n->generation == e->generation && s->faults && sim_random(s, 500) == 0) {
		s->counts->duplicates++;
		node_give(s, n, &ev);
	}
	sim_event_free(s, e);
}

void net_send(struct sim *s, struct node *n, const struct core_action *a)
{
	struct conn *c = conn_find(s, a->send.conn);

	if (!c || c->generation[side(c, n)] != n->generation)
		return;
	unsigned to = !side(c, n);
	struct node *other = c->end[to];

	if (c->broken || c->mute[to])
		return;
	if (s->blocked[n->id][other->id]) {
		c->mute[to] = true;
		if (!c->breaking)
			sim_after(s, 100 * MSEC + sim_random(s, 600 * MSEC), breaks, NULL, c->number, 0);
		c->breaking = true;
		return;
	}
	uint64_t at = s->now + latency(s) + pass_latency(s, a);
	if (at <= c->last[to])
		at = c->last[to] + 1;
	c->last[to] = at;
	struct event *e = sim_after(s, at - s->now, delivered, other, c->number, 0);
	e->generation = c->generation[to];
	e->data = malloc(a->send.n);
	memcpy(e->data, a->send.bytes, a->send.n);
	e->size = a->send.n;
	/* A connection that breaks now may leave its last words behind, for later. */
	if (s->faults && sim_random(s, 10000) < s->rate[3])
		net_break(s, c);
}

void net_start(struct sim *s)
{
	sim_after(s, 0, dial, NULL, 0, 0);
}

void net_done(struct sim *s)
{
	struct conn *next;

	for (struct conn *c = s->conns; c; c = next) {
		next = c->next;
		late_free(s, c);
		free(c);
	}
	free(s->conn);
}
