/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conn.h"
#include "handle.h"
#include "proto/futex.h"
#include "read.h"

static const uint32_t no_cell;
__thread const uint32_t *thread_cell = &no_cell;

enum { CHILD, ARRIVING, HERE };

static uint32_t lib;                     /* a futex: whose it is, and LIB_WAITERS; 0: nobody's */
static uint32_t *alive;                  /* HERE; CHILD in a fresh child, since a fork wipes it */
static uint32_t last_serial;
static pthread_key_t key;
static bool started;
uint32_t thread_wiped;
static bool fork_nested;                 /* by a signal handler that interrupted a holder of lib */

/* A page, and so many bytes behind it that stay in a child. */
static void *wiped_page(size_t more)
{
	void *p = mmap(NULL, thread_wiped + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, thread_wiped, MADV_WIPEONFORK) < 0) {
		munmap(p, thread_wiped + more);
		return NULL;
	}
	return p;
}

static void thread_page_free(struct thread_page *c)
{
	munmap(c, thread_wiped + sizeof(struct readers));
}

/* --- Fork --- */

/* The one thread of a new child: the connection, the holds and the waits are the parent's. */
static void child_begin(void)
{
	int saved = errno;

	__atomic_store_n(&lib, 0, __ATOMIC_RELAXED);
	conn_child();
	handles_child();
	__atomic_store_n(alive, HERE, __ATOMIC_RELEASE);
	errno = saved;
}

static void child_arrive(void)
{
	uint32_t was = CHILD;

	if (__atomic_compare_exchange_n(alive, &was, ARRIVING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
		child_begin();
	while (__atomic_load_n(alive, __ATOMIC_ACQUIRE) != HERE)
		sched_yield();
}

static void child_look(void)
{
	if (__atomic_load_n(alive, __ATOMIC_ACQUIRE) != HERE)
		child_arrive();
}

/*
 * A lock of our own, since a signal handler that forks has to know whether it has interrupted the one who holds it. Of a pthread mutex that
 * cannot be told while it is being taken or given back. Here it is the word: one swap to each.
 */
#define LIB_WAITERS UINT32_C(1)

static uint32_t lib_ids;
static __thread uint32_t lib_id;         /* even: of this thread alone. It stays over a fork */

static void lib_take(void)
{
	uint32_t none = 0, w;

	if (!lib_id)
		lib_id = __atomic_add_fetch(&lib_ids, 2, __ATOMIC_RELAXED);
	if (__atomic_compare_exchange_n(&lib, &none, lib_id, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	for (;;) {
		w = __atomic_load_n(&lib, __ATOMIC_RELAXED);
		if (!w && __atomic_compare_exchange_n(&lib, &w, lib_id | LIB_WAITERS, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
		if (w && ((w & LIB_WAITERS) ||
			  __atomic_compare_exchange_n(&lib, &w, w | LIB_WAITERS, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)))
			futex_wait_class(&lib, w | LIB_WAITERS, FUTEX_BITSET_MATCH_ANY, CLOCK_MONOTONIC, NULL);
	}
}

void lib_unlock(void)
{
	if (__atomic_exchange_n(&lib, 0, __ATOMIC_RELEASE) & LIB_WAITERS)
		futex_wake_class(&lib, 1, FUTEX_BITSET_MATCH_ANY);
}

/* In the child of a bare clone(2) the lock may still be that of a thread of the parent. */
static void fork_prepare(void)
{
	bool nested;

	child_look();
	nested = lib_id && (__atomic_load_n(&lib, __ATOMIC_RELAXED) & ~LIB_WAITERS) == lib_id;
	if (!nested)
		lib_take();
	fork_nested = nested;
}

static void fork_parent(void)
{
	if (!fork_nested)
		lib_unlock();
}

static void fork_child(void)
{
	child_begin();
}

void lib_lock(void)
{
	child_look();
	lib_take();
}

/* --- Threads --- */

/*
 * Lets go of everything in the second round of destructors, so that those of others may use and post
 * locks in the first; and in each that follows, since they may take some. Where it was one of them that
 * took the thread's first lock, the rounds are fewer than this counts. The last round is not for us:
 * ThreadSanitizer takes leave of the thread there, and its mutexes crash after that. A lock that a
 * destructor takes so late is held until the process ends.
 */
static void thread_end(void *p)
{
	struct thread_page *c = p;
	bool again = ++c->rounds < PTHREAD_DESTRUCTOR_ITERATIONS - 1 && pthread_setspecific(key, c) == 0;

	if (c->serial && (c->rounds > 1 || !again))
		handles_thread_end(c->serial);
	if (c->serial && (c->rounds > 1 || !again))
		read_thread_end(readers_behind(c));
	if (again)
		return;
	thread_cell = &no_cell;
	thread_page_free(c);
}

__attribute__((constructor)) static void library_start(void)
{
	uint32_t *page;

	thread_wiped = (uint32_t)sysconf(_SC_PAGESIZE);
	page = wiped_page(0);
	if (!page || pthread_key_create(&key, thread_end) != 0)
		return;
	*page = HERE;
	alive = page;
	started = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
}

static int serial_next(uint32_t *ret)
{
	int r = 0;

	lib_lock();
	if (last_serial >= THREAD_SERIAL_MAX)
		r = -ENOMEM;
	else
		*ret = ++last_serial;
	lib_unlock();
	return r;
}

static struct thread_page *cell_get(void)
{
	struct thread_page *c = pthread_getspecific(key);
	int saved = errno;

	if (c)
		return c;
	c = wiped_page(sizeof(struct readers));
	if (c && pthread_setspecific(key, c) != 0) {
		thread_page_free(c);
		c = NULL;
	}
	errno = saved;
	return c;
}

int thread_register(uint32_t *ret)
{
	struct thread_page *c;
	int r;

	*ret = thread_serial();
	if (*ret)
		return 0;
	c = started ? cell_get() : NULL;
	if (!c)
		return -ENOMEM;
	r = serial_next(ret);            /* in a fresh child this clears up first */
	if (r < 0)
		return r;
	read_begin(readers_behind(c));
	__atomic_store_n(&c->serial, *ret, __ATOMIC_RELAXED);
	thread_cell = &c->serial;
	return 0;
}
