/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include "log.h"
#include "loop/loop.h"

#define LOGIND "org.freedesktop.login1"
#define LOGIND_PATH "/org/freedesktop/login1"
#define LOGIND_MANAGER LOGIND ".Manager"

struct system {
	struct loop *loop;
	sd_bus *bus;
	struct loop_watch *watch;
	int inhibitor;                   /* -1: none */
	void (*fn)(void *arg, bool announced);
	void *arg;
};

static void inhibitor_drop(struct system *s)
{
	if (s->inhibitor < 0)
		return;
	s->fn(s->arg, false);
	close(s->inhibitor);
	s->inhibitor = -1;
}

/* The descriptor is the message's. */
static int inhibited(sd_bus_message *m, void *arg, sd_bus_error *error)
{
	struct system *s = arg;
	int fd, r = sd_bus_message_is_method_error(m, NULL) ? -EIO : sd_bus_message_read(m, "h", &fd);

	(void)error;
	if (r >= 0 && s->inhibitor >= 0)
		close(s->inhibitor);     /* of two calls that were under way at once */
	if (r >= 0)
		s->inhibitor = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (s->inhibitor >= 0)
		s->fn(s->arg, true);
	else
		log_debug("logind does not tell us before a suspend: %s", strerror(r < 0 ? -r : errno));
	return 0;
}

static int inhibit(struct system *s)
{
	return sd_bus_call_method_async(s->bus, NULL, LOGIND, LOGIND_PATH, LOGIND_MANAGER, "Inhibit", inhibited, s, "ssss",
					"sleep", "dlockd", "locks' deadlines do not go on by the processor's counter", "delay");
}

static int sleep_comes(sd_bus_message *m, void *arg, sd_bus_error *error)
{
	struct system *s = arg;
	int begins;

	(void)error;
	if (sd_bus_message_read(m, "b", &begins) < 0)
		return 0;
	if (begins)
		inhibitor_drop(s);
	else if (s->inhibitor < 0)
		inhibit(s);
	return 0;
}

static void bus_end(struct system *s)
{
	inhibitor_drop(s);
	loop_unwatch(s->watch);
	s->watch = NULL;
	s->bus = sd_bus_close_unref(s->bus);
}

/* Never sd_bus_flush(), which waits for the other end. What cannot be written yet is written when there is room. */
static void bus_ready(void *arg, uint32_t revents)
{
	struct system *s = arg;
	int r;

	(void)revents;
	while ((r = sd_bus_process(s->bus, NULL)) > 0)
		;
	if (r < 0)
		bus_end(s);
}

static int bus_begin(struct system *s)
{
	int r = sd_bus_open_system(&s->bus);

	if (r >= 0)
		r = sd_bus_match_signal_async(s->bus, NULL, LOGIND, LOGIND_PATH, LOGIND_MANAGER, "PrepareForSleep",
					      sleep_comes, NULL, s);
	if (r >= 0)
		r = inhibit(s);
	if (r >= 0)
		r = loop_watch(s->loop, sd_bus_get_fd(s->bus), POLLIN | POLLOUT, bus_ready, s, &s->watch);
	return r;
}

void system_watch(struct loop *loop, void (*fn)(void *arg, bool announced), void *arg, struct system **ret)
{
	struct system *s = calloc(1, sizeof *s);

	*ret = NULL;
	if (!s)
		return;
	*s = (struct system){ .loop = loop, .inhibitor = -1, .fn = fn, .arg = arg };
	if (bus_begin(s) < 0) {
		s->bus = sd_bus_close_unref(s->bus);
		free(s);
		return;
	}
	bus_ready(s, 0);
	*ret = s;
}

void system_done(struct system *s)
{
	if (!s)
		return;
	if (s->inhibitor >= 0)
		close(s->inhibitor);
	loop_unwatch(s->watch);
	sd_bus_close_unref(s->bus);
	free(s);
}

bool system_goes_down(void)
{
	sd_bus *bus = NULL;
	char *state = NULL;
	bool down = false;

	if (sd_bus_open_system(&bus) < 0)
		return false;
	sd_bus_set_method_call_timeout(bus, SYSTEM_WAIT_MS * UINT64_C(1000));
	if (sd_bus_get_property_string(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
				       "org.freedesktop.systemd1.Manager", "SystemState", NULL, &state) >= 0)
		down = strcmp(state, "stopping") == 0;
	free(state);
	sd_bus_close_unref(bus);
	return down;
}
