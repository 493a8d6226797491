/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What one core_step() hands down: the time, and where actions and messages go. */
#ifndef DLOCK_CORE_STEP_H
#define DLOCK_CORE_STEP_H

#include "core.h"
#include "msg.h"
#include "peers.h"

struct step {
	core_nsec_t now;
	struct core_actions *actions;
	struct msg_queue *queue;
	struct peers *peers;             /* NULL: there is only this node */
	uint8_t (*frame)[CORE_FRAME_MAX]; /* one for each action */
	struct core_barrier *barrier;    /* the same */
};

static inline struct core_action *step_act(struct step *s, enum core_action_kind kind)
{
	core_assert(s->actions->n < CORE_ACTIONS_MAX);
	struct core_action *a = &s->actions->v[s->actions->n++];

	*a = (struct core_action){ .kind = kind };
	return a;
}

/* To this node by its queue, to another as a frame. Without a link it is dropped: the next link's sync says it. */
void step_send(struct step *s, const struct msg *m);

#endif
