/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "stored.h"

#include <string.h>

#include <json-c/json.h>

#include "client.h"
#include "proto/kind.h"

#define METHOD "io.dlock.ListStored"

const char *const stored_kinds[] = { "latch", "free semaphore", "value", NULL };

/* Nothing of it is shown. */
static bool is_denied(const char *error)
{
	return strcmp(error, "io.dlock.PermissionDenied") == 0;
}

static int ask(struct json_object *parameters, struct json_object **ret)
{
	char error[CLIENT_ERROR_MAX];

	return client_ask_but(METHOD, parameters, is_denied, error, ret);
}

static struct json_object *question(const char *space, size_t len, const char *kind)
{
	struct json_object *p = json_object_new_object();

	json_object_object_add(p, "space", json_object_new_string_len(space, (int)len));
	json_object_object_add(p, "kind", json_object_new_string(kind));
	return p;
}

static struct json_object *one_of(struct json_object *answer, size_t i)
{
	struct json_object *one = json_object_array_get_idx(field(answer, "stored"), i);

	json_object_object_add(one, "state", json_object_new_string("stored"));
	if (!field(one, "name"))
		json_object_object_add(one, "name", json_object_get(field(one, "key")));
	return one;
}

static size_t count_of(struct json_object *answer)
{
	struct json_object *stored = field(answer, "stored");

	return json_object_is_type(stored, json_type_array) ? json_object_array_length(stored) : 0;
}

int stored_each(const char *space, const char *kind, void (*fn)(void *arg, struct json_object *stored), void *arg)
{
	struct json_object *answer, *after = NULL;
	int r;

	do {
		struct json_object *p = question(space, strlen(space), kind);

		if (after)
			json_object_object_add(p, "after", after);
		after = NULL;
		r = ask(p, &answer);
		if (r != 0 || !answer)
			return r;
		for (size_t i = 0; i < count_of(answer); i++)
			fn(arg, one_of(answer, i));
		if (count_of(answer))
			after = json_object_get(field(answer, "after"));
		json_object_put(answer);
	} while (after);
	return 0;
}

int stored_find(const char *full, const char *kind, struct json_object **ret)
{
	const char *slash = strchr(full, '/'), *name = slash ? slash + 1 : full;

	*ret = NULL;
	for (unsigned i = 0; stored_kinds[i] && !*ret; i++) {
		struct json_object *answer, *p;
		int r;

		if (kind && strcmp(kind, stored_kinds[i]) != 0)
			continue;
		p = question(slash ? full : "default", slash ? (size_t)(slash - full) : strlen("default"), stored_kinds[i]);
		json_object_object_add(p, "name", json_object_new_string(name));
		r = ask(p, &answer);
		if (r != 0)
			return r;
		if (answer && count_of(answer))
			*ret = json_object_get(one_of(answer, 0));
		json_object_put(answer);
	}
	return 0;
}
