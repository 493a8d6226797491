/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "delays.h"

#include "bytes.h"
#include "core_int.h"

_Static_assert(DELAYS_BYTES(DELAY_KINDS) <= sizeof((struct ask *)0)->value, "room for it");

int delays_decode(const void *bytes, uint32_t n, uint16_t ret[DELAY_KINDS][CORE_SHARDS])
{
	const uint8_t *p = bytes;
	uint64_t kinds = n >= 8 ? le_load(p, 4) : 0;

	if (!kinds || kinds > DELAY_KINDS || n != DELAYS_BYTES(kinds) || le_load(p + 4, 4))
		return -CORE_EBADMSG;
	for (unsigned i = 0; i < kinds * CORE_SHARDS; i++)
		if (le_load(p + 8 + 2 * i, 2) > CORE_DELAY_MAX)
			return -CORE_EBADMSG;
	for (unsigned i = 0; i < DELAY_KINDS * CORE_SHARDS; i++)
		ret[i / CORE_SHARDS][i % CORE_SHARDS] = i < kinds * CORE_SHARDS ? (uint16_t)le_load(p + 8 + 2 * i, 2) : 0;
	return 0;
}

uint32_t delays_encode(const uint16_t delay[DELAY_KINDS][CORE_SHARDS], uint8_t ret[DELAYS_BYTES(DELAY_KINDS)])
{
	unsigned kinds = 1;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (delay[DELAY_SHARED][i])
			kinds = DELAY_KINDS;
	le_store(ret, 4, kinds);
	le_store(ret + 4, 4, 0);
	for (unsigned i = 0; i < kinds * CORE_SHARDS; i++)
		le_store(ret + 8 + 2 * i, 2, delay[i / CORE_SHARDS][i % CORE_SHARDS]);
	return DELAYS_BYTES(kinds);
}

static bool due(const struct core *c)
{
	return c->master.asking & ~c->cluster.delays.asked || c->master.record;
}

void delays_tick(struct core *c, struct step *s)
{
	struct cluster *cl = &c->cluster;

	if (!due(c) || asking(&cl->asks, ASK_DELAYS) || s->now < cl->delays.at)
		return;
	cl->delays.asked = c->master.asking;
	cl->delays.writing = false;
	ask_key(&cl->asks.v[ASK_DELAYS], DELAYS_KEY, 0);
	ask_get(&cl->asks, ASK_DELAYS, s);
}

core_nsec_t delays_next(const struct core *c)
{
	const struct cluster *cl = &c->cluster;

	if (!due(c) || asking(&cl->asks, ASK_DELAYS))
		return 0;
	return cl->delays.at ? cl->delays.at : 1;
}

/* What the shards' masters want to grant besides what may have been granted. Returns whether that is more. */
static bool raise(const struct core *c, uint16_t delay[DELAY_KINDS][CORE_SHARDS])
{
	bool more = false;

	for (unsigned i = 0; i < DELAY_KINDS * CORE_SHARDS; i++) {
		unsigned shard = i % CORE_SHARDS, kind = i / CORE_SHARDS;
		uint16_t want = c->master.shard[shard].record_want[kind];

		if (!(c->master.record & shard_bit(shard)) || want <= delay[kind][shard])
			continue;
		delay[kind][shard] = want;
		more = true;
	}
	return more;
}

int delays_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct delays *d = &cl->delays;
	uint16_t delay[DELAY_KINDS][CORE_SHARDS] = { { 0 } };
	shard_set_t asked = d->asked;

	d->asked = 0;
	if (ev->store.error) {                   /* written or not, by us or by another: it is read again */
		d->at = s->now + (ev->store.error == -CORE_EAGAIN ? 0 : cl->conf.look / 4);
		return 0;
	}
	if (d->writing) {
		master_delays(&c->master, d->value, 0);
		return 0;
	}
	int r = ev->store.version ? delays_decode(ev->store.value, ev->store.value_len, delay) : 0;
	if (r < 0)
		return r;
	master_delays(&c->master, delay, asked);
	if (!raise(c, delay))
		return 0;
	memcpy(d->value, delay, sizeof d->value);
	d->writing = true;
	ask_key(&cl->asks.v[ASK_DELAYS], DELAYS_KEY, 0);
	uint32_t n = delays_encode(delay, cl->asks.v[ASK_DELAYS].value);
	ask_cas(&cl->asks, ASK_DELAYS, ev->store.version, n, s);
	return 0;
}
