/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../fault.h"
#include "shm.h"

static const struct table_spec barriers_spec = { sizeof(struct ledger_barrier), ROUNDS_MAX };
static const struct table_spec parties_spec = { sizeof(struct ledger_party), PARTIES_MAX };

/* An earlier daemon's ledger may have none. */
static int open_one(struct shm *shm, struct table *t, const char *name, const struct table_spec *spec, bool fresh)
{
	int r = table_open(t, shm->ledger.dirfd, name, spec, shm->ledger.id.session, fresh);

	if (r == -ENOENT && !fresh)
		r = table_open(t, shm->ledger.dirfd, name, spec, shm->ledger.id.session, true);
	return r;
}

static int tally_room(struct rounds *r, uint32_t index)
{
	uint32_t cap = r->tally_cap ? r->tally_cap : 64;
	struct tally *t;

	while (cap <= index)
		cap *= 2;
	if (cap == r->tally_cap)
		return 0;
	t = realloc(r->tally, cap * sizeof *t);
	if (!t)
		return -ENOMEM;
	memset(t + r->tally_cap, 0, (cap - r->tally_cap) * sizeof *t);
	r->tally = t;
	r->tally_cap = cap;
	return 0;
}

int rounds_open(struct shm *shm, bool fresh)
{
	struct rounds *r = &shm->rounds;
	int e = open_one(shm, &r->barriers, "barriers", &barriers_spec, fresh);

	if (e == 0)
		e = open_one(shm, &r->parties, "parties", &parties_spec, fresh);
	for (uint32_t i = 0; e == 0 && (i = table_next(&r->barriers, i));)
		e = tally_room(r, i);
	return e;
}

void rounds_close(struct shm *shm)
{
	struct rounds *r = &shm->rounds;

	if (r->barriers.base)
		table_close(&r->barriers);
	if (r->parties.base)
		table_close(&r->parties);
	free(r->tally);
	r->tally = NULL;
	r->tally_cap = 0;
}

static uint32_t barrier_find(const struct rounds *r, const char *key, uint32_t len)
{
	for (uint32_t i = 0; (i = table_next(&r->barriers, i));)
		if (rounds_barrier(r, i)->used == len && !memcmp(rounds_barrier(r, i)->key, key, len))
			return i;
	return 0;
}

int rounds_find(struct shm *shm, const char *key, uint32_t len, uint32_t *ret)
{
	struct rounds *r = &shm->rounds;
	uint32_t i = barrier_find(r, key, len);
	int e;

	if (i) {
		*ret = i;
		return tally_room(r, i);
	}
	e = table_take(&r->barriers, &i);
	if (e < 0)
		return e;
	e = tally_room(r, i);
	if (e < 0) {
		table_drop(&r->barriers, i);
		return e;
	}
	memcpy(rounds_barrier(r, i)->key, key, len);
	table_commit(&r->barriers, i, len);
	r->tally[i] = (struct tally){ 0 };
	*ret = i;
	return 0;
}

/* Neither spaces nor names have such characters. */
bool rounds_paired(const struct ledger_barrier *b)
{
	return memchr(b->key, kind_mark(KIND_DOUBLE), b->used);
}

struct tally *rounds_tally(const struct shm *shm, uint32_t barrier)
{
	return &shm->rounds.tally[barrier];
}

void rounds_drop(struct shm *shm, uint32_t barrier)
{
	table_drop(&shm->rounds.barriers, barrier);
}

int party_take(struct shm *shm, const struct ledger_party *p, uint32_t *ret)
{
	int r = table_take(&shm->rounds.parties, ret);

	if (r == 0)
		*rounds_party(&shm->rounds, *ret) = *p;
	return r;
}

bool rounds_is(const struct shm *shm, uint32_t barrier, uint32_t party)
{
	const struct rounds *r = &shm->rounds;

	return table_in_use(&r->barriers, barrier) &&
	       (!party || (table_in_use(&r->parties, party) && rounds_party(r, party)->barrier == barrier));
}

void rounds_arrived(struct shm *shm, uint32_t party, uint64_t order)
{
	rounds_party(&shm->rounds, party)->order = order;
	table_commit(&shm->rounds.parties, party, 1);
}

const struct rounds_state *rounds_state(const struct shm *shm, uint32_t barrier)
{
	const struct ledger_barrier *b = rounds_barrier(&shm->rounds, barrier);

	return b->turn ? &b->state[b->turn & 1] : NULL;
}

void rounds_note(struct shm *shm, uint32_t barrier, const struct rounds_state *state)
{
	struct ledger_barrier *b = rounds_barrier(&shm->rounds, barrier);

	FAULT_AROUND(b->state[(b->turn + 1) & 1] = *state);
	FAULT_AROUND(__atomic_store_n(&b->turn, b->turn + 1, __ATOMIC_RELEASE));
}

struct place {
	uint64_t order;
	uint32_t party;
};

static int place_order(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

int rounds_each_party(struct shm *shm, uint32_t barrier, void (*fn)(void *arg, uint32_t party), void *arg)
{
	const struct rounds *r = &shm->rounds;
	struct place *v = calloc(r->parties.n + 1, sizeof *v);
	uint32_t n = 0;

	if (!v)
		return -ENOMEM;
	for (uint32_t i = 0; (i = table_next(&r->parties, i));)
		if (rounds_party(r, i)->barrier == barrier)
			v[n++] = (struct place){ rounds_party(r, i)->order, i };
	qsort(v, n, sizeof *v, place_order);
	for (uint32_t i = 0; i < n; i++)
		fn(arg, v[i].party);
	free(v);
	return 0;
}
