/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "things.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/beat.h"
#include "../grow.h"
#include "key.h"

static const struct record_ops *ops_of(enum kind kind)
{
	return kind == KIND_LATCH ? &latch_ops : &cond_ops;
}

static nsec_t now(const struct things *ts)
{
	return ts->ops.now(ts->ops.arg);
}

uint64_t things_random(struct things *ts)
{
	uint64_t *x = &ts->store.random;

	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

void things_init(struct things *ts, struct store *store, bool shared, const uint8_t node[16], uint64_t random,
		 const struct things_ops *ops)
{
	*ts = (struct things){ .ops = *ops, .shared = shared, .hint_at = NSEC_NEVER };
	ts->store = (struct record_store){ .store = store, .random = random | 1, .arg = ops->arg, .now = ops->now,
					   .wake_at = ops->wake_at, .room = ops->room };
	memcpy(ts->node, node, sizeof ts->node);
}

/* --- has a session ended? --- */

struct things_ask {
	struct things *of;
	struct things_ask *next, **at;
	uint64_t session;
};

#define ASK_AGAIN NSEC_PER_SEC

static struct ended *ended_find(struct things *ts, uint64_t session)
{
	for (uint32_t i = 0; i < ts->n_ended; i++)
		if (ts->ended[i].session == session)
			return &ts->ended[i];
	return NULL;
}

/* Who has not been asked about for long makes room: it can be asked about again. */
#define ENDED_MAX 4096

static struct ended *ended_add(struct things *ts, uint64_t session)
{
	struct ended *v;

	if (ts->n_ended == ENDED_MAX)
		ts->n_ended = 0;
	v = grown(ts->ended, ts->n_ended, &ts->ended_cap, 16, sizeof *v);
	if (!v)
		return NULL;
	ts->ended = v;
	ts->ended[ts->n_ended] = (struct ended){ .session = session };
	return &ts->ended[ts->n_ended++];
}

static void look_all(struct things *ts, bool fresh)
{
	for (struct thing *t = ts->first; t; t = t->next) {
		if (t->kind == KIND_ID)
			thing_later(t, 0);
		else
			record_need(&t->record, fresh);
	}
}

/* The beat is made before anything is written in a session's name: where there is none any more it has been cleared away. */
static void asked(void *arg, const struct store_result *res)
{
	struct things_ask *a = arg;
	struct things *ts = a->of;
	struct ended *e = ts ? ended_find(ts, a->session) : NULL;
	struct beat_value beat;
	bool ended = !res->error && !res->n_records;

	if (!res->error && res->n_records && beat_decode(res->records->value, res->records->size, &beat) == 0)
		ended = beat.ended && beat.id.session == a->session;
	if (a->at) {
		*a->at = a->next;
		if (a->next)
			a->next->at = a->at;
	}
	free(a);
	if (!e)
		return;
	e->asking = false;
	e->ended = ended;
	if (ended) {                     /* not from here: somebody may be looking just now */
		ts->learnt = true;
		ts->ops.wake_at(ts->ops.arg, now(ts));
	}
}

static void ask(struct things *ts, struct ended *e)
{
	struct things_ask *a = malloc(sizeof *a);
	char key[STORE_KEY_MAX + 1];

	if (!a)
		return;
	*a = (struct things_ask){ ts, ts->asks, &ts->asks, e->session };
	if (a->next)
		a->next->at = &a->next;
	ts->asks = a;
	e->asking = true;
	e->asked = now(ts);
	snprintf(key, sizeof key, BEAT_PREFIX "%016" PRIx64, e->session);
	store_get(ts->store.store, key, asked, a);
}

bool session_ended(struct things *ts, uint64_t session)
{
	struct ended *e;

	if (!ts->shared)
		return session != ts->session;
	if (session == ts->session)
		return false;
	e = ended_find(ts, session);
	if (!e)
		e = ended_add(ts, session);
	else if (e->ended || e->asking || now(ts) - e->asked < ASK_AGAIN)
		return e->ended;
	if (e)
		ask(ts, e);
	return false;                    /* also where the answer has come already: all is looked at again then */
}

void things_done(struct things *ts)
{
	for (struct things_ask *a = ts->asks; a; a = a->next)
		a->of = NULL;
	for (struct things_ask *a = ts->asks, *next; a; a = next) {
		next = a->next;
		a->at = NULL;
		a->next = NULL;
	}
	free(ts->ended);
	free(ts->kept);
}

/* --- things --- */

static void party_remove(struct party *p)
{
	*p->at = p->next;
	if (p->next)
		p->next->at = p->at;
	free(p->tickets);
	free(p);
}

struct thing *thing_new(struct things *ts, enum kind kind, const char *space, const char *name, size_t len, void *object)
{
	struct thing *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->in = ts;
	t->kind = kind;
	t->object = object;
	t->again = t->lazy = NSEC_NEVER;
	t->on_disk = t->flying = ID_UNKEPT;
	thing_key(kind == KIND_LATCH ? THING_LATCHES : kind == KIND_COND ? THING_CONDS : THING_IDS, space, name, len, t->key);
	if (kind == KIND_ID) {
		strcat(t->key, "/");
	} else {
		record_init(&t->record, &ts->store, t->key, ops_of(kind), t);
		t->has_record = true;
	}
	for (struct thing *x = ts->first; x; x = x->next)
		if (!strcmp(x->key, t->key))
			t->twin = x->twin = true;
	t->at = &ts->first;
	t->next = ts->first;
	if (t->next)
		t->next->at = &t->next;
	ts->first = t;
	return t;
}

void thing_free(struct thing *t)
{
	while (t->parties)
		party_remove(t->parties);
	id_keep_left(t);
	id_list_free(t);
	if (t->has_record)
		record_done(&t->record);
	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	free(t->ghosts);
	free(t);
}

void thing_later(struct thing *t, nsec_t span)
{
	nsec_t when = now(t->in) + span;

	t->again = when < t->again ? when : t->again;
	t->in->ops.wake_at(t->in->ops.arg, t->again);    /* also if it has passed: that was while the store was closed */
}

void thing_is_over(struct thing *t)
{
	if (t->over)
		return;
	t->over = true;
	t->in->ops.over(t->in->ops.arg, t);
}

void thing_used(struct thing *t)
{
	t->unused = t->over = false;
	t->parked = 0;
}

void thing_unused(struct thing *t)
{
	t->unused = true;
	if (t->kind == KIND_ID)
		id_close(t);
	else
		record_need(&t->record, false);
}

void thing_low(struct thing *t)
{
	if (t->kind == KIND_ID && t->id == ID_HELD)
		id_want(t);
}

static bool twin_has(const struct thing *t, uint64_t account)
{
	for (const struct thing *x = t->twin ? t->in->first : NULL; x; x = x->next)
		if (x != t && !strcmp(x->key, t->key) && thing_party(x, account))
			return true;
	return false;
}

bool thing_ours(const struct thing *t, uint64_t session, uint64_t account)
{
	if (twin_has(t, account))
		return false;
	return !t->in->shared || session == t->in->session || thing_party(t, account);
}

/* --- parties --- */

struct party *thing_party(const struct thing *t, uint64_t id)
{
	struct party *p = t->parties;

	while (p && p->id != id)
		p = p->next;
	return p;
}

struct party *party_new(struct thing *t, uint64_t id, void *account)
{
	struct party *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->thing = t;
	p->id = id;
	p->account = account;
	p->at = &t->parties;
	p->next = t->parties;
	if (p->next)
		p->next->at = &p->next;
	t->parties = p;
	if (t->kind == KIND_LATCH && !t->record.known)
		record_need(&t->record, false);  /* who only waits asks for nothing */
	return p;
}

void party_adopt(struct party *p, uint32_t answered, uint32_t passed, uint32_t signalled)
{
	struct thing *t = p->thing;

	p->answered = answered;
	p->passed = passed;
	p->signalled = signalled;
	p->adopted = true;
	if (t->has_record && t->kind != KIND_ID) {
		record_doubt(&t->record);
		record_need(&t->record, true);
	}
}

void party_free(struct party *p, bool died, uint64_t taken)
{
	struct thing *t = p->thing;

	if (t->kind == KIND_COND)
		cond_left(p, died, taken);
	party_remove(p);
	if (t->kind == KIND_COND)
		record_need(&t->record, false);
}

void party_answer(struct party *p, int error, uint64_t value)
{
	if (p->op == SMALL_NONE)
		return;
	p->op = SMALL_NONE;
	p->answered = p->number;
	p->thing->in->ops.answer(p->thing->in->ops.arg, p, error, value);
}

/* What each kind can be asked for. */
static bool request_fits(enum kind kind, uint32_t op)
{
	if (kind == KIND_LATCH)
		return op >= SMALL_OPEN && op <= SMALL_UNLINK;
	if (kind == KIND_COND)
		return op >= SMALL_ENTER && op <= SMALL_SIGNAL;
	return kind == KIND_ID && op == SMALL_RESERVE;
}

int party_request(struct party *p, uint32_t number, uint32_t op, uint64_t arg)
{
	struct thing *t = p->thing;

	if (number == p->answered || (p->op != SMALL_NONE && number == p->number))
		return 0;                /* rung for nothing, or known already */
	if (!number || !request_fits(t->kind, op) || (arg > UINT32_MAX && op != SMALL_LOOK && op != SMALL_COUNT))
		return -EINVAL;
	if (p->op != SMALL_NONE && !(p->op == SMALL_ENTER && op == SMALL_CANCEL && p->number == arg))
		return -EINVAL;
	p->op = (enum small_op)op;
	p->number = number;
	p->arg = (uint32_t)arg;
	p->birth = 0;
	p->meant = (uint32_t)(arg >> 32);
	p->signal = (struct signal){ .number = (uint32_t)(p->id ^ (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15) >> 32) | 1 };
	if (op == SMALL_CANCEL)
		cond_cancel(p, p->arg);
	if (t->kind == KIND_ID)
		id_want(t);
	else
		p->moment = record_want(&t->record, op == SMALL_LOOK || op == SMALL_OPEN);
	if (t->kind != KIND_ID)
		record_go(&t->record);
	return 0;
}

/* --- the whole --- */

void things_session(struct things *ts, uint64_t session)
{
	if (ts->store.open && ts->session == session)
		return;
	ts->session = session;
	ts->store.open = session;
	if (session)
		look_all(ts, true);
}

void things_lapsed(struct things *ts)
{
	ts->session = 0;
	ts->store.open = false;
	for (struct thing *t = ts->first; t; t = t->next) {
		if (t->kind == KIND_COND)
			cond_lapse(t);
		else if (t->kind == KIND_ID)
			id_lapse(t);
	}
}

void things_hint(struct things *ts)
{
	if (ts->hint_at != NSEC_NEVER)
		return;
	ts->hint_at = now(ts) + THINGS_HINT_GAP;
	ts->ops.wake_at(ts->ops.arg, ts->hint_at);
}

/* What can still become of it is that it is unlinked, and whoever waits sleeps no longer: that may be heard of later. */
static bool only_unlinked(const struct thing *t)
{
	return t->kind == KIND_LATCH && t->state == LATCH_OPEN && t->parties && t->in->shared;
}

/* Is what others write anything to us? again is set while it is. */
static bool interested(const struct thing *t)
{
	return t->kind != KIND_ID && t->again != NSEC_NEVER && !only_unlinked(t);
}

static void turn_one(struct thing *t, nsec_t at, bool hinted)
{
	bool due = t->again <= at;

	if (hinted && only_unlinked(t) && t->again == NSEC_NEVER)
		thing_later(t, THINGS_OPEN);
	if (t->lazy <= at || due || (hinted && interested(t))) {
		if (due)                 /* the look says when again; until then hints are still of interest */
			t->again = t->kind == KIND_ID ? NSEC_NEVER : at + THINGS_AGAIN;
		if (t->kind == KIND_ID)
			id_want(t);
		else
			record_need(&t->record, due || hinted);
	} else if (t->has_record) {
		record_turn(&t->record, at);
	}
}

static nsec_t thing_due(const struct thing *t)
{
	nsec_t due = t->has_record ? record_due(&t->record) : NSEC_NEVER;

	/* What is to be looked at anyway, now or after a pause, needs no reason more. */
	if (!t->has_record || (!t->record.request && !t->record.wanted))
		due = t->lazy < due ? t->lazy : due;
	return t->again < due ? t->again : due;
}

void things_turn(struct things *ts)
{
	nsec_t at = now(ts), next = NSEC_NEVER;
	bool hinted = ts->hint_at <= at;

	if (!ts->store.open)
		return;                  /* things_session() looks at all */
	if (hinted)
		ts->hint_at = NSEC_NEVER;
	if (ts->learnt)
		look_all(ts, false);
	ts->learnt = false;
	for (struct thing *t = ts->first; t; t = t->next)
		turn_one(t, at, hinted);
	for (struct thing *t = ts->first; t; t = t->next) {
		nsec_t due = thing_due(t);

		next = due < next ? due : next;
	}
	next = ts->hint_at < next ? ts->hint_at : next;
	if (next != NSEC_NEVER)
		ts->ops.wake_at(ts->ops.arg, next);
}
