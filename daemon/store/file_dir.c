/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * No path is walked twice: all is relative to one descriptor of the directory. A name is never
 * followed when it is a symbolic link, and never waited for when it is a pipe.
 */
#include "file_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME	"lock"

static int system_openat(int dir, const char *name, int flags, mode_t mode)
{
	return openat(dir, name, flags, mode);
}

const struct store_file_io store_file_io_system = {
	.mkdir = mkdir,
	.openat = system_openat,
	.flock = flock,
	.read = read,
	.write = write,
	.fsync = fsync,
	.syncfs = syncfs,
	.renameat = renameat,
	.unlinkat = unlinkat,
};

int file_dir_say(struct file_dir *d, int error, const char *name, const char *format, ...)
{
	char *text = d->why->text;
	size_t size = sizeof d->why->text;
	va_list list;
	int n;

	n = snprintf(text, size, "%s%s%s: ", d->path, name ? "/" : "", name ? name : "");
	if (n > 0 && (size_t)n < size) {
		va_start(list, format);
		vsnprintf(text + n, size - (size_t)n, format, list);
		va_end(list);
	}
	return error;
}

int file_dir_fail(struct file_dir *d, int error, const char *name, const char *what)
{
	const char *advice = "Check the disk and the system's log.";

	if (error == -ENOSPC || error == -EDQUOT)
		advice = "Free some space there.";
	else if (error == -EACCES || error == -EPERM || error == -EROFS)
		advice = "This daemon's user needs a state directory that it owns and may write.";
	else if (error == -ENOENT)
		advice = "Make the directory that it is to be in.";
	return file_dir_say(d, error, name, "cannot %s: %s. %s", what, strerrordesc_np(-error),
			    advice);
}

static int write_all(struct file_dir *d, int fd, const uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = d->io->write(fd, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int temp_write(struct file_dir *d, const char *temp, const void *data, size_t size)
{
	int fd, r;

	if (d->io->unlinkat(d->fd, temp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = d->io->openat(d->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(d, fd, data, size);
	if (r == 0 && d->io->fsync(fd) < 0)
		r = -errno;
	close(fd);
	return r;
}

static void temp_name(const char *name, char ret[NAME_MAX + 1])
{
	snprintf(ret, NAME_MAX + 1, "%s.new", name);
}

int file_dir_replace(struct file_dir *d, const char *name, const void *data, size_t size)
{
	char temp[NAME_MAX + 1];
	int r;

	temp_name(name, temp);
	r = temp_write(d, temp, data, size);
	if (r == 0 && d->io->renameat(d->fd, temp, d->fd, name) < 0) {
		r = -errno;
		d->broken = r == -EIO;
	}
	if (r < 0) {
		if (!d->broken)
			d->io->unlinkat(d->fd, temp, 0);
		return file_dir_fail(d, r, temp, "write it");
	}
	if (d->io->fsync(d->fd) < 0) {
		r = -errno;
		d->broken = true;
		return file_dir_fail(d, r, name, "be sure that it has reached the disk");
	}
	return 0;
}

int file_dir_tidy(struct file_dir *d, const char *name)
{
	char temp[NAME_MAX + 1];

	temp_name(name, temp);
	if (d->io->unlinkat(d->fd, temp, 0) < 0 && errno != ENOENT)
		return file_dir_fail(d, -errno, temp, "remove it");
	return 0;
}

static int dir_check(struct file_dir *d)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0)
		return file_dir_fail(d, -errno, NULL, "examine it");
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return file_dir_say(d, STORE_FILE_EPERM, NULL,
				    "belongs to user %u, who could change what is kept here. Give "
				    "it to user %u, or use another directory.", st.st_uid,
				    geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return file_dir_say(d, STORE_FILE_EPERM, NULL,
				    "may be written by others (mode %04o). Use chmod go-w after a "
				    "look at what is in it.", st.st_mode & 07777);
	return 0;
}

static int dir_open(struct file_dir *d)
{
	if (d->io->mkdir(d->path, 0700) < 0 && errno != EEXIST)
		return file_dir_fail(d, -errno, NULL, "make the directory");
	d->fd = d->io->openat(AT_FDCWD, d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (d->fd < 0) {
		struct stat st;
		int error = -errno;

		if (lstat(d->path, &st) == 0 && S_ISLNK(st.st_mode))
			return file_dir_say(d, STORE_FILE_ELOOP, NULL,
					    "is a symbolic link. Name the directory that it leads "
					    "to.");
		return file_dir_fail(d, error, NULL, "open the directory");
	}
	return dir_check(d);
}

static int explain_busy(struct file_dir *d)
{
	char pid[16] = "";
	ssize_t n = pread(d->lock, pid, sizeof pid - 1, 0);

	pid[n > 0 ? strspn(pid, "0123456789") : 0] = 0;
	return file_dir_say(d, STORE_FILE_EBUSY, LOCK_NAME,
			    "another daemon%s%s uses this directory. Stop it, or give this one a "
			    "directory of its own.", *pid ? ", pid " : "", pid);
}

static int dir_lock(struct file_dir *d)
{
	char pid[16];
	ssize_t ignored;
	int n;

	d->lock = d->io->openat(d->fd, LOCK_NAME,
				O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (d->lock < 0)
		return file_dir_fail(d, -errno, LOCK_NAME, "open it");
	if (d->io->flock(d->lock, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK)
			return explain_busy(d);
		return file_dir_fail(d, -errno, LOCK_NAME, "lock it");
	}

	/* The pid is a courtesy to whoever is refused; a full disk is no reason not to start. */
	n = snprintf(pid, sizeof pid, "%d\n", getpid());
	ignored = ftruncate(d->lock, 0);
	ignored = pwrite(d->lock, pid, (size_t)n, 0);
	(void)ignored;
	return 0;
}

/* Opens a file of ours for reading. -ENOENT is no failure yet, and has no sentence. */
static int file_open(struct file_dir *d, const char *name, size_t *ret_size)
{
	struct stat st;
	int r = 0, fd;

	fd = d->io->openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 && errno == ELOOP)
		return file_dir_say(d, STORE_FILE_ELOOP, name,
				    "is a symbolic link. Put the file itself here.");
	if (fd < 0)
		return file_dir_fail(d, -errno, name, "open it");

	if (fstat(fd, &st) < 0)
		r = file_dir_fail(d, -errno, name, "examine it");
	else if (!S_ISREG(st.st_mode) || st.st_size > STORE_FILE_SIZE_MAX)
		r = file_dir_say(d, STORE_FILE_EFOREIGN, name,
				 "is not a file of dlock. Move it away and put the right one "
				 "here.");
	else if ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH))
		r = file_dir_say(d, STORE_FILE_EPERM, name,
				 "may be written by others (user %u, mode %04o). If you trust it, "
				 "use chown and chmod go-w.", st.st_uid, st.st_mode & 07777);
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_size = (size_t)st.st_size;
	return fd;
}

int file_dir_read(struct file_dir *d, const char *name, uint8_t **ret, size_t *ret_size)
{
	size_t size = 0, got = 0;
	uint8_t *data;
	int r = 0, fd;

	fd = file_open(d, name, &size);
	if (fd < 0)
		return fd;
	data = malloc(size + 1);
	if (!data)
		r = file_dir_fail(d, -ENOMEM, name, "read it");
	while (r == 0 && got < size) {
		ssize_t n = d->io->read(fd, data + got, size - got);

		if (n < 0 && errno != EINTR)
			r = file_dir_fail(d, -errno, name, "read it");
		if (n == 0)
			size = got;
		if (n > 0)
			got += (size_t)n;
	}
	if (r == 0 && d->io->fsync(fd) < 0)
		r = file_dir_fail(d, -errno, name, "be sure that it has reached the disk");
	close(fd);
	if (r < 0) {
		free(data);
		return r;
	}
	*ret = data;
	*ret_size = size;
	return 0;
}

int file_dir_open(struct file_dir *d, const char *path, const struct store_file_io *io,
		  struct store_why *why)
{
	int r;

	*d = (struct file_dir){ .io = io, .why = why, .path = strdup(path), .fd = -1, .lock = -1 };
	if (!d->path) {
		snprintf(why->text, sizeof why->text, "%s: no memory to open it.", path);
		return -ENOMEM;
	}
	r = dir_open(d);
	return r < 0 ? r : dir_lock(d);
}

void file_dir_done(struct file_dir *d)
{
	if (d->fd >= 0)
		close(d->fd);
	if (d->lock >= 0)
		close(d->lock);
	free(d->path);
}
