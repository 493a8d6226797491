/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Handles: their opening and closing, and what becomes of them when a thread or the process changes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"
#include "handle.h"
#include "read.h"
#include "soon.h"
#include "thread.h"

#define RETRY_NS UINT64_C(50000000)

static int handle_attach(struct dlock *l, const char *name)
{
	int r;

	attach_lock(&limit_none);
	l->soon = l->kind == KIND_LOCK && soon_expected() && !attach_wanted();
	r = name_join(l, name);
	if (r == 0) {
		r = name_attach(l, &limit_none);
		if (r < 0)
			name_leave(l);
	}
	l->soon = false;
	if (r == 0 && l->kind == KIND_LOCK)
		soon_opened(l);
	attach_unlock();
	return r;
}

/* *l is zeroed. */
static int handle_begin(struct dlock *l, const char *name, const struct dlock_attr *attr, enum kind kind, uint32_t arg)
{
	static const struct dlock_attr plain = ATTR_DEFAULT;
	uint32_t serial;
	int r = thread_register(&serial);

	if (r < 0)
		return -r;
	l->attr = attr ? *attr : plain;
	l->kind = kind;
	l->arg = arg;
	l->hint.fd = -1;
	binding_close(l);
	do {
		r = handle_attach(l, name);
	} while (r == -ENOTCONN && l->attr.wait_daemon && limit_nap(&limit_none, RETRY_NS) == 0);
	return -r;
}

int handle_open(void **ret, size_t size, const char *name, const struct dlock_attr *attr, enum kind kind, uint32_t arg,
		void (*wake)(struct dlock *))
{
	int saved = errno, r = ENOMEM;
	struct dlock *l = aligned_alloc(_Alignof(struct dlock), size);

	if (l) {
		memset(l, 0, size);
		r = handle_begin(l, name, attr, kind, arg);
	}
	if (r == 0) {
		l->wake = wake;
		*ret = l;
	} else {
		free(l);
	}
	errno = saved;
	return r;
}

int dlock_open(dlock_t **ret, const char *name, const dlock_attr_t *attr)
{
	void *l;
	int r = ret ? handle_open(&l, sizeof(struct dlock), name, attr, KIND_LOCK, 0, NULL) : EINVAL;

	if (r == 0)
		*ret = l;
	return r;
}

static bool handle_busy(const struct dlock *l)
{
	for (int i = 0; i < 2; i++)
		if (__atomic_load_n(&l->waits[i], __ATOMIC_ACQUIRE))
			return true;
	for (const struct binding *b = l->bindings; b; b = b->older)
		if (binding_hold(b) == HOLD_GOOD)
			return true;
	return false;
}

/* Also shared. What was lost is nobody's any more. */
static bool handle_held_shared(const struct dlock *l)
{
	bool busy;

	lib_lock();
	busy = read_busy(l);
	if (!busy)
		read_closed(l);
	lib_unlock();
	return busy;
}

int handle_close(struct dlock *l)
{
	int saved = errno;
	uint32_t serial;

	if (!l)
		return 0;
	if (thread_register(&serial) < 0) {
		errno = saved;
		return ENOMEM;
	}
	attach_lock(&limit_none);
	if (handle_busy(l) || handle_held_shared(l)) {
		attach_unlock();
		errno = saved;
		return EBUSY;
	}
	hint_done(l);
	soon_closes(l);
	name_leave(l);
	attach_unlock();
	free(l);
	errno = saved;
	return 0;
}

int dlock_close(dlock_t *l)
{
	return handle_close(l);
}

const char *dlock_name(const dlock_t *l)
{
	return l->name->text;
}

/* --- Fork, loss, the end of a thread --- */

static void handle_child(struct dlock *l, uint32_t unused)
{
	(void)unused;
	binding_child(l);
	l->waits[0] = l->waits[1] = l->cancelling = 0;
	l->sleepers = NULL;
	hint_done(l);
}

void handles_child(void)
{
	names_each_handle(handle_child, 0);
	names_child();
	read_child();
}

static void handle_lost(struct dlock *l, uint32_t unused)
{
	(void)unused;
	binding_close(l);
	if (l->wake)
		l->wake(l);
	else
		waits_look_again(l);
}

void handles_lost(void)
{
	names_each_handle(handle_lost, 0);
}

static void handle_thread_end(struct dlock *l, uint32_t serial)
{
	for (struct binding *b = l->bindings; b; b = b->older) {
		uint64_t held = __atomic_load_n(&b->held, __ATOMIC_RELAXED);

		if (state_holder(__atomic_load_n(&b->state, __ATOMIC_ACQUIRE)) != serial)
			continue;
		if (l->kind == KIND_ELECT)
			elect_ended(b);
		__atomic_store_n(&b->state, 0, __ATOMIC_RELAXED);        /* from now on another thread may take */
		if (!binding_lost(b) && lock_release(b->word, held, LOCK_DIED))
			hold_yielded(b);
	}
}

void handles_thread_end(uint32_t serial)
{
	lib_lock();
	names_each_handle(handle_thread_end, serial);
	lib_unlock();
}
