/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "internal.h"

#define SIGNALS_PER_READ 8

void signals_init(struct signals *s)
{
	s->fd = -1;
	sigemptyset(&s->mask);
}

void signals_done(struct signals *s)
{
	if (s->fd >= 0)
		close(s->fd);
}

static void signals_read(void *arg, const void *data, ssize_t n)
{
	const struct signalfd_siginfo *info = data;
	struct loop *l = arg;

	for (size_t left = n > 0 ? (size_t)n / sizeof(*info) : 0; left > 0; left--, info++) {
		uint32_t signo = info->ssi_signo;

		if (signo < _NSIG && l->signals.handlers[signo].fn)
			l->signals.handlers[signo].fn(l->signals.handlers[signo].arg, (int)signo);
	}
}

static int signals_open(struct loop *l, const sigset_t *mask)
{
	struct signals *s = &l->signals;
	int fd, err;

	fd = signalfd(s->fd, mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (s->fd >= 0)
		return 0;
	err = loop_read_start(l, fd, SIGNALS_PER_READ * sizeof(struct signalfd_siginfo),
		signals_read, l, &s->read);
	if (err < 0) {
		close(fd);
		return err;
	}
	s->fd = fd;
	return 0;
}

int loop_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg)
{
	struct signals *s = &l->signals;
	sigset_t mask = s->mask, one;
	int err;

	if (signo <= 0 || signo >= _NSIG || signo == SIGKILL || signo == SIGSTOP)
		return -EINVAL;
	sigemptyset(&one);
	if (sigaddset(&mask, signo) < 0 || sigaddset(&one, signo) < 0)
		return -EINVAL;
	err = pthread_sigmask(SIG_BLOCK, &one, NULL);
	if (err > 0)
		return -err;
	err = signals_open(l, &mask);
	if (err < 0)
		return err;
	s->mask = mask;
	s->handlers[signo].fn = fn;
	s->handlers[signo].arg = arg;
	return 0;
}
