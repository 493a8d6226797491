/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Short slices. The loop's thread needs the processor often, and for a moment: it should have it when it wakes up, and not when whoever
 * runs there has had his turn, which takes a millisecond and more where he never sleeps. From Linux 6.12 on whoever has asked for
 * shorter slices goes first when he wakes; he gets no larger share for it. Older kernels take no notice.
 */
#include <errno.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"

#define SLICE_NS UINT64_C(400000)        /* the others have 0.7 to 2.8 ms, by the number of processors */

static bool slice_fits(const struct sched_attr *a)
{
	if (a->sched_policy != SCHED_NORMAL && a->sched_policy != SCHED_BATCH)
		return true;             /* somebody has chosen that for it */
	return a->sched_runtime && a->sched_runtime <= SLICE_NS;
}

int loop_slice_short(void)
{
	struct sched_attr a = { .size = sizeof(a) };

	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) < 0)
		return -errno;
	if (slice_fits(&a))
		return 0;
	a.sched_runtime = SLICE_NS;
	return syscall(SYS_sched_setattr, 0, &a, 0) < 0 ? -errno : 0;
}
