/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What all nodes of a cluster have to have alike is in the record "terms" of the store: the TTL. Who observes a session
 * for a shorter time than its node counts on would end it under its holders (DESIGN S1).
 *
 * What must hold: of this node nothing else is read or written before the terms are known to be its own, anew for
 * each session. Where they are not, each request fails: there is no session, and the lease of one that was adopted is not renewed.
 *
 * The first node writes them. No node changes them: only who sees that all have stopped knows when that is safe.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../log.h"
#include "node.h"

#define TERMS_KEY "terms"
#define TERMS_LAYOUT 1
#define SAY_AGAIN (600 * NSEC_PER_SEC)

/* Little-endian as all that we run on. */
struct terms {
	uint32_t layout, ttl_ms;
};

static void ask(struct node *n);

/* What is in force: a reload changes only the configuration. */
static uint32_t ttl_of(const struct node *n)
{
	return (uint32_t)(n->cluster.conf.ttl / NSEC_PER_MSEC);
}

static void over(struct node *n, int error)
{
	struct node_cluster *c = &n->cluster;

	c->terms_asked = false;
	c->terms_good = !error;
	if (!error)
		c->terms_why[0] = 0;
	records_release(n, error);
}

static int outside(struct node *n, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int outside(struct node *n, const char *format, ...)
{
	struct node_cluster *c = &n->cluster;
	nsec_t now = loop_now(n->loop);
	bool known = c->terms_why[0];
	va_list ap;

	va_start(ap, format);
	vsnprintf(c->terms_why, sizeof c->terms_why, format, ap);
	va_end(ap);
	if (!known || now - c->terms_said > SAY_AGAIN) {
		log_error("this node stays outside the cluster: %s", c->terms_why);
		c->terms_said = now;
	}
	return -EPROTO;
}

static int compare(struct node *n, const struct store_record *r)
{
	uint32_t ours = ttl_of(n);
	struct terms t;

	if (r->size >= sizeof t)
		memcpy(&t, r->value, sizeof t);
	if (r->size < sizeof t || t.layout != TERMS_LAYOUT)
		return outside(n, "the record \"" TERMS_KEY "\" of this cluster in the store is none of this release: upgrade this node");
	if (t.ttl_ms != ours)
		return outside(n, "[Cluster] TTL= is %u ms here and %u ms in the cluster: let it be the same on all nodes "
			       "(dlockd.conf(5) says how to change it)", ours, t.ttl_ms);
	return 0;
}

static void written(void *arg, const struct store_result *res)
{
	struct node *n = arg;

	if (n->closing)
		return;
	records_explain(n, res);
	if (res->error == -EAGAIN)       /* another node was first */
		ask(n);
	else
		over(n, res->in_doubt ? -ETIMEDOUT : res->error);
}

static void answered(void *arg, const struct store_result *res)
{
	struct terms t = { TERMS_LAYOUT, 0 };
	struct node *n = arg;

	if (n->closing)
		return;
	records_explain(n, res);
	t.ttl_ms = ttl_of(n);
	if (res->error)
		over(n, res->error);
	else if (res->n_records)
		over(n, compare(n, res->records));
	else
		store_cas(n->store, TERMS_KEY, 0, &t, sizeof t, written, n);
}

static void ask(struct node *n)
{
	store_get(n->store, TERMS_KEY, answered, n);
}

void terms_want(struct node *n)
{
	if (n->cluster.terms_asked)
		return;
	n->cluster.terms_asked = true;
	ask(n);
}
