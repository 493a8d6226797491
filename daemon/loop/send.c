/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A send that fits into the socket's buffer is over when the kernel has been entered, in the same
 * system call that sleeps; a completion for it would only end that sleep. So the first try is quiet: it
 * must not wait, and has a completion only if it fails. When all that was submitted has been
 * issued and no completion is left, those quiet sends that have had none have succeeded: they
 * are settled, as if one had come. What did not fit is sent again in the usual way.
 */
#include <assert.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "internal.h"

/* number: */
#define TELL 1u  /* its end is waited for */
#define LOUD 2u  /* the socket's buffer was full */

static struct loop_bytes *send_bytes(const struct source *s)
{
	return s->more;
}

static void send_arm(struct source *s, struct io_uring_sqe *sqe)
{
	struct quiet *q = &s->loop->quiet;
	struct loop_bytes *b = send_bytes(s);
	bool quiet = !(s->number & (TELL | LOUD)) && q->n < QUIET_MAX;

	io_uring_prep_send(sqe, s->fd, b->data + b->done, b->n - b->done,
		MSG_NOSIGNAL | MSG_WAITALL | (quiet ? MSG_DONTWAIT : 0));
	if (quiet) {
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		q->v[q->n++] = s;
	}
}

static void quiet_forget(struct quiet *q, const struct source *s)
{
	for (unsigned i = 0; i < q->n; i++) {
		if (q->v[i] == s) {
			q->v[i] = q->v[--q->n];
			return;
		}
	}
}

static void send_event(struct source *s, int res, uint32_t flags)
{
	struct loop_bytes *b = send_bytes(s);

	(void)flags;
	quiet_forget(&s->loop->quiet, s);
	if (res > 0)
		b->done += (uint32_t)res;
	assert(b->done <= b->n);
	if (b->done < b->n && (res > 0 || res == -EAGAIN || res == -EINTR)) {
		s->number |= LOUD;
		source_want(s);
		return;
	}
	s->more = NULL;
	s->fn.sent(s->arg, b, res < 0 ? res : 0);
}

static void send_discard(struct source *s, int res, uint32_t flags)
{
	(void)res, (void)flags;
	quiet_forget(&s->loop->quiet, s);
}

static const struct source_kind send_kind = {
	.arm = send_arm, .event = send_event, .discard = send_discard};

void sends_settle(struct loop *l)
{
	struct quiet *q = &l->quiet;

	if (!q->n || ring_unsubmitted(&l->ring) || ring_completions(&l->ring))
		return;
	while (q->n) {
		struct source *s = q->v[q->n - 1];
		struct loop_bytes *b = send_bytes(s);
		struct completion c = {.res = (int)(b->n - b->done)};

		source_complete(s, &c);
	}
}

int loop_send_open(struct loop *l, int fd, void (*fn)(void *arg, struct loop_bytes *b, int error),
	void *arg, struct loop_send **ret)
{
	struct source *s = source_new(l, &send_kind, fd, arg);

	if (!s)
		return -ENOMEM;
	s->fn.sent = fn;
	*ret = (struct loop_send *)s;
	return 0;
}

void loop_send(struct loop_send *handle, struct loop_bytes *b, bool tell)
{
	struct source *s = (struct source *)handle;

	assert(!s->more && b->n > 0);
	b->done = 0;
	s->more = b;
	s->number = tell ? TELL : 0;
	source_want(s);
}

void loop_send_stop(struct loop_send *handle)
{
	if (handle)
		source_stop((struct source *)handle);
}
