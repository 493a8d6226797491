/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who has a name and who waits for it, for people who ask. It changes nothing, and promises nothing: by the time that it is read, it
 * may be otherwise. While the shard opens there is no answer, since the master does not know all yet.
 */
#include "bytes.h"
#include "grant.h"

static void party_add(struct master *m, const struct master_claim *c, struct msg *account)
{
	uint8_t *p = m->account + account->parties * (size_t)MSG_PARTY;
	uint32_t wanted = c->wait ? wait_at(m, c)->wanted : 0;

	if (!c->held && !wanted)
		return;
	account->wanted++;
	if (account->parties == CORE_PARTIES_MAX)
		return;
	account->parties++;
	le_store(p, 8, m->peers->v[c->peer].id.session);
	le_store(p + 8, 4, c->held);
	le_store(p + 12, 4, wanted);
}

/* Who holds some of it has been told of. */
static void waiter_add(struct master *m, uint32_t handle, struct msg *account)
{
	if (handle && !claim_at(m, handle)->held)
		party_add(m, claim_at(m, handle), account);
}

static void parties_add(struct master *m, const struct master_name *r, struct msg *account)
{
	const struct master_queue *q = queue_at(m, r);

	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next)
		if (claim_at(m, i)->held)
			party_add(m, claim_at(m, i), account);
	if (!q)
		return;
	uint32_t heir = q->heir;

	waiter_add(m, heir, account);
	for (uint32_t i = q->first; i; i = wait_at(m, claim_at(m, i))->next)
		if (i != heir)
			waiter_add(m, i, account);
}

void account_say(struct master *m, const struct msg *msg, struct step *s)
{
	name_t n = names_find(m->names, msg->key, msg->key_len);
	const struct master_name *r = n ? record_of(m, n) : NULL;
	struct msg account = {
		.kind = MSG_ACCOUNT, .key = msg->key, .key_len = msg->key_len, .shard = msg->shard, .epoch = m->shard[msg->shard].epoch,
		.from = m->self, .to = msg->from, .number = msg->number, .party = m->account,
	};

	if (!(m->open & shard_bit(msg->shard)))
		return;
	if (r) {
		account.held = r->held < MSG_WEIGHT_ALL ? (uint32_t)r->held : MSG_WEIGHT_ALL;
		account.limit = r->limit;
		parties_add(m, r, &account);
	}
	step_send(s, &account);
}
