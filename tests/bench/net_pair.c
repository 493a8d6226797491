/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two processes, each on a processor of its own, with one connection between nodes: round trips of one frame, and frames a
 * second one way. net_pair [plain|key] [FRAME-BYTES]
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../daemon/loop/loop.h"
#include "../../daemon/net/keys.h"
#include "../../daemon/net/net.h"

#define ROUNDS 20000
#define FRAMES 3000000
#define BURST 64                 /* frames a turn, as when a master answers */
#define WINDOW (1u << 20)        /* bytes that may wait */

static struct {
	struct loop *loop;
	struct net *net;
	struct loop_defer more;
	uint64_t peer, conn;
	unsigned frame_n;
	unsigned rounds, sent, heard;
	bool echo, flood;
	nsec_t begin, times[ROUNDS];
	uint8_t frame[NET_FRAME_MAX];
} me;

static nsec_t clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (nsec_t)ts.tv_sec * NSEC_PER_SEC + (nsec_t)ts.tv_nsec;
}

static void send_frame(uint8_t mark)
{
	me.frame[0] = (uint8_t)me.frame_n;
	me.frame[1] = (uint8_t)(me.frame_n >> 8);
	me.frame[2] = mark;
	net_send(me.net, me.peer, me.conn, me.frame, me.frame_n);
}

static void send_more(void *arg)
{
	(void)arg;
	for (int i = 0; i < BURST && me.sent < FRAMES && net_backlog(me.net) < WINDOW; i++, me.sent++)
		send_frame('f');
	if (me.sent < FRAMES)
		loop_defer(me.loop, &me.more);
}

static void link_up(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn)
{
	(void)arg, (void)incarnation;
	me.peer = session;
	me.conn = conn;
	if (me.echo)
		return;
	me.begin = clock_now();
	send_frame('p');
}

static void link_down(void *arg, uint64_t session, uint64_t conn)
{
	(void)arg, (void)session, (void)conn;
	loop_stop(me.loop, 0);
}

static int compare(const void *a, const void *b)
{
	nsec_t x = *(const nsec_t *)a, y = *(const nsec_t *)b;

	return x < y ? -1 : x > y;
}

static void rounds_tell(void)
{
	qsort(me.times, ROUNDS, sizeof *me.times, compare);
	printf("round trip of %u bytes: p50 %.1f us, p99 %.1f us\n", me.frame_n, (double)me.times[ROUNDS / 2] / 1000,
	       (double)me.times[ROUNDS / 100 * 99] / 1000);
}

static int heard(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t n)
{
	const uint8_t *b = bytes;
	nsec_t now;

	(void)arg, (void)session, (void)conn, (void)n;
	if (me.echo) {
		if (b[2] == 'p' || ++me.heard == FRAMES)
			send_frame(b[2]);
		return 0;
	}
	now = clock_now();
	if (b[2] == 'f') {
		double span = (double)(now - me.begin) / 1e9;

		printf("one way: %.2f million frames a second, %.0f MB/s\n", FRAMES / span / 1e6,
		       (double)FRAMES * me.frame_n / span / 1e6);
		loop_stop(me.loop, 0);
		return 0;
	}
	me.times[me.rounds++] = now - me.begin;
	me.begin = now;
	if (me.rounds < ROUNDS) {
		send_frame('p');
		return 0;
	}
	rounds_tell();
	loop_defer(me.loop, &me.more);
	return 0;
}

static void say(void *arg, enum log_level level, const char *text)
{
	(void)arg;
	if (level <= LOG_LEVEL_WARNING)
		fprintf(stderr, "%s\n", text);
}

static void pin(unsigned n)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(n % (unsigned)sysconf(_SC_NPROCESSORS_ONLN), &set);
	(void)sched_setaffinity(0, sizeof set, &set);
}

static int run(bool echo, const struct tls_keys *keys, const char *other, int tell)
{
	static const struct net_ops ops = { link_up, link_down, heard, say };
	struct net_options o = { .node = echo ? "echo" : "ask", .cluster = "bench", .ttl = 60 * NSEC_PER_SEC, .keys = keys };
	struct rusage u;

	pin(echo);
	me.echo = echo;
	if (loop_create(&me.loop) < 0 || net_create(me.loop, &o, &ops, NULL, &me.net) < 0 ||
	    net_listen(me.net, "127.0.0.1:0", NULL) < 0)
		return 1;
	if (getenv("SPIN"))
		loop_set_spin(me.loop, (nsec_t)atoi(getenv("SPIN")) * NSEC_PER_USEC);
	loop_defer_init(&me.more, send_more, NULL);
	net_session(me.net, echo ? 2 : 1, 1);
	if (other)
		net_link(me.net, 2, other);
	else if (write(tell, net_listen_address(me.net, 0), 64) < 0)
		return 1;
	loop_run(me.loop);
	getrusage(RUSAGE_SELF, &u);
	printf("%s: %.2f s of processor\n", o.node, (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
	net_free(me.net);
	loop_free(me.loop);
	return 0;
}

static struct tls_keys *key_load(void)
{
	char path[] = "/tmp/net_pair.XXXXXX", why[TLS_WHY_MAX];
	struct tls_keys *k = NULL;
	int fd = mkstemp(path);

	for (int i = 0; i < 64; i++)
		if (write(fd, "5", 1) != 1)
			exit(1);
	close(fd);
	if (tls_keys_load(&(struct tls_files){ .key = path }, &k, why) < 0)
		fprintf(stderr, "%s\n", why);
	unlink(path);
	return k;
}

int main(int argc, char **argv)
{
	struct tls_keys *keys = argc > 1 && strcmp(argv[1], "key") == 0 ? key_load() : NULL;
	char address[64];
	int fds[2], r;
	pid_t pid;

	me.frame_n = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
	if (me.frame_n < NET_FRAME_MIN || me.frame_n > NET_FRAME_MAX || pipe(fds) < 0)
		return 2;
	pid = fork();
	if (pid == 0)
		_exit(run(true, keys, NULL, fds[1]));
	if (read(fds[0], address, sizeof address) <= 0)
		return 1;
	r = run(false, keys, address, -1);
	waitpid(pid, NULL, 0);
	tls_keys_free(keys);
	return r;
}
