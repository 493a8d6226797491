/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "cmd.h"
#include "print.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *does;
} commands[] = {
	{ "run", cmd_run, "a command while holding a lock" },
	{ "status", cmd_status, "this node: daemon, store, spaces, links" },
	{ "ls", cmd_ls, "names, with who holds them and who waits" },
	{ "show", cmd_show, "one name" },
	{ "watch", cmd_watch, "what happens, one event a line" },
	{ "get", cmd_get, "a small value in the store" },
	{ "put", cmd_put, "sets one" },
	{ "rm", cmd_rm, "removes one; or a latch or free semaphore that was left" },
	{ "members", cmd_members, "the nodes of the cluster" },
	{ "node", cmd_node, "drain: hands its shards over; leave: leaves the cluster" },
	{ "keygen", cmd_keygen, "makes a key that the nodes of a cluster share" },
	{ "doctor", cmd_doctor, "checks the set-up and says what to mend" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *f)
{
	fputs("Usage: dlock COMMAND [OPTIONS] [ARGUMENTS]\n\n", f);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(f, "  %-8s %s\n", commands[i].name, commands[i].does);
	fputs("\n  --help, --version; dlock COMMAND --help tells more, dlock(1) all.\n"
	      "\nThe daemon is found in $DLOCK_RUN_DIR, else in /run/dlock.\n", f);
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

int main(int argc, char **argv)
{
	const struct command *command;

	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		help(stderr);
		return EX_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		help(stdout);
		return print_done();
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return print_only("dlock " CMD_VERSION "\n");
	command = find(argv[1]);
	if (!command) {
		fprintf(stderr, "dlock: there is no command '%s'; dlock --help lists them\n", argv[1]);
		return EX_USAGE;
	}
	return command->main(argc - 1, argv + 1);
}
