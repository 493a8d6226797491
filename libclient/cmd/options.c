/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <getopt.h>
#include <stdio.h>
#include <sysexits.h>

#include "cmd.h"

static int misused(const char *command, const char *why, const char *what, int *ret_exit)
{
	fprintf(stderr, "dlock %s: %s%s%s; see dlock %s --help\n", command, why, what ? " " : "", what ? what : "",
		command);
	*ret_exit = EX_USAGE;
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
		if (c == 'h') {
			fputs(usage->help, stdout);
			*ret_exit = 0;
			return -1;
		}
		if (c == 'j')
			ret->json = true;
		else if (c == 'n' && usage->accept_names)
			ret->names = true;
		else if (c == 'o' && usage->accept_names)
			ret->open = true;
		else if (c == 'k' && usage->accept_kind)
			ret->kind = optarg;
		else
			return misused(argv[0], "unknown option", argv[optind - 1], ret_exit);
	}
	operands = (unsigned)(argc - optind);
	if (operands < usage->operands_min)
		return misused(argv[0], "an argument is missing", NULL, ret_exit);
	if (operands > usage->operands_max)
		return misused(argv[0], "one argument too many:", argv[optind + (int)usage->operands_max], ret_exit);
	ret->operand = operands > 0 ? argv[optind] : NULL;
	return 0;
}
