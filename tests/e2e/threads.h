/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One call in another thread. */
#ifndef E2E_THREADS_H
#define E2E_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

typedef int (*deed)(void *l);

struct thread {
	pthread_t id;
	deed fn;
	void *l;
	int r, done;                     /* done: atomic; r is there */
	pid_t tid;                       /* atomic; 0: it has not begun */
};

void spawn(struct thread *t, deed fn, void *l);
int join(struct thread *t);              /* what the call has returned */
int elsewhere(deed fn, void *l);         /* both */
bool spawned_sleeps(struct thread *t);   /* in futex(2); waits for it. False: it does not come to that */

#endif
