/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A command for "dlock run" with descendants that are hard to get rid of, each of which says all the
 * time that it has the lock: run_family FILE MILLISECONDS [closes]
 *
 *   itself, a child that ignores what can be ignored, and a daemon: in a session of its own, its parent
 *   gone, and with "closes" without the descriptors that it inherited. All live so long at most.
 *
 * A line of the file: token, nanoseconds (CLOCK_MONOTONIC), pid; written at once, every half millisecond.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void live(const char *path, uint64_t until_ns)
{
	const char *token = getenv("DLOCK_TOKEN");
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	struct timespec nap = { .tv_nsec = 500000 };
	char line[100];

	if (!token || fd < 0)
		_exit(70);
	do {
		int n = snprintf(line, sizeof line, "%s %llu %d\n", token, (unsigned long long)now_ns(), (int)getpid());

		if (write(fd, line, (size_t)n) != n)
			_exit(74);
		nanosleep(&nap, NULL);
	} while (now_ns() < until_ns);
	_exit(0);
}

static void ignore_all(void)
{
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGCHLD)
			signal(sig, SIG_IGN);
}

static void daemonise(const char *path, uint64_t until_ns, bool closes)
{
	ignore_all();
	setsid();
	if (fork() != 0)
		_exit(0);
	for (int fd = 3; closes && fd < 1024; fd++)
		close(fd);
	live(path, until_ns);
}

int main(int argc, char **argv)
{
	bool closes = argc > 3 && strcmp(argv[3], "closes") == 0;
	uint64_t until_ns;
	pid_t pid;

	if (argc < 3)
		return 64;
	until_ns = now_ns() + strtoull(argv[2], NULL, 10) * 1000000u;
	pid = fork();
	if (pid == 0)
		daemonise(argv[1], until_ns, closes);
	waitpid(pid, NULL, 0);
	if (fork() == 0) {
		ignore_all();
		live(argv[1], until_ns);
	}
	live(argv[1], until_ns);
}
