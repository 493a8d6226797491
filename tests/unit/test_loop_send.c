/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sending and connecting through the loop. */
#include "loop_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

struct sent {
	int calls, error;
	nsec_t at;
	bool stops;
};

static void see_sent(void *arg, struct loop_bytes *b, int error)
{
	struct sent *s = arg;

	s->calls++;
	s->error = error;
	s->at = loop_now(loop);
	free(b);
	if (s->stops)
		loop_stop(loop, 0);
}

static struct loop_bytes *some_bytes(uint32_t n)
{
	struct loop_bytes *b = malloc(sizeof *b + n);

	assert_non_null(b);
	b->n = n;
	for (uint32_t i = 0; i < n; i++)
		b->data[i] = (char)(i * 7 + i / 251);
	return b;
}

static void make_stream(int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
}

static void what_the_kernel_takes_at_once_wakes_nobody(void **state)
{
	struct loop_send *s;
	struct sent seen = { 0 };
	nsec_t begin = boottime();
	char buf[64];
	int fds[2];

	(void)state;
	make_stream(fds);
	assert_int_equal(loop_send_open(loop, fds[0], see_sent, &seen, &s), 0);
	loop_send(s, some_bytes(40), false);
	assert_int_equal(run_for(40 * NSEC_PER_MSEC), 99);
	assert_int_equal(read(fds[1], buf, sizeof buf), 40);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.error, 0);
	assert_true(seen.at >= begin + 40 * NSEC_PER_MSEC);

	seen.stops = true;
	loop_send(s, some_bytes(40), true);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.calls, 2);
	loop_send_stop(s);
	close_all(fds, 2);
}

#define MUCH (3u << 20)

static void *read_slowly(void *arg)
{
	int fd = *(int *)arg;
	size_t n = 0;
	char buf[50000];
	ssize_t r;

	while ((r = read(fd, buf, sizeof buf)) > 0) {
		for (ssize_t i = 0; i < r; i++, n++)
			if (buf[i] != (char)(n * 7 + n / 251))
				return (void *)1;
		usleep(100);
	}
	return n == MUCH ? NULL : (void *)2;
}

static void much_is_sent_byte_for_byte_to_a_slow_reader(void **state)
{
	struct loop_send *s;
	struct sent seen = { .stops = true };
	pthread_t thread;
	void *result;
	int fds[2];

	(void)state;
	make_stream(fds);
	assert_int_equal(pthread_create(&thread, NULL, read_slowly, &fds[1]), 0);
	assert_int_equal(loop_send_open(loop, fds[0], see_sent, &seen, &s), 0);
	loop_send(s, some_bytes(MUCH), false);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.error, 0);
	loop_send_stop(s);
	close(fds[0]);
	pthread_join(thread, &result);
	assert_null(result);
	close(fds[1]);
}

/* A socket that takes no more is waited for, not asked again and again, also if it is non-blocking. */
static void full_socket_costs_nothing(void **state)
{
	struct loop_send *s;
	struct sent seen = { 0 };
	nsec_t before;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(loop_send_open(loop, fds[0], see_sent, &seen, &s), 0);
	loop_send(s, some_bytes(MUCH), false);
	run_turns();
	before = cpu_time();
	assert_int_equal(run_for(300 * NSEC_PER_MSEC), 99);
	assert_true(cpu_time() - before < 30 * NSEC_PER_MSEC);
	assert_int_equal(seen.calls, 0);
	loop_send_stop(s);
	close_all(fds, 2);
}

static void more_senders_than_can_be_quiet_all_send(void **state)
{
	enum { N = 300 };
	struct sent seen = { 0 };
	struct loop_send *s[N];
	int fds[N][2];
	char c;

	(void)state;
	for (int i = 0; i < N; i++) {
		make_stream(fds[i]);
		assert_int_equal(loop_send_open(loop, fds[i][0], see_sent, &seen, &s[i]), 0);
		loop_send(s[i], some_bytes(1), false);
	}
	run_turns();
	assert_int_equal(seen.calls, N);
	for (int i = 0; i < N; i++) {
		assert_int_equal(recv(fds[i][1], &c, 1, MSG_DONTWAIT), 1);
		loop_send_stop(s[i]);
		close_all(fds[i], 2);
	}
}

static void stopped_sends_give_their_bytes_back(void **state)
{
	struct sent seen = { 0 };
	struct loop_send *a, *b, *c;
	int fds[2], others[2];

	(void)state;
	make_stream(fds);
	make_stream(others);
	assert_int_equal(loop_send_open(loop, fds[0], see_sent, &seen, &a), 0);
	assert_int_equal(loop_send_open(loop, others[0], see_sent, &seen, &b), 0);
	assert_int_equal(loop_send_open(loop, others[0], see_sent, &seen, &c), 0);
	loop_send(a, some_bytes(MUCH), false);
	run_turns();                     /* nobody reads: the kernel has it */
	loop_send(b, some_bytes(10), false);
	loop_send(c, some_bytes(10), false);
	loop_send_stop(c);               /* not even begun */
	run_turns();
	loop_send_stop(b);
	loop_send_stop(a);
	run_turns();
	assert_int_equal(seen.calls, 1); /* b's */
	close_all(fds, 2);
	close_all(others, 2);
}

static void broken_connection_is_an_error(void **state)
{
	struct sent seen = { .stops = true };
	struct loop_send *s;
	int fds[2];

	(void)state;
	make_stream(fds);
	close(fds[1]);
	assert_int_equal(loop_send_open(loop, fds[0], see_sent, &seen, &s), 0);
	loop_send(s, some_bytes(10), false);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.error, -EPIPE);
	loop_send_stop(s);
	close(fds[0]);
}

static void see_connected(void *arg, int error)
{
	see(arg, error);
}

static void connects_or_says_why_not(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct seen seen = { .stop_after = 1 };
	struct loop_connect *c;
	socklen_t n = sizeof a;

	(void)state;
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(loop_connect_start(loop, fd, (struct sockaddr *)&a, n, see_connected, &seen, &c), 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, 0);
	loop_connect_stop(c);
	close_all((int[]){ l, fd }, 2);

	seen.calls = 0;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(loop_connect_start(loop, fd, (struct sockaddr *)&a, n, see_connected, &seen, &c), 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, -ECONNREFUSED);
	loop_connect_stop(c);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("what the kernel takes at once wakes nobody, unless its end is waited for",
			what_the_kernel_takes_at_once_wakes_nobody),
		story("3 MiB are sent byte for byte to a slow reader", much_is_sent_byte_for_byte_to_a_slow_reader),
		story("a socket that is full is waited for", full_socket_costs_nothing),
		story("more senders than can be quiet all send", more_senders_than_can_be_quiet_all_send),
		story("sends that are stopped, at every stage, give their bytes back", stopped_sends_give_their_bytes_back),
		story("a broken connection is an error", broken_connection_is_an_error),
		story("a socket connects, or says why not", connects_or_says_why_not),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
