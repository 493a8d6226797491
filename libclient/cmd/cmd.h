/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The subcommands of dlock, one a file. Each gets its own name as argv[0] and returns an exit code:
 * 0, those of sysexits.h, or what its page in dlock(1) says.
 */
#ifndef DLOCK_CMD_H
#define DLOCK_CMD_H

#include <stdbool.h>

int cmd_status(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_members(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_put(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run(int argc, char **argv);

struct json_object;

/* The members of a cluster, as ListMembers lists them, as a table (members.c). */
void members_show(struct json_object *members);

/* What kind_text() calls it, or how that begins, if only one does. NULL: none, or several. */
const char *kind_find(const char *text);

/* --- options.c --- */

/* Says what is wrong with how the command was called, and where to look. what may be NULL. Returns EX_USAGE. */
int misused(const char *command, const char *why, const char *what);

/* The version of a value: a decimal number. */
bool version_parse(const char *text, long long *ret);

/* What the commands that only look have in common. */
struct options {
	bool json;
	bool names, open;        /* only where accept_names */
	const char *kind;        /* NULL: none given; only where accept_kind */
	const char *operand;     /* NULL: none */
};

struct options_usage {
	const char *help;        /* the whole text for --help */
	unsigned operands_min, operands_max;     /* 0 or 1 each */
	bool accept_names, accept_kind;
};

/* 0: go on. Otherwise the command is over with code *ret_exit: it was --help, or was misused. */
int options_parse(int argc, char **argv, const struct options_usage *usage, struct options *ret, int *ret_exit);

#endif
