/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "step.h"

#include "envelope.h"

static void send_by_path(struct step *s, const struct peer *to, const struct frame *f)
{
	const struct peer *hop = peers_find(s->peers, to->via);

	if (!hop || hop->via || hop->conn != to->hop)
		return;
	unsigned i = s->actions->n;
	uint8_t *at = s->frame[i] + ENVELOPE_HEAD;
	struct envelope e = { .what = ENVELOPE_FRAME, .sender = f->msg.from, .incarnation = f->msg.from.incarnation, .conn = hop->conn,
			      .far = to->id.session, .path = to->conn, .frame = at, .n = frame_encode(f, at) };
	struct core_action *a = step_act(s, CORE_ACT_SEND);
	a->send.session = hop->id.session;
	a->send.conn = hop->conn;
	a->send.bytes = s->frame[i];
	a->send.n = envelope_encode(&e, s->frame[i]);
}

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
	if (to->via) {
		send_by_path(s, to, &f);
		return;
	}
	unsigned i = s->actions->n;
	struct core_action *a = step_act(s, CORE_ACT_SEND);
	a->send.session = to->id.session;
	a->send.conn = to->conn;
	a->send.bytes = s->frame[i];
	a->send.n = frame_encode(&f, s->frame[i]);
}
