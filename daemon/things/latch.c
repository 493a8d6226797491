/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Latches: what this node's processes ask for, held against the record (latch_record.h says how). */
#include <errno.h>

#include "things.h"

#define TRIM_AT 8                        /* of our entries that nobody needs, so many may stay in the record */

static struct latch_record rec;          /* the one that is being looked at */
static uint8_t bytes[STORE_VALUE_MAX];

static void show(struct thing *t, enum latch_state state, uint32_t count, uint64_t birth)
{
	if (t->state == state && t->count == count && t->birth == birth)
		return;
	t->state = state;
	t->count = count;
	t->birth = birth;
	t->in->ops.latch(t->in->ops.arg, t);
}

/* --- entries that nobody needs any more --- */

static bool spent(void *arg, const struct latch_entry *e)
{
	const struct thing *t = arg;
	const struct party *p = thing_party(t, e->account);

	return thing_ours(t, e->session, e->account) && !(p && p->op == SMALL_COUNT && p->number <= e->number);
}

static bool of_the_ended(void *arg, const struct latch_entry *e)
{
	struct thing *t = arg;

	return spent(t, e) || (!thing_ours(t, e->session, e->account) && session_ended(t->in, e->session));
}

static uint32_t n_spent(struct thing *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rec.n; i++)
		n += spent(t, &rec.e[i]);
	return n;
}

/* --- not there --- */

static void absent_answer(struct party *p)
{
	switch (p->op) {
	case SMALL_COUNT:
	case SMALL_LOOK:
		party_answer(p, ENOENT, 0);
		return;
	case SMALL_UNLINK:
		party_answer(p, p->birth ? 0 : ENOENT, 0);
		return;
	case SMALL_NONE:
	case SMALL_OPEN:
	case SMALL_ENTER:
	case SMALL_CANCEL:
	case SMALL_SIGNAL:
	case SMALL_RESERVE:
		return;
	}
}

/* Who waits is told before whoever has removed it. */
static void look_absent(struct thing *t, const struct record_view *v, struct record_want *ret)
{
	const struct party *maker = NULL;

	for (const struct party *p = t->parties; p; p = p->next)
		if (p->op == SMALL_OPEN)
			maker = p;
	if (!maker && v->asof)
		show(t, LATCH_GONE, 0, t->birth);
	for (struct party *p = t->parties; p; p = p->next) {
		if (p->op == SMALL_OPEN)
			continue;
		if (p->op != SMALL_NONE && v->asof < p->moment)
			ret->what = RECORD_READ; /* it may be there by now */
		else
			absent_answer(p);
	}
	if (!maker)
		return;
	latch_begin(&rec, things_random(t->in), maker->arg);
	*ret = (struct record_want){ RECORD_WRITE, bytes, latch_encode(&rec, bytes) };
}

/* --- there --- */

/* It is about one that was unlinked, and has been made anew since. */
static bool is_another(const struct party *p)
{
	return p->birth != rec.birth || (p->meant && p->meant != latch_short(rec.birth));
}

/* Whether the record is another now. */
static bool count_one(struct thing *t, struct party *p)
{
	struct latch_entry who = { t->in->session, p->id, p->number };

	if (latch_count(&rec, &who, p->arg) == 0)
		return true;
	if (latch_drop(&rec, of_the_ended, t) && latch_count(&rec, &who, p->arg) == 0)
		return true;
	thing_later(t, NSEC_PER_SEC);
	return false;
}

/*
 * What the record as it is says to it. Its own entry proves that it was counted; that the latch is open is an answer only where that has
 * been read since it was asked. Whether it has to be read.
 */
static bool count_answered(struct party *p, const struct record_view *v)
{
	if (is_another(p))
		party_answer(p, ENOENT, 0);
	else if (!rec.count && v->asof < p->moment)
		return true;
	else if (latch_counted(&rec, p->id, p->number))
		party_answer(p, 0, 0);
	return false;
}

static void present_one(struct party *p, const struct record_view *v, struct record_want *ret)
{
	if (!p->birth)
		p->birth = rec.birth;
	switch (p->op) {
	case SMALL_OPEN:
	case SMALL_LOOK:
		if (v->asof < p->moment)
			return;
		if (p->meant && is_another(p))
			party_answer(p, ENOENT, 0);
		else
			party_answer(p, 0, (uint64_t)latch_short(rec.birth) << 32 | rec.count);
		return;
	case SMALL_COUNT:
		if (count_answered(p, v) && ret->what == RECORD_KEEP)
			ret->what = RECORD_READ;
		return;
	case SMALL_UNLINK:
		if (p->birth != rec.birth)
			party_answer(p, 0, 0);
		else
			ret->what = RECORD_REMOVE;
		return;
	case SMALL_NONE:
	case SMALL_ENTER:
	case SMALL_CANCEL:
	case SMALL_SIGNAL:
	case SMALL_RESERVE:
		return;
	}
}

static void look_present(struct thing *t, const struct record_view *v, struct record_want *ret)
{
	bool changed = false;
	uint32_t spare;

	t->initial = rec.initial;
	show(t, rec.count ? LATCH_CLOSED : LATCH_OPEN, rec.count, rec.birth);
	for (struct party *p = t->parties; p; p = p->next)
		present_one(p, v, ret);
	for (struct party *p = t->parties; p && rec.count; p = p->next)
		if (p->op == SMALL_COUNT)
			changed |= count_one(t, p);
	spare = n_spent(t);
	if (ret->what == RECORD_REMOVE || !(changed || spare > TRIM_AT || (t->unused && spare)))
		return;
	latch_drop(&rec, spent, t);
	*ret = (struct record_want){ RECORD_WRITE, bytes, latch_encode(&rec, bytes) };
}

static void look(void *arg, const struct record_view *v, struct record_want *ret)
{
	struct thing *t = arg;

	t->error = 0;
	if (!v->version)
		look_absent(t, v, ret);
	else if (latch_decode(v->bytes, v->n, &rec) == 0)
		look_present(t, v, ret);
	else
		for (struct party *p = t->parties; p; p = p->next)
			party_answer(p, EPROTO, 0);
	if (t->unused && ret->what == RECORD_KEEP && !v->fence)
		thing_is_over(t);
	t->again = t->in->shared && t->parties && t->state == LATCH_CLOSED ? t->in->ops.now(t->in->ops.arg) + THINGS_AGAIN : NSEC_NEVER;
}

static void failed(void *arg, int error)
{
	struct thing *t = arg;

	t->error = error;
	if (error != -ENOSPC && error != -EFBIG)
		return;
	for (struct party *p = t->parties; p; p = p->next)
		if (p->op == SMALL_OPEN)
			party_answer(p, ENOSPC, 0);
}

const struct record_ops latch_ops = { look, failed };
