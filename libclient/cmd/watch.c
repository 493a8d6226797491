/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends with 0 when it is told to (SIGINT, SIGTERM, SIGHUP) and when its reader has gone, also while
 * nothing happens: so it waits for the daemon and for its own output at once.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"

static const char help[] =
"Usage: dlock watch [--json] [NAME]\n\n"
"Prints what happens to one name (SPACE/NAME, or NAME in the space default), or to all that you may\n"
"see and to the node: one event a line, until it is interrupted.\n\n"
"  -j, --json    one JSON object a line\n"
"  -h, --help\n";

static void show_event(struct json_object *event)
{
	long long ms = field_number(event, "realtimeMs");
	time_t at = (time_t)(ms / 1000);
	char clock[16] = "", *name = clean(field_text(event, "name")), *detail = clean(field_text(event, "detail"));
	struct tm tm;

	if (localtime_r(&at, &tm))
		strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	bool more = field(event, "space") || field(event, "pid") || field(event, "token") || detail[0];
	printf("%s.%03lld  %s%-*s%s", clock, ms % 1000, colour_on(COLOUR_BOLD), more ? 12 : 0, field_text(event, "event"),
	       colour_off(COLOUR_BOLD));
	if (field(event, "space"))
		printf(" %s%s%s", field_text(event, "space"), name[0] ? "/" : "", name);
	if (field(event, "kind") && strcmp(field_text(event, "kind"), "lock") != 0)
		printf(" (%s)", field_text(event, "kind"));
	if (field(event, "pid"))
		printf(" pid %lld", field_number(event, "pid"));
	if (field(event, "token"))
		printf(" token %lld", field_number(event, "token"));
	if (detail[0])
		printf(" %s", detail);
	putchar('\n');
	free(name);
	free(detail);
}

static void show(struct json_object *answer, bool json)
{
	if (json)
		print_json_line(answer);
	else if (field(answer, "event"))
		show_event(field(answer, "event"));
	else if (field(answer, "dropped"))
		printf("%s... %lld events were lost here: this reader is too slow%s\n", colour_on(COLOUR_WARN),
		       field_number(answer, "dropped"), colour_off(COLOUR_WARN));
	fflush(stdout);
}

/* A descriptor that is readable once the user has had enough. */
static int signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool message_waits(const struct client *c)
{
	return c->end > c->start && memchr(c->buf + c->start, 0, c->end - c->start);
}

/* True: there is something from the daemon. False: time to end. */
static bool wait_for_more(const struct client *c, int signals)
{
	struct pollfd fds[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = STDOUT_FILENO },         /* POLLERR: the reader of the pipe has gone */
		{ .fd = c->fd, .events = POLLIN },
	};

	while (poll(fds, 3, message_waits(c) ? 0 : -1) < 0)
		if (errno != EINTR)
			return false;
	return !fds[0].revents && !(fds[1].revents & (POLLERR | POLLHUP)) && !ferror(stdout);
}

/* Watching has begun once the daemon says so; from then on there is no hurry. */
static int begin(struct client *c)
{
	const struct timeval none = { 0 };
	struct json_object *answer;
	int r = client_answer(c, &answer, NULL);

	if (r != 0)
		return r;
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	json_object_put(answer);
	return 0;
}

static int watch(struct client *c, bool json)
{
	int signals = signals_open(), r = 0;
	struct json_object *answer;

	while (wait_for_more(c, signals)) {
		r = client_answer(c, &answer, NULL);
		if (r != 0)
			break;
		show(answer, json);
		json_object_put(answer);
	}
	close(signals);
	return r ? r : print_done();
}

int cmd_watch(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help, .operands_max = 1 };
	struct json_object *parameters = NULL;
	struct options o;
	struct client c;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	r = client_open(&c);
	if (r != 0)
		return r;
	signal(SIGPIPE, SIG_IGN);
	if (o.operand) {
		parameters = json_object_new_object();
		json_object_object_add(parameters, "name", json_object_new_string(o.operand));
	}
	r = client_call(&c, "io.dlock.Watch", parameters, true);
	if (r == 0)
		r = begin(&c);
	if (r == 0)
		r = watch(&c, o.json);
	client_close(&c);
	return r;
}
