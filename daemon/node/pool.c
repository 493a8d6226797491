/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Free semaphores: their lease from the core, their record in the store. */
#include "../shm/pool.h"

#include <errno.h>
#include <string.h>

#include "../log.h"
#include "../things/item.h"
#include "../things/key.h"
#include "node.h"

static void claim(void *arg, struct pool *p)
{
	struct node *n = arg;
	uint32_t ref;

	if (ref_take(n, p->o.space, p->o.slot, &ref) < 0)
		pool_refused(p->o.space, p->o.slot, -ENOMEM);
	else
		node_give(n, (struct node_event){ .kind = CORE_EV_CLAIM, .ref = ref, .priority = p->presses });
}

static void press(void *arg, struct pool *p)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_CHANGE, .ref = name_at(p->o.space, p->o.slot)->ref, .ranks = true,
					    .wanted = CORE_WEIGHT_ALL, .priority = 1 });
}

static void release(void *arg, struct pool *p)
{
	node_give(arg, (struct node_event){ .kind = CORE_EV_RELEASE, .ref = name_at(p->o.space, p->o.slot)->ref, .used = 1 });
}

static void answered(void *arg, const struct item_result *res)
{
	pool_answered(arg, &(struct pool_answer){ res->error, res->version, res->bytes, res->n });
}

static int store(void *arg, struct pool *p, const void *bytes, size_t size)
{
	struct name_text t = name_text(p->o.space, p->o.slot);
	char key[STORE_KEY_MAX + 1];
	struct item_call call = {
		.op = p->op == POOL_GET ? ITEM_GET : p->op == POOL_PUT ? ITEM_PUT : ITEM_REMOVE,
		.key = key, .bytes = bytes, .n = size, .compare = p->op != POOL_GET, .version = p->version,
	};
	struct item *item;

	thing_key(THING_POOLS, p->o.space->name, t.p, t.n, key);
	item = node_value(arg, &call, answered, p);
	if (!item)
		return -ENOTCONN;
	if (p->busy && !p->request)      /* it may have been answered, and the next be under way */
		p->request = item;
	return 0;
}

static void drop(void *arg, struct pool *p)
{
	(void)arg;
	if (p->request)
		item_drop(p->request);
	p->request = NULL;
}

const struct pool_ops node_pool_ops = { claim, press, release, store, drop };

void act_pool(struct node *n, const struct core_action *a)
{
	uint32_t ref = a->name.ref;
	struct space *s = ref_space(n, ref);
	uint32_t slot = ref_slot(n, ref);

	switch (a->kind) {
	case CORE_ACT_LEDGER_GRANT:
		pool_ledger_grant(s, slot, &(struct pool_lease){ a->name.range.first, a->name.range.count });
		return;
	case CORE_ACT_GRANT:
		pool_granted(s, slot);
		return;
	case CORE_ACT_LEDGER_RELEASE:
		pool_ledger_release(s, slot);
		return;
	case CORE_ACT_FORGOTTEN:
		ref_drop(n, ref);
		pool_forgotten(s, slot);
		return;
	case CORE_ACT_REFUSED:
		ref_drop(n, ref);
		pool_refused(s, slot, a->name.error);
		return;
	case CORE_ACT_REVOKE:
		pool_revoke(s, slot, a->name.priority);
		return;
	default:
		return;
	}
}

/* A release that the core does not take is of a lease that has gone. */
void pool_step_failed(struct node *n, const struct node_event *q, int error)
{
	struct space *s = ref_space(n, q->ref);
	uint32_t slot = ref_slot(n, q->ref);

	if (q->ranks)
		return;                  /* it has been granted, or is asked for anew */
	ref_drop(n, q->ref);
	if (error != -EBUSY && error != -ESHUTDOWN)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "core: %s: %s", core_event_name(q->kind), strerror(-error));
	if (q->kind == CORE_EV_CLAIM)
		pool_refused(s, slot, error);
	else
		pool_forgotten(s, slot);
}

void pool_show(const struct object *o, struct query_name *q)
{
	const struct pool *p = (const struct pool *)o;

	q->state = p->state == POOL_OPEN ? "leased" : "unleased";
	q->counts = p->state == POOL_OPEN;
	q->count = pool_word_value(p);
}

void pool_event_adopt(struct node *n, uint32_t ref, struct core_event *ret)
{
	struct pool_lease l;

	if (pool_lease(ref_space(n, ref), ref_slot(n, ref), &l))
		ret->adopt.range = (struct core_range){ l.first, l.count };
}
