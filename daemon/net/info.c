/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "net_int.h"

const char *net_state_text(enum net_state s)
{
	static const char *const texts[] = {
#define X(name, text) text,
		NET_STATES(X)
#undef X
	};

	return s < sizeof texts / sizeof *texts ? texts[s] : "?";
}

static void line_describe(const struct line *l, struct net_peer_info *i)
{
	const struct wire *w = l->wire;

	i->conn = l->conn;
	i->dialled = l->dialled;
	i->protocol = l->version;
	i->security = wire_security(w);
	i->rtt = l->pulse.rtt;
	i->rtt_min = l->pulse.rtt_min;
	i->heard = l->pulse.heard;
	i->bytes_in += w->bytes_in;
	i->bytes_out += w->bytes_out;
	i->sends += w->sends;
	i->queue = w->queued;
	if (w->queued_peak > i->queue_peak)
		i->queue_peak = w->queued_peak;
}

static void describe(const struct peer *p, struct net_peer_info *i)
{
	*i = (struct net_peer_info){
		.session = p->session, .incarnation = p->incarnation, .node = p->node,
		.address = p->at[0] ? p->at : p->address, .security = "", .last_error = p->error,
		.state = p->state, .linked = p->linked, .since = p->since,
		.retry_at = p->state == NET_WAITING ? p->retry.when : 0,
		.bytes_in = p->bytes_in, .bytes_out = p->bytes_out, .sends = p->sends,
		.frames_in = p->frames_in, .frames_out = p->frames_out,
		.queue_peak = p->queue_peak, .connects = p->connects,
	};
	if (p->up)
		line_describe(p->up, i);
}

void net_each(const struct net *n, void (*fn)(void *arg, const struct net_peer_info *p), void *arg)
{
	struct net_peer_info i;

	for (unsigned b = 0; b < PEER_BUCKETS; b++)
		for (const struct peer *p = n->bucket[b]; p; p = p->next) {
			describe(p, &i);
			fn(arg, &i);
		}
}

void net_stats(const struct net *n, struct net_stats *ret)
{
	*ret = n->stats;
}
