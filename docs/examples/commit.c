/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two-phase commit by vote: many processes change something each, on any hosts, all of them or none.
 *
 *     commit PARTIES FILE [no]
 *
 * Prepares (FILE.new is on the disk, from the standard input), votes, and then either puts it in FILE's place or throws it away. With
 * "no" it votes against. What it does is what all do, and printed: committed, aborted; in the second case it ends with 1.
 *
 * A party that dies before the verdict makes it an abort. One that dies after it leaves FILE.new behind, as one does that was cut
 * off and that nobody can tell (75): then what the others did decides, and that is for whoever starts it again to find out.
 */
#include <dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BARRIER "demo-commit"

static char prepared[4096];

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "commit: %s: %s\n", what, strerror(error));
	exit(1);
}

/* The folder: so its entry outlives a power failure, too. */
static bool sync_folder(const char *path)
{
	char copy[4096];
	int fd;
	bool good;

	snprintf(copy, sizeof copy, "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	good = fd >= 0 && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	return good;
}

/* From here on it can do either: what it will put in place is safe on the disk. */
static bool prepare(void)
{
	int fd = open(prepared, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char text[4096];
	bool good = fd >= 0;
	ssize_t n;

	while (good && (n = read(STDIN_FILENO, text, sizeof text)) != 0)
		good = n > 0 && write(fd, text, (size_t)n) == n;
	good = good && fsync(fd) == 0;
	if (fd >= 0)
		close(fd);
	return good && sync_folder(prepared);
}

int main(int argc, char **argv)
{
	dlock_barrier_t *b;
	bool yes, all = false;
	int r;

	if (argc < 3) {
		fprintf(stderr, "usage: commit PARTIES FILE [no]\n");
		return 64;
	}
	snprintf(prepared, sizeof prepared, "%s.new", argv[2]);
	r = dlock_barrier_open(&b, BARRIER, (unsigned)strtoul(argv[1], NULL, 10), NULL);
	if (r != 0)
		die("dlock_barrier_open", r);
	yes = prepare() && argc == 3;
	r = dlock_barrier_vote(b, yes, &all);
	if (r == ESTALE) {
		fprintf(stderr, "commit: cut off: nobody here knows whether %s counts\n", prepared);
		return 75;
	}
	if (r != 0 && r != DLOCK_SERIAL && r != EPIPE)
		die("dlock_barrier_vote", r);
	/* Broken: somebody has died before all had voted, so nobody commits. */
	if (r == EPIPE || !all) {
		unlink(prepared);
		printf("%s: aborted\n", argv[2]);
		return 1;
	}
	if (rename(prepared, argv[2]) < 0 || !sync_folder(argv[2]))
		die(argv[2], errno);
	printf("%s: committed\n", argv[2]);
	return dlock_barrier_close(b);
}
