/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The member's part where somebody asks who has a name: it asks the master, once. Question or answer may get lost: whoever asks waits for so long only. */
#include "bytes.h"
#include "member_int.h"

int member_enquire(struct member *m, const struct core_event *ev, struct step *s)
{
	struct msg msg = { .kind = MSG_ENQUIRE, .key = ev->enquire.key, .key_len = ev->enquire.key_len, .number = ev->enquire.number, .from = m->self };

	if (!ev->enquire.key || !ev->enquire.key_len || ev->enquire.key_len > CORE_KEY_MAX)
		return -CORE_EINVAL;
	unsigned shard = shard_of(msg.key, msg.key_len);
	if (!master_reached(m, shard))
		return -CORE_EAGAIN;
	msg.shard = (uint8_t)shard;
	msg.to = m->master[shard];
	msg.epoch = m->epoch[shard];
	step_send(s, &msg);
	return 0;
}

void account_receive(struct member *m, const struct msg *msg, struct step *s)
{
	const uint8_t *p = msg->party;
	struct core_action *a = step_act(s, CORE_ACT_ACCOUNT);

	a->account.number = msg->number;
	a->account.held = msg->held;
	a->account.limit = msg->limit;
	a->account.all = msg->wanted;
	a->account.n = msg->parties;
	a->account.parties = m->account;
	for (unsigned i = 0; i < msg->parties; i++, p += MSG_PARTY)
		m->account[i] = (struct core_party){ le_load(p, 8), (uint32_t)le_load(p + 8, 4), (uint32_t)le_load(p + 12, 4) };
}
