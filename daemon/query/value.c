/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Get, Put, Remove. A value belongs to a space like a name: whoever may open the space may read and write it, root and
 * the daemon's own user too, and these alone where this node has no such space.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "methods_int.h"
#include "proto/base64.h"
#include "proto/name.h"
#include "query.h"

#define VALUE_MAX (64 * 1024)

int may_use(struct session *s, const char *space, bool *ret)
{
	*ret = may_rule(s) || (space_exists(s, space) && may_see(s, space));
	return *ret ? 0 : answer_closed(s, space);
}

/* --- what came of it --- */

static void key_of(const struct session *s, char ret[ATTACH_SPACE_MAX + ATTACH_NAME_MAX + 2])
{
	snprintf(ret, ATTACH_SPACE_MAX + ATTACH_NAME_MAX + 2, "%s/%s", s->space, s->name);
}

static struct json_object *value_reply(const struct session *s, const struct query_value_result *res)
{
	struct json_object *o = json_object_new_object();
	char *text = NULL;

	if (o && !s->put)
		text = malloc(BASE64_LEN(res->n) + 1);
	if (o && text) {
		base64_encode(res->bytes, res->n, text);
		json_object_object_add(o, "value", json_object_new_string(text));
	}
	if (o && res->version)
		json_object_object_add(o, "version", json_object_new_int64((int64_t)res->version));
	free(text);
	return o;
}

int answer_unavailable(struct session *s, const char *why, int error, bool in_doubt)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return -ENOMEM;
	json_object_object_add(o, "reason", format_text(why ? why : strerror(-error), FORMAT_TEXT_MAX));
	json_object_object_add(o, "inDoubt", json_object_new_boolean(in_doubt));
	return varlink_put_error(&s->out, DLOCK ".StoreUnavailable", o);
}

static int value_conflict(struct session *s, const struct query_value_result *res)
{
	char key[ATTACH_SPACE_MAX + ATTACH_NAME_MAX + 2];
	struct json_object *o = json_object_new_object();

	if (!o)
		return -ENOMEM;
	key_of(s, key);
	json_object_object_add(o, "key", format_text(key, FORMAT_TEXT_MAX));
	json_object_object_add(o, "version", json_object_new_int64((int64_t)res->version));
	return varlink_put_error(&s->out, DLOCK ".VersionConflict", o);
}

static int value_put_answer(struct session *s, const struct query_value_result *res)
{
	char key[ATTACH_SPACE_MAX + ATTACH_NAME_MAX + 2];

	key_of(s, key);
	if (!res->error)
		return answer(s, value_reply(s, res));
	if (res->error == -ENOENT)
		return answer_error(s, DLOCK ".NoSuchKey", "key", key);
	if (res->error == -ENOSPC)
		return answer_error(s, DLOCK ".StoreFull", NULL, NULL);
	if (res->error == -EAGAIN && !res->in_doubt)
		return value_conflict(s, res);
	return answer_unavailable(s, res->why, res->error, res->in_doubt);
}

static void on_value(void *ctx, const struct query_value_result *res)
{
	struct session *s = ctx;

	session_answered(s, value_put_answer(s, res));
}

static int value_begin(struct session *s, const struct query_value_call *call)
{
	void *asked;
	int r = 0;

	session_asks(s, s->source->value_drop);
	s->put = call->op != QUERY_GET;
	asked = s->source->value(s->source->arg, call, on_value, s, &r);
	return session_asked(s, asked, r);
}

/* --- calls --- */

static bool version_of(const struct arg *arg, struct query_value_call *ret)
{
	int64_t v = arg->value ? json_object_get_int64(arg->value) : 0;

	ret->compare = arg->value;
	ret->version = (uint64_t)v;
	return v >= 0;
}

/* The first argument is the key, the second a version. 1: go on. */
static int value_call(struct session *s, const struct varlink_call *call, struct arg *args, size_t n, struct query_value_call *ret)
{
	const char *bad = args_read(call, args, n);
	bool may;
	int r;

	if (!bad && !name_split(json_object_get_string(args[0].value), s->space, s->name))
		bad = "key";
	if (!bad && n > 1 && !version_of(&args[1], ret))
		bad = "version";
	if (bad)
		return answer_invalid(s, bad);
	r = may_use(s, s->space, &may);
	ret->space = s->space;
	ret->name = s->name;
	return may ? 1 : r;
}

int method_get(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "key", json_type_string, true, NULL } };
	struct query_value_call v = { .op = QUERY_GET };
	int r = value_call(s, call, args, 1, &v);

	return r == 1 ? value_begin(s, &v) : r;
}

int method_remove(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "key", json_type_string, true, NULL }, { "version", json_type_int, false, NULL } };
	struct query_value_call v = { .op = QUERY_REMOVE };
	int r = value_call(s, call, args, 2, &v);

	return r == 1 ? value_begin(s, &v) : r;
}

int method_put(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "key", json_type_string, true, NULL }, { "version", json_type_int, false, NULL },
			      { "value", json_type_string, true, NULL } };
	struct query_value_call v = { .op = QUERY_PUT };
	int r = value_call(s, call, args, 3, &v);
	size_t len;
	char *bytes;
	long n;

	if (r != 1)
		return r;
	len = (size_t)json_object_get_string_len(args[2].value);
	bytes = malloc(len + 1);
	if (!bytes)
		return -ENOMEM;
	n = base64_decode(json_object_get_string(args[2].value), len, bytes);
	if (n < 0 || n > VALUE_MAX) {
		free(bytes);
		return answer_invalid(s, "value");
	}
	v.bytes = bytes;
	v.n = (size_t)n;
	r = value_begin(s, &v);
	free(bytes);
	return r;
}
