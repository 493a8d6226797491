/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One step: the event goes to member or reign, messages go to and fro until none is left, then what
 * was left over from before is gone on with while there is room in the list.
 */
#include "core.h"

#include "coord.h"
#include "core_int.h"
#include "range.h"

/* What one piece of work may add: four revokes or a grant in three actions, the news to four and a question, OPENED,
 * a request to the store, TIMER, FATAL. */
#define ROOM 16

/* What the time may have brought before the event. */
#define ROOM_TIME 20

/* A step takes about a millisecond at most. */
#define WORK_MAX 4096

#define MEMORY_RETRY_NS 100000000ull

const char *core_event_name(enum core_event_kind kind)
{
	static const char *const names[] = {
#define X(name) #name,
		CORE_EVENTS(X)
#undef X
	};
	return kind < CORE_ARRAY_N(names) ? names[kind] : "?";
}

const char *core_action_name(enum core_action_kind kind)
{
	static const char *const names[] = {
#define X(name) #name,
		CORE_ACTIONS(X)
#undef X
	};
	return kind < CORE_ARRAY_N(names) ? names[kind] : "?";
}

int core_create(const struct core_memory *mem, struct core **ret)
{
	struct core *c = mem->alloc(mem->arg, sizeof *c);

	if (!c)
		return -CORE_ENOMEM;
	memset(c, 0, sizeof *c);
	c->mem = *mem;
	int r = names_init(&c->names, &c->mem);
	peers_init(&c->peers, &c->mem);
	values_init(&c->values, &c->mem);
	member_init(&c->member, &c->mem, &c->names, &c->peers, &c->values);
	master_init(&c->master, &c->mem, &c->names, &c->peers, &c->values);
	barriers_init(&c->barriers, &c->mem, &c->member, &c->master, &c->peers);
	c->master.barriers = &c->barriers;
	if (r < 0) {
		core_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void core_free(struct core *c)
{
	if (!c)
		return;
	struct core_memory mem = c->mem;

	member_done(&c->member);
	master_done(&c->master);
	barriers_done(&c->barriers);
	names_done(&c->names);
	values_done(&c->values);
	cluster_done(c);
	peers_done(&c->peers);
	mem.free(mem.arg, c, sizeof *c);
}

static int start(struct core *c, const struct core_event *ev, struct step *s)
{
	struct msg_peer self = { ev->start.session, ev->start.incarnation };

	if (c->reign.state != REIGN_NONE || c->cluster.on || !self.session || !self.incarnation)
		return -CORE_EINVAL;
	if (ev->start.cluster) {
		int r = cluster_start(c, ev, s);
		if (r == 0)
			barriers_begin(&c->barriers);
		return r;
	}
	peers_self(&c->peers)->id = self;
	member_begin(&c->member, self);
	barriers_begin(&c->barriers);
	master_begin(&c->master, self);
	reign_start(&c->reign, self, c->member.held_epoch, ev->start.epoch_min, s);
	return 0;
}

/* Of an event; the judges of events look at it before it is kept. */
static int value_in(struct core *c, const struct core_value *v, uint32_t *ret)
{
	*ret = 0;
	if (v->state != CORE_VALUE_KNOWN || v->len > CORE_VALUE_MAX || (v->len && !v->bytes))
		return 0;
	return value_make(&c->values, v, ret);
}

static int adopt(struct core *c, const struct core_event *ev)
{
	if (c->reign.state != REIGN_NONE || c->cluster.on)
		return -CORE_EINVAL;
	uint32_t value;
	int r = value_in(c, &ev->adopt.value, &value);

	if (r < 0)
		return r;
	r = member_adopt(&c->member, ev, value);
	value_drop(&c->values, value);
	return r;
}

/* The claim may reach the master of this node within the step. */
static int claim(struct core *c, const struct core_event *ev, struct step *s)
{
	int r = c->cluster.leave.on ? -CORE_ESHUTDOWN : master_reserve(&c->master);

	return r < 0 ? r : member_claim(&c->member, ev, s);
}

static int store_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	shard_set_t new;

	if (c->cluster.on)
		return cluster_answer(c, ev, s);
	int r = reign_answer(&c->reign, ev, s, &new);

	if (r < 0)
		return r;
	for (; new; new &= new - 1) {
		unsigned shard = (unsigned)__builtin_ctzll(new);
		const struct map_reign *to = &c->reign.map.shard[shard];

		c->raises += c->master.shard[shard].epoch != 0;
		master_reign(&c->master, shard, to->epoch, true);
		member_reign(&c->member, shard, to->master, to->epoch);
	}
	return 0;
}

/* It may claim anew. */
static int change(struct core *c, const struct core_event *ev, struct step *s)
{
	int r = c->cluster.leave.on && ev->change.wanted ? -CORE_ESHUTDOWN : master_reserve(&c->master);
	uint32_t value;

	if (r < 0 || (r = value_in(c, &ev->change.value, &value)) < 0)
		return r;
	r = member_change(&c->member, ev, value, s);
	value_drop(&c->values, value);
	return r;
}

static int proclaimed(struct core *c, const struct core_event *ev, struct step *s)
{
	int r = master_reserve(&c->master);
	uint32_t value;

	if (r < 0 || (r = value_in(c, &ev->proclaim.value, &value)) < 0)
		return r;
	r = member_proclaim(&c->member, ev, value, s);
	value_drop(&c->values, value);
	return r;
}

/* What it leaves behind may reach the master of this node within the step. */
static int release(struct core *c, const struct core_event *ev, struct step *s)
{
	uint32_t value;
	int r = ev->release.value.state == CORE_VALUE_NONE && !ev->release.died ? 0 : master_reserve(&c->master);

	if (r < 0 || (r = value_in(c, &ev->release.value, &value)) < 0)
		return r;
	r = member_release(&c->member, ev, value, s);
	value_drop(&c->values, value);
	return r;
}

static int among_others(struct core *c, const struct core_event *ev, void (*take)(struct core *, const struct core_event *))
{
	if (!c->cluster.on)
		return -CORE_EINVAL;
	take(c, ev);
	return 0;
}

static int event_take(struct core *c, const struct core_event *ev, struct step *s)
{
	int r;

	switch (ev->kind) {
	case CORE_EV_START:
		return start(c, ev, s);
	case CORE_EV_ADOPT:
		return adopt(c, ev);
	case CORE_EV_CLAIM:
		return claim(c, ev, s);
	case CORE_EV_REFILL:
		return member_refill(&c->member, ev->refill.ref, ev->refill.used, s);
	case CORE_EV_RELEASE:
		return release(c, ev, s);
	case CORE_EV_CHANGE:
		return change(c, ev, s);
	case CORE_EV_RESIZE:
		r = master_reserve(&c->master);
		return r < 0 ? r : member_resize(&c->member, ev, s);
	case CORE_EV_ADOPT_BARRIER:
	case CORE_EV_ADOPT_PARTY:
		if (c->reign.state != REIGN_NONE || c->cluster.on)
			return -CORE_EINVAL;
		return barriers_event(&c->barriers, ev, s);
	case CORE_EV_ARRIVE:
	case CORE_EV_RESET:
		if (c->cluster.leave.on)
			return -CORE_ESHUTDOWN;
		return barriers_event(&c->barriers, ev, s);
	case CORE_EV_WITHDRAW:
	case CORE_EV_DEPART:
	case CORE_EV_CLOSE:
		return barriers_event(&c->barriers, ev, s);
	case CORE_EV_KEEP:
		return member_keep(&c->member, ev->keep.ref, s);
	case CORE_EV_OBSERVE:
		r = master_reserve(&c->master);
		return r < 0 ? r : member_observe(&c->member, ev, s);
	case CORE_EV_PROCLAIM:
		return proclaimed(c, ev, s);
	case CORE_EV_ENQUIRE:
		return member_enquire(&c->member, ev, s);
	case CORE_EV_STORE:
		return store_answer(c, ev, s);
	case CORE_EV_LINK_UP:
		return among_others(c, ev, cluster_link_up);
	case CORE_EV_LINK_DOWN:
		return among_others(c, ev, cluster_link_down);
	case CORE_EV_RECV:
		return c->cluster.on ? cluster_recv(c, ev, s) : -CORE_EINVAL;
	case CORE_EV_HINT:
		if (c->cluster.on)
			cluster_hint(c, s->now);
		return 0;
	case CORE_EV_LOSS_DONE:
		c->cluster.session.loss_done |= c->cluster.session.loss;
		return 0;
	case CORE_EV_DRAIN:
		if (!c->cluster.on)
			return -CORE_EINVAL;
		cluster_drain(c, !ev->drain.off || c->cluster.leave.on); /* who leaves does not think better of it */
		return 0;
	case CORE_EV_LEAVE:
		if (!c->cluster.on)
			return -CORE_EINVAL;
		leave_begin(c, ev->leave.patience);
		return 0;
	case CORE_EV_TIMER:
		c->timer = 0;
		c->cluster.plan_due = true;
		return 0;
	case CORE_EV_CONTINUE:
		return 0;
	}
	return -CORE_EINVAL;
}

static void message_deliver(struct core *c, const struct msg *msg, struct step *s)
{
	core_assert(msg_peer_same(msg->to, c->member.self));
	switch (msg_receiver(msg->kind)) {
	case MSG_TO_MASTER:
		master_receive(&c->master, msg, s);
		return;
	case MSG_TO_MEMBER:
		member_receive(&c->member, msg, s);
		return;
	case MSG_TO_BARRIER_MASTER:
		barriers_master_receive(&c->barriers, msg, s);
		return;
	case MSG_TO_BARRIER_MEMBER:
		barriers_member_receive(&c->barriers, msg, s);
		return;
	case MSG_TO_COORDINATOR:
		place_hear(c, msg, s->now);
		return;
	}
}

/* Once all that is being opened is open: one OPENED for it, with the highest epoch. */
static void opened_say(struct core *c, struct step *s)
{
	uint32_t epoch = 0;

	if (!c->master.opened || (c->master.opening && !c->cluster.on))
		return;
	for (; c->master.opened; c->master.opened &= c->master.opened - 1) {
		const struct master_shard *sh = &c->master.shard[__builtin_ctzll(c->master.opened)];
		if (sh->epoch > epoch)
			epoch = sh->epoch;
	}
	step_act(s, CORE_ACT_OPENED)->node.epoch = epoch;
}

static void messages_run(struct core *c, struct step *s)
{
	struct msg msg;

	while (msg_get(&c->queue, &msg))
		message_deliver(c, &msg, s);
	opened_say(c, s);
	if (c->cluster.on)
		c->cluster.raise |= c->master.raise;
	else if (c->master.raise & ~c->reign.raise)
		reign_raise(&c->reign, c->master.raise, s);
}

/* Where this node's member begins to sync to a master that follows this node's own, that is told first. */
static void handover_begin(struct core *c)
{
	for (shard_set_t left = c->member.begun & c->master.frozen; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);

		master_tell(&c->master, i, c->member.master[i], c->member.epoch[i]);
	}
	c->member.begun = 0;
}

/* First every lease is told, then those that wait are served: grants come after OPENED. */
static bool work_one(struct core *c, struct step *s)
{
	handover_begin(c);
	if (cluster_work(c, s))
		return true;
	if (member_busy(&c->member)) {
		int r = barriers_sync(&c->barriers, s);
		if (r < 0)
			c->memory_at = s->now + MEMORY_RETRY_NS;
		if (r)
			return r > 0;
		if (!member_ending(&c->member) && master_reserve(&c->master) < 0) {
			c->memory_at = s->now + MEMORY_RETRY_NS;
			return false;
		}
		return member_work(&c->member, s);
	}
	if (c->master.ended && master_reserve(&c->master) < 0) {
		c->memory_at = s->now + MEMORY_RETRY_NS;
		return false;
	}
	return barriers_member_work(&c->barriers, s) || barriers_master_work(&c->barriers, s) || master_work(&c->master, s);
}

static bool work_left(const struct core *c)
{
	return c->reign.state != REIGN_DEAD && !c->memory_at && (member_busy(&c->member) || master_busy(&c->master) || cluster_busy(c) ||
	       barriers_busy(&c->barriers));
}

static void work(struct core *c, struct step *s)
{
	if (c->memory_at && s->now >= c->memory_at)
		c->memory_at = 0;
	c->master.now = s->now;
	messages_run(c, s);
	for (unsigned i = 0; work_left(c) && s->actions->n + ROOM <= CORE_ACTIONS_MAX; i++) {
		/* Shards open one after the other, but between them no event comes: OPENED is before any grant. */
		if (i >= WORK_MAX && !member_ending(&c->member))
			break;
		if (work_one(c, s))
			messages_run(c, s);
	}
	if (!c->cluster.on)
		reign_tick(&c->reign, s);
	else if (s->actions->n + ROOM_TIME <= CORE_ACTIONS_MAX)
		cluster_tick(c, s);
	c->delay_at = master_tick(&c->master, s->now);
}

/* The timer that is out is the one that is wanted. */
static void timer_set(struct core *c, struct step *s)
{
	core_nsec_t want = c->reign.state == REIGN_PAUSED ? c->reign.retry_at : 0;

	if (c->cluster.on)
		want = cluster_next(c, s->now);
	if (c->delay_at && (!want || c->delay_at < want))
		want = c->delay_at;
	if (c->memory_at && (!want || c->memory_at < want))
		want = c->memory_at;
	if (!want || want == c->timer)
		return;
	c->timer = want;
	step_act(s, CORE_ACT_TIMER)->timer.when = want;
}

int core_step(struct core *c, const struct core_event *ev, struct core_actions *ret)
{
	struct step s = { .actions = ret, .queue = &c->queue, .peers = &c->peers, .frame = c->frame, .barrier = c->barrier };

	ret->n = 0;
	c->cluster.nobody_asked = false;
	ret->more = work_left(c);
	values_collect(&c->values);
	if (c->reign.state == REIGN_DEAD)
		return -CORE_ENOTRECOVERABLE;
	if (ev->now > c->now)
		c->now = ev->now;
	s.now = c->now;
	c->master.now = s.now;
	/* What the time has taken must not be granted or used by this event (S2). */
#ifndef CORE_BREAK_LAPSE_LATE
	if (c->cluster.on)
		cluster_tick(c, &s);
#endif
	int r = event_take(c, ev, &s);
	if (r < 0 && ret->n && c->reign.state != REIGN_DEAD) {
		timer_set(c, &s);
		ret->more = work_left(c);
	}
	if (r < 0)
		return r;
	if (c->reign.state != REIGN_DEAD)
		work(c, &s);
	if (c->reign.state != REIGN_DEAD)
		timer_set(c, &s);
	ret->more = work_left(c);
	core_assert(c->queue.n == 0);
	return 0;
}

void core_stats(const struct core *c, struct core_stats *ret)
{
	*ret = (struct core_stats){
		.epoch = map_epoch_max(&c->reign.map), .names = c->member.leases, .waiting = c->member.waiting,
		.grants = c->member.grants, .refills = c->member.refills, .releases = c->member.releases,
		.absurd = c->member.absurd, .raises = c->raises, .store_error = c->reign.error,
		.open = c->master.open == ~(shard_set_t)0,
	};
	if (c->cluster.on) {
		ret->epoch = 0;
		ret->open = !c->master.opening;
	}
	ret->odd = c->cluster.odd.members + c->cluster.odd.beats;
	ret->left_out = c->cluster.odd.left_out;
	ret->silent = c->cluster.on ? coord_silent(c) : 0;
	for (unsigned i = 0; c->cluster.map.serial && i < CORE_SHARDS; i++) {
		uint64_t master = c->cluster.map.map.shard[i].master.session;
		const struct peer *p = peers_find((struct peers *)&c->peers, master);

		ret->orphans += !p || !p->listed;
	}
	for (unsigned i = 0; c->cluster.on && i < CORE_SHARDS; i++) {
		ret->opening += (c->master.opening & shard_bit(i)) != 0;
		if (c->master.open & shard_bit(i) && c->master.shard[i].epoch > ret->epoch)
			ret->epoch = c->master.shard[i].epoch;
	}
	if (!c->cluster.on && !c->reign.begun)
		ret->epoch = 0;
}

static unsigned shards_n(shard_set_t shards)
{
	unsigned n = 0;

	for (; shards; shards &= shards - 1)
		n++;
	return n;
}

static shard_set_t shards_of(const struct core *c, struct msg_peer who)
{
	shard_set_t all = 0;

	for (unsigned i = 0; c->cluster.map.serial && i < CORE_SHARDS; i++)
		if (c->cluster.map.map.shard[i].master.session == who.session)
			all |= shard_bit(i);
	return all;
}

bool core_member_next(const struct core *c, unsigned *at, struct core_member *ret)
{
	while (c->cluster.on && *at < c->peers.n) {
		const struct peer *p = &c->peers.v[(*at)++];

		if (!p->listed)
			continue;
		shard_set_t shards = shards_of(c, p->id);
		*ret = (struct core_member){
			.session = p->id.session, .node = p->node, .incarnation = p->id.incarnation,
			.name = peer_name(p), .address = peer_address(p), .self = p == c->peers.v,
			.may_master = p->may_master, .drains = p->drains, .linked = peer_linked(&c->peers, p), .via = p->via,
			.shards = shards_n(shards), .placed = shards_n(shards & c->cluster.map.map.placed),
			.coordinates = c->cluster.map.serial && c->cluster.map.coordinator == p->id.session,
		};
		return true;
	}
	return false;
}

uint64_t core_master(const struct core *c, const char *key, uint16_t len)
{
	return c->cluster.on && c->cluster.map.serial ? c->cluster.map.map.shard[shard_of(key, len)].master.session : 0;
}
