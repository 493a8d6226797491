/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "format.h"
#include "interface.h"
#include "methods.h"
#include "methods_int.h"
#include "proto/name.h"
#include "query.h"
#include "session.h"

/* ---- arguments ---- */

static struct arg *arg_find(struct arg *args, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(args[i].key, key) == 0)
			return &args[i];
	return NULL;
}

static bool arg_fits(const struct arg *arg, struct json_object *value)
{
	if (!json_object_is_type(value, arg->type))
		return false;
	return arg->type != json_type_string ||
	       strlen(json_object_get_string(value)) == (size_t)json_object_get_string_len(value);
}

const char *args_read(const struct varlink_call *call, struct arg *args, size_t n)
{
	if (call->parameters) {
		json_object_object_foreach(call->parameters, key, value) {
			struct arg *arg = arg_find(args, n, key);

			if (!arg || (value && !arg_fits(arg, value)))
				return key;
			arg->value = value;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (args[i].needed && !args[i].value)
			return args[i].key;
	return NULL;
}

/* ---- answers ---- */

int answer(struct session *s, struct json_object *parameters)
{
	return parameters ? varlink_put_reply(&s->out, parameters, false) : -ENOMEM;
}

int answer_error(struct session *s, const char *error, const char *key, const char *text)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return -ENOMEM;
	if (key)
		json_object_object_add(o, key, format_text(text, FORMAT_TEXT_MAX));
	return varlink_put_error(&s->out, error, o);
}

int answer_invalid(struct session *s, const char *parameter)
{
	return answer_error(s, SERVICE ".InvalidParameter", "parameter", parameter);
}

/* {key: value}; takes value over. */
static struct json_object *object_of(const char *key, struct json_object *value)
{
	struct json_object *o = value ? json_object_new_object() : NULL;

	if (o && json_object_object_add(o, key, value) == 0)
		return o;
	json_object_put(value);
	json_object_put(o);
	return NULL;
}

bool may_see(const struct session *s, const char *space)
{
	return s->source->may_see(s->source->arg, space, s->caller.uid, s->caller.groups,
				  s->caller.n_groups);
}

struct search {
	const char *space;
	bool found;
};

static void on_search(void *ctx, const struct query_space *space)
{
	struct search *search = ctx;

	search->found = search->found || strcmp(space->name, search->space) == 0;
}

bool space_exists(const struct session *s, const char *space)
{
	struct search search = { .space = space };

	s->source->spaces(s->source->arg, on_search, &search);
	return search.found;
}

/* An array whose first elements are kept and whose elements are all counted. */
struct list {
	struct json_object *array;
	unsigned max;
	int64_t n;
	bool failed;
};

static void list_add(struct list *list, struct json_object *value)
{
	if (!value || !list->array || json_object_array_add(list->array, value) < 0) {
		json_object_put(value);
		list->failed = true;
	}
}

/* ---- GetStatus ---- */

static void on_space(void *ctx, const struct query_space *space)
{
	struct list *list = ctx;

	if (list->n++ < list->max)
		list_add(list, format_space(space));
}

static void on_link(void *ctx, const struct query_link *link)
{
	struct list *list = ctx;

	if (list->n++ < list->max)
		list_add(list, format_link(link));
}

static int get_status(struct session *s, const struct varlink_call *call)
{
	struct list spaces = { .array = json_object_new_array(), .max = METHODS_SPACES_MAX };
	struct list links = { .array = json_object_new_array(), .max = METHODS_LINKS_MAX };
	struct query_node node = { 0 };
	struct json_object *o;
	const char *bad = args_read(call, NULL, 0);

	s->source->node(s->source->arg, &node);
	o = object_of("node", format_node(&node));
	s->source->spaces(s->source->arg, on_space, &spaces);
	s->source->links(s->source->arg, on_link, &links);
	if (bad || !o || spaces.failed || links.failed) {
		json_object_put(o);
		json_object_put(spaces.array);
		json_object_put(links.array);
		return bad ? answer_invalid(s, bad) : -ENOMEM;
	}
	json_object_object_add(o, "spaces", spaces.array);
	json_object_object_add(o, "spaceCount", json_object_new_int64(spaces.n));
	json_object_object_add(o, "links", links.array);
	json_object_object_add(o, "linkCount", json_object_new_int64(links.n));
	return answer(s, o);
}

static void on_member(void *ctx, const struct query_member *member)
{
	list_add(ctx, format_member(member));
}

static int list_members(struct session *s, const struct varlink_call *call)
{
	struct list members = { .array = json_object_new_array() };
	const char *bad = args_read(call, NULL, 0);

	s->source->members(s->source->arg, on_member, &members);
	if (bad || members.failed) {
		json_object_put(members.array);
		return bad ? answer_invalid(s, bad) : -ENOMEM;
	}
	return answer(s, object_of("members", members.array));
}

/* ---- ListNames ---- */

struct page {
	struct session *s;
	struct list names;
	size_t waiters;                     /* how many more may be listed */
	char space[ATTACH_SPACE_MAX + 1];   /* the one that visible is about */
	bool visible;
};

static void on_name(void *ctx, const struct query_name *name)
{
	struct page *page = ctx;
	size_t max = page->waiters < QUERY_WAITERS_MAX ? page->waiters : QUERY_WAITERS_MAX;

	if (strcmp(page->space, name->space) != 0) {
		snprintf(page->space, sizeof(page->space), "%s", name->space);
		page->visible = may_see(page->s, name->space);
	}
	if (!page->visible)
		return;
	page->names.n++;
	page->waiters -= name->n_waiters < max ? name->n_waiters : max;
	list_add(&page->names, format_name(name, max));
}

/*
 * One page from *cursor on. What the caller may not see counts towards its length too: a page must
 * not become a long search.
 */
static int page_read(struct session *s, const char *space, uint64_t *cursor, unsigned max,
		     struct json_object **ret, int64_t *ret_n)
{
	struct page page = { .s = s, .names.array = json_object_new_array(), .waiters = METHODS_PAGE_WAITERS };
	int r;

	r = s->source->names(s->source->arg, space, cursor, max, on_name, &page);
	if (r >= 0 && page.names.failed)
		r = -ENOMEM;
	if (r >= 0) {
		*ret_n = page.names.n;
		*ret = object_of("names", page.names.array);
		return *ret ? 0 : -ENOMEM;
	}
	json_object_put(page.names.array);
	return r;
}

static int list_error(struct session *s, int error, const char *space)
{
	if (error != -ENOENT)
		return error;
	return answer_error(s, DLOCK ".NoSuchSpace", "space", space ? space : "");
}

int methods_page(struct session *s)
{
	const char *space = s->space[0] ? s->space : NULL;
	uint64_t cursor = s->cursor;
	struct json_object *o;
	int64_t n;
	int r;

	assert(s->state == SESSION_LISTING);
	r = page_read(s, space, &cursor, METHODS_PAGE_NAMES, &o, &n);
	s->cursor = cursor;
	if (r < 0 || cursor == 0)
		s->state = SESSION_READY;
	if (r < 0)
		return list_error(s, r, space);
	if (n == 0 && cursor != 0) {
		json_object_put(o);
		return 0;
	}
	return varlink_put_reply(&s->out, o, cursor != 0);
}

int answer_closed(struct session *s, const char *space)
{
	return answer_error(s, space_exists(s, space) ? DLOCK ".PermissionDenied" : DLOCK ".NoSuchSpace",
			    "space", space);
}

static int list_once(struct session *s, const char *space, uint64_t cursor, unsigned max)
{
	struct json_object *o;
	char text[24];
	int64_t n;
	int r;

	r = page_read(s, space, &cursor, max, &o, &n);
	if (r < 0)
		return list_error(s, r, space);
	if (cursor != 0) {
		snprintf(text, sizeof(text), "%" PRIu64, cursor);
		json_object_object_add(o, "cursor", json_object_new_string(text));
	}
	return answer(s, o);
}

static bool cursor_parse(const char *text, uint64_t *ret)
{
	uint64_t value;
	char *end;

	if (strspn(text, "0123456789") != strlen(text) || text[0] == '\0')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || value == 0)
		return false;
	*ret = value;
	return true;
}

static int list_names(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = {
		{ "space", json_type_string, false, NULL },
		{ "limit", json_type_int, false, NULL },
		{ "cursor", json_type_string, false, NULL },
	};
	const char *bad = args_read(call, args, 3), *space = NULL;
	uint64_t cursor = 0;
	int64_t limit = METHODS_PAGE_NAMES;

	if (bad)
		return answer_invalid(s, bad);
	if (args[0].value)
		space = json_object_get_string(args[0].value);
	if (space && !space_name_valid(space, strlen(space)))
		return answer_invalid(s, "space");
	if (args[1].value)
		limit = json_object_get_int64(args[1].value);
	if (limit < 1)
		return answer_invalid(s, "limit");
	if (args[2].value && !cursor_parse(json_object_get_string(args[2].value), &cursor))
		return answer_invalid(s, "cursor");
	if (space && !may_see(s, space))
		return answer_closed(s, space);
	if (!call->more)
		return list_once(s, space, cursor, limit < METHODS_PAGE_NAMES ? (unsigned)limit : METHODS_PAGE_NAMES);
	s->state = SESSION_LISTING;
	s->cursor = cursor;
	snprintf(s->space, sizeof(s->space), "%s", space ? space : "");
	return 0;
}

/* ---- ShowName, Watch ---- */

static void on_show(void *ctx, const struct query_name *name)
{
	list_add(ctx, format_name(name, QUERY_WAITERS_MAX));
}

static int show_name(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "name", json_type_string, true, NULL }, { "kind", json_type_string, false, NULL } };
	char space[ATTACH_SPACE_MAX + 1], name[ATTACH_NAME_MAX + 1];
	const char *bad = args_read(call, args, 2), *full;
	struct list found = { 0 };
	int r;

	if (bad)
		return answer_invalid(s, bad);
	full = json_object_get_string(args[0].value);
	if (!name_split(full, space, name))
		return answer_invalid(s, "name");
	if (!may_see(s, space))
		return answer_closed(s, space);
	found.array = json_object_new_array();
	r = s->source->show(s->source->arg, space, name, args[1].value ? json_object_get_string(args[1].value) : NULL, on_show, &found);
	if (r == -ENOENT)
		r = answer_error(s, DLOCK ".NoSuchName", "name", full);
	else if (r >= 0 && (found.failed || json_object_array_length(found.array) != 1))
		r = -ENOMEM;
	else if (r >= 0)
		r = answer(s, object_of("name", json_object_get(json_object_array_get_idx(found.array, 0))));
	json_object_put(found.array);
	return r;
}

static int watch(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "name", json_type_string, false, NULL } };
	char space[ATTACH_SPACE_MAX + 1] = "", name[ATTACH_NAME_MAX + 1] = "";
	const char *bad = args_read(call, args, 1);
	struct json_object *o;
	int r;

	if (bad)
		return answer_invalid(s, bad);
	if (args[0].value && !name_split(json_object_get_string(args[0].value), space, name))
		return answer_invalid(s, "name");
	if (!call->more)
		return answer_error(s, SERVICE ".ExpectedMore", NULL, NULL);
	if (space[0] && !may_see(s, space) && space_exists(s, space))
		return answer_closed(s, space);
	o = object_of("ready", json_object_new_boolean(true));
	if (!o)
		return -ENOMEM;
	r = varlink_put_reply(&s->out, o, true);
	if (r < 0)
		return r;
	s->state = SESSION_WATCHING;
	s->dropped = 0;
	memcpy(s->space, space, sizeof(space));
	memcpy(s->name, name, sizeof(name));
	if (s->source->watching)
		s->source->watching(s->source->arg);
	return 0;
}

/* ---- Drain, Leave: what changes the node ---- */

bool may_rule(const struct session *s)
{
	return s->caller.uid == 0 || s->caller.uid == geteuid();
}

static int answer_done(struct session *s, int r)
{
	if (r == -ENOTSUP)
		return answer_error(s, DLOCK ".NotInCluster", NULL, NULL);
	if (r < 0 && r != -EALREADY)
		return r;
	return answer(s, json_object_new_object());
}

static int drain(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "off", json_type_boolean, false, NULL } };
	const char *bad = args_read(call, args, 1);

	if (bad)
		return answer_invalid(s, bad);
	if (!may_rule(s))
		return answer_error(s, SERVICE ".PermissionDenied", NULL, NULL);
	return answer_done(s, s->source->drain(s->source->arg, !args[0].value || !json_object_get_boolean(args[0].value)));
}

static int leave(struct session *s, const struct varlink_call *call)
{
	const char *bad = args_read(call, NULL, 0);

	if (bad)
		return answer_invalid(s, bad);
	if (!may_rule(s))
		return answer_error(s, SERVICE ".PermissionDenied", NULL, NULL);
	return answer_done(s, s->source->leave(s->source->arg));
}

/* ---- org.varlink.service ---- */

static int get_info(struct session *s, const struct varlink_call *call)
{
	const char *bad = args_read(call, NULL, 0);
	struct query_node node = { 0 };
	struct list interfaces = { .array = json_object_new_array() };
	struct json_object *o = json_object_new_object();

	list_add(&interfaces, json_object_new_string(SERVICE));
	list_add(&interfaces, json_object_new_string(DLOCK));
	if (bad || !o || interfaces.failed) {
		json_object_put(o);
		json_object_put(interfaces.array);
		return bad ? answer_invalid(s, bad) : -ENOMEM;
	}
	s->source->node(s->source->arg, &node);
	json_object_object_add(o, "vendor", json_object_new_string("dlock"));
	json_object_object_add(o, "product", json_object_new_string("dlockd"));
	json_object_object_add(o, "version", format_text(node.version ? node.version : "", FORMAT_TEXT_MAX));
	json_object_object_add(o, "url", json_object_new_string("man:dlockd(8)"));
	json_object_object_add(o, "interfaces", interfaces.array);
	return answer(s, o);
}

static int get_description(struct session *s, const struct varlink_call *call)
{
	struct arg args[] = { { "interface", json_type_string, true, NULL } };
	const char *bad = args_read(call, args, 1), *name, *text;

	if (bad)
		return answer_invalid(s, bad);
	name = json_object_get_string(args[0].value);
	text = strcmp(name, DLOCK) == 0 ? interface_dlock :
	       strcmp(name, SERVICE) == 0 ? interface_service : NULL;
	if (!text)
		return answer_error(s, SERVICE ".InterfaceNotFound", "interface", name);
	return answer(s, object_of("description", json_object_new_string(text)));
}

/* ---- dispatch ---- */

static const struct method {
	const char *name;
	int (*call)(struct session *s, const struct varlink_call *call);
} methods[] = {
	{ DLOCK ".GetStatus", get_status },
	{ DLOCK ".ListNames", list_names },
	{ DLOCK ".ListStored", method_list_stored },
	{ DLOCK ".ShowName", show_name },
	{ DLOCK ".ShowNodes", method_show_nodes },
	{ DLOCK ".ListMembers", list_members },
	{ DLOCK ".Watch", watch },
	{ DLOCK ".Get", method_get },
	{ DLOCK ".Put", method_put },
	{ DLOCK ".Remove", method_remove },
	{ DLOCK ".Drain", drain },
	{ DLOCK ".Leave", leave },
	{ SERVICE ".GetInfo", get_info },
	{ SERVICE ".GetInterfaceDescription", get_description },
};

const char *methods_name(unsigned i)
{
	return i < sizeof(methods) / sizeof(methods[0]) ? methods[i].name : NULL;
}

static int answer_unknown(struct session *s, const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t n = dot ? (size_t)(dot - name) : 0;
	char interface[256];

	if ((n == strlen(DLOCK) && memcmp(name, DLOCK, n) == 0) ||
	    (n == strlen(SERVICE) && memcmp(name, SERVICE, n) == 0))
		return answer_error(s, SERVICE ".MethodNotFound", "method", name);
	snprintf(interface, sizeof(interface), "%.*s", (int)(n < 255 ? n : 255), name);
	return answer_error(s, SERVICE ".InterfaceNotFound", "interface", interface);
}

int methods_call(struct session *s, const struct varlink_call *call)
{
	assert(s->state == SESSION_READY);
	/* Who does not want to hear what came of it has not called anything: it would be a change that nobody sees. */
	if (call->oneway)
		return 0;
	if (call->upgrade)
		return answer_error(s, SERVICE ".MethodNotImplemented", "method", call->method);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strcmp(methods[i].name, call->method) == 0)
			return methods[i].call(s, call);
	return answer_unknown(s, call->method);
}
