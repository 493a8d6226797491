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

static void sync_begin(struct member *m, shard_set_t shards)
{
	m->told |= shards;
	m->syncing |= shards;
	m->beginning |= shards;
	m->begun |= shards;
	if (shards)
		m->cursor = 0;
}

static bool master_linked(const struct member *m, unsigned shard)
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

static int lease_make(struct member *m, core_ref_t ref, const void *key, uint16_t key_len, struct lease **ret)
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

static void lease_drop(struct member *m, core_ref_t ref)
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

static void value_set(struct member *m, struct lease *l, uint32_t value)
{
	value_keep(m->values, value);
	value_drop(m->values, l->value);
	l->value = value;
	l->lost = false;
}

static bool bytes_valid(const struct core_value *v)
{
	return v->len <= CORE_VALUE_MAX && (v->bytes || !v->len) && v->count && token_epoch(v->token) && token_counter(v->token);
}

/* Of a lock that is held exclusively, and published under a token of it or of a range before. */
static bool value_valid(const struct lease *l, const struct core_value *v)
{
	if (v->state == CORE_VALUE_NONE)
		return true;
	return v->state == CORE_VALUE_KNOWN && bytes_valid(v) && l->limit == MSG_WEIGHT_ALL && l->held == MSG_WEIGHT_ALL &&
	       v->token < l->range.first + l->range.count;
}

static bool death_valid(const struct lease *l, bool died)
{
	return !died || (l->limit == MSG_WEIGHT_ALL && l->held);
}

/* Whether there is something that no statement has said yet. */
static bool leave(struct member *m, struct lease *l, uint32_t value, bool died)
{
	bool new = value && value_later(m->values, value, l->value);

	if (new)
		value_set(m, l, value);
	l->died |= died;
	l->unmended |= died;
	l->owes |= new || died;
	return new || died;
}

static struct core_value value_of(const struct member *m, const struct lease *l)
{
	return l->lost ? (struct core_value){ .state = CORE_VALUE_LOST } : value_describe(m->values, l->value);
}

/* Whoever does not hold keeps only what it owes. */
static void forget_if_known(struct member *m, struct lease *l)
{
	l->unmended &= l->held && l->held != MSG_WEIGHT_ALL;
	if (!l->held && !l->owes)
		value_set(m, l, 0);
}

/* The master has answered to this number. */
static void known(struct member *m, struct lease *l)
{
	l->owes = l->died = false;
	if (l->more) {
		more_at(m, l)->resize = 0;
		more_at(m, l)->says = SAYS_NOTHING;
		more_drop_if_empty(m, l);
	}
	forget_if_known(m, l);
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
		.priority = kind == MSG_RELEASE ? 0 : l->priority,
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
		msg.value = value_of(m, l);
	}
	if (l->held)
		msg.range = l->range;
	limit_say(m, l, &msg);
	if (kind != MSG_RELEASE)
		news_say(m, l, &msg);
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

static void tell_last(struct member *m, struct step *s)
{
	unsigned shard = (unsigned)__builtin_ctzll(m->syncing);
	struct msg msg = {
		.kind = MSG_SYNC, .last = true, .shard = (uint8_t)shard,
		.from = m->self, .to = m->master[shard], .epoch = m->epoch[shard],
	};

	m->syncing &= ~shard_bit(shard);
	step_send(s, &msg);
}

static void tell_first(struct member *m, struct step *s)
{
	unsigned shard = (unsigned)__builtin_ctzll(m->beginning);
	struct msg msg = {
		.kind = MSG_SYNC, .flags = MSG_FLAG_FIRST, .shard = (uint8_t)shard,
		.from = m->self, .to = m->master[shard], .epoch = m->epoch[shard],
	};

	m->beginning &= ~shard_bit(shard);
	step_send(s, &msg);
}

bool member_work(struct member *m, struct step *s)
{
	if (!m->syncing)
		return false;
	if (m->beginning) {
		tell_first(m, s);
		return true;
	}
	if (m->cursor / MEMBER_PIECE >= m->pieces_max) {
		tell_last(m, s);
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

/* --- Events --- */

static bool key_valid(const void *key, uint16_t len, core_ref_t ref)
{
	return key && len && len <= CORE_KEY_MAX && ref < CORE_REFS;
}

/* Of a lock one may have all or one, of a semaphore any number. */
static bool weight_valid(uint32_t weight, uint32_t limit)
{
	if (!limit || limit == MSG_WEIGHT_ALL)
		return weight <= 1 || weight == MSG_WEIGHT_ALL;
	return weight <= limit;
}

static bool adopted_value_valid(const struct core_event *ev)
{
	const struct core_value *v = &ev->adopt.value;

	if (v->state == CORE_VALUE_NONE && !ev->adopt.died)
		return true;
	if (ev->adopt.limit && ev->adopt.limit != MSG_WEIGHT_ALL)
		return false;
	return v->state != CORE_VALUE_KNOWN || (bytes_valid(v) && v->token < ev->adopt.range.first + ev->adopt.range.count);
}

int member_adopt(struct member *m, const struct core_event *ev, uint32_t value)
{
	struct lease *l;

	if (!key_valid(ev->adopt.key, ev->adopt.key_len, ev->adopt.ref) || !range_valid(ev->adopt.range) ||
	    !weight_valid(ev->adopt.weight, ev->adopt.limit_stamp ? CORE_LIMIT_MAX : ev->adopt.limit) || !adopted_value_valid(ev))
		return -CORE_EINVAL;
	if (lease_state(lease_at(m, ev->adopt.ref)) != LEASE_NONE)
		return -CORE_EALREADY;
	int r = lease_make(m, ev->adopt.ref, ev->adopt.key, ev->adopt.key_len, &l);
	if (r < 0)
		return r;

	m->number = max_u64(m->number, ev->adopt.number);
	l->number = ev->adopt.number ? ev->adopt.number : ++m->number;
	l->range = ev->adopt.range;
	l->limit = ev->adopt.limit ? ev->adopt.limit : MSG_WEIGHT_ALL;
	l->held = ev->adopt.weight ? ev->adopt.weight : l->limit;
	value_set(m, l, value);
	l->lost = ev->adopt.value.state == CORE_VALUE_LOST;
	l->died = ev->adopt.died;
	l->unmended = l->died && l->held != MSG_WEIGHT_ALL;
	l->owes = l->died || value;
	limit_adopt(m, l, ev);
	if (token_epoch(l->range.first) > m->held_epoch)
		m->held_epoch = token_epoch(l->range.first);
	lease_become(m, l, LEASE_HELD);
	return 0;
}

/* It is there if it observes. */
static int lease_open(struct member *m, core_ref_t ref, const void *key, uint16_t key_len, struct lease **ret)
{
	const struct lease *l = lease_at(m, ref);

	if (lease_state(l) != LEASE_OBSERVING)
		return lease_make(m, ref, key, key_len, ret);
	const struct name *name = names_at(m->names, l->name);
	if (name->len != key_len || memcmp(name->key, key, key_len))
		return -CORE_EINVAL;
	*ret = lease_at(m, ref);
	return 0;
}

int member_observe(struct member *m, const struct core_event *ev, struct step *s)
{
	core_ref_t ref = ev->observe.ref;
	struct lease *l = lease_at(m, ref);

	if (!ev->observe.on && (lease_state(l) == LEASE_NONE || !observes(m, l)))
		return -CORE_EALREADY;
	if (!ev->observe.on) {
		watch_end(m, l, s);
		if (l->state != LEASE_OBSERVING)
			return 0;
		lease_drop(m, ref);
		step_act(s, CORE_ACT_FORGOTTEN)->name.ref = ref;
		return 0;
	}
	if (lease_state(l) != LEASE_NONE)
		return watch_begin(m, ref, s);
	if (!key_valid(ev->observe.key, ev->observe.key_len, ref))
		return -CORE_EINVAL;
	int r = lease_make(m, ref, ev->observe.key, ev->observe.key_len, &l);
	if (r < 0)
		return r;
	lease_become(m, l, LEASE_OBSERVING);
	r = watch_begin(m, ref, s);
	if (r < 0)
		lease_drop(m, ref);
	return r;
}

int member_proclaim(struct member *m, const struct core_event *ev, uint32_t value, struct step *s)
{
	struct lease *l = lease_at(m, ev->proclaim.ref);
	enum lease_state state = lease_state(l);

	if (state != LEASE_HELD && state != LEASE_REFILLING)
		return -CORE_ENOENT;
	if (l->limit != MSG_WEIGHT_ALL || l->held != MSG_WEIGHT_ALL ||
	    (ev->proclaim.value.state == CORE_VALUE_KNOWN && !value_valid(l, &ev->proclaim.value)))
		return -CORE_EINVAL;
	int r = proclaim(m, l, ev);
	if (r < 0)
		return r;
	leave(m, l, value, false);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

int member_claim(struct member *m, const struct core_event *ev, struct step *s)
{
	struct lease *l;

	if (!key_valid(ev->claim.key, ev->claim.key_len, ev->claim.ref) ||
	    !weight_valid(ev->claim.weight, ev->claim.limit))
		return -CORE_EINVAL;
	switch (lease_state(lease_at(m, ev->claim.ref))) {
	case LEASE_NONE:
	case LEASE_OBSERVING:
		break;
	case LEASE_WAITING:
	case LEASE_HELD:
	case LEASE_REFILLING:
		return -CORE_EALREADY;
	case LEASE_RELEASING:
		return -CORE_EINVAL;
	}
	int r = lease_open(m, ev->claim.ref, ev->claim.key, ev->claim.key_len, &l);
	if (r < 0)
		return r;

	l->number = ++m->number;
	l->limit = ev->claim.limit ? ev->claim.limit : MSG_WEIGHT_ALL;
	l->wanted = ev->claim.weight ? ev->claim.weight : l->limit;
	l->priority = ev->claim.priority;
	l->tries = ev->claim.tries;
	lease_become(m, l, LEASE_WAITING);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

/* More than there is is a client's error, or its doing: the range bounds it. */
static uint64_t used_clamp(struct member *m, const struct lease *l, uint64_t used)
{
	m->absurd += used > l->range.count;
	return min_u64(used, l->range.count);
}

int member_refill(struct member *m, core_ref_t ref, uint64_t used, struct step *s)
{
	struct lease *l = lease_at(m, ref);

	switch (lease_state(l)) {
	case LEASE_NONE:
	case LEASE_OBSERVING:
		return -CORE_ENOENT;
	case LEASE_WAITING:
	case LEASE_REFILLING:
		return -CORE_EALREADY;
	case LEASE_RELEASING:
		return -CORE_EINVAL;
	case LEASE_HELD:
		break;
	}
	used_clamp(m, l, used);
	m->refills++;
	l->wanted = l->held;
	lease_become(m, l, LEASE_REFILLING);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

static void release_held(struct member *m, const struct core_event *ev, struct lease *l, uint32_t value, struct step *s)
{
	core_ref_t ref = ev->release.ref;
	uint64_t used = ev->release.used;

	if (leave(m, l, value, ev->release.died))
		l->number = ++m->number;         /* an answer to what was said before does not acknowledge this */
	l->range.count = used_clamp(m, l, used);
	m->releases++;
	l->held = l->wanted = 0;
	forget_if_known(m, l);
	l->upgrade = false;
	lease_become(m, l, LEASE_RELEASING);
#ifndef CORE_BREAK_LEDGER
	step_act(s, CORE_ACT_LEDGER_RELEASE)->name.ref = ref;
#endif
	tell(m, MSG_RELEASE, l, s);
}

static void release_waiting(struct member *m, core_ref_t ref, struct lease *l, struct step *s)
{
	l->wanted = 0;
	lease_become(m, l, LEASE_RELEASING);
	if (m->told & shard_bit(names_at(m->names, l->name)->shard)) {
		tell(m, MSG_RELEASE, l, s);
		return;
	}
	lease_end(m, ref);
	step_act(s, CORE_ACT_FORGOTTEN)->name.ref = ref;
}

int member_release(struct member *m, const struct core_event *ev, uint32_t value, struct step *s)
{
	core_ref_t ref = ev->release.ref;
	struct lease *l = lease_at(m, ref);

	if (lease_state(l) != LEASE_NONE && (!value_valid(l, &ev->release.value) || !death_valid(l, ev->release.died)))
		return -CORE_EINVAL;

	switch (lease_state(l)) {
	case LEASE_NONE:
	case LEASE_OBSERVING:
		return -CORE_ENOENT;
	case LEASE_WAITING:
		release_waiting(m, ref, l, s);
		return 0;
	case LEASE_HELD:
	case LEASE_REFILLING:
		release_held(m, ev, l, value, s);
		return 0;
	case LEASE_RELEASING:
		break;
	}
	return -CORE_EALREADY;
}

static int change_judge(const struct member *m, const struct lease *l, const struct core_event *ev)
{
	uint32_t held = ev->change.held, wanted = ev->change.wanted;

	if (lease_state(l) == LEASE_NONE || lease_state(l) == LEASE_OBSERVING)
		return -CORE_ENOENT;
	if (l->state == LEASE_RELEASING || held > l->held || (wanted && wanted <= held) ||
	    !weight_valid(held, limit_most(m, l)) || !weight_valid(wanted, limit_most(m, l)))
		return -CORE_EINVAL;
	if (ev->change.upgrade && (l->limit != MSG_WEIGHT_ALL || wanted != MSG_WEIGHT_ALL || !held))
		return -CORE_EINVAL;
	if (!value_valid(l, &ev->change.value) || !death_valid(l, ev->change.died))
		return -CORE_EINVAL;
	if (held == l->held && (ev->change.value.state != CORE_VALUE_NONE || ev->change.died))
		return -CORE_EINVAL;
	if (held == l->held && wanted == l->wanted && (!wanted || (ev->change.priority == l->priority && ev->change.tries == l->tries)) && ev->change.upgrade == l->upgrade)
		return -CORE_EALREADY;
	return 0;
}

/* Less is held: the ledger first (S8). The tokens not used are the master's again. */
static void lower(struct member *m, core_ref_t ref, struct lease *l, uint32_t held, uint64_t used, struct step *s)
{
	l->range.count = max_u64(held ? 1 : 0, used_clamp(m, l, used));
	l->held = held;
	struct core_action *a = step_act(s, held ? CORE_ACT_CHANGED : CORE_ACT_LEDGER_RELEASE);
	a->name.ref = ref;
	a->name.range = l->range;
	a->name.weight = held;
}

int member_change(struct member *m, const struct core_event *ev, uint32_t value, struct step *s)
{
	core_ref_t ref = ev->change.ref;
	struct lease *l = lease_at(m, ref);
	int r = change_judge(m, l, ev);

	if (r < 0)
		return r;
	if (!ev->change.held && !ev->change.wanted) {
		struct core_event release = { .kind = CORE_EV_RELEASE, .now = ev->now, .release = {
			.ref = ref, .used = ev->change.used, .value = ev->change.value, .died = ev->change.died } };
		return member_release(m, &release, value, s);
	}
	if (ev->change.held < l->held) {
		leave(m, l, value, ev->change.died);
		lower(m, ref, l, ev->change.held, ev->change.used, s);
		forget_if_known(m, l);
	}
	if (!l->wanted)
		l->stamp = 0;                    /* a new place in the queue; one that waits keeps its own */
	l->wanted = ev->change.wanted;
	l->upgrade = ev->change.upgrade;
	l->priority = ev->change.wanted ? ev->change.priority : l->priority;
	l->tries = ev->change.wanted && ev->change.tries;
	l->number = ++m->number;
	lease_become(m, l, !l->held ? LEASE_WAITING : l->wanted ? LEASE_REFILLING : LEASE_HELD);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

/* If the answer is lost, whoever tries gives up by itself. */
int member_keep(struct member *m, core_ref_t ref, struct step *s)
{
	const struct lease *l = lease_at(m, ref);
	const struct name *name;

	if ((lease_state(l) != LEASE_HELD && lease_state(l) != LEASE_REFILLING && lease_state(l) != LEASE_WAITING) || !l->held)
		return -CORE_ENOENT;
	name = names_at(m->names, l->name);
	struct msg msg = {
		.kind = MSG_KEEP, .key = name->key, .key_len = name->len, .shard = name->shard, .from = m->self,
		.to = m->master[name->shard], .epoch = m->epoch[name->shard], .number = l->number, .seen = l->range.first,
	};
	if (master_reached(m, name->shard))
		step_send(s, &msg);
	return 0;
}

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
		if (l->state == LEASE_NONE || l->state == LEASE_OBSERVING)
			continue;
		if (l->state == LEASE_WAITING) {
			l->stamp = 0;
			l->range = (struct core_range){ 0 };
			known(m, l);             /* nobody asks a session that has ended */
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

/* --- What masters answer --- */

static void take_grant(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	bool refill = l->wanted == l->held;
	bool newer = msg->range.first >= (refill ? l->range.first + l->range.count : l->range.first + 1);

#ifdef CORE_BREAK_REFILL
	newer = true;
#endif
	if (!(m->told & shard_bit(msg->shard)))
		return;
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
	if (!l->held) {
		value_set(m, l, msg->kept);
		l->lost = msg->value.state == CORE_VALUE_LOST;
	}
	l->range = msg->range;
	l->held = msg->held;
	l->unmended = msg->flags & MSG_FLAG_LOST;
	l->tries = false;
	known(m, l);
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
		a->name.lost = msg->flags & MSG_FLAG_LOST;
		a->name.observed = msg->flags & MSG_FLAG_OBSERVED;
		a->name.value = value_of(m, l);
	}
}

static void take_refused(struct member *m, core_ref_t ref, struct lease *l, const struct msg *msg, struct step *s)
{
	if (l->state != LEASE_WAITING && l->state != LEASE_REFILLING)
		return;
	bool held = l->state == LEASE_REFILLING;
	known(m, l);
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
static void take_revoke(core_ref_t ref, const struct lease *l, const struct msg *msg, struct step *s)
{
	if (l->range.first != msg->seen || l->held <= msg->held)
		return;
	struct core_action *a = step_act(s, CORE_ACT_REVOKE);
	a->name.ref = ref;
	a->name.weight = msg->held;
	a->name.tries = msg->flags & MSG_FLAG_TRY;
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
	if (!of_present_master(m, msg))
		return;
	if (msg->kind == MSG_REIGN) {
		take_reign(m, msg);
		return;
	}

	name_t n = names_find(m->names, msg->key, msg->key_len);
	core_ref_t ref = n ? names_at(m->names, n)->ref : CORE_REF_NONE;
	struct lease *l = ref == CORE_REF_NONE ? NULL : lease_at(m, ref);
	if (!l)
		return;
	if (msg->kind == MSG_REVOKE) {
		take_revoke(ref, l, msg, s);
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
		known(m, l);
		return;
	case MSG_REVOKE:
	case MSG_LIMIT:
	case MSG_NEWS:
	case MSG_OBSERVED:
	case MSG_OBSERVE:
	case MSG_KEEP:
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
