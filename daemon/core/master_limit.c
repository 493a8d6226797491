/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The limit of a semaphore: what it was opened with, until somebody resizes it. Each resizing gets a stamp out of the
 * shard's, which is above all of earlier reigns. All who have the name open are told, a few at a
 * time, and say the highest stamp that they know in each statement: so the latest limit wins, in whatever order
 * a new master hears of it, and whoever states an older one is told again.
 *
 * A node is told before it is granted anything by it. What is granted is never taken away: while more is held than fits, nothing is granted,
 * and those who hold are asked for what is too much, though nobody waits: else each would go on with what it has cached.
 */
#include "grant.h"

#define LIMIT_TELL 4

static uint64_t stamp_of(const struct master *m, const struct master_name *r)
{
	return r->extra ? extra_at(m, r)->limit_stamp : 0;
}

static void limit_set(struct master *m, name_t n, struct master_name *r, uint32_t opened, uint32_t limit, uint64_t stamp)
{
	struct master_extra *x = extra_make(m, r);

	x->opened = opened;
	x->limit_stamp = stamp;
	r->limit = limit;
	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next)
		claim_at(m, i)->limit_old = true;
	if (!r->claims)
		return;
	x->telling = true;
	record_list(m, n);
}

/* A statement or MARK tells of a limit. */
void limit_hear(struct master *m, name_t n, struct master_name *r, const struct msg *msg)
{
	bool later = msg->limit_stamp > stamp_of(m, r);

#ifdef CORE_BREAK_LIMIT_ORDER
	later = true;
#endif
	if (msg->flags & MSG_FLAG_LIMIT && later && (r->limit != MSG_WEIGHT_ALL || !r->claims))
		limit_set(m, n, r, msg->limit, msg->present, msg->limit_stamp);
}

/* Nobody has it open: whoever opens it next says how much there is. */
void limit_begin(struct master *m, struct master_name *r, uint32_t limit, bool open)
{
	if (!open && stamp_of(m, r))
		return;
	if (r->extra) {
		extra_at(m, r)->limit_stamp = 0;
		extra_drop_if_empty(m, r);
	}
	r->limit = limit;
	if (limit != MSG_WEIGHT_ALL)
		value_blank(m, r);               /* permits carry no value */
}

/* Whether the name is what the statement takes it for. What is held has been granted, and is held. */
bool limit_agrees(const struct master *m, const struct master_name *r, const struct msg *msg)
{
	uint32_t limit = msg->limit ? msg->limit : MSG_WEIGHT_ALL;

	if (limit == MSG_WEIGHT_ALL || r->limit == MSG_WEIGHT_ALL)
		return limit == r->limit;
	return limit == r->limit || msg->flags & MSG_FLAG_LIMIT || msg->held || (stamp_of(m, r) && limit == extra_at(m, r)->opened);
}

void limit_resize(struct master *m, name_t n, struct master_name *r, const struct msg *msg)
{
	uint32_t opened = stamp_of(m, r) ? extra_at(m, r)->opened : r->claims ? r->limit : msg->limit;

	if (!(msg->flags & MSG_FLAG_RESIZE) || (r->limit == MSG_WEIGHT_ALL && r->claims))
		return;
	limit_set(m, n, r, opened, msg->resize, ++m->shard[msg->shard].stamp);
}

void limit_tell(struct master *m, name_t n, struct master_claim *c, struct step *s)
{
	const struct master_name *r = record_of(m, n);
	struct msg msg = { .kind = MSG_LIMIT, .limit = r->limit, .held = extra_at(m, r)->opened, .stamp = stamp_of(m, r) };

	c->limit_old = false;
	claim_answer(m, n, c, s, &msg);
}

/* It states an older one, or none. */
void limit_answer(struct master *m, name_t n, struct master_claim *c, const struct msg *msg, struct step *s)
{
	if (stamp_of(m, record_of(m, n)) > (msg->flags & MSG_FLAG_LIMIT ? msg->limit_stamp : 0))
		limit_tell(m, n, c, s);
}

/* Each is asked for all of it, since nobody knows where it is idle; whoever has given too much asks for it again. */
void limit_enforce(struct master *m, name_t n, struct step *s)
{
	struct master_name *r = record_of(m, n);
	unsigned asked = 0;

	if (r->limit == MSG_WEIGHT_ALL || r->held <= r->limit)
		return;
	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next) {
		struct master_claim *c = claim_at(m, i);
		uint64_t missing = r->held - r->limit;
		uint32_t keep = missing >= c->held ? 0 : c->held - (uint32_t)missing;

		if (c->held <= keep || (c->keep <= keep && !c->tried))
			continue;
		if (asked++ == GRANT_REVOKES) {
			record_list(m, n);
			return;
		}
		c->keep = keep;
		c->tried = false;
		revoke_say(m, n, c, s);
	}
}

bool limit_work(struct master *m, name_t n, struct step *s)
{
	struct master_name *r = record_of(m, n);
	unsigned told = 0;

	if (!r->extra || !extra_at(m, r)->telling)
		return false;
	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next) {
		if (!claim_at(m, i)->limit_old)
			continue;
		if (told++ == LIMIT_TELL) {
			record_list(m, n);
			return true;
		}
		limit_tell(m, n, claim_at(m, i), s);
	}
	extra_at(m, r)->telling = false;
	record_list(m, n);                       /* those who wait may fit now */
	return true;
}
