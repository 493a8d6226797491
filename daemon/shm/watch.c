/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The watch list of a space: slots on which somebody may sleep.
 *
 * A sleeper sets its slot's bit and rings where it was clear. The slot then stays here, and its
 * bit set, until a look finds W clear. The looks come 10 ms after the bell, and every 10 ms while
 * words change; where nothing changes they grow rarer, to one in 50 ms. With an empty list there
 * is no timer: a node on which nobody waits never wakes.
 *
 * A client can set any bit as often as it likes: per look at most LOOKS_MAX slots are visited, so
 * that it costs its space some promptness and the node next to nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "shm.h"
#include "sigbus.h"
#include "word.h"

#define LOOK_MIN (10 * NSEC_PER_MSEC)
#define LOOK_MAX (50 * NSEC_PER_MSEC)
#define LOOKS_MAX 4096

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
	if (!name_is(s, slot) || watch_has(s, slot))
		return;
	if (s->n_watch == s->watch_cap) {
		uint32_t cap = s->watch_cap ? s->watch_cap * 2 : 16;
		struct watch_entry *w = realloc(s->watch, cap * sizeof *w);

		if (!w) {
			s->rescan = true;        /* the bit stays set: it is found again */
			watch_arm(s, LOOK_MAX);
			return;
		}
		s->watch = w;
		s->watch_cap = cap;
	}
	s->watch[s->n_watch++] = (struct watch_entry){ slot, 0 };
	s->watched[slot / 64] |= UINT64_C(1) << (slot % 64);
	s->watch_span = LOOK_MIN;
	watch_arm(s, LOOK_MIN);
	hint_ring(s->shm, s, slot);
	shm_tell(s->shm, "contended", s, slot, 0, 0, NULL);
}

static void want_tokens(struct space *s, uint32_t slot)
{
	uint64_t w;

	if (!name_is(s, slot))
		return;
	w = LOCK_LOAD(&seg_slot(s->base, slot)->word);
	if (!lock_is_free(w) || (w & LOCK_L))
		return;                  /* whoever owns it now: the next who needs tokens asks again */
	if (name_at(s, slot)->state == NAME_IDLE || name_at(s, slot)->state == NAME_LEASED)
		s->shm->ops.want(s->shm->ops.arg, s, slot);
}

/* Before the slot is dropped its bit is cleared, and W looked at once more: see segment.h. */
static bool watch_keep(struct space *s, struct watch_entry *e)
{
	uint64_t *word = &seg_slot(s->base, e->slot)->word;

	if (!name_is(s, e->slot))
		return false;
	if (!lock_look(word)) {
		FAULT_AROUND(seg_bit_clear(s->base, SEG_WATCH, e->slot));
		if (!(__atomic_load_n(word, __ATOMIC_SEQ_CST) & LOCK_W))
			return false;
		seg_bit_set(s->base, SEG_WATCH, e->slot);
	}
	want_tokens(s, e->slot);
	return true;
}

static void watch_drop(struct space *s, uint32_t at)
{
	uint32_t slot = s->watch[at].slot;

	s->watched[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
	s->watch[at] = s->watch[--s->n_watch];
}

static void watch_look(void *arg)
{
	struct space *s = arg;
	uint32_t n = s->n_watch < LOOKS_MAX ? s->n_watch : LOOKS_MAX;
	bool moved = false;

	if (s->rescan) {
		s->rescan = false;
		watch_scan_all(s);
	}
	while (n-- && s->n_watch && !s->broken) {
		struct watch_entry *e;
		uint64_t w;

		if (s->watch_at >= s->n_watch)
			s->watch_at = 0;
		e = &s->watch[s->watch_at];
		w = LOCK_LOAD(&seg_slot(s->base, e->slot)->word);
		if ((w ^ e->word) & (LOCK_COUNT | LOCK_OWNER)) {
			moved = true;
			hint_ring(s->shm, s, e->slot);
		}
		e->word = w;
		if (watch_keep(s, e))
			s->watch_at++;
		else
			watch_drop(s, s->watch_at);
	}
	if (sigbus_hit(s->base)) {
		space_break(s, "a client truncated or punched its shared memory");
		return;
	}
	s->watch_span = moved ? LOOK_MIN : s->watch_span * 2 < LOOK_MAX ? s->watch_span * 2 : LOOK_MAX;
	if (s->n_watch)
		watch_arm(s, s->watch_span);
}

static void scan_word(struct space *s, enum seg_bits which, uint32_t i)
{
	uint64_t *one = &seg_level1(s->base, which)[i], bits;

	bits = which == SEG_WANT ? __atomic_exchange_n(one, 0, __ATOMIC_SEQ_CST)
				 : __atomic_load_n(one, __ATOMIC_SEQ_CST) & ~s->watched[i];
	for (; bits && !s->broken; bits &= bits - 1) {
		uint32_t slot = i * 64 + (uint32_t)__builtin_ctzll(bits);

		if (which == SEG_WANT)
			want_tokens(s, slot);
		else
			watch_add(s, slot);
	}
}

void watch_scan(struct space *s)
{
	for (int which = SEG_BITS; which-- > 0;)
		for (uint32_t i = 0; i < SEG_L2_WORDS; i++) {
			uint64_t *two = &seg_level2(s->base, which)[i], bits;

			if (!__atomic_load_n(two, __ATOMIC_RELAXED))
				continue;
			bits = __atomic_exchange_n(two, 0, __ATOMIC_SEQ_CST);
			for (; bits; bits &= bits - 1)
				scan_word(s, which, i * 64 + (uint32_t)__builtin_ctzll(bits));
		}
	if (sigbus_hit(s->base))
		space_break(s, "a client truncated or punched its shared memory");
}

/* Only as far as there are names: what was never allocated is not touched. */
void watch_scan_all(struct space *s)
{
	for (uint32_t i = 0; (i = table_next(&s->names, i));) {
		uint32_t word = i / 64;

		for (int which = SEG_BITS; which-- > 0;)
			scan_word(s, which, word);
		i = word * 64 + 63;
	}
}

static void watch_bell(void *arg, const void *data, ssize_t n)
{
	struct space *s = arg;

	(void)data;
	if (n > 0 && !s->broken)
		watch_scan(s);
	else if (n <= 0)
		space_break(s, "its bell cannot be read any more");
}

int watch_start(struct space *s)
{
	loop_timer_init(&s->watch_timer, watch_look, s);
	s->watch_span = LOOK_MIN;
	return loop_read_start(s->shm->loop, s->bell, 512, watch_bell, s, &s->bell_read);
}

void watch_stop(struct space *s)
{
	loop_read_stop(s->bell_read);
	s->bell_read = NULL;
	if (s->watch_timer.fn)
		loop_timer_cancel(s->shm->loop, &s->watch_timer);
}
