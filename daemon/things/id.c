/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker ids: one number for each node and name, shared by all its processes (id_record.h says why no id comes twice).
 *
 *   NONE -somebody wants ids-> LISTING -a number is free-> CLAIMING -written-> HELD -nobody has it open-> RETURNING -> NONE
 *                                 ^---- another was first ----'         '-- it is another's now: LISTING
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "things.h"

struct id_list {
	struct thing *of;
};

static uint64_t now_ms(const struct thing *t)
{
	return t->in->ops.now_ms(t->in->ops.arg);
}

static uint64_t target(const struct thing *t, uint64_t from)
{
	uint64_t now = now_ms(t);

	return (from > now ? from : now) + ID_LEAD_MS;
}

static void answer_all(struct thing *t, int error)
{
	for (struct party *p = t->parties; p; p = p->next)
		if (p->op == SMALL_RESERVE)
			party_answer(p, error, t->worker);
}

static bool wanted(const struct thing *t)
{
	for (const struct party *p = t->parties; p; p = p->next)
		if (p->op == SMALL_RESERVE)
			return true;
	return false;
}

static void record_close(struct thing *t)
{
	if (t->has_record)
		record_done(&t->record);
	t->has_record = false;
}

/* --- looking for a number --- */

/* Nodes begin in different places, so that they seldom want the same. */
static uint32_t first_try(const struct thing *t)
{
	uint32_t v;

	memcpy(&v, t->in->node, sizeof v);
	return v % ID_WORKERS;
}

static int worker_of(const char *key, size_t before)
{
	unsigned w = 0;

	if (strlen(key) != before + 4)
		return -1;
	for (const char *c = key + before; *c; c++) {
		if (*c < '0' || *c > '9')
			return -1;
		w = w * 10 + (unsigned)(*c - '0');
	}
	return w < ID_WORKERS ? (int)w : -1;
}

enum use { USE_FREE, USE_OURS, USE_TAKEN };

static enum use use_of(struct thing *t, const struct store_record *r)
{
	struct id_record rec;

	if (id_decode(r->value, r->size, &rec) < 0)
		return USE_TAKEN;
	if (rec.session == t->in->session)
		return USE_OURS;
	return !rec.session || !t->in->shared || session_ended(t->in, rec.session) ? USE_FREE : USE_TAKEN;
}

static int pick(struct thing *t, const struct store_result *res)
{
	static uint8_t use[ID_WORKERS];
	uint32_t first = first_try(t);
	size_t before = strlen(t->key);

	memset(use, USE_FREE, sizeof use);
	for (size_t i = 0; i < res->n_records; i++) {
		int w = worker_of(res->records[i].key, before);

		if (w < 0)
			continue;
		use[w] = (uint8_t)use_of(t, &res->records[i]);
		if (use[w] == USE_OURS)
			return w;
	}
	for (uint32_t i = 0; i < ID_WORKERS; i++)
		if (use[(first + i) % ID_WORKERS] == USE_FREE)
			return (int)((first + i) % ID_WORKERS);
	return -ENOSPC;
}

static void take(struct thing *t, uint32_t worker, enum id_state state)
{
	char key[STORE_KEY_MAX + 8];

	snprintf(key, sizeof key, "%s%04u", t->key, worker);
	t->worker = worker;
	t->offered = 0;
	t->ceiling = state == ID_HELD ? t->ceiling : 0;
	t->id = state;
	record_init(&t->record, &t->in->store, key, &id_ops, t);
	t->has_record = true;
	record_need(&t->record, true);
}

static void listed(void *arg, const struct store_result *res)
{
	struct id_list *l = arg;
	struct thing *t = l->of;
	int w;

	free(l);
	if (!t)
		return;
	t->list = NULL;
	t->id = ID_NONE;
	t->error = res->error;
	if (res->error || !t->in->store.open) {
		thing_later(t, RECORD_PAUSE_MAX);
		return;
	}
	if (t->unused) {
		thing_is_over(t);
		return;
	}
	w = pick(t, res);
	if (w >= 0) {
		take(t, (uint32_t)w, ID_CLAIMING);
		return;
	}
	answer_all(t, ENOSPC);
	thing_later(t, RECORD_PAUSE_MAX);        /* some of them may have ended, as is being asked now */
}

static void list(struct thing *t)
{
	struct id_list *l = malloc(sizeof *l);

	if (!l) {
		thing_later(t, RECORD_PAUSE_MAX);
		return;
	}
	l->of = t;
	t->list = l;
	t->id = ID_LISTING;
	store_list(t->in->store.store, t->key, listed, l);
}

void id_list_free(struct thing *t)
{
	if (t->list)
		t->list->of = NULL;
	t->list = NULL;
}

/* --- the record of the number --- */

static void write_record(const struct id_record *r, struct record_want *ret)
{
	static uint8_t bytes[ID_BYTES];

	id_encode(r, bytes);
	*ret = (struct record_want){ RECORD_WRITE, bytes, ID_BYTES };
}

static void raise_to(struct thing *t, const struct id_record *rec, uint64_t until, struct record_want *ret)
{
	struct id_record next = id_raised(rec, t->in->session, t->in->node, until);

	t->offered = next.ceiling;
	write_record(&next, ret);
}

/* It is another's: a new number. Not from within the record's own look. */
static void lost(struct thing *t)
{
	if (t->id == ID_HELD)
		t->in->ops.id_word(t->in->ops.arg, t, true);
	t->id = ID_NONE;
	thing_later(t, 0);
}

/*
 * Ours, and as far as we know. Another thing of this node may have the number (a space that was lost has a successor, with the same
 * names): of the two the one is right that raised the ceiling last.
 */
static bool as_left(const struct thing *t, const struct id_record *rec)
{
	return rec->session == t->in->session && (rec->ceiling == t->ceiling || (t->offered && rec->ceiling == t->offered));
}

/* What is written last is there. */
static bool landed(const struct thing *t, const struct id_record *rec)
{
	return t->offered && rec->session == t->in->session && rec->ceiling == t->offered;
}

static void look_claiming(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	if (landed(t, rec)) {
		t->id = ID_HELD;
		t->ceiling = rec->ceiling;
		t->in->ops.id_open(t->in->ops.arg, t, t->start << ID_MS_SHIFT | (uint64_t)t->worker << 12);
		answer_all(t, 0);
		return;
	}
	if (rec->session && rec->session != t->in->session && t->in->shared && !session_ended(t->in, rec->session)) {
		lost(t);
		return;
	}
	if (rec->ceiling >= ID_MS_MAX - ID_LEAD_MS) {
		answer_all(t, EOVERFLOW);
		return;
	}
	t->start = rec->ceiling;
	raise_to(t, rec, target(t, rec->ceiling), ret);
}

static void look_held(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	if (!as_left(t, rec)) {
		lost(t);
		return;
	}
	if (landed(t, rec) && rec->ceiling > t->ceiling) {
		t->ceiling = rec->ceiling;
		t->in->ops.id_open(t->in->ops.arg, t, 0);
	}
	if (t->until > rec->ceiling && rec->ceiling < ID_MS_MAX)
		raise_to(t, rec, t->until, ret);
	else
		answer_all(t, rec->ceiling < ID_MS_MAX ? 0 : EOVERFLOW);
}

static void look_returning(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	struct id_record back;

	if (as_left(t, rec)) {
		back = id_given_back(rec, t->until);
		write_record(&back, ret);
		return;
	}
	t->id = ID_NONE;
	thing_later(t, 0);
}

static void look(void *arg, const struct record_view *v, struct record_want *ret)
{
	struct id_record rec = { 0 };
	struct thing *t = arg;

	t->error = 0;
	if (v->version && id_decode(v->bytes, v->n, &rec) < 0) {
		lost(t);
		return;
	}
	switch (t->id) {
	case ID_CLAIMING:
		look_claiming(t, &rec, ret);
		return;
	case ID_HELD:
		look_held(t, &rec, ret);
		return;
	case ID_RETURNING:
		look_returning(t, &rec, ret);
		return;
	case ID_NONE:
	case ID_LISTING:
		return;
	}
}

static void failed(void *arg, int error)
{
	struct thing *t = arg;

	t->error = error;
	if (error == -ENOSPC || error == -EFBIG)
		answer_all(t, ENOSPC);
}

const struct record_ops id_ops = { look, failed };

/* --- what is wanted --- */

void id_want(struct thing *t)
{
	uint64_t last;

	if (!t->in->store.open)
		return;
	switch (t->id) {
	case ID_NONE:
		record_close(t);
		if (t->unused)
			thing_is_over(t);
		else if (wanted(t))
			list(t);
		return;
	case ID_HELD:
		last = t->in->ops.id_word(t->in->ops.arg, t, false);
		if (last & ID_CLOSED) {  /* not by us */
			lost(t);
			return;
		}
		t->until = target(t, last >> ID_MS_SHIFT);
		record_need(&t->record, false);
		return;
	case ID_LISTING:
	case ID_CLAIMING:
	case ID_RETURNING:
		return;
	}
}

void id_close(struct thing *t)
{
	uint64_t last;

	switch (t->id) {
	case ID_HELD:
		last = t->in->ops.id_word(t->in->ops.arg, t, true);
		t->until = last & ID_CLOSED ? UINT64_MAX : (last >> ID_MS_SHIFT) + 1;
		t->id = ID_RETURNING;
		record_need(&t->record, false);
		return;
	case ID_CLAIMING:
		t->until = UINT64_MAX;   /* nothing has been given out: the ceiling stays */
		t->id = ID_RETURNING;
		record_need(&t->record, false);
		return;
	case ID_NONE:
		thing_later(t, 0);
		return;
	case ID_LISTING:
	case ID_RETURNING:
		return;
	}
}

void id_lapse(struct thing *t)
{
	id_list_free(t);
	record_close(t);
	if (t->id == ID_HELD)
		t->in->ops.id_word(t->in->ops.arg, t, true);
	t->id = ID_NONE;
	if (t->unused)
		thing_is_over(t);
}

void thing_adopt_id(struct thing *t, uint32_t worker, uint64_t ceiling)
{
	t->ceiling = ceiling;
	take(t, worker, ID_HELD);
}
