/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bytes as text (RFC 4648, section 4, with padding), as the query socket carries values. */
#ifndef DLOCK_BASE64_H
#define DLOCK_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes BASE64_LEN(n) characters and a zero. */
static inline void base64_encode(const void *data, size_t n, char *ret)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = data;

	for (; n; p += 3) {
		size_t left = n < 3 ? n : 3;
		uint32_t v = (uint32_t)p[0] << 16 | (left > 1 ? (uint32_t)p[1] << 8 : 0) | (left > 2 ? p[2] : 0);

		*ret++ = digits[v >> 18];
		*ret++ = digits[v >> 12 & 63];
		*ret++ = left > 1 ? digits[v >> 6 & 63] : '=';
		*ret++ = left > 2 ? digits[v & 63] : '=';
		n -= left;
	}
	*ret = 0;
}

static inline int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* At most len / 4 * 3 bytes to ret. How many; -1: it is none. */
static inline long base64_decode(const char *text, size_t len, void *ret)
{
	uint8_t *to = ret;

	if (len % 4)
		return -1;
	for (size_t i = 0; i < len; i += 4) {
		size_t pad = i + 4 < len ? 0 : (size_t)(text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=');
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = k < 4 - pad ? base64_digit(text[i + k]) : 0;

			if (d < 0)
				return -1;
			v = v << 6 | (uint32_t)d;
		}
		if ((pad == 1 && v & 0xff) || (pad == 2 && v & 0xffff))
			return -1;
		*to++ = (uint8_t)(v >> 16);
		if (pad < 2)
			*to++ = (uint8_t)(v >> 8);
		if (!pad)
			*to++ = (uint8_t)v;
	}
	return to - (uint8_t *)ret;
}

#endif
