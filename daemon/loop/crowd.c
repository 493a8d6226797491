/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Do others want this processor? To look for what is next before sleeping saves the others the wake-up of a processor that
 * sleeps. Where somebody else runs on it, it saves nothing, and takes from him what it costs. The kernel counts for each
 * thread how long it was ready and did not run, and how often it ran: where it waits for CROWD_WAIT each time, it is not alone.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "internal.h"

#define CROWD_WAIT (8 * NSEC_PER_USEC)
#define CROWD_SPAN NSEC_PER_MSEC         /* between two looks at it */
#define CROWD_LULL (32 * NSEC_PER_MSEC)  /* where it was so, it is believed for longer */
#define CROWD_RUNS 8                     /* fewer tell nothing */

void crowd_init(struct crowd *c)
{
	*c = (struct crowd){ .fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC) };
}

void crowd_done(struct crowd *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static bool crowd_read(const struct crowd *c, uint64_t *ret_waited, uint64_t *ret_runs)
{
	unsigned long long ran, waited, runs;
	char text[80];
	ssize_t n = pread(c->fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = 0;
	if (sscanf(text, "%llu %llu %llu", &ran, &waited, &runs) != 3)
		return false;
	*ret_waited = waited;
	*ret_runs = runs;
	return true;
}

bool crowd_is(struct crowd *c, nsec_t now)
{
	uint64_t waited, runs;

	if (c->fd < 0 || now < c->next)
		return c->is;
	c->next = now + CROWD_SPAN;
	if (!crowd_read(c, &waited, &runs)) {
		crowd_done(c);
		return c->is = false;
	}
	if (runs - c->runs < CROWD_RUNS)
		return c->is;
	c->is = waited - c->waited > (runs - c->runs) * CROWD_WAIT;
	if (c->is)
		c->next = now + CROWD_LULL;
	c->waited = waited;
	c->runs = runs;
	return c->is;
}
