/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The io_uring itself, with the one ring of buffers that all receivers share. Private to the loop.
 *
 * What must hold:
 *  - A buffer is lent to us by the completion that names it, until ring_buffer_return(); it is then
 *    the kernel's again. All that are lent are returned before the next ring_enter(), so that a
 *    receiver which ran out can start anew.
 *  - No completion is lost: what does not fit into the queue the kernel keeps (IORING_FEAT_NODROP),
 *    and hands over in a later ring_enter(), which reports -EBADR if it had no memory to keep it.
 */
#ifndef DLOCK_LOOP_RING_H
#define DLOCK_LOOP_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_BUFFERS 256 /* a power of two */
#define RING_BUFFER_GROUP 0

struct completion {
	uint64_t tag;
	int res;
	uint32_t flags;
};

struct ring {
	struct io_uring uring;
	struct io_uring_buf_ring *lent; /* RING_BUFFERS entries, which the kernel takes from */
	char *buffers;
	size_t mapped; /* bytes from lent on, buffers included */
};

int ring_open(struct ring *ret); /* errors as of loop_create() */
void ring_close(struct ring *r);

/* The next free submission; NULL: the kernel takes no more before it has been entered again. */
struct io_uring_sqe *ring_sqe(struct ring *r);

/*
 * Submits what there is, and runs what the kernel has put off for us; wait: until there is a
 * completion.
 */
int ring_enter(struct ring *r, bool wait);

bool ring_unsubmitted(const struct ring *r);
bool ring_completions(const struct ring *r); /* some are left to be taken, or kept by the kernel */
/* Whether ring_enter(r, true) would return at once. Reads memory only. */
bool ring_pending(const struct ring *r);
unsigned ring_take(struct ring *r, struct completion *ret, unsigned max);

const void *ring_buffer(const struct ring *r, unsigned number);
void ring_buffer_return(struct ring *r, unsigned number);

#endif
