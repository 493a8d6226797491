/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The end of a session as the clients of this node see it (DESIGN S2).
 *
 * What must hold:
 *  - What takes the deadline back comes before the words: from then on nobody here relies on anything,
 *    and the words may be closed one after the other.
 *  - A hold that is lost is told from all later ones of the name: its client may post it long after,
 *    and count and owner of another hold must not be the same. A word begins each range at a count of
 *    its own, so the ranges of a name whose hold was lost are kept short enough to begin above it
 *    (room), and where the hold was among the last of its range the space is made anew.
 *  - Signals go out before the deadline; here and now, while all is still good.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sem.h"
#include "word.h"

#define LOSS_SLICE 8192                  /* names looked at in a turn of the loop: a millisecond */
#define ROOM_MIN 64                      /* a range shorter than this costs more than a new space */
#define ROOM_MAX ((UINT32_C(1) << 22) - 1)

void shm_deadline(struct shm *shm, uint64_t ns, uint64_t ticks)
{
	page_deadline(&shm->page, ns, ticks);
}

/* --- before --- */

static void client_signal(struct shm *shm, struct client *c, int signo)
{
	if (c->pidfd >= 0 && syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0) < 0 && errno != ESRCH)
		shm_tell(shm, "loss-unsignalled", NULL, 0, ledger_client(&shm->ledger, c->index)->pid, 0,
			 errno == EPERM ? "the daemon may not send signals to this user's processes" : "the system refuses it");
}

static void client_losing(struct shm *shm, struct client *c)
{
	if (!c->losing)
		shm->losing++;
	c->losing = true;
}

/* The name as the client has it open; 0: it has not. */
static uint32_t open_of(struct space *s, uint32_t slot, uint32_t index)
{
	return index ? ledger_open_find(&s->shm->ledger, index, (uint16_t)s->id, slot) : 0;
}

static void name_loss(struct space *s, uint32_t slot, uint32_t index, void *unused)
{
	struct shm *shm = s->shm;
	struct client *c = shm->clients[index];
	uint32_t open = c ? open_of(s, slot, index) : 0;
	int signo = open ? ledger_open_at(&shm->ledger, open)->flags >> OPEN_SIGNAL_SHIFT : 0;

	(void)unused;
	if (!open)
		return;
	hint_ring_lost(shm, s, slot, index);
	if (signo)
		client_signal(shm, c, signo);
	/* dlock run ends what it has begun, by itself and in time. */
	if (signo == SIGKILL || (ledger_client(&shm->ledger, index)->flags & CLIENT_INHERIT))
		client_losing(shm, c);
}

static void slot_loss(struct space *s, uint32_t slot)
{
	if (name_is_lock(s, slot))
		name_loss(s, slot, (uint32_t)(LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_OWNER), NULL);
	else
		sem_each_holder(s, slot, name_loss, NULL);
}

/* Returns whether the space is through. */
static bool space_loss(struct space *s, struct loss_walk *w, unsigned *max)
{
	uint32_t slot;

	if (!w->slot)
		readers_each(s, 0, name_loss, NULL);
	while ((slot = table_next(&s->names, w->slot))) {
		if (!*max)
			return false;
		--*max;
		slot_loss(s, slot);
		w->slot = slot;
	}
	return true;
}

/* Returns whether all are through. */
static bool loss_some(struct shm *shm, unsigned max)
{
	struct loss_walk *w = &shm->loss_walk;

	for (; w->space < LEDGER_SPACES_MAX; w->space++, w->slot = 0) {
		struct space *s = shm->spaces[w->space];

		if (s && !s->broken && (!max || !space_loss(s, w, &max)))
			return false;
	}
	w->on = false;
	return true;
}

static void loss_go_on(void *arg)
{
	struct shm *shm = arg;

	if (!loss_some(shm, LOSS_SLICE))
		loop_defer(shm->loop, &shm->loss_walk.go_on);
	else if (!shm->losing)
		shm->ops.loss_done(shm->ops.arg);
}

static void loss_stop(struct shm *shm)
{
	if (shm->loss_walk.on)
		loop_defer_cancel(shm->loop, &shm->loss_walk.go_on);
	shm->loss_walk.on = false;
}

void shm_loss(struct shm *shm)
{
	struct loss_walk *w = &shm->loss_walk;

	loss_stop(shm);
	w->space = w->slot = 0;
	w->on = true;
	loop_defer_init(&w->go_on, loss_go_on, shm);
	loss_go_on(shm);
}

void shm_loss_over(struct shm *shm)
{
	loss_stop(shm);
	for (uint32_t i = 0; shm->losing && (i = table_next(&shm->ledger.clients, i));)
		if (shm->clients[i])
			shm->clients[i]->losing = false;
	shm->losing = 0;
}

/* --- then --- */

/* The hold's count and all below are over for this name. false: too little is left above it. */
bool name_retire_count(struct ledger_name *n, uint64_t was, uint32_t least)
{
	uint64_t left = lock_count(was) ? (UINT64_C(1) << LOCK_COUNT_BITS) - lock_count(was) - 1 : 0;
	uint64_t room = n->room && n->room < left ? n->room : left;

	if (room < least)
		return false;
	n->room = room < ROOM_MAX ? (uint32_t)room : ROOM_MAX;
	return true;
}

static void hold_lapse(struct space *s, uint32_t slot, uint32_t index, void *unused)
{
	uint32_t open = s->shm->running ? 0 : open_of(s, slot, index);

	(void)unused;
	if (open)
		ledger_open_at(&s->shm->ledger, open)->flags |= OPEN_LOST;
	hint_ring_lost(s->shm, s, slot, index);
}

/* Cells of readers that are lost are told from later ones by their era. */
static bool word_lapse(struct space *s, uint32_t slot)
{
	uint64_t was = lock_lapse(&seg_slot(s->base, slot)->word);

	readers_renew(s, slot);          /* also without R: a daemon that died here may have taken it, or an owner be on his way to reading */
	if (lock_is_free(was))
		return true;
	hold_lapse(s, slot, (uint32_t)(was & LOCK_OWNER), NULL);
	return name_retire_count(name_at(s, slot), was, ROOM_MIN);
}

/* Only a claim without a lease is still the core's. */
static void name_lapse(struct space *s, uint32_t slot)
{
	struct ledger_name *n = name_at(s, slot);
	bool claims = name_claims(n);

	word_store(&n->count, 0);
	n->revoked = n->shared = 0;
	if (claims)
		return;
	if (n->state == NAME_RELEASING) {
		space_forget(s, slot);
		return;
	}
	n->state = NAME_IDLE;
	name_abandoned(s, slot);
}

static void space_lapse(struct space *s)
{
	const char *why = NULL;

	/* All at once, whatever names they read. Who sets his cell from now on sees that the deadline has passed, and holds nothing. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!s->broken)
		readers_each(s, 0, hold_lapse, NULL);
	for (uint32_t slot = 0, next; (next = table_next(&s->names, slot)); slot = next) {
		if (name_is(s, next) && kind_is_object(name_kind(s, next)))
			object_lapse(s, next);
		if (!name_is_lock(s, next))
			continue;
		if (!s->broken && !word_lapse(s, next))
			why = "a hold that was lost had one of the last tokens of its range";
		elect_lapse(s, next);
		name_lapse(s, next);
	}
	if (why && !s->broken)
		space_break(s, why);
}

void shm_lapse(struct shm *shm)
{
	bool losing = shm->loss_walk.on;

	shm_deadline(shm, NODE_LAPSED, 0);
	loss_stop(shm);
	if (losing)
		loss_some(shm, UINT_MAX);        /* late, but who has asked for a signal gets it */
	for (uint32_t i = 0; i < LEDGER_SPACES_MAX; i++)
		if (shm->spaces[i])
			space_lapse(shm->spaces[i]);
	if (losing && !shm->losing)
		shm->ops.loss_done(shm->ops.arg);
}

/* Whose hold ended with a session that no daemon saw the end of. */
void shm_lapse_told(struct shm *shm)
{
	for (uint32_t i = 0; (i = table_next(&shm->ledger.opens, i));) {
		struct ledger_open *o = ledger_open_at(&shm->ledger, i);
		struct client *c = shm->clients[o->client];
		struct space *s = shm->spaces[o->space];

		if (!(o->flags & OPEN_LOST))
			continue;
		o->flags &= (uint16_t)~OPEN_LOST;
		if (c && s)
			hint_ring_lost(shm, s, o->slot, o->client);
		if (c && o->flags >> OPEN_SIGNAL_SHIFT)
			client_signal(shm, c, o->flags >> OPEN_SIGNAL_SHIFT);
	}
}
