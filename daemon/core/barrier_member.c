/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The member's side of barriers (barrier.h): who of this node has come, and where they stand.
 *
 * The parties of one barrier, by order:  settled | asked for | in the round | waiting
 *                                                 ask_upto    upto
 *
 * Results are handed over before the record is written that forgets their round: a daemon that dies in
 * between finds the round in its ledger, and hears the verdict again.
 */
#include "barrier_int.h"

#include "member.h"
#include "range.h"

/* At most so many results are handed over in one piece of work. */
#define HAND_OVER 4

struct barrier *barrier_at(const struct barriers *b, uint32_t handle)
{
	return pool_at(&b->records, handle);
}

struct barrier_party *party_at(const struct barriers *b, uint32_t handle)
{
	return handle ? pool_at(&b->parties, handle) : NULL;
}

uint32_t barrier_find(const struct barriers *b, const void *key, size_t len)
{
	name_t n = b->names.mem ? names_find(&b->names, key, len) : 0;

	return n && names_at(&b->names, n)->ref != CORE_REF_NONE ? names_at(&b->names, n)->ref : 0;
}

static unsigned shard_of_barrier(const struct barriers *b, const struct barrier *x)
{
	return names_at(&b->names, x->name)->shard;
}

int barrier_make(struct barriers *b, const struct core_event *ev, uint32_t *ret)
{
	name_t n;
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);

	if (handle) {
		*ret = handle;
		return 0;
	}
	int r = names_make(&b->names, ev->barrier.key, ev->barrier.key_len, &n);
	if (r < 0)
		return r;
	handle = pool_take(&b->records);
	struct barrier *x = barrier_at(b, handle);
	*x = (struct barrier){ .name = n, .ref = ev->barrier.ref, .paired = ev->barrier.paired, .next = b->all };
	if (b->all)
		barrier_at(b, b->all)->prev = handle;
	b->all = handle;
	names_at(&b->names, n)->ref = handle;
	*ret = handle;
	return 0;
}

void barrier_drop(struct barriers *b, uint32_t handle)
{
	struct barrier *x = barrier_at(b, handle);
	name_t n = x->name;

	core_assert(!x->parties && !x->due);
	if (b->cursor == handle)
		b->cursor = x->next;
	if (x->prev)
		barrier_at(b, x->prev)->next = x->next;
	else
		b->all = x->next;
	if (x->next)
		barrier_at(b, x->next)->prev = x->prev;
	pool_give(&b->records, handle);
	names_at(&b->names, n)->ref = CORE_REF_NONE;
	names_drop(&b->names, n);
}

/* --- Its parties --- */

void party_add(struct barriers *b, struct barrier *x, uint64_t id, uint64_t order, bool yes)
{
	uint32_t handle = pool_take(&b->parties);
	struct barrier_party *p = party_at(b, handle);

	*p = (struct barrier_party){ .id = id, .order = order, .yes = yes };
	if (x->last)
		party_at(b, x->last)->next = handle;
	else
		x->parties = handle;
	x->last = handle;
}

struct barrier_party *party_find(const struct barriers *b, const struct barrier *x, uint64_t id)
{
	struct barrier_party *p = party_at(b, x->parties);

	while (p && p->id != id)
		p = party_at(b, p->next);
	return p;
}

struct census census(const struct barriers *b, const struct barrier *x)
{
	struct census c = { .ready = true };

	for (const struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		bool in = x->rec.state != CORE_BARRIER_OUT && p->order <= x->rec.upto;

		c.yes += p->yes && c.yes == c.held;
		c.held++;
		c.in += in;
		c.wants_out |= in && (p->gives_up || b->leaving);
		c.ready &= !in || p->ready;
	}
	c.ready &= x->paired && c.in && round_leaves(x->rec.now.round);
	return c;
}

void due_put(struct barriers *b, struct barrier *x)
{
	uint32_t handle = names_at(&b->names, x->name)->ref;

	if (x->due)
		return;
	x->due = true;
	x->due_next = 0;
	if (b->due_last)
		barrier_at(b, b->due_last)->due_next = handle;
	else
		b->due_first = handle;
	b->due_last = handle;
}

void settle(struct barriers *b, struct barrier *x, struct barrier_party *p, int error)
{
	p->settled = true;
	p->error = error;
	x->settled++;
	due_put(b, x);
}

void settle_round(struct barriers *b, struct barrier *x, const struct core_verdict *v, uint64_t session, uint64_t upto)
{
	for (struct barrier_party *p = party_at(b, x->parties); p && p->order <= upto; p = party_at(b, p->next)) {
		if (p->settled)
			continue;
		p->round = v->round;
		p->all_yes = v->passed && v->yes;
		p->serial = v->passed && v->serial == session && p->order == upto;
		p->enters = verdict_enters(x->paired, v);
		settle(b, x, p, v->passed ? 0 : p->gives_up ? -CORE_ETIMEDOUT : -CORE_EPIPE);
	}
}

void settle_error(struct barriers *b, struct barrier *x, uint64_t from, uint64_t upto, int error)
{
	for (struct barrier_party *p = party_at(b, x->parties); p && p->order <= upto; p = party_at(b, p->next))
		if (!p->settled && p->order > from)
			settle(b, x, p, error);
}

void settle_out(struct barriers *b, struct barrier *x)
{
	for (struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || !(p->gives_up || b->leaving) || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		settle(b, x, p, p->gives_up ? -CORE_ETIMEDOUT : -CORE_ESHUTDOWN);
	}
}

uint64_t order_of(const struct barriers *b, const struct barrier *x, uint32_t k)
{
	for (const struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		if (!--k)
			return p->order;
	}
	return 0;
}

/* --- What is said --- */

static struct msg msg_of(const struct barriers *b, const struct barrier *x, enum msg_kind kind)
{
	const struct name *name = names_at(&b->names, x->name);

	return (struct msg){ .kind = kind, .key = name->key, .key_len = name->len, .shard = name->shard, .from = b->member->self,
			     .to = b->member->master[name->shard], .epoch = b->member->epoch[name->shard] };
}

static bool can_tell(const struct barriers *b, const struct barrier *x)
{
	return b->member->told & shard_bit(shard_of_barrier(b, x));
}

bool places_good(const struct barriers *b, const struct barrier *x)
{
	return x->places && token_epoch(x->places) == b->member->epoch[shard_of_barrier(b, x)];
}

/* Whoever has come and finds a place is in the round. */
static void places_take(struct barriers *b, struct barrier *x, struct step *s)
{
	struct census c = census(b, x);
	bool in = x->rec.state == CORE_BARRIER_IN && x->rec.now.round == x->places;
	uint32_t k = (uint32_t)min_u64(c.held, x->places_n);

#ifdef CORE_BREAK_BARRIER_MORE
	k = c.held;
#endif
	if (!places_good(b, x) || b->leaving || !(x->rec.state == CORE_BARRIER_OUT || in) || k <= c.in)
		return;
	x->rec.state = CORE_BARRIER_IN;
	x->rec.now = (struct core_verdict){ .round = x->places };
	x->rec.upto = order_of(b, x, k);
	x->rec.by = b->member->master[shard_of_barrier(b, x)].session;
	record_write(b, x, s);
}

void state_say(const struct barriers *b, const struct barrier *x, struct step *s)
{
	struct census c = census(b, x);
	struct msg m = msg_of(b, x, MSG_ARRIVE);

	if (!can_tell(b, x))
		return;
	m.number = x->number;
	m.held = c.held;
	m.used = c.yes;
	m.limit = x->rec.parties;
	if (x->rec.state != CORE_BARRIER_OUT) {
		m.wanted = c.in;
		m.stamp = x->rec.now.round;
	}
	if (x->rec.state == CORE_BARRIER_IN) {
		m.seen = x->rec.by;
		m.flags = MSG_FLAG_IN | (c.wants_out ? MSG_FLAG_BREAK : 0) | (c.ready ? MSG_FLAG_READY : 0);
	} else if (x->rec.state == CORE_BARRIER_TOLD) {
		m.seen = x->rec.now.serial;
		m.flags = MSG_FLAG_TOLD | verdict_flags(&x->rec.now);
	}
	m.flags |= (places_good(b, x) ? MSG_FLAG_PLACES : 0) | (x->paired ? MSG_FLAG_PAIRED : 0);
	step_send(s, &m);
}

void state_say_anew(struct barriers *b, struct barrier *x, struct step *s)
{
	x->number = ++b->number;
	state_say(b, x, s);
}

void ask_say(const struct barriers *b, const struct barrier *x, uint64_t number, bool reset, struct step *s)
{
	struct msg m = msg_of(b, x, MSG_ASK);

	if (!can_tell(b, x) || !number)
		return;
	m.number = number;
	m.stamp = reset ? 0 : x->rec.ask_round;
	m.flags = reset ? MSG_FLAG_RESET : 0;
	step_send(s, &m);
}

static void past_say(const struct barriers *b, const struct barrier *x, struct step *s)
{
	struct msg m = msg_of(b, x, MSG_PAST);

	if (!can_tell(b, x) || !x->rec.last.round)
		return;
	m.stamp = x->rec.last.round;
	m.seen = x->rec.last.serial;
	m.flags = verdict_flags(&x->rec.last) | (x->paired ? MSG_FLAG_PAIRED : 0);
	step_send(s, &m);
}

void record_write(struct barriers *b, struct barrier *x, struct step *s)
{
	struct core_barrier *copy = &s->barrier[s->actions->n];
	struct core_action *a = step_act(s, CORE_ACT_LEDGER_BARRIER);

	x->rec.session = b->member->self.session;
	x->write = false;
	*copy = x->rec;
	a->barrier.ref = x->ref;
	a->barrier.record = copy;
}

/*
 * Before the end of a shard's sync its barriers are told, one a call. Whenever another shard begins
 * to be synced the walk begins anew, as that of the leases does.
 */
int barriers_sync(struct barriers *b, struct step *s)
{
	const struct member *m = b->member;
	shard_set_t want = m->syncing & ~b->told;

	if (m->beginning) {
		b->told &= ~m->beginning;
		b->walking = false;
		return 0;
	}
	if (!want || m->cursor / MEMBER_PIECE < m->pieces_max)
		return 0;
	if (!b->walking) {
		b->walking = true;
		b->cursor = b->all;
	}
	if (!b->cursor) {
		b->walking = false;
		b->told |= want;
		return 0;
	}
	struct barrier *x = barrier_at(b, b->cursor);
	if (want & shard_bit(shard_of_barrier(b, x))) {
		int r = barriers_reserve(b);
		if (r < 0)
			return r;
		past_say(b, x, s);
		if (x->rec.state != CORE_BARRIER_OUT || census(b, x).held || places_good(b, x))
			state_say(b, x, s);
		ask_say(b, x, x->ask_number, false, s);
		ask_say(b, x, x->reset_number, true, s);
	}
	b->cursor = x->next;
	return 1;
}

/* --- Sessions --- */

static void ask_end(struct barrier *x)
{
	x->answered = x->entered = false;
	x->rec.ask_round = x->rec.ask_session = x->rec.ask_upto = 0;
}

void ask_anew(struct barriers *b, struct barrier *x)
{
	x->ask_number = ++b->number;
}

/* What was in a round is asked for; what was in none has come to nothing. Of two questions the older is given up. */
static void orphan(struct barriers *b, struct barrier *x)
{
	struct core_barrier *rec = &x->rec;

	if (x->answered)
		ask_end(x);
	x->places = 0;

#ifdef CORE_BREAK_BARRIER_CARRY
	rec->state = x->going ? rec->state : CORE_BARRIER_OUT;
	return;
#endif
	if (b->leaving) {
		ask_end(x);
		x->ask_number = 0;
	} else if (rec->state != CORE_BARRIER_OUT && !x->going) {
		settle_error(b, x, 0, rec->ask_round ? rec->ask_upto : 0, -CORE_ESTALE);
		rec->ask_round = rec->now.round;
		rec->ask_session = rec->session;
		rec->ask_upto = rec->upto;
		ask_anew(b, x);
	}
	x->orphaned = x->going;
	settle_error(b, x, x->going ? rec->upto : rec->ask_round ? rec->ask_upto : 0, UINT64_MAX, -CORE_ESTALE);
	if (!x->going)
		rec->state = CORE_BARRIER_OUT;
	x->number = ++b->number;
	x->write = true;
	due_put(b, x);
}

void barriers_lapse(struct barriers *b)
{
	b->over = b->leaving;
	for (uint32_t i = b->all; i; i = barrier_at(b, i)->next)
		orphan(b, barrier_at(b, i));
	b->walking = false;
	b->told = 0;
}

/* In no round, and in none that is asked for. */
static void send_away(struct barriers *b, struct barrier *x)
{
	uint64_t stay = x->rec.state != CORE_BARRIER_OUT ? x->rec.upto : x->rec.ask_round ? x->rec.ask_upto : 0;

	settle_error(b, x, stay, UINT64_MAX, -CORE_ESHUTDOWN);
	x->places = 0;
	x->number = ++b->number;
	x->say = true;
	due_put(b, x);
}

void barriers_leave(struct barriers *b, bool lasting)
{
	b->leaving = true;
	for (uint32_t i = b->all; i; i = barrier_at(b, i)->next)
		(lasting ? send_away : orphan)(b, barrier_at(b, i));
	b->over = !lasting;
}

bool barriers_left_over(const struct barriers *b)
{
	for (uint32_t i = b->all; i; i = barrier_at(b, i)->next)
		if (barrier_at(b, i)->parties || barrier_at(b, i)->reset_number)
			return true;
	return false;
}

void barriers_begin(struct barriers *b)
{
	uint64_t session = b->member->self.session;

	b->number = max_u64(b->number, (uint64_t)(b->member->self.incarnation - 1) << 40);
	for (uint32_t i = b->all; i; i = barrier_at(b, i)->next) {
		struct barrier *x = barrier_at(b, i);

		x->number = ++b->number;
		if (x->rec.ask_round)
			ask_anew(b, x);
		if (x->rec.session && x->rec.session != session)
			orphan(b, x);
	}
}

/* --- Handing over --- */

void reset_done(struct barrier *x, int error, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_RESET_DONE);

	x->reset_number = 0;
	a->barrier.ref = x->ref;
	a->barrier.error = error;
}

/* It is told that it has entered, and stays: in the round to leave by, or asking for it. If the session was lost twice, nobody asks. */
static void stay(struct barriers *b, struct barrier *x, struct barrier_party *p)
{
	p->settled = p->enters = p->ready = p->gives_up = p->serial = p->all_yes = false;
	p->round = 0;
	if (!(x->going && p->order <= x->rec.upto) && !(x->rec.ask_round && p->order <= x->rec.ask_upto))
		settle(b, x, p, -CORE_ESTALE);
}

static void hand_over(struct barriers *b, struct barrier *x, struct step *s)
{
	uint32_t *link = &x->parties, before = 0;

	for (unsigned n = 0; *link && x->settled && n < HAND_OVER;) {
		uint32_t handle = *link;
		struct barrier_party *p = party_at(b, handle);

		if (!p->settled) {
			before = handle;
			link = &p->next;
			continue;
		}
		struct core_action *a = step_act(s, CORE_ACT_VERDICT);
		a->barrier.ref = x->ref;
		a->barrier.party = p->id;
		a->barrier.round = p->round;
		a->barrier.error = p->error;
		a->barrier.yes = p->all_yes;
		a->barrier.serial = p->serial;
		a->barrier.inside = p->enters;
		x->settled--;
		n++;
		if (p->enters) {
			stay(b, x, p);
			before = handle;
			link = &p->next;
			continue;
		}
		*link = p->next;
		if (x->last == handle)
			x->last = before;
		pool_give(&b->parties, handle);
	}
}

/* All have their results. Those who have entered are in the round to leave by, which they find where the session has ended meanwhile. */
static void gone(struct barriers *b, struct barrier *x, struct step *s)
{
	bool orphaned = x->orphaned;

	x->going = x->orphaned = false;
	x->rec.last = x->rec.now;
	if (verdict_enters(x->paired, &x->rec.last)) {
		x->rec.state = CORE_BARRIER_IN;
		x->rec.now = (struct core_verdict){ .round = x->rec.last.round + 1 };
	} else {
		x->rec.state = CORE_BARRIER_OUT;
		x->rec.now = (struct core_verdict){ 0 };
	}
	x->number = ++b->number;
	x->say = x->rec.state == CORE_BARRIER_IN || census(b, x).held || !places_good(b, x);     /* the master thinks so, too */
	if (orphaned && x->rec.state == CORE_BARRIER_IN)
		orphan(b, x);
	record_write(b, x, s);
	if (orphaned)
		ask_say(b, x, x->ask_number, false, s);
}

/* What was asked for is known. Of those who were inside by that, what became of the round to leave by is asked next. */
static void answered(struct barriers *b, struct barrier *x, struct step *s)
{
#ifdef CORE_BREAK_BARRIER_ASKS
	x->entered = false;
#endif
	if (!x->entered) {
		ask_end(x);
		x->write = true;
		return;
	}
	x->answered = x->entered = false;
	x->rec.ask_round++;
	ask_anew(b, x);
	record_write(b, x, s);
	ask_say(b, x, x->ask_number, false, s);
}

bool barriers_member_work(struct barriers *b, struct step *s)
{
	if (!b->due_first)
		return false;
	struct barrier *x = barrier_at(b, b->due_first);
	if (x->settled) {
		hand_over(b, x, s);
		return true;
	}
	b->due_first = x->due_next;
	if (!b->due_first)
		b->due_last = 0;
	x->due = false;
	if (b->over && x->reset_number)
		reset_done(x, -CORE_ESHUTDOWN, s);
	if (x->answered)
		answered(b, x, s);
	if (x->going)
		gone(b, x, s);
	else if (x->write)
		record_write(b, x, s);
	if (x->say) {
		x->say = false;
		places_take(b, x, s);
		state_say(b, x, s);
	}
	return true;
}
