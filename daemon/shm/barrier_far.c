/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers whose rounds are completed among nodes: between cells and the core.
 *
 * What must hold:
 *  - one arrival of a cell becomes one party, however often it is looked at: the ledger's record says which arrival it is, and there
 *    is none for a cell that has been told;
 *  - a party is told first, then struck out. If the daemon dies in between, the next finds a cell that says otherwise than the
 *    record, and lets that party go;
 *  - who has entered a double barrier stays a party, with its record, until it is told what became of the round to leave by;
 *  - whoever has told, or taken over, wakes all;
 *  - whoever comes while it is expected does not ring (barrierword.h), so all cells are looked at EXPECT_SPAN after some were told,
 *    and by a daemon that begins.
 *
 * A line's note has the records of its cells in v[1] to v[4], two in each; made anew after a restart.
 */
#include "barrier.h"

#include <errno.h>

#define RETRY_SPAN (100 * NSEC_PER_MSEC)
#define EXPECT_SPAN NSEC_PER_MSEC        /* some wake-ups of all who were told */

static struct shm *shm_of(const struct object *o)
{
	return o->space->shm;
}

static uint32_t party_at(const struct space *s, uint32_t line, unsigned cell)
{
	return (uint32_t)(note_at(s, line)->v[1 + (cell - 1) / 2] >> (cell - 1) % 2 * 32);
}

static void party_set(const struct space *s, uint32_t line, unsigned cell, uint32_t party)
{
	uint64_t *v = &note_at(s, line)->v[1 + (cell - 1) / 2];
	unsigned shift = (cell - 1) % 2 * 32;

	*v = (*v & ~(UINT64_C(0xffffffff) << shift)) | (uint64_t)party << shift;
}

static void say(struct shm *shm, enum shm_barrier what, uint32_t barrier, uint32_t party)
{
	shm->ops.barrier(shm->ops.arg, what, barrier, party);
}

static void expect(struct barrier *b)
{
	struct barrier_at at = barrier_at(&b->o);

	barrier_expect(&at, !b->expects);
	b->expects = true;
}

static void retry_soon(struct shm *shm)
{
	if (!shm->rounds.retry.queued)
		loop_timer_set(shm->loop, &shm->rounds.retry, loop_now(shm->loop) + RETRY_SPAN);
}

void far_tell(void *object)
{
	struct barrier *b = object;
	struct barrier_at at = barrier_at(&b->o);

	if (!b->far) {
		BARRIER_WAKE(at.word);
		return;
	}
	if (b->expects)
		loop_timer_set(shm_of(&b->o)->loop, &b->expected, loop_now(shm_of(&b->o)->loop) + EXPECT_SPAN);
	b->expects = false;
	barrier_told(&at);
}

void far_expected(void *object)
{
	struct barrier *b = object;
	struct barrier_at at = barrier_at(&b->o);

	if (barrier_expect_none(&at))
		for (struct account *a = b->o.accounts; a; a = a->next)
			far_ring(&b->o, a);
}

static void told(struct object *o)
{
	loop_defer_late(shm_of(o)->loop, &barrier_of(o)->tell);
}

/* --- Parties --- */

static void withdraw(struct shm *shm, uint32_t party)
{
	struct ledger_party *p = rounds_party(&shm->rounds, party);

	if (p->out)
		return;
	p->out = 1;
	say(shm, SHM_WITHDRAW, p->barrier, party);
}

/* Whoever waited for it is gone. */
static void orphan(struct shm *shm, uint32_t party)
{
	FAULT_AROUND(rounds_party(&shm->rounds, party)->space = 0);
	withdraw(shm, party);
}

static void arrive(struct object *o, uint32_t line, unsigned cell, uint64_t c)
{
	struct ledger_party p = { .barrier = barrier_of(o)->far, .space = o->space->id, .line = line, .cell = (uint16_t)cell,
				  .yes = !(c & BARRIER_CELL_NO), .arrival = barrier_cell_round(c) };
	uint32_t party;

	if (party_take(shm_of(o), &p, &party) < 0) {
		barrier_tell(object_words(o, line) + cell, p.arrival, BARRIER_AGAIN, false);     /* there is no room */
		told(o);
		return;
	}
	party_set(o->space, line, cell, party);
	say(shm_of(o), SHM_ARRIVE, p.barrier, party);
}

static void depart(struct shm *shm, uint32_t party)
{
	struct ledger_party *p = rounds_party(&shm->rounds, party);

	if (p->done)
		return;
	p->done = 1;
	say(shm, SHM_DEPART, p->barrier, party);
}

static void party_look(struct shm *shm, uint32_t party, uint64_t c)
{
	if (!barrier_cell_waits(c, rounds_party(&shm->rounds, party)->arrival) || (c & BARRIER_CELL_OUT))
		withdraw(shm, party);
	else if (barrier_cell_state(c) == BARRIER_LEAVING)
		depart(shm, party);
}

static void cell_look(struct object *o, uint32_t line, unsigned cell)
{
	uint64_t *at = object_words(o, line) + cell, c = BARRIER_LOAD(at);
	uint32_t party = party_at(o->space, line, cell);

	if (party) {
		party_look(shm_of(o), party, c);
		return;
	}
	if (barrier_cell_waits(c, barrier_cell_round(c)) && barrier_cell_state(c) >= BARRIER_INSIDE) {
		barrier_tell(at, barrier_cell_round(c), BARRIER_STALE, false);   /* nothing is known of it */
		told(o);
		return;
	}
	/* A daemon before took note of it, and died before it wrote that down: so nobody else has heard of it. */
	if (barrier_cell_state(c) == BARRIER_TAKEN && (c & BARRIER_CELL_OUT)) {
		barrier_tell(at, barrier_cell_round(c), BARRIER_TIMED_OUT, false);
		told(o);
		return;
	}
	if (barrier_cell_state(c) == BARRIER_TAKEN)
		BARRIER_CAS(at, &c, (c & ~BARRIER_CELL_STATE) | BARRIER_COME);
	if (barrier_take(at, &c))
		arrive(o, line, cell, c);
}

/* --- Resets --- */

static void reset_look(struct object *o)
{
	struct tally *t = rounds_tally(shm_of(o), barrier_of(o)->far);
	bool any = false;

	if (t->resets)
		return;
	for (struct account *a = o->accounts; a; a = a->next) {
		struct barrier_account *x = (struct barrier_account *)a;
		uint64_t head = BARRIER_LOAD(object_words(o, a->slot));

		x->asked = barrier_asked(head);
		any |= x->asked != barrier_done(head);
	}
	if (!any)
		return;
	t->resets = true;
	say(shm_of(o), SHM_RESET, barrier_of(o)->far, 0);
}

void barrier_reset_done(struct shm *shm, uint32_t barrier)
{
	struct tally *t = rounds_tally(shm, barrier);
	struct object *o = t->object;

	t->resets = false;
	for (struct account *a = o ? o->accounts : NULL; a; a = a->next) {
		struct barrier_account *x = (struct barrier_account *)a;
		uint64_t *head = object_words(o, a->slot);

		if (x->asked != barrier_done(BARRIER_LOAD(head)))
			barrier_answer(head, x->asked);
	}
	if (o) {
		told(o);
		retry_soon(shm);         /* some may have asked since */
	}
}

/* --- The kind --- */

static int number_find(struct object *o)
{
	struct name_text t = name_text(o->space, o->slot);
	char key[NAME_KEY_MAX];
	uint16_t len = name_key(o->space->name, o->kind, t.p, t.n, key);

	return rounds_find(shm_of(o), key, len, &barrier_of(o)->far);
}

static int number_take(struct object *o)
{
	struct barrier *b = barrier_of(o);
	int r = number_find(o);

	if (r < 0)
		return r;
	rounds_tally(shm_of(o), b->far)->object = o;
	rounds_barrier(&shm_of(o)->rounds, b->far)->parties = b->parties;
	object_note(o)->v[1] = b->far;
	return 0;
}

int far_make(struct object *o)
{
	return number_take(o);
}

static void parties_forget(struct object *o)
{
	for (const struct account *a = o->accounts; a; a = a->next)
		for (uint32_t line = a->slot; line; line = line_next(o, line))
			for (unsigned cell = 1; cell <= BARRIER_CELLS; cell++)
				party_set(o->space, line, cell, 0);
}

int far_recall(struct object *o)
{
	parties_forget(o);
	return number_take(o);
}

void far_ring(struct object *o, struct account *a)
{
	if (!a)
		return;
	lines_grow(o, a);
	for (uint32_t line = a->slot; line; line = line_next(o, line))
		for (unsigned cell = 1; cell <= BARRIER_CELLS; cell++)
			cell_look(o, line, cell);
	reset_look(o);
}

void far_leave(struct object *o, struct account *a)
{
	for (uint32_t line = a->slot; line; line = line_next(o, line))
		for (unsigned cell = 1; cell <= BARRIER_CELLS; cell++) {
			uint32_t party = party_at(o->space, line, cell);

			party_set(o->space, line, cell, 0);
			if (party)
				orphan(shm_of(o), party);
		}
}

void far_unused(struct object *o)
{
	uint32_t number = barrier_of(o)->far;

	for (struct account *a = o->accounts; a; a = a->next)
		far_leave(o, a);
	if (rounds_tally(shm_of(o), number)->object != o)
		return;                  /* the next space has it */
	rounds_tally(shm_of(o), number)->object = NULL;
	say(shm_of(o), SHM_CLOSE, number, 0);
}

/* --- The core's answers --- */

/* Where somebody waits for it. */
static struct object *object_of(const struct shm *shm, const struct ledger_party *p)
{
	struct space *s = p->space ? shm->spaces[p->space] : NULL;

	return s && !s->broken && note_is(s, p->line) ? object_at(s, note_at(s, p->line)->parent) : NULL;
}

/* What it had asked for before counts no more, and the cell may ask for it still. */
void barrier_entered(struct shm *shm, uint32_t party, bool serial)
{
	struct ledger_party *p = rounds_party(&shm->rounds, party);
	struct object *o = object_of(shm, p);

	p->out = p->done = 0;
	if (!o) {
		withdraw(shm, party);
		return;
	}
	barrier_admit(object_words(o, p->line) + p->cell, p->arrival, serial);
	party_look(shm, party, BARRIER_LOAD(object_words(o, p->line) + p->cell));
	told(o);
}

void barrier_verdict(struct shm *shm, uint32_t party, enum barrier_verdict v, bool serial)
{
	struct ledger_party *p = rounds_party(&shm->rounds, party);
	struct object *o = object_of(shm, p);

	if (o) {
		if (v == BARRIER_PASSED || v == BARRIER_VETOED)
			expect(barrier_of(o));
		barrier_tell(object_words(o, p->line) + p->cell, p->arrival, v, serial);
		party_set(o->space, p->line, p->cell, 0);
		told(o);
	}
	FAULT_AROUND(table_drop(&shm->rounds.parties, party));
}

void barrier_closed(struct shm *shm, uint32_t barrier, bool gone)
{
	if (rounds_tally(shm, barrier)->object)
		return;                  /* somebody has opened it again */
	if (gone)
		rounds_drop(shm, barrier);
	else
		retry_soon(shm);
}

/* --- Beginning, and once more --- */

static void link_party(struct shm *shm, uint32_t i)
{
	struct ledger_party *p = rounds_party(&shm->rounds, i);
	struct space *s = p->space < LEDGER_SPACES_MAX ? shm->spaces[p->space] : NULL;
	struct object *o = s && !s->broken && note_is(s, p->line) ? object_at(s, note_at(s, p->line)->parent) : NULL;

	p->out = p->done = 0;
	if (o && object_kinds[o->kind] == &barrier_kind && p->cell - 1u < BARRIER_CELLS && !party_at(s, p->line, p->cell) &&
	    barrier_cell_waits(BARRIER_LOAD(object_words(o, p->line) + p->cell), p->arrival))
		party_set(s, p->line, p->cell, i);
	else
		p->space = 0;
}

void parties_recall(struct shm *shm)
{
	for (uint32_t i = 0, next; (next = table_next(&shm->rounds.parties, i)); i = next)
		link_party(shm, next);
}

static void again(void *arg)
{
	struct shm *shm = arg;
	struct rounds *r = &shm->rounds;

	for (uint32_t i = 0, next; (next = table_next(&r->parties, i)); i = next)
		if (!rounds_party(r, next)->space && rounds_party(r, next)->used)
			withdraw(shm, next);
	for (uint32_t i = 0, next; (next = table_next(&r->barriers, i)); i = next) {
		struct object *o = rounds_tally(shm, next)->object;

		if (!o)
			say(shm, SHM_CLOSE, next, 0);
		for (struct account *a = o ? o->accounts : NULL; a; a = a->next)
			far_ring(o, a);
	}
}

void parties_init(struct shm *shm)
{
	loop_timer_init(&shm->rounds.retry, again, shm);
}

void parties_begin(struct shm *shm)
{
	again(shm);
}

void parties_end(struct shm *shm)
{
	loop_timer_cancel(shm->loop, &shm->rounds.retry);
}
