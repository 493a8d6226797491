/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node among others: the shared store, the connections, the session as ledger and clients know it.
 *
 * What must hold:
 *  - The ledger knows a session and its incarnation before anything is said in its name (S8), and a deadline
 *    before clients do: what a successor adopts ends no later than they believe, or it is told so.
 *  - What was held in another cluster, or alone, is lost, not carried over.
 *  - LOSS_DONE is said when those have ended whom it concerns; at the latest when the others have ended the
 *    session themselves, so that a process that cannot be killed does not keep the node out for ever.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/map.h"
#include "../hash.h"
#include "../log.h"
#include "../net/keys.h"
#include "../net/net.h"
#include "../shm/files.h"
#include "node.h"

#define STOP_SPAN (8 * NSEC_PER_SEC)     /* within TimeoutStopSec= of the unit */
#define LEAVE_SPAN (5 * NSEC_PER_SEC)
#define STOP_LOOK (200 * NSEC_PER_MSEC)
#define DRIFT_PPM 10000
#define PLACE_LEAST 4            /* claims in a quarter of its span: some a second */

static int fail(struct node *n, int error, const char *what, const char *why)
{
	if (!n->failed[0])
		snprintf(n->failed, sizeof n->failed, "%s%s%s", what, why ? ": " : "", why ? why : "");
	return error;
}

/* --- spans --- */

static nsec_t within(nsec_t span, nsec_t min, nsec_t max)
{
	return span < min ? min : span > max ? max : span;
}

static struct core_cluster spans(nsec_t ttl)
{
	return (struct core_cluster){
		.ttl = ttl, .guard = within(ttl / 50, 10 * NSEC_PER_MSEC, NSEC_PER_SEC), .drift_ppm = DRIFT_PPM,
		.beat = ttl / 4, .look = within(ttl / 20, 20 * NSEC_PER_MSEC, NSEC_PER_SEC), .steady = ttl / 5, .loss = ttl / 4,
		.place = within(ttl / 2, NSEC_PER_SEC, 5 * NSEC_PER_SEC), .place_least = PLACE_LEAST,
	};
}

/* --- opening --- */

/* 0: alone. Two clusters that are called alike in two stores are told apart by the session's record, which one lacks. */
static uint64_t where_of(const struct config *c)
{
	return config_is_cluster(c) ? fnv1a(FNV1A_START, c->cluster_name, strlen(c->cluster_name)) | 1 : 0;
}

struct store_options cluster_store(const struct node *n)
{
	char *const *t = n->config.text;

	return (struct store_options){
		.url = t[CONFIG_STORE], .state_dir = n->config.state_dir, .cluster = n->config.cluster_name,
		.request_ms = (unsigned)(n->config.ttl / 5), .user = t[CONFIG_STORE_USER],
		.password_file = t[CONFIG_STORE_PASSWORD], .ca = t[CONFIG_STORE_CA], .cert = t[CONFIG_STORE_CERT],
		.cert_key = t[CONFIG_STORE_CERT_KEY],
	};
}

static int open_store(struct node *n)
{
	/* All that the core does at a hint is to read the map; what the others' beats write is nothing to it. */
	static const char *const hints[] = { MAP_KEY, NULL };
	struct store_options o = cluster_store(n);
	static struct store_why why;
	int r;

	o.hints = hints;
	r = store_open(&o, &n->store, &why);
	return r < 0 ? fail(n, r, "store", why.text) : 0;
}

static void on_link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	struct node *n = arg;

	node_tell(n, &(struct shm_event){ .what = "peer-up", .detail = node_peer_name(n, session) });
	node_give(n, (struct node_event){ .kind = CORE_EV_LINK_UP, .session = session, .incarnation = incarnation,
					  .conn = conn });
}

static void on_link_down(void *arg, uint64_t session, uint64_t conn)
{
	struct node *n = arg;

	node_tell(n, &(struct shm_event){ .what = "peer-down", .detail = node_peer_name(n, session) });
	node_give(n, (struct node_event){ .kind = CORE_EV_LINK_DOWN, .session = session, .conn = conn });
}

static int on_recv(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t size)
{
	return node_recv(arg, session, conn, bytes, size);
}

static void on_say(void *arg, enum log_level level, const char *text)
{
	(void)arg;
	log_write(level, "%s", text);
}

static const struct net_ops net_ops = { on_link_up, on_link_down, on_recv, on_say };

/* Where the others reach us: what is configured, else where we listen, else this host by its name. */
static int address_set(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	const char *listen = net_listen_address(c->net, 0), *port = strrchr(listen, ':');
	bool any = strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;
	char host[HOST_NAME_MAX + 1] = "";
	int size;

	if (n->config.text[CONFIG_ADDRESS])
		size = snprintf(c->address, sizeof c->address, "%s", n->config.text[CONFIG_ADDRESS]);
	else if (!any)
		size = snprintf(c->address, sizeof c->address, "%s", listen);
	else if (gethostname(host, sizeof host - 1) < 0 || !port)
		return fail(n, -EINVAL, "this host has no name that others could reach it by; set [Node] Address=", NULL);
	else
		size = snprintf(c->address, sizeof c->address, "%s%s", host, port);
	if (size < 1 || size >= (int)sizeof c->address)
		return fail(n, -EINVAL, "[Node] Address= is too long", NULL);
	return 0;
}

static int open_net(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	struct tls_files files = config_tls(&n->config);
	struct net_options o = { .node = n->config.node_name, .cluster = n->config.cluster_name,
				 .ttl = n->config.ttl * NSEC_PER_MSEC };
	char why[TLS_WHY_MAX] = "";
	int r = tls_keys_load(&files, &c->keys, why);

	if (r < 0)
		return fail(n, r, why, NULL);
	o.keys = c->keys;
	r = net_create(n->loop, &o, &net_ops, n, &c->net);
	if (r < 0)
		return fail(n, r, "net", strerror(-r));
	r = net_listen(c->net, config_listen(&n->config), why);
	if (r < 0)
		return fail(n, r, why[0] ? why : "[Node] Listen=", why[0] ? NULL : strerror(-r));
	return address_set(n);
}

/* What the ledger holds of a session here: it is gone on with, or over. */
static void adoption(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	struct ledger_cluster was;

	if (n->boot.fresh || ledger_peek_cluster(n->rundir_fd, &was) < 0 || was.where != where_of(&n->config) ||
	    !was.session || !was.deadline || was.incarnation == UINT32_MAX)
		return;
	c->session = was.session;
	c->incarnation = was.incarnation + 1;
	c->adopted = c->deadline = was.deadline;
}

static void loss_late(void *arg)
{
	struct node *n = arg;

	log_warning("what was to end at the loss of the lease has not; the others have ended this node's session by now");
	shm_loss_over(&n->shm);
	node_loss_done(n);
}

/* Is there another that would take our shards? Where all stop at once there is none. */
static bool heir_there(const struct node *n)
{
	struct core_member m;
	unsigned at = 0;

	while (core_member_next(n->core, &at, &m))
		if (!m.self && m.may_master && !m.drains)
			return true;
	return false;
}

static void stop_look(void *arg)
{
	struct node *n = arg;
	nsec_t now = loop_now(n->loop);

	if (n->cluster.leaving) {
		log_warning("the session could not be ended in time; the others end it when its time is over");
		loop_stop(n->loop, 0);
		return;
	}
	if (now < n->cluster.stop_by && heir_there(n)) {
		loop_timer_set(n->loop, &n->cluster.stop_timer, now + STOP_LOOK);
		return;
	}
	log_info("nobody has taken over this node's shards; stopping all the same");
	loop_stop(n->loop, 0);
}

int cluster_open(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	int r;

	loop_timer_init(&c->loss_timer, loss_late, n);
	loop_timer_init(&c->stop_timer, stop_look, n);
	if (!config_is_cluster(&n->config)) {
		n->store = n->own;
		return 0;
	}
	c->on = true;
	counter_init(&c->counter);
	c->conf = spans(n->config.ttl * NSEC_PER_MSEC);
	c->conf.name = n->config.node_name;
	c->conf.may_master = n->config.master;
	if (!n->config.placement)
		c->conf.place = 0;
	memcpy(&c->conf.node, n->boot.node_id, sizeof c->conf.node);
	adoption(n);
	r = open_store(n);
	if (r == 0)
		r = open_net(n);
	c->conf.address = c->address;
	if (r == 0 && !c->session) {
		c->incarnation = 1;
		r = files_random(&c->session, sizeof c->session);
		c->session |= !c->session;
	}
	return r;
}

uint64_t node_session_adopted(const struct node *n)
{
	if (n->boot.fresh)
		return 0;
	return !n->cluster.on ? n->boot.id.session : n->cluster.adopted ? n->cluster.session : 0;
}

nsec_t cluster_first_deadline(const struct node *n)
{
	if (!n->cluster.on)
		return 0;
	return n->cluster.adopted ? n->cluster.adopted : NODE_LAPSED;
}

int cluster_note(struct node *n, uint64_t deadline)
{
	struct node_cluster *c = &n->cluster;
	struct ledger_cluster l = { .session = c->session, .deadline = deadline, .where = where_of(&n->config),
				    .incarnation = c->incarnation, .layout = LEDGER_CLUSTER_LAYOUT };

	return ledger_note_cluster(&n->shm.ledger, &l);
}

int cluster_begin(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	bool elsewhere = !n->boot.fresh && n->shm.ledger.cluster.where != where_of(&n->config);

	if (!n->boot.fresh && !c->adopted && (c->on || elsewhere)) {
		log_warning("what was held %s is lost: there is no session to go on with",
			    n->shm.ledger.cluster.where ? "in the cluster" : "while this node was alone");
		shm_lapse(&n->shm);
		if (!c->on)
			shm_deadline(&n->shm, NODE_NEVER, NODE_NEVER);
	}
	page_loss_span(&n->shm.page, c->on ? c->conf.loss : 0);
	if (c->on)
		return cluster_note(n, c->adopted);
	return elsewhere ? ledger_note_cluster(&n->shm.ledger, &(struct ledger_cluster){ 0 }) : 0;
}

static void store_has_news(void *arg)
{
	struct node *n = arg;

	if (!n->closing && store_changed(n->store))
		node_give(n, (struct node_event){ .kind = CORE_EV_HINT });
}

static void store_is_ready(void *arg, uint32_t revents)
{
	struct node *n = arg;

	(void)revents;
	store_ready(n->store);
}

int cluster_ready(struct node *n)
{
	int fd = n->cluster.on ? store_fd(n->store) : -1;

	if (n->cluster.on)
		store_on_change(n->store, store_has_news, n);
	return fd < 0 ? 0 : loop_watch(n->loop, fd, POLLIN, store_is_ready, n, &n->store_watch);
}

void cluster_close(struct node *n)
{
	struct node_cluster *c = &n->cluster;

	if (c->loss_timer.fn) {
		loop_timer_cancel(n->loop, &c->loss_timer);
		loop_timer_cancel(n->loop, &c->stop_timer);
	}
	loop_unwatch(n->store_watch);
	records_drop(n);
	net_free(c->net);
	tls_keys_free(c->keys);
	if (n->store != n->own)
		store_close(n->store);
}

/* --- stopping, and other keys --- */

void node_stop(struct node *n)
{
	struct node_cluster *c = &n->cluster;

	if (!c->on || !c->deadline || c->stopping || c->drained) {
		loop_stop(n->loop, 0);
		return;
	}
	c->stopping = true;
	c->stop_by = loop_now(n->loop) + STOP_SPAN;
	loop_timer_set(n->loop, &c->stop_timer, loop_now(n->loop) + STOP_LOOK);
	node_give(n, (struct node_event){ .kind = CORE_EV_DRAIN });
}

nsec_t node_leave_span(const struct node *n)
{
	return 2 * n->cluster.conf.ttl + LEAVE_SPAN;
}

int node_leave(struct node *n)
{
	struct node_cluster *c = &n->cluster;

	if (!c->on)
		return -ENOTSUP;
	if (c->leaving)
		return -EALREADY;
	c->leaving = c->stopping = true;
	n->state = "stopping";
	log_info("leaving the cluster");
	loop_timer_set(n->loop, &c->stop_timer, loop_now(n->loop) + node_leave_span(n));
	node_give(n, (struct node_event){ .kind = CORE_EV_LEAVE });
	return 0;
}

/* Until a suspend is announced again clients ask the clock, which goes on over it. */
void node_sleep(struct node *n, bool announced)
{
	struct node_cluster *c = &n->cluster;

	counter_guard(&c->counter, announced);
	if (!announced)
		shm_deadline(&n->shm, n->shm.page.ns, 0);
}

int node_drain(struct node *n, bool on)
{
	struct node_cluster *c = &n->cluster;

	if (!c->on)
		return -ENOTSUP;
	if (c->stopping)
		return -EALREADY;
	c->drains = on;
	c->drained = false;
	log_info(on ? "draining: this node hands its shards over, and gets no new ones" : "this node may master shards again");
	node_give(n, (struct node_event){ .kind = CORE_EV_DRAIN, .off = !on });
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

void cluster_reload(struct node *n, const struct config *old)
{
	static const enum config_text fixed[] = { CONFIG_STORE, CONFIG_LISTEN, CONFIG_ADDRESS };
	struct tls_files files = config_tls(&n->config);
	struct tls_keys *keys;
	char why[TLS_WHY_MAX];
	bool other = old->ttl != n->config.ttl || old->master != n->config.master || old->placement != n->config.placement ||
		     strcmp(old->cluster_name, n->config.cluster_name) != 0;

	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		other |= !same_text(old->text[fixed[i]], n->config.text[fixed[i]]);
	if (other)
		log_warning("Store=, Listen=, Address=, Master=, TTL=, Placement= and the cluster's name change with a restart only");
	if (!n->cluster.on)
		return;
	if (tls_keys_load(&files, &keys, why) < 0) {
		log_error("%s; the former keys stay in force", why);
		return;
	}
	net_keys(n->cluster.net, keys);
	tls_keys_free(n->cluster.keys);
	n->cluster.keys = keys;
}

void cluster_links_event(struct node *n, const struct links_event *ev)
{
	if (n->cluster.net)
		net_link_event(n->cluster.net, ev);
}
