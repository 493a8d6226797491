/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ListStored. What lies in the store outlives all who use it, so it is shown to those who may use the space's values. Pages are
 * begun anew from the key that the caller names: nothing is kept between them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "methods_int.h"
#include "proto/name.h"
#include "query.h"

static int stored_add(struct json_object *array, const struct session *s, const struct query_stored *v)
{
	struct json_object *o = format_stored(s->space, s->kind, v);

	if (o && json_object_array_add(array, o) == 0)
		return 0;
	json_object_put(o);
	return -ENOMEM;
}

static int stored_reply(struct session *s, const struct query_stored_result *res)
{
	struct json_object *o = json_object_new_object(), *array = json_object_new_array();
	int r = o && array ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < res->n; i++)
		r = stored_add(array, s, &res->v[i]);
	if (r < 0) {
		json_object_put(array);
		json_object_put(o);
		return r;
	}
	json_object_object_add(o, "stored", array);
	if (res->more && res->n)
		json_object_object_add(o, "after", format_text(res->v[res->n - 1].key, FORMAT_TEXT_MAX));
	return answer(s, o);
}

static void on_stored(void *ctx, const struct query_stored_result *res)
{
	struct session *s = ctx;
	int r;

	if (!res->error)
		r = stored_reply(s, res);
	else
		r = answer_unavailable(s, res->error == -EBUSY ? "others list what lies in the store; try again" : res->why, res->error, false);
	session_answered(s, r);
}

static const char *text_of(const struct arg *arg)
{
	return arg->value ? json_object_get_string(arg->value) : NULL;
}

int method_list_stored(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "space", json_type_string, true, NULL }, { "kind", json_type_string, true, NULL },
			      { "name", json_type_string, false, NULL }, { "after", json_type_string, false, NULL } };
	const char *bad = args_read(call, args, 4);
	struct query_stored_call c = { .max = QUERY_STORED_MAX };
	bool may;
	void *asked;
	int r = 0;

	if (bad)
		return answer_invalid(s, bad);
	c = (struct query_stored_call){ text_of(&args[0]), text_of(&args[1]), text_of(&args[2]), text_of(&args[3]), QUERY_STORED_MAX };
	if (!space_name_valid(c.space, strlen(c.space)))
		return answer_invalid(s, "space");
	if (c.name && !object_name_valid(c.name, strlen(c.name)))
		return answer_invalid(s, "name");
	r = may_use(s, c.space, &may);
	if (!may)
		return r;
	if (strlen(c.kind) >= sizeof s->kind)
		return answer_invalid(s, "kind");
	snprintf(s->space, sizeof s->space, "%s", c.space);
	snprintf(s->kind, sizeof s->kind, "%s", c.kind);
	session_asks(s, s->source->stored_drop);
	asked = s->source->stored(s->source->arg, &c, on_stored, s, &r);
	r = session_asked(s, asked, r);
	return r == -EINVAL ? answer_invalid(s, "kind") : r;
}
