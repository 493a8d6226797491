/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* more is the address; number its length. */
static void connect_arm(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_connect(sqe, s->fd, s->more, s->number);
}

static void connect_event(struct source *s, int res, uint32_t flags)
{
	(void)flags;
	s->fn.connected(s->arg, res < 0 ? res : 0);
}

static const struct source_kind connect_kind = {.arm = connect_arm, .event = connect_event};

int loop_connect_start(struct loop *l, int fd, const struct sockaddr *address, socklen_t n,
	void (*fn)(void *arg, int error), void *arg, struct loop_connect **ret)
{
	struct sockaddr *copy = malloc(n);
	struct source *s = copy ? source_new(l, &connect_kind, fd, arg) : NULL;

	if (!s) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, address, n);
	s->more = copy;
	s->number = n;
	s->fn.connected = fn;
	source_want(s);
	*ret = (struct loop_connect *)s;
	return 0;
}

void loop_connect_stop(struct loop_connect *c)
{
	if (c)
		source_stop((struct source *)c);
}
