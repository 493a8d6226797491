/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A node that does not exist, for what asks one: its names are computed, so that a million of them
 * need no memory.
 *
 * Names 0 .. n_open-1 are in the space "default", which everybody may see; the next n_private in
 * "private", which user 0 and members of group 4242 may see. Name i is "n0000000i"; every third one
 * is held, and has i % 5 waiters. "default/crowd" is held and has 200 waiters, with commands that
 * are neither UTF-8 nor polite.
 */
#ifndef TESTS_QUERY_FAKE_H
#define TESTS_QUERY_FAKE_H

#include "query/query.h"

#define FAKE_GROUP 4242
#define FAKE_CROWD 200

struct fake {
	unsigned n_open, n_private;
	const char *loss, *broken;       /* NULL: all is well */
	const char *run_dir, *state_dir;
	struct query_cluster cluster;    /* ttl_ms 0: it is alone */
	unsigned spaces_extra;           /* empty ones, beside the two */
	bool crowded;                    /* every name is like crowd */
	bool alone, drains, left;
	unsigned asked;                  /* names that names() has looked at */
	size_t written;                  /* by the last Put */
	query_stored_fn stored_done;
	query_nodes_fn nodes_done;
	query_value_fn done;             /* of the value "slow", and what to call it with */
	void *ctx;
	unsigned dropped;
	struct query_source source;
};

void fake_answer(struct fake *f);        /* to who has asked for "slow" */
void fake_init(struct fake *f, unsigned n_open, unsigned n_private);

#endif
