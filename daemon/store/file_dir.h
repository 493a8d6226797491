/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state directory of an embedded store: opened once, checked, locked; small files in it are read
 * as a whole and replaced as a whole. Whoever holds a file_dir is the only daemon that does.
 *
 * Each function that fails leaves a sentence in *why: which file, what happened, what to do.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file.h"

struct file_dir {
	const struct store_file_io *io;
	struct store_why *why;
	char *path;	/* for sentences only */
	int fd, lock;
	bool broken;	/* a replacement failed past the point of no return: see file.c */
};

/* Makes the directory if it is missing. On failure file_dir_done() is still the caller's to call. */
int file_dir_open(struct file_dir *d, const char *path, const struct store_file_io *io,
		  struct store_why *why);

void file_dir_done(struct file_dir *d);

/* Removes what a crash has left of the replacement of name. */
int file_dir_tidy(struct file_dir *d, const char *name);

/*
 * Reads the file and fsyncs it, so that a power cut leaves what was read. *ret is for free().
 * -ENOENT: there is none, which is no failure yet and has no sentence.
 */
int file_dir_read(struct file_dir *d, const char *name, uint8_t **ret, size_t *ret_size);

/*
 * Replaces the file durably. On failure the old one is still there, unless broken has been set: then
 * it may be either.
 */
int file_dir_replace(struct file_dir *d, const char *name, const void *data, size_t size);

/* Makes the sentence "PATH/name: …" (name NULL: the directory's own) and returns error. */
__attribute__((format(printf, 4, 5)))
int file_dir_say(struct file_dir *d, int error, const char *name, const char *format, ...);

/* The same for a system call that failed: "cannot WHAT: …", with the advice that fits the error. */
int file_dir_fail(struct file_dir *d, int error, const char *name, const char *what);
