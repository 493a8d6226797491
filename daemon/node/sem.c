/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Semaphores: what daemon/shm/sem_core.c tells becomes events of the core, and the core's answers go back to it. */
#include "../shm/sem.h"

#include <errno.h>
#include <string.h>

#include "../log.h"
#include "node.h"

static enum core_event_kind event_kind(enum sem_say_what what)
{
	switch (what) {
	case SEM_SAY_CLAIM:
		return CORE_EV_CLAIM;
	case SEM_SAY_CHANGE:
		return CORE_EV_CHANGE;
	case SEM_SAY_RELEASE:
		return CORE_EV_RELEASE;
	case SEM_SAY_KEEP:
		return CORE_EV_KEEP;
	case SEM_SAY_RESIZE:
		return CORE_EV_RESIZE;
	}
	return CORE_EV_CLAIM;
}

/* Permits ride on one token a grant, which has been used. */
void node_sem(void *arg, struct space *s, uint32_t slot, const struct sem_say *say)
{
	struct node *n = arg;
	struct node_event ev = {
		.kind = event_kind(say->what), .ref = name_at(s, slot)->ref, .used = 1,
		.held = say->held, .wanted = say->wanted, .tries = say->tries, .priority = say->priority, .limit = say->limit,
		.present = say->present, .limit_stamp = say->stamp,
	};

	if (say->what == SEM_SAY_CLAIM && ref_take(n, s, slot, &ev.ref) < 0)
		sem_failed(s, slot, SEM_SAY_CLAIM, -ENOMEM);
	else if (say->what == SEM_SAY_CLAIM || ref_is(n, ev.ref))
		node_give(n, ev);
	else
		sem_failed(s, slot, say->what, -ENOENT);
}

void act_sem(struct node *n, const struct core_action *a)
{
	uint32_t ref = a->name.ref;
	struct space *s = ref_space(n, ref);
	uint32_t slot = ref_slot(n, ref);
	struct sem_lease held;

	switch (a->kind) {
	case CORE_ACT_LEDGER_GRANT:
		sem_ledger_grant(s, slot, &(struct sem_grant){ a->name.weight, a->name.range.first, a->name.range.count });
		return;
	case CORE_ACT_GRANT:
		sem_granted(s, slot, a->name.delay);
		return;
	case CORE_ACT_LEDGER_RELEASE:
		sem_changed(s, slot, &(struct sem_grant){ 0 });
		return;
	case CORE_ACT_CHANGED:
		sem_changed(s, slot, &(struct sem_grant){ a->name.weight, a->name.range.first, a->name.range.count });
		return;
	case CORE_ACT_FORGOTTEN:
		ref_drop(n, ref);
		sem_forgotten(s, slot);
		return;
	case CORE_ACT_REFUSED:
		if (a->name.error != -ESHUTDOWN && a->name.error != -EBUSY && a->name.error != -EINVAL)
			log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "no permits for %s: %s", s->name, strerror(-a->name.error));
		if (!sem_lease(s, slot, &held))
			ref_drop(n, ref);
		sem_refused(s, slot, a->name.error);
		return;
	case CORE_ACT_REVOKE:
		sem_revoke(s, slot, a->name.weight, a->name.tries);
		return;
	case CORE_ACT_RESIZED:
		sem_resized(s, slot, a->name.weight, a->name.number);
		return;
	default:
		return;
	}
}

/* Returns the first of its holders here. */
uint32_t sem_show(const struct object *o, struct query_name *q)
{
	struct sem_view v;

	sem_look_at(o, &v);
	q->state = v.held ? "held" : v.weight ? "free" : "unleased";
	q->token = v.token;
	q->counts = true;
	q->count = v.held;
	q->limit = v.limit;
	return v.first;
}

static enum sem_say_what said(enum core_event_kind kind)
{
	return kind == CORE_EV_CLAIM ? SEM_SAY_CLAIM : kind == CORE_EV_CHANGE ? SEM_SAY_CHANGE :
	       kind == CORE_EV_RELEASE ? SEM_SAY_RELEASE : kind == CORE_EV_KEEP ? SEM_SAY_KEEP : SEM_SAY_RESIZE;
}

void sem_step_failed(struct node *n, const struct node_event *q, int error)
{
	struct space *s = ref_space(n, q->ref);
	uint32_t slot = ref_slot(n, q->ref);

	if (q->kind == CORE_EV_CLAIM)
		ref_drop(n, q->ref);
	if (error != -EBUSY && error != -ESHUTDOWN && error != -EALREADY)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	sem_failed(s, slot, said(q->kind), error);
}

void sem_event_adopt(struct node *n, uint32_t ref, struct core_event *ret)
{
	struct sem_lease l;

	if (!sem_lease(ref_space(n, ref), ref_slot(n, ref), &l))
		return;
	ret->adopt.range = (struct core_range){ l.first, l.count };
	ret->adopt.number = 0;           /* it takes a new one anyhow */
	ret->adopt.weight = l.weight;
	ret->adopt.limit = l.opened;
	ret->adopt.present = l.stamp ? l.limit : 0;
	ret->adopt.limit_stamp = l.stamp;
}
