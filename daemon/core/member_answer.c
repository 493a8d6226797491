/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What masters say to a member. */
#include "member_int.h"

#include "range.h"

void lease_granted(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	if (!l->held) {
		lease_value_set(m, l, msg->kept);
		l->lost = msg->value.state == CORE_VALUE_LOST;
	}
	heir_forget(m, l);
	l->range = msg->range;
	l->held = msg->held;
	l->unmended = msg->flags & MSG_FLAG_LOST;
	l->tries = false;
	lease_known(m, l);
	l->wanted = 0;
	l->upgrade = false;
	if (msg->stamp)
		l->stamp = msg->stamp;
	m->grants++;
	lease_become(m, l, LEASE_HELD);

#ifndef CORE_BREAK_SLOT
	const enum core_action_kind order[] = { CORE_ACT_LEDGER_GRANT, CORE_ACT_GRANT };
#else
	const enum core_action_kind order[] = { CORE_ACT_GRANT, CORE_ACT_LEDGER_GRANT };
#endif
	for (unsigned i = 0; i < CORE_ARRAY_N(order); i++) {
		struct core_action *a = step_act(s, order[i]);
		a->name.ref = ref;
		a->name.range = l->range;
		a->name.number = l->number;
		a->name.weight = l->held;
		a->name.delay = l->delay;
		a->name.lost = msg->flags & MSG_FLAG_LOST;
		a->name.observed = msg->flags & MSG_FLAG_OBSERVED;
		a->name.value = lease_value(m, l);
	}
}

/* It came by a PASS before, or is said twice: the master knows what it knows. */
static void grant_repeated(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	lease_known(m, l);
	if (msg->flags & MSG_FLAG_OBSERVED)
		step_act(s, CORE_ACT_OBSERVED)->name.ref = ref;
}

static void take_grant(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	bool refill = l->wanted == l->held;
	bool newer = msg->range.first >= (refill ? l->range.first + l->range.count : l->range.first + 1);

#ifdef CORE_BREAK_REFILL
	newer = true;
#endif
	if (!(m->told & shard_bit(msg->shard)))
		return;
	if (l->held && l->range.first == msg->range.first) {
		grant_repeated(m, ref, l, msg, s);
		return;
	}
#ifndef CORE_BREAK_WAITS
	if ((l->state != LEASE_WAITING && l->state != LEASE_REFILLING) || msg->held != l->wanted)
		return;
#endif
	if (NEVER(!newer || !range_valid(msg->range)))
		return;
#ifndef CORE_BREAK_STALE_EPOCH
	if (NEVER(token_epoch(msg->range.first) != msg->epoch))
		return;
#endif
	lease_granted(m, ref, l, msg, s);
}

static void take_refused(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	if (l->state != LEASE_WAITING && l->state != LEASE_REFILLING)
		return;
	bool held = l->state == LEASE_REFILLING;
	lease_known(m, l);
	l->wanted = 0;
	l->upgrade = l->tries = false;
	lease_become(m, l, held ? LEASE_HELD : LEASE_NONE);
	if (!held)
		lease_end(m, ref);
	struct core_action *a = step_act(s, CORE_ACT_REFUSED);
	a->name.ref = ref;
	a->name.error = msg->error;
}

static void take_released(struct member *m, core_ref_t ref, struct lease *l, struct step *s)
{
	if (l->state != LEASE_RELEASING)
		return;
	bool silent = l->silent;

	lease_end(m, ref);
	if (!silent)
		step_act(s, CORE_ACT_FORGOTTEN)->name.ref = ref;
#ifdef CORE_BREAK_LEDGER
	step_act(s, CORE_ACT_LEDGER_RELEASE)->name.ref = ref;
#endif
}

/* It may keep so much; of what it holds by another grant by now the master will say so anew. */
static void take_revoke(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	if (l->range.first != msg->seen || l->held <= msg->held)
		return;
	heir_note(m, l, msg, s);
	struct core_action *a = step_act(s, CORE_ACT_REVOKE);
	a->name.ref = ref;
	a->name.weight = msg->held;
	a->name.tries = msg->flags & MSG_FLAG_TRY;
	a->name.priority = msg->priority;
}

/* The master asks for a sync to the epoch that the map has told us of; another the map will tell of first. */
static void take_reign(struct member *m, const struct msg *msg)
{
	if (master_linked(m, msg->shard))
		sync_begin(m, shard_bit(msg->shard));
}

static bool of_present_master(const struct member *m, const struct msg *msg)
{
#ifdef CORE_BREAK_STALE_EPOCH
	if (msg->kind == MSG_GRANT)
		return true;
#endif
#ifdef CORE_BREAK_NODE_KEY
	return msg->from.session == m->master[msg->shard].session && msg->epoch == m->epoch[msg->shard];
#endif
	return msg_peer_same(msg->from, m->master[msg->shard]) && msg->epoch == m->epoch[msg->shard];
}

void member_receive(struct member *m, const struct msg *msg, struct step *s)
{
	if (msg->kind != MSG_PASS && !of_present_master(m, msg))
		return;
	if (msg->kind == MSG_REIGN) {
		take_reign(m, msg);
		return;
	}

	if (msg->kind == MSG_ACCOUNT) {
		account_receive(m, msg, s);
		return;
	}

	name_t n = names_find(m->names, msg->key, msg->key_len);
	core_ref_t ref = n ? names_at(m->names, n)->ref : CORE_REF_NONE;
	struct lease *l = ref == CORE_REF_NONE ? NULL : lease_at(m, ref);
	if (!l)
		return;
	if (msg->kind == MSG_REVOKE) {
		take_revoke(m, ref, l, msg, s);
		return;
	}
	if (msg->kind == MSG_PASS) {
		pass_receive(m, ref, l, msg, s);
		return;
	}
	if (msg->kind == MSG_LIMIT) {
		limit_receive(m, ref, l, msg, s);
		return;
	}
	if (msg->kind == MSG_NEWS) {
		news_receive(m, ref, l, msg, s);
		return;
	}
	if (msg->kind == MSG_OBSERVED) {
		observed_receive(ref, l, msg, s);
		return;
	}
	if (l->number != msg->number)
		return;
	switch (msg->kind) {
	case MSG_GRANT:
		take_grant(m, ref, l, msg, s);
		return;
	case MSG_REFUSED:
		take_refused(m, ref, l, msg, s);
		return;
	case MSG_RELEASED:
		take_released(m, ref, l, s);
		return;
	case MSG_STAMP:
		if (l->state == LEASE_RELEASING)
			return;
		if (msg->stamp)
			l->stamp = msg->stamp;
		if (!l->given || !msg->stamp)    /* a place in the queue was given before it was granted */
			lease_known(m, l);
		secret_note(m, l, msg);
		return;
	case MSG_REVOKE:
	case MSG_PASS:
	case MSG_LIMIT:
	case MSG_NEWS:
	case MSG_OBSERVED:
	case MSG_ENQUIRE:
	case MSG_ACCOUNT:
	case MSG_OBSERVE:
	case MSG_KEEP:
	case MSG_PLACE:
	case MSG_REIGN:
	case MSG_SYNC:
	case MSG_CLAIM:
	case MSG_RELEASE:
	case MSG_HANDOVER:
	case MSG_MARK:
	case MSG_ARRIVE:
	case MSG_ENROL:
	case MSG_ANNOUNCE:
	case MSG_GO:
	case MSG_ASK:
	case MSG_ANSWER:
	case MSG_PAST:
		(void)NEVER(true);
		return;
	}
}
