/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* ShowNodes. Its master is asked for what it knows of a name, which may be open on other nodes only: so who may ask is as with values. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "methods_int.h"
#include "proto/name.h"
#include "query.h"

static int64_t weight_of(uint32_t weight)
{
	return weight == QUERY_WEIGHT_ALL ? -1 : (int64_t)weight;
}

static int share_add(struct json_object *array, const struct query_share *v)
{
	struct json_object *o = json_object_new_object();

	if (!o || json_object_array_add(array, o) < 0) {
		json_object_put(o);
		return -ENOMEM;
	}
	json_object_object_add(o, "node", format_text(v->node, FORMAT_TEXT_MAX));
	json_object_object_add(o, "holds", json_object_new_int64(weight_of(v->held)));
	json_object_object_add(o, "wants", json_object_new_int64(weight_of(v->wanted)));
	return 0;
}

static int nodes_reply(struct session *s, const struct query_nodes_result *res)
{
	struct json_object *o = json_object_new_object(), *array = json_object_new_array();
	int r = o && array ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < res->n; i++)
		r = share_add(array, &res->v[i]);
	if (r < 0) {
		json_object_put(array);
		json_object_put(o);
		return r;
	}
	json_object_object_add(o, "master", format_text(res->master, FORMAT_TEXT_MAX));
	json_object_object_add(o, "held", json_object_new_int64(weight_of(res->held)));
	if (res->limit)
		json_object_object_add(o, "limit", json_object_new_int64(weight_of(res->limit)));
	json_object_object_add(o, "nodes", array);
	json_object_object_add(o, "nodeCount", json_object_new_int64(res->all));
	return answer(s, o);
}

static void on_nodes(void *ctx, const struct query_nodes_result *res)
{
	struct session *s = ctx;

	session_answered(s, res->error ? answer_error(s, DLOCK ".MasterUnreachable", NULL, NULL) : nodes_reply(s, res));
}

int method_show_nodes(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "name", json_type_string, true, NULL }, { "kind", json_type_string, true, NULL } };
	char space[ATTACH_SPACE_MAX + 1], name[ATTACH_NAME_MAX + 1];
	const char *bad = args_read(call, args, 2);
	bool may;
	int r = 0;

	if (bad)
		return answer_invalid(s, bad);
	if (!name_split(json_object_get_string(args[0].value), space, name))
		return answer_invalid(s, "name");
	r = may_use(s, space, &may);
	if (!may)
		return r;
	struct query_nodes_call c = { space, name, json_object_get_string(args[1].value) };
	session_asks(s, s->source->nodes_drop);
	void *asked = s->source->nodes(s->source->arg, &c, on_nodes, s, &r);
	r = session_asked(s, asked, r);
	if (r == -ENOTSUP)
		return answer_error(s, DLOCK ".NotInCluster", NULL, NULL);
	return r == -EINVAL ? answer_invalid(s, "kind") : r;
}
