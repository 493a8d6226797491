/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <liburing.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

/* more of an accept */
struct pause {
	struct loop_timer timer;
	bool told;
};

/*
 * What passes by itself when something else is freed. The listening socket stays readable: to try
 * at once would spin.
 */
static bool error_is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOBUFS || err == -ENOMEM;
}

/* What concerns the one connection that was lost, says accept(2). */
static bool error_is_of_peer(int err)
{
	switch (-err) {
	case ECONNABORTED:
	case EINTR:
	case EAGAIN:
	case EPERM:
	case ENETDOWN:
	case EPROTO:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return true;
	default:
		return false;
	}
}

static void accept_arm(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_multishot_accept(sqe, s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void accept_event(struct source *s, int res, uint32_t flags)
{
	struct pause *p = s->more;
	bool ended = s->state == SOURCE_RESTING, quiet = false;

	(void)flags;
	if (res >= 0) {
		p->told = false;
		if (ended)
			source_want(s);
	} else if (error_is_shortage(res)) {
		quiet = p->told;
		p->told = true;
		if (ended)
			loop_timer_set(s->loop, &p->timer, s->loop->now + LOOP_ACCEPT_PAUSE);
	} else if (error_is_of_peer(res)) {
		quiet = true;
		if (ended)
			source_want(s);
	}
	if (!quiet)
		s->fn.accept(s->arg, res);
}

static void accept_discard(struct source *s, int res, uint32_t flags)
{
	(void)s, (void)flags;
	if (res >= 0)
		close(res);
}

static const struct source_kind accept_kind = {
	.arm = accept_arm, .event = accept_event, .discard = accept_discard};

static void pause_over(void *arg)
{
	source_want(arg);
}

int loop_accept_start(struct loop *l, int fd, void (*fn)(void *arg, int fd_or_error), void *arg,
	struct loop_accept **ret)
{
	struct pause *p = calloc(1, sizeof(*p));
	struct source *s;

	if (!p)
		return -ENOMEM;
	s = source_new(l, &accept_kind, fd, arg);
	if (!s) {
		free(p);
		return -ENOMEM;
	}
	loop_timer_init(&p->timer, pause_over, s);
	s->fn.accept = fn;
	s->more = p;
	source_want(s);
	*ret = (struct loop_accept *)s;
	return 0;
}

void loop_accept_stop(struct loop_accept *a)
{
	struct source *s = (struct source *)a;

	if (!s)
		return;
	loop_timer_cancel(s->loop, &((struct pause *)s->more)->timer);
	source_stop(s);
}
