/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The descriptor of dlock_fd(): a FIFO into which the daemon writes a byte when the hold is wanted or
 * lost. Its number stays the same when the name has to be opened anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "handle.h"
#include "thread.h"

#define TRIES_MAX 3                      /* the connection may break between the two */

/* Also without attach, while another thread asks for it anew: then neither the old one nor the new. */
static bool hint_good(const struct hint *h)
{
	int fd = __atomic_load_n(&h->fd, __ATOMIC_ACQUIRE);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
	       st.st_ino == __atomic_load_n(&h->ino, __ATOMIC_RELAXED);
}

/* Under attach. */
static int hint_ask(struct dlock *l, const struct limit *limit)
{
	const struct target *t = &l->name->target;
	struct hint *h = &l->hint;
	struct stat st;
	int fd, r = conn_hint(t->number, t->slot, t->epoch, limit, &fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode)) {
		close(fd);
		return -EPROTO;
	}
	fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	if (hint_good(h)) {
		dup3(fd, h->fd, O_CLOEXEC);
		close(fd);
		fd = h->fd;
	}
	h->epoch = t->epoch;
	h->slot = t->slot;
	h->number = t->number;
	__atomic_store_n(&h->ino, st.st_ino, __ATOMIC_RELAXED);
	__atomic_store_n(&h->fd, fd, __ATOMIC_RELEASE);
	return 0;
}

static bool hint_current(const struct dlock *l)
{
	const struct target *t = &l->name->target;
	const struct hint *h = &l->hint;

	return h->epoch == t->epoch && h->number == t->number && h->slot == t->slot && hint_good(h);
}

void hint_renew(struct dlock *l, const struct limit *limit)
{
	if (l->hint.fd >= 0 && !hint_current(l))
		hint_ask(l, limit);             /* where that fails, the old one stays: a hint that never comes */
}

int dlock_fd(dlock_t *l, int *ret)
{
	uint32_t serial;
	int r = thread_register(&serial);

	if (r < 0)
		return -r;
	attach_lock(&limit_none);
	r = -ESTALE;
	for (int i = 0; i < TRIES_MAX && r == -ESTALE; i++) {
		r = name_attach(l, &limit_none);
		if (r == 0 && !hint_current(l))
			r = hint_ask(l, &limit_none);
	}
	if (r == 0)
		*ret = l->hint.fd;
	attach_unlock();
	return -r;
}

/* What was written until now. */
void hint_drain(struct dlock *l)
{
	int fd = __atomic_load_n(&l->hint.fd, __ATOMIC_ACQUIRE), saved = errno;
	char bytes[64];

	while (hint_good(&l->hint) && syscall(SYS_read, fd, bytes, sizeof bytes) == sizeof bytes)
		;
	errno = saved;
}

void hint_done(struct dlock *l)
{
	if (hint_good(&l->hint))
		close(l->hint.fd);
	l->hint.fd = -1;
}
