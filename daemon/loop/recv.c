/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <liburing.h>
#include <sys/socket.h>

#include "internal.h"

/*
 * number holds the flags of recv(2): MSG_TRUNC makes a packet tell its true length. On TCP it would
 * drop the bytes.
 */
static void recv_arm(struct source *s, struct io_uring_sqe *sqe)
{
	io_uring_prep_recv_multishot(sqe, s->fd, NULL, 0, (int)s->number);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = RING_BUFFER_GROUP;
}

static void buffer_return(struct loop *l, uint32_t flags)
{
	if (flags & IORING_CQE_F_BUFFER)
		ring_buffer_return(&l->ring, flags >> IORING_CQE_BUFFER_SHIFT);
}

static void bytes_deliver(struct source *s, int res, uint32_t flags)
{
	const void *data = NULL;
	ssize_t n = res;

	if (res > LOOP_RECV_MAX) {
		n = -EMSGSIZE;
	} else if (res > 0) {
		assert(flags & IORING_CQE_F_BUFFER);
		data = ring_buffer(&s->loop->ring, flags >> IORING_CQE_BUFFER_SHIFT);
	}
	s->fn.bytes(s->arg, data, n);
}

static void recv_event(struct source *s, int res, uint32_t flags)
{
	/* No buffer was left: those that are lent come back before it is armed again. */
	bool again = res == -ENOBUFS || res == -EINTR || res == -EAGAIN;
	struct loop *l = s->loop;

	if (s->state == SOURCE_RESTING && (again || res > 0))
		source_want(s);
	if (!again)
		bytes_deliver(s, res, flags);
	buffer_return(l, flags);
}

static void recv_discard(struct source *s, int res, uint32_t flags)
{
	(void)res;
	buffer_return(s->loop, flags);
}

static const struct source_kind recv_kind = {
	.arm = recv_arm, .event = recv_event, .discard = recv_discard};

static bool socket_has_packets(int fd)
{
	int type;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       (type == SOCK_SEQPACKET || type == SOCK_DGRAM);
}

int loop_recv_start(struct loop *l, int fd, void (*fn)(void *arg, const void *data, ssize_t n),
	void *arg, struct loop_recv **ret)
{
	struct source *s = source_new(l, &recv_kind, fd, arg);

	if (!s)
		return -ENOMEM;
	s->fn.bytes = fn;
	s->number = socket_has_packets(fd) ? MSG_TRUNC : 0;
	source_want(s);
	*ret = (struct loop_recv *)s;
	return 0;
}

void loop_recv_stop(struct loop_recv *r)
{
	if (r)
		source_stop((struct source *)r);
}
