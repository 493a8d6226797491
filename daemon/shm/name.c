/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names in a space, their slots and leases. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "object.h"
#include "sight.h"
#include "word.h"

#define COUNT_END (UINT64_C(1) << LOCK_COUNT_BITS)

struct name_text name_text(const struct space *s, uint32_t slot)
{
	const struct ledger_name *n = name_at(s, slot);
	uint32_t len = n->used & ((1u << LEDGER_KIND_SHIFT) - 1);

	if (n->text_long && table_in_use(&s->longs, n->text_long))
		return (struct name_text){ ((struct ledger_long *)table_at(&s->longs, n->text_long))->text, len };
	return (struct name_text){ n->text, len <= LEDGER_NAME_SHORT ? len : 0 };
}

uint16_t name_key(const char *space, enum kind kind, const char *text, size_t len, char ret[NAME_KEY_MAX])
{
	size_t n = strlen(space);

	memcpy(ret, space, n);
	ret[n] = kind_mark(kind);
	memcpy(ret + n + 1, text, len);
	return (uint16_t)(n + 1 + len);
}

/* FNV-1a from a secret start, and mixed at each byte, which hash.h's is not: a client that picks names cannot aim at one chain. */
static uint32_t name_hash(const struct space *s, enum kind kind, const char *text, size_t len)
{
	uint64_t h = s->seed ^ UINT64_C(0xcbf29ce484222325) ^ kind;

	for (size_t i = 0; i < len; i++) {
		h = (h ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
		h ^= h >> 32;
	}
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(h >> 40) & (s->n_buckets - 1);
}

static void name_chain(struct space *s, uint32_t slot)
{
	struct name_text t = name_text(s, slot);
	uint32_t *b = &s->buckets[name_hash(s, name_kind(s, slot), t.p, t.n)];

	name_at(s, slot)->hash_next = *b;
	*b = slot;
}

static void name_unchain(struct space *s, uint32_t slot)
{
	struct name_text t = name_text(s, slot);
	uint32_t *at = &s->buckets[name_hash(s, name_kind(s, slot), t.p, t.n)];

	while (*at && *at != slot)
		at = &name_at(s, *at)->hash_next;
	if (*at)
		*at = name_at(s, slot)->hash_next;
}

/* About one name per bucket. Where memory is short the chains grow longer, and that is all. */
static void name_rehash(struct space *s, uint32_t n)
{
	uint32_t *fresh = calloc(n, sizeof *fresh);

	if (!fresh)
		return;
	free(s->buckets);
	s->buckets = fresh;
	s->n_buckets = n;
	for (uint32_t i = 0; (i = table_next(&s->names, i));)
		if (name_is(s, i) && name_at(s, i)->state != NAME_RELEASING)
			name_chain(s, i);
}

void name_index(struct space *s)
{
	uint32_t n = 64;

	for (uint32_t i = 0; (i = table_next(&s->names, i));) {
		struct ledger_name *name = name_at(s, i);

		if (note_is(s, i))
			continue;
		name->opens = 0;
		name->revoked = name->keeps = name->fresh = 0;
		name->ref = UINT32_MAX;
		name->state = name->count ? NAME_LEASED : NAME_IDLE;
	}
	while (n < s->names.n)
		n *= 2;
	name_rehash(s, n);
}

int name_texts_sweep(struct space *s)
{
	uint64_t *used = calloc(SEG_SLOTS_MAX / 64, sizeof *used);
	uint32_t text;

	if (!used)
		return -ENOMEM;
	for (uint32_t i = 0; (i = table_next(&s->names, i));) {
		text = note_is(s, i) ? 0 : name_at(s, i)->text_long;
		if (text < SEG_SLOTS_MAX)
			used[text / 64] |= UINT64_C(1) << (text % 64);
	}
	for (uint32_t i = 0, next; (next = table_next(&s->longs, i)); i = next)
		if (!(used[next / 64] >> (next % 64) & 1))
			table_drop(&s->longs, next);
	free(used);
	return 0;
}

static void name_resize(struct space *s)
{
	if (s->names.n > s->n_buckets)
		name_rehash(s, s->n_buckets * 2);
	else if (s->n_buckets > 64 && s->names.n < s->n_buckets / 8)
		name_rehash(s, s->n_buckets / 2);
}

uint32_t name_find(const struct space *s, enum kind kind, const char *text, size_t len)
{
	if (!s->buckets)
		return 0;
	for (uint32_t i = s->buckets[name_hash(s, kind, text, len)]; i; i = name_at(s, i)->hash_next) {
		struct name_text t = name_text(s, i);

		if (t.n == len && name_kind(s, i) == kind && !memcmp(t.p, text, len))
			return i;
	}
	return 0;
}

/* The memory of a slot and of its bits, before anybody hears of it. */
static int name_memory(struct space *s, uint32_t slot)
{
	off_t chunk = (off_t)(SEG_SLOT_OFF + (uint64_t)(slot / SEG_CHUNK_SLOTS) * SEG_CHUNK_SLOTS * sizeof(struct seg_slot));
	int r;

	if (s->names.chunk_n[slot / s->names.chunk] > 1)
		return 0;
	r = files_room(s->fd, chunk, SEG_CHUNK_SLOTS * sizeof(struct seg_slot));
	for (int which = 0; which < SEG_BITS && r == 0; which++) {
		off_t word = (off_t)((char *)&seg_level1(s->base, which)[slot / 64] - (char *)s->base);

		r = files_room(s->fd, word & ~(off_t)4095, 4096);
	}
	return r;
}

static void name_memory_back(struct space *s, uint32_t slot)
{
	uint32_t chunk = slot / SEG_CHUNK_SLOTS;

	if (chunk > 0 && s->fd >= 0 && s->names.chunk_n[slot / s->names.chunk] == 0)
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(SEG_SLOT_OFF + (uint64_t)chunk * SEG_CHUNK_SLOTS * sizeof(struct seg_slot)),
			  SEG_CHUNK_SLOTS * sizeof(struct seg_slot));
}

static int name_write(struct space *s, uint32_t slot, const char *text, size_t len)
{
	struct ledger_name *n = name_at(s, slot);
	uint32_t i;
	int r;

	if (len <= LEDGER_NAME_SHORT) {
		memcpy(n->text, text, len);
		return 0;
	}
	r = table_take(&s->longs, &i);
	if (r < 0)
		return r;
	memcpy(((struct ledger_long *)table_at(&s->longs, i))->text, text, len);
	table_commit(&s->longs, i, 1);
	n->text_long = i;
	return 0;
}

/* Was it leased in the space that this one replaces? When that has been wound up it is marked here anyway. */
static bool name_died_before(const struct space *s, enum kind kind, const char *text, size_t len)
{
	uint32_t slot = s->before && !kind_is_object(kind) ? name_find(s->before, kind, text, len) : 0;

	return slot && name_at(s->before, slot)->count;
}

static void slot_clean(struct space *s, uint32_t slot, uint64_t word)
{
	struct seg_slot *g = seg_slot(s->base, slot);

	word_store(&g->word, word);
	seg_watched_set(s->base, slot, false);
	for (int which = 0; which < SEG_BITS; which++)
		seg_bit_clear(s->base, which, slot);
}

int name_make(struct space *s, enum kind kind, const char *text, size_t len, uint32_t *ret_slot)
{
	uint32_t slot;
	int r;

	name_resize(s);
	if (!s->buckets)
		return -ENOMEM;
	r = table_take(&s->names, &slot);
	if (r < 0)
		return r;
	r = name_memory(s, slot);
	if (r == 0)
		r = name_write(s, slot, text, len);
	if (r < 0) {
		table_drop(&s->names, slot);
		name_memory_back(s, slot);
		return r;
	}
	name_at(s, slot)->ref = UINT32_MAX;
	/* Closed, whatever somebody scribbled there. */
	slot_clean(s, slot, name_died_before(s, kind, text, len) ? LOCK_D : 0);
	readers_renew(s, slot);
	__atomic_store_n(&seg_slot(s->base, slot)->wants, 0, __ATOMIC_RELAXED);
	table_commit(&s->names, slot, (uint32_t)len | (uint32_t)kind << LEDGER_KIND_SHIFT);
	name_chain(s, slot);
	*ret_slot = slot;
	return 0;
}

static void slot_zero(struct space *s, uint32_t slot)
{
	uint64_t *w = (uint64_t *)seg_slot(s->base, slot);

	for (unsigned i = 0; i < sizeof(struct seg_slot) / sizeof *w; i++)
		word_store(&w[i], 0);
}

int note_make(struct space *s, uint32_t parent, uint32_t client, uint32_t *ret_slot)
{
	uint32_t slot;
	int r = table_take(&s->names, &slot);

	if (r < 0)
		return r;
	r = name_memory(s, slot);
	if (r < 0) {
		table_drop(&s->names, slot);
		name_memory_back(s, slot);
		return r;
	}
	slot_zero(s, slot);
	slot_clean(s, slot, 0);
	note_at(s, slot)->parent = parent;
	note_at(s, slot)->client = client;
	table_commit(&s->names, slot, 1 | LEDGER_NOTE << LEDGER_KIND_SHIFT);
	*ret_slot = slot;
	return 0;
}

void note_drop(struct space *s, uint32_t slot)
{
	if (!s->broken)
		slot_clean(s, slot, 0);
	table_drop(&s->names, slot);
	name_memory_back(s, slot);
	name_resize(s);
	if (s->broken && !s->names.n)
		chores_wake(s->shm);
}

void name_take_out(struct space *s, uint32_t slot)
{
	name_unchain(s, slot);
	name_at(s, slot)->state = NAME_RELEASING;
	name_at(s, slot)->revoked = 0;
}

/*
 * Closes the word for good; whoever is in it now has been closed or is gone. A client that takes
 * it again and again loses after some tries.
 */
static uint64_t name_shut(struct space *s, uint32_t slot)
{
	uint64_t *word = &seg_slot(s->base, slot)->word, was;

	for (int tries = 0; tries < 100; tries++) {
		FAULT_AROUND(__atomic_fetch_and(word, ~LOCK_R, __ATOMIC_SEQ_CST));
		if (lock_close(word, 0, &was))
			return was;
		lock_died(word, (uint32_t)(LOCK_LOAD(word) & LOCK_OWNER));
	}
	word_store(word, 0);
	return 0;
}

/*
 * The last owner died, and the next robust taker is to be told, also where nobody has the name open until he comes: so
 * it stays. In a space with very many names the mark is given up rather than the room. Among others it goes back with the lease, and the
 * master keeps it: after a fail-over it comes with each first grant, and a node would keep a lease of each name that is used once.
 */
static bool name_is_unmended(const struct space *s, uint32_t slot)
{
	return !s->shm->config.many && s->names.n <= DIED_MAX && name_kind(s, slot) == KIND_LOCK && LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_D;
}

void name_opened(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	if (n->opens++ > 0)
		return;
	s->n_open++;
	if (n->state == NAME_IDLE && !kind_is_object(name_kind(s, slot)))
		n->delay = n->raised = 0;
}

/* Whose name the core observes (elections), hears of that first: afterwards all is as with any other name. */
static void name_let_go(struct space *s, uint32_t slot, uint64_t used, bool died)
{
	struct ledger_name *n = name_at(s, slot);
	bool leased = n->state == NAME_LEASED, claims = name_claims(n), idle = n->state == NAME_IDLE, watched;

	if (leased || claims || idle)
		name_take_out(s, slot);
	watched = elect_close(s, slot);
	if (leased || claims)
		s->shm->ops.unused(s->shm->ops.arg, s, slot, used, leased && died);
	else if (idle && !watched)
		space_forget(s, slot);
}

void name_closed(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	uint64_t was;

	assert(n->opens > 0);
	if (--n->opens > 0)
		return;
	s->n_open--;
	if (kind_is_object(name_kind(s, slot))) {
		object_unused(s, slot);
		return;
	}
	if (name_is_unmended(s, slot)) {
		value_rest(s, slot);
		return;
	}
	was = name_shut(s, slot);
	name_let_go(s, slot, n->state == NAME_LEASED ? n->shared ? n->count : lock_range_used(was, n->count) : 0, was & LOCK_D);
	/* NAME_RETURNED, and one that asks for more tokens: the answer comes, finds nobody, and the lease is given back then. */
}

/* A reply that is in use elsewhere is none that is worth a wait: whoever has to wait for others asks for himself. */
bool name_soon(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	if (n->state == NAME_IDLE)
		s->shm->ops.try(s->shm->ops.arg, s, slot);
	return name_is(s, slot) && n->state == NAME_TRIED;
}

void name_unclaim(struct space *s, uint32_t slot)
{
	if (!name_claims(name_at(s, slot)))
		return;
	name_at(s, slot)->state = NAME_RETURNED;
	s->shm->ops.unused(s->shm->ops.arg, s, slot, 0, false);
}

void name_abandoned(struct space *s, uint32_t slot)
{
	if (name_at(s, slot)->opens || (!s->broken && name_is_unmended(s, slot)))
		return;
	name_take_out(s, slot);
	space_forget(s, slot);
}

void name_end(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	n->opens = 0;
	if (kind_is_object(name_kind(s, slot))) {
		object_unused(s, slot);
		return;
	}
	/* Whoever held it then never released it. A claim would be in the way of the name's next one, in the space that comes after. */
	if (n->state == NAME_LEASED || n->state == NAME_IDLE || name_claims(n))
		name_let_go(s, slot, n->count, true);
	else
		elect_close(s, slot);
}

uint64_t name_token(const struct space *s, uint32_t slot)
{
	const struct ledger_name *n = name_at(s, slot);
	uint64_t used;

	if (!n->count)
		return 0;
	if (n->shared)
		return n->first + n->count - 1;
	used = lock_range_used(LOCK_LOAD(&seg_slot(s->base, slot)->word), n->count);
	return used ? n->first + used - 1 : 0;
}

/*
 * A share that becomes more may be read all the while, so what a successor may find in the midst is less of it, and never
 * nothing; and so it is when all becomes a share.
 */
static void ledger_range(struct ledger_name *n, uint64_t first, uint64_t count, uint64_t number, bool shared)
{
	bool goes_on = n->count && (n->shared || shared);

	if (shared)
		n->shared = 1;
	word_store(&n->count, goes_on ? 1 : 0);
	word_store(&n->first, first);
	word_store(&n->number, number);
	word_store(&n->count, count);
	n->shared = shared;
}

/* Once the ledger has it, only the word knows that a former holder died: the word first. */
void space_ledger_grant(struct space *s, uint32_t slot, const struct name_grant *g)
{
	struct ledger_name *n = name_at(s, slot);

	if (g->lost && !s->broken)
		FAULT_AROUND(__atomic_fetch_or(&seg_slot(s->base, slot)->word, LOCK_D, __ATOMIC_RELEASE));
	if (!n->count && name_kind(s, slot) == KIND_LOCK)
		value_granted(s, slot, &g->value, g->first);
	ledger_range(n, g->first, g->count, g->number, g->shared);
}

/* All readers have the last token of the range. */
void name_reopen(struct space *s, uint32_t slot)
{
	const struct ledger_name *n = name_at(s, slot);
	struct seg_slot *g = seg_slot(s->base, slot);

	readers_granted(s, slot);
	word_store(&g->bias, n->first + n->count - 2);
	for (int tries = 0; tries < 100 && !lock_share(&g->word); tries++)
		name_shut(s, slot);
}

void space_lowered(struct space *s, uint32_t slot, uint64_t first, uint64_t count)
{
	struct ledger_name *n = name_at(s, slot);

	ledger_range(n, first, count, n->number, true);
	n->state = NAME_LEASED;
	n->revoked = n->keeps = n->fresh = 0;
	if (!s->broken)
		name_reopen(s, slot);
	if (n->raised)
		space_revoke_now(s, slot);
}

/* Granted with a shorter delay than is asked for by now: it goes back before it is used, but for what is read. */
static void name_give_again(struct space *s, uint32_t slot, bool lost)
{
	if (lock_is_share(LOCK_LOAD(&seg_slot(s->base, slot)->word)))
		s->shm->ops.lowered(s->shm->ops.arg, s, slot, 1, lost);
	else
		yield_back(s, slot);
	conn_kept(s->shm, s, slot);
}

void space_granted(struct space *s, uint32_t slot, bool lost)
{
	struct ledger_name *n = name_at(s, slot);
	struct seg_slot *g = seg_slot(s->base, slot);
	uint64_t tokens = n->room && n->count > n->room ? n->room : n->count;

	n->state = NAME_LEASED;
	n->revoked = 0;
	if (lost)
		FAULT_AROUND(__atomic_fetch_or(&g->word, LOCK_D, __ATOMIC_RELEASE));
	if (!n->opens && !name_is_unmended(s, slot)) {
		name_take_out(s, slot);
		s->shm->ops.unused(s->shm->ops.arg, s, slot, 0, lost);
		return;
	}
	/* A client may have scribbled the word open meanwhile; the range is given to a closed one. */
	if (LOCK_LOAD(&g->word) & (LOCK_OWNER | LOCK_L))
		name_shut(s, slot);
	readers_want_over(s, slot);      /* served, or said again by who sleeps on */
	if (n->raised) {
		name_give_again(s, slot, lost);
		return;
	}
	n->fresh = n->shared && name_awaited(s, slot);
	if (n->shared) {
		name_reopen(s, slot);
		shm_tell(s->shm, "grant", s, slot, 0, n->first, NULL);
		conn_kept(s->shm, s, slot);
		return;
	}
	readers_granted(s, slot);
	word_store(&g->bias, n->first - 1 - (COUNT_END - n->count));
	/* The last ones of the range, where it may not have all: their counts are those of a whole one. */
	for (int tries = 0; tries < 100 && !lock_grant(&g->word, tokens); tries++)
		name_shut(s, slot);
	sight_soon(s, slot);
	shm_tell(s->shm, "grant", s, slot, 0, n->first, NULL);
	conn_kept(s->shm, s, slot);
}

void space_refused(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	n->state = n->count ? NAME_LEASED : NAME_IDLE;
	if (name_is_lock(s, slot) && !s->broken)
		readers_want_again(s, slot, WANTS & ~WANTS_UPGRADE);     /* that is over now */
	conn_kept(s->shm, s, slot);
	if (n->count && n->shared && !s->broken)
		upgrade_over(s, slot, (uint32_t)(READ_LOAD(&seg_slot(s->base, slot)->gate) & GATE_UPGRADER));
	if (n->opens || name_is_unmended(s, slot))
		return;
	name_take_out(s, slot);
	if (n->count)
		s->shm->ops.unused(s->shm->ops.arg, s, slot, n->count, LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_D);
	else
		space_forget(s, slot);
}

void space_ledger_release(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	if (name_kind(s, slot) == KIND_ELECT)
		elect_given(s, slot);
	word_store(&n->count, 0);
	n->shared = n->raised = 0;
	/* That the last holder died went with it. While the ledger has the lease, it might have to go again. */
	if (n->state == NAME_RETURNED && !s->broken)
		FAULT_AROUND(__atomic_fetch_and(&seg_slot(s->base, slot)->word, ~LOCK_D, __ATOMIC_RELAXED));
	if (n->state == NAME_RETURNED && n->revoked) {
		n->state = NAME_ASKED;
		n->revoked = 0;
	}
	shm_tell(s->shm, "release", s, slot, 0, 0, NULL);
}

/* What they say themselves. Their areas are looked through only where somebody has ever said anything of that sort. */
unsigned name_priority_of(const struct space *s, uint32_t slot, uint32_t client)
{
	const struct seg_cell *cells = seg_cells(s->base, client);
	unsigned most = 0;

	if (s->broken || !__atomic_load_n(&seg_slot(s->base, slot)->ranked, __ATOMIC_ACQUIRE))
		return 0;
	for (unsigned k = 0; k < SEG_CELLS; k++) {
		unsigned p = (unsigned)(__atomic_load_n(&cells[k].since_ns, __ATOMIC_RELAXED) >> SEG_SINCE_BITS);

		if (p > most && __atomic_load_n(&cells[k].slot_plus_one, __ATOMIC_ACQUIRE) == slot + 1)
			most = p;
	}
	return most;
}

unsigned name_priority(const struct space *s, uint32_t slot)
{
	const struct shm *shm = s->shm;
	unsigned most = 0;

	if (s->broken || !__atomic_load_n(&seg_slot(s->base, slot)->ranked, __ATOMIC_ACQUIRE))
		return 0;
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));) {
		const struct client *c = shm->clients[i];

		for (uint16_t k = 0; c && k < c->n_spaces; k++)
			if (c->spaces[k] == s->id) {
				unsigned p = name_priority_of(s, slot, i);

				most = p > most ? p : most;
			}
	}
	return most;
}

/*
 * W alone may be left over from one who waits no more: asked again for nobody, the lease would come and go for
 * nothing. One who sets W after this look rings himself.
 */
bool name_awaited(const struct space *s, uint32_t slot)
{
	uint64_t *word = &seg_slot(s->base, slot)->word, w = LOCK_LOAD(word);

	return (w & LOCK_W) && futex_sleepers(lock_futex(word), (uint32_t)w) != 0;
}

/* Whoever came meanwhile has it asked for again. false: nobody has it open any more. */
static bool name_forget_returned(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);

	bool asked = n->revoked;

	n->state = NAME_IDLE;
	n->revoked = 0;
	if (!n->opens && (s->broken || !name_is_unmended(s, slot))) {
		name_take_out(s, slot);
		return false;
	}
	if (!s->broken && (asked || name_awaited(s, slot)))
		s->shm->ops.want(s->shm->ops.arg, s, slot);
	return true;
}

void space_forget(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	struct seg_slot *g = s->broken ? NULL : seg_slot(s->base, slot);
	uint32_t text = n->text_long;

	if (n->state == NAME_RETURNED && name_forget_returned(s, slot))
		return;
	assert(n->state == NAME_RELEASING);
	if (!s->broken) {
		slot_clean(s, slot, 0);
		word_store(&g->bias, 0);
		value_page_drop(s, slot);
		n->lost = 0;
	}
	table_drop(&s->names, slot);
	if (text && table_in_use(&s->longs, text))
		table_drop(&s->longs, text);
	name_memory_back(s, slot);
	name_resize(s);
	if (s->broken && !s->names.n)
		chores_wake(s->shm);
}
