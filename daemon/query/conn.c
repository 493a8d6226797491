/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "query.h"

#define READ_MAX 4096            /* in one step */

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

/* The caller's groups, the primary one first. */
static int groups_read(int fd, gid_t primary, gid_t **ret, size_t *ret_n)
{
	gid_t *groups = calloc(1 + CONN_GROUPS_MAX, sizeof(*groups));
	socklen_t size = CONN_GROUPS_MAX * sizeof(*groups);
	size_t n = 1;
	gid_t *fit;

	if (!groups)
		return -ENOMEM;
	groups[0] = primary;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups + 1, &size) == 0)
		n += size / sizeof(*groups);
	fit = realloc(groups, n * sizeof(*groups));
	*ret = fit ? fit : groups;
	*ret_n = n;
	return 0;
}

static int caller_read(struct conn *c, struct session_caller *ret)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);
	int r;

	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	r = groups_read(c->fd, cred.gid, &c->groups, &ret->n_groups);
	if (r < 0)
		return r;
	c->pid = cred.pid;
	c->uid = cred.uid;
	ret->uid = cred.uid;
	ret->groups = c->groups;
	return 0;
}

static void on_writable(void *arg, uint32_t revents)
{
	struct conn *c = arg;

	(void)revents;                   /* an error shows when sending */
	loop_defer(c->loop, &c->defer);
}

/* Until all is sent or the caller has to read first. */
static int conn_send(struct conn *c)
{
	struct varlink_buf *out = &c->session.out;

	while (varlink_buf_length(out) > 0) {
		ssize_t n = send(c->fd, out->data + out->start, varlink_buf_length(out),
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n < 0)
			break;
		varlink_buf_drop(out, (size_t)n);
	}
	if (varlink_buf_length(out) == 0) {
		loop_unwatch(c->out);
		c->out = NULL;
		return 0;
	}
	c->blocked = loop_now(c->loop);
	return c->out ? 0 : loop_watch(c->loop, c->fd, POLLOUT, on_writable, c, &c->out);
}

static void on_answer(void *arg)
{
	struct conn *c = arg;

	loop_defer(c->loop, &c->defer);
}

static int conn_read(struct conn *c)
{
	size_t room = session_room(&c->session);
	char buf[READ_MAX];
	ssize_t n;

	if (room == 0 || !c->readable)
		return 0;
	do {
		n = recv(c->fd, buf, room < sizeof(buf) ? room : sizeof(buf), MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		return session_input(&c->session, buf, (size_t)n);
	c->readable = false;
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	c->eof = true;
	return 0;
}

/* Everything that can be asked for has been answered, and nothing more can come. */
static bool conn_finished(const struct conn *c)
{
	return c->eof && c->session.state == SESSION_READY && varlink_buf_length(&c->session.out) == 0;
}

static void conn_end(struct conn *c, int error)
{
	c->on_end(c->arg, c, error);
}

static void conn_step(void *arg)
{
	struct conn *c = arg;
	size_t before;
	int r, more;

	r = conn_send(c);
	if (r >= 0)
		r = conn_read(c);
	if (r < 0) {
		conn_end(c, r == -ENOMEM ? r : 0);
		return;
	}
	more = session_step(&c->session);
	before = varlink_buf_length(&c->session.out);
	r = conn_send(c);
	if (more < 0 || r < 0 || (more == 0 && conn_finished(c))) {
		conn_end(c, more < 0 ? more : 0);
		return;
	}
	if (more > 0 || varlink_buf_length(&c->session.out) < before ||
	    (c->readable && session_room(&c->session) > 0))
		loop_defer(c->loop, &c->defer);
}

static void on_readable(void *arg, uint32_t revents)
{
	struct conn *c = arg;

	if (revents & (POLLHUP | POLLERR | POLLNVAL)) {
		conn_end(c, 0);
		return;
	}
	c->readable = true;
	loop_defer(c->loop, &c->defer);
}

int conn_create(struct loop *loop, int fd, const struct query_source *source,
		void (*on_end)(void *arg, struct conn *c, int error), void *arg, struct conn **ret)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct session_caller caller;
	int r;

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	c->loop = loop;
	c->fd = fd;
	c->on_end = on_end;
	c->arg = arg;
	loop_defer_init(&c->defer, conn_step, c);
	r = caller_read(c, &caller);
	if (r >= 0) {
		session_init(&c->session, source, &caller);
		c->session.wake = on_answer;
		c->session.wake_arg = c;
		r = loop_watch(loop, fd, POLLIN, on_readable, c, &c->in);
	}
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void conn_free(struct conn *c)
{
	if (!c)
		return;
	loop_unwatch(c->in);
	loop_unwatch(c->out);
	loop_defer_cancel(c->loop, &c->defer);
	close(c->fd);
	session_done(&c->session);
	free(c->groups);
	free(c);
}

bool conn_watching(const struct conn *c)
{
	return c->session.state == SESSION_WATCHING;
}

void conn_event(struct conn *c, const struct varlink_buf *message)
{
	session_event_put(&c->session, message);
	if (!c->out)
		loop_defer(c->loop, &c->defer);
}

bool conn_stalled(const struct conn *c, nsec_t now, nsec_t span)
{
	return c->out && now - c->blocked >= span;
}
