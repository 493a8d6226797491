/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events of the segment and the store to the core; the core's actions to both. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../log.h"
#include "../shm/files.h"
#include "node.h"

#define RETRY_SPAN (100 * NSEC_PER_MSEC)

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

/* --- numbers of names --- */

static struct space *ref_space(const struct node *n, uint32_t ref)
{
	return n->shm.spaces[n->refs[ref] >> 20];
}

static uint32_t ref_slot(const struct node *n, uint32_t ref)
{
	return n->refs[ref] & 0xfffff;
}

static bool ref_is(const struct node *n, uint32_t ref)
{
	return n->ref_used[ref / 64] >> (ref % 64) & 1;
}

/* cap: a multiple of 64. */
static int refs_resize(struct node *n, uint32_t cap)
{
	uint32_t *refs = realloc(n->refs, cap * sizeof *refs);
	uint64_t *used;

	if (!refs)
		return -ENOMEM;
	n->refs = refs;
	used = realloc(n->ref_used, cap / 8);
	if (!used)
		return -ENOMEM;
	if (cap > n->refs_cap)
		memset((char *)used + n->refs_cap / 8, 0, (cap - n->refs_cap) / 8);
	n->ref_used = used;
	n->refs_cap = cap;
	return 0;
}

/* The lowest that is free, so that the arrays, and the core's, shrink when names go. */
static int ref_take(struct node *n, struct space *s, uint32_t slot, uint32_t *ret)
{
	uint32_t ref = n->ref_hint;
	int r;

	while (ref < n->n_refs && ref_is(n, ref))
		ref = ref % 64 == 0 && n->ref_used[ref / 64] == UINT64_MAX ? ref + 64 : ref + 1;
	if (ref > n->n_refs)
		ref = n->n_refs;
	r = ref < n->refs_cap ? 0 : refs_resize(n, n->refs_cap ? n->refs_cap * 2 : 1024);
	if (r < 0)
		return r;
	n->ref_used[ref / 64] |= UINT64_C(1) << (ref % 64);
	n->refs[ref] = s->id << 20 | slot;
	n->ref_hint = ref + 1;
	n->n_live++;
	if (ref == n->n_refs)
		n->n_refs++;
	name_at(s, slot)->ref = ref;
	*ret = ref;
	return 0;
}

static void ref_drop(struct node *n, uint32_t ref)
{
	name_at(ref_space(n, ref), ref_slot(n, ref))->ref = UINT32_MAX;
	n->ref_used[ref / 64] &= ~(UINT64_C(1) << (ref % 64));
	n->n_live--;
	if (ref < n->ref_hint)
		n->ref_hint = ref;
	while (n->n_refs && !ref_is(n, n->n_refs - 1))
		n->n_refs--;
	if (n->refs_cap > 1024 && n->n_refs < n->refs_cap / 4)
		refs_resize(n, n->refs_cap / 2);         /* where it fails, they stay as large */
}

static uint16_t ref_key(const struct node *n, uint32_t ref, char ret[CORE_KEY_MAX])
{
	const struct space *s = ref_space(n, ref);
	struct name_text t = name_text(s, ref_slot(n, ref));

	return (uint16_t)snprintf(ret, CORE_KEY_MAX, "%s/%.*s", s->name, (int)t.n, t.p);
}

/* --- the store's answers --- */

struct request {
	struct node *node;
	uint32_t op;
};

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

static void enqueue(struct node *n, struct node_event ev)
{
	if (n->count == n->queue_cap && !queue_grow(n)) {
		free(ev.value);
		step_failed(n, &ev, -ENOMEM);
		return;
	}
	n->queue[(n->head + n->count++) % n->queue_cap] = ev;
	node_step_all(n);
}

static void store_answered(void *arg, const struct store_result *res)
{
	struct request *rq = arg;
	struct node_event ev = { .kind = CORE_EV_STORE, .op = rq->op, .error = res->error,
				 .version = res->version };
	struct node *n = rq->node;

	free(rq);
	if (res->in_doubt)
		ev.error = -ETIMEDOUT;
	if (res->error == 0 && res->n_records) {
		ev.value = malloc(res->records->size + 1);
		ev.value_len = (uint32_t)res->records->size;
		if (!ev.value)
			ev.error = -ENOMEM;
		else
			memcpy(ev.value, res->records->value, ev.value_len);
	}
	enqueue(n, ev);
}

static void act_store(struct node *n, const struct core_action *a)
{
	struct request *rq = malloc(sizeof *rq);

	if (!rq) {
		enqueue(n, (struct node_event){ .kind = CORE_EV_STORE, .op = a->store.op, .error = -ENOMEM });
		return;
	}
	*rq = (struct request){ n, a->store.op };
	if (a->kind == CORE_ACT_STORE_GET)
		store_get(n->store, a->store.key, store_answered, rq);
	else
		store_cas(n->store, a->store.key, a->store.version, a->store.value, a->store.value_len,
			  store_answered, rq);
}

/* --- actions --- */

static void act_opened(struct node *n, const struct core_action *a)
{
	n->open = true;
	if (ledger_note_epoch(&n->shm.ledger, a->node.epoch) < 0)
		log_warning("cannot note epoch %u in the ledger", a->node.epoch);
	log_info("epoch %u", a->node.epoch);
}

static void act_refused(struct node *n, const struct core_action *a)
{
	uint32_t ref = a->name.ref;
	struct space *s = ref_space(n, ref);
	uint32_t slot = ref_slot(n, ref);

	log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "no tokens for %s: %s", s->name, strerror(-a->name.error));
	if (!name_at(s, slot)->count)
		ref_drop(n, ref);
	space_refused(s, slot);
}

static void act(struct node *n, const struct core_action *a)
{
	uint32_t ref = a->name.ref, slot;
	struct space *s;

	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
		act_store(n, a);
		return;
	case CORE_ACT_LEDGER_GRANT:
		space_ledger_grant(ref_space(n, ref), ref_slot(n, ref), a->name.range.first,
				   a->name.range.count, a->name.number);
		return;
	case CORE_ACT_GRANT:
		space_granted(ref_space(n, ref), ref_slot(n, ref));
		return;
	case CORE_ACT_LEDGER_RELEASE:
		space_ledger_release(ref_space(n, ref), ref_slot(n, ref));
		return;
	case CORE_ACT_FORGOTTEN:
		s = ref_space(n, ref);
		slot = ref_slot(n, ref);
		ref_drop(n, ref);
		space_forget(s, slot);
		return;
	case CORE_ACT_OPENED:
		act_opened(n, a);
		return;
	case CORE_ACT_REFUSED:
		act_refused(n, a);
		return;
	case CORE_ACT_TIMER:
		loop_timer_set(n->loop, &n->core_timer, a->timer.when);
		return;
	case CORE_ACT_STORE_LIST:
	case CORE_ACT_SEND:
	case CORE_ACT_LINK:
	case CORE_ACT_UNLINK:
	case CORE_ACT_RELAYED:
	case CORE_ACT_COMPLAINT:
	case CORE_ACT_CUT_OFF:
	case CORE_ACT_DEADLINE:
	case CORE_ACT_JEOPARDY:
	case CORE_ACT_LOSS:
	case CORE_ACT_LAPSED:
	case CORE_ACT_SESSION:
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_DRAINED:
		assert(!"this node is alone");
		return;
	case CORE_ACT_FATAL:
		snprintf(n->failed, sizeof n->failed, "%s", a->node.why);
		loop_stop(n->loop, 1);
		return;
	}
}

/* --- events --- */

static void event_of(struct node *n, const struct node_event *q, char key[CORE_KEY_MAX],
		     struct core_event *ret)
{
	*ret = (struct core_event){ .kind = q->kind, .now = loop_clock() };
	switch (q->kind) {
	case CORE_EV_START:
		ret->start.session = n->boot.id.session;
		ret->start.incarnation = n->boot.incarnation;
		ret->start.epoch_min = n->boot.id.epoch;
		return;
	case CORE_EV_ADOPT: {
		const struct ledger_name *rec = name_at(ref_space(n, q->ref), ref_slot(n, q->ref));

		ret->adopt.ref = q->ref;
		ret->adopt.key = key;
		ret->adopt.key_len = ref_key(n, q->ref, key);
		ret->adopt.range = (struct core_range){ rec->first, rec->count };
		ret->adopt.number = rec->number;
		return;
	}
	case CORE_EV_CLAIM:
		ret->claim.ref = q->ref;
		ret->claim.key = key;
		ret->claim.key_len = ref_key(n, q->ref, key);
		return;
	case CORE_EV_REFILL:
		ret->refill.ref = q->ref;
		ret->refill.used = q->used;
		return;
	case CORE_EV_RELEASE:
		ret->release.ref = q->ref;
		ret->release.used = q->used;
		return;
	case CORE_EV_STORE:
		ret->store.op = q->op;
		ret->store.error = q->error;
		ret->store.value = q->value;
		ret->store.value_len = q->value_len;
		ret->store.version = q->version;
		return;
	case CORE_EV_TIMER:
	case CORE_EV_CONTINUE:
	case CORE_EV_CHANGE:
	case CORE_EV_RESIZE:
	case CORE_EV_LINK_UP:
	case CORE_EV_LINK_DOWN:
	case CORE_EV_RECV:
	case CORE_EV_HINT:
	case CORE_EV_LOSS_DONE:
	case CORE_EV_DRAIN:
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

/* An event that the core cannot take now: the name goes back to where it is asked for again. */
static void step_failed(struct node *n, const struct node_event *q, int error)
{
	struct space *s = q->kind == CORE_EV_STORE || q->kind == CORE_EV_START || q->kind == CORE_EV_TIMER
				  ? NULL : ref_space(n, q->ref);

	if (error == -ENOTRECOVERABLE)
		return;
	log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	if (!s || q->kind == CORE_EV_ADOPT) {
		give_up(n, q->kind, error);
		return;
	}
	if (q->kind == CORE_EV_CLAIM || q->kind == CORE_EV_REFILL) {
		uint32_t slot = ref_slot(n, q->ref);

		if (q->kind == CORE_EV_CLAIM)
			ref_drop(n, q->ref);
		space_refused(s, slot);
	}
	if (!n->retry_timer.queued)
		loop_timer_set(n->loop, &n->retry_timer, loop_now(n->loop) + RETRY_SPAN);
}

static void node_step(struct node *n, const struct node_event *q)
{
	static struct core_actions list;
	char key[CORE_KEY_MAX];
	struct core_event ev;
	int r;

	event_of(n, q, key, &ev);
	r = core_step(n->core, &ev, &list);
	if (r < 0) {
		step_failed(n, q, r);
		return;
	}
	for (;;) {
		for (unsigned i = 0; i < list.n; i++)
			act(n, &list.v[i]);
		if (!list.more)
			return;
		r = core_step(n->core, &(struct core_event){ .kind = CORE_EV_CONTINUE, .now = loop_clock() }, &list);
		if (r < 0)
			return;
	}
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
		free(q.value);
	}
	n->stepping = false;
}

void node_want(void *arg, struct space *s, uint32_t slot)
{
	struct node *n = arg;
	struct ledger_name *rec = name_at(s, slot);
	struct node_event ev = { .kind = rec->count ? CORE_EV_REFILL : CORE_EV_CLAIM, .ref = rec->ref,
				 .used = rec->count };

	if (ev.kind == CORE_EV_CLAIM && ref_take(n, s, slot, &ev.ref) < 0)
		return;                  /* the sleeper is watched: it is asked again within 50 ms */
	rec->state = NAME_ASKED;
	enqueue(n, ev);
}

void node_unused(void *arg, struct space *s, uint32_t slot, uint64_t used)
{
	enqueue(arg, (struct node_event){ .kind = CORE_EV_RELEASE, .ref = name_at(s, slot)->ref, .used = used });
}

/* After a lack of memory: releases that the core could not take. */
void node_retry(void *arg)
{
	struct node *n = arg;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = n->shm.spaces[i];

		for (uint32_t slot = 0, next; s && !s->broken && (next = table_next(&s->names, slot)); slot = next)
			if (name_at(s, next)->state == NAME_RELEASING && name_at(s, next)->count)
				node_unused(n, s, next, name_at(s, next)->count);
	}
}

static void core_timer(void *arg)
{
	enqueue(arg, (struct node_event){ .kind = CORE_EV_TIMER });
}

static void adopt_lease(void *arg, struct space *s, uint32_t slot)
{
	struct node *n = arg;
	uint32_t ref;

	if (ref_take(n, s, slot, &ref) == 0)
		enqueue(n, (struct node_event){ .kind = CORE_EV_ADOPT, .ref = ref });
	else
		snprintf(n->failed, sizeof n->failed, "no memory to take over the leases of before");
}

int node_core_start(struct node *n)
{
	struct core_memory mem = node_memory;
	int r = files_random(mem.seed, sizeof mem.seed);

	loop_timer_init(&n->core_timer, core_timer, n);
	loop_timer_init(&n->retry_timer, node_retry, n);
	if (r == 0)
		r = core_create(&mem, &n->core);
	if (r < 0)
		return r;
	shm_each_lease(&n->shm, adopt_lease, n);
	if (n->failed[0])
		return -ENOMEM;
	enqueue(n, (struct node_event){ .kind = CORE_EV_START });
	if (!n->open && !n->failed[0])
		snprintf(n->failed, sizeof n->failed, "the store gave no answer");
	return n->open ? 0 : -EIO;
}
