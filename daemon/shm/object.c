/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "object.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "barrier.h"
#include "pool.h"
#include "sem.h"
#include "small.h"
#include "word.h"

#define ACCOUNT_BUCKETS 4096u

const struct object_kind *object_kinds[KINDS] = {
	[KIND_SEM] = &sem_kind,
	[KIND_POOL] = &pool_kind,
	[KIND_BARRIER] = &barrier_kind,
	[KIND_LEAVE] = &barrier_kind,
	[KIND_DOUBLE] = &barrier_kind,
	[KIND_LATCH] = &small_kind,
	[KIND_COND] = &small_kind,
	[KIND_ID] = &small_kind,
};

static const struct object_kind *kind_of(const struct object *o)
{
	return object_kinds[o->kind];
}

struct object *object_at(const struct space *s, uint32_t slot)
{
	return s->things && name_is(s, slot) && kind_is_object(name_kind(s, slot)) ? s->things[slot] : NULL;
}

static struct account **account_bucket(const struct space *s, uint32_t slot, uint32_t client)
{
	return &s->accounts[(slot * UINT32_C(0x9e3779b1) ^ client * UINT32_C(0x85ebca6b)) >> 20 & (ACCOUNT_BUCKETS - 1)];
}

struct account *account_of(const struct space *s, uint32_t slot, uint32_t client)
{
	struct account *a = s->accounts ? *account_bucket(s, slot, client) : NULL;

	while (a && (a->client != client || a->object->slot != slot))
		a = a->hash_next;
	return a;
}

/* Touched as far as there are names only. */
static int things_ready(struct space *s)
{
	if (!s->things)
		s->things = calloc(SEG_SLOTS_MAX, sizeof *s->things);
	if (!s->accounts)
		s->accounts = calloc(ACCOUNT_BUCKETS, sizeof(struct account *));
	return s->things && s->accounts ? 0 : -ENOMEM;
}

static struct object *object_new(struct space *s, uint32_t slot)
{
	enum kind kind = name_kind(s, slot);
	struct object *o = things_ready(s) == 0 ? calloc(1, object_kinds[kind]->size) : NULL;

	if (!o)
		return NULL;
	o->space = s;
	o->slot = slot;
	o->kind = kind;
	o->next = s->objects;
	o->at = &s->objects;
	if (o->next)
		o->next->at = &o->next;
	s->objects = o;
	s->things[slot] = o;
	return o;
}

/* Nobody has an account in it. */
static void object_free(struct object *o)
{
	if (kind_of(o)->free)
		kind_of(o)->free(o);
	o->space->things[o->slot] = NULL;
	*o->at = o->next;
	if (o->next)
		o->next->at = o->at;
	free(o);
}

static struct account *account_new(struct object *o, uint32_t slot, uint32_t client)
{
	struct account *a = calloc(1, kind_of(o)->account_size), **b = account_bucket(o->space, o->slot, client);

	if (!a)
		return NULL;
	a->object = o;
	a->slot = slot;
	a->client = client;
	a->next = o->accounts;
	a->at = &o->accounts;
	if (a->next)
		a->next->at = &a->next;
	o->accounts = a;
	o->n_accounts++;
	a->hash_next = *b;
	*b = a;
	o->space->things[slot] = a;
	return a;
}

static void account_free(struct account *a)
{
	struct object *o = a->object;
	struct account **b = account_bucket(o->space, o->slot, a->client);

	while (*b != a)
		b = &(*b)->hash_next;
	*b = a->hash_next;
	*a->at = a->next;
	if (a->next)
		a->next->at = a->at;
	o->n_accounts--;
	o->space->things[a->slot] = NULL;
	free(a);
}

/* Where it fails there is an object that nobody has an account in: object_unused() follows. */
static int object_make(struct object *o, uint32_t arg)
{
	int r = o->note ? 0 : note_make(o->space, o->slot, 0, &o->note);

	if (r == 0)
		r = kind_of(o)->make(o, arg);
	if (r < 0)
		return r;
	FAULT_AROUND(__atomic_store_n(&object_note(o)->made, 1, __ATOMIC_RELEASE));
	o->made = true;
	return 0;
}

static int object_ready(struct space *s, uint32_t slot, uint32_t arg, struct object **ret)
{
	struct object *o = *ret = object_at(s, slot);

	if (!o)
		o = *ret = object_new(s, slot);
	if (!o)
		return -ENOMEM;
	if (!o->made)
		return object_make(o, arg);
	return kind_of(o)->check ? kind_of(o)->check(o, arg) : 0;
}

int object_open(struct space *s, uint32_t slot, uint32_t client, uint32_t arg, uint32_t *ret_account)
{
	struct account *a = account_of(s, slot, client);
	struct object *o;
	uint32_t at;
	int r = object_ready(s, slot, arg, &o);

	if (r == 0 && a)
		*ret_account = a->slot;
	if (r < 0 || a)
		return r;
	r = note_make(s, slot, client, &at);
	if (r < 0)
		return r;
	a = account_new(o, at, client);
	if (!a) {
		note_drop(s, at);
		return -ENOMEM;
	}
	o->unused = false;
	if (kind_of(o)->joined)
		kind_of(o)->joined(o, a, false);
	*ret_account = at;
	return 0;
}

void object_leave(struct space *s, uint32_t slot, uint32_t client, bool died)
{
	struct object *o = object_at(s, slot);
	struct account *a = account_of(s, slot, client);
	uint32_t at = a ? a->slot : 0;

	if (!o || !a)
		return;
	kind_of(o)->leave(o, a, died);
	account_free(a);
	note_drop(s, at);
}

void object_unused(struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);

	if (!o) {                        /* there was no memory */
		name_take_out(s, slot);
		space_forget(s, slot);
	} else if (!o->made) {
		object_end(o);
	} else if (!o->unused) {
		o->unused = true;
		kind_of(o)->unused(o);
	} else if (s->broken && kind_of(o)->broken) {
		kind_of(o)->broken(o);
	}
}

void object_end(struct object *o)
{
	struct space *s = o->space;
	uint32_t slot = o->slot, note = o->note;

	assert(!name_at(s, slot)->opens);
	while (o->accounts) {            /* in a broken space: their clients are still to close */
		uint32_t at = o->accounts->slot;

		account_free(o->accounts);
		note_drop(s, at);
	}
	object_free(o);
	if (note)
		note_drop(s, note);
	name_take_out(s, slot);
	space_forget(s, slot);
}

void object_lapse(struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);

	if (o && o->made && kind_of(o)->lapse)
		kind_of(o)->lapse(o);
}

void object_adopt(struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, slot);

	if (o && o->made && kind_of(o)->adopt)
		kind_of(o)->adopt(o);
	if (!name_at(s, slot)->opens)    /* its last client has left while no daemon was there, or just now */
		object_unused(s, slot);
}

bool object_is(const struct space *s, uint32_t slot)
{
	return s->things && table_in_use(&s->names, slot) && s->things[slot];
}

void object_ring(struct space *s, uint32_t slot)
{
	struct account *a = note_is(s, slot) ? s->things[slot] : NULL;
	struct object *o = a ? a->object : s->things[slot];

	if (o->made)
		kind_of(o)->ring(o, a);
}

void object_end_note(struct space *s, uint32_t slot)
{
	if (!object_is(s, slot) && !object_at(s, note_at(s, slot)->parent))
		note_drop(s, slot);
}

/* --- after a restart --- */

static int adopt_object(struct space *s, uint32_t slot)
{
	if (!object_kinds[name_kind(s, slot)])
		return 0;
	return object_new(s, slot) ? 0 : -ENOMEM;
}

/* Nothing has it open that the ledger knows: its maker died in the midst. */
static bool note_is_astray(const struct space *s, uint32_t slot)
{
	const struct ledger_note *n = note_at(s, slot);
	const struct object *o = object_at(s, n->parent);

	if (!o)
		return true;
	if (!n->client)
		return o->note;          /* a second one */
	return account_of(s, n->parent, n->client) ||
	       !ledger_open_find(&s->shm->ledger, n->client, (uint16_t)s->id, n->parent);
}

static int adopt_note(struct space *s, uint32_t slot)
{
	const struct ledger_note *n = note_at(s, slot);
	struct object *o = object_at(s, n->parent);
	struct account *a;

	if (n->client && n->made)
		return 0;
	if (note_is_astray(s, slot)) {
		note_drop(s, slot);
		return 0;
	}
	if (!n->client) {
		o->note = slot;
		o->made = n->made;
		return 0;
	}
	a = account_new(o, slot, n->client);
	return a ? 0 : -ENOMEM;
}

static void adopt_further(struct space *s, uint32_t slot)
{
	struct object *o = object_at(s, note_at(s, slot)->parent);

	if (note_at(s, slot)->client && note_at(s, slot)->made && !(o && kind_of(o)->further && kind_of(o)->further(o, slot)))
		note_drop(s, slot);
}

/* Nobody was told of one that is not made: who wanted it asks again. */
static int adopt_whole(struct object *o)
{
	if (!o->made)
		return 0;
	for (struct account *a = o->accounts; a; a = a->next)
		if (kind_of(o)->joined)
			kind_of(o)->joined(o, a, true);
	return kind_of(o)->recall ? kind_of(o)->recall(o) : 0;
}

int objects_adopt(struct space *s)
{
	uint32_t i, next;
	int r = 0;

	for (i = 0; r == 0 && (next = table_next(&s->names, i)); i = next)
		if (name_is(s, next) && kind_is_object(name_kind(s, next)))
			r = adopt_object(s, next);
	for (i = 0; r == 0 && (next = table_next(&s->names, i)); i = next)
		if (note_is(s, next))
			r = adopt_note(s, next);
	for (i = 0; r == 0 && (next = table_next(&s->names, i)); i = next)
		if (note_is(s, next))
			adopt_further(s, next);
	for (i = 0; r == 0 && (next = table_next(&s->names, i)); i = next)
		if (object_at(s, next))
			r = adopt_whole(object_at(s, next));
	return r;
}

void objects_free(struct space *s)
{
	for (struct object *o; (o = s->objects);) {
		while (o->accounts)
			account_free(o->accounts);
		object_free(o);
	}
	free(s->things);
	free(s->accounts);
	s->things = NULL;
	s->accounts = NULL;
}
