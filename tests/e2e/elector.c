/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One who takes part in an election, for tests of several nodes:
 *
 *   elector lead NAME VALUE FILE  campaigns; "led TERM" when elected; says each line that comes into the file from then on, and
 *                                 resigns at a dot. "lost" when the term is over before that. $PRIORITY is its own, as is $DELAY (ms)
 *   elector permit NAME N FILE    waits for one of N permits; "has" when it has it; gives it back at a dot in the file
 *   elector permits NAME N FILE   has the semaphore open; obeys each line of the file, and says what came of it: t tries for a permit,
 *                                 w N waits for so many, p posts one, r N resizes
 *   elector read NAME FILE        the same with the lock of that name, shared; elector write NAME FILE: exclusively
 *   elector watch NAME            "TERM VALUE" at each change, "0" while nobody is known to lead; exit code 1 and "back" when a term
 *                                 follows a higher one
 *   elector value NAME [VALUE]    takes the lock of that name; prints its value, or "-"; sets another; releases
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlock.h"

static int fail(const char *what, int r)
{
	fprintf(stderr, "elector: %s: %s\n", what, strerror(r));
	return 69;
}

static void until_dot(FILE *f)
{
	printf("has\n");
	while (fgetc(f) != '.') {
		clearerr(f);
		usleep(10000);
	}
}

static int asks(dlock_attr_t **ret)
{
	const char *priority = getenv("PRIORITY"), *delay = getenv("DELAY");
	int r = dlock_attr_create(ret);

	r = r ? r : dlock_attr_set_priority(*ret, priority ? (unsigned)atoi(priority) : 0);
	return r ? r : dlock_attr_set_delay_ms(*ret, delay ? (unsigned)atoi(delay) : 0);
}

static int lead(const char *name, const char *value, const char *path)
{
	char line[DLOCK_VALUE_MAX];
	FILE *f = fopen(path, "r");
	dlock_attr_t *a;
	dlock_elect_t *e;
	uint64_t term;
	int r = asks(&a);

	r = r ? r : dlock_elect_open(&e, name, a);
	if (r || !f)
		return fail("open", r ? r : errno);
	r = dlock_elect_campaign(e, value, strlen(value));
	if (r || (r = dlock_elect_term(e, &term)))
		return fail("campaign", r);
	printf("led %llu\n", (unsigned long long)term);
	for (;;) {
		if (dlock_elect_check(e)) {
			printf("lost\n");
			return 75;
		}
		if (!fgets(line, sizeof line, f)) {
			clearerr(f);
			usleep(10000);
			continue;
		}
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "."))
			break;
		r = dlock_elect_proclaim(e, line, strlen(line));
		if (r)
			return fail("proclaim", r);
	}
	r = dlock_elect_resign(e);
	return r ? fail("resign", r) : 0;
}

static int take(const char *name, bool shared, const char *path)
{
	FILE *f = fopen(path, "r");
	dlock_attr_t *a;
	dlock_t *l;
	int r = asks(&a);

	r = r ? r : dlock_open(&l, name, a);
	if (r || !f)
		return fail("open", r ? r : errno);
	r = shared ? dlock_wait_shared(l) : dlock_wait(l);
	if (r)
		return fail("wait", r);
	until_dot(f);
	r = dlock_post(l);
	return r ? fail("post", r) : 0;
}

static int permit(const char *name, const char *permits, const char *path)
{
	FILE *f = fopen(path, "r");
	dlock_attr_t *a;
	dlock_sem_t *s;
	int r = asks(&a);

	r = r ? r : dlock_sem_open(&s, name, (unsigned)atoi(permits), a);
	if (r || !f)
		return fail("open", r ? r : errno);
	r = dlock_sem_wait(s);
	if (r)
		return fail("wait", r);
	until_dot(f);
	r = dlock_sem_post(s);
	return r ? fail("post", r) : 0;
}

static int obey(dlock_sem_t *s, const char *line)
{
	unsigned n = (unsigned)atoi(line + 1);

	switch (*line) {
	case 't':
		return dlock_sem_trywait(s);
	case 'w':
		return dlock_sem_wait_n(s, n);
	case 'p':
		return dlock_sem_post(s);
	}
	return dlock_sem_resize(s, n);
}

static int permits(const char *name, const char *n, const char *path)
{
	char line[100] = "";
	FILE *f = fopen(path, "r");
	dlock_sem_t *s;
	int r = dlock_sem_open(&s, name, (unsigned)atoi(n), NULL);

	if (r || !f)
		return fail("open", r ? r : errno);
	for (;;) {
		if (!fgets(line, sizeof line, f)) {
			clearerr(f);
			usleep(10000);
			continue;
		}
		printf("%d\n", obey(s, line));
	}
}

static bool back;

/* Says what it sees, unless it has said so. */
static void look(dlock_elect_t *e)
{
	static char said[DLOCK_VALUE_MAX + 32];
	static uint64_t highest;
	char value[DLOCK_VALUE_MAX + 1], now[sizeof said];
	size_t len = DLOCK_VALUE_MAX;
	uint64_t term = 0;
	int r = dlock_elect_leader(e, value, &len, &term);

	value[r ? 0 : len] = 0;
	back |= r == 0 && term < highest;
	if (r == 0)
		highest = term;
	if (r && r != ENOENT)
		exit(fail("leader", r));
	snprintf(now, sizeof now, r ? "0" : "%llu %s", (unsigned long long)term, value);
	if (!strcmp(now, said))
		return;
	strcpy(said, now);
	printf("%s\n", now);
}

static int watch(const char *name)
{
	dlock_elect_t *e;
	int r = dlock_elect_open(&e, name, NULL), fd;

	r = r ? r : dlock_elect_fd(e, &fd);
	if (r)
		return fail("open", r);
	while (!back) {
		struct pollfd p = { fd, POLLIN, 0 };

		look(e);
		poll(&p, 1, 50);
		dlock_elect_check(e);
	}
	printf("back\n");
	return 1;
}

static int value(const char *name, const char *set)
{
	char buf[DLOCK_VALUE_MAX + 1];
	size_t len = DLOCK_VALUE_MAX;
	dlock_t *l;
	int r = dlock_open(&l, name, NULL);

	r = r ? r : dlock_wait(l);
	if (r)
		return fail("wait", r);
	r = dlock_value_get(l, buf, &len);
	if (r && r != ENODATA)
		return fail("get", r);
	buf[r ? 0 : len] = 0;
	printf("%s\n", r ? "-" : buf);
	if (set && (r = dlock_value_set(l, set, strlen(set))))
		return fail("set", r);
	r = dlock_post(l);
	return r ? fail("post", r) : 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && !strcmp(argv[1], "lead"))
		return lead(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "permit"))
		return permit(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "permits"))
		return permits(argv[2], argv[3], argv[4]);
	if (argc == 4 && (!strcmp(argv[1], "read") || !strcmp(argv[1], "write")))
		return take(argv[2], argv[1][0] == 'r', argv[3]);
	if (argc == 3 && !strcmp(argv[1], "watch"))
		return watch(argv[2]);
	if (argc >= 3 && !strcmp(argv[1], "value"))
		return value(argv[2], argv[3]);
	return 64;
}
