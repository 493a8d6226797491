/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a master that has been followed by another tells that one (S9): which holders were lost, which
 * sessions held alone, or shares and permits with a lock-delay, which values names have. What members hold they tell themselves.
 */
#include "grant.h"

void master_tell(struct master *m, unsigned shard, struct msg_peer to, uint32_t epoch)
{
	/* If another has reigned in between, what we knew is no longer so. */
	if (!(m->frozen & shard_bit(shard)) || m->shard[shard].epoch + 1 != epoch)
		return;
	m->telling |= shard_bit(shard);
	m->telling_to[shard] = to;
	m->telling_epoch[shard] = epoch;
	if (m->telling_shard == shard)
		m->telling_shard = CORE_SHARDS;
}

static struct msg tell_msg(const struct master *m, enum msg_kind kind, unsigned shard)
{
	return (struct msg){ .kind = kind, .shard = (uint8_t)shard, .from = m->self, .to = m->telling_to[shard],
			     .epoch = m->telling_epoch[shard] };
}

/* First that it begins, then what was lost, what is held alone and what was left, name by name, then that this was all. */
bool master_tell_work(struct master *m, struct step *s)
{
	if (!m->telling)
		return false;
	if (m->telling_shard == CORE_SHARDS) {
		m->telling_shard = (unsigned)__builtin_ctzll(m->telling);
		m->telling_at = m->shard[m->telling_shard].names;
		m->telling_mourned = m->shard[m->telling_shard].mourned;
		m->telling_marks = 0;
		struct msg begin = tell_msg(m, MSG_HANDOVER, m->telling_shard);
		begin.number = m->shard[m->telling_shard].epoch;
		begin.flags = MSG_FLAG_FIRST;
		step_send(s, &begin);
		return true;
	}
	unsigned shard = m->telling_shard;
	if (m->telling_at) {
		const struct name *name = names_at(m->names, m->telling_at);
		const struct master_name *r = record_of(m, m->telling_at);
		struct msg mark = tell_msg(m, MSG_MARK, shard);

		mark.key = name->key;
		mark.key_len = name->len;
		mark.number = r->holder;
#ifndef CORE_BREAK_DELAY_MARK
		mark.delay = r->holder ? r->delay : 0;
#endif
		mark.flags = (uint16_t)((r->lost ? MSG_FLAG_LOST : 0) | (r->known ? MSG_FLAG_KNOWN : 0));
		if (r->extra && extra_at(m, r)->limit_stamp) {
			mark.flags |= MSG_FLAG_LIMIT;
			mark.limit = extra_at(m, r)->opened;
			mark.present = r->limit;
			mark.limit_stamp = extra_at(m, r)->limit_stamp;
		}
		mark.value = value_state(m, r);
		mark.kept = value_of(m, r);
		mark.used = r->lost && not_before_of(m, r) > s->now ? not_before_of(m, r) - s->now : 0;
		step_send(s, &mark);
		m->telling_at = r->shard_next;
		return true;
	}
#ifndef CORE_BREAK_DELAY_SHARE_MARK
	struct msg shared = tell_msg(m, MSG_MARK, shard);
	name_t of;
	if (mourn_say(m, &shared, &of)) {
		shared.key = names_at(m->names, of)->key;
		shared.key_len = names_at(m->names, of)->len;
		step_send(s, &shared);
		return true;
	}
#endif
	struct msg over = tell_msg(m, MSG_HANDOVER, shard);
	over.number = m->shard[shard].epoch;
	over.flags = (uint16_t)((m->suspect & shard_bit(shard) ? 0 : MSG_FLAG_CLEAN) | (m->forgot & shard_bit(shard) ? MSG_FLAG_FORGOT : 0));
	if (mourn_unknown(m, shard, &over.used) || (m->suspect & shard_bit(shard) && m->shard[shard].recorded[DELAY_SHARED]))
		over.flags |= MSG_FLAG_SHARED;
	step_send(s, &over);
	m->telling &= ~shard_bit(shard);
	m->telling_shard = CORE_SHARDS;
	return true;
}
