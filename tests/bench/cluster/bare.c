/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The least that a round of a barrier over three hosts can be made of, to see what of dlock's is the machine's: eight processes a host,
 * which count themselves in memory; the last one rings the relay of its host, a process pinned as a daemon is; relays say by 64 bytes of
 * plain TCP to the first of them that all have come; it says that they may go; each wakes its eight by one futex call. No names, no deaths, no
 * ledger, no encryption, nobody who comes late.
 *
 * confirmed: it says first what the verdict is, and that they may go when all have said that they have it, as dlock has to: else one that
 * dies in between leaves some who have gone on, and others who never hear of it.
 */
#include "bare.h"

#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../../include/proto/futex.h"
#include "../../cluster/lab.h"
#include "../bench.h"

#define PORT  7997
#define BYTES 64

static struct bare {
	struct site {
		uint32_t round __attribute__((aligned(64)));     /* sleeps on it whoever has come to this one */
		uint32_t come __attribute__((aligned(64)));
	} site[BARE_HOSTS];
	uint64_t from, to;
	uint32_t listens;
} *bare;

static int bell[BARE_HOSTS];
static unsigned rounds_;
static bool confirmed_;

/* --- Parties --- */

static void come(unsigned host)
{
	struct site *s = &bare->site[host];
	uint32_t round = __atomic_load_n(&s->round, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&s->come, 1, __ATOMIC_ACQ_REL) == BARE_EACH && eventfd_write(bell[host], 1) < 0)
		err(2, "a bell");
	while (__atomic_load_n(&s->round, __ATOMIC_ACQUIRE) == round)
		futex_wait_class(&s->round, round, FUTEX_BITSET_MATCH_ANY, CLOCK_MONOTONIC, NULL);
}

static uint64_t party(unsigned i, void *arg)
{
	(void)arg;
	bench_crowd_go();
	come(i % BARE_HOSTS);
	if (i == 0)
		bare->from = bench_ns();
	for (unsigned n = 0; n < rounds_; n++)
		come(i % BARE_HOSTS);
	if (i == 0)
		bare->to = bench_ns();
	return rounds_;
}

/* --- Relays --- */

static void all_here(unsigned host)
{
	eventfd_t n;

	if (eventfd_read(bell[host], &n) < 0)
		err(2, "a bell");
}

static void all_go(unsigned host)
{
	struct site *s = &bare->site[host];

	__atomic_store_n(&s->come, 0, __ATOMIC_RELEASE);
	__atomic_add_fetch(&s->round, 1, __ATOMIC_ACQ_REL);
	futex_wake_class(&s->round, INT_MAX, FUTEX_BITSET_MATCH_ANY);
}

static void say(int fd)
{
	static const char bytes[BYTES];

	if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes)
		err(2, "send");
}

static void hear(int fd)
{
	char bytes[BYTES];

	if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes)
		err(2, "recv");
}

static int tcp_socket(unsigned host, struct sockaddr_in *ret)
{
	int fd, one = 1;

	lab_enter(1 + host);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(PORT) };
	inet_pton(AF_INET, lab_address(1), &ret->sin_addr);
	return fd;
}

static void first_relay(void *arg)
{
	struct sockaddr_in a;
	int listening = tcp_socket(0, &a), fd[BARE_HOSTS];

	(void)arg;
	if (bind(listening, (struct sockaddr *)&a, sizeof a) < 0 || listen(listening, BARE_HOSTS) < 0)
		err(2, "listen");
	__atomic_store_n(&bare->listens, 1, __ATOMIC_RELEASE);
	futex_wake_class(&bare->listens, INT_MAX, FUTEX_BITSET_MATCH_ANY);
	for (unsigned i = 1; i < BARE_HOSTS; i++) {
		int one = 1;

		fd[i] = accept(listening, NULL, NULL);
		setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	}
	for (unsigned n = 0; n <= rounds_; n++) {
		all_here(0);
		for (unsigned trip = 0; trip <= confirmed_; trip++) {
			for (unsigned i = 1; i < BARE_HOSTS; i++)
				hear(fd[i]);
			for (unsigned i = 1; i < BARE_HOSTS; i++)
				say(fd[i]);
		}
		all_go(0);
	}
}

static void relay(void *arg)
{
	unsigned host = *(unsigned *)arg;
	struct sockaddr_in a;
	int fd = tcp_socket(host, &a);

	bench_await(&bare->listens);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		err(2, "connect");
	for (unsigned n = 0; n <= rounds_; n++) {
		all_here(host);
		for (unsigned trip = 0; trip <= confirmed_; trip++) {
			say(fd);
			hear(fd);
		}
		all_go(host);
	}
}

double bare_round(unsigned rounds, bool confirmed)
{
	pid_t pid[BARE_HOSTS];
	uint64_t ns;

	if (!bare)
		bare = bench_shared(sizeof *bare);
	memset(bare, 0, sizeof *bare);
	rounds_ = rounds;
	confirmed_ = confirmed;
	for (unsigned i = 0; i < BARE_HOSTS; i++)
		if ((bell[i] = eventfd(0, EFD_CLOEXEC)) < 0)
			err(2, "eventfd");
	for (unsigned i = 0; i < BARE_HOSTS; i++)
		pid[i] = bench_fork(1 + i, i ? relay : first_relay, &i);
	bench_crowd(BARE_HOSTS * BARE_EACH, 0, party, NULL, &ns);
	for (unsigned i = 0; i < BARE_HOSTS; i++) {
		bench_join(pid[i]);
		close(bell[i]);
	}
	return (double)(bare->to - bare->from) / rounds / 1e3;
}
