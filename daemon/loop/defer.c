/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is deferred to the end of the turn. Two rings: one for this turn, one for what has run in
 * this turn already and was queued again; and a third one for what comes late, and may queue for the next turn what has run in this one.
 * A defer is on one of them exactly while its next is set.
 */
#include <assert.h>

#include "internal.h"

static void ring_append(struct loop_defer *head, struct loop_defer *d)
{
	d->next = head;
	d->prev = head->prev;
	head->prev->next = d;
	head->prev = d;
}

static void ring_remove(struct loop_defer *d)
{
	d->prev->next = d->next;
	d->next->prev = d->prev;
	d->next = d->prev = NULL;
}

void loop_defer_init(struct loop_defer *d, void (*fn)(void *arg), void *arg)
{
	*d = (struct loop_defer){.fn = fn, .arg = arg};
}

void loop_defer(struct loop *l, struct loop_defer *d)
{
	assert(d->fn);
	if (d->next)
		return;
	ring_append(l->turn > 0 && d->turn == l->turn ? &l->deferred_next : &l->deferred, d);
}

void loop_defer_late(struct loop *l, struct loop_defer *d)
{
	assert(d->fn);
	if (!d->next)
		ring_append(&l->late, d);
}

void loop_defer_cancel(struct loop *l, struct loop_defer *d)
{
	(void)l;
	if (d && d->next)
		ring_remove(d);
}

void defers_init(struct loop *l)
{
	l->deferred.next = l->deferred.prev = &l->deferred;
	l->deferred_next.next = l->deferred_next.prev = &l->deferred_next;
	l->late.next = l->late.prev = &l->late;
}

static void next_is_now(struct loop *l)
{
	struct loop_defer *d;

	while ((d = l->deferred_next.next) != &l->deferred_next) {
		ring_remove(d);
		ring_append(&l->deferred, d);
	}
}

void defers_run(struct loop *l)
{
	struct loop_defer *d;

	while ((d = l->deferred.next) != &l->deferred) {
		ring_remove(d);
		d->turn = l->turn;
		d->fn(d->arg);
	}
	next_is_now(l);
}

bool defers_late(const struct loop *l)
{
	return l->late.next != &l->late;
}

/* What is queued again meanwhile waits for the next turn. */
void defers_late_run(struct loop *l)
{
	struct loop_defer *d;

	ring_append(&l->late, &l->late_end);
	while ((d = l->late.next) != &l->late_end) {
		ring_remove(d);
		d->fn(d->arg);
	}
	ring_remove(&l->late_end);
	next_is_now(l);
}

/* Before the first turn there may be some of this turn too. */
bool defers_left(const struct loop *l)
{
	return l->deferred.next != &l->deferred || defers_late(l);
}
