/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names: what the segment asks for becomes events of the core, and the core's answers go to the segment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../grow.h"
#include "../log.h"
#include "../shm/word.h"
#include "node.h"

#define RETRY_SPAN (100 * NSEC_PER_MSEC)

static void node_retry_soon(struct node *n)
{
	if (!n->retry_timer.queued)
		loop_timer_set(n->loop, &n->retry_timer, loop_now(n->loop) + RETRY_SPAN);
}

/* --- what the segment asks for --- */

/* A share is of use only where there are others. */
static uint32_t wanted_weight(const struct node *n, uint32_t wants)
{
	return n->cluster.on && wants == WANTS_SHARED ? 1 : CORE_WEIGHT_ALL;
}

/* Whoever reads here may go on while all of it is waited for. */
static void want_all(struct node *n, struct space *s, uint32_t slot)
{
	struct ledger_name *rec = name_at(s, slot);
	bool upgrade = readers_want(s, slot) & WANTS_UPGRADE;

	rec->state = NAME_ASKED;
	rec->raised = 0;
	node_give(n, (struct node_event){ .kind = CORE_EV_CHANGE, .ref = rec->ref, .used = rec->count, .held = 1,
					  .wanted = CORE_WEIGHT_ALL, .upgrade = upgrade });
}

void node_want(void *arg, struct space *s, uint32_t slot)
{
	struct node *n = arg;
	struct ledger_name *rec = name_at(s, slot);

	if (rec->count && rec->shared) {
		want_all(n, s, slot);
		return;
	}
	struct node_event ev = { .kind = rec->count ? CORE_EV_REFILL : rec->state == NAME_TRIED ? CORE_EV_CHANGE : CORE_EV_CLAIM,
				 .ref = rec->ref, .used = rec->count };

	if (ev.ref == UINT32_MAX && ref_take(n, s, slot, &ev.ref) < 0)
		return;                  /* the sleeper is watched: it is asked again within 50 ms */
	if (!rec->count)
		ev.wanted = wanted_weight(n, readers_want(s, slot));     /* where it was tried: in earnest */
	rec->state = NAME_ASKED;
	if (!rec->count)
		rec->raised = 0;
	node_give(n, ev);
}

void node_try(void *arg, struct space *s, uint32_t slot)
{
	struct node *n = arg;
	struct node_event ev = { .kind = CORE_EV_CLAIM, .ref = name_at(s, slot)->ref, .tries = true };

	if (ev.ref == UINT32_MAX && ref_take(n, s, slot, &ev.ref) < 0)
		return;
	name_at(s, slot)->state = NAME_TRIED;
	name_at(s, slot)->raised = 0;
	node_give(n, ev);
}

void node_unused(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_RELEASE, .ref = name_at(s, slot)->ref, .used = used, .died = died });
}

void node_yielded(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died, bool again)
{
	uint32_t wanted = again ? wanted_weight(arg, readers_want(s, slot)) : 0;

	node_give(arg, (struct node_event){ .kind = again ? CORE_EV_CHANGE : CORE_EV_RELEASE, .wanted = wanted,
					    .ref = name_at(s, slot)->ref, .used = used, .died = died });
}

void node_lowered(void *arg, struct space *s, uint32_t slot, uint64_t used, bool died)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_CHANGE, .ref = name_at(s, slot)->ref, .used = used, .died = died, .held = 1 });
}

void node_rank(void *arg, struct space *s, uint32_t slot)
{
	readers_want_again(s, slot, WANTS);      /* the claim stays what it is for, too */
	node_give(arg, (struct node_event){ .kind = CORE_EV_CHANGE, .ref = name_at(s, slot)->ref, .ranks = true,
					    .wanted = wanted_weight(arg, readers_want(s, slot)) });
}

/* --- elections --- */

/* The core goes on with the number as long as it observes. */
static void ref_let_go(struct node *n, uint32_t ref)
{
	if (!elect_watching(ref_space(n, ref), ref_slot(n, ref)))
		ref_drop(n, ref);
}

/* A node alone is told of everything by its own clients. */
bool node_observe(void *arg, struct space *s, uint32_t slot, bool on)
{
	struct node *n = arg;
	uint32_t ref = name_at(s, slot)->ref;

	if (on && n->query && query_watched(n->query))
		elect_polled(s, slot);
	if (!n->cluster.on)
		return false;
	if (on && ref == UINT32_MAX && ref_take(n, s, slot, &ref) < 0)
		elect_unwatched(s, slot);
	else
		node_give(n, (struct node_event){ .kind = CORE_EV_OBSERVE, .ref = ref, .off = !on });
	return on;
}

void node_leads(void *arg, struct space *s, uint32_t slot)
{
	if (name_at(s, slot)->ref != UINT32_MAX)
		node_give(arg, (struct node_event){ .kind = CORE_EV_PROCLAIM, .ref = name_at(s, slot)->ref });
}

/* After a lack of memory: what the core could not take back. */
static void retry_name(struct node *n, struct space *s, uint32_t slot)
{
	const struct ledger_name *rec = name_at(s, slot);

	if (!name_is_lock(s, slot) || !rec->count)
		return;
	if (rec->state == NAME_RELEASING)
		node_unused(n, s, slot, rec->count, true);       /* whether, nobody remembers */
	else if (rec->state == NAME_RETURNED)
		node_yielded(n, s, slot, rec->count, true, rec->revoked);
}

void node_retry(void *arg)
{
	struct node *n = arg;

	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = n->shm.spaces[i];

		for (uint32_t slot = 0, next; s && !s->broken && (next = table_next(&s->names, slot)); slot = next)
			retry_name(n, s, next);
	}
}

/* --- a name that was closed and opened again before the core has forgotten its former number --- */

static void busy_add(struct node *n, struct space *s, uint32_t slot)
{
	struct node_name *v;

	if (!name_is(s, slot) || name_at(s, slot)->state != NAME_IDLE)
		return;
	v = grown(n->busy, n->n_busy, &n->busy_cap, 16, sizeof *v);
	if (!v)
		return;                  /* whoever waits is watched */
	n->busy = v;
	n->busy[n->n_busy++] = (struct node_name){ s, slot };
}

/* Spaces stay as long as they have names, and these stay as they are while they are open. */
static bool busy_still(const struct node *n, const struct node_name *b)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++)
		if (n->shm.spaces[i] == b->space)
			return !b->space->broken && name_is(b->space, b->slot) &&
			       name_at(b->space, b->slot)->state == NAME_IDLE && name_at(b->space, b->slot)->opens;
	return false;
}

static void busy_again(struct node *n)
{
	unsigned count = n->n_busy;
	struct node_name *v = n->busy;

	n->busy = NULL;
	n->n_busy = n->busy_cap = 0;
	for (unsigned i = 0; i < count; i++)
		if (busy_still(n, &v[i]))
			node_want(n, v[i].space, v[i].slot);
	free(v);
}

/* --- the core's answers --- */

static void act_refused(struct node *n, uint32_t ref, int error)
{
	struct space *s = ref_space(n, ref);
	uint32_t slot = ref_slot(n, ref);

	if (error != -ESHUTDOWN && error != -EBUSY)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "no tokens for %s: %s", s->name, strerror(-error));
	if (!name_at(s, slot)->count)
		ref_let_go(n, ref);
	space_refused(s, slot);
}

static void act_forgotten(struct node *n, uint32_t ref)
{
	struct space *s = ref_space(n, ref);
	uint32_t slot = ref_slot(n, ref);

	ref_let_go(n, ref);
	space_forget(s, slot);
	if (n->n_busy)
		busy_again(n);
}

static struct shm_value value_of_core(const struct core_value *v)
{
	static const enum value_state state[] = {
		[CORE_VALUE_NONE] = VALUE_NONE, [CORE_VALUE_KNOWN] = VALUE_KNOWN, [CORE_VALUE_LOST] = VALUE_LOST,
	};

	return (struct shm_value){ state[v->state], v->count, v->len, v->token, v->bytes };
}

/* Of a ref that is free: the answer to a RELEASE that came in the very step in which the session ended, and dropped it. */
void act_name(struct node *n, const struct core_action *a)
{
	uint32_t ref = a->name.ref;
	struct space *s;
	uint32_t slot;

	if (!ref_is(n, ref))
		return;
	s = ref_space(n, ref);
	slot = ref_slot(n, ref);
	if (name_kind(s, slot) == KIND_SEM) {
		act_sem(n, a);
		return;
	}
	if (name_kind(s, slot) == KIND_POOL) {
		act_pool(n, a);
		return;
	}
	switch (a->kind) {
	case CORE_ACT_LEDGER_GRANT:
		space_ledger_grant(s, slot, &(struct name_grant){ a->name.range.first, a->name.range.count, a->name.number, a->name.lost,
								  value_of_core(&a->name.value), a->name.weight == 1 });
		return;
	case CORE_ACT_CHANGED:
		space_lowered(s, slot, a->name.range.first, a->name.range.count);
		return;
	case CORE_ACT_GRANT:
		space_granted(s, slot, a->name.lost);
		elect_granted(s, slot, a->name.observed);
		return;
	case CORE_ACT_OBSERVED:
		elect_asked(s, slot);
		return;
	case CORE_ACT_NEWS: {
		struct shm_value v = value_of_core(&a->name.value);

		elect_news(s, slot, &v);
		return;
	}
	case CORE_ACT_LEDGER_RELEASE:
		space_ledger_release(s, slot);
		return;
	case CORE_ACT_FORGOTTEN:
		act_forgotten(n, ref);
		return;
	case CORE_ACT_REFUSED:
		act_refused(n, ref, a->name.error);
		return;
	case CORE_ACT_REVOKE:
		if (!a->name.tries && a->name.weight == 1)
			space_revoke_share(s, slot);
		else if (!a->name.tries)
			space_revoke(s, slot);
		else if (!space_revoke_idle(s, slot))
			node_give(n, (struct node_event){ .kind = CORE_EV_KEEP, .ref = ref });
		return;
	default:
		return;
	}
}

/* An event that the core cannot take now: the name goes back to where it is asked for again. */
void name_step_failed(struct node *n, const struct node_event *q, int error)
{
	struct space *s;
	uint32_t slot;

	if (!ref_is(n, q->ref))
		return;                  /* the session has ended in this very step */
	s = ref_space(n, q->ref);
	slot = ref_slot(n, q->ref);
	if (name_kind(s, slot) == KIND_SEM) {
		sem_step_failed(n, q, error);
		return;
	}
	if (name_kind(s, slot) == KIND_POOL) {
		pool_step_failed(n, q, error);
		return;
	}
	if (q->kind == CORE_EV_KEEP || q->ranks)
		return;                  /* it is kept no more; it has that priority already */
	if (q->kind == CORE_EV_CHANGE && q->held && q->wanted) {
		space_refused(s, slot);  /* a share is what it stays with */
		return;
	}
	if (q->kind == CORE_EV_CHANGE && q->held) {
		name_at(s, slot)->revoked = name_at(s, slot)->keeps = 0;
		space_revoke(s, slot);   /* then all of it goes */
		return;
	}
	if (q->kind == CORE_EV_CHANGE && q->wanted)      /* of what is refused below space_refused() sees to that */
		readers_want_again(s, slot, WANTS & ~WANTS_UPGRADE);
	if (q->kind == CORE_EV_CHANGE && name_claims(name_at(s, slot))) {
		name_at(s, slot)->state = NAME_TRIED;    /* still no more than that: who waits is watched */
		return;
	}
	if (error == -ESHUTDOWN && q->kind == CORE_EV_CHANGE) {
		name_at(s, slot)->revoked = 0;   /* nobody here gets it again */
		node_give(n, (struct node_event){ .kind = CORE_EV_RELEASE, .ref = q->ref, .used = q->used, .died = q->died });
		return;
	}
	if (q->kind == CORE_EV_CLAIM || q->kind == CORE_EV_REFILL) {
		if (q->kind == CORE_EV_CLAIM)
			ref_let_go(n, q->ref);
		space_refused(s, slot);
		if (error == -EBUSY && !q->tries)
			busy_add(n, s, slot);
		if (error == -EBUSY || error == -ESHUTDOWN)
			return;
	}
	log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	node_retry_soon(n);
}

/* Nothing is lost: what could not be said is said later. */
void news_step_failed(struct node *n, const struct node_event *q, int error)
{
	struct space *s;
	uint32_t slot;

	if (!ref_is(n, q->ref) || q->off || error == -EALREADY || error == -ENOENT)
		return;                  /* it has gone meanwhile */
	s = ref_space(n, q->ref);
	slot = ref_slot(n, q->ref);
	if (error != -EBUSY)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	if (q->kind == CORE_EV_PROCLAIM) {
		elect_untold(s, slot);
		return;
	}
	elect_unwatched(s, slot);
	if (name_at(s, slot)->state == NAME_IDLE)
		ref_drop(n, q->ref);
}

/*
 * The core has dropped all but the claims that wait. A claim that is still in our queue is one of them;
 * whatever else is there about leases is of those that are lost.
 */
void node_lapse(struct node *n)
{
	node_purge(n);
	for (uint32_t ref = 0; ref < n->n_refs; ref++) {
		const struct ledger_name *rec = ref_is(n, ref) ? ref_name(n, ref) : NULL;

		if (rec && !name_claims(rec))
			ref_let_go(n, ref);
	}
	shm_lapse(&n->shm);
}
