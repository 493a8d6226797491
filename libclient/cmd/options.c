/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "cmd.h"
#include "print.h"

int misused(const char *command, const char *why, const char *what)
{
	fprintf(stderr, "dlock %s: %s%s%s; see dlock %s --help\n", command, why, what ? " " : "", what ? what : "",
		command);
	return EX_USAGE;
}

bool version_parse(const char *text, long long *ret)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*ret = strtoll(text, &end, 10);
	return errno == 0 && *end == 0;
}

static int over(int code, int *ret_exit)
{
	*ret_exit = code;
	return -1;
}

int options_parse(int argc, char **argv, const struct options_usage *usage, struct options *ret, int *ret_exit)
{
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "names", no_argument, NULL, 'n' },
		{ "open", no_argument, NULL, 'o' },
		{ "kind", required_argument, NULL, 'k' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	unsigned operands;
	int c;

	*ret = (struct options) { 0 };
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":jnok:h", known, NULL)) != -1) {
		if (c == 'h')
			return over(print_only(usage->help), ret_exit);
		if (c == 'j')
			ret->json = true;
		else if (c == 'n' && usage->accept_names)
			ret->names = true;
		else if (c == 'o' && usage->accept_names)
			ret->open = true;
		else if (c == 'k' && usage->accept_kind)
			ret->kind = optarg;
		else
			return over(misused(argv[0], c == ':' ? "an argument is missing after" : "unknown option", argv[optind - 1]), ret_exit);
	}
	operands = (unsigned)(argc - optind);
	if (operands < usage->operands_min)
		return over(misused(argv[0], "an argument is missing", NULL), ret_exit);
	if (operands > usage->operands_max)
		return over(misused(argv[0], "one argument too many:", argv[optind + (int)usage->operands_max]), ret_exit);
	ret->operand = operands > 0 ? argv[optind] : NULL;
	return 0;
}
