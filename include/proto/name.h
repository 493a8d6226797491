/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a space and a name may be called. Both sides check: the library to say EINVAL at once, the
 * daemon since it believes nobody, and shows names on terminals and in JSON.
 */
#ifndef DLOCK_NAME_H
#define DLOCK_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "attach.h"

/* Space, a byte between, name: by what the cluster knows it. */
#define NAME_KEY_MAX (ATTACH_SPACE_MAX + 1 + ATTACH_NAME_MAX)

/* 1 to 64 of A-Z a-z 0-9 _ - */
static inline bool space_name_valid(const char *s, size_t n)
{
	if (n < 1 || n > ATTACH_SPACE_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = s[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '-'))
			return false;
	}
	return true;
}

/* The length of the UTF-8 sequence at s, or 0: overlong, surrogate, beyond U+10FFFF, cut off. */
static inline size_t utf8_sequence(const uint8_t *s, size_t n)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 :
		     s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return len;
}

/* 1 to 255 bytes of UTF-8 without control characters (C0, DEL, C1). */
static inline bool object_name_valid(const char *name, size_t n)
{
	const uint8_t *s = (const uint8_t *)name;

	if (n < 1 || n > ATTACH_NAME_MAX)
		return false;
	for (size_t i = 0, len; i < n; i += len) {
		len = utf8_sequence(s + i, n - i);
		if (!len || s[i] < 0x20 || s[i] == 0x7f || (s[i] == 0xc2 && s[i + 1] < 0xa0))
			return false;
	}
	return true;
}

/* "space/name", or "name" in the space default. false: it cannot be one. */
static inline bool name_split(const char *full, char space[ATTACH_SPACE_MAX + 1], char name[ATTACH_NAME_MAX + 1])
{
	const char *slash = strchr(full, '/'), *rest = slash ? slash + 1 : full;
	size_t n = strlen(rest), n_space = slash ? (size_t)(slash - full) : 0;

	if ((slash && !space_name_valid(full, n_space)) || !object_name_valid(rest, n))
		return false;
	if (slash)
		memcpy(space, full, n_space);
	space[n_space] = '\0';
	if (!slash)
		strcpy(space, "default");
	memcpy(name, rest, n + 1);
	return true;
}

#endif
