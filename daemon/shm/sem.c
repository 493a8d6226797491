/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Semaphores as objects: who comes and goes, what they ask, and what a restart and a lapse leave. */
#include "sem.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

#include "word.h"
#include "../../include/proto/futex.h"

static struct ledger_name *record_of(const struct sem *m)
{
	return name_at(m->o.space, m->o.slot);
}

static void limits_note(struct sem *m)
{
	word_store(&record_of(m)->number, m->opened | (uint64_t)m->limit << 32);
}

static void sem_begin(struct sem *m)
{
	m->last = &m->first;
	m->keep = SEM_KEEP_ALL;
	loop_timer_init(&m->timer, sem_serve, m);
	loop_defer_init(&m->defer, sem_serve, m);
}

static int sem_make(struct object *o, uint32_t arg)
{
	struct sem *m = sem_of(o);

	if (!o->space->shm->ops.sem)
		return -ENOTSUP;
	if (arg < 1 || arg > SEM_PERMITS_MAX)
		return -EINVAL;
	sem_begin(m);
	m->opened = m->limit = arg;
	limits_note(m);
	return 0;
}

/* Nobody has it open: who comes says how many there are. */
static int sem_check(struct object *o, uint32_t arg)
{
	struct sem *m = sem_of(o);

	if (arg < 1 || arg > SEM_PERMITS_MAX)
		return -EINVAL;
	if (!o->n_accounts && !m->weight) {
		m->opened = m->limit = arg;
		m->stamp = 0;
		limits_note(m);
	}
	return arg == m->opened || (m->stamp && arg == m->limit) ? 0 : -EINVAL;
}

static void sem_free(struct object *o)
{
	struct sem *m = sem_of(o);

	loop_timer_cancel(o->space->shm->loop, &m->timer);
	loop_defer_cancel(o->space->shm->loop, &m->defer);
}

/* --- What a client asks --- */

/* Its first in line wants permits; and it lives. */
static void ring_want(struct sem *m, struct sem_client *c)
{
	uint64_t want = __atomic_load_n(&sem_words(c)->want, __ATOMIC_ACQUIRE);

	if (c->slow)
		m->n_slow--;
	c->slow = false;
	if (!(want & SEM_WANTS))
		return;
	if (c->granted && c->turn != (uint32_t)(want >> 32))
		c->granted = false;
	if ((want & SEM_TRIES) && m->first && m->first != c)
		sem_answer(c, (uint32_t)(want >> 32), EAGAIN);   /* others were before */
	else
		sem_queue(m, c);
}

static void box_answer(struct sem_client *c, enum sem_box how, uint32_t answer)
{
	uint64_t *box = &sem_words(c)->box;

	if (c->asks)
		sem_of(c->a.object)->n_asks--;
	c->asks = false;
	word_store(box, (uint64_t)answer << 32 | how);
	futex_wake_class((uint32_t *)box, INT_MAX, LOCK_CLASS_ANY);      /* little-endian: the low half comes first */
}

static uint32_t sem_value(const struct sem *m)
{
	struct sem_view v;

	sem_look_at(&m->o, &v);
	return v.held < v.weight ? v.weight - v.held : 0;
}

/* What other nodes hold, this one does not know; alone there are none. */
static uint32_t value_here(const struct sem *m)
{
	const struct shm *shm = m->o.space->shm;
	uint32_t rest = m->limit > m->weight && !shm->config.many ? m->limit - m->weight : 0;
	uint32_t value = sem_value(m), over = m->weight > m->limit ? m->weight - m->limit : 0;

	return value > over ? value - over + rest : rest;
}

static void ring_box(struct sem *m, struct sem_client *c)
{
	uint64_t box = __atomic_load_n(&sem_words(c)->box, __ATOMIC_ACQUIRE);
	uint32_t arg = (uint32_t)(box >> 32);

	if (c->asks)
		return;
	switch (box & UINT32_MAX) {
	case SEM_BOX_VALUE:
		box_answer(c, SEM_BOX_DONE, value_here(m));
		return;
	case SEM_BOX_RESIZE:
		if (arg < 1 || arg > SEM_PERMITS_MAX) {
			box_answer(c, SEM_BOX_FAILED, EINVAL);
			return;
		}
		c->asks = true;
		m->n_asks++;
		m->resize = arg;
		m->resize_said = false;
		return;
	default:
		return;
	}
}

void sem_boxes(struct sem *m, int error)
{
	for (struct account *a = m->o.accounts; a && m->n_asks; a = a->next)
		if (sem_client_of(a)->asks)
			box_answer(sem_client_of(a), error ? SEM_BOX_FAILED : SEM_BOX_DONE, (uint32_t)error);
}

static void sem_ring(struct object *o, struct account *a)
{
	struct sem *m = sem_of(o);

	if (!a || o->space->broken)
		return;
	ring_want(m, sem_client_of(a));
	ring_box(m, sem_client_of(a));
	sem_soon(m);                     /* also where it only has given something back, or does not wait any more */
}

/* --- Coming and going --- */

static void sem_leave(struct object *o, struct account *a, bool died)
{
	struct sem *m = sem_of(o);
	struct sem_client *c = sem_client_of(a);
	uint32_t sum = c->sum;

	(void)died;
	sem_unqueue(m, c);
	if (c->slow)
		m->n_slow--;
	if (c->asks)
		m->n_asks--;
	if (c->barred)
		m->n_barred--;
	sem_sum_set(m, c, 0);
	m->free += sum;
	/* The ledger: with the account's note, which goes next. */
	if (!o->space->broken)
		sem_soon(m);
}

/* In a broken space nobody holds anything any more. */
static void sem_unused(struct object *o)
{
	struct sem *m = sem_of(o);

	for (struct account *a = o->accounts; a; a = a->next) {
		sem_unqueue(m, sem_client_of(a));
		sem_sum_set(m, sem_client_of(a), 0);
	}
	m->free = m->weight;
	m->resize = 0;
	if (m->core == SEM_CORE_IN)
		sem_release(m);
	else if (m->core == SEM_CORE_NONE)
		object_end(o);
}

/* --- After a restart --- */

static void recall_account(struct sem *m, struct sem_client *c)
{
	struct ledger_note *note = account_note(&c->a);
	uint32_t noted = note->v[0] <= SEM_PERMITS_MAX ? (uint32_t)note->v[0] : 0;
	uint32_t sum = sem_sum(SEM_LOAD(&sem_words(c)->word, __ATOMIC_RELAXED));

	c->recalled = true;
	if (sum > noted) {
		shm_tell(m->o.space->shm, "scribbled", m->o.space, m->o.slot, 0, 0, "an account says more than the ledger: all held");
		sem_reset(sem_words(c), noted);
		sum = noted;
	}
	if (sum < noted)                 /* on its way into the word, or out of it */
		word_store(&note->v[0], sum);
	sem_sum_set(m, c, sum);
	m->free = m->free > sum ? m->free - sum : 0;
}

static int sem_recall(struct object *o)
{
	struct sem *m = sem_of(o);
	struct sem_lease l;

	sem_begin(m);
	m->opened = (uint32_t)record_of(m)->number;
	m->limit = (uint32_t)(record_of(m)->number >> 32);
	m->stamp = object_note(o)->v[5];
	if (sem_lease(o->space, o->slot, &l)) {
		m->weight = m->free = l.weight;
		m->token = l.first;
		m->core = SEM_CORE_IN;
	}
	for (struct account *a = o->accounts; a; a = a->next)
		recall_account(m, sem_client_of(a));
	return 0;
}

static void sem_adopt(struct object *o)
{
	struct sem *m = sem_of(o);
	const struct ledger_name *rec = record_of(m);

	m->delay = rec->raised ? 0 : rec->delay;
	for (struct account *a = o->accounts; a; a = a->next) {
		struct sem_client *c = sem_client_of(a);

		c->barred = true;                /* whatever it was */
		m->n_barred++;
		sem_unbar(m, c);
		word_store(&sem_words(c)->state, 0);
		ring_want(m, c);
		ring_box(m, c);
	}
	sem_raised(o->space, o->slot);
	sem_soon(m);
}

/* --- The end of a session --- */

static void lapse_account(struct sem *m, struct sem_client *c)
{
	struct sem_account *w = sem_words(c);

	sem_lapse(w);
	sem_sum_set(m, c, 0);
	word_store(&account_note(&c->a)->v[0], 0);
	c->granted = false;
	if (c->barred)
		m->n_barred--;
	c->barred = false;
	word_store(&w->state, c->at ? SEM_QUEUED : 0);
	sem_wake(c);
}

/* A claim that waits goes on waiting; all else the core has dropped. */
static void lapse_core(struct sem *m, bool waits)
{
	m->keep = SEM_KEEP_ALL;
	m->delay = 0;
	m->resize_said = false;
	m->tries_kept = false;
	if (waits)
		return;
	m->core = SEM_CORE_NONE;
	m->asked = 0;
	m->limit = m->opened;
	m->stamp = 0;
	limits_note(m);
	word_store(&object_note(&m->o)->v[5], 0);
	sem_noted(m);
}

static void sem_lapsed_all(struct object *o)
{
	struct sem *m = sem_of(o);
	bool waits = m->core == SEM_CORE_IN && !m->weight && m->asked;

	for (struct account *a = o->accounts; a && !o->space->broken; a = a->next)
		lapse_account(m, sem_client_of(a));
	sem_zero(m);
	lapse_core(m, waits);
	if (o->unused && m->core == SEM_CORE_NONE)
		object_end(o);
	else if (!o->space->broken)
		sem_soon(m);
}

/* --- For people --- */

uint32_t sem_held_by(const struct sem_client *c)
{
	const struct sem_account *a = sem_words(c);
	uint32_t idle = sem_idle(SEM_LOAD(&a->word, __ATOMIC_RELAXED), SEM_LOAD(&a->given, __ATOMIC_RELAXED),
				 SEM_LOAD(&a->lost, __ATOMIC_RELAXED));

	return idle < c->sum ? c->sum - idle : 0;
}

void sem_each_holder(struct space *s, uint32_t slot, void (*fn)(struct space *s, uint32_t slot, uint32_t client, void *arg), void *arg)
{
	const struct object *o = name_is(s, slot) && name_kind(s, slot) == KIND_SEM ? object_at(s, slot) : NULL;

	for (const struct sem_client *c = o ? ((const struct sem *)o)->holders : NULL; c; c = c->holder_next)
		if (sem_held_by(c))
			fn(s, slot, c->a.client, arg);
}

void sem_look_at(const struct object *o, struct sem_view *ret)
{
	const struct sem *m = (const struct sem *)o;

	*ret = (struct sem_view){ .limit = m->limit, .weight = m->weight, .token = m->token };
	for (const struct sem_client *c = m->holders; c && !o->space->broken; c = c->holder_next) {
		uint32_t held = sem_held_by(c);

		ret->held += held;
		if (held)
			ret->first = c->a.client;
	}
}

const struct object_kind sem_kind = {
	.size = sizeof(struct sem), .account_size = sizeof(struct sem_client),
	.make = sem_make, .check = sem_check, .ring = sem_ring, .leave = sem_leave, .unused = sem_unused,
	.recall = sem_recall, .adopt = sem_adopt, .lapse = sem_lapsed_all, .free = sem_free,
};
