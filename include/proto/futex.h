/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * futex(2) on words that several processes share. Errors are negative errno; the caller's errno
 * stays as it was.
 */
#ifndef DLOCK_FUTEX_H
#define DLOCK_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Sleeps while *word is expect, at most until the absolute time of that clock (NULL: for ever).
 * 0: woken. -EAGAIN: *word differs. -ETIMEDOUT, -EINTR: and then no wake-up was consumed.
 */
static inline int futex_wait_class(uint32_t *word, uint32_t expect, unsigned class,
				   clockid_t clock, const struct timespec *until)
{
	int op = FUTEX_WAIT_BITSET | (clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0);
	int saved = errno;
	int r = (int)syscall(SYS_futex, word, op, expect, until, NULL, class);

	if (r < 0) {
		r = -errno;
		errno = saved;
	}
	return r;
}

/* Wakes up to n sleepers of the class; returns how many, 0 also where the word is no memory. */
static inline int futex_wake_class(uint32_t *word, int n, unsigned class)
{
	int saved = errno;
	int r = (int)syscall(SYS_futex, word, FUTEX_WAKE_BITSET, n, NULL, NULL, class);

	if (r < 0) {
		errno = saved;
		r = 0;
	}
	return r;
}

/*
 * How many sleep on *word, all classes, without waking them: a requeue to where they are. Negative
 * where that cannot be said: *word is not expect.
 */
static inline int futex_sleepers(uint32_t *word, uint32_t expect)
{
	int saved = errno;
	int r = (int)syscall(SYS_futex, word, FUTEX_CMP_REQUEUE, 0, (void *)(uintptr_t)INT_MAX, word, expect);

	if (r < 0) {
		r = -errno;
		errno = saved;
	}
	return r;
}

#endif
