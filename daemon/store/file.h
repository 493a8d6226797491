/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store: one small file, for one node without a consensus service. Every request
 * completes before its function returns; a write takes as long as the disk needs for two fsyncs.
 */
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include "store.h"

#define STORE_FILE_SIZE_MAX	(16 * 1024 * 1024)	/* bytes, all together; -EFBIG beyond */
#define STORE_FILE_RECORDS_MAX	65536			/* -EFBIG beyond */

/* What store_file_open() finds, each with a number and a sentence of its own. */
#define STORE_FILE_EBUSY	(-EBUSY)		/* another daemon uses the directory */
#define STORE_FILE_EPERM	(-EPERM)		/* owner or mode lets others write here */
#define STORE_FILE_ELOOP	(-ELOOP)		/* a symbolic link */
#define STORE_FILE_EMISSING	(-ENOMEDIUM)		/* no store, but this is not a first start */
#define STORE_FILE_EFOREIGN	(-EMEDIUMTYPE)		/* not a dlock store at all */
#define STORE_FILE_ENEWER	(-EPROTONOSUPPORT)	/* a format of a newer release */
#define STORE_FILE_ESHORT	(-ENODATA)		/* truncated, or empty */
#define STORE_FILE_ETORN	(-EBADMSG)		/* the checksum does not fit */
#define STORE_FILE_EMALFORMED	(-EUCLEAN)		/* the checksum fits, the contents do not */
#define STORE_FILE_ESWAPPED	(-EXDEV)		/* whole, but the store of another directory */

/* Every system call that can fail on a bad disk, so that a test can make each of them fail. */
struct store_file_io {
	int (*mkdir)(const char *path, mode_t mode);
	int (*openat)(int dir, const char *name, int flags, mode_t mode);
	int (*flock)(int fd, int how);
	ssize_t (*read)(int fd, void *buf, size_t size);
	ssize_t (*write)(int fd, const void *buf, size_t size);
	int (*fsync)(int fd);
	int (*syncfs)(int fd);
	int (*renameat)(int old_dir, const char *old_name, int new_dir, const char *new_name);
	int (*unlinkat)(int dir, const char *name, int flags);
};

extern const struct store_file_io store_file_io_system;

/*
 * Opens the store in the directory path; makes both at the first start (the directory's parent must
 * exist). io NULL: the system's. On failure: the error, *ret untouched, and in *why the sentence that
 * says which file it was and what to do. Opening never replaces or resets anything that exists.
 *
 * Files of a node that tell that it has been started before, an `identity` for one, must be written
 * after this has succeeded: without the store beside them they make the next start fail with
 * STORE_FILE_EMISSING.
 */
int store_file_open(const char *path, const struct store_file_io *io, struct store **ret,
		    struct store_why *why);

/* For status and tests. */
struct store_file_info {
	char uuid[37];		/* of this store, made at its first start */
	uint64_t revision;	/* rises with every change */
	size_t records;
	bool broken;		/* an fsync failed after the point of no return: no more writes */
};

void store_file_info(const struct store *s, struct store_file_info *ret);
