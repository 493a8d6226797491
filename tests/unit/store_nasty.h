/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * An engine in memory that keeps the contract and nothing more than that: everything that store.h allows
 * happens. Answers come late and in another order; a request fails before it was carried out, or after; a cas
 * that failed in doubt lands much later, or never; hints lag, and go up for nothing; several clients share one
 * memory and get in each other's way.
 *
 * All of it comes from one seed. Time is counted in turns: one store_ready() of any client is one.
 */
#pragma once

#include "store/store.h"

struct nasty_world;

/* What happens how often; all 0 is a quick and friendly engine. */
struct nasty_knobs {
	unsigned late_turns;	/* a request is carried out after up to so many turns, and answered after as many again */
	unsigned fail_percent;	/* -EIO, and surely not carried out */
	unsigned doubt_percent;	/* a cas: -ETIMEDOUT in doubt; carried out before, after that, or never */
	unsigned hint_turns;	/* the hint lags by up to so many turns */
	unsigned false_hint_percent;	/* of turns */
};

/* NULL: no memory. What is in it outlives the stores. */
struct nasty_world *nasty_world_new(uint64_t seed);
void nasty_world_free(struct nasty_world *w);	/* all stores are closed; what is in doubt never lands */

/* One more client. 0 or a negative errno. */
int nasty_open(struct nasty_world *w, const struct nasty_knobs *knobs, struct store **ret);

/* For judges: what is there now, without any of that. NULL: absent. */
const struct store_record *nasty_look(const struct nasty_world *w, const char *key);
/* Has everything that was in doubt landed, or been given up? */
bool nasty_quiet(const struct nasty_world *w);
