/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "etcd_wire.h"

#include <assert.h>
#include <errno.h>
#include <json.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX	12
#define VALUE_MAX	(12 * 1024 * 1024)	/* whatever fits into an answer */
#define KEY_MAX		1024	/* of what etcd calls a key, before anything is known of it */

/* --- Base64, as RFC 4648 section 4 --- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64_put(char *p, const void *data, size_t size)
{
	const uint8_t *d = data;

	for (size_t i = 0; i < size; i += 3) {
		uint32_t v = (uint32_t)d[i] << 16 | (i + 1 < size ? (uint32_t)d[i + 1] << 8 : 0) |
			     (i + 2 < size ? d[i + 2] : 0);

		*p++ = digits[v >> 18];
		*p++ = digits[v >> 12 & 63];
		*p++ = i + 1 < size ? digits[v >> 6 & 63] : '=';
		*p++ = i + 2 < size ? digits[v & 63] : '=';
	}
	return p;
}

static int digit_value(char c)
{
	return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 :
	       c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* *ret has a NUL behind it, and is for free(). */
static int base64_get(const char *text, size_t n, size_t max, char **ret, size_t *ret_size)
{
	size_t size = 0, pads = 0;
	char *data;

	if (n % 4 || n / 4 * 3 > max + 3)
		return -EBADMSG;
	while (pads < 2 && pads < n && text[n - 1 - pads] == '=')
		pads++;
	data = malloc(n / 4 * 3 + 1);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0; i < n; i += 4) {
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = i + k >= n - pads ? 0 : digit_value(text[i + k]);

			if (d < 0) {
				free(data);
				return -EBADMSG;
			}
			v = v << 6 | (uint32_t)d;
		}
		data[size++] = (char)(v >> 16);
		data[size++] = (char)(v >> 8);
		data[size++] = (char)v;
	}
	size -= pads;
	data[size] = 0;
	if (size > max) {
		free(data);
		return -EBADMSG;
	}
	*ret = data;
	*ret_size = size;
	return 0;
}

/* --- Requests --- */

/* Puts pieces behind what is in *b: "s" a text as it is, "k" a key, "b" bytes and size, "u" a number. */
static int body_add(struct etcd_body *b, const char *kinds, ...)
{
	char *data, *p, number[24];
	size_t room = b->size + 1;
	va_list args, again;

	va_start(args, kinds);
	va_copy(again, args);
	for (const char *k = kinds; *k; k++) {
		const char *s = *k == 'u' ? NULL : va_arg(args, const char *);

		if (*k == 'u')
			(void)va_arg(args, uint64_t);
		room += *k == 'u' ? sizeof number : (*k == 'b' ? va_arg(args, size_t) : strlen(s)) / 3 * 4 + 8;
		if (*k == 's')
			room += strlen(s);
	}
	va_end(args);
	data = realloc(b->data, room);
	p = data ? data + b->size : NULL;
	for (const char *k = kinds; data && *k; k++) {
		const char *s = *k == 'u' ? number : va_arg(again, const char *);

		if (*k == 'u')
			snprintf(number, sizeof number, "%llu", (unsigned long long)va_arg(again, uint64_t));
		if (*k == 'k')
			p = base64_put(p, s, strlen(s));
		else if (*k == 'b')
			p = base64_put(p, s, va_arg(again, size_t));
		else
			p = stpcpy(p, s);
	}
	va_end(again);
	if (!data)
		return -ENOMEM;
	*p = 0;
	b->data = data;
	b->size = (size_t)(p - data);
	return 0;
}

int etcd_wire_get(const char *key, struct etcd_body *ret)
{
	return body_add(ret, "sks", "{\"key\":\"", key, "\"}");
}

int etcd_wire_page(const char *from, const char *end, unsigned limit, uint64_t revision,
		   struct etcd_body *ret)
{
	return body_add(ret, "sksksusus", "{\"key\":\"", from, "\",\"range_end\":\"", end, "\",\"limit\":\"",
			(uint64_t)limit, "\",\"revision\":\"", revision, "\"}");
}

/* The range in case of failure tells the version that was met, and makes a cas that writes nothing linearizable too. */
int etcd_wire_cas(const char *key, uint64_t expected, const void *value, size_t size,
		  struct etcd_body *ret)
{
	/* etcd's numbers have a sign. No key has ever the highest version. */
	uint64_t version = expected > INT64_MAX ? INT64_MAX : expected;
	int r = body_add(ret, "sksus", "{\"compare\":[{\"key\":\"", key, "\",\"target\":\"MOD\",\"mod_revision\":\"",
			 version, "\"}],");

	if (r == 0)
		r = body_add(ret, "sks", "\"failure\":[{\"request_range\":{\"key\":\"", key,
			     "\",\"keys_only\":true}}],\"success\":[");
	if (r == 0 && value)
		r = body_add(ret, "sksbs", "{\"request_put\":{\"key\":\"", key, "\",\"value\":\"", value, size, "\"}}");
	else if (r == 0 && expected)
		r = body_add(ret, "sks", "{\"request_delete_range\":{\"key\":\"", key, "\"}}");
	return r == 0 ? body_add(ret, "s", "]}") : r;
}

int etcd_wire_watch(const char *key, const char *end, struct etcd_body *body)
{
	return body_add(body, "sksks", "{\"create_request\":{\"key\":\"", key, "\",\"range_end\":\"", end, "\"}}\n");
}

int etcd_wire_login(const char *user, const char *password, struct etcd_body *ret)
{
	struct json_object *o = json_object_new_object();
	const char *text;
	int r = -ENOMEM;

	json_object_object_add(o, "name", json_object_new_string(user));
	json_object_object_add(o, "password", json_object_new_string(password));
	text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN) : NULL;
	if (text)
		r = body_add(ret, "s", text);
	json_object_put(o);
	return r;
}

void etcd_wire_end(const char *prefix, char *ret)
{
	size_t n = strlen(prefix);

	assert(n);
	memcpy(ret, prefix, n + 1);
	ret[n - 1]++;
}

/* --- Answers --- */

static struct json_object *member(struct json_object *o, const char *name)
{
	struct json_object *m = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, name, &m);
	return m;
}

/* A number, as such or as a string; what is not there is 0, and what is none is an error. */
static int number_of(struct json_object *o, const char *name, uint64_t *ret)
{
	struct json_object *m = member(o, name);
	const char *text;
	uint64_t v = 0;

	if (!m) {
		*ret = 0;
		return 0;
	}
	text = json_object_get_string(m);
	if (!text || !*text || strlen(text) > 20)
		return -EBADMSG;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
			return -EBADMSG;
	*ret = v;
	return 0;
}

static int bytes_of(struct json_object *o, const char *name, size_t max, char **ret, size_t *ret_size)
{
	struct json_object *m = member(o, name);

	if (m && !json_object_is_type(m, json_type_string))
		return -EBADMSG;
	return base64_get(m ? json_object_get_string(m) : "", m ? (size_t)json_object_get_string_len(m) : 0, max,
			  ret, ret_size);
}

static void message_keep(struct etcd_answer *a, struct json_object *o)
{
	const char *text = json_object_is_type(o, json_type_string) ? json_object_get_string(o) : "";
	size_t n = 0;

	for (; *text && n < ETCD_MESSAGE_MAX; text++)
		a->message[n++] = *text < ' ' || *text > '~' ? '?' : *text;
	a->message[n] = 0;
}

/* {"error":"...","code":9,"message":"..."}, or of a stream {"error":{"grpc_code":9,"message":"..."}} */
static int decode_error(struct json_object *o, struct etcd_answer *a)
{
	struct json_object *error = member(o, "error");
	uint64_t code, grpc;
	int r;

	if (json_object_is_type(error, json_type_object))
		o = error;
	else if (!member(o, "code"))
		return error ? -EBADMSG : 0;
	r = number_of(o, "code", &code);
	if (r == 0)
		r = number_of(o, "grpc_code", &grpc);
	if (r < 0 || code > INT_MAX || grpc > INT_MAX)
		return -EBADMSG;
	a->failed = true;
	a->code = grpc ? (int)grpc : (int)code;
	message_keep(a, member(o, "message") ? member(o, "message") : error);
	return 0;
}

static int decode_header(struct json_object *o, struct etcd_answer *a)
{
	struct json_object *header = member(o, "header");
	int r = number_of(header, "cluster_id", &a->cluster);

	if (r == 0 && !a->cluster)
		r = -EBADMSG;
	return r < 0 ? r : number_of(header, "revision", &a->revision);
}

/* key must begin with before, since nothing else was asked for. *ret NULL: none of dlock's. */
static int decode_key(const char *before, char *key, size_t size, char **ret)
{
	size_t n = strlen(before);

	if (size < n || memcmp(key, before, n) != 0)
		return -EBADMSG;
	*ret = strlen(key) == size && store_key_valid(key + n) ? key + n : NULL;
	return 0;
}

/* A record whose key and value are one piece of memory, which begins at the key. */
static int record_keep(struct etcd_answer *a, const char *key, const char *value, size_t size, uint64_t version)
{
	size_t n = strlen(key) + 1;
	char *piece = malloc(n + size + 1);

	if (!piece)
		return -ENOMEM;
	memcpy(piece, key, n);
	memcpy(piece + n, value, size);
	a->records[a->n_records++] = (struct store_record){ piece, piece + n, size, version };
	a->bytes += n + size;
	return 0;
}

static int decode_record(const char *before, struct json_object *kv, struct etcd_answer *a)
{
	char *key = NULL, *value = NULL, *name = NULL;
	size_t key_size, size;
	uint64_t version;
	int r = bytes_of(kv, "key", KEY_MAX, &key, &key_size);

	if (r == 0)
		r = bytes_of(kv, "value", VALUE_MAX, &value, &size);
	/* dlock has not written that. It counts as empty, which no record of dlock is, so that it is in nobody's way. */
	if (r == 0 && size > STORE_VALUE_MAX)
		size = 0;
	if (r == 0)
		r = number_of(kv, "mod_revision", &version);
	if (r == 0 && version < 1)
		r = -EBADMSG;
	if (r == 0)
		r = decode_key(before, key, key_size, &name);
	if (r == 0 && name)
		r = record_keep(a, name, value, size, version);
	free(value);
	/* Where a list goes on: only a key without a NUL can be named, and only dlock's prefix is listed. */
	if (r == 0 && strlen(key) == key_size) {
		free(a->last);
		a->last = key;
		key = NULL;
	}
	free(key);
	return r;
}

static int decode_range(const char *before, struct json_object *o, struct etcd_answer *a)
{
	struct json_object *kvs = member(o, "kvs");
	uint64_t count;
	size_t n = json_object_is_type(kvs, json_type_array) ? json_object_array_length(kvs) : 0;
	int r = number_of(o, "count", &count);

	/* How many there are is said twice: nothing may have got lost. */
	a->more = json_object_get_boolean(member(o, "more"));
	if (r < 0 || (kvs && !json_object_is_type(kvs, json_type_array)) || (a->more ? count <= n : count != n))
		return -EBADMSG;
	if (n > STORE_VALUE_MAX || a->records)
		return -EBADMSG;
	a->records = calloc(n + 1, sizeof *a->records);
	if (!a->records)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = decode_record(before, json_object_array_get_idx(kvs, i), a);
	return r;
}

/* Of a cas: one answer to one request, or none where there was nothing to be done. */
static int decode_responses(const char *before, struct json_object *o, struct etcd_answer *a)
{
	struct json_object *all = member(o, "responses"), *first = NULL, *range;
	int r = 0;

	a->succeeded = json_object_get_boolean(member(o, "succeeded"));
	if (json_object_is_type(all, json_type_array) && json_object_array_length(all) == 1)
		first = json_object_array_get_idx(all, 0);
	if (member(first, "response_put")) {
		r = number_of(member(member(first, "response_put"), "header"), "revision", &a->written);
		return r < 0 || !a->succeeded || !a->written ? -EBADMSG : 0;
	}
	a->deleted = member(first, "response_delete_range");
	range = member(first, "response_range");
	a->ranged = range;
	if (range) {
		r = decode_range(before, range, a);
		if (r == 0 && (a->succeeded || a->n_records > 1))
			r = -EBADMSG;
		a->met = r == 0 && a->n_records ? a->records[0].version : 0;
	}
	return r;
}

static int decode_watch(struct json_object *o, struct etcd_answer *a)
{
	struct json_object *events = member(o, "events");

	a->created = json_object_get_boolean(member(o, "created"));
	a->canceled = json_object_get_boolean(member(o, "canceled"));
	a->events = json_object_is_type(events, json_type_array) && json_object_array_length(events);
	if (a->canceled)
		message_keep(a, member(o, "cancel_reason"));
	return 0;
}

static int decode_token(struct json_object *o, struct etcd_answer *a)
{
	struct json_object *token = member(o, "token");
	const char *text = json_object_is_type(token, json_type_string) ? json_object_get_string(token) : NULL;

	if (!text)
		return 0;
	/* It becomes a line of a header. */
	for (const char *p = text; *p; p++)
		if (*p <= ' ' || *p > '~' || p - text > 8192)
			return -EBADMSG;
	a->token = strdup(text);
	return a->token ? 0 : -ENOMEM;
}

static int decode(const char *before, struct json_object *o, struct etcd_answer *a)
{
	int r = decode_error(o, a);

	if (r < 0 || a->failed)
		return r;
	if (json_object_is_type(member(o, "result"), json_type_object))
		o = member(o, "result");
	if (!json_object_is_type(member(o, "header"), json_type_object))
		return -EBADMSG;
	r = decode_header(o, a);
	if (r == 0)
		r = decode_token(o, a);
	if (r == 0)
		r = number_of(o, "leader", &a->leader);
	if (r == 0)
		r = decode_watch(o, a);
	if (r == 0)
		r = decode_responses(before, o, a);
	if (r == 0 && (member(o, "kvs") || member(o, "count")))
		r = decode_range(before, o, a);
	return r;
}

int etcd_wire_decode(const char *before, const char *data, size_t size, struct etcd_answer *ret)
{
	struct json_tokener *t = size <= INT_MAX ? json_tokener_new_ex(DEPTH_MAX) : NULL;
	struct json_object *o;
	int r = -EBADMSG;

	*ret = (struct etcd_answer){ .failed = false };
	if (!t)
		return size <= INT_MAX ? -ENOMEM : -EBADMSG;
	json_tokener_set_flags(t, JSON_TOKENER_STRICT);
	/* The gateway ends its answers with or without a newline. */
	while (size && (data[size - 1] == '\n' || data[size - 1] == '\r'))
		size--;
	o = json_tokener_parse_ex(t, data, (int)size);
	if (o && json_tokener_get_parse_end(t) == size && json_object_is_type(o, json_type_object))
		r = decode(before, o, ret);
	json_object_put(o);
	json_tokener_free(t);
	return r;
}

void etcd_answer_done(struct etcd_answer *a)
{
	for (size_t i = 0; i < a->n_records; i++)
		free((char *)a->records[i].key);
	free(a->records);
	free(a->last);
	free(a->token);
	*a = (struct etcd_answer){ .failed = false };
}
