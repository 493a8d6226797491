/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files that answer calls have in common. */
#ifndef DLOCK_QUERY_METHODS_INT_H
#define DLOCK_QUERY_METHODS_INT_H

#include <stdbool.h>
#include <stddef.h>

#include <json-c/json.h>

#include "proto/attach.h"
#include "session.h"
#include "varlink.h"

#define SERVICE "org.varlink.service"
#define DLOCK "io.dlock"

struct arg {
	const char *key;
	enum json_type type;
	bool needed;
	struct json_object *value;       /* NULL: not given */
};

/* Fills in the values. NULL, or the key that is wrong: unknown, missing or of another type. */
const char *args_read(const struct varlink_call *call, struct arg *args, size_t n);

/* Parameters are taken over. Negative as methods_call(). */
int answer(struct session *s, struct json_object *parameters);
int answer_error(struct session *s, const char *error, const char *key, const char *text);
int answer_invalid(struct session *s, const char *parameter);

bool may_see(const struct session *s, const char *space);
bool may_rule(const struct session *s);  /* root, and the daemon's own user */
bool space_exists(const struct session *s, const char *space);
int answer_closed(struct session *s, const char *space); /* there is none, or the caller may not see into it */

/* value.c */
int may_use(struct session *s, const char *space, bool *ret);    /* the space's values; else it has been answered */
int answer_unavailable(struct session *s, const char *why, int error, bool in_doubt);
int method_get(struct session *s, const struct varlink_call *call);
int method_put(struct session *s, const struct varlink_call *call);
int method_remove(struct session *s, const struct varlink_call *call);

/* stored.c */
int method_list_stored(struct session *s, const struct varlink_call *call);

/* nodes.c */
int method_show_nodes(struct session *s, const struct varlink_call *call);

#endif
