/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What one core_step() hands down: the time, and where actions and messages go. */
#ifndef DLOCK_CORE_STEP_H
#define DLOCK_CORE_STEP_H

#include "core.h"
#include "msg.h"

struct step {
	core_nsec_t now;
	struct core_actions *actions;
	struct msg_queue *queue;
};

static inline struct core_action *step_act(struct step *s, enum core_action_kind kind)
{
	core_assert(s->actions->n < CORE_ACTIONS_MAX);
	struct core_action *a = &s->actions->v[s->actions->n++];

	*a = (struct core_action){ .kind = kind };
	return a;
}

#endif
