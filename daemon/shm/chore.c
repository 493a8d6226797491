/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What takes long, in slices: the end of a client that had very many names open, and of a space that
 * has very many. Between two slices the loop serves everybody else.
 *
 * What must hold: a slice costs some hundred microseconds at most; small ends are done at once; and
 * a daemon that dies in between leaves what its successor does again (adopt.c).
 */
#include <stdlib.h>

#include "shm.h"
#include "word.h"

#define FREE_SLICE  1024                 /* words looked at for one that is to be freed */
#define LEAVE_SLICE 64                   /* opens, or names of a broken space */

struct leaving {
	struct leaving *next;
	uint32_t index;
	uint32_t free_at;                /* the first open whose word has not been looked at; 0: all have */
	uint32_t leave_at;               /* the first one that it may still have; 0: only those are left that are mourned */
};

/* What the dead client owned is free, before anything else is done for it. */
static void leave_free(struct shm *shm, struct leaving *l, unsigned max)
{
	for (; l->free_at && max; max--) {
		client_release(shm, l->index, l->free_at);
		l->free_at = ledger_open_at(&shm->ledger, l->free_at)->next;
	}
}

/* Returns whether it is through. */
static bool leave_some(struct shm *shm, struct leaving *l)
{
	uint32_t open;

	leave_free(shm, l, FREE_SLICE);
	for (unsigned n = 0; !l->free_at && n < LEAVE_SLICE; n++) {
		open = l->leave_at;
		if (!open && !ledger_client(&shm->ledger, l->index)->opens)
			client_forget(shm, l->index);
		if (!open)
			return true;
		l->leave_at = ledger_open_at(&shm->ledger, open)->next;
		if (!open_mourned(ledger_open_at(&shm->ledger, open)))
			client_leave(shm, l->index, open);
	}
	return false;
}

void chore_leave(struct shm *shm, uint32_t index)
{
	uint32_t opens = ledger_client(&shm->ledger, index)->opens;
	struct leaving first = { .index = index, .free_at = opens, .leave_at = opens };
	struct leaving *l;

	if (leave_some(shm, &first))
		return;
	l = malloc(sizeof *l);
	if (!l) {
		while (!leave_some(shm, &first))
			;
		return;
	}
	*l = first;
	l->next = shm->leaving;
	shm->leaving = l;
	chores_wake(shm);
}

bool client_leaves(const struct shm *shm, uint32_t index)
{
	const struct leaving *l = shm->leaving;

	while (l && l->index != index)
		l = l->next;
	return l;
}

/* Returns whether there is more to do at once. */
static bool spaces_some(struct shm *shm)
{
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++) {
		struct space *s = shm->spaces[i];

		if (!s || !s->broken)
			continue;
		if (space_end_some(s, LEAVE_SLICE))
			return true;
		space_let_go(s);
	}
	return false;
}

static void chores_run(void *arg)
{
	struct shm *shm = arg;
	struct leaving *l = shm->leaving;

	if (l && leave_some(shm, l)) {
		shm->leaving = l->next;
		free(l);
	}
	if (spaces_some(shm) || shm->leaving)
		chores_wake(shm);
}

void chores_init(struct shm *shm)
{
	loop_defer_init(&shm->chores, chores_run, shm);
}

void chores_wake(struct shm *shm)
{
	loop_defer(shm->loop, &shm->chores);
}

void chores_done(struct shm *shm)
{
	struct leaving *l;

	loop_defer_cancel(shm->loop, &shm->chores);
	while ((l = shm->leaving)) {
		shm->leaving = l->next;
		free(l);
	}
}
