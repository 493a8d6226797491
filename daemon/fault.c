/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The countdown behind fault.h; empty unless built for tests. */
#include "fault.h"

#ifdef DLOCK_FAULTS
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static long left;

void fault_arm(long n)
{
	left = n;
}

__attribute__((constructor)) static void fault_arm_from_environment(void)
{
	const char *at = getenv("DLOCK_FAULT_AT");

	if (at)
		fault_arm(atol(at));
}

void fault_point(void)
{
	if (left > 0 && --left == 0)
		kill(getpid(), SIGKILL);
}
#endif
