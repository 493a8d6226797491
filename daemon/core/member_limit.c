/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The member's part in the limit of a semaphore. What the master has made of a wish to resize is told to all
 * who have the name open, with a stamp; the highest stamp that a member has been told goes into each of its
 * statements, so the latest limit survives the master. The wish itself is owed (member.h), under a claim number
 * of its own, so that it is carried out once.
 */
#include "member_int.h"

uint32_t limit_most(const struct member *m, const struct lease *l)
{
	const struct lease_more *r = more_at(m, l);

	return l->limit == MSG_WEIGHT_ALL || !r || !r->stamp ? l->limit : CORE_LIMIT_MAX;
}

void limit_say(const struct member *m, const struct lease *l, struct msg *msg)
{
	const struct lease_more *r = more_at(m, l);

	if (r && r->stamp && msg->kind != MSG_RELEASE) {
		msg->flags |= MSG_FLAG_LIMIT;
		msg->limit_stamp = r->stamp;
		msg->present = r->present;
	}
	if (r && r->resize) {
		msg->flags |= MSG_FLAG_RESIZE;
		msg->resize = r->resize;
	}
}

/* stamp 0: nothing is. Without memory the master tells it once more, if anybody else has it open. */
void limit_known(struct member *m, struct lease *l, uint32_t present, uint64_t stamp)
{
	struct lease_more *r = stamp ? more_make(m, l) : NULL;

	if (!r)
		return;
	r->stamp = stamp;
	r->present = present;
}

int member_resize(struct member *m, const struct core_event *ev, struct step *s)
{
	struct lease *l = lease_at(m, ev->resize.ref);

	switch (lease_state(l)) {
	case LEASE_NONE:
	case LEASE_OBSERVING:
		return -CORE_ENOENT;
	case LEASE_RELEASING:
		return -CORE_EINVAL;
	case LEASE_WAITING:
	case LEASE_HELD:
	case LEASE_REFILLING:
		break;
	}
	if (l->limit == MSG_WEIGHT_ALL || !ev->resize.limit || ev->resize.limit > CORE_LIMIT_MAX)
		return -CORE_EINVAL;
	struct lease_more *r = more_make(m, l);
	if (!r)
		return -CORE_ENOMEM;
	r->resize = ev->resize.limit;
	l->owes = true;
	l->number = ++m->number;
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

/* Whatever is told in whatever order: the latest counts. What there is no memory for is told again with the next statement. */
void limit_receive(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	struct lease_more *r = more_at(m, l);

	if (l->limit == MSG_WEIGHT_ALL || l->state == LEASE_RELEASING || (r && r->stamp >= msg->stamp))
		return;
	r = more_make(m, l);
	if (!r)
		return;
	r->stamp = msg->stamp;
	r->present = msg->limit;
	l->limit = msg->held;
	struct core_action *a = step_act(s, CORE_ACT_RESIZED);
	a->name.ref = ref;
	a->name.weight = r->present;
	a->name.number = r->stamp;
}
