/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The member's part in observing who leads. An observer says so to the master, once and in each sync, and is told
 * the latest news: (term, count) and the value, or that nobody leads. Its own (term, count) never goes back,
 * whoever tells: the highest term is the latest reign of a leader, however long the news was under way. In a new session it is
 * told again what still holds.
 *
 * Of a lease that somebody observes the node that holds it tells who leads, at each hand-over: that is a statement
 * under a claim number of its own, so it is owed as a release is (member.h).
 */
#include "member_int.h"

#define NOBODY UINT32_MAX                /* the count that says that after this term nobody leads */

struct lease_more *more_make(struct member *m, struct lease *l)
{
	if (!l->more && pool_reserve(&m->mores, 1) < 0)
		return NULL;
	if (!l->more)
		l->more = pool_take(&m->mores);
	return more_at(m, l);
}

void more_drop_if_empty(struct member *m, struct lease *l)
{
	const struct lease_more *r = more_at(m, l);

	if (!r || r->stamp || r->resize || r->observes || r->says || r->heir_state != HEIR_NONE || r->secret)
		return;
	pool_give(&m->mores, l->more);
	l->more = 0;
}

bool observes(const struct member *m, const struct lease *l)
{
	return l->more && more_at(m, l)->observes;
}

void watch_say(const struct member *m, const struct lease *l, bool on, struct step *s)
{
	const struct name *name = names_at(m->names, l->name);
	struct msg msg = {
		.kind = MSG_OBSERVE, .key = name->key, .key_len = name->len, .shard = name->shard, .from = m->self,
		.to = m->master[name->shard], .epoch = m->epoch[name->shard], .flags = on ? 0 : MSG_FLAG_OFF,
	};

	if (master_reached(m, name->shard))
		step_send(s, &msg);
}

int watch_begin(struct member *m, core_ref_t ref, struct step *s)
{
	struct lease *l = lease_at(m, ref);
	struct lease_more *r = more_make(m, l);

	if (!r)
		return -CORE_ENOMEM;
	if (r->observes)
		return -CORE_EALREADY;
	r->observes = true;
	r->term = 0;
	r->count = 0;
	watch_say(m, l, true, s);
	return 0;
}

void watch_end(struct member *m, struct lease *l, struct step *s)
{
	more_at(m, l)->observes = false;
	more_drop_if_empty(m, l);
	watch_say(m, l, false, s);
}

void news_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	struct lease_more *r = more_at(m, l);
	bool later = r && (msg->term > r->term || (msg->term == r->term && (msg->count > r->count || (r->unsure && msg->count == r->count))));

#ifdef CORE_BREAK_OLD_NEWS
	later = true;
#endif
	if (!r || !r->observes || !later)
		return;
	r->term = msg->term;
	r->count = msg->count;
	r->unsure = false;
	struct core_action *a = step_act(s, CORE_ACT_NEWS);
	a->name.ref = ref;
	if (msg->flags & MSG_FLAG_LEADS)
		a->name.value = msg->value;
	a->name.value.state = msg->flags & MSG_FLAG_LEADS ? CORE_VALUE_KNOWN : CORE_VALUE_NONE;
	a->name.value.token = msg->term;
	a->name.value.count = msg->count;
}

/* Of a lease that was granted by the grant that the master speaks of. */
void observed_receive(core_ref_t ref, const struct lease *l, const struct msg *msg, struct step *s)
{
	if (l->held == MSG_WEIGHT_ALL && l->range.first == msg->seen)
		step_act(s, CORE_ACT_OBSERVED)->name.ref = ref;
}

/* Somebody leads by a token of the lease, or nobody does any more. */
int proclaim(struct member *m, struct lease *l, const struct core_event *ev)
{
	const struct core_value *v = &ev->proclaim.value;
	struct lease_more *r;

	if (v->state == CORE_VALUE_LOST || (v->state == CORE_VALUE_NONE && v->token >= l->range.first + l->range.count))
		return -CORE_EINVAL;
	r = more_make(m, l);
	if (!r)
		return -CORE_ENOMEM;
	r->says = v->state == CORE_VALUE_KNOWN ? SAYS_LEADS : SAYS_NOBODY;
	r->say_term = v->state == CORE_VALUE_KNOWN ? v->token : max_u64(v->token, l->range.first - 1);
	r->say_count = v->state == CORE_VALUE_KNOWN ? v->count : NOBODY;
	l->owes = true;
	l->number = ++m->number;
	return 0;
}

void news_say(const struct member *m, const struct lease *l, struct msg *msg)
{
	const struct lease_more *r = more_at(m, l);

	if (!r || !r->says || l->held != MSG_WEIGHT_ALL)
		return;
	msg->flags |= MSG_FLAG_NEWS | (r->says == SAYS_LEADS ? MSG_FLAG_LEADS : 0);
	msg->term = r->say_term;
	msg->count = r->say_count;
}
