/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "small.h"

#include <errno.h>

#include "files.h"
#include "word.h"

static struct small *small_of(struct object *o)
{
	return (struct small *)o;
}

static struct small_client *client_of(struct account *a)
{
	return (struct small_client *)a;
}

static const struct shm_ops *ops_of(const struct object *o)
{
	return &o->space->shm->ops;
}

static struct small_account *box_of(const struct account *a)
{
	return (struct small_account *)object_words(a->object, a->slot);
}

static void note_store(uint64_t *v, uint64_t value)
{
	FAULT_AROUND(*v = value);
}

/* --- what clients see --- */

static void bell(struct account *a)
{
	struct small_account *box = box_of(a);

	word_store(&box->bell, LOCK_LOAD(&box->bell) + 1);
	futex_wake_class(lock_futex(&box->bell), INT_MAX, LOCK_CLASS_ANY);
}

static void show_answer(struct account *a)
{
	const struct ledger_note *n = account_note(a);
	struct small_account *box = box_of(a);
	uint64_t answer = (n->v[1] & UINT32_MAX) << 32 | n->v[1] >> 32;

	if (LOCK_LOAD(&box->answer) == answer)
		return;
	word_store(&box->value, n->v[2]);
	word_store(&box->answer, answer);
	bell(a);
}

static void show_passed(struct account *a)
{
	uint64_t passed = account_note(a)->v[3] & UINT32_MAX;
	struct small_account *box = box_of(a);

	if (LOCK_LOAD(&box->passed) == passed)
		return;
	word_store(&box->passed, passed);
	bell(a);
}

void small_answer(struct small_client *c, uint32_t number, int error, uint64_t value)
{
	struct ledger_note *n = account_note(&c->a);

	note_store(&n->v[2], value);
	note_store(&n->v[1], (uint64_t)(uint32_t)error << 32 | number);
	show_answer(&c->a);
}

void small_passed(struct small_client *c, uint32_t passed, uint32_t signalled)
{
	note_store(&account_note(&c->a)->v[3], (uint64_t)signalled << 32 | passed);
	show_passed(&c->a);
}

void small_latch(struct small *s, enum latch_state state, uint32_t count, uint32_t birth)
{
	struct small_latch *w = (struct small_latch *)object_words(&s->o, s->o.slot);
	uint64_t was = LOCK_LOAD(&w->state);

	word_store(&w->count, count);
	if ((was & LATCH_STATE) == state && was >> 32 == birth)
		return;
	word_store(&w->state, (uint64_t)birth << 32 | (uint32_t)(((was >> 2) + 1) << 2 | state));
	futex_wake_class(lock_futex(&w->state), INT_MAX, LOCK_CLASS_ANY);
}

static struct small_id *id_of(const struct small *s)
{
	return (struct small_id *)object_words(&s->o, s->o.slot);
}

/* Clients raise the word meanwhile, so it is exchanged; the number that it had stays to be seen. */
uint64_t small_id_word(struct small *s, bool close)
{
	uint64_t *word = &id_of(s)->word, was;

	if (!close)
		return __atomic_load_n(word, __ATOMIC_ACQUIRE);
	FAULT_AROUND(was = __atomic_exchange_n(word, ID_CLOSED, __ATOMIC_ACQ_REL));
	note_store(&object_note(&s->o)->v[0], 0);
	return was;
}

void small_id_open(struct small *s, uint32_t worker, uint64_t ceiling, uint64_t session, uint64_t last)
{
	struct ledger_note *n = object_note(&s->o);

	note_store(&n->v[1], ceiling);
	note_store(&n->v[2], session);
	word_store(&id_of(s)->ceiling_ms, ceiling);
	if (!last)
		return;
	note_store(&n->v[0], worker + 1);
	word_store(&id_of(s)->word, last);
}

/* --- what happens to them --- */

static int make(struct object *o, uint32_t arg)
{
	const struct shm_ops *ops = ops_of(o);

	(void)arg;
	if (!ops->small)
		return -ENOTSUP;
	if (o->kind == KIND_ID)
		word_store(&id_of(small_of(o))->word, ID_CLOSED);
	return ops->small->make(ops->arg, small_of(o));
}

/* Without memory it has no party: its requests wait until it comes again. */
static void joined(struct object *o, struct account *a, bool adopted)
{
	const struct shm_ops *ops = ops_of(o);
	struct ledger_note *n = account_note(a);
	uint64_t id = 0;

	if (!ops->small || (!small_of(o)->thing && ops->small->make(ops->arg, small_of(o)) < 0))
		return;
	ops->small->used(ops->arg, small_of(o));
	if (!n->v[0]) {
		if (files_random(&id, sizeof id) < 0)
			return;
		note_store(&n->v[0], id | 1);
	}
	ops->small->join(ops->arg, small_of(o), client_of(a), adopted);
}

static void ring(struct object *o, struct account *a)
{
	const struct shm_ops *ops = ops_of(o);
	struct small_request rq;
	uint64_t word;

	if (!ops->small || !small_of(o)->thing)
		return;
	if (!a) {
		ops->small->low(ops->arg, small_of(o));
		return;
	}
	word = __atomic_load_n(&box_of(a)->request, __ATOMIC_ACQUIRE);
	rq = (struct small_request){ .number = (uint32_t)(word >> 32), .op = (uint32_t)word, .arg = LOCK_LOAD(&box_of(a)->arg) };
	if (!client_of(a)->party)
		ops->small->join(ops->arg, small_of(o), client_of(a), false);
	if (word && client_of(a)->party)
		ops->small->request(ops->arg, client_of(a), &rq);
}

static void leave(struct object *o, struct account *a, bool died)
{
	const struct shm_ops *ops = ops_of(o);

	if (client_of(a)->party)
		ops->small->leave(ops->arg, client_of(a), died, LOCK_LOAD(&box_of(a)->taken));
	client_of(a)->party = NULL;
}

static void unused(struct object *o)
{
	const struct shm_ops *ops = ops_of(o);

	if (small_of(o)->thing)
		ops->small->unused(ops->arg, small_of(o));
	else
		object_end(o);
}

/* What was told before is told again, and what is asked for is looked for. */
static void adopt(struct object *o)
{
	for (struct account *a = o->accounts; a; a = a->next) {
		show_answer(a);
		show_passed(a);
		ring(o, a);
	}
}

static void done(struct object *o)
{
	const struct shm_ops *ops = ops_of(o);

	if (small_of(o)->thing)
		ops->small->free(ops->arg, small_of(o));
	small_of(o)->thing = NULL;
}

const struct object_kind small_kind = {
	.size = sizeof(struct small), .account_size = sizeof(struct small_client),
	.make = make, .joined = joined, .ring = ring, .leave = leave, .unused = unused, .adopt = adopt, .free = done,
};
