/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the source tells, as the JSON values that the interface text (interface.c) describes.
 *
 * All return a new reference, or NULL without memory. A field that is not known is left out. Text
 * may come from a process (its command line) and need not be UTF-8; in the answer it is, and has no
 * control characters.
 */
#ifndef DLOCK_QUERY_FORMAT_H
#define DLOCK_QUERY_FORMAT_H

#include <stddef.h>

struct json_object;
struct query_event;
struct query_link;
struct query_member;
struct query_name;
struct query_node;
struct query_space;
struct query_stored;

#define FORMAT_TEXT_MAX 1024     /* bytes of a text in an answer; the rest is cut off */
#define FORMAT_COMMAND_MAX 256   /* the same, of what a process says of itself */
#define FORMAT_ADDRESSES_MAX 16  /* listed of one link */

struct json_object *format_text(const char *text, size_t max);  /* max <= FORMAT_TEXT_MAX */
struct json_object *format_node(const struct query_node *node);
struct json_object *format_member(const struct query_member *member);
struct json_object *format_space(const struct query_space *space);
struct json_object *format_link(const struct query_link *link);

/* Lists at most max waiters, and in waiterCount how many there are. */
struct json_object *format_name(const struct query_name *name, size_t max);

struct json_object *format_stored(const char *space, const char *kind, const struct query_stored *v);
struct json_object *format_event(const struct query_event *event);

#endif
