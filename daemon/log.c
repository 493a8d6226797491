/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

static struct {
	const char *ident;
	enum log_level max;
	bool journal;
	bool colours;
} log_state = {.ident = "dlockd", .max = LOG_LEVEL_INFO};

/*
 * systemd.exec(5): JOURNAL_STREAM names device and inode of the journal's socket; stderr may have
 * been redirected since.
 */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%ju:%ju", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_open(const char *ident, enum log_level max)
{
	int saved = errno;

	log_state.ident = ident;
	log_state.max = max;
	log_state.journal = stderr_is_journal();
	log_state.colours = !log_state.journal && isatty(STDERR_FILENO);
	errno = saved;
}

void log_level_set(enum log_level max)
{
	log_state.max = max;
}

bool log_wanted(enum log_level level)
{
	return level <= log_state.max;
}

static const char *level_text(enum log_level level, bool colours)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return colours ? "\033[1;31merror:\033[0m " : "error: ";
	case LOG_LEVEL_WARNING:
		return colours ? "\033[1;33mwarning:\033[0m " : "warning: ";
	case LOG_LEVEL_DEBUG:
		return colours ? "\033[2mdebug:\033[0m " : "debug: ";
	case LOG_LEVEL_NOTICE:
	case LOG_LEVEL_INFO:
		break;
	}
	return "";
}

struct line {
	char text[LOG_LINE_MAX];
	size_t len; /* LOG_LINE_MAX or more: it did not fit */
};

static void line_add_args(struct line *line, const char *format, va_list args)
{
	size_t room = line->len < sizeof(line->text) ? sizeof(line->text) - line->len : 0;
	int n = room > 0 ? vsnprintf(line->text + line->len, room, format, args) : 0;

	if (n > 0)
		line->len += (size_t)n;
}

static void __attribute__((format(printf, 2, 3)))
line_add(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line_add_args(line, format, args);
	va_end(args);
}

/* Returns where the message begins; what stands before it is ours, colours included. */
static size_t line_begin(struct line *line, enum log_level level)
{
	line->len = 0;
	if (log_state.journal)
		line_add(line, "<%d>", level);
	else
		line_add(line, "%s: %s", log_state.ident, level_text(level, log_state.colours));
	return line->len < sizeof(line->text) ? line->len : sizeof(line->text) - 1;
}

static void line_write(struct line *line, size_t message)
{
	if (line->len >= sizeof(line->text)) {
		memcpy(line->text + sizeof(line->text) - 4, "...", 3);
		line->len = sizeof(line->text) - 1;
	}
	for (size_t i = message; i < line->len; i++)
		if ((unsigned char)line->text[i] < ' ' || line->text[i] == '\177')
			line->text[i] = '?';
	line->text[line->len++] = '\n';
	/* There is nobody to tell that stderr does not take it. */
	while (write(STDERR_FILENO, line->text, line->len) < 0 && errno == EINTR)
		;
}

void log_write(enum log_level level, const char *format, ...)
{
	int saved = errno;
	struct line line;
	size_t message;
	va_list args;

	if (!log_wanted(level))
		return;
	message = line_begin(&line, level);
	errno = saved;
	va_start(args, format);
	line_add_args(&line, format, args);
	va_end(args);
	line_write(&line, message);
	errno = saved;
}

/* Whether a line may go out now; *ret_hidden is how many before it did not. */
static bool limit_pass(struct log_limit *limit, nsec_t now, unsigned *ret_hidden)
{
	if (limit->shown == 0 || now - limit->since >= LOG_LIMIT_SPAN) {
		*ret_hidden = limit->hidden;
		*limit = (struct log_limit){.since = now, .shown = 1};
		return true;
	}
	if (limit->shown == LOG_LIMIT_LINES) {
		limit->hidden++;
		return false;
	}
	limit->shown++;
	*ret_hidden = 0;
	return true;
}

void log_write_limited(
	struct log_limit *limit, nsec_t now, enum log_level level, const char *format, ...)
{
	int saved = errno;
	struct line line;
	unsigned hidden;
	size_t message;
	va_list args;

	if (!log_wanted(level) || !limit_pass(limit, now, &hidden))
		return;
	message = line_begin(&line, level);
	if (hidden > 0)
		line_add(&line, "(%u like this were left out) ", hidden);
	errno = saved;
	va_start(args, format);
	line_add_args(&line, format, args);
	va_end(args);
	line_write(&line, message);
	errno = saved;
}
