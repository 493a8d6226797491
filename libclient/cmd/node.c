/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"

static const char help[] =
"Usage: dlock node drain | undrain | leave\n\n"
"  drain      this node hands the shards that it masters to others, and gets no new ones. What is held on it\n"
"             stays held. Before a long stop, or while the machine is not to be relied upon\n"
"  undrain    it may master again\n"
"  leave      drains, gives up at once what is held on this node (holders are told ESTALE, dlock run ends what it\n"
"             runs), ends the session and stops the daemon. Others need not wait until the session's time is over.\n"
"             Returns when the daemon has ended\n\n"
"For root and the user that the daemon runs as. A node that is alone has nothing to hand over.\n\n"
"  -h, --help\n";

static const struct action {
	const char *name, *method;
	bool off, ends;          /* ends: and the daemon with it */
} actions[] = {
	{ "drain", "io.dlock.Drain", false, false },
	{ "undrain", "io.dlock.Drain", true, false },
	{ "leave", "io.dlock.Leave", false, true },
};

static const struct action *action_find(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

/* A daemon that has said yes goes on by itself; what it has open ends with it. */
static void daemon_await_end(const struct client *c)
{
	char byte;
	ssize_t n;

	do
		n = recv(c->fd, &byte, 1, 0);
	while (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)));
}

static int node_call(const struct action *a)
{
	struct json_object *parameters = NULL, *answer;
	struct client c;
	int r = client_open(&c);

	if (r == 0 && a->off) {
		parameters = json_object_new_object();
		json_object_object_add(parameters, "off", json_object_new_boolean(true));
	}
	if (r == 0)
		r = client_call(&c, a->method, parameters, false);
	if (r == 0)
		r = client_answer(&c, &answer, NULL);
	if (r == 0) {
		json_object_put(answer);
		if (a->ends)
			daemon_await_end(&c);
	}
	client_close(&c);
	return r;
}

int cmd_node(int argc, char **argv)
{
	const struct action *a;

	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return print_only(help);
	a = argc == 2 ? action_find(argv[1]) : NULL;
	if (!a) {
		fputs(help, stderr);
		return EX_USAGE;
	}
	return node_call(a);
}
