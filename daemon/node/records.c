/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The core's requests to the store, and the answers. An answer may come before the request function returns,
 * or much later: it is copied, and becomes an event.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../log.h"
#include "node.h"

struct request {
	struct node *node;
	uint32_t op;
	nsec_t sent;
};

#define WORST_SPAN (60 * NSEC_PER_SEC)

static void took(struct node *n, nsec_t span)
{
	struct node_cluster *c = &n->cluster;
	nsec_t now = loop_now(n->loop);

	c->store_took = c->store_took ? (7 * c->store_took + span) / 8 : span;
	if (span < c->store_worst && now - c->store_worst_at < WORST_SPAN)
		return;
	c->store_worst = span;
	c->store_worst_at = now;
}

/* One block: the records, then their keys and values. NULL: no memory. */
static struct core_record *copy_records(const struct store_result *res)
{
	size_t size = res->n_records * sizeof(struct core_record);
	struct core_record *v;
	char *at;

	for (size_t i = 0; i < res->n_records; i++)
		size += strlen(res->records[i].key) + 1 + res->records[i].size;
	v = malloc(size ? size : 1);
	if (!v)
		return NULL;
	at = (char *)(v + res->n_records);
	for (size_t i = 0; i < res->n_records; i++) {
		const struct store_record *r = &res->records[i];
		size_t key = strlen(r->key) + 1;

		v[i] = (struct core_record){ .key = at, .value = at + key, .value_len = (uint32_t)r->size, .version = r->version };
		memcpy(at, r->key, key);
		memcpy(at + key, r->value, r->size);
		at += key + r->size;
	}
	return v;
}

#define SAY_AGAIN (600 * NSEC_PER_SEC)
#define SAY_OTHER (10 * NSEC_PER_SEC)

/* One kind of failure once: it may go on for hours, and a host that is slow now and then is one that works. Two kinds may take turns. */
void records_explain(struct node *n, const struct store_result *res)
{
	struct node_cluster *c = &n->cluster;
	nsec_t now = loop_now(n->loop);
	bool told;

	if (!c->on || res->error == -EAGAIN || res->error == -ECANCELED)
		return;
	snprintf(c->store_why, sizeof c->store_why, "%s", res->error ? store_explain(n->store) : "");
	if (!c->store_why[0])
		return;
	told = c->store_told && now - c->store_said <= (res->error == c->store_told ? SAY_AGAIN : SAY_OTHER);
	log_write(told ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "store: %s", c->store_why);
	if (told)
		return;
	c->store_told = res->error;
	c->store_said = now;
}

static void answered(void *arg, const struct store_result *res)
{
	struct request *rq = arg;
	struct node_event ev = { .kind = CORE_EV_STORE, .op = rq->op, .error = res->error, .version = res->version };
	struct node *n = rq->node;
	nsec_t span = loop_clock() - rq->sent;

	free(rq);
	if (n->closing)
		return;
	took(n, span);
	records_explain(n, res);
	if (res->in_doubt)
		ev.error = -ETIMEDOUT;
	if (!ev.error && res->n_records) {
		ev.records = copy_records(res);
		ev.n_records = (uint32_t)res->n_records;
		if (!ev.records)
			ev.error = -ENOMEM;
	}
	node_give(n, ev);
}

static void carry_out(struct node *n, const struct core_action *a)
{
	struct request *rq = malloc(sizeof *rq);

	if (!rq) {
		node_give(n, (struct node_event){ .kind = CORE_EV_STORE, .op = a->store.op, .error = -ENOMEM });
		return;
	}
	*rq = (struct request){ n, a->store.op, loop_clock() };
	if (a->kind == CORE_ACT_STORE_GET)
		store_get(n->store, a->store.key, answered, rq);
	else if (a->kind == CORE_ACT_STORE_LIST)
		store_list(n->store, a->store.key, answered, rq);
	else
		store_cas(n->store, a->store.key, a->store.version, a->store.value, a->store.value_len, answered, rq);
}

/* --- Until the terms are known --- */

struct record_request {
	struct record_request *next;
	struct core_action action;       /* its key lies behind it; its value is the core's */
};

static struct record_request *hold(const struct core_action *a)
{
	size_t key = strlen(a->store.key) + 1;
	struct record_request *h = malloc(sizeof *h + key);

	if (!h)
		return NULL;
	*h = (struct record_request){ .action = *a };
	h->action.store.key = memcpy(h + 1, a->store.key, key);
	return h;
}

/* What comes of one may ask for more: those wait anew, or are carried out behind it. */
void records_release(struct node *n, int error)
{
	struct record_request *h = n->cluster.held, *next;

	n->cluster.held = NULL;
	for (; h; h = next) {
		next = h->next;
		if (error)
			node_give(n, (struct node_event){ .kind = CORE_EV_STORE, .op = h->action.store.op, .error = error });
		else
			carry_out(n, &h->action);
		free(h);
	}
}

void records_drop(struct node *n)
{
	struct record_request *next;

	for (struct record_request *h = n->cluster.held; h; h = next) {
		next = h->next;
		free(h);
	}
	n->cluster.held = NULL;
}

void act_store(struct node *n, const struct core_action *a)
{
	struct record_request **end = &n->cluster.held;

	if (!n->cluster.on || n->cluster.terms_good) {
		carry_out(n, a);
		return;
	}
	while (*end)
		end = &(*end)->next;
	*end = hold(a);
	if (*end)
		terms_want(n);
	else
		node_give(n, (struct node_event){ .kind = CORE_EV_STORE, .op = a->store.op, .error = -ENOMEM });
}
