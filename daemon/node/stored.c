/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What lies in the store for good, as the query socket shows it: latches, free semaphores, users' values.
 *
 * What must hold: the loop waits for nothing; a page is taken from one answer of the store, and of that answer nothing is kept. The
 * store reads all of a kind in a space for a page, so there are few listings at a time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shm/pool.h"
#include "../things/key.h"
#include "../things/latch_record.h"
#include "node.h"

#define LISTINGS_MAX 4

struct listing {
	struct node *node;
	enum kind kind;                  /* KINDS: values */
	bool one;                        /* and not a list */
	char key[STORE_KEY_MAX + 1];     /* of the one, or a prefix */
	char after[STORE_KEY_MAX + 1];
	unsigned max;
	query_stored_fn done;            /* NULL: nobody wants to know */
	void *ctx;
	bool beginning, over;
};

static unsigned listings;

/* Its count, where it is what it should be. */
static bool counted(enum kind kind, const struct store_record *r, struct query_stored *ret)
{
	static struct latch_record latch;
	uint64_t token;

	if (kind == KIND_POOL)
		return pool_record_read(r->value, r->size, &ret->count, &token);
	if (latch_decode(r->value, r->size, &latch) < 0)
		return false;
	ret->count = latch.count;
	ret->limit = latch.initial;
	return true;
}

static void show(const struct listing *l, const struct store_record *r, char name[THING_NAME_MAX + 1], struct query_stored *ret)
{
	const char *text = strrchr(r->key, '/') + 1;

	*ret = (struct query_stored){ .key = text, .size = r->size, .version = r->version };
	ret->name = thing_name(text, name) ? name : NULL;
	ret->counts = l->kind != KINDS && counted(l->kind, r, ret);
}

static void tell(struct listing *l, const struct store_result *res)
{
	static char names[QUERY_STORED_MAX][THING_NAME_MAX + 1];
	struct query_stored v[QUERY_STORED_MAX];
	struct query_stored_result ret = { .error = res->error, .v = v };

	if (res->error)
		ret.why = node_store_why(l->node);
	for (size_t i = 0; !res->error && i < res->n_records; i++) {
		const struct store_record *r = &res->records[i];

		if (!strrchr(r->key, '/') || strcmp(strrchr(r->key, '/') + 1, l->after) <= 0)
			continue;
		if (ret.n == l->max) {
			ret.more = true;
			break;
		}
		show(l, r, names[ret.n], &v[ret.n]);
		ret.n++;
	}
	l->done(l->ctx, &ret);
}

static void answered(void *arg, const struct store_result *res)
{
	struct listing *l = arg;

	listings--;
	if (l->done)
		tell(l, res);
	l->over = true;
	if (!l->beginning)
		free(l);
}

static const char *prefix_of(const char *kind, enum kind *ret)
{
	*ret = KINDS;
	if (!strcmp(kind, "value"))
		return THING_VALUES;
	*ret = KIND_LATCH;
	if (!strcmp(kind, kind_text(KIND_LATCH)))
		return THING_LATCHES;
	*ret = KIND_POOL;
	return strcmp(kind, kind_text(KIND_POOL)) ? NULL : THING_POOLS;
}

static void refuse(query_stored_fn done, void *ctx, int error, const char *why)
{
	done(ctx, &(struct query_stored_result){ .error = error, .why = why });
}

void *node_stored(void *arg, const struct query_stored_call *call, query_stored_fn done, void *ctx, int *ret_error)
{
	enum kind kind;
	const char *prefix = prefix_of(call->kind, &kind);
	struct listing *l = prefix && listings < LISTINGS_MAX ? malloc(sizeof *l) : NULL;
	int r;

	*ret_error = !prefix ? -EINVAL : -ENOMEM;
	if (!l) {
		if (prefix && listings == LISTINGS_MAX)
			*ret_error = 0, refuse(done, ctx, -EBUSY, NULL);
		return NULL;
	}
	*l = (struct listing){ .node = arg, .kind = kind, .one = call->name, .max = call->max, .done = done, .ctx = ctx, .beginning = true };
	if (call->name)
		thing_key(prefix, call->space, call->name, strlen(call->name), l->key);
	else
		snprintf(l->key, sizeof l->key, "%s%s/", prefix, call->space);
	snprintf(l->after, sizeof l->after, "%s", call->after && !call->name ? call->after : "");
	*ret_error = 0;
	listings++;
	r = node_store_read(arg, !l->one, l->key, answered, l);
	if (r < 0) {
		listings--;
		l->over = true;
		refuse(done, ctx, r, node_store_why(arg));
	}
	l->beginning = false;
	if (!l->over)
		return l;
	free(l);
	return NULL;
}

/* The store's answer comes all the same. */
void node_stored_drop(void *arg, void *request)
{
	struct listing *l = request;

	(void)arg;
	l->done = NULL;
}
