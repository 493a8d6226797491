/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int files_dir(int dirfd, const char *name, mode_t mode)
{
	struct stat st;
	int fd;

	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

int files_empty(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(fd, e->d_name, 0);
	closedir(d);
	return 0;
}

int files_random(void *p, size_t n)
{
	return getrandom(p, n, 0) == (ssize_t)n ? 0 : -EIO;
}

/* tmpfs of older kernels gives up for any signal: who is stopped in the midst of it, and goes on, finds EINTR. */
int files_room(int fd, off_t at, off_t n)
{
	while (fallocate(fd, 0, at, n) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

int files_fifo(int dirfd, const char *name)
{
	struct stat st;
	int fd;

	if (mkfifoat(dirfd, name, 0600) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dirfd, name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode)) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}
