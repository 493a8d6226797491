/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The first acquisition of a name that is open and not cached: the client sleeps, the daemon gives
 * the node its tokens, the client is woken. There and back between two processes, so the rival is a
 * byte there and back over a unix socket (socketpair, SOCK_STREAM, blocking read and write).
 *
 * Each trip is timed by itself, and the round's value is their median. Once with the daemon (or the
 * rival's other end) on the client's own processor, once on another: what a wake-up costs differs
 * there by an order of magnitude. Trips follow one another at once; and, since the daemon may look
 * for a moment before it sleeps, also with a pause between them, in which both sides sleep.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define TRIPS 200

static struct {
	int sock[2];
	uint64_t pause_ns;
	unsigned long name;
} first;

static void pause_between(void)
{
	struct timespec t = { 0, (long)first.pause_ns };

	if (first.pause_ns)
		nanosleep(&t, NULL);
}

static double us_median(double *ns)
{
	return bench_percentile(ns, TRIPS, 0.5) / 1e3;
}

static double trips_dlock(void *arg)
{
	dlock_t *l[TRIPS];
	double ns[TRIPS];

	(void)arg;
	for (unsigned i = 0; i < TRIPS; i++) {
		char name[32];

		snprintf(name, sizeof name, "first-%lu", first.name++);
		l[i] = bench_open(name);
	}
	for (unsigned i = 0; i < TRIPS; i++) {
		uint64_t begin;

		pause_between();
		begin = bench_ns();
		bench_ok(dlock_wait(l[i]), "dlock_wait");
		ns[i] = (double)(bench_ns() - begin);
	}
	for (unsigned i = 0; i < TRIPS; i++) {
		bench_ok(dlock_post(l[i]), "dlock_post");
		bench_ok(dlock_close(l[i]), "dlock_close");
	}
	return us_median(ns);
}

static double trips_socket(void *arg)
{
	double ns[TRIPS];
	char byte = 1;

	(void)arg;
	for (unsigned i = 0; i < TRIPS; i++) {
		uint64_t begin;

		pause_between();
		begin = bench_ns();
		if (write(first.sock[0], &byte, 1) != 1 || read(first.sock[0], &byte, 1) != 1)
			err(2, "socket");
		ns[i] = (double)(bench_ns() - begin);
	}
	return us_median(ns);
}

static void echo(void *arg)
{
	char byte;

	(void)arg;
	close(first.sock[0]);
	while (read(first.sock[1], &byte, 1) == 1)
		if (write(first.sock[1], &byte, 1) != 1)
			err(2, "socket");
}

static void client(void *arg)
{
	close(first.sock[1]);
	bench_rounds(arg, ROUNDS, trips_dlock, trips_socket, NULL);
	bench_end();
}

static void measure(const struct row *row, unsigned server, uint64_t pause_ns)
{
	struct bench_daemon d;
	pid_t other, me;

	if (!bench_wanted(row->key))
		return;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, first.sock) < 0)
		err(2, "socketpair");
	first.pause_ns = pause_ns;
	bench_daemon_start(&d, server, NULL);
	other = bench_fork(server, echo, NULL);
	me = bench_fork(1, client, (void *)row);
	close(first.sock[0]);
	close(first.sock[1]);
	bench_join(me);
	bench_join(other);
	bench_daemon_stop(&d);
}

int main(void)
{
	static const struct row same = {
		.key = "first-same", .what = "first acquisition through the daemon, one processor",
		.rival = "unix socket, 1 byte there and back", .unit = "us", .goal = 2.0,
	}, cross = {
		.key = "first-cross", .what = "first acquisition through the daemon, two processors",
		.rival = "unix socket, 1 byte there and back", .unit = "us", .goal = 2.0,
	}, same_paused = {
		.key = "first-same-paused", .what = "... one processor, 1 ms between",
		.rival = "unix socket, 1 byte there and back", .unit = "us",
	}, cross_paused = {
		.key = "first-cross-paused", .what = "... two processors, 1 ms between",
		.rival = "unix socket, 1 byte there and back", .unit = "us",
	};

	bench_begin("first");
	measure(&same, 1, 0);
	measure(&cross, 0, 0);
	measure(&same_paused, 1, 1000000);
	measure(&cross_paused, 0, 1000000);
	return 0;
}
