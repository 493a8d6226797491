/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "delays.h"

#include "bytes.h"
#include "core_int.h"

_Static_assert(DELAYS_BYTES <= sizeof((struct ask *)0)->value, "room for it");

int delays_decode(const void *bytes, uint32_t n, uint16_t ret[CORE_SHARDS])
{
	const uint8_t *p = bytes;

	if (n != DELAYS_BYTES || le_load(p, 4) != DELAYS_LAYOUT || le_load(p + 4, 4))
		return -CORE_EBADMSG;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (le_load(p + 8 + 2 * i, 2) > CORE_DELAY_MAX)
			return -CORE_EBADMSG;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		ret[i] = (uint16_t)le_load(p + 8 + 2 * i, 2);
	return 0;
}

void delays_encode(const uint16_t delay[CORE_SHARDS], uint8_t ret[DELAYS_BYTES])
{
	le_store(ret, 4, DELAYS_LAYOUT);
	le_store(ret + 4, 4, 0);
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		le_store(ret + 8 + 2 * i, 2, delay[i]);
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
static bool raise(const struct core *c, uint16_t delay[CORE_SHARDS])
{
	bool more = false;

	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		uint16_t want = c->master.shard[i].record_want;

		if (!(c->master.record & shard_bit(i)) || want <= delay[i])
			continue;
		delay[i] = want;
		more = true;
	}
	return more;
}

int delays_answer(struct core *c, const struct core_event *ev, struct step *s)
{
	struct cluster *cl = &c->cluster;
	struct delays *d = &cl->delays;
	uint16_t delay[CORE_SHARDS] = { 0 };
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
	delays_encode(delay, cl->asks.v[ASK_DELAYS].value);
	ask_cas(&cl->asks, ASK_DELAYS, ev->store.version, DELAYS_BYTES, s);
	return 0;
}
