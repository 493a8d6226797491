/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that a test can talk to: systemd_client NAME FIFO. It takes the lock, then does what it reads from the
 * FIFO, one letter each: c check, p post, w wait, q quit. Each does one line of output: the letter, the error number,
 * the token. Without a FIFO it takes the lock, gives it back, and ends with the error number.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dlock.h"

static int say(char what, int r, dlock_t *l)
{
	uint64_t token = 0;

	dlock_token(l, &token);
	printf("%c %d %llu\n", what, r, (unsigned long long)token);
	fflush(stdout);
	return r;
}

static int obey(dlock_t *l, int fifo)
{
	char c;

	while (read(fifo, &c, 1) == 1) {
		switch (c) {
		case 'c': say(c, dlock_check(l), l); break;
		case 'p': say(c, dlock_post(l), l); break;
		case 'w': say(c, dlock_wait(l), l); break;
		case 'q': return 0;
		default: break;
		}
	}
	return 1;
}

int main(int argc, char **argv)
{
	dlock_t *l;
	int r, fifo = -1;

	if (argc < 2 || argc > 3) {
		fputs("usage: systemd_client NAME [FIFO]\n", stderr);
		return 100;
	}
	if (argc == 3 && (fifo = open(argv[2], O_RDWR | O_CLOEXEC)) < 0) {
		perror(argv[2]);
		return 100;
	}
	r = dlock_open(&l, argv[1], NULL);
	if (r) {
		printf("o %d 0 %s\n", r, strerror(r));
		return r;
	}
	puts("o 0 0");
	fflush(stdout);
	r = say('w', dlock_wait(l), l);
	return fifo >= 0 ? obey(l, fifo) : r ? r : dlock_post(l);
}
