/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The model of a disk: a file's data are safe after its fsync; a rename is safe after an fsync of
 * the directory (or syncfs). A power cut empties a file that was renamed with unsafe data, and takes
 * back an unsafe rename. It is crueler than most file systems, as POSIX allows it to be.
 */
#include "store_faults.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_MAX 60	/* bytes a step */

struct fault fault;

/* What is not safe yet. */
static struct {
	char dir[200], name[64], saved[256];
	bool data, renamed, renamed_data, had_old;
} unsafe;

void fault_set(enum fault_kind kind, long at, int error, const char *dir)
{
	fault = (struct fault){ .kind = kind, .at = at, .error = error };
	memset(&unsafe, 0, sizeof unsafe);
	snprintf(unsafe.dir, sizeof unsafe.dir, "%s", dir);
	snprintf(unsafe.saved, sizeof unsafe.saved, "%s.saved", dir);
	unlink(unsafe.saved);
}

void fault_power_cut(int exit_code)
{
	char path[300];

	snprintf(path, sizeof path, "%s/%s", unsafe.dir, unsafe.name);
	if (unsafe.renamed_data && truncate(path, 0) < 0)
		_exit(1);
	if (unsafe.renamed && (unsafe.had_old ? rename(unsafe.saved, path) : unlink(path)) < 0)
		_exit(1);
	_exit(exit_code);
}

/* One step begins. True: it is to fail, errno says how. */
static bool step(const char *call)
{
	if (++fault.steps != fault.at)
		return false;
	fault.hit = call;
	if (fault.kind == FAULT_EXIT_BEFORE)
		_exit(FAULT_EXIT_CODE);
	if (fault.kind == FAULT_POWER_BEFORE)
		fault_power_cut(FAULT_EXIT_CODE);
	errno = fault.error;
	return fault.kind == FAULT_ERROR;
}

static void step_end(void)
{
	if (fault.steps != fault.at)
		return;
	if (fault.kind == FAULT_EXIT_AFTER)
		_exit(FAULT_EXIT_CODE);
	if (fault.kind == FAULT_POWER_AFTER)
		fault_power_cut(FAULT_EXIT_CODE);
}

static int fault_mkdir(const char *path, mode_t mode)
{
	int r;

	if (step("mkdir"))
		return -1;
	r = mkdir(path, mode);
	step_end();
	return r;
}

static int fault_openat(int dir, const char *name, int flags, mode_t mode)
{
	int r;

	if (step("openat"))
		return -1;
	r = openat(dir, name, flags, mode);
	step_end();
	return r;
}

static int fault_flock(int fd, int how)
{
	int r;

	if (step("flock"))
		return -1;
	r = flock(fd, how);
	step_end();
	return r;
}

static ssize_t fault_read(int fd, void *buf, size_t size)
{
	ssize_t r;

	if (step("read"))
		return -1;
	r = read(fd, buf, size < WRITE_MAX ? size : WRITE_MAX);
	step_end();
	return r;
}

static ssize_t fault_write(int fd, const void *buf, size_t size)
{
	ssize_t r;

	if (step("write"))
		return -1;
	r = write(fd, buf, size < WRITE_MAX ? size : WRITE_MAX);
	unsafe.data = true;
	step_end();
	return r;
}

static int fault_fsync(int fd)
{
	struct stat st;
	int r;

	if (step("fsync"))
		return -1;
	r = fsync(fd);
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		unsafe.renamed = false;
	else
		unsafe.data = unsafe.renamed_data = false;
	step_end();
	return r;
}

static int fault_syncfs(int fd)
{
	(void)fd;	/* the machine that runs the tests has better things to do */
	if (step("syncfs"))
		return -1;
	unsafe.data = unsafe.renamed = unsafe.renamed_data = false;
	step_end();
	return 0;
}

static int fault_renameat(int old_dir, const char *old_name, int new_dir, const char *new_name)
{
	int r;

	if (step("renameat"))
		return -1;
	unlink(unsafe.saved);
	unsafe.had_old = linkat(new_dir, new_name, AT_FDCWD, unsafe.saved, 0) == 0;
	snprintf(unsafe.name, sizeof unsafe.name, "%s", new_name);
	r = renameat(old_dir, old_name, new_dir, new_name);
	unsafe.renamed = true;
	unsafe.renamed_data = unsafe.data;
	step_end();
	return r;
}

static int fault_unlinkat(int dir, const char *name, int flags)
{
	int r;

	if (step("unlinkat"))
		return -1;
	r = unlinkat(dir, name, flags);
	step_end();
	return r;
}

const struct store_file_io fault_io = {
	.mkdir = fault_mkdir,
	.openat = fault_openat,
	.flock = fault_flock,
	.read = fault_read,
	.write = fault_write,
	.fsync = fault_fsync,
	.syncfs = fault_syncfs,
	.renameat = fault_renameat,
	.unlinkat = fault_unlinkat,
};
