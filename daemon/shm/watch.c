/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The watch list of a space: slots on which somebody may sleep.
 *
 * A sleeper sets its slot's bit and rings where it was clear. The slot then stays here, and its
 * bit set, until a look finds W clear. The looks come 10 ms after the bell, and every 10 ms while
 * words change; where nothing changes they grow rarer, to one in 50 ms. A word that goes from hand to
 * hand is left to itself for up to three of them (watch_busy). With an empty list there is no timer: a
 * node on which nobody waits never wakes.
 *
 * A client can set any bit, and ring, as often as it likes. So both are rationed: LOOKS_MAX slots
 * are visited at a time, and about SCAN_MAX bits are heeded per SCAN_SPAN; what is beyond waits.
 * It costs its space some promptness, and the others next to nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "../grow.h"
#include "object.h"
#include "sigbus.h"
#include "sight.h"
#include "word.h"

#define LOOK_MIN (10 * NSEC_PER_MSEC)
#define LOOK_MAX (50 * NSEC_PER_MSEC)
#define LOOKS_MAX 128
#define LOOKS_PAUSE (NSEC_PER_MSEC / 2)  /* between two parts of a longer list */
#define BUSY_MIN 64                      /* acquisitions since the last look */
#define PASSED_MAX 3
#define SCAN_MAX 512
#define SCAN_SPAN NSEC_PER_MSEC
#define RING_COST 8                      /* of a ring for nothing; one that had a reason costs much less */
#define BELL_RETRY (100 * NSEC_PER_MSEC)

static void watch_arm(struct space *s, nsec_t span)
{
	nsec_t when = loop_now(s->shm->loop) + span;

	if (!s->watch_timer.queued || when < s->watch_timer.when)
		loop_timer_set(s->shm->loop, &s->watch_timer, when);
}

static bool watch_has(const struct space *s, uint32_t slot)
{
	return s->watched[slot / 64] >> (slot % 64) & 1;
}

void watch_add(struct space *s, uint32_t slot)
{
	struct watch_entry *w;

	if (!name_is_lock(s, slot) || watch_has(s, slot))
		return;
	w = grown(s->watch, s->n_watch, &s->watch_cap, 16, sizeof *w);
	if (!w) {
		s->rescan = true;                /* the bit stays set: it is found again */
		watch_arm(s, LOOK_MAX);
		return;
	}
	s->watch = w;
	s->scan_found = true;
	s->watch[s->n_watch++] = (struct watch_entry){ slot, 0, LOCK_LOAD(&seg_slot(s->base, slot)->word) };
	s->watched[slot / 64] |= UINT64_C(1) << (slot % 64);
	FAULT_AROUND(seg_watched_set(s->base, slot, true));
	sight_lock(s, slot);
	s->watch_span = LOOK_MIN;
	watch_arm(s, LOOK_MIN);
	hint_ring(s->shm, s, slot);
	hint_ring_readers(s->shm, s, slot);
	shm_tell(s->shm, "contended", s, slot, 0, 0, NULL);
}

/*
 * It may have ended between announcing itself and ringing. Whoever comes later rings himself (segment.h);
 * this only brings the first look forward.
 */
void watch_owed(struct space *s, uint32_t slot)
{
	uint64_t one = __atomic_load_n(&seg_level1(s->base, SEG_WATCH)[slot / 64], __ATOMIC_SEQ_CST);

	if ((one >> (slot % 64) & 1) || (LOCK_LOAD(&seg_slot(s->base, slot)->word) & LOCK_W))
		watch_add(s, slot);
}

/*
 * Whoever asks says what for, and rings after that; who sleeps has. A bit may be left over from one who has been served, or has rung for
 * something else: asked for on his behalf, the lease would be claimed whole, and hold up those who read on other nodes.
 */
static bool want_is_said(struct space *s, uint32_t slot)
{
	return READ_LOAD(&seg_slot(s->base, slot)->wants) & WANTS || name_awaited(s, slot);
}

static void want_tokens(struct space *s, uint32_t slot)
{
	uint64_t w;

	if (object_is(s, slot)) {
		s->scan_found = true;
		object_ring(s, slot);
		return;
	}
	if (!name_is_lock(s, slot))
		return;
	elect_ring(s, slot);
	if (name_revoked(name_at(s, slot))) {
		yield_look(s, slot);     /* who waits here is asked for with that */
		s->scan_found |= !name_revoked(name_at(s, slot));
		return;
	}
	w = LOCK_LOAD(&seg_slot(s->base, slot)->word);
	if (lock_is_share(w) && !(READ_LOAD(&seg_slot(s->base, slot)->wants) & (WANTS_EXCLUSIVE | WANTS_UPGRADE)))
		return;                  /* whoever only reads has all he needs */
	if (!lock_is_free(w) || (w & LOCK_L))
		return;                  /* whoever owns it now: the next who needs tokens asks again */
	if ((name_at(s, slot)->state == NAME_IDLE || name_at(s, slot)->state == NAME_RETURNED) && !want_is_said(s, slot))
		return;
	if (name_at(s, slot)->state == NAME_IDLE || name_at(s, slot)->state == NAME_TRIED || name_at(s, slot)->state == NAME_LEASED) {
		s->scan_found = true;
		s->shm->ops.want(s->shm->ops.arg, s, slot);
	} else if (name_claims(name_at(s, slot)) && __atomic_load_n(&seg_slot(s->base, slot)->ranked, __ATOMIC_ACQUIRE)) {
		s->scan_found = true;
		s->shm->ops.rank(s->shm->ops.arg, s, slot);
	} else if (name_at(s, slot)->state == NAME_RETURNED && !name_at(s, slot)->count) {
		name_at(s, slot)->revoked = 1;   /* as soon as the core has forgotten it */
	}
}

/*
 * Closed, and somebody sleeps on it: the grant wakes whose turn it is. To be woken before would cost him his place in the
 * queue, and the rank by which that is found: nobody has taken the word from under him, and yet he would be an heir.
 */
static bool watch_closed(const struct space *s, uint32_t slot)
{
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, slot)->word);

	return lock_is_free(w) && !(w & (LOCK_L | LOCK_MODE)) && name_awaited(s, slot);
}

/* Y is another node's turn, and none has asked: a client has written it. Nobody could take the word, and no grant would come. */
static void watch_mend(struct space *s, uint32_t slot)
{
	uint64_t *word = &seg_slot(s->base, slot)->word;

	if ((LOCK_LOAD(word) & LOCK_Y) && !name_revoked(name_at(s, slot)))
		FAULT_AROUND(__atomic_fetch_and(word, ~LOCK_Y, __ATOMIC_RELAXED));
}

/*
 * Before the slot is dropped it says so, and is looked at once more: see segment.h. By a whole look:
 * one may have gone to sleep, and another, stopped since, have taken W for nobody's and not woken all.
 */
static bool watch_keep(struct space *s, struct watch_entry *e)
{
	uint64_t *word = &seg_slot(s->base, e->slot)->word;

	watch_mend(s, e->slot);
	if (!watch_closed(s, e->slot) && !lock_look(word)) {
		FAULT_AROUND(seg_watched_set(s->base, e->slot, false));
		FAULT_AROUND(seg_bit_clear(s->base, SEG_WATCH, e->slot));
		if (!lock_look(word)) {
			name_unclaim(s, e->slot);
			return false;
		}
		seg_bit_set(s->base, SEG_WATCH, e->slot);
	}
	if (!seg_watched(s->base, e->slot))
		FAULT_AROUND(seg_watched_set(s->base, e->slot, true));
	want_tokens(s, e->slot);
	return true;
}

static void watch_drop(struct space *s, uint32_t at)
{
	uint32_t slot = s->watch[at].slot;

	s->watched[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
	s->watch[at] = s->watch[--s->n_watch];
}

/*
 * A lock that goes from hand to hand needs no help: whoever was woken and does not run is made room for
 * by the releases (LOCK_PRESS), and then S is set. A look would only wake another, who finds an heir
 * before him and loses his place in the queue. Bounded, since the words are what clients write.
 */
static bool watch_busy(struct watch_entry *e, uint64_t w)
{
	bool busy = (w & LOCK_W) && (w & LOCK_L) && !(w & LOCK_S) &&
		    lock_count(w) - lock_count(e->word) >= BUSY_MIN && e->passed < PASSED_MAX;

	e->passed = busy ? e->passed + 1 : 0;
	return busy;
}

/*
 * The last waiter takes the lock with W set, since he cannot know that he is the last; so does the first
 * one ever, who waited for the daemon only. While such a one holds it and nobody sleeps, nothing is owed:
 * W is taken back, and the look that follows wakes whoever went to sleep in between, and drops the slot.
 */
static void watch_settle(uint64_t *word, uint64_t w)
{
	if (!lock_is_free(w) && (w & LOCK_W) && futex_sleepers(lock_futex(word), (uint32_t)w) == 0)
		LOCK_CAS(word, &w, w & ~(LOCK_W | LOCK_K | LOCK_H | LOCK_S), __ATOMIC_RELAXED);
}

/* Returns whether the word has moved since the last look. */
static bool watch_one(struct space *s)
{
	struct watch_entry *e = &s->watch[s->watch_at];
	uint64_t w = LOCK_LOAD(&seg_slot(s->base, e->slot)->word);
	bool moved = (w ^ e->word) & (LOCK_COUNT | LOCK_OWNER);
	bool busy = watch_busy(e, w);

	if (!moved && (w & LOCK_W) && readers_pass_over(s, e->slot, w))
		w = LOCK_LOAD(&seg_slot(s->base, e->slot)->word);
	if (!moved)
		watch_settle(&seg_slot(s->base, e->slot)->word, w);
	sight_lock(s, e->slot);
	hint_ring(s->shm, s, e->slot);           /* also of a word that has not moved: who waits may be new */
	e->word = w;
	if (busy || watch_keep(s, e))
		s->watch_at++;
	else
		watch_drop(s, s->watch_at);
	return moved;
}

/* Part of a round through the list. */
static void watch_round(struct space *s)
{
	if (!s->round_left) {
		s->round_left = s->n_watch;
		s->round_moved = false;
	}
	for (unsigned n = 0; n < LOOKS_MAX && s->round_left && s->n_watch; s->round_left--) {
		if (s->watch_at >= s->n_watch)
			s->watch_at = 0;
		n += 1 + readers_cost(s, s->watch[s->watch_at].slot);
		if (name_is_lock(s, s->watch[s->watch_at].slot))
			s->round_moved |= watch_one(s);
		else
			watch_drop(s, s->watch_at);      /* its memory may be gone, and is not to be touched */
	}
	if (!s->n_watch)
		s->round_left = 0;
}

static void watch_look(void *arg)
{
	struct space *s = arg;

	if (s->rescan) {
		s->rescan = false;
		watch_scan_all(s);
	}
	watch_round(s);
	if (sigbus_hit(s->base)) {
		space_break(s, "a client truncated or punched its shared memory");
		return;
	}
	if (s->round_left) {
		watch_arm(s, LOOKS_PAUSE);
		return;
	}
	s->watch_span = s->round_moved ? LOOK_MIN : s->watch_span * 2 < LOOK_MAX ? s->watch_span * 2 : LOOK_MAX;
	if (s->n_watch)
		watch_arm(s, s->watch_span);
}

/* --- the bell --- */

static void watch_bell(void *arg, const void *data, ssize_t n);

/* Nobody listens until the ration is there again; then everything is looked through. */
static void bell_mute(struct space *s)
{
	hatches_end(s);
	if (!s->bell_read)
		return;
	loop_read_stop(s->bell_read);
	s->bell_read = NULL;
	loop_timer_set(s->shm->loop, &s->bell_timer, s->scan_since + SCAN_SPAN);
}

static void bell_again(void *arg)
{
	struct space *s = arg;

	if (loop_read_start(s->shm->loop, s->bell, 512, watch_bell, s, &s->bell_read) < 0)
		loop_timer_set(s->shm->loop, &s->bell_timer, loop_now(s->shm->loop) + BELL_RETRY);
	watch_scan(s);
}

static void scan_spend(struct space *s, unsigned n)
{
	nsec_t now = loop_now(s->shm->loop);

	if (now >= s->scan_since + SCAN_SPAN) {
		s->scan_since = now;
		s->scan_left = SCAN_MAX;
	}
	s->scan_left -= n < s->scan_left ? n : s->scan_left;
}

static void scan_word(struct space *s, enum seg_bits which, uint32_t i)
{
	uint64_t *one = &seg_level1(s->base, which)[i], bits;

	bits = which == SEG_WANT ? __atomic_exchange_n(one, 0, __ATOMIC_SEQ_CST)
				 : __atomic_load_n(one, __ATOMIC_SEQ_CST) & ~s->watched[i];
	scan_spend(s, 1 + (unsigned)__builtin_popcountll(bits));
	for (; bits; bits &= bits - 1) {
		uint32_t slot = i * 64 + (uint32_t)__builtin_ctzll(bits);

		scan_spend(s, readers_cost(s, slot));
		if (which == SEG_WANT)
			want_tokens(s, slot);
		else
			watch_add(s, slot);
	}
}

/* One word of level 2, as far as the ration goes: each bit is cleared before what it stands for is read. */
static void scan_words(struct space *s, enum seg_bits which, uint32_t i)
{
	uint64_t *two = &seg_level2(s->base, which)[i];

	for (uint64_t bits = __atomic_load_n(two, __ATOMIC_RELAXED); bits && s->scan_left; bits &= bits - 1) {
		__atomic_fetch_and(two, ~(bits & -bits), __ATOMIC_SEQ_CST);
		scan_word(s, which, i * 64 + (uint32_t)__builtin_ctzll(bits));
	}
}

bool watch_scan(struct space *s)
{
	unsigned heard;

	s->scan_found = hatch_bell(s, &heard);   /* which also takes the ring back */
	scan_spend(s, 1 + heard);
	for (int which = SEG_BITS; which-- > 0;)
		for (uint32_t i = 0; i < SEG_L2_WORDS && s->scan_left; i++)
			scan_words(s, which, i);
	if (!s->scan_found)
		scan_spend(s, RING_COST);
	if (sigbus_hit(s->base))
		space_break(s, "a client truncated or punched its shared memory");
	else if (!s->scan_left)
		bell_mute(s);
	return s->scan_found;
}

/*
 * Whatever the second level says, as far as there are names: what was never allocated is not
 * touched. What is set is put on the second level again, and so waits for its turn.
 */
void watch_scan_all(struct space *s)
{
	for (uint32_t i = 0; (i = table_next(&s->names, i));) {
		uint32_t word = i / 64;

		for (int which = SEG_BITS; which-- > 0;)
			if (__atomic_load_n(&seg_level1(s->base, which)[word], __ATOMIC_SEQ_CST))
				__atomic_fetch_or(&seg_level2(s->base, which)[word / 64], UINT64_C(1) << (word % 64),
						  __ATOMIC_SEQ_CST);
		i = word * 64 + 63;
	}
	watch_scan(s);
}

static void watch_bell(void *arg, const void *data, ssize_t n)
{
	struct space *s = arg;

	(void)data;
	if (n <= 0)
		space_break(s, "its bell cannot be read any more");
	else if (watch_scan(s) && s->bell_read)
		hatches_hot(s);
}

int watch_start(struct space *s)
{
	loop_timer_init(&s->watch_timer, watch_look, s);
	loop_timer_init(&s->bell_timer, bell_again, s);
	s->watch_span = LOOK_MIN;
	return loop_read_start(s->shm->loop, s->bell, 512, watch_bell, s, &s->bell_read);
}

void watch_stop(struct space *s)
{
	hatches_end(s);
	if (s->sweep_timer.fn)
		loop_timer_cancel(s->shm->loop, &s->sweep_timer);
	loop_read_stop(s->bell_read);
	s->bell_read = NULL;
	if (s->watch_timer.fn) {
		loop_timer_cancel(s->shm->loop, &s->watch_timer);
		loop_timer_cancel(s->shm->loop, &s->bell_timer);
	}
}
