/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the machine says of itself, by a bus of our own on which this test is logind and systemd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../daemon/loop/loop.h"
#include "../../daemon/system.h"

static struct {
	int listener, pipe[2];           /* pipe: its reading end ends when the inhibitor has been let go */
	int before;                      /* the reading end of the one that was given before */
	sd_bus *bus;
	bool refuses;
	const char *state;               /* of the system; NULL: no answer at all */
	unsigned inhibits;
} machine;

static int reply(sd_bus_message *m, const char *types, ...)
{
	va_list ap;
	sd_bus_message *r = NULL;

	va_start(ap, types);
	sd_bus_message_new_method_return(m, &r);
	sd_bus_message_appendv(r, types, ap);
	va_end(ap);
	sd_bus_send(machine.bus, r, NULL);
	sd_bus_message_unref(r);
	return 1;
}

static int inhibit(sd_bus_message *m)
{
	machine.inhibits++;
	if (machine.refuses)
		return sd_bus_reply_method_errorf(m, SD_BUS_ERROR_ACCESS_DENIED, "no") < 0 ? -1 : 1;
	machine.before = machine.pipe[0];
	assert_int_equal(pipe2(machine.pipe, O_CLOEXEC | O_NONBLOCK), 0);
	reply(m, "h", machine.pipe[1]);
	close(machine.pipe[1]);          /* the message has its own */
	return 1;
}

static int called(sd_bus_message *m, void *arg, sd_bus_error *error)
{
	const char *member = sd_bus_message_get_member(m);

	(void)arg, (void)error;
	if (!member || !sd_bus_message_is_method_call(m, NULL, NULL))
		return 0;
	if (strcmp(member, "Hello") == 0)
		return reply(m, "s", ":1.1");
	if (strcmp(member, "Inhibit") == 0)
		return inhibit(m);
	if (strcmp(member, "Get") == 0)
		return machine.state ? reply(m, "v", "s", machine.state) : 1;
	return reply(m, "");             /* AddMatch and its like */
}

static void bus_listen(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char address[200];

	snprintf(a.sun_path, sizeof a.sun_path, "%s/bus", getenv("TMPDIR") ?: "/tmp");
	unlink(a.sun_path);
	machine.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(machine.listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(machine.listener, 4), 0);
	snprintf(address, sizeof address, "unix:path=%s", a.sun_path);
	setenv("DBUS_SYSTEM_BUS_ADDRESS", address, 1);
}

static void bus_accept(void)
{
	sd_id128_t id = { .bytes = { 1 } };
	int fd = accept4(machine.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	assert_true(fd >= 0);
	sd_bus_new(&machine.bus);
	sd_bus_set_fd(machine.bus, fd, fd);
	sd_bus_set_server(machine.bus, 1, id);
	sd_bus_negotiate_fds(machine.bus, 1);
	sd_bus_set_anonymous(machine.bus, 1);
	assert_true(sd_bus_start(machine.bus) >= 0);
	sd_bus_add_filter(machine.bus, NULL, called, NULL);
}

static void bus_done(void)
{
	machine.bus = sd_bus_flush_close_unref(machine.bus);
	close(machine.listener);
}

/* --- the daemon's side, in a loop that turns until nothing comes for a while --- */

struct watcher {
	struct loop *loop;
	struct loop_timer timer;
	struct loop_watch *watch;
	int announced;                   /* -1: nothing has been said */
};

static void told(void *arg, bool announced)
{
	((struct watcher *)arg)->announced = announced;
}

static void bus_turn(void *arg, uint32_t revents)
{
	(void)arg, (void)revents;
	while (sd_bus_process(machine.bus, NULL) > 0)
		;
}

static void over(void *arg)
{
	loop_stop(((struct watcher *)arg)->loop, 0);
}

static void settle(struct watcher *w)
{
	bus_turn(NULL, 0);
	loop_timer_init(&w->timer, over, w);
	loop_timer_set(w->loop, &w->timer, loop_clock() + 100 * NSEC_PER_MSEC);
	assert_int_equal(loop_run(w->loop), 0);
}

static struct system *begin(struct watcher *w)
{
	struct system *s;

	*w = (struct watcher){ .announced = -1 };
	machine.inhibits = 0;
	bus_listen();
	assert_int_equal(loop_create(&w->loop), 0);
	system_watch(w->loop, told, w, &s);
	assert_non_null(s);
	bus_accept();
	assert_int_equal(loop_watch(w->loop, sd_bus_get_fd(machine.bus), POLLIN | POLLOUT, bus_turn, w, &w->watch), 0);
	settle(w);
	return s;
}

static void end(struct watcher *w, struct system *s)
{
	system_done(s);
	loop_unwatch(w->watch);
	loop_free(w->loop);
	bus_done();
}

static bool ended(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 0;
}

static bool let_go(void)
{
	return ended(machine.pipe[0]);
}

static void sleep_say(bool begins)
{
	sd_bus_message *m = NULL;

	assert_true(sd_bus_message_new_signal(machine.bus, &m, "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
					      "PrepareForSleep") >= 0);
	sd_bus_message_append(m, "b", begins);
	sd_bus_message_set_sender(m, "org.freedesktop.login1");
	assert_true(sd_bus_send(machine.bus, m, NULL) >= 0);
	sd_bus_message_unref(m);
}

static void sleep_signal(struct watcher *w, bool begins)
{
	sleep_say(begins);
	settle(w);
}

static void sleep_is_announced(void **state)
{
	struct watcher w;
	struct system *s = begin(&w);

	(void)state;
	assert_int_equal(w.announced, 1);
	assert_false(let_go());
	sleep_signal(&w, true);
	assert_int_equal(w.announced, 0);
	assert_true(let_go());                   /* and only then */
	close(machine.pipe[0]);
	sleep_signal(&w, false);
	assert_int_equal(w.announced, 1);
	assert_int_equal(machine.inhibits, 2);
	end(&w, s);
	assert_true(let_go());
	close(machine.pipe[0]);
}

/* The answer to the first call is still on its way when the second is made: who keeps both can let go of one only, and each suspend waits for it. */
static void two_resumes_give_one_inhibitor(void **state)
{
	struct watcher w;
	struct system *s = begin(&w);

	(void)state;
	sleep_signal(&w, true);
	close(machine.pipe[0]);
	sleep_say(false);
	sleep_say(false);
	settle(&w);
	assert_int_equal(machine.inhibits, 3);
	assert_int_equal(w.announced, 1);
	assert_true(ended(machine.before));
	assert_false(let_go());
	end(&w, s);
	assert_true(let_go());
	close(machine.before);
	close(machine.pipe[0]);
}

static void refusal_leaves_it_unannounced(void **state)
{
	struct watcher w;
	struct system *s;

	(void)state;
	machine.refuses = true;
	s = begin(&w);
	machine.refuses = false;
	assert_int_equal(machine.inhibits, 1);
	assert_int_equal(w.announced, -1);
	end(&w, s);
}

static void end_of_the_bus_takes_it_back(void **state)
{
	struct watcher w;
	struct system *s = begin(&w);

	(void)state;
	assert_int_equal(w.announced, 1);
	loop_unwatch(w.watch);
	w.watch = NULL;
	machine.bus = sd_bus_flush_close_unref(machine.bus);
	loop_timer_init(&w.timer, over, &w);
	loop_timer_set(w.loop, &w.timer, loop_clock() + 100 * NSEC_PER_MSEC);
	assert_int_equal(loop_run(w.loop), 0);
	assert_int_equal(w.announced, 0);
	close(machine.pipe[0]);
	end(&w, s);
}

static void no_bus_is_no_trouble(void **state)
{
	struct system *s = (struct system *)state;
	struct loop *loop;

	setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus", 1);
	assert_int_equal(loop_create(&loop), 0);
	system_watch(loop, told, NULL, &s);
	assert_null(s);
	assert_false(system_goes_down());
	loop_free(loop);
}

static void *serve_once(void *arg)
{
	struct pollfd p;

	(void)arg;
	bus_accept();
	for (int i = 0; i < 50; i++) {
		bus_turn(NULL, 0);
		p = (struct pollfd){ sd_bus_get_fd(machine.bus), POLLIN, 0 };
		poll(&p, 1, 20);
	}
	return NULL;
}

static bool goes_down_when(const char *said)
{
	pthread_t t;
	bool down;

	machine.state = said;
	bus_listen();
	assert_int_equal(pthread_create(&t, NULL, serve_once, NULL), 0);
	down = system_goes_down();
	pthread_join(t, NULL);
	bus_done();
	return down;
}

static void going_down_is_told_from_a_restart(void **state)
{
	bool down = false;

	(void)state;
	/* Again where the answer came too late. */
	for (int tries = 0; !down && tries < 10; tries++)
		down = goes_down_when("stopping");
	assert_true(down);
	assert_false(goes_down_when("running"));
	assert_false(goes_down_when(NULL));      /* it takes SYSTEM_WAIT_MS, and no longer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "a suspend is announced, and waits until that has been heard", sleep_is_announced, NULL, NULL, NULL },
		{ "of two inhibitors one is let go of at once", two_resumes_give_one_inhibitor, NULL, NULL, NULL },
		{ "where logind refuses nothing is announced", refusal_leaves_it_unannounced, NULL, NULL, NULL },
		{ "the end of the bus takes it back", end_of_the_bus_takes_it_back, NULL, NULL, NULL },
		{ "without a bus nothing is said", no_bus_is_no_trouble, NULL, NULL, NULL },
		{ "the machine's going down is told from a restart", going_down_is_told_from_a_restart, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
