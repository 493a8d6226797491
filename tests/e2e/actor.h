/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Actors: processes that do as they are told, one thing at a time, and say what came of it and when.
 * The thing is a function of the test's, run in the actor's process; so the test itself never uses the library.
 */
#ifndef E2E_ACTOR_H
#define E2E_ACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dlock.h"

#define ACTOR_LOCKS 8

struct stage {                           /* what the functions find in the actor */
	dlock_t *lock[ACTOR_LOCKS];
	uint64_t token;                  /* of the last wait that succeeded */
	char text[96];                   /* as sent along */
};

typedef int (*actor_fn)(struct stage *s, uint64_t arg);

struct result {
	int r;                           /* what the function returned */
	uint64_t token;
	uint64_t at_ns;                  /* when it returned */
};

struct actor {
	pid_t pid;
	int fd;
};

void actor_begin(struct actor *a);               /* across nodes: of each node in turn */
bool actor_send(struct actor *a, actor_fn fn, uint64_t arg, const char *text);
bool actor_result(struct actor *a, unsigned ms, struct result *ret);     /* false: none came in time, or it has ended */
struct result actor_do(struct actor *a, actor_fn fn, uint64_t arg, const char *text);    /* r -1: nothing came */
/* The same, unless it sleeps in futex(2) when that time is over. Who has been woken, and has had no processor yet, does not. */
bool actor_result_unless_asleep(struct actor *a, unsigned ms, struct result *ret);
void actor_kill(struct actor *a, int signo);     /* and takes it in */
bool actor_is_gone(struct actor *a, unsigned ms);

/* Called while a result is waited for, at least every 10 ms; and in between when *fd is readable. */
extern void (*actor_meanwhile)(void);
extern int *actor_meanwhile_fd;

/* --- Things to do. The argument is the index of the lock, with flags for the first. --- */

#define OPEN_ROBUST      0x100
#define OPEN_WAIT_DAEMON 0x200
#define OPEN_PROCESS     0x400
#define OPEN_FAILFAST    0x800

int act_open(struct stage *s, uint64_t arg);     /* the text is the name */
int act_wait(struct stage *s, uint64_t i);       /* with the token where it is taken */
int act_try(struct stage *s, uint64_t i);
int act_timed(struct stage *s, uint64_t ns);     /* lock 0, until that of CLOCK_MONOTONIC */
int act_post(struct stage *s, uint64_t i);
int act_pass(struct stage *s, uint64_t i);       /* wait and post; the token is the wait's */
int act_check(struct stage *s, uint64_t i);
int act_consistent(struct stage *s, uint64_t i);
int act_close(struct stage *s, uint64_t i);
int act_exit(struct stage *s, uint64_t status);

static inline bool taken(int r)
{
	return r == 0 || r == 130;       /* EOWNERDEAD */
}

#endif
