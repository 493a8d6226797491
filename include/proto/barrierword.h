/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A barrier in shared memory: the word of its slot, a few notes beside it, and a cell for each party.
 *
 * The word, the low half of which is the futex word:
 *
 *   bit   0     L        rounds are completed here, by whoever comes last. Clear: by the daemon, for many nodes
 *         1     W        somebody may sleep on the word
 *         2     N        of those who have come to this round somebody has voted no
 *         3-4   verdict  of the round before: enum barrier_verdict, up to BARRIER_BROKEN
 *         5-47  round    43 bits. L clear: a count of the times that the daemon has told somebody something
 *        48-63  arrived  so many have come to this round. L clear: 0
 *
 * An account of a client is a cache line, and leads to further ones: a head and seven cells, one for each of its threads
 * that is at the barrier.
 *
 *   head  0-19  next     the slot of the next line; 0: none
 *         20    MORE     there is no free cell in this line, and no next one: the daemon is to make one
 *         32-47 asked    (first line) so many resets have been asked for; L clear only
 *         48-63 done     and so many of them have been carried out
 *
 * A cell:
 *
 *   bit   0-2   state    enum barrier_cell
 *         3     NO       votes no
 *         4     OUT      has waited for long enough, and asks to be let go
 *         5     SERIAL   TOLD: it is the serial one of its round
 *         6-9   verdict  TOLD
 *        21-63  round    HERE, and TOLD in rounds that are completed here. Otherwise: which of the cell's arrivals it is
 *
 * --- Rounds that are completed here (L) ---
 *
 * Who comes says so in its cell, then counts itself by one compare-and-swap. Whoever comes last opens the round by the
 * same swap: round + 1, with the verdict, nobody arrived; so exactly one is the serial one. Whoever's time is over, or the
 * daemon for one who died, breaks it by such a swap too, and only as long as it is the same round. So each round has
 * one verdict, and that is the word's until the next round ends.
 *
 * Who has slept for longer than that must still learn it. A verdict other than "passed, all voted yes" is an
 * exception, and is noted beside the word before the next round may end, by whoever ends that one. What is not
 * noted has passed. When there is no room for a note, the daemon makes some (barrier_sweep): it writes the verdict into
 * the cells of all who are still in that round, and then takes the note away. So whoever looks reads the word, then the
 * notes, then its cell, and has the verdict. A note that comes again, from one who was stopped before it wrote it, is as true as ever.
 *
 *   one verdict      it is made by the swap that ends the round, and never changes.
 *   no round is      a cell says HERE, round, before its party is counted, and until it has the verdict. When the client
 *   left open by     dies, the daemon breaks the round of each such cell, if others have come to it and it has not ended.
 *   the dead         A party that died before it was counted has come all the same.
 *   more than there  come to the next round: the swap that counts the last one ends the round.
 *   should be
 *   no lost wake     whoever sleeps has seen W, and its own round, in the value that it sleeps on. The swap that ends
 *                    the round clears W, and who did it wakes all. It may be stopped or die before it does: the slot is on the
 *                    daemon's watch list while somebody sleeps, and the daemon wakes all of a watched word without W.
 *
 *   transition      by        from                    to                             order
 *   come            client    round r, k arrived      k + 1 arrived; N               release: its cell is there before
 *   open            client    k + 1 are all           round r + 1, passed or vetoed  acquire, release
 *   break           either    round r, k > 0          round r + 1, broken            acquire, release
 *   sleep           client    round r                 W                              relaxed
 *   note            either    note 0                  round, verdict                 release
 *   sweep           daemon    cell HERE r, noted      TOLD r, verdict                release, and before the next
 *                             note                    0                              release
 *
 * --- Rounds that are completed by the daemon ---
 *
 *   transition      by        cell from               to
 *   claim           client    FREE                    MINE                           acquire
 *   come            client    MINE                    COME, the next arrival         release; then it rings
 *   take            daemon    COME                    TAKEN                          before the daemon tells anybody of it
 *   retract         client    COME                    MINE: it has not come          acquire, release
 *   out             client    TAKEN                   TAKEN, OUT; then it rings      relaxed
 *   tell            daemon    COME, TAKEN             TOLD, the verdict; then the word's count goes up, W goes, all are woken
 *   leave           client    TOLD                    FREE                           acquire
 *
 * Whoever has just passed is likely to come again at once, and the daemon has nothing to say before all of them have. So it counts in
 * the first note, as it tells them, how many it expects, and they need not ring but for the last. It waits for that for a
 * moment only, and then looks at all cells by itself.
 *
 *   transition      by        first note              to
 *   expect          daemon    n                       n + 1: one more is told; 1, of the first of many   release
 *   expected        client    n > 0                   n - 1, after its cell says COME: it rings if that is 0, or n was   acquire, release
 *   expect no more  daemon    n                       0; then it looks at all cells  acquire, release
 *
 * A daemon that dies takes up what it finds: TAKEN that its ledger knows nothing of is COME; an arrival of which the ledger knows,
 * and the cell another, has been told.
 *
 * --- Double barriers ---
 *
 * Their rounds are completed by the daemon, also where it is alone: it has to know who is inside. A party is the same from entering to
 * leaving, and keeps its cell; so whoever dies inside, at whatever instruction, is one of whom the ledger knows.
 *
 *   transition      by        cell from               to
 *   enter           daemon    COME, TAKEN             INSIDE: the enter's round has passed; woken as above          release
 *   depart          client    INSIDE                  LEAVING; then it rings                                        acquire, release
 *   out             client    LEAVING                 LEAVING, OUT; then it rings                                   relaxed
 *   abandon         client    INSIDE                  INSIDE, OUT; then it rings: nobody waits for the rest         relaxed
 *   tell            daemon    LEAVING                 TOLD                                                          release
 *                             INSIDE                  TOLD, ENTERED; FREE, if it was abandoned                      release
 *
 * ENTERED: what broke came after it had entered. Its enter, which may have had no processor since, is told so; its leave the rest.
 */
#ifndef DLOCK_BARRIERWORD_H
#define DLOCK_BARRIERWORD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define BARRIER_L             UINT64_C(0x01)
#define BARRIER_W             UINT64_C(0x02)
#define BARRIER_N             UINT64_C(0x04)
#define BARRIER_VERDICT_SHIFT 3
#define BARRIER_VERDICT       UINT64_C(0x18)
#define BARRIER_ROUND_SHIFT   5
#define BARRIER_ROUND_BITS    43
#define BARRIER_ROUND_MAX     ((UINT64_C(1) << BARRIER_ROUND_BITS) - 1)
#define BARRIER_ONE           (UINT64_C(1) << 48)
#define BARRIER_LOCAL_MAX     65535u     /* parties of a barrier whose rounds are completed here */

#define BARRIER_CELL_STATE         UINT64_C(0x07)
#define BARRIER_CELL_NO            UINT64_C(0x08)
#define BARRIER_CELL_OUT           UINT64_C(0x10)
#define BARRIER_CELL_SERIAL        UINT64_C(0x20)
#define BARRIER_CELL_VERDICT_SHIFT 6
#define BARRIER_CELL_VERDICT       UINT64_C(0x3c0)
#define BARRIER_CELL_ENTERED       UINT64_C(0x400)
#define BARRIER_CELL_ROUND_SHIFT   21

#define BARRIER_CELLS 7u                 /* of a line; they are words 1 to 7 */

#define BARRIER_HEAD_NEXT        UINT64_C(0xfffff)
#define BARRIER_HEAD_MORE        UINT64_C(0x100000)
#define BARRIER_HEAD_ASKED_SHIFT 32
#define BARRIER_HEAD_DONE_SHIFT  48

/* Where they lie in the slot; the last word is the number of parties, for those who look. */
#define BARRIER_AT_NOTES   3u
#define BARRIER_AT_PARTIES 7u

#ifndef BARRIER_NOTES
#define BARRIER_NOTES 4u
#endif

#ifndef BARRIER_OPS                      /* the model brings its own */
#include "futex.h"
#define BARRIER_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define BARRIER_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define BARRIER_CAS(p, old, new) __atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define BARRIER_WAKE(p) futex_wake_class((uint32_t *)(p), INT_MAX, FUTEX_BITSET_MATCH_ANY)
#endif

enum barrier_verdict {
	BARRIER_PASSED,                  /* all voted yes */
	BARRIER_VETOED,                  /* passed, and somebody voted no */
	BARRIER_BROKEN,
	/* In cells only. */
	BARRIER_TIMED_OUT,               /* broken, or not taken part in, for the one who asked to be let go */
	BARRIER_STALE,                   /* nobody alive knows */
	BARRIER_MISMATCH,                /* others have come to a barrier of another number of parties */
	BARRIER_LEFT,                    /* this node leaves the cluster */
	BARRIER_AGAIN,                   /* it has come to nothing: come again */
};

enum barrier_cell {
	BARRIER_FREE,
	BARRIER_MINE,                    /* of a thread that has not come yet */
	BARRIER_HERE,                    /* in a round that is completed here, or about to be */
	BARRIER_COME,
	BARRIER_TAKEN,
	BARRIER_TOLD,
	BARRIER_INSIDE,                  /* of a double barrier: it has entered */
	BARRIER_LEAVING,                 /* ... and wants to leave */
};

/* What a slot has of a barrier; word, notes: in shared memory. */
struct barrier_at {
	uint64_t *word, *notes;
};

/* What a party knows: kept over its calls, from coming to leaving. */
struct barrier_turn {
	uint64_t word;                   /* as last seen */
	uint64_t round;                  /* that it has come to */
	uint64_t *cell;
};

static inline uint32_t *barrier_futex(uint64_t *word)
{
	return (uint32_t *)word;         /* little-endian: the low half comes first */
}

static inline uint64_t barrier_round(uint64_t w)
{
	return w >> BARRIER_ROUND_SHIFT & BARRIER_ROUND_MAX;
}

static inline uint32_t barrier_arrived(uint64_t w)
{
	return (uint32_t)(w / BARRIER_ONE);
}

static inline enum barrier_verdict barrier_before(uint64_t w)
{
	return (enum barrier_verdict)((w & BARRIER_VERDICT) >> BARRIER_VERDICT_SHIFT);
}

/* The word after a round has ended so. */
static inline uint64_t barrier_next(uint64_t w, enum barrier_verdict v)
{
	return (w & BARRIER_L) | (uint64_t)v << BARRIER_VERDICT_SHIFT |
	       ((barrier_round(w) + 1) & BARRIER_ROUND_MAX) << BARRIER_ROUND_SHIFT;
}

static inline uint64_t barrier_cell(enum barrier_cell state, uint64_t round)
{
	return state | round << BARRIER_CELL_ROUND_SHIFT;
}

static inline enum barrier_cell barrier_cell_state(uint64_t c)
{
	return (enum barrier_cell)(c & BARRIER_CELL_STATE);
}

static inline uint64_t barrier_cell_round(uint64_t c)
{
	return c >> BARRIER_CELL_ROUND_SHIFT;
}

static inline enum barrier_verdict barrier_cell_verdict(uint64_t c)
{
	return (enum barrier_verdict)((c & BARRIER_CELL_VERDICT) >> BARRIER_CELL_VERDICT_SHIFT);
}

static inline uint64_t barrier_cell_told(uint64_t c, enum barrier_verdict v, bool serial)
{
	return barrier_cell(BARRIER_TOLD, barrier_cell_round(c)) | (uint64_t)v << BARRIER_CELL_VERDICT_SHIFT |
	       (serial ? BARRIER_CELL_SERIAL : 0);
}

static inline uint16_t barrier_asked(uint64_t head)
{
	return (uint16_t)(head >> BARRIER_HEAD_ASKED_SHIFT);
}

static inline uint16_t barrier_done(uint64_t head)
{
	return (uint16_t)(head >> BARRIER_HEAD_DONE_SHIFT);
}

/* A client asks for one more reset. Returns which it is. */
static inline uint16_t barrier_ask(uint64_t *head)
{
	uint64_t h = BARRIER_LOAD(head), n;

	do {
		n = (h & ~(UINT64_C(0xffff) << BARRIER_HEAD_ASKED_SHIFT)) |
		    (uint64_t)(uint16_t)(barrier_asked(h) + 1) << BARRIER_HEAD_ASKED_SHIFT;
	} while (!BARRIER_CAS(head, &h, n));
	return barrier_asked(n);
}

/* The daemon has carried out all up to that one. */
static inline void barrier_answer(uint64_t *head, uint16_t done)
{
	uint64_t h = BARRIER_LOAD(head), n;

	do {
		n = (h & ~(UINT64_C(0xffff) << BARRIER_HEAD_DONE_SHIFT)) | (uint64_t)done << BARRIER_HEAD_DONE_SHIFT;
	} while (!BARRIER_CAS(head, &h, n));
}

/* A thread takes a free cell of its client's. */
static inline bool barrier_claim(uint64_t *cell)
{
	uint64_t c = BARRIER_LOAD(cell);

	return barrier_cell_state(c) == BARRIER_FREE && BARRIER_CAS(cell, &c, (c & ~BARRIER_CELL_STATE) | BARRIER_MINE);
}

/* And has done with it. */
static inline void barrier_leave(struct barrier_turn *t)
{
	BARRIER_STORE(t->cell, barrier_cell(BARRIER_FREE, barrier_cell_round(BARRIER_LOAD(t->cell))));
}

/* --- Rounds that are completed here --- */

/* A note is not 0: what has passed is not noted. */
static inline uint64_t barrier_note(uint64_t round, enum barrier_verdict v)
{
	return round << 2 | v;
}

/* The verdict that the word is about to lose is noted, if it is an exception. false: there is no room; the daemon makes some. */
static inline bool barrier_noted(const struct barrier_at *b, uint64_t w)
{
	uint64_t note = barrier_note((barrier_round(w) - 1) & BARRIER_ROUND_MAX, barrier_before(w));

	if (barrier_before(w) == BARRIER_PASSED)
		return true;
	for (unsigned i = 0; i < BARRIER_NOTES; i++) {
		uint64_t was = BARRIER_LOAD(&b->notes[i]);

		if (was == note || (!was && BARRIER_CAS(&b->notes[i], &was, note)) || was == note)
			return true;
	}
	return false;
}

enum barrier_come {
	BARRIER_WAIT,                    /* has come: look, sleep, look */
	BARRIER_OPENED,                  /* was the last one, and is the serial one */
	BARRIER_OPENED_VETOED,           /* the same; somebody voted no */
	BARRIER_FULL,                    /* has not come: ring, and try again */
	BARRIER_REMOTE,                  /* has not come: the daemon completes the rounds */
};

/* t->cell has been claimed, and stays so: of all but WAIT the party is not in a round afterwards. */
static inline enum barrier_come barrier_come(const struct barrier_at *b, struct barrier_turn *t, uint32_t parties, bool no)
{
	enum barrier_verdict v;

	for (;;) {
		t->word = BARRIER_LOAD(b->word);
		t->round = barrier_round(t->word);
		if (!(t->word & BARRIER_L))
			return BARRIER_REMOTE;
		BARRIER_STORE(t->cell, barrier_cell(BARRIER_HERE, t->round));
		bool last = barrier_arrived(t->word) + 1 >= parties;
		uint64_t n = (t->word | (no ? BARRIER_N : 0)) + BARRIER_ONE;

		v = n & BARRIER_N ? BARRIER_VETOED : BARRIER_PASSED;
		if (last && !barrier_noted(b, t->word)) {
			BARRIER_STORE(t->cell, barrier_cell(BARRIER_MINE, t->round));
			return BARRIER_FULL;
		}
		if (!BARRIER_CAS(b->word, &t->word, last ? barrier_next(n, v) : n))
			continue;
		if (!last)
			return BARRIER_WAIT;
		break;
	}
	if (t->word & BARRIER_W)
		BARRIER_WAKE(b->word);
	return v == BARRIER_VETOED ? BARRIER_OPENED_VETOED : BARRIER_OPENED;
}

/* Has the round ended? Then *ret is its verdict, and the party is to leave. */
static inline bool barrier_look(const struct barrier_at *b, struct barrier_turn *t, enum barrier_verdict *ret)
{
	t->word = BARRIER_LOAD(b->word);
	uint64_t ago = (barrier_round(t->word) - t->round) & BARRIER_ROUND_MAX;

	if (ago == 0)
		return false;
	if (ago == 1) {
		*ret = barrier_before(t->word);
		return true;
	}
	for (unsigned i = 0; i < BARRIER_NOTES; i++) {
		uint64_t note = BARRIER_LOAD(&b->notes[i]);

		if (note && note >> 2 == t->round) {
			*ret = (enum barrier_verdict)(note & 3);
			return true;
		}
	}
	uint64_t c = BARRIER_LOAD(t->cell);
	*ret = barrier_cell_state(c) == BARRIER_TOLD ? barrier_cell_verdict(c) : BARRIER_PASSED;
	return true;
}

enum barrier_break {
	BARRIER_BROKE,
	BARRIER_ENDED,                   /* the round has ended before, or nobody has come to it */
	BARRIER_NO_ROOM,                 /* for a note: ring, and try again */
};

/* Breaks t->round. */
static inline enum barrier_break barrier_break(const struct barrier_at *b, struct barrier_turn *t)
{
	do {
		t->word = BARRIER_LOAD(b->word);
		if (!(t->word & BARRIER_L) || barrier_round(t->word) != t->round || !barrier_arrived(t->word))
			return BARRIER_ENDED;
		if (!barrier_noted(b, t->word))
			return BARRIER_NO_ROOM;
	} while (!BARRIER_CAS(b->word, &t->word, barrier_next(t->word, BARRIER_BROKEN)));
	if (t->word & BARRIER_W)
		BARRIER_WAKE(b->word);
	return BARRIER_BROKE;
}

/*
 * The sleep is announced: after another look at what is waited for, sleep while the word is t->word. False: the word was
 * without W, so the daemon has to know (seg_watched).
 */
static inline bool barrier_announce(const struct barrier_at *b, struct barrier_turn *t)
{
	t->word = BARRIER_LOAD(b->word);
	do {
		if (t->word & BARRIER_W)
			return true;
	} while (!BARRIER_CAS(b->word, &t->word, t->word | BARRIER_W));
	t->word |= BARRIER_W;
	return false;
}

/* The daemon, of one cell of anybody's: who is still in that round is told. */
static inline void barrier_cell_settle(uint64_t *cell, uint64_t note)
{
	uint64_t c = BARRIER_LOAD(cell);

	if (barrier_cell_state(c) == BARRIER_HERE && barrier_cell_round(c) == note >> 2)
		BARRIER_CAS(cell, &c, barrier_cell_told(c, (enum barrier_verdict)(note & 3), false));
}

/* The daemon, after it has settled all cells of it. */
static inline void barrier_note_drop(uint64_t *at, uint64_t note)
{
	BARRIER_CAS(at, &note, 0);
}

/* The daemon's look at a watched word: whoever sleeps for a round that has ended is woken. Does it want to be watched further? */
static inline bool barrier_watch(const struct barrier_at *b)
{
	if (BARRIER_LOAD(b->word) & BARRIER_W)
		return true;
	BARRIER_WAKE(b->word);
	return false;
}

/* --- Rounds that are completed by the daemon --- */

/* The client comes; the cell has been claimed, and says which of its arrivals was the last. Then it rings. */
static inline void barrier_come_remote(struct barrier_turn *t, bool no)
{
	uint64_t c = BARRIER_LOAD(t->cell);

	t->round = (barrier_cell_round(c) + 1) & BARRIER_ROUND_MAX;
	BARRIER_STORE(t->cell, barrier_cell(BARRIER_COME, t->round) | (no ? BARRIER_CELL_NO : 0));
}

/* After that: is the client to ring? */
static inline bool barrier_rings(const struct barrier_at *b)
{
	uint64_t n = BARRIER_LOAD(&b->notes[0]);

	while (n && !BARRIER_CAS(&b->notes[0], &n, n - 1))
		;
	return n <= 1;
}

/* Told that it is inside, whatever has come of that since. */
static inline bool barrier_cell_entered(uint64_t c)
{
	return barrier_cell_state(c) == BARRIER_INSIDE || (barrier_cell_state(c) == BARRIER_TOLD && (c & BARRIER_CELL_ENTERED));
}

/* Has it been told? Then it is to leave the cell, unless it has entered and departs no sooner than with its next call. */
static inline bool barrier_look_remote(struct barrier_turn *t, bool departs, enum barrier_verdict *ret, bool *ret_serial)
{
	uint64_t c = BARRIER_LOAD(t->cell);

	if (barrier_cell_state(c) != BARRIER_TOLD && barrier_cell_state(c) != BARRIER_INSIDE)
		return false;
	*ret = barrier_cell_entered(c) && !departs ? BARRIER_PASSED : barrier_cell_verdict(c);
	*ret_serial = c & BARRIER_CELL_SERIAL;
	return true;
}

enum barrier_out {
	BARRIER_OUT_FREE,                /* nobody had taken note of it: it has not come, and is to leave */
	BARRIER_OUT_ASKED,               /* ring; it will be told */
	BARRIER_OUT_TOLD,                /* it has been */
};

static inline enum barrier_out barrier_out_remote(struct barrier_turn *t)
{
	uint64_t c = BARRIER_LOAD(t->cell), n;

	bool asked;

	do {
		if (barrier_cell_state(c) == BARRIER_TOLD || barrier_cell_state(c) == BARRIER_INSIDE)
			return BARRIER_OUT_TOLD;
		asked = barrier_cell_state(c) == BARRIER_TAKEN || barrier_cell_state(c) == BARRIER_LEAVING;
		n = asked ? c | BARRIER_CELL_OUT : barrier_cell(BARRIER_MINE, barrier_cell_round(c));
	} while (!BARRIER_CAS(t->cell, &c, n));
	return asked ? BARRIER_OUT_ASKED : BARRIER_OUT_FREE;
}

/* Who is inside wants to leave. Nothing happens where it has been told before. Then it rings. */
static inline void barrier_depart(struct barrier_turn *t)
{
	uint64_t c = BARRIER_LOAD(t->cell);

	while (barrier_cell_state(c) == BARRIER_INSIDE && !BARRIER_CAS(t->cell, &c, barrier_cell(BARRIER_LEAVING, barrier_cell_round(c))))
		;
}

/* Nobody will leave through this cell. Then the client rings. */
static inline void barrier_abandon(uint64_t *cell)
{
	uint64_t c = BARRIER_LOAD(cell), n;

	do {
		if (barrier_cell_state(c) == BARRIER_INSIDE)
			n = c | BARRIER_CELL_OUT;
		else if (barrier_cell_state(c) == BARRIER_TOLD)
			n = barrier_cell(BARRIER_FREE, barrier_cell_round(c));
		else
			return;
	} while (!BARRIER_CAS(cell, &c, n));
}

/* The daemon takes note. false: nobody has come there, or not any more. */
static inline bool barrier_take(uint64_t *cell, uint64_t *ret)
{
	uint64_t c = BARRIER_LOAD(cell);

	do {
		if (barrier_cell_state(c) != BARRIER_COME)
			return false;
	} while (!BARRIER_CAS(cell, &c, (c & ~BARRIER_CELL_STATE) | BARRIER_TAKEN));
	*ret = (c & ~BARRIER_CELL_STATE) | BARRIER_TAKEN;
	return true;
}

/* What breaks a round is for one who has asked to be let go what it has asked for, whoever else did. */
static inline enum barrier_verdict barrier_verdict_for(uint64_t c, enum barrier_verdict v)
{
	return v == BARRIER_BROKEN && (c & BARRIER_CELL_OUT) ? BARRIER_TIMED_OUT : v;
}

/* Is it that arrival, and has it not come to its end? */
static inline bool barrier_cell_waits(uint64_t c, uint64_t arrival)
{
	enum barrier_cell state = barrier_cell_state(c);

	return (state == BARRIER_COME || state == BARRIER_TAKEN || state == BARRIER_INSIDE || state == BARRIER_LEAVING) &&
	       barrier_cell_round(c) == arrival;
}

static inline bool barrier_cell_abandoned(uint64_t c)
{
	return barrier_cell_state(c) == BARRIER_INSIDE && (c & BARRIER_CELL_OUT);
}

/* The daemon tells that arrival. Nothing happens where another is there by now. */
static inline void barrier_tell(uint64_t *cell, uint64_t arrival, enum barrier_verdict v, bool serial)
{
	uint64_t c = BARRIER_LOAD(cell), told;

	do {
		if (!barrier_cell_waits(c, arrival))
			return;
		told = barrier_cell_told(c, barrier_verdict_for(c, v), serial);
		if (barrier_cell_abandoned(c))
			told = barrier_cell(BARRIER_FREE, arrival);
		else if (barrier_cell_state(c) == BARRIER_INSIDE)
			told |= BARRIER_CELL_ENTERED | (c & BARRIER_CELL_SERIAL);
	} while (!BARRIER_CAS(cell, &c, told));
}

/* It has entered, and stays. Nothing happens where it has been told that before. */
static inline void barrier_admit(uint64_t *cell, uint64_t arrival, bool serial)
{
	uint64_t c = BARRIER_LOAD(cell);

	do {
		if ((barrier_cell_state(c) != BARRIER_COME && barrier_cell_state(c) != BARRIER_TAKEN) || barrier_cell_round(c) != arrival)
			return;
	} while (!BARRIER_CAS(cell, &c, barrier_cell(BARRIER_INSIDE, arrival) | (serial ? BARRIER_CELL_SERIAL : 0)));
}

/* The daemon, before it tells one that it has passed: it is likely to come again. */
static inline void barrier_expect(const struct barrier_at *b, bool first)
{
	uint64_t n = BARRIER_LOAD(&b->notes[0]);

	while (!BARRIER_CAS(&b->notes[0], &n, first ? 1 : n + 1))
		;
}

/* Nobody is waited for any more: whoever comes from now on rings, and whoever has come is seen by who looks now. false: nobody was. */
static inline bool barrier_expect_none(const struct barrier_at *b)
{
	uint64_t n = BARRIER_LOAD(&b->notes[0]);

	while (n && !BARRIER_CAS(&b->notes[0], &n, 0))
		;
	return n;
}

/* The daemon, after it has told some: whoever sleeps looks at its cell. */
static inline void barrier_told(const struct barrier_at *b)
{
	uint64_t w = BARRIER_LOAD(b->word);

	while (!BARRIER_CAS(b->word, &w, barrier_next(w, BARRIER_PASSED)))
		;
	if (w & BARRIER_W)
		BARRIER_WAKE(b->word);
}

#endif
