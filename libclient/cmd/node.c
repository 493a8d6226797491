/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"

static const char help[] =
"Usage: dlock node drain | undrain | leave\n\n"
"  drain      this node hands the shards that it masters to others, and gets no new ones. What is held on it\n"
"             stays held. Before a long stop, or while the machine is not to be relied upon\n"
"  undrain    it may master again\n"
"  leave      drains, gives up at once what is held on this node (holders are told ESTALE, dlock run ends what it\n"
"             runs), ends the session and stops the daemon. Others need not wait until the session's time is over\n\n"
"For root and the user that the daemon runs as. A node that is alone has nothing to hand over.\n";

static const struct action {
	const char *name, *method;
	bool off;
} actions[] = {
	{ "drain", "io.dlock.Drain", false },
	{ "undrain", "io.dlock.Drain", true },
	{ "leave", "io.dlock.Leave", false },
};

static const struct action *action_find(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

static int node_call(const struct action *a)
{
	struct json_object *parameters = NULL, *answer;
	int r;

	if (a->off) {
		parameters = json_object_new_object();
		json_object_object_add(parameters, "off", json_object_new_boolean(true));
	}
	r = client_ask(a->method, parameters, &answer);
	if (r == 0)
		json_object_put(answer);
	return r;
}

int cmd_node(int argc, char **argv)
{
	const struct action *a;

	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(help, stdout);
		return 0;
	}
	a = argc == 2 ? action_find(argv[1]) : NULL;
	if (!a) {
		fputs(help, stderr);
		return EX_USAGE;
	}
	return node_call(a);
}
