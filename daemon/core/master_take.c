/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What members and former masters say to a master. CORE_BREAK_*: as in master.c. */
#include "master.h"

#include "barrier.h"
#include "grant.h"
#include "place.h"
#include "range.h"

/* Everybody has synced: it is known who holds what. */
static bool is_open(const struct master *m, const struct msg *msg)
{
	return (m->open | m->raise) & shard_bit(msg->shard);
}

void grant_void(struct master *m, unsigned shard, struct master_name *r, struct master_claim *c)
{
	struct master_shard *sh = &m->shard[shard];

	if (c->told_lost) {
		r->lost = true;
		r->unmended = false;
	}
	c->told_lost = false;
#ifndef CORE_BREAK_FLOOR
	if (token_epoch(c->range.first) == sh->epoch)
		sh->floor = max_u64(sh->floor, c->range.first + c->range.count - 1);
#else
	(void)sh;
#endif
}

/*
 * The floor keeps the next grant of the name above what has been used, which is believed only as
 * far as time allows (range.h). A range of an older epoch is below every token of this one anyway.
 */
static void range_end(struct master *m, unsigned shard, struct master_claim *c, uint64_t used, core_nsec_t now)
{
	struct master_shard *sh = &m->shard[shard];

	if (token_epoch(c->range.first) != sh->epoch)
		return;
	c->range.count = range_believed(c->range, used, now - claim_granted_at(c));
#ifndef CORE_BREAK_FLOOR
	sh->floor = max_u64(sh->floor, c->range.first + c->range.count - 1);
#endif
}

/* A daemon that was started anew does not know of what was held: if it was given back, nobody knows in what state. */
static void given_back_unheard(struct master *m, struct master_name *r, const struct master_claim *c)
{
	if (c && c->held != MSG_WEIGHT_ALL)
		mourn(m, c->name, c->held, m->now);
	if ((c && c->held != MSG_WEIGHT_ALL) || r->limit != MSG_WEIGHT_ALL)
		return;
	lost_alone(m, r, m->now);
}

static bool unaware(const struct msg *msg)
{
	return !msg->seen && msg->from.incarnation > 1;
}

/* Of whom the master before knew as the holder, and who may have been started anew since. */
static void holder_told(struct master *m, struct master_name *r, const struct msg *msg)
{
	if (r->holder != msg->from.session)
		return;
	if (unaware(msg))
		given_back_unheard(m, r, NULL);
	r->holder = 0;
}

/* What the member has said settles what became of the last grant to it. */
static void grant_settle(struct master *m, struct master_name *r, struct master_claim *c, const struct msg *msg,
			 core_nsec_t now)
{
	if (!c->held)
		return;
	if (msg->seen != c->range.first) {
		grant_void(m, msg->shard, r, c);
		if (number_reborn(msg->number, c->number))
			given_back_unheard(m, r, c);
		c->keep = CLAIM_KEEP_ALL;        /* what was asked was of that grant */
		return;
	}
	c->told_lost = c->refill = false;
	if (msg->held < c->held)
		range_end(m, msg->shard, c, msg->used, now);
}

/* The holder keeps a share, or gives back and has not passed it on to the heir: it will not. */
static void holder_gives(struct master *m, const struct master_name *r, const struct master_claim *c, const struct msg *msg)
{
	struct master_queue *q = queue_at(m, r);
	bool to_heir = q && msg->flags & MSG_FLAG_PASS && msg->heir_number == q->heir_range.first;

	if (q && c->held == MSG_WEIGHT_ALL && msg->held < c->held && (msg->held || (msg->seen == c->range.first && !to_heir)))
		heir_end(m, msg->shard, q);
}

void claim_refuse(struct master *m, name_t n, uint32_t handle, int error, struct step *s)
{
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, handle);
	struct msg refused = { .kind = MSG_REFUSED, .error = error };

	claim_wait_not(m, r, handle);
	c->refused = (uint8_t)-error;
	claim_answer(m, n, c, s, &refused);
	if (!c->held)
		claim_drop(m, n, handle);
}

/* Of two upgrades of one name the earlier one wins; each would wait for the other's shared hold. */
static bool upgrade_allowed(struct master *m, name_t n, uint64_t stamp, struct step *s)
{
	struct master_name *r = record_of(m, n);

	uint32_t other = r->queue ? queue_at(m, r)->upgrade : 0;

	if (!other)
		return true;
	if (!stamp || wait_at(m, claim_at(m, other))->stamp <= stamp)
		return false;
	claim_refuse(m, n, other, -CORE_EDEADLK, s);
	return true;
}

/* Its place, or 0 if it waits for nothing: then all that is said is that the statement was heard. */
static void stamp_say(struct master *m, name_t n, const struct master_claim *c, bool owes, struct step *s)
{
	struct msg msg = { .kind = MSG_STAMP };

	if (!owes && (!c->wait || !c->peer))
		return;
	msg.stamp = c->wait ? wait_at(m, c)->stamp : 0;
	msg.used = c->wait ? pass_secret(m, n, c) : 0;
	claim_answer(m, n, c, s, &msg);
}

static void take_wanted(struct master *m, name_t n, uint32_t handle, const struct msg *msg, struct step *s)
{
	struct master_name *r = record_of(m, n);
	bool upgrade = msg->flags & MSG_FLAG_UPGRADE, tries = msg->flags & MSG_FLAG_TRY && is_open(m, msg);
	uint64_t stamp = msg->stamp;

	claim_wait_not(m, r, handle);
	if (upgrade && !upgrade_allowed(m, n, stamp, s)) {
		claim_refuse(m, n, handle, -CORE_EDEADLK, s);
		return;
	}
	if (tries && !upgrade && queue_head(m, r)) {
		claim_refuse(m, n, handle, -CORE_EBUSY, s);
		return;
	}
	if (!stamp)
		stamp = ++m->shard[msg->shard].stamp;
	else if (token_epoch(stamp) == m->shard[msg->shard].epoch)
		m->shard[msg->shard].stamp = max_u64(m->shard[msg->shard].stamp, stamp);
	claim_wait(m, r, handle, &(struct master_wait){ .wanted = msg->wanted, .upgrade = upgrade, .stamp = stamp,
							      .tries = (msg->flags & MSG_FLAG_TRY) != 0, .priority = msg->priority, .delay = msg->delay });
}

static void revoke_repeat(struct master *m, name_t n, const struct master_claim *c, struct step *s)
{
	if (c->held > c->keep && c->peer)
		revoke_say(m, n, c, s);
}

/* See master.h. c: what was known before; NULL: nothing. */
static void take_value(struct master *m, struct master_name *r, const struct master_claim *c, const struct msg *msg)
{
	bool open = is_open(m, msg);
	/* A refill that it had not seen when it said this changes nothing in that it has held all along. */
	bool of_holder = open ? c && c->held == MSG_WEIGHT_ALL && (c->range.first == msg->seen || c->refill) : msg->held;

	if (r->limit != MSG_WEIGHT_ALL || (open && !of_holder))
		return;
	bool gives_back = !msg->wanted && msg->seen;
	if (!open && (of_holder || gives_back) && msg->value.state == CORE_VALUE_LOST)
		value_blank(m, r);
	if (!value_later(m->values, msg->kept, value_of(m, r)))
		return;
	/* What was published before it was lost is lost; not what the holder has published since. */
	if (!r->blank || (of_holder && msg->value.token >= msg->seen))
		value_take(m, r, msg->kept);
}

/* The heir has it already, and was told of a death. */
static bool passed_before(const struct master *m, const struct master_claim *c, const struct msg *msg)
{
	return msg->flags & MSG_FLAG_PASS && is_open(m, msg) && c && !c->held;
}

/* Of a statement that is heard for the first time. */
static void take_left(struct master *m, name_t n, struct master_name *r, const struct master_claim *c, const struct msg *msg)
{
	take_value(m, r, c, msg);
	limit_resize(m, n, r, msg);
	if (c && c->held == MSG_WEIGHT_ALL && msg->held == MSG_WEIGHT_ALL && c->range.first == msg->seen && is_open(m, msg))
		news_hear(m, n, r, msg);
	if (msg->flags & MSG_FLAG_DIED && r->limit == MSG_WEIGHT_ALL && !passed_before(m, c, msg)) {
		r->unmended |= !r->lost;
		r->lost = true;
	}
}

/* It gives back what it was granted, and has passed it on. */
static bool passes(const struct master *m, const struct master_claim *c, const struct msg *msg)
{
	return msg->flags & MSG_FLAG_PASS && is_open(m, msg) && c && c->held == MSG_WEIGHT_ALL && c->range.first == msg->seen;
}

/* Who holds knows what was left; in its sync it says so too. */
static void known_by(const struct master *m, struct master_name *r, const struct msg *msg)
{
	r->known |= msg->held && (msg->kind == MSG_SYNC || is_open(m, msg));
	r->alone |= msg->held == MSG_WEIGHT_ALL && r->limit == MSG_WEIGHT_ALL && (msg->kind == MSG_SYNC || is_open(m, msg));
}

/* The very statement that the master knows already. */
static void take_repeated(struct master *m, name_t n, uint32_t handle, const struct msg *msg, struct step *s)
{
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, handle);
	bool seen = msg->seen == c->range.first;

	known_by(m, r, msg);
	take_value(m, r, c, msg);                /* a sync says it also if the claim did not */
#ifdef CORE_BREAK_DELTA
	if (!seen && c->held && r->limit != MSG_WEIGHT_ALL)
		claim_hold(m, r, c, c->held + msg->wanted - msg->held);
#endif
	if (seen)
		c->told_lost = c->refill = false;
	if (!msg->wanted || c->wait) {
		revoke_repeat(m, n, c, s);
		stamp_say(m, n, c, msg->flags & MSG_FLAG_OWES, s);
		return;
	}
	if (!seen && c->held) {
		if (NEVER(msg->seen > c->range.first))
			return;
		claim_grant_say(m, n, c, 0, s);
		revoke_repeat(m, n, c, s);
		return;
	}
	if (c->refused) {
		revoke_repeat(m, n, c, s);
		claim_refuse(m, n, handle, -c->refused, s);
		return;
	}
	/* More tokens for what it has. */
	claim_wait(m, r, handle, &(struct master_wait){ .wanted = msg->wanted, .stamp = ++m->shard[msg->shard].stamp,
							      .priority = msg->priority, .delay = msg->delay });
	revoke_repeat(m, n, c, s);
	grant_serve(m, n, s);
}

/* While the shard is not open the member is the truth. Afterwards it cannot have more than was granted. */
static bool held_possible(const struct master *m, const struct master_claim *c, const struct msg *msg)
{
	return !(m->open & shard_bit(msg->shard)) || msg->held <= (c ? c->held : 0);
}

/* On a new connection: what the holder has told may have been lost, and whether it knows that it is observed. */
static void news_again(struct master *m, name_t n, const struct master_claim *c, const struct msg *msg)
{
	if (msg->kind != MSG_SYNC || c->held != MSG_WEIGHT_ALL || !is_watched(m, record_of(m, n)))
		return;
	news_ask_again(m, record_of(m, n));
	record_list(m, n);
}

/* Of one who holds it alone his own counts, of those who share it the longest. Before what it holds is taken over. */
static void delay_hear(struct master_name *r, const struct master_claim *c, const struct msg *msg)
{
	bool shares = c->held != MSG_WEIGHT_ALL && (r->held || r->holder);

	if (msg->held && (!shares || msg->held == MSG_WEIGHT_ALL || msg->delay > r->delay))
		r->delay = msg->delay;
	else if (!msg->held && c->held == MSG_WEIGHT_ALL)
		r->delay = 0;
}

/* It is open elsewhere with another limit. */
static void limit_refuse(struct master *m, name_t n, const struct msg *msg, struct step *s)
{
	struct msg refused = { .kind = MSG_REFUSED, .error = -CORE_EINVAL, .number = msg->number, .key = msg->key,
			       .key_len = msg->key_len, .shard = msg->shard, .epoch = msg->epoch,
			       .from = m->self, .to = msg->from };

	step_send(s, &refused);
	record_drop_if_idle(m, n);
}

static uint32_t claim_begin(struct master *m, name_t n, struct master_name *r, unsigned peer, const struct msg *msg, core_nsec_t now)
{
	uint32_t handle = claim_make(m, n, r, peer);
	struct master_claim *c = claim_at(m, handle);

	c->round = m->peers->v[peer].round;
	c->range = msg->range;
	claim_granted(c, now);
	return handle;
}

/* What it had before is given back, as far as it says so. */
static void take_given(struct master *m, struct master_name *r, struct master_claim *c, const struct msg *msg, core_nsec_t now)
{
	holder_gives(m, r, c, msg);
	grant_settle(m, r, c, msg, now);
	if (msg->held && msg->seen == msg->range.first && msg->seen != c->range.first)
		c->range = msg->range;
}

static void take_statement(struct master *m, name_t n, unsigned peer, const struct msg *msg, struct step *s)
{
	uint32_t limit = msg->limit ? msg->limit : MSG_WEIGHT_ALL;
	struct master_name *r = record_of(m, n);
	uint32_t handle = claim_find(m, r, peer);
	struct master_claim *c = claim_at(m, handle);
	bool open = is_open(m, msg);

	if (c)
		c->round = m->peers->v[peer].round;
	if (r)
		heir_hear(m, n, r, handle, msg);
	if (c && msg->number < c->number)
		return;
	if (c && msg->number == c->number) {
		limit_answer(m, n, c, msg, s);   /* before what was granted under it is said again */
		take_repeated(m, n, handle, msg, s);
		if ((r = record_of(m, n)) && (handle = claim_find(m, r, peer)))
			news_again(m, n, claim_at(m, handle), msg);
		return;
	}
	if (!held_possible(m, c, msg))
		return;
	r = record_make(m, n, limit);
	if (!r->claims)
		limit_begin(m, r, limit, open);
	limit_hear(m, n, r, msg);
	if (!limit_agrees(m, r, msg)) {
		limit_refuse(m, n, msg, s);
		return;
	}
	bool passed = passes(m, c, msg);
	if (c)
		take_given(m, r, c, msg, s->now);
	else
		handle = claim_begin(m, n, r, peer, msg, s->now);
	c = claim_at(m, handle);
	if (!open)
		holder_told(m, r, msg);          /* once it is open, whoever comes with it has not told of it before */
	c->unaware = unaware(msg);
	take_left(m, n, r, c, msg);
	c->number = msg->number;
	c->refused = 0;
	delay_hear(r, c, msg);
	claim_hold(m, r, c, msg->held);
	if (passed)
		pass_heard(m, n, r, msg, s);
	else if (!open && msg->flags & MSG_FLAG_PASS)
		pass_remember(m, r, msg);
	if (c->keep >= msg->held || msg->kind == MSG_SYNC)
		c->keep = CLAIM_KEEP_ALL;        /* a daemon that was started anew has not been asked */
	known_by(m, r, msg);
	if (msg->wanted)
		take_wanted(m, n, handle, msg, s);
	else
		claim_wait_not(m, r, handle);
	if (m->open & shard_bit(msg->shard))
		grant_serve(m, n, s);
	else if (!(m->raise & shard_bit(msg->shard)))
		record_list(m, n);
	if (!(r = record_of(m, n)) || !(handle = claim_find(m, r, peer)))
		return;
	news_again(m, n, claim_at(m, handle), msg);
	stamp_say(m, n, claim_at(m, handle), msg->flags & MSG_FLAG_OWES, s);
	limit_answer(m, n, claim_at(m, handle), msg, s);
}

/* What it leaves behind may be of a grant that this reign has not seen; then there may be no record yet. */
static struct master_name *left_by(struct master *m, name_t n, const struct msg *msg)
{
	struct master_name *r;

	if (!n || is_open(m, msg) || (!msg->seen && !(msg->flags & MSG_FLAG_RESIZE)))
		return n ? record_of(m, n) : NULL;
	r = record_make(m, n, msg->flags & MSG_FLAG_RESIZE ? msg->limit : MSG_WEIGHT_ALL);
	if (!r->holder || r->heard || r->holder == msg->from.session) {
		r->holder = msg->from.session;
		r->heard = true;
		record_list(m, n);               /* once it is open nobody has to be told any more */
	}
	return r;
}

/* Forgets the claim. */
static void take_release(struct master *m, name_t n, unsigned peer, const struct msg *msg, struct step *s)
{
	struct master_name *r = left_by(m, n, msg);
	uint32_t handle = claim_find(m, r, peer);
	struct master_claim *c = claim_at(m, handle);

	bool given = r && heir_hear(m, n, r, handle, msg);
	bool passed = passes(m, c, msg) && c->number <= msg->number;
	if (r && (c ? c->number < msg->number || given : !is_open(m, msg)))
		take_left(m, n, r, c, msg);
	if (r && !is_open(m, msg) && msg->flags & MSG_FLAG_PASS)
		pass_remember(m, r, msg);
	if (r && !c)
		record_drop_if_idle(m, n);
	if (c && c->number <= msg->number) {
		holder_gives(m, r, c, msg);
		grant_settle(m, r, c, msg, s->now);
		claim_drop(m, n, handle);
		if (passed)
			pass_heard(m, n, r, msg, s);
		if (queue_head(m, r))
			record_list(m, n);
		record_drop_if_idle(m, n);
	}
	struct msg released = {
		.kind = MSG_RELEASED, .key = msg->key, .key_len = msg->key_len, .shard = msg->shard,
		.epoch = m->shard[msg->shard].epoch, .from = m->self, .to = msg->from, .number = msg->number,
	};
	step_send(s, &released);
}

/* A holder's answer to one that tries; or it will not pass the name on to the heir. */
static void take_keep(struct master *m, name_t n, unsigned peer, const struct msg *msg, struct step *s)
{
	struct master_name *r = record_of(m, n);
	struct master_claim *c = claim_at(m, claim_find(m, r, peer));
	uint32_t head = r ? queue_head(m, r) : 0;

	if (c && msg->flags & MSG_FLAG_OFF) {
		if (heir_spared(m, r, c, msg))
			record_list(m, n);
		return;
	}
	if (!c || !c->tried || c->range.first != msg->seen)
		return;
	c->tried = c->pressed = false;
	c->keep = CLAIM_KEEP_ALL;
	if (!head || !wait_at(m, claim_at(m, head))->tries || !is_open(m, msg))
		return;
	claim_refuse(m, n, head, -CORE_EBUSY, s);
	if (record_of(m, n))
		record_list(m, n);
}

/*
 * The member has said all. What it did not mention in this connection it has not: a restarted
 * daemon's waiting claims, and releases that its predecessor had not got an answer to.
 */
static void take_synced(struct master *m, unsigned peer, unsigned shard, struct step *s)
{
	struct peer *p = &m->peers->v[peer];
	uint32_t next;

	/* The first words were lost, or said to an earlier epoch. */
#ifndef CORE_BREAK_RESYNC
	if (!(p->hearing & shard_bit(shard))) {
		p->ask |= shard_bit(shard);
		return;
	}
#endif
	for (uint32_t i = peer ? p->claims : 0; i; i = next) {
		struct master_claim *c = claim_at(m, i);
		name_t n = c->name;

		next = c->peer_next;
		if (names_at(m->names, n)->shard != shard || c->round == p->round)
			continue;
		struct master_name *r = record_of(m, n);
		if (r->delay && !r->queue && master_reserve(m) < 0) {
			p->ask |= shard_bit(shard);      /* once more, when there is memory */
			return;
		}
		if (c->held)
			grant_void(m, shard, r, c);
		given_back_unheard(m, r, c);
		claim_drop(m, n, i);
		if (queue_head(m, r))
			record_list(m, n);
		record_drop_if_idle(m, n);
	}
	barriers_synced(m->barriers, peer, shard);
	if (peer)
		watchers_synced(m, p, shard);
	p->synced |= shard_bit(shard);
	open_when_synced(m);
	(void)s;
}

/* Whether the session has told of the name in this reign. */
static bool told_of(const struct master *m, const struct master_name *r, uint64_t session)
{
	const struct peer *p = peers_find(m->peers, session);

	return (r->holder == session && r->heard) || (p && claim_find(m, r, peers_index(m->peers, p)));
}

/* ... and what it has told is no word of what it held. */
static bool told_unaware(const struct master *m, const struct master_name *r, uint64_t session)
{
	const struct peer *p = peers_find(m->peers, session);
	uint32_t handle = p ? claim_find(m, r, peers_index(m->peers, p)) : 0;

	return handle && claim_at(m, handle)->unaware;
}

static void take_mark(struct master *m, name_t n, const struct msg *msg, core_nsec_t now)
{
	if (msg->flags & MSG_FLAG_SHARED) {
		mourn_mark(m, n, msg);
		return;
	}
	struct master_name *r = record_make(m, n, MSG_WEIGHT_ALL);

	if (msg->number && !told_of(m, r, msg->number)) {
		r->holder = msg->number;
		r->heard = false;
		r->delay = r->held ? r->delay : msg->delay;
	} else if (msg->number && told_unaware(m, r, msg->number)) {
		given_back_unheard(m, r, NULL);
	}
	r->known |= (msg->flags & MSG_FLAG_KNOWN) != 0;
	limit_hear(m, n, r, msg);
	if (msg->value.state == CORE_VALUE_LOST)
		value_blank(m, r);
	else if (!r->blank && value_later(m->values, msg->kept, value_of(m, r)))
		value_take(m, r, msg->kept);
	if (!(msg->flags & MSG_FLAG_LOST)) {
		record_drop_if_idle(m, n);
		return;
	}
	r->lost = true;
	r->unmended = false;
	struct master_queue *q = queue_make(m, r);
	q->not_before = max_u64(q->not_before, now + min_u64(msg->used, delay_span(CORE_DELAY_MAX)));
}

static void take_handover(struct master *m, const struct msg *msg)
{
	shard_set_t bit = shard_bit(msg->shard);

	if (!(m->opening & bit) || msg->number + 1 != m->shard[msg->shard].epoch)
		return;
	m->handing |= msg->flags & MSG_FLAG_FIRST ? bit : 0;
	if (msg->flags & (MSG_FLAG_CLEAN | MSG_FLAG_SHARED) && m->handing & bit) {
		m->unknown &= ~bit;
		m->shard[msg->shard].unknown_until = max_u64(m->shard[msg->shard].unknown_until,
							     m->now + min_u64(msg->used, delay_span(CORE_DELAY_MAX)));
	}
	if (!(msg->flags & MSG_FLAG_CLEAN) || !(m->handing & bit))
		return;
	m->suspect &= ~bit;
	if (!(msg->flags & MSG_FLAG_FORGOT))
		m->forgot &= ~bit;
}

void master_receive(struct master *m, const struct msg *msg, struct step *s)
{
	struct peer *p = peers_find(m->peers, msg->from.session);
	shard_set_t bit = shard_bit(msg->shard);

	if (!p || !msg_peer_same(p->id, msg->from) || p->ended || msg->epoch != m->shard[msg->shard].epoch ||
	    !((m->opening | m->open | m->raise) & bit))
		return;

	if (msg->kind == MSG_ENQUIRE) {          /* of a name that this node's member need not have */
		account_say(m, msg, s);
		return;
	}
	/* The member of this node has the name, so it is in the table; for another's the caller has put it there. */
	name_t n = msg->key_len ? names_find(m->names, msg->key, msg->key_len) : 0;
	unsigned peer = peers_index(m->peers, p);
	if (NEVER(!n && msg->key_len))
		return;
	switch (msg->kind) {
	case MSG_SYNC:
		if (msg->flags & MSG_FLAG_FIRST)
			p->hearing |= bit;
		else if (msg->last)
			take_synced(m, peer, msg->shard, s);
		else if (!msg->held && !msg->wanted)
			take_release(m, n, peer, msg, s);
		else
			take_statement(m, n, peer, msg, s);
		return;
	case MSG_CLAIM:
		if (msg->wanted && m->place)
			place_count(m->place, msg->shard, msg->from.session, m->self.session, s->now);
		take_statement(m, n, peer, msg, s);
		return;
	case MSG_OBSERVE:
		observe_take(m, n, peer, msg);
		return;
	case MSG_KEEP:
		take_keep(m, n, peer, msg, s);
		return;
	case MSG_RELEASE:
		take_release(m, n, peer, msg, s);
		return;
	case MSG_MARK:
		if (m->opening & bit)
			take_mark(m, n, msg, s->now);
		return;
	case MSG_HANDOVER:
		take_handover(m, msg);
		return;
	case MSG_GRANT:
	case MSG_REFUSED:
	case MSG_RELEASED:
	case MSG_STAMP:
	case MSG_REVOKE:
	case MSG_LIMIT:
	case MSG_NEWS:
	case MSG_OBSERVED:
	case MSG_REIGN:
	case MSG_ARRIVE:
	case MSG_ENROL:
	case MSG_ANNOUNCE:
	case MSG_GO:
	case MSG_ASK:
	case MSG_ANSWER:
	case MSG_PAST:
	case MSG_PLACE:
	case MSG_PASS:
	case MSG_ENQUIRE:
	case MSG_ACCOUNT:
		(void)NEVER(true);
		return;
	}
}
