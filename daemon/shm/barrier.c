/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers, the daemon's part (barrierword.h).
 *
 * Where the node is alone the parties complete their rounds themselves. What is left for the daemon, and must hold:
 *  - a client that dies breaks each round that it had come to and that has not ended;
 *  - whoever sleeps for a round that has ended is woken, also when the one who ended it was stopped or died before it
 *    could: while somebody may sleep the word is looked at every 10 to 50 ms;
 *  - the notes are swept when somebody asks for that: whoever is still in a noted round finds the verdict in its cell, and
 *    then there is room again.
 * All of it can be done again, and a restarted daemon does all of it.
 *
 * The lines of an account are linked in its notes: v[0] is the next one's slot. What heads say is for the client.
 */
#include "barrier.h"

#include <errno.h>

#include "word.h"

#define LOOK_MIN (10 * NSEC_PER_MSEC)
#define LOOK_MAX (50 * NSEC_PER_MSEC)
#define LINES_MAX 512u                   /* of an account: some 3,500 threads */
#define SWEEPS_MAX 8u                    /* after so many somebody scribbles faster than they can be swept */

static struct loop *loop_of(const struct object *o)
{
	return o->space->shm->loop;
}

/* --- Lines --- */

static void lines_drop(struct object *o, const struct account *a)
{
	uint32_t line = line_next(o, a->slot);

	account_note(a)->v[0] = 0;
	while (line) {
		uint32_t next = line_next(o, line);

		note_drop(o->space, line);
		line = next;
	}
}

/* The client learns of it by the head of the line before. */
void line_head(const struct object *o, uint32_t line)
{
	uint64_t *head = object_words(o, line), h = BARRIER_LOAD(head);

	while (!BARRIER_CAS(head, &h, (h & ~(BARRIER_HEAD_NEXT | BARRIER_HEAD_MORE)) | line_next(o, line)))
		;
}

static void line_add(struct object *o, const struct account *a, uint32_t last)
{
	uint32_t slot;

	if (note_make(o->space, o->slot, a->client, &slot) < 0)
		return;                  /* it asks again */
	note_at(o->space, slot)->made = 1;
	FAULT_AROUND(__atomic_store_n(&note_at(o->space, last)->v[0], slot, __ATOMIC_RELEASE));
}

/* After the last line, if that one's threads have asked for it. */
void lines_grow(struct object *o, const struct account *a)
{
	uint32_t line = a->slot;
	unsigned n = 1;

	if (!(BARRIER_LOAD(object_words(o, line)) & (BARRIER_HEAD_MORE | BARRIER_HEAD_NEXT)))
		return;
	for (; line_next(o, line); line = line_next(o, line))
		n++;
	if (n < LINES_MAX && (BARRIER_LOAD(object_words(o, line)) & BARRIER_HEAD_MORE))
		line_add(o, a, line);
	line_head(o, line);
}

static bool further(struct object *o, uint32_t slot)
{
	const struct account *a = account_of(o->space, o->slot, note_at(o->space, slot)->client);

	for (uint32_t line = a ? a->slot : 0; line; line = line_next(o, line))
		if (line == slot)
			return true;
	return false;
}

static void each_cell(struct object *o, const struct account *a, void (*fn)(struct object *o, uint64_t *cell, uint64_t arg),
		      uint64_t arg)
{
	for (uint32_t line = a->slot; line; line = line_next(o, line))
		for (unsigned i = 1; i <= BARRIER_CELLS; i++)
			fn(o, object_words(o, line) + i, arg);
}

/* --- Rounds that are completed here --- */

static void settle(struct object *o, uint64_t *cell, uint64_t note)
{
	(void)o;
	barrier_cell_settle(cell, note);
}

static void sweep(struct object *o)
{
	struct barrier_at at = barrier_at(o);

	for (unsigned i = 0; i < BARRIER_NOTES; i++) {
		uint64_t note = BARRIER_LOAD(&at.notes[i]);

		if (!note)
			continue;
		for (const struct account *a = o->accounts; a; a = a->next)
			each_cell(o, a, settle, note);
		barrier_note_drop(&at.notes[i], note);
	}
}

/* It has come as where there are many nodes; this one was, before it was started again. */
static void send_back(struct object *o, uint64_t *cell, uint64_t unused)
{
	uint64_t c = BARRIER_LOAD(cell);

	(void)unused;
	if (barrier_cell_state(c) != BARRIER_COME)
		return;
	barrier_tell(cell, barrier_cell_round(c), BARRIER_AGAIN, false);
	loop_defer_late(loop_of(o), &barrier_of(o)->tell);
}

static void bury(struct object *o, uint64_t *cell, uint64_t unused)
{
	struct barrier_at at = barrier_at(o);
	uint64_t c = BARRIER_LOAD(cell);
	struct barrier_turn turn = { .round = barrier_cell_round(c) };

	(void)unused;
	if (barrier_cell_state(c) != BARRIER_HERE)
		return;
	for (unsigned i = 0; i < SWEEPS_MAX && barrier_break(&at, &turn) == BARRIER_NO_ROOM; i++)
		sweep(o);
}

uint32_t barrier_here(struct object *o, bool *ret_inside)
{
	uint32_t n = 0, inside = 0;

	*ret_inside = false;
	if (!barrier_of(o)->far)
		return barrier_arrived(BARRIER_LOAD(barrier_at(o).word));
	for (const struct account *a = o->accounts; a; a = a->next)
		for (uint32_t line = a->slot; line; line = line_next(o, line))
			for (unsigned i = 1; i <= BARRIER_CELLS; i++) {
				enum barrier_cell state = barrier_cell_state(BARRIER_LOAD(object_words(o, line) + i));

				n += state == BARRIER_COME || state == BARRIER_TAKEN;
				inside += state == BARRIER_INSIDE || state == BARRIER_LEAVING;
			}
	*ret_inside = inside;
	return inside ? inside : n;
}

/* --- Who sleeps --- */

static void look(void *arg)
{
	struct barrier *b = arg;
	struct barrier_at at = barrier_at(&b->o);
	uint64_t round = barrier_round(BARRIER_LOAD(at.word));

	if (round != b->seen)            /* who has slept since then may have been forgotten, whoever sleeps now */
		BARRIER_WAKE(at.word);
	b->span = round != b->seen ? LOOK_MIN : b->span * 2 < LOOK_MAX ? b->span * 2 : LOOK_MAX;
	b->seen = round;
	if (!barrier_watch(&at)) {
		FAULT_AROUND(seg_watched_set(b->o.space->base, b->o.slot, false));
		if (!barrier_watch(&at)) {
			b->watched = false;
			return;
		}
		FAULT_AROUND(seg_watched_set(b->o.space->base, b->o.slot, true));
	}
	loop_timer_set(loop_of(&b->o), &b->timer, loop_now(loop_of(&b->o)) + b->span);
}

static void watch(struct barrier *b)
{
	struct barrier_at at = barrier_at(&b->o);

	if (b->watched && seg_watched(b->o.space->base, b->o.slot))
		return;
	b->watched = true;
	FAULT_AROUND(seg_watched_set(b->o.space->base, b->o.slot, true));
	b->seen = barrier_round(BARRIER_LOAD(at.word));
	BARRIER_WAKE(at.word);           /* one may sleep for the round before */
	b->span = LOOK_MIN;
	loop_timer_set(loop_of(&b->o), &b->timer, loop_now(loop_of(&b->o)) + b->span);
}

/* --- The kind --- */

static bool is_far(const struct object *o, uint32_t parties)
{
	return o->space->shm->config.many || parties > BARRIER_LOCAL_MAX || o->kind == KIND_DOUBLE;
}

static void begin(struct object *o)
{
	struct barrier *b = barrier_of(o);

	loop_timer_init(&b->timer, look, b);
	loop_timer_init(&b->expected, far_expected, b);
	loop_defer_init(&b->tell, far_tell, b);
}

static int make(struct object *o, uint32_t parties)
{
	struct barrier_at at = barrier_at(o);

	begin(o);
	if (!parties)
		return -EINVAL;
	object_note(o)->v[0] = barrier_of(o)->parties = parties;
	word_store(object_words(o, o->slot) + BARRIER_AT_PARTIES, parties);
	for (unsigned i = 0; i < BARRIER_NOTES; i++)
		word_store(&at.notes[i], 0);
	word_store(at.word, (is_far(o, parties) ? 0 : BARRIER_L) | UINT64_C(1) << BARRIER_ROUND_SHIFT);
	return is_far(o, parties) ? far_make(o) : 0;
}

static int check(struct object *o, uint32_t parties)
{
	return parties == barrier_of(o)->parties ? 0 : -EINVAL;
}

static void leave(struct object *o, struct account *a, bool died)
{
	(void)died;
	if (barrier_of(o)->far)
		far_leave(o, a);
	if (!o->space->broken) {
		each_cell(o, a, bury, 0);
		BARRIER_WAKE(barrier_at(o).word);        /* it may have owed that */
	}
	lines_drop(o, a);
}

static void unused(struct object *o)
{
	if (barrier_of(o)->far)
		far_unused(o);
	for (const struct account *a = o->accounts; a; a = a->next)      /* in a broken space */
		lines_drop(o, a);
	object_end(o);
}

static int recall(struct object *o)
{
	begin(o);
	barrier_of(o)->parties = (uint32_t)object_note(o)->v[0];
	return is_far(o, barrier_of(o)->parties) ? far_recall(o) : 0;
}

/* The round that is forming breaks, and whoever is in an earlier one finds its verdict in its cell. */
static void rounds_leave(struct object *o)
{
	struct barrier_at at = barrier_at(o);
	uint64_t w;

	for (const struct account *a = o->accounts; a; a = a->next)
		each_cell(o, a, bury, 0);
	sweep(o);
	w = BARRIER_LOAD(at.word);
	if (barrier_before(w) != BARRIER_PASSED)
		for (const struct account *a = o->accounts; a; a = a->next)
			each_cell(o, a, settle, barrier_note((barrier_round(w) - 1) & BARRIER_ROUND_MAX, barrier_before(w)));
}

/* Whether this node is one of many may have changed since the daemon before; and clients may have scribbled. */
static void word_mend(struct object *o)
{
	struct barrier_at at = barrier_at(o);
	bool local = !barrier_of(o)->far;

	if (local == !!(BARRIER_LOAD(at.word) & BARRIER_L))
		return;
	if (!local)
		rounds_leave(o);
	else
		barrier_expect_none(&at);
	word_store(at.word, (barrier_next(BARRIER_LOAD(at.word), BARRIER_PASSED) & ~BARRIER_L) | (local ? BARRIER_L : 0));
}

static void ring(struct object *o, struct account *a)
{
	struct barrier_at at = barrier_at(o);

	word_mend(o);
	if (barrier_of(o)->far) {
		far_ring(o, a);
		return;
	}
	if (a) {
		lines_grow(o, a);
		each_cell(o, a, send_back, 0);
	}
	sweep(o);
	if (BARRIER_LOAD(at.word) & BARRIER_W)
		watch(barrier_of(o));
	else
		BARRIER_WAKE(at.word);   /* it may have slept for a round that has ended since */
}

static void adopt(struct object *o)
{
	struct barrier_at at = barrier_at(o);

	for (const struct account *a = o->accounts; a; a = a->next)
		for (uint32_t line = a->slot; line; line = line_next(o, line))
			line_head(o, line);
	word_mend(o);
	if (barrier_of(o)->far)
		barrier_expect_none(&at);
	for (struct account *a = o->accounts; a; a = a->next)
		ring(o, a);
	if (!barrier_of(o)->far) {
		sweep(o);
		barrier_of(o)->watched = false;
		watch(barrier_of(o));
	}
	far_tell(o);
}

/* It may not have been made. */
static void end(struct object *o)
{
	if (!barrier_of(o)->timer.fn)
		return;
	loop_timer_cancel(loop_of(o), &barrier_of(o)->timer);
	loop_timer_cancel(loop_of(o), &barrier_of(o)->expected);
	loop_defer_cancel(loop_of(o), &barrier_of(o)->tell);
}

const struct object_kind barrier_kind = {
	.size = sizeof(struct barrier), .account_size = sizeof(struct barrier_account),
	.make = make, .check = check, .ring = ring, .leave = leave, .unused = unused, .further = further,
	.recall = recall, .adopt = adopt, .free = end,
};
