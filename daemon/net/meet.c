/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two daemons meet: HELLO, WELCOME, READY (greet.h). The dialler is up when it has sent READY, the acceptor when
 * it has it. Whoever refuses says why in a sentence, which both write into their logs.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "net_int.h"

static void say_greeting(struct line *l, struct greeting *g)
{
	uint8_t bytes[GREET_MAX];
	size_t n;

	if (!g->version_min) {
		g->version_min = NET_PROTOCOL_MIN;
		g->version_max = NET_PROTOCOL_MAX;
	}
	n = greet_encode(g, bytes);
	if (wire_write(l->wire, bytes, n) == 0)
		wire_flush(l->wire);
}

static void introduce(const struct line *l, struct greeting *g)
{
	const struct net *n = l->net;

	g->session = n->session;
	g->incarnation = n->incarnation;
	snprintf(g->cluster, sizeof g->cluster, "%s", n->cluster);
	snprintf(g->node, sizeof g->node, "%s", n->node);
}

/* `ours` goes into our log, `theirs` into that of the other end. */
static void refuse(struct line *l, enum greet_reason reason, const char *theirs, const char *ours, ...)
	__attribute__((format(printf, 4, 5)));

static void refuse(struct line *l, enum greet_reason reason, const char *theirs, const char *ours, ...)
{
	struct greeting g = { .kind = GREET_REFUSED, .reason = (uint8_t)reason };
	char text[ERROR_MAX];
	va_list ap;

	snprintf(g.text, sizeof g.text, "%s", theirs);
	say_greeting(l, &g);
	va_start(ap, ours);
	vsnprintf(text, sizeof text, ours, ap);
	va_end(ap);
	line_fail(l, !greet_loud(g.reason), "%s", text);
}

static void refuse_version(struct line *l, const struct greeting *g)
{
	char theirs[GREET_TEXT_MAX + 1];

	snprintf(theirs, sizeof theirs, "%s speaks protocol %d to %d, you speak %u to %u: upgrade the older of the two", l->net->node,
		 NET_PROTOCOL_MIN, NET_PROTOCOL_MAX, g->version_min, g->version_max);
	refuse(l, GREET_VERSION, theirs, "it speaks protocol %u to %u, this node %d to %d: upgrade the older of the two",
	       g->version_min, g->version_max, NET_PROTOCOL_MIN, NET_PROTOCOL_MAX);
}

static const char *named(const char *name)
{
	return name[0] ? name : "(no name)";
}

static void refuse_cluster(struct line *l, const struct greeting *g)
{
	char theirs[GREET_TEXT_MAX + 1];

	snprintf(theirs, sizeof theirs, "%s is of cluster %s, you are of %s: compare [Cluster] Name=", l->net->node,
		 named(l->net->cluster), named(g->cluster));
	refuse(l, GREET_CLUSTER, theirs, "%s is of cluster %s, this node of %s: compare Name= in [Cluster] of both", g->node,
	       named(g->cluster), named(l->net->cluster));
}

static bool certified(struct line *l, const struct greeting *g)
{
	char theirs[GREET_TEXT_MAX + 1];

	if (!l->wire->tls || tls_allows(l->wire->tls, g->node))
		return true;
	snprintf(theirs, sizeof theirs, "your certificate does not name %s: let Name= in [Node] be one of its DNS names, or get another",
		 g->node);
	refuse(l, GREET_CERT_NAME, theirs, "its certificate does not name %s, as it calls itself: let its Name= be one of the "
	       "certificate's DNS names, or give it another", g->node);
	return false;
}

/* What holds for a HELLO and a WELCOME alike. */
static bool acceptable(struct line *l, const struct greeting *g, const struct peer *p)
{
	struct net *n = l->net;

	if (strcmp(g->cluster, n->cluster) != 0) {
		refuse_cluster(l, g);
		return false;
	}
	if (!certified(l, g))
		return false;
	if (!n->session) {
		refuse(l, GREET_NOT_YET, "no session at present", "we have no session at present");
		return false;
	}
	if (g->session == n->session) {
		refuse(l, GREET_SELF, "that is my own session", "%s says that it has our own session: is this node listed with its own "
		       "address, or was its state directory copied?", named(g->node));
		return false;
	}
	if (g->to != n->session) {
		refuse(l, GREET_SESSION, "that is not my session", "it wants another session than ours");
		return false;
	}
	if ((p && g->incarnation < p->incarnation) || !greet_number_possible(n->incarnation, g->incarnation, g->conn)) {
		refuse(l, GREET_SUPERSEDED, "a later daemon of that session has been here", "%s is an earlier run of a daemon that has "
		       "been started anew since", named(g->node));
		return false;
	}
	return true;
}

static void remember(struct peer *p, const struct greeting *g, uint64_t conn)
{
	p->incarnation = g->incarnation;
	snprintf(p->node, sizeof p->node, "%s", g->node);
	if (conn > p->seen)
		p->seen = conn;
}

/* --- The acceptor --- */

static void welcome(struct line *l, struct peer *p, const struct greeting *g, uint64_t conn)
{
	struct greeting w = { .kind = GREET_WELCOME, .conn = conn, .to = g->session };
	struct net *n = l->net;

	if (p->greeted)
		line_drop(p->greeted, false, true);
	if (p->up) {                             /* it knows that one, and dials anew: it has lost it */
		line_drop(p->up, false, true);
		snprintf(p->error, sizeof p->error, "it has connected anew");
	}
	lines_remove(l);                          /* no stranger any more */
	n->stats.half_open--;
	n->counter = conn & ((UINT64_C(1) << GREET_COUNTER_BITS) - 1);
	remember(p, g, conn);
	l->peer = p;
	p->greeted = l;
	l->conn = conn;
	l->version = greet_version(g->version_min, g->version_max, NET_PROTOCOL_MIN, NET_PROTOCOL_MAX);
	l->phase = LINE_READY;
	introduce(l, &w);
	w.version_min = w.version_max = l->version;
	say_greeting(l, &w);
}

static void hello(struct line *l, const struct greeting *g)
{
	struct net *n = l->net;
	struct peer *p = peer_find(n, g->session);
	uint64_t floor = ((uint64_t)n->incarnation + g->incarnation) << GREET_COUNTER_BITS, above, conn;

	if (!acceptable(l, g, p))
		return;
	if (p && p->up && g->conn < p->up->conn) {
		refuse(l, GREET_DUPLICATE, "we are connected already", "we are connected already");
		return;
	}
	if (!p)
		p = peer_add(n, g->session);
	above = floor + n->counter;
	if (p && p->seen > above)
		above = p->seen;
	if (g->conn > above)
		above = g->conn;
	conn = p ? greet_number(n->session, g->session, n->incarnation, g->incarnation, above) : 0;
	if (!conn) {
		refuse(l, GREET_BUSY, "there is no room for another node here", "there is no room for another node (%u are known), or no "
		       "connection number is left until a daemon is started anew", n->stats.peers);
		if (p)
			peer_forget(p);
		return;
	}
	welcome(l, p, g, conn);
}

static void ready(struct line *l, const struct greeting *g)
{
	if (g->conn != l->conn) {
		line_fail(l, false, "it takes up another connection than it was offered");
		return;
	}
	line_up(l);
}

/* --- The dialler --- */

void meet_begin(struct line *l)
{
	struct greeting g = { .kind = GREET_HELLO, .to = l->peer->session, .conn = l->peer->seen };

	introduce(l, &g);
	l->phase = LINE_WELCOME;
	peer_state(l->peer, NET_GREETING);
	say_greeting(l, &g);
}

static void welcomed(struct line *l, const struct greeting *g)
{
	struct peer *p = l->peer;
	struct greeting r = { .kind = GREET_READY, .conn = g->conn };

	if (!acceptable(l, g, p))
		return;
	if (g->session != p->session) {
		line_fail(l, true, "another session than it was dialled for answers there");
		return;
	}
	if (g->conn <= p->seen) {                /* both dialled, and the other one is later */
		line_fail(l, true, "both ends have dialled");
		return;
	}
	remember(p, g, g->conn);
	l->conn = g->conn;
	l->version = g->version_max;
	r.version_min = r.version_max = l->version;
	say_greeting(l, &r);
	line_up(l);
}

static void refused(struct line *l, const struct greeting *g)
{
	line_fail(l, !greet_loud(g->reason), "it refuses: %s", g->text);
}

/* --- What comes --- */

void meet_take(struct line *l, const uint8_t *bytes, size_t n)
{
	struct greeting g;
	int r = greet_decode(bytes, n, NET_PROTOCOL_MIN, NET_PROTOCOL_MAX, &g);

	if (r == -EPROTONOSUPPORT)
		refuse_version(l, &g);
	else if (r < 0)
		line_fail(l, false, "its greeting cannot be understood: is that a dlockd?");
	else if (g.kind == GREET_REFUSED)
		refused(l, &g);
	else if (g.kind == GREET_HELLO && l->phase == LINE_HELLO)
		hello(l, &g);
	else if (g.kind == GREET_WELCOME && l->phase == LINE_WELCOME)
		welcomed(l, &g);
	else if (g.kind == GREET_READY && l->phase == LINE_READY)
		ready(l, &g);
	else
		line_fail(l, false, "its greeting is out of turn");
}

/* Without keys here TLS looks so. */
void meet_bad(struct line *l, const uint8_t *bytes, size_t n)
{
	if (!l->wire->tls && (bytes[0] == TLS_FIRST_BYTE || bytes[0] == 0x15) && (n < 2 || bytes[1] == 3))
		refuse(l, GREET_NO_TLS, "it has no key, and you speak TLS: give it the Key= or Cert= of this cluster",
		       "it speaks TLS, and this node has no key: give this node the Key= (or Cert=, CertKey=, CA=) of the cluster");
	else
		line_fail(l, false, "it does not speak dlock's protocol: is that a dlockd?");
}

void meet_plain(struct line *l, const uint8_t *bytes, size_t n)
{
	struct greeting g;
	int length = greet_length(bytes, n);

	if (length < 0) {
		line_fail(l, false, "it speaks neither TLS nor dlock's protocol: is that a dlockd?");
		return;
	}
	l->net->stats.tls_failed++;
	if (length == (int)n && greet_decode(bytes, n, 1, UINT8_MAX, &g) == 0 && g.kind == GREET_REFUSED)
		line_fail(l, false, "it refuses, in plain text: %s", g.text);
	else if (l->dialled)
		line_fail(l, false, "it speaks plain text, and this node TLS: give it the Key= or Cert= of this cluster");
	else
		refuse(l, GREET_NEEDS_TLS, "it demands TLS, and you speak plain text: give this node the Key= (or Cert=, CertKey=, CA=) of the "
		       "cluster", "it speaks plain text, and this node demands TLS: give it the Key= or Cert= of this cluster");
}
