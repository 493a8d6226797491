/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The stream that makes hints. Nothing is taken from it but that something has happened: what has changed is
 * read anew, linearizably. So the stream may end, lag, and miss what happens while it is down, if only the hint
 * goes up each time it stands again; and where it cannot stand, the hint goes up with every attempt.
 *
 * A message is a line. Those that matter are short; of one that does not fit, that it came is enough.
 */
#include "etcd_int.h"

#include <errno.h>
#include <string.h>

static void take_line(struct etcd *e)
{
	struct etcd_answer a;
	bool whole = e->line_size < sizeof e->line - 1;
	int r = whole ? etcd_wire_decode(e->before, e->line, e->line_size, &a) : 0;

	e->hinted = true;
	if (!whole)
		return;
	if (r < 0 || a.failed || a.canceled)
		e->watch_broken = true;
	if (e->watch_broken)
		e->watch_login = r == 0 && strstr(a.message, "auth");
	else if (!host_cluster(e->watch_host, a.cluster))
		e->watch_broken = true;
	else if (a.created)
		e->watching = true;
	etcd_answer_done(&a);
}

static void on_data(void *arg, const char *data, size_t size)
{
	struct etcd *e = arg;

	for (size_t i = 0; i < size && !e->watch_broken; i++) {
		if (data[i] != '\n') {
			if (e->line_size < sizeof e->line - 1)
				e->line[e->line_size++] = data[i];
			continue;
		}
		take_line(e);
		/* What a broken stream said last is looked at again when it is over. */
		if (!e->watch_broken)
			e->line_size = 0;
	}
}

static void pause_watch(struct etcd *e)
{
	unsigned pause = BACKOFF_MIN_MS << (e->watch_fails < 6 ? e->watch_fails : 6);

	e->watch_host = NULL;
	e->watching = false;
	e->watch_fails++;
	e->watch_at = e->now + (pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS);
	e->hinted = true;
}

static void watch_over(void *arg, struct http_call *c)
{
	struct etcd *e = arg;
	struct http_call last = *c;
	struct etcd_answer a;
	struct etcd_verdict v;

	e->line[e->line_size] = 0;
	last.data = e->line;
	last.size = e->line_size;
	etcd_judge(e, e->watch_host, &last, &a, &v);
	etcd_answer_done(&a);
	if (v.next == ETCD_LOGIN)
		login_void(e, e->watch_token);
	else if (v.next == ETCD_ELSEWHERE && !e->watching && c->result != CURLE_OK)
		host_failed(e->watch_host, v.error, v.why);
	pause_watch(e);
	etcd_step(e);
}

static void watch_start(struct etcd *e, struct etcd_host *h)
{
	e->watch = (struct http_call){
		.url = h->watch_url, .token = e->token, .body = e->watch_body.data, .body_size = e->watch_body.size,
		.connect_ms = e->request_ms / 4, .done = watch_over, .on_data = on_data, .arg = e,
	};
	e->line_size = 0;
	e->watching = e->watch_broken = e->watch_login = false;
	e->watch_host = h;
	e->watch_token = e->token_number;
	e->watch_limit = e->now + e->request_ms;
	if (http_call_start(&e->http, &e->watch) < 0)
		pause_watch(e);
}

void watch_step(struct etcd *e)
{
	struct etcd_host *h;

	if (e->watch_host && e->watching)
		e->watch_fails = 0;
	if (e->watch_host && (e->watch_broken || e->watch_host->state == HOST_DOWN ||
			      (!e->watching && e->now >= e->watch_limit))) {
		if (e->watch_broken && e->watch_login)
			login_void(e, e->watch_token);
		http_call_cancel(&e->watch);
		pause_watch(e);
	}
	if (e->watch_host || e->refused || e->now < e->watch_at)
		return;
	h = hosts_pick(e);
	if (h && login_step(e))
		watch_start(e, h);
}

http_ms watch_next(const struct etcd *e)
{
	if (e->watch_host)
		return e->watching ? 0 : e->watch_limit;
	return e->watch_at > e->now ? e->watch_at : 0;
}

void watch_done(struct etcd *e)
{
	http_call_cancel(&e->watch);
	e->watch_host = NULL;
}
