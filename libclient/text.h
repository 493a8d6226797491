/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user calls a lock, in full: "name" is "default/name"; the first slash ends the space. */
#ifndef LIBCLIENT_TEXT_H
#define LIBCLIENT_TEXT_H

#include <stddef.h>

#include "proto/attach.h"

struct text {
	char s[ATTACH_SPACE_MAX + 1 + ATTACH_NAME_MAX + 1];
	size_t space_len, len;
};

/* -EINVAL, -ENAMETOOLONG */
int text_parse(struct text *ret, const char *user);

#endif
