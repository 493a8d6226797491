/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For tests of real processes: results in TAP, a private directory on tmpfs, and daemons that serve there.
 *
 * What must hold: whatever way the test ends (also by its own time limit, or a signal), the directory
 * is gone afterwards, and so are all processes: orphans become the test's, and it ends its children.
 *
 * Where $DLOCK_TEST_NODES is set (far.sh) the test is told across nodes: its daemon is one of three, by the configuration that lies
 * there, and its actors are clients of all three in turn.
 */
#ifndef E2E_HARNESS_H
#define E2E_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MS UINT64_C(1000000)             /* in nanoseconds */

/*
 * How long a test waits for what must come to pass, in ms. On a machine that has other work a process may not run for seconds; so
 * whoever waits for something waits for so long, and it is only ever over when that something is wrong.
 */
#define PATIENCE_MS 60000u

/*
 * What should be quick: a mechanism that does not work makes it late each time, a busy machine now and then, or even often. It is quick
 * if a quarter of the times is. Where a place has to be quick by itself, that place is tried again.
 */
struct pace {
	unsigned times, quick;
	uint64_t worst_ns;
};

struct daemon {
	pid_t pid;                       /* 0: none */
	int pidfd;                       /* readable when it has ended */
	int status;                      /* of the last one that ended, as from waitpid() */
};

extern struct harness {
	char dir[32];                    /* DIR of the daemon */
	char run[40];                    /* DIR/run, also in $DLOCK_RUN_DIR */
	uint64_t seed;
	bool full;                       /* the long form of the test was asked for: $DLOCK_CHECK_FULL */
	const char *nodes;               /* $DLOCK_TEST_NODES; NULL: all is told of one node */
} harness;

/* To be called first, while the test has one thread. Where it hangs it ends itself, before run-tests does; seconds: what it needs on a quiet machine. */
void harness_begin(unsigned seconds);
void harness_at_end(void (*fn)(void));   /* what must be undone before the directory can go */
int harness_end(void);                   /* the plan; the exit status */

void ok(bool good, const char *title, ...) __attribute__((format(printf, 2, 3)));
void skip(const char *title, const char *why);
bool skipped_across(const char *title, const char *why);         /* across nodes: skips it, and says true */
void note(const char *text, ...) __attribute__((format(printf, 1, 2)));
void note_lines(const char *text);
void note_file(const char *path);        /* its end */
__attribute__((noreturn)) void give_up(const char *text, ...) __attribute__((format(printf, 1, 2)));

/* Returns whether it was in time. */
bool pace_took(struct pace *p, uint64_t took_ns, unsigned limit_ms);
bool pace_is_quick(const struct pace *p);        /* nothing is no quick pace */

uint64_t now_ns(void);                   /* CLOCK_MONOTONIC */
struct timespec as_timespec(uint64_t ns);
struct timespec abs_in_ms(uint64_t ms);  /* of CLOCK_MONOTONIC */
void nap_ns(uint64_t ns);
uint32_t random_below(uint32_t n);
void end_with_parent(void);              /* in a fresh child */
void *shared_memory(size_t n);           /* zeroed; children share it */
void read_file(const char *path, char *ret, size_t n);   /* as a string; empty where it cannot be read */

/* The thread sleeps in futex(2), in the kernel. Waits for it, with patience. */
bool asleep(pid_t tid);
bool asleep_within(pid_t tid, unsigned ms);

/* The path of a program of this build: "daemon/dlockd". Static. */
const char *built(const char *path);

/* What follows the program is NULL-terminated. False: it has ended, or our patience. */
bool daemon_start(struct daemon *d, const char *program, char *const *more, char *const *environment);
void daemon_started(struct daemon *d);   /* the plain one; the test gives up without it */
void daemon_end(struct daemon *d, int signo);
void daemon_done(struct daemon *d);      /* the last of them: told to stop; across nodes killed, since who stops waits for heirs first */
bool daemon_ended(struct daemon *d, unsigned ms);
bool daemon_said(const char *text);      /* in the log of all daemons since the last daemon_log_new() */
void daemon_log_new(void);

/* Where the n-th client is to be: a run directory; n from 0. Static. */
const char *run_dir_of(unsigned n);

/* The output of "dlock ARGUMENTS", and its exit status. */
int dlock_command(char *ret, size_t n, const char *arguments, ...) __attribute__((format(printf, 3, 4)));

/* The first number that "dlock status --json" gives under that key: the node's. -1: none. */
long status_number(const char *key);

#endif
