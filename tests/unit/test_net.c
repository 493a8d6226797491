/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connections between nodes in plain text on loopback: greeting, frames, limits, loss. TLS: test_net_tls. */
#include "net_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "../../daemon/core/core.h"
#include "../../daemon/core/frame.h"
#include "../../daemon/net/address.h"
#include "../../daemon/net/greet.h"
#include "../../daemon/net/pulse.h"
#include "../../daemon/net/resolve.h"

_Static_assert(NET_FRAME_MAX == CORE_FRAME_MAX, "the core's frames fit");
_Static_assert(NET_FRAME_MIN == FRAME_HEAD && NET_FRAME_MIN > PULSE_BYTES, "a beat is told from a frame by its length");

#define A 100
#define B 200

static struct side a, b;

static void open_two(void)
{
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	side_open(&b, "beta", B, NULL, NULL, NULL);
}

static void link_two(void)
{
	assert_int_equal(net_link(a.net, B, side_address(&b)), 0);
	assert_int_equal(net_link(b.net, A, side_address(&a)), 0);
}

static void close_two(void)
{
	side_close(&a);
	side_close(&b);
}

/* --- Coming up --- */

static void both_dial_and_one_connection_stays(void **state)
{
	struct net_peer_info i;

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	run_for(700 * NSEC_PER_MSEC);
	assert_int_equal(a.conn, b.conn);
	assert_int_equal(a.ups - a.downs, 1);
	assert_int_equal(b.ups - b.downs, 1);
	assert_int_equal(a.peer, B);
	assert_int_equal(b.peer, A);
	assert_int_equal(a.peer_incarnation, 1);
	peer_of(&a, B, &i);
	assert_int_equal(i.state, NET_UP);
	assert_string_equal(i.node, "beta");
	assert_string_equal(i.security, "plain text");
	assert_int_equal(i.protocol, 1);
	assert_true(i.rtt > 0 && i.rtt < PATIENCE);
	assert_true(side_said(&a, "connected to beta (127.0.0.1:"));
	close_two();
}

/* Both dial in the same turn, again and again: whatever crosses, both ends agree on one, which stays. */
static void dials_that_cross_leave_one(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		open_two();
		link_two();
		/* an address, or a link, that has come makes both dial at once */
		for (int i = 0; i < 3; i++) {
			assert_int_equal(net_link(b.net, A, i & 1 ? "127.0.0.1:1" : side_address(&a)), 0);
			side_session(&b, B, 1);
			run_for((nsec_t)round * 50 * NSEC_PER_USEC);
		}
		assert_int_equal(net_link(b.net, A, side_address(&a)), 0);
		run_until(a.conn && a.conn == b.conn && a.ups);
		int ups = b.ups;

		run_for(50 * NSEC_PER_MSEC);
		assert_int_equal(a.conn, b.conn);
		assert_int_equal(b.ups, ups);
		close_two();
	}
}

static void later_connection_has_a_higher_number(void **state)
{
	uint64_t last;

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	for (uint32_t i = 2; i < 6; i++) {
		last = a.conn;
		side_session(&a, A, i);        /* started anew, says the greeting */
		run_until(a.conn && b.conn == a.conn);
		assert_true(a.conn > last);
		assert_int_equal(b.peer_incarnation, i);
	}
	assert_int_equal(b.downs, 4);            /* b was told of each, a of none */
	assert_int_equal(a.downs, 0);
	last = a.conn;
	side_close(&a);                          /* really anew: it knows nothing of earlier numbers */
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	side_session(&a, A, 6);
	assert_int_equal(net_link(a.net, B, side_address(&b)), 0);
	run_until(a.conn && b.conn == a.conn);
	assert_true(a.conn > last);
	close_two();
}

static void only_who_was_told_to_dials(void **state)
{
	(void)state;
	open_two();
	assert_int_equal(net_link(b.net, A, side_address(&a)), 0);       /* the higher session: a little later */
	run_until(a.conn && b.conn);
	close_two();

	open_two();
	assert_int_equal(net_link(a.net, B, NULL), 0);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(a.ups, 0);
	close_two();
}

static void a_name_is_resolved_beside_the_loop(void **state)
{
	char text[64];

	(void)state;
	open_two();
	snprintf(text, sizeof text, "localhost.:%s", strchr(side_address(&b), ':') + 1);
	assert_int_equal(net_link(a.net, B, text), 0);
	assert_int_equal(net_link(a.net, 999, "no-such-host.invalid:7420"), 0);
	run_until(side_said(&a, "its name cannot be resolved"));
	run_until(a.conn || side_said(&a, "localhost"));         /* where localhost. has no name server */
	assert_int_equal(net_link(a.net, B, "not an address"), -EINVAL);
	close_two();
}

/* --- Frames --- */

static void frames_of_a_turn_go_out_in_one_send(void **state)
{
	const struct net_options calm = { .cluster = "test", .ttl = 100 * NSEC_PER_SEC };        /* no beat comes between */
	struct net_peer_info before, after;
	uint8_t f[NET_FRAME_MAX];

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, &calm);
	side_open(&b, "beta", B, NULL, NULL, &calm);
	link_two();
	run_until(a.conn && b.conn);
	run_for(20 * NSEC_PER_MSEC);
	peer_of(&a, B, &before);
	for (unsigned i = 0; i < 100; i++) {
		frame_make(f, 32 + i, (uint8_t)i);
		net_send(a.net, B, a.conn, f, 32 + i);
	}
	run_until(b.frames == 100);
	assert_int_equal(b.frame_n, 131);
	assert_memory_equal(b.frame, f, 131);
	peer_of(&a, B, &after);
	assert_int_equal(after.frames_out - before.frames_out, 100);
	assert_int_equal(after.sends - before.sends, 1);
	net_send(a.net, B, a.conn - 2, f, 131);          /* an older connection's */
	net_send(a.net, 12345, a.conn, f, 131);          /* nobody's */
	run_for(20 * NSEC_PER_MSEC);
	assert_int_equal(b.frames, 100);
	close_two();
}

static void much_arrives_whole_and_in_order(void **state)
{
	uint64_t sum = 0;
	uint8_t f[NET_FRAME_MAX];

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	for (unsigned i = 0; i < 40000; i++) {
		uint32_t n = 32 + (i * 37) % 417;

		frame_make(f, n, (uint8_t)(i * 11));
		sum += (uint64_t)(n - 2) * (uint8_t)(i * 11);
		net_send(a.net, B, a.conn, f, n);
	}
	assert_true(net_backlog(a.net) > 1000000);
	run_until(b.frames == 40000);
	assert_true(b.frame_sum == sum);
	assert_int_equal(a.downs + b.downs, 0);
	close_two();
}

static void what_is_no_frame_closes_the_connection(void **state)
{
	uint8_t f[NET_FRAME_MAX];
	uint64_t first;

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	first = a.conn;
	b.refuse_frames = 1;                     /* the core knows better than the length */
	frame_make(f, 40, 1);
	net_send(a.net, B, a.conn, f, 40);
	run_until(b.downs == 1);
	assert_true(side_said(&b, "no frame of this protocol"));
	b.refuse_frames = 0;
	run_until(a.conn > first && a.conn == b.conn);
	close_two();
}

/* --- Loss --- */

static void who_does_not_read_is_disconnected_at_the_limit(void **state)
{
	const struct net_options small = { .cluster = "test", .queue_max = 300000 };
	struct net_stats st;
	uint8_t f[NET_FRAME_MAX];
	uint64_t conn = 0;
	int fd;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, &small);
	fd = raw_up(&a, 7, &conn);
	frame_make(f, 400, 5);
	for (int i = 0; i < 20000 && !a.downs; i++) {
		net_send(a.net, 7, conn, f, 400);
		if (i % 500 == 0)
			run_for(200 * NSEC_PER_USEC);
	}
	run_until(a.downs == 1);
	net_stats(a.net, &st);
	assert_int_equal(st.over_queue, 1);
	assert_true(side_said(&a, "the limit is 300000"));
	close(fd);
	side_close(&a);
}

/* It takes our bytes and says things, but never that it has heard us: one direction is lost. */
static void silence_in_one_direction_is_noticed(void **state)
{
	struct pulse p;
	uint8_t beat[PULSE_BYTES];
	nsec_t begin = boottime();
	int fd;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	fd = raw_up(&a, 7, NULL);
	while (!a.downs && boottime() < begin + PATIENCE) {
		pulse_begin(&p, boottime());
		pulse_encode(&p, boottime(), false, beat);
		send(fd, beat, sizeof beat, MSG_NOSIGNAL);
		run_for(20 * NSEC_PER_MSEC);
	}
	assert_int_equal(a.downs, 1);
	assert_true(a.down_at - a.up_at >= net_silence(TTL));
	assert_true(side_said(&a, "lets one direction only through"));
	close(fd);
	side_close(&a);
}

static void live_connection_stays_while_nothing_is_said(void **state)
{
	struct net_peer_info i;

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	peer_of(&a, B, &i);
	run_for(5 * net_silence(TTL));
	assert_int_equal(a.downs + b.downs, 0);
	peer_of(&a, B, &i);
	assert_int_equal(i.frames_in + i.frames_out, 0);
	assert_true(i.sends < 60);
	assert_true(boottime() - i.heard < 5 * net_silence(TTL));
	close_two();
}

/* The process itself stood still: that is nobody else's silence. */
static void own_pause_is_nobodys_silence(void **state)
{
	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	run_for(50 * NSEC_PER_MSEC);
	usleep(3 * (useconds_t)(net_silence(TTL) / NSEC_PER_USEC));
	run_for(net_silence(TTL));
	assert_int_equal(a.downs + b.downs, 0);
	close_two();
}

static void lost_peer_is_dialled_until_it_is_back(void **state)
{
	char address[ADDRESS_TEXT_MAX];
	struct net_peer_info i;
	uint64_t last;

	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	last = a.conn;
	snprintf(address, sizeof address, "%s", side_address(&b));
	side_close(&b);
	run_until(a.downs == 1);
	run_until(side_said(&a, "nothing listens there"));
	peer_of(&a, B, &i);
	assert_int_equal(i.state, NET_WAITING);
	assert_non_null(strstr(i.last_error, "nothing listens there"));
	run_for(500 * NSEC_PER_MSEC);
	side_open(&b, "beta", B, NULL, address, NULL);
	side_session(&b, B, 2);
	run_until(a.conn && a.conn == b.conn);
	assert_true(a.conn > last);
	peer_of(&a, B, &i);
	assert_int_equal(i.connects, 2);
	assert_string_equal(i.last_error, "");
	close_two();
}

static void session_that_changes_is_greeted_anew_without_news_of_the_old(void **state)
{
	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	side_session(&b, B + 1, 1);
	run_until(a.downs == 1);
	assert_int_equal(b.downs, 0);
	assert_int_equal(net_link(a.net, B + 1, side_address(&b)), 0);
	net_unlink(a.net, B);
	run_until(a.conn && a.peer == B + 1);
	assert_int_equal(a.ups, 2);
	assert_int_equal(a.downs, 1);
	net_unlink(a.net, B + 1);
	run_until(b.downs == 1);
	assert_int_equal(a.downs, 1);
	close_two();
}

static void unlink_in_a_callback_is_safe(void **state)
{
	(void)state;
	open_two();
	link_two();
	run_until(a.conn && b.conn);
	a.unlink_when_down = true;
	side_close(&b);
	run_until(a.downs == 1);
	run_for(50 * NSEC_PER_MSEC);
	side_close(&a);
}

/* The old connection's end is told in the very turn in which the new one would be up. */
static void unlink_between_two_connections_is_safe(void **state)
{
	struct greeting hello = { .session = 7, .to = A }, ready = { .kind = GREET_READY, .version_min = 1, .version_max = 1 };
	uint8_t buf[2 * GREET_MAX];
	uint64_t conn = 0;
	int fd, again;
	size_t n;

	(void)state;
	side_open(&a, "alpha", A, NULL, NULL, NULL);
	fd = raw_up(&a, 7, &conn);
	a.unlink_when_down = true;
	hello.conn = conn;
	ready.conn = conn + 2;
	n = hello_make(buf, &hello);
	n += greet_encode(&ready, buf + n);
	again = raw_dial(&a);
	assert_int_equal(send(again, buf, n, 0), n);
	run_until(a.downs == 1);
	run_for(50 * NSEC_PER_MSEC);
	assert_int_equal(a.ups, 1);
	assert_int_equal(a.conn, 0);
	close(fd);
	close(again);
	side_close(&a);
}

static void listening_beyond_loopback_needs_keys(void **state)
{
	const struct net_options o = { .node = "n", .cluster = "", .ttl = TTL };
	char why[256];
	struct net *n;

	(void)state;
	assert_int_equal(net_create(loop, &o, &(struct net_ops){ 0 }, NULL, &n), 0);
	assert_int_equal(net_listen(n, "0.0.0.0:0", why), -EPERM);
	assert_non_null(strstr(why, "neither Key= nor Cert="));
	assert_int_equal(net_listen(n, "*:0", why), -EPERM);
	assert_int_equal(net_listen(n, "nonsense", why), -EINVAL);
	assert_int_equal(net_listen(n, "192.0.2.1:0", why), -EPERM);
	assert_int_equal(net_listen(n, "127.0.0.1:0", why), 0);
	assert_string_equal(net_listen_address(n, 1), "");
	net_free(n);
}

#define MANY 300

static unsigned lines;

static void count_line(void *arg, enum log_level level, const char *text)
{
	(void)arg, (void)level, (void)text;
	lines++;
}

/* Listed by somebody, and not there: one after the other, and not a line for each attempt. */
static void many_that_are_not_there_are_in_nobodys_way(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const struct net_ops ops = { .say = count_line };
	const struct net_options o = { .node = "n", .cluster = "", .ttl = TTL };
	int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), fd[MANY], n = 0;
	char address[32];
	socklen_t size = sizeof at;
	struct net *net;

	(void)state;
	assert_int_equal(bind(silent, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(silent, MANY), 0);
	assert_int_equal(getsockname(silent, (struct sockaddr *)&at, &size), 0);
	snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
	assert_int_equal(net_create(loop, &o, &ops, NULL, &net), 0);
	net_session(net, 1, 1);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(net_link(net, 1000 + i, address), 0);
	run_for(500 * NSEC_PER_MSEC);
	while (n < MANY && (fd[n] = accept4(silent, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		n++;
	assert_int_equal(n, NET_DIALS_MAX);
	close(silent);
	while (n)
		close(fd[--n]);                  /* from now on: refused, again and again */
	run_for(2 * NSEC_PER_SEC);
	assert_in_range(lines, 1, 100);
	net_free(net);
}

static void an_address_that_is_not_there_yet_is_listened_at(void **state)
{
	static const struct net_ops ops = { .say = count_line };
	struct net_options o = { .node = "n", .cluster = "", .ttl = TTL };
	char path[] = "/tmp/dlock-key.XXXXXX", why[TLS_WHY_MAX];
	struct tls_keys *keys;
	struct net *n;
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(dprintf(fd, "%064d\n", 7), 65);
	close(fd);
	assert_int_equal(tls_keys_load(&(struct tls_files){ .key = path }, &keys, why), 0);
	unlink(path);
	o.keys = keys;
	assert_int_equal(net_create(loop, &o, &ops, NULL, &n), 0);
	lines = 0;
	assert_int_equal(net_listen(n, "192.0.2.123:0", why), 0);
	assert_int_equal(net_listen(n, "[2001:db8::7]:0", why), 0);
	assert_int_equal(lines, 2);
	net_free(n);
	tls_keys_free(keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("two nodes that dial each other have one connection, with one number", both_dial_and_one_connection_stays),
		story("dials that cross leave one connection, the same for both", dials_that_cross_leave_one),
		story("each later connection has a higher number, also of daemons started anew", later_connection_has_a_higher_number),
		story("who has an address dials, who has none is dialled", only_who_was_told_to_dials),
		story("a name is resolved beside the loop, and one that cannot be is told", a_name_is_resolved_beside_the_loop),
		story("all frames of a turn go out in one send", frames_of_a_turn_go_out_in_one_send),
		story("40,000 frames at once arrive whole and in order", much_arrives_whole_and_in_order),
		story("what is no frame to the core closes the connection, and another one comes", what_is_no_frame_closes_the_connection),
		story("who does not read is disconnected at the limit of the queue", who_does_not_read_is_disconnected_at_the_limit),
		story("silence in one direction is noticed in time", silence_in_one_direction_is_noticed),
		story("a live connection stays while nothing is said", live_connection_stays_while_nothing_is_said),
		story("a pause of our own is nobody else's silence", own_pause_is_nobodys_silence),
		story("a lost peer is dialled until it is back", lost_peer_is_dialled_until_it_is_back),
		story("a session that changes is greeted anew, without news of the old one", session_that_changes_is_greeted_anew_without_news_of_the_old),
		story("a callback may unlink the peer that it is about", unlink_in_a_callback_is_safe),
		story("a callback may unlink the peer between two of its connections", unlink_between_two_connections_is_safe),
		story("many that are not there are in nobody's way", many_that_are_not_there_are_in_nobodys_way),
		story("an address that is not there yet is listened at", an_address_that_is_not_there_yet_is_listened_at),
		story("listening beyond loopback needs keys", listening_beyond_loopback_needs_keys),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
