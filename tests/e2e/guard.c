/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "guard.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define PF_EXITING 4u                    /* from the kernel's sched.h; field 9 of /proc/PID/stat */

bool process_is_past(pid_t pid)
{
	char path[40], text[400], *at, state;
	unsigned flags;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	read_file(path, text, sizeof text);
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
		return true;
	return state == 'Z' || state == 'X' || (flags & PF_EXITING);
}

__attribute__((format(printf, 2, 3))) static void violation(struct guard *g, const char *text, ...)
{
	va_list ap;

	if (__atomic_fetch_add(&g->violations, 1, __ATOMIC_RELAXED))
		return;
	va_start(ap, text);
	vsnprintf(g->what, sizeof g->what, text, ap);
	va_end(ap);
}

void guard_enter(struct guard *g, dlock_t *l, int r, bool robust)
{
	int32_t was = __atomic_exchange_n(&g->inside, (int32_t)getpid(), __ATOMIC_SEQ_CST);
	uint64_t token = 0, before;
	int e = dlock_token(l, &token);

	if (was && !process_is_past(was))
		violation(g, "%d is inside, and %d too", (int)getpid(), (int)was);
	else if (was && robust && r != EOWNERDEAD)
		violation(g, "%d died inside, and %d is not told", (int)was, (int)getpid());
	before = __atomic_exchange_n(&g->token, token, __ATOMIC_SEQ_CST);
	if (e || token <= before)
		violation(g, "%d: token %llx after %llx, error %d", (int)getpid(), (unsigned long long)token,
			  (unsigned long long)before, e);
	__atomic_fetch_add(&g->passes, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&g->deaths, r == EOWNERDEAD, __ATOMIC_RELAXED);
	if (r == EOWNERDEAD && dlock_consistent(l))
		violation(g, "%d cannot say that all is whole", (int)getpid());
}

void guard_leave(struct guard *g)
{
	int32_t was = __atomic_exchange_n(&g->inside, 0, __ATOMIC_SEQ_CST);

	if (was != (int32_t)getpid())
		violation(g, "%d came in while %d was inside", (int)was, (int)getpid());
}

int guard_pass(struct guard *g, dlock_t *l, bool robust)
{
	int r = dlock_wait(l);

	if (r != 0 && r != EOWNERDEAD)
		return r;
	guard_enter(g, l, r, robust);
	guard_leave(g);
	return dlock_post(l);
}
