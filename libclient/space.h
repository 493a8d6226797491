/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mapped segments, one per space and generation, shared by all names in it. Each binding and each
 * target that points into one counts as a reference. The newest generation of a space stays mapped
 * without any, so that opening one name again and again maps nothing. What a fork's child has from its parent stays too.
 */
#ifndef DLOCK_SPACE_H
#define DLOCK_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/attach.h"
#include "proto/segment.h"

struct value_page;

struct space {
	struct space *next;
	char name[ATTACH_SPACE_MAX + 1];
	uint64_t generation;             /* 0: the parent's (spaces_child) */
	void *base;                      /* SEG_SIZE bytes */
	int bell;
	uint64_t bell_ino;               /* it is still that one: programs close descriptors that they do not know */
	uint32_t refs;
	char *values;                    /* the pages of what names carry, as far as they are wanted; NULL: none */
	uint64_t values_begin, values_end;       /* they lie in between */
	uint32_t serial;                 /* never used again in this process */
	uint32_t lines;                  /* references that are of threads' lines (read.h) */
	uint32_t lines_open;             /* so many of the readers' lines can be looked at */
	uint32_t area;                   /* whose area can be reached, and the slots of which chunks (space_reach) */
	uint64_t chunks[SEG_SLOTS_MAX / SEG_CHUNK_SLOTS / 64];
	/* When something was last opened by the socket (conn.h; epoch 0: never): where, and which daemon's it was (proto/hatch.h). */
	uint32_t number, epoch;
	uint64_t era;
};

/* All under lib. space_newest: the generation to tell the daemon as mapped; 0: none. */
uint64_t space_newest(const char *name, size_t len);

/*
 * The newest of that name, or the one of that number, in which something has been opened in that epoch, and its daemon is the same still:
 * its hatch (hatch.h) can be used. NULL: there is none. It stays for as long as the caller has attach.
 */
struct space *space_hatch(const char *name, size_t len, uint32_t epoch);
struct space *space_hatch_of(uint32_t number, uint32_t epoch);
void space_opened(struct space *s, uint32_t number, uint32_t epoch);     /* by the socket */

/*
 * The space of that generation, with a reference; mapped from the descriptors, which are taken over
 * in any case, where that has not been done (-1: none came). -EPROTO: not a segment that this
 * library understands. -ENOMEM.
 */
int space_get(const char *name, size_t len, uint64_t generation, int segment_fd, int bell_fd,
	      struct space **ret);

/*
 * Makes a slot, and the area of this client, fit for use. The rest of the segment cannot be touched, so
 * that mlockall(2) does not fill its holes: they are some hundred megabytes. -ENOMEM.
 */
int space_reach(struct space *s, uint32_t client, uint32_t slot);

/* The page of what that name carries; fd: the segment's, from the daemon, which has allocated it. -ENOMEM, -EPROTO. */
int space_value(struct space *s, uint32_t slot, int fd, struct value_page **ret);

/* Makes all readers' lines that have been given out so far fit for use; returns how many. Without lib; 0: no memory. */
uint32_t space_lines(struct space *s);

/*
 * In a fork's child: what is mapped is the parent's. The fork may have come from a signal handler, in the midst of a call that goes on in the
 * child when the handler returns, and would take, or give back, in the parent's name. So memory of the child's own is put in
 * its place, all zero: nothing there can be taken. It stays mapped, for that call; the child attaches to segments of its own.
 */
void spaces_child(void);
struct space *space_ref(struct space *s);
void space_put(struct space *s);

/* Without lib, no cancellation point. false: the bell is lost, and nothing was written anywhere. */
bool space_ring(const struct space *s);

#endif
