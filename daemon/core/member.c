/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "member_int.h"

#include "range.h"

void member_init(struct member *m, const struct core_memory *mem, struct names *names, struct peers *peers, struct values *values)
{
	memset(m, 0, sizeof *m);
	m->mem = mem;
	m->names = names;
	m->peers = peers;
	m->values = values;
	pool_init(&m->mores, mem, sizeof(struct lease_more));
}

void member_done(struct member *m)
{
	for (uint32_t i = 0; i < m->pieces_max; i++)
		if (m->piece[i].lease)
			m->mem->free(m->mem->arg, m->piece[i].lease, MEMBER_PIECE * sizeof(struct lease));
	if (m->piece)
		m->mem->free(m->mem->arg, m->piece, m->pieces_max * sizeof *m->piece);
	m->piece = NULL;
	m->pieces_max = 0;
	pool_done(&m->mores);
}

void member_begin(struct member *m, struct msg_peer self)
{
	m->self = self;
}

void sync_begin(struct member *m, shard_set_t shards)
{
	m->told |= shards;
	m->syncing |= shards;
	m->beginning |= shards;
	m->begun |= shards;
	if (shards)
		m->cursor = 0;
}

bool master_linked(const struct member *m, unsigned shard)
{
	const struct peer *p = m->epoch[shard] ? peers_find(m->peers, m->master[shard].session) : NULL;

#ifdef CORE_BREAK_NODE_KEY
	return peer_linked(m->peers, p);
#endif
	return peer_linked(m->peers, p) && msg_peer_same(p->id, m->master[shard]);
}

void member_reign(struct member *m, unsigned shard, struct msg_peer master, uint32_t epoch)
{
	core_assert(epoch > m->epoch[shard]);
	m->epoch[shard] = epoch;
	m->master[shard] = master;
	m->told &= ~shard_bit(shard);
	m->syncing &= ~shard_bit(shard);
	m->beginning &= ~shard_bit(shard);
	if (master_linked(m, shard))
		sync_begin(m, shard_bit(shard));
}

void member_linked(struct member *m, uint64_t session)
{
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (m->master[i].session == session && master_linked(m, i))
			sync_begin(m, shard_bit(i));
}

bool member_busy(const struct member *m)
{
	return m->syncing;
}

bool member_ending(const struct member *m)
{
	return m->syncing && (m->beginning || m->cursor / MEMBER_PIECE >= m->pieces_max);
}

/* --- Leases by ref --- */

struct lease *lease_at(const struct member *m, core_ref_t ref)
{
	uint32_t i = ref / MEMBER_PIECE;

	return i < m->pieces_max && m->piece[i].lease ? &m->piece[i].lease[ref % MEMBER_PIECE] : NULL;
}

enum lease_state lease_state(const struct lease *l)
{
	return l ? (enum lease_state)l->state : LEASE_NONE;
}

static int pieces_grow(struct member *m, uint32_t n)
{
	uint32_t max = m->pieces_max ? m->pieces_max : 8;

	while (max < n)
		max *= 2;
	struct member_piece *v = m->mem->alloc(m->mem->arg, max * sizeof *v);
	if (!v)
		return -CORE_ENOMEM;
	memset(v, 0, max * sizeof *v);
	if (m->piece) {
		memcpy(v, m->piece, m->pieces_max * sizeof *v);
		m->mem->free(m->mem->arg, m->piece, m->pieces_max * sizeof *v);
	}
	m->piece = v;
	m->pieces_max = max;
	return 0;
}

/* Afterwards lease_at(ref) is there. */
static int lease_reserve(struct member *m, core_ref_t ref)
{
	uint32_t i = ref / MEMBER_PIECE;

	if (i >= m->pieces_max) {
		int r = pieces_grow(m, i + 1);
		if (r < 0)
			return r;
	}
	if (!m->piece[i].lease) {
		struct lease *v = m->mem->alloc(m->mem->arg, MEMBER_PIECE * sizeof *v);
		if (!v)
			return -CORE_ENOMEM;
		memset(v, 0, MEMBER_PIECE * sizeof *v);
		m->piece[i] = (struct member_piece){ .lease = v };
	}
	return 0;
}

/* An empty piece goes back, but for the first, which spares a single name the allocation. */
static void piece_drop_if_empty(struct member *m, uint32_t i)
{
	if (!i || i >= m->pieces_max || !m->piece[i].lease || m->piece[i].live)
		return;
	m->mem->free(m->mem->arg, m->piece[i].lease, MEMBER_PIECE * sizeof(struct lease));
	m->piece[i].lease = NULL;
}

int lease_make(struct member *m, core_ref_t ref, const void *key, uint16_t key_len, struct lease **ret)
{
	name_t n = names_find(m->names, key, key_len);

	if (n && names_at(m->names, n)->ref != CORE_REF_NONE) {
		const struct lease *other = lease_at(m, names_at(m->names, n)->ref);
		return lease_state(other) == LEASE_RELEASING ? -CORE_EBUSY : -CORE_EEXIST;
	}
	int r = lease_reserve(m, ref);
	if (r < 0)
		return r;
	r = names_make(m->names, key, key_len, &n);
	if (r < 0) {
		piece_drop_if_empty(m, ref / MEMBER_PIECE);
		return r;
	}
	names_at(m->names, n)->ref = ref;
	*ret = lease_at(m, ref);
	**ret = (struct lease){ .name = n };
	m->piece[ref / MEMBER_PIECE].live++;
	m->leases++;
	return 0;
}

void lease_drop(struct member *m, core_ref_t ref)
{
	struct lease *l = lease_at(m, ref);
	uint32_t i = ref / MEMBER_PIECE;

	names_at(m->names, l->name)->ref = CORE_REF_NONE;
	names_drop(m->names, l->name);
	value_drop(m->values, l->value);
	if (l->more)
		pool_give(&m->mores, l->more);
	*l = (struct lease){ 0 };
	m->leases--;
	m->piece[i].live--;
	piece_drop_if_empty(m, i);
}

void lease_end(struct member *m, core_ref_t ref)
{
	struct lease *l = lease_at(m, ref);

	if (!observes(m, l)) {
		lease_drop(m, ref);
		return;
	}
	struct lease_more *r = more_at(m, l);
	r->stamp = 0;
	r->resize = 0;
	r->says = SAYS_NOTHING;
	r->heir_state = HEIR_NONE;
	r->secret = 0;
	value_drop(m->values, l->value);
	*l = (struct lease){ .name = l->name, .more = l->more, .state = LEASE_OBSERVING };
}

void lease_become(struct member *m, struct lease *l, enum lease_state state)
{
	m->waiting -= l->state == LEASE_WAITING || l->state == LEASE_REFILLING;
	m->waiting += state == LEASE_WAITING || state == LEASE_REFILLING;
	l->state = state;
}

/* --- What is left behind --- */

void lease_value_set(struct member *m, struct lease *l, uint32_t value)
{
	value_keep(m->values, value);
	value_drop(m->values, l->value);
	l->value = value;
	l->lost = false;
}

bool lease_leave(struct member *m, struct lease *l, uint32_t value, bool died)
{
	bool new = value && value_later(m->values, value, l->value);

	if (new)
		lease_value_set(m, l, value);
	l->died |= died;
	l->unmended |= died;
	l->owes |= new || died;
	return new || died;
}

struct core_value lease_value(const struct member *m, const struct lease *l)
{
	return l->lost ? (struct core_value){ .state = CORE_VALUE_LOST } : value_describe(m->values, l->value);
}

/* Whoever does not hold keeps only what it owes. */
void lease_forget_if_known(struct member *m, struct lease *l)
{
	l->unmended &= l->held && l->held != MSG_WEIGHT_ALL;
	if (!l->held && !l->owes)
		lease_value_set(m, l, 0);
}

void lease_known(struct member *m, struct lease *l)
{
	l->owes = l->died = l->given = false;
	if (l->more) {
		more_at(m, l)->resize = 0;
		more_at(m, l)->says = SAYS_NOTHING;
		pass_known(more_at(m, l));
		more_drop_if_empty(m, l);
	}
	lease_forget_if_known(m, l);
}

/* --- What masters are told --- */

/* Everything that the member has of the name, whatever the kind. */
static struct msg msg_of(const struct member *m, enum msg_kind kind, const struct lease *l)
{
	const struct name *name = names_at(m->names, l->name);
	struct msg msg = {
		.kind = kind, .key = name->key, .key_len = name->len, .shard = name->shard,
		.from = m->self, .to = m->master[name->shard], .epoch = m->epoch[name->shard],
		.number = l->number, .stamp = l->stamp, .seen = l->range.first, .used = l->range.count,
		.held = l->held, .wanted = l->wanted, .limit = l->limit,
		.priority = kind == MSG_RELEASE ? 0 : l->priority, .delay = kind == MSG_RELEASE ? 0 : l->delay,
		.flags = (uint16_t)((l->upgrade ? MSG_FLAG_UPGRADE : 0) | (kind != MSG_RELEASE && l->tries ? MSG_FLAG_TRY : 0) | (l->died || l->unmended ? MSG_FLAG_DIED : 0) | (l->owes ? MSG_FLAG_OWES : 0)),
	};
	/* A master of another reign than the grant's may not have heard of the value yet, whatever comes first. */
	bool foreign = l->range.first && token_epoch(l->range.first) != msg.epoch;
	bool value = l->owes || (kind == MSG_SYNC && l->held) || (foreign && (l->held || l->state == LEASE_RELEASING));

#ifdef CORE_BREAK_RELEASE_VALUE
	value = kind != MSG_SYNC || l->held;
#endif
	if (value) {
		msg.kept = l->value;
		msg.value = lease_value(m, l);
	}
	if (l->held)
		msg.range = l->range;
	limit_say(m, l, &msg);
	if (kind != MSG_RELEASE)
		news_say(m, l, &msg);
	pass_say(m, l, &msg);
	core_assert(l->state != LEASE_NONE);
	return msg;
}

/* It has been told something, or is being told. */
bool master_reached(const struct member *m, unsigned shard)
{
	return m->told & shard_bit(shard) && master_linked(m, shard);
}

/* If the shard has no master yet, or there is no way to it, the sync will tell. */
void tell(const struct member *m, enum msg_kind kind, const struct lease *l, struct step *s)
{
	if (!master_reached(m, names_at(m->names, l->name)->shard))
		return;
	struct msg msg = msg_of(m, kind, l);
	step_send(s, &msg);
}

/* The first word to a master of one of these shards, or the last. */
static void tell_edge(struct member *m, shard_set_t *of, struct msg msg, struct step *s)
{
	unsigned shard = (unsigned)__builtin_ctzll(*of);

	msg.kind = MSG_SYNC;
	msg.shard = (uint8_t)shard;
	msg.from = m->self;
	msg.to = m->master[shard];
	msg.epoch = m->epoch[shard];
	*of &= ~shard_bit(shard);
	step_send(s, &msg);
}

bool member_work(struct member *m, struct step *s)
{
	if (!m->syncing)
		return false;
	if (m->beginning) {
		tell_edge(m, &m->beginning, (struct msg){ .flags = MSG_FLAG_FIRST }, s);
		return true;
	}
	if (m->cursor / MEMBER_PIECE >= m->pieces_max) {
		tell_edge(m, &m->syncing, (struct msg){ .last = true }, s);
		return true;
	}
	if (!m->piece[m->cursor / MEMBER_PIECE].live) {
		m->cursor = (m->cursor / MEMBER_PIECE + 1) * MEMBER_PIECE;
		return true;
	}
	const struct lease *l = lease_at(m, m->cursor++);
	if (l->state == LEASE_NONE || !(m->syncing & shard_bit(names_at(m->names, l->name)->shard)))
		return true;
	if (l->state != LEASE_OBSERVING)
		tell(m, MSG_SYNC, l, s);
	if (observes(m, l))
		watch_say(m, l, true, s);
	return true;
}

/* --- Sessions --- */

void member_renumber(struct member *m)
{
	m->number = max_u64(m->number, number_first(m->self.incarnation));
	for (core_ref_t ref = 0; ref / MEMBER_PIECE < m->pieces_max; ref++) {
		struct lease *l = lease_at(m, ref);

		if (!l)
			ref += MEMBER_PIECE - 1;
		else if (l->state != LEASE_NONE)
			l->number = ++m->number;
	}
}

void member_lapse(struct member *m)
{
	m->number = 0;                           /* a session has its own; a restart within it counts on from the incarnation */
	for (core_ref_t ref = 0; ref / MEMBER_PIECE < m->pieces_max; ref++) {
		struct lease *l = lease_at(m, ref);

		if (!l) {
			ref += MEMBER_PIECE - 1;
			continue;
		}
		if (observes(m, l))
			more_at(m, l)->unsure = true;
		if (l->state == LEASE_NONE || l->state == LEASE_OBSERVING)
			continue;
		if (l->state == LEASE_WAITING) {
			l->stamp = 0;
			l->range = (struct core_range){ 0 };
			lease_known(m, l);             /* nobody asks a session that has ended */
			l->number = ++m->number;
			continue;
		}
		lease_become(m, l, LEASE_NONE);
		lease_end(m, ref);
	}
	memset(m->epoch, 0, sizeof m->epoch);
	memset(m->master, 0, sizeof m->master);
	m->told = m->syncing = m->beginning = m->begun = 0;
}
