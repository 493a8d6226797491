/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake_loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../include/proto/futex.h"

#define BEGIN (1000 * NSEC_PER_SEC)

enum kind { WATCH, RECV, READ, ACCEPT, SEND, CONNECT };

struct source {
	struct source *next;
	enum kind kind;
	int fd;
	uint32_t events;
	size_t size;
	void (*bytes)(void *arg, const void *data, ssize_t n);
	void (*ready)(void *arg, uint32_t revents);
	void (*accepted)(void *arg, int fd_or_error);
	void (*sent)(void *arg, struct loop_bytes *b, int error);
	void (*connected)(void *arg, int error);
	struct loop_bytes *sending;
	struct sockaddr_storage address;
	socklen_t address_n;
	void *arg;
	bool ended, stopped;
};

struct loop {
	struct source *sources;
	struct loop_timer timers;        /* head of a ring, by time */
	struct loop_defer defers, next_defers;
	uint64_t serial, turn;
	nsec_t now;
	const struct loop_look *look;
	bool stopping;
	int code;
};

static nsec_t fake_now = BEGIN;

int loop_create(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof *l);

	if (!l)
		return -ENOMEM;
	l->timers.next = l->timers.prev = &l->timers;
	l->defers.next = l->defers.prev = &l->defers;
	l->next_defers.next = l->next_defers.prev = &l->next_defers;
	l->now = fake_now;
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	struct source *s, *next;

	for (s = l ? l->sources : NULL; s; s = next) {
		next = s->next;
		free(s->sending);
		free(s);
	}
	free(l);
}

const char *loop_explain(int error)
{
	(void)error;
	return "the loop that tests turn by hand";
}

nsec_t loop_now(const struct loop *l)
{
	return l->now;
}

nsec_t loop_clock(void)
{
	return fake_now;
}

void loop_set_spin(struct loop *l, nsec_t span)
{
	(void)l, (void)span;
}

void loop_set_look(struct loop *l, const struct loop_look *look)
{
	l->look = look;
}

/* Where nothing has happened the loop would sleep now. */
static unsigned look_turn(struct loop *l, bool quiet)
{
	const struct loop_look *k = l->look;

	if (!k)
		return 0;
	return (k->peek(k->arg) && k->run(k->arg)) || (quiet && !k->rest(k->arg));
}

void loop_stop(struct loop *l, int code)
{
	l->stopping = true;
	l->code = code;
}

int loop_run(struct loop *l)
{
	l->stopping = false;
	while (!l->stopping)
		fake_loop_advance(l, NSEC_PER_MSEC);
	return l->code;
}

int loop_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg)
{
	(void)l, (void)signo, (void)fn, (void)arg;
	return 0;
}

/* --- sources --- */

static struct source *source_new(struct loop *l, enum kind kind, int fd, void *arg)
{
	struct source *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->kind = kind;
	s->fd = fd;
	s->arg = arg;
	s->next = l->sources;
	l->sources = s;
	return s;
}

static void source_stop(void *handle)
{
	if (handle)
		((struct source *)handle)->stopped = true;
}

int loop_watch(struct loop *l, int fd, uint32_t poll_events, void (*fn)(void *arg, uint32_t revents), void *arg,
	       struct loop_watch **ret)
{
	struct source *s = source_new(l, WATCH, fd, arg);

	if (!s)
		return -ENOMEM;
	s->ready = fn;
	s->events = poll_events;
	*ret = (struct loop_watch *)s;
	return 0;
}

int loop_recv_start(struct loop *l, int fd, void (*fn)(void *arg, const void *data, ssize_t n), void *arg,
		    struct loop_recv **ret)
{
	struct source *s = source_new(l, RECV, fd, arg);

	if (!s)
		return -ENOMEM;
	s->bytes = fn;
	*ret = (struct loop_recv *)s;
	return 0;
}

int loop_read_start(struct loop *l, int fd, size_t bufsize, void (*fn)(void *arg, const void *data, ssize_t n), void *arg,
		    struct loop_read **ret)
{
	struct source *s = source_new(l, READ, fd, arg);

	if (!s)
		return -ENOMEM;
	s->bytes = fn;
	s->size = bufsize;
	*ret = (struct loop_read *)s;
	return 0;
}

int loop_accept_start(struct loop *l, int fd, void (*fn)(void *arg, int fd_or_error), void *arg, struct loop_accept **ret)
{
	struct source *s = source_new(l, ACCEPT, fd, arg);

	if (!s)
		return -ENOMEM;
	s->accepted = fn;
	*ret = (struct loop_accept *)s;
	return 0;
}

int loop_send_open(struct loop *l, int fd, void (*fn)(void *arg, struct loop_bytes *b, int error), void *arg,
		   struct loop_send **ret)
{
	struct source *s = source_new(l, SEND, fd, arg);

	if (!s)
		return -ENOMEM;
	s->sent = fn;
	*ret = (struct loop_send *)s;
	return 0;
}

void loop_wake(struct loop *l, uint32_t *word)
{
	(void)l;
	futex_wake_class(word, 1, FUTEX_BITSET_MATCH_ANY);
}

void loop_send(struct loop_send *handle, struct loop_bytes *b, bool tell)
{
	(void)tell;
	b->done = 0;
	((struct source *)handle)->sending = b;
}

int loop_connect_start(struct loop *l, int fd, const struct sockaddr *address, socklen_t n, void (*fn)(void *arg, int error),
		       void *arg, struct loop_connect **ret)
{
	struct source *s = source_new(l, CONNECT, fd, arg);

	if (!s)
		return -ENOMEM;
	memcpy(&s->address, address, n);
	s->address_n = n;
	s->connected = fn;
	*ret = (struct loop_connect *)s;
	return 0;
}

void loop_send_stop(struct loop_send *s)
{
	source_stop(s);
}

void loop_connect_stop(struct loop_connect *c)
{
	source_stop(c);
}

void loop_unwatch(struct loop_watch *w)
{
	source_stop(w);
}

void loop_recv_stop(struct loop_recv *r)
{
	source_stop(r);
}

void loop_read_stop(struct loop_read *r)
{
	source_stop(r);
}

void loop_accept_stop(struct loop_accept *a)
{
	source_stop(a);
}

/* The memory that a callback sees ends where its data end, so that a sanitizer sees a step beyond. */
static void bytes_give(struct source *s, const char *buf, ssize_t n)
{
	char *copy = n > 0 ? malloc((size_t)n) : NULL;

	for (ssize_t i = 0; copy && i < n; i++)
		copy[i] = buf[i];
	s->ended = n == 0 || (n < 0 && n != -EMSGSIZE);
	s->bytes(s->arg, copy, n);
	free(copy);
}

static bool source_bytes(struct source *s)
{
	static char buf[65536];
	ssize_t n = s->kind == RECV ? recv(s->fd, buf, LOOP_RECV_MAX, MSG_DONTWAIT | MSG_TRUNC)
				    : read(s->fd, buf, s->size < sizeof buf ? s->size : sizeof buf);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0)
		n = -errno;
	bytes_give(s, buf, n > LOOP_RECV_MAX && s->kind == RECV ? -EMSGSIZE : n);
	return true;
}

static bool source_send(struct source *s)
{
	struct loop_bytes *b = s->sending;
	ssize_t n = b ? send(s->fd, b->data + b->done, b->n - b->done, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	if (!b || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return false;
	if (n > 0)
		b->done += (uint32_t)n;
	if (n < 0 || b->done == b->n) {
		s->sending = NULL;
		s->sent(s->arg, b, n < 0 ? -errno : 0);
	}
	return true;
}

static bool source_turn(struct source *s)
{
	struct pollfd p = { s->fd, (short)(s->kind == WATCH ? s->events : POLLIN), 0 };
	int fd;

	if (s->kind == SEND)
		return source_send(s);
	if (s->kind == CONNECT) {
		s->ended = true;
		s->connected(s->arg, connect(s->fd, (struct sockaddr *)&s->address, s->address_n) < 0 ? -errno : 0);
		return true;
	}
	if (poll(&p, 1, 0) <= 0)
		return false;
	switch (s->kind) {
	case WATCH:
		s->ended = p.revents & POLLNVAL;
		s->ready(s->arg, (uint32_t)p.revents);
		return true;
	case RECV:
	case READ:
		return source_bytes(s);
	case ACCEPT:
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && errno == EAGAIN)
			return false;
		s->accepted(s->arg, fd < 0 ? -errno : fd);
		return fd >= 0;
	case SEND:
	case CONNECT:
		break;
	}
	return false;
}

static unsigned sources_turn(struct loop *l)
{
	unsigned n = 0;

	for (struct source *s = l->sources; s; s = s->next)
		if (!s->stopped && !s->ended)
			n += source_turn(s);
	for (struct source **at = &l->sources, *s; (s = *at);) {
		if (!s->stopped) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s->sending);
		free(s);
	}
	return n;
}

unsigned fake_loop_sources(const struct loop *l)
{
	unsigned n = 0;

	for (const struct source *s = l->sources; s; s = s->next)
		n += !s->stopped;
	return n;
}

/* --- timers --- */

void loop_timer_init(struct loop_timer *t, void (*fn)(void *arg), void *arg)
{
	*t = (struct loop_timer){ .fn = fn, .arg = arg };
}

int loop_timer_set(struct loop *l, struct loop_timer *t, nsec_t when)
{
	struct loop_timer *at = l->timers.prev;

	loop_timer_cancel(l, t);
	if (when == NSEC_NEVER)
		return 0;
	for (at = l->timers.prev; at != &l->timers && at->when > when;)
		at = at->prev;
	t->when = when;
	t->serial = ++l->serial;
	t->queued = true;
	t->prev = at;
	t->next = at->next;
	at->next->prev = t;
	at->next = t;
	return 0;
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
	(void)l;
	if (!t || !t->queued)
		return;
	t->prev->next = t->next;
	t->next->prev = t->prev;
	t->next = t->prev = NULL;
	t->queued = false;
}

nsec_t fake_loop_next_timer(const struct loop *l)
{
	return l->timers.next == &l->timers ? NSEC_NEVER : l->timers.next->when;
}

/* Those that are due, of which none is set anew by itself within the turn. */
static unsigned timers_turn(struct loop *l)
{
	uint64_t last = l->serial;
	unsigned n = 0;

	for (struct loop_timer *t = l->timers.next, *next; t != &l->timers && t->when <= l->now; t = next) {
		next = t->next;
		if (t->serial > last)
			continue;
		loop_timer_cancel(l, t);
		t->fn(t->arg);
		n++;
		next = l->timers.next;   /* fn may have cancelled any */
	}
	return n;
}

/* --- what is deferred --- */

void loop_defer_init(struct loop_defer *d, void (*fn)(void *arg), void *arg)
{
	*d = (struct loop_defer){ .fn = fn, .arg = arg };
}

static void defer_append(struct loop_defer *head, struct loop_defer *d)
{
	d->next = head;
	d->prev = head->prev;
	head->prev->next = d;
	head->prev = d;
}

void loop_defer(struct loop *l, struct loop_defer *d)
{
	if (!d->next)
		defer_append(d->turn == l->turn && l->turn ? &l->next_defers : &l->defers, d);
}

void loop_defer_late(struct loop *l, struct loop_defer *d)
{
	loop_defer(l, d);
}

void loop_defer_cancel(struct loop *l, struct loop_defer *d)
{
	(void)l;
	if (!d || !d->next)
		return;
	d->prev->next = d->next;
	d->next->prev = d->prev;
	d->next = d->prev = NULL;
}

static unsigned defers_turn(struct loop *l)
{
	struct loop_defer *d;
	unsigned n = 0;

	while ((d = l->defers.next) != &l->defers) {
		loop_defer_cancel(l, d);
		d->turn = l->turn;
		d->fn(d->arg);
		n++;
	}
	while ((d = l->next_defers.next) != &l->next_defers) {
		loop_defer_cancel(l, d);
		defer_append(&l->defers, d);
	}
	return n;
}

/* --- turning it --- */

unsigned fake_loop_turn(struct loop *l)
{
	unsigned n;

	l->turn++;
	l->now = fake_now;
	n = sources_turn(l);
	n += timers_turn(l);
	n += look_turn(l, n == 0);
	return n + defers_turn(l);
}

bool fake_loop_settle(struct loop *l, unsigned max)
{
	while (max--)
		if (!fake_loop_turn(l))
			return true;
	return false;
}

void fake_loop_advance(struct loop *l, nsec_t span)
{
	nsec_t end = fake_now + span, next;

	fake_loop_settle(l, 1000);
	while ((next = fake_loop_next_timer(l)) <= end) {
		if (next > fake_now)
			fake_now = next;
		fake_loop_settle(l, 1000);
	}
	fake_now = end;
	l->now = fake_now;
}
