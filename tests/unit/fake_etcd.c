/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake_etcd.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fake_again(struct fake_etcd *f)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)f->port) };
	socklen_t size = sizeof a;
	int on = 1;

	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (f->fd < 0 || setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 || bind(f->fd, (struct sockaddr *)&a, size) < 0 || listen(f->fd, 64) < 0 ||
	    getsockname(f->fd, (struct sockaddr *)&a, &size) < 0)
		abort();
	f->port = ntohs(a.sin_port);
}

void fake_start(struct fake_etcd *f)
{
	memset(f, 0, sizeof *f);
	f->cluster = 77;
	f->leader = 1;
	fake_again(f);
}

static void drop(struct fake_etcd *f, size_t i)
{
	close(f->conns[i].fd);
	f->conns[i].fd = 0;
}

void fake_stop(struct fake_etcd *f)
{
	for (size_t i = 0; i < FAKE_CONNS; i++)
		if (f->conns[i].fd)
			drop(f, i);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

static void send_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		data += n;
		size -= (size_t)n;
	}
}

static void reply(struct fake_etcd *f, size_t i, const struct fake_reply *r)
{
	int fd = f->conns[i].fd;
	size_t size = r->body ? strlen(r->body) : r->size;
	char head[200], *filler = NULL;
	const char *body = r->body;

	if (!body) {
		body = filler = malloc(size + 1);
		if (!filler)
			abort();
		memset(filler, 'x', size);
	}
	snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", r->status,
		 size);
	/* More than a socket holds: by a process of its own, since whoever reads it is this one. */
	if (size > 100000 && fork() == 0) {
		/* Which keeps nothing open but what it writes to, or nobody would ever see an end. */
		alarm(5);
		dup2(fd, 3);
		fd = 3;
		close_range(4, ~0u, 0);
		close(STDOUT_FILENO);
		send_all(fd, head, strlen(head));
		send_all(fd, body, size);
		_exit(0);
	}
	switch (size > 100000 ? FAKE_SILENT : r->how) {
	case FAKE_SEND:
		send_all(fd, head, strlen(head));
		send_all(fd, body, size);
		break;
	case FAKE_CLOSE:
		drop(f, i);
		break;
	case FAKE_SILENT:
		break;
	case FAKE_RAW:
		send_all(fd, body, size);
		drop(f, i);
		break;
	case FAKE_HALF:
		send_all(fd, head, strlen(head));
		send_all(fd, body, size / 2);
		drop(f, i);
		break;
	case FAKE_STREAM:
		snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
			 "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", r->status, size);
		send_all(fd, head, strlen(head));
		send_all(fd, body, size);
		send_all(fd, "\r\n", 2);
		break;
	}
	free(filler);
}

static void take(struct fake_etcd *f, size_t i, const struct fake_request *rq)
{
	static char usual[500];
	struct fake_reply r = { FAKE_SEND, 200, usual, 0 };
	char header[200];

	snprintf(header, sizeof header, "\"header\":{\"cluster_id\":\"%llu\",\"revision\":\"5\"}", (unsigned long long)f->cluster);
	snprintf(usual, sizeof usual, "{%s}", header);
	if (strstr(rq->path, "status")) {
		f->status++;
		snprintf(usual, sizeof usual, "{%s,\"leader\":\"%llu\"}", header, (unsigned long long)f->leader);
	} else if (strstr(rq->path, "range")) {
		f->range++;
	} else if (strstr(rq->path, "txn")) {
		f->txn++;
		snprintf(usual, sizeof usual, "{%s,\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":"
			 "{\"revision\":\"6\"}}}]}", header);
	} else if (strstr(rq->path, "authenticate")) {
		f->login++;
		snprintf(usual, sizeof usual, "{%s,\"token\":\"tok.%u\"}", header, f->login);
	} else if (strstr(rq->path, "watch")) {
		f->watch++;
		r.how = FAKE_STREAM;
		snprintf(usual, sizeof usual, "{\"result\":{%s,\"created\":true}}\n", header);
	}
	if (f->on)
		f->on(f, rq, &r);
	reply(f, i, &r);
}

/* One whole request is at the beginning of what has come: takes it. */
static bool request_take(struct fake_etcd *f, size_t i)
{
	char *in = f->conns[i].in, *end = strstr(in, "\r\n\r\n"), *length, path[100] = "";
	size_t body = 0, whole;
	char kept;

	if (!end)
		return false;
	length = strcasestr(in, "\r\nContent-Length:");
	if (length && length < end)
		body = strtoul(length + 17, NULL, 10);
	whole = (size_t)(end + 4 - in) + body;
	if (f->conns[i].n < whole)
		return false;
	sscanf(in, "POST %99s", path);
	kept = in[whole];
	in[whole] = 0;
	end[2] = 0;
	take(f, i, &(struct fake_request){ path, in, end + 4, ++f->conns[i].serial });
	in[whole] = kept;
	f->conns[i].n -= whole;
	memmove(in, in + whole, f->conns[i].n + 1);
	return f->conns[i].fd;
}

static void conn_turn(struct fake_etcd *f, size_t i)
{
	char *in = f->conns[i].in;
	ssize_t n = recv(f->conns[i].fd, in + f->conns[i].n, sizeof f->conns[i].in - 1 - f->conns[i].n, MSG_DONTWAIT);

	if (n <= 0) {
		drop(f, i);
		return;
	}
	f->bytes_in += (unsigned)n;
	f->conns[i].n += (size_t)n;
	in[f->conns[i].n] = 0;
	while (request_take(f, i))
		;
}

static void accept_one(struct fake_etcd *f)
{
	int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < FAKE_CONNS; i++) {
		if (f->conns[i].fd)
			continue;
		f->conns[i].fd = fd;
		f->conns[i].serial = 0;
		f->conns[i].n = 0;
		f->conns[i].in[0] = 0;
		return;
	}
	if (fd >= 0)
		close(fd);
}

void fake_turn(struct fake_etcd **all, size_t n, int other_fd, int ms)
{
	struct pollfd p[4 * (FAKE_CONNS + 1) + 1] = { { .fd = other_fd, .events = POLLIN } };
	size_t k = 1;

	assert(n <= 4);
	for (size_t i = 0; i < n; i++) {
		p[k++] = (struct pollfd){ .fd = all[i]->fd, .events = POLLIN };
		for (size_t c = 0; c < FAKE_CONNS; c++)
			p[k++] = (struct pollfd){ .fd = all[i]->conns[c].fd ? all[i]->conns[c].fd : -1, .events = POLLIN };
	}
	poll(p, k, ms);
	for (size_t i = 0; i < n; i++) {
		const struct pollfd *mine = &p[1 + i * (FAKE_CONNS + 1)];

		for (size_t c = 0; c < FAKE_CONNS; c++)
			if (mine[c + 1].revents)
				conn_turn(all[i], c);
		if (mine[0].revents)
			accept_one(all[i]);
	}
}
