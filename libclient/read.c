/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"
#include "deadline.h"
#include "space.h"

/* A record that is not to be given to others: somebody is about to fill it, or its cell counts for other records. */
static struct binding taken;

/* Lines of threads that have ended: of this process for as long as it lives. Under lib. */
struct spare {
	struct spare *next;
	struct space *space;
	uint64_t key;
	uint32_t line;
};

static struct readers process;           /* for handles whose holds belong to the process */
static bool process_is_old;              /* it is of before a fork. Under lib */
static struct readers *all;
static struct spare *spares;
static struct read_line *further;        /* lines beyond the threads' pages, where those who look for leaks see them. Under lib */

static struct readers *readers_of(uint32_t holder)
{
	return holder == HOLDER_PROCESS ? &process : readers_here();
}

static struct read_line *line_first(struct readers *r)
{
	return &r->lane[0];
}

static struct read_line *line_next(struct readers *r, struct read_line *at)
{
	if (at >= &r->lane[0] && at < &r->lane[READ_LANES])
		return at + 1 < &r->lane[READ_LANES] ? at + 1 : r->more;
	return at->next;
}

static uint64_t key_of(const struct binding *b)
{
	return (uint64_t)b->space->serial << 32 | b->epoch;
}

static bool of_handle(const struct dlock *l, const struct binding *b)
{
	for (const struct binding *o = __atomic_load_n(&l->bindings, __ATOMIC_ACQUIRE); o && b; o = o->older)
		if (o == b)
			return true;
	return false;
}

static struct binding *hold_binding(const struct read_hold *h)
{
	return __atomic_load_n(&h->b, __ATOMIC_ACQUIRE);
}

static void hold_bind(struct read_hold *h, struct binding *b)
{
	__atomic_store_n(&h->b, b, __ATOMIC_RELEASE);
}

/* --- Finding --- */

static uint64_t cell_now(const struct read_hold *h)
{
	return __atomic_load_n(h->cell_of->at, __ATOMIC_RELAXED);
}

static bool cell_lost(const struct read_hold *h, const struct binding *b)
{
	return binding_lost(b) || ((READ_LOAD(&binding_slot(b)->gate) ^ h->as) & GATE_ERA) || !cell_is(cell_now(h), h->as);
}

/* A good one before one that was lost. Under lib, as all that may be the process's. */
static struct read_hold *find(struct readers *r, const struct dlock *l)
{
	struct read_hold *lost = NULL;

	for (struct read_line *n = line_first(r); n; n = line_next(r, n))
		for (unsigned i = 0; i < SEG_LINE_CELLS; i++) {
			struct read_hold *h = &n->hold[i];
			struct binding *b = hold_binding(h);     /* of another thread: it may be gone in a moment */

			if (!n->key || !of_handle(l, b))
				continue;
			if (!cell_lost(h, b))
				return h;
			lost = h;
		}
	return lost;
}

static int record_good(const struct read_hold *h)
{
	return !cell_lost(h, h->b) && deadline_good(h->b->line) ? 0 : -ESTALE;
}

int read_check(const struct dlock *l, uint32_t holder, uint64_t *ret_number, struct binding **ret)
{
	struct read_hold *h;
	int r = -EPERM;

	lib_lock();
	h = find(readers_of(holder), l);
	if (h) {
		r = record_good(h);
		*ret = h->b;
		*ret_number = h->number;
	}
	lib_unlock();
	return r;
}

struct read_hold *read_alone(const struct dlock *l, uint32_t holder)
{
	struct read_hold *h;

	lib_lock();
	h = find(readers_of(holder), l);
	if (h && (h->cell_of != h || (cell_now(h) & CELL_TIMES) != 1))
		h = NULL;
	lib_unlock();
	return h;
}

/* Under lib. */
static bool reads_slot(const struct read_hold *h, const struct binding *b)
{
	return hold_binding(h) && h->cell_of == h && cell_of(b->slot, h->as) == h->as && !cell_lost(h, b);
}

struct read_hold *read_of_slot(uint32_t holder, const struct binding *b)
{
	struct readers *r = readers_of(holder);
	struct read_hold *found = NULL;

	lib_lock();
	for (struct read_line *n = line_first(r); n && !found; n = line_next(r, n))
		for (unsigned i = 0; i < SEG_LINE_CELLS && !found && n->key == key_of(b); i++) {
			struct read_hold *h = &n->hold[i];

			if (reads_slot(h, b))
				found = h;
		}
	lib_unlock();
	return found;
}

/* --- Records and lines --- */

static struct read_hold *line_room(struct read_line *n, uint32_t prefer)
{
	if (!hold_binding(&n->hold[prefer]))
		return &n->hold[prefer];
	for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
		if (!hold_binding(&n->hold[i]))
			return &n->hold[i];
	return NULL;
}

/* A free record beside a cell of that key, or NULL. */
static struct read_hold *room(struct readers *r, uint64_t key, uint32_t prefer, struct read_line **ret_line)
{
	for (struct read_line *n = line_first(r); n; n = line_next(r, n)) {
		struct read_hold *h = n->key == key ? line_room(n, prefer) : NULL;

		if (h) {
			*ret_line = n;
			return h;
		}
	}
	return NULL;
}

static bool line_unused(const struct read_line *n)
{
	for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
		if (hold_binding(&n->hold[i]))
			return false;
	return true;
}

static void spare_add(const struct read_line *n)
{
	struct spare *s = n->key && n->cells ? malloc(sizeof *s) : NULL;

	if (n->key && n->cells && (!s || (uint32_t)n->key != conn_epoch())) {
		n->space->lines--;
		space_put(n->space);     /* the daemon's until this process ends, or of a client that this is no longer */
		free(s);
	} else if (s) {
		*s = (struct spare){ spares, n->space, n->key, n->line };
		spares = s;
	}
}

static bool spare_take(uint64_t key, uint32_t *ret_line)
{
	for (struct spare **at = &spares, *s; (s = *at); at = &s->next) {
		if (s->key != key)
			continue;
		*at = s->next;
		*ret_line = s->line;
		s->space->lines--;
		space_put(s->space);
		free(s);
		return true;
	}
	return false;
}

static void readers_list(struct readers *r)
{
	if (r->listed)
		return;
	r->listed = true;
	r->next = all;
	r->at = &all;
	if (r->next)
		r->next->at = &r->next;
	all = r;
}

static struct read_line *line_further(struct readers *r)
{
	struct read_line *n = calloc(1, sizeof *n);

	if (!n)
		return NULL;
	n->next = r->more;
	r->more = n;
	n->also = further;
	further = n;
	return n;
}

static void line_free(struct read_line *n)
{
	struct read_line **at = &further;

	while (*at != n)
		at = &(*at)->also;
	*at = n->also;
	free(n);
}

/* Where a further line of this thread is noted: in its lane, where that has none in use. NULL: no memory. */
static struct read_line *line_place(struct readers *r, uint64_t key, uint32_t lane)
{
	struct read_line *n = &r->lane[lane];

	if (!n->key || (n->key != key && line_unused(n))) {
		spare_add(n);
		return n;
	}
	return line_further(r);
}

static int line_note(struct readers *r, const struct binding *b, uint32_t line)
{
	struct read_line *n = line_place(r, key_of(b), b->lane), *next, *also;

	if (!n)
		return -ENOMEM;
	next = n->next;
	also = n->also;
	*n = (struct read_line){ .cells = seg_line(b->space->base, line), .mark = line_mark(line), .line = line, .next = next, .also = also,
				 .space = space_ref(b->space) };
	for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
		n->hold[i].at = &n->cells[i];
	b->space->lines++;
	__atomic_store_n(&n->key, key_of(b), __ATOMIC_RELEASE);
	if (!all)
		barrier_register();
	readers_list(r);
	return 0;
}

/* Asks the daemon. -ESTALE: what the binding says of it is over. */
static int line_ask(struct dlock *l, const struct binding *b, const struct limit *limit, uint32_t *ret_line)
{
	const struct target *t = &l->name->target;
	int r = attach_lock(limit);

	if (r < 0)
		return r;
	r = -ESTALE;
	if (t->epoch == b->epoch && t->space == b->space)
		r = conn_reader(t->number, t->epoch, limit, ret_line);
	attach_unlock();
	return r;
}

int read_prepare(uint32_t holder, struct dlock *l, struct binding *b, const struct limit *limit, struct read_line **ret_line,
		 struct read_hold **ret)
{
	struct readers *r = readers_of(holder);
	uint32_t line;
	int error = 0;

	for (bool asked = false;; asked = true) {
		lib_lock();
		if (asked || (!room(r, key_of(b), b->slot % SEG_LINE_CELLS, ret_line) && spare_take(key_of(b), &line)))
			error = line_note(r, b, line);
		*ret = error == 0 ? room(r, key_of(b), b->slot % SEG_LINE_CELLS, ret_line) : NULL;
		if (*ret) {
			hold_bind(*ret, &taken);
			(*ret)->cell_of = NULL;
		}
		if (*ret && space_lines(b->space) <= (*ret_line)->line) {
			hold_bind(*ret, NULL);
			error = -ENOMEM;
		}
		lib_unlock();
		if (*ret || error < 0)
			return error;
		error = line_ask(l, b, limit, &line);
		if (error < 0)
			return error;
	}
}

/* --- Holding --- */

void read_mark(const struct read_line *line, struct binding *b)
{
	struct seg_slot *s = binding_slot(b);

	if (!(READ_LOAD(&s->readers) & line->mark))
		READ_OR(&s->readers, line->mark);
}

void read_set(struct read_line *line, struct read_hold *h, struct binding *b, uint64_t gate)
{
	read_mark(line, b);
	h->as = cell_of(b->slot, gate);
	READ_SWAP(h->at, h->as | 1);
}

void read_hold(struct read_hold *h, struct binding *b, uint64_t number)
{
	h->number = number;
	h->depth = 1;
	h->cell_of = h;
	hold_bind(h, b);
}

void read_wake(const struct binding *b)
{
	if (!read_left(binding_slot(b)))
		return;
	seg_bit_set(b->space->base, SEG_WANT, b->slot);
	space_ring(b->space);
}

static void cell_empty(struct read_hold *h, const struct binding *b)
{
	if (read_leave(binding_slot(b), h->at))
		read_wake(b);
}

void read_unplace(struct read_hold *h)
{
	hold_bind(h, NULL);
}

static struct read_hold *alias_room(struct readers *r)
{
	struct read_line *n;

	for (n = line_first(r); n; n = line_next(r, n))
		if (n->key && line_room(n, 0))
			return line_room(n, 0);
	n = line_further(r);
	if (!n)
		return NULL;
	n->key = READ_NEVER;
	return &n->hold[0];
}

/* The handle's own that counts in that cell. */
static struct read_hold *of_binding(struct readers *r, const struct binding *b, const struct read_hold *cell_of)
{
	for (struct read_line *n = line_first(r); n; n = line_next(r, n))
		for (unsigned i = 0; i < SEG_LINE_CELLS; i++)
			if (hold_binding(&n->hold[i]) == b && n->hold[i].cell_of == cell_of)
				return &n->hold[i];
	return NULL;
}

int read_again(uint32_t holder, struct binding *b, struct read_hold *cell_of)
{
	struct readers *r = readers_of(holder);
	struct read_hold *h;
	uint64_t cell = 0;
	int error = 0;

	lib_lock();
	h = of_binding(r, b, cell_of);
	if (reads_slot(cell_of, b))
		cell = cell_now(cell_of);
	if (!cell)
		error = 1;
	else if ((cell & CELL_TIMES) == CELL_TIMES)
		error = -EAGAIN;
	else if (!h && !(h = alias_room(r)))
		error = -ENOMEM;
	else
		__atomic_store_n(cell_of->at, cell + 1, __ATOMIC_RELEASE);
	if (error == 0 && hold_binding(h) == b) {
		h->depth++;
	} else if (error == 0) {
		read_hold(h, b, cell_of->number);
		h->as = cell_of->as;
		h->cell_of = cell_of;
	}
	lib_unlock();
	return error;
}

/* So many levels fewer. */
static void hold_lower(struct read_hold *h, uint64_t levels)
{
	struct read_hold *c = h->cell_of;
	struct binding *b = h->b;
	uint64_t cell = cell_now(c), times = cell & CELL_TIMES;

	h->depth -= levels;
	if (times > levels)
		__atomic_store_n(c->at, cell - levels, __ATOMIC_RELEASE);
	if (h->depth == 0)
		hold_bind(h, h == c && times > levels ? &taken : NULL);
	if (times > levels)
		return;
	cell_empty(c, b);
	if (h != c)
		hold_bind(c, NULL);
}

void read_drop(struct read_hold *h)
{
	lib_lock();
	if (hold_binding(h) && h->depth)         /* of the process: another thread may have given it back meanwhile */
		hold_lower(h, h->depth);
	lib_unlock();
}

int read_post(const struct dlock *l, uint32_t holder)
{
	struct read_hold *h;
	int r = EPERM;

	lib_lock();
	h = find(readers_of(holder), l);
	if (h) {
		r = -record_good(h);
		hold_lower(h, 1);
	}
	lib_unlock();
	return r;
}

/* --- Those of other threads. Under lib --- */

bool read_busy(const struct dlock *l)
{
	for (struct readers *r = all; r; r = r->next) {
		struct read_hold *h = find(r, l);
		struct binding *b = h ? hold_binding(h) : NULL;

		if (b && !cell_lost(h, b))
			return true;
	}
	return false;
}

void read_closed(const struct dlock *l)
{
	for (struct readers *r = all; r; r = r->next)
		for (struct read_hold *h; (h = find(r, l));)
			hold_lower(h, h->depth);
}

void read_thread_end(struct readers *r)
{
	struct read_line *n, *next;

	lib_lock();
	for (n = line_first(r); n; n = line_next(r, n))
		for (unsigned i = 0; i < SEG_LINE_CELLS; i++) {
			struct read_hold *h = &n->hold[i];

			if (n->key && hold_binding(h) && hold_binding(h) != &taken && h->depth)
				hold_lower(h, h->depth);
		}
	for (n = line_first(r); n; n = line_next(r, n))
		spare_add(n);
	for (n = r->more; n; n = next) {
		next = n->next;
		line_free(n);
	}
	if (r->at) {
		*r->at = r->next;
		if (r->next)
			r->next->at = r->at;
	}
	memset(r, 0, sizeof *r);
	lib_unlock();
}

/* The lines are the parent's. Records stay as they are for as long as somebody may be in the midst of one. */
void read_child(void)
{
	all = NULL;
	spares = NULL;
	process_is_old = true;
	spaces_child();
}

static bool readers_used(const struct readers *r)
{
	bool used = r->listed || r->more;

	for (unsigned i = 0; i < READ_LANES; i++)
		used |= r->lane[i].key != 0;
	return used;
}

void read_begin(struct readers *r)
{
	lib_lock();
	if (process_is_old)
		memset(&process, 0, sizeof process);
	process_is_old = false;
	if (readers_used(r))             /* most never read, and then their memory is not touched */
		memset(r, 0, sizeof *r);
	lib_unlock();
}
