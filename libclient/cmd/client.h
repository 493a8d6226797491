/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The caller's side of the query socket: Varlink, one call at a time.
 *
 * What comes from the daemon is checked too: a message is at most CLIENT_MESSAGE_MAX long, and is
 * a JSON object. Functions that return an exit code have said on stderr what is wrong and what to
 * do about it; those that return a negative errno have said nothing.
 */
#ifndef DLOCK_CMD_CLIENT_H
#define DLOCK_CMD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

struct json_object;

#define CLIENT_MESSAGE_MAX (4 * 1024 * 1024)
#define CLIENT_TIMEOUT_S 10      /* for an answer; watching has none */
#define CLIENT_PATH_MAX 108      /* of a socket, with its zero byte */

#define EXIT_CONFLICT 1          /* not as the caller wants it: nothing was changed */

struct client {
	int fd;
	char *buf;
	size_t start, end, size;
};

/* $DLOCK_RUN_DIR, or /run/dlock. */
const char *client_run_dir(void);

/* The path of a socket in it. -ENAMETOOLONG. */
int client_path(const char *name, char ret[CLIENT_PATH_MAX]);

/* Connects to a socket there, of type SOCK_STREAM or SOCK_SEQPACKET: a descriptor, or negative errno. */
int client_dial(const char *name, int type);

/* Negative errno. client_close() is for whatever was opened, and for a struct of zeroes with fd -1. */
int client_connect(struct client *c);
void client_close(struct client *c);

/* Takes parameters over (NULL: none). */
int client_send(struct client *c, const char *method, struct json_object *parameters, bool more);

/* The next message. 0: the daemon closed the connection; 1: got one; -EAGAIN: timed out; -EBADMSG. */
int client_receive(struct client *c, struct json_object **ret);

/* Exit codes from here on. */
int client_open(struct client *c);
int client_call(struct client *c, const char *method, struct json_object *parameters, bool more);

/* The parameters of the next answer; an error in it ends the command with a fitting code. */
int client_answer(struct client *c, struct json_object **ret, bool *ret_continues);

/* Opens, calls once, and closes. Takes parameters over; *ret is the answer's, untouched unless 0 is returned. */
int client_ask(const char *method, struct json_object *parameters, struct json_object **ret);

#define CLIENT_ERROR_MAX 64      /* the name of an error, with its zero byte */

/* Likewise, but where one comes that is expected *ret is NULL, nothing is said, and `error` says which; "" where none came. */
int client_ask_but(const char *method, struct json_object *parameters, bool (*expected)(const char *error), char error[CLIENT_ERROR_MAX],
		   struct json_object **ret);

/* Fields of JSON objects: "" or 0 where there is none. */
struct json_object *field(struct json_object *o, const char *key);
const char *field_text(struct json_object *o, const char *key);
long long field_number(struct json_object *o, const char *key);
bool field_flag(struct json_object *o, const char *key);

#endif
