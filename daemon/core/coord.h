/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The coordinator's and its deputies' part of a cluster (cluster.h): observing, ending, planning. */
#ifndef DLOCK_CORE_COORD_H
#define DLOCK_CORE_COORD_H

#include "cluster.h"

/* Begins with a look at members and beats if it is time. */
void coord_look(struct core *c, core_nsec_t now);
void coord_tick(struct core *c, struct step *s);
void coord_answer(struct core *c, enum ask_kind kind, const struct core_event *ev, core_nsec_t now);

bool coordinator_is(const struct core *c);

/* Members that are not reached and have no beat. */
unsigned coord_silent(const struct core *c);

/* When to look again; 0: no matter. */
core_nsec_t coord_next(const struct core *c);

#endif
