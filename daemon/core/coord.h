/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The coordinator's and its deputies' part of a cluster (cluster.h): observing, ending, planning. */
#ifndef DLOCK_CORE_COORD_H
#define DLOCK_CORE_COORD_H

#include "cluster.h"

/*
 * In this order, with each step. What the last look has shown is acted upon first: the next one may be due already, where the store takes
 * longer than a look, or this node had no processor; and from when the members are asked for until the beats are there again
 * nothing is planned.
 */
void coord_act(struct core *c, struct step *s);
void coord_look(struct core *c, core_nsec_t now);        /* begins with a look at members and beats if it is time */
void coord_beats(struct core *c, struct step *s);        /* after the members have been asked for */

/* A look is not through. Whoever wants the members listed now and then only has them by that. */
bool coord_looking(const struct core *c);

void coord_answer(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now);

bool coordinator_is(const struct core *c);

/* Members that are not reached and have no beat. */
unsigned coord_silent(const struct core *c);

/* When to look again; 0: no matter. */
core_nsec_t coord_next(const struct core *c);

#endif
