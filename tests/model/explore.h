/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walks through every world that a scenario can reach, breadth first, so that the first wrong one
 * is told by a shortest way to it. Then looks for circles: sets of worlds that living players can
 * go round in for ever, each taking steps or having none to take, while one of them waits.
 */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

#include "world.h"

#include <stdint.h>

struct found {
	const char *wrong;               /* NULL: nothing */
	uint32_t worlds, steps, players, copies; /* how many there were */
	uint32_t length;                 /* steps to what is wrong */
	bool full;                       /* given up: more worlds than room */
};

/* tell: print the way to what is wrong, as TAP comments. */
void explore(const struct scenario *s, bool tell, struct found *ret_found);

#endif
