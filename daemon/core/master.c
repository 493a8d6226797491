/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CORE_BREAK_* are for tests/unit/core_mutants.sh: each takes away one rule, and a test must see it.
 */
#include "master.h"

#include "range.h"

void master_init(struct master *m, const struct core_memory *mem, struct names *names)
{
	memset(m, 0, sizeof *m);
	m->names = names;
	pool_init(&m->claims, mem, sizeof(struct master_claim));
}

void master_done(struct master *m)
{
	pool_done(&m->claims);
}

void master_begin(struct master *m, struct msg_peer self, const struct msg_peer *members, unsigned n)
{
	core_assert(n <= MASTER_MEMBERS_MAX);
	m->self = self;
	m->members = n;
	for (unsigned i = 0; i < n; i++)
		m->member[i] = (struct master_member){ .peer = members[i] };
}

static void shard_open_when_synced(struct master *m, unsigned shard)
{
	shard_set_t synced = m->opening & shard_bit(shard);

#ifndef CORE_BREAK_SYNC
	for (unsigned i = 0; i < m->members; i++)
		synced &= m->member[i].synced;
#endif
	m->opening &= ~synced;
	m->open |= synced;
	m->opened |= synced;
}

void master_reign(struct master *m, unsigned shard, uint32_t epoch)
{
	struct master_shard *sh = &m->shard[shard];
	shard_set_t bit = shard_bit(shard);

	core_assert(epoch > sh->epoch && epoch <= EPOCH_MAX);
	sh->epoch = epoch;
	sh->floor = token_make(epoch, 0);
	sh->stamp = token_make(epoch, 0);
	for (unsigned i = 0; i < m->members; i++)
		m->member[i].synced &= ~bit;
	m->open &= ~bit;
	m->raise &= ~bit;
	m->opening |= bit;
#ifdef CORE_BREAK_SYNC
	shard_open_when_synced(m, shard);
#endif
}

int master_reserve(struct master *m)
{
	return pool_reserve(&m->claims, 1);
}

bool master_busy(const struct master *m)
{
	return m->open & m->waiting;
}

/* --- Records --- */

static struct master_claim *claim_at(const struct master *m, name_t n)
{
	uint32_t handle = names_at(m->names, n)->claims;

	return handle ? pool_at(&m->claims, handle) : NULL;
}

static struct master_claim *claim_make(struct master *m, name_t n)
{
	struct name *name = names_at(m->names, n);

	if (!name->claims)
		name->claims = pool_take(&m->claims);
	return pool_at(&m->claims, name->claims);
}

/* What is listed is not unlinked: its turn comes, and finds that nobody waits. */
static void claim_drop_if_idle(struct master *m, name_t n)
{
	struct name *name = names_at(m->names, n);
	struct master_claim *c = pool_at(&m->claims, name->claims);

	if (c->flags)
		return;
	pool_give(&m->claims, name->claims);
	name->claims = 0;
	names_drop(m->names, n);
}

static void waiting_put(struct master *m, name_t n, struct master_claim *c)
{
	unsigned shard = names_at(m->names, n)->shard;
	struct master_shard *sh = &m->shard[shard];

	if (c->flags & CLAIM_LISTED)
		return;
	c->flags |= CLAIM_LISTED;
	c->next = 0;
	if (sh->waiting_last)
		claim_at(m, sh->waiting_last)->next = n;
	else
		sh->waiting_first = n;
	sh->waiting_last = n;
	m->waiting |= shard_bit(shard);
}

static name_t waiting_get(struct master *m, unsigned shard)
{
	struct master_shard *sh = &m->shard[shard];
	name_t n = sh->waiting_first;
	struct master_claim *c = claim_at(m, n);

	core_assert(c && c->flags & CLAIM_LISTED);
	c->flags &= (uint16_t)~CLAIM_LISTED;
	sh->waiting_first = c->next;
	if (!sh->waiting_first) {
		sh->waiting_last = 0;
		m->waiting &= ~shard_bit(shard);
	}
	return n;
}

/* --- Answers --- */

static void answer(struct master *m, name_t n, const struct master_claim *c, struct step *s, struct msg *msg)
{
	const struct name *name = names_at(m->names, n);

	msg->key = name->key;
	msg->key_len = name->len;
	msg->shard = name->shard;
	msg->epoch = m->shard[name->shard].epoch;
	msg->from = m->self;
	msg->to = m->member[c->member].peer;
	msg->number = c->number;
	msg_put(s->queue, msg);
}

static void grant_say(struct master *m, name_t n, const struct master_claim *c, uint64_t stamp, struct step *s)
{
	struct msg grant = { .kind = MSG_GRANT, .range = c->range, .stamp = stamp };

	answer(m, n, c, s, &grant);
}

/* The counter has come to its end. The next epoch begins it anew, if there is one. */
static void shard_raise(struct master *m, name_t n, struct master_claim *c, struct step *s)
{
	unsigned shard = names_at(m->names, n)->shard;

	c->flags &= (uint16_t)~CLAIM_WAITING;
	if (m->shard[shard].epoch == EPOCH_MAX) {
		struct msg refused = { .kind = MSG_REFUSED, .error = -CORE_EOVERFLOW };
		answer(m, n, c, s, &refused);
	} else {
		m->open &= ~shard_bit(shard);
		m->raise |= shard_bit(shard);
	}
	claim_drop_if_idle(m, n);
}

static void grant(struct master *m, name_t n, struct master_claim *c, struct step *s)
{
	struct master_shard *sh = &m->shard[names_at(m->names, n)->shard];
	bool more = c->flags & CLAIM_HELD && token_epoch(c->range.first) == sh->epoch;
	struct core_range next = { .first = sh->floor + 1, .count = RANGE_FIRST };

	if (more) {
		next.first = c->range.first + c->range.count;
		next.count = range_next_count(c->range.count, s->now - c->granted_at);
#ifdef CORE_BREAK_REFILL
		next.first = c->range.first + c->range.count / 2;
#endif
	}
#ifndef CORE_BREAK_RAISE
	if (next.first > token_make(sh->epoch, COUNTER_LAST_FIRST) || token_counter(sh->stamp) > COUNTER_LAST_FIRST) {
		shard_raise(m, n, c, s);
		return;
	}
#endif

	uint64_t stamp = c->flags & CLAIM_HELD ? 0 : c->stamp;
	c->range = next;
	c->granted_at = s->now;
	c->flags = (uint16_t)((c->flags & ~CLAIM_WAITING) | CLAIM_HELD);
	grant_say(m, n, c, stamp, s);
}

/* --- Messages --- */

/* The member waits. What it has seen tells whether a grant is under way to it already. */
static void take_claim(struct master *m, name_t n, unsigned member, const struct msg *msg, struct step *s)
{
	struct master_shard *sh = &m->shard[msg->shard];
	struct master_claim *c = claim_at(m, n);
	bool held = c && c->flags & CLAIM_HELD && c->number == msg->number;

	/* A claim for more of what the master has not heard of yet: the sync will tell, and ask again. */
	if (!held && msg->held)
		return;
	if (held && msg->seen != c->range.first) {
		if (!NEVER(msg->seen > c->range.first))
			grant_say(m, n, c, 0, s);
		return;
	}
	if (!held) {
		c = claim_make(m, n);
		if (NEVER(c->flags & CLAIM_HELD))
			return;
		if (!(c->flags & CLAIM_WAITING) || c->number != msg->number)
			c->stamp = msg->stamp ? msg->stamp : ++sh->stamp;
		c->member = (uint16_t)member;
		c->number = msg->number;
	}
	c->flags |= CLAIM_WAITING;
	if (m->open & shard_bit(msg->shard))
		grant(m, n, c, s);
	else
		waiting_put(m, n, c);
}

/*
 * Forgets the claim. The floor keeps the next claim of the name above what has been used, which is
 * believed only as far as time allows (range.h); of a grant that the member never saw, all of it.
 * A range of an older epoch is below every token of this one anyway.
 */
static void take_release(struct master *m, name_t n, unsigned member, const struct msg *msg, struct step *s)
{
	struct master_shard *sh = &m->shard[msg->shard];
	struct master_claim *c = claim_at(m, n);

	if (c && c->member == member && c->number == msg->number) {
		if (c->flags & CLAIM_HELD && token_epoch(c->range.first) == sh->epoch) {
			uint64_t used = msg->seen == c->range.first ?
				range_believed(c->range, msg->used, s->now - c->granted_at) : c->range.count;
#ifndef CORE_BREAK_FLOOR
			sh->floor = max_u64(sh->floor, c->range.first + used - 1);
#else
			(void)used;
#endif
		}
		c->flags &= CLAIM_LISTED;
		claim_drop_if_idle(m, n);
	}
	struct msg released = {
		.kind = MSG_RELEASED, .key = msg->key, .key_len = msg->key_len, .shard = msg->shard,
		.epoch = sh->epoch, .from = m->self, .to = msg->from, .number = msg->number,
	};
	msg_put(s->queue, &released);
}

/*
 * What a member has is the truth, and the master's own record of an older reign is not. Of this
 * reign the master knows more: what it has granted since is on top of what the member says (S10).
 */
static void take_held(struct master *m, name_t n, unsigned member, const struct msg *msg, struct step *s)
{
	struct master_shard *sh = &m->shard[msg->shard];
	struct master_claim *c = claim_make(m, n);

	if (NEVER(!range_valid(msg->range)))
		return;
	if (c->flags & CLAIM_HELD && (token_epoch(c->range.first) == sh->epoch || c->range.first == msg->range.first))
		return;
	c->member = (uint16_t)member;
	c->number = msg->number;
	c->range = msg->range;
	c->granted_at = s->now;
	c->flags = (uint16_t)((c->flags & CLAIM_LISTED) | CLAIM_HELD);
}

static void take_sync(struct master *m, name_t n, unsigned member, const struct msg *msg, struct step *s)
{
	if (m->raise & shard_bit(msg->shard))
		return;
	if (msg->last) {
		m->member[member].synced |= shard_bit(msg->shard);
		shard_open_when_synced(m, msg->shard);
		return;
	}
	if (msg->held)
		take_held(m, n, member, msg, s);
	if (msg->wanted)
		take_claim(m, n, member, msg, s);
	if (!msg->held && !msg->wanted)
		take_release(m, n, member, msg, s);
}

void master_receive(struct master *m, const struct msg *msg, struct step *s)
{
	unsigned member = 0;

	while (member < m->members && !msg_peer_same(m->member[member].peer, msg->from))
		member++;
	if (member == m->members || msg->epoch != m->shard[msg->shard].epoch)
		return;

	/* The member has the name, so it is in the table; were it on another node, it would be made here. */
	name_t n = msg->last ? 0 : names_find(m->names, msg->key, msg->key_len);
	if (NEVER(!n && !msg->last))
		return;
	switch (msg->kind) {
	case MSG_SYNC:
		take_sync(m, n, member, msg, s);
		return;
	case MSG_CLAIM:
		if (!(m->raise & shard_bit(msg->shard)))
			take_claim(m, n, member, msg, s);
		return;
	case MSG_RELEASE:
		take_release(m, n, member, msg, s);
		return;
	case MSG_GRANT:
	case MSG_REFUSED:
	case MSG_RELEASED:
		(void)NEVER(true);
		return;
	}
}

bool master_work(struct master *m, struct step *s)
{
	if (!master_busy(m))
		return false;

	name_t n = waiting_get(m, (unsigned)__builtin_ctzll(m->open & m->waiting));
	struct master_claim *c = claim_at(m, n);
	if (c->flags & CLAIM_WAITING)
		grant(m, n, c, s);
	else
		claim_drop_if_idle(m, n);
	return true;
}
