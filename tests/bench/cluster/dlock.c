/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cluster/town.h"
#include "rival.h"

#define NAMES_MAX 4

/* Names that come again are kept open, as a program would; of others, one at a time. */
struct client {
	char name[NAMES_MAX][64];
	dlock_t *lock[NAMES_MAX];
	unsigned next;
};

static const char *missing(void)
{
	return NULL;
}

/* The town is there already. */
static void serve(void)
{
}

static void *connect_to(unsigned host)
{
	setenv("DLOCK_RUN_DIR", town_run_dir(host), 1);
	return calloc(1, sizeof(struct client));
}

static dlock_t *lock_of(struct client *c, const char *name)
{
	unsigned i;
	int r;

	for (i = 0; i < NAMES_MAX; i++)
		if (c->lock[i] && !strcmp(c->name[i], name))
			return c->lock[i];
	i = c->next++ % NAMES_MAX;
	if (c->lock[i] && (r = dlock_close(c->lock[i])))
		rival_fail("dlock_close: %s", strerror(r));
	r = dlock_open(&c->lock[i], name, NULL);
	if (r)
		rival_fail("dlock_open: %s", strerror(r));
	snprintf(c->name[i], sizeof c->name[i], "%s", name);
	return c->lock[i];
}

static void take(void *client, const char *name)
{
	int r = dlock_wait(lock_of(client, name));

	if (r)
		rival_fail("dlock_wait: %s", strerror(r));
}

static void give(void *client, const char *name)
{
	int r = dlock_post(lock_of(client, name));

	if (r)
		rival_fail("dlock_post: %s", strerror(r));
}

const struct rival rival_dlock = { "dlock", missing, serve, connect_to, take, give, NULL, NULL };
