/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the library share: a fake daemon for each test, and short words for common steps. */
#ifndef CLIENT_RIG_H
#define CLIENT_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dlock.h"
#include "fake_daemon.h"

extern struct fake fake;

int rig_setup(void **state);
int rig_teardown(void **state);

#define ok(call)             assert_int_equal((call), 0)
#define fails(error, call)   assert_int_equal((call), (error))
#define test(name)           cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

enum { ROBUST = 1, RECURSIVE = 2, PROCESS = 4, FAILFAST = 8, WAIT_DAEMON = 16 };

dlock_t *rig_open(const char *name, unsigned flags);     /* must succeed */
int rig_try_open(const char *name, unsigned flags, dlock_t **ret);

struct timespec after_ms(clockid_t clock, long ms);
long now_ms(void);
void nap_ms(long ms);

/* What is waited for at most, in ms: it is only ever over when something is wrong. And how often a story is told in which something was late,
 * since the machine may have had other work: what is wrong, is late each time. */
#define PATIENCE_MS 60000
#define TRIES       10

/* Runs fn in a thread; join returns what it returned. */
typedef int (*rig_fn)(void *arg);
struct rig_thread {
	pthread_t id;
	rig_fn fn;
	void *arg;
	int result, done;
};
void rig_spawn(struct rig_thread *t, rig_fn fn, void *arg);
int rig_join(struct rig_thread *t);
bool rig_done(struct rig_thread *t);
int rig_elsewhere(rig_fn fn, void *arg);                 /* spawn and join */

int rig_wait(void *l);                                   /* dlock_wait, dlock_post … as rig_fn */
int rig_trywait(void *l);
int rig_post(void *l);
int rig_check(void *l);

bool rig_sleeps_on(uint64_t *word);                      /* waits, up to 5 s, until W is set */

/* Runs fn in a forked child; returns its exit status. Only exit statuses cross. */
int rig_child(rig_fn fn, void *arg);

#endif
