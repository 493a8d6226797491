/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The cluster as the query socket shows it: who is listed (core), and how they are reached (net). */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "../log.h"
#include "../net/keys.h"
#include "../net/net.h"
#include "node.h"

/* What was copied from node to node and should not have been. Both alike: an earlier session of this node. */
void member_copies(const struct node *n, const char *its_name, const char *its_address)
{
	bool name = strcmp(its_name, n->config.node_name) == 0, address = strcmp(its_address, n->cluster.address) == 0;

	if (name && !address)
		log_limited(loop_now(n->loop), LOG_LEVEL_WARNING, "the node at %s is called %s, as this one is: let [Node] Name= be "
			    "another one on each node", its_address, its_name);
	if (address && !name)
		log_limited(loop_now(n->loop), LOG_LEVEL_WARNING, "node %s has this node's own address, %s: see [Node] Address= and "
			    "Listen= there and here", its_name, its_address);
}

struct search {
	uint64_t session;
	bool found;
	struct net_peer_info peer;
};

static void on_peer(void *arg, const struct net_peer_info *p)
{
	struct search *s = arg;

	if (p->session == s->session) {
		s->peer = *p;
		s->found = true;
	}
}

/* Who has just connected has said how it is called, and may not be listed here yet. */
const char *node_peer_name(const struct node *n, uint64_t session)
{
	static char text[CORE_NODE_NAME_MAX + 32];
	struct search s = { .session = session };
	struct core_member m;
	unsigned at = 0;

	while (core_member_next(n->core, &at, &m))
		if (m.session == session && m.name[0]) {
			snprintf(text, sizeof text, "%s", m.name);
			return text;
		}
	if (n->cluster.net)
		net_each(n->cluster.net, on_peer, &s);
	if (s.found && s.peer.node[0])
		snprintf(text, sizeof text, "%s", s.peer.node);
	else
		snprintf(text, sizeof text, "session %016llx", (unsigned long long)session);
	return text;
}

/* It ends when its time is over, and where it is reached is nobody but this node. */
bool member_is_former(const struct node *n, uint64_t node, const char *address)
{
	uint64_t own;

	memcpy(&own, n->boot.node_id, sizeof own);
	return node == own && strcmp(address, n->cluster.address) == 0;
}

static void member_reach(const struct node *n, const struct core_member *m, struct query_member *ret)
{
	struct search s = { .session = m->session };

	net_each(n->cluster.net, on_peer, &s);
	ret->state = s.found ? net_state_text(s.peer.state) : "unknown";
	if (m->linked && m->via)
		ret->state = "relayed";
	else if (member_is_former(n, m->node, m->address))
		ret->state = "former";
	if (!s.found)
		return;
	ret->rtt_us = s.peer.rtt / NSEC_PER_USEC;
	ret->queue = s.peer.queue;
	ret->protocol = s.peer.protocol;
	ret->security = s.peer.security;
	ret->error = s.peer.last_error;
	if (s.peer.incarnation)
		ret->incarnation = s.peer.incarnation;
}

/* As the first half of the identity that status shows, whose bytes are written in order. */
static uint64_t node_shown(uint64_t node)
{
	return be64toh(node);
}

static void show_member(const struct node *n, const struct core_member *m,
			void (*fn)(void *ctx, const struct query_member *q), void *ctx)
{
	struct query_member q = {
		.name = m->name, .address = m->address, .session = m->session, .node = node_shown(m->node), .incarnation = m->incarnation,
		.self = m->self, .may_master = m->may_master, .drains = m->drains, .coordinates = m->coordinates, .shards = m->shards, .placed = m->placed,
		.state = "self",
	};

	if (!m->self)
		member_reach(n, m, &q);
	fn(ctx, &q);
}

/* Alone, or not listed yet: this node is all that is known. */
static void show_self(const struct node *n, void (*fn)(void *ctx, const struct query_member *q), void *ctx)
{
	const struct node_cluster *c = &n->cluster;
	struct query_member q = {
		.name = n->config.node_name, .address = c->address, .state = "self", .self = true,
		.session = c->on ? c->session : n->boot.id.session, .may_master = n->config.master,
		.incarnation = c->on ? c->incarnation : n->boot.incarnation, .shards = c->on ? 0 : CORE_SHARDS,
	};

	memcpy(&q.node, n->boot.node_id, sizeof q.node);
	q.node = node_shown(q.node);
	fn(ctx, &q);
}

void members_each(void *arg, void (*fn)(void *ctx, const struct query_member *q), void *ctx)
{
	const struct node *n = arg;
	struct core_member m;
	unsigned at = 0;
	bool self = false;

	while (core_member_next(n->core, &at, &m)) {
		self |= m.self;
		show_member(n, &m, fn, ctx);
	}
	if (!self)
		show_self(n, fn, ctx);
}

/* Why there is no lease, or soon none; NULL: all is well. */
static const char *jeopardy(const struct node_cluster *c)
{
	if (c->terms_why[0])
		return c->terms_why;
	if (!c->jeopardy && c->deadline)
		return NULL;
	return c->store_why[0] ? c->store_why : c->jeopardy ? strerror(-c->jeopardy) : NULL;
}

void members_cluster(const struct node *n, const struct core_stats *st, struct query_cluster *ret)
{
	const struct node_cluster *c = &n->cluster;
	struct tls_files files = config_tls(&n->config);
	static char why[TLS_WHY_MAX];
	nsec_t now = loop_now(n->loop);
	struct core_member m;
	unsigned at = 0;

	*ret = (struct query_cluster){
		.name = n->config.cluster_name, .address = c->address, .security = c->keys ? tls_keys_text(c->keys) : "",
		.ttl_ms = c->conf.ttl / NSEC_PER_MSEC, .lease_ms = c->deadline > now ? (c->deadline - now) / NSEC_PER_MSEC : 0,
		.ticks = n->shm.page.ticks != 0, .drains = c->drains || c->stopping, .open = st->open,
		.jeopardy = jeopardy(c), .losses = c->losses, .lapses = c->lapses,
		.store_us = c->store_took / NSEC_PER_USEC, .store_worst_us = c->store_worst / NSEC_PER_USEC,
		.odd = st->odd, .left_out = st->left_out, .silent = st->silent, .orphans = st->orphans, .opening = st->opening,
	};
	tls_keys_until(c->keys, &ret->cert_until, &ret->ca_until);
	ret->keys_wrong = tls_files_look(&files, c->keys, why) < 0 ? why : NULL;
	while (core_member_next(n->core, &at, &m)) {
		ret->members++;
		if (m.self)
			ret->shards = m.shards, ret->placed = m.placed;
	}
}
