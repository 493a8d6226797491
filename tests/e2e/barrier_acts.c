/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "barrier_acts.h"

#include <errno.h>

#include "harness.h"

dlock_barrier_t *bar;

int bar_opened(const char *name, unsigned parties, bool patient)
{
	dlock_attr_t *a = NULL;
	int r;

	if (bar && dlock_barrier_close(bar))
		return EBUSY;
	bar = NULL;
	r = dlock_attr_create(&a);
	if (r == 0)
		r = dlock_attr_set_wait_daemon(a, patient);
	if (r == 0)
		r = dlock_barrier_open(&bar, name, parties, a);
	dlock_attr_destroy(a);
	return r;
}

int b_open(struct stage *s, uint64_t parties)
{
	return bar_opened(s->text, (unsigned)parties, false);
}

int b_open_patient(struct stage *s, uint64_t parties)
{
	return bar_opened(s->text, (unsigned)parties, true);
}

int b_wait(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_barrier_wait(bar);
}

int b_timed(struct stage *s, uint64_t ms)
{
	struct timespec t = abs_in_ms(ms);

	(void)s;
	return dlock_barrier_clockwait(bar, CLOCK_MONOTONIC, &t);
}

int b_reset(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_barrier_reset(bar);
}

int d_enter(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_barrier_enter(bar);
}

int d_leave(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_barrier_leave(bar);
}

int d_leave_within(struct stage *s, uint64_t ms)
{
	struct timespec t = abs_in_ms(ms);

	(void)s;
	return dlock_barrier_clockleave(bar, CLOCK_MONOTONIC, &t);
}
