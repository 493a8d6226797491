/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "rival.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../cluster/lab.h"
#include "../../e2e/harness.h"

void rival_fail(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

const char *rival_log(const char *what, unsigned n)
{
	static char path[100];

	snprintf(path, sizeof path, "%s/log.rival-%s%u", harness.dir, what, n);
	return path;
}

void rival_await_port(unsigned host, int port, unsigned ms)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	uint64_t until = now_ns() + ms * MS;
	int fd, r;

	inet_pton(AF_INET, lab_address(host), &a.sin_addr);
	do {
		lab_enter(host);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		lab_enter(0);
		r = connect(fd, (struct sockaddr *)&a, sizeof a);
		close(fd);
		if (r == 0)
			return;
		nap_ns(100 * MS);
	} while (now_ns() < until);
	rival_fail("nothing answers on port %d of host %u", port, host);
}
