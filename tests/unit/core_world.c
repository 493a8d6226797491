/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core_world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_rig.h"
#include "core/grant.h"
#include "core/range.h"

#define NAMES 24
#define SHARDS_USED 3            /* few, so that names share floors */
#define RUNS_TO_START 50         /* of a daemon whose store fails at each start */

enum wish { W_IDLE, W_CLAIMED, W_OPEN, W_REFILLING, W_RELEASING };

struct ledger_entry {
	bool held;
	struct core_range range;
	uint64_t number;
};

struct subject {                         /* a name, and those who use it */
	char key[32];
	bool hostile;
	enum wish wish;
	core_ref_t ref;
	struct core_range slot;
	uint64_t used;
	core_nsec_t slot_at;             /* when the slot got its range */
	uint64_t last;                   /* the highest token taken */
	uint64_t granted;                /* the number of the last grant */
	struct ledger_entry ledger;
};

struct request {
	enum core_action_kind kind;
	bool pending;
	uint32_t op;
	uint64_t version;
	uint8_t value[MAP_BYTES];
};

struct daemon {
	struct rig rig;
	struct request request;
	uint32_t incarnation;
	core_nsec_t timer;
	bool opened, dead;
};

struct world {
	uint64_t random, seed;
	unsigned crash_permille;         /* before each action, and each step; from the seed */
	unsigned step;
	bool verdict, calm;
	struct world_counts *counts;
	struct daemon *node, *zombie;
	uint64_t session;
	uint32_t incarnation;
	core_nsec_t now;
	uint8_t map[MAP_BYTES];
	uint64_t version;
	struct subject name[NAMES];
};

/* splitmix64 */
static uint64_t draw(struct world *w, uint64_t below)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static bool chance(struct world *w, unsigned percent)
{
	return !w->calm && draw(w, 100) < percent;
}

static bool crashes(struct world *w)
{
	return !w->calm && draw(w, 1000) < w->crash_permille;
}

static void judge(struct world *w, bool right, const char *what)
{
	if (right || !w->verdict)
		return;
	printf("# seed %" PRIu64 " step %u: %s\n", w->seed, w->step, what);
	w->verdict = false;
}

/* --- The store --- */

static void judge_write(struct world *w, const uint8_t *value)
{
	struct map old, new;

	judge(w, map_decode(value, MAP_BYTES, &new) == 0, "what was written to the store is no map");
	if (!w->version || map_decode(w->map, MAP_BYTES, &old) < 0)
		return;
	for (unsigned i = 0; i < CORE_SHARDS; i++) {
		struct map_reign o = old.shard[i], n = new.shard[i];

		judge(w, n.epoch > o.epoch || (n.epoch == o.epoch && msg_peer_same(o.master, n.master)),
		      "an epoch fell, or got another master");
		judge(w, n.master.session != o.master.session || n.master.incarnation >= o.master.incarnation,
		      "an earlier incarnation took a shard back");
	}
}

static int store_carry_out(struct world *w, const struct request *q)
{
	if (q->version != w->version)
		return -EAGAIN;
	judge_write(w, q->value);
	memcpy(w->map, q->value, MAP_BYTES);
	w->version++;
	return 0;
}

/* What becomes of a request: the error that the core is told. */
static int store_fate(struct world *w, const struct request *q)
{
	if (q->kind == CORE_ACT_STORE_GET)
		return chance(w, 5) ? -ETIMEDOUT : chance(w, 3) ? (w->counts->errors++, -EIO) : 0;
	if (chance(w, 10)) {
		w->counts->lost_undone++;
		return -ETIMEDOUT;
	}
	if (chance(w, 5)) {
		w->counts->errors++;
		if (chance(w, 50))
			store_carry_out(w, q);
		return -ENOSPC;
	}
	int e = store_carry_out(w, q);
	if (chance(w, 15)) {
		w->counts->lost_done++;
		return -ETIMEDOUT;
	}
	if (!e && chance(w, 10)) {
		w->counts->repeated++;
		return -EAGAIN;
	}
	return e;
}

/* --- The daemon --- */

static struct subject *subject_of(struct world *w, core_ref_t ref)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (w->name[i].ref == ref)
			return &w->name[i];
	return NULL;
}

static core_ref_t ref_free(struct world *w)
{
	core_ref_t ref = (core_ref_t)draw(w, 2) * 600;     /* now and then in another piece of the member's array */

	while (subject_of(w, ref))
		ref++;
	return ref;
}

/* The judge that looks inside: an open shard's master knows all that is held. */
static void judge_master(struct world *w, const struct core *c)
{
	for (unsigned i = 0; i < NAMES; i++) {
		const struct subject *u = &w->name[i];
		name_t n = names_find(&c->names, u->key, strlen(u->key));

		if (!n || u->ref == CORE_REF_NONE)
			continue;
		const struct name *name = names_at(&c->names, n);
		const struct lease *l = name->ref == CORE_REF_NONE ? NULL :
			&c->member.piece[name->ref / MEMBER_PIECE].lease[name->ref % MEMBER_PIECE];
		if (!l || (l->state != LEASE_HELD && l->state != LEASE_REFILLING) || !(c->master.open & shard_bit(name->shard)))
			continue;
		const struct master_name *r = record_of(&c->master, n);
		const struct master_claim *k = r && r->claims ? pool_at(&c->master.claims, r->claims) : NULL;
		judge(w, k && k->held && k->range.first == l->range.first, "an open shard's master does not know a lease");
	}
}

static void do_grant(struct world *w, const struct core_action *a)
{
	struct subject *u = subject_of(w, a->name.ref);
	struct core_range range = a->name.range;
	struct map m;

	judge(w, u && (u->wish == W_CLAIMED || u->wish == W_REFILLING), "a grant that nobody waits for");
	if (!u)
		return;
	judge(w, w->node->opened, "a grant before OPENED");
	judge(w, u->ledger.held && u->ledger.range.first == range.first && u->ledger.range.count == range.count,
	      "a grant that is not in the ledger");
	judge(w, w->version && map_decode(w->map, MAP_BYTES, &m) == 0, "a grant without a map in the store");
	const struct map_reign *reign = &m.shard[shard_of(u->key, strlen(u->key))];
	judge(w, reign->epoch == token_epoch(range.first) && reign->master.session == w->session &&
	      reign->master.incarnation == w->incarnation, "a grant in an epoch that the store does not give to this run");
	judge(w, range_valid(range), "a grant of what is no range");
	if (!u->hostile)
		judge(w, range.first > u->last && range.first > u->granted, "tokens did not rise");
	w->counts->grants++;
	u->slot = range;
	u->slot_at = w->now;
	u->used = 0;
	u->granted = range.first;
	u->wish = W_OPEN;
}

static void do_forgotten(struct world *w, const struct core_action *a)
{
	struct subject *u = subject_of(w, a->name.ref);

	judge(w, u && u->wish == W_RELEASING, "forgotten without a release");
	if (!u)
		return;
	judge(w, !u->ledger.held, "forgotten, and still in the ledger");
	u->wish = W_IDLE;
	u->ref = CORE_REF_NONE;
}

static void do_request(struct daemon *d, const struct core_action *a)
{
	d->request = (struct request){
		.kind = a->kind, .pending = true, .op = a->store.op, .version = a->store.version,
	};
	if (a->kind == CORE_ACT_STORE_CAS)
		memcpy(d->request.value, a->store.value, a->store.value_len);
}

static void do_action(struct world *w, const struct core_action *a)
{
	struct subject *u;

	switch (a->kind) {
	case CORE_ACT_STORE_GET:
	case CORE_ACT_STORE_CAS:
		do_request(w->node, a);
		return;
	case CORE_ACT_LEDGER_GRANT:
		u = subject_of(w, a->name.ref);
		judge(w, u, "a ledger entry of nobody");
		if (u)
			u->ledger = (struct ledger_entry){ true, a->name.range, a->name.number };
		return;
	case CORE_ACT_GRANT:
		do_grant(w, a);
		return;
	case CORE_ACT_LEDGER_RELEASE:
		u = subject_of(w, a->name.ref);
		judge(w, u && u->ledger.held, "a ledger entry removed that is not there");
		if (u)
			u->ledger.held = false;
		return;
	case CORE_ACT_FORGOTTEN:
		do_forgotten(w, a);
		return;
	case CORE_ACT_OPENED:
		w->node->opened = true;
		return;
	case CORE_ACT_REFUSED:
		judge(w, false, "refused, with epochs left");
		return;
	case CORE_ACT_TIMER:
		w->node->timer = a->timer.when;
		return;
	case CORE_ACT_STORE_LIST:
	case CORE_ACT_SEND:
	case CORE_ACT_LINK:
	case CORE_ACT_UNLINK:
	case CORE_ACT_DEADLINE:
	case CORE_ACT_JEOPARDY:
	case CORE_ACT_LOSS:
	case CORE_ACT_LAPSED:
	case CORE_ACT_SESSION:
	case CORE_ACT_REVOKE:
	case CORE_ACT_CHANGED:
	case CORE_ACT_RESIZED:
	case CORE_ACT_OBSERVED:
	case CORE_ACT_NEWS:
	case CORE_ACT_DRAINED:
	case CORE_ACT_LEFT:
	case CORE_ACT_ACCOUNT:
	case CORE_ACT_RELAYED:
	case CORE_ACT_COMPLAINT:
	case CORE_ACT_ENDED:
	case CORE_ACT_ODD:
	case CORE_ACT_CUT_OFF:
	case CORE_ACT_LEDGER_ARRIVE:
	case CORE_ACT_LEDGER_BARRIER:
	case CORE_ACT_VERDICT:
	case CORE_ACT_RESET_DONE:
		judge(w, false, "something that only a node among others does, or that nobody asked for");
		return;
	case CORE_ACT_FATAL:
		w->counts->fatal++;
		w->node->dead = true;
		return;
	}
}

static void daemon_end(struct daemon *d)
{
	if (!d)
		return;
	rig_done(&d->rig);
	free(d);
}

/* The process is gone; its request to the store may not be. */
static void crash(struct world *w)
{
	struct core_stats st;

	core_stats(w->node->rig.core, &st);
	w->counts->raises += st.raises;
	w->counts->crashes++;
	if (w->node->request.pending && !w->zombie && chance(w, 50)) {
		w->zombie = w->node;
		w->counts->zombies++;
	} else {
		daemon_end(w->node);
	}
	w->node = NULL;
}

/* One event and all that follows from it. -> whether the daemon is still there */
static bool step(struct world *w, const struct core_event *ev, int expect)
{
	const struct core_event more = { .kind = CORE_EV_CONTINUE };

	for (;; ev = &more, expect = 0) {
		struct rig *r = &w->node->rig;

		r->now = w->now;
		w->counts->steps++;
		judge(w, rig_step(r, ev) == expect, "an event was not answered as expected");
		judge_master(w, r->core);
		struct core_actions done = r->actions;
		for (unsigned i = 0; i < done.n; i++) {
			if (crashes(w)) {
				w->counts->torn += i > 0;
				crash(w);
				return false;
			}
			do_action(w, &done.v[i]);
		}
		if (w->node->dead) {
			crash(w);
			return false;
		}
		if (!done.more)
			return true;
	}
}

static bool answer(struct world *w)
{
	struct request *q = &w->node->request;
	struct core_event ev = { .kind = CORE_EV_STORE, .store = { .op = q->op } };
	uint8_t value[MAP_BYTES];

	q->pending = false;
	ev.store.error = store_fate(w, q);
	if (!ev.store.error) {
		memcpy(value, w->map, sizeof value);
		ev.store.version = w->version;
		if (q->kind == CORE_ACT_STORE_GET && w->version) {
			ev.store.value = value;
			ev.store.value_len = sizeof value;
		}
	}
	return step(w, &ev, 0);
}

/* A zombie's requests reach the store, and its grants nobody. */
static void zombie_answer(struct world *w)
{
	struct daemon *z = w->zombie;
	struct request *q = &z->request;
	struct core_event ev = { .kind = CORE_EV_STORE, .store = { .op = q->op } };

	q->pending = false;
	if (q->kind == CORE_ACT_STORE_CAS)
		ev.store.error = store_carry_out(w, q);
	else if (w->version) {
		ev.store.value = w->map;
		ev.store.value_len = MAP_BYTES;
	}
	ev.store.version = ev.store.error ? 0 : w->version;
	z->rig.now = w->now;
	rig_step(&z->rig, &ev);
	for (unsigned i = 0; i < z->rig.actions.n; i++) {
		const struct core_action *a = &z->rig.actions.v[i];
		if (a->kind == CORE_ACT_STORE_GET || a->kind == CORE_ACT_STORE_CAS)
			do_request(z, a);
	}
	if (q->pending)
		return;
	daemon_end(z);
	w->zombie = NULL;
}

static void ledger_adopt(struct world *w, struct subject *u)
{
	struct core_event ev = { .kind = CORE_EV_ADOPT };

	u->ref = ref_free(w);
	u->wish = W_OPEN;
	if (u->slot.first != u->ledger.range.first) {
		u->slot = u->ledger.range;
		u->slot_at = w->now;
		u->used = 0;
		u->granted = u->slot.first;
	}
	ev.adopt.ref = u->ref;
	ev.adopt.key = u->key;
	ev.adopt.key_len = (uint16_t)strlen(u->key);
	ev.adopt.range = u->ledger.range;
	ev.adopt.number = draw(w, 2) ? u->ledger.number : 0;
	w->node->rig.now = w->now;
	judge(w, rig_step(&w->node->rig, &ev) == 0, "a lease of the ledger was not adopted");
	w->counts->adopted++;
}

static void restart(struct world *w)
{
	if (chance(w, 10)) {
		w->counts->reboots++;
		w->session++;
		w->incarnation = 0;
		daemon_end(w->zombie);
		w->zombie = NULL;
		for (unsigned i = 0; i < NAMES; i++)
			w->name[i].ledger.held = false;
	}
	w->incarnation++;
	w->node = calloc(1, sizeof *w->node);
	rig_init(&w->node->rig);
	w->node->rig.silent = true;
	for (unsigned i = 0; i < NAMES; i++) {
		w->name[i].ref = CORE_REF_NONE;
		w->name[i].wish = W_IDLE;
	}
	for (unsigned i = 0; i < NAMES; i++)
		if (w->name[i].ledger.held)
			ledger_adopt(w, &w->name[i]);
	step(w, &(struct core_event){ .kind = CORE_EV_START, .start = { .session = w->session, .incarnation = w->incarnation } }, 0);
}

/* --- The clients --- */

static void claim(struct world *w, struct subject *u)
{
	struct core_event ev = { .kind = CORE_EV_CLAIM };

	u->ref = ref_free(w);
	u->wish = W_CLAIMED;
	ev.claim.ref = u->ref;
	ev.claim.key = u->key;
	ev.claim.key_len = (uint16_t)strlen(u->key);
	step(w, &ev, 0);
}

/* Takes tokens: as many as there are and as time allows. */
static void use(struct world *w, struct subject *u)
{
	uint64_t left = u->slot.count - u->used, time = w->now - u->slot_at;
	uint64_t n = min_u64(left, time > u->used ? time - u->used : 0);

	if (!n)
		return;
	if (draw(w, 2))
		n = 1 + draw(w, n);
	if (!u->hostile)
		judge(w, u->slot.first + u->used > u->last, "a token was taken that is not above the last");
	u->last = max_u64(u->last, u->slot.first + u->used + n - 1);
	u->used += n;
	w->counts->tokens++;
}

static uint64_t used_report(struct world *w, const struct subject *u)
{
	return u->hostile ? draw(w, 3) ? UINT64_MAX : draw(w, u->slot.count + 2) : u->used;
}

static void refill(struct world *w, struct subject *u)
{
	struct core_event ev = { .kind = CORE_EV_REFILL, .refill.ref = u->ref };

	/* It takes as long as it takes to use the range up. */
	if (!u->hostile) {
		w->now += u->slot.count + draw(w, 1000);
		while (u->used < u->slot.count)
			use(w, u);
	}
	ev.refill.used = used_report(w, u);
	u->wish = W_REFILLING;
	w->counts->refills++;
	step(w, &ev, 0);
}

static void release(struct world *w, struct subject *u)
{
	struct core_event ev = { .kind = CORE_EV_RELEASE, .release = { u->ref, used_report(w, u) } };

	w->counts->releases++;
	w->counts->cancels += u->wish == W_CLAIMED;
	u->wish = W_RELEASING;
	step(w, &ev, 0);
}

static void client_act(struct world *w)
{
	/* Every other time one of three, so that some counters come to their end. */
	struct subject *u = &w->name[draw(w, draw(w, 2) ? NAMES : 3)];

	switch (u->wish) {
	case W_IDLE:
		claim(w, u);
		return;
	case W_CLAIMED:
		if (chance(w, 10))
			release(w, u);
		return;
	case W_OPEN:
		use(w, u);
		if (draw(w, 100) < 70)
			refill(w, u);
		else if (draw(w, 100) < 20)
			release(w, u);
		return;
	case W_REFILLING:
		if (chance(w, 5))
			release(w, u);
		return;
	case W_RELEASING:
		return;
	}
}

static void world_step(struct world *w)
{
	w->now += draw(w, 8) ? draw(w, 100000) : draw(w, 100000000);
	if (w->zombie && draw(w, 4) == 0)
		zombie_answer(w);
	else if (!w->node)
		restart(w);
	else if (w->node->request.pending && draw(w, 3) == 0)
		answer(w);
	else if (w->node->timer && w->now >= w->node->timer && draw(w, 4) == 0)
		w->node->timer = 0, step(w, &(struct core_event){ .kind = CORE_EV_TIMER }, 0);
	else if (crashes(w))
		crash(w);
	else
		client_act(w);
}

/* Faults have stopped: the store answers, timers fire, and everybody is served. */
static void calm_down(struct world *w)
{
	bool waits = true;

	w->calm = true;
	for (unsigned i = 0; i < RUNS_TO_START && waits && w->verdict; i++) {
		if (!w->node)
			restart(w);
		while (w->node && w->node->request.pending)
			answer(w);
		if (w->node && w->node->timer) {
			w->now = max_u64(w->now, w->node->timer);
			w->node->timer = 0;
			step(w, &(struct core_event){ .kind = CORE_EV_TIMER }, 0);
			continue;
		}
		waits = !w->node || w->node->request.pending;
		for (unsigned n = 0; n < NAMES; n++)
			waits |= w->name[n].wish != W_IDLE && w->name[n].wish != W_OPEN;
	}
	judge(w, !waits, "somebody still waits");
}

bool world_run(uint64_t seed, unsigned steps, struct world_counts *counts)
{
	struct world w = { .random = seed, .seed = seed, .verdict = true, .counts = counts, .session = 7, .now = 1000000000 };
	static const unsigned permille[] = { 0, 1, 5, 20 };
	unsigned number = 0;

	w.crash_permille = permille[draw(&w, 4)];
	for (unsigned i = 0; i < NAMES; i++) {
		struct subject *u = &w.name[i];

		do
			snprintf(u->key, sizeof u->key, "default/n%u", number++);
		while (shard_of(u->key, strlen(u->key)) >= SHARDS_USED);
		u->hostile = i % 8 == 7;
		u->ref = CORE_REF_NONE;
	}
	for (w.step = 0; w.step < steps && w.verdict; w.step++)
		world_step(&w);
	calm_down(&w);
	if (w.node)
		crash(&w);
	daemon_end(w.zombie);
	return w.verdict;
}
