/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "proto/name.h"
#include "varlink.h"

#define BUF_FIRST 512            /* most calls and answers fit */

void varlink_buf_done(struct varlink_buf *b)
{
	free(b->data);
	*b = (struct varlink_buf) { .max = b->max };
}

/* Room for n more bytes behind end: first by moving what is there to the front, then by growing. */
static int buf_reserve(struct varlink_buf *b, size_t n)
{
	size_t length = varlink_buf_length(b), size = b->size ? b->size : BUF_FIRST;
	char *data;

	if (n > b->max || length > b->max - n)
		return -ENOBUFS;
	if (n <= b->size - b->end)
		return 0;
	if (b->start > 0) {
		memmove(b->data, b->data + b->start, length);
		b->start = 0;
		b->end = length;
	}
	while (size < length + n)
		size *= 2;
	if (size == b->size)
		return 0;
	data = realloc(b->data, size);
	if (!data)
		return -ENOMEM;
	b->data = data;
	b->size = size;
	return 0;
}

int varlink_buf_add(struct varlink_buf *b, const void *data, size_t n)
{
	int r;

	if (n == 0)
		return 0;
	r = buf_reserve(b, n);
	if (r < 0)
		return r;
	memcpy(b->data + b->end, data, n);
	b->end += n;
	return 0;
}

void varlink_buf_drop(struct varlink_buf *b, size_t n)
{
	assert(n <= varlink_buf_length(b));
	b->start += n;
	b->scanned = n < b->scanned ? b->scanned - n : 0;
	if (b->start < b->end)
		return;
	if (b->size > BUF_FIRST)
		varlink_buf_done(b);
	b->start = b->end = b->scanned = 0;
}

bool varlink_buf_next(struct varlink_buf *b, const char **ret, size_t *ret_length)
{
	size_t length = varlink_buf_length(b);
	const char *first, *zero;

	if (b->scanned >= length)
		return false;
	first = b->data + b->start;
	zero = memchr(first + b->scanned, 0, length - b->scanned);
	if (!zero) {
		b->scanned = length;
		return false;
	}
	*ret = first;
	*ret_length = (size_t)(zero - first);
	return true;
}

size_t varlink_utf8_length(const char *p, size_t n)
{
	return n ? utf8_sequence((const uint8_t *)p, n) : 0;
}

static bool text_valid(const char *p, size_t n)
{
	size_t step;

	for (; n > 0; p += step, n -= step) {
		step = varlink_utf8_length(p, n);
		if (step == 0)
			return false;
	}
	return true;
}

/*
 * The library allocates up to 700 bytes for the two bytes "{}". Counted outside of strings, braces,
 * brackets and commas bound how many values there can be. Inside of strings, it lets control
 * characters pass (RFC 8259, 7, does not).
 */
static bool text_modest(const char *p, size_t n)
{
	bool string = false;
	unsigned values = 0;

	for (size_t i = 0; i < n; i++) {
		if (string && (unsigned char)p[i] < 0x20)
			return false;
		if (string && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			string = !string;
		else if (!string && (p[i] == '{' || p[i] == '[' || p[i] == ','))
			values++;
	}
	return values <= VARLINK_VALUES_MAX;
}

static int object_parse(const char *message, size_t n, struct json_object **ret)
{
	struct json_tokener *tok;
	struct json_object *root;
	int r = 0;

	tok = json_tokener_new_ex(VARLINK_DEPTH_MAX);
	if (!tok)
		return -ENOMEM;
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
	root = json_tokener_parse_ex(tok, message, (int)n);
	if (json_tokener_get_error(tok) != json_tokener_success ||
	    json_tokener_get_parse_end(tok) != n || !json_object_is_type(root, json_type_object)) {
		json_object_put(root);
		r = -EBADMSG;
	} else {
		*ret = root;
	}
	json_tokener_free(tok);
	return r;
}

/* A string without a zero in it: "\u0000" is legal JSON and no part of any name here. */
static const char *string_get(struct json_object *o)
{
	const char *s;

	if (!json_object_is_type(o, json_type_string))
		return NULL;
	s = json_object_get_string(o);
	return strlen(s) == (size_t)json_object_get_string_len(o) ? s : NULL;
}

static int flag_get(struct json_object *root, const char *key, bool *ret)
{
	struct json_object *o = NULL;

	*ret = false;
	if (!json_object_object_get_ex(root, key, &o) || !o)
		return 0;
	if (!json_object_is_type(o, json_type_boolean))
		return -EBADMSG;
	*ret = json_object_get_boolean(o);
	return 0;
}

static int call_read(struct varlink_call *call)
{
	struct json_object *method = NULL;

	json_object_object_get_ex(call->root, "method", &method);
	call->method = string_get(method);
	if (!call->method)
		return -EBADMSG;
	json_object_object_get_ex(call->root, "parameters", &call->parameters);
	if (call->parameters && !json_object_is_type(call->parameters, json_type_object))
		return -EBADMSG;
	if (flag_get(call->root, "more", &call->more) < 0 ||
	    flag_get(call->root, "oneway", &call->oneway) < 0 ||
	    flag_get(call->root, "upgrade", &call->upgrade) < 0)
		return -EBADMSG;
	return call->oneway && call->more ? -EBADMSG : 0;
}

int varlink_call_parse(const char *message, size_t n, struct varlink_call *ret)
{
	struct varlink_call call = { 0 };
	int r;

	if (n == 0 || n >= VARLINK_REQUEST_MAX || !text_valid(message, n) ||
	    !text_modest(message, n))
		return -EBADMSG;
	r = object_parse(message, n, &call.root);
	if (r < 0)
		return r;
	r = call_read(&call);
	if (r < 0) {
		varlink_call_done(&call);
		return r;
	}
	*ret = call;
	return 0;
}

void varlink_call_done(struct varlink_call *call)
{
	json_object_put(call->root);
	*call = (struct varlink_call) { 0 };
}

static int message_put(struct varlink_buf *out, struct json_object *message)
{
	const char *text;
	size_t n;

	text = json_object_to_json_string_length(
		message, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
	if (!text)
		return -ENOMEM;
	return varlink_buf_add(out, text, n + 1);
}

/* Takes value over. The library leaves it to the caller when it fails. */
static int field_add(struct json_object *o, const char *key, struct json_object *value)
{
	if (value && json_object_object_add(o, key, value) == 0)
		return 0;
	json_object_put(value);
	return -ENOMEM;
}

int varlink_put_reply(struct varlink_buf *out, struct json_object *parameters, bool continues)
{
	struct json_object *message = json_object_new_object();
	int r;

	if (!parameters)
		parameters = json_object_new_object();
	if (!message) {
		json_object_put(parameters);
		return -ENOMEM;
	}
	r = field_add(message, "parameters", parameters);
	if (r == 0 && continues)
		r = field_add(message, "continues", json_object_new_boolean(true));
	if (r == 0)
		r = message_put(out, message);
	json_object_put(message);
	return r;
}

int varlink_put_error(struct varlink_buf *out, const char *error, struct json_object *parameters)
{
	struct json_object *message = json_object_new_object();
	int r;

	if (!parameters)
		parameters = json_object_new_object();
	if (!message) {
		json_object_put(parameters);
		return -ENOMEM;
	}
	r = field_add(message, "error", json_object_new_string(error));
	if (r == 0)
		r = field_add(message, "parameters", parameters);
	else
		json_object_put(parameters);
	if (r == 0)
		r = message_put(out, message);
	json_object_put(message);
	return r;
}
