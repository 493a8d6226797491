/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define COMPLETIONS_PER_TURN 512 /* more wait for the next, so that timers get their turn */
#define LOOKS_PER_CLOCK 32       /* while spinning: a look costs a nanosecond, the clock thirty */
#define SPIN_MISSES 8            /* in a row, then one turn in SPIN_RETRY tries again */
#define SPIN_RETRY 32

nsec_t loop_clock(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_BOOTTIME, &ts);
	return (nsec_t)ts.tv_sec * NSEC_PER_SEC + (nsec_t)ts.tv_nsec;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#endif
}

int loop_create(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	err = ring_open(&l->ring);
	if (err < 0) {
		free(l);
		return err;
	}
	sources_init(&l->sources);
	timers_init(&l->timers);
	defers_init(l);
	signals_init(&l->signals);
	wakes_init(l);
	crowd_init(&l->crowd);
	l->now = loop_clock();
	*ret = l;
	return 0;
}

static unsigned completions_run(struct loop *l)
{
	struct completion queue[COMPLETIONS_PER_TURN];
	unsigned n = ring_take(&l->ring, queue, COMPLETIONS_PER_TURN);

	for (unsigned i = 0; i < n; i++) {
		if (queue[i].tag == TAG_TIMEOUT)
			timers_elapsed(l);
		else if (queue[i].tag != TAG_IGNORED)
			source_complete((struct source *)(uintptr_t)queue[i].tag, &queue[i]);
	}
	sends_settle(l);
	return n;
}

/* The kernel writes into our buffers until it has let go of each request. */
void loop_free(struct loop *l)
{
	int err = 0;

	if (!l)
		return;
	assert(!l->running);
	sources_stop(l);
	while (err >= 0 && (l->sources.first || l->sources.armed > 0)) {
		bool all = source_flush(l);

		if (l->sources.armed > 0 || !all) {
			/* What succeeds quietly would be waited for in vain. */
			err = ring_enter(&l->ring, all && l->quiet.n == 0);
			completions_run(l);
		}
	}
	assert(err < 0 || l->sources.used == 0);
	ring_close(&l->ring);
	sources_done(l);
	signals_done(&l->signals);
	crowd_done(&l->crowd);
	free(l);
}

static bool look_peek(const struct loop *l)
{
	return l->look && l->look->peek(l->look->arg);
}

/*
 * True: something has come. Looks at memory only, since the kernel sets a flag there. Whoever has become ready on this
 * processor meanwhile goes first: it may be the one that is waited for.
 */
static bool spin(struct loop *l)
{
	nsec_t end = loop_clock() + l->spin;

	do {
		for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
			if (ring_pending(&l->ring) || look_peek(l))
				return true;
			cpu_relax();
		}
		sched_yield();
	} while (loop_clock() < end);
	return false;
}

/*
 * Whether to look before sleeping. Where it keeps finding nothing (the others think for longer, or
 * wait for this very processor) only one turn in a few tries again.
 */
static bool spin_worthwhile(struct loop *l)
{
	return l->busy && l->spin > 0 && (l->spin_misses < SPIN_MISSES || l->turn % SPIN_RETRY == 0) &&
	       !crowd_is(&l->crowd, l->now);
}

/* One system call; two if there is both something to submit and a span to look for an answer; none if all came by memory. */
static int turn_wait(struct loop *l)
{
	wakes_flush(l);

	bool all = source_flush(l);
	bool idle = timers_arm(l) && !defers_left(l);
	bool sleep = all && idle && !ring_pending(&l->ring) && !look_peek(l);
	int err;

	if (sleep && spin_worthwhile(l)) {
		if (ring_unsubmitted(&l->ring)) {
			err = ring_enter(&l->ring, false);
			if (err < 0)
				return err;
		}
		sleep = !spin(l);
		l->spin_misses = sleep ? l->spin_misses + 1 : 0;
	}
	if (sleep && l->look)
		sleep = l->look->rest(l->look->arg);
	if (!sleep && all && !ring_unsubmitted(&l->ring) && !ring_pending(&l->ring))
		return 0;
	return ring_enter(&l->ring, sleep);
}

static int turn_late(struct loop *l)
{
	int err = 0;

	if (!defers_late(l))
		return 0;
	(void)source_flush(l);
	if (ring_unsubmitted(&l->ring))
		err = ring_enter(&l->ring, false);
	defers_late_run(l);
	return err;
}

static int turn(struct loop *l)
{
	int err = turn_wait(l);

	if (err < 0)
		return err;
	l->turn++;
	l->now = loop_clock();
	l->busy = completions_run(l) > 0;
	if (l->look && l->look->run(l->look->arg))
		l->busy = true;
	timers_run(l);
	defers_run(l);
	return turn_late(l);
}

int loop_run(struct loop *l)
{
	int err = 0;

	assert(!l->running);
	l->running = true;
	while (!l->stopping && err >= 0)
		err = turn(l);
	wakes_end(l);
	l->running = false;
	l->stopping = false;
	return err < 0 ? err : l->code;
}

void loop_stop(struct loop *l, int code)
{
	assert(code >= 0);
	l->stopping = true;
	l->code = code;
}

nsec_t loop_now(const struct loop *l)
{
	return l->now;
}

void loop_set_spin(struct loop *l, nsec_t span)
{
	l->spin = span;
}

void loop_set_look(struct loop *l, const struct loop_look *look)
{
	l->look = look;
}

/* kernel.io_uring_disabled; 0 where the kernel has no such switch */
static int sysctl_disabled(void)
{
	int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
	char digit = '0';

	if (fd >= 0) {
		if (read(fd, &digit, 1) != 1)
			digit = '0';
		close(fd);
	}
	return digit - '0';
}

static const char *explain_refusal(void)
{
	switch (sysctl_disabled()) {
	case 1:
		return "io_uring is kept for privileged users: sysctl kernel.io_uring_disabled is "
		       "1. Set it to 0, or add the daemon's user to the group that "
		       "kernel.io_uring_group names";
	case 2:
		return "io_uring is switched off: sysctl kernel.io_uring_disabled is 2. Set it to "
		       "0 (sysctl -w kernel.io_uring_disabled=0)";
	default:
		return "io_uring is refused by a system call filter (seccomp), as containers have "
		       "by default, or by a security module: allow io_uring_setup, io_uring_enter "
		       "and io_uring_register (in a systemd unit: SystemCallFilter=@aio)";
	}
}

const char *loop_explain(int error)
{
	switch (-error) {
	case ENOSYS:
		return "there is no io_uring: dlockd needs Linux 6.1 or later, built with "
		       "CONFIG_IO_URING. If it is, a system call filter hides it: allow "
		       "io_uring_setup, io_uring_enter and io_uring_register (in a systemd unit: "
		       "SystemCallFilter=@aio)";
	case EPERM:
	case EACCES:
		return explain_refusal();
	case EOPNOTSUPP:
		return "this kernel's io_uring is too old: dlockd needs Linux 6.1 or later";
	case ENOMEM:
		return "there is no memory for the io_uring: raise the memory limit of the service "
		       "or container, and the limit on locked memory (RLIMIT_MEMLOCK; in a systemd "
		       "unit: LimitMEMLOCK=)";
	case EMFILE:
	case ENFILE:
		return "there is no file descriptor left for the io_uring: raise RLIMIT_NOFILE (in "
		       "a systemd unit: LimitNOFILE=) or sysctl fs.file-max";
	default:
		return "the io_uring could not be set up";
	}
}
