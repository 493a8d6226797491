/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store plane at this node: its loop and session, the segment's objects, the query socket's values.
 *
 * What must hold: among others it has a connection to the store of its own, so that nothing users do with small records stands in
 * the way of a beat; it is opened when the first of them is wanted. Alone it shares the embedded store, of which
 * it leaves a part to the daemon itself.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../log.h"
#include "../shm/files.h"
#include "../shm/small.h"
#include "../store/file.h"
#include "../things/key.h"
#include "../things/things.h"
#include "../things/item.h"
#include "node.h"

#define REQUEST_MS 1000
#define FILE_RECORDS (STORE_FILE_RECORDS_MAX * 3 / 4)
#define FILE_BYTES (STORE_FILE_SIZE_MAX / 4 * 3)

struct node_things {
	struct node *node;
	struct things ts;
	struct items vs;
	struct kept *kept;               /* NULL: no numbers are */
	struct store *store;             /* NULL: not opened yet */
	struct loop_watch *watch;
	struct loop_timer timer;
	uint64_t session;
	bool some_over;
};

/* --- the store --- */

static void ready(void *arg, uint32_t revents)
{
	struct node_things *t = arg;

	(void)revents;
	store_ready(t->store);
}

static void changed(void *arg)
{
	struct node_things *t = arg;

	if (store_changed(t->store))
		things_hint(&t->ts);
}

static int open_own(struct node_things *t)
{
	static const char *const hints[] = { THING_LATCHES, THING_CONDS, NULL };
	struct store_options o = cluster_store(t->node);
	static struct store_why why;
	int r, fd;

	o.hints = hints;
	o.request_ms = REQUEST_MS;
	r = store_open(&o, &t->store, &why);
	if (r < 0) {
		log_limited(loop_now(t->node->loop), LOG_LEVEL_ERROR, "store: %s", why.text);
		return r;
	}
	store_on_change(t->store, changed, t);
	fd = store_fd(t->store);
	return fd < 0 ? 0 : loop_watch(t->node->loop, fd, POLLIN, ready, t, &t->watch);
}

/* Before the first use. */
static int things_open(struct node_things *t)
{
	struct node *n = t->node;
	int r = 0;

	if (t->store)
		return 0;
	if (n->cluster.on)
		r = open_own(t);
	else
		t->store = n->own;
	if (r < 0 || !t->store)
		return r < 0 ? r : -ENOTCONN;
	t->ts.store.store = t->store;
	things_session(&t->ts, t->session);
	return 0;
}

struct kept {
	size_t n, bytes;
};

static void add_up(void *arg, const struct store_result *res)
{
	struct kept *t = arg;

	t->n = res->n_records;
	for (size_t i = 0; i < res->n_records; i++)
		t->bytes += strlen(res->records[i].key) + res->records[i].size;
}

/* The embedded store is for the daemon in the first place, and is all in memory. */
static int room(void *arg)
{
	struct node_things *t = arg;
	struct kept tally = { 0 };

	if (t->node->cluster.on)
		return 0;
	store_list(t->store, "", add_up, &tally);
	return tally.n < FILE_RECORDS && tally.bytes < FILE_BYTES ? 0 : -ENOSPC;
}

/* --- time --- */

static nsec_t now(void *arg)
{
	(void)arg;
	return loop_clock();
}

static uint64_t now_ms(void *arg)
{
	struct timespec ts;
	uint64_t ms;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &ts);
	ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	return ms > ID_EPOCH_MS ? ms - ID_EPOCH_MS : 0;
}

static void wake_at(void *arg, nsec_t when)
{
	struct node_things *t = arg;

	if (!t->timer.queued || when < t->timer.when)
		loop_timer_set(t->node->loop, &t->timer, when);
}

static void end_those_over(struct node_things *t)
{
	t->some_over = false;
	for (struct thing *x = t->ts.first, *next; x; x = next) {
		struct small *s = x->object;

		next = x->next;
		if (x->over && s->o.unused)
			object_end(&s->o);
	}
}

static void turn(void *arg)
{
	struct node_things *t = arg;
	nsec_t next;

	things_turn(&t->ts);
	next = items_turn(&t->vs, loop_clock());
	if (next != NSEC_NEVER)
		wake_at(t, next);
	if (t->some_over)
		end_those_over(t);
}

/* --- what the things say --- */

static void on_answer(void *arg, struct party *p, int error, uint64_t value)
{
	(void)arg;
	small_answer(p->account, p->number, error, value);
}

static void on_passed(void *arg, struct party *p)
{
	(void)arg;
	small_passed(p->account, p->passed, p->signalled);
}

static void on_latch(void *arg, struct thing *x)
{
	(void)arg;
	small_latch(x->object, x->state, x->count, latch_short(x->birth));
}

static uint64_t on_id_word(void *arg, struct thing *x, bool close)
{
	(void)arg;
	return small_id_word(x->object, close);
}

static void on_id_open(void *arg, struct thing *x, uint64_t last)
{
	struct node_things *t = arg;

	small_id_open(x->object, x->worker, x->shown, t->session, last);
}

static void on_over(void *arg, struct thing *x)
{
	struct node_things *t = arg;

	(void)x;
	t->some_over = true;
	wake_at(t, loop_clock());
}

static void on_keep(void *arg)
{
	struct node_things *t = arg;

	kept_want(t->kept);
}

static const struct things_ops things_ops = {
	.answer = on_answer, .passed = on_passed, .latch = on_latch, .id_word = on_id_word, .id_open = on_id_open, .over = on_over,
	.wake_at = wake_at, .now = now, .now_ms = now_ms, .room = room,
	.keep = on_keep,
};

/* --- what the segment says --- */

static struct node_things *things_of(void *node)
{
	struct node *n = node;

	return n->things;
}

/* Its number, if this daemon's session is still the one that has it, or the file in the state directory has it. */
static void adopt_id(struct node_things *t, struct small *s, struct thing *x)
{
	const struct ledger_note *n = object_note(&s->o);

	if (!n->v[0] || n->v[0] > ID_WORKERS)
		return;
	if (((n->v[2] && n->v[2] == node_session_adopted(t->node)) || things_keeps(&t->ts, x->key, (uint32_t)n->v[0] - 1)) &&
	    !(small_id_word(s, false) & ID_CLOSED))
		thing_adopt_id(x, (uint32_t)n->v[0] - 1, n->v[1], n->v[2]);
	else
		small_id_word(s, true);
}

static int small_make(void *arg, struct small *s)
{
	struct node_things *t = things_of(arg);
	struct name_text name = name_text(s->o.space, s->o.slot);
	int r = things_open(t);
	struct thing *x = r < 0 ? NULL : thing_new(&t->ts, s->o.kind, s->o.space->name, name.p, name.n, s);

	if (!x)
		return r < 0 ? r : -ENOMEM;
	s->thing = x;
	if (s->o.kind == KIND_ID && s->o.note)
		adopt_id(t, s, x);
	return 0;
}

static int small_join(void *arg, struct small *s, struct small_client *c, bool adopted)
{
	const struct ledger_note *n = account_note(&c->a);
	struct party *p = party_new(s->thing, n->v[0], c);

	(void)arg;
	if (!p)
		return -ENOMEM;
	c->party = p;
	if (adopted || n->v[1])
		party_adopt(p, (uint32_t)n->v[1], (uint32_t)n->v[3], (uint32_t)(n->v[3] >> 32));
	return 0;
}

static void small_asked(void *arg, struct small_client *c, const struct small_request *rq)
{
	struct node *n = arg;

	if (party_request(c->party, rq->number, rq->op, rq->arg) < 0)
		node_tell(n, &(struct shm_event){ .what = "scribbled", .space = c->a.object->space, .slot = c->a.object->slot,
						  .detail = "a client's request makes no sense, and is passed over" });
}

static void small_low(void *arg, struct small *s)
{
	(void)arg;
	thing_low(s->thing);
}

static void small_leave(void *arg, struct small_client *c, bool died, uint64_t taken)
{
	(void)arg;
	party_free(c->party, died, taken);
}

static void small_unused(void *arg, struct small *s)
{
	struct thing *x = s->thing;

	(void)arg;
	thing_unused(x);
}

static void small_used(void *arg, struct small *s)
{
	(void)arg;
	thing_used(s->thing);
}

static void small_free(void *arg, struct small *s)
{
	(void)arg;
	thing_free(s->thing);
}

const struct small_ops node_small_ops = {
	small_make, small_join, small_asked, small_low, small_leave, small_unused, small_used, small_free,
};

/* --- values --- */

int node_store_read(struct node *n, bool list, const char *key, store_done_fn done, void *arg)
{
	struct node_things *t = n->things;
	int r = things_open(t);

	if (r < 0)
		return r;
	(list ? store_list : store_get)(t->store, key, done, arg);
	return 0;
}

struct item *node_value(struct node *n, const struct item_call *call, item_done_fn done, void *arg)
{
	struct node_things *t = n->things;

	return things_open(t) < 0 ? NULL : item_start(&t->vs, call, done, arg);
}

const char *node_store_why(const struct node *n)
{
	const struct node_things *t = n->things;
	const char *why = t->store ? store_explain(t->store) : "";

	if (!t->session)
		return n->cluster.terms_why[0] ? n->cluster.terms_why : "this node is not in the cluster now; dlock status says why";
	return why[0] ? why : "the store has not answered";
}

/* --- for `dlock show` --- */

void node_thing_show(const struct object *o, struct query_name *q)
{
	const struct small *s = (const struct small *)o;
	const struct thing *x = s->thing;
	static const char *const latch[] = { [LATCH_UNKNOWN] = "unknown", [LATCH_CLOSED] = "closed", [LATCH_OPEN] = "open",
					     [LATCH_GONE] = "unlinked" };

	q->state = "unknown";
	if (!x)
		return;
	if (x->kind == KIND_LATCH) {
		q->state = latch[x->state];
		q->counts = true;
		q->count = x->count;
		q->limit = x->initial;
	} else if (x->kind == KIND_COND) {
		q->state = x->queued ? "waited for" : "free";
		q->counts = true;
		q->count = x->queued;
	} else {
		q->state = x->id == ID_HELD ? x->unused ? "parked" : x->in->session ? "leased" : "kept" : x->id == ID_NONE ? "none" : "asked for";
		if (x->id == ID_HELD)
			q->worker = (int)x->worker + 1;
	}
}

/* --- beginning, sessions, end --- */

int node_things_init(struct node *n)
{
	struct things_ops ops = things_ops;
	struct node_things *t = calloc(1, sizeof *t);
	uint64_t random;
	int r = t ? files_random(&random, sizeof random) : -ENOMEM;

	if (r < 0) {
		free(t);
		return r;
	}
	ops.arg = t;
	t->node = n;
	n->things = t;
	loop_timer_init(&t->timer, turn, t);
	things_init(&t->ts, NULL, n->cluster.on, n->boot.node_id, random, &ops);
	t->vs = (struct items){ .in = &t->ts.store };
	return n->cluster.on ? kept_open(n, &t->ts, &t->kept) : 0;
}

void node_things_session(struct node *n, uint64_t session)
{
	struct node_things *t = n->things;

	t->session = session;
	if (t->store)
		things_session(&t->ts, session);
}

void node_things_lapsed(struct node *n)
{
	n->things->session = 0;
	things_lapsed(&n->things->ts);
}

/* After the objects are free, before the embedded store is. */
void node_things_done(struct node *n)
{
	struct node_things *t = n->things;

	if (!t)
		return;
	loop_timer_cancel(n->loop, &t->timer);
	kept_close(t->kept);
	items_done(&t->vs);
	things_done(&t->ts);
	loop_unwatch(t->watch);
	if (t->store != n->own)
		store_close(t->store);
	free(t);
	n->things = NULL;
}
