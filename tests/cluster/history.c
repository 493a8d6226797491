/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fd = -1;
static const char *name;

void history_open(const char *path, const char *who)
{
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	name = who;
	if (fd < 0) {
		perror(path);
		exit(1);
	}
}

static void say(uint64_t t, const char *format, va_list ap)
{
	char line[600];
	int n = snprintf(line, sizeof line, "{\"t\":%llu,\"who\":\"%s\",", (unsigned long long)t, name);

	n += vsnprintf(line + n, sizeof line - (size_t)n - 2, format, ap);
	line[n++] = '}';
	line[n++] = '\n';
	if (write(fd, line, (size_t)n) != n) {
		perror("history");
		_exit(1);
	}
}

void history_say_at(uint64_t t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(t, format, ap);
	va_end(ap);
}

void history_say(const char *format, ...)
{
	struct timespec now;
	va_list ap;

	clock_gettime(CLOCK_MONOTONIC, &now);
	va_start(ap, format);
	say((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, format, ap);
	va_end(ap);
}

const char *history_result(int error)
{
	return error ? strerrorname_np(error) : "ok";
}
