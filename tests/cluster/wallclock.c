/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preloaded into a daemon: its wall clock, and nothing else, is off by the nanoseconds in the file $WALLCLOCK (a signed
 * 64 bit number, which may change at any time). So a test can step the clock of one host out of several on a machine.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;
static int (*real_clock_gettime)(clockid_t clock, struct timespec *ret);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("WALLCLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	if (p != MAP_FAILED)
		offset = p;
	if (fd >= 0)
		close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = real_clock_gettime(clock, ret);

	if (r || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return r;
	int64_t ns = (int64_t)ret->tv_sec * 1000000000 + ret->tv_nsec + *offset;
	ret->tv_sec = ns / 1000000000;
	ret->tv_nsec = ns % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec t;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &t);
	*ret = (struct timeval){ t.tv_sec, t.tv_nsec / 1000 };
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (ret)
		*ret = t.tv_sec;
	return t.tv_sec;
}
