/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who comes to a node's port in plain text, and what becomes of it: greetings, broken streams, limits. */
#include "net_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "../../daemon/net/address.h"
#include "../../daemon/net/pulse.h"

#define A 100
#define B 200

static struct side a, b;

static void close_two(void)
{
	side_close(&a);
	side_close(&b);
}

static void greetings_are_refused_with_a_reason_on_both_sides(void **state)
{
	struct greeting g;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .version_min = 2, .version_max = 3 }, &g, NULL), GREET_VERSION);
	assert_non_null(strstr(g.text, "alpha speaks protocol 1 to 1, you speak 2 to 3"));
	assert_true(side_said(&a, "it speaks protocol 2 to 3, this node 1 to 1: upgrade the older"));
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .cluster = "other" }, &g, NULL), GREET_CLUSTER);
	assert_non_null(strstr(g.text, "alpha is of cluster test, you are of other"));
	assert_true(side_said(&a, "stranger is of cluster other, this node of test"));
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A + 1 }, &g, NULL), GREET_SESSION);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = A, .to = A }, &g, NULL), GREET_SELF);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .conn = UINT64_MAX }, &g, NULL), GREET_SUPERSEDED);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .version_max = 9 }, &g, NULL), 0);
	assert_int_equal(g.version_max, 1);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .incarnation = 3 }, &g, NULL), 0);
	assert_int_equal(a.ups, 0);
	side_session(&a, 0, 0);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A }, &g, NULL), GREET_NOT_YET);
	side_close(&a);
}

/* As a dialler hears it. */
static void refusal_is_logged_by_who_was_refused(void **state)
{
	const struct net_options other = { .cluster = "other" };

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	side_open(&b, "beta", B, NULL, NULL, &other);
	assert_int_equal(net_link(a.net, B, side_address(&b)), 0);
	run_until(side_said(&a, "it refuses: beta is of cluster other, you are of test"));
	assert_true(side_said(&b, "alpha is of cluster test, this node of other"));
	run_for(300 * NSEC_PER_MSEC);
	assert_int_equal(a.log_n, 1);            /* said once, tried often */
	close_two();
}

static void broken_streams_close_the_connection(void **state)
{
	static const struct { uint16_t length; const char *what; } bad[] = {
		{ 0, "none" }, { 1, "one" }, { 27, "below a beat" }, { 29, "between beat and frame" }, { 31, "below a frame" },
		{ NET_FRAME_MAX + 1, "above a frame" }, { 65535, "far above" },
	};
	uint8_t buf[64] = { 0 };

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	for (size_t i = 0; i < LENGTH(bad); i++) {
		uint64_t conn = 0;
		int fd = raw_up(&a, 7 + i, &conn);

		buf[0] = (uint8_t)bad[i].length;
		buf[1] = (uint8_t)(bad[i].length >> 8);
		assert_int_equal(send(fd, buf, 1, 0), 1);
		run_for(3 * NSEC_PER_MSEC);
		assert_int_equal(a.downs, i);
		assert_int_equal(send(fd, buf + 1, 1, 0), 1);
		run_until(a.downs == (int)i + 1);
		close(fd);
	}
	assert_true(side_said(&a, "no frame of this protocol (a length of 65535)"));
	side_close(&a);
}

static void hello_from_before_the_connection_is_refused_and_a_later_one_replaces_it(void **state)
{
	uint64_t first = 0;
	struct greeting g;
	int fd, again;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	fd = raw_up(&a, 7, &first);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A }, &g, NULL), GREET_DUPLICATE);
	assert_int_equal(a.downs, 0);
	/* it knows of that one, so it has lost it */
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .conn = first }, &g, &again), 0);
	assert_true(g.conn > first);
	ready_say(again, g.conn);
	run_until(a.ups == 2);
	assert_int_equal(a.downs, 1);
	assert_true(a.conn == g.conn);
	/* it may know of a number that we do not: one that it has offered, and we have not heard */
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 8, .to = A, .conn = first + 1000 }, &g, NULL), 0);
	assert_true(g.conn > first + 1000);
	/* an earlier run of its daemon is out of date */
	close(again);
	run_until(a.downs == 2);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .conn = first, .incarnation = 2 }, &g, &again), 0);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A, .conn = first, .incarnation = 1 }, &g, NULL), GREET_SUPERSEDED);
	close(again);
	close(fd);
	side_close(&a);
}

static int raw_listen(char address[ADDRESS_TEXT_MAX])
{
	union address at = { .in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t n = sizeof at;

	assert_int_equal(bind(fd, &at.any, address_size(&at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, &at.any, &n), 0);
	address_format(&at, address);
	return fd;
}

/* Both have dialled: the peer of the test's hand answers our HELLO with a number below, or above, what we have offered it. */
static void of_two_that_cross_the_higher_wins(void **state)
{
	struct greeting offer, welcome = { .kind = GREET_WELCOME, .session = B, .to = A };
	char address[ADDRESS_TEXT_MAX], c;
	uint8_t buf[GREET_MAX];

	(void)state;
	for (int above = 0; above < 2; above++) {
		int l = raw_listen(address), dialled = -1, ours;

		side_open(&a, "alpha", A, NULL, NULL, NULL);
		assert_int_equal(net_link(a.net, B, address), 0);
		run_until(dialled >= 0 || (dialled = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0);
		assert_true(raw_read(dialled, buf, 50, NSEC_PER_SEC) == 50);    /* HELLO, or most of it */
		assert_int_equal(try_hello(&a, (struct greeting){ .session = B, .to = A }, &offer, &ours), 0);
		welcome.conn = above ? offer.conn + 1 : offer.conn - 1;
		assert_true(send(dialled, buf, hello_make(buf, &welcome), 0) > 0);
		if (above) {
			run_until(a.conn == welcome.conn);
			assert_true(raw_read(ours, &c, 1, 100 * NSEC_PER_MSEC) == 0);
		} else {
			run_for(30 * NSEC_PER_MSEC);
			assert_int_equal(a.ups, 0);
			ready_say(ours, offer.conn);
			run_until(a.conn == offer.conn);
		}
		assert_int_equal(a.ups, 1);
		close_all((int[]){ l, dialled, ours }, 3);
		side_close(&a);
	}
}

static void what_is_no_greeting_is_refused(void **state)
{
	static const struct { char bytes[24]; size_t n; } texts[] = {
		{ "GET / HTTP/1.1\r\n\r\n", 18 }, { "dlock\0\r\n\xff\xff", 16 }, { "dlock\0\r\n\x05\0", 16 }, { "\x16\x03\x01\x02\x00", 5 },
	};
	struct net_stats st;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	for (size_t i = 0; i < LENGTH(texts); i++) {
		char buf[GREET_MAX];
		int fd = raw_dial(&a), r;

		assert_true(send(fd, texts[i].bytes, texts[i].n, 0) > 0);
		r = raw_read(fd, buf, sizeof buf, NSEC_PER_SEC);
		if (i < 3)
			assert_int_equal(r, 0);
		else
			assert_memory_equal(buf, "dlock", 5);    /* who speaks TLS gets an answer that tells it */
		close(fd);
	}
	assert_true(side_said(&a, "does not speak dlock's protocol"));
	assert_true(side_said(&a, "it speaks TLS, and this node has no key"));
	net_stats(a.net, &st);
	assert_int_equal(st.refused, 4);
	side_close(&a);
}

static void greeting_arrives_byte_by_byte(void **state)
{
	struct greeting hello = { .session = 7, .to = A }, g;
	uint8_t buf[GREET_MAX + 100], beat[PULSE_BYTES];
	struct pulse p;
	size_t n;
	int fd, r;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	n = hello_make(buf, &hello);
	fd = raw_dial(&a);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(send(fd, buf + i, 1, 0), 1);
		run_for(NSEC_PER_MSEC / 2);
	}
	r = raw_read(fd, buf, sizeof buf, 50 * NSEC_PER_MSEC);
	assert_int_equal(greet_decode(buf, (size_t)r, 1, 1, &g), 0);
	/* READY, a beat and the beginning of a frame at once; then the rest of it byte by byte */
	g = (struct greeting){ .kind = GREET_READY, .version_min = 1, .version_max = 1, .conn = g.conn };
	n = greet_encode(&g, buf);
	pulse_begin(&p, boottime());
	pulse_encode(&p, boottime(), false, beat);
	memcpy(buf + n, beat, sizeof beat);
	n += sizeof beat;
	frame_make(buf + n, 40, 9);
	assert_int_equal(send(fd, buf, n + 1, 0), n + 1);
	run_until(a.conn);
	for (size_t i = 1; i < 40; i++) {
		assert_int_equal(a.frames, 0);
		assert_int_equal(send(fd, buf + n + i, 1, 0), 1);
		run_for(NSEC_PER_MSEC / 2);
	}
	run_until(a.frames == 1);
	assert_int_equal(a.frame_n, 40);
	assert_memory_equal(a.frame, buf + n, 40);
	close(fd);
	side_close(&a);
}

static void half_open_connections_are_limited_and_timed(void **state)
{
	const struct net_options few = { .cluster = "test", .half_open_max = 4, .address_max = 8 };
	struct net_stats st;
	struct greeting g;
	char c;
	int fd[6], r;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, &few);
	for (int i = 0; i < 6; i++) {
		fd[i] = raw_dial(&a);
		run_for(5 * NSEC_PER_MSEC);
	}
	net_stats(a.net, &st);
	assert_int_equal(st.half_open, 4);
	assert_int_equal(st.over_half_open, 2);
	assert_true(raw_read(fd[0], &c, 1, 100 * NSEC_PER_MSEC) == 0);   /* the oldest made room */
	assert_true(raw_read(fd[5], &c, 1, 20 * NSEC_PER_MSEC) < 0);
	assert_int_equal(try_hello(&a, (struct greeting){ .session = 7, .to = A }, &g, &r), 0);      /* who greets gets in */
	close(r);
	for (int i = 0; i < 6; i++)
		close(fd[i]);
	run_for(20 * NSEC_PER_MSEC);
	net_stats(a.net, &st);
	assert_int_equal(st.half_open, 0);
	for (int i = 0; i < 3; i++) {            /* one that sends a byte now and then is not waited for */
		fd[i] = raw_dial(&a);
		assert_int_equal(send(fd[i], "d", 1, 0), 1);
	}
	run_for(NET_GREET_SPAN + 300 * NSEC_PER_MSEC);
	net_stats(a.net, &st);
	assert_int_equal(st.half_open, 0);
	assert_true(side_said(&a, "did not finish the greeting in time"));
	close_all(fd, 3);
	side_close(&a);
}

static void connections_from_one_address_are_limited(void **state)
{
	const struct net_options few = { .cluster = "test", .address_max = 3 };
	struct net_stats st;
	int fd[5];
	char c;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, &few);
	for (int i = 0; i < 3; i++)
		fd[i] = raw_up(&a, 10 + (uint64_t)i, NULL);
	fd[3] = raw_dial(&a);
	assert_int_equal(raw_read(fd[3], &c, 1, NSEC_PER_SEC), 0);
	net_stats(a.net, &st);
	assert_int_equal(st.over_address, 1);
	assert_int_equal(a.downs, 0);
	assert_true(side_said(&a, "3 connections from that address already"));
	close_all(fd, 4);
	side_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("greetings are refused with a reason on both sides", greetings_are_refused_with_a_reason_on_both_sides),
		story("a refusal is logged by who was refused, once", refusal_is_logged_by_who_was_refused),
		story("a length that no frame has closes the connection", broken_streams_close_the_connection),
		story("a HELLO from before the connection is refused, one that knows of it replaces it",
			hello_from_before_the_connection_is_refused_and_a_later_one_replaces_it),
		story("of two connections that cross the one with the higher number wins", of_two_that_cross_the_higher_wins),
		story("what is no greeting is refused", what_is_no_greeting_is_refused),
		story("greeting and frames may arrive byte by byte", greeting_arrives_byte_by_byte),
		story("half-open connections are limited in number and time", half_open_connections_are_limited_and_timed),
		story("connections from one address are limited", connections_from_one_address_are_limited),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
