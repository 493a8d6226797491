/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The attach socket (attach.h): what a client asks for. One packet a request, one answer each, in order. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../include/proto/hatch.h"
#include "../../include/proto/name.h"
#include "conn_int.h"
#include "object.h"
#include "word.h"

/* An answer for a lease: many round trips between nodes, since under load it would cost twice as much to give up and ask again. */
#define KEEP_SPAN (10 * NSEC_PER_MSEC)

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

void conn_end(struct conn *c)
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

void conn_bad(struct conn *c)
{
	shm_tell(c->shm, "bad-packet", NULL, 0, c->pid, 0, "what it sent to the attach socket is no request");
	conn_end(c);
}

void conn_close_all(struct shm *shm)
{
	loop_accept_stop(shm->accept);
	shm->accept = NULL;
	while (shm->conns)
		conn_end(shm->conns);
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

bool conn_send(struct conn *c, const void *packet, size_t n, const int *fds, unsigned n_fds)
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
	conn_end(c);
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

void conn_answer_late(void *arg)
{
	conn_answer(arg);
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

/* What all of a kind are long; 0: an OPEN, which ends in text, or none that we know. */
static size_t request_size(uint16_t op)
{
	switch (op) {
	case ATTACH_CLOSE: case ATTACH_DROP:
		return sizeof(struct attach_close);
	case ATTACH_HINT:
		return sizeof(struct attach_hint);
	case ATTACH_ONLOSS:
		return sizeof(struct attach_onloss);
	case ATTACH_DELAY:
		return sizeof(struct attach_delay);
	case ATTACH_VALUE:
		return sizeof(struct attach_value);
	case ATTACH_READER:
		return sizeof(struct attach_reader);
	}
	return 0;
}

union request {
	struct attach_head head;
	struct attach_open open;
	struct attach_close close;
	struct attach_hint hint;
	struct attach_onloss onloss;
	struct attach_delay delay;
	struct attach_value value;
	struct attach_reader reader;
	char bytes[ATTACH_PACKET_MAX];
};

static bool request_good(const union request *m, size_t n)
{
	if (n < sizeof m->head || m->head.len != n)
		return false;
	if (m->head.op == ATTACH_OPEN)
		return n >= offsetof(struct attach_open, text) && n == ATTACH_OPEN_LEN(m->open.space_len, m->open.name_len);
	return request_size(m->head.op) == n;
}

static void conn_take(struct conn *c, const union request *m)
{
	switch (m->head.op) {
	case ATTACH_OPEN:
		conn_open(c, &m->open);
		return;
	case ATTACH_CLOSE:
		conn_close(c, &m->close);
		return;
	case ATTACH_DROP:
		conn_drop(c, &m->close);
		return;
	case ATTACH_HINT:
		conn_hint(c, &m->hint);
		return;
	case ATTACH_ONLOSS:
		conn_onloss(c, &m->onloss);
		return;
	case ATTACH_DELAY:
		conn_delay(c, &m->delay);
		return;
	case ATTACH_VALUE:
		conn_value(c, &m->value);
		return;
	case ATTACH_READER:
		conn_reader(c, &m->reader);
		return;
	}
}

void conn_request(void *arg, const void *data, ssize_t n)
{
	struct conn *c = arg;
	union request m;

	if (n == 0 || (n < 0 && n != -EMSGSIZE)) {
		conn_end(c);            /* it has gone */
		return;
	}
	if (!conn_settle(c))             /* in order */
		return;
	if (conn_has_hatch(c)) {
		hatches_serve(c->client, c->shm);
		conn_settle(c);
	}
	if (n < 0 || n > (ssize_t)sizeof m) {
		conn_bad(c);
		return;
	}
	memcpy(&m, data, (size_t)n);
	if (request_good(&m, (size_t)n))
		conn_take(c, &m);
	else
		conn_bad(c);
}
