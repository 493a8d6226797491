/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Elections: a lock's word, and a page that says who leads (include/proto/value.h).
 *
 * The one who leads writes that himself, so that his own node knows at once. The daemon adds what he cannot say, that he
 * leads no more (he is dead, or his lease has gone), and what other nodes tell (elect_news). It tells other nodes in turn
 * (ops.leads), once the core has said that somebody there wants to know: then leaders ring after what they write (`observed`).
 *
 * What must hold:
 *  - (term, count) in the page never goes back, whoever writes: value_may_follow().
 *  - While this node has the lease, whoever the page names leads this very moment, or the page says soon that nobody does
 *    (elect_settle): after a death here and now, else when the lease comes and when it goes.
 *  - When the session has ended the page says that it is not known who leads, until others tell it again. What it names
 *    must not be believed after the deadline in any case, which is what readers look at.
 *  - Nothing of this is in the ledger: a restarted daemon finds the page, settles it, and asks the others anew.
 */
#include <errno.h>
#include <stdlib.h>

#include "shm.h"
#include "word.h"

#define CHUNK    1024u
#define DUE_SPAN (20 * NSEC_PER_MSEC)    /* after a lease has come for somebody, who then does not take it */

struct elect {
	bool here;
	bool watching;                   /* the core has been asked for news */
	bool asked;                      /* others want ours */
	bool hints;                      /* somebody polls */
	bool due;                        /* is to be looked at by the timer */
	uint32_t told_count;
	uint64_t told_token;             /* the last that others were told */
	uint64_t event_token;            /* the last leader that an event told of */
	bool event_leads;
};

static struct elect *elect_at(const struct space *s, uint32_t slot)
{
	struct elect *e = s->elects ? s->elects[slot / CHUNK] : NULL;

	return e && e[slot % CHUNK].here ? &e[slot % CHUNK] : NULL;
}

static int elect_make(struct space *s, uint32_t slot, struct elect **ret)
{
	if (!s->elects)
		s->elects = calloc(SEG_SLOTS_MAX / CHUNK, sizeof *s->elects);
	if (s->elects && !s->elects[slot / CHUNK])
		s->elects[slot / CHUNK] = calloc(CHUNK, sizeof(struct elect));
	if (!s->elects || !s->elects[slot / CHUNK])
		return -ENOMEM;
	*ret = &s->elects[slot / CHUNK][slot % CHUNK];
	**ret = (struct elect){ .here = true };
	return 0;
}

void elects_free(struct space *s)
{
	for (unsigned i = 0; s->elects && i < SEG_SLOTS_MAX / CHUNK; i++)
		free(s->elects[i]);
	free(s->elects);
	s->elects = NULL;
	if (s->elect_timer.fn)
		loop_timer_cancel(s->shm->loop, &s->elect_timer);
}

/* --- the page --- */

static bool page_is(const struct space *s, uint32_t slot)
{
	return !s->broken && name_at(s, slot)->paged;
}

static bool leads_here(const struct space *s, uint32_t slot, uint64_t token)
{
	return name_at(s, slot)->count && !lock_is_free(LOCK_LOAD(&seg_slot(s->base, slot)->word)) &&
	       name_token(s, slot) == token;
}

static void say_nobody(struct space *s, uint32_t slot, uint64_t after)
{
	value_publish_note(value_page(s, slot), &(struct value_head){ .state = VALUE_NONE, .token = after, .count = VALUE_NOBODY }, false);
}

/* Of a lease that this node has: nobody else can lead. */
static void settle(struct space *s, uint32_t slot)
{
	struct value_head h;

	if (!page_is(s, slot) || !name_at(s, slot)->count)
		return;
	if (value_read(value_page(s, slot), &h, NULL, 0) < 0)
		h = (struct value_head){ .state = VALUE_KNOWN, .token = name_token(s, slot) };
	if (h.state == VALUE_KNOWN && !leads_here(s, slot, h.token))
		say_nobody(s, slot, h.token);
}

static void observed_set(struct space *s, uint32_t slot, const struct elect *e)
{
	if (page_is(s, slot))
		FAULT_AROUND(__atomic_store_n(&value_page(s, slot)->observed, e->asked || e->hints, __ATOMIC_SEQ_CST));
}

/* For those who watch: who leads from now on, or that nobody does. As the page says, which is seen when somebody rings. */
static void announce(struct space *s, uint32_t slot, struct elect *e)
{
	struct shm *shm = s->shm;
	struct value_head h;
	uint32_t owner;
	bool leads;

	if (!page_is(s, slot) || value_read(value_page(s, slot), &h, NULL, 0) < 0)
		return;
	leads = h.state == VALUE_KNOWN;
	if (leads == e->event_leads && (!leads || h.token == e->event_token))
		return;
	e->event_leads = leads;
	e->event_token = h.token;
	owner = leads && leads_here(s, slot, h.token) ? (uint32_t)(LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_OWNER) : 0;
	shm_tell(shm, leads ? "leads" : "leaderless", s, slot,
		 owner && table_in_use(&shm->ledger.clients, owner) ? ledger_client(&shm->ledger, owner)->pid : 0, leads ? h.token : 0, NULL);
}

/* Something has changed: other nodes are told what they do not know, or all of it. */
static void tell(struct space *s, uint32_t slot, struct elect *e, bool all)
{
	struct value_head h;

	if (e->hints)
		hint_ring_slot(s->shm, s, slot);
	settle(s, slot);
	announce(s, slot, e);
	if (!e->asked || !page_is(s, slot) || !name_at(s, slot)->count)
		return;
	if (value_read(value_page(s, slot), &h, NULL, 0) < 0)
		h = (struct value_head){ 0 };
	if (!all && h.token == e->told_token && h.count == e->told_count)
		return;
	e->told_token = h.token;
	e->told_count = h.count;
	s->shm->ops.leads(s->shm->ops.arg, s, slot);
}

bool elect_state(const struct space *s, uint32_t slot, struct shm_value *ret, uint8_t bytes[VALUE_MAX])
{
	const struct ledger_name *n = name_at(s, slot);
	struct value_head h;

	*ret = (struct shm_value){ .state = VALUE_NONE };
	if (!page_is(s, slot) || !n->count)
		return false;
	if (value_read(value_page(s, slot), &h, bytes, VALUE_MAX) < 0)
		return true;
	if (h.state == VALUE_KNOWN && leads_here(s, slot, h.token) && h.count && h.count != VALUE_NOBODY)
		*ret = (struct shm_value){ VALUE_KNOWN, h.count, h.len, h.token, bytes };
	else if (h.token < n->first + n->count)
		ret->token = h.token;
	return true;
}

uint64_t elect_leader(const struct space *s, uint32_t slot, char text[VALUE_MAX + 1])
{
	struct value_head h;

	if (name_kind(s, slot) != KIND_ELECT || !page_is(s, slot) ||
	    value_read(value_page(s, slot), &h, text, VALUE_MAX) < 0 || h.state != VALUE_KNOWN)
		return 0;
	text[h.len] = 0;
	return h.token;
}

/* --- looks --- */

/* It may be told within this very call that it does not work. */
static void watch(struct space *s, uint32_t slot, struct elect *e)
{
	if (e->watching)
		return;
	e->watching = true;
	if (!s->shm->ops.observe(s->shm->ops.arg, s, slot, true))
		e->watching = false;
}

static void elects_due(void *arg)
{
	struct space *s = arg;

	for (unsigned i = 0; s->elects && i < SEG_SLOTS_MAX / CHUNK; i++)
		for (unsigned k = 0; s->elects[i] && k < CHUNK; k++) {
			struct elect *e = &s->elects[i][k];

			if (!e->here || !e->due)
				continue;
			e->due = false;
			watch(s, i * CHUNK + k, e);
			tell(s, i * CHUNK + k, e, e->told_token < name_at(s, i * CHUNK + k)->first);
		}
}

static void due(struct space *s, struct elect *e)
{
	e->due = true;
	if (!s->elect_timer.fn)
		loop_timer_init(&s->elect_timer, elects_due, s);
	if (!s->elect_timer.queued)
		loop_timer_set(s->shm->loop, &s->elect_timer, loop_now(s->shm->loop) + DUE_SPAN);
}

/* --- what happens to it --- */

int elect_open(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);
	int r = value_page_open(s, slot);

	if (r == 0 && !e)
		r = elect_make(s, slot, &e);
	if (r == 0)
		watch(s, slot, e);
	return r;
}

bool elect_close(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);
	bool watching = e && e->watching;

	if (!e)
		return false;
	*e = (struct elect){ 0 };
	if (watching)
		s->shm->ops.observe(s->shm->ops.arg, s, slot, false);
	return watching;
}

bool elect_watching(const struct space *s, uint32_t slot)
{
	const struct elect *e = elect_at(s, slot);

	return e && e->watching;
}

void elect_unwatched(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	if (!e)
		return;
	e->watching = false;
	due(s, e);
}

void elect_untold(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	if (!e)
		return;
	e->told_token = 0;
	due(s, e);
}

void elect_adopt(struct space *s, uint32_t slot)
{
	struct elect *e;

	if (name_kind(s, slot) != KIND_ELECT || !name_at(s, slot)->opens || elect_open(s, slot) < 0)
		return;
	e = elect_at(s, slot);
	e->hints = true;                 /* who knows */
	observed_set(s, slot, e);
	settle(s, slot);
}

void elect_polled(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	if (!e)
		return;
	e->hints = true;
	observed_set(s, slot, e);
}

void elects_watched(struct space *s)
{
	for (unsigned i = 0; s->elects && i < SEG_SLOTS_MAX / CHUNK; i++)
		for (unsigned k = 0; s->elects[i] && k < CHUNK; k++)
			if (s->elects[i][k].here)
				elect_polled(s, i * CHUNK + k);
}

/* Whoever has been woken for the lease leads in a moment, and rings. */
void elect_granted(struct space *s, uint32_t slot, bool asked)
{
	struct elect *e = elect_at(s, slot);

	if (!e)
		return;
	e->asked = asked;
	observed_set(s, slot, e);
	settle(s, slot);
	if (asked)
		due(s, e);
}

void elect_asked(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	if (!e || !name_at(s, slot)->count)
		return;
	e->asked = true;
	observed_set(s, slot, e);
	tell(s, slot, e, true);
}

void elect_ring(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	if (e)
		tell(s, slot, e, false);
}

/* He may have been about to wake those who look on. */
void elect_died(struct space *s, uint32_t slot, uint32_t client)
{
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, slot)->word);

	if (!page_is(s, slot) || !client || (w & LOCK_OWNER) != client)
		return;
	say_nobody(s, slot, name_token(s, slot));
	value_wake(value_page(s, slot));
	if (elect_at(s, slot))
		announce(s, slot, elect_at(s, slot));
}

void elect_given(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);

	settle(s, slot);
	if (!e)
		return;
	e->asked = false;
	observed_set(s, slot, e);
}

void elect_lapse(struct space *s, uint32_t slot)
{
	struct elect *e = elect_at(s, slot);
	struct value_head h;

	if (!e || !page_is(s, slot))
		return;
	e->asked = false;
	observed_set(s, slot, e);
	if (value_read(value_page(s, slot), &h, NULL, 0) < 0)
		h = (struct value_head){ 0 };
	h.state = VALUE_LOST;
	h.len = 0;
	value_publish_note(value_page(s, slot), &h, true);
	announce(s, slot, e);
	if (e->hints)
		hint_ring_slot(s->shm, s, slot);
}

void elect_news(struct space *s, uint32_t slot, const struct shm_value *v)
{
	struct value_head h = { .state = v->state, .token = v->token, .count = v->count, .len = v->len };
	struct elect *e = elect_at(s, slot);
	bool new;

	if (!e || !page_is(s, slot))
		return;
	if (v->state == VALUE_KNOWN)
		new = value_tell(value_page(s, slot), &h, v->bytes, true);
	else
		new = value_publish_note(value_page(s, slot), &h, true);
	announce(s, slot, e);
	if (new && e->hints)
		hint_ring_slot(s->shm, s, slot);
}
