/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "attr.h"

#define TEXT(x)  #x
#define TEXT2(x) TEXT(x)

const char *dlock_version(void)
{
	return TEXT2(DLOCK_VERSION_MAJOR) "." TEXT2(DLOCK_VERSION_MINOR) "." TEXT2(DLOCK_VERSION_PATCH);
}

int dlock_attr_create(dlock_attr_t **ret)
{
	int saved = errno;
	struct dlock_attr *a;

	if (!ret)
		return EINVAL;
	a = malloc(sizeof *a);
	errno = saved;
	if (!a)
		return ENOMEM;
	*a = (struct dlock_attr)ATTR_DEFAULT;
	*ret = a;
	return 0;
}

void dlock_attr_destroy(dlock_attr_t *a)
{
	free(a);
}

int dlock_attr_set_robust(dlock_attr_t *a, bool on)
{
	a->robust = on;
	return 0;
}

int dlock_attr_set_recursive(dlock_attr_t *a, bool on)
{
	a->recursive = on;
	return 0;
}

int dlock_attr_set_owner(dlock_attr_t *a, enum dlock_owner who)
{
	if (who != DLOCK_OWNER_THREAD && who != DLOCK_OWNER_PROCESS)
		return EINVAL;
	a->owner = who;
	return 0;
}

int dlock_attr_set_failfast(dlock_attr_t *a, bool on)
{
	a->failfast = on;
	return 0;
}

int dlock_attr_set_wait_daemon(dlock_attr_t *a, bool on)
{
	a->wait_daemon = on;
	return 0;
}

int dlock_attr_set_try_ms(dlock_attr_t *a, unsigned ms)
{
	a->try_ms = ms;
	return 0;
}

int dlock_attr_set_delay_ms(dlock_attr_t *a, unsigned ms)
{
	if (ms > DLOCK_DELAY_MAX)
		return EINVAL;
	a->delay_ms = ms;
	return 0;
}

int dlock_attr_set_priority(dlock_attr_t *a, unsigned p)
{
	if (p > 255)
		return EINVAL;
	a->priority = p;
	return 0;
}

int dlock_attr_set_onloss(dlock_attr_t *a, int signo)
{
	if (signo < 0 || signo > SIGRTMAX || (signo > SIGSYS && signo < SIGRTMIN))     /* the C library keeps some for itself */
		return EINVAL;
	a->onloss = signo;
	return 0;
}

int dlock_attr_set_free(dlock_attr_t *a, bool on)
{
	a->free = on;
	return 0;
}
