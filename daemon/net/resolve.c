/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request is shared by the loop and its thread: each holds it until it has let go, the last one frees it. The thread
 * writes the answer, then hands the request over through a pipe, as a pointer (a write of that size is whole). If
 * nobody wants it any more it is only freed.
 */
#include "resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../loop/loop.h"

#define STACK_SIZE (256 * 1024)

/* Both ends of the pipe belong to all who may still write to it. */
struct channel {
	pthread_mutex_t mutex;
	int fds[2];
	unsigned users;
	bool closed;                     /* nobody reads any more */
};

struct resolve {
	struct resolver *resolver;       /* the loop's */
	struct resolve *next;            /* in line, or under way */
	struct channel *channel;
	resolve_fn fn;                   /* NULL: stopped */
	void *arg;
	char host[ADDRESS_HOST_MAX + 1];
	uint16_t port;
	union address v[RESOLVE_ADDRESSES];      /* the thread's, until it has handed over */
	unsigned n;
	int error;
};

struct resolver {
	struct loop *loop;
	struct channel *channel;
	struct loop_read *read;
	struct resolve *line, *running;
	unsigned threads;
	struct loop_defer begin;
};

static void channel_release(struct channel *c)
{
	bool last;

	pthread_mutex_lock(&c->mutex);
	last = --c->users == 0;
	pthread_mutex_unlock(&c->mutex);
	if (!last)
		return;
	close(c->fds[0]);
	close(c->fds[1]);
	pthread_mutex_destroy(&c->mutex);
	free(c);
}

/* --- The thread --- */

static void addresses_take(struct resolve *q, const struct addrinfo *list)
{
	for (const struct addrinfo *i = list; i && q->n < RESOLVE_ADDRESSES; i = i->ai_next) {
		union address *a = &q->v[q->n];

		if (i->ai_addrlen > sizeof *a || (i->ai_family != AF_INET && i->ai_family != AF_INET6))
			continue;
		memcpy(a, i->ai_addr, i->ai_addrlen);
		a->in.sin_port = htons(q->port);
		q->n++;
	}
}

static void *resolve_thread(void *arg)
{
	struct resolve *q = arg;
	struct channel *c = q->channel;
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG }, *list;

	q->error = getaddrinfo(q->host, NULL, &hints, &list);
	if (q->error == 0) {
		addresses_take(q, list);
		freeaddrinfo(list);
	}
	pthread_mutex_lock(&c->mutex);
	/* Room for RESOLVE_MAX pointers there always is, and both ends are open. */
	if (c->closed)
		free(q);
	else
		while (write(c->fds[1], &q, sizeof q) < 0 && errno == EINTR)
			;
	pthread_mutex_unlock(&c->mutex);
	channel_release(c);
	return NULL;
}

/* Signals are the loop's. */
static int thread_start(struct resolve *q)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, resolve_thread, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

/* --- The loop's side --- */

static void list_remove(struct resolve **list, struct resolve *q)
{
	while (*list && *list != q)
		list = &(*list)->next;
	if (*list)
		*list = q->next;
}

static void finish(struct resolve *q)
{
	resolve_fn fn = q->fn;
	const char *why = q->error ? gai_strerror(q->error) : "it has no address";

	if (fn)
		fn(q->arg, q->v, q->n, q->n ? "" : why);
	free(q);
}

static void line_begin(void *arg)
{
	struct resolver *r = arg;

	while (r->line && r->threads < RESOLVE_MAX) {
		struct resolve *q = r->line, **last = &r->line;

		while (q->next) {                /* the oldest is at the end */
			last = &q->next;
			q = q->next;
		}
		*last = NULL;
		q->channel = r->channel;
		pthread_mutex_lock(&r->channel->mutex);
		r->channel->users++;
		pthread_mutex_unlock(&r->channel->mutex);
		if (thread_start(q) < 0) {
			channel_release(r->channel);
			q->error = EAI_MEMORY;
			finish(q);
			continue;
		}
		r->threads++;
		q->next = r->running;
		r->running = q;
	}
}

static void answers_take(void *arg, const void *data, ssize_t n)
{
	struct resolver *r = arg;
	struct resolve *q;

	pthread_mutex_lock(&r->channel->mutex);         /* what the threads wrote before is seen */
	pthread_mutex_unlock(&r->channel->mutex);
	for (size_t i = 0; n > 0 && i + sizeof q <= (size_t)n; i += sizeof q) {
		memcpy(&q, (const char *)data + i, sizeof q);
		list_remove(&r->running, q);
		r->threads--;
		finish(q);
	}
	line_begin(r);
}

int resolver_create(struct loop *loop, struct resolver **ret)
{
	struct resolver *r = calloc(1, sizeof *r);
	struct channel *c = calloc(1, sizeof *c);
	int e = -ENOMEM;

	if (r && c && (e = pipe2(c->fds, O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0) == 0) {
		c->users = 1;
		pthread_mutex_init(&c->mutex, NULL);
		r->loop = loop;
		r->channel = c;
		loop_defer_init(&r->begin, line_begin, r);
		e = loop_read_start(loop, c->fds[0], RESOLVE_MAX * sizeof(void *), answers_take, r, &r->read);
		if (e == 0) {
			*ret = r;
			return 0;
		}
		close(c->fds[0]);
		close(c->fds[1]);
	}
	free(r);
	free(c);
	return e;
}

void resolver_free(struct resolver *r)
{
	struct resolve *q;

	if (!r)
		return;
	loop_read_stop(r->read);
	loop_defer_cancel(r->loop, &r->begin);
	while ((q = r->line)) {
		r->line = q->next;
		free(q);
	}
	pthread_mutex_lock(&r->channel->mutex);
	r->channel->closed = true;
	while (read(r->channel->fds[0], &q, sizeof q) == sizeof q)
		free(q);
	pthread_mutex_unlock(&r->channel->mutex);
	channel_release(r->channel);
	free(r);
}

int resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn fn, void *arg, struct resolve **ret)
{
	struct resolve *q = calloc(1, sizeof *q);

	if (!q)
		return -ENOMEM;
	q->resolver = r;
	q->fn = fn;
	q->arg = arg;
	q->port = port;
	snprintf(q->host, sizeof q->host, "%s", host);
	q->next = r->line;
	r->line = q;
	loop_defer(r->loop, &r->begin);
	*ret = q;
	return 0;
}

void resolve_stop(struct resolve *q)
{
	if (!q)
		return;
	q->fn = NULL;
	if (!q->channel) {
		list_remove(&q->resolver->line, q);
		free(q);
	}
}
