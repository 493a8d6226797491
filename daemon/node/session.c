/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the core says of this node's session, carried out: deadline, loss and lapse, as ledger and clients know them; and what it says to the
 * network. What must hold stands in cluster.c.
 */
#include <stdio.h>
#include <string.h>

#include "../log.h"
#include "../net/net.h"
#include "node.h"

static void log_session(const struct node *n, enum log_level level, const char *what)
{
	log_write(level, "session %016llx, incarnation %u: %s", (unsigned long long)n->cluster.session,
		  n->cluster.incarnation, what);
}

/* A session that was adopted has its deadline from before; another has none yet. */
static void act_session(struct node *n, const struct core_action *a)
{
	struct node_cluster *c = &n->cluster;
	bool same = a->session.session == c->session;

	c->session = a->session.session;
	c->incarnation = a->session.incarnation;
	if (!same)
		c->deadline = 0;
	if (cluster_note(n, c->deadline) < 0)
		log_error("the session cannot be noted in the ledger: a restart will not go on with it");
	net_session(c->net, c->session, c->incarnation);
	log_session(n, LOG_LEVEL_DEBUG, same ? "begins" : "begins anew");
}

static void act_deadline(struct node *n, nsec_t when)
{
	struct node_cluster *c = &n->cluster;
	bool first = !c->deadline || c->adopted, later = when > c->deadline;
	char text[80];

	c->deadline = when;
	c->adopted = 0;
	if (cluster_note(n, when) < 0)
		log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "the deadline cannot be noted in the ledger");
	if (c->losing && later) {
		loop_timer_cancel(n->loop, &c->loss_timer);
		shm_loss_over(&n->shm);
		c->losing = false;
	}
	shm_deadline(&n->shm, when, counter_deadline(&c->counter, when));
	if (first) {
		snprintf(text, sizeof text, "session %016llx, incarnation %u", (unsigned long long)c->session, c->incarnation);
		log_session(n, LOG_LEVEL_INFO, c->lapses ? "in the cluster again" : "in the cluster");
		node_tell(n, &(struct shm_event){ .what = c->lapses ? "rejoined" : "joined", .detail = text });
	}
	if (c->jeopardy && later)
		log_session(n, LOG_LEVEL_NOTICE, "the store can be reached again, and the lease is renewed");
	if (later)
		c->jeopardy = 0;
	node_things_session(n, c->session);
	expiry_look(n);
}

static void act_jeopardy(struct node *n, int error)
{
	nsec_t now = loop_now(n->loop), deadline = n->cluster.deadline;
	const char *why = !error ? "the store has not answered" : n->cluster.store_why[0] ? n->cluster.store_why : strerror(-error);
	char text[1200];

	n->cluster.jeopardy = error ? error : -ETIMEDOUT;
	snprintf(text, sizeof text, "the lease %s (%s); what is held here is lost in %llu ms",
		 error ? "cannot be renewed" : "has not been renewed yet", why,
		 (unsigned long long)((deadline > now ? deadline - now : 0) / NSEC_PER_MSEC));
	log_session(n, LOG_LEVEL_WARNING, text);
	node_tell(n, &(struct shm_event){ .what = "jeopardy", .detail = text });
}

static void act_loss(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	nsec_t now = loop_clock();
	char text[160];

	c->losses++;
	c->losing = true;
	snprintf(text, sizeof text, "%s in %llu ms: holders are told, dlock run ends what it runs",
		 c->leaving ? "this node leaves; its lease is given up" : "the lease is about to end",
		 (unsigned long long)((c->deadline > now ? c->deadline - now : 0) / NSEC_PER_MSEC));
	log_session(n, c->leaving ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, text);
	node_tell(n, &(struct shm_event){ .what = "loss", .detail = text });
	loop_timer_set(n->loop, &c->loss_timer, (c->deadline > now ? c->deadline : now) + 2 * c->conf.ttl);
	shm_loss(&n->shm);
}

void node_loss_done(void *arg)
{
	struct node *n = arg;

	loop_timer_cancel(n->loop, &n->cluster.loss_timer);
	n->cluster.losing = false;
	node_give(n, (struct node_event){ .kind = CORE_EV_LOSS_DONE });
}

static void act_lapsed(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	const char *why = c->leaving ? "this node leaves: what was held here is given up" : "its time is over: all that was held on this node is lost";

	c->lapses++;
	c->terms_good = false;
	c->deadline = c->adopted = 0;
	node_things_lapsed(n);
	node_lapse(n);
	if (cluster_note(n, 0) < 0)
		log_error("the end of the session cannot be noted in the ledger");
	log_session(n, c->leaving ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, why);
	node_tell(n, &(struct shm_event){ .what = "lapsed", .detail = why });
}

/* Another daemon goes on with this session: what it holds is not ours any more, and no restart may take it up. */
void cluster_superseded(struct node *n)
{
	node_things_lapsed(n);
	node_lapse(n);
	n->cluster.session = 0;
	cluster_note(n, 0);
	net_session(n->cluster.net, 0, 0);
}

static void act_drained(struct node *n)
{
	n->cluster.drained = true;
	log_info("other nodes master all shards now");
	node_tell(n, &(struct shm_event){ .what = "drained" });
	if (n->cluster.stopping && !n->cluster.leaving)
		loop_stop(n->loop, 0);
}

static void act_left(struct node *n, int error)
{
	n->cluster.left = true;
	node_things_lapsed(n);
	n->cluster.session = 0;
	cluster_note(n, 0);
	if (error)
		log_warning("left the cluster, but the session could not be ended and will expire: %s", strerror(-error));
	else
		log_info("this node has left the cluster");
	node_tell(n, &(struct shm_event){ .what = "left" });
	loop_stop(n->loop, 0);
}

/* Nodes that do not reach one another, though both reach the store (S12). */
static void act_reach(struct node *n, const struct core_action *a)
{
	const char *who = a->session.name && a->session.name[0] ? a->session.name : node_peer_name(n, a->session.session);
	enum log_level level = LOG_LEVEL_WARNING;
	char text[256];

	if (a->kind == CORE_ACT_RELAYED) {
		snprintf(text, sizeof text, "no connection to %s; it is reached through another node", who);
	} else if (a->kind == CORE_ACT_COMPLAINT) {
		snprintf(text, sizeof text, "%s is in the way of others and not reached by anybody; the store is told", who);
		level = LOG_LEVEL_INFO;          /* it may be that it is just being started anew */
	} else {
		snprintf(text, sizeof text, "%s complains that this node is not reached, and it is right: this session ends", who);
		level = LOG_LEVEL_ERROR;
	}
	log_limited(loop_now(n->loop), level, "%s", text);
	node_tell(n, &(struct shm_event){ .what = a->kind == CORE_ACT_RELAYED ? "relayed" :
					  a->kind == CORE_ACT_COMPLAINT ? "complaint" : "cut-off", .detail = text });
}

static void act_ended(struct node *n, const struct core_action *a)
{
	char text[CORE_NODE_NAME_MAX + CORE_ADDRESS_MAX + 160];
	bool named = a->session.name[0];

	snprintf(text, sizeof text, "%s%s%s%s%ssession %016llx%s has not been renewed for %llu ms: it is ended", named ? "node " : "",
		 a->session.name, named ? " at " : "", a->session.address, named ? ": its " : "", (unsigned long long)a->session.session,
		 named ? "" : ", of which no node is known,", (unsigned long long)(n->cluster.conf.ttl / NSEC_PER_MSEC));
	log_limited(loop_now(n->loop), LOG_LEVEL_WARNING, "%s", text);
	node_tell(n, &(struct shm_event){ .what = "expired", .detail = text });
}

/* Nothing in the store is of anybody but dlock's nodes. */
static void act_odd(struct node *n, const struct core_action *a)
{
	nsec_t now = loop_now(n->loop);

	if (a->odd.records)
		log_limited(now, LOG_LEVEL_WARNING, "%u records of members and beats in the store are not what they should be (%s…); what is no node's "
			    "goes in time; who writes there?", a->odd.records, a->odd.key);
	if (a->odd.left_out)
		log_limited(now, LOG_LEVEL_ERROR, "the store lists %u members more than the %u that a cluster may have (%s…): locks whose master "
			    "changes wait until they have gone; who writes there?", a->odd.left_out, CORE_MEMBERS_MAX - 1, a->odd.key);
	if (!a->odd.records && !a->odd.left_out)
		log_limited(now, LOG_LEVEL_NOTICE, "what lies in the store is what it should be again");
}

void act_cluster(struct node *n, const struct core_action *a)
{
	struct node_cluster *c = &n->cluster;
	int r;

	switch (a->kind) {
	case CORE_ACT_SEND:
		net_send(c->net, a->send.session, a->send.conn, a->send.bytes, a->send.n);
		return;
	case CORE_ACT_ENDED:
		act_ended(n, a);
		return;
	case CORE_ACT_ODD:
		act_odd(n, a);
		return;
	case CORE_ACT_RELAYED:
	case CORE_ACT_COMPLAINT:
	case CORE_ACT_CUT_OFF:
		act_reach(n, a);
		return;
	case CORE_ACT_LINK:
		member_copies(n, a->session.name, a->session.address);
		r = net_link(c->net, a->session.session,
			     member_is_former(n, a->session.node, a->session.address) ? NULL : a->session.address);
		if (r < 0)
			log_limited(loop_now(n->loop), LOG_LEVEL_ERROR, "node %s at %s: %s", a->session.name,
				    a->session.address, strerror(-r));
		return;
	case CORE_ACT_UNLINK:
		net_unlink(c->net, a->session.session);
		return;
	case CORE_ACT_DEADLINE:
		act_deadline(n, a->timer.when);
		return;
	case CORE_ACT_JEOPARDY:
		act_jeopardy(n, a->node.error);
		return;
	case CORE_ACT_LOSS:
		act_loss(n);
		return;
	case CORE_ACT_LAPSED:
		act_lapsed(n);
		return;
	case CORE_ACT_SESSION:
		act_session(n, a);
		return;
	case CORE_ACT_DRAINED:
		act_drained(n);
		return;
	case CORE_ACT_LEFT:
		act_left(n, a->node.error);
		return;
	default:
		return;
	}
}
