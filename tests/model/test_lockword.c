/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock word, exhaustively: the functions of lockword.h are stepped through every order in which
 * three threads of clients, the daemon and the kernel can act, and the judge (judge.h) looks on.
 *
 * In every world that can be reached it holds that
 *   - if nobody was killed or stopped, and all is at rest, everybody is through: no wake-up is lost,
 *     and none has to be made up for by the daemon's looks or by a deadline
 *   - after one kill or stop, at any step, one look of the daemon is enough where all is at rest;
 *     then everybody is through who lives and is not stopped, unless the stopped one is the holder
 *   - nobody can be kept waiting by others who go round in a circle, all of them taking steps.
 *
 * The second half breaks one rule at a time, and each must be found out. Not among them, since
 * nothing goes wrong without it, it only takes longer: that a look clears H, and K on a held word;
 * that death and grant clear H; that a taker clears S.
 *
 * test_lockword long   takes minutes and gigabytes: more rounds, all copies of all players
 * test_lockword NUMBER that result only, and the shortest way to what is wrong
 */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/lockword.h"

#define THREADS(...) .script = { __VA_ARGS__ }, .index = { 1, 2, 3 }
#define WITH_DAEMON .daemon = true
#define IMPATIENT .force = true
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct scenario scenarios[] = {
	{ "one thread takes it three times, another twice, another once",
	  .players = { THREADS("www", "ww", "w"), IMPATIENT }, .ranges = { 20 }, .in_order = true },
	{ "three threads take it twice each",
	  .players = { THREADS("ww", "ww", "ww"), IMPATIENT }, .ranges = { 20 }, .in_order = true },
	{ "a sleep ends for no reason",
	  .players = { THREADS("ww", "ww", "w"), IMPATIENT }, .ranges = { 20 }, .spurious = 1 },
	{ "deadlines pass at any moment",
	  .players = { THREADS("tt", "t", "ww"), IMPATIENT }, .ranges = { 20 } },
	{ "a thread ends holding, robust takers are told until one mends",
	  .players = { THREADS("dw", "rr", "n"), IMPATIENT }, .ranges = { 20 } },
	{ "some only try",
	  .players = { THREADS("ww", "yy", "yw"), IMPATIENT }, .ranges = { 20 } },
	{ "a wait is cancelled",
	  .players = { THREADS("ww", "xt", "c"), IMPATIENT }, .ranges = { 20 } },
	{ "the first range has to be asked for",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .closed = true },
	{ "ranges of one, then two, come to their ends",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 1, 2 } },
	{ "ranges of one, two, one, three, asked for by two",
	  .players = { THREADS("ww", "ww"), WITH_DAEMON, IMPATIENT }, .ranges = { 1, 2, 1, 3 }, .closed = true },
	{ "a range of three ends in the middle",
	  .players = { THREADS("ww", "w", "w"), WITH_DAEMON }, .ranges = { 3, 20 } },
	{ "the daemon closes the word and gives it again",
	  .players = { THREADS("ww", "w"), WITH_DAEMON }, .ranges = { 20 }, .closes = 2 },
	{ "another node wants the word twice, and it comes back",
	  .players = { THREADS("ww", "w"), WITH_DAEMON, .yields = true }, .ranges = { 20 }, .closes = 2 },
	{ "another node wants the word beside three",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, .yields = true }, .ranges = { 20 }, .closes = 1 },
	{ "another node wants the word, and a client is killed",
	  .players = { THREADS("w", "w"), WITH_DAEMON, .yields = true }, .ranges = { 20 }, .closes = 1,
	  .faults = FAULT_KILL, .victims = 1 },
	{ "the daemon looks though nothing is amiss",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .looks = 1 },
	{ "the daemon looks twice, heirs are impatient",
	  .players = { THREADS("ww", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .looks = 2 },
	{ "a client is killed, others take it twice",
	  .players = { THREADS("ww", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_KILL, .victims = 2 },
	{ "a client is killed, heirs are impatient",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .faults = FAULT_KILL,
	  .victims = 1 },
	{ "a client with two waiting threads is killed",
	  .players = { .script = { "w", "w", "w" }, .index = { 1, 1, 2 }, WITH_DAEMON, IMPATIENT }, .ranges = { 20 },
	  .faults = FAULT_KILL, .victims = 2 },
	{ "a client is killed, robust takers are told",
	  .players = { THREADS("w", "rr", "n"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_KILL, .victims = 3 },
	{ "a client is killed while the daemon looks",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_KILL, .victims = 1,
	  .looks = 1 },
	{ "a client is killed while ranges end",
	  .players = { THREADS("ww", "w"), WITH_DAEMON }, .ranges = { 1, 2, 1, 3 }, .closed = true,
	  .faults = FAULT_KILL, .victims = 2 },
	{ "a client is stopped, others take it twice",
	  .players = { THREADS("ww", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_STOP, .victims = 2 },
	{ "a client with a deadline, or another, is stopped",
	  .players = { THREADS("t", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .faults = FAULT_STOP,
	  .victims = 2 },
	{ "a client is stopped while the daemon looks, and drops the word",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_STOP, .victims = 1,
	  .looks = 1, .watched = true },
	{ "a client is stopped while ranges end",
	  .players = { THREADS("ww", "w"), WITH_DAEMON }, .ranges = { 1, 2, 1, 3 }, .closed = true,
	  .faults = FAULT_STOP, .victims = 2 },
	{ "the daemon is killed and starts again",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_DAEMON },
	{ "the daemon is killed while ranges end",
	  .players = { THREADS("ww", "w"), WITH_DAEMON }, .ranges = { 1, 20 }, .closed = true, .faults = FAULT_DAEMON },
	{ "a hold is taken away from a thread that lives on, beside another of its client",
	  .players = { .script = { "w", "w", "w" }, .index = { 1, 1, 2 }, WITH_DAEMON }, .ranges = { 20 },
	  .steals = 1 },
};

static const struct scenario long_scenarios[] = {
	{ "long: three threads take it twice, the ends of sleeps are arbitrary",
	  .players = { THREADS("ww", "ww", "ww"), IMPATIENT }, .ranges = { 20 }, .spurious = 1 },
	{ "long: deadlines everywhere",
	  .players = { THREADS("tt", "tt", "tt"), IMPATIENT }, .ranges = { 20 } },
	{ "long: ranges of one, two, three, asked for by three",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 1, 2, 3 }, .closed = true },
	{ "long: the daemon closes the word beside three",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .closes = 1 },
	{ "long: the daemon looks twice beside three",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON }, .ranges = { 20 }, .looks = 2 },
	{ "long: a client is killed, impatience and looks",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .faults = FAULT_KILL,
	  .victims = 1, .looks = 1 },
	{ "long: a client is stopped, impatience and looks",
	  .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .faults = FAULT_STOP,
	  .victims = 1, .looks = 1, .watched = true },
	{ "long: a client is stopped, the others take it twice, one look",
	  .players = { THREADS("w", "w", "ww"), WITH_DAEMON }, .ranges = { 20 }, .faults = FAULT_STOP, .victims = 1,
	  .looks = 1, .watched = true },
	{ "long: the daemon is killed while ranges of one, two, one end",
	  .players = { THREADS("ww", "w"), WITH_DAEMON }, .ranges = { 1, 2, 1, 3 }, .closed = true,
	  .faults = FAULT_DAEMON },
	{ "long: a hold is taken away, two rounds",
	  .players = { .script = { "ww", "w", "w" }, .index = { 1, 1, 2 }, WITH_DAEMON }, .ranges = { 20 },
	  .steals = 1 },
};

/* --- What is broken, in the smallest surroundings that show it --- */

#define PLAIN   .players = { THREADS("ww", "w", "w"), IMPATIENT }, .ranges = { 20 }, .in_order = true
#define TIMED   .players = { THREADS("t", "tw", "w"), IMPATIENT }, .ranges = { 20 }
#define CLOSED  .players = { THREADS("ww", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 1, 2, 1, 3 }, .closed = true
#define LOOKED  .players = { THREADS("ww", "w"), WITH_DAEMON, IMPATIENT }, .ranges = { 20 }, .looks = 2
#define FAULTY(...) .players = { THREADS("w", "w", "w"), WITH_DAEMON, IMPATIENT, __VA_ARGS__ }, \
	.ranges = { 20 }, .victims = 1
#define DROPPED(...) .players = { THREADS("w", "w", "w"), WITH_DAEMON, __VA_ARGS__ }, .ranges = { 20 }, \
	.faults = FAULT_STOP, .victims = 1, .looks = 1, .watched = true
#define BEND(...) .bend = { __VA_ARGS__ }

static const struct scenario broken[] = {
	{ "a release clears W", PLAIN, BEND(FN_RELEASE, BEND_FREES, .clear = LOCK_W) },
	{ "a release does not set K", PLAIN, BEND(FN_RELEASE, BEND_FREES, .clear = LOCK_K) },
	{ "a release wakes nobody", PLAIN, BEND(FN_RELEASE, .no_wake_one = true) },
	{ "a release frees the word whoever owns it", .players = { THREADS("w", "w"), WITH_DAEMON,
	  .slip = SLIP_POST_BLINDLY }, .ranges = { 20 }, .steals = 1 },
	{ "a wake that reached nobody does not take K back", PLAIN, BEND(FN_NONE, BEND_TAKES_BACK, .keep = LOCK_K) },
	{ "… nor W", CLOSED, BEND(FN_NONE, BEND_TAKES_BACK, .keep = LOCK_W) },
	{ "… nor S", CLOSED, BEND(FN_NONE, BEND_TAKES_BACK, .keep = LOCK_S) },
	{ "… and, taking W back, does not wake all", PLAIN, BEND(FN_RELEASE, .no_wake_all = true) },
	{ "a sleeper does not set W", PLAIN, BEND(FN_TURN, BEND_STAYS, .clear = LOCK_W) },
	{ "a woken one that sleeps again leaves K", PLAIN, BEND(FN_TURN, BEND_STAYS, .keep = LOCK_K) },
	{ "a sleeper thinks that each end of a sleep was a wake", .players = { THREADS("ww", "w", "w"), IMPATIENT,
	  .slip = SLIP_WOKEN_ALWAYS }, .ranges = { 20 }, .in_order = true },
	{ "… that none was", .players = { THREADS("ww", "w", "w"), IMPATIENT, .slip = SLIP_WOKEN_NEVER },
	  .ranges = { 20 } },
	{ "an heir sleeps with the others", PLAIN, BEND(.heir_in_line = true) },
	{ "a release with H wakes anybody", PLAIN, BEND(.wake_any = true) },
	{ "a taker clears W", PLAIN, BEND(FN_TURN, BEND_TAKES, .clear = LOCK_W) },
	{ "a taker leaves K", PLAIN, BEND(FN_TURN, BEND_TAKES, .keep = LOCK_K) },
	{ "an heir that takes leaves H", PLAIN, BEND(FN_TURN, BEND_TAKES, .keep = LOCK_H) },
	{ "the fast path does not count", PLAIN, BEND(FN_FAST, BEND_TAKES, .add = -LOCK_ONE) },
	{ "the fast path does not mind S", .players = { THREADS("ww", "w", "w"), IMPATIENT, .slow_less = LOCK_S },
	  .ranges = { 20 }, .in_order = true },
	{ "the fast path does not mind a closed word", .players = { THREADS("ww", "w"), WITH_DAEMON,
	  .slow_less = LOCK_L }, .ranges = { 1 } },
	{ "the fast path does not mind that it is another node's turn", .players = { THREADS("ww", "w"), WITH_DAEMON,
	  .yields = true, .slow_less = LOCK_Y }, .ranges = { 20 }, .closes = 1 },
	{ "who gives up does not leave", .players = { THREADS("t", "tw", "w"), IMPATIENT, .slip = SLIP_NO_LEAVE },
	  .ranges = { 20 } },
	{ "leaving does not pass the wake on", TIMED, BEND(FN_LEAVE, .clear = LOCK_K, .no_wake_one = true) },
	{ "leaving leaves K", TIMED, BEND(FN_LEAVE, .keep = LOCK_K) },
	{ "leaving leaves H", TIMED, BEND(FN_LEAVE, .keep = LOCK_H) },
	{ "leaving leaves S", TIMED, BEND(FN_LEAVE, .keep = LOCK_S) },
	{ "a look leaves S", LOOKED, BEND(FN_LOOK, .keep = LOCK_S) },
	{ "a look wakes nobody", FAULTY(), .faults = FAULT_STOP, BEND(FN_LOOK, .no_wake_one = true) },
	{ "death wakes nobody", .players = { THREADS("w", "w"), WITH_DAEMON }, .ranges = { 20 }, .steals = 1,
	  BEND(FN_DIED, .no_wake_one = true) },
	{ "death leaves no D", FAULTY(), .faults = FAULT_KILL, BEND(FN_DIED, .clear = LOCK_D) },
	{ "the daemon does not hear of a death", FAULTY(.slip = SLIP_NO_DEATH), .faults = FAULT_KILL },
	{ "a grant leaves K and does not wake", CLOSED, BEND(FN_GRANT, .keep = LOCK_K, .no_wake_one = true) },
	{ "a grant leaves K", CLOSED, BEND(FN_GRANT, .keep = LOCK_K) },
	{ "a grant leaves S", CLOSED, BEND(FN_GRANT, .keep = LOCK_S) },
	{ "a grant clears W", CLOSED, BEND(FN_GRANT, .clear = LOCK_W) },
	{ "a sleeper does not ask for tokens", .players = { THREADS("ww", "w"), WITH_DAEMON, .slip = SLIP_NO_WANT },
	  .ranges = { 1 } },
	{ "a sleeper does not ask to be watched", FAULTY(.slip = SLIP_NO_WATCH), .faults = FAULT_KILL },
	{ "the daemon drops a word without another look", DROPPED(.slip = SLIP_DROP_UNSEEN) },
	{ "… or with one that only reads W, and wakes nobody where it is clear", DROPPED(.slip = SLIP_DROP_W_ONLY) },
	{ "a sleeper rings only if it was the one to set the bit", .players = { THREADS("w", "w", "ww"), WITH_DAEMON,
	  .slip = SLIP_RING_IF_CLEAR }, .ranges = { 20 }, .faults = FAULT_STOP, .victims = 1, .looks = 1,
	  .watched = true },
	{ "a restarted daemon does not look at everything", .players = { THREADS("w", "w"), WITH_DAEMON,
	  .slip = SLIP_NO_RESCAN }, .ranges = { 1, 20 }, .faults = FAULT_DAEMON },
	{ "a hold is taken from a living client whose index goes on, and counts come again in the next range",
	  .players = { .script = { "www", "w" }, .index = { 1, 1 }, WITH_DAEMON }, .ranges = { 2 }, .steals = 1 },
};

/* --- Running --- */

static unsigned number, failed, only;
static uint64_t worlds;

static void result(bool good, const struct scenario *s, const struct found *f, bool must_fail)
{
	failed += !good;
	printf("%sok %u - %s%s", good ? "" : "not ", number, must_fail ? "found out: " : "", s->title);
	if (f->wrong)
		printf(" (%s, %u steps on, world %u)\n", f->wrong, f->length, f->worlds);
	else
		printf(" (%u worlds, %u steps%s)\n", f->worlds, f->steps, f->full ? ", and no room for more" : "");
	fflush(stdout);
	worlds += f->worlds;
}

static void run(const struct scenario *s, size_t n, bool must_fail)
{
	for (size_t i = 0; i < n; i++) {
		struct found f;

		number++;
		if (only && only != number)
			continue;
		explore(&s[i], only || !must_fail, &f);
		result(must_fail ? f.wrong != NULL : !f.wrong && !f.full, &s[i], &f, must_fail);
	}
}

int main(int argc, char **argv)
{
	bool all = argc > 1 && strcmp(argv[1], "long") == 0;

	if (argc > 1 && !all)
		only = (unsigned)atoi(argv[1]);
	if (all)
		play_copies_max = UINT32_MAX;
	run(scenarios, COUNT(scenarios), false);
	run(broken, COUNT(broken), true);
	if (all)
		run(long_scenarios, COUNT(long_scenarios), false);
	printf("# %llu worlds in all\n1..%u\n", (unsigned long long)worlds, only ? 1 : number);
	return failed != 0;
}
