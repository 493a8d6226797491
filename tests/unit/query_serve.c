/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "query_serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/loop.h"

struct server {
	struct loop *loop;
	struct query *query;
	unsigned events_a_signal;
};

/* Once it is there, somebody listens. */
int serve_listen(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd;

	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s.new", path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	unlink(a.sun_path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 512) < 0 || rename(a.sun_path, path) < 0) {
		close(fd);
		return -errno;
	}
	return fd;
}

static void on_term(void *arg, int signo)
{
	struct server *s = arg;

	(void)signo;
	loop_stop(s->loop, 0);
}

static void on_event(void *arg, int signo)
{
	struct server *s = arg;
	char name[32];
	struct query_event ev = { .boottime_ms = loop_now(s->loop) / NSEC_PER_MSEC,
				  .realtime_ms = UINT64_C(1700000000000), .event = "grant",
				  .space = "default", .name = name, .pid = 4321 };

	(void)signo;
	for (unsigned i = 0; query_watched(s->query) && i < s->events_a_signal; i++) {
		snprintf(name, sizeof(name), "n%08u", i);
		ev.token = i + 1;
		query_event(s->query, &ev);
	}
}

static void log_line(void *arg, int priority, const char *text)
{
	(void)arg;
	fprintf(stderr, "<%d>%s\n", priority, text);
	fflush(stderr);
}

int serve(int listen_fd, struct fake *fake, unsigned events_a_signal, const char *log_path)
{
	struct server s = { .events_a_signal = events_a_signal };
	int r;

	if (log_path && !freopen(log_path, "we", stderr))
		return -errno;
	fake->source.log = log_line;
	r = loop_create(&s.loop);
	if (r >= 0)
		r = loop_signal(s.loop, SIGTERM, on_term, &s);
	if (r >= 0)
		r = loop_signal(s.loop, SIGUSR1, on_event, &s);
	if (r >= 0)
		r = query_start(s.loop, listen_fd, &fake->source, &s.query);
	if (r >= 0)
		r = loop_run(s.loop);
	query_free(s.query);
	loop_free(s.loop);
	return r;
}
