/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which host is asked. Everybody is probed at first, and again whenever something with him has failed, after
 * a pause that doubles; who has answered, has a leader, and is of our cluster, is up. The one that works is
 * asked until it fails; then the next one is, at once. While nobody is up the pauses stay short: sessions live on
 * how soon an etcd that is back is noticed.
 *
 * Two hosts of different clusters are no store: a node that reaches only the one and a node that reaches only
 * the other would each be granted the same. So the first of another cluster that answers ends it, for good, and
 * nobody is asked for anything until each has been heard of, or has let his time pass.
 */
#include "etcd_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct etcd_body probe_body = { "{}", 2 };

static int host_init(struct etcd_host *h, struct etcd *e, const char *name, unsigned port, bool tls)
{
	bool v6 = strchr(name, ':');
	struct { char **to; const char *path; } urls[] = {
		{ &h->status_url, "/v3/maintenance/status" }, { &h->range_url, "/v3/kv/range" },
		{ &h->txn_url, "/v3/kv/txn" }, { &h->login_url, "/v3/auth/authenticate" },
		{ &h->watch_url, "/v3/watch" },
	};

	*h = (struct etcd_host){ .e = e, .state = HOST_DOWN, .retry_at = 1 };
	snprintf(h->label, sizeof h->label, v6 ? "[%s]:%u" : "%s:%u", name, port);
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		if (asprintf(urls[i].to, "http%s://%s%s", tls ? "s" : "", h->label, urls[i].path) < 0) {
			*urls[i].to = NULL;
			return -ENOMEM;
		}
	}
	return 0;
}

int hosts_init(struct etcd *e, const struct etcd_url *u)
{
	int r = 0;

	for (e->n_hosts = 0; r == 0 && e->n_hosts < u->n; e->n_hosts++)
		r = host_init(&e->hosts[e->n_hosts], e, u->hosts[e->n_hosts].name, u->hosts[e->n_hosts].port, u->tls);
	return r;
}

void hosts_done(struct etcd *e)
{
	for (size_t i = 0; i < e->n_hosts; i++) {
		struct etcd_host *h = &e->hosts[i];

		http_call_cancel(&h->probe);
		free(h->status_url);
		free(h->range_url);
		free(h->txn_url);
		free(h->login_url);
		free(h->watch_url);
	}
}

void host_failed(struct etcd_host *h, int error, const char *why)
{
	unsigned pause = BACKOFF_MIN_MS << (h->fails < 6 ? h->fails : 6);

	if (h->state == HOST_PROBED)
		http_call_cancel(&h->probe);
	h->state = HOST_DOWN;
	h->fails++;
	h->failed_at = h->e->now;
	h->retry_at = h->e->now + (pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS);
	h->error = error;
	snprintf(h->why, sizeof h->why, "%s", why);
}

void host_worked(struct etcd_host *h)
{
	h->fails = 0;
	h->error = 0;
}

/*
 * Answers count as in TCP's estimate. Who is given up took longer than was waited; but where there was not even a connection the host may be
 * dead, and is not waited for much longer each time, unless it was this process that came late. A probe is answered without the
 * other members, so that it was quick says nothing.
 */
void host_took(struct etcd_host *h, const struct http_call *c)
{
	http_ms span = h->e->now - c->started, quarter = h->e->request_ms / 4;
	bool answered = c->result == CURLE_OK, given_up = c->result == CURLE_OPERATION_TIMEDOUT;

	if (given_up && !c->sent && 4 * span < 5 * c->connect_ms && span > quarter)
		span = quarter;
	if (answered && c->url != h->status_url)
		h->took = (3 * h->took + span) / 4;
	else if ((answered || given_up) && span > h->took)
		h->took = span;
}

/*
 * Usually so that another host can be asked in time. But where all of them are slow, or the machine gives us no processor, that would be too
 * early each time, and nothing would ever come of any request: so the slower the answers, the longer they are waited for.
 */
unsigned host_limit(const struct etcd_host *h, unsigned least)
{
	http_ms limit = 4 * h->took < 3 * least ? least : 2 * h->took;

	return limit < h->e->request_ms ? (unsigned)limit : h->e->request_ms;
}

bool host_cluster(struct etcd_host *h, uint64_t cluster)
{
	struct etcd *e = h->e;

	if (e->cluster == 0 && cluster) {
		e->cluster = cluster;
		snprintf(e->named_by, sizeof e->named_by, "%s", h->label);
	}
	if (e->cluster == cluster && cluster)
		return true;
	if (!e->refused) {
		e->refused = STORE_ETCD_ECLUSTER;
		etcd_say(e->refused_why, "%.60s and %.60s belong to different etcd clusters (%llx and %llx): a lock could be "
			 "granted in each. All hosts of Store= must be members of one.", e->named_by, h->label,
			 (unsigned long long)e->cluster, (unsigned long long)cluster);
	}
	return false;
}

/*
 * All that is asked is linearizable, so the revision never goes back from one answer to a later question. Where it does, etcd
 * has lost what it acknowledged: by a snapshot that was restored, or members that lost their disks. What it says of beats and
 * epochs is not to be relied on any more, and the session of this node has to end by itself.
 */
bool host_forward(struct etcd_host *h, uint64_t floor, uint64_t revision)
{
	struct etcd *e = h->e;

	if (revision > e->seen)
		e->seen = revision;
	if (!revision || revision >= floor)
		return true;
	if (!e->refused) {
		e->refused = STORE_ETCD_EBACK;
		etcd_say(e->refused_why, "etcd has gone back from revision %llu to %llu (%.60s): an older copy of it was restored, and it "
			 "lacks what it had acknowledged. Stop all nodes and what uses locks, wait a TTL, and start them.",
			 (unsigned long long)floor, (unsigned long long)revision, h->label);
	}
	return false;
}

static void probed(void *arg, struct http_call *c)
{
	struct etcd_host *h = arg;
	struct etcd_answer a;
	struct etcd_verdict v;

	host_took(h, c);
	etcd_judge(h->e, h, c, &a, &v);
	h->state = HOST_DOWN;
	h->heard = true;
	if (v.next == ETCD_FINE && !host_cluster(h, a.cluster)) {
		host_failed(h, h->e->refused, h->e->refused_why);
	} else if (v.next == ETCD_FINE && !a.leader) {
		v.error = STORE_ETCD_ELEADER;
		etcd_say(v.why, "%s has no leader: the majority of etcd's members is down or cannot be reached.", h->label);
		host_failed(h, v.error, v.why);
	} else if (v.next == ETCD_FINE || v.next == ETCD_LOGIN || (v.error == STORE_ETCD_ELOGIN && h->e->cluster)) {
		h->state = HOST_UP;
	} else {
		host_failed(h, v.error, v.why);
	}
	etcd_answer_done(&a);
	etcd_step(h->e);
}

static http_ms retry_time(const struct etcd_host *h)
{
	const struct etcd *e = h->e;
	http_ms soon = h->failed_at + e->request_ms / 4;

	for (size_t i = 0; i < e->n_hosts; i++)
		if (e->hosts[i].state == HOST_UP)
			return h->retry_at;
	return soon < h->retry_at ? soon : h->retry_at;
}

void hosts_step(struct etcd *e)
{
	for (size_t i = 0; i < e->n_hosts; i++) {
		struct etcd_host *h = &e->hosts[i];

		if (h->state != HOST_DOWN || e->now < retry_time(h) || e->refused)
			continue;
		h->probe = (struct http_call){
			.url = h->status_url, .body = probe_body.data, .body_size = probe_body.size,
			.limit_ms = host_limit(h, e->request_ms * 2 / 5), .connect_ms = host_limit(h, e->request_ms / 4),
			.done = probed, .arg = h,
		};
		h->state = HOST_PROBED;
		if (http_call_start(&e->http, &h->probe) == 0)
			continue;
		h->heard = true;
		host_failed(h, -ENOMEM, "this host has no memory left.");
	}
}

struct etcd_host *hosts_pick(struct etcd *e)
{
	struct etcd_host *best = NULL;

	for (size_t i = 0; i < e->n_hosts; i++) {
		struct etcd_host *h = &e->hosts[(e->current + i) % e->n_hosts];

		if (!h->heard || e->refused)
			return NULL;
		if (h->state == HOST_UP && (!best || h->fails < best->fails))
			best = h;
	}
	if (best)
		e->current = (size_t)(best - e->hosts);
	return best;
}

http_ms hosts_next(const struct etcd *e)
{
	http_ms next = 0;

	for (size_t i = 0; i < e->n_hosts && !e->refused; i++) {
		const struct etcd_host *h = &e->hosts[i];

		if (h->state == HOST_DOWN && (!next || retry_time(h) < next))
			next = retry_time(h);
	}
	return next;
}

int hosts_explain(const struct etcd *e, char ret[WHY_MAX])
{
	int error = 0;
	size_t n = 0;

	ret[0] = 0;
	for (size_t i = 0; i < e->n_hosts; i++) {
		const struct etcd_host *h = &e->hosts[(e->current + i) % e->n_hosts];

		if (!h->error)
			continue;
		if (!error)
			error = h->error;
		if (n < WHY_MAX)
			n += (size_t)snprintf(ret + n, WHY_MAX - n, "%s%s", n ? " " : "", h->why);
	}
	if (!error) {
		error = STORE_ETCD_ETIME;
		etcd_say(ret, "%s: no answer within %u ms.", e->hosts[e->current].label, e->request_ms);
	}
	return error;
}
