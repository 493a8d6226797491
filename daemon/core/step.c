/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "step.h"

#include "frame.h"

void step_send(struct step *s, const struct msg *m)
{
	if (!s->peers || m->to.session == peers_self(s->peers)->id.session) {
		msg_put(s->queue, m);
		return;
	}
	const struct peer *to = peers_find(s->peers, m->to.session);
	if (!to || !to->conn)
		return;
#ifndef CORE_BREAK_NODE_KEY
	if (to->id.incarnation != m->to.incarnation)
		return;
#endif

	struct frame f = { .msg = *m, .conn = to->conn };
	unsigned i = s->actions->n;
	struct core_action *a = step_act(s, CORE_ACT_SEND);
	a->send.session = to->id.session;
	a->send.conn = to->conn;
	a->send.bytes = s->frame[i];
	a->send.n = frame_encode(&f, s->frame[i]);
}
