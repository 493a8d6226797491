/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "key.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../core/siphash.h"

static bool plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

/* The seeds are fixed: who finds two names of one hash has found them for his own space only. */
static void hashed(const char *name, size_t len, char ret[THING_NAME_MAX + 1])
{
	static const uint64_t seeds[2][2] = {
		{ UINT64_C(0x646c6f636b2d6f6e), UINT64_C(0x652d6f662d74776f) },
		{ UINT64_C(0x646c6f636b2d7477), UINT64_C(0x6f2d6f662d74776f) },
	};

	snprintf(ret, THING_NAME_MAX + 1, "%%~%016" PRIx64 "%016" PRIx64, siphash13(seeds[0], name, len), siphash13(seeds[1], name, len));
}

static void escaped(const char *name, size_t len, char ret[THING_NAME_MAX + 1])
{
	size_t at = 0;

	for (size_t i = 0; i < len; i++) {
		size_t need = plain(name[i]) ? 1 : 3;

		if (at + need > THING_NAME_MAX) {
			hashed(name, len, ret);
			return;
		}
		if (need == 1)
			ret[at] = name[i];
		else
			snprintf(ret + at, 4, "%%%02X", (unsigned)(unsigned char)name[i]);
		at += need;
	}
	ret[at] = 0;
}

void thing_key(const char *prefix, const char *space, const char *name, size_t len, char ret[STORE_KEY_MAX + 1])
{
	char text[THING_NAME_MAX + 1];
	int n;

	escaped(name, len, text);
	n = snprintf(ret, STORE_KEY_MAX + 1, "%s%s/%s", prefix, space, text);
	assert(n > 0 && n <= STORE_KEY_MAX - 8); /* room for a worker's number */
	(void)n;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool thing_name(const char *text, char ret[THING_NAME_MAX + 1])
{
	size_t at = 0;

	for (; *text; text++) {
		int high, low;

		if (at == THING_NAME_MAX)
			return false;
		if (plain(*text)) {
			ret[at++] = *text;
			continue;
		}
		high = *text == '%' ? digit(text[1]) : -1;
		low = high >= 0 ? digit(text[2]) : -1;
		if (low < 0 || (high | low) == 0)
			return false;
		ret[at++] = (char)(high << 4 | low);
		text += 2;
	}
	ret[at] = 0;
	return at;
}
