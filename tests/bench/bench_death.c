/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A holder is killed: from kill() to the waiter that goes on with the lock. The rival is what anyone
 * needs at least to hear of a death: from kill() to the return of a poll() on the victim's pidfd.
 *
 * Victims are children of the same kind on either side, asleep, on the first processor, where the
 * killer is; who waits is on the second, and so is, for dlock, the daemon or not: that is its own
 * row. One value is the median of some deaths.
 */
#include <err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define DEATHS 15
#define SETTLE_US 2000

struct shared {
	uint32_t held, go;
	uint64_t resumed_ns;
	uint32_t resumed, turn;
	int victim;
};

static struct shared *shared;

static void victim_dlock(void *arg)
{
	dlock_t *l = bench_open("death");

	(void)arg;
	bench_ok(dlock_wait(l), "dlock_wait");
	__atomic_store_n(&shared->held, 1, __ATOMIC_RELEASE);
	pause();
}

/* Attached and with the same lock open, so that its end is as long. */
static void victim_plain(void *arg)
{
	bench_open("plain");
	(void)arg;
	__atomic_store_n(&shared->held, 1, __ATOMIC_RELEASE);
	pause();
}

static void resumed(void)
{
	shared->resumed_ns = bench_ns();
	__atomic_store_n(&shared->resumed, 1, __ATOMIC_RELEASE);
}

/* Waits each time that it is its turn. */
static void waiter_dlock(void *arg)
{
	dlock_t *l = bench_open("death");

	(void)arg;
	for (unsigned turn = 1;; turn++) {
		while (__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE) != turn)
			usleep(100);
		bench_ok(dlock_wait(l), "dlock_wait");
		resumed();
		bench_ok(dlock_post(l), "dlock_post");
	}
}

static void waiter_pidfd(void *arg)
{
	(void)arg;
	for (unsigned turn = 1;; turn++) {
		struct pollfd p = { .events = POLLIN };

		while (__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE) != turn)
			usleep(100);
		p.fd = (int)syscall(SYS_pidfd_open, shared->victim, 0);
		if (p.fd < 0 || poll(&p, 1, -1) != 1)
			err(2, "pidfd");
		resumed();
		close(p.fd);
	}
}

static double deaths(void (*victim)(void *), void (*waiter)(void *))
{
	double us[DEATHS];
	pid_t who;

	shared->turn = 0;
	who = bench_fork(1, waiter, NULL);
	for (unsigned i = 0; i < DEATHS; i++) {
		uint64_t begin;

		shared->held = shared->resumed = 0;
		shared->victim = bench_fork(0, victim, NULL);
		bench_await(&shared->held);
		__atomic_store_n(&shared->turn, i + 1, __ATOMIC_RELEASE);
		usleep(SETTLE_US);
		begin = bench_ns();
		kill(shared->victim, SIGKILL);
		bench_await(&shared->resumed);
		us[i] = (double)(shared->resumed_ns - begin) / 1e3;
		waitpid(shared->victim, NULL, 0);
	}
	kill(who, SIGKILL);
	waitpid(who, NULL, 0);
	return bench_percentile(us, DEATHS, 0.5);
}

static double round_dlock(void *arg)
{
	(void)arg;
	return deaths(victim_dlock, waiter_dlock);
}

static double round_pidfd(void *arg)
{
	(void)arg;
	return deaths(victim_plain, waiter_pidfd);
}

static void measure(const struct row *row, unsigned daemon)
{
	struct bench_daemon d;

	if (!bench_wanted(row->key))
		return;
	bench_daemon_start(&d, daemon, NULL);
	bench_rounds(row, ROUNDS, round_dlock, round_pidfd, NULL);
	bench_daemon_stop(&d);
}

int main(void)
{
	static const struct row near = {
		.key = "death", .what = "SIGKILL of the holder to acquisition by the waiter",
		.rival = "SIGKILL to the return of poll(pidfd)", .unit = "us", .goal = 3.0,
	}, far = {
		.key = "death-daemon-far", .what = "... the daemon on the victim's processor",
		.rival = "SIGKILL to the return of poll(pidfd)", .unit = "us",
	};

	bench_begin("death");
	shared = bench_shared(sizeof *shared);
	bench_pin(0);
	measure(&near, 1);
	measure(&far, 0);
	bench_end();
	return 0;
}
