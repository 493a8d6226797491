/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes a history (docs/HISTORY.md). A line goes out in one write(2) to a file opened for appending: what a process
 * that is killed has said so far is there, and lines of several processes do not mix.
 */
#ifndef CLUSTER_HISTORY_H
#define CLUSTER_HISTORY_H

#include <stdint.h>

/* Ends the process if the file cannot be opened. `who` is kept. */
void history_open(const char *path, const char *who);

/* `format` gives more fields: "\"op\":\"wait\",\"host\":%u". The time is read here, or is `t`. */
void history_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void history_say_at(uint64_t t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "ok", "ESTALE", …: as check.py names them. */
const char *history_result(int error);

#endif
