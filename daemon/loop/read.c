/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <liburing.h>
#include <stdlib.h>

#include "internal.h"

/* more is the buffer, number its size. Offset -1: at the file's own position, for what has one. */
static void read_arm(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_read(sqe, s->fd, s->more, s->number, (__u64)-1);
}

static void read_event(struct source *s, int res, uint32_t flags)
{
	/*
	 * Another reader of the same file was faster, on a kernel that does not wait again by
	 * itself.
	 */
	bool again = res == -EAGAIN || res == -EINTR;

	(void)flags;
	if (again || res > 0)
		source_want(s);
	if (!again)
		s->fn.bytes(s->arg, res > 0 ? s->more : NULL, res);
}

static const struct source_kind read_kind = {.arm = read_arm, .event = read_event};

int loop_read_start(struct loop *l, int fd, size_t bufsize,
	void (*fn)(void *arg, const void *data, ssize_t n), void *arg, struct loop_read **ret)
{
	struct source *s;
	void *buf;

	assert(bufsize > 0 && bufsize <= INT32_MAX);
	buf = malloc(bufsize);
	if (!buf)
		return -ENOMEM;
	s = source_new(l, &read_kind, fd, arg);
	if (!s) {
		free(buf);
		return -ENOMEM;
	}
	s->fn.bytes = fn;
	s->more = buf;
	s->number = (uint32_t)bufsize;
	source_want(s);
	*ret = (struct loop_read *)s;
	return 0;
}

void loop_read_stop(struct loop_read *r)
{
	if (r)
		source_stop((struct source *)r);
}
