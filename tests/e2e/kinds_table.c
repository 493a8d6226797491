/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>

#include "dlock.h"
#include "kinds.h"

static int with_attr(dlock_attr_t **ret, enum dlock_owner who)
{
	int r = dlock_attr_create(ret);

	if (r)
		return r;
	dlock_attr_set_wait_daemon(*ret, true);
	dlock_attr_set_owner(*ret, who);
	return 0;
}

/* --- Locks --- */

static int lock_open_as(void **ret, const char *name, enum dlock_owner who)
{
	dlock_attr_t *a;
	dlock_t *l = NULL;
	int r = with_attr(&a, who);

	if (r)
		return r;
	r = dlock_open(&l, name, a);
	dlock_attr_destroy(a);
	*ret = l;
	return r;
}

static int lock_open(void **ret, const char *name)
{
	return lock_open_as(ret, name, DLOCK_OWNER_THREAD);
}

static int process_lock_open(void **ret, const char *name)
{
	return lock_open_as(ret, name, DLOCK_OWNER_PROCESS);
}

static int lock_close(void *h)
{
	return dlock_close(h);
}

static int lock_take(void *h)
{
	return dlock_wait(h);
}

static int lock_try(void *h)
{
	return dlock_trywait(h);
}

static int lock_give(void *h)
{
	return dlock_post(h);
}

static int lock_check(void *h)
{
	return dlock_check(h);
}

static int lock_token(void *h, uint64_t *ret)
{
	return dlock_token(h, ret);
}

#define LOCK { lock_take, lock_try, lock_give, lock_check, lock_token }

const struct kind kinds[] = {
	{ "a lock", "lock", lock_open, lock_close, EBUSY, true, LOCK, LOCK },
	{ "a lock of the process", "process", process_lock_open, lock_close, EBUSY, false, LOCK, LOCK },
};
const unsigned kinds_count = sizeof kinds / sizeof *kinds;
