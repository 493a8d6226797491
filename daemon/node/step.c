/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events to the core, one after the other, and its actions to whom they concern. What an action brings
 * about waits in a ring, and becomes the next event.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../log.h"
#include "../net/net.h"
#include "../shm/barrier.h"
#include "../shm/files.h"
#include "node.h"

#define STEPS_MAX 64                     /* of the core, before others have their turn: some milliseconds */
#define STEPS_PAUSE (NSEC_PER_MSEC / 4)
#define BACKLOG_MAX (NET_QUEUE_MAX / 4)
#define BACKLOG_PAUSE (2 * NSEC_PER_MSEC)

/*
 * What the core keeps names in comes in whole pages, which go back to the system when they are freed.
 * In the heap what is left of a million names would keep all that lies below it.
 */
static bool whole_pages(size_t n)
{
	return n % 4096 == 0;
}

static void *memory_alloc(void *arg, size_t n)
{
	void *p;

	(void)arg;
	if (!whole_pages(n))
		return malloc(n);
	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void memory_free(void *arg, void *p, size_t n)
{
	(void)arg;
	if (whole_pages(n))
		munmap(p, n);
	else
		free(p);
}

const struct core_memory node_memory = { .alloc = memory_alloc, .free = memory_free };

/* --- the queue --- */

static void node_step_all(struct node *n);
static void step_failed(struct node *n, const struct node_event *q, int error);

static bool queue_grow(struct node *n)
{
	unsigned cap = n->queue_cap ? n->queue_cap * 2 : 64;
	struct node_event *v = calloc(cap, sizeof *v);

	if (!v)
		return false;
	for (unsigned i = 0; i < n->count; i++)
		v[i] = n->queue[(n->head + i) % n->queue_cap];
	free(n->queue);
	n->queue = v;
	n->queue_cap = cap;
	n->head = 0;
	return true;
}

void node_give(struct node *n, struct node_event ev)
{
	if (n->count == n->queue_cap && !queue_grow(n)) {
		free(ev.records);
		step_failed(n, &ev, -ENOMEM);
		return;
	}
	n->queue[(n->head + n->count++) % n->queue_cap] = ev;
	node_step_all(n);
}

static bool of_a_lease(enum core_event_kind kind)
{
	return kind == CORE_EV_REFILL || kind == CORE_EV_RELEASE || kind == CORE_EV_CHANGE || kind == CORE_EV_KEEP ||
	       kind == CORE_EV_RESIZE || kind == CORE_EV_PROCLAIM;
}

void node_purge(struct node *n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n->count; i++) {
		struct node_event ev = n->queue[(n->head + i) % n->queue_cap];

		if (!of_a_lease(ev.kind))
			n->queue[(n->head + kept++) % n->queue_cap] = ev;
	}
	n->count = kept;
}

/* --- actions --- */

static void act_opened(struct node *n, const struct core_action *a)
{
	char text[32];

	n->open = true;
	if (ledger_note_epoch(&n->shm.ledger, a->node.epoch) < 0)
		log_warning("cannot note epoch %u in the ledger", a->node.epoch);
	if (n->cluster.on && a->node.epoch > n->cluster.epoch) {
		snprintf(text, sizeof text, "epoch %u", a->node.epoch);
		node_tell(n, &(struct shm_event){ .what = "reign", .detail = text });
		n->cluster.epoch = a->node.epoch;
	}
	log_write(n->cluster.on ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "epoch %u", a->node.epoch);
}

static void act(struct node *n, const struct core_action *a)
{
	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
	case CORE_ACT_STORE_LIST:
		act_store(n, a);
		return;
	case CORE_ACT_LEDGER_GRANT:
	case CORE_ACT_GRANT:
	case CORE_ACT_LEDGER_RELEASE:
	case CORE_ACT_FORGOTTEN:
	case CORE_ACT_REFUSED:
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_OBSERVED:
	case CORE_ACT_NEWS:
		act_name(n, a);
		return;
	case CORE_ACT_OPENED:
		act_opened(n, a);
		return;
	case CORE_ACT_TIMER:
		loop_timer_set(n->loop, &n->core_timer, a->timer.when);
		return;
	case CORE_ACT_SEND:
	case CORE_ACT_LINK:
	case CORE_ACT_UNLINK:
	case CORE_ACT_RELAYED:
	case CORE_ACT_COMPLAINT:
	case CORE_ACT_ENDED:
	case CORE_ACT_ODD:
	case CORE_ACT_CUT_OFF:
	case CORE_ACT_DEADLINE:
	case CORE_ACT_JEOPARDY:
	case CORE_ACT_LOSS:
	case CORE_ACT_LAPSED:
	case CORE_ACT_SESSION:
	case CORE_ACT_DRAINED:
	case CORE_ACT_LEFT:
		assert(n->cluster.on);
		act_cluster(n, a);
		return;
	case CORE_ACT_LEDGER_ARRIVE:
	case CORE_ACT_LEDGER_BARRIER:
	case CORE_ACT_VERDICT:
	case CORE_ACT_RESET_DONE:
		act_barrier(n, a);
		return;
	case CORE_ACT_ACCOUNT:
		act_account(n, a);
		return;
	case CORE_ACT_FATAL:
		snprintf(n->failed, sizeof n->failed, "%s", a->node.why);
		if (n->cluster.on)
			cluster_superseded(n);
		loop_stop(n->loop, 1);
		return;
	}
}

/* --- events --- */

static void event_of_start(const struct node *n, struct core_event *ret)
{
	const struct node_cluster *c = &n->cluster;

	ret->start.session = c->on ? c->session : n->boot.id.session;
	ret->start.incarnation = c->on ? c->incarnation : n->boot.incarnation;
	ret->start.epoch_min = n->boot.id.epoch;
	ret->start.cluster = c->on ? &c->conf : NULL;
	ret->start.deadline = c->adopted;
}

static void event_of_store(const struct node_event *q, struct core_event *ret)
{
	ret->store.op = q->op;
	ret->store.error = q->error;
	ret->store.version = q->version;
	ret->store.records = q->records;
	ret->store.records_n = q->n_records;
	if (q->n_records) {
		ret->store.value = q->records[0].value;
		ret->store.value_len = q->records[0].value_len;
	}
}

static uint8_t value_bytes[VALUE_MAX];   /* of the one event that is being stepped */

/*
 * What the clients of a lease have left, as it stands in the segment: the word is closed. Nothing, where what stands there
 * cannot be; lost, where that may be said.
 */
static struct core_value value_of_name(const struct node *n, uint32_t ref, enum core_value_state unclear)
{
	struct core_value none = { .state = CORE_VALUE_NONE };
	const struct ledger_name *rec = ref_name(n, ref);
	struct shm_value v;

	if (!rec->count || name_kind(ref_space(n, ref), ref_slot(n, ref)) != KIND_LOCK)
		return none;
	if (rec->shared && unclear == CORE_VALUE_NONE)
		return none;             /* nobody here can have left anything */
	if (!value_left(ref_space(n, ref), ref_slot(n, ref), &v, value_bytes) || v.state == VALUE_LOST)
		return (struct core_value){ .state = unclear };
	if (v.state == VALUE_NONE)
		return none;
	if (!(v.token >> TOKEN_COUNTER_BITS) || !(v.token & ((UINT64_C(1) << TOKEN_COUNTER_BITS) - 1)))
		return (struct core_value){ .state = unclear };  /* no token at all */
	return (struct core_value){ CORE_VALUE_KNOWN, (uint16_t)v.len, v.count, v.token, v.bytes };
}

/* A semaphore has said whom it asks for. */
static uint8_t priority_of_name(const struct node *n, const struct node_event *q)
{
	const struct space *s = ref_space(n, q->ref);
	uint32_t slot = ref_slot(n, q->ref);

	return name_is_lock(s, slot) ? (uint8_t)name_priority(s, slot) : q->priority;
}

/* The longest that anybody here has asked for by now. */
static uint16_t delay_of_name(const struct node *n, uint32_t ref)
{
	return name_has_delay(ref_space(n, ref), ref_slot(n, ref)) ? ref_name(n, ref)->delay : 0;
}

/* Who leads now, not who did when that was asked for. */
static struct core_value leader_of_name(const struct node *n, uint32_t ref)
{
	struct shm_value v;

	if (!elect_state(ref_space(n, ref), ref_slot(n, ref), &v, value_bytes) || v.state != VALUE_KNOWN)
		return (struct core_value){ .state = CORE_VALUE_NONE, .token = v.token };
	return (struct core_value){ CORE_VALUE_KNOWN, (uint16_t)v.len, v.count, v.token, v.bytes };
}

static void event_of_adopt(struct node *n, const struct node_event *q, char key[CORE_KEY_MAX], struct core_event *ret)
{
	const struct ledger_name *rec = ref_name(n, q->ref);
	enum kind kind = name_kind(ref_space(n, q->ref), ref_slot(n, q->ref));

	ret->adopt.ref = q->ref;
	ret->adopt.key = key;
	ret->adopt.key_len = ref_key(n, q->ref, key);
	ret->adopt.range = (struct core_range){ rec->first, rec->count };
	ret->adopt.number = rec->number;
	ret->adopt.value = value_of_name(n, q->ref, CORE_VALUE_LOST);
	ret->adopt.weight = rec->shared;
	ret->adopt.delay = delay_of_name(n, q->ref);
	if (kind == KIND_SEM)
		sem_event_adopt(n, q->ref, ret);
	if (kind == KIND_POOL)
		pool_event_adopt(n, q->ref, ret);
}

static void event_of_claim(struct node *n, const struct node_event *q, char key[CORE_KEY_MAX], struct core_event *ret)
{
	ret->claim.ref = q->ref;
	ret->claim.key = key;
	ret->claim.key_len = ref_key(n, q->ref, key);
	ret->claim.weight = q->wanted;
	ret->claim.limit = q->limit;
	ret->claim.tries = q->tries;
	ret->claim.priority = priority_of_name(n, q);
	ret->claim.delay = delay_of_name(n, q->ref);
	ret->claim.present = q->present;
	ret->claim.limit_stamp = q->limit_stamp;
}

/* Of a lock all is given back, and wanted again. */
static void event_of_change(const struct node *n, const struct node_event *q, struct core_event *ret)
{
	ret->change.ref = q->ref;
	ret->change.used = q->used;
	ret->change.died = q->died;
	ret->change.value = value_of_name(n, q->ref, CORE_VALUE_NONE);
	ret->change.held = q->held;
	ret->change.wanted = q->wanted;
	ret->change.tries = q->tries;
	ret->change.upgrade = q->upgrade;
	ret->change.priority = q->wanted ? priority_of_name(n, q) : 0;
	ret->change.delay = q->wanted ? delay_of_name(n, q->ref) : 0;
}

static void event_of(struct node *n, const struct node_event *q, char key[CORE_KEY_MAX], struct core_event *ret)
{
	*ret = (struct core_event){ .kind = q->kind, .now = loop_clock() };
	switch (q->kind) {
	case CORE_EV_START:
		event_of_start(n, ret);
		return;
	case CORE_EV_ADOPT:
		event_of_adopt(n, q, key, ret);
		return;
	case CORE_EV_CLAIM:
		event_of_claim(n, q, key, ret);
		return;
	case CORE_EV_REFILL:
		ret->refill.ref = q->ref;
		ret->refill.used = q->used;
		return;
	case CORE_EV_RELEASE:
		ret->release.ref = q->ref;
		ret->release.used = q->used;
		ret->release.died = q->died;
		ret->release.value = value_of_name(n, q->ref, CORE_VALUE_NONE);
		return;
	case CORE_EV_CHANGE:
		event_of_change(n, q, ret);
		return;
	case CORE_EV_KEEP:
		ret->keep.ref = q->ref;
		return;
	case CORE_EV_RESIZE:
		ret->resize.ref = q->ref;
		ret->resize.limit = q->limit;
		return;
	case CORE_EV_STORE:
		event_of_store(q, ret);
		return;
	case CORE_EV_DRAIN:
		ret->drain.off = q->off;
		return;
	case CORE_EV_LEAVE:
		ret->leave.patience = n->cluster.conf.ttl / 2;
		return;
	case CORE_EV_LINK_UP:
	case CORE_EV_LINK_DOWN:
		ret->link.session = q->session;
		ret->link.incarnation = q->incarnation;
		ret->link.conn = q->conn;
		return;
	case CORE_EV_PROCLAIM:
		ret->proclaim.ref = q->ref;
		ret->proclaim.value = leader_of_name(n, q->ref);
		return;
	case CORE_EV_OBSERVE:
		ret->observe.ref = q->ref;
		ret->observe.on = !q->off;
		ret->observe.key = key;
		ret->observe.key_len = ref_key(n, q->ref, key);
		return;
	case CORE_EV_ENQUIRE:
		enquire_event(n, q, ret);
		return;
	case CORE_EV_ADOPT_BARRIER:
	case CORE_EV_ADOPT_PARTY:
	case CORE_EV_ARRIVE:
	case CORE_EV_WITHDRAW:
	case CORE_EV_DEPART:
	case CORE_EV_RESET:
	case CORE_EV_CLOSE:
		event_of_barrier(n, q, ret);
		return;
	case CORE_EV_RECV:               /* node_recv() */
	case CORE_EV_TIMER:
	case CORE_EV_CONTINUE:
	case CORE_EV_HINT:
	case CORE_EV_LOSS_DONE:
		return;
	}
}

/* Without a lease that it holds, or an answer that it waits for, the core knows less than there is. */
static void give_up(struct node *n, enum core_event_kind kind, int error)
{
	if (!n->failed[0])
		snprintf(n->failed, sizeof n->failed, "%s: %s", core_event_name(kind), strerror(-error));
	loop_stop(n->loop, 1);
}

static void step_failed(struct node *n, const struct node_event *q, int error)
{
	if (error == -ENOTRECOVERABLE)
		return;
	if (q->kind == CORE_EV_OBSERVE || q->kind == CORE_EV_PROCLAIM) {
		news_step_failed(n, q, error);
		return;
	}
	if (q->kind == CORE_EV_ENQUIRE) {
		enquire_step_failed(n, q);
		return;
	}
	if (q->kind == CORE_EV_CLAIM || of_a_lease(q->kind)) {
		name_step_failed(n, q, error);
		return;
	}
	if (of_a_barrier(q->kind)) {
		barrier_step_failed(n, q, error);
		return;
	}
	log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	give_up(n, q->kind, error);
}

/*
 * What tells a master of very many leases goes on in parts: between them others have their turn, and the network takes what
 * waits for it. Else a peer would be disconnected over it (NET_QUEUE_MAX), connected again, and told all of it anew.
 */
static bool pause_due(struct node *n, unsigned steps)
{
	nsec_t span = 0;

	if (!n->cluster.on)
		return false;
	if (net_backlog(n->cluster.net) > BACKLOG_MAX)
		span = BACKLOG_PAUSE;
	else if (steps >= STEPS_MAX)
		span = STEPS_PAUSE;
	if (span)
		loop_timer_set(n->loop, &n->more_timer, loop_now(n->loop) + span);
	return span;
}

/* Other events may come before it: each goes on with what is left as well. */
static void core_more(void *arg)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_CONTINUE });
}

static void actions_run(struct node *n, struct core_actions *list)
{
	for (unsigned steps = 1;; steps++) {
		for (unsigned i = 0; i < list->n; i++)
			act(n, &list->v[i]);
		if (!list->more || pause_due(n, steps))
			return;
		if (core_step(n->core, &(struct core_event){ .kind = CORE_EV_CONTINUE, .now = loop_clock() }, list) < 0)
			return;
	}
}

static struct core_actions list;         /* of the one step that is under way */

/* An error may come with what the time has brought before the event. */
static int core_take(struct node *n, const struct core_event *ev)
{
	int r;

	list.n = 0;
	list.more = false;
	r = core_step(n->core, ev, &list);
	if (r == 0 || list.n)
		actions_run(n, &list);
	return r;
}

static void node_step(struct node *n, const struct node_event *q)
{
	char key[CORE_KEY_MAX];
	struct core_event ev;
	int r;

	event_of(n, q, key, &ev);
	r = core_take(n, &ev);
	if (r < 0)
		step_failed(n, q, r);
	else if (q->kind == CORE_EV_CLOSE)
		barrier_closed(&n->shm, q->ref, true);
}

static void node_step_all(struct node *n)
{
	if (n->stepping)
		return;
	n->stepping = true;
	while (n->count) {
		struct node_event q = n->queue[n->head];

		n->head = (n->head + 1) % n->queue_cap;
		n->count--;
		node_step(n, &q);
		free(q.records);
	}
	n->stepping = false;
}

/* Frames come from the loop alone, never while a step is under way: so they need not be copied. */
int node_recv(struct node *n, uint64_t session, uint64_t conn, const void *bytes, uint32_t size)
{
	struct core_event ev = { .kind = CORE_EV_RECV, .now = loop_clock(),
				 .recv = { .conn = conn, .session = session, .bytes = bytes, .n = size } };
	int r;

	assert(!n->stepping && !n->count);
	n->stepping = true;
	r = core_take(n, &ev);
	n->stepping = false;
	node_step_all(n);
	return r;
}

/* --- beginning --- */

static void core_timer(void *arg)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_TIMER });
}

static void adopt_lease(void *arg, struct space *s, uint32_t slot)
{
	struct node *n = arg;
	uint32_t ref;

	if (ref_take(n, s, slot, &ref) == 0)
		node_give(n, (struct node_event){ .kind = CORE_EV_ADOPT, .ref = ref });
	else
		snprintf(n->failed, sizeof n->failed, "no memory to take over the leases of before");
}

int node_core_start(struct node *n)
{
	struct core_memory mem = node_memory;
	int r = files_random(mem.seed, sizeof mem.seed);

	loop_timer_init(&n->core_timer, core_timer, n);
	loop_timer_init(&n->more_timer, core_more, n);
	loop_timer_init(&n->retry_timer, node_retry, n);
	if (r == 0)
		r = core_create(&mem, &n->core);
	if (r < 0)
		return r;
	shm_each_lease(&n->shm, adopt_lease, n);
	r = node_barriers_adopt(n);
	if (r < 0 || n->failed[0])
		return -ENOMEM;
	node_give(n, (struct node_event){ .kind = CORE_EV_START });
	if (n->cluster.on)               /* who is there, and what they have, shows by and by */
		return n->failed[0] ? -EIO : 0;
	if (!n->open && !n->failed[0])
		snprintf(n->failed, sizeof n->failed, "the store gave no answer");
	return n->open ? 0 : -EIO;
}
