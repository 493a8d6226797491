/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker ids: one number for each node and name, shared by all its processes (id_record.h says why no id comes twice).
 *
 *   NONE -somebody wants ids-> LISTING -a number is free-> CLAIMING -written-> HELD -nobody has it open-> UNKEEPING
 *     |                           ^---- another was first ----'         |  ^                 the file is without it |
 *     |                           '-------- it is another's now --------'  |                                        v
 *     '---------------------------- the file has one (id_kept.h) ----------'                 NONE <-written- RETURNING
 *
 * A number that the file has is HELD without a session too: what lies below its ceiling is this node's for good. Clients are shown a
 * part of that at a time (`shown`), never above what the file has as `next`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "things.h"

#define BLOCKED_MAX (3 * NSEC_PER_SEC)   /* for so long a file is waited for that cannot be written; then for another number */
#define PARK (60 * NSEC_PER_SEC)         /* a kept number is not given back before: whoever had it open may be starting anew */

struct id_list {
	struct thing *of;
};

static uint64_t now_ms(const struct thing *t)
{
	return t->in->ops.now_ms(t->in->ops.arg);
}

static nsec_t now(const struct thing *t)
{
	return t->in->ops.now(t->in->ops.arg);
}

uint64_t id_target(const struct thing *t, uint64_t from)
{
	uint64_t at = now_ms(t);

	return (from > at ? from : at) + ID_LEAD_MS;
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

/* The better, the lower. One whose ceiling is far ahead of the clock gives out none before that. */
enum use { USE_OURS, USE_FREE, USE_LATER, USE_TAKEN };

static enum use use_of(struct thing *t, const struct id_record *rec)
{
	bool ours = rec->session == t->in->session;

	if (!ours && rec->session && t->in->shared && !session_ended(t->in, rec->session))
		return USE_TAKEN;
	if (rec->ceiling > now_ms(t) + ID_AHEAD_MS)
		return USE_LATER;
	return ours ? USE_OURS : USE_FREE;
}

struct choice {
	enum use use;
	uint64_t ceiling;                /* of LATER: the lowest is the best */
	uint32_t worker;
};

static bool better(const struct choice *a, const struct choice *b)
{
	return a->use != b->use ? a->use < b->use : a->use == USE_LATER && a->ceiling < b->ceiling;
}

static int pick(struct thing *t, const struct store_result *res)
{
	static struct choice all[ID_WORKERS];
	struct choice best = { .use = USE_TAKEN };
	uint32_t first = first_try(t);
	size_t before = strlen(t->key);

	for (uint32_t i = 0; i < ID_WORKERS; i++)
		all[i] = (struct choice){ .use = USE_FREE, .worker = i };
	for (size_t i = 0; i < res->n_records; i++) {
		const struct store_record *r = &res->records[i];
		int w = worker_of(r->key, before);
		struct id_record rec;

		if (w < 0)
			continue;
		all[w].use = id_decode(r->value, r->size, &rec) < 0 ? USE_TAKEN : use_of(t, &rec);
		all[w].ceiling = all[w].use == USE_LATER ? rec.ceiling : 0;
	}
	for (uint32_t i = 0; i < ID_WORKERS; i++)
		if (better(&all[(first + i) % ID_WORKERS], &best))
			best = all[(first + i) % ID_WORKERS];
	return best.use == USE_TAKEN ? -ENOSPC : (int)best.worker;
}

static void open_record(struct thing *t)
{
	char key[STORE_KEY_MAX + 8];

	snprintf(key, sizeof key, "%s%04u", t->key, t->worker);
	record_init(&t->record, &t->in->store, key, &id_ops, t);
	t->has_record = true;
	record_need(&t->record, true);
}

/* left, shown and on_disk are its owner's to say, if it is held. */
static void take(struct thing *t, uint32_t worker, enum id_state state)
{
	t->worker = worker;
	t->offered = (struct id_record){ 0 };
	t->flying = ID_UNKEPT;
	t->id = state;
	if (t->in->store.open)
		open_record(t);
}

static void claim(struct thing *t, uint32_t worker)
{
	t->left = (struct id_record){ 0 };
	t->shown = 0;
	t->on_disk = ID_UNKEPT;
	t->blocked = 0;
	take(t, worker, ID_CLAIMING);
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
		claim(t, (uint32_t)w);
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
	t->offered = id_raised(rec, t->in->session, t->in->node, until);
	write_record(&t->offered, ret);
}

static void give_up(struct thing *t)
{
	t->id = ID_NONE;
	t->on_disk = t->flying = ID_UNKEPT;
	thing_later(t, 0);
}

/* It is another's: a new number. Not from within the record's own look. */
static void lost(struct thing *t)
{
	if (t->id == ID_HELD)
		t->in->ops.id_word(t->in->ops.arg, t, true);
	give_up(t);
}

static bool same(const struct id_record *a, const struct id_record *b)
{
	return a->session == b->session && a->ceiling == b->ceiling;
}

/* What is written last is there. */
static bool landed(const struct thing *t, const struct id_record *rec)
{
	return t->offered.ceiling && same(rec, &t->offered);
}

/*
 * Ours, and as far as we know. Another thing of this node may have the number (a space that was lost has a successor, with the same
 * names): of the two the one is right that raised the ceiling last.
 */
static bool as_left(const struct thing *t, const struct id_record *rec)
{
	return (t->left.session && same(rec, &t->left)) || landed(t, rec);
}

static uint64_t lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The disk is as it is. What lies between file and ceiling is left to nobody. */
static void look_blocked(struct thing *t, bool blocked)
{
	if (!blocked) {
		t->blocked = 0;
		return;
	}
	if (!t->blocked)
		t->blocked = now(t);
	thing_later(t, BLOCKED_MAX);
}

/* As many as are wanted, as far as store and file go. */
static void show(struct thing *t)
{
	uint64_t last = t->in->ops.id_word(t->in->ops.arg, t, false) >> ID_MS_SHIFT, at = now_ms(t);
	uint64_t file = lower(t->on_disk, t->flying), most = lower(t->until, lower(file, t->left.ceiling));
	bool some;

	if (most > t->shown) {
		t->shown = most;
		t->in->ops.id_open(t->in->ops.arg, t, 0);
	}
	id_keep_shown(t);
	some = t->shown > (at > last + 1 ? at : last + 1);
	look_blocked(t, !some && file <= t->shown && t->left.ceiling > t->shown);
	if (some)
		answer_all(t, 0);
}

static void look_claiming(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	if (landed(t, rec)) {
		t->id = ID_HELD;
		t->left = *rec;
		t->shown = rec->ceiling;
		t->in->ops.id_open(t->in->ops.arg, t, t->start << ID_MS_SHIFT | (uint64_t)t->worker << 12);
		answer_all(t, 0);
		id_keep_changed(t);
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
	raise_to(t, rec, id_target(t, rec->ceiling), ret);
}

/* How far the ceiling is to go: as it is, or higher. */
static uint64_t ceiling_wanted(const struct thing *t, const struct id_record *rec)
{
	uint64_t at = now_ms(t), reserve = id_is_kept(t) ? t->in->reserve_ms : 0;

	if (t->until <= rec->ceiling && at + reserve / 2 <= rec->ceiling)
		return rec->ceiling;
	return t->until > at + reserve ? t->until : at + reserve;
}

static void look_held(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	uint64_t wanted_ms = ceiling_wanted(t, rec);

	if (!as_left(t, rec)) {
		lost(t);
		return;
	}
	if (landed(t, rec) && !same(rec, &t->left)) {
		t->left = *rec;
		if (id_is_kept(t))
			id_keep_changed(t);
	}
	show(t);
	if (rec->ceiling >= ID_MS_MAX)
		answer_all(t, EOVERFLOW);
	else if (rec->session != t->in->session || wanted_ms > rec->ceiling)
		raise_to(t, rec, wanted_ms, ret);
}

static void look_returning(struct thing *t, const struct id_record *rec, struct record_want *ret)
{
	struct id_record back;

	if (as_left(t, rec)) {
		back = id_given_back(rec, t->until);
		write_record(&back, ret);
		return;
	}
	give_up(t);
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
	case ID_UNKEEPING:
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

/* What the file has is good at once, with a session and without; the next file first says how far it goes. */
static bool resume(struct thing *t)
{
	uint64_t start = now_ms(t) + ID_AHEAD_MS;
	struct id_kept k;

	if (!id_keep_take(t, &k))
		return false;
	t->start = t->shown = start > k.next ? start : k.next;
	t->left = (struct id_record){ .session = k.session, .ceiling = k.ceiling };
	t->on_disk = k.next;
	t->until = id_target(t, t->start);
	take(t, k.worker, ID_HELD);
	t->in->ops.id_open(t->in->ops.arg, t, t->start << ID_MS_SHIFT | (uint64_t)t->worker << 12);
	id_keep_changed(t);
	return true;
}

static void want_more(struct thing *t)
{
	uint64_t last = t->in->ops.id_word(t->in->ops.arg, t, false);

	if (last & ID_CLOSED) {          /* not by us */
		lost(t);
		return;
	}
	t->until = id_target(t, last >> ID_MS_SHIFT);
	show(t);
	if (!t->in->store.open)
		return;
	if (t->blocked && now(t) >= t->blocked + BLOCKED_MAX) {
		lost(t);
		return;
	}
	if (t->has_record)
		record_need(&t->record, false);
	else
		open_record(t);
}

void id_want(struct thing *t)
{
	switch (t->id) {
	case ID_NONE:
		record_close(t);
		if (t->unused)
			thing_is_over(t);
		else if (wanted(t) && !resume(t) && t->in->store.open)
			list(t);
		return;
	case ID_HELD:
		if (t->unused)
			id_close(t);
		else
			want_more(t);
		return;
	case ID_LISTING:
	case ID_CLAIMING:
	case ID_UNKEEPING:
	case ID_RETURNING:
		return;
	}
}

static void give_back(struct thing *t)
{
	t->id = ID_RETURNING;
	if (!t->has_record && t->in->store.open)
		open_record(t);
	else if (t->has_record)
		record_need(&t->record, false);
}

/* The file has it no more. While the store is away it cannot be given back: it is of a session that has ended. */
void id_returns(struct thing *t, bool unkept)
{
	if (unkept && t->in->store.open)
		give_back(t);
	else
		give_up(t);
}

/* A kept number stays for a while, and as long as the store is away. */
static bool stays(struct thing *t)
{
	if (!id_is_kept(t) && t->flying == ID_UNKEPT)
		return false;
	if (!t->parked)
		t->parked = now(t);
	if (t->in->store.open && now(t) >= t->parked + PARK)
		return false;
	thing_later(t, PARK);
	return true;
}

void id_close(struct thing *t)
{
	uint64_t last;

	switch (t->id) {
	case ID_HELD:
		if (stays(t))
			return;
		last = t->in->ops.id_word(t->in->ops.arg, t, true);
		t->until = last & ID_CLOSED ? UINT64_MAX : (last >> ID_MS_SHIFT) + 1;
		if (!id_is_kept(t) && t->flying == ID_UNKEPT) {
			id_returns(t, true);
			return;
		}
		t->id = ID_UNKEEPING;
		t->leaves = false;
		id_keep_changed(t);
		return;
	case ID_CLAIMING:
		t->until = UINT64_MAX;   /* nothing has been given out: the ceiling stays */
		id_returns(t, true);
		return;
	case ID_NONE:
		thing_later(t, 0);
		return;
	case ID_LISTING:
	case ID_UNKEEPING:
	case ID_RETURNING:
		return;
	}
}

/* With the session goes what others may have taken by now: all but what lies below the ceiling of a number that is kept. */
void id_lapse(struct thing *t)
{
	bool stays = t->id == ID_HELD && id_is_kept(t) && !t->unused;

	id_list_free(t);
	record_close(t);
	if (stays)
		return;
	if (t->id == ID_HELD)
		t->in->ops.id_word(t->in->ops.arg, t, true);
	id_keep_left(t);
	t->id = ID_NONE;
	t->on_disk = t->flying = ID_UNKEPT;
	if (t->unused)
		thing_is_over(t);
}

void thing_adopt_id(struct thing *t, uint32_t worker, uint64_t shown, uint64_t session)
{
	struct id_kept k;
	bool kept = id_keep_adopt(t, worker, &k);

	t->left = (struct id_record){ .session = kept ? k.session : session, .ceiling = kept ? k.ceiling : shown };
	t->on_disk = kept ? k.next : ID_UNKEPT;
	t->shown = shown;
	take(t, worker, ID_HELD);
}
