/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared holds as this process knows them; what others see of them is in the cells (proto/readers.h).
 *
 *   struct readers    what one thread reads, behind the page that a fork wipes (thread.h). One more is the process's own, for
 *                     handles whose holds belong to it
 *   struct read_line  a line of the segment that the daemon has given out, with a record for each of its cells
 *   struct read_hold  what one handle holds. Where a thread reads one name through several handles, one record has the
 *                     cell, and the others count in it: a cell is emptied when the last of them is given back
 *
 * What must hold: a thread's records are changed by it alone, or, at its end, by nobody else; the process's under lib.
 * Whoever else looks (is this handle busy?) does so under lib, and believes nothing else than that.
 */
#ifndef DLOCK_READ_H
#define DLOCK_READ_H

#include "handle.h"
#include "proto/readers.h"
#include "thread.h"

#define READ_LANES 4u                    /* spaces that a thread reads in without looking further */
#define READ_NEVER UINT64_MAX            /* a key that no line has */

struct read_hold {
	struct binding *b;               /* NULL: none */
	struct read_hold *cell_of;       /* the record whose cell counts it: itself, nearly always */
	uint64_t *at;                    /* the record's own cell, used or not */
	uint64_t as;                     /* what stands there, but for the count */
	uint64_t number;                 /* the token */
	uint64_t depth;                  /* how often this handle holds; 0 with b set: others count in the cell still */
};

struct read_line {
	uint64_t key;                    /* of the mapping and connection that it is of; 0: there is no line */
	uint64_t *cells;
	uint64_t mark;
	struct space *space;             /* with a reference */
	struct read_line *next;          /* more of the same thread */
	struct read_line *also;          /* of all such lines */
	uint32_t line;
	struct read_hold hold[SEG_LINE_CELLS];
};

struct readers {
	struct read_line lane[READ_LANES];
	struct read_line *more;
	struct readers *next, **at;      /* all of the process that have or had a line. Under lib */
	bool listed;                     /* the thread's own: it is one of them */
};

struct thread_page {
	uint32_t serial;                 /* thread.h */
	uint32_t rounds;                 /* of destructors that have been seen */
};
_Static_assert(sizeof(struct readers) <= 4096, "a page");

/*
 * So many bytes further on lies the thread's struct readers. No fork wipes that: where it came from a signal handler the child may
 * have to go on with a call that works with it. It is cleared when the child's thread gets a serial of its own.
 */
extern uint32_t thread_wiped;

static inline struct readers *readers_behind(const void *page)
{
	return (struct readers *)((uintptr_t)page + thread_wiped);
}

/* Where the serial is not 0. */
static inline struct readers *readers_here(void)
{
	return readers_behind(thread_cell);
}

static inline uint32_t lane_offset(uint32_t lane)
{
	return thread_wiped + (uint32_t)(offsetof(struct readers, lane) + lane * sizeof(struct read_line));
}

/* Of the binding, where the serial is not 0; there is a line only if its key is the binding's. */
static inline struct read_line *read_lane(const struct binding *b)
{
	return (struct read_line *)((uintptr_t)thread_cell + b->lane_off);
}

static inline struct read_hold *read_record(const struct binding *b)
{
	return (struct read_hold *)((uintptr_t)thread_cell + b->record_off);
}

static inline struct seg_slot *binding_slot(const struct binding *b)
{
	return (struct seg_slot *)b->word;
}

/* --- read.c --- */

/* What the holder holds through this handle. -EPERM: nothing. -ESTALE: it was lost; the outputs are set all the same. */
int read_check(const struct dlock *l, uint32_t holder, uint64_t *ret_number, struct binding **ret);

/* Its record, if that is all that it holds of the name; else NULL. */
struct read_hold *read_alone(const struct dlock *l, uint32_t holder);

/* Does the holder read the binding's name, through whatever handle? Its record with the cell, or NULL; lost ones do not count. */
struct read_hold *read_of_slot(uint32_t holder, const struct binding *b);

/* One more hold of what the holder reads already. 0, -EAGAIN, -ENOMEM. 1: by now another thread of the process has given that back. */
int read_again(uint32_t holder, struct binding *b, struct read_hold *cell_of);

/* A free record with an empty cell, where there is none yet by asking the daemon: *ret and *ret_line. */
int read_prepare(uint32_t holder, struct dlock *l, struct binding *b, const struct limit *limit, struct read_line **ret_line,
		 struct read_hold **ret);

/* Sets the cell of a prepared record, on a word that the caller owns, and makes it a hold; or gives it back unused. */
void read_mark(const struct read_line *line, struct binding *b);
void read_set(struct read_line *line, struct read_hold *h, struct binding *b, uint64_t gate);
void read_hold(struct read_hold *h, struct binding *b, uint64_t number);
void read_unplace(struct read_hold *h);

/* Gives back one level. 0, ESTALE, EPERM. */
int read_post(const struct dlock *l, uint32_t holder);
void read_drop(struct read_hold *h);     /* all levels of this handle */
void read_wake(const struct binding *b); /* somebody waits for readers to leave */

bool read_busy(const struct dlock *l);   /* somebody holds it shared through this handle. Under lib */
void read_closed(const struct dlock *l); /* what was lost through it is forgotten. Under lib */
void read_thread_end(struct readers *r); /* gives back what the thread reads, and its lines to others */
void read_child(void);                   /* of a fork: nothing is read, and there are no threads with lines */
void read_begin(struct readers *r);      /* a thread gets its serial: what is there is of before a fork */

#endif
