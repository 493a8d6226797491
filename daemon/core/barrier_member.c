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
#include "barrier.h"

#include "member.h"

/* At most so many results are handed over in one piece of work. */
#define HAND_OVER 4

static struct barrier *barrier_at(const struct barriers *b, uint32_t handle)
{
	return pool_at(&b->records, handle);
}

static struct barrier_party *party_at(const struct barriers *b, uint32_t handle)
{
	return handle ? pool_at(&b->parties, handle) : NULL;
}

static uint32_t barrier_find(const struct barriers *b, const void *key, size_t len)
{
	name_t n = b->names.mem ? names_find(&b->names, key, len) : 0;

	return n && names_at(&b->names, n)->ref != CORE_REF_NONE ? names_at(&b->names, n)->ref : 0;
}

static unsigned shard_of_barrier(const struct barriers *b, const struct barrier *x)
{
	return names_at(&b->names, x->name)->shard;
}

/* Finds or makes it; there is room for one more. */
static int barrier_make(struct barriers *b, const struct core_event *ev, uint32_t *ret)
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
	*x = (struct barrier){ .name = n, .ref = ev->barrier.ref, .next = b->all };
	if (b->all)
		barrier_at(b, b->all)->prev = handle;
	b->all = handle;
	names_at(&b->names, n)->ref = handle;
	*ret = handle;
	return 0;
}

static void barrier_drop(struct barriers *b, uint32_t handle)
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

static void party_add(struct barriers *b, struct barrier *x, uint64_t id, uint64_t order, bool yes)
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

static struct barrier_party *party_find(const struct barriers *b, const struct barrier *x, uint64_t id)
{
	struct barrier_party *p = party_at(b, x->parties);

	while (p && p->id != id)
		p = party_at(b, p->next);
	return p;
}

struct census {
	uint32_t held;                   /* wait for a round, or for the verdict of the one that they are in */
	uint32_t in;                     /* are in it */
	uint32_t yes;                    /* the first so many voted yes */
	bool wants_out;                  /* somebody who is in it */
};

static struct census census(const struct barriers *b, const struct barrier *x)
{
	struct census c = { 0 };

	for (const struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		bool in = x->rec.state != CORE_BARRIER_OUT && p->order <= x->rec.upto;

		c.yes += p->yes && c.yes == c.held;
		c.held++;
		c.in += in;
		c.wants_out |= in && (p->gives_up || b->leaving);
	}
	return c;
}

static void due_put(struct barriers *b, struct barrier *x)
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

static void settle(struct barriers *b, struct barrier *x, struct barrier_party *p, int error)
{
	p->settled = true;
	p->error = error;
	x->settled++;
	due_put(b, x);
}

/* Those up to `upto` have this verdict, of a round in which they were in `session`. */
static void settle_round(struct barriers *b, struct barrier *x, const struct core_verdict *v, uint64_t session, uint64_t upto)
{
	for (struct barrier_party *p = party_at(b, x->parties); p && p->order <= upto; p = party_at(b, p->next)) {
		if (p->settled)
			continue;
		p->round = v->round;
		p->all_yes = v->passed && v->yes;
		p->serial = v->passed && v->serial == session && p->order == upto;
		settle(b, x, p, v->passed ? 0 : p->gives_up ? -CORE_ETIMEDOUT : -CORE_EPIPE);
	}
}

/* Those above `from` and up to `upto`. */
static void settle_error(struct barriers *b, struct barrier *x, uint64_t from, uint64_t upto, int error)
{
	for (struct barrier_party *p = party_at(b, x->parties); p && p->order <= upto; p = party_at(b, p->next))
		if (!p->settled && p->order > from)
			settle(b, x, p, error);
}

/* Whoever wants out and is in no round may go. */
static void settle_out(struct barriers *b, struct barrier *x)
{
	for (struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || !(p->gives_up || b->leaving) || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		settle(b, x, p, p->gives_up ? -CORE_ETIMEDOUT : -CORE_ESHUTDOWN);
	}
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

static uint16_t verdict_flags(const struct core_verdict *v)
{
	return (uint16_t)((v->passed ? MSG_FLAG_PASSED : 0) | (v->passed && v->yes ? MSG_FLAG_YES : 0));
}

/* All that this node has of it. If there is no master yet, or no way to it, the sync will tell. */
static void state_say(const struct barriers *b, const struct barrier *x, struct step *s)
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
		m.flags = MSG_FLAG_IN | (c.wants_out ? MSG_FLAG_BREAK : 0);
	} else if (x->rec.state == CORE_BARRIER_TOLD) {
		m.seen = x->rec.now.serial;
		m.flags = MSG_FLAG_TOLD | verdict_flags(&x->rec.now);
	}
	step_send(s, &m);
}

static void state_say_anew(struct barriers *b, struct barrier *x, struct step *s)
{
	x->number = ++b->number;
	state_say(b, x, s);
}

static void ask_say(const struct barriers *b, const struct barrier *x, uint64_t number, bool reset, struct step *s)
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
	m.flags = verdict_flags(&x->rec.last);
	step_send(s, &m);
}

static void record_write(struct barriers *b, struct barrier *x, struct step *s)
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
		if (x->rec.state != CORE_BARRIER_OUT || census(b, x).held)
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
	x->answered = false;
	x->rec.ask_round = x->rec.ask_session = x->rec.ask_upto = 0;
}

/* What was in a round is asked for; what was in none has come to nothing. Of two questions the older is given up. */
static void orphan(struct barriers *b, struct barrier *x)
{
	struct core_barrier *rec = &x->rec;

	if (x->answered)
		ask_end(x);

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
		x->ask_number = ++b->number;
	}
	settle_error(b, x, rec->ask_round ? rec->ask_upto : 0, UINT64_MAX, -CORE_ESTALE);
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
			x->ask_number = ++b->number;
		if (x->rec.session && x->rec.session != session)
			orphan(b, x);
	}
}

/* --- Events --- */

static int adopt_barrier(struct barriers *b, const struct core_event *ev)
{
	const struct core_barrier *rec = ev->barrier.record;
	uint32_t handle;

	if (!rec || !rec->parties || (rec->state != CORE_BARRIER_OUT && !rec->now.round))
		return -CORE_EINVAL;
	if (barrier_find(b, ev->barrier.key, ev->barrier.key_len))
		return -CORE_EALREADY;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	barrier_at(b, handle)->rec = *rec;
	b->number = max_u64(b->number, max_u64(rec->upto, rec->ask_upto));
	return 0;
}

static int adopt_party(struct barriers *b, const struct core_event *ev)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;

	if (!x || !ev->barrier.order || (x->last && party_at(b, x->last)->order >= ev->barrier.order))
		return -CORE_EINVAL;
	party_add(b, x, ev->barrier.party, ev->barrier.order, ev->barrier.yes);
	b->number = max_u64(b->number, ev->barrier.order);
	return 0;
}

/* As many parties as the others say; nobody here: as many as one likes. */
static int parties_agree(struct barrier *x, uint32_t parties)
{
	if (x->rec.parties == parties)
		return 0;
	if (x->parties || x->rec.state != CORE_BARRIER_OUT || x->reset_number)
		return -CORE_EINVAL;
	x->rec.parties = parties;
	x->write = true;
	return 0;
}

static int arrive(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle;

	if (!ev->barrier.parties)
		return -CORE_EINVAL;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	struct barrier *x = barrier_at(b, handle);
	if (party_find(b, x, ev->barrier.party))
		return -CORE_EALREADY;
	r = parties_agree(x, ev->barrier.parties);
	if (r < 0)
		return r;

	uint64_t order = ++b->number;
	party_add(b, x, ev->barrier.party, order, ev->barrier.yes);
	if (x->write || (x->rec.session != b->member->self.session && x->rec.state == CORE_BARRIER_OUT))
		record_write(b, x, s);
	struct core_action *a = step_act(s, CORE_ACT_LEDGER_ARRIVE);
	a->barrier.ref = x->ref;
	a->barrier.party = ev->barrier.party;
	a->barrier.order = order;
	a->barrier.yes = ev->barrier.yes;
	x->number = order;
	state_say(b, x, s);
	return 0;
}

static int withdraw(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;
	struct barrier_party *p = x ? party_find(b, x, ev->barrier.party) : NULL;

	if (!p)
		return -CORE_ENOENT;
	if (p->settled || p->gives_up)
		return -CORE_EALREADY;
	if (x->rec.ask_round && p->order <= x->rec.ask_upto) {
		p->gives_up = true;              /* the answer is asked for already */
		return 0;
	}
	bool in = x->rec.state != CORE_BARRIER_OUT && p->order <= x->rec.upto;
#ifdef CORE_BREAK_BARRIER_ALONE
	in = false;
#endif
	p->gives_up = true;
	if (!in)
		settle(b, x, p, -CORE_ETIMEDOUT);
	state_say_anew(b, x, s);
	return 0;
}

static int reset(struct barriers *b, const struct core_event *ev, struct step *s)
{
	uint32_t handle;

	if (!ev->barrier.parties)
		return -CORE_EINVAL;
	int r = barrier_make(b, ev, &handle);
	if (r < 0)
		return r;
	struct barrier *x = barrier_at(b, handle);
	if (x->reset_number)
		return -CORE_EALREADY;
	r = parties_agree(x, ev->barrier.parties);
	if (r < 0)
		return r;
	x->reset_number = ++b->number;
	ask_say(b, x, x->reset_number, true, s);
	return 0;
}

static int close_barrier(struct barriers *b, const struct core_event *ev)
{
	uint32_t handle = barrier_find(b, ev->barrier.key, ev->barrier.key_len);
	struct barrier *x = handle ? barrier_at(b, handle) : NULL;

	if (!x)
		return -CORE_ENOENT;
	if (x->parties || x->reset_number || x->due || x->rec.state != CORE_BARRIER_OUT)
		return -CORE_EBUSY;
	barrier_drop(b, handle);
	return 0;
}

int barriers_event(struct barriers *b, const struct core_event *ev, struct step *s)
{
	if (!ev->barrier.key || !ev->barrier.key_len || ev->barrier.key_len > CORE_KEY_MAX)
		return -CORE_EINVAL;
	int r = barriers_reserve(b);
	if (r < 0)
		return r;
	if (ev->kind == CORE_EV_ADOPT_BARRIER)
		return adopt_barrier(b, ev);
	if (ev->kind == CORE_EV_ADOPT_PARTY)
		return adopt_party(b, ev);
	if (ev->kind == CORE_EV_ARRIVE)
		return arrive(b, ev, s);
	if (ev->kind == CORE_EV_WITHDRAW)
		return withdraw(b, ev, s);
	if (ev->kind == CORE_EV_RESET)
		return reset(b, ev, s);
	core_assert(ev->kind == CORE_EV_CLOSE);
	return close_barrier(b, ev);
}

/* --- What masters say --- */

/* The order of the k-th of those who wait. 0: there are not so many. */
static uint64_t order_of(const struct barriers *b, const struct barrier *x, uint32_t k)
{
	for (const struct barrier_party *p = party_at(b, x->parties); p; p = party_at(b, p->next)) {
		if (p->settled || (x->rec.ask_round && p->order <= x->rec.ask_upto))
			continue;
		if (!--k)
			return p->order;
	}
	return 0;
}

/* The round that we were in has come to nothing, and nobody can have had a verdict of it. */
static void put_out(struct barriers *b, struct barrier *x, struct step *s)
{
	x->rec.state = CORE_BARRIER_OUT;
	x->rec.now = (struct core_verdict){ 0 };
	settle_out(b, x);
	record_write(b, x, s);
	state_say_anew(b, x, s);
}

static void take_enrol(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	bool same = x->rec.state == CORE_BARRIER_IN && x->rec.now.round == m->stamp;

	if (x->number != m->number || x->rec.state == CORE_BARRIER_TOLD)
		return;
	if (!same && x->rec.state == CORE_BARRIER_IN && (!m->stamp || census(b, x).wants_out)) {
		put_out(b, x, s);
		return;
	}
	if (!m->stamp)
		return;
	uint64_t upto = order_of(b, x, m->held);
	if (NEVER(!upto || (same && upto < x->rec.upto)))
		return;
	x->rec.state = CORE_BARRIER_IN;
	x->rec.now = (struct core_verdict){ .round = m->stamp };
	x->rec.upto = upto;
	x->rec.by = m->from.session;
	record_write(b, x, s);
	state_say(b, x, s);
}

static struct core_verdict verdict_of(const struct msg *m)
{
	return (struct core_verdict){ .round = m->stamp, .serial = m->seen, .passed = m->flags & MSG_FLAG_PASSED,
				      .yes = m->flags & MSG_FLAG_YES };
}

static void take_announce(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	if (x->rec.state == CORE_BARRIER_IN && x->rec.now.round == m->stamp) {
		x->rec.state = CORE_BARRIER_TOLD;
		x->rec.now = verdict_of(m);
		record_write(b, x, s);
	}
	state_say(b, x, s);
}

static void take_go(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	if (x->rec.state != CORE_BARRIER_TOLD || x->rec.now.round != m->stamp) {
		state_say(b, x, s);
		return;
	}
	if (x->going)
		return;
	x->going = true;
	settle_round(b, x, &x->rec.now, x->rec.session, x->rec.upto);
	due_put(b, x);
}

static void reset_done(struct barrier *x, int error, struct step *s)
{
	struct core_action *a = step_act(s, CORE_ACT_RESET_DONE);

	x->reset_number = 0;
	a->barrier.ref = x->ref;
	a->barrier.error = error;
}

static void take_answer(struct barriers *b, struct barrier *x, const struct msg *m, struct step *s)
{
	struct core_verdict v = verdict_of(m);

	if (m->flags & MSG_FLAG_RESET) {
		if (!x->reset_number || x->reset_number != m->number)
			return;
		reset_done(x, 0, s);
	} else if (x->ask_number && x->ask_number == m->number) {
		if (m->error)
			settle_error(b, x, 0, x->rec.ask_upto, -CORE_ESTALE);
		else
			settle_round(b, x, &v, x->rec.ask_session, x->rec.ask_upto);
		x->ask_number = 0;
		x->answered = true;
		due_put(b, x);
	} else if (x->number == m->number && m->error && x->rec.state == CORE_BARRIER_OUT) {
		settle_error(b, x, x->rec.ask_round ? x->rec.ask_upto : 0, UINT64_MAX, m->error);
		x->number = ++b->number;
	}
}

void barriers_member_receive(struct barriers *b, const struct msg *m, struct step *s)
{
	const struct member *me = b->member;
	uint32_t handle = barrier_find(b, m->key, m->key_len);

	if (!handle || !msg_peer_same(m->from, me->master[m->shard]) || m->epoch != me->epoch[m->shard] ||
	    !(me->told & shard_bit(m->shard)))
		return;
	struct barrier *x = barrier_at(b, handle);
	if (m->kind == MSG_ENROL)
		take_enrol(b, x, m, s);
	else if (m->kind == MSG_ANNOUNCE)
		take_announce(b, x, m, s);
	else if (m->kind == MSG_GO)
		take_go(b, x, m, s);
	else if (m->kind == MSG_ANSWER)
		take_answer(b, x, m, s);
	else
		(void)NEVER(true);
}

/* --- Handing over --- */

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
		*link = p->next;
		if (x->last == handle)
			x->last = before;
		pool_give(&b->parties, handle);
		x->settled--;
		n++;
	}
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
	if (x->answered) {
		ask_end(x);
		x->write = true;
	}
	if (x->going) {
		x->going = false;
		x->rec.state = CORE_BARRIER_OUT;
		x->rec.last = x->rec.now;
		x->rec.now = (struct core_verdict){ 0 };
		record_write(b, x, s);
		x->number = ++b->number;
		x->say = true;
	} else if (x->write) {
		record_write(b, x, s);
	}
	if (x->say) {
		x->say = false;
		state_say(b, x, s);
	}
	return true;
}
