/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's part in shared holds (proto/readers.h): it gives lines to clients, empties those of the dead, and
 * begins a new era where holds are taken away.
 *
 * What must hold: a line is in the ledger before its client hears of it, and until it has been emptied. Its memory
 * is there before that, and stays for as long as the space does: other clients look at it whenever they like.
 * What stands in a cell is the client's word: it can keep others of its space waiting, and that is all.
 */
#include <errno.h>
#include <fcntl.h>

#include "files.h"
#include "shm.h"
#include "word.h"

#define LINES_A_LOOK    64               /* cost as much as a look at a word that another processor has written */
#define LINES_OF_CLIENT 4096             /* threads that read at a time */

static struct ledger_line *line_at(const struct space *s, uint32_t line)
{
	return table_at(&s->lines, line);
}

static void line_empty(struct space *s, uint32_t line)
{
	uint64_t *cells = seg_line(s->base, line);

	for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
		word_store(&cells[i], 0);
}

/* A new era for each daemon, whatever the last one used. */
int readers_begin(struct space *s)
{
	uint32_t highest = 0;
	int r = files_random(&s->era, sizeof s->era);

	if (r < 0)
		return r;

	for (uint32_t i = 0; (i = table_next(&s->lines, i));)
		highest = i;
	if (highest)
		s->lines_used = (highest / SEG_CHUNK_LINES + 1) * SEG_CHUNK_LINES;
	word_store(seg_lines_used(s->base), s->lines_used);
	return 0;
}

/* The chunks below lines_used are there. */
static int line_memory(struct space *s, uint32_t line)
{
	uint32_t end = (line / SEG_CHUNK_LINES + 1) * SEG_CHUNK_LINES, size = SEG_LINE_CELLS * sizeof(uint64_t);
	int r;

	if (end <= s->lines_used)
		return 0;
	r = files_room(s->fd, (off_t)(SEG_LINE_OFF + (uint64_t)s->lines_used * size), (off_t)(end - s->lines_used) * size);
	if (r < 0)
		return r;
	s->lines_used = end;
	word_store(seg_lines_used(s->base), end);
	return 0;
}

int reader_line(struct client *c, struct space *s, uint32_t *ret_line)
{
	uint32_t line;
	int r;

	if (c->n_lines >= LINES_OF_CLIENT)
		return -ENOSPC;
	r = table_take(&s->lines, &line);
	if (r < 0)
		return r;
	r = line_memory(s, line);
	if (r < 0) {
		table_drop(&s->lines, line);
		return r;
	}
	line_empty(s, line);
	table_commit(&s->lines, line, c->index);
	c->n_lines++;
	*ret_line = line;
	return 0;
}

/* Somebody may wait for the readers of that slot to leave. */
static void left(struct space *s, uint32_t slot)
{
	if (name_is_lock(s, slot) && read_left(seg_slot(s->base, slot)) && name_revoked(name_at(s, slot)))
		yield_look(s, slot);
}

static uint32_t cell_slot_of(uint64_t cell)
{
	uint64_t n = cell >> CELL_SHIFT;

	return n && n - 1 < SEG_SLOTS_MAX ? (uint32_t)n - 1 : SEG_SLOTS_MAX;
}

/* Its client is dead, and has asked for a lock-delay. */
static bool cell_stays(const struct space *s, uint64_t cell, uint32_t client)
{
	uint32_t slot = cell_slot_of(cell), open;

	if (slot == SEG_SLOTS_MAX || !name_is_lock(s, slot) || !cell_is(cell, cell_of(slot, READ_LOAD(&seg_slot(s->base, slot)->gate))))
		return false;
	open = ledger_open_find(&s->shm->ledger, client, (uint16_t)s->id, slot);
	return open && ledger_open_at(&s->shm->ledger, open)->delay;
}

/* only: SEG_SLOTS_MAX: all that do not stay. Returns whether something is left in it. */
static bool line_back(struct space *s, uint32_t line, uint32_t only)
{
	uint64_t *cells = seg_line(s->base, line), was;
	bool rest = false;

	for (unsigned i = 0; i < SEG_LINE_CELLS; i++) {
		was = READ_LOAD(&cells[i]);
		if (!was)
			continue;
		if (only == SEG_SLOTS_MAX ? cell_stays(s, was, line_at(s, line)->client) : cell_slot_of(was) != only) {
			rest = true;
			continue;
		}
		FAULT_AROUND(READ_SWAP(&cells[i], 0));
		if (cell_slot_of(was) != SEG_SLOTS_MAX)
			left(s, cell_slot_of(was));
	}
	return rest;
}

static void lines_forget(struct space *s, uint32_t client, uint32_t only)
{
	for (uint32_t line = 0, next; (next = table_next(&s->lines, line)); line = next) {
		if (line_at(s, next)->client != client)
			continue;
		if (!s->broken && line_back(s, next, only))
			s->lines_mourned = true;
		else
			table_drop(&s->lines, next);
	}
}

void readers_forget(struct shm *shm, uint32_t client, bool again)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = shm->spaces[i];

		if (s && s->lines.base && (!again || s->lines_mourned))
			lines_forget(s, client, SEG_SLOTS_MAX);
	}
}

bool reader_is(const struct space *s, uint32_t slot, uint32_t client)
{
	uint64_t of = cell_of(slot, READ_LOAD(&seg_slot(s->base, slot)->gate));

	for (uint32_t line = 0; s->lines_mourned && (line = table_next(&s->lines, line));)
		for (unsigned i = 0; line_at(s, line)->client == client && i < SEG_LINE_CELLS; i++)
			if (cell_is(READ_LOAD(&seg_line(s->base, line)[i]), of))
				return true;
	return false;
}

void reader_gone(struct space *s, uint32_t slot, uint32_t client)
{
	if (s->lines_mourned)
		lines_forget(s, client, slot);
}

void readers_adopt(struct space *s)
{
	for (uint32_t line = 0, next; (next = table_next(&s->lines, line)); line = next) {
		struct client *c = s->shm->clients[line_at(s, next)->client & (SEG_CLIENTS_MAX - 1)];

		if (c)
			c->n_lines++;
	}
}

/* Whoever may open the space may mark all its lines. */
unsigned readers_cost(const struct space *s, uint32_t slot)
{
	uint64_t w = name_is_lock(s, slot) ? LOCK_LOAD(&seg_slot(s->base, slot)->word) : 0;

	return (w & LOCK_R) || (!lock_is_free(w) && !(w & LOCK_EXCLUSIVE)) ? s->lines_used / LINES_A_LOOK : 0;
}

bool readers_inside_now(const struct space *s, uint32_t slot)
{
	const struct seg_slot *g = seg_slot(s->base, slot);

	return readers_inside(s->base, g, cell_of(slot, READ_LOAD(&g->gate)), s->lines_used, NULL);
}

uint32_t readers_want(struct space *s, uint32_t slot)
{
	uint32_t *wants = &seg_slot(s->base, slot)->wants, was = READ_LOAD(wants);

	while (!__atomic_compare_exchange_n(wants, &was, (was & WANTS) << WANTS_ASKED, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return was & WANTS;
}

void readers_want_again(struct space *s, uint32_t slot, uint32_t which)
{
	uint32_t *wants = &seg_slot(s->base, slot)->wants;

	FAULT_AROUND(READ_OR(wants, READ_LOAD(wants) >> WANTS_ASKED & which));
}

void readers_want_over(struct space *s, uint32_t slot)
{
	FAULT_AROUND(READ_SWAP(&seg_slot(s->base, slot)->wants, 0));
}

/* Y is set before. Whoever leaves after this look rings. */
bool readers_drained(struct space *s, uint32_t slot)
{
	if (!readers_inside_now(s, slot))
		return true;
	FAULT_AROUND(READ_OR(&seg_slot(s->base, slot)->drain, (uint32_t)DRAIN_DAEMON));
	barrier_everywhere();
	return !readers_inside_now(s, slot);
}

static void is_client(struct space *s, uint32_t slot, uint32_t client, void *arg)
{
	uint32_t *wanted = arg;

	(void)s, (void)slot;
	if (client == *wanted)
		*wanted = 0;
}

#define ROOM_KEPT 4096                   /* a name that is open for long shall not be worn down to ranges that cost something */

/*
 * Whoever has set his cell, and is stopped before he lets others in, reads: they come in. Not so one who says that he
 * waits for readers, among them other threads of his process.
 */
bool readers_pass_over(struct space *s, uint32_t slot, uint64_t w)
{
	uint32_t client = (uint32_t)(w & LOCK_OWNER);
	bool inside = readers_inside_now(s, slot);

	if (lock_is_free(w) || (w & LOCK_EXCLUSIVE) || (READ_LOAD(&seg_slot(s->base, slot)->gate) & GATE_UPGRADER))
		return false;
	if (inside && !(READ_LOAD(&seg_slot(s->base, slot)->drain) & DRAIN_OWNER))
		readers_each(s, slot, is_client, &client);
	if ((inside && client) || !name_retire_count(name_at(s, slot), w, ROOM_KEPT))
		return false;
	return lock_pass_over(&seg_slot(s->base, slot)->word, w, inside);
}

void readers_renew(struct space *s, uint32_t slot)
{
	struct seg_slot *g = seg_slot(s->base, slot);
	uint64_t gate = READ_LOAD(&g->gate);

	s->era += GATE_ERA_ONE;
	FAULT_AROUND(READ_SWAP(&g->gate, (gate & ~(GATE_ERA | GATE_LOW)) | (s->era & GATE_ERA)));
	FAULT_AROUND(READ_SWAP(&g->readers, 0));
	if (READ_SWAP(&g->drain, 0))
		READ_WAKE(&g->drain);
}

void readers_granted(struct space *s, uint32_t slot)
{
	FAULT_AROUND(__atomic_fetch_add(&seg_slot(s->base, slot)->gate, GATE_GRANT, __ATOMIC_SEQ_CST));
}

/*
 * With Y a release wakes nobody, since nobody can take the word: but for who upgrades. And where no tokens are left, he has to
 * give up.
 */
void upgrade_turn(struct space *s, uint32_t slot)
{
	struct seg_slot *g = seg_slot(s->base, slot);

	if (READ_LOAD(&g->gate) & GATE_UPGRADER)
		futex_wake_class(lock_futex(&g->word), INT_MAX, LOCK_CLASS_ANY);
}

/* Who was upgrading is gone. */
void upgrade_over(struct space *s, uint32_t slot, uint32_t client)
{
	struct seg_slot *g = seg_slot(s->base, slot);
	uint64_t gate = READ_LOAD(&g->gate);

	do {
		if (!client || (gate & GATE_UPGRADER) != client)
			return;
	} while (!LOCK_CAS(&g->gate, &gate, gate & ~GATE_LOW, __ATOMIC_SEQ_CST));
	READ_AND(&g->drain, ~(uint32_t)DRAIN_ASIDE);
	READ_WAKE(&g->drain);
	LOCK_WAKE(&g->word, INT_MAX, LOCK_CLASS_ANY);     /* it may wait there, and not know it yet */
}

void readers_each(struct space *s, uint32_t only, void (*fn)(struct space *s, uint32_t slot, uint32_t client, void *arg),
		  void *arg)
{
	for (uint32_t line = 0; s->lines.base && (line = table_next(&s->lines, line));) {
		uint32_t client = line_at(s, line)->client;

		for (unsigned i = 0; i < SEG_LINE_CELLS; i++) {
			uint64_t cell = READ_LOAD(&seg_line(s->base, line)[i]), n = cell >> CELL_SHIFT;
			uint32_t slot = (uint32_t)n - 1;

			if (!n || slot >= SEG_SLOTS_MAX || (only && slot != only) || !name_is_lock(s, slot) ||
			    !cell_is(cell, cell_of(slot, READ_LOAD(&seg_slot(s->base, slot)->gate))))
				continue;
			fn(s, slot, client, arg);
		}
	}
}
