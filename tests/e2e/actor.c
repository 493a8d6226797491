/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "actor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

struct request {
	actor_fn fn;                     /* an actor is a fork: the function lies where it did */
	uint64_t arg;
	char text[96];
};

void (*actor_meanwhile)(void);
int *actor_meanwhile_fd;

_Static_assert(EOWNERDEAD == 130, "taken() says so");

static void act(int fd)
{
	struct stage s = { 0 };
	struct request q;

	while (recv(fd, &q, sizeof q, 0) == (ssize_t)sizeof q) {
		struct result a = { 0 };

		memcpy(s.text, q.text, sizeof s.text);
		a.r = q.fn(&s, q.arg);
		a.at_ns = now_ns();
		a.token = s.token;
		if (send(fd, &a, sizeof a, 0) < 0)
			break;
	}
	_exit(0);
}

void actor_begin(struct actor *a)
{
	static unsigned begun;
	unsigned nth = begun++;
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		give_up("no socket pair: %s", strerror(errno));
	fflush(stdout);
	a->pid = fork();
	if (a->pid < 0)
		give_up("no process: %s", strerror(errno));
	if (a->pid == 0) {
		end_with_parent();
		close(fd[0]);
		if (harness.nodes)
			setenv("DLOCK_RUN_DIR", run_dir_of(nth), 1);
		act(fd[1]);
	}
	close(fd[1]);
	a->fd = fd[0];
}

bool actor_send(struct actor *a, actor_fn fn, uint64_t arg, const char *text)
{
	struct request q = { .fn = fn, .arg = arg };

	if (text)
		snprintf(q.text, sizeof q.text, "%s", text);
	return send(a->fd, &q, sizeof q, MSG_NOSIGNAL) == (ssize_t)sizeof q;
}

bool actor_result(struct actor *a, unsigned ms, struct result *ret)
{
	uint64_t until = now_ns() + ms * MS;

	for (;;) {
		struct pollfd p[2] = { { a->fd, POLLIN, 0 }, { actor_meanwhile_fd ? *actor_meanwhile_fd : -1, POLLIN, 0 } };
		uint64_t now = now_ns(), left = now < until ? (until - now + MS - 1) / MS : 0;

		if (poll(p, 2, actor_meanwhile && left > 10 ? 10 : (int)left) < 0 && errno != EINTR)
			return false;
		if (p[0].revents)
			return recv(a->fd, ret, sizeof *ret, MSG_DONTWAIT) == (ssize_t)sizeof *ret;
		if (actor_meanwhile)
			actor_meanwhile();
		if (!left)
			return false;
	}
}

bool actor_result_unless_asleep(struct actor *a, unsigned ms, struct result *ret)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; now_ns() < until;) {
		if (actor_result(a, ms, ret))
			return true;
		if (asleep_within(a->pid, 0))
			return false;
	}
	return false;
}

struct result actor_do(struct actor *a, actor_fn fn, uint64_t arg, const char *text)
{
	struct result r = { .r = -1 };

	if (!actor_send(a, fn, arg, text) || !actor_result(a, PATIENCE_MS, &r))
		r = (struct result){ .r = -1 };
	return r;
}

bool actor_is_gone(struct actor *a, unsigned ms)
{
	uint64_t until = now_ns() + ms * MS;

	do {
		if (waitpid(a->pid, NULL, WNOHANG) == a->pid) {
			close(a->fd);
			a->pid = 0;
			return true;
		}
		nap_ns(MS / 10);
	} while (now_ns() < until);
	return false;
}

void actor_kill(struct actor *a, int signo)
{
	if (!a->pid)
		return;
	kill(a->pid, signo);
	while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(a->fd);
	a->pid = 0;
}

/* --- Things to do --- */

int act_open(struct stage *s, uint64_t arg)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	if (r)
		return r;
	dlock_attr_set_robust(a, arg & OPEN_ROBUST);
	dlock_attr_set_wait_daemon(a, arg & OPEN_WAIT_DAEMON);
	dlock_attr_set_failfast(a, arg & OPEN_FAILFAST);
	dlock_attr_set_owner(a, arg & OPEN_PROCESS ? DLOCK_OWNER_PROCESS : DLOCK_OWNER_THREAD);
	r = dlock_open(&s->lock[arg & 0xff], s->text, a);
	dlock_attr_destroy(a);
	return r;
}

static int with_token(struct stage *s, uint64_t i, int r)
{
	if (taken(r) && dlock_token(s->lock[i], &s->token) != 0)
		s->token = 0;
	return r;
}

int act_wait(struct stage *s, uint64_t i)
{
	return with_token(s, i, dlock_wait(s->lock[i]));
}

int act_try(struct stage *s, uint64_t i)
{
	return with_token(s, i, dlock_trywait(s->lock[i]));
}

int act_timed(struct stage *s, uint64_t ns)
{
	struct timespec t = as_timespec(ns);

	return with_token(s, 0, dlock_clockwait(s->lock[0], CLOCK_MONOTONIC, &t));
}

int act_post(struct stage *s, uint64_t i)
{
	return dlock_post(s->lock[i]);
}

int act_pass(struct stage *s, uint64_t i)
{
	int r = act_wait(s, i);

	return taken(r) ? dlock_post(s->lock[i]) : r;
}

int act_check(struct stage *s, uint64_t i)
{
	return dlock_check(s->lock[i]);
}

int act_consistent(struct stage *s, uint64_t i)
{
	return dlock_consistent(s->lock[i]);
}

int act_close(struct stage *s, uint64_t i)
{
	int r = dlock_close(s->lock[i]);

	if (r == 0)
		s->lock[i] = NULL;
	return r;
}

int act_exit(struct stage *s, uint64_t status)
{
	(void)s;
	exit((int)status);
}
