/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nodes.h"

#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "client.h"
#include "proto/kind.h"
#include "table.h"

static bool is_silence(const char *error)
{
	return strcmp(error, "io.dlock.MasterUnreachable") == 0;
}

static bool is_nothing(const char *error)
{
	static const char *const nothing[] = {
		"io.dlock.NotInCluster", "io.dlock.NoSuchSpace", "io.dlock.PermissionDenied", "org.varlink.service.InvalidParameter",
		"org.varlink.service.MethodNotFound",    /* a daemon that is older than this command */
	};

	for (unsigned i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		if (strcmp(error, nothing[i]) == 0)
			return true;
	return is_silence(error);
}

int nodes_ask(const char *name, const char *kind, struct json_object **ret, bool *ret_silent)
{
	struct json_object *p = json_object_new_object();
	char error[CLIENT_ERROR_MAX];
	int r;

	json_object_object_add(p, "name", json_object_new_string(name));
	json_object_object_add(p, "kind", json_object_new_string(kind));
	r = client_ask_but("io.dlock.ShowNodes", p, is_nothing, error, ret);
	*ret_silent = r == 0 && is_silence(error);
	return r;
}

int nodes_find(const char *name, const char *kind, struct json_object **ret, const char **ret_kind, bool *ret_silent)
{
	int r = 0;

	*ret = NULL;
	*ret_silent = false;
	for (enum kind k = 0; k < KINDS && r == 0 && !*ret && !*ret_silent; k++) {
		*ret_kind = kind_text(k);
		if (!kind_is_granted(k) || (kind && strcmp(kind, *ret_kind) != 0))
			continue;
		r = nodes_ask(name, *ret_kind, ret, ret_silent);
		if (r == 0 && *ret && !field_number(*ret, "nodeCount")) {
			json_object_put(*ret);
			*ret = NULL;
		}
	}
	return r;
}

static void add_weight(struct table *t, long long weight, bool lock, enum colour colour)
{
	char text[24] = "";

	if (weight < 0)
		snprintf(text, sizeof(text), "exclusive");
	else if (weight > 0 && lock)
		snprintf(text, sizeof(text), "shared");
	else if (weight > 0)
		snprintf(text, sizeof(text), "%lld", weight);
	table_add(t, text, colour);
}

void nodes_print(struct json_object *nodes)
{
	static const char *const titles[] = { "NODE", "LEASED", "WAITS FOR" };
	struct json_object *all = field(nodes, "nodes");
	size_t n = json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0;
	long long more = field_number(nodes, "nodeCount") - (long long)n, limit = field_number(nodes, "limit");
	struct table t;

	table_init(&t, titles, 3);
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(all, i);

		table_add(&t, field_text(one, "node"), COLOUR_BOLD);
		add_weight(&t, field_number(one, "holds"), limit < 0, COLOUR_GOOD);
		add_weight(&t, field_number(one, "wants"), limit < 0, COLOUR_WARN);
	}
	table_done(&t);
	if (more > 0)
		printf("and %lld more nodes\n", more);
}
