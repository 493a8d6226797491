/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Handles: their opening and closing, and what becomes of them when a thread or the process changes. */
#include <errno.h>
#include <stdlib.h>

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

int handle_open(struct dlock *l, const char *name, const struct dlock_attr *attr, enum kind kind, uint32_t arg)
{
	int saved = errno, r;
	uint32_t serial;

	r = thread_register(&serial);
	if (r < 0) {
		errno = saved;
		return -r;
	}
	*l = (struct dlock){ .attr = ATTR_DEFAULT, .kind = kind, .arg = arg, .hint.fd = -1 };
	if (attr)
		l->attr = *attr;
	binding_close(l);
	do {
		r = handle_attach(l, name);
	} while (r == -ENOTCONN && l->attr.wait_daemon && limit_nap(&limit_none, RETRY_NS) == 0);
	errno = saved;
	return -r;
}

int dlock_open(dlock_t **ret, const char *name, const dlock_attr_t *attr)
{
	int saved = errno, r;
	struct dlock *l;

	if (!ret)
		return EINVAL;
	l = aligned_alloc(_Alignof(struct dlock), sizeof *l);
	errno = saved;
	if (!l)
		return ENOMEM;
	r = handle_open(l, name, attr, KIND_LOCK, 0);
	if (r == 0)
		*ret = l;
	else
		free(l);
	errno = saved;
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

	if (thread_register(&serial) < 0)
		return ENOMEM;
	attach_lock(&limit_none);
	if (handle_busy(l) || handle_held_shared(l)) {
		attach_unlock();
		return EBUSY;
	}
	hint_done(l);
	soon_closes(l);
	name_leave(l);
	attach_unlock();
	errno = saved;
	return 0;
}

int dlock_close(dlock_t *l)
{
	int saved = errno, r = l ? handle_close(l) : 0;

	if (r == 0)
		free(l);
	errno = saved;
	return r;
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
