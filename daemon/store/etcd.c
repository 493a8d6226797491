/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store in an etcd cluster: the contract.
 *
 *  - The version of a record is its mod_revision: etcd's one counter, which every change raises, over delete
 *    and re-creation too.
 *  - get and list are linearizable ranges. The pages of a list are all of the revision that the first one was
 *    of; if that is compacted away meanwhile, the list begins anew.
 *  - cas is a transaction on mod_revision. It is sent once: where its answer is lost, in_doubt says so, and
 *    the caller reads. To send it again could make our own write look like somebody else's.
 *  - Requests wait for a host that is up (etcd_hosts.c), then run on it; a read whose host fails goes to the
 *    next one, and so does a cas that was surely not carried out. Each is over after request_ms; how much of that one
 *    host is given depends on how long its answers take (host_limit()).
 *  - Callbacks run from store_ready() and store_close() only, one by one.
 *  - etcd's leases are not used, and its clock is not asked.
 */
#include "etcd_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE		128	/* records; of the largest ones, twelve megabytes of JSON */
#define LOGINS_MAX	3	/* of one request: a token can be refused by a member that lags */
#define RESTARTS_MAX	3	/* of one list */

static struct etcd *from_base(struct store *s)
{
	return (struct etcd *)s;
}

/* --- The end of a request --- */

static void request_free(struct request *r)
{
	http_call_cancel(&r->call);
	free(r->body.data);
	etcd_answer_done(&r->answer);
	etcd_answer_done(&r->list);
	free(r);
}

static void push_last(struct request **list, struct request *r)
{
	while (*list)
		list = &(*list)->next;
	r->next = NULL;
	*list = r;
}

static void take_out(struct request **list, struct request *r)
{
	while (*list != r)
		list = &(*list)->next;
	*list = r->next;
}

static void request_over(struct request *r)
{
	push_last(&r->e->over, r);
}

static void request_fail(struct request *r, int error, bool in_doubt, const char *why)
{
	r->result = (struct store_result){ .error = error, .in_doubt = in_doubt };
	snprintf(r->why, sizeof r->why, "%s", why);
	request_over(r);
}

static void deliver_one(struct etcd *e, struct request *r)
{
	if (r->why[0])
		snprintf(e->base.why.text, sizeof e->base.why.text, "%s%s", r->why,
			 r->result.in_doubt ? " What was to be written may have been written." : "");
	e->n_pending--;
	r->done(r->arg, &r->result);
	request_free(r);
}

/* What the callbacks add is left for the next time. */
static void deliver(struct etcd *e)
{
	struct request *r = e->over, *next;

	e->over = NULL;
	for (; r; r = next) {
		next = r->next;
		deliver_one(e, r);
	}
}

/* --- Answers --- */

static bool is_key(const struct etcd_answer *a, const char *key)
{
	return a->n_records == 0 || (a->n_records == 1 && strcmp(a->records[0].key, key) == 0);
}

/* a moves into the request, which then answers with its records. */
static void request_answer(struct request *r, struct etcd_answer *a, uint64_t version)
{
	r->answer = *a;
	*a = (struct etcd_answer){ .failed = false };
	r->result = (struct store_result){ .version = version, .records = r->answer.records,
					   .n_records = r->answer.n_records };
	request_over(r);
}

static void senseless(struct request *r, const struct etcd_host *h)
{
	char why[WHY_MAX];

	etcd_say(why, "%s: etcd's answer makes no sense.", h->label);
	request_fail(r, STORE_ETCD_EANSWER, r->kind == REQUEST_CAS, why);
}

static void take_get(struct request *r, struct etcd_host *h, struct etcd_answer *a)
{
	if (!is_key(a, r->key))
		senseless(r, h);
	else
		request_answer(r, a, a->n_records ? a->records[0].version : 0);
}

/* Does it say what it must say of this cas, one way or the other? */
static bool cas_sense(const struct request *r, const struct etcd_answer *a)
{
	if (!a->succeeded)
		return a->ranged && is_key(a, r->key) && a->met != r->expected;
	return r->writes ? a->written != 0 : a->written == 0 && a->deleted == (r->expected != 0);
}

static void take_cas(struct request *r, struct etcd_host *h, struct etcd_answer *a)
{
	if (!cas_sense(r, a)) {
		senseless(r, h);
		return;
	}
	r->result = (struct store_result){ .version = a->written };
	if (!a->succeeded)
		r->result = (struct store_result){ .error = -EAGAIN, .version = a->met };
	request_over(r);
}

/* Puts a page behind what is there. */
static int list_grow(struct etcd_answer *list, struct etcd_answer *page)
{
	size_t n = list->n_records + page->n_records;
	struct store_record *grown;

	if (n > STORE_ETCD_RECORDS_MAX || list->bytes + page->bytes > STORE_ETCD_LIST_MAX)
		return -EFBIG;
	grown = reallocarray(list->records, n + 1, sizeof *grown);
	if (!grown)
		return -ENOMEM;
	list->records = grown;
	for (size_t i = 0; i < page->n_records; i++) {
		struct store_record *last = list->n_records ? &grown[list->n_records - 1] : NULL;

		if (last && strcmp(last->key, page->records[i].key) >= 0)
			return STORE_ETCD_EANSWER;
		grown[list->n_records++] = page->records[i];
		page->records[i].key = NULL;
	}
	list->bytes += page->bytes;
	page->n_records = 0;
	return 0;
}

static void take_page(struct request *r, struct etcd_host *h, struct etcd_answer *a)
{
	bool more = a->more;
	int error;

	if (!r->revision)
		r->revision = a->revision;
	/* From page to page it goes up, or it would never end. */
	if (!r->revision || (more && (!a->last || strcmp(a->last, r->from) < 0))) {
		senseless(r, h);
		return;
	}
	error = list_grow(&r->list, a);
	if (error == STORE_ETCD_EANSWER) {
		senseless(r, h);
	} else if (error < 0) {
		char why[WHY_MAX];

		etcd_say(why, error == -EFBIG ? "There are too many keys that begin with %.100s%.100s: above %d, or %d bytes. "
			 "Remove some." : "no memory to list %.100s%.100s.", r->e->before, r->key,
			 STORE_ETCD_RECORDS_MAX, STORE_ETCD_LIST_MAX);
		request_fail(r, error, false, why);
	} else if (!more) {
		request_answer(r, &r->list, 0);
	} else {
		/* No key of dlock's lies between them: '!' is the lowest that one may have. */
		snprintf(r->from, sizeof r->from, "%s!", a->last);
		push_last(&r->e->waiting, r);
	}
}

static void take(struct request *r, struct etcd_host *h, struct etcd_answer *a)
{
	switch (r->kind) {
	case REQUEST_GET:
		take_get(r, h, a);
		return;
	case REQUEST_CAS:
		take_cas(r, h, a);
		return;
	case REQUEST_LIST:
		take_page(r, h, a);
		return;
	}
}

static void list_anew(struct request *r)
{
	etcd_answer_done(&r->list);
	r->revision = 0;
	snprintf(r->from, sizeof r->from, "%s%s", r->e->before, r->key);
}

/* The call has failed; may it be made again? */
static void request_again(struct request *r, struct etcd_host *h, const struct etcd_verdict *v, bool in_doubt)
{
	bool again = false;

	switch (v->next) {
	case ETCD_FINE:
	case ETCD_FINAL:
		break;
	case ETCD_ELSEWHERE:
		host_failed(h, v->error, v->why);
		again = true;
		break;
	case ETCD_LOGIN:
		login_void(r->e, r->token_number);
		again = r->e->user && r->logins++ < LOGINS_MAX;
		break;
	case ETCD_OLD:
		again = r->kind == REQUEST_LIST && r->restarts++ < RESTARTS_MAX;
		if (again)
			list_anew(r);
		break;
	}
	if (again && !in_doubt && r->e->now < r->limit)
		push_last(&r->e->waiting, r);
	else
		request_fail(r, v->error, in_doubt, v->why);
}

static void request_done(void *arg, struct http_call *c)
{
	struct request *r = arg;
	struct etcd *e = r->e;
	struct etcd_host *h = r->host;
	struct etcd_answer a;
	struct etcd_verdict v;

	take_out(&e->running, r);
	e->n_running--;
	r->host = NULL;
	host_took(h, c);
	etcd_judge(e, h, c, &a, &v);
	if (v.next == ETCD_FINE && (!host_cluster(h, a.cluster) || !host_forward(h, r->floor, a.revision))) {
		v = (struct etcd_verdict){ .next = ETCD_FINAL, .error = e->refused };
		snprintf(v.why, sizeof v.why, "%s", e->refused_why);
	}
	if (v.next == ETCD_FINE) {
		host_worked(h);
		take(r, h, &a);
	} else {
		request_again(r, h, &v, r->kind == REQUEST_CAS && c->sent && !v.undone);
	}
	etcd_answer_done(&a);
	etcd_step(e);
}

/* --- Running --- */

static int request_body(struct request *r)
{
	char end[WIRE_KEY_MAX], from[WIRE_KEY_MAX];

	if (r->kind != REQUEST_LIST)
		return 0;
	free(r->body.data);
	r->body = (struct etcd_body){ NULL, 0 };
	snprintf(from, sizeof from, "%s%s", r->e->before, r->key);
	etcd_wire_end(from, end);
	return etcd_wire_page(r->from, end, PAGE, r->revision, &r->body);
}

static void request_start(struct request *r, struct etcd_host *h)
{
	struct etcd *e = r->e;
	bool cas = r->kind == REQUEST_CAS;
	unsigned left = (unsigned)(r->limit - e->now), limit = host_limit(h, e->request_ms * (cas ? 3 : 2) / 5);
	int error = request_body(r);

	r->call = (struct http_call){
		.url = cas ? h->txn_url : h->range_url, .token = e->token, .body = r->body.data, .body_size = r->body.size,
		.limit_ms = limit < left ? limit : left, .connect_ms = host_limit(h, e->request_ms / 4), .once = cas,
		.done = request_done, .arg = r,
	};
	r->token_number = e->token_number;
	r->floor = e->seen;
	if (error == 0)
		error = http_call_start(&e->http, &r->call);
	if (error < 0) {
		request_fail(r, error, false, "this host has no memory left to ask etcd.");
		return;
	}
	r->host = h;
	push_last(&e->running, r);
	e->n_running++;
}

/* What has waited too long is over, and so is what waits in vain. */
static void waiting_end(struct etcd *e)
{
	struct request **p = &e->waiting, *r;
	char why[WHY_MAX];

	while ((r = *p)) {
		int error = e->refused;

		snprintf(why, sizeof why, "%s", e->refused_why);
		if (!error && e->user && !e->token && e->login_error) {
			error = e->login_error;
			snprintf(why, sizeof why, "%s", e->login_why);
		}
		if (!error && e->now >= r->limit)
			error = hosts_explain(e, why);
		if (!error) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		request_fail(r, error, false, why);
	}
}

static void waiting_start(struct etcd *e)
{
	while (e->waiting && e->n_running < RUNNING_MAX) {
		struct request *r = e->waiting;
		struct etcd_host *h = hosts_pick(e);

		if (!h || !login_step(e))
			return;
		e->waiting = r->next;
		request_start(r, h);
	}
}

static void earlier(http_ms *t, http_ms other)
{
	if (other && (!*t || other < *t))
		*t = other;
}

void etcd_step(struct etcd *e)
{
	http_ms next;

	if (e->closing)
		return;
	hosts_step(e);
	waiting_start(e);
	watch_step(e);
	waiting_end(e);

	next = e->over || e->hinted ? 1 : 0;
	earlier(&next, hosts_next(e));
	earlier(&next, watch_next(e));
	for (struct request *r = e->waiting; r; r = r->next)
		earlier(&next, r->limit);
	http_tick_at(&e->http, next);
}

/* --- The contract --- */

static struct request *request_new(struct etcd *e, enum request_kind kind, const char *key, store_done_fn done, void *arg)
{
	struct request *r = e->n_pending < STORE_ETCD_PENDING_MAX ? calloc(1, sizeof *r) : NULL;

	if (!r) {
		bool many = e->n_pending >= STORE_ETCD_PENDING_MAX;

		snprintf(e->base.why.text, sizeof e->base.why.text, "%s", many ? "there are too many requests under way." :
			 "this host has no memory left to ask etcd.");
		done(arg, &(struct store_result){ .error = many ? -EBUSY : -ENOMEM });
		return NULL;
	}
	e->now = http_now();
	r->e = e;
	r->kind = kind;
	r->done = done;
	r->arg = arg;
	r->limit = e->now + e->request_ms;
	strcpy(r->key, key);
	e->n_pending++;
	return r;
}

static void request_go(struct request *r, int error)
{
	if (error < 0)
		request_fail(r, error, false, "this host has no memory left to ask etcd.");
	else
		push_last(&r->e->waiting, r);
	etcd_step(r->e);
}

static void etcd_get(struct store *s, const char *key, store_done_fn done, void *arg)
{
	struct request *r = request_new(from_base(s), REQUEST_GET, key, done, arg);
	char whole[WIRE_KEY_MAX];

	if (!r)
		return;
	snprintf(whole, sizeof whole, "%s%s", r->e->before, key);
	request_go(r, etcd_wire_get(whole, &r->body));
}

static void etcd_list(struct store *s, const char *prefix, store_done_fn done, void *arg)
{
	struct request *r = request_new(from_base(s), REQUEST_LIST, prefix, done, arg);

	if (!r)
		return;
	list_anew(r);
	request_go(r, 0);
}

static void etcd_cas(struct store *s, const char *key, uint64_t expected, const void *value, size_t size,
		     store_done_fn done, void *arg)
{
	struct request *r = request_new(from_base(s), REQUEST_CAS, key, done, arg);
	char whole[WIRE_KEY_MAX];

	if (!r)
		return;
	r->expected = expected;
	r->writes = value;
	snprintf(whole, sizeof whole, "%s%s", r->e->before, key);
	request_go(r, etcd_wire_cas(whole, expected, value, size, &r->body));
}

static int etcd_fd(const struct store *s)
{
	return ((const struct etcd *)s)->http.epoll;
}

static void etcd_ready(struct store *s)
{
	struct etcd *e = from_base(s);

	e->now = http_now();
	http_ready(&e->http);
	etcd_step(e);
	deliver(e);
	if (e->hinted) {
		e->hinted = false;
		store_raise_change(s);
	}
	e->now = http_now();
	etcd_step(e);
}

static void etcd_close(struct store *s)
{
	struct etcd *e = from_base(s);
	struct request *r;

	e->closing = true;
	while ((r = e->running)) {
		e->running = r->next;
		request_fail(r, -ECANCELED, r->kind == REQUEST_CAS && r->call.sent, "the store is being closed.");
	}
	while ((r = e->waiting)) {
		e->waiting = r->next;
		request_fail(r, -ECANCELED, false, "the store is being closed.");
	}
	/* A callback may still ask; it is told the same. */
	while (e->over || e->waiting) {
		deliver(e);
		while ((r = e->waiting)) {
			e->waiting = r->next;
			request_fail(r, -ECANCELED, false, "the store is being closed.");
		}
	}
	etcd_free(e);
}

const struct store_ops etcd_ops = {
	.engine = "etcd",
	.get = etcd_get,
	.list = etcd_list,
	.cas = etcd_cas,
	.fd = etcd_fd,
	.ready = etcd_ready,
	.close = etcd_close,
};
