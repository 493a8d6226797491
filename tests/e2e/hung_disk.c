/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded into a daemon: as long as there is a file $HUNG_DISK, whoever wants the new file of worker numbers on the disk waits for it,
 * as on a disk that does not answer. $HUNG_DISK.met says that somebody does.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "/ids.new"

static int is_its(int fd)
{
	char link[40], path[4096];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	if (n < (ssize_t)strlen(FILE_NAME))
		return 0;
	path[n] = 0;
	return !strcmp(path + n - strlen(FILE_NAME), FILE_NAME);
}

int fsync(int fd)
{
	int (*real)(int fd) = (int (*)(int fd))dlsym(RTLD_NEXT, "fsync");
	const char *hangs = getenv("HUNG_DISK");
	char met[4096];

	if (hangs && is_its(fd) && access(hangs, F_OK) == 0) {
		snprintf(met, sizeof met, "%s.met", hangs);
		close(open(met, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		while (access(hangs, F_OK) == 0)
			usleep(10000);
	}
	return real(fd);
}
