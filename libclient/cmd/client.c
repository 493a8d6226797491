/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <json-c/json.h>

#include "print.h"

#define QUERY_SOCKET "io.dlock"

const char *client_run_dir(void)
{
	const char *dir = getenv("DLOCK_RUN_DIR");

	return dir && dir[0] ? dir : "/run/dlock";
}

int client_path(const char *name, char ret[CLIENT_PATH_MAX])
{
	int n = snprintf(ret, CLIENT_PATH_MAX, "%s/%s", client_run_dir(), name);

	return n < 0 || n >= CLIENT_PATH_MAX ? -ENAMETOOLONG : 0;
}

int client_dial(const char *name, int type)
{
	const struct timeval limit = { .tv_sec = CLIENT_TIMEOUT_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, r;

	r = client_path(name, address.sun_path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* The send timeout bounds connect() too, where a daemon that is stopped has a full backlog. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int client_connect(struct client *c)
{
	*c = (struct client) { .fd = client_dial(QUERY_SOCKET, SOCK_STREAM) };
	return c->fd < 0 ? c->fd : 0;
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->buf);
	*c = (struct client) { .fd = -1 };
}

static int send_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		data += sent;
		n -= (size_t)sent;
	}
	return 0;
}

int client_send(struct client *c, const char *method, struct json_object *parameters, bool more)
{
	struct json_object *call = json_object_new_object();
	const char *text;
	size_t n;
	int r;

	json_object_object_add(call, "method", json_object_new_string(method));
	if (parameters)
		json_object_object_add(call, "parameters", parameters);
	if (more)
		json_object_object_add(call, "more", json_object_new_boolean(true));
	text = json_object_to_json_string_length(call, JSON_C_TO_STRING_PLAIN, &n);
	r = text ? send_all(c->fd, text, n + 1) : -ENOMEM;
	json_object_put(call);
	return r;
}

static int buf_reserve(struct client *c)
{
	size_t size = c->size ? c->size : 8192;
	char *buf;

	if (c->start > 0) {
		memmove(c->buf, c->buf + c->start, c->end - c->start);
		c->end -= c->start;
		c->start = 0;
	}
	if (c->end < c->size)
		return 0;
	if (c->size >= CLIENT_MESSAGE_MAX)
		return -EBADMSG;
	size = c->size ? c->size * 2 : 8192;
	buf = realloc(c->buf, size);
	if (!buf)
		return -ENOMEM;
	c->buf = buf;
	c->size = size;
	return 0;
}

/* 0: the end; 1: more is there. */
static int buf_fill(struct client *c)
{
	ssize_t n;
	int r = buf_reserve(c);

	if (r < 0)
		return r;
	do {
		n = recv(c->fd, c->buf + c->end, c->size - c->end, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	c->end += (size_t)n;
	return n > 0;
}

int client_receive(struct client *c, struct json_object **ret)
{
	struct json_object *o;
	size_t scanned = 0;
	char *zero;
	int r;

	for (;;) {
		char *first = c->buf + c->start;
		size_t n = c->end - c->start;

		zero = n > scanned ? memchr(first + scanned, 0, n - scanned) : NULL;
		if (zero)
			break;
		scanned = n;
		r = buf_fill(c);
		if (r <= 0)
			return r;
	}
	o = json_tokener_parse(c->buf + c->start);
	c->start = (size_t)(zero - c->buf) + 1;
	if (!json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return -EBADMSG;
	}
	*ret = o;
	return 1;
}

/* ---- in words ---- */

static int say_no_daemon(int error)
{
	const char *dir = client_run_dir();

	switch (error) {
	case -ENOENT:
	case -ENOTDIR:
		fprintf(stderr, "dlock: no daemon here: there is no %s/" QUERY_SOCKET ".\n"
			"Start one with 'systemctl start dlockd', or set DLOCK_RUN_DIR to the run directory of one "
			"that was\nstarted otherwise (DIR/run after 'dlockd --dir DIR'). 'dlock doctor' tells more.\n", dir);
		return EX_UNAVAILABLE;
	case -ECONNREFUSED:
		fprintf(stderr, "dlock: nobody listens at %s/" QUERY_SOCKET ": the daemon has ended.\n"
			"Start it again ('systemctl start dlockd'); 'journalctl -u dlockd' may say why it ended.\n", dir);
		return EX_UNAVAILABLE;
	case -EACCES:
	case -EPERM:
		fprintf(stderr, "dlock: you may not connect to %s/" QUERY_SOCKET "; look at the permissions of both, "
			"or ask as root.\n", dir);
		return EX_NOPERM;
	case -EAGAIN:
		fprintf(stderr, "dlock: the daemon does not take connections at %s/" QUERY_SOCKET "; is it stopped, or "
			"has it too many?\n", dir);
		return EX_UNAVAILABLE;
	case -ENAMETOOLONG:
		fprintf(stderr, "dlock: DLOCK_RUN_DIR is too long: the path of a socket has at most %d bytes.\n",
			CLIENT_PATH_MAX - 1);
		return EX_CONFIG;
	default:
		fprintf(stderr, "dlock: cannot connect to %s/" QUERY_SOCKET ": %s\n", dir, strerror(-error));
		return EX_OSERR;
	}
}

static int say_broken(int error)
{
	if (error == 0 || error == -EPIPE) {
		fprintf(stderr, "dlock: the daemon closed the connection; has it been stopped?\n");
		return EX_UNAVAILABLE;
	}
	if (error == -EAGAIN) {
		fprintf(stderr, "dlock: the daemon has not answered for %d seconds; is it stopped?\n", CLIENT_TIMEOUT_S);
		return EX_UNAVAILABLE;
	}
	if (error == -EBADMSG) {
		fprintf(stderr, "dlock: what came from %s/" QUERY_SOCKET " is no Varlink; is it dlock's?\n",
			client_run_dir());
		return EX_PROTOCOL;
	}
	fprintf(stderr, "dlock: the connection to the daemon failed: %s\n", strerror(-error));
	return EX_IOERR;
}

/* What comes from the other end is shown clean. */
static void say(const char *before, const char *text, const char *after)
{
	char *shown = clean(text);

	fprintf(stderr, "dlock: %s%s%s\n", before, shown, after);
	free(shown);
}

static const struct refusal {
	const char *error, *before, *field, *after;      /* field NULL: none is told */
	int code;
} refusals[] = {
	{ "io.dlock.NoSuchName", "nobody on this node has a name '", "name", "' open", EX_NOINPUT },
	{ "io.dlock.NoSuchSpace", "there is no space '", "space", "' on this node", EX_NOINPUT },
	{ "io.dlock.PermissionDenied", "you may not see into the space '", "space", "': only who may open it, and root", EX_NOPERM },
	{ "io.dlock.NoSuchKey", "there is no value '", "key", "'", EX_NOINPUT },
	{ "io.dlock.StoreFull", "the store has no room for more; remove some values (dlock rm), or enlarge etcd's quota", NULL, "", EX_CANTCREAT },
	{ "io.dlock.NotInCluster", "this node is alone; there is no cluster to leave, and nobody to take over", NULL, "", EX_UNAVAILABLE },
	{ "io.dlock.TooManyConnections", "the daemon has too many connections; end some (dlock watch?) or try later", NULL, "", EX_TEMPFAIL },
	{ "org.varlink.service.PermissionDenied", "that is for root and the user that the daemon runs as", NULL, "", EX_NOPERM },
	{ "org.varlink.service.InvalidParameter", "that ", "parameter", " cannot be: see NAMES in dlock(1)", EX_DATAERR },
};

static int say_conflict(struct json_object *parameters)
{
	char version[80];

	snprintf(version, sizeof(version), "' has version %lld; nothing was changed", field_number(parameters, "version"));
	if (field_number(parameters, "version"))
		say("the value '", field_text(parameters, "key"), version);
	else
		say("there is no value '", field_text(parameters, "key"), "'; nothing was changed");
	return EXIT_CONFLICT;
}

static int say_error(const char *error, struct json_object *parameters)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *r = &refusals[i];

		if (strcmp(error, r->error) != 0)
			continue;
		say(r->before, r->field ? field_text(parameters, r->field) : "", r->after);
		return r->code;
	}
	if (strcmp(error, "io.dlock.VersionConflict") == 0)
		return say_conflict(parameters);
	if (strcmp(error, "io.dlock.StoreUnavailable") == 0) {
		say("", field_text(parameters, "reason"), field_flag(parameters, "inDoubt") ?
			"\nIt may have been written all the same, or may be yet: look with dlock get" : "");
		return EX_TEMPFAIL;
	}
	say("the daemon refuses: ", error, ". Is it of another version? See 'dlock doctor'.");
	return EX_PROTOCOL;
}

int client_open(struct client *c)
{
	int r = client_connect(c);

	return r < 0 ? say_no_daemon(r) : 0;
}

int client_call(struct client *c, const char *method, struct json_object *parameters, bool more)
{
	int r = client_send(c, method, parameters, more);

	/* A daemon that turned the caller away has said why before it closed. */
	return r < 0 && r != -EPIPE ? say_broken(r) : 0;
}

/* Of the errors that `expected` names nothing is said: *ret is NULL, and which it was is in `error`. */
static int answer_but(struct client *c, bool (*expected)(const char *error), char error[CLIENT_ERROR_MAX], struct json_object **ret,
		      bool *ret_continues)
{
	struct json_object *message, *parameters;
	int r = client_receive(c, &message);

	if (r <= 0)
		return say_broken(r);
	parameters = field(message, "parameters");
	if (expected)
		snprintf(error, CLIENT_ERROR_MAX, "%s", field_text(message, "error"));
	if (expected && error[0] && expected(error)) {
		json_object_put(message);
		*ret = NULL;
		return 0;
	}
	if (field(message, "error")) {
		r = say_error(field_text(message, "error"), parameters);
		json_object_put(message);
		return r;
	}
	if (ret_continues)
		*ret_continues = field_flag(message, "continues");
	*ret = parameters ? json_object_get(parameters) : json_object_new_object();
	json_object_put(message);
	return 0;
}

int client_answer(struct client *c, struct json_object **ret, bool *ret_continues)
{
	return answer_but(c, NULL, NULL, ret, ret_continues);
}

int client_ask_but(const char *method, struct json_object *parameters, bool (*expected)(const char *error), char error[CLIENT_ERROR_MAX],
		   struct json_object **ret)
{
	struct client c;
	int r = client_open(&c);

	if (r == 0)
		r = client_call(&c, method, parameters, false);
	else
		json_object_put(parameters);
	if (r == 0)
		r = answer_but(&c, expected, error, ret, NULL);
	client_close(&c);
	return r;
}

int client_ask(const char *method, struct json_object *parameters, struct json_object **ret)
{
	return client_ask_but(method, parameters, NULL, NULL, ret);
}

struct json_object *field(struct json_object *o, const char *key)
{
	struct json_object *value = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &value);
	return value;
}

const char *field_text(struct json_object *o, const char *key)
{
	struct json_object *value = field(o, key);

	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

long long field_number(struct json_object *o, const char *key)
{
	struct json_object *value = field(o, key);

	return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

bool field_flag(struct json_object *o, const char *key)
{
	struct json_object *value = field(o, key);

	return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}
