/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node's segment: one slot for each name, and clients that wait, hold, write to the resource, change
 * their minds and die. Taking and giving back what the node holds needs no daemon; anything else waits for it.
 */
#include <string.h>

#include "core/base.h"
#include "sim.h"

static void think(struct sim *s, struct event *e);

static bool live(const struct sim *s, const struct node *n)
{
	return n->host && s->now >= n->host_paused_until;
}

/* Once a simulated host goes on, so do its clients. */
static bool postponed(struct sim *s, struct event *e)
{
	struct node *n = e->node;

	if (s->now >= n->host_paused_until)
		return false;
	struct event *later = sim_after(s, n->host_paused_until - s->now, e->fn, n, e->a, e->b);
	later->generation = e->generation;
	sim_event_free(s, e);
	return true;
}

static void client_after(struct sim *s, struct node *n, unsigned i, uint64_t span, event_fn fn)
{
	sim_after(s, span, fn, n, i, n->client[i].generation);
}

static bool of_this_life(const struct event *e)
{
	return e->node->client[e->a].generation == e->b;
}

/* The client goes on with it; else it is void, or comes later. `still`: what it is about is so still. It is not the caller's any more. */
static bool taken(struct sim *s, struct event *e, bool still)
{
	bool good = of_this_life(e) && e->node->host && still;

	if (good && postponed(s, e))
		return false;
	sim_event_free(s, e);
	return good;
}

/* --- What a slot has and needs --- */

static uint32_t weight_of(const struct client *c)
{
	return c->mode == EXCLUSIVE ? CORE_WEIGHT_ALL : c->mode == SHARED ? 1 : c->permits;
}

uint32_t slot_usage(const struct node *n, unsigned name)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		const struct client *c = &n->client[i];

		if (c->state != HOLDING || c->name != name || c->lost)
			continue;
		if (c->mode == EXCLUSIVE)
			return CORE_WEIGHT_ALL;
		sum = c->mode == SHARED ? 1 : sum + c->permits;
	}
	return sum;
}

uint32_t slot_limit(const struct sim *s, const struct node *n, unsigned name)
{
	const struct slot *sl = &n->slot[name];

	return sl->limit_stamp ? sl->limit : s->name[name].limit;
}

/* Whoever waits for more than there is contents itself with all of it. */
static void waiters_content(const struct sim *s, struct node *n, unsigned name)
{
	uint32_t limit = slot_limit(s, n, name);

	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &n->client[i];

		if (c->state == WAITING && c->name == name && c->permits > limit)
			c->permits = limit;
	}
}

void slot_limit_forget(struct sim *s, struct node *n, unsigned name)
{
	n->slot[name].limit_stamp = 0;
	waiters_content(s, n, name);
}

static bool upgrading(const struct node *n, unsigned name)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (n->client[i].state == HOLDING && n->client[i].name == name && n->client[i].upgrading)
			return true;
	return false;
}

/* The node's weight with which this client could go on; more than the limit: not while the others are in. */
static uint64_t need(const struct node *n, unsigned name, const struct client *c)
{
	uint32_t usage = slot_usage(n, name);

	return c->mode == PERMITS ? (uint64_t)usage + c->permits : weight_of(c);
}

static bool fits(const struct node *n, unsigned name, const struct client *c)
{
	uint32_t usage = slot_usage(n, name);

	if (upgrading(n, name))
		return false;
	switch (c->mode) {
	case EXCLUSIVE:
		return usage == 0;
	case SHARED:
		return usage != CORE_WEIGHT_ALL;
	case PERMITS:
		return true;
	}
	return false;
}

/* What is asked for has one of three delays, as the moment will have it; but none shorter than that of what is held. */
static uint16_t delay_draw(const struct sim *s, struct node *n, unsigned name)
{
	struct slot *sl = &n->slot[name];
	uint16_t delay = (uint16_t)((s->now / MSEC + name + n->id) % 3 * (s->delay / 2));

	sl->wanted_delay = sl->held && sl->delay > delay ? sl->delay : delay;
	return sl->wanted_delay;
}

/* --- Holding --- */

static void queue_remove(struct slot *sl, unsigned client)
{
	unsigned k = 0;

	for (unsigned i = 0; i < sl->queue_n; i++)
		if (sl->queue[i] != client)
			sl->queue[k++] = sl->queue[i];
	sl->queue_n = k;
}

void client_idle(struct sim *s, struct node *n, unsigned i)
{
	struct client *c = &n->client[i];

	c->state = IDLE;
	c->upgrading = false;
	c->generation++;
	client_after(s, n, i, MSEC + sim_random(s, place_think(s, n)), think);
}

static void late_write(struct sim *s, struct event *e)
{
	struct client ghost = { .name = (unsigned)e->a, .token = e->b, .order = (uint64_t)(uintptr_t)e->size };

	s->counts->late_writes++;
	judge_write(s, &ghost);
	sim_event_free(s, e);
}

static void write_resource(struct sim *s, struct client *c)
{
	s->counts->writes++;
	judge_write(s, c);
	/* A write may be long under way: only the resource can stop it. */
	if (sim_chance(s, 10))
		sim_after(s, sim_random(s, 5 * SEC), late_write, NULL, c->name, c->token)->size = (uint32_t)c->order;
}

static void release(struct sim *s, struct node *n, unsigned i)
{
	struct client *c = &n->client[i];
	struct slot *sl = &n->slot[c->name];

	s->counts->releases++;
	sl->dirty = true;
	client_idle(s, n, i);
	slots_pump(s, n);
}

static void held(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	unsigned i = (unsigned)e->a;
	struct client *c = &n->client[i];
	struct slot *sl = &n->slot[c->name];

	if (!taken(s, e, true))
		return;
	if (elect_frozen(s))
		return;
	if (c->mode == EXCLUSIVE && !c->lost)
		write_resource(s, c);
	if (c->mode == SHARED && !c->lost && !c->upgrading && !n->leaves && sim_chance(s, 20) && node_ready(s, n) && sl->in_core && !sl->releasing &&
	    !sl->wanted && sl->held == 1) {
		unsigned readers = 0;
		for (unsigned k = 0; k < CLIENTS_MAX; k++)
			readers += n->client[k].state == HOLDING && n->client[k].name == c->name && !n->client[k].lost;
		if (readers == 1) {
			s->counts->upgrades++;
			c->upgrading = true;
			sl->wanted = CORE_WEIGHT_ALL;
			sl->upgrade = true;
			node_give(s, n, &(struct core_event){ .kind = CORE_EV_CHANGE, .change = { c->name, 1, CORE_WEIGHT_ALL, sl->used, true,
				  .delay = delay_draw(s, n, c->name) } });
			return;
		}
	}
	if (c->upgrading)
		return;
	if (c->mode == EXCLUSIVE && !c->lost && sim_chance(s, 15)) {
		s->counts->downgrades++;
		left_publish(s, n, c);
		c->mode = SHARED;
		sl->dirty = true;
		client_after(s, n, i, MSEC + sim_random(s, 40 * MSEC), held);
		slots_pump(s, n);
		return;
	}
	if (sim_chance(s, 5)) {
		s->counts->client_deaths++;
		left_death(s, n, c);
	} else {
		left_publish(s, n, c);
	}
	release(s, n, i);
}

/*
 * Each acquisition under an exclusive lease has a token of its own. All readers of a shared lease have one:
 * that of its grant, or the last of the range that it was cut down from, which is kept back for this.
 */
static void take_token(struct sim *s, struct node *n, struct slot *sl, struct client *c)
{
	uint64_t possible = (node_clock(s, n) - sl->granted_at) / 100 * 99, last = sl->range.count - 1;

	if (sl->held != CORE_WEIGHT_ALL) {
		c->token = sl->range.first + last;
		sl->used = sl->range.count;
		return;
	}
	c->token = sl->range.first + sl->used++;
	/* Others have taken the lock in between, as often as time allows; the last token but one is seen too. */
	if (sim_chance(s, 10) && possible > sl->used && last > sl->used)
		sl->used = possible < last - 1 ? possible : last - 1;
}

static void acquire(struct sim *s, struct node *n, unsigned i)
{
	struct client *c = &n->client[i];

	queue_remove(&n->slot[c->name], i);
	c->state = HOLDING;
	c->lost = c->upgrading = false;
	s->counts->tried += c->tries;
	c->tries = false;
	c->generation++;
	take_token(s, n, &n->slot[c->name], c);
	judge_acquired(s, n, c);
	left_found(s, n, c);
	client_after(s, n, i, MSEC + sim_random(s, sim_chance(s, 10) && sim_wild(s) ? 3 * SEC : 40 * MSEC), held);
}

/* --- The slot's dealings with the daemon --- */

static bool tokens_left(const struct slot *sl)
{
	return sl->held != CORE_WEIGHT_ALL || sl->used + 1 < sl->range.count;
}

static bool admit(struct sim *s, struct node *n, unsigned name)
{
	struct slot *sl = &n->slot[name];

	if (!sl->queue_n || !live(s, n) || sl->releasing)
		return false;
	unsigned i = sl->queue[0];
	const struct client *c = &n->client[i];

	if (sl->held < need(n, name, c) || !fits(n, name, c) || !holds(s, n) || !tokens_left(sl))
		return false;
	/* What is granted is used once, however soon another wants it. */
	if (sl->keep < sl->held && !sl->fresh) {
		if (!sl->budget)
			return false;
		sl->budget--;
		s->counts->handovers++;
	}
	sl->fresh = false;
	acquire(s, n, i);
	return true;
}

/* What is asked for if the head of the queue cannot go on with what is there. 0: nothing. */
static uint32_t want_of(const struct node *n, unsigned name, uint32_t held, uint32_t limit)
{
	const struct slot *sl = &n->slot[name];

	if (!sl->queue_n || n->leaves)
		return 0;
	uint64_t w = need(n, name, &n->client[sl->queue[0]]);
	if (w > limit)
		w = limit;
	return w > held ? (uint32_t)w : 0;
}

static void give_change(struct sim *s, struct node *n, unsigned name, uint32_t keep, uint32_t wanted)
{
	struct slot *sl = &n->slot[name];
	uint64_t used = sl->used;
	uint8_t bytes[CORE_VALUE_MAX];
	struct core_event ev = { .kind = CORE_EV_CHANGE, .change = { name, keep, wanted, 0, false } };

	if (keep < sl->held)
		ev.change.value = left_give(sl, &ev.change.died, bytes);
	if (keep < sl->held && keep && sl->held == CORE_WEIGHT_ALL)
		sl->range.count = sl->used = ++used;
	s->counts->yields += keep < sl->held;
	if (keep < sl->held)
		n->loss_names &= ~(1u << name);  /* whoever had it has ended by itself */
	if (keep < sl->held)
		elect_forget(sl);
	sl->held = keep;
	sl->wanted = wanted;
	sl->upgrade = false;
	if (keep <= sl->keep)
		sl->keep = CORE_WEIGHT_ALL;
	ev.change.used = used;
	/* Only a first claim has a priority: who gives back and wants again in one breath would go before all others for ever. */
	if (wanted && sl->queue_n)
		ev.change.tries = n->client[sl->queue[0]].tries;
	sl->asked_stamp = sl->limit_stamp;
	if (wanted)
		ev.change.delay = delay_draw(s, n, name);
	node_give(s, n, &ev);
}

static void give_release(struct sim *s, struct node *n, unsigned name)
{
	struct slot *sl = &n->slot[name];
	uint8_t bytes[CORE_VALUE_MAX];
	struct core_event ev = { .kind = CORE_EV_RELEASE, .release = { name, sl->used } };

	ev.release.value = left_give(sl, &ev.release.died, bytes);
	elect_forget(sl);
	sl->held = sl->wanted = 0;
	sl->keep = CORE_WEIGHT_ALL;
	sl->releasing = true;
	n->loss_names &= ~(1u << name);
	node_give(s, n, &ev);
}

/* One step of what the slot has to tell the daemon. */
static bool tell(struct sim *s, struct node *n, unsigned name)
{
	struct slot *sl = &n->slot[name];
	uint32_t limit = slot_limit(s, n, name), usage = slot_usage(n, name), wanted;
	bool refillable = !usage;
#ifdef SIM_BREAK_REFILL_OWNED
	refillable = true;
#endif

	if (!node_ready(s, n) || sl->releasing)
		return false;
	if (elect_tell(s, n, name))
		return true;
	if (sl->tried) {
		sl->tried = false;
		if (usage <= sl->tried_keep && !sl->queue_n) {
			sl->keep = sl->tried_keep;
			sl->budget = 0;
		} else if (sl->held) {
			s->counts->kept++;
			node_give(s, n, &(struct core_event){ .kind = CORE_EV_KEEP, .keep = { name } });
			return true;
		}
	}
	if (!sl->in_core) {
		wanted = want_of(n, name, 0, limit);
		if (!wanted)
			return false;
		const struct client *head = &n->client[sl->queue[0]];
		sl->in_core = true;
		sl->wanted = wanted;
		sl->asked_stamp = 0;
		node_give(s, n, &(struct core_event){ .kind = CORE_EV_CLAIM, .claim = {
			name, s->name[name].key, (uint16_t)strlen(s->name[name].key), wanted, s->name[name].limit, head->priority, head->tries,
			delay_draw(s, n, name) } });
		return true;
	}
	if (sl->upgrade)
		return false;
	if (sl->wanted && !sl->queue_n) {
		s->counts->cancels++;
		if (sl->held)
			give_change(s, n, name, sl->held, 0);
		else
			give_release(s, n, name);
		return true;
	}
	/* What cannot be had any more is not waited for. */
	if (sl->wanted && sl->wanted > limit) {
		wanted = want_of(n, name, sl->held, limit);
		if (sl->held || wanted)
			give_change(s, n, name, sl->held, wanted);
		else
			give_release(s, n, name);
		return true;
	}
	if (sl->keep < sl->held && usage < sl->held) {
		wanted = want_of(n, name, usage, limit);
		if (usage || wanted)
			give_change(s, n, name, usage, wanted);
		else
			give_release(s, n, name);
		return true;
	}
	if (sl->wanted)
		return false;
	wanted = want_of(n, name, sl->held, limit);
	if (wanted) {
		give_change(s, n, name, sl->held, wanted);
		return true;
	}
	/* The owner has gone, and no tokens are left. */
	if (sl->queue_n && sl->held && !tokens_left(sl) && refillable) {
		s->counts->refills++;
		sl->wanted = sl->held;
		node_give(s, n, &(struct core_event){ .kind = CORE_EV_REFILL, .refill = { name, sl->used } });
		return true;
	}
	if (!usage && !sl->queue_n && sl->held && (sim_chance(s, 5) || place_favours(s, n))) {
		s->counts->closes++;
		give_release(s, n, name);
		return true;
	}
	return false;
}

void slots_pump(struct sim *s, struct node *n)
{
	unsigned depth = n->depth++;

	for (bool again = true; again && !s->verdict[0];) {
		again = false;
		for (unsigned i = 0; i < s->names; i++) {
			if (!n->slot[i].dirty)
				continue;
			n->slot[i].dirty = false;
			while (admit(s, n, i))
				again = true;
			while (tell(s, n, i))
				again = true;
			again |= n->slot[i].dirty;
		}
	}
	n->depth = depth;
}

void slot_granted(struct sim *s, struct node *n, const struct core_action *a)
{
	unsigned name = a->name.ref;
	struct slot *sl = &n->slot[name];

	s->counts->grants++;
	s->counts->losts += a->name.lost;
	left_granted(s, sl, a);
	if (sl->held != CORE_WEIGHT_ALL)
		elect_forget(sl);
	s->counts->observed += a->name.observed && !sl->observed;
	sl->observed |= a->name.observed;
	sl->held = a->name.weight;
	sl->delay = sl->wanted_delay;
	sl->range = a->name.range;
	sl->used = 0;
	sl->wanted = 0;
	sl->keep = CORE_WEIGHT_ALL;
	sl->granted_at = node_clock(s, n);
	sl->fresh = true;
	sl->accounted = false;
	sl->dirty = true;
#ifdef SIM_BREAK_REFILL_OWNED
	for (unsigned i = 0; i < CLIENTS_MAX; i++)       /* the word that its token is computed from begins anew */
		if (n->client[i].state == HOLDING && n->client[i].name == name && !n->client[i].lost)
			n->client[i].token = sl->range.first;
#endif
	for (unsigned i = 0; sl->upgrade && i < CLIENTS_MAX; i++) {
		struct client *c = &n->client[i];

		if (c->state != HOLDING || c->name != name || !c->upgrading)
			continue;
		s->counts->upgraded++;
		c->upgrading = false;
		c->mode = EXCLUSIVE;
		c->generation++;
		take_token(s, n, sl, c);
		judge_acquired(s, n, c);
		left_found(s, n, c);
		client_after(s, n, i, MSEC + sim_random(s, 40 * MSEC), held);
	}
	sl->upgrade = false;
}

void slot_refused(struct sim *s, struct node *n, const struct core_action *a)
{
	struct slot *sl = &n->slot[a->name.ref];

	sl->wanted = 0;
	sl->upgrade = false;
	sl->dirty = true;
	sl->in_core = sl->held;
	if (a->name.error == -CORE_EBUSY && sl->queue_n && n->client[sl->queue[0]].tries) {
		unsigned i = sl->queue[0];

		s->counts->busy++;
		queue_remove(sl, i);
		client_idle(s, n, i);
	}
	if (!sl->held)
		slot_limit_forget(s, n, a->name.ref);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &n->client[i];

		if (c->state != HOLDING || c->name != a->name.ref || !c->upgrading)
			continue;
		s->counts->deadlocks++;
		c->upgrading = false;
		c->generation++;
		client_after(s, n, i, MSEC, held);
	}
}

/* The daemon that was asked for it is no more. */
void upgrades_forget(struct sim *s, struct node *n, unsigned name)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &n->client[i];

		if (c->state != HOLDING || c->name != name || !c->upgrading)
			continue;
		c->upgrading = false;
		c->generation++;
		client_after(s, n, i, MSEC, held);
	}
}

/* All holds are lost. What only waits goes on waiting, in the core too. */
void slots_lapsed(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < s->names; i++) {
		struct slot *sl = &n->slot[i];

		if (sl->held)
			judge_lost(s, n, i);
		for (unsigned k = 0; k < CLIENTS_MAX; k++) {
			struct client *c = &n->client[k];
			if (c->state != HOLDING || c->name != i)
				continue;
			c->lost = true;
			if (c->upgrading) {
				c->upgrading = false;
				client_after(s, n, k, MSEC, held);
			}
		}
		sl->dirty = true;
		sl->upgrade = false;
		sl->keep = CORE_WEIGHT_ALL;
		if (sl->in_core && !sl->held && sl->wanted && !sl->releasing)
			continue;
		sl->in_core = sl->releasing = false;
		sl->held = sl->wanted = 0;
		sl->left_fresh = sl->owner_died = sl->death_owed = false;
		elect_forget(sl);
		slot_limit_forget(s, n, i);
		sl->accounted = false;
	}
}

/* --- Clients --- */

static void give_up(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	unsigned i = (unsigned)e->a;

	if (!taken(s, e, n->client[i].state == WAITING && s->faults))
		return;
	struct slot *sl = &n->slot[n->client[i].name];
	queue_remove(sl, i);
	sl->dirty = true;
	client_idle(s, n, i);
	slots_pump(s, n);
}

static void resize(struct sim *s, struct node *n, unsigned name)
{
	struct core_event ev = { .kind = CORE_EV_RESIZE, .resize = { name, 1 + (uint32_t)sim_random(s, 9) } };

	s->counts->resizes++;
	if (ev.resize.limit > s->name[name].limit_most)
		s->name[name].limit_most = ev.resize.limit;
	node_give(s, n, &ev);
}

void slot_resized(struct sim *s, struct node *n, const struct core_action *a)
{
	struct slot *sl = &n->slot[a->name.ref];

	s->counts->resized++;
	if (a->name.number <= sl->limit_stamp)
		sim_no(s, "%s: node %u is told of a limit that is older than the one it knows", s->name[a->name.ref].key, n->id);
	sl->limit = a->name.weight;
	sl->limit_stamp = a->name.number;
	sl->dirty = true;
	s->counts->shrunk_below += sl->held > sl->limit;
	waiters_content(s, n, a->name.ref);
	judge_resized(s, n, a->name.ref);
}

/* For what it has chosen. */
void client_waits(struct sim *s, struct node *n, unsigned i)
{
	struct client *c = &n->client[i];
	struct slot *sl = &n->slot[c->name];

	c->state = WAITING;
	c->since = s->now;
	c->generation++;
	sl->queue[sl->queue_n++] = i;
	sl->dirty = true;
}

static void think(struct sim *s, struct event *e)
{
	struct node *n = e->node;
	unsigned i = (unsigned)e->a;
	struct client *c = &n->client[i];

	if (!taken(s, e, true))
		return;
	if (elect_frozen(s))
		return;
	if (s->faults && sim_chance(s, 8))
		elect_observe(s, n);
	c->name = (unsigned)sim_random(s, s->names);
	uint32_t limit = slot_limit(s, n, c->name);
	c->mode = limit != CORE_WEIGHT_ALL ? PERMITS : sim_chance(s, 60) ? EXCLUSIVE : SHARED;
	c->permits = c->mode == PERMITS ? 1 + (uint32_t)sim_random(s, limit) : 0;
	if (s->exam && !exam_ask(s, n, c))
		return;
	c->tries = s->faults && sim_chance(s, 15);
	c->priority = sim_chance(s, 4) ? 1 + (uint8_t)sim_random(s, 3) : 0;
	s->counts->tries += c->tries;
	s->counts->priorities += c->priority > 0;
	client_waits(s, n, i);
	if (c->tries)
		client_after(s, n, i, SEC, give_up);
	const struct slot *sl = &n->slot[c->name];
	if (sim_chance(s, 15))
		client_after(s, n, i, sim_random(s, 500 * MSEC), give_up);
	if (c->mode == PERMITS && s->faults && sim_chance(s, 10) && sl->in_core && !sl->releasing && node_ready(s, n))
		resize(s, n, c->name);
	slots_pump(s, n);
}

void clients_start(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		client_idle(s, n, i);
}

void clients_kill(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &n->client[i];

		*c = (struct client){ .generation = c->generation + 1 };
	}
	for (unsigned i = 0; i < s->names; i++)
		n->slot[i] = (struct slot){ .keep = CORE_WEIGHT_ALL };
}
