/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The member's part in handing a name straight on (master_pass.c). Who holds it alone is told by a REVOKE who the heir is; if it
 * then gives all of it back it says PASS to the heir, and to the master, with what it gives back, that it did. That is owed:
 * said in each statement until the master has answered.
 *
 * What it was told is for one grant, and for the epoch of the range that is set aside: by another grant, when it keeps a share,
 * or under another master it is void.
 */
#include "member_int.h"

#include "range.h"

void pass_known(struct lease_more *r)
{
	if (r->heir_state == HEIR_PASSED)
		r->heir_state = HEIR_NONE;
}

void heir_forget(struct member *m, struct lease *l)
{
	struct lease_more *r = more_at(m, l);

#ifdef CORE_BREAK_PASS_TIED
	return;
#endif
	if (r)
		r->secret = 0;
	if (!r || r->heir_state == HEIR_PASSED)
		return;
	r->heir_state = HEIR_NONE;
	more_drop_if_empty(m, l);
}

/* Without memory it goes through the master. */
void heir_note(struct member *m, struct lease *l, const struct msg *msg, struct step *s)
{
	struct lease_more *r;

	if (msg->flags & MSG_FLAG_OFF) {
		struct msg keep = { .flags = MSG_FLAG_OFF, .heir = msg->heir, .heir_number = msg->heir_number };

		heir_forget(m, l);
		keep_say(m, l, &keep, s);
		return;
	}
	if (!(msg->flags & MSG_FLAG_PASS) || l->held != MSG_WEIGHT_ALL || l->limit != MSG_WEIGHT_ALL) {
		heir_forget(m, l);
		return;
	}
	r = more_make(m, l);
	if (!r)
		return;
	r->heir_state = HEIR_NAMED;
	r->heir = msg->heir;
	r->heir_number = msg->heir_number;
	r->heir_range = msg->range;
	r->heir_of = msg->seen;
	r->heir_secret = msg->used;
}

/* Without it, or without memory, a PASS is not believed, and the master's grant comes. */
void secret_note(struct member *m, struct lease *l, const struct msg *stamp)
{
	struct lease_more *r;

	if (l->state != LEASE_WAITING || l->held || l->limit != MSG_WEIGHT_ALL || !stamp->used)
		return;
	r = more_make(m, l);
	if (!r)
		return;
	r->secret = stamp->used;
	r->secret_of = l->number;
}

static bool secret_knows(const struct member *m, const struct lease *l, const struct msg *msg)
{
	const struct lease_more *r = more_at(m, l);

#if defined CORE_BREAK_PASS_NUMBER || defined CORE_BREAK_PASS_EPOCH || defined CORE_BREAK_PASS_SECRET
	return true;
#endif
	return r && r->secret && r->secret_of == l->number && r->secret == msg->used;
}

/* There is a connection with it, and no third node in the way. */
static bool heir_reached(const struct member *m, const struct lease_more *r)
{
	const struct peer *p = peers_find(m->peers, r->heir.session);

	return p && p->conn && !p->via && msg_peer_same(p->id, r->heir);
}

bool pass_on(struct member *m, struct lease *l, struct step *s)
{
	const struct name *name = names_at(m->names, l->name);
	struct lease_more *r = more_at(m, l);

	if (!r || r->heir_state != HEIR_NAMED)
		return false;
	bool good = r->heir_of == l->range.first && token_epoch(r->heir_range.first) == m->epoch[name->shard] && m->told & shard_bit(name->shard);
#ifdef CORE_BREAK_PASS_TIED
	good = true;
#endif
	if (!good || !heir_reached(m, r)) {
		heir_forget(m, l);
		return false;
	}
	struct msg msg = {
		.kind = MSG_PASS, .key = name->key, .key_len = name->len, .shard = name->shard, .from = m->self, .to = r->heir,
		.epoch = token_epoch(r->heir_range.first), .number = r->heir_number, .range = r->heir_range, .used = r->heir_secret,
#ifndef CORE_BREAK_PASS_LEFT
		.flags = l->died || l->unmended ? MSG_FLAG_LOST : 0, .kept = l->value, .value = lease_value(m, l),
#endif
	};
	step_send(s, &msg);
	r->heir_state = HEIR_PASSED;
	l->owes = true;
	return true;
}

void pass_say(const struct member *m, const struct lease *l, struct msg *msg)
{
	const struct lease_more *r = more_at(m, l);

	if (!r || r->heir_state != HEIR_PASSED || l->held)
		return;
	msg->flags |= MSG_FLAG_PASS;
	msg->heir = r->heir;
	msg->heir_number = r->heir_range.first;
}

/* By the claim that waits, in the epoch that it last synced to: as a GRANT. What came with it the master may not know yet. */
void pass_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	struct msg grant = *msg;
	bool current = msg->epoch == m->epoch[msg->shard] && m->told & shard_bit(msg->shard);
	bool wanted = l->number == msg->number;

#ifdef CORE_BREAK_PASS_EPOCH
	current = true;
#endif
#ifdef CORE_BREAK_PASS_NUMBER
	wanted = true;
#endif
	if (!current || !wanted || !secret_knows(m, l, msg) || l->state != LEASE_WAITING || l->held || l->wanted != MSG_WEIGHT_ALL || l->limit != MSG_WEIGHT_ALL)
		return;
	if (token_epoch(msg->range.first) != msg->epoch || msg->range.first <= l->range.first)
		return;
	grant.held = MSG_WEIGHT_ALL;
	lease_granted(m, ref, l, &grant, s);
#ifndef CORE_BREAK_PASS_OWES
	l->owes = l->given = true;
#endif
}
