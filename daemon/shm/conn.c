/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The attach socket (attach.h): one packet a request, one answer each, in order.
 *
 * A connection begins unidentified. It says HELLO, answers a nonce where the kernel cannot name
 * the process behind a socket, and is a client from then on. Whatever is not to the letter of the
 * protocol ends the connection; the client itself lives on until its process ends, and may come
 * back with its index and its nonce.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../include/proto/hatch.h"
#include "../../include/proto/name.h"
#include "files.h"
#include "object.h"
#include "word.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* As little as the kernel allows: a few answers. What nobody reads is the daemon's memory, even after the connection. */
#define SEND_BUFFER 1

#define CONNS_MAX      SEG_CLIENTS_MAX
#define HANDSHAKE_SPAN (10 * NSEC_PER_SEC)
/* An answer for a lease: many round trips between nodes, since under load it would cost twice as much to give up and ask again. */
#define KEEP_SPAN      (10 * NSEC_PER_MSEC)

struct conn {
	struct conn *next, **at;
	struct shm *shm;
	int fd;
	uid_t uid;                       /* who connected */
	pid_t pid;
	struct peer peer;
	struct client *client;           /* NULL before WELCOME */
	struct loop_watch *watch;        /* before it */
	struct loop_recv *recv;          /* after it */
	struct loop_timer timer;
	struct attach_hello hello;
	uint64_t nonce[2];               /* to be answered; 0: none asked */

	/* An answer that waits for the lease of its slot (ATTACH_SOON), until `timer`. */
	struct attach_opened answer;     /* slot 0: none */
	bool descriptors;                /* go with it */
	bool by_hatch;                   /* its number there: */
	uint32_t asked;
	struct conn *kept_next, **kept_at;
};

static void conn_unkeep(struct conn *c)
{
	if (!c->answer.slot)
		return;
	c->answer.slot = 0;
	*c->kept_at = c->kept_next;
	if (c->kept_next)
		c->kept_next->kept_at = c->kept_at;
	loop_timer_cancel(c->shm->loop, &c->timer);
}

static void conn_free(struct conn *c)
{
	conn_unkeep(c);
	loop_timer_cancel(c->shm->loop, &c->timer);
	loop_unwatch(c->watch);
	loop_recv_stop(c->recv);
	if (c->client)
		c->client->conn = NULL;
	close(c->fd);
	quota_give(&c->shm->quotas, c->uid, QUOTA_CONNS);
	peer_done(&c->peer);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	c->shm->n_conns--;
	free(c);
}

/* What it sent is no request. */
static void conn_bad(struct conn *c)
{
	shm_tell(c->shm, "bad-packet", NULL, 0, c->pid, 0, "what it sent to the attach socket is no request");
	conn_free(c);
}

void conn_lose(struct conn *c)
{
	conn_free(c);
}

void conn_close_all(struct shm *shm)
{
	loop_accept_stop(shm->accept);
	shm->accept = NULL;
	while (shm->conns)
		conn_free(shm->conns);
}

/*
 * Descriptors that are on their way count against the daemon's user, and against all who attach. So
 * none are sent to one that has not read the answer before, as every client does.
 */
static bool conn_has_read(const struct conn *c)
{
	int unread;

	return ioctl(c->fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

/* false: it does not read, or is gone; the connection has been ended. */
static bool conn_send(struct conn *c, const void *packet, size_t n, const int *fds, unsigned n_fds)
{
	char control[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)packet, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *h;

		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
	}
	if ((!n_fds || conn_has_read(c)) && sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
		return true;
	conn_free(c);
	return false;
}

static void conn_done(struct conn *c, int error)
{
	struct attach_head h = { ATTACH_DONE, sizeof h, -error };

	conn_send(c, &h, sizeof h, NULL, 0);
}

/* --- requests of a client --- */

/* A space whose file somebody has cut is lost, and the next one takes its place at once. */
static int open_in_space(struct conn *c, const struct attach_open *m, struct space **ret, struct attach_opened *a)
{
	const char *name = m->text + m->space_len;
	struct client_what what = { (enum kind)m->kind, m->arg, name, m->name_len };

	if (!space_name_valid(m->text, m->space_len) || !object_name_valid(name, m->name_len) || (m->flags & ~ATTACH_SOON))
		return -EINVAL;
	if (m->kind >= KINDS || !object_kind_known(what.kind))
		return -EOPNOTSUPP;      /* of a later version */
	for (int tries = 0; tries < 2; tries++) {
		int r = space_get(c->shm, m->text, m->space_len, &c->peer, ret);

		if (r < 0)
			return r;
		r = client_open(c->client, c->shm, *ret, &what, &a->slot, &a->account);
		if (space_sound(*ret))   /* what could not be touched is seen afterwards too */
			return r;
	}
	return -EAGAIN;
}

static bool conn_opened(struct conn *c, const struct attach_opened *a, bool descriptors)
{
	const struct space *s = descriptors ? c->shm->spaces[a->space] : NULL;

	if (s)
		return conn_send(c, a, sizeof *a, (int[]){ s->fd, s->bell_clients }, 2);
	return conn_send(c, a, sizeof *a, NULL, 0);
}

static bool conn_answer(struct conn *c)
{
	struct attach_opened a = c->answer;

	conn_unkeep(c);
	if (!c->by_hatch)
		return conn_opened(c, &a, c->descriptors);
	/* The name is open, so its space is there. */
	hatch_answer(c->shm->spaces[a.space], c->client->index, c->asked, 0, a.slot);
	return true;
}

static void conn_keep(struct conn *c, const struct attach_opened *a, bool descriptors)
{
	struct shm *shm = c->shm;

	c->answer = *a;
	c->descriptors = descriptors;
	c->kept_next = shm->kept;
	c->kept_at = &shm->kept;
	if (c->kept_next)
		c->kept_next->kept_at = &c->kept_next;
	shm->kept = c;
	loop_timer_set(shm->loop, &c->timer, loop_now(shm->loop) + KEEP_SPAN);
}

void conn_kept(struct shm *shm, const struct space *s, uint32_t slot)
{
	for (struct conn *c = shm->kept, *next; c; c = next) {
		next = c->kept_next;
		if ((c->answer.slot == slot || !slot) && c->answer.space == s->id)
			conn_answer(c);
	}
}

static void conn_open(struct conn *c, const struct attach_open *m)
{
	struct attach_opened a = { .head = { ATTACH_OPENED, sizeof a, 0 } };
	struct space *s = NULL;
	int r = open_in_space(c, m, &s, &a);

	if (r == 0) {
		a.space = s->id;
		a.generation = s->generation;
	}
	a.head.error = -r;
	c->by_hatch = false;
	if (r == 0 && (m->flags & ATTACH_SOON) && m->kind == KIND_LOCK && name_soon(s, a.slot))
		conn_keep(c, &a, m->mapped != a.generation);
	else
		conn_opened(c, &a, r == 0 && m->mapped != a.generation);
}

bool conn_has_hatch(const struct conn *c)
{
	return c->hello.minor >= ATTACH_MINOR_HATCH;
}

bool conn_asked(const struct conn *c, const struct space *s, uint32_t asked)
{
	return c->answer.slot && c->by_hatch && c->answer.space == s->id && c->asked == asked;
}

bool conn_settle(struct conn *c)
{
	return !c->answer.slot || conn_answer(c);
}

void conn_ask(struct conn *c, struct space *s, uint32_t asked, const struct hatch_open *open)
{
	struct client_what what = { .kind = KIND_LOCK, .name = open->name, .len = open->len };
	struct attach_opened a = { .space = s->id };
	const struct peer *p = &c->peer;
	int r = -EINVAL;

	if (object_name_valid(open->name, open->len) && !(open->flags & ~ATTACH_SOON))
		r = space_may(s, p->uid, p->gid, p->groups, p->n_groups) ? 0 : -EACCES;
	if (r == 0)
		r = client_open(c->client, c->shm, s, &what, &a.slot, &a.account);
	if (r == 0 && !space_sound(s))
		r = -EAGAIN;
	c->by_hatch = true;
	c->asked = asked;
	if (r == 0 && (open->flags & ATTACH_SOON) && name_soon(s, a.slot))
		conn_keep(c, &a, false);
	else
		hatch_answer(s, c->client->index, asked, r, a.slot);
}

static struct space *conn_space(struct conn *c, uint32_t id)
{
	return id < LEDGER_SPACES_MAX ? c->shm->spaces[id] : NULL;
}

static void conn_close(struct conn *c, const struct attach_close *m)
{
	struct space *s = conn_space(c, m->space);

	conn_done(c, s ? client_close(c->client, c->shm, s, m->slot) : -EINVAL);
}

/* One that is not open: it may be said again after the answer to a CLOSE got lost. */
static void conn_drop(struct conn *c, const struct attach_close *m)
{
	struct space *s = conn_space(c, m->space);

	if (s)
		client_close(c->client, c->shm, s, m->slot);
}

static void conn_hint(struct conn *c, const struct attach_hint *m)
{
	struct attach_head h = { ATTACH_DONE, sizeof h, 0 };
	struct space *s = conn_space(c, m->space);
	int fd, r = s && !s->broken ? hint_open(c->client, c->shm, s, m->slot, &fd) : -EINVAL;

	if (r < 0) {
		conn_done(c, r);
		return;
	}
	conn_send(c, &h, sizeof h, &fd, 1);
	close(fd);
}

static void conn_onloss(struct conn *c, const struct attach_onloss *m)
{
	struct space *s = conn_space(c, m->space);

	conn_done(c, s && !s->broken ? client_onloss(c->client, c->shm, s, m->slot, m->signo) : -EINVAL);
}

static void conn_delay(struct conn *c, const struct attach_delay *m)
{
	struct space *s = conn_space(c, m->space);

	conn_done(c, s && !s->broken ? client_permits_delay(c->client, c->shm, s, m->slot, m->ms) : -EINVAL);
}

/* With the segment, since the client has mapped nothing of what lies behind the slots. */
static void conn_value(struct conn *c, const struct attach_value *m)
{
	struct attach_head h = { ATTACH_DONE, sizeof h, 0 };
	struct space *s = conn_space(c, m->space);
	int r = s && !s->broken ? client_value(c->client, c->shm, s, m->slot) : -EINVAL;

	if (r < 0)
		conn_done(c, r);
	else
		conn_send(c, &h, sizeof h, &s->fd, 1);
}

static void conn_reader(struct conn *c, const struct attach_reader *m)
{
	struct attach_line a = { .head = { ATTACH_LINE, sizeof a, 0 } };
	struct space *s = conn_space(c, m->space);
	int r = s && !s->broken && client_is_in(c->client, s) ? reader_line(c->client, s, &a.line) : -EINVAL;

	a.head.error = -r;
	conn_send(c, &a, sizeof a, NULL, 0);
}

static void conn_request(void *arg, const void *data, ssize_t n)
{
	struct conn *c = arg;
	union {
		struct attach_head head;
		struct attach_open open;
		struct attach_close close;
		struct attach_hint hint;
		struct attach_onloss onloss;
		struct attach_delay delay;
		struct attach_value value;
		struct attach_reader reader;
		char bytes[ATTACH_PACKET_MAX];
	} m;

	if (n == 0 || (n < 0 && n != -EMSGSIZE)) {
		conn_free(c);            /* it has gone */
		return;
	}
	if (!conn_settle(c))             /* in order */
		return;
	if (conn_has_hatch(c)) {
		hatches_serve(c->client, c->shm);
		conn_settle(c);
	}
	if (n < (ssize_t)sizeof m.head || n > (ssize_t)sizeof m)
		goto bad;
	memcpy(&m, data, (size_t)n);
	if (m.head.len != n)
		goto bad;
	switch (m.head.op) {
	case ATTACH_OPEN:
		if (n < (ssize_t)offsetof(struct attach_open, text) ||
		    (size_t)n != ATTACH_OPEN_LEN(m.open.space_len, m.open.name_len))
			goto bad;
		conn_open(c, &m.open);
		return;
	case ATTACH_CLOSE:
		if (n != sizeof m.close)
			goto bad;
		conn_close(c, &m.close);
		return;
	case ATTACH_DROP:
		if (n != sizeof m.close)
			goto bad;
		conn_drop(c, &m.close);
		return;
	case ATTACH_HINT:
		if (n != sizeof m.hint)
			goto bad;
		conn_hint(c, &m.hint);
		return;
	case ATTACH_ONLOSS:
		if (n != sizeof m.onloss)
			goto bad;
		conn_onloss(c, &m.onloss);
		return;
	case ATTACH_DELAY:
		if (n != sizeof m.delay)
			goto bad;
		conn_delay(c, &m.delay);
		return;
	case ATTACH_VALUE:
		if (n != sizeof m.value)
			goto bad;
		conn_value(c, &m.value);
		return;
	case ATTACH_READER:
		if (n != sizeof m.reader)
			goto bad;
		conn_reader(c, &m.reader);
		return;
	}
bad:
	conn_bad(c);
}

/* --- who is it? --- */

static struct attach_welcome welcome_error(int error)
{
	return (struct attach_welcome){ .head = { ATTACH_WELCOME, sizeof(struct attach_welcome), -error },
					.major = ATTACH_MAJOR, .minor = ATTACH_MINOR };
}

static void conn_refuse(struct conn *c, int error)
{
	struct attach_welcome w = welcome_error(error);

	if (conn_send(c, &w, sizeof w, NULL, 0))
		conn_free(c);
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
		conn_free(cl->conn);
	return cl;
}

static void conn_answer_late(void *arg)
{
	conn_answer(arg);
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
		conn_free(c);            /* it has gone */
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
	conn_free(arg);
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
		conn_free(c);
}

int conn_listen(struct shm *shm, int listen_fd)
{
	int off = 0;

	/* From Linux 6.16 on nobody can send us descriptors at all. */
	setsockopt(listen_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off);
	shm->listen_fd = listen_fd;
	return loop_accept_start(shm->loop, listen_fd, conn_accept, shm, &shm->accept);
}
