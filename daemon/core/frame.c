/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "frame.h"

#include "bytes.h"
#include "range.h"
#include "shard.h"

enum {
	NUMBER = 1, STAMP = 2, SEEN = 4, USED = 8, RANGE = 16, HELD = 32, WANTED = 64, LIMIT = 128, ERROR = 256, VALUE = 512, KEY = 1024,
	PRESENT = 2048, RESIZE = 4096, NEWS = 8192, DELAY = 16384, HEIR = 32768, PARTIES = 65536,
};

#define STATEMENT (NUMBER | STAMP | SEEN | USED | RANGE | HELD | WANTED | LIMIT | KEY)
#define VALUE_FLAGS (MSG_FLAG_VALUE | MSG_FLAG_VALUE_LOST)
#define LEFT_FLAGS (VALUE_FLAGS | MSG_FLAG_DIED | MSG_FLAG_OWES | MSG_FLAG_LIMIT | MSG_FLAG_RESIZE)
#define NEWS_FLAGS (MSG_FLAG_NEWS | MSG_FLAG_LEADS)

/* Whoever tells who leads holds it, and whoever has handed it on does not: no statement has both. */
_Static_assert(FRAME_MAX >= FRAME_HEAD + 6 * 8 + 3 * 4 + 16 + 20 + 14 + 2 + CORE_VALUE_MAX + CORE_KEY_MAX, "the longest statement");
_Static_assert(FRAME_MAX >= FRAME_HEAD + 8 + 3 * 4 + 2 + CORE_PARTIES_MAX * MSG_PARTY + CORE_KEY_MAX, "the longest account");

static const uint32_t fields_of[] = {
	[MSG_SYNC] = STATEMENT,
	[MSG_CLAIM] = STATEMENT,
	[MSG_GRANT] = NUMBER | STAMP | RANGE | HELD | KEY,
	[MSG_REFUSED] = NUMBER | ERROR | KEY,
	[MSG_RELEASE] = NUMBER | SEEN | USED | KEY,
	[MSG_RELEASED] = NUMBER | KEY,
	[MSG_STAMP] = NUMBER | STAMP | USED | KEY,
	[MSG_REVOKE] = NUMBER | SEEN | HELD | KEY,
	[MSG_REIGN] = 0,
	[MSG_HANDOVER] = NUMBER,
	[MSG_MARK] = NUMBER | USED | KEY,
	[MSG_LIMIT] = NUMBER | STAMP | HELD | LIMIT | KEY,
	[MSG_ARRIVE] = NUMBER | STAMP | SEEN | USED | HELD | WANTED | LIMIT | KEY,
	[MSG_ENROL] = NUMBER | STAMP | HELD | KEY,
	[MSG_ANNOUNCE] = NUMBER | STAMP | SEEN | KEY,
	[MSG_GO] = STAMP | KEY,
	[MSG_ASK] = NUMBER | STAMP | KEY,
	[MSG_ANSWER] = NUMBER | STAMP | SEEN | ERROR | KEY,
	[MSG_PAST] = STAMP | SEEN | KEY,
	[MSG_OBSERVE] = KEY,
	[MSG_KEEP] = NUMBER | SEEN | KEY,
	[MSG_NEWS] = KEY,
	[MSG_OBSERVED] = NUMBER | SEEN | KEY,
	[MSG_PLACE] = NUMBER,
	[MSG_PASS] = NUMBER | USED | RANGE | KEY,
	[MSG_ENQUIRE] = NUMBER | KEY,
	[MSG_ACCOUNT] = NUMBER | HELD | WANTED | LIMIT | PARTIES | KEY,
};

static const uint16_t flags_of[] = {
	[MSG_SYNC] = MSG_FLAG_FIRST | MSG_FLAG_LAST | MSG_FLAG_UPGRADE | MSG_FLAG_TRY | MSG_FLAG_DELAY | LEFT_FLAGS | NEWS_FLAGS | MSG_FLAG_PASS,
	[MSG_CLAIM] = MSG_FLAG_UPGRADE | MSG_FLAG_TRY | MSG_FLAG_DELAY | LEFT_FLAGS | NEWS_FLAGS | MSG_FLAG_PASS,
	[MSG_REVOKE] = MSG_FLAG_TRY | MSG_FLAG_PASS | MSG_FLAG_OFF,
	[MSG_RELEASE] = LEFT_FLAGS | MSG_FLAG_PASS,
	[MSG_GRANT] = MSG_FLAG_LOST | MSG_FLAG_OBSERVED | VALUE_FLAGS,
	[MSG_HANDOVER] = MSG_FLAG_FIRST | MSG_FLAG_CLEAN | MSG_FLAG_FORGOT | MSG_FLAG_SHARED,
	[MSG_MARK] = MSG_FLAG_LOST | MSG_FLAG_KNOWN | VALUE_FLAGS | MSG_FLAG_LIMIT | MSG_FLAG_DELAY | MSG_FLAG_SHARED,
	[MSG_LIMIT] = 0,
	[MSG_ARRIVE] = MSG_FLAG_IN | MSG_FLAG_TOLD | MSG_FLAG_BREAK | MSG_FLAG_PLACES | MSG_FLAG_PASSED | MSG_FLAG_YES | MSG_FLAG_PAIRED |
		       MSG_FLAG_READY,
	[MSG_ENROL] = MSG_FLAG_PLACES,
	[MSG_ANNOUNCE] = MSG_FLAG_PASSED | MSG_FLAG_YES,
	[MSG_ASK] = MSG_FLAG_RESET,
	[MSG_ANSWER] = MSG_FLAG_PASSED | MSG_FLAG_YES | MSG_FLAG_RESET,
	[MSG_PAST] = MSG_FLAG_PASSED | MSG_FLAG_YES | MSG_FLAG_PAIRED,
	[MSG_OBSERVE] = MSG_FLAG_OFF,
	[MSG_NEWS] = NEWS_FLAGS | MSG_FLAG_VALUE,
	[MSG_OBSERVED] = 0,
	[MSG_KEEP] = MSG_FLAG_OFF,
	[MSG_PLACE] = 0,
	[MSG_PASS] = MSG_FLAG_LOST | VALUE_FLAGS,
	[MSG_ENQUIRE] = 0,
	[MSG_ACCOUNT] = 0,
};

/* The bits are others' in other kinds. */
static bool tells_news(enum msg_kind kind)
{
	return kind == MSG_SYNC || kind == MSG_CLAIM || kind == MSG_NEWS;
}

static bool tells_delay(enum msg_kind kind)
{
	return kind == MSG_SYNC || kind == MSG_CLAIM || kind == MSG_MARK;
}

static uint16_t heir_fields(enum msg_kind kind, uint16_t flags)
{
	if (kind == MSG_REVOKE && flags & MSG_FLAG_PASS)
		return HEIR | USED | RANGE;
	if ((kind == MSG_REVOKE || kind == MSG_KEEP) && flags & MSG_FLAG_OFF)
		return HEIR;
	return (kind == MSG_SYNC || kind == MSG_CLAIM || kind == MSG_RELEASE) && flags & MSG_FLAG_PASS ? HEIR : 0;
}

static uint16_t shared_fields(enum msg_kind kind, uint16_t flags)
{
	if (!(flags & MSG_FLAG_SHARED))
		return 0;
	return kind == MSG_MARK ? STAMP | SEEN | HELD | LIMIT : kind == MSG_HANDOVER ? USED : 0;
}

/* The beginning and the end of a sync are of no name. Whoever speaks of limits says what the name was opened with. */
static uint32_t fields(enum msg_kind kind, uint16_t flags)
{
	if (kind == MSG_SYNC && flags & (MSG_FLAG_FIRST | MSG_FLAG_LAST))
		return 0;
	return fields_of[kind] | (uint32_t)(heir_fields(kind, flags) | shared_fields(kind, flags) | (flags & MSG_FLAG_VALUE ? VALUE : 0) | (flags & MSG_FLAG_LIMIT ? LIMIT | PRESENT : 0) |
			  (flags & MSG_FLAG_RESIZE ? LIMIT | RESIZE : 0) | (tells_news(kind) && flags & MSG_FLAG_NEWS ? NEWS : 0) |
			  (tells_delay(kind) && flags & MSG_FLAG_DELAY ? DELAY : 0));
}

struct cursor {
	uint8_t *p;
	const uint8_t *from, *end;
	bool bad;
};

/* Of these two n must be known where they are called: there are thirty calls, too many for the compiler to think of that by itself. */
__attribute__((always_inline)) static inline void put(struct cursor *c, unsigned n, uint64_t v)
{
	le_store(c->p, n, v);
	c->p += n;
}

__attribute__((always_inline)) static inline uint64_t get(struct cursor *c, unsigned n)
{
	if ((size_t)(c->end - c->from) < n) {
		c->bad = true;
		return 0;
	}
	c->from += n;
	return le_load(c->from - n, n);
}

/* The value's state is in its flags only. */
static uint16_t flags_say(const struct msg *m)
{
	unsigned flags = m->flags & ~(unsigned)VALUE_FLAGS;

	flags |= m->last ? MSG_FLAG_LAST : 0;
	flags |= m->value.state == CORE_VALUE_KNOWN ? MSG_FLAG_VALUE : 0;
	flags |= m->value.state == CORE_VALUE_LOST ? MSG_FLAG_VALUE_LOST : 0;
	flags |= m->delay && tells_delay(m->kind) ? MSG_FLAG_DELAY : 0;
	return (uint16_t)flags;
}

static void numbers_put(struct cursor *c, const struct msg *m, uint32_t has)
{
	if (has & NUMBER)
		put(c, 8, m->number);
	if (has & STAMP)
		put(c, 8, m->stamp);
	if (has & SEEN)
		put(c, 8, m->seen);
	if (has & USED)
		put(c, 8, m->used);
	if (has & RANGE) {
		put(c, 8, m->range.first);
		put(c, 8, m->range.count);
	}
	if (has & HELD)
		put(c, 4, m->held);
	if (has & WANTED)
		put(c, 4, m->wanted);
	if (has & LIMIT)
		put(c, 4, m->limit);
	if (has & ERROR)
		put(c, 4, (uint32_t)m->error);
	if (has & PRESENT) {
		put(c, 8, m->limit_stamp);
		put(c, 4, m->present);
	}
	if (has & RESIZE)
		put(c, 4, m->resize);
	if (has & NEWS) {
		put(c, 8, m->term);
		put(c, 4, m->count);
	}
	if (has & DELAY)
		put(c, 2, m->delay);
	if (has & HEIR) {
		put(c, 8, m->heir.session);
		put(c, 4, m->heir.incarnation);
		put(c, 8, m->heir_number);
	}
}

static void value_put(struct cursor *c, const struct core_value *v)
{
	core_assert(v->len <= CORE_VALUE_MAX);
	put(c, 8, v->token);
	put(c, 4, v->count);
	put(c, 2, v->len);
	if (v->len)
		memcpy(c->p, v->bytes, v->len);
	c->p += v->len;
}

static void parties_put(struct cursor *c, const struct msg *m)
{
	size_t size = m->parties * (size_t)MSG_PARTY;

	core_assert(m->parties <= CORE_PARTIES_MAX);
	put(c, 2, m->parties);
	if (size)
		memcpy(c->p, m->party, size);
	c->p += size;
}

uint32_t frame_encode(const struct frame *f, uint8_t ret[FRAME_MAX])
{
	const struct msg *m = &f->msg;
	uint16_t flags = flags_say(m);
	uint32_t has = fields(m->kind, flags);
	struct cursor c = { .p = ret + FRAME_HEAD };

	numbers_put(&c, m, has);
	if (has & VALUE)
		value_put(&c, &m->value);
	if (has & PARTIES)
		parties_put(&c, m);
	if (has & KEY) {
		core_assert(m->key_len && m->key_len <= CORE_KEY_MAX);
		memcpy(c.p, m->key, m->key_len);
		c.p += m->key_len;
	}

	uint32_t n = (uint32_t)(c.p - ret);
	c.p = ret;
	put(&c, 2, n);
	put(&c, 1, FRAME_LAYOUT);
	put(&c, 1, m->kind);
	put(&c, 1, m->shard);
	put(&c, 1, m->priority);
	put(&c, 2, flags);
	put(&c, 8, m->from.session);
	put(&c, 4, m->from.incarnation);
	put(&c, 4, m->epoch);
	put(&c, 8, f->conn);
	return n;
}

int frame_length(const void *bytes, size_t n)
{
	if (n < 2)
		return 0;
	uint64_t length = le_load(bytes, 2);

	return length < FRAME_HEAD || length > CORE_FRAME_MAX ? -CORE_EBADMSG : (int)length;
}

static bool range_possible(struct core_range r)
{
	return r.first == 0 ? r.count == 0 : range_valid(r);
}

/* Whoever is in a round, or has its verdict, names it; nobody votes or is counted twice. */
static bool barrier_sensible(const struct msg *m)
{
	bool in = m->flags & MSG_FLAG_IN, told = m->flags & MSG_FLAG_TOLD, verdict = m->flags & (MSG_FLAG_PASSED | MSG_FLAG_YES);

	if (m->kind < MSG_ARRIVE || m->kind > MSG_PAST)
		return true;
	if (m->flags & MSG_FLAG_YES && !(m->flags & MSG_FLAG_PASSED))
		return false;
	switch ((unsigned)m->kind) {
	case MSG_ARRIVE:
		return m->limit && m->used <= m->held && m->wanted <= m->held && !(in && told) && (in || told) == (m->stamp != 0) &&
		       (in || told || !m->wanted) && (in || !(m->flags & (MSG_FLAG_BREAK | MSG_FLAG_READY))) &&
		       (told || !verdict) && (!(m->flags & MSG_FLAG_READY) || m->flags & MSG_FLAG_PAIRED);
	case MSG_ENROL:
		return (m->held != 0) == (m->stamp != 0) && !(m->held && m->flags & MSG_FLAG_PLACES);
	case MSG_ANNOUNCE:
		return m->stamp && (!m->number || (m->number > m->stamp && m->flags & MSG_FLAG_PASSED));
	case MSG_GO:
	case MSG_PAST:
		return m->stamp;
	case MSG_ASK:
		return (m->stamp != 0) == !(m->flags & MSG_FLAG_RESET);
	case MSG_ANSWER:
		return !verdict || !(m->error || m->flags & MSG_FLAG_RESET);
	}
	return true;
}

/* Only the whole is handed on, and then nothing of it is left; it is not asked for by one who only tries. */
static bool heir_sensible(const struct msg *m)
{
	if (!m->heir.session || !m->heir.incarnation || !m->heir_number || m->held)
		return false;
	if (m->kind == MSG_REVOKE && m->flags & MSG_FLAG_TRY)
		return false;
	if (m->kind == MSG_REVOKE && m->flags & MSG_FLAG_PASS)
		return range_valid(m->range) && !(m->flags & MSG_FLAG_OFF);
	return token_epoch(m->heir_number) && token_counter(m->heir_number) && !(m->flags & MSG_FLAG_NEWS);
}

/* What was held, by whom and since which of its daemons; or what is lost. */
static bool shared_sensible(const struct msg *m)
{
	if (m->kind != MSG_MARK || !(m->flags & MSG_FLAG_SHARED))
		return true;
	return m->stamp && m->held && m->held <= CORE_LIMIT_MAX && m->delay && (m->number != 0) == (m->seen != 0) && m->seen <= UINT32_MAX &&
	       !(m->flags & (VALUE_FLAGS | MSG_FLAG_LOST | MSG_FLAG_KNOWN | MSG_FLAG_LIMIT));
}

static bool limit_sensible(uint32_t limit)
{
	return limit && limit <= CORE_LIMIT_MAX;
}

static bool value_sensible(const struct core_value *v)
{
	return v->len <= CORE_VALUE_MAX && v->count && token_epoch(v->token) && token_epoch(v->token) <= EPOCH_MAX &&
	       token_counter(v->token);
}

/* Each of them has some of it, or wants some. */
static bool parties_sensible(const struct msg *m)
{
	const uint8_t *p = m->party;

	if (m->parties > CORE_PARTIES_MAX || m->wanted < m->parties)
		return false;
	for (unsigned i = 0; i < m->parties; i++, p += MSG_PARTY)
		if (!le_load(p, 8) || !(le_load(p + 8, 4) | le_load(p + 12, 4)))
			return false;
	return true;
}

static bool sensible(const struct msg *m, uint32_t has)
{
	if (!m->from.session || !m->from.incarnation || !m->epoch || m->epoch > EPOCH_MAX || m->shard >= CORE_SHARDS)
		return false;
	if (has & KEY && (!m->key_len || m->key_len > CORE_KEY_MAX || shard_of(m->key, m->key_len) != m->shard))
		return false;
	if (has & ERROR && (m->error > 0 || (!m->error && m->kind != MSG_ANSWER) || m->error < -4095))
		return false;
	if ((m->kind == MSG_GRANT || m->kind == MSG_PASS) && !range_valid(m->range))
		return false;
	if (has & HEIR && !heir_sensible(m))
		return false;
	if (has == 0 && m->kind == MSG_SYNC && m->flags & (uint16_t)~(MSG_FLAG_FIRST | MSG_FLAG_LAST | MSG_FLAG_UPGRADE))
		return false;
	if ((m->flags & VALUE_FLAGS) == VALUE_FLAGS)
		return false;
	if (has & (PRESENT | RESIZE) && !limit_sensible(m->limit))
		return false;
	if ((has & PRESENT && (!limit_sensible(m->present) || !m->limit_stamp)) || (has & RESIZE && !limit_sensible(m->resize)))
		return false;
	if (m->kind == MSG_LIMIT && (!limit_sensible(m->limit) || !limit_sensible(m->held) || !m->stamp))
		return false;
	if (m->priority && (has & STATEMENT) != STATEMENT && m->kind != MSG_REVOKE)
		return false;
	if (has & NEWS && !m->term)
		return false;
	if (tells_news(m->kind) && (m->flags & NEWS_FLAGS ? !(has & NEWS) : m->kind == MSG_NEWS))
		return false;
	if ((has & DELAY && (!m->delay || m->delay > CORE_DELAY_MAX)) || !shared_sensible(m))
		return false;
	if (has & VALUE && !value_sensible(&m->value))
		return false;
	if (!barrier_sensible(m) || (has & PARTIES && !parties_sensible(m)))
		return false;
	if ((has & STATEMENT) == STATEMENT) {
		uint32_t limit = m->limit ? m->limit : MSG_WEIGHT_ALL;
		if (has & PRESENT)
			limit = CORE_LIMIT_MAX;
		if (m->held > limit || m->wanted > limit || (m->wanted && m->wanted < m->held) || (m->held && !m->range.first))
			return false;
	}
	return true;
}

static void numbers_get(struct cursor *c, struct msg *m, uint32_t has)
{
	if (has & NUMBER)
		m->number = get(c, 8);
	if (has & STAMP)
		m->stamp = get(c, 8);
	if (has & SEEN)
		m->seen = get(c, 8);
	if (has & USED)
		m->used = get(c, 8);
	if (has & RANGE) {
		m->range.first = get(c, 8);
		m->range.count = get(c, 8);
		c->bad |= !range_possible(m->range);
	}
	if (has & HELD)
		m->held = (uint32_t)get(c, 4);
	if (has & WANTED)
		m->wanted = (uint32_t)get(c, 4);
	if (has & LIMIT)
		m->limit = (uint32_t)get(c, 4);
	if (has & ERROR)
		m->error = (int32_t)get(c, 4);
	if (has & PRESENT) {
		m->limit_stamp = get(c, 8);
		m->present = (uint32_t)get(c, 4);
	}
	if (has & RESIZE)
		m->resize = (uint32_t)get(c, 4);
	if (has & NEWS) {
		m->term = get(c, 8);
		m->count = (uint32_t)get(c, 4);
	}
	if (has & DELAY)
		m->delay = (uint16_t)get(c, 2);
	if (has & HEIR) {
		m->heir.session = get(c, 8);
		m->heir.incarnation = (uint32_t)get(c, 4);
		m->heir_number = get(c, 8);
	}
}

static void value_get(struct cursor *c, struct core_value *v)
{
	v->state = CORE_VALUE_KNOWN;
	v->token = get(c, 8);
	v->count = (uint32_t)get(c, 4);
	v->len = (uint16_t)get(c, 2);
	c->bad |= (size_t)(c->end - c->from) < v->len;
	v->bytes = c->from;
	c->from += c->bad ? 0 : v->len;
}

static void parties_get(struct cursor *c, struct msg *m)
{
	m->parties = (uint16_t)get(c, 2);
	size_t size = m->parties * (size_t)MSG_PARTY;

	c->bad |= (size_t)(c->end - c->from) < size;
	m->party = c->from;
	c->from += c->bad ? 0 : size;
}

int frame_decode(const void *bytes, size_t n, struct frame *ret)
{
	const uint8_t *p = bytes;
	struct cursor c = { .from = p, .end = p + n };
	struct frame f = { 0 };
	struct msg *m = &f.msg;

	if (n < FRAME_HEAD || n > FRAME_MAX || get(&c, 2) != n)
		return -CORE_EBADMSG;
	if (get(&c, 1) != FRAME_LAYOUT)
		return -CORE_EPROTONOSUPPORT;
	uint64_t kind = get(&c, 1);
	if (kind >= CORE_ARRAY_N(fields_of))
		return -CORE_EBADMSG;
	m->kind = (enum msg_kind)kind;
	m->shard = (uint8_t)get(&c, 1);
	m->priority = (uint8_t)get(&c, 1);
	m->flags = (uint16_t)get(&c, 2);
	if (m->flags & ~(kind < CORE_ARRAY_N(flags_of) ? flags_of[kind] : 0))
		return -CORE_EBADMSG;
	m->last = m->kind == MSG_SYNC && m->flags & MSG_FLAG_LAST;
	m->from.session = get(&c, 8);
	m->from.incarnation = (uint32_t)get(&c, 4);
	m->epoch = (uint32_t)get(&c, 4);
	f.conn = get(&c, 8);

	uint32_t has = fields(m->kind, m->flags);
	numbers_get(&c, m, has);
	if (m->flags & MSG_FLAG_VALUE_LOST)
		m->value.state = CORE_VALUE_LOST;
	if (has & VALUE)
		value_get(&c, &m->value);
	if (has & PARTIES)
		parties_get(&c, m);
	if (c.bad)
		return -CORE_EBADMSG;
	if (has & KEY) {
		m->key = c.from;
		m->key_len = (uint16_t)(c.end - c.from);
	} else if (c.from != c.end) {
		return -CORE_EBADMSG;
	}
	if (!sensible(m, has))
		return -CORE_EBADMSG;
	*ret = f;
	return 0;
}
