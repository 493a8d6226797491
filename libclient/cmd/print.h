/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Text for people. What came from elsewhere (names, command lines) never reaches a terminal with
 * control characters in it, which could move the cursor or worse.
 */
#ifndef DLOCK_CMD_PRINT_H
#define DLOCK_CMD_PRINT_H

#include <stddef.h>
#include <sys/types.h>

struct json_object;

enum colour {
	COLOUR_NONE,
	COLOUR_BOLD,
	COLOUR_DIM,
	COLOUR_GOOD,
	COLOUR_WARN,
	COLOUR_BAD,
	N_COLOURS
};

/* What to print before and behind; "" unless stdout is a terminal (and neither NO_COLOR nor TERM=dumb is set). */
const char *colour_on(enum colour c);
const char *colour_off(enum colour c);

/* A copy with '?' for each control character; freed by the caller. Never NULL: aborts without memory. */
char *clean(const char *text);

/* Columns that clean text takes on a terminal. */
size_t text_width(const char *text);

#define SPAN_MAX 40
/* "3.2 s", "2 h 5 min". ret has SPAN_MAX bytes and is returned. */
const char *span(unsigned long long ms, char *ret);

#define USER_MAX 64
const char *user_name(uid_t uid, char *ret);     /* its number where it has no name */
const char *group_name(gid_t gid, char *ret);

void print_json(struct json_object *o);          /* indented */
void print_json_line(struct json_object *o);

/* Flushes. 0, or EX_IOERR after having said why; a reader that has gone (EPIPE) is no error. */
int print_done(void);

/* Prints the text as all there is to print; returns as print_done(). */
int print_only(const char *text);

#endif
