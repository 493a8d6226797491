/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cgroup.kill ends all members at once, also those that fork faster than one can look. But control
 * groups have one writer: we make one below our own only where the service manager has said that this
 * part is ours, by the attribute "delegate" (https://systemd.io/CGROUP_DELEGATION). Everywhere else,
 * and whenever anything fails, there is none, and the family's way is the only one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "run.h"

/* Where cgroup2 is mounted as a whole. */
static bool mount_point(char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096], root[PATH_MAX], at[PATH_MAX];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *type = strstr(line, " - ");

		found = type && strncmp(type, " - cgroup2 ", 11) == 0 &&
			sscanf(line, "%*d %*d %*s %4095s %4095s", root, at) == 2 && strcmp(root, "/") == 0 &&
			(size_t)snprintf(ret, size, "%s", at) < size;
	}
	if (f)
		fclose(f);
	return found;
}

/* Our own, as a path below the mount point. */
static bool own_path(char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[4096];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		found = strncmp(line, "0::/", 4) == 0 && !strstr(line, "/..") &&
			(size_t)snprintf(ret, size, "%s", line + 3) < size;
	}
	if (f)
		fclose(f);
	return found;
}

static bool delegated(int dir)
{
	char yes = 0;

	return (fgetxattr(dir, "trusted.delegate", &yes, 1) == 1 || fgetxattr(dir, "user.delegate", &yes, 1) == 1) &&
	       yes == '1';
}

static int own_open(void)
{
	char at[PATH_MAX], own[PATH_MAX], path[2 * PATH_MAX];
	int dir;

	if (!mount_point(at, sizeof(at)) || !own_path(own, sizeof(own)))
		return -1;
	snprintf(path, sizeof(path), "%s%s", at, own);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0 && delegated(dir))
		return dir;
	if (dir >= 0)
		close(dir);
	return -1;
}

void run_cgroup_make(struct run_cgroup *c)
{
	*c = (struct run_cgroup) { .parent = own_open(), .dir = -1 };
	if (c->parent < 0)
		return;
	snprintf(c->name, sizeof(c->name), "dlock-run-%d", (int)getpid());
	/* One that is there already was left by a process that had our id. In use, it stays, and is not ours. */
	unlinkat(c->parent, c->name, AT_REMOVEDIR);
	if (mkdirat(c->parent, c->name, 0755) == 0)
		c->dir = openat(c->parent, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir < 0) {
		close(c->parent);
		c->parent = -1;
	} else if (faccessat(c->dir, "cgroup.kill", W_OK, 0) < 0) {
		run_cgroup_remove(c);
	}
}

static void put(int dir, const char *file, const char *text)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		errno = 0;               /* then the family's way has to do */
	close(fd);
}

void run_cgroup_join(const struct run_cgroup *c)
{
	if (c->dir >= 0)
		put(c->dir, "cgroup.procs", "0");
}

void run_cgroup_kill(const struct run_cgroup *c)
{
	if (c->dir >= 0)
		put(c->dir, "cgroup.kill", "1");
}

void run_cgroup_remove(struct run_cgroup *c)
{
	if (c->parent < 0)
		return;
	if (c->dir >= 0)
		close(c->dir);
	unlinkat(c->parent, c->name, AT_REMOVEDIR);
	close(c->parent);
	*c = (struct run_cgroup) { .parent = -1, .dir = -1 };
}
