/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One of many leads, and all know who:
 *
 *     leader lead ADDRESS        stands for election until it leads; works as long as it does; stands again
 *     leader follow              says who leads whenever that changes
 *
 * ADDRESS is what the others are told: where the leader can be reached, say. It says "leads TERM" and "led TERM" when it begins and
 * ends to lead. TERM is a fencing token: what the leader writes to is to refuse lower ones (fenced.c).
 */
#include <dlock.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELECTION "demo-leader"
#define WORK_MS 50                       /* a piece of work, after which it looks whether it still leads */

static volatile sig_atomic_t told_to_end;

static void on_term(int signo)
{
	(void)signo;
	told_to_end = 1;
}

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "leader: %s: %s\n", what, strerror(error));
	exit(1);
}

/* A hint that the lead is lost makes poll() return before its time; the truth is dlock_elect_check(). */
static void work(dlock_elect_t *e)
{
	struct pollfd lost = { .events = POLLIN };

	if (dlock_elect_fd(e, &lost.fd) != 0)
		lost.fd = -1;
	while (!told_to_end && dlock_elect_check(e) == 0)
		poll(&lost, 1, WORK_MS);         /* here it would do its piece */
}

static int lead(dlock_elect_t *e, const char *address)
{
	struct sigaction a = { .sa_handler = on_term };
	uint64_t term;
	int r;

	while (!told_to_end) {
		r = dlock_elect_campaign(e, address, strlen(address));
		if (r != 0)
			die("dlock_elect_campaign", r);
		/* Only now: a wait goes on after a signal, so until it leads SIGTERM ends the process as it ends any. */
		sigaction(SIGTERM, &a, NULL);
		r = dlock_elect_term(e, &term);
		if (r != 0)
			continue;                /* lost again already */
		printf("leads %llu %s\n", (unsigned long long)term, address);
		work(e);
		printf("led %llu %s\n", (unsigned long long)term, address);
		signal(SIGTERM, SIG_DFL);
		dlock_elect_resign(e);           /* ESTALE, where it was lost: then there is nothing to resign */
	}
	return 0;
}

static _Noreturn void follow(dlock_elect_t *e)
{
	uint64_t term = 0;

	for (;;) {
		int r = dlock_elect_observe(e, &term);

		if (r != 0)
			die("dlock_elect_observe", r);

		char address[256];
		uint64_t now;
		size_t len = sizeof address - 1;

		/* By the time we ask it may be the next one already; then observe() returns again at once. */
		r = term ? dlock_elect_leader(e, address, &len, &now) : ENOENT;
		if (r == ENOENT) {
			printf("nobody leads\n");
			continue;
		}
		if (r != 0)
			die("dlock_elect_leader", r);
		address[len] = 0;
		printf("%s leads, in term %llu\n", address, (unsigned long long)now);
		term = now;
	}
}

int main(int argc, char **argv)
{
	dlock_elect_t *e;
	int r;

	setlinebuf(stdout);
	if ((argc != 3 || strcmp(argv[1], "lead")) && (argc != 2 || strcmp(argv[1], "follow"))) {
		fprintf(stderr, "usage: leader lead ADDRESS | leader follow\n");
		return 64;
	}
	r = dlock_elect_open(&e, ELECTION, NULL);
	if (r != 0)
		die("dlock_elect_open", r);
	if (argc == 2)
		follow(e);
	r = lead(e, argv[2]);
	dlock_elect_close(e);
	return r;
}
