/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sight.h"

#include <stdlib.h>

#include "../hash.h"
#include "sem.h"
#include "sigbus.h"
#include "word.h"

#define SIGHTS   16384u                  /* a power of two */
#define SOON     (100 * NSEC_PER_MSEC)

/* --- the table: one place for each key, where the newest stays --- */

struct sight {
	uint64_t key, what;              /* what 0: nothing, at `seen` */
	nsec_t before, from, seen;
};

struct sight_table {
	struct sight v[SIGHTS];
};

struct sight_table *sight_table_new(void)
{
	return calloc(1, sizeof(struct sight_table));
}

void sight_table_free(struct sight_table *t)
{
	free(t);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);

	return h ^ h >> 32;
}

static struct sight *place_of(struct sight_table *t, uint64_t key)
{
	return &t->v[mix(key, 1) & (SIGHTS - 1)];
}

static nsec_t later(nsec_t a, nsec_t b)
{
	return a > b ? a : b;
}

void sight_note(struct sight_table *t, uint64_t key, uint64_t what, struct sight_span then, nsec_t now)
{
	struct sight *e = t ? place_of(t, key) : NULL;
	nsec_t from = then.from ? then.from : now;

	if (!e)
		return;
	if (e->key != key)
		*e = (struct sight){ .key = key, .what = what, .before = then.before, .from = from };
	else if (e->what != what)
		*e = (struct sight){ .key = key, .what = what, .before = later(e->seen, then.before), .from = from };
	else
		e->before = later(e->before, then.before);
	e->seen = now;
}

void sight_note_none(struct sight_table *t, uint64_t key, nsec_t now)
{
	struct sight *e = t ? place_of(t, key) : NULL;

	if (!e || e->key != key)
		return;
	e->what = 0;
	e->seen = now;
}

struct sight_span sight_of(const struct sight_table *t, uint64_t key, uint64_t what)
{
	const struct sight *e = t ? place_of((struct sight_table *)t, key) : NULL;

	return e && e->key == key && e->what == what ? (struct sight_span){ e->before, e->from } : (struct sight_span){ 0 };
}

/* --- names --- */

static uint64_t key_of(const struct space *s, uint32_t slot, uint32_t client)
{
	return (uint64_t)s->id << 48 | (uint64_t)client << 32 | slot;
}

/* Slots are given to other names, whose tokens may be the same. Never 0. */
static uint64_t hold_of(const struct space *s, uint32_t slot, uint64_t token)
{
	struct name_text t = name_text(s, slot);
	uint64_t h = mix(fnv1a(mix(s->generation, slot_kind(s, slot)), t.p, t.n), token);

	return h ? h : 1;
}

static uint64_t word_of(const struct space *s, uint32_t slot)
{
	return LOCK_LOAD(&seg_slot(s->base, slot)->word);
}

/* 0: nobody has it alone. */
static uint64_t lock_hold(const struct space *s, uint32_t slot)
{
	return word_of(s, slot) & LOCK_EXCLUSIVE ? hold_of(s, slot, name_token(s, slot)) : 0;
}

static void look(struct space *s, uint32_t slot, struct sight_span then)
{
	struct shm *shm = s->shm;
	uint64_t hold = lock_hold(s, slot), key = key_of(s, slot, 0);

	if (hold)
		sight_note(shm->sights.table, key, hold, then, loop_now(shm->loop));
	else
		sight_note_none(shm->sights.table, key, loop_now(shm->loop));
}

void sight_lock(struct space *s, uint32_t slot)
{
	if (!s->broken && name_is_lock(s, slot))
		look(s, slot, (struct sight_span){ 0 });
}

/* What was taken last. Of a client whose index another had before, or of an account that is a new one, the first grant is another. */
static struct sight_span permits_hold(struct space *s, uint32_t slot, uint32_t client)
{
	struct account *a = object_at(s, slot) ? account_of(s, slot, client) : NULL;
	uint64_t key = key_of(s, slot, client), taken, what;
	const struct sem_client *c = a ? sem_client_of(a) : NULL;
	nsec_t now = loop_now(s->shm->loop);

	if (!c || !sem_held_by(c))
		return (struct sight_span){ 0 };
	taken = SEM_LOAD(&sem_words(c)->word, __ATOMIC_RELAXED) & SEM_TAKEN;
	what = mix(hold_of(s, slot, taken), ledger_client(&s->shm->ledger, client)->attached_ns ^ c->begun);
	sight_note(s->shm->sights.table, key, what ? what : 1, (struct sight_span){ .before = c->begun }, now);
	return sight_of(s->shm->sights.table, key, what ? what : 1);
}

struct sight_span sight_hold(struct space *s, uint32_t slot, uint32_t client)
{
	if (s->broken || !name_is(s, slot))
		return (struct sight_span){ 0 };
	if (name_kind(s, slot) == KIND_SEM)
		return permits_hold(s, slot, client);
	if (!name_is_lock(s, slot) || (word_of(s, slot) & LOCK_OWNER) != client)
		return (struct sight_span){ 0 };
	sight_lock(s, slot);
	return sight_of(s->shm->sights.table, key_of(s, slot, 0), lock_hold(s, slot));
}

/* --- soon --- */

/* If it is what it was then it was held before; else that began later. */
static void look_again(struct shm *shm, const struct sight_recent *r)
{
	struct space *s = shm->spaces[r->space];

	if (!s || s->broken || !name_is_lock(s, r->slot))
		return;
	if (r->hold && r->hold == lock_hold(s, r->slot))
		look(s, r->slot, (struct sight_span){ .from = r->at });
	else
		look(s, r->slot, (struct sight_span){ .before = r->at });
	if (sigbus_hit(s->base))
		space_break(s, "a client truncated or punched its shared memory");
}

static void look_again_all(void *arg)
{
	struct shm *shm = arg;

	for (unsigned i = 0; i < shm->sights.n_recent; i++)
		look_again(shm, &shm->sights.recent[i]);
	shm->sights.n_recent = 0;
}

void sight_soon(struct space *s, uint32_t slot)
{
	struct sights *g = &s->shm->sights;
	nsec_t now = loop_now(s->shm->loop);

	if (s->broken || !s->shm->running || g->n_recent == SIGHTS_RECENT || !name_is_lock(s, slot))
		return;
	g->recent[g->n_recent++] = (struct sight_recent){ .at = now, .hold = lock_hold(s, slot), .space = s->id, .slot = slot };
	if (!g->timer.queued)
		loop_timer_set(s->shm->loop, &g->timer, now + SOON);
}

void sights_init(struct shm *shm)
{
	shm->sights.table = sight_table_new();
	loop_timer_init(&shm->sights.timer, look_again_all, shm);
}

void sights_done(struct shm *shm)
{
	loop_timer_cancel(shm->loop, &shm->sights.timer);
	sight_table_free(shm->sights.table);
	shm->sights.table = NULL;
}
