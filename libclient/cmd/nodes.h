/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who has a name in the whole cluster: what the node that grants it knows. */
#ifndef DLOCK_CMD_NODES_H
#define DLOCK_CMD_NODES_H

#include <stdbool.h>

struct json_object;

/*
 * 0, or an exit code after it has been said why. *ret: ShowNodes' answer; NULL: there is none: this node is alone, the caller may not ask, no node grants
 * names of that kind, or (*ret_silent) the one that does is not reached or does not answer.
 */
int nodes_ask(const char *name, const char *kind, struct json_object **ret, bool *ret_silent);

/* Likewise, of any kind that nodes grant, or this one: *ret NULL also if no node has it open. *ret_kind is which. */
int nodes_find(const char *name, const char *kind, struct json_object **ret, const char **ret_kind, bool *ret_silent);

void nodes_print(struct json_object *nodes);

#endif
