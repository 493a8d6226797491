/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * <dlock/semaphore.h>: free semaphores in the manner of POSIX. A process that opens one name again gets the same address, as
 * POSIX wants it, until it has closed it as often.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "dlock/semaphore.h"
#include "pool.h"
#include "sem.h"
#include "thread.h"

struct dlock_posix_sem {
	dlock_sem_t *sem;
	struct dlock_posix_sem *next;
	unsigned opens;
};

static struct dlock_posix_sem *sems;     /* under lib */

static int failed(int error)
{
	if (error)
		errno = error;
	return error ? -1 : 0;
}

/* "/name" is "name". */
static const char *plain(const char *name)
{
	while (name && *name == '/')
		name++;
	return name;
}

static struct dlock_posix_sem *find(const dlock_sem_t *s)
{
	struct dlock_posix_sem *p = sems;

	while (p && p->sem->h.name != s->h.name)
		p = p->next;
	return p;
}

/* The one that this process has of it, with one open more: then s is not needed; else a new one, of s. NULL: no memory. */
static struct dlock_posix_sem *keep(dlock_sem_t *s)
{
	struct dlock_posix_sem *made = calloc(1, sizeof *made), *p;

	lib_lock();
	p = find(s);
	if (!p && made) {
		*made = (struct dlock_posix_sem){ .sem = s, .next = sems };
		sems = p = made;
		made = NULL;
	}
	if (p)
		p->opens++;
	lib_unlock();
	free(made);
	return p;
}

dlock_posix_sem_t *dlock_posix_sem_open(const char *name, int oflag, ...)
{
	enum pool_box how = !(oflag & O_CREAT) ? POOL_BOX_OPEN : oflag & O_EXCL ? POOL_BOX_CREATE_NEW : POOL_BOX_CREATE;
	struct dlock_posix_sem *p;
	unsigned value = 0;
	dlock_sem_t *s;
	va_list args;
	int r;

	if (oflag & O_CREAT) {
		va_start(args, oflag);
		(void)va_arg(args, unsigned);    /* mode_t, promoted */
		value = va_arg(args, unsigned);
		va_end(args);
	}
	r = value > POOL_VALUE_MAX ? EINVAL : pool_open(&s, plain(name), NULL, how, value);
	if (r) {
		failed(r);
		return DLOCK_POSIX_SEM_FAILED;
	}
	p = keep(s);
	if (!p || p->sem != s)
		dlock_sem_close(s);
	if (!p)
		failed(ENOMEM);
	return p;
}

int dlock_posix_sem_close(dlock_posix_sem_t *sem)
{
	struct dlock_posix_sem **at;
	bool last;

	lib_lock();
	for (at = &sems; *at && *at != sem; at = &(*at)->next)
		;
	if (!*at) {
		lib_unlock();
		return failed(EINVAL);
	}
	last = --sem->opens == 0;
	if (last)
		*at = sem->next;
	lib_unlock();
	if (last) {
		dlock_sem_close(sem->sem);
		free(sem);
	}
	return 0;
}

int dlock_posix_sem_unlink(const char *name)
{
	return failed(dlock_sem_unlink(plain(name)));
}

int dlock_posix_sem_wait(dlock_posix_sem_t *sem)
{
	return failed(dlock_sem_wait(sem->sem));
}

int dlock_posix_sem_trywait(dlock_posix_sem_t *sem)
{
	return failed(dlock_sem_trywait(sem->sem));
}

int dlock_posix_sem_timedwait(dlock_posix_sem_t *sem, const struct timespec *abs)
{
	return failed(dlock_sem_timedwait(sem->sem, abs));
}

int dlock_posix_sem_clockwait(dlock_posix_sem_t *sem, clockid_t clock, const struct timespec *abs)
{
	return failed(dlock_sem_clockwait(sem->sem, clock, abs));
}

int dlock_posix_sem_post(dlock_posix_sem_t *sem)
{
	return failed(dlock_sem_post(sem->sem));
}

int dlock_posix_sem_getvalue(dlock_posix_sem_t *sem, int *ret)
{
	return failed(dlock_sem_getvalue(sem->sem, ret));
}
