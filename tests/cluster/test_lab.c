/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The lab itself: if what it says is broken were not, no test built on it could fail. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "lab.h"

#define PORT 7000
#define SILENCE_MS 300                   /* whoever has heard nothing for so long hears nothing */

static int receiver[LAB_HOSTS_MAX + 1];

static struct sockaddr_in place(unsigned host)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, lab_address(host), &a.sin_addr);
	return a;
}

static void receivers_make(unsigned n)
{
	for (unsigned i = 1; i <= n; i++) {
		struct sockaddr_in a = place(i);

		lab_enter(i);
		receiver[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (bind(receiver[i], (struct sockaddr *)&a, sizeof a) < 0)
			give_up("host %u has no socket", i);
	}
	lab_enter(0);
}

/* A datagram from one arrives at the other, within so long. */
static bool heard_within(unsigned from, unsigned to, unsigned ms)
{
	struct sockaddr_in a = place(to);
	struct pollfd p = { receiver[to], POLLIN, 0 };
	char byte;

	sendto(receiver[from], "x", 1, 0, (struct sockaddr *)&a, sizeof a);
	return poll(&p, 1, (int)ms) == 1 && recv(receiver[to], &byte, 1, 0) == 1;
}

static bool heard(unsigned from, unsigned to)
{
	return heard_within(from, to, PATIENCE_MS);
}

static bool silent(unsigned from, unsigned to)
{
	return !heard_within(from, to, SILENCE_MS);
}

/* The kernel tells of a carrier only some time after it is there. */
static bool heard_soon(unsigned from, unsigned to)
{
	for (unsigned tries = 0; tries < PATIENCE_MS / SILENCE_MS; tries++)
		if (heard_within(from, to, SILENCE_MS))
			return true;
	return false;
}

/* Of some datagrams one takes less than it could on the slow cable; the machine may have other work for the rest. */
static bool fast(unsigned from, unsigned to)
{
	for (unsigned tries = 0; tries < 200; tries++) {
		uint64_t before = now_ns();

		if (heard(from, to) && now_ns() - before < 20 * MS)
			return true;
	}
	return false;
}

int main(void)
{
	harness_begin(60);
	lab_begin(3);
	receivers_make(3);

	ok(heard(1, 2) && heard(2, 1) && heard(3, 1), "hosts hear one another");
	lab_block(1, 2);
	ok(silent(1, 2), "a direction that is blocked is silent");
	ok(heard(2, 1) && heard(1, 3) && heard(3, 2), "the other direction is not, nor are other hosts");
	lab_unblock(1, 2);
	ok(heard(1, 2), "unblocked, it is heard again");
	lab_cable(3, false);
	ok(silent(3, 1) && silent(1, 3) && heard(1, 2), "a host whose cable is cut is alone");
	lab_block(2, 1);
	lab_heal();
	ok(heard_soon(3, 1) && heard_soon(1, 3) && heard(2, 1), "healed, all hear one another");
	uint64_t before = now_ns();
	lab_slow(2, 40, 10);
	ok(heard_soon(1, 2) && heard_soon(2, 1), "a slow cable passes all on");
	before = now_ns();
	heard(1, 2);
	ok(now_ns() - before >= 30 * MS, "late: after %llu ms", (unsigned long long)((now_ns() - before) / MS));
	lab_heal();
	heard_soon(1, 2);
	ok(fast(1, 2), "healed, it is fast again");
	return harness_end();
}
