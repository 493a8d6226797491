/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* dlock get, put: small values in the store. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client.h"
#include "cmd.h"
#include "print.h"
#include "proto/base64.h"
#include "proto/name.h"

#define VALUE_MAX (64 * 1024)

static const char help_get[] =
"Usage: dlock get [--json] KEY\n\n"
"Writes the value of KEY to standard output, as it is. KEY is SPACE/NAME, or NAME in the space default: it belongs to the\n"
"space, but has nothing to do with a lock of that name.\n\n"
"  -j, --json           as JSON: value (base64), text where it is UTF-8, and version\n"
"  -h, --help\n\n"
"Exit code 66: there is no such value.\n";

static const char help_put[] =
"Usage: dlock put [--if-version N] [--json] KEY [VALUE]\n\n"
"Sets the value of KEY, to VALUE or what comes on standard input, of 64 KiB at most. All nodes of the cluster see it at once; it\n"
"stays until it is removed.\n\n"
"  -i, --if-version N   only if the value has this version; 0: only if there is none. Else exit code 1\n"
"  -j, --json           the answer as one JSON object\n"
"  -h, --help\n";

struct request {
	const char *method, *help;
	bool conditional, json;
	long long version;
	const char *key, *value;         /* value NULL: none given */
	unsigned operands_max;
};

/* 0, or an exit code. */
static int set(int c, char **argv, bool writes, struct request *ret)
{
	if (c == 'j')
		ret->json = true;
	else if (c != 'i' || !writes)
		return misused(argv[0], "unknown option, or its argument is missing:", argv[optind - 1]);
	else if (!version_parse(optarg, &ret->version))
		return misused(argv[0], "no version:", optarg);
	else
		ret->conditional = true;
	return 0;
}

/* 0: go on; otherwise it is over with *ret_exit. */
static int parse(int argc, char **argv, bool writes, struct request *ret, int *ret_exit)
{
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' }, { "if-version", required_argument, NULL, 'i' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	int c, operands, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "+:ji:h", known, NULL)) != -1) {
		if (c == 'h') {
			*ret_exit = print_only(ret->help);
			return -1;
		}
		r = set(c, argv, writes, ret);
	}
	operands = argc - optind;
	if (r == 0 && (operands < 1 || operands > (int)ret->operands_max))
		r = misused(argv[0], operands < 1 ? "which key?" : "one argument too many", NULL);
	*ret_exit = r;
	if (r != 0)
		return -1;
	ret->key = argv[optind];
	ret->value = operands > 1 ? argv[optind + 1] : NULL;
	return 0;
}

static int ask(const struct request *rq, const char *value, struct json_object **ret)
{
	struct json_object *p = json_object_new_object();

	json_object_object_add(p, "key", json_object_new_string(rq->key));
	if (rq->conditional)
		json_object_object_add(p, "version", json_object_new_int64(rq->version));
	if (value)
		json_object_object_add(p, "value", json_object_new_string(value));
	return client_ask(rq->method, p, ret);
}

/* --- get --- */

/* Text is only what can be shown as such. */
static bool is_text(const char *bytes, size_t n)
{
	const uint8_t *s = (const uint8_t *)bytes;

	for (size_t i = 0, len; i < n; i += len) {
		len = utf8_sequence(s + i, n - i);
		if (!len || !s[i])
			return false;
	}
	return true;
}

static int show(struct json_object *answer, bool json)
{
	const char *text = field_text(answer, "value");
	size_t len = strlen(text);
	char *bytes = malloc(len + 1);
	long n = bytes ? base64_decode(text, len, bytes) : -1;

	if (n < 0) {
		fprintf(stderr, "dlock get: what the daemon has sent is no value; is it of another version? See 'dlock doctor'\n");
		free(bytes);
		return EX_PROTOCOL;
	}
	if (json) {
		if (is_text(bytes, (size_t)n))
			json_object_object_add(answer, "text", json_object_new_string_len(bytes, (int)n));
		print_json(answer);
	} else {
		fwrite(bytes, 1, (size_t)n, stdout);
		if (n && bytes[n - 1] != '\n' && isatty(STDOUT_FILENO))
			putchar('\n');
	}
	free(bytes);
	return print_done();
}

int cmd_get(int argc, char **argv)
{
	struct request rq = { .method = "io.dlock.Get", .help = help_get, .operands_max = 1 };
	struct json_object *answer;
	int r;

	if (parse(argc, argv, false, &rq, &r) < 0)
		return r;
	r = ask(&rq, NULL, &answer);
	if (r != 0)
		return r;
	r = show(answer, rq.json);
	json_object_put(answer);
	return r;
}

/* --- put --- */

static int done(const struct request *rq, struct json_object *answer)
{
	if (rq->json)
		print_json(answer);
	json_object_put(answer);
	return print_done();
}

static int no_memory(void)
{
	fputs("dlock put: there is no memory for the value\n", stderr);
	return EX_OSERR;
}

/* One byte more than there may be is read, to notice. */
static int input(char **ret, size_t *ret_n)
{
	char *buf = malloc(VALUE_MAX + 1);

	if (!buf)
		return no_memory();
	*ret_n = fread(buf, 1, VALUE_MAX + 1, stdin);
	if (!ferror(stdin)) {
		*ret = buf;
		return 0;
	}
	fprintf(stderr, "dlock put: standard input: %s\n", strerror(errno));
	free(buf);
	return EX_IOERR;
}

static int put_bytes(const struct request *rq, const char *bytes, size_t n)
{
	struct json_object *answer;
	char *text;
	int r;

	if (n > VALUE_MAX) {
		fprintf(stderr, "dlock put: a value has at most %d bytes\n", VALUE_MAX);
		return EX_DATAERR;
	}
	text = malloc(BASE64_LEN(n) + 1);
	if (!text)
		return no_memory();
	base64_encode(bytes, n, text);
	r = ask(rq, text, &answer);
	free(text);
	return r ? r : done(rq, answer);
}

int cmd_put(int argc, char **argv)
{
	struct request rq = { .method = "io.dlock.Put", .help = help_put, .operands_max = 2 };
	char *bytes;
	size_t n;
	int r;

	if (parse(argc, argv, true, &rq, &r) < 0)
		return r;
	if (rq.value)
		return put_bytes(&rq, rq.value, strlen(rq.value));
	r = input(&bytes, &n);
	if (r != 0)
		return r;
	r = put_bytes(&rq, bytes, n);
	free(bytes);
	return r;
}
