/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Will a lock that is being opened be taken at once? As those before it were: the daemon is told so (ATTACH_SOON), and has
 * the lease ready by the time it answers, which saves whoever opens, takes, gives and closes a second question. Where that is
 * not so nothing is asked for that nobody wants.
 *
 * All under attach.
 */
#include "soon.h"

#define SURE 2u                          /* so many in a row */

static struct {
	const struct dlock *last;        /* the handle that was opened last, until it is closed */
	unsigned taken;                  /* of those before it, how many in a row */
} soon;

/* Has it ever been taken? */
static bool was_taken(const struct dlock *l)
{
	for (const struct binding *b = l->bindings; b; b = b->older)
		if (__atomic_load_n(&b->held, __ATOMIC_RELAXED))
			return true;
	return false;
}

static void judge(const struct dlock *l)
{
	soon.taken = !was_taken(l) ? 0 : soon.taken < SURE ? soon.taken + 1 : SURE;
	soon.last = NULL;
}

bool soon_expected(void)
{
	if (soon.last)
		judge(soon.last);
	return soon.taken == SURE;
}

void soon_opened(const struct dlock *l)
{
	soon.last = l;
}

void soon_closes(const struct dlock *l)
{
	if (soon.last == l)
		judge(l);
}
