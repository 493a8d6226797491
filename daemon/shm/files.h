/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Small things about files in the run directory. Errors are negative errno. */
#ifndef DLOCK_FILES_H
#define DLOCK_FILES_H

#include <stdint.h>
#include <sys/types.h>

/* Opens the directory, makes it where it is missing; it must belong to us and to no other's pen. */
int files_dir(int dirfd, const char *name, mode_t mode);
int files_empty(int dirfd, const char *name);            /* removes the regular files and FIFOs in it; a missing one is empty */
int files_random(void *p, size_t n);

/* The memory for that part of a file, so that it is there when it is touched. -ENOSPC. */
int files_room(int fd, off_t at, off_t n);

/* A FIFO open for reading and writing, made where it is missing. */
int files_fifo(int dirfd, const char *name);

#endif
