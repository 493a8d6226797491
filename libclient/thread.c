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
#include "read.h"

static const uint32_t no_cell;
__thread const uint32_t *thread_cell = &no_cell;

enum { CHILD, ARRIVING, HERE };

static pthread_mutex_t lib = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static uint32_t *alive;                  /* HERE; CHILD in a fresh child, since a fork wipes it */
static uint32_t last_serial;
static pthread_key_t key;
static bool started;
static bool fork_nested;                 /* by a signal handler that interrupted a holder of lib */

static void *wiped_page(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, size, MADV_WIPEONFORK) < 0) {
		munmap(p, size);
		return NULL;
	}
	return p;
}

/* --- Fork --- */

/* The one thread of a new child: the connection, the holds and the waits are the parent's. */
static void child_begin(void)
{
	int saved = errno;

	lib = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
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

/* In the child of a bare clone(2) the lock may still be that of a thread of the parent. */
static void fork_prepare(void)
{
	child_look();
	fork_nested = pthread_mutex_lock(&lib) == EDEADLK;
}

static void fork_parent(void)
{
	if (!fork_nested)
		pthread_mutex_unlock(&lib);
}

static void fork_child(void)
{
	child_begin();
}

void lib_lock(void)
{
	child_look();
	pthread_mutex_lock(&lib);
}

void lib_unlock(void)
{
	pthread_mutex_unlock(&lib);
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
		read_thread_end(&c->readers);
	if (again)
		return;
	thread_cell = &no_cell;
	munmap(c, (size_t)sysconf(_SC_PAGESIZE));
}

__attribute__((constructor)) static void library_start(void)
{
	uint32_t *page = wiped_page();

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
	c = wiped_page();
	if (c && pthread_setspecific(key, c) != 0) {
		munmap(c, (size_t)sysconf(_SC_PAGESIZE));
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
	__atomic_store_n(&c->serial, *ret, __ATOMIC_RELAXED);
	thread_cell = &c->serial;
	return 0;
}
