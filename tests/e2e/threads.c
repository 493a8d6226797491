/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "threads.h"

#include <unistd.h>

#include "harness.h"

static void *thread_run(void *arg)
{
	struct thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	t->r = t->fn(t->l);
	__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

void spawn(struct thread *t, deed fn, void *l)
{
	*t = (struct thread){ .fn = fn, .l = l };
	pthread_create(&t->id, NULL, thread_run, t);
}

int join(struct thread *t)
{
	pthread_join(t->id, NULL);
	return t->r;
}

bool spawned_sleeps(struct thread *t)
{
	pid_t tid;

	for (uint64_t until = now_ns() + PATIENCE_MS * MS; now_ns() < until; nap_ns(MS)) {
		if (__atomic_load_n(&t->done, __ATOMIC_ACQUIRE))
			return false;
		tid = __atomic_load_n(&t->tid, __ATOMIC_ACQUIRE);
		if (tid && asleep_within(tid, 0))
			return true;
	}
	return false;
}

int elsewhere(deed fn, void *l)
{
	struct thread t;

	spawn(&t, fn, l);
	return join(&t);
}
