/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One call in another thread. */
#ifndef E2E_THREADS_H
#define E2E_THREADS_H

#include <pthread.h>

typedef int (*deed)(void *l);

struct thread {
	pthread_t id;
	deed fn;
	void *l;
	int r, done;                     /* done: atomic; r is there */
};

void spawn(struct thread *t, deed fn, void *l);
int join(struct thread *t);              /* what the call has returned */
int elsewhere(deed fn, void *l);         /* both */

#endif
