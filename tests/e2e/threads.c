/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "threads.h"

static void *thread_run(void *arg)
{
	struct thread *t = arg;

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

int elsewhere(deed fn, void *l)
{
	struct thread t;

	spawn(&t, fn, l);
	return join(&t);
}
