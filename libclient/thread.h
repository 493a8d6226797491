/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which thread this is, and whether this is still the process that it was.
 *
 * A thread is known by a serial: unique in its process and never used again, other than addresses
 * and thread ids. It lies in a page of the thread's own that a fork wipes (MADV_WIPEONFORK), so in
 * a child it reads 0 like a thread that was never here, with no getpid() in the way, and also after
 * a bare clone(2) that runs no fork handlers. Serial 0 sends every call the long way.
 *
 * Two locks, in this order:
 *   attach  (conn.h)  one request to the daemon at a time; may be held while that takes
 *   lib     (here)    names, handles, bindings and spaces of this process; held for moments only.
 *                     A fork waits for it, so that the child finds them whole.
 * Neither is held while a thread waits for a lock.
 */
#ifndef DLOCK_THREAD_H
#define DLOCK_THREAD_H

#include <stdint.h>

extern __thread const uint32_t *thread_cell;

static inline uint32_t thread_serial(void)
{
	return __atomic_load_n(thread_cell, __ATOMIC_RELAXED);
}

/* The serial, made on the thread's first call. -ENOMEM. In a fresh child: lets go of the parent's things first. */
int thread_register(uint32_t *ret);

void lib_lock(void);
void lib_unlock(void);

#endif
