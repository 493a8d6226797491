/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Condition variables: who of this node waits and signals, held against the record (cond_record.h says how). */
#include <errno.h>
#include <string.h>

#include "../grow.h"
#include "things.h"

static struct cond_record rec;           /* the one that is being looked at */
static uint8_t bytes[STORE_VALUE_MAX];

/* --- tickets --- */

static struct ticket *ticket_find(const struct party *p, uint32_t number)
{
	for (uint32_t i = 0; i < p->n_tickets; i++)
		if (p->tickets[i].number == number)
			return &p->tickets[i];
	return NULL;
}

static struct ticket *ticket_add(struct party *p, uint32_t number)
{
	struct ticket *v = grown(p->tickets, p->n_tickets, &p->tickets_cap, 4, sizeof *v);

	if (!v)
		return NULL;
	p->tickets = v;
	p->tickets[p->n_tickets] = (struct ticket){ .number = number };
	return &p->tickets[p->n_tickets++];
}

static void ticket_drop(struct party *p, struct ticket *t)
{
	struct ticket *last = &p->tickets[--p->n_tickets];

	for (; t < last; t++)
		*t = t[1];
}

static void tell(struct party *p, struct ticket *t)
{
	if (t->signalled)
		return;
	t->signalled = true;
	p->signalled++;
	if (t->number > p->passed)
		p->passed = t->number;
	p->thing->in->ops.passed(p->thing->in->ops.arg, p);
}

/* --- what the threads of one process wait for --- */

/* What a daemon of before had written for it. */
static void import(struct party *p)
{
	for (uint32_t i = 0; i < rec.n; i++) {
		struct ticket *t = rec.e[i].account == p->id && !ticket_find(p, rec.e[i].ticket) ? ticket_add(p, rec.e[i].ticket) : NULL;

		if (!t)
			continue;
		t->entered = true;
		t->signalled = t->number <= p->passed;
		t->cancelled = p->op == SMALL_CANCEL && p->arg == t->number;
	}
	p->adopted = false;
}

/* The ticket of an ENTER under way is made when it is first looked at. */
static struct ticket *entering(struct party *p)
{
	struct ticket *t = ticket_find(p, p->number);

	if (!t)
		t = ticket_add(p, p->number);
	if (!t)
		party_answer(p, ENOMEM, 0);
	return t;
}

/* Whether the record is another now. *t may be dropped. */
static bool ticket_look(struct party *p, struct ticket *t)
{
	struct cond_entry *e = cond_find(&rec, p->id, t->number);
	uint32_t number = t->number;

	if (e) {
		t->entered = true;
		if (e->signal)
			tell(p, t);
		if (p->op == SMALL_ENTER && p->number == number)
			party_answer(p, 0, number);
		if (t->cancelled && !e->signal)
			return cond_leave(&rec, p->id, number, false);
		return false;
	}
	if (t->entered && !t->cancelled)
		tell(p, t);              /* others have taken us for dead */
	if (t->entered || t->cancelled)
		return false;
	if (cond_enter(&rec, p->thing->in->session, p->id, number) == 0)
		return true;
	ticket_drop(p, t);
	if (p->op == SMALL_ENTER && p->number == number)
		party_answer(p, ENOSPC, 0);
	return false;
}

/*
 * Is it known what has become of a ticket that was cancelled? It is signalled in the record, or not in it, and cannot come any more:
 * the next daemon would take it for one that is awaited. One that was told may be forgotten already, where its thread has had no
 * processor for long: the signal is its own all the same.
 */
static void cancel_look(struct party *p, const struct record_view *v)
{
	struct ticket *t = ticket_find(p, p->arg);
	const struct cond_entry *e = cond_find(&rec, p->id, p->arg);

	if ((e && !e->signal) || v->fence)
		return;
	if (e && t)
		tell(p, t);
	party_answer(p, 0, t ? t->signalled : p->arg <= p->passed);
	if (t && !e)
		ticket_drop(p, t);
}

/* Tickets that are told and no longer in the record are forgotten. */
static void forget_told(struct party *p)
{
	for (uint32_t i = p->n_tickets; i-- > 0;) {
		struct ticket *t = &p->tickets[i];

		if ((t->signalled || t->cancelled) && !cond_find(&rec, p->id, t->number) &&
		    !(p->op == SMALL_CANCEL && p->arg == t->number))
			ticket_drop(p, t);
	}
}

static bool party_look(struct party *p, const struct record_view *v)
{
	bool changed = false;

	if (p->adopted)
		import(p);
	if (p->op == SMALL_CANCEL)
		cancel_look(p, v);
	if (p->op == SMALL_ENTER)
		entering(p);
	for (uint32_t i = p->n_tickets; i-- > 0;)
		if (i < p->n_tickets)
			changed |= ticket_look(p, &p->tickets[i]);
	forget_told(p);
	return changed;
}

/* --- signals --- */

enum sending { SENT, SENDING, UNREAD };

/* UNREAD: whether nobody waits has to be read. */
static enum sending send(struct signal *s, uint32_t n, uint64_t moment, const struct record_view *v)
{
	if ((s->sent && v->landed) || cond_reached(&rec, s->number))
		return SENT;
	s->sent = false;
	if (!cond_signal(&rec, n, s->number))
		return v->asof >= moment ? SENT : UNREAD;
	s->sent = true;
	return SENDING;
}

static bool send_all(struct thing *t, const struct record_view *v, bool *read)
{
	bool changed = false;
	enum sending r;

	for (struct party *p = t->parties; p; p = p->next) {
		r = p->op == SMALL_SIGNAL ? send(&p->signal, p->arg, p->moment, v) : SENDING;
		if (r == SENT)
			party_answer(p, 0, 0);
		changed |= p->op == SMALL_SIGNAL && r == SENDING;
		*read |= r == UNREAD;
	}
	if (!t->owed)
		return changed;
	r = send(&t->owing, t->owed, t->owed_moment, v);
	if (r == SENT) {
		t->owed = 0;
	}
	*read |= r == UNREAD;
	return changed || r == SENDING;
}

/* --- entries that nobody waits for --- */

static bool awaited(const struct thing *t, const struct cond_entry *e)
{
	const struct party *p = thing_party(t, e->account);
	const struct ticket *ticket = p ? ticket_find(p, e->ticket) : NULL;

	return ticket && !ticket->signalled;
}

/* Its thread, or its process, has had the signal already. */
static bool had(const struct thing *t, const struct cond_entry *e)
{
	const struct party *p = thing_party(t, e->account);

	if (p)
		return e->ticket <= p->passed;
	for (uint32_t i = 0; i < t->n_ghosts; i++)
		if (t->ghosts[i].account == e->account && t->ghosts[i].ticket == e->ticket)
			return true;
	return false;
}

static const struct cond_entry *unawaited(const struct thing *t)
{
	for (uint32_t i = 0; i < rec.n; i++)
		if (thing_ours(t, rec.e[i].session, rec.e[i].account) && !awaited(t, &rec.e[i]))
			return &rec.e[i];
	return NULL;
}

/* Some of them have to go now: they stand in others' way, or have a signal that is another's. */
static bool urgent(const struct thing *t)
{
	for (uint32_t i = 0; i < rec.n; i++) {
		const struct cond_entry *e = &rec.e[i];

		if (thing_ours(t, e->session, e->account) && !awaited(t, e) && (!e->signal || !had(t, e)))
			return true;
	}
	return false;
}

static void sweep(struct thing *t)
{
	const struct cond_entry *e;

	while ((e = unawaited(t)))
		cond_leave(&rec, e->account, e->ticket, !had(t, e));
}

/* Of the sessions that have ended: a signal that is marked for one of them goes on. */
static bool end_the_ended(struct thing *t)
{
	bool changed = false;

	for (uint32_t i = 0; i < rec.n;) {
		const struct cond_entry *e = &rec.e[i];

		if (!thing_ours(t, e->session, e->account) && session_ended(t->in, e->session)) {
			changed |= cond_end(&rec, e->session);
			i = 0;
		} else {
			i++;
		}
	}
	return changed;
}

static bool waits(const struct thing *t)
{
	for (const struct party *p = t->parties; p; p = p->next)
		if (p->n_tickets || p->op)
			return true;
	return false;
}

static void write_out(struct thing *t, const struct record_view *v, struct record_want *ret)
{
	if (t->unused && !rec.n && !v->fence) {
		if (v->version)
			ret->what = RECORD_REMOVE;
		return;
	}
	*ret = (struct record_want){ RECORD_WRITE, bytes, cond_encode(&rec, bytes) };
}

static void look_record(struct thing *t, const struct record_view *v, struct record_want *ret)
{
	nsec_t now = t->in->ops.now(t->in->ops.arg);
	bool changed = false, read = false;

	for (struct party *p = t->parties; p; p = p->next)
		changed |= party_look(p, v);
	if (rec.n)
		changed |= end_the_ended(t);
	changed |= send_all(t, v, &read);
	if (unawaited(t)) {
		if (changed || t->unused || urgent(t) || now >= t->lazy) {
			sweep(t);
			changed = true;
		} else if (t->lazy == NSEC_NEVER) {
			t->lazy = now + THINGS_LAZY;
			t->in->ops.wake_at(t->in->ops.arg, t->lazy);
		}
	}
	if (!unawaited(t))
		t->lazy = NSEC_NEVER;
	t->queued = rec.n;
	if (changed || (v->fence && !v->version) || (t->unused && !rec.n && v->version))
		write_out(t, v, ret);
	else if (read)
		ret->what = RECORD_READ;
}

static void look(void *arg, const struct record_view *v, struct record_want *ret)
{
	struct thing *t = arg;

	t->error = 0;
	rec.n = 0;
	if (v->version && cond_decode(v->bytes, v->n, &rec) < 0) {
		for (struct party *p = t->parties; p; p = p->next)
			party_answer(p, EPROTO, 0);
	} else {
		look_record(t, v, ret);
	}
	if (t->unused && !t->owed && ret->what == RECORD_KEEP && !v->fence)
		thing_is_over(t);
	t->again = t->in->shared && waits(t) ? t->in->ops.now(t->in->ops.arg) + THINGS_AGAIN : NSEC_NEVER;
}

static void failed(void *arg, int error)
{
	struct thing *t = arg;

	t->error = error;
}

const struct record_ops cond_ops = { look, failed };

/* --- what happens to parties --- */

void cond_cancel(struct party *p, uint32_t number)
{
	struct ticket *t = ticket_find(p, number);

	if (t)
		t->cancelled = true;
}

/* The session is over, and with it all that waited: they return, and find out for themselves. */
void cond_lapse(struct thing *t)
{
	for (struct party *p = t->parties; p; p = p->next) {
		for (uint32_t i = 0; i < p->n_tickets; i++)
			if (p->tickets[i].entered)
				tell(p, &p->tickets[i]);
		if (p->op == SMALL_CANCEL)
			party_answer(p, 0, 0);
	}
}

static void ghost(struct thing *t, uint64_t account, uint32_t ticket)
{
	struct ghost *v = realloc(t->ghosts, (t->n_ghosts + 1) * sizeof *v);

	if (!v)
		return;                  /* its signal is given twice */
	v[t->n_ghosts++] = (struct ghost){ account, ticket };
	t->ghosts = v;
}

/* Who was told and has not run owes his signals to the others. */
void cond_left(struct party *p, bool died, uint64_t taken)
{
	struct thing *t = p->thing;
	uint64_t most = p->signalled;

	if (died && taken < most) {
		t->owed += (uint32_t)(most - taken);
		t->owed_moment = record_want(&t->record, true);
		t->owing = (struct signal){ .number = (uint32_t)things_random(t->in) | 1 };
	}
	if (t->n_ghosts > COND_ENTRIES_MAX)
		t->n_ghosts = 0;         /* long gone from the record */
	for (uint32_t i = 0; i < p->n_tickets; i++)
		if (p->tickets[i].signalled)
			ghost(t, p->id, p->tickets[i].number);
}
