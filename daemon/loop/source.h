/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A source: one request that stands in the kernel and brings events. loop_watch, loop_recv,
 * loop_read, loop_accept, loop_send and loop_connect are sources, each with a kind of its own. Private
 * to the loop.
 *
 *     state     kernel has it  on the list  what comes next
 *     FREE           -             -        source_new: RESTING
 *     RESTING        -             -        source_want: WANTED; source_stop: FREE
 *     WANTED         -            yes       source_flush: ARMED; source_stop: DROPPED
 *     ARMED         yes            -        last completion: RESTING; source_stop: UNWANTED
 *     UNWANTED      yes           yes       source_flush: LEAVING; last completion: DROPPED
 *     LEAVING       yes            -        last completion: FREE
 *     DROPPED        -            yes       source_flush: FREE
 *
 * What must hold:
 *  - Memory that the kernel knows (the source as the tag, a read's buffer) is not freed before the
 *    request's last completion, the one without IORING_CQE_F_MORE, has been run. A request has
 *    exactly one of these.
 *  - Callbacks change states and the list; only source_flush(), at the end of a turn, puts them
 *    into submissions. So a full queue is met at one place, and what starts and stops within a turn
 *    costs the kernel nothing.
 *  - Whatever a completion brings along, a buffer or a descriptor, is given back also if nobody
 *    wants it any more.
 */
#ifndef DLOCK_LOOP_SOURCE_H
#define DLOCK_LOOP_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct io_uring_sqe;
struct loop;
struct loop_bytes;
struct completion;
struct source;

enum source_state {
	SOURCE_FREE,
	SOURCE_RESTING,
	SOURCE_WANTED,
	SOURCE_ARMED,
	SOURCE_UNWANTED,
	SOURCE_LEAVING,
	SOURCE_DROPPED,
};

/*
 * event may find the source RESTING: that was its last completion. It calls back last, since that
 * may free the source. discard gives back what a completion of a stopped source brings; NULL:
 * nothing.
 */
struct source_kind {
	void (*arm)(struct source *s, struct io_uring_sqe *sqe);
	void (*event)(struct source *s, int res, uint32_t flags);
	void (*discard)(struct source *s, int res, uint32_t flags);
};

struct source {
	const struct source_kind *kind;
	struct loop *loop;
	struct source *next; /* of the list, or of those that are free */
	union {
		void (*watch)(void *arg, uint32_t revents);
		void (*bytes)(void *arg, const void *data, ssize_t n);
		void (*accept)(void *arg, int fd_or_error);
		void (*sent)(void *arg, struct loop_bytes *b, int error);
		void (*connected)(void *arg, int error);
	} fn;
	void *arg;
	void *more; /* the kind's own, from malloc(); freed with the source */
	int fd;
	uint32_t number; /* the kind's own */
	uint8_t state;
};

#define SOURCES_PER_CHUNK 63

/* Sources are made in chunks that stay until the loop goes: 65,000 clients cost 4 MiB. */
struct source_chunk {
	struct source_chunk *next;
	struct source sources[SOURCES_PER_CHUNK];
};

struct sources {
	struct source_chunk *chunks;
	struct source *free;
	struct source *first, **last; /* the list */
	size_t used, armed;           /* how many are not FREE; how many the kernel has */
};

void sources_init(struct sources *ss);
void sources_done(struct loop *l); /* the kernel has none any more, or the ring is gone */

/* RESTING; NULL: no memory */
struct source *source_new(struct loop *l, const struct source_kind *kind, int fd, void *arg);
void source_want(struct source *s);
void source_stop(struct source *s);
void sources_stop(struct loop *l); /* every one that is left */

/* false: the kernel takes no more now, some are left on the list */
bool source_flush(struct loop *l);
void source_complete(struct source *s, const struct completion *c);

#endif
