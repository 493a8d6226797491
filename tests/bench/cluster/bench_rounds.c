/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A round of a barrier over three nodes, eight processes on each, which arrive, wait for one another, and go on at once to the
 * next; against 64 bytes by TCP from one of the hosts to another and back, again and again, by two processes that
 * sleep in between. Both are what one waits for: a round takes an arrival and a verdict that all nodes confirm.
 *
 * Nobody may be more than one round ahead of another, and of each round exactly one in the cluster is told that it is the one.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../cluster/town.h"
#include "../../e2e/harness.h"
#include "../bench.h"
#include "../rounds.h"
#include "bare.h"

#define HOSTS   3
#define TTL_MS  5000
#define EACH    8
#define PARTIES (HOSTS * EACH)
#define TRIPS   500
#define PORT    7998
#define BYTES   64

static struct shared {
	uint64_t from __attribute__((aligned(64)));
	uint64_t to;
	uint32_t listens;
	struct round_party per[PARTIES];
} *shared;

/* --- Rounds --- */

static void arrive(dlock_barrier_t *b, unsigned i, bool counts)
{
	int r = dlock_barrier_wait(b);

	if (r != 0 && r != DLOCK_SERIAL)
		errx(2, "a round failed: %s", strerror(r));
	if (counts)
		round_passed(shared->per, PARTIES, i, r == DLOCK_SERIAL);
}

static uint64_t party(unsigned i, void *arg)
{
	dlock_barrier_t *b;

	(void)arg;
	setenv("DLOCK_RUN_DIR", town_run_dir(1 + i % HOSTS), 1);
	bench_ok(dlock_barrier_open(&b, "round", PARTIES, NULL), "dlock_barrier_open");
	bench_crowd_go();
	arrive(b, i, false);             /* all are there */
	if (i == 0)
		shared->from = bench_ns();
	for (unsigned n = 0; n < TRIPS; n++)
		arrive(b, i, true);
	if (i == 0)
		shared->to = bench_ns();
	bench_ok(dlock_barrier_close(b), "dlock_barrier_close");
	return TRIPS;
}

static double us_round(void *arg)
{
	uint64_t ns, serial = 0;

	(void)arg;
	memset(shared, 0, sizeof *shared);
	bench_crowd(PARTIES, 0, party, NULL, &ns);
	for (unsigned i = 0; i < PARTIES; i++)
		serial += shared->per[i].serial;
	if (serial != TRIPS)
		errx(2, "%u rounds, and %llu were told that they are the one", TRIPS, (unsigned long long)serial);
	return (double)(shared->to - shared->from) / TRIPS / 1e3;
}

/* --- There and back --- */

static int tcp_socket(unsigned host)
{
	int fd, one = 1;

	lab_enter(host);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	return fd;
}

static struct sockaddr_in tcp_address(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, lab_address(2), &a.sin_addr);
	return a;
}

static bool pass_on(int fd, bool first)
{
	char bytes[BYTES] = "";

	if (first && send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes)
		return false;
	if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes)
		return false;
	return first || send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes;
}

static void comes_back(void *arg)
{
	struct sockaddr_in a = tcp_address();
	int listening = tcp_socket(2), fd;

	(void)arg;
	if (bind(listening, (struct sockaddr *)&a, sizeof a) < 0 || listen(listening, 1) < 0)
		err(2, "listen");
	__atomic_store_n(&shared->listens, 1, __ATOMIC_RELEASE);
	fd = accept(listening, NULL, NULL);
	while (pass_on(fd, false))
		;
}

static void goes(void *arg)
{
	struct sockaddr_in a = tcp_address();
	int fd = tcp_socket(1);

	(void)arg;
	bench_await(&shared->listens);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		err(2, "connect");
	pass_on(fd, true);
	shared->from = bench_ns();
	for (unsigned n = 0; n < TRIPS; n++)
		if (!pass_on(fd, true))
			err(2, "there and back");
	shared->to = bench_ns();
}

static double us_trip(void *arg)
{
	pid_t pid[2];

	(void)arg;
	memset(shared, 0, sizeof *shared);
	pid[0] = bench_fork(1, comes_back, NULL);
	pid[1] = bench_fork(0, goes, NULL);
	bench_join(pid[1]);
	bench_join(pid[0]);
	return (double)(shared->to - shared->from) / TRIPS / 1e3;
}

/* --- What of it is the machine's --- */

static double us_bare(void *arg)
{
	(void)arg;
	return bare_round(TRIPS, true);
}

static double us_bare_told(void *arg)
{
	(void)arg;
	return bare_round(TRIPS, false);
}

int main(void)
{
	static const struct {
		struct row row;
		double (*dlock)(void *arg), (*rival)(void *arg);
	} rows[] = {
		{ { .key = "barrier-24", .what = "a barrier's round, 3 nodes, 8 processes each", .rival = "TCP there and back", .unit = "us", .goal = 3.0 },
		  us_round, us_trip },
		{ { .key = "barrier-24-bare", .what = "the same", .rival = "bare: futex, TCP, confirmed", .unit = "us" }, us_round, us_bare },
		{ { .key = "barrier-24-least", .what = "bare, and nobody confirms", .rival = "TCP there and back", .unit = "us" }, us_bare_told, us_trip },
	};

	harness_begin(600);
	bench_begin("rounds");
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (!bench_wanted(rows[i].row.key))
			continue;
		if (!shared) {
			town_begin(HOSTS, TTL_MS);
			shared = bench_shared(sizeof *shared);
		}
		bench_rounds(&rows[i].row, ROUNDS, rows[i].dlock, rows[i].rival, NULL);
	}
	bench_end();
	return 0;
}
