/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One call of <dlock/semaphore.h> a run, for scripts: create NAME VALUE, open, value, post, wait, trywait, unlink NAME; or
 * several: posts, waits NAME, eight times, the posts with a pause after each; ping A B, pong A B, twenty times: one posts A and waits for B,
 * the other waits for A and posts B; pongs A B does that without end.
 */
#include <dlock/semaphore.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMES 8
#define PAUSE_US 200000
#define ROUNDS 20

static int called(const char *what, dlock_posix_sem_t *s)
{
	int r = 0, v = 0;

	for (int i = 0; r == 0 && i < TIMES && !strcmp(what, "posts"); i++) {
		r = dlock_posix_sem_post(s);
		usleep(PAUSE_US);
	}
	for (int i = 0; r == 0 && i < TIMES && !strcmp(what, "waits"); i++)
		r = dlock_posix_sem_wait(s);
	if (!strcmp(what, "post"))
		r = dlock_posix_sem_post(s);
	else if (!strcmp(what, "wait"))
		r = dlock_posix_sem_wait(s);
	else if (!strcmp(what, "trywait"))
		r = dlock_posix_sem_trywait(s);
	else if (!strcmp(what, "value") && (r = dlock_posix_sem_getvalue(s, &v)) == 0)
		printf("%d\n", v);
	return r;
}

static int to_and_fro(bool ping, bool ends, const char *a, const char *b)
{
	dlock_posix_sem_t *posts = dlock_posix_sem_open(ping ? a : b, 0), *waits = dlock_posix_sem_open(ping ? b : a, 0);
	int r = posts == DLOCK_POSIX_SEM_FAILED || waits == DLOCK_POSIX_SEM_FAILED ? -1 : 0;

	for (int i = 0; r == 0 && (i < ROUNDS || !ends); i++) {
		r = ping ? dlock_posix_sem_post(posts) : dlock_posix_sem_wait(waits);
		if (r == 0)
			r = ping ? dlock_posix_sem_wait(waits) : dlock_posix_sem_post(posts);
	}
	return r;
}

int main(int argc, char **argv)
{
	dlock_posix_sem_t *s;
	int r;

	if (argc < 3)
		return 64;
	if (!strcmp(argv[1], "ping") || !strncmp(argv[1], "pong", 4)) {
		if (argc < 4)
			return 64;
		r = to_and_fro(!strcmp(argv[1], "ping"), strcmp(argv[1], "pongs"), argv[2], argv[3]);
	} else if (!strcmp(argv[1], "unlink")) {
		r = dlock_posix_sem_unlink(argv[2]);
	} else {
		s = argc > 3 ? dlock_posix_sem_open(argv[2], O_CREAT | O_EXCL, 0600, (unsigned)atoi(argv[3])) : dlock_posix_sem_open(argv[2], 0);
		r = s == DLOCK_POSIX_SEM_FAILED ? -1 : called(argv[1], s);
	}
	if (r < 0)
		printf("%s\n", strerror(errno));
	return r < 0;
}
