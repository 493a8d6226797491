/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the callers of a member ask of it, and what a ledger knew. */
#include "member_int.h"

#include "range.h"

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

	if (!key_valid(ev->adopt.key, ev->adopt.key_len, ev->adopt.ref) || !range_valid(ev->adopt.range) || ev->adopt.delay > CORE_DELAY_MAX ||
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
	l->delay = ev->adopt.delay;
	lease_value_set(m, l, value);
	l->lost = ev->adopt.value.state == CORE_VALUE_LOST;
	l->died = ev->adopt.died;
	l->unmended = l->died && l->held != MSG_WEIGHT_ALL;
	l->owes = l->died || value;
	limit_known(m, l, ev->adopt.present, ev->adopt.limit_stamp);
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
	lease_leave(m, l, value, false);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

int member_claim(struct member *m, const struct core_event *ev, struct step *s)
{
	struct lease *l;

	if (!key_valid(ev->claim.key, ev->claim.key_len, ev->claim.ref) ||
	    !weight_valid(ev->claim.weight, ev->claim.limit_stamp ? CORE_LIMIT_MAX : ev->claim.limit) || ev->claim.delay > CORE_DELAY_MAX)
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
	l->delay = ev->claim.delay;
	limit_known(m, l, ev->claim.present, ev->claim.limit_stamp);
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

	bool owes = lease_leave(m, l, value, ev->release.died);
#ifndef CORE_BREAK_LEDGER
	step_act(s, CORE_ACT_LEDGER_RELEASE)->name.ref = ref;
#endif
	if (pass_on(m, l, s) || owes)
		l->number = ++m->number;         /* an answer to what was said before does not acknowledge this */
	l->range.count = used_clamp(m, l, used);
	m->releases++;
	l->held = l->wanted = 0;
	lease_forget_if_known(m, l);
	l->upgrade = false;
	lease_become(m, l, LEASE_RELEASING);
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
	if (!value_valid(l, &ev->change.value) || !death_valid(l, ev->change.died) || ev->change.delay > CORE_DELAY_MAX)
		return -CORE_EINVAL;
	if (held == l->held && (ev->change.value.state != CORE_VALUE_NONE || ev->change.died))
		return -CORE_EINVAL;
	bool alike = ev->change.priority == l->priority && ev->change.tries == l->tries && ev->change.delay == l->delay;

	if (held == l->held && wanted == l->wanted && (!wanted || alike) && ev->change.upgrade == l->upgrade)
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
	if (held)
		heir_forget(m, l);
	else
		pass_on(m, l, s);
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
		lease_leave(m, l, value, ev->change.died);
		lower(m, ref, l, ev->change.held, ev->change.used, s);
		lease_forget_if_known(m, l);
	}
	if (!l->wanted)
		l->stamp = 0;                    /* a new place in the queue; one that waits keeps its own */
	l->wanted = ev->change.wanted;
	l->upgrade = ev->change.upgrade;
	l->priority = ev->change.wanted ? ev->change.priority : l->priority;
	l->tries = ev->change.wanted && ev->change.tries;
	l->delay = ev->change.wanted ? ev->change.delay : l->delay;
	l->number = ++m->number;
	lease_become(m, l, !l->held ? LEASE_WAITING : l->wanted ? LEASE_REFILLING : LEASE_HELD);
	tell(m, MSG_CLAIM, l, s);
	return 0;
}

void keep_say(const struct member *m, const struct lease *l, struct msg *msg, struct step *s)
{
	const struct name *name = names_at(m->names, l->name);

	msg->kind = MSG_KEEP;
	msg->key = name->key;
	msg->key_len = name->len;
	msg->shard = name->shard;
	msg->from = m->self;
	msg->to = m->master[name->shard];
	msg->epoch = m->epoch[name->shard];
	msg->number = l->number;
	msg->seen = l->range.first;
	if (master_reached(m, name->shard))
		step_send(s, msg);
}

/* If the answer is lost, whoever tries gives up by itself. */
int member_keep(struct member *m, core_ref_t ref, struct step *s)
{
	const struct lease *l = lease_at(m, ref);
	struct msg msg = { 0 };

	if ((lease_state(l) != LEASE_HELD && lease_state(l) != LEASE_REFILLING && lease_state(l) != LEASE_WAITING) || !l->held)
		return -CORE_ENOENT;
	keep_say(m, l, &msg, s);
	return 0;
}
