/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLICE_NS UINT64_C(50000000)      /* how late a cancel may be noticed */
#define BUSY_NS  UINT64_C(1000000)       /* until another look whether there is room for us to connect */

/* A directory whose path is too long for a socket address is reached through its descriptor. */
static int address_of(const char *path, struct sockaddr_un *ret, int *ret_dir)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*ret_dir = -1;
	if (strlen(path) < sizeof ret->sun_path) {
		strcpy(ret->sun_path, path);
		return 0;
	}
	if (!slash || (size_t)(slash - path) >= sizeof dir)
		return -ENAMETOOLONG;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = 0;
	*ret_dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return -errno;
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d%s", *ret_dir, slash);
	return 0;
}

int wire_connect(int fd, const char *path, const struct limit *limit)
{
	struct sockaddr_un a;
	int dir, r;

	r = address_of(path, &a, &dir);
	while (r == 0 && connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
		if (errno == EAGAIN)     /* its queue is full */
			r = limit_nap(limit, BUSY_NS);
		else if (errno == EPROTOTYPE)
			r = -EPROTO;     /* a socket of another kind */
		else if (errno != EINTR)
			r = -errno;
	}
	if (dir >= 0)
		close(dir);
	return r;
}

static int wait_for(int fd, short events, const struct limit *limit)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		struct timespec span;
		uint64_t now, at;
		int n, r = limit_over(limit);

		if (r < 0)
			return r;
		now = limit_now(limit);
		at = limit->cancel ? limit_slice(limit, SLICE_NS) : limit->until_ns;
		span = limit_timespec(at > now ? at - now : 0);
		n = ppoll(&p, 1, at == LIMIT_NONE ? NULL : &span, NULL);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

int wire_wait(int fd, const struct limit *limit)
{
	return wait_for(fd, POLLIN, limit);
}

static int send_message(int fd, const struct msghdr *m, const struct limit *limit)
{
	for (;;) {
		if (sendmsg(fd, m, MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno == EAGAIN) {
			int r = wait_for(fd, POLLOUT, limit);

			if (r < 0)
				return r;
		} else if (errno != EINTR) {
			return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
		}
	}
}

int wire_send(int fd, const void *packet, size_t n, const struct limit *limit)
{
	struct iovec iov = { (void *)packet, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	return send_message(fd, &m, limit);
}

int wire_send_credentials(int fd, const void *packet, size_t n, const struct limit *limit)
{
	struct ucred me = { getpid(), geteuid(), getegid() };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof me)];
	} control = { .bytes = { 0 } };
	struct iovec iov = { (void *)packet, n };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof control,
	};

	control.head = (struct cmsghdr){
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof me),
	};
	memcpy(CMSG_DATA(&control.head), &me, sizeof me);
	return send_message(fd, &m, limit);
}

static void take_descriptors(struct packet *p, struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (p->fds < WIRE_FDS_MAX)
				p->fd[p->fds++] = fd;
			else
				close(fd);
		}
	}
}

int wire_receive(int fd, struct packet *ret)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { ret->bytes, sizeof ret->bytes };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof control,
	};
	ssize_t n;

	ret->fds = 0;
	ret->fd[0] = ret->fd[1] = -1;
	do {
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	if (n == 0)
		return -EPIPE;
	take_descriptors(ret, &m);
	if (!(m.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) && n >= (ssize_t)sizeof ret->head && ret->head.len == n)
		return 0;
	packet_done(ret);
	return m.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
}

int packet_take(struct packet *p, unsigned i)
{
	int fd = p->fd[i];

	p->fd[i] = -1;
	return fd;
}

void packet_done(struct packet *p)
{
	for (unsigned i = 0; i < p->fds; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	p->fds = 0;
}
