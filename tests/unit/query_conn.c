/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Callers of all manners at a real socket, served by a real loop in a process of its own. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "query_serve.h"

#define EVENTS 5000

static char dir[64], path[80], log_path[80];
static pid_t server;

static int server_begin(void **state)
{
	struct fake fake;
	int fd;

	(void)state;
	unlink(log_path);
	fd = serve_listen(path);
	if (fd < 0)
		return -1;
	chmod(path, 0666);
	server = fork();
	if (server == 0) {
		fake_init(&fake, 100000, 10);
		_exit(serve(fd, &fake, EVENTS, log_path) < 0);
	}
	close(fd);
	return server < 0 ? -1 : 0;
}

static int server_end(void **state)
{
	int status;

	(void)state;
	kill(server, SIGTERM);
	return waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

#define PATIENCE_MS 60000u               /* only ever over when something is wrong */

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = PATIENCE_MS / 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(a.sun_path, path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text) + 1, MSG_NOSIGNAL), strlen(text) + 1);
}

/* The next message, in a buffer that the next call overwrites; NULL: the end. */
static const char *hear(int fd)
{
	static char buf[1 << 20];
	size_t n = 0;

	for (;;) {
		ssize_t r = recv(fd, buf + n, sizeof(buf) - n, MSG_PEEK);
		char *end;

		if (r == 0 || (r < 0 && errno == ECONNRESET))
			return NULL;
		assert_true(r > 0);
		end = memchr(buf + n, 0, (size_t)r);
		r = recv(fd, buf + n, end ? (size_t)(end - buf) + 1 - n : (size_t)r, 0);
		assert_true(r > 0);
		if (end)
			return buf;
		n += (size_t)r;
	}
}

#define STATUS "{\"method\":\"io.dlock.GetStatus\"}"
#define CROWD "{\"method\":\"io.dlock.ShowName\",\"parameters\":{\"name\":\"crowd\"}}"

static void is_served(void)
{
	int fd = dial();
	const char *text;

	say(fd, STATUS);
	text = hear(fd);
	assert_non_null(text);
	assert_non_null(strstr(text, "\"alpha\""));
	close(fd);
}

static void pause_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

/* As soon as there is room. */
static void is_served_soon(void)
{
	bool served = false;

	for (unsigned ms = 0; !served && ms < PATIENCE_MS; ms += 50) {
		const char *text;
		int fd;

		pause_ms(50);
		fd = dial();
		(void)send(fd, STATUS, sizeof(STATUS), MSG_NOSIGNAL);  /* it may be closed already */
		text = hear(fd);
		served = text && strstr(text, "\"alpha\"");
		close(fd);
	}
	assert_true(served);
}

static unsigned long server_number(const char *file, const char *key)
{
	char name[64], line[256];
	unsigned long value = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/%s", (int)server, file);
	f = fopen(name, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoul(line + strlen(key), NULL, 10);
	fclose(f);
	return value;
}

/* Nothing runs in an idle server, whoever is connected. */
static void assert_idle(void)
{
	unsigned long before = 0, after = 1;

	/* Again where it ran: it may have had no time for what it had to do before. */
	for (unsigned ms = 0; after != before && ms < PATIENCE_MS; ms += 400) {
		pause_ms(100);
		before = server_number("status", "voluntary_ctxt_switches:");
		pause_ms(300);
		after = server_number("status", "voluntary_ctxt_switches:");
	}
	assert_int_equal(after, before);
}

static bool logged(const char *what)
{
	char line[300];
	bool found = false;
	FILE *f;

	for (unsigned ms = 0; ms < PATIENCE_MS && !found; ms += 10) {
		f = fopen(log_path, "r");
		while (f && fgets(line, sizeof(line), f))
			found = found || strstr(line, what);
		if (f)
			fclose(f);
		if (!found)
			pause_ms(10);
	}
	return found;
}

static void a_call_is_answered(void **state)
{
	(void)state;
	is_served();
	assert_idle();
}

static void half_closed_callers_are_answered(void **state)
{
	int fd = dial();

	(void)state;
	say(fd, "{\"method\":\"io.dlock.ListNames\",\"parameters\":{\"space\":\"default\"},\"more\":true}");
	say(fd, STATUS);
	shutdown(fd, SHUT_WR);
	while (strstr(hear(fd), "\"continues\":true"))
		;
	assert_non_null(strstr(hear(fd), "\"alpha\""));
	assert_null(hear(fd));
	close(fd);
}

static void garbage_is_closed_and_logged(void **state)
{
	int fd = dial();

	(void)state;
	say(fd, STATUS);
	say(fd, "\x16\x03\x01 this is not for you");
	assert_non_null(hear(fd));
	assert_null(hear(fd));
	close(fd);
	assert_true(logged("no Varlink call"));
	is_served();
}

static void callers_without_end_are_closed(void **state)
{
	int fd = dial();
	char block[4096];

	(void)state;
	memset(block, 'x', sizeof(block));
	while (send(fd, block, sizeof(block), MSG_NOSIGNAL) > 0)
		;
	close(fd);
	assert_true(logged("too long"));
	is_served();
}

/* Asks without end and reads nothing. Its own send blocks; everybody else is served meanwhile. */
static void silent_readers_block_themselves(void **state)
{
	unsigned long before = server_number("status", "VmRSS:");
	int fd[8];

	(void)state;
	(void)before;
	for (unsigned i = 0; i < 8; i++) {
		fd[i] = dial();
		for (unsigned n = 0;; n++) {
			assert_true(n < 1000000);
			if (send(fd[i], CROWD, sizeof(CROWD), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(CROWD)) {
				assert_int_equal(errno, EAGAIN);
				pause_ms(20);
				if (send(fd[i], CROWD, sizeof(CROWD), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
					break;
			}
		}
	}
	is_served();
	assert_idle();
#ifndef __SANITIZE_ADDRESS__             /* which keeps what is freed */
	assert_true(server_number("status", "VmRSS:") < before + 8 * 512);
#endif
	for (unsigned i = 0; i < 8; i++)
		close(fd[i]);
	is_served();
}

static void callers_who_leave_are_forgotten(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		int fd = dial();

		say(fd, i % 2 ? "{\"method\":\"io.dlock.ListNames\",\"more\":true}" :
			"{\"method\":\"io.dlock.Watch\",\"more\":true}");
		if (i % 3)
			hear(fd);
		close(fd);
	}
	is_served();
	assert_idle();
	is_served();
}

static void watchers_hear_of_events(void **state)
{
	int fast = dial(), slow = dial();
	unsigned events = 0, dropped = 0;
	const char *text;

	(void)state;
	say(slow, "{\"method\":\"io.dlock.Watch\",\"more\":true}");
	assert_non_null(strstr(hear(slow), "\"ready\":true"));
	say(fast, "{\"method\":\"io.dlock.Watch\",\"parameters\":{\"name\":\"n00000007\"},\"more\":true}");
	assert_non_null(strstr(hear(fast), "\"ready\":true"));
	kill(server, SIGUSR1);
	assert_non_null(strstr(hear(fast), "\"name\":\"n00000007\""));
	assert_idle();
	while (events + dropped < EVENTS) {
		text = hear(slow);
		assert_non_null(text);
		assert_non_null(strstr(text, "\"continues\":true"));
		if (strstr(text, "\"dropped\":"))
			dropped += (unsigned)atoi(strstr(text, "\"dropped\":") + 10);
		else
			events++;
	}
	assert_int_equal(events + dropped, EVENTS);
	assert_true(dropped > 0);
	close(fast);
	close(slow);
}

/* Fills up what there is; returns how many were let in. The first one refused is told why. */
static unsigned crowd_in(int *fd, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const char *text;

		fd[i] = dial();
		(void)send(fd[i], STATUS, sizeof(STATUS), MSG_NOSIGNAL);  /* it may be closed already */
		text = hear(fd[i]);
		assert_non_null(text);
		if (strstr(text, "TooManyConnections")) {
			assert_null(hear(fd[i]));
			close(fd[i]);
			return i;
		}
	}
	return n;
}

static void connections_are_limited(void **state)
{
	int fd[QUERY_CONNS_MAX + 1];
	unsigned n;

	(void)state;
	n = crowd_in(fd, QUERY_CONNS_MAX + 1);
	assert_int_equal(n, geteuid() == 0 ? QUERY_CONNS_MAX : QUERY_CONNS_UID_MAX);
	assert_true(logged("too many connections"));
	close(fd[--n]);
	is_served_soon();
	while (n > 0)
		close(fd[--n]);
	is_served();
}

/* In a process of its own, as nobody: 0 if so many are let in, and one more is not. */
static int crowd_as_nobody(void)
{
	int fd[QUERY_CONNS_UID_MAX + 1];

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 2;
	return crowd_in(fd, QUERY_CONNS_UID_MAX + 1) == QUERY_CONNS_UID_MAX ? 0 : 1;
}

static void users_are_limited_each(void **state)
{
	int status, fd;
	pid_t child;

	(void)state;
	if (geteuid() != 0) {
		is_served();                     /* the server is up, and can be told to end */
		skip();
	}
	fd = dial();
	child = fork();
	if (child == 0)
		_exit(crowd_as_nobody());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	say(fd, STATUS);
	assert_non_null(hear(fd));
	close(fd);
	is_served();
}

static void silent_readers_make_room(void **state)
{
	int fd[QUERY_CONNS_MAX], silent;
	unsigned n;

	(void)state;
	silent = dial();
	say(silent, "{\"method\":\"io.dlock.ListNames\",\"more\":true}");
	n = crowd_in(fd, (geteuid() == 0 ? QUERY_CONNS_MAX : QUERY_CONNS_UID_MAX) - 1);
	assert_int_equal(n, (geteuid() == 0 ? QUERY_CONNS_MAX : QUERY_CONNS_UID_MAX) - 1);
	pause_ms(QUERY_STALL / NSEC_PER_MSEC + 200);
	is_served_soon();
	assert_true(logged("make room"));
	while (hear(silent))
		;
	close(silent);
	while (n > 0)
		close(fd[--n]);
}

#define CASE(title, fn) { title, fn, server_begin, server_end, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("a call is answered, and then nothing runs", a_call_is_answered),
		CASE("who closes the sending side is answered to the end", half_closed_callers_are_answered),
		CASE("garbage ends the connection, with a log line", garbage_is_closed_and_logged),
		CASE("a call without end ends the connection, with a log line", callers_without_end_are_closed),
		CASE("who never reads blocks nobody but himself", silent_readers_block_themselves),
		CASE("callers who leave in the middle are forgotten", callers_who_leave_are_forgotten),
		CASE("watchers hear of events; a slow one is told how many it lost", watchers_hear_of_events),
		CASE("connections are limited, and the one too many is told so", connections_are_limited),
		CASE("one user cannot take all connections", users_are_limited_each),
		CASE("who leaves answers unread makes room for others", silent_readers_make_room),
	};
	int r;

	snprintf(dir, sizeof(dir), "/tmp/dlq-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	chmod(dir, 0755);
	snprintf(path, sizeof(path), "%s/io.dlock", dir);
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	r = cmocka_run_group_tests_name("query connections", tests, NULL, NULL);
	unlink(path);
	unlink(log_path);
	rmdir(dir);
	return r;
}
