/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A shared file that refuses writes of holders that have lost their lock:
 *
 *     fenced FILE NAME TOKEN TEXT
 *
 * writes TEXT over the beginning of FILE, if no higher token of the lock NAME has written before. FILE.fence remembers them. A
 * lock of the file's own, which only lasts from the question to the write, keeps another from getting in between.
 *
 *     dlock run backup -- sh -c 'fenced data "$DLOCK_SPACE/$DLOCK_NAME" "$DLOCK_TOKEN" hello'
 */
#include <dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void die(const char *what, int error)
{
	fprintf(stderr, "fenced: %s: %s\n", what, strerror(error));
	exit(1);
}

int main(int argc, char **argv)
{
	dlock_fence_t *fence;
	char path[4096];
	int fd, r;

	if (argc != 5) {
		fprintf(stderr, "usage: fenced FILE NAME TOKEN TEXT\n");
		return 64;
	}
	snprintf(path, sizeof path, "%s.fence", argv[1]);
	r = dlock_fence_open(&fence, path);
	if (r)
		die(path, r);
	fd = open(argv[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		die(argv[1], errno);
	r = dlock_fence_admit(fence, argv[2], strtoull(argv[3], NULL, 0));
	if (r == ESTALE) {
		fprintf(stderr, "fenced: refused: a later holder of %s has written\n", argv[2]);
		return 75;
	}
	if (r)
		die(path, r);
	if (pwrite(fd, argv[4], strlen(argv[4]), 0) != (ssize_t)strlen(argv[4]) || fdatasync(fd) < 0)
		die(argv[1], errno);
	close(fd);
	dlock_fence_close(fence);
	return 0;
}
