/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who dials: the end with the lower session at once, the other a moment later, in case only that way is
 * open. After a failure the wait doubles up to a fifth of TTL, and chance takes up to half of it away, so that many who lost
 * the same peer do not come back at the same time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net_int.h"

#define BACKOFF_MIN (50 * NSEC_PER_MSEC)
#define SECOND_WAITS (200 * NSEC_PER_MSEC)

static struct peer **bucket(const struct net *n, uint64_t session)
{
	uint64_t h = session * UINT64_C(0x9e3779b97f4a7c15);

	return (struct peer **)&n->bucket[h >> 54];
}

struct peer *peer_find(const struct net *n, uint64_t session)
{
	struct peer *p = *bucket(n, session);

	while (p && p->session != session)
		p = p->next;
	return p;
}

void peer_state(struct peer *p, enum net_state s)
{
	if (p->state == s && p->since)
		return;
	p->state = s;
	p->since = loop_now(p->net->loop);
}

static void attempt(void *arg);

struct peer *peer_add(struct net *n, uint64_t session)
{
	struct peer **at = bucket(n, session), *p;

	if (n->stats.peers >= NET_PEERS_MAX)
		return NULL;
	p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->net = n;
	p->session = session;
	loop_timer_init(&p->retry, attempt, p);
	peer_state(p, NET_UNKNOWN);
	p->next = *at;
	*at = p;
	n->stats.peers++;
	return p;
}

/* Both ends remember what was between them, so a later number is above it, whoever issues it. */
void peer_unsee(struct peer *p)
{
	uint64_t counter = p->seen & ((UINT64_C(1) << GREET_COUNTER_BITS) - 1);

	if (counter > p->net->counter)
		p->net->counter = counter;
	p->seen = 0;
}

void peer_forget(struct peer *p)
{
	struct net *n = p->net;
	struct peer **at = bucket(n, p->session);

	if (p->dead || p->linked || p->up || p->dialling || p->greeted || p->down)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	peer_unsee(p);
	loop_timer_cancel(n->loop, &p->retry);
	resolve_stop(p->resolve);
	p->resolve = NULL;
	p->dead = true;
	p->next = n->dead_peers;
	n->dead_peers = p;
	n->stats.peers--;
	net_settle(n);
}

void peer_bury(struct peer *p)
{
	free(p);
}

const char *peer_text(const struct peer *p, char ret[PEER_TEXT_MAX])
{
	if (p->node[0])
		snprintf(ret, PEER_TEXT_MAX, "%s (%s)", p->node, p->at[0] ? p->at : p->address);
	else
		snprintf(ret, PEER_TEXT_MAX, "session %016llx (%s)", (unsigned long long)p->session,
			 p->address[0] ? p->address : p->at);
	return ret;
}

/* --- Dialling --- */

static nsec_t backoff(struct peer *p)
{
	unsigned shift = p->fails < 16 ? p->fails : 16;
	nsec_t span = BACKOFF_MIN << shift;

	if (span > p->net->backoff_max)
		span = p->net->backoff_max;
	return span / 2 + net_random(p->net) % (span / 2 + 1);
}

static void dial(struct peer *p, const union address *to)
{
	int r = 0;

	p->dialling = line_dial(p, to, &r);
	if (!p->dialling && r == -EPERM)
		peer_failed(p, false, "it is on another machine, and this node has no key: give Key=, or Cert=, CertKey= and CA=");
	else if (!p->dialling)
		peer_failed(p, false, strerror(-r));
	else
		peer_state(p, NET_CONNECTING);
}

static void resolved(void *arg, const union address *v, unsigned n, const char *why)
{
	struct peer *p = arg;
	char text[ERROR_MAX];

	p->resolve = NULL;
	if (n) {
		dial(p, &v[p->fails % n]);
		return;
	}
	snprintf(text, sizeof text, "its name cannot be resolved: %s", why);
	peer_failed(p, false, text);
}

static void attempt(void *arg)
{
	struct peer *p = arg;
	struct address_text t;
	union address a;
	int r = address_parse(p->address, &a);

	/* Many that are listed and not there must not be in the way of those that are, here or at their end. */
	if (p->net->dials >= NET_DIALS_MAX && !p->connects) {
		loop_timer_set(p->net->loop, &p->retry, loop_now(p->net->loop) + BACKOFF_MIN + net_random(p->net) % BACKOFF_MIN);
		return;
	}
	if (r == 0) {
		dial(p, &a);
		return;
	}
	r = address_split(p->address, &t);
	if (r == 0)
		r = resolve_start(p->net->resolver, t.host, t.port, resolved, p, &p->resolve);
	if (r < 0)
		peer_failed(p, false, strerror(-r));
	else
		peer_state(p, NET_RESOLVING);
}

void peer_want(struct peer *p, bool at_once)
{
	struct net *n = p->net;
	nsec_t now = loop_now(n->loop), wait;

	if (p->dead || p->up)
		return;
	if (!p->linked || !n->session || !p->address[0]) {
		if (!p->dialling && !p->resolve)
			peer_state(p, NET_UNKNOWN);
		return;
	}
	if (p->dialling || p->resolve || (p->retry.queued && !at_once))
		return;
	wait = at_once ? 0 : p->fails ? backoff(p) : n->session < p->session ? 0 : SECOND_WAITS + net_random(n) % SECOND_WAITS;
	peer_state(p, NET_WAITING);
	loop_timer_set(n->loop, &p->retry, now + wait);
}

void peer_failed(struct peer *p, bool quiet, const char *why)
{
	nsec_t now = loop_now(p->net->loop);
	char text[PEER_TEXT_MAX];
	bool same = strcmp(p->error, why) == 0;

	if (!quiet && (!same || !p->said || now - p->said > SAY_AGAIN) && net_say_peers(p->net)) {
		net_say(p->net, LOG_LEVEL_WARNING, "no connection to %s: %s", peer_text(p, text), why);
		p->said = now;
	}
	if (!quiet || !p->error[0])
		snprintf(p->error, sizeof p->error, "%s", why);
	p->fails++;
	peer_want(p, false);
	peer_forget(p);
}
