/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What another node sends: its greeting, then frames and beats; as one that dials, or one that is dialled; in plain text, or
 * into TLS. The first byte chooses: 1 it is dialled, 2 TLS. Then pieces: a length (one byte), so many bytes, and a turn of the
 * loop after each; 255: time passes instead.
 */
#include <assert.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_loop.h"
#include "net/keys.h"
#include "net/net.h"
#include "net/net_int.h"

#define OWN 100
#define OTHER 7

static int listener = -1;
static char address[64];
static struct tls_keys *keys;
static int ups;
static uint64_t conn_last;

static void link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	(void)arg;
	assert(session && session != OWN && incarnation && conn);
	ups++;
	conn_last = conn;
}

static void link_down(void *arg, uint64_t session, uint64_t conn)
{
	(void)arg, (void)session, (void)conn;
	ups--;
}

static int receive(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t n)
{
	struct net *net = *(struct net **)arg;
	const uint8_t *b = bytes;

	assert(ups > 0 && n >= NET_FRAME_MIN && n <= NET_FRAME_MAX && (b[0] | b[1] << 8) == (int)n);
	if (b[2] == 1)
		net_send(net, session, conn, bytes, n);
	if (b[2] == 2)
		net_unlink(net, session);
	if (b[2] == 3)
		net_session(net, OWN, 2);
	return b[2] == 4 ? -1 : 0;
}

static void say(void *arg, enum log_level level, const char *text)
{
	(void)arg, (void)level;
	for (; *text; text++)
		assert(*text >= ' ' && *text <= '~');
}

static void listen_once(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;

	if (listener >= 0)
		return;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(bind(listener, (struct sockaddr *)&a, n) == 0 && listen(listener, 512) == 0);
	assert(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	assert(getsockname(listener, (struct sockaddr *)&a, &n) == 0);
	snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(a.sin_port));
}

static void key_once(void)
{
	char path[] = "/tmp/fuzz_peer.XXXXXX", why[TLS_WHY_MAX], digits[64];
	int fd;

	if (keys)
		return;
	fd = mkstemp(path);
	memset(digits, 'a', sizeof digits);
	assert(write(fd, digits, sizeof digits) == sizeof digits);
	close(fd);
	assert(tls_keys_load(&(struct tls_files){ .key = path }, &keys, why) == 0);
	unlink(path);
}

/* Our end of the connection. */
static int connection(struct net *net, struct loop *loop, bool dialled)
{
	int fds[2];

	if (dialled) {
		assert(net_link(net, OTHER, address) == 0);
		fake_loop_advance(loop, 500 * NSEC_PER_MSEC);
		return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	line_accepted(net, fds[0]);
	return fds[1];
}

static void drain(int fd)
{
	char buf[4096];

	while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) > 0)
		;
}

/* Whoever is dialled again is not there any more. */
static void hang_up(void)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct net_ops ops = { link_up, link_down, receive, say };
	struct net_options o = { .node = "fuzzed", .cluster = "test", .ttl = 5 * NSEC_PER_SEC };
	struct loop *loop;
	struct net *net;
	int fd;

	if (!n)
		return 0;
	listen_once();
	key_once();
	ups = 0;
	o.keys = data[0] & 2 ? keys : NULL;
	assert(loop_create(&loop) == 0 && net_create(loop, &o, &ops, &net, &net) == 0);
	net_session(net, OWN, 1);
	fd = connection(net, loop, data[0] & 1);
	for (size_t i = 1; i < n && fd >= 0;) {
		size_t piece = data[i++];

		if (piece == 255) {
			fake_loop_advance(loop, 300 * NSEC_PER_MSEC);
			hang_up();
			continue;
		}
		piece = piece < n - i ? piece : n - i;
		(void)!send(fd, data + i, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
		i += piece;
		fake_loop_settle(loop, 20);
		drain(fd);
	}
	fake_loop_advance(loop, 100 * NSEC_PER_MSEC);
	if (fd >= 0)
		close(fd);
	fake_loop_advance(loop, 2 * NSEC_PER_SEC);
	net_free(net);
	fake_loop_settle(loop, 20);
	loop_free(loop);
	hang_up();
	return 0;
}
