/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tls.h"

static void queued_add(struct wire *w, size_t n)
{
	w->queued += (uint32_t)n;
	if (w->queued > w->queued_peak)
		w->queued_peak = w->queued;
}

/* --- All of them --- */

static void wire_release(struct wire *w)
{
	tls_free(w->tls);
	chunks_give(&w->all->pool, &w->out);
	chunks_give(&w->all->pool, &w->clear);
	chunk_give(&w->all->pool, w->urgent);
	free(w);
}

static void reap(void *arg)
{
	struct wires *ws = arg;
	struct wire *w;

	while ((w = ws->dead)) {
		ws->dead = w->next;
		wire_release(w);
	}
}

void wires_init(struct wires *ws, struct loop *loop, const struct wire_ops *ops)
{
	*ws = (struct wires){ .loop = loop, .ops = ops };
	loop_defer_init(&ws->reap, reap, ws);
}

void wires_done(struct wires *ws)
{
	while (ws->ending)
		wire_free(ws->ending, false);
	loop_defer_cancel(ws->loop, &ws->reap);
	reap(ws);
	chunk_pool_done(&ws->pool);
}

/* --- Breaking and ending --- */

static void broken(struct wire *w, const char *why)
{
	if (w->state == WIRE_ENDING) {
		wire_free(w, false);
		return;
	}
	w->state = WIRE_BROKEN;
	snprintf(w->why, sizeof w->why, "%s", why);
	loop_timer_cancel(w->all->loop, &w->timer);
	w->all->ops->broken(w);
}

static void broken_errno(struct wire *w, int error)
{
	switch (-error) {
	case ECONNREFUSED:
		broken(w, "nothing listens there: is dlockd running on that node, with this Listen=?");
		return;
	case EHOSTUNREACH:
	case ENETUNREACH:
		broken(w, "there is no way to that host now: see its network, routes and firewall");
		return;
	case ETIMEDOUT:
		broken(w, "no answer: the host or the network is down, or a firewall drops what is sent");
		return;
	case ECONNRESET:
	case EPIPE:
		broken(w, "the other end has broken the connection");
		return;
	default:
		broken(w, strerror(-error));
		return;
	}
}

static void timed_out(void *arg)
{
	struct wire *w = arg;

	switch (w->state) {
	case WIRE_CONNECTING:
		broken_errno(w, -ETIMEDOUT);
		return;
	case WIRE_SECURING:
		broken(w, w->tls && !w->bytes_in ? "it says nothing" : "it did not finish the TLS handshake in time");
		return;
	case WIRE_OPEN:
		broken(w, "it did not finish the greeting in time");
		return;
	case WIRE_ENDING:
		wire_free(w, false);
		return;
	case WIRE_BROKEN:
	case WIRE_DEAD:
		return;
	}
}

void wire_deadline(struct wire *w, nsec_t when)
{
	loop_timer_set(w->all->loop, &w->timer, when);
}

static void unlink_ending(struct wire *w)
{
	struct wire **at = &w->all->ending;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at) {
		*at = w->next;
		w->all->ending_n--;
	}
}

static void oldest_free(struct wires *ws)
{
	struct wire *w = ws->ending;

	while (w->next)
		w = w->next;
	wire_free(w, true);
}

void wire_free(struct wire *w, bool reset)
{
	struct linger now = { .l_onoff = 1 };

	assert(w->state != WIRE_DEAD);
	if (w->state == WIRE_ENDING)
		unlink_ending(w);
	w->state = WIRE_DEAD;
	loop_timer_cancel(w->all->loop, &w->timer);
	loop_connect_stop(w->connect);
	loop_recv_stop(w->recv);
	loop_send_stop(w->send);
	if (reset)
		(void)setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	/* The kernel's requests hold the socket until they are cancelled; the peer need not wait for that. */
	else
		(void)shutdown(w->fd, SHUT_RDWR);
	close(w->fd);
	w->next = w->all->dead;
	w->all->dead = w;
	loop_defer(w->all->loop, &w->all->reap);
}

static bool all_sent(const struct wire *w)
{
	return !w->sending && !w->out.first && !w->clear.first;
}

void wire_end(struct wire *w)
{
	assert(w->state != WIRE_DEAD && w->state != WIRE_ENDING);
	if (!w->send || !w->recv) {              /* not connected yet, or not any more */
		wire_free(w, !w->send);
		return;
	}
	if (w->tls && w->state == WIRE_OPEN && !w->clear.first)
		tls_bye(w->tls);
	if (w->all->ending_n == WIRE_ENDING_MAX)
		oldest_free(w->all);
	w->all->ending_n++;
	w->state = WIRE_ENDING;
	w->owner = NULL;
	w->next = w->all->ending;
	w->all->ending = w;
	wire_deadline(w, loop_now(w->all->loop) + WIRE_LINGER);
	wire_flush(w);
	if (all_sent(w))
		(void)shutdown(w->fd, SHUT_WR);
}

/* --- Sending --- */

static void sent(void *arg, struct loop_bytes *b, int error)
{
	struct wire *w = arg;

	w->sending = false;
	w->queued -= b->n;
	w->bytes_out += b->n;
	chunk_give(&w->all->pool, b);
	if (error < 0) {
		if (w->state != WIRE_BROKEN)
			broken_errno(w, error);
		return;
	}
	wire_flush(w);
	if (w->state == WIRE_ENDING && all_sent(w))
		(void)shutdown(w->fd, SHUT_WR);
}

/* What TLS wants to send; it may be longer than a chunk. */
static int pushed(void *arg, const void *data, size_t n)
{
	struct wire *w = arg;
	const char *p = data;

	while (n) {
		struct loop_bytes *b = w->out.last;
		size_t room = b && b->n < b->room ? b->room - b->n : WIRE_CHUNK, part = n < room ? n : room;
		int r = chunks_append(&w->all->pool, &w->out, p, part, b ? b->room : WIRE_CHUNK);

		if (r < 0)
			return r;
		queued_add(w, part);
		p += part;
		n -= part;
	}
	return 0;
}

static int encrypt(struct wire *w, struct loop_bytes *b)
{
	int r = tls_write(w->tls, b->data, b->n);

	w->queued -= b->n;
	chunk_give(&w->all->pool, b);
	return r;
}

/* The next chunk to be sent; NULL: there is none. */
static struct loop_bytes *next_chunk(struct wire *w)
{
	struct loop_bytes *b = w->urgent;

	if (b && (!w->tls || !w->out.first)) {
		w->urgent = NULL;
		if (!w->tls)
			return b;
		if (encrypt(w, b) < 0)
			return NULL;
	}
	if (!w->out.first && w->clear.first && encrypt(w, chunks_pop(&w->clear)) < 0)
		return NULL;
	return chunks_pop(&w->out);
}

void wire_flush(struct wire *w)
{
	struct loop_bytes *b;

	if (w->sending || !w->send || w->state == WIRE_DEAD || (w->state == WIRE_BROKEN && !w->out.first))
		return;
	b = next_chunk(w);
	if (!b)
		return;
	w->sending = true;
	w->sends++;
	loop_send(w->send, b, w->out.first || w->clear.first || w->urgent || w->state == WIRE_ENDING);
}

static struct chunks *queue(struct wire *w)
{
	return w->tls ? &w->clear : &w->out;
}

int wire_write(struct wire *w, const void *data, size_t n)
{
	int r;

	assert(n <= WIRE_CHUNK);
	if (w->state != WIRE_OPEN)
		return -ENOTCONN;
	if (w->queued + n > w->all->queue_max)
		return -ENOBUFS;
	r = chunks_append(&w->all->pool, queue(w), data, n, WIRE_CHUNK);
	if (r == 0)
		queued_add(w, n);
	return r;
}

int wire_urgent(struct wire *w, const void *data, size_t n)
{
	struct chunks *c = queue(w);

	if (w->state != WIRE_OPEN)
		return -ENOTCONN;
	if (c->first == c->last && !w->urgent)   /* one chunk or none: it goes along */
		return wire_write(w, data, n);
	if (!w->urgent)
		w->urgent = chunk_take(&w->all->pool);
	if (!w->urgent)
		return -ENOMEM;
	w->queued -= w->urgent->n;
	memcpy(w->urgent->data, data, n);
	w->urgent->n = (uint32_t)n;
	queued_add(w, n);
	return 0;
}

/* --- Receiving --- */

static int take(void *arg, const void *data, size_t n)
{
	struct wire *w = arg;

	w->all->ops->bytes(w, data, n);
	return w->state == WIRE_OPEN ? 0 : -ECANCELED;
}

static void tls_failed(struct wire *w)
{
	wire_flush(w);                           /* the alert */
	broken(w, tls_why(w->tls));
}

static void read_tls(struct wire *w)
{
	int r = tls_read(w->tls, take, w);

	if (w->state != WIRE_OPEN)
		return;
	if (r == 0)
		broken(w, "the other end has closed the connection");
	else if (r == -EPROTO)
		tls_failed(w);
	else
		wire_flush(w);                   /* TLS may have something to say of its own */
}

static void secure(struct wire *w)
{
	int r = tls_handshake(w->tls);

	if (r == -EPROTO) {
		tls_failed(w);
		return;
	}
	if (r == 0) {
		w->state = WIRE_OPEN;
		w->all->ops->open(w);
		if (w->state != WIRE_OPEN)
			return;
	}
	wire_flush(w);
	if (r == 0)
		read_tls(w);
}

/* A greeting in plain text begins otherwise than a TLS handshake; after its first byte TLS sees to itself. */
static void first_bytes(struct wire *w, const uint8_t *p, size_t n)
{
	if (*p == TLS_FIRST_BYTE || *p == 0x15) {        /* or an alert */
		tls_feed(w->tls, p, n);
		secure(w);
		return;
	}
	tls_free(w->tls);
	w->tls = NULL;
	chunks_give(&w->all->pool, &w->out);
	w->queued = w->sending ? w->queued : 0;
	w->state = WIRE_OPEN;
	w->all->ops->plain(w, p, n);
}

static void received(void *arg, const void *data, ssize_t n)
{
	struct wire *w = arg;
	bool first = w->bytes_in == 0;

	if (n <= 0) {
		loop_recv_stop(w->recv);
		w->recv = NULL;
		if (w->state == WIRE_ENDING)
			wire_free(w, false);
		else if (w->state != WIRE_BROKEN && n == 0)
			broken(w, "the other end has closed the connection");
		else if (w->state != WIRE_BROKEN)
			broken_errno(w, (int)n);
		return;
	}
	w->bytes_in += (uint64_t)n;
	switch (w->state) {
	case WIRE_SECURING:
		if (first) {
			first_bytes(w, data, (size_t)n);
			return;
		}
		tls_feed(w->tls, data, (size_t)n);
		secure(w);
		return;
	case WIRE_OPEN:
		if (w->tls) {
			tls_feed(w->tls, data, (size_t)n);
			read_tls(w);
		} else {
			w->all->ops->bytes(w, data, (size_t)n);
		}
		return;
	case WIRE_CONNECTING:
	case WIRE_BROKEN:
	case WIRE_ENDING:
	case WIRE_DEAD:
		return;
	}
}

/* --- Beginning --- */

static void set_option(int fd, int level, int name, int value)
{
	(void)setsockopt(fd, level, name, &value, sizeof value);
}

static int seconds_up(nsec_t span)
{
	return (int)((span + NSEC_PER_SEC - 1) / NSEC_PER_SEC);
}

/* The beats notice a broken connection; TCP's own time-outs also end what the kernel still keeps for it. */
static void socket_prepare(const struct wires *ws, int fd)
{
	int idle = seconds_up(ws->silence / 2);

	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, idle);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(ws->silence / NSEC_PER_MSEC));
}

static void addresses_read(struct wire *w)
{
	socklen_t n = sizeof w->local;

	(void)getsockname(w->fd, &w->local.any, &n);
	n = sizeof w->remote;
	(void)getpeername(w->fd, &w->remote.any, &n);
}

static struct wire *wire_new(struct wires *ws, int fd, void *owner)
{
	struct wire *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->all = ws;
	w->fd = fd;
	w->owner = owner;
	loop_timer_init(&w->timer, timed_out, w);
	return w;
}

/* Once TCP is there. */
static int wire_begin(struct wire *w)
{
	int r;

	addresses_read(w);
	r = loop_send_open(w->all->loop, w->fd, sent, w, &w->send);
	if (r == 0)
		r = loop_recv_start(w->all->loop, w->fd, received, w, &w->recv);
	w->state = WIRE_SECURING;
	return r;
}

static void connected(void *arg, int error)
{
	struct wire *w = arg;

	loop_connect_stop(w->connect);
	w->connect = NULL;
	if (error == 0)
		error = wire_begin(w);
	if (error < 0) {
		broken_errno(w, error);
		return;
	}
	w->all->ops->connected(w);
	if (w->state != WIRE_SECURING)
		return;
	if (w->tls) {
		secure(w);
		return;
	}
	w->state = WIRE_OPEN;
	w->all->ops->open(w);
}

static int tls_begin(struct wire *w, const struct tls_keys *keys)
{
	return keys ? tls_create(keys, w->server, pushed, w, &w->tls) : 0;
}

int wire_dial(struct wires *ws, const union address *to, const struct tls_keys *keys, void *owner, struct wire **ret)
{
	int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), r;
	struct wire *w;

	if (fd < 0)
		return -errno;
	socket_prepare(ws, fd);
	w = wire_new(ws, fd, owner);
	if (!w) {
		close(fd);
		return -ENOMEM;
	}
	w->remote = *to;
	w->state = WIRE_CONNECTING;
	r = tls_begin(w, keys);
	if (r == 0)
		r = loop_connect_start(ws->loop, fd, &to->any, address_size(to), connected, w, &w->connect);
	if (r < 0) {
		wire_free(w, false);
		return r;
	}
	*ret = w;
	return 0;
}

int wire_accept(struct wires *ws, int fd, const struct tls_keys *keys, void *owner, struct wire **ret)
{
	struct wire *w = wire_new(ws, fd, owner);
	int r;

	if (!w) {
		close(fd);
		return -ENOMEM;
	}
	socket_prepare(ws, fd);
	w->server = true;
	r = tls_begin(w, keys);
	if (r == 0)
		r = wire_begin(w);
	if (r < 0) {
		wire_free(w, false);
		return r;
	}
	if (!w->tls)
		w->state = WIRE_OPEN;
	*ret = w;
	return 0;
}

const char *wire_security(const struct wire *w)
{
	return w->tls ? tls_text(w->tls) : "plain text";
}
