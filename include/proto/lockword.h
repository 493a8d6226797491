/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock word: 64 bits in shared memory, the low half of which is the futex word.
 *
 *   bits  0-15  owner    client index, 0: free
 *        16     R        readers may be inside without the word saying who (readers.h)
 *        17     X        the owner is inside, alone. Without it he only keeps others away: until the readers
 *                        have left, or while he becomes one of them
 *        18     W        somebody may sleep on the word
 *        19     K        a waiter has been woken and has not run yet: no need to wake another
 *        20     H        there is an heir: the next in line sleeps apart from the others
 *        21     S        forced hand-over: while free, only the one whose turn it is may take it
 *        22     Y        yield: it is another node's turn. Nobody takes the word but one who was woken for
 *                        it, once (K); its release goes to the daemon
 *        23     D        the last owner died; a robust taker is told until somebody mends it
 *        24-63  count    of acquisitions, 40 bits; its top bit (63) is L, "leased"
 *
 * The daemon opens the word by giving it a range of n tokens: count = 2^40 - n, so that L is set.
 * Each acquisition adds one. The n-th carries out of the word, L is clear, and the fast path is
 * closed until the daemon has given the next range. A word of zeroes is free and closed, so
 * memory that nobody prepared can never be taken. The token of a hold is bias + count, where a count
 * of 0 stands for 2^40, and the daemon changes bias only while the word is free and closed.
 *
 * owner, R, X and count together are the identity of a hold. A release is a compare-and-swap from
 * that identity: after a forced release or a lapse it fails, and can never free the next owner. But
 * counts come again in the next range: whoever takes a hold away from a client that lives on must
 * give the word only counts above that hold's for as long as the client may have it open.
 *
 * What must hold, and who keeps it (tests/model steps these very functions through every
 * interleaving of three clients and the daemon, with a death or a stop at any step):
 *
 *   exclusion     the word is taken only by a compare-and-swap from "free, leased".
 *   W             whoever sleeps has seen W set in the value it sleeps on. W is cleared only by
 *                 one who found nobody asleep, and who then wakes everybody: one may have gone to
 *                 sleep in between.
 *   no lost wake  a release with W and without K sets K and wakes one. A woken waiter clears K by
 *                 its next step, whether it takes the word, sleeps again or leaves; when it leaves
 *                 and the word is free it wakes the next (lock_leave). A wake that reached nobody
 *                 takes K back.
 *   the daemon    a sleeper makes sure that the slot is on the daemon's watch list. Every 10 to
 *                 50 ms the daemon looks (lock_look): free with W means wake one more, K on a held
 *                 word is cleared. (Not while the word is closed: the grant wakes.) So a stopped or killed waker, waiter or heir holds up nobody
 *                 longer than that, and neither needs to leave a note.
 *   fairness      a woken waiter that finds the word taken again becomes the heir: it no longer
 *                 goes to the end of the queue, nobody behind it is woken, and once it has been
 *                 heir for LOCK_FORCE_NS it sets S. Where it gets no processor to do that, a
 *                 releaser that has seen K for so long does (LOCK_PRESS), and sleeps itself when it
 *                 comes back. So the queue is served in order, one at least per LOCK_FORCE_NS and
 *                 hold, while newcomers take the word in between. (Until a wake reaches nobody:
 *                 whoever takes K back, or wakes all, mixes the order.)
 *   R             is set by an owner who lets readers in, and cleared by one who has seen all of them
 *                 leave. A name that nobody reads never has it, so an exclusive taker who finds it clear needs
 *                 to ask for no readers. One who finds it set takes the word without X, waits until the
 *                 readers have left, and then enters (lock_enter).
 *   tokens        readers have the number that the count has reached when they come. So whoever
 *                 enters and leaves R set goes on by one more than his own number, and a reader's is above that.
 *   H             is a hint. An heir sleeps in the class LOCK_CLASS_HEIR; a release with H wakes
 *                 that class, one without H wakes any. A lost H costs order, never a wake-up.
 *
 *   transition         by        from                       to                       order
 *   take               client    free L !Y !S               owner, count + 1; !R: X  acquire
 *                                or S: heir; woken if !H    woken: !K, !S if !H; heir: !K !H !S
 *                                or Y && K: heir, woken
 *                                or he goes before the queue (upgrade)
 *   enter              client    identity of the hold, !X   X; R: count + 1          seq_cst
 *                                                           nobody reads any more, or no token more: !R
 *   release            client    identity of the hold       free; W && !K && !Y: K   release
 *                                                           press, W && K: S
 *                                                           readers come in: R; X, L: count + 1
 *   sleep              client    any                        W (woken: !K, heir: H, S) relaxed
 *   leave              client    any                        as sleep; free && W, and  relaxed
 *                                                           not Y without K: K
 *   nobody asleep      client    K                          !K; if free !W           relaxed
 *   mend (consistent)  client    identity of the hold, D    !D                       relaxed
 *   grant              daemon    free !L                    count = 2^40 - n, !K !H !S !Y; W: K  release
 *                                                           R: count + 1
 *   share              daemon    free !L                    R, count = 1, !K !H !S !Y; wakes all  release
 *   lower              daemon    free                       count = 0, !Y            acquire
 *   close              daemon    free !R; no readers: Y !K  count = 0, !Y !R         acquire
 *   yield              daemon    held, R                    Y, !K                    seq_cst
 *   promise            daemon    free L K                   Y                        relaxed
 *   lapse              daemon    any                        free, count = 0, only W stays  acquire
 *   death              daemon    owner                      free; X: D; W: K         release
 *   pass over          daemon    owner, !X                  free; he reads: R; W && !Y: K  release
 *   look               daemon    W, not free with Y         free: K, !H !S; held: !K relaxed
 *   settle             daemon    held, W, nobody asleep     !W !K !H !S; then a look       relaxed
 */
#ifndef DLOCK_LOCKWORD_H
#define DLOCK_LOCKWORD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCK_OWNER      UINT64_C(0x000000000000ffff)
#define LOCK_MODE       UINT64_C(0x0000000000030000)
#define LOCK_R          UINT64_C(0x0000000000010000)
#define LOCK_EXCLUSIVE  UINT64_C(0x0000000000020000)     /* X */
#define LOCK_W          UINT64_C(0x0000000000040000)
#define LOCK_K          UINT64_C(0x0000000000080000)
#define LOCK_H          UINT64_C(0x0000000000100000)
#define LOCK_S          UINT64_C(0x0000000000200000)
#define LOCK_Y          UINT64_C(0x0000000000400000)
#define LOCK_D          UINT64_C(0x0000000000800000)
#define LOCK_ONE        UINT64_C(0x0000000001000000)
#define LOCK_COUNT      UINT64_C(0xffffffffff000000)
#define LOCK_L          UINT64_C(0x8000000000000000)
#define LOCK_COUNT_SHIFT 24
#define LOCK_COUNT_BITS  40

#define LOCK_IDENTITY   (LOCK_OWNER | LOCK_MODE | LOCK_COUNT)

/* What sends a taker the long way. Robust handles add LOCK_D. */
#define LOCK_SLOW       (LOCK_OWNER | LOCK_MODE | LOCK_S | LOCK_Y | LOCK_L)

/*
 * Where the node has only a share of the lock, as other nodes have, the word is closed but for readers: R with a count of 1, and
 * nobody can own it.
 */
#define LOCK_SHARE      (LOCK_R | LOCK_ONE)

/* Futex bitset classes. */
#define LOCK_CLASS_WAITER 1u
#define LOCK_CLASS_HEIR   2u
#define LOCK_CLASS_ANY    3u

#define LOCK_FORCE_NS 750000u    /* an heir waits so long at most before newcomers have to stand back */

#ifndef LOCK_OPS                 /* the model brings its own */
#include "futex.h"
#define LOCK_LOAD(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define LOCK_CAS(p, old, new, order)                                                           \
	__atomic_compare_exchange_n((p), (old), (new), false, (order), __ATOMIC_RELAXED)
#define LOCK_WAKE(p, n, class) futex_wake_class(lock_futex(p), (n), (class))
#endif
#ifndef LOCK_WAKE_NEXT           /* one of them, whose turn it is (ranked.h) */
#define LOCK_WAKE_NEXT(p, class) LOCK_WAKE((p), 1, (class))
#endif

static inline uint32_t *lock_futex(uint64_t *word)
{
	return (uint32_t *)word;         /* little-endian: the low half comes first */
}

static inline bool lock_is_free(uint64_t w)
{
	return !(w & LOCK_OWNER);
}

static inline uint64_t lock_count(uint64_t w)
{
	return w >> LOCK_COUNT_SHIFT;
}

/* May a reader come in? slow: LOCK_SLOW, with D for robust handles. */
static inline bool lock_may_read(uint64_t w, uint64_t slow)
{
	return (w & slow) == (LOCK_L | LOCK_R) || (w & (slow | LOCK_COUNT)) == LOCK_SHARE;
}

static inline bool lock_is_share(uint64_t w)
{
	return (w & (LOCK_OWNER | LOCK_MODE | LOCK_COUNT)) == LOCK_SHARE;
}

/* The count of a fresh range of n tokens, in place. n: 1 .. 2^39. */
static inline uint64_t lock_range_word(uint64_t n)
{
	return (UINT64_MAX - n + 1) << LOCK_COUNT_SHIFT;
}

/* How many of a range of n the word has used up; n too where the word says what cannot be. */
static inline uint64_t lock_range_used(uint64_t w, uint64_t n)
{
	uint64_t left = ((UINT64_C(1) << LOCK_COUNT_BITS) - lock_count(w)) &
			((UINT64_C(1) << LOCK_COUNT_BITS) - 1);

	return left <= n ? n - left : n;
}

/* A waiter's private state, from its first turn to taking or leaving. */
struct lock_waiter {
	uint64_t me;             /* owner to set, and X unless readers are to be let in */
	bool first;              /* goes before the queue */
	bool woken;              /* the last sleep ended by a wake: K may be mine */
	bool heir;
	bool force;              /* an heir for LOCK_FORCE_NS already */
};

static inline bool lock_may_take(uint64_t w, const struct lock_waiter *t)
{
	if (t->first)
		return lock_is_free(w) && (w & LOCK_L);
	return lock_is_free(w) && (w & LOCK_L) && (!(w & LOCK_Y) || ((w & LOCK_K) && (t->woken || t->heir))) &&
	       (!(w & LOCK_S) || t->heir || (t->woken && !(w & LOCK_H)));
}

static inline uint64_t lock_taken(uint64_t w, const struct lock_waiter *t)
{
	if (t->heir)
		w &= ~(LOCK_K | LOCK_H | LOCK_S);
	else if (t->woken)
		w &= w & LOCK_H ? ~LOCK_K : ~(LOCK_K | LOCK_S);
	return w + LOCK_ONE + (w & LOCK_R ? t->me & ~LOCK_EXCLUSIVE : t->me);
}

/*
 * The word that a waiter sleeps on. Only one that was woken, and so stood first, becomes heir;
 * whether it did shows in H of the difference.
 */
static inline uint64_t lock_slept(uint64_t w, const struct lock_waiter *t)
{
	w |= LOCK_W;
	if (t->heir || (t->woken && !(w & LOCK_H)))
		w |= LOCK_H;
	if (t->heir && t->force)
		w |= LOCK_S;
	if (t->woken || t->heir)         /* while there is an heir, K is his */
		w &= ~LOCK_K;
	return w;
}

enum lock_turn {
	LOCK_TAKEN,              /* *ret_word is the word as taken */
	LOCK_SLEEP,              /* sleep while the word is *ret_word, in class lock_class() */
};

static inline unsigned lock_class(const struct lock_waiter *t)
{
	return t->heir ? LOCK_CLASS_HEIR : LOCK_CLASS_WAITER;
}

/*
 * One turn of a waiter: takes the word, or announces the sleep. After LOCK_SLEEP the caller puts
 * the slot on the watch list, sleeps, and sets woken to whether the sleep ended by a wake.
 */
static inline enum lock_turn lock_turn(uint64_t *word, struct lock_waiter *t, uint64_t *ret_word)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n;

		if (lock_may_take(w, t)) {
			n = lock_taken(w, t);
			if (!LOCK_CAS(word, &w, n, __ATOMIC_ACQUIRE))
				continue;
			*ret_word = n;
			return LOCK_TAKEN;
		}
		n = lock_slept(w, t);
		if (n != w && !LOCK_CAS(word, &w, n, __ATOMIC_RELAXED))
			continue;
		if (t->woken && !(w & LOCK_H))
			t->heir = true;
		t->woken = false;
		*ret_word = n;
		return LOCK_SLEEP;
	}
}

/* A wake reached nobody: take K back; where nobody sleeps on a free word, W too. */
static inline void lock_nobody(uint64_t *word)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n;

		if (!(w & LOCK_K) || (w & LOCK_H))
			return;          /* somebody ran; or an heir is awake, and clears K itself */
		n = w & ~(LOCK_K | LOCK_S | (lock_is_free(w) ? LOCK_W : 0));
		if (!LOCK_CAS(word, &w, n, __ATOMIC_RELAXED))
			continue;
		if (lock_is_free(w))
			LOCK_WAKE(word, INT_MAX, LOCK_CLASS_ANY);
		return;
	}
}

/* The duty of whoever has just set K on a word that was w. */
static inline void lock_wake(uint64_t *word, uint64_t w)
{
	if (LOCK_WAKE_NEXT(word, w & LOCK_H ? LOCK_CLASS_HEIR : LOCK_CLASS_ANY) == 0)
		lock_nobody(word);
}

enum lock_how {
	LOCK_DIED = 1,           /* the owner ends without having meant to: leave D behind */
	LOCK_PRESS = 2,          /* whoever was woken has not run for LOCK_FORCE_NS: it is his turn */
	LOCK_READERS = 4,           /* readers may come in; the owner is one of them by now */
};

/* Keeps R: the readers' part of a word that nobody owns. */
static inline uint64_t lock_freed(uint64_t w, unsigned how)
{
	uint64_t n = w & ~(LOCK_OWNER | LOCK_EXCLUSIVE);

	if ((how & LOCK_DIED) && (w & LOCK_EXCLUSIVE))
		n |= LOCK_D;
	if (how & LOCK_READERS)
		n = (n | LOCK_R) + ((w & LOCK_EXCLUSIVE) && (w & LOCK_L) ? LOCK_ONE : 0);
	return n;
}

/* Releases the hold; false: it was lost before, and nothing is released. */
static inline bool lock_release(uint64_t *word, uint64_t held, unsigned how)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n;

		if ((w ^ held) & LOCK_IDENTITY)
			return false;
		n = lock_freed(w, how);
		if ((how & LOCK_PRESS) && (w & LOCK_W) && (w & LOCK_K))
			n |= LOCK_S;
		bool wake = (w & LOCK_W) && !(w & (LOCK_K | LOCK_Y));    /* with Y nobody could take it; the next grant wakes */
		if (wake)
			n |= LOCK_K;
		if (!LOCK_CAS(word, &w, n, __ATOMIC_RELEASE))
			continue;
		if (wake)
			lock_wake(word, n);
		return true;
	}
}

/*
 * The owner has seen all readers leave, and enters: *held, as he took it, is what he holds then. drop: nobody has read for
 * long. Where R stays, readers that come later get a number of their own. false: the hold was lost before.
 */
static inline bool lock_enter(uint64_t *word, uint64_t *held, bool drop)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n;

		if ((w ^ *held) & LOCK_IDENTITY)
			return false;
		drop |= !(w & LOCK_L) || !((w + LOCK_ONE) & LOCK_L);
		n = drop ? (w | LOCK_EXCLUSIVE) & ~LOCK_R : (w | LOCK_EXCLUSIVE) + LOCK_ONE;
		if (!LOCK_CAS(word, &w, n, __ATOMIC_SEQ_CST))
			continue;
		*held = n;
		return true;
	}
}

/* Of an exclusive hold: what the bias makes its token. */
static inline uint64_t lock_number(uint64_t held)
{
	uint64_t count = lock_count(held);

	return (count ? count : UINT64_C(1) << LOCK_COUNT_BITS) - (held & LOCK_R ? 1 : 0);
}

/* A waiter gives up. What a wake or the place of the heir had put on it goes to the next. */
static inline void lock_leave(uint64_t *word, const struct lock_waiter *t)
{
	if (!t->woken && !t->heir)
		return;
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n = w;

		if (t->woken || t->heir)
			n &= ~LOCK_K;
		if (t->heir)
			n &= ~(LOCK_H | LOCK_S);
		else if (!(w & LOCK_H))
			n &= ~LOCK_S;
		bool pass = lock_is_free(w) && (w & LOCK_W) && (!(w & LOCK_Y) || (w & LOCK_K));
		if (pass)
			n |= LOCK_K;
		if (n != w && !LOCK_CAS(word, &w, n, __ATOMIC_RELAXED))
			continue;
		if (pass)
			lock_wake(word, n);
		return;
	}
}

/* After EOWNERDEAD: the state is whole again. false: the hold was lost before. */
static inline bool lock_mend(uint64_t *word, uint64_t held)
{
	uint64_t w = LOCK_LOAD(word);

	do {
		if ((w ^ held) & LOCK_IDENTITY)
			return false;
	} while (!LOCK_CAS(word, &w, w & ~LOCK_D, __ATOMIC_RELAXED));
	return true;
}

/*
 * The daemon's look at a watched word: whatever wake-up a stopped or dead process owes is given.
 * Returns whether the word wants to be watched further.
 */
static inline bool lock_look(uint64_t *word)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n;

		if (!(w & LOCK_W)) {
			LOCK_WAKE(word, INT_MAX, LOCK_CLASS_ANY);   /* one that cleared W may have been stopped before its wake */
			return false;
		}
		if (!lock_is_free(w))
			n = w & ~LOCK_K;
		else if (w & LOCK_Y)
			return true;             /* it is another node's turn: the next grant wakes */
		else
			n = (w & ~(LOCK_H | LOCK_S)) | LOCK_K;
		if (n != w && !LOCK_CAS(word, &w, n, __ATOMIC_RELAXED))
			continue;
		if (lock_is_free(w))
			lock_wake(word, n);
		return true;
	}
}

/*
 * The daemon, of a client that is gone: frees what it owned, and gives the wake-ups that it may
 * have owed. Returns whether it owned the word.
 */
static inline bool lock_died(uint64_t *word, uint32_t client)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), n = w & ~(LOCK_K | LOCK_H | LOCK_S);
		bool owned = (w & LOCK_OWNER) == client;

		if (owned)
			n = lock_freed(n, LOCK_DIED);
		if (lock_is_free(n) && (n & LOCK_W) && !(n & LOCK_Y))
			n |= LOCK_K;
		if (n != w && !LOCK_CAS(word, &w, n, __ATOMIC_RELEASE))
			continue;
		if (n & LOCK_K)
			lock_wake(word, n);
		return owned;
	}
}

/*
 * The daemon, of an owner without X who has not moved for two looks: it is the next one's turn. was: as the word was seen; readers:
 * he is one of them by now. Whoever lives on finds that the word is not his any more; and counts must not come again (above).
 */
static inline bool lock_pass_over(uint64_t *word, uint64_t was, bool readers)
{
	uint64_t n = (was & ~(LOCK_OWNER | LOCK_K | LOCK_H | LOCK_S)) | (readers ? LOCK_R : 0);

	if ((was & LOCK_W) && !(was & LOCK_Y))
		n |= LOCK_K;
	if (!LOCK_CAS(word, &was, n, __ATOMIC_RELEASE))
		return false;
	if (n & LOCK_K)
		lock_wake(word, n);
	return true;
}

/*
 * The daemon gives a range of n tokens to a word that is free and closed. false: it is not, and
 * nothing has changed. The bias must be in place before. The first token is for readers, where they may be.
 */
static inline bool lock_grant(uint64_t *word, uint64_t n)
{
	for (;;) {
		uint64_t w = LOCK_LOAD(word), g;

		if (!lock_is_free(w) || (w & LOCK_L))
			return false;
		g = lock_range_word((w & LOCK_R) && n > 1 ? n - 1 : n) | (w & (LOCK_W | LOCK_D | LOCK_R));
		if (w & LOCK_W)
			g |= LOCK_K;
		if (!LOCK_CAS(word, &w, g, __ATOMIC_RELEASE))
			continue;
		if (g & LOCK_K)
			lock_wake(word, g);
		return true;
	}
}

/* The daemon lets readers, and nobody else, into a word that is free and closed. The bias must be in place before. Wakes all. */
static inline bool lock_share(uint64_t *word)
{
	uint64_t w = LOCK_LOAD(word);

	do {
		if (!lock_is_free(w) || (w & LOCK_L))
			return false;
	} while (!LOCK_CAS(word, &w, LOCK_SHARE | (w & (LOCK_W | LOCK_D)), __ATOMIC_RELEASE));
	LOCK_WAKE(word, INT_MAX, LOCK_CLASS_ANY);
	return true;
}

/* The daemon closes a word that nobody owns; whoever reads may go on. true: *ret_was is what it was. */
static inline bool lock_lower(uint64_t *word, uint64_t *ret_was)
{
	uint64_t w = LOCK_LOAD(word);

	do {
		if (!lock_is_free(w))
			return false;
	} while (!LOCK_CAS(word, &w, w & ~(LOCK_COUNT | LOCK_Y), __ATOMIC_ACQUIRE));
	*ret_was = w;
	return true;
}

/*
 * The daemon closes a free word. true: *ret_was is what it was. false: somebody owns it, or may read.
 * drained: as it was, free with Y, before all readers were seen to have left; 0: nobody looked. Who goes before the queue may
 * have had it since, and have let readers in again: but not without a count.
 */
static inline bool lock_close(uint64_t *word, uint64_t drained, uint64_t *ret_was)
{
	uint64_t w = LOCK_LOAD(word);

	do {
		bool left = drained && !((w ^ drained) & LOCK_COUNT) && (w & LOCK_Y) && !(w & LOCK_K);

		if (!lock_is_free(w) || ((w & LOCK_R) && !left))
			return false;
	} while (!LOCK_CAS(word, &w, w & ~(LOCK_COUNT | LOCK_Y | LOCK_R), __ATOMIC_ACQUIRE));
	*ret_was = w;
	return true;
}

/*
 * The daemon wants the word back. true: its owner's release will say so, or the last reader's. false: it is free, and
 * can be closed.
 */
static inline bool lock_yield(uint64_t *word)
{
	uint64_t w = LOCK_LOAD(word);

	/* Without K: whoever was woken before is not to take it, and the next grant wakes. */
	do {
		if (lock_is_free(w) && !(w & LOCK_R))
			return false;
	} while (!LOCK_CAS(word, &w, (w | LOCK_Y) & ~LOCK_K, __ATOMIC_SEQ_CST));
	return true;
}

/* Free with Y, and the one who was woken for it has not run yet. */
static inline bool lock_is_promised(uint64_t w)
{
	return lock_is_free(w) && (w & LOCK_L) && (w & LOCK_Y) && (w & LOCK_K);
}

/*
 * The daemon wants the word back as soon as the one who has been woken for it has had it, once. false: he has taken it,
 * or nobody was woken.
 */
static inline bool lock_promise(uint64_t *word)
{
	uint64_t w = LOCK_LOAD(word);

	do {
		if (!lock_is_free(w) || !(w & LOCK_L) || !(w & LOCK_K))
			return false;
	} while (!LOCK_CAS(word, &w, w | LOCK_Y, __ATOMIC_RELAXED));
	return true;
}

/*
 * Whatever was held is lost, and the word closed; who sleeps goes on sleeping. Returns what it was. D goes too: that a
 * holder died, or was lost, is from now on what others say.
 */
static inline uint64_t lock_lapse(uint64_t *word)
{
	uint64_t w = LOCK_LOAD(word);

	while (!LOCK_CAS(word, &w, w & LOCK_W, __ATOMIC_ACQUIRE))
		;
	return w;
}

#endif
