/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Anchors (attach.h): a file for each client, locked through the description that the client maps, so that it is open as long as the
 * client's address space is there. inotify tells when it is closed, and the lock, whether it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "shm.h"

/* How often an anchor that seems to be there still is looked at again: after 1, 2, 4 .. 512 ms. */
#define RECHECKS     10
#define RECHECK_SPAN NSEC_PER_MSEC

static void anchor_path(char *ret, size_t n, uint32_t index)
{
	snprintf(ret, n, "%u", index);
}

static int anchor_create(struct shm *shm, const char *path)
{
	int fd, r = 0;

	if (unlinkat(shm->anchor_dirfd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(shm->anchor_dirfd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, 4096) < 0)
		r = -errno;
	close(fd);
	return r;
}

/*
 * A new inode each time: an index that is used again has nothing to do with its last anchor. What
 * the client gets is only for reading, so that nobody fills the run directory through it.
 */
int anchor_make(struct shm *shm, uint32_t index)
{
	char path[16];
	int fd, r;

	anchor_path(path, sizeof path, index);
	r = anchor_create(shm, path);
	if (r < 0)
		return r;
	fd = openat(shm->anchor_dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

void anchor_remove(struct shm *shm, uint32_t index)
{
	char path[16];

	anchor_path(path, sizeof path, index);
	unlinkat(shm->anchor_dirfd, path, 0);
}

/*
 * Is the description that we locked for the client still open somewhere? Asked through one for
 * writing: its own end is no IN_CLOSE_NOWRITE, so that asking does not raise the question.
 */
int anchor_there(struct shm *shm, uint32_t index)
{
	char path[16];
	int fd, r;

	anchor_path(path, sizeof path, index);
	fd = openat(shm->anchor_dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = flock(fd, LOCK_SH | LOCK_NB) < 0 ? errno == EWOULDBLOCK ? 1 : -errno : 0;
	close(fd);
	return r;
}

/*
 * The kernel tells of a description's end just before it gives up the lock. So one whose anchor
 * still seems to be there is looked at again, and for longer where descriptors were short.
 */
static void anchor_check(struct shm *shm, uint32_t index)
{
	struct client *c = shm->clients[index];
	int r = anchor_there(shm, index);

	if (r == 0) {
		client_gone(shm, index, "its address space ended");
		return;
	}
	c->suspect_at = loop_now(shm->loop) + (RECHECK_SPAN << (RECHECKS + 1 - c->suspect));
	if (r > 0)
		c->suspect--;
	if (c->suspect && (!shm->anchor_timer.queued || c->suspect_at < shm->anchor_timer.when))
		loop_timer_set(shm->loop, &shm->anchor_timer, c->suspect_at);
}

static void anchor_suspect(struct shm *shm, uint32_t index)
{
	shm->clients[index]->suspect = RECHECKS + 1;   /* and now */
	anchor_check(shm, index);
}

void anchors_recheck(void *arg)
{
	struct shm *shm = arg;
	nsec_t next = NSEC_NEVER;

	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));) {
		struct client *c = shm->clients[i];

		if (c && c->suspect && c->suspect_at <= loop_now(shm->loop))
			anchor_check(shm, i);
		else if (c && c->suspect && c->suspect_at < next)
			next = c->suspect_at;
	}
	if (!shm->anchor_timer.queued || next < shm->anchor_timer.when)
		loop_timer_set(shm->loop, &shm->anchor_timer, next);
}

static void anchors_check_all(struct shm *shm)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.clients, i));)
		if (shm->clients[i])
			anchor_suspect(shm, i);
}

void anchors_events(void *arg, const void *data, ssize_t n)
{
	struct shm *shm = arg;

	for (const char *at = data, *end = at + (n > 0 ? n : 0); at < end;) {
		struct inotify_event ev;
		const char *name = at + sizeof ev;
		uint32_t index;

		memcpy(&ev, at, sizeof ev);
		at = name + ev.len;
		if (ev.mask & IN_Q_OVERFLOW) {
			anchors_check_all(shm);
			return;
		}
		index = ev.len ? (uint32_t)strtoul(name, NULL, 10) : 0;
		if (index && index < SEG_CLIENTS_MAX && shm->clients[index])
			anchor_suspect(shm, index);
	}
}
