/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From the first byte to WELCOME: who is it? */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn_int.h"
#include "files.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* As little as the kernel allows: a few answers. What nobody reads is the daemon's memory, even after the connection. */
#define SEND_BUFFER 1

#define CONNS_MAX      SEG_CLIENTS_MAX
#define HANDSHAKE_SPAN (10 * NSEC_PER_SEC)

static struct attach_welcome welcome_error(int error)
{
	return (struct attach_welcome){ .head = { ATTACH_WELCOME, sizeof(struct attach_welcome), -error },
					.major = ATTACH_MAJOR, .minor = ATTACH_MINOR };
}

static void conn_refuse(struct conn *c, int error)
{
	struct attach_welcome w = welcome_error(error);

	if (conn_send(c, &w, sizeof w, NULL, 0))
		conn_end(c);
}

/* Comes back with its index and secret: it goes on with all it has. */
static struct client *conn_resume(struct conn *c)
{
	uint32_t i = c->hello.resume;
	struct client *cl = i < SEG_CLIENTS_MAX ? c->shm->clients[i] : NULL;
	const struct ledger_client *rec = cl ? ledger_client(&c->shm->ledger, i) : NULL;

	if (!rec || rec->nonce[0] != c->hello.nonce[0] || rec->nonce[1] != c->hello.nonce[1] ||
	    rec->uid != c->peer.uid)
		return NULL;
	if (cl->conn)
		conn_end(cl->conn);
	return cl;
}

static void conn_welcome(struct conn *c)
{
	struct shm *shm = c->shm;
	struct attach_welcome w = { .head = { ATTACH_WELCOME, sizeof w, 0 },
				    .major = ATTACH_MAJOR, .minor = ATTACH_MINOR };
	struct client *cl = c->hello.resume ? conn_resume(c) : NULL;
	struct timespec ts;
	int anchor = -1, r = 0;

	w.resumed = cl != NULL;
	if (!cl)
		r = client_new(shm, &c->peer, c->hello.flags & ATTACH_INHERIT ? CLIENT_INHERIT : 0, &cl, &anchor);
	if (r < 0) {
		conn_refuse(c, r);
		return;
	}
	w.client = cl->index;
	memcpy(w.nonce, ledger_client(&shm->ledger, cl->index)->nonce, sizeof w.nonce);
	clock_gettime(CLOCK_BOOTTIME, &ts);      /* not the turn's: the client compares it with its own */
	w.boottime_ns = (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
	w.session = shm->config.session;
	c->client = cl;
	cl->conn = c;
	hatches_void(cl, shm);
	peer_known(&c->peer);
	loop_timer_cancel(shm->loop, &c->timer);
	loop_timer_init(&c->timer, conn_answer_late, c);
	loop_unwatch(c->watch);
	c->watch = NULL;
	r = loop_recv_start(shm->loop, c->fd, conn_request, c, &c->recv);
	if (r < 0)
		conn_refuse(c, r);
	else
		conn_send(c, &w, sizeof w, (int[]){ shm->page.fd, anchor }, w.resumed ? 1 : 2);
	if (anchor >= 0)
		close(anchor);           /* where the answer went nowhere, this ends the client */
}

static void conn_ask_nonce(struct conn *c)
{
	struct attach_nonce m = { .head = { ATTACH_NONCE, sizeof m, 0 } };
	int on = 1, r = peer_pidfd(&c->peer);

	if (r == 0 && setsockopt(c->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
		r = -errno;
	if (r == 0)
		r = files_random(c->nonce, sizeof c->nonce);
	if (r < 0) {
		conn_refuse(c, r);
		return;
	}
	memcpy(m.nonce, c->nonce, sizeof m.nonce);
	conn_send(c, &m, sizeof m, NULL, 0);
}

static void conn_hello(struct conn *c, const struct attach_hello *m)
{
	int r;

	c->hello = *m;
	if (m->magic != ATTACH_MAGIC || m->major != ATTACH_MAJOR || (m->flags & ~(uint32_t)ATTACH_INHERIT)) {
		conn_refuse(c, -EPROTONOSUPPORT);
		return;
	}
	r = peer_identify(c->shm, c->fd, &c->peer);
	if (r == -ENOTSUP)
		conn_ask_nonce(c);
	else if (r < 0)
		conn_refuse(c, r);
	else
		conn_welcome(c);
}

/*
 * The nonce came from a process with the pid that we hold a pidfd of: had that process ended
 * before, the pidfd would be readable now. So the pidfd is of the one that speaks.
 */
static bool conn_confirmed(struct conn *c, const struct attach_nonce *m, pid_t sender)
{
	struct pollfd p = { c->peer.pidfd, POLLIN, 0 };

	return c->nonce[0] && m->nonce[0] == c->nonce[0] && m->nonce[1] == c->nonce[1] &&
	       sender == c->peer.pid && poll(&p, 1, 0) == 0;
}

static pid_t control_pid(struct msghdr *m)
{
	pid_t pid = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		struct ucred u;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&u, CMSG_DATA(h), sizeof u);
		pid = u.pid;
	}
	return pid;
}

static void conn_handshake(void *arg, uint32_t revents)
{
	struct conn *c = arg;
	union {
		struct attach_head head;
		struct attach_hello hello;
		struct attach_nonce nonce;
	} m;
	/* For credentials, which come first. Descriptors find no room: to close one could take as long as its sender likes. */
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec iov = { &m, sizeof m };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = c->nonce[0] ? sizeof control : 0 };
	ssize_t n = recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	pid_t sender;

	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	sender = n >= 0 ? control_pid(&h) : 0;
	if (n <= 0)
		conn_end(c);            /* it has gone */
	else if (n < (ssize_t)sizeof m.head || (h.msg_flags & MSG_TRUNC) || m.head.len != n)
		conn_bad(c);
	else if (m.head.op == ATTACH_HELLO && n == sizeof m.hello && !c->nonce[0])
		conn_hello(c, &m.hello);
	else if (m.head.op == ATTACH_NONCE && n == sizeof m.nonce && conn_confirmed(c, &m.nonce, sender))
		conn_welcome(c);
	else
		conn_bad(c);
}

static void conn_late(void *arg)
{
	conn_end(arg);
}

/* Room for one more of this user's? It has to be given back. */
static int conn_admit(struct shm *shm, int fd, struct ucred *ret)
{
	int size = SEND_BUFFER;
	socklen_t n = sizeof *ret;

	if (shm->n_conns >= CONNS_MAX)
		return -EUSERS;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &n) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) < 0)
		return -errno;
	return quota_take(&shm->quotas, ret->uid, QUOTA_CONNS);
}

static void conn_turn_away(int fd, int error)
{
	struct attach_welcome w = welcome_error(error);

	send(fd, &w, sizeof w, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fd);
}

static void conn_accept(void *arg, int fd)
{
	struct shm *shm = arg;
	struct ucred who = { 0 };
	struct conn *c;
	int r;

	if (fd < 0)
		return;                  /* the loop tries again when there are descriptors */
	c = calloc(1, sizeof *c);
	r = c ? conn_admit(shm, fd, &who) : -ENOMEM;
	if (r < 0) {
		free(c);
		conn_turn_away(fd, r);
		return;
	}
	*c = (struct conn){ .shm = shm, .fd = fd, .uid = who.uid, .pid = who.pid, .next = shm->conns, .at = &shm->conns,
			    .peer = { .fd = -1, .pidfd = -1 } };
	if (c->next)
		c->next->at = &c->next;
	shm->conns = c;
	shm->n_conns++;
	loop_timer_init(&c->timer, conn_late, c);
	loop_timer_set(shm->loop, &c->timer, loop_now(shm->loop) + HANDSHAKE_SPAN);
	if (loop_watch(shm->loop, fd, POLLIN, conn_handshake, c, &c->watch) < 0)
		conn_end(c);
}

int conn_listen(struct shm *shm, int listen_fd)
{
	int off = 0;

	/* From Linux 6.16 on nobody can send us descriptors at all. */
	setsockopt(listen_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off);
	shm->listen_fd = listen_fd;
	return loop_accept_start(shm->loop, listen_fd, conn_accept, shm, &shm->accept);
}
