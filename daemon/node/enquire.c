/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who has a name in the whole cluster, and who waits for it: for people, who ask by the query socket. The master of the name knows.
 *
 * What must hold: a question is answered once, in ENQUIRY_SPAN at the latest, though it or its answer may get lost; what is asked holds nothing up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shm/shm.h"
#include "node.h"

#define ENQUIRY_SPAN NSEC_PER_SEC

struct enquiry {
	struct enquiry *next;
	struct node *node;
	uint64_t number;
	char key[CORE_KEY_MAX];
	uint16_t key_len;
	struct loop_timer timer;
	query_nodes_fn done;
	void *ctx;
};

/* Nobody waits for it any more. */
static void end(struct enquiry *e)
{
	struct enquiry **link = &e->node->enquiries;

	while (*link != e)
		link = &(*link)->next;
	*link = e->next;
	loop_timer_cancel(e->node->loop, &e->timer);
	free(e);
}

static void answer(struct enquiry *e, const struct query_nodes_result *res)
{
	query_nodes_fn done = e->done;
	void *ctx = e->ctx;

	end(e);
	done(ctx, res);
}

static void no_answer(void *arg)
{
	answer(arg, &(struct query_nodes_result){ .error = -EAGAIN });
}

static struct enquiry *find(struct node *n, uint64_t number)
{
	struct enquiry *e = n->enquiries;

	while (e && e->number != number)
		e = e->next;
	return e;
}

void enquire_event(struct node *n, const struct node_event *q, struct core_event *ret)
{
	struct enquiry *e = find(n, q->number);

	ret->enquire.number = q->number;
	ret->enquire.key = e ? e->key : NULL;
	ret->enquire.key_len = e ? e->key_len : 0;
}

/* No master can be asked now. The caller is answered from the loop, as ever. */
void enquire_step_failed(struct node *n, const struct node_event *q)
{
	struct enquiry *e = find(n, q->number);

	if (e)
		loop_timer_set(n->loop, &e->timer, loop_now(n->loop));
}

void act_account(struct node *n, const struct core_action *a)
{
	static char names[CORE_PARTIES_MAX][CORE_NODE_NAME_MAX + 32], master[CORE_NODE_NAME_MAX + 32];
	struct query_share v[CORE_PARTIES_MAX];
	struct query_nodes_result res = { .held = a->account.held, .limit = a->account.limit, .all = a->account.all, .v = v };
	struct enquiry *e = find(n, a->account.number);

	if (!e)
		return;
	for (; res.n < a->account.n; res.n++) {
		const struct core_party *p = &a->account.parties[res.n];

		snprintf(names[res.n], sizeof names[res.n], "%s", node_peer_name(n, p->session));
		v[res.n] = (struct query_share){ names[res.n], p->held, p->wanted };
	}
	snprintf(master, sizeof master, "%s", node_peer_name(n, core_master(n->core, e->key, e->key_len)));
	res.master = master;
	answer(e, &res);
}

/* KINDS: none that is granted. */
static enum kind granted_kind(const char *text)
{
	enum kind k = 0;

	while (k < KINDS && !(kind_is_granted(k) && !strcmp(text, kind_text(k))))
		k++;
	return k;
}

void *node_enquire(void *arg, const struct query_nodes_call *call, query_nodes_fn done, void *ctx, int *ret_error)
{
	static uint64_t last;
	struct node *n = arg;
	enum kind kind = granted_kind(call->kind);
	uint64_t number = ++last;
	struct enquiry *e = n->cluster.on && kind != KINDS ? malloc(sizeof *e) : NULL;

	*ret_error = e ? 0 : !n->cluster.on ? -ENOTSUP : kind == KINDS ? -EINVAL : -ENOMEM;
	if (!e)
		return NULL;
	*e = (struct enquiry){ .next = n->enquiries, .node = n, .number = number, .done = done, .ctx = ctx };
	e->key_len = name_key(call->space, kind, call->name, strlen(call->name), e->key);
	loop_timer_init(&e->timer, no_answer, e);
	n->enquiries = e;
	loop_timer_set(n->loop, &e->timer, loop_now(n->loop) + ENQUIRY_SPAN);
	node_give(n, (struct node_event){ .kind = CORE_EV_ENQUIRE, .number = number });
	return find(n, number);
}

void node_enquire_drop(void *arg, void *request)
{
	(void)arg;
	end(request);
}
