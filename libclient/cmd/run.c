/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* dlock run: its options, as those of flock(1), and the taking of what is held. */
#include <errno.h>
#include <json-c/json.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "client.h"
#include "cmd.h"
#include "print.h"
#include "proto/name.h"
#include "run.h"

#define SECONDS_MAX   1e9
#define GRACE_S_MAX   1e6
#define GRACE_MS      1000

static const char help[] =
"Usage: dlock run [OPTIONS] NAME [--] COMMAND [ARGUMENT...]\n"
"       dlock run [OPTIONS] NAME -c 'SHELL COMMAND'\n\n"
"Runs a command while holding the lock NAME (SPACE/NAME, or NAME in the space default), until the\n"
"command and all its descendants have ended. If this process is killed, so are they.\n\n"
"  -n, --nonblock               fail at once if the lock is held by another\n"
"  -w, --wait SECONDS           fail after so long (fractions too)\n"
"  -E, --conflict-exit-code N   the exit code of that failure (default 1)\n"
"  -s, --shared                 beside others that hold it shared\n"
"  -x, --exclusive              alone, as if nothing is said; of -s and -x the last one counts\n"
"  -o, --close                  the command's descendants do not hold the lock, and may outlive the run\n"
"  -c, --command 'TEXT'         run TEXT with $SHELL, or /bin/sh\n"
"      --grace SECONDS          between TERM and KILL, when the hold is lost (default 1) or TERM ends the run\n"
"                               (only if given)\n"
"      --sem N                  hold one of the N permits of the semaphore NAME, instead of a lock\n"
"      --elect                  lead in the election NAME, instead of a lock; the others are told this host's name\n"
"  -h, --help\n\n"
"The command finds DLOCK_NAME, DLOCK_SPACE and DLOCK_TOKEN in its environment. The exit code is its own;\n"
"128+N: ended by signal N; 126, 127: it cannot be run, there is none; 75: the hold was lost.\n";

struct run_options {
	bool try;
	bool limited;
	bool kind_said;
	double wait_s;
	int conflict_code;
	char *shell_command;
};

static int wrong(const char *why, const char *what)
{
	return misused("run", why, what);
}

/* --- Options --- */

enum { OPT_GRACE = 256, OPT_SEM, OPT_ELECT };

static const struct option known[] = {
	{ "nonblock", no_argument, NULL, 'n' },
	{ "nonblocking", no_argument, NULL, 'n' },
	{ "nb", no_argument, NULL, 'n' },
	{ "wait", required_argument, NULL, 'w' },
	{ "timeout", required_argument, NULL, 'w' },
	{ "conflict-exit-code", required_argument, NULL, 'E' },
	{ "close", no_argument, NULL, 'o' },
	{ "command", required_argument, NULL, 'c' },
	{ "exclusive", no_argument, NULL, 'x' },
	{ "shared", no_argument, NULL, 's' },
	{ "grace", required_argument, NULL, OPT_GRACE },
	{ "sem", required_argument, NULL, OPT_SEM },
	{ "elect", no_argument, NULL, OPT_ELECT },
	{ "help", no_argument, NULL, 'h' },
	{ 0 }
};

static bool seconds_parse(const char *text, double max, double *ret)
{
	char *end;

	errno = 0;
	*ret = strtod(text, &end);
	return end != text && !*end && isfinite(*ret) && *ret >= 0 && *ret <= max;
}

static bool code_parse(const char *text, int *ret)
{
	char *end;
	long code = strtol(text, &end, 10);

	*ret = (int)code;
	return end != text && !*end && code >= 0 && code <= 255;
}

static bool permits_parse(const char *text, unsigned *ret)
{
	char *end;
	long n = strtol(text, &end, 10);

	*ret = (unsigned)n;
	return end != text && !*end && n >= 1 && n <= INT32_MAX;
}

/* Of -x and -s the last one counts, as in flock(1). A permit or a term is neither. Negative: go on. */
static int kind_take(enum run_kind kind, struct run *run, struct run_options *o)
{
	bool modes = (kind == RUN_LOCK || kind == RUN_SHARED) && (run->kind == RUN_LOCK || run->kind == RUN_SHARED);

	if (o->kind_said && !modes && kind != run->kind)
		return wrong("-s or -x, --sem and --elect exclude each other", NULL);
	o->kind_said = true;
	run->kind = kind;
	return -1;
}

/* Negative: go on. Otherwise an exit code. */
static int option_take(int c, struct run *run, struct run_options *o)
{
	double grace_s;

	switch (c) {
	case 'n':
		o->try = true;
		return -1;
	case 'w':
		o->limited = true;
		return seconds_parse(optarg, SECONDS_MAX, &o->wait_s) ? -1 : wrong("not a number of seconds:", optarg);
	case 'E':
		return code_parse(optarg, &o->conflict_code) ? -1 : wrong("not an exit code (0 to 255):", optarg);
	case 'o':
		run->closes = true;
		return -1;
	case 'c':
		o->shell_command = optarg;
		return -1;
	case 'e': case 'x':
		return kind_take(RUN_LOCK, run, o);
	case OPT_GRACE:
		if (!seconds_parse(optarg, GRACE_S_MAX, &grace_s))
			return wrong("not a number of seconds:", optarg);
		run->ends = true;
		run->grace_ms = (unsigned)(grace_s * 1000);
		return -1;
	case 's':
		return kind_take(RUN_SHARED, run, o);
	case OPT_SEM:
		if (!permits_parse(optarg, &run->permits))
			return wrong("not a number of permits (1 to 2147483647):", optarg);
		return kind_take(RUN_SEM, run, o);
	case OPT_ELECT:
		return kind_take(RUN_ELECT, run, o);
	case 'h':
		return print_only(help);
	}
	return wrong("unknown option", NULL);
}

static void shell_set(struct run *run, char *text)
{
	static char *argv[4];
	char *shell = getenv("SHELL");

	argv[0] = shell && *shell ? shell : "/bin/sh";
	argv[1] = "-c";
	argv[2] = text;
	run->argv = argv;
}

/* NAME [--] COMMAND..., NAME -c TEXT, or NAME alone after -c. Negative: go on. */
static int operands_take(int n, char **at, struct run *run, const struct run_options *o)
{
	if (n < 1)
		return wrong("a name is missing", NULL);
	run->name = *at++;
	n--;
	if (n > 0 && !o->shell_command && (strcmp(*at, "-c") == 0 || strcmp(*at, "--command") == 0)) {
		if (n != 2)
			return wrong("-c takes exactly one argument", NULL);
		shell_set(run, at[1]);
		return -1;
	}
	if (n > 0 && strcmp(*at, "--") == 0) {
		at++;
		n--;
	}
	if (o->shell_command) {
		if (n > 0)
			return wrong("with -c there is no command behind the name:", *at);
		shell_set(run, o->shell_command);
		return -1;
	}
	if (n < 1)
		return wrong("a command is missing", NULL);
	run->argv = at;
	return -1;
}

static int parse(int argc, char **argv, struct run *run, struct run_options *o)
{
	int c, r = -1;

	opterr = 0;
	while (r < 0 && (c = getopt_long(argc, argv, "+:nw:E:oc:exsh", known, NULL)) != -1) {
		if (c == '?' || c == ':')
			return wrong(c == ':' ? "an argument is missing after" : "unknown option", argv[optind - 1]);
		r = option_take(c, run, o);
	}
	return r < 0 ? operands_take(argc - optind, argv + optind, run, o) : r;
}

/* --- The hold --- */

static int say(const struct run *run, const char *why, int code)
{
	fprintf(stderr, "dlock run: %s: %s\n", run->name, why);
	return code;
}

static bool name_right(const char *name)
{
	char space[ATTACH_SPACE_MAX + 1], rest[ATTACH_NAME_MAX + 1];

	return name_split(name, space, rest);
}

static int failed(const struct run *run, int error)
{
	switch (error) {
	case EINVAL:
		if (run->kind != RUN_SEM || !name_right(run->name))
			return say(run, "not a name (SPACE/NAME, or NAME)", EX_DATAERR);
		fprintf(stderr, "dlock run: %s: is open elsewhere with another number of permits than %u (dlock show --kind semaphore %s; "
			"dlock_sem_resize(3) changes it for all)\n", run->name, run->permits, run->name);
		return EX_DATAERR;
	case ENAMETOOLONG:
		return say(run, "too long: a space has up to 64 bytes, a name up to 255", EX_DATAERR);
	case ENOTCONN: case EPIPE:       /* gone while it answered */
		fprintf(stderr, "dlock run: there is no daemon at %s/dlockd.sock. Start it (systemctl start dlockd), "
			"or set DLOCK_RUN_DIR\n", client_run_dir());
		return EX_UNAVAILABLE;
	case EACCES:
		return say(run, "you may not use this space (its owner, group and mode: dlock status)", EX_NOPERM);
	case ENOENT:
		return say(run, "there is no such space, and none may be made (SpacesOnDemand= in dlockd.conf)",
			   EX_NOINPUT);
	case ENOTSUP:
		return say(run, "this process lives in a namespace (pid or time) that the daemon cannot see into",
			   EX_CONFIG);
	case EPROTO:
		return say(run, "the daemon speaks another version", EX_PROTOCOL);
	case ENOSPC:
		fprintf(stderr, "dlock run: %s: no room for one more name: %s is full, or the space (dlock doctor). What is open goes on\n",
			run->name, client_run_dir());
		return EX_OSERR;
	case EDQUOT:
		return say(run, "this user has his share of all that the daemon has room for", EX_OSERR);
	default:
		return say(run, strerror(error), EX_OSERR);
	}
}

/* Whoever waits for as long as it takes is told why it may take long. What cannot be found out is not said. */
static void say_if_away(const struct run *run)
{
	struct json_object *answer = NULL, *cluster;
	struct client c;

	if (client_connect(&c) < 0)
		return;
	if (client_send(&c, "io.dlock.GetStatus", NULL, false) == 0 && client_receive(&c, &answer) > 0) {
		cluster = field(field(field(answer, "parameters"), "node"), "cluster");
		if (cluster && !field_number(cluster, "leaseMs"))
			say(run, "this node is not in the cluster now; waiting until it is ('dlock doctor' says what to look at)", 0);
	}
	json_object_put(answer);
	client_close(&c);
}

int cmd_run(int argc, char **argv)
{
	struct run run = { .grace_ms = GRACE_MS, .cgroup = { .parent = -1, .dir = -1 } };
	struct run_options o = { .conflict_code = 1 };
	int r = parse(argc, argv, &run, &o);

	if (r >= 0)
		return r;
	r = hold_open(&run);
	if (r != 0)
		return failed(&run, r);
	if (!o.limited && !o.try)
		say_if_away(&run);
	r = hold_take(&run, o.limited || o.try, o.try ? 0 : o.wait_s);
	if (r == EBUSY || r == ETIMEDOUT)
		return o.conflict_code;
	if (r == ESTALE)
		return say(&run, "the hold was lost before the command could begin", EX_TEMPFAIL);
	return r != 0 ? failed(&run, r) : run_front(&run);
}
