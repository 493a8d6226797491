/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which worker numbers are to be in the file (id_kept.h), and what is known of the one that is there.
 *
 * Of a number's `next` two values count: the one that the file has (on_disk), and the one of a file that is being written (flying):
 * either may be what is found after an end, so nothing is shown to clients above the lower one. Where neither is, the file says
 * nothing of the number, and what a later daemon finds there is another one's, or nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "things.h"

/*
 * So far beyond what is shown the file says that ids may have been given out: not farther than clients may run ahead of the clock, so
 * that whoever begins there has ids at once. It is written again when less than LOW is left.
 */
#define KEEP_AHEAD_MS (ID_AHEAD_MS - ID_LEAD_MS)
#define KEEP_LOW_MS   4000u

static uint64_t lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void id_keep_changed(struct thing *t)
{
	if (t->in->reserve_ms && t->in->ops.keep)
		t->in->ops.keep(t->in->ops.arg);
}

void id_keep_shown(struct thing *t)
{
	if (id_is_kept(t) && t->until + KEEP_LOW_MS > t->on_disk && t->flying == ID_UNKEPT)
		id_keep_changed(t);
}

/* --- what is of before --- */

void things_keep_load(struct things *ts, struct id_kept *v, uint32_t n, uint64_t reserve_ms)
{
	ts->kept = v;
	ts->n_kept = n;
	ts->reserve_ms = reserve_ms;
}

static struct id_kept *kept_find(const struct things *ts, const char *key)
{
	for (uint32_t i = 0; i < ts->n_kept; i++)
		if (!strcmp(ts->kept[i].key, key))
			return &ts->kept[i];
	return NULL;
}

/* What is dropped here may be in the file for a while: nobody gives out ids of it. */
static void kept_drop(struct things *ts, struct id_kept *k)
{
	*k = ts->kept[--ts->n_kept];
}

static bool kept_good(const struct things *ts, const struct id_kept *k)
{
	return k->ceiling > ts->ops.now_ms(ts->ops.arg) + ID_AHEAD_MS && k->ceiling > k->next;
}

bool things_keeps(const struct things *ts, const char *key, uint32_t worker)
{
	const struct id_kept *k = kept_find(ts, key);

	return k && k->worker == worker && kept_good(ts, k);
}

/* Where the store can be asked for another, one that is of no use for some seconds is not taken. */
bool id_keep_take(struct thing *t, struct id_kept *ret)
{
	struct id_kept *k = kept_find(t->in, t->key);
	bool good = k && kept_good(t->in, k) &&
		    !(t->in->store.open && k->next > t->in->ops.now_ms(t->in->ops.arg) + ID_AHEAD_MS);

	if (!k)
		return false;
	if (good)
		*ret = *k;
	kept_drop(t->in, k);
	return good;
}

bool id_keep_adopt(struct thing *t, uint32_t worker, struct id_kept *ret)
{
	struct id_kept *k = kept_find(t->in, t->key);
	bool its = k && k->worker == worker;

	if (its)
		*ret = *k;
	if (k)
		kept_drop(t->in, k);
	return its;
}

void id_keep_left(struct thing *t)
{
	struct things *ts = t->in;
	struct id_kept *v;

	if (t->kind != KIND_ID || t->id != ID_HELD || !id_is_kept(t) || ts->n_kept == KEPT_MAX)
		return;
	v = realloc(ts->kept, (ts->n_kept + 1) * sizeof *v);
	if (!v)
		return;
	ts->kept = v;
	v += ts->n_kept++;
	*v = (struct id_kept){ .worker = t->worker, .session = t->left.session, .ceiling = t->left.ceiling, .next = t->on_disk };
	strcpy(v->key, t->key);
}

/* --- the next file --- */

static bool goes_in(const struct thing *t)
{
	return t->kind == KIND_ID && t->id == ID_HELD;
}

static void enter(struct thing *t, struct id_kept *ret)
{
	uint64_t until = t->until > t->shown ? t->until : t->shown;

	*ret = (struct id_kept){ .worker = t->worker, .session = t->left.session, .ceiling = t->left.ceiling,
				 .next = lower(until + KEEP_AHEAD_MS, ID_MS_MAX) };
	strcpy(ret->key, t->key);
	t->flying = ret->next;
}

uint32_t things_keep_begin(struct things *ts, struct id_kept **ret)
{
	uint32_t n = 0, most = 0;
	struct id_kept *v;

	for (uint32_t i = ts->n_kept; i-- > 0;)
		if (!kept_good(ts, &ts->kept[i]))
			kept_drop(ts, &ts->kept[i]);
	for (struct thing *t = ts->first; t; t = t->next)
		most += goes_in(t);
	most += ts->n_kept;
	*ret = v = most ? malloc(most * sizeof *v) : NULL;
	for (struct thing *t = ts->first; t; t = t->next) {
		t->leaves = t->id == ID_UNKEEPING;
		if (v && n < KEPT_MAX && goes_in(t))
			enter(t, &v[n++]);
	}
	for (uint32_t i = 0; v && n < KEPT_MAX && i < ts->n_kept; i++)
		v[n++] = ts->kept[i];
	return n;
}

static bool has(const struct id_kept *v, uint32_t n, const struct thing *t)
{
	for (uint32_t i = 0; i < n; i++)
		if (v[i].worker == t->worker && !strcmp(v[i].key, t->key))
			return true;
	return false;
}

static void settle(struct thing *t, bool there, enum kept_end end)
{
	uint64_t flew = there ? t->flying : ID_UNKEPT;

	t->flying = ID_UNKEPT;
	switch (end) {
	case KEPT_SAVED:
		t->on_disk = flew;
		return;
	case KEPT_OLD:
		return;
	case KEPT_GONE:
		t->on_disk = ID_UNKEPT;
		return;
	case KEPT_DOUBT:
		t->on_disk = lower(t->on_disk, flew);
		return;
	}
}

void things_keep_end(struct things *ts, const struct id_kept *v, uint32_t n, enum kept_end end)
{
	for (struct thing *t = ts->first; t; t = t->next) {
		if (t->kind != KIND_ID)
			continue;
		if (t->id == ID_UNKEEPING && t->leaves) {
			id_returns(t, end == KEPT_SAVED || end == KEPT_GONE);
		} else if (goes_in(t)) {
			settle(t, has(v, n, t), end);
			id_want(t);
		}
	}
}
