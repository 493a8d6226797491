/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <liburing.h>
#include <poll.h>

#include "internal.h"

static void watch_arm(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_poll_multishot(sqe, s->fd, s->number);
}

/*
 * The kernel ends a poll when the completion queue is full; to arm it again looks at the descriptor
 * once more.
 */
static void watch_event(struct source *s, int res, uint32_t flags)
{
	(void)flags;
	if (res >= 0 && s->state == SOURCE_RESTING)
		source_want(s);
	s->fn.watch(s->arg, res >= 0 ? (uint32_t)res : POLLNVAL);
}

static const struct source_kind watch_kind = {.arm = watch_arm, .event = watch_event};

int loop_watch(struct loop *l, int fd, uint32_t poll_events,
	void (*fn)(void *arg, uint32_t revents), void *arg, struct loop_watch **ret)
{
	struct source *s = source_new(l, &watch_kind, fd, arg);

	if (!s)
		return -ENOMEM;
	s->fn.watch = fn;
	s->number = poll_events;
	source_want(s);
	*ret = (struct loop_watch *)s;
	return 0;
}

void loop_unwatch(struct loop_watch *w)
{
	if (w)
		source_stop((struct source *)w);
}
