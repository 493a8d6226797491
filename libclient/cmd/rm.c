/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock rm: what lies in the store for good, until somebody removes it: a value, a latch, a free semaphore. All other kinds
 * of names are there as long as they are used, and leave nothing behind; but the numbers of ids, which nobody may remove.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include <dlock.h>
#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"
#include "proto/kind.h"
#include "stored.h"

static const char help[] =
"Usage: dlock rm [--if-version N] [--json] KEY\n"
"       dlock rm --kind latch|free [--force] [--json] NAME\n\n"
"Removes the value of KEY; or the latch, or the free semaphore, of that name, which stay in the store when nobody uses them\n"
"any more. One that processes of this node have open is not removed, exit code 1, unless --force is given: a latch is then\n"
"gone for all (ENOENT), a free semaphore as after sem_unlink(3).\n\n"
"  -k, --kind KIND      latch or 'free semaphore', or how that begins\n"
"  -f, --force          also if it is open\n"
"  -i, --if-version N   only if the value has this version. Else exit code 1\n"
"  -j, --json           the answer as one JSON object\n"
"  -h, --help\n\n"
"Exit code 66: there is none.\n";

struct request {
	const char *kind, *name;         /* kind NULL: a value */
	bool conditional, json, force;
	long long version;
};

static int wrong(const char *why, const char *what)
{
	return misused("rm", why, what);
}

/* 0, or an exit code. */
static int set(int c, const char *option, struct request *ret)
{
	if (c == 'j')
		ret->json = true;
	else if (c == 'f')
		ret->force = true;
	else if (c == 'i' && version_parse(optarg, &ret->version))
		ret->conditional = true;
	else if (c == 'k')
		ret->kind = kind_find(optarg);
	else
		return c == 'i' ? wrong("no version:", optarg) : wrong("unknown option, or its argument is missing:", option);
	return c == 'k' && !ret->kind ? wrong("no kind, or several:", optarg) : 0;
}

static bool removable(const char *kind)
{
	return strcmp(kind, kind_text(KIND_LATCH)) == 0 || strcmp(kind, kind_text(KIND_POOL)) == 0;
}

static int check(int operands, const struct request *rq)
{
	if (operands != 1)
		return wrong(operands < 1 ? "which one?" : "one argument too many", NULL);
	if (rq->kind && rq->conditional)
		return wrong("--if-version is for values", NULL);
	if (!rq->kind && rq->force)
		return wrong("--force is for a latch or a free semaphore: --kind", NULL);
	if (rq->kind && strcmp(rq->kind, kind_text(KIND_ID)) == 0)
		return wrong("the numbers of ids are never removed: ids would be given out a second time", NULL);
	if (rq->kind && !removable(rq->kind))
		return wrong("it leaves nothing behind when nobody uses it:", rq->kind);
	return 0;
}

/* 0: go on; otherwise it is over with *ret_exit. */
static int parse(int argc, char **argv, struct request *ret, int *ret_exit)
{
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' }, { "if-version", required_argument, NULL, 'i' }, { "kind", required_argument, NULL, 'k' },
		{ "force", no_argument, NULL, 'f' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	int c, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "+:ji:k:fh", known, NULL)) != -1) {
		if (c == 'h') {
			*ret_exit = print_only(help);
			return -1;
		}
		r = set(c, argv[optind - 1], ret);
	}
	if (r == 0)
		r = check(argc - optind, ret);
	*ret_exit = r;
	ret->name = argv[optind];
	return r ? -1 : 0;
}

/* --- a value --- */

static int remove_value(const struct request *rq)
{
	struct json_object *p = json_object_new_object(), *answer;
	int r;

	json_object_object_add(p, "key", json_object_new_string(rq->name));
	if (rq->conditional)
		json_object_object_add(p, "version", json_object_new_int64(rq->version));
	r = client_ask("io.dlock.Remove", p, &answer);
	if (r != 0)
		return r;
	if (rq->json)
		print_json(answer);
	json_object_put(answer);
	return print_done();
}

/* --- a latch, a free semaphore --- */

/* How many processes of this node have it open; 0, too, if nobody tells. */
static long long opens(const struct request *rq)
{
	struct json_object *p = json_object_new_object(), *answer = NULL;
	struct client c = { .fd = -1 };
	long long n = 0;

	json_object_object_add(p, "name", json_object_new_string(rq->name));
	json_object_object_add(p, "kind", json_object_new_string(rq->kind));
	if (client_connect(&c) < 0)
		json_object_put(p);
	else if (client_send(&c, "io.dlock.ShowName", p, false) == 0 && client_receive(&c, &answer) == 1)
		n = field_number(field(field(answer, "parameters"), "name"), "opens");
	json_object_put(answer);
	client_close(&c);
	return n;
}

static int say(const struct request *rq, int error)
{
	switch (error) {
	case 0:
		if (rq->json)
			puts("{}");
		return print_done();
	case ENOENT:
		fprintf(stderr, "dlock rm: there is no %s '%s'\n", rq->kind, rq->name);
		return EX_NOINPUT;
	case EINVAL:
		fprintf(stderr, "dlock rm: '%s' is no name\n", rq->name);
		return EX_DATAERR;
	case EACCES:
	case EPERM:
		fprintf(stderr, "dlock rm: %s: the space belongs to somebody else\n", rq->name);
		return EX_NOPERM;
	case ENOTCONN:
		fprintf(stderr, "dlock rm: the daemon, or the store, cannot be reached; dlock status says more\n");
		return EX_UNAVAILABLE;
	default:
		fprintf(stderr, "dlock rm: %s: %s\n", rq->name, strerror(error));
		return EX_OSERR;
	}
}

/* The library's calls wait for as long as it does not. */
static int store_answers(const struct request *rq)
{
	struct json_object *there;
	int r = stored_find(rq->name, rq->kind, &there);

	json_object_put(there);
	return r;
}

static int remove_name(const struct request *rq)
{
	long long n = rq->force ? 0 : opens(rq);
	int r;

	if (n) {
		fprintf(stderr, "dlock rm: the %s '%s' is in use: open in %lld %s of this node (dlock show --kind '%s' %s); --force removes it all the same\n",
			rq->kind, rq->name, n, n == 1 ? "process" : "processes", rq->kind, rq->name);
		return EXIT_CONFLICT;
	}
	r = store_answers(rq);
	return r ? r : say(rq, strcmp(rq->kind, kind_text(KIND_LATCH)) == 0 ? dlock_latch_unlink(rq->name) : dlock_sem_unlink(rq->name));
}

int cmd_rm(int argc, char **argv)
{
	struct request rq = { 0 };
	int r;

	if (parse(argc, argv, &rq, &r) < 0)
		return r;
	return rq.kind ? remove_name(&rq) : remove_value(&rq);
}
