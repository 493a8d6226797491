/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A node's daemon: what a real one does around the core, and how it stops, dies and comes back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/range.h"
#include "sim.h"

static void *memory_alloc(void *arg, size_t n)
{
	(void)arg;
	return malloc(n);
}

static void memory_free(void *arg, void *p, size_t n)
{
	(void)arg;
	(void)n;
	free(p);
}

bool node_ready(const struct sim *s, const struct node *n)
{
	return n->core && s->now >= n->paused_until && s->now >= n->host_paused_until;
}

void node_defer(struct node *n, struct event *e)
{
	e->next = NULL;
	*n->inbox_end = e;
	n->inbox_end = &e->next;
}

/* What came while it was paused. */
void node_inbox(struct sim *s, struct node *n)
{
	struct event *e = n->inbox, *next;

	n->inbox = NULL;
	n->inbox_end = &n->inbox;
	for (; e; e = next) {
		next = e->next;
		e->fn(s, e);
	}
}

bool node_takes(struct sim *s, struct event *e, bool still)
{
	if (e->node->generation != e->generation || !still) {
		sim_event_free(s, e);
		return false;
	}
	if (node_ready(s, e->node))
		return true;
	node_defer(e->node, e);
	return false;
}

static void daemon_end(struct sim *s, struct node *n, bool adopted, uint64_t span);

/* --- Actions --- */

static void timer(struct sim *s, struct event *e)
{
	struct node *n = e->node;

	if (!node_takes(s, e, n->timer == e->number))
		return;
	n->wakes = s->now - n->woken_at <= 10 ? n->wakes + 1 : 0;
	n->woken_at = s->now;
	if (n->wakes > 1000)
		sim_no(s, "node %u wakes again and again, and does nothing", n->id);
	node_give(s, n, &(struct core_event){ .kind = CORE_EV_TIMER });
	sim_event_free(s, e);
}

/* What is left of a step that the daemon has put off. */
static void go_on(struct sim *s, struct event *e)
{
	if (!node_takes(s, e, true))
		return;
	node_give(s, e->node, &(struct core_event){ .kind = CORE_EV_CONTINUE });
	sim_event_free(s, e);
}

static void loss_done(struct sim *s, struct event *e)
{
	if (!node_takes(s, e, true))
		return;
	e->node->loss_due = 0;
	node_give(s, e->node, &(struct core_event){ .kind = CORE_EV_LOSS_DONE });
	sim_event_free(s, e);
}

/* It has left. Whoever starts it again has another node, and the clients that still wait. */
static void stop(struct sim *s, struct event *e)
{
	struct node *n = e->node;

	if (n->generation == e->generation && n->core)
		daemon_end(s, n, false, 100 * MSEC + sim_random(s, 3 * SEC));
	sim_event_free(s, e);
}

static void act_loss(struct sim *s, struct node *n)
{
	uint64_t span = sim_random(s, s->conf.loss + s->conf.guard);

	judge_warned(s, n);
	s->counts->losses++;
	n->loss_due = s->now + span + 1;
	n->loss_names = 0;
	n->loss_any = false;
	for (unsigned i = 0; i < s->names; i++)
		n->loss_any |= n->slot[i].held == CORE_WEIGHT_ALL;
	/* Who comes to it only after the deadline, because it was stopped or dead, can promise nothing. */
	for (unsigned i = 0; holds(s, n) && i < s->names; i++)
		if (n->slot[i].held == CORE_WEIGHT_ALL)
			n->loss_names |= 1u << i;
	sim_after(s, span, loss_done, n, 0, 0);
}

static void act_deadline(struct sim *s, struct node *n, uint64_t when)
{
	judge_deadline(s, n);
	n->jeopardy &= when <= n->deadline;
	n->deadline = when;
}

static void want(struct node *n, uint64_t session)
{
	for (unsigned i = 0; i < n->wants_n; i++)
		if (n->wants[i] == session)
			return;
	if (n->wants_n < sizeof n->wants / sizeof *n->wants)
		n->wants[n->wants_n++] = session;
}

/* It is told where to dial. */
static void link_look(struct sim *s, const struct core_action *a)
{
	char address[24], name[16];

	snprintf(address, sizeof address, "10.0.0.%u:7117", (unsigned)a->session.node - 1);
	snprintf(name, sizeof name, "node%u", (unsigned)a->session.node - 1);
	if (strcmp(address, a->session.address) || strcmp(name, a->session.name))
		sim_no(s, "a link is wanted to %s at %s", a->session.name, a->session.address);
}

static void want_not(struct node *n, uint64_t session)
{
	for (unsigned i = 0; i < n->wants_n; i++)
		if (n->wants[i] == session)
			n->wants[i--] = n->wants[--n->wants_n];
}

static void act_name(struct sim *s, struct node *n, const struct core_action *a)
{
	unsigned i = a->name.ref;
	struct ledger_entry *l = &n->ledger[i];

	switch (a->kind) {
	case CORE_ACT_LEDGER_GRANT:
		*l = (struct ledger_entry){ a->name.weight, a->name.range, a->name.number, l->held ? l->left : left_of(s, &a->name.value),
					    a->name.lost, n->slot[i].wanted_delay };
		return;
	case CORE_ACT_NEWS:
		judge_news(s, n, a);
		return;
	case CORE_ACT_OBSERVED:
		s->counts->observed++;
		n->slot[i].observed = true;
		n->slot[i].told = false;
		n->slot[i].dirty = true;
		return;
	case CORE_ACT_RESIZED:
		slot_resized(s, n, a);
		return;
	case CORE_ACT_CHANGED:
		l->held = a->name.weight;
		l->range = a->name.range;
		return;
	case CORE_ACT_LEDGER_RELEASE:
		*l = (struct ledger_entry){ 0 };
		return;
	case CORE_ACT_GRANT:
		judge_grant(s, n, a);
		slot_granted(s, n, a);
		return;
	case CORE_ACT_REFUSED:
		slot_refused(s, n, a);
		return;
	case CORE_ACT_REVOKE:
		s->counts->revokes++;
		if (a->name.tries) {
			n->slot[i].tried = n->slot[i].dirty = true;
			n->slot[i].tried_keep = a->name.weight;
			return;
		}
		n->slot[i].keep = a->name.weight;
		n->slot[i].budget = (unsigned)sim_random(s, 4);
		n->slot[i].dirty = true;
		return;
	case CORE_ACT_FORGOTTEN:
		n->slot[i].in_core = n->slot[i].releasing = n->slot[i].death_owed = false;
		slot_limit_forget(s, n, i);
		n->slot[i].dirty = true;
		return;
	default:
		return;
	}
}

static void act(struct sim *s, struct node *n, const struct core_action *a)
{
	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
	case CORE_ACT_STORE_LIST:
		store_request(s, n, a);
		return;
	case CORE_ACT_SEND:
		net_send(s, n, a);
		return;
	case CORE_ACT_LINK:
		link_look(s, a);
		want(n, a->session.session);
		return;
	case CORE_ACT_UNLINK:
		want_not(n, a->send.session);
		return;
	case CORE_ACT_DEADLINE:
		act_deadline(s, n, a->timer.when);
		return;
	case CORE_ACT_JEOPARDY:
		s->counts->jeopardies++;
		n->jeopardy = true;
		return;
	case CORE_ACT_LOSS:
		act_loss(s, n);
		return;
	case CORE_ACT_LAPSED:
		s->counts->lapses++;
		n->ended_at = s->now;
		slots_lapsed(s, n);
		n->deadline = 0;
		memset(n->ledger, 0, sizeof n->ledger);
		return;
	case CORE_ACT_SESSION:
		net_break_node(s, n);
		n->session = a->session.session;
		n->incarnation = a->session.incarnation;
		return;
	case CORE_ACT_RELAYED:
		s->counts->relays++;
		net_relayed(s, n, a->session.via);
		return;
	case CORE_ACT_ENDED:
	case CORE_ACT_ODD:
		return;
	case CORE_ACT_COMPLAINT:
		s->counts->complaints++;
		return;
	case CORE_ACT_CUT_OFF:
		s->counts->self_lapses++;
		n->jeopardy = true;                /* as good a warning */
		cuts_ended(s, n);
		return;
	case CORE_ACT_OPENED:
		s->counts->reigns++;
		return;
	case CORE_ACT_DRAINED:
		s->counts->drained++;
		return;
	case CORE_ACT_LEFT:
		s->counts->left++;
		judge_left(s, n, a->node.error);
		sim_after(s, 0, stop, n, 0, 0);
		return;
	case CORE_ACT_TIMER: {
		uint64_t at = node_clock_at(s, n, a->timer.when);
		n->timer = sim_after(s, at - s->now, timer, n, 0, 0)->number;
		return;
	}
	case CORE_ACT_ACCOUNT:
		sim_no(s, "node %u: nobody has enquired", n->id);
		return;
	case CORE_ACT_FATAL:
		sim_no(s, "node %u: %s", n->id, a->node.why);
		return;
	case CORE_ACT_LEDGER_ARRIVE:
	case CORE_ACT_LEDGER_BARRIER:
	case CORE_ACT_VERDICT:
	case CORE_ACT_RESET_DONE:
		barrier_act(s, n, a);
		return;
	case CORE_ACT_LEDGER_GRANT:
	case CORE_ACT_GRANT:
	case CORE_ACT_LEDGER_RELEASE:
	case CORE_ACT_FORGOTTEN:
	case CORE_ACT_REFUSED:
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_NEWS:
	case CORE_ACT_OBSERVED:
		act_name(s, n, a);
		return;
	}
}

static void trace_action(struct sim *s, const struct node *n, const struct core_action *a)
{
	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
	case CORE_ACT_STORE_LIST:
		sim_trace(s, "  %u %s %s", n->id, core_action_name(a->kind), a->store.key);
		return;
	case CORE_ACT_LEDGER_GRANT:
	case CORE_ACT_GRANT:
	case CORE_ACT_LEDGER_RELEASE:
	case CORE_ACT_FORGOTTEN:
	case CORE_ACT_REFUSED:
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_NEWS:
	case CORE_ACT_OBSERVED:
		sim_trace(s, "  %u %s %s weight %u token %u:%llu+%llu%s", n->id, core_action_name(a->kind), s->name[a->name.ref].key,
			  a->name.weight, token_epoch(a->name.range.first), (unsigned long long)token_counter(a->name.range.first),
			  (unsigned long long)a->name.range.count, a->name.lost ? " lost" : "");
		return;
	case CORE_ACT_LEDGER_BARRIER:
		sim_trace(s, "  %u %s %u state %u round %llx upto %llx ask %llx last %llx", n->id, core_action_name(a->kind), a->barrier.ref,
			  a->barrier.record->state, (unsigned long long)a->barrier.record->now.round,
			  (unsigned long long)a->barrier.record->upto, (unsigned long long)a->barrier.record->ask_round,
			  (unsigned long long)a->barrier.record->last.round);
		return;
	case CORE_ACT_LEDGER_ARRIVE:
	case CORE_ACT_VERDICT:
		sim_trace(s, "  %u %s %u party %llu round %llx error %d%s%s", n->id, core_action_name(a->kind), a->barrier.ref,
			  (unsigned long long)a->barrier.party, (unsigned long long)a->barrier.round, a->barrier.error,
			  a->barrier.yes ? " yes" : "", a->barrier.serial ? " serial" : "");
		return;
	default:
		sim_trace(s, "  %u %s", n->id, core_action_name(a->kind));
	}
}

static void trace_send(struct sim *s, const struct node *n, const struct core_action *a);
static void trace_recv(struct sim *s, const struct node *n, const struct core_event *ev);

/* One event and all that follows from it. The daemon may die between any two actions. */
void node_give(struct sim *s, struct node *n, const struct core_event *event)
{
	struct core_event ev = *event;
	uint64_t generation = n->generation;

	for (;;) {
		ev.now = node_clock(s, n);
		if (ev.kind == CORE_EV_RECV)
			trace_recv(s, n, &ev);
		else
			sim_trace(s, "%u %s", n->id, core_event_name(ev.kind));
		s->counts->steps++;
		int r = core_step(n->core, &ev, &n->actions);
		if (ev.kind != CORE_EV_CONTINUE)
			n->result = r;
		bool of_barrier = ev.kind >= CORE_EV_ARRIVE && ev.kind <= CORE_EV_CLOSE;
		if (r < 0 && !of_barrier && r != -ESTALE && ev.kind != CORE_EV_RELEASE && ev.kind != CORE_EV_RESIZE && ev.kind != CORE_EV_KEEP && ev.kind != CORE_EV_PROCLAIM &&
		    ev.kind != CORE_EV_OBSERVE && ev.kind != CORE_EV_CHANGE && ev.kind != CORE_EV_REFILL)
			sim_no(s, "node %u: %s says %d", n->id, core_event_name(ev.kind), r);
		for (unsigned i = 0; i < n->actions.n; i++) {
			if (sim_wild(s) && sim_random(s, 40000) == 0) {
				s->counts->torn++;
				node_crash(s, n);
				return;
			}
			if (n->actions.v[i].kind == CORE_ACT_SEND)
				trace_send(s, n, &n->actions.v[i]);
			else
				trace_action(s, n, &n->actions.v[i]);
			act(s, n, &n->actions.v[i]);
		}
		if (!n->actions.more)
			break;
		if (sim_wild(s) && sim_random(s, 4) == 0) {
			sim_after(s, sim_random(s, 3 * MSEC), go_on, n, 0, 0);
			break;
		}
		ev = (struct core_event){ .kind = CORE_EV_CONTINUE };
	}
	if (n->depth == 0 && n->generation == generation) {
		n->depth++;
		slots_pump(s, n);
		if (n->core)
			parties_pump(s, n);
		n->depth--;
	}
}

/* --- Life and death --- */

static void slots_adopt(struct sim *s, struct node *n)
{
	for (unsigned i = 0; i < s->names; i++) {
		struct slot *sl = &n->slot[i];
		struct ledger_entry l = n->ledger[i];

#ifdef SIM_BREAK_ADOPT_SLOTS
		l.held = sl->held;
		if (l.held && !l.range.count)
			l.range = sl->range;
#endif
		upgrades_forget(s, n, i);
		sl->in_core = l.held;
		if (!l.held)
			slot_limit_forget(s, n, i);
		sl->releasing = sl->upgrade = false;
		sl->wanted = 0;
		sl->keep = CORE_WEIGHT_ALL;
		sl->dirty = true;
		if (l.held)
			left_adopt(sl, &l);
		/* What the segment says is no authority. Where it holds less, the release was on its way to the ledger. */
		if (l.held != sl->held || l.range.first != sl->range.first) {
			sl->used = l.range.first == sl->range.first ? sl->used : 0;
			sl->held = l.held;
			sl->range = l.range;
		}
		if (!l.held)
			continue;
		struct core_event ev = { .kind = CORE_EV_ADOPT, .adopt = {
			i, s->name[i].key, (uint16_t)strlen(s->name[i].key), l.range, l.number, l.held, s->name[i].limit } };
		uint8_t bytes[CORE_VALUE_MAX];
		ev.adopt.value = left_value(&sl->left, bytes);
		ev.adopt.present = sl->limit;
		ev.adopt.limit_stamp = sl->limit_stamp;
		sl->delay = sl->wanted_delay = ev.adopt.delay = l.delay;
		ev.adopt.died = sl->death_owed || (l.lost && l.held == 1 && s->name[i].limit == CORE_WEIGHT_ALL);
		node_give(s, n, &ev);
	}
}

void node_start(struct sim *s, struct node *n, bool adopt)
{
	struct core_event ev = { .kind = CORE_EV_START, .start.cluster = &s->conf };
	char address[24], name[16];

	n->mem = (struct core_memory){ .alloc = memory_alloc, .free = memory_free, .seed = { sim_random(s, 0), sim_random(s, 0) } };
	s->conf.node = n->id + 1;
	snprintf(address, sizeof address, "10.0.0.%u:7117", n->id);
	snprintf(name, sizeof name, "node%u", n->id);
	s->conf.address = address;
	s->conf.name = name;
	s->conf.may_master = n->id < 3 || n->id % 4;
	if (core_create(&n->mem, &n->core) < 0)
		abort();
	n->drains = n->leaves = false;
	n->depth = 1;
	if (adopt && n->deadline) {
		s->counts->adoptions++;
		s->counts->late_adoptions += node_clock(s, n) >= n->deadline;
		slots_adopt(s, n);
		ev.start.session = n->session;
		ev.start.incarnation = n->incarnation + 1;
		ev.start.deadline = n->deadline;
	} else {
		slots_lapsed(s, n);
		n->deadline = 0;
		memset(n->ledger, 0, sizeof n->ledger);
		for (unsigned i = 0; i < s->names; i++)
			n->slot[i].in_core = false, n->slot[i].wanted = 0, n->slot[i].dirty = true, slot_limit_forget(s, n, i);
		ev.start.session = sim_random(s, 0) | 1;
		ev.start.incarnation = 1;
	}
	sim_trace(s, "%u starts%s", n->id, ev.start.deadline ? " and adopts" : "");
	barriers_adopt(s, n, adopt);
	if (n->core)
		node_give(s, n, &ev);
	if (n->core)
		elect_started(s, n);
	n->depth = 0;
	if (n->core)
		slots_pump(s, n);
	if (n->core)
		parties_pump(s, n);
}

static void restart(struct sim *s, struct event *e)
{
	struct node *n = e->node;

	if (n->generation == e->generation && !n->core) {
		if (!n->host)
			clients_start(s, n);
		n->host = true;
		node_start(s, n, e->a);
		script_begun(s, n);
	}
	sim_event_free(s, e);
}

/* The daemon ends; segment, ledger and clients stay. */
static void daemon_end(struct sim *s, struct node *n, bool adopted, uint64_t span)
{
	struct event *e, *next;

	core_free(n->core);
	n->core = NULL;
	n->generation++;
	n->last_disturbed = s->now;
	if (!adopted)
		n->ended_at = s->now;
	n->loss_due = 0;
	n->wants_n = 0;
	n->depth = 0;
	net_break_node(s, n);
	for (e = n->inbox; e; e = next) {
		next = e->next;
		e->fn(s, e);
	}
	n->inbox = NULL;
	n->inbox_end = &n->inbox;
	n->jeopardy = false;
	sim_after(s, span, restart, n, adopted, 0);
}

static void crash(struct sim *s, struct node *n, bool lost, uint64_t span)
{
	sim_trace(s, "%u: the daemon dies", n->id);
	s->counts->crashes++;
	s->counts->ledgers_lost += lost;
	daemon_end(s, n, !lost, span);
}

void node_crash(struct sim *s, struct node *n)
{
	bool lost = sim_chance(s, 15);

	crash(s, n, lost, sim_random(s, sim_chance(s, 30) ? 4 * SEC : 300 * MSEC));
}

/* Soon there is another daemon, which goes on with the session. */
void node_restart(struct sim *s, struct node *n)
{
	s->counts->restarts++;
	crash(s, n, false, 20 * MSEC + sim_random(s, 300 * MSEC));
}

/* The machine dies, and its clients with it, and is back after that span. */
void node_host_crash(struct sim *s, struct node *n, uint64_t span)
{
	if (!n->host)
		return;
	s->counts->host_crashes++;
	if (n->core)
		node_crash(s, n);
	n->generation++;
	n->host = false;
	n->ended_at = s->now;
	slots_lapsed(s, n);
	n->deadline = 0;
	memset(n->ledger, 0, sizeof n->ledger);
	clients_kill(s, n);
	parties_kill(s, n);
	sim_trace(s, "%u: the host dies", n->id);
	sim_after(s, span, restart, n, false, 0);
}

/* --- Frames in the trace --- */

#include "core/frame.h"

static void frame_trace(struct sim *s, const struct node *n, const char *what, uint64_t conn, const void *bytes, uint32_t size)
{
	static const char *const names[] = {
#define X(name, to) #name,
		MSG_KINDS(X)
#undef X
	};
	struct frame f;

	if (!s->trace || frame_decode(bytes, size, &f) < 0)
		return;
	sim_trace(s, "%s%u conn %llu %s %.*s shard %u epoch %u number %llx held %u wanted %u seen %llx flags %x", what, n->id,
		  (unsigned long long)conn, names[f.msg.kind], f.msg.key_len, (const char *)f.msg.key, f.msg.shard, f.msg.epoch,
		  (unsigned long long)f.msg.number, f.msg.held, f.msg.wanted, (unsigned long long)f.msg.seen, f.msg.flags);
}

static void trace_send(struct sim *s, const struct node *n, const struct core_action *a)
{
	frame_trace(s, n, "  SEND ", a->send.conn, a->send.bytes, a->send.n);
}

static void trace_recv(struct sim *s, const struct node *n, const struct core_event *ev)
{
	frame_trace(s, n, "RECV ", ev->recv.conn, ev->recv.bytes, ev->recv.n);
}
