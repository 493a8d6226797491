/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lock-delay: after a holder has died what it held is not free for as long as it has asked for.
 *
 * A process that dies on a node that lives: its word stays its own for so long, its cells where it reads, the permits in its account (the open is
 * `mourned`), as if it had been stopped. So whatever holds of a lock that is held holds of this one, for clients of this node, for others that ask for it back or
 * try, for a lapse and for a restart: the ledger knows when it is over.
 *
 * A node that dies or lapses: the master observes the delay of its claim, which is the longest that any process of the node has
 * asked for since the name was opened here. What must hold: nobody holds with a delay that the claim does not name. So where one asks for
 * a longer one while the name is leased, the lease is given back, as soon as those have left who read or hold it, and claimed anew by whoever wants
 * it; and so is a grant of a claim from before (`raised`). Permits: sem_later().
 */
#include <stdio.h>

#include "sem.h"
#include "word.h"

#define UNTIL (UINT32_C(1) << 31)        /* of ledger_open.delay: the rest is a time in ms */

bool open_mourned(const struct ledger_open *o)
{
	return o->delay & UNTIL;
}

/* How long it still goes on, in ms. What is more than any delay can be, is over; the longest was rounded up. */
static uint32_t mourn_left(const struct shm *shm, const struct ledger_open *o)
{
	uint32_t left = (o->delay - (uint32_t)(loop_now(shm->loop) / NSEC_PER_MSEC)) & (UNTIL - 1);

	return left <= LEDGER_DELAY_MAX + 1 ? left : 0;
}

static void mourn_arm(struct shm *shm, uint32_t left)
{
	nsec_t when = loop_now(shm->loop) + left * NSEC_PER_MSEC;

	if (!shm->mourn_timer.queued || when < shm->mourn_timer.when)
		loop_timer_set(shm->loop, &shm->mourn_timer, when);
}

/* Whose word this is, exclusively, by a lease that allows it. */
static bool owns_alone(const struct space *s, uint32_t slot, uint32_t client)
{
	const struct ledger_name *n = name_at(s, slot);
	uint64_t w = name_is_lock(s, slot) ? LOCK_LOAD(&seg_slot(s->base, slot)->word) : 0;

	return n->count && !n->shared && (w & LOCK_OWNER) == client && (w & LOCK_EXCLUSIVE);
}

static bool mourn_begin(struct shm *shm, uint32_t index, struct ledger_open *o, uint64_t token)
{
	struct space *s = shm->spaces[o->space];
	bool alone = owns_alone(s, o->slot, index);
	char text[64];

	if (shm->clients[index] || !o->delay)
		return false;
	if (name_is_lock(s, o->slot) ? !alone && !reader_is(s, o->slot, index) : !sem_died(s, o->slot, index))
		return false;
	snprintf(text, sizeof text, "nobody is granted it for %u ms", o->delay);
	/* Rounded up. */
	word_store32(&o->delay, ((uint32_t)(loop_now(shm->loop) / NSEC_PER_MSEC) + o->delay + 1) | UNTIL);
	if (alone)
		shm_tell(shm, "owner-died", s, o->slot, ledger_client(&shm->ledger, index)->pid, token, text);
	return true;
}

bool open_mourn(struct shm *shm, uint32_t index, uint32_t open, uint64_t token, bool *ret_alone)
{
	struct ledger_open *o = ledger_open_at(&shm->ledger, open);
	uint32_t left = open_mourned(o) || mourn_begin(shm, index, o, token) ? mourn_left(shm, o) : 0;

	*ret_alone = left && owns_alone(shm->spaces[o->space], o->slot, index);
	if (left)
		mourn_arm(shm, left);
	return left;
}

/* A client whose end is under way in slices is not touched. */
static bool client_mourn_over(struct shm *shm, uint32_t index)
{
	uint32_t open = ledger_client(&shm->ledger, index)->opens, next;

	for (; open; open = next) {
		const struct ledger_open *o = ledger_open_at(&shm->ledger, open);
		uint32_t left = open_mourned(o) ? mourn_left(shm, o) : 0;

		next = o->next;
		if (left)
			mourn_arm(shm, left);
		else if (open_mourned(o))
			client_leave(shm, index, open);
	}
	return !ledger_client(&shm->ledger, index)->opens;
}

static void mourn_look(void *arg)
{
	struct shm *shm = arg;

	for (uint32_t i = 0, next; (next = table_next(&shm->ledger.clients, i)); i = next) {
		if (shm->clients[next])
			continue;
		if (client_leaves(shm, next))
			mourn_arm(shm, 1);
		else if (client_mourn_over(shm, next))
			client_forget(shm, next);
	}
}

void delays_init(struct shm *shm)
{
	loop_timer_init(&shm->mourn_timer, mourn_look, shm);
}

void delay_asked(struct space *s, uint32_t slot, uint32_t open, uint16_t ms)
{
	struct ledger_open *o = ledger_open_at(&s->shm->ledger, open);
	struct ledger_name *n = name_at(s, slot);
	bool claimed = name_is_lock(s, slot) ? n->count || name_claims(n) : sem_claims(s, slot);

	if (ms > o->delay)
		word_store32(&o->delay, ms);
	if (ms <= n->delay) {
		if (n->raised && !name_is_lock(s, slot))
			sem_raised(s, slot);     /* it is not the first that waits for it */
		return;
	}
	if (claimed && s->shm->config.many)
		n->raised = 1;
	__atomic_store_n(&n->delay, ms, __ATOMIC_RELEASE);
	if (n->raised && name_is_lock(s, slot) && n->count)
		space_revoke_now(s, slot);
	else if (n->raised && !name_is_lock(s, slot))
		sem_raised(s, slot);
}

uint16_t delay_of(const struct space *s, uint32_t slot, uint32_t client)
{
	uint32_t open = ledger_open_find(&s->shm->ledger, client, (uint16_t)s->id, slot);
	uint32_t delay = open ? ledger_open_at(&s->shm->ledger, open)->delay : 0;

	return delay <= LEDGER_DELAY_MAX ? (uint16_t)delay : 0;
}

/* The ledger may have had it of one, and not yet of the name. It goes back when words are looked at. */
void delay_adopt(struct space *s, const struct ledger_open *o)
{
	struct ledger_name *n = name_at(s, o->slot);

	if (o->delay > LEDGER_DELAY_MAX || o->delay <= n->delay)
		return;
	n->raised = (n->count || !name_is_lock(s, o->slot)) && s->shm->config.many;
	n->delay = (uint16_t)o->delay;
}

static void longest(struct space *s, uint32_t slot, uint32_t client, void *arg)
{
	uint32_t open = client ? ledger_open_find(&s->shm->ledger, client, (uint16_t)s->id, slot) : 0, *most = arg;
	const struct ledger_open *o = open ? ledger_open_at(&s->shm->ledger, open) : NULL;
	uint32_t left = o && open_mourned(o) ? mourn_left(s->shm, o) : 0;

	*most = left > *most ? left : *most;
}

uint32_t delay_left(struct space *s, uint32_t slot)
{
	uint32_t most = 0;

	if (!name_is_lock(s, slot)) {
		sem_each_holder(s, slot, longest, &most);
		return most;
	}
	longest(s, slot, (uint32_t)(LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_OWNER), &most);
	if (s->lines_mourned)
		readers_each(s, slot, longest, &most);
	return most;
}
