/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A name that is held alone goes from its holder A straight to the next in line, B (S11). When the master asks A to give
 * it back for B it sets aside for B the range that B's grant would have, above all that A can use, and
 * tells A both with the REVOKE. A gives back as ever, and says so; but before that it says to B what the master would: PASS. So
 * the way is A to B, instead of A to master to B. The master grants to B what it has set aside the moment that it hears A, and B
 * takes whichever comes first: they are the same grant.
 *
 * From the moment that A has been told, the record reads "A or B": B is the heir. What makes this safe:
 *
 *  - An heir is granted before all others, and nothing but what was set aside, whatever becomes of A: whether it has passed the
 *    name on nobody else can tell if A is gone. An heir is never refused.
 *  - It ceases to be the heir by its own word, or A's: by a statement of B that is later than the claim that was named, and so
 *    no PASS to that claim will be taken any more; by one that has seen the range, which proves that A has given back before
 *    A's own word comes (heir_prove); when its session has ended; or when somebody goes before it by priority, A is asked not to pass it on
 *    (REVOKE with OFF), and A says that it will not (KEEP with OFF): then there is another heir.
 *  - A statement of A's says to whom it has passed the name on, and so who may have held it, should that one be started
 *    anew or end before it has said anything: then what it left is lost (S9). So it does to the next master too.
 *  - A takes what it was told for the grant and the epoch that it was told for; B takes a PASS as it takes a GRANT: by the claim
 *    that waits, in the epoch that it last synced to. So one that was under way while masters change is nobody's, and
 *    A has given back by then: never do both sync it as held.
 *
 * Who waits is told a secret by the master, with its place in the queue, and the holder is told it with the heir: so none but the holder can
 * make the heir believe that it has the name. A holder that lies can give it to the heir and deny it.
 *
 * The value and the word of a death ride along. B owes them to the master until an answer shows that it knows them. The time
 * from which B's use of tokens is believed possible is that of the setting aside.
 *
 * It goes through the master as before: shares and permits, upgrades and downgrades, who only tries, who asks for a lock-delay
 * (whose of the two would it be, if either is lost?), names that somebody observes, where holder or heir are on the master's own node (it is one way then anyhow), where A has no connection with B.
 */
#include "grant.h"
#include "range.h"
#include "siphash.h"

uint64_t pass_secret(const struct master *m, name_t n, const struct master_claim *c)
{
	unsigned shard = names_at(m->names, n)->shard;
	const uint64_t of[] = { m->peers->v[c->peer].id.session, c->number, (uint64_t)m->shard[shard].epoch << 8 | shard };

	return siphash13(m->names->mem->seed, of, sizeof of) | 1;
}

static bool passable(const struct master *m, const struct master_name *r, const struct master_claim *from, const struct master_claim *to)
{
	const struct master_wait *w = wait_at(m, to);

	return r->limit == MSG_WEIGHT_ALL && from->held == MSG_WEIGHT_ALL && from->peer && to->peer && !to->held &&
	       w->wanted == MSG_WEIGHT_ALL && !w->upgrade && !w->tries && !r->delay && !w->delay && !is_watched(m, r);
}

bool heir_make(struct master *m, name_t n, const struct master_claim *from, uint32_t handle, core_nsec_t now)
{
	const struct master_shard *sh = &m->shard[names_at(m->names, n)->shard];
	struct master_name *r = record_of(m, n);
	struct master_queue *q = queue_at(m, r);

	if (q->heir || !passable(m, r, from, claim_at(m, handle)))
		return false;
	uint64_t first = sh->floor + 1;
#ifndef CORE_BREAK_PASS_RANGE
	if (token_epoch(from->range.first) == sh->epoch)
		first = max_u64(first, from->range.first + from->range.count);
#endif
	if (first > token_make(sh->epoch, COUNTER_LAST_FIRST))
		return false;
	q->heir = handle;
	q->heir_range = (struct core_range){ first, RANGE_FIRST };
	q->heir_at = now;
	q->heir_off = false;
	return true;
}

void heir_say(const struct master *m, const struct master_name *r, const struct master_claim *from, struct msg *revoke)
{
	const struct master_queue *q = queue_at(m, r);
	const struct master_claim *c = q && q->heir ? claim_at(m, q->heir) : NULL;

	if (!c || from == c || from->held != MSG_WEIGHT_ALL || revoke->held || revoke->flags & MSG_FLAG_TRY)
		return;
	revoke->heir = m->peers->v[c->peer].id;
	revoke->flags |= q->heir_off ? MSG_FLAG_OFF : MSG_FLAG_PASS;
	revoke->heir_number = q->heir_off ? q->heir_range.first : c->number;
	revoke->range = q->heir_range;
	revoke->used = q->heir_off ? 0 : pass_secret(m, c->name, c);
}

/* By priority. It stays the heir until the holder has said that it will not be given it: by KEEP, or by what it gives back. */
bool heir_overtaken(struct master_queue *q)
{
	if (!q->heir || q->heir_off || q->first == q->heir)
		return false;
	q->heir_off = true;
#ifdef CORE_BREAK_PASS_OFF
	q->heir = 0;
#endif
	return true;
}

/* It may have been passed on, and used: nobody can tell. */
void heir_gone(struct master *m, unsigned shard, struct master_queue *q)
{
	struct master_shard *sh = &m->shard[shard];

	q->heir = 0;
	if (token_epoch(q->heir_range.first) == sh->epoch)
		sh->floor = max_u64(sh->floor, q->heir_range.first + q->heir_range.count - 1);
}

/* It has not been given it, and will not be. What the holder was asked is about the range, which so is set aside for nobody else. */
void heir_end(struct master *m, unsigned shard, struct master_queue *q)
{
	if (q->heir && q->heir_off)
		heir_gone(m, shard, q);
	q->heir = 0;
}

/* The heir has it. Whoever held it has given it back, and its own word of that will find nothing to change. */
static void heir_prove(struct master *m, name_t n, struct master_name *r, uint32_t handle)
{
	struct master_claim *c = claim_at(m, handle);
	struct master_queue *q = queue_at(m, r);

	for (uint32_t i = r->claims; i; i = claim_at(m, i)->next) {
		struct master_claim *from = claim_at(m, i);

		if (!from->held)
			continue;
		from->told_lost = from->tried = from->pressed = from->refill = false;
		from->keep = CLAIM_KEEP_ALL;
		claim_hold(m, r, from, 0);
		claim_wait_not(m, r, i);         /* more tokens for what it had */
	}
	c->range = q->heir_range;
	claim_granted(c, q->heir_at);
	c->keep = CLAIM_KEEP_ALL;
	c->told_lost = c->tried = c->pressed = c->refill = false;
	q->heir = 0;
	claim_wait_not(m, r, handle);
	claim_hold(m, r, c, MSG_WEIGHT_ALL);
	r->delay = 0;                    /* it waited without one */
	r->known = true;
	record_list(m, n);
}

bool heir_hear(struct master *m, name_t n, struct master_name *r, uint32_t handle, const struct msg *msg)
{
	struct master_queue *q = handle ? queue_at(m, r) : NULL;
	const struct master_claim *c = claim_at(m, handle);
	bool ends = !msg->held && !msg->wanted;

	if (!q || q->heir != handle || msg->number < c->number)
		return false;
#ifndef CORE_BREAK_PASS_PROOF
	if (msg->seen == q->heir_range.first) {
		heir_prove(m, n, r, handle);
		return true;
	}
#endif
	if (number_reborn(msg->number, c->number))
		heir_gone(m, msg->shard, q);
	else if (msg->number > c->number || ends)
		heir_end(m, msg->shard, q);
	return false;
}

bool heir_spared(struct master *m, const struct master_name *r, const struct master_claim *c, const struct msg *msg)
{
	struct master_queue *q = queue_at(m, r);

	if (!q || !q->heir || !q->heir_off || c->held != MSG_WEIGHT_ALL || q->heir_range.first != msg->heir_number)
		return false;
	heir_end(m, msg->shard, q);
	return true;
}

/* Whether that incarnation goes on, and so is able to say what it had. */
static bool heir_lives(const struct master *m, struct msg_peer id)
{
	const struct peer *p = peers_find(m->peers, id.session);

	return p && !p->ended && (p == m->peers->v || p->listed) && msg_peer_same(p->id, id);
}

static void heir_lost(struct master *m, struct master_name *r, core_nsec_t from)
{
#ifndef CORE_BREAK_PASS_GONE
	lost_alone(m, r, from);
#else
	(void)m, (void)r, (void)from;
#endif
}

/*
 * Whoever is the heir has it from now on, even if nothing can be granted at present. Another heir has told that it has not got
 * it, or has it no more, unless it could not.
 */
void pass_heard(struct master *m, name_t n, struct master_name *r, const struct msg *msg, struct step *s)
{
	const struct master_queue *q = queue_at(m, r);

	if (q && q->heir && q->heir_range.first == msg->heir_number)
		claim_grant(m, n, q->heir, s);
	else if (!heir_lives(m, msg->heir))
		heir_lost(m, r, s->now);
}

/* While the shard opens: that one may have had it, and the former master may not have heard of it. */
void pass_remember(struct master *m, struct master_name *r, const struct msg *msg)
{
	queue_make(m, r)->passed_to = msg->heir;
}

void pass_settle(struct master *m, unsigned shard, struct master_name *r)
{
	struct master_queue *q = queue_at(m, r);

	if (!q || !q->passed_to.session)
		return;
	struct msg_peer id = q->passed_to;
	q->passed_to = (struct msg_peer){ 0 };
	if (!heir_lives(m, id))
		heir_lost(m, r, m->shard[shard].opened_at);
}
