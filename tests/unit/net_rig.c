/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "net_rig.h"

#include <errno.h>
#include <sys/socket.h>

#include "../../daemon/net/address.h"

static void link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	struct side *s = arg;

	assert_true(s->conn == 0 || s->peer != session);         /* one at a time */
	if (s->ups < 64)
		s->conns[s->ups] = conn;
	s->ups++;
	s->peer = session;
	s->peer_incarnation = incarnation;
	s->conn = conn;
	s->up_at = boottime();
}

static void link_down(void *arg, uint64_t session, uint64_t conn)
{
	struct side *s = arg;

	s->downs++;
	s->down_at = boottime();
	if (s->peer == session && s->conn == conn)
		s->conn = 0;
	if (s->unlink_when_down)
		net_unlink(s->net, session);
}

static int receive(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t n)
{
	struct side *s = arg;

	(void)session, (void)conn;
	s->frames++;
	s->frame_n = n;
	memcpy(s->frame, bytes, n);
	for (uint32_t i = 2; i < n; i++)
		s->frame_sum += ((const uint8_t *)bytes)[i];
	return s->refuse_frames ? -EBADMSG : 0;
}

static void say(void *arg, enum log_level level, const char *text)
{
	struct side *s = arg;

	(void)level;
	if (getenv("NET_TRACE"))
		fprintf(stderr, "%s: %s\n", s->name, text);
	if (s->log_n < LENGTH(s->log))
		snprintf(s->log[s->log_n++], sizeof s->log[0], "%s", text);
}

void side_open_in(struct loop *l, struct side *s, const char *name, uint64_t session, const struct tls_keys *keys,
		  const char *where, const struct net_options *more)
{
	static const struct net_ops ops = { link_up, link_down, receive, say };
	struct net_options o = more ? *more : (struct net_options){ .cluster = "test" };
	char why[256] = "";
	int r;

	loop = l;
	*s = (struct side){ .name = name, .session = session, .incarnation = 1 };
	o.node = name;
	o.cluster = o.cluster ? o.cluster : "test";
	o.ttl = o.ttl ? o.ttl : TTL;
	o.keys = keys;
	assert_int_equal(net_create(loop, &o, &ops, s, &s->net), 0);
	if (!where || *where) {
		r = net_listen(s->net, where ? where : "127.0.0.1:0", why);
		if (r < 0)
			fprintf(stderr, "%s\n", why);
		assert_int_equal(r, 0);
	}
	net_session(s->net, session, 1);
}

void side_session(struct side *s, uint64_t session, uint32_t incarnation)
{
	s->conn = 0;                             /* without a callback */
	net_session(s->net, session, incarnation);
}

void side_close(struct side *s)
{
	net_free(s->net);
	s->net = NULL;
}

const char *side_address(const struct side *s)
{
	return net_listen_address(s->net, 0);
}

unsigned side_says(const struct side *s, const char *text)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->log_n; i++)
		n += strstr(s->log[i], text) != NULL;
	return n;
}

bool side_said(const struct side *s, const char *text)
{
	return side_says(s, text) > 0;
}

void side_show_log(const struct side *s)
{
	for (unsigned i = 0; i < s->log_n; i++)
		fprintf(stderr, "%s: %s\n", s->name, s->log[i]);
}

void frame_make(uint8_t *ret, uint32_t n, uint8_t fill)
{
	memset(ret, fill, n);
	ret[0] = (uint8_t)n;
	ret[1] = (uint8_t)(n >> 8);
}

int raw_dial(const struct side *s)
{
	union address a;
	int fd;

	assert_int_equal(address_parse(side_address(s), &a), 0);
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &a.any, address_size(&a)), 0);
	return fd;
}

int raw_read(int fd, void *buf, size_t n, nsec_t span)
{
	nsec_t end = boottime() + span;
	size_t got = 0;
	int turns = 0;

	while ((boottime() < end || turns < 25) && got < n) {
		ssize_t r = recv(fd, (char *)buf + got, n - got, MSG_DONTWAIT);

		if (r == 0 || (r < 0 && errno == ECONNRESET))
			return (int)got;
		if (r > 0)
			got += (size_t)r;
		else
			run_for(2 * NSEC_PER_MSEC), turns++;
	}
	return got ? (int)got : -ETIMEDOUT;
}

size_t hello_make(uint8_t *buf, struct greeting *g)
{
	g->kind = g->kind ? g->kind : GREET_HELLO;
	g->version_min = g->version_min ? g->version_min : 1;
	g->version_max = g->version_max ? g->version_max : 1;
	g->incarnation = g->incarnation ? g->incarnation : 1;
	if (!g->cluster[0])
		strcpy(g->cluster, "test");
	strcpy(g->node, "stranger");
	return greet_encode(g, buf);
}

/* The reason of the refusal, 0 after a WELCOME, negative: no greeting came back. */
int try_hello(struct side *s, struct greeting g, struct greeting *ret, int *ret_fd)
{
	uint8_t buf[GREET_MAX];
	size_t n = hello_make(buf, &g);
	int fd = raw_dial(s), r;

	assert_int_equal(send(fd, buf, n, 0), n);
	r = raw_read(fd, buf, GREET_HEAD, NSEC_PER_SEC);
	if (r == GREET_HEAD) {
		int length = greet_length(buf, GREET_HEAD);

		assert_true(length > GREET_HEAD);
		assert_int_equal(raw_read(fd, buf + GREET_HEAD, (size_t)length - GREET_HEAD, NSEC_PER_SEC), length - GREET_HEAD);
		assert_int_equal(greet_decode(buf, (size_t)length, 1, 255, ret), 0);
		r = ret->kind == GREET_REFUSED ? ret->reason : 0;
	}
	if (ret_fd)
		*ret_fd = fd;
	else
		close(fd);
	return r;
}

void ready_say(int fd, uint64_t conn)
{
	struct greeting g = { .kind = GREET_READY, .version_min = 1, .version_max = 1, .conn = conn };
	uint8_t buf[GREET_MAX];
	size_t n = greet_encode(&g, buf);

	assert_int_equal(send(fd, buf, n, 0), n);
}

/* A peer of the test's own hand that is up. */
int raw_up(struct side *s, uint64_t session, uint64_t *ret_conn)
{
	struct greeting g;
	int fd, ups = s->ups;

	assert_int_equal(try_hello(s, (struct greeting){ .session = session, .to = s->session, .conn = ret_conn ? *ret_conn : 0 }, &g, &fd), 0);
	ready_say(fd, g.conn);
	run_until(s->ups == ups + 1);
	if (ret_conn)
		*ret_conn = g.conn;
	return fd;
}

struct look {
	uint64_t session;
	struct net_peer_info *ret;
	bool found;
};

static void look_at(void *arg, const struct net_peer_info *p)
{
	struct look *l = arg;

	if (p->session == l->session) {
		*l->ret = *p;
		l->found = true;
	}
}

void peer_of(const struct side *s, uint64_t session, struct net_peer_info *ret)
{
	struct look l = { session, ret, false };

	net_each(s->net, look_at, &l);
	assert_true(l.found);
}
