/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Named POSIX semaphores that span hosts: the signatures and the error style (-1 and errno) of <semaphore.h>, each name with
 * dlock_posix_ before it. Link with -ldlock. A program that was written for sem_open() is converted by the compiler:
 *
 *     cc -DDLOCK_POSIX_RENAME -include dlock/semaphore.h program.c -ldlock
 *
 * What they are: semaphores with the attribute "free" (dlock.h), whose permits belong to nobody. The value outlives all its
 * users, and the hosts, until it is unlinked.
 *
 * Names: "/name" is "name" in the space "default"; "/space/name" names the space too.
 *
 * Where they differ from POSIX:
 *   - EINTR is never returned, and no call is a cancellation point.
 *   - mode is of no use: the space says who may use it.
 *   - a semaphore that was unlinked stays the same one for those who have it open, also where it is made anew under its
 *     name before they have closed it.
 *   - the value of a host that dies is that of about a second before.
 *   - sem_post() may be called in a signal handler, once the process has used the semaphore (a child after fork() anew).
 *   - sem_init() has no counterpart.
 */
#ifndef DLOCK_SEMAPHORE_H
#define DLOCK_SEMAPHORE_H

#include <fcntl.h>
#include <sys/types.h>
#include <time.h>

#ifdef DLOCK_POSIX_RENAME
#include <semaphore.h>                   /* before the names are others */
#endif

#include <dlock.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct dlock_posix_sem dlock_posix_sem_t;

#define DLOCK_POSIX_SEM_FAILED ((dlock_posix_sem_t *)0)

/* With O_CREAT: mode_t mode, unsigned value. EINVAL: not a name; ENOTCONN: there is no daemon; else as sem_open(3). */
dlock_posix_sem_t *dlock_posix_sem_open(const char *name, int oflag, ...);
int dlock_posix_sem_close(dlock_posix_sem_t *sem);
int dlock_posix_sem_unlink(const char *name);
int dlock_posix_sem_wait(dlock_posix_sem_t *sem);
int dlock_posix_sem_trywait(dlock_posix_sem_t *sem);
int dlock_posix_sem_timedwait(dlock_posix_sem_t *sem, const struct timespec *abs);
int dlock_posix_sem_clockwait(dlock_posix_sem_t *sem, clockid_t clock, const struct timespec *abs);
int dlock_posix_sem_post(dlock_posix_sem_t *sem);
int dlock_posix_sem_getvalue(dlock_posix_sem_t *sem, int *ret);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#ifdef DLOCK_POSIX_RENAME
#undef SEM_FAILED
#define SEM_FAILED    DLOCK_POSIX_SEM_FAILED
#define sem_t         dlock_posix_sem_t
#define sem_open      dlock_posix_sem_open
#define sem_close     dlock_posix_sem_close
#define sem_unlink    dlock_posix_sem_unlink
#define sem_wait      dlock_posix_sem_wait
#define sem_trywait   dlock_posix_sem_trywait
#define sem_timedwait dlock_posix_sem_timedwait
#define sem_clockwait dlock_posix_sem_clockwait
#define sem_post      dlock_posix_sem_post
#define sem_getvalue  dlock_posix_sem_getvalue
#endif

#endif
