/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ids while the wall clock is set: they rise, whatever it says, and there is none that is far ahead of it. Where it has gone back by
 * no more than ids may be ahead of it, they go on at once; by more, there are none until it has caught up, and that is said.
 *
 * The library's calls of clock_gettime() come here, and the clock of this process is off by what the test says; the daemon's is not.
 */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dlock.h"
#include "harness.h"

#define AHEAD_S 10                       /* dlock.h: "up to ten seconds ahead of the clock" */
#define WAIT_MS 50                       /* and "waits for up to 50 ms" */
#define MANY    2000

static long off_s;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (clock == CLOCK_REALTIME)
		ret->tv_sec += off_s;
	return r;
}

static dlock_id_t *ids;
static uint64_t last;

/* So many, each above the last. */
static int rise(unsigned n)
{
	uint64_t id;
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++) {
		/* For a second it waits for a daemon, which may be given no processor for so long. */
		for (uint64_t until = now_ns() + PATIENCE_MS * MS; (r = dlock_id_next(ids, &id)) == ENOTCONN && now_ns() < until;)
			;
		if (r == 0 && id <= last)
			r = -1;
		if (r == 0)
			last = id;
	}
	return r;
}

/* What the clock was asked for lately is believed for some ten microseconds. */
static void set_clock(long off)
{
	off_s = off;
	nap_ns(MS);
}

int main(void)
{
	struct daemon node = { 0 };
	uint64_t id = 7, begun;
	int r, errno_was;

	harness_begin(30);
	daemon_started(&node);
	if (dlock_id_open(&ids, "ids", NULL))
		give_up("no ids");
	r = rise(MANY);
	set_clock(-AHEAD_S / 2);
	r = r ? r : rise(MANY);
	set_clock(0);
	r = r ? r : rise(MANY);
	ok(r == 0, "the clock goes back by %d s, and forth: they rise, and nobody waits (%d)", AHEAD_S / 2, r);

	set_clock(-2 * AHEAD_S);
	begun = now_ns();
	errno_was = errno = 4242;
	r = dlock_id_next(ids, &id);
	ok(r == EOVERFLOW && id == 7 && errno == errno_was && now_ns() - begun >= WAIT_MS * MS,
	   "by %d s: that is said, after a moment (%d, %.0f ms)", 2 * AHEAD_S, r, (double)(now_ns() - begun) / 1e6);
	ok(dlock_id_next(ids, &id) == EOVERFLOW, "... and again");
	set_clock(-AHEAD_S / 2);
	r = rise(MANY);
	ok(r == 0, "... until it has caught up (%d)", r);
	set_clock(-400L * 366 * 86400 / 10);     /* before ids begin */
	ok(dlock_id_next(ids, &id) == EOVERFLOW, "a clock from before there were ids: the same");
	set_clock(0);
	r = rise(MANY);
	ok(r == 0, "... and none of it comes back (%d)", r);
	ok(dlock_id_close(ids) == 0, "closed");
	daemon_end(&node, SIGTERM);
	return harness_end();
}
