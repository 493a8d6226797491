/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Log lines on stderr: one write(2) a line, which never waits for memory and cannot be split by
 * what it quotes (control characters become '?'). Where stderr is the journal a line begins with
 * its priority, as sd-daemon(3) has it; elsewhere with the name of the program, in colour on a
 * terminal.
 *
 * Leaf code never logs: the one who decides what an error means does. Formats are printf's, with
 * %m; no newline. Every function leaves errno alone and may be called from any thread once
 * log_open() has returned.
 */
#ifndef DLOCK_LOG_H
#define DLOCK_LOG_H

#include <stdbool.h>

#include "units.h"

enum log_level { /* syslog's priorities */
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5, /* normal, but worth knowing */
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

#define LOG_LINE_MAX 2048 /* bytes with the newline; what is longer ends in "..." */

/* ident stays the caller's. Lines above max are not written. */
void log_open(const char *ident, enum log_level max);
void log_level_set(enum log_level max);
bool log_wanted(enum log_level level);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	(log_wanted(LOG_LEVEL_DEBUG) ? log_write(LOG_LEVEL_DEBUG, __VA_ARGS__) : (void)0)

/*
 * For what others can cause at will: at most LOG_LIMIT_LINES from this place in LOG_LIMIT_SPAN; the
 * first line of the next span tells how many were left out. One thread for each place.
 */
#define LOG_LIMIT_LINES 5
#define LOG_LIMIT_SPAN (10 * NSEC_PER_SEC)

struct log_limit {
	nsec_t since;
	unsigned shown;
	unsigned hidden;
};

void log_write_limited(struct log_limit *limit, nsec_t now, enum log_level level,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

#define log_limited(now, level, ...)                                                               \
	do {                                                                                       \
		static struct log_limit log_limit_here;                                            \
		log_write_limited(&log_limit_here, now, level, __VA_ARGS__);                       \
	} while (0)

#endif
