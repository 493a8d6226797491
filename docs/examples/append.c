/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Appends records to a file that others append to as well, under one lock:
 *
 *     append FILE WRITER COUNT [HALT]
 *
 * A record is a line: token, writer, number, and the last two twelve times over, written piece by
 * piece, so that without the lock the pieces of several writers would mix. A robust handle is told when
 * the writer before it died holding the lock; then the end of the file may be half a record, which is cut
 * off. With HALT it stops for good in the middle of that record, for whoever wants to kill it there.
 */
#include <dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK_NAME "demo"
#define PIECES 12

static void die(const char *what, int error)
{
	fprintf(stderr, "append: %s: %s\n", what, strerror(error));
	exit(1);
}

static void put(int fd, const char *text)
{
	size_t n = strlen(text);

	if (write(fd, text, n) != (ssize_t)n)
		die("write", errno);
}

/* Cuts off what stands behind the last complete line. Returns how many bytes that was. */
static off_t repair(int fd)
{
	off_t end = lseek(fd, 0, SEEK_END), whole = end;
	char c;

	while (whole > 0 && pread(fd, &c, 1, whole - 1) == 1 && c != '\n')
		whole--;
	if (whole < end && ftruncate(fd, whole) < 0)
		die("ftruncate", errno);
	return end - whole;
}

/* Takes the lock. What it protects is whole then. */
static uint64_t enter(dlock_t *lock, int fd, const char *writer)
{
	uint64_t token = 0;
	int r = dlock_wait(lock);

	if (r != 0 && r != EOWNERDEAD)
		die("dlock_wait", r);
	dlock_token(lock, &token);
	if (r == EOWNERDEAD) {
		off_t cut = repair(fd);

		printf("%s: EOWNERDEAD: the last holder died. %lld bytes of a half record to cut off; go on with token %llu\n",
		       writer, (long long)cut, (unsigned long long)token);
		fflush(stdout);
		dlock_consistent(lock);
	}
	return token;
}

static void append(int fd, const char *writer, unsigned number, uint64_t token, int halt)
{
	char piece[64];

	snprintf(piece, sizeof piece, "%020llu %s %u ", (unsigned long long)token, writer, number);
	put(fd, piece);
	snprintf(piece, sizeof piece, "%s-%u.", writer, number);
	for (int i = 0; i < PIECES; i++) {
		put(fd, piece);
		while (halt && i == PIECES / 2)
			pause();
	}
	put(fd, "\n");
}

int main(int argc, char **argv)
{
	dlock_attr_t *attr;
	dlock_t *lock;
	unsigned count, halt;
	int fd, r;

	if (argc < 4)
		die("usage: append FILE WRITER COUNT [HALT]", EINVAL);
	count = (unsigned)strtoul(argv[3], NULL, 10);
	halt = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	fd = open(argv[1], O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		die(argv[1], errno);
	r = dlock_attr_create(&attr);
	if (r == 0)
		r = dlock_attr_set_robust(attr, true);
	if (r == 0)
		r = dlock_open(&lock, LOCK_NAME, attr);
	if (r != 0)
		die("dlock_open", r);
	dlock_attr_destroy(attr);
	for (unsigned i = 1; i <= count; i++) {
		uint64_t token = enter(lock, fd, argv[2]);

		append(fd, argv[2], i, token, i == halt);
		dlock_post(lock);
	}
	return dlock_close(lock);
}
