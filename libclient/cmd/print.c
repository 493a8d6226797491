/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "print.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <wchar.h>

#include <json-c/json.h>

static bool colours_wanted(void)
{
	static int wanted = -1;
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	if (wanted < 0)
		wanted = isatty(STDOUT_FILENO) && !(no && no[0]) && term && strcmp(term, "dumb") != 0;
	return wanted;
}

const char *colour_on(enum colour c)
{
	static const char *const on[N_COLOURS] = {
		[COLOUR_NONE] = "", [COLOUR_BOLD] = "\033[1m", [COLOUR_DIM] = "\033[2m",
		[COLOUR_GOOD] = "\033[32m", [COLOUR_WARN] = "\033[33m", [COLOUR_BAD] = "\033[1;31m",
	};

	return colours_wanted() ? on[c] : "";
}

const char *colour_off(enum colour c)
{
	return c != COLOUR_NONE && colours_wanted() ? "\033[0m" : "";
}

/*
 * The character at p as the text has it, UTF-8 by the JSON library's grace: 1 to 4 bytes. Anything
 * else counts as one byte.
 */
static size_t character(const unsigned char *p, wchar_t *ret)
{
	size_t n = p[0] < 0xc0 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

	*ret = n == 1 ? p[0] : p[0] & (0x7f >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80) {
			*ret = p[0];
			return 1;
		}
		*ret = *ret << 6 | (p[i] & 0x3f);
	}
	return n;
}

/* C0, DEL, C1, and what changes the direction or the line. */
static bool is_control(wchar_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

char *clean(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	char *copy = malloc(strlen(text) + 1), *to = copy;
	wchar_t c;

	if (!copy)
		abort();
	while (*p) {
		size_t n = character(p, &c);

		if (is_control(c)) {
			*to++ = '?';
		} else {
			memcpy(to, p, n);
			to += n;
		}
		p += n;
	}
	*to = '\0';
	return copy;
}

size_t text_width(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t width = 0;
	wchar_t c;
	int w;

	while (*p) {
		p += character(p, &c);
		w = wcwidth(c);
		width += w >= 0 ? (size_t)w : 1;
	}
	return width;
}

const char *span(unsigned long long ms, char *ret)
{
	unsigned long long s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;

	if (ms < 1000)
		snprintf(ret, SPAN_MAX, "%llu ms", ms);
	else if (s < 60)
		snprintf(ret, SPAN_MAX, "%llu.%llu s", s, ms % 1000 / 100);
	else if (min < 60)
		snprintf(ret, SPAN_MAX, "%llu min %llu s", min, s % 60);
	else if (h < 24)
		snprintf(ret, SPAN_MAX, "%llu h %llu min", h, min % 60);
	else
		snprintf(ret, SPAN_MAX, "%llu d %llu h", d, h % 24);
	return ret;
}

const char *user_name(uid_t uid, char *ret)
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(ret, USER_MAX, "%s", pw->pw_name);
	else
		snprintf(ret, USER_MAX, "%u", (unsigned)uid);
	return ret;
}

const char *group_name(gid_t gid, char *ret)
{
	const struct group *gr = getgrgid(gid);

	if (gr)
		snprintf(ret, USER_MAX, "%s", gr->gr_name);
	else
		snprintf(ret, USER_MAX, "%u", (unsigned)gid);
	return ret;
}

void print_json(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
					       JSON_C_TO_STRING_NOSLASHESCAPE));
}

void print_json_line(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
}

int print_done(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	if (errno == EPIPE)
		return 0;
	fprintf(stderr, "dlock: cannot write the output: %s\n", strerror(errno));
	return EX_IOERR;
}

int print_only(const char *text)
{
	fputs(text, stdout);
	return print_done();
}
