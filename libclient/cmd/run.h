/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock run: a command under a lock. Two processes look after it.
 *
 *   front    the process that the user started. It owns the lock, watches the hold, passes signals on
 *            and ends as the command does. Its child is
 *   guard    which starts the command, in the front's process group, and waits until nothing of it is
 *            left. It stands in a process group of its own, so that kill(-group) leaves it alive.
 *
 * What must hold: the lock is not free before the command and all its descendants are gone; and where the node
 * cannot renew its lease they are gone before the lease is, TERM going out a grace before KILL. For that the guard
 * looks at the node's deadline itself, in shared memory: daemon and front may be stopped, or dead.
 *
 *   The hold's life is an open file description (proto/attach.h, ATTACH_INHERIT) which front and guard
 *   have open and, without -o, the command and all that inherit from it. It ends with the last of them.
 *   Front and guard are both subreapers: a process without a parent becomes the guard's child, or the
 *   front's once the guard is gone. Each notices the end of the other, and then kills all that it
 *   has, and all that it gets, until there is nothing left; only then does it end itself. When both are
 *   killed at the same moment nothing ends the descendants but the command's death signal, and they
 *   keep the hold by what they have inherited.
 *
 * Between the two goes a SOCK_SEQPACKET pair of struct run_message.
 */
#ifndef DLOCK_CMD_RUN_H
#define DLOCK_CMD_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <dlock.h>

enum run_what {
	RUN_SIGNAL = 1,          /* to the guard: pass on signal arg */
	RUN_END,                 /* to the guard: TERM to all, KILL after arg milliseconds */
	RUN_STOPPED,             /* to the front: the command was stopped by signal arg */
	RUN_LOST,                /* to the front: the lease is about to end, and so is the command */
	RUN_OVER,                /* to the front: nothing is left; arg is the command's wait status */
};

struct run_message {
	uint32_t what;
	int32_t arg;
};

/* A control group that holds the command and its descendants, and nothing else. parent -1: there is none. */
struct run_cgroup {
	int parent, dir;
	char name[32];
};

enum run_kind {
	RUN_LOCK,
	RUN_SEM,
	RUN_ELECT,
	RUN_SHARED,
};

#define RUN_NAME_MAX (64 + 1 + 255 + 1)

struct run {
	const char *name;        /* as the user wrote it */
	char **argv;
	bool closes;             /* -o: the hold is the command's alone, not its descendants' */
	bool ends;               /* --grace was given: a TERM ends the run */
	unsigned grace_ms;

	enum run_kind kind;
	unsigned permits;        /* RUN_SEM: that there are */
	void *handle;            /* of that kind. The front's; the guard does not touch the library */
	char full_name[RUN_NAME_MAX];    /* with the space */
	char host[256];          /* --elect: what the others are told */
	uint64_t token;
	const uint64_t *deadline_ns, *loss_ns;   /* in the node page (proto/segment.h) */
	int anchor;              /* what the command inherits; -1 with -o */

	int front_pidfd;
	bool terminal;           /* there is job control: stop when the command stops */
	sigset_t mask;           /* as they were when we came; the command gets them back */
	struct sigaction child_action;
	struct run_cgroup cgroup;
};

/* --- run_hold.c: what the run holds, of its kind. Positive errors, as the library has them --- */

int hold_open(struct run *run);

/* Within so many seconds (0: at once), or as long as it takes. With the token, and where the deadline stands. */
int hold_take(struct run *run, bool limited, double seconds);
int hold_check(struct run *run);         /* ESTALE: lost */
int hold_give(struct run *run);
int hold_fd(struct run *run);            /* to be polled: look anew. -1: there is none */

/* --- run_front.c: runs the command under the hold. Returns the exit code. --- */
int run_front(struct run *run);

/* --- run_guard.c: the guard's life, beginning with the command's. --- */
_Noreturn void run_guard(struct run *run, int channel);

/* --- run_family.c: what descends from this process --- */

struct family {
	pid_t *before;           /* children that we had before, and that are none of ours to kill */
	size_t n_before;
};

/* Orphans below us become our children from now on. Negative errno. */
int family_begin(struct family *f);

void family_done(struct family *f);

/* Kills our children once; what they leave behind is there at the next call. Returns how many there are. */
size_t family_kill(const struct family *f);

/* Kills until nothing is left, and takes in what ends. */
void family_end(struct family *f);

/* A signal for all descendants, of which some may be missed that come into being meanwhile. */
void family_signal(int sig);

/* --- run_cgroup.c: only where this control group has been delegated (cgroup v2) --- */

void run_cgroup_make(struct run_cgroup *c);
void run_cgroup_join(const struct run_cgroup *c);
void run_cgroup_kill(const struct run_cgroup *c);
void run_cgroup_remove(struct run_cgroup *c);

#endif
