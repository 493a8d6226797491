/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "record.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Outlives its record, if it must. */
struct record_request {
	struct record *of;
	bool write;
	uint64_t expected;
	/* what is being written, and becomes what is known */
	uint8_t *bytes;
	size_t n;
};

void record_init(struct record *r, struct record_store *in, const char *key, const struct record_ops *ops, void *arg)
{
	*r = (struct record){ .in = in, .ops = ops, .arg = arg };
	snprintf(r->key, sizeof r->key, "%s", key);
}

void record_done(struct record *r)
{
	if (r->request)
		r->request->of = NULL;
	r->request = NULL;
	free(r->bytes);
	r->bytes = NULL;
}

static nsec_t now(const struct record *r)
{
	return r->in->now(r->in->arg);
}

/* --- pauses --- */

static uint64_t random_below(struct record *r, uint64_t n)
{
	uint64_t *x = &r->in->random;

	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return n ? *x % n : 0;
}

static void pause_after_failure(struct record *r)
{
	nsec_t span = RECORD_PAUSE_MIN << (r->failures < 6 ? r->failures : 6);

	r->failures++;
	r->pause_until = now(r) + (span < RECORD_PAUSE_MAX ? span : RECORD_PAUSE_MAX);
	r->in->wake_at(r->in->arg, r->pause_until);
}

/* Somebody else was first. Many who want the same must not meet again and again; the first time costs nothing. */
static void pause_after_race(struct record *r)
{
	nsec_t span = NSEC_PER_MSEC << (r->races < 6 ? r->races : 6);

	if (!r->races++)
		return;
	r->pause_until = now(r) + random_below(r, span);
	r->in->wake_at(r->in->arg, r->pause_until);
}

/* --- answers --- */

static void failed(struct record *r, int error)
{
	r->stale = r->wanted = true;
	pause_after_failure(r);
	r->ops->failed(r->arg, error);
}

static void know(struct record *r, const void *bytes, size_t n, uint64_t version)
{
	uint8_t *copy = n ? malloc(n) : NULL;

	if (n && !copy) {
		failed(r, -ENOMEM);
		return;
	}
	if (n)
		memcpy(copy, bytes, n);
	free(r->bytes);
	r->bytes = copy;
	r->n = n;
	r->version = version;
	r->known = true;
	r->asof = r->asked_at;
	r->stale = r->asof < r->fresh_at;
	r->failures = 0;
	if (r->doubt_any)
		r->doubt_version = version;
	r->doubt_any = false;
	r->doubt = r->doubt && version == r->doubt_version;
}

static void answered_get(struct record *r, const struct store_result *res)
{
	const struct store_record *rec = res->records;

	if (res->error)
		failed(r, res->error);
	else if (res->n_records)
		know(r, rec->value, rec->size, rec->version);
	else
		know(r, NULL, 0, 0);
}

static void answered_cas(struct record *r, const struct record_request *rq, const struct store_result *res)
{
	if (!res->error) {
		r->doubt = false;        /* whatever expected that version fails from now on */
		r->races = 0;
		know(r, rq->bytes, rq->n, res->version);
		r->landed = r->known && !r->failures;
		return;
	}
	r->stale = true;
	if (res->in_doubt) {
		r->doubt = true;
		r->doubt_version = rq->expected;
		failed(r, res->error);
	} else if (res->error == -EAGAIN) {
		pause_after_race(r);
	} else {
		failed(r, res->error);
	}
}

static void answered(void *arg, const struct store_result *res)
{
	struct record_request *rq = arg;
	struct record *r = rq->of;

	if (r) {
		r->request = NULL;
		r->wanted = true;        /* to be looked at */
		if (res->error == -ECANCELED)
			r->stale = true;
		else if (rq->write)
			answered_cas(r, rq, res);
		else
			answered_get(r, res);
	}
	free(rq->bytes);
	free(rq);
	if (r)
		record_go(r);
}

/* --- requests --- */

static struct record_request *request(struct record *r, bool write)
{
	struct record_request *rq = calloc(1, sizeof *rq);

	if (!rq)
		return NULL;
	rq->of = r;
	rq->write = write;
	rq->expected = r->version;
	r->request = rq;
	r->asked_at = r->clock;
	return rq;
}

static void ask(struct record *r)
{
	struct record_request *rq = request(r, false);

	if (rq)
		store_get(r->in->store, r->key, answered, rq);
	else
		failed(r, -ENOMEM);
}

static void put(struct record *r, const struct record_want *w)
{
	bool remove = w->what == RECORD_REMOVE;
	int full = !r->version && !remove && r->in->room ? r->in->room(r->in->arg) : 0;
	struct record_request *rq = full ? NULL : request(r, true);

	if (full) {
		failed(r, full);
		return;
	}
	if (rq && w->n && !remove) {
		rq->bytes = malloc(w->n);
		rq->n = w->n;
		if (rq->bytes) {
			memcpy(rq->bytes, w->bytes, w->n);
		} else {
			free(rq);
			r->request = rq = NULL;
		}
	}
	if (rq)
		store_cas(r->in->store, r->key, rq->expected, remove ? NULL : rq->bytes ? rq->bytes : (const uint8_t *)"", rq->n, answered, rq);
	else
		failed(r, -ENOMEM);
}

/* Shows it, and begins to write what is wanted instead. */
static void judge(struct record *r)
{
	struct record_view v = { r->bytes, r->n, r->version, r->asof, r->doubt, r->landed };
	struct record_want w = { RECORD_KEEP, NULL, 0 };

	r->wanted = r->landed = false;
	r->ops->look(r->arg, &v, &w);
	if (w.what == RECORD_KEEP && r->doubt && r->version)
		w = (struct record_want){ RECORD_WRITE, r->bytes, r->n };
	if (w.what == RECORD_READ)
		r->stale = r->wanted = true;
	else if (w.what == RECORD_KEEP)
		r->doubt = false;        /* absent, and its owner does not mind what may come */
	else
		put(r, &w);
}

/* An engine may answer before it returns: then it goes on here, not in the answer. */
void record_go(struct record *r)
{
	if (r->running)
		return;
	r->running = true;
	while (!r->request && (r->wanted || r->doubt) && r->in->open && r->pause_until <= now(r)) {
		if (r->known && (r->landed || !r->stale))
			judge(r);        /* a success is told before anything is read anew */
		else
			ask(r);
	}
	r->running = false;
}

uint64_t record_want(struct record *r, bool fresh)
{
	r->clock++;
	r->wanted = true;
	r->stale = r->stale || fresh;
	if (fresh)
		r->fresh_at = r->clock;
	return r->clock;
}

void record_doubt(struct record *r)
{
	r->doubt = r->doubt_any = true;
	r->stale = true;
}

nsec_t record_due(const struct record *r)
{
	if (r->request || !(r->wanted || r->doubt) || !r->in->open)
		return NSEC_NEVER;
	return r->pause_until;
}

void record_turn(struct record *r, nsec_t at)
{
	if (record_due(r) <= at)
		record_go(r);
}
