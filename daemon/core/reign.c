/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "reign.h"

#include "range.h"

static void fatal(struct reign *r, struct step *s, int error, const char *why)
{
	struct core_action *a = step_act(s, CORE_ACT_FATAL);

	a->node.error = error;
	a->node.why = why;
	r->state = REIGN_DEAD;
}

static void map_get(struct reign *r, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_STORE_GET);

	a->store.op = ++r->op;
	a->store.key = MAP_KEY;
	r->state = REIGN_READING;
}

static void map_put(struct reign *r, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_STORE_CAS);

	map_encode(&r->next, r->bytes);
	a->store.op = ++r->op;
	a->store.key = MAP_KEY;
	a->store.value = r->bytes;
	a->store.value_len = sizeof r->bytes;
	a->store.version = r->version;
	r->state = REIGN_WRITING;
	r->written = true;
}

static void pause_until(struct reign *r, core_nsec_t when)
{
	r->state = REIGN_PAUSED;
	r->retry_at = when;
}

/* The map names us for all that it shall; what is wanted beyond is written next. Returns the new epochs. */
static shard_set_t rule(struct reign *r, const struct map *m, uint64_t version)
{
	shard_set_t new = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (!r->begun || m->shard[i].epoch > r->map.shard[i].epoch)
			new |= shard_bit(i);
	r->map = *m;
	r->version = version;
	r->raise &= ~new;
	r->losses = 0;
	r->error = 0;
	r->begun = true;
	r->state = REIGN_RULING;
	return new;
}

static void raise_wanted(struct reign *r, struct step *s)
{
	if (!r->raise)
		return;
	r->next = r->map;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (r->raise & shard_bit(i))
			r->next.shard[i].epoch++;
	map_put(r, s);
}

/* Every shard becomes ours, in an epoch above all that the store and this node have seen. */
static void take_over(struct reign *r, const struct map *m, uint64_t version, struct step *s)
{
	uint32_t stored = map_epoch_max(m);
	uint32_t max = stored > r->epoch_min ? stored : r->epoch_min;

	if (max >= EPOCH_MAX) {
		fatal(r, s, -CORE_EOVERFLOW, "the map in the store has come to its last epoch: "
		      "tokens cannot rise any more, and this cluster can grant no locks");
		return;
	}
	if (r->held_epoch > stored) {
		fatal(r, s, -CORE_ESTALE, "the store has gone back: this node holds leases of an epoch that the map "
		      "in the store has not come to; is it an old copy?");
		return;
	}
	r->map = *m;
	r->version = version;
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		r->next.shard[i] = (struct map_reign){ .master = r->self, .epoch = max + 1 };
	map_put(r, s);
}

static unsigned map_count(const struct map *m, struct msg_peer who)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CORE_SHARDS; i++)
		n += msg_peer_same(m->shard[i].master, who);
	return n;
}

static bool map_superseded(const struct map *m, struct msg_peer self)
{
#ifndef CORE_BREAK_INCARNATION
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (m->shard[i].master.session == self.session && m->shard[i].master.incarnation > self.incarnation)
			return true;
#endif
	return false;
}

static bool map_went_back(const struct reign *r, const struct map *m)
{
#ifndef CORE_BREAK_BACK
	for (unsigned i = 0; i < CORE_SHARDS; i++)
		if (m->shard[i].epoch < r->map.shard[i].epoch)
			return true;
#else
	(void)r, (void)m;
#endif
	return false;
}

/* The map was read. An absent one is all zeros. */
static shard_set_t map_judge(struct reign *r, const struct map *m, uint64_t version, struct step *s)
{
	unsigned own = map_count(m, r->self);

	if (map_went_back(r, m)) {
		fatal(r, s, -CORE_ESTALE, "the store has gone back to an older map: it has lost a write that it had acknowledged");
	} else if (map_superseded(m, r->self)) {
		fatal(r, s, -CORE_ESTALE, "superseded: a later daemon has taken over this node's session");
	} else if (own == CORE_SHARDS && r->written) {
		shard_set_t new = rule(r, m, version);
		raise_wanted(r, s);
		return new;
	} else if (r->begun) {
		fatal(r, s, -CORE_ESTALE, "superseded: another daemon has taken over shards of this node");
	} else if (own && !r->written) {
		fatal(r, s, -CORE_EEXIST, "the map in the store names this very session and incarnation already: "
		      "another daemon runs with a copy of this node's identity");
	} else {
		take_over(r, m, version, s);
#ifdef CORE_BREAK_EPOCH
		if (r->state == REIGN_WRITING) {
			shard_set_t new = rule(r, &r->next, version);
			r->state = REIGN_WRITING;
			return new;
		}
#endif
	}
	return 0;
}

static void map_garbage(struct reign *r, int error, struct step *s)
{
	if (error == -CORE_EPROTONOSUPPORT)
		fatal(r, s, error, "the map in the store has another layout: was it written by another version of dlock?");
	else
		fatal(r, s, error, "the map in the store is damaged, and is left as it is; restore the store's state, or remove it "
		      "if no lock of this cluster is held and no resource remembers its tokens");
}

/* The answer leaves open whether the write was carried out. */
static void lost(struct reign *r, struct step *s)
{
	r->losses++;
	if (r->losses <= REIGN_LOSSES_QUICK)
		map_get(r, s);
	else if (r->losses <= REIGN_LOSSES_MAX)
		pause_until(r, s->now + REIGN_LOSS_NS);
	else if (r->begun)
		pause_until(r, s->now + REIGN_RETRY_NS);
	else if (r->error == -CORE_ETIMEDOUT)
		fatal(r, s, r->error, "the store does not say whether it has written the map, however often it is asked");
	else
		fatal(r, s, -CORE_EAGAIN, "the map in the store keeps changing: is another daemon using this store?");
}

static void trouble(struct reign *r, int error, struct step *s)
{
	r->error = error;
	if (error == -CORE_EAGAIN || error == -CORE_ETIMEDOUT)
		lost(r, s);
	else if (r->begun)
		pause_until(r, s->now + REIGN_RETRY_NS);
	else
		fatal(r, s, error, r->state == REIGN_READING ? "the map cannot be read from the store" :
		      "the map cannot be written to the store");
}

static shard_set_t map_read(struct reign *r, const struct core_event *ev, struct step *s)
{
	struct map m = { 0 };

	if (ev->store.version) {
		int e = map_decode(ev->store.value, ev->store.value_len, &m);
		if (e < 0) {
			map_garbage(r, e, s);
			return 0;
		}
	}
	return map_judge(r, &m, ev->store.version, s);
}

static shard_set_t map_written(struct reign *r, const struct core_event *ev, struct step *s)
{
	if (!ev->store.version) {
		lost(r, s);
		return 0;
	}
	shard_set_t new = rule(r, &r->next, ev->store.version);
	raise_wanted(r, s);
	return new;
}

void reign_start(struct reign *r, struct msg_peer self, uint32_t held_epoch, uint32_t epoch_min,
		 struct step *s)
{
	r->self = self;
	r->held_epoch = held_epoch;
	r->epoch_min = epoch_min;
	map_get(r, s);
}

int reign_answer(struct reign *r, const struct core_event *ev, struct step *s, shard_set_t *ret_new)
{
	bool reading = r->state == REIGN_READING;

	if ((!reading && r->state != REIGN_WRITING) || ev->store.op != r->op || ev->store.error > 0)
		return -CORE_EINVAL;
	*ret_new = 0;
#ifdef CORE_BREAK_LOST
	if (!reading && ev->store.error == -CORE_ETIMEDOUT) {
		*ret_new = rule(r, &r->next, r->version + 1);
		return 0;
	}
#endif
	if (ev->store.error)
		trouble(r, ev->store.error, s);
	else
		*ret_new = reading ? map_read(r, ev, s) : map_written(r, ev, s);
	return 0;
}

void reign_raise(struct reign *r, shard_set_t shards, struct step *s)
{
	r->raise |= shards;
	if (r->state == REIGN_RULING)
		raise_wanted(r, s);
}

void reign_tick(struct reign *r, struct step *s)
{
	if (r->state == REIGN_PAUSED && s->now >= r->retry_at)
		map_get(r, s);
}
