/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the loop brings from descriptors: reads, packets, streams, connections. One story a test,
 * each with a loop of its own on the real kernel; of time only bounds are asserted that a slow
 * machine keeps too.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "loop_fixture.h"

/* --- reads --- */

static void pipe_is_read_until_its_end(void **state)
{
	struct seen seen = {.stop_after = 1};
	struct loop_read *reader;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(loop_read_start(loop, p[0], 16, see_bytes, &seen, &reader), 0);
	assert_int_equal(write(p[1], "first", 5), 5);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, 5);

	seen.stop_after = 3;
	assert_int_equal(write(p[1], "then more than sixteen", 22), 22);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, 6);
	assert_memory_equal(seen.data, "firstthen more than sixteen", 27);

	close(p[1]);
	seen.stop_after = 4;
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, 0);
	run_turns();
	assert_int_equal(seen.calls, 4);
	loop_read_stop(reader);
	close(p[0]);
}

static void fifo_outlives_its_writers(void **state)
{
	char path[] = "/tmp/test_loop.XXXXXX";
	struct seen seen = {.stop_after = 1};
	struct loop_read *reader;
	int fd, writer;

	(void)state;
	assert_non_null(mkdtemp(path));
	assert_int_equal(chdir(path), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	fd = open("fifo", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(loop_read_start(loop, fd, 64, see_bytes, &seen, &reader), 0);
	for (int i = 1; i <= 3; i++) {
		writer = open("fifo", O_WRONLY | O_CLOEXEC);
		assert_int_equal(write(writer, "hello", 5), 5);
		close(writer);
		seen.stop_after = i;
		assert_int_equal(run_for(PATIENCE), 0);
		assert_int_equal(seen.last, 5);
	}
	loop_read_stop(reader);
	close(fd);
	unlink("fifo");
	assert_int_equal(chdir("/"), 0);
	rmdir(path);
}

/* As a hostile client may do with the eventfd that it shares with the daemon. */
static void eventfd_may_be_drained_and_reflagged_by_others(void **state)
{
	struct seen seen = {0};
	struct loop_read *reader;
	nsec_t before;
	uint64_t value;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	assert_int_equal(loop_read_start(loop, fd, sizeof(value), see_bytes, &seen, &reader), 0);
	run_turns();
	before = cpu_time();
	for (int i = 0; i < 20; i++) {
		assert_int_equal(fcntl(fd, F_SETFL, i % 3 ? O_NONBLOCK : 0), 0);
		raise_event(fd);
		if (i % 2)
			assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
		run_turns();
	}
	assert_int_equal(seen.calls, 10);
	assert_true(cpu_time() - before < 200 * NSEC_PER_MSEC);
	loop_read_stop(reader);
	close(fd);
}

static void stopped_read_hears_nothing(void **state)
{
	struct seen seen = {0};
	struct loop_read *before_armed, *armed, *left;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(loop_read_start(loop, p[0], 1 << 20, see_bytes, &seen, &before_armed), 0);
	loop_read_stop(before_armed);
	assert_int_equal(loop_read_start(loop, p[0], 1 << 20, see_bytes, &seen, &armed), 0);
	run_turns();
	loop_read_stop(armed);
	assert_int_equal(write(p[1], "x", 1), 1);
	run_turns();
	assert_int_equal(seen.calls, 0);
	loop_read_stop(NULL);
	/* The one that is left when the loop goes may be in the middle of anything. */
	assert_int_equal(loop_read_start(loop, p[0], 1 << 20, see_bytes, &seen, &left), 0);
	close_all(p, 2);
}

/* --- packets and streams --- */

#define SENDERS 4

struct counter {
	uint32_t next;
	bool end;
};

static int senders_left;

static void count_packet(void *arg, const void *data, ssize_t n)
{
	struct counter *c = arg;
	uint32_t number;

	if (n == 0) {
		c->end = true;
		if (--senders_left == 0)
			loop_stop(loop, 0);
		return;
	}
	assert_int_equal(n, sizeof(number));
	memcpy(&number, data, sizeof(number));
	assert_int_equal(number, c->next);
	c->next++;
}

static uint32_t send_until_full(int fd, uint32_t first)
{
	while (send(fd, &first, sizeof(first), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(first))
		first++;
	assert_int_equal(errno, EAGAIN);
	return first;
}

/* More packets wait than the loop has buffers: it runs out of them, and goes on. */
static void packets_come_whole_in_order_beyond_the_buffers(void **state)
{
	int pairs[SENDERS][2], size = 1 << 20;
	struct counter counters[SENDERS] = {0};
	struct loop_recv *recv[SENDERS];
	uint32_t sent[SENDERS], total = 0;

	(void)state;
	for (int i = 0; i < SENDERS; i++) {
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]), 0);
		setsockopt(pairs[i][1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		sent[i] = send_until_full(pairs[i][1], 0);
		assert_int_equal(
			loop_recv_start(loop, pairs[i][0], count_packet, &counters[i], &recv[i]),
			0);
	}
	senders_left = SENDERS;
	for (int i = 0; i < SENDERS; i++) {
		for (int wait = 0; wait < 250 && counters[i].next < sent[i]; wait++)
			run_turns();
		assert_int_equal(counters[i].next, sent[i]);
		sent[i] = send_until_full(pairs[i][1], sent[i]);
		close(pairs[i][1]);
	}
	assert_int_equal(run_for(PATIENCE), 0);
	for (int i = 0; i < SENDERS; i++) {
		assert_int_equal(counters[i].next, sent[i]);
		assert_true(counters[i].end);
		total += sent[i];
		loop_recv_stop(recv[i]);
		close(pairs[i][0]);
	}
	assert_true(total > 4 * 256);
}

static void packet_too_long_is_told_and_the_next_comes(void **state)
{
	static char packet[LOOP_RECV_MAX + 1];
	struct seen seen = {.stop_after = 1};
	struct loop_recv *recv;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_recv_start(loop, pair[0], see_bytes, &seen, &recv), 0);
	send(pair[1], packet, sizeof(packet), 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, -EMSGSIZE);
	seen.stop_after = 2;
	send(pair[1], packet, LOOP_RECV_MAX, 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, LOOP_RECV_MAX);
	loop_recv_stop(recv);
	close_all(pair, 2);
}

struct stream {
	unsigned char next;
	size_t bytes;
	bool end;
};

static void check_stream(void *arg, const void *data, ssize_t n)
{
	const unsigned char *p = data;
	struct stream *s = arg;

	for (ssize_t i = 0; i < n; i++)
		assert_int_equal(p[i], s->next++);
	if (n > 0)
		s->bytes += (size_t)n;
	s->end = n == 0;
	if (s->end)
		loop_stop(loop, 0);
}

#define STREAM_BYTES (3 << 20)

static void *send_stream(void *arg)
{
	unsigned char chunk[1 << 16], next = 0;
	int fd = *(int *)arg;

	for (size_t sent = 0; sent < STREAM_BYTES; sent += sizeof(chunk)) {
		for (size_t i = 0; i < sizeof(chunk); i++)
			chunk[i] = next++;
		for (size_t i = 0; i < sizeof(chunk);) {
			ssize_t n = send(fd, chunk + i, sizeof(chunk) - i, MSG_NOSIGNAL);

			if (n <= 0)
				return NULL;
			i += (size_t)n;
		}
	}
	close(fd);
	return NULL;
}

static void stream_comes_byte_for_byte(void **state)
{
	struct stream stream = {0};
	struct loop_recv *recv;
	pthread_t sender;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_recv_start(loop, pair[0], check_stream, &stream, &recv), 0);
	assert_int_equal(pthread_create(&sender, NULL, send_stream, &pair[1]), 0);
	assert_int_equal(run_for(PATIENCE), 0);
	pthread_join(sender, NULL);
	assert_int_equal(stream.bytes, STREAM_BYTES);
	loop_recv_stop(recv);
	close(pair[0]);
}

static void stop_recv(void *arg, const void *data, ssize_t n)
{
	(void)data, (void)n;
	loop_recv_stop(*(struct loop_recv **)arg);
}

/*
 * The read and the receiver complete in the same turn, the read first: three packets have come that
 * nobody wants any more. If their buffers got lost, none would be left after a while.
 */
static void recv_stopped_with_packets_behind_gives_its_buffers_back(void **state)
{
	struct seen seen = {.stop_after = 1};
	struct loop_recv *recv;
	struct loop_read *reader;
	int pair[2], fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	for (int i = 0; i < 100; i++) {
		struct seen never = {0};

		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
		for (int j = 0; j < 3; j++)
			send(pair[1], "x", 1, 0);
		raise_event(fd);
		assert_int_equal(loop_read_start(loop, fd, 8, stop_recv, &recv, &reader), 0);
		assert_int_equal(loop_recv_start(loop, pair[0], see_bytes, &never, &recv), 0);
		assert_int_equal(run_for(NSEC_PER_MSEC), 99);
		assert_int_equal(never.calls, 0);
		loop_read_stop(reader);
		close_all(pair, 2);
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_recv_start(loop, pair[0], see_bytes, &seen, &recv), 0);
	send(pair[1], "still", 5, 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_memory_equal(seen.data, "still", 5);
	loop_recv_stop(recv);
	close_all(pair, 2);
	close(fd);
}

static void error_of_a_descriptor_is_the_first_event(void **state)
{
	struct seen recv_seen = {0}, watch_seen = {0}, accept_seen = {0}, read_seen = {0};
	struct loop_accept *accept;
	struct loop_watch *watch;
	struct loop_recv *recv;
	struct loop_read *reader;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	assert_int_equal(loop_recv_start(loop, fd, see_bytes, &recv_seen, &recv), 0);
	assert_int_equal(loop_accept_start(loop, fd, see_accept, &accept_seen, &accept), 0);
	assert_int_equal(loop_watch(loop, 1 << 30, POLLIN, see_ready, &watch_seen, &watch), 0);
	assert_int_equal(loop_read_start(loop, 1 << 30, 8, see_bytes, &read_seen, &reader), 0);
	assert_int_equal(recv_seen.calls, 0);
	run_turns();
	assert_int_equal(recv_seen.calls, 1);
	assert_int_equal(recv_seen.last, -ENOTSOCK);
	assert_int_equal(accept_seen.calls, 1);
	assert_int_equal(accept_seen.last, -ENOTSOCK);
	assert_int_equal(watch_seen.calls, 1);
	assert_int_equal(watch_seen.last, POLLNVAL);
	assert_int_equal(read_seen.calls, 1);
	assert_int_equal(read_seen.last, -EBADF);
	loop_recv_stop(recv);
	loop_accept_stop(accept);
	loop_unwatch(watch);
	loop_read_stop(reader);
	close(fd);
}

/* --- accept --- */

static int listener(struct sockaddr_un *ret_address, socklen_t *ret_len)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX}; /* the kernel finds a name for it */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	*ret_len = sizeof(*ret_address);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret_address, ret_len), 0);
	assert_int_equal(listen(fd, 64), 0);
	return fd;
}

static int client(const struct sockaddr_un *address, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)address, len), 0);
	return fd;
}

static void accept_without_descriptors_backs_off_and_then_serves(void **state)
{
	struct seen seen = {0};
	struct loop_accept *accept;
	struct sockaddr_un address;
	struct rlimit limit, none;
	int fd, clients[3];
	nsec_t before;
	socklen_t len;

	(void)state;
	fd = listener(&address, &len);
	for (size_t i = 0; i < LENGTH(clients); i++)
		clients[i] = client(&address, len);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = (rlim_t)dup(fd);
	close((int)none.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(loop_accept_start(loop, fd, see_accept, &seen, &accept), 0);
	before = cpu_time();
	assert_int_equal(run_for(350 * NSEC_PER_MSEC), 99);
	before = cpu_time() - before;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(seen.calls, 1); /* in some four attempts */
	assert_int_equal(seen.last, -EMFILE);
	assert_true(before < 50 * NSEC_PER_MSEC);

	seen.stop_after = 1 + LENGTH(clients);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_true(seen.last >= 0);
	loop_accept_stop(accept);
	close_all(clients, LENGTH(clients));
	close(fd);
}

static void accept_stopped_while_it_backs_off(void **state)
{
	struct seen seen = {0};
	struct loop_accept *accept;
	struct sockaddr_un address;
	struct rlimit limit, none;
	int fd, one;
	socklen_t len;

	(void)state;
	fd = listener(&address, &len);
	one = client(&address, len);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = (rlim_t)one + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(loop_accept_start(loop, fd, see_accept, &seen, &accept), 0);
	run_turns();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	loop_accept_stop(accept);
	assert_int_equal(run_for(150 * NSEC_PER_MSEC), 99);
	assert_int_equal(seen.calls, 1);
	close(one);
	close(fd);
}

struct accepted {
	struct loop_accept *accept;
	int fd;
	int calls;
};

static void stop_own_accept(void *arg, int fd)
{
	struct accepted *a = arg;

	a->calls++;
	a->fd = fd;
	loop_accept_stop(a->accept);
}

/* The kernel had accepted all three in one go. The two that nobody wants are closed, not leaked. */
static void accept_stopped_in_its_callback_closes_the_rest(void **state)
{
	struct accepted accepted = {.fd = -1};
	struct sockaddr_un address;
	int fd, clients[3], gone = 0;
	socklen_t len;
	char byte;

	(void)state;
	fd = listener(&address, &len);
	for (size_t i = 0; i < LENGTH(clients); i++)
		clients[i] = client(&address, len);
	assert_int_equal(
		loop_accept_start(loop, fd, stop_own_accept, &accepted, &accepted.accept), 0);
	run_turns();
	assert_int_equal(accepted.calls, 1);
	for (size_t i = 0; i < LENGTH(clients); i++)
		gone += recv(clients[i], &byte, 1, MSG_DONTWAIT) == 0;
	assert_int_equal(gone, 2);
	close(fd);
	close(accepted.fd);
	close_all(clients, LENGTH(clients));
}

/* --- the processor --- */

/* sched_getattr(2): where its header names a struct of <sched.h> as well, only one of them can be included. */
struct scheduled {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static struct scheduled scheduled(void)
{
	struct scheduled a;

	assert_int_equal(syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0), 0);
	return a;
}

static void slices_are_short_and_the_share_is_the_same(void **state)
{
	struct scheduled before = scheduled(), after;
	int r = loop_slice_short();

	(void)state;
	if (r == -EPERM)
		skip();                  /* a filter of system calls */
	assert_int_equal(r, 0);
	after = scheduled();
	assert_int_equal(after.policy, before.policy);
	assert_int_equal(after.nice, before.nice);
	if (before.runtime)        /* from 6.12 on the kernel says how long they are */
		assert_in_range(after.runtime, 1, 400000);
	assert_int_equal(loop_slice_short(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("a pipe is read, chunk by chunk, until its end", pipe_is_read_until_its_end),
		story("a FIFO opened for both goes on when its writers come and go",
			fifo_outlives_its_writers),
		story("an eventfd may be drained and re-flagged by others",
			eventfd_may_be_drained_and_reflagged_by_others),
		story("a read that was stopped hears nothing, armed or not",
			stopped_read_hears_nothing),
		story("packets come whole and in order, also when the buffers run out",
			packets_come_whole_in_order_beyond_the_buffers),
		story("a packet that is too long is told, and the next one comes",
			packet_too_long_is_told_and_the_next_comes),
		story("a stream of 3 MiB comes byte for byte, then its end",
			stream_comes_byte_for_byte),
		story("a receiver stopped with packets behind gives its buffers back",
			recv_stopped_with_packets_behind_gives_its_buffers_back),
		story("a descriptor of the wrong kind is the first event",
			error_of_a_descriptor_is_the_first_event),
		story("accept without descriptors tells once, backs off, and then serves",
			accept_without_descriptors_backs_off_and_then_serves),
		story("accept can be stopped while it backs off",
			accept_stopped_while_it_backs_off),
		story("accept stopped in its callback closes what was accepted behind",
			accept_stopped_in_its_callback_closes_the_rest),
		story("slices are short, and the share of the processor is the same",
			slices_are_short_and_the_share_is_the_same),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
