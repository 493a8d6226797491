/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "net.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "links.h"
#include "net_int.h"

#define BEATS_IN_SILENCE 5
#define BACKLOG 512

/* xorshift: it spreads retries, and keeps no secret */
uint64_t net_random(struct net *n)
{
	n->random ^= n->random << 13;
	n->random ^= n->random >> 7;
	n->random ^= n->random << 17;
	return n->random;
}

/* --- The end of a turn --- */

static void flush(void *arg)
{
	struct net *n = arg;
	struct line *l;

	while ((l = n->dirty)) {
		n->dirty = l->next_dirty;
		l->dirty = false;
		if (l->phase == LINE_UP)
			wire_flush(l->wire);
	}
}

static void settle(void *arg)
{
	struct net *n = arg;
	struct peer *p;
	struct line *l;

	while ((p = n->down)) {
		n->down = p->next_down;
		p->down_listed = false;
		line_report_down(p);
		peer_want(p, false);
		peer_forget(p);
	}
	flush(n);                                /* nothing that is buried is dirty */
	while ((l = n->dead_lines)) {
		n->dead_lines = l->next;
		line_bury(l);
	}
	while ((p = n->dead_peers)) {
		n->dead_peers = p->next;
		peer_bury(p);
	}
}

void net_settle(struct net *n)
{
	loop_defer(n->loop, &n->settle);
}

/* --- Beats --- */

static nsec_t line_look(struct line *l, nsec_t now, bool beat, nsec_t excuse)
{
	struct net *n = l->net;

	l->pulse.alive += excuse;
	if (now >= pulse_deadline(&l->pulse, n->silence)) {
		n->stats.silent++;
		line_fail(l, false, "nothing comes back from it any more (%s): its host, its dlockd or the network between is down, "
			  "or lets one direction only through", l->pulse.probe ? "after a change of a link here" : "its time is over");
		return NSEC_NEVER;
	}
	if (beat)
		line_beat(l, now, false);
	return pulse_deadline(&l->pulse, n->silence);
}

/*
 * All beats go out in one turn, so that an idle node wakes once an interval however many peers it has. If it comes late
 * itself, nobody else is to blame.
 */
static void tick(void *arg)
{
	struct net *n = arg;
	nsec_t now = loop_now(n->loop), next = NSEC_NEVER, deadline;
	nsec_t late = now - n->tick_due, excuse = late > n->interval ? late : 0;
	bool beat = now >= n->beat_due;

	for (struct line *l = n->ups.next, *after; l != &n->ups; l = after) {
		after = l->next;
		deadline = line_look(l, now, beat, excuse);
		if (deadline < next)
			next = deadline;
	}
	if (beat)
		n->beat_due = now + n->interval;
	if (!n->stats.up)
		return;
	n->tick_due = next < n->beat_due ? next : n->beat_due;
	loop_timer_set(n->loop, &n->tick, n->tick_due);
}

/* Something is up, or probed, that was not. */
void net_tick_set(struct net *n)
{
	nsec_t now = loop_now(n->loop);

	if (!n->tick.queued)
		n->beat_due = n->tick_due = now + n->interval;
	for (const struct line *l = n->ups.next; l != &n->ups; l = l->next)
		if (l->pulse.probe && l->pulse.probe_until < n->tick_due)
			n->tick_due = l->pulse.probe_until;
	loop_timer_set(n->loop, &n->tick, n->tick_due);
}

/* --- Making it --- */

nsec_t net_silence(nsec_t ttl)
{
	nsec_t span = ttl / 5 * 2;

	if (span < NSEC_PER_SEC / 5)
		return NSEC_PER_SEC / 5;
	return span > 20 * NSEC_PER_SEC ? 20 * NSEC_PER_SEC : span;
}

static nsec_t backoff_max(nsec_t ttl)
{
	nsec_t span = ttl / 5;

	if (span < NSEC_PER_SEC / 5)
		return NSEC_PER_SEC / 5;
	return span > 5 * NSEC_PER_SEC ? 5 * NSEC_PER_SEC : span;
}

static bool name_good(const char *name, size_t min)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return n >= min && n <= NET_NAME_MAX;
}

int net_create(struct loop *loop, const struct net_options *o, const struct net_ops *ops, void *arg, struct net **ret)
{
	struct net *n;
	int r;

	if (!name_good(o->node, 1) || !name_good(o->cluster, 0))
		return -EINVAL;
	n = calloc(1, sizeof *n);
	if (!n)
		return -ENOMEM;
	n->loop = loop;
	n->ops = *ops;
	n->arg = arg;
	snprintf(n->node, sizeof n->node, "%s", o->node);
	snprintf(n->cluster, sizeof n->cluster, "%s", o->cluster);
	n->silence = net_silence(o->ttl);
	n->interval = n->silence / BEATS_IN_SILENCE;
	n->backoff_max = backoff_max(o->ttl);
	n->keys = o->keys;
	n->half_open_max = o->half_open_max ? o->half_open_max : NET_HALF_OPEN_MAX;
	n->address_max = o->address_max ? o->address_max : NET_ADDRESS_MAX;
	if (getrandom(&n->random, sizeof n->random, 0) != sizeof n->random || !n->random)
		n->random = loop_clock() | 1;
	wires_init(&n->wires, loop, &line_wire_ops);
	n->wires.silence = n->silence;
	n->wires.queue_max = o->queue_max ? o->queue_max : NET_QUEUE_MAX;
	n->strangers.next = n->strangers.prev = &n->strangers;
	n->ups.next = n->ups.prev = &n->ups;
	loop_defer_init(&n->flush, flush, n);
	loop_defer_init(&n->settle, settle, n);
	loop_timer_init(&n->tick, tick, n);
	r = resolver_create(loop, &n->resolver);
	if (r < 0) {
		free(n);
		return r;
	}
	*ret = n;
	return 0;
}

/* Every line of p, without news of it. */
static void peer_close(struct peer *p)
{
	resolve_stop(p->resolve);
	p->resolve = NULL;
	loop_timer_cancel(p->net->loop, &p->retry);
	if (p->up)
		line_drop(p->up, false, false);
	if (p->dialling)
		line_drop(p->dialling, false, true);
	if (p->greeted)
		line_drop(p->greeted, false, true);
	p->down = 0;
}

static void close_all(struct net *n, bool forget)
{
	while (n->strangers.next != &n->strangers)
		line_drop(n->strangers.next, false, true);
	for (unsigned i = 0; i < PEER_BUCKETS; i++)
		for (struct peer *p = n->bucket[i], *after; p; p = after) {
			after = p->next;
			peer_close(p);
			p->linked &= !forget;
			peer_forget(p);
		}
}

void net_free(struct net *n)
{
	if (!n)
		return;
	for (unsigned i = 0; i < n->listeners; i++) {
		loop_accept_stop(n->listener[i].accept);
		(void)shutdown(n->listener[i].fd, SHUT_RDWR);    /* the kernel's request holds it a little longer */
		close(n->listener[i].fd);
	}
	close_all(n, true);
	settle(n);
	loop_defer_cancel(n->loop, &n->flush);
	loop_defer_cancel(n->loop, &n->settle);
	loop_timer_cancel(n->loop, &n->tick);
	resolver_free(n->resolver);
	wires_done(&n->wires);
	free(n);
}

void net_keys(struct net *n, const struct tls_keys *keys)
{
	n->keys = keys;
	/* Handshakes under way use the former ones. */
	while (n->strangers.next != &n->strangers)
		line_drop(n->strangers.next, false, true);
	for (unsigned i = 0; i < PEER_BUCKETS; i++)
		for (struct peer *p = n->bucket[i]; p; p = p->next)
			if (p->dialling) {
				line_drop(p->dialling, false, true);
				peer_want(p, false);
			}
}

/* --- Listening --- */

static void accepted(void *arg, int fd)
{
	struct listener *l = arg;

	if (fd >= 0)
		line_accepted(l->net, fd);
	else
		net_say_rationed(l->net, LOG_LEVEL_ERROR, "no connection can be taken at %s: %s", l->text, strerror(-fd));
}

static int listen_why(char *ret_why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int listen_why(char *ret_why, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (ret_why)
		vsnprintf(ret_why, 256, format, ap);
	va_end(ap);
	return error;
}

/* Before the network is up its addresses are not there: it may be bound all the same, and takes connections from then on. */
static int bind_early(int fd, const union address *a)
{
	bool v6 = a->any.sa_family == AF_INET6;
	int one = 1;

	if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_FREEBIND : IP_FREEBIND, &one, sizeof one) < 0)
		return -1;
	return bind(fd, &a->any, address_size(a));
}

static int socket_listen(struct net *n, union address *a)
{
	char text[ADDRESS_TEXT_MAX];
	socklen_t size = address_size(a);
	int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP), one = 1, zero = 0, r;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (a->any.sa_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	r = bind(fd, &a->any, size);
	if (r < 0 && errno == EADDRNOTAVAIL) {
		r = bind_early(fd, a);
		address_format(a, text);
		if (r == 0)
			net_say(n, LOG_LEVEL_WARNING, "Listen=%s: this host has no such address; it is listened at as soon as there is one", text);
	}
	if (r < 0 || listen(fd, BACKLOG) < 0 || getsockname(fd, &a->any, &size) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

/* What a daemon that was killed listened at the kernel may free a moment later than it says that the process has ended. */
static int socket_listen_soon(struct net *n, union address *a)
{
	const struct timespec nap = { .tv_nsec = 50 * NSEC_PER_MSEC };
	int fd = socket_listen(n, a);

	for (int tries = 0; fd == -EADDRINUSE && tries < 20; tries++) {
		nanosleep(&nap, NULL);
		fd = socket_listen(n, a);
	}
	return fd;
}

int net_listen(struct net *n, const char *where, char *ret_why)
{
	struct listener *l = &n->listener[n->listeners];
	union address a;
	int r = address_parse(where, &a), fd;

	if (r < 0)
		return listen_why(ret_why, -EINVAL, "Listen=%.120s: write an address as numbers, and a port: 192.0.2.1:7420, [2001:db8::1]:7420, "
				  "*:7420", where);
	if (n->listeners == NET_LISTEN_MAX)
		return listen_why(ret_why, -E2BIG, "there are more than %d addresses to listen at", NET_LISTEN_MAX);
	if (!n->keys && !address_loopback(&a))
		return listen_why(ret_why, -EPERM, "Listen=%.64s is reachable from other machines, and there is neither Key= nor Cert=. dlock "
				  "keygen makes a key.", where);
	fd = socket_listen_soon(n, &a);
	/* No IPv6 in this kernel. */
	if (fd == -EAFNOSUPPORT && *where == '*') {
		a.in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = a.in6.sin6_port };
		fd = socket_listen(n, &a);
	}
	if (fd < 0)
		return listen_why(ret_why, fd, "Listen=%.120s: %s", where, strerror(-fd));
	l->net = n;
	l->fd = fd;
	l->loopback = address_loopback(&a);
	address_format(&a, l->text);
	r = loop_accept_start(n->loop, fd, accepted, l, &l->accept);
	if (r < 0) {
		close(fd);
		return listen_why(ret_why, r, "Listen=%.120s: %s", where, strerror(-r));
	}
	n->listeners++;
	return 0;
}

const char *net_listen_address(const struct net *n, unsigned i)
{
	return i < n->listeners ? n->listener[i].text : "";
}

/* --- Sessions --- */

void net_session(struct net *n, uint64_t session, uint32_t incarnation)
{
	n->session = session;
	n->incarnation = incarnation;
	close_all(n, false);
	for (unsigned i = 0; i < PEER_BUCKETS; i++)
		for (struct peer *p = n->bucket[i]; p; p = p->next) {
			peer_unsee(p);                   /* that was between other sessions */
			p->fails = 0;
			peer_want(p, false);
		}
}

int net_link(struct net *n, uint64_t session, const char *address)
{
	struct address_text t;
	struct peer *p;

	if (address && *address && (strlen(address) >= ADDRESS_TEXT_MAX || address_split(address, &t) < 0))
		return -EINVAL;
	p = peer_find(n, session);
	if (!p)
		p = peer_add(n, session);
	if (!p)
		return n->stats.peers >= NET_PEERS_MAX ? -E2BIG : -ENOMEM;
	p->linked = true;
	if (strcmp(p->address, address ? address : "") != 0) {
		snprintf(p->address, sizeof p->address, "%s", address ? address : "");
		p->fails = 0;
		loop_timer_cancel(n->loop, &p->retry);
	}
	peer_want(p, false);
	return 0;
}

void net_unlink(struct net *n, uint64_t session)
{
	struct peer *p = peer_find(n, session);

	if (!p)
		return;
	p->linked = false;
	peer_close(p);
	peer_forget(p);
}

void net_send(struct net *n, uint64_t session, uint64_t conn, const void *bytes, uint32_t frame_n)
{
	struct peer *p = peer_find(n, session);
	struct line *l = p ? p->up : NULL;
	int r;

	assert(frame_n >= NET_FRAME_MIN && frame_n <= NET_FRAME_MAX);
	if (!l || l->conn != conn)
		return;
	r = wire_write(l->wire, bytes, frame_n);
	if (r == 0) {
		p->frames_out++;
		line_dirty(l);
		return;
	}
	n->stats.over_queue += r == -ENOBUFS;
	if (r == -ENOBUFS)
		line_fail(l, false, "it takes less than we have to say: %u bytes wait, the limit is %u. Is it overloaded, or the network slow?",
			  l->wire->queued, n->wires.queue_max);
	else
		line_fail(l, false, "%s", strerror(-r));
}

uint32_t net_backlog(const struct net *n)
{
	uint32_t most = 0;

	for (const struct line *l = n->ups.next; l != &n->ups; l = l->next)
		if (l->wire->queued > most)
			most = l->wire->queued;
	return most;
}

/* --- The links of this host --- */

static bool has_address(const struct link_info *link, const struct link_address *only, const union address *local)
{
	const struct link_address *a = only ? only : link->addresses;
	size_t count = only ? 1 : link->n_addresses;

	for (size_t i = 0; i < count; i++) {
		union address b = { 0 };

		b.any.sa_family = (sa_family_t)a[i].family;
		if (a[i].family == AF_INET)
			memcpy(&b.in.sin_addr, a[i].bytes, 4);
		else
			memcpy(&b.in6.sin6_addr, a[i].bytes, 16);
		if (address_same_host(&b, local, 128))
			return true;
	}
	return false;
}

/* What goes over another link may still work; a beat tells soon. */
static void line_check(struct line *l, const struct links_event *ev)
{
	struct net *n = l->net;
	nsec_t now = loop_clock();

	if (has_address(ev->link, ev->address, &l->wire->local)) {
		if (ev->address)
			line_fail(l, false, "its address at this end, %s of %s, is gone", ev->address->text, ev->link->name);
		else
			line_fail(l, false, "its link, %s, is down", ev->link->name);
		return;
	}
	pulse_probe(&l->pulse, now, n->silence);
	line_beat(l, now, true);
}

void net_link_event(struct net *n, const struct links_event *ev)
{
	bool worse = ev->kind == LINKS_DOWN || ev->kind == LINKS_ADDRESS_REMOVED;
	bool better = ev->kind == LINKS_UP || ev->kind == LINKS_ADDRESS_ADDED;

	if (!worse && !better)
		return;
	for (struct line *l = n->ups.next, *after; worse && l != &n->ups; l = after) {
		after = l->next;
		line_check(l, ev);
	}
	for (unsigned i = 0; better && i < PEER_BUCKETS; i++)
		for (struct peer *p = n->bucket[i]; p; p = p->next)
			if (!p->up && p->linked)
				peer_want(p, true);
	if (n->stats.up)
		net_tick_set(n);
}
