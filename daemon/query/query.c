/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "../loop/loop.h"
#include "conn.h"
#include "query.h"

struct query {
	struct loop *loop;
	int listen_fd;
	struct loop_accept *accept;
	struct query_source source;
	struct conn *first;
	unsigned n_conns;
};

__attribute__((format(printf, 3, 4)))
static void query_log(const struct query *q, int priority, const char *format, ...)
{
	char text[256];
	va_list ap;

	if (!q->source.log)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	q->source.log(q->source.arg, priority, text);
}

static void conn_link(struct query *q, struct conn *c)
{
	c->next = q->first;
	if (c->next)
		c->next->prev = c;
	q->first = c;
	q->n_conns++;
}

static void conn_remove(struct query *q, struct conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		q->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	q->n_conns--;
	conn_free(c);
}

static const char *end_reason(int error)
{
	switch (error) {
	case -EBADMSG:
		return "sent what is no Varlink call";
	case -EMSGSIZE:
		return "sent a call that is too long";
	case -ENOMEM:
		return "could not be answered for lack of memory";
	default:
		return strerror(-error);
	}
}

static void on_end(void *arg, struct conn *c, int error)
{
	struct query *q = arg;

	if (error < 0)
		query_log(q, LOG_NOTICE, "process %d of user %u %s; connection closed", (int)c->pid,
			  (unsigned)c->uid, end_reason(error));
	conn_remove(q, c);
}

/* Those who do not read stand in nobody's way. True: one has gone. */
static bool make_room(struct query *q, bool any, uid_t uid)
{
	nsec_t now = loop_now(q->loop);

	for (struct conn *c = q->first; c; c = c->next) {
		if ((any || c->uid == uid) && conn_stalled(c, now, QUERY_STALL)) {
			query_log(q, LOG_NOTICE, "process %d of user %u leaves its answers unread; "
				  "connection closed to make room", (int)c->pid, (unsigned)c->uid);
			conn_remove(q, c);
			return true;
		}
	}
	return false;
}

static bool admit(struct query *q, uid_t uid)
{
	unsigned max = uid == 0 ? QUERY_CONNS_MAX : QUERY_CONNS_MAX - QUERY_CONNS_ROOT, own = 0;

	for (const struct conn *c = q->first; c; c = c->next)
		own += c->uid == uid;
	if (uid != 0 && own >= QUERY_CONNS_UID_MAX && !make_room(q, false, uid))
		return false;
	return q->n_conns < max || make_room(q, true, uid);
}

static const char refusal[] = "{\"error\":\"io.dlock.TooManyConnections\",\"parameters\":{}}";

static void on_accept(void *arg, int fd)
{
	struct query *q = arg;
	struct ucred cred = { 0 };
	socklen_t size = sizeof(cred);
	struct conn *c;
	int r;

	if (fd < 0) {
		query_log(q, LOG_ERR, "cannot take a connection: %s", strerror(-fd));
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0 || !admit(q, cred.uid)) {
		query_log(q, LOG_WARNING, "too many connections; process %d of user %u refused",
			  (int)cred.pid, (unsigned)cred.uid);
		(void)send(fd, refusal, sizeof(refusal), MSG_DONTWAIT | MSG_NOSIGNAL);
		close(fd);
		return;
	}
	r = conn_create(q->loop, fd, &q->source, on_end, q, &c);
	if (r < 0)
		query_log(q, LOG_ERR, "cannot serve a connection: %s", strerror(-r));
	else
		conn_link(q, c);
}

int query_start(struct loop *loop, int listen_fd, const struct query_source *source, struct query **ret)
{
	struct query *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	q->loop = loop;
	q->source = *source;
	q->listen_fd = listen_fd;
	r = loop_accept_start(loop, listen_fd, on_accept, q, &q->accept);
	if (r < 0) {
		free(q);
		return r;
	}
	*ret = q;
	return 0;
}

void query_free(struct query *q)
{
	if (!q)
		return;
	while (q->first)
		conn_remove(q, q->first);
	loop_accept_stop(q->accept);
	close(q->listen_fd);
	free(q);
}

bool query_watched(const struct query *q)
{
	for (const struct conn *c = q->first; c; c = c->next)
		if (conn_watching(c))
			return true;
	return false;
}

void query_event(struct query *q, const struct query_event *ev)
{
	struct varlink_buf message = { .max = SESSION_EVENTS_MAX };

	for (struct conn *c = q->first; c; c = c->next) {
		if (!session_wants(&c->session, ev))
			continue;
		/* Made for the first who wants it. Without memory it stays empty, and counts as lost. */
		if (varlink_buf_length(&message) == 0 && session_event_format(ev, &message) < 0)
			c->session.dropped++;
		else
			conn_event(c, &message);
	}
	varlink_buf_done(&message);
}
