/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Barriers (proto/barrierword.h): a party has a cell of its client's account from coming to leaving.
 *
 * Where the node is alone its parties complete the rounds themselves, and the daemon is asked for nothing but room
 * for notes, and to watch over those who sleep. Where there are others, whoever comes rings, and sleeps until its cell says what
 * became of it. Both sleep on the barrier's word, and are woken all at once. So it is for double barriers (double.c), always.
 *
 * Who waits for others that run on the same processors gives way to them first: it costs less than to sleep and to be
 * woken. Bounded, since those others may be long in coming, and the processor may be wanted by others than they.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>

#include "barrier.h"
#include "deadline.h"
#include "thread.h"

#define YIELDS      32u                  /* that cost nothing, since nobody else wants this processor */
#define WAYS        2u                   /* and so often others have really had their turn */
#define LOOK_NS     UINT64_C(1000000000) /* asleep: until another look whether all this is still there */
#define SEEN_NS     UINT64_C(500000000)  /* so long a party that gives up waits for the daemon to take note that it has come */
#define SEEN_LOOK_NS UINT64_C(100000)    /* looking so often */
#define ROOM_NS     UINT64_C(1000000)    /* until another look for a cell, or room for a note */
#define PARTIES_MAX 0x7fffffffu
#define LINES_MAX   1024u                /* more than the daemon makes: somebody has scribbled */

struct barrier_at barrier_at(const struct binding *b)
{
	return (struct barrier_at){ b->word, b->word + BARRIER_AT_NOTES };
}

/* --- Cells --- */

/* The next line, where the daemon has made one. NULL: it is asked for. */
static uint64_t *line_next(struct party *p, uint64_t *line)
{
	uint64_t head = BARRIER_LOAD(line);
	uint32_t slot = head & BARRIER_HEAD_NEXT;
	int r;

	if (!slot) {
		if (!(head & BARRIER_HEAD_MORE))
			BARRIER_CAS(line, &head, head | BARRIER_HEAD_MORE);
		object_ring(&p->x->h, p->b, p->limit);
		return NULL;
	}
	lib_lock();
	r = space_reach(p->b->space, (uint32_t)(p->b->me & LOCK_OWNER), slot);
	lib_unlock();
	return r == 0 ? (uint64_t *)seg_slot(p->b->space->base, slot) : NULL;
}

static uint64_t *cell_in(uint64_t *line, unsigned from)
{
	for (unsigned i = 0; i < BARRIER_CELLS; i++) {
		uint64_t *cell = &line[1 + (from + i) % BARRIER_CELLS];

		if (barrier_claim(cell))
			return cell;
	}
	return NULL;
}

static int cell_take(struct party *p)
{
	for (;;) {
		uint64_t *line = binding_account(p->b);
		int r;

		for (unsigned i = 0; line && i < LINES_MAX && !(p->turn.cell = cell_in(line, thread_serial())); i++)
			line = line_next(p, line);
		if (p->turn.cell)
			return 0;
		r = limit_nap(p->limit, ROOM_NS);
		if (r < 0)
			return r;
		if (binding_lost(p->b))
			return AGAIN;
	}
}

/* --- Sleeping --- */

void party_hide(struct party *p)
{
	binding_hide(p->shown);
	p->shown = NULL;
}

bool party_is_child(struct party *p)
{
	uint32_t serial;

	if (thread_serial())
		return false;
	p->shown = NULL;
	p->turn.cell = NULL;
	if (thread_register(&serial) == 0)
		object_enter(&p->x->h);
	return true;
}

/* While the word is what was announced. */
static int nap(struct party *p)
{
	const struct limit *limit = p->away ? &limit_none : p->limit;
	struct timespec abs = limit_timespec(limit_slice(limit, LOOK_NS));

	if (!p->shown)
		p->shown = binding_show(p->b, 0);
	futex_wait_class(barrier_futex(p->at.word), (uint32_t)p->turn.word, FUTEX_BITSET_MATCH_ANY, limit->clock, &abs);
	if (party_is_child(p))
		return AGAIN;
	return p->away ? 0 : limit_over(limit);
}

/* --- Rounds that are completed here --- */

/* The others have their turn on this processor. A yield that takes more than some 1.5 us was one. */
static void give_way(const struct party *p)
{
	uint64_t since = counter_now(), turn = counter_force_ticks() / 512;

	for (unsigned i = 0, ways = 0; i < YIELDS && ways < WAYS; i++) {
		uint64_t now;

		if (barrier_round(BARRIER_LOAD(p->at.word)) != p->turn.round)
			return;
		sched_yield();
		now = counter_now();
		ways += now - since > turn;
		since = now;
	}
}

/* A word without L may be one that somebody has wiped, since the space is lost. */
static bool round_is_lost(const struct party *p)
{
	return !(p->turn.word & BARRIER_L) && binding_lost(p->b);
}

static int round_sleep(struct party *p)
{
	bool announced = barrier_announce(&p->at, &p->turn);

	if (barrier_round(p->turn.word) != p->turn.round)
		return 0;
	if (!announced || !seg_watched(p->b->space->base, p->b->slot))
		object_ring(&p->x->h, p->b, p->limit);
	return nap(p);
}

/* 0: look again; a party whose round has ended before is in time. */
static int round_give_up(struct party *p)
{
	switch (barrier_break(&p->at, &p->turn)) {
	case BARRIER_BROKE:
		p->verdict = BARRIER_TIMED_OUT;
		return -ETIMEDOUT;
	case BARRIER_ENDED:
		return 0;
	case BARRIER_NO_ROOM:
		object_ring(&p->x->h, p->b, &limit_none);
		limit_nap(&limit_none, ROOM_NS);
		return 0;
	}
	return 0;
}

static int round_wait(struct party *p)
{
	int r = 0;

	give_way(p);
	for (;;) {
		if (barrier_look(&p->at, &p->turn, &p->verdict))
			return round_is_lost(p) ? -ESTALE : ENDED;
		if (binding_lost(p->b))
			return -ESTALE;
		if (r == -ETIMEDOUT) {
			if (round_give_up(p) < 0)
				return ENDED;
			continue;
		}
		r = round_sleep(p);
		if (r == AGAIN)
			return AGAIN;
	}
}

/* Too little room for what has to be noted before this party can be the last one. */
static int round_room(struct party *p)
{
	int r;

	object_ring(&p->x->h, p->b, p->limit);
	r = limit_nap(p->limit, ROOM_NS);
	return r < 0 ? r : AGAIN;
}

/* --- Rounds that the daemon completes --- */

/* It has come to nothing, if the daemon had not taken note of it. */
static int remote_lost(struct party *p)
{
	return barrier_out_remote(&p->turn) == BARRIER_OUT_FREE ? AGAIN : -ESTALE;
}

/* Whoever is in a round has to be let go; others go. */
static int remote_give_up(struct party *p)
{
	switch (barrier_out_remote(&p->turn)) {
	case BARRIER_OUT_FREE:
		return -ETIMEDOUT;
	case BARRIER_OUT_ASKED:
		p->away = true;
		object_ring(&p->x->h, p->b, &limit_none);
		return 0;
	case BARRIER_OUT_TOLD:
		return 0;
	}
	return 0;
}

/* Has nobody looked yet? */
static bool unseen(const struct party *p)
{
	enum barrier_cell state = barrier_cell_state(BARRIER_LOAD(p->turn.cell));

	return state == BARRIER_COME || state == BARRIER_LEAVING;
}

/*
 * What has come is to be seen before it is given up: it may be the last one, and those who have come before are told
 * that it has gone only if they have heard of it. Unless the daemon is away, or stopped.
 */
static void let_be_seen(struct party *p)
{
	struct limit seen = limit_none;

	seen.until_ns = limit_slice(&limit_none, SEEN_NS);
	object_ring(&p->x->h, p->b, &seen);
	while (thread_serial() && unseen(p) && !binding_lost(p->b) && limit_over(&seen) == 0)
		limit_nap(&seen, SEEN_LOOK_NS);
}

int party_told(struct party *p)
{
	int r = 0;

	for (;;) {
		barrier_announce(&p->at, &p->turn);
		if (barrier_look_remote(&p->turn, p->departs, &p->verdict, &p->serial))
			return p->verdict == BARRIER_AGAIN ? AGAIN : ENDED;
		if (binding_lost(p->b))
			return remote_lost(p);
		if (r == -ETIMEDOUT) {
			if (unseen(p))
				let_be_seen(p);
			if (party_is_child(p))
				return AGAIN;
			r = remote_give_up(p);
			if (r < 0)
				return r;
			continue;
		}
		r = nap(p);
		if (r == AGAIN)
			return AGAIN;
		if (unseen(p))
			object_ring(&p->x->h, p->b, p->limit);   /* though this took long */
	}
}

static int remote_wait(struct party *p)
{
	barrier_come_remote(&p->turn, p->no);
	object_want(p->b);
	if (barrier_rings(&p->at))
		object_ring(&p->x->h, p->b, p->limit);
	return party_told(p);
}

/* --- A party --- */

static int come(struct party *p)
{
	if (p->x->h.kind == KIND_DOUBLE)
		return remote_wait(p);
	switch (barrier_come(&p->at, &p->turn, p->x->h.arg, p->no)) {
	case BARRIER_OPENED:
		p->serial = true;
		p->verdict = BARRIER_PASSED;
		return ENDED;
	case BARRIER_OPENED_VETOED:
		p->serial = true;
		p->verdict = BARRIER_VETOED;
		return ENDED;
	case BARRIER_WAIT:
		return round_wait(p);
	case BARRIER_FULL:
		return round_room(p);
	case BARRIER_REMOTE:
		return remote_wait(p);
	}
	return AGAIN;
}

static bool is_inside(const struct party *p)
{
	return p->x->h.kind == KIND_DOUBLE && barrier_cell_entered(BARRIER_LOAD(p->turn.cell));
}

static int party_once(struct party *p)
{
	int r = object_bind(&p->x->h, p->limit, &p->b);

	if (r < 0)
		return r;
	p->away = p->serial = false;
	p->at = barrier_at(p->b);
	r = cell_take(p);
	if (r != 0)
		return r;
	r = come(p);
	if (party_is_child(p))
		return AGAIN;
	party_hide(p);
	if (p->turn.cell && !(r == ENDED && is_inside(p)))
		barrier_leave(&p->turn);
	return r;
}

int barrier_error(enum barrier_verdict v)
{
	switch (v) {
	case BARRIER_PASSED:
	case BARRIER_VETOED:
		return 0;
	case BARRIER_BROKEN:
		return EPIPE;
	case BARRIER_TIMED_OUT:
		return ETIMEDOUT;
	case BARRIER_STALE:
		return ESTALE;
	case BARRIER_MISMATCH:
		return EINVAL;
	case BARRIER_LEFT:
	case BARRIER_AGAIN:
		return ENOTCONN;
	}
	return EPROTO;                   /* somebody has scribbled */
}

int party_pass(struct party *p)
{
	int saved = errno, r = object_enter(&p->x->h);

	if (r < 0)
		return -r;
	do
		r = party_once(p);
	while (r == AGAIN);
	object_exit(&p->x->h);
	errno = saved;
	return r < 0 ? -r : barrier_error(p->verdict);
}

static int pass(struct dlock_barrier *x, const struct limit *limit, bool no, bool *ret_all)
{
	struct party p = { .x = x, .limit = limit, .no = no };
	int r = party_pass(&p);

	if (r == 0 && ret_all)
		*ret_all = p.verdict == BARRIER_PASSED;
	return r == 0 && p.serial ? DLOCK_SERIAL : r;
}

/* --- The calls --- */

/* Whoever sleeps through it looks again: what it sleeps on is lost. */
static void barrier_wake(struct dlock *l)
{
	for (struct binding *b = __atomic_load_n(&l->bindings, __ATOMIC_ACQUIRE); b; b = b->older)
		futex_wake_class(barrier_futex(b->word), INT_MAX, FUTEX_BITSET_MATCH_ANY);
}

int barrier_open(struct dlock_barrier **ret, const char *name, uint32_t parties, const struct dlock_attr *attr,
			enum kind kind)
{
	void *x;
	int r = handle_open(&x, sizeof(struct dlock_barrier), name, attr, kind, parties, barrier_wake);

	if (r == 0)
		*ret = x;
	return r;
}

int dlock_barrier_open(dlock_barrier_t **ret, const char *name, unsigned parties, const dlock_attr_t *attr)
{
	if (!ret || !parties || parties > PARTIES_MAX)
		return EINVAL;
	return barrier_open(ret, name, parties, attr, KIND_BARRIER);
}

int dlock_barrier_close(dlock_barrier_t *b)
{
	if (!b)
		return 0;
	int r = double_close(b);

	return r ? r : handle_close(&b->h);
}

int dlock_barrier_wait(dlock_barrier_t *b)
{
	return pass(b, &limit_none, false, NULL);
}

int dlock_barrier_clockwait(dlock_barrier_t *b, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;
	int r = object_limit(&limit, clock, abs);

	return r ? r : pass(b, &limit, false, NULL);
}

int dlock_barrier_timedwait(dlock_barrier_t *b, const struct timespec *abs)
{
	return dlock_barrier_clockwait(b, CLOCK_REALTIME, abs);
}

int dlock_barrier_vote(dlock_barrier_t *b, bool yes, bool *ret_all)
{
	return pass(b, &limit_none, !yes, ret_all);
}

/* --- Reset --- */

/* 1: the daemon completes the rounds. */
static int reset_here(struct dlock_barrier *x, const struct binding *b)
{
	struct barrier_at at = barrier_at(b);
	struct barrier_turn turn = { .word = BARRIER_LOAD(at.word) };

	turn.round = barrier_round(turn.word);
	if (!(turn.word & BARRIER_L))
		return binding_lost(b) ? 0 : 1;
	while (barrier_break(&at, &turn) == BARRIER_NO_ROOM && !binding_lost(b)) {
		object_ring(&x->h, b, &limit_none);
		limit_nap(&limit_none, ROOM_NS);
	}
	return 0;
}

/* Until the daemon has done what was asked for. */
static int reset_remote(struct dlock_barrier *x, struct binding *b)
{
	struct party p = { .x = x, .limit = &limit_none, .b = b, .at = barrier_at(b) };
	uint64_t *head = binding_account(b);
	uint16_t number = barrier_ask(head);
	int r = 0;

	object_ring(&x->h, b, &limit_none);
	while (r == 0) {
		barrier_announce(&p.at, &p.turn);
		if ((int16_t)(barrier_done(BARRIER_LOAD(head)) - number) >= 0)
			break;
		if (binding_lost(b))
			r = -ESTALE;
		else
			r = nap(&p);
	}
	party_hide(&p);
	return r == AGAIN ? 0 : r;
}

static int reset(struct dlock_barrier *b)
{
	int saved = errno, r = object_enter(&b->h);
	struct binding *at;

	if (r < 0)
		return -r;
	r = object_bind(&b->h, &limit_none, &at);
	if (r == 0)
		r = reset_here(b, at);
	if (r == 1)
		r = reset_remote(b, at);
	object_exit(&b->h);
	errno = saved;
	return -r;
}

/* And who enters, is inside or leaves. */
int dlock_barrier_reset(dlock_barrier_t *b)
{
	struct dlock_barrier *twice;
	int r = reset(b);

	if (r == 0)
		r = double_of(b, &twice);
	return r ? r : reset(twice);
}
