/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "item.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct item {
	struct item *next;
	struct items *in;
	struct record record;
	struct item_call call;
	item_done_fn done;              /* NULL: told, or nobody wants to know */
	void *arg;
	uint64_t moment;
	nsec_t until;
	bool sent, doubted, over;
	uint8_t bytes[];
};

/* It goes at the next turn: its record may be looking just now. */
static void end(struct item *v, const struct item_result *res)
{
	item_done_fn done = v->done;

	v->done = NULL;
	if (!v->over)
		v->in->in->wake_at(v->in->in->arg, v->in->in->now(v->in->in->arg));
	v->over = true;
	if (done)
		done(v->arg, res);
}

static void end_error(struct item *v, int error, uint64_t version)
{
	end(v, &(struct item_result){ .error = error, .version = version });
}

static bool as_written(const struct item *v, const struct record_view *is)
{
	return is->version && is->n == v->call.n && (!is->n || !memcmp(is->bytes, v->bytes, is->n));
}

static void look_get(struct item *v, const struct record_view *is)
{
	if (!is->version)
		end_error(v, -ENOENT, 0);
	else
		end(v, &(struct item_result){ .version = is->version, .bytes = is->bytes ? is->bytes : (const uint8_t *)"", .n = is->n });
}

static void look_put(struct item *v, const struct record_view *is, struct record_want *ret)
{
	/* Under a version somebody else may have written the very same bytes instead of us. */
	if (v->sent && (is->landed || (!v->call.compare && as_written(v, is)))) {
		end(v, &(struct item_result){ .version = is->version });
		return;
	}
	if (v->call.compare && is->version != v->call.version) {
		end(v, &(struct item_result){ .error = -EAGAIN, .in_doubt = v->doubted, .version = is->version });
		return;
	}
	v->sent = true;
	*ret = (struct record_want){ RECORD_WRITE, v->bytes, v->call.n };
}

static void look_remove(struct item *v, const struct record_view *is, struct record_want *ret)
{
	if (!is->version) {
		end_error(v, v->sent ? 0 : -ENOENT, 0);
	} else if (v->call.compare && is->version != v->call.version) {
		end_error(v, -EAGAIN, is->version);
	} else {
		v->sent = true;
		ret->what = RECORD_REMOVE;
	}
}

static void look(void *arg, const struct record_view *is, struct record_want *ret)
{
	struct item *v = arg;

	if (v->over)
		return;
	if (is->asof < v->moment)
		ret->what = RECORD_READ;
	else if (v->call.op == ITEM_GET)
		look_get(v, is);
	else if (v->call.op == ITEM_PUT)
		look_put(v, is, ret);
	else
		look_remove(v, is, ret);
}

static void failed(void *arg, int error)
{
	struct item *v = arg;

	v->doubted = v->sent;
	if (error == -ENOSPC || error == -EFBIG)
		end_error(v, -ENOSPC, 0);
}

static const struct record_ops ops = { look, failed };

struct item *item_start(struct items *vs, const struct item_call *call, item_done_fn done, void *arg)
{
	struct item *v = calloc(1, sizeof *v + call->n);

	if (!v)
		return NULL;
	v->in = vs;
	v->call = *call;
	v->done = done;
	v->arg = arg;
	v->until = vs->in->now(vs->in->arg) + ITEM_PATIENCE;
	if (call->n)
		memcpy(v->bytes, call->bytes, call->n);
	v->next = vs->first;
	vs->first = v;
	record_init(&v->record, vs->in, call->key, &ops, v);
	v->moment = record_want(&v->record, true);
	vs->in->wake_at(vs->in->arg, v->until);
	record_go(&v->record);
	return v;
}

void item_drop(struct item *v)
{
	v->done = NULL;
	if (!v->sent)
		end_error(v, -ECANCELED, 0);
}

static void item_free(struct item *v)
{
	record_done(&v->record);
	free(v);
}

nsec_t items_turn(struct items *vs, nsec_t now)
{
	nsec_t next = NSEC_NEVER, due;

	for (struct item **at = &vs->first, *v; (v = *at);) {
		if (!v->over && v->until <= now)
			end(v, &(struct item_result){ .error = -ETIMEDOUT, .in_doubt = v->sent });
		if (v->over) {
			*at = v->next;
			item_free(v);
			continue;
		}
		record_turn(&v->record, now);
		due = record_due(&v->record);
		due = v->until < due ? v->until : due;
		next = due < next && !v->over ? due : next;
		at = &v->next;
	}
	return next;
}

void items_done(struct items *vs)
{
	for (struct item *v = vs->first, *next; v; v = next) {
		next = v->next;
		if (!v->over)
			end(v, &(struct item_result){ .error = -ETIMEDOUT, .in_doubt = v->sent });
		item_free(v);
	}
	vs->first = NULL;
}
