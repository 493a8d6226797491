/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The Varlink wire format (https://varlink.org): JSON objects, each ended by a zero byte.
 *
 * What must hold: a message is looked at as bytes before the JSON library sees it, so that size,
 * depth, number of values and encoding are within the limits below whatever a client sends; a
 * buffer never grows beyond its maximum. Nothing here knows of sockets, of dlock or of the time.
 */
#ifndef DLOCK_QUERY_VARLINK_H
#define DLOCK_QUERY_VARLINK_H

#include <stdbool.h>
#include <stddef.h>

struct json_object;

#define VARLINK_REQUEST_MAX (128 * 1024) /* bytes of one call, its zero byte included: a value of 64 KiB in base64 */
#define VARLINK_DEPTH_MAX 8              /* objects and arrays within each other, the call included */
#define VARLINK_VALUES_MAX 128           /* of one call: braces, brackets and commas; each costs up to 1 KiB */

/* Bytes that wait for their turn. All zero but max is an empty one. */
struct varlink_buf {
	char *data;
	size_t start, end;       /* what is in use */
	size_t size;             /* allocated */
	size_t scanned;          /* from start on: known to hold no zero byte */
	size_t max;
};

static inline size_t varlink_buf_length(const struct varlink_buf *b)
{
	return b->end - b->start;
}

void varlink_buf_done(struct varlink_buf *b);

/* -ENOBUFS: beyond max; -ENOMEM. Then nothing has been added. */
int varlink_buf_add(struct varlink_buf *b, const void *data, size_t n);

/* The first n bytes are no longer wanted. Gives memory back when that empties the buffer. */
void varlink_buf_drop(struct varlink_buf *b, size_t n);

/*
 * The next whole message without its zero byte: true, and the caller drops length + 1 bytes when
 * done. The pointer is good until the buffer is touched.
 */
bool varlink_buf_next(struct varlink_buf *b, const char **ret, size_t *ret_length);

struct varlink_call {
	struct json_object *root;        /* owns everything below */
	struct json_object *parameters;  /* NULL: none were given */
	const char *method;
	bool more, oneway, upgrade;
};

/* -EBADMSG: not a Varlink call, or beyond a limit; -ENOMEM. */
int varlink_call_parse(const char *message, size_t n, struct varlink_call *ret);
void varlink_call_done(struct varlink_call *call);

/* Both take parameters over, also when they fail (-ENOBUFS, -ENOMEM); NULL means none. */
int varlink_put_reply(struct varlink_buf *out, struct json_object *parameters, bool continues);
int varlink_put_error(struct varlink_buf *out, const char *error, struct json_object *parameters);

/* Length of the UTF-8 character at p, 1 to 4; 0: the bytes are none, or are cut off at n. */
size_t varlink_utf8_length(const char *p, size_t n);

#endif
