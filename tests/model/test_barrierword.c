/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rounds of a barrier that its parties complete themselves, exhaustively: the functions of barrierword.h, unchanged, through every
 * order in which three parties, the daemon and the kernel can act, with a death or a stop at any step.
 *
 * The judge sees each swap of the word, and believes nothing that the word says. In every world that can be reached:
 *   - a round passes when exactly as many have come as there should be, with the AND of their votes, and breaks only if somebody
 *     lost patience, asked for it, or died in it; whoever was in it is told that, and one party of each that passed is told that it is the
 *     serial one;
 *   - where nobody can take a step any more, and after a fault the daemon has looked once or twice, whoever lives and is not stopped
 *     is through, or waits in a round that is forming, for others that live;
 *   - from everywhere such an end can be reached: nobody goes round in circles.
 *
 * The second half breaks one rule at a time, and each must be found out. The words that lie between rounds and the daemon's
 * bits are simpler than those of locks (test_lockword): a bell that has been set is heard, sooner or later.
 */
#include "barrier_players.h"
#include "play.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/barrierword.h"          /* only the bits and the pure functions are used here */

#define STEPS_MAX 32u

/* --- The world and its judge --- */

enum { DUE_NONE, DUE_WAITING, DUE_PASSED, DUE_VETOED, DUE_BROKEN, DUE_SERIAL = 8, DUE_MINE = 16 };

struct world {
	uint64_t place[CELL + PARTIES];  /* the word, then notes, then cells */
	uint32_t who[ROLES];             /* number of the player; 0: dead */
	uint8_t asleep, dead, stopped, death;    /* bit of a role; death: of which the daemon has yet to hear */
	uint8_t bell, watched, faults, looks, rescues, spurious;
	uint8_t no;                      /* who has come to this round with a no */
	uint8_t due[PARTIES];            /* what each is to be told */
};

static const char *wrong;

static void judge_ends(struct world *w, unsigned role, uint64_t old, uint64_t new)
{
	unsigned counted = 0;
	bool veto = w->no;
	enum barrier_verdict v = barrier_before(new);

	for (unsigned i = 0; i < PARTIES; i++)
		counted += w->due[i] == DUE_WAITING;
	if (v == BARRIER_BROKEN) {
		bool may = false;

		if (role == DAEMON_ROLE) {
			for (unsigned i = 0; i < PARTIES; i++)
				may |= (w->dead >> i & 1) && w->place[CELL + i] == barrier_cell(BARRIER_HERE, barrier_round(old));
		} else {
			may = strpbrk(scenario->script[role], "tr");
		}
		if (!may || !counted)
			wrong = "a round breaks for no reason";
	} else {
		if (counted + 1 != scenario->parties || role == DAEMON_ROLE)
			wrong = "a round passes with another number of parties";
		if ((v == BARRIER_VETOED) != veto)
			wrong = "a round's verdict is not what its parties voted";
	}
	for (unsigned i = 0; i < PARTIES; i++)
		if (w->due[i] == DUE_WAITING)
			w->due[i] = (uint8_t)(DUE_PASSED + v);
	if (role < PARTIES && v != BARRIER_BROKEN)
		w->due[role] = (uint8_t)((DUE_PASSED + v) | DUE_SERIAL);
	else if (role < PARTIES && w->due[role] == DUE_BROKEN)
		w->due[role] |= DUE_MINE;
	w->no = 0;
}

/* Which call of its script a party is in. */
static char letter_of(const struct world *w, unsigned role);

static void judge_swap(struct world *w, unsigned role, uint64_t old, uint64_t new)
{
	bool ends = barrier_round(old) != barrier_round(new);
	bool comes_ = barrier_arrived(new) > barrier_arrived(old) || (ends && barrier_before(new) != BARRIER_BROKEN);

	if (comes_ && role < PARTIES) {
		if (w->due[role] != DUE_NONE)
			wrong = "a party comes twice";
		if (letter_of(w, role) == 'n')
			w->no |= (uint8_t)(1 << role);
	}
	if (ends)
		judge_ends(w, role, old, new);
	else if (comes_)
		w->due[role] = DUE_WAITING;
}

static void judge_told(struct world *w, unsigned role, enum barrier_verdict v, bool serial)
{
	static const uint8_t due_of[] = { [BARRIER_PASSED] = DUE_PASSED, [BARRIER_VETOED] = DUE_VETOED, [BARRIER_BROKEN] = DUE_BROKEN,
					  [BARRIER_TIMED_OUT] = DUE_BROKEN | DUE_MINE };

	if (w->due[role] != (due_of[v] | (serial ? DUE_SERIAL : 0)))
		wrong = "a party is told something else than what became of its round";
	w->due[role] = DUE_NONE;
}

static struct known *known_of(uint32_t player)
{
	return (struct known *)((const char *)play_ask(player) + sizeof(struct ask));
}

static char letter_of(const struct world *w, unsigned role)
{
	return scenario->script[role][known_of(w->who[role])->where >> 1];
}

static void answer(struct world *w, unsigned role, uint64_t value, bool yes)
{
	w->who[role] = play_answer(w->who[role], (struct answer){ value, yes });
	for (const struct ask *a = play_ask(w->who[role]); a->kind == Q_TOLD; a = play_ask(w->who[role])) {
		judge_told(w, role, (enum barrier_verdict)a->a, a->b);
		w->who[role] = play_answer(w->who[role], (struct answer){ 0, false });
	}
}

static void wake_all(struct world *w)
{
	uint8_t asleep = w->asleep;

	w->asleep = 0;
	for (unsigned i = 0; i < PARTIES; i++)
		if (asleep >> i & 1)
			answer(w, i, SLEPT_WOKEN_, false);
}

static bool swallowed(const struct world *w, unsigned role, const struct ask *a)
{
	(void)w;
	return role != DAEMON_ROLE && scenario->slip == SLIP_NO_NOTE && a->kind == Q_CAS && a->c >= 1 && a->c <= NOTES;
}

/* The one step that its question is; false: it has to wait. */
static bool act(struct world *w, unsigned role)
{
	const struct ask a = *play_ask(w->who[role]);

	switch (a.kind) {
	case Q_LOAD:
		answer(w, role, w->place[a.c], false);
		return true;
	case Q_STORE:
		if (!(scenario->slip == SLIP_NO_CELL && barrier_cell_state(a.a) == BARRIER_HERE))
			w->place[a.c] = a.a;
		answer(w, role, 0, false);
		return true;
	case Q_CAS: {
		uint64_t was = w->place[a.c];
		bool yes = was == a.a;

		if (swallowed(w, role, &a)) {
			answer(w, role, 0, true);
			return true;
		}
		if (yes && a.c == 0)
			judge_swap(w, role, a.a, a.b);
		if (yes)
			w->place[a.c] = a.b;
		answer(w, role, yes ? 0 : was, yes);
		return true;
	}
	case Q_WAKE:
		answer(w, role, 0, false);
		if (scenario->slip != SLIP_NO_WAKE || role == DAEMON_ROLE)
			wake_all(w);
		return true;
	case Q_RING:
		w->bell = 1;
		answer(w, role, 0, false);
		return true;
	case Q_WATCHED:
		answer(w, role, w->watched, false);
		return true;
	case Q_WATCH:
		w->watched = (uint8_t)a.a;
		answer(w, role, 0, false);
		return true;
	case Q_SLEEP:
		if (w->asleep >> role & 1)
			return false;
		if ((uint32_t)w->place[0] == (uint32_t)a.a)
			w->asleep |= (uint8_t)(1 << role);
		else
			answer(w, role, SLEPT_AGAIN_, false);
		return true;
	case Q_NAP: {
		bool room = barrier_round(w->place[0]) != a.a;

		for (unsigned i = 0; i < NOTES; i++)
			room |= !w->place[1 + i];
		if (room)
			answer(w, role, 0, false);
		return room;
	}
	case Q_GONE:
		answer(w, role, w->dead >> a.a & 1, false);
		w->death &= (uint8_t)~(1 << a.a);
		return true;
	default:
		return false;
	}
}

struct step {
	struct world to;
	unsigned role;
	const char *what;
};

static struct step *step_add(struct step *v, unsigned *n, const struct world *w, unsigned role, const char *what)
{
	struct step *s = &v[(*n)++];

	assert(*n <= STEPS_MAX);
	s->to = *w;
	s->role = role;
	s->what = what;
	return s;
}

static bool moves(const struct world *w, unsigned role)
{
	return w->who[role] && !((w->dead | w->stopped) >> role & 1);
}

static void party_steps(const struct world *w, unsigned role, struct step *v, unsigned *n)
{
	const struct ask *a = play_ask(w->who[role]);
	struct step *s;

	if (a->kind == Q_GUESS) {
		answer(&step_add(v, n, w, role, "has patience")->to, role, 0, false);
		answer(&step_add(v, n, w, role, "loses patience")->to, role, 0, true);
		return;
	}
	s = step_add(v, n, w, role, NULL);
	if (!act(&s->to, role))
		(*n)--;
	if (a->kind == Q_SLEEP && (w->asleep >> role & 1)) {
		if (a->b) {
			s = step_add(v, n, w, role, "its time is over");
			s->to.asleep &= (uint8_t)~(1 << role);
			answer(&s->to, role, SLEPT_LATE_, false);
		}
		if (w->spurious < scenario->spurious) {
			s = step_add(v, n, w, role, "wakes up for no reason");
			s->to.asleep &= (uint8_t)~(1 << role);
			s->to.spurious++;
			answer(&s->to, role, SLEPT_WOKEN_, false);
		}
	}
}

static void fault_steps(const struct world *w, struct step *v, unsigned *n)
{
	if (w->faults)
		return;
	for (unsigned i = 0; i < scenario->victims; i++) {
		if (!moves(w, i) || play_ask(w->who[i])->kind == Q_END)
			continue;
		if (scenario->faults & FAULT_KILL) {
			struct world *t = &step_add(v, n, w, i, "is killed")->to;

			t->faults = 1;
			t->dead |= (uint8_t)(1 << i);
			t->death |= (uint8_t)(1 << i);
			t->asleep &= (uint8_t)~(1 << i);
			t->who[i] = 0;
		}
		if (scenario->faults & FAULT_STOP) {
			struct world *t = &step_add(v, n, w, i, "is stopped")->to;

			t->faults = 1;
			t->stopped |= (uint8_t)(1 << i);
		}
	}
	if (scenario->faults & FAULT_DAEMON) {
		struct world *t = &step_add(v, n, w, DAEMON_ROLE, "is killed, and starts again")->to;

		t->faults = 1;
		t->who[DAEMON_ROLE] = play_start(DAEMON_ROLE, 1, barrier_daemon);
	}
}

static void daemon_steps(const struct world *w, struct step *v, unsigned *n, bool rest)
{
	const struct ask *a = play_ask(w->who[DAEMON_ROLE]);
	struct step *s;

	if (a->kind != Q_IDLE) {
		s = step_add(v, n, w, DAEMON_ROLE, NULL);
		if (!act(&s->to, DAEMON_ROLE))
			(*n)--;
		return;
	}
	if (w->bell) {
		s = step_add(v, n, w, DAEMON_ROLE, "hears the bell");
		s->to.bell = 0;
		answer(&s->to, DAEMON_ROLE, HEARS_BELL, false);
	}
	for (unsigned i = 0; i < PARTIES && scenario->slip != SLIP_NO_DEATH; i++)
		if (w->death >> i & 1) {
			s = step_add(v, n, w, DAEMON_ROLE, "hears of a death");
			s->to.death &= (uint8_t)~(1 << i);
			answer(&s->to, DAEMON_ROLE, HEARS_DEATH + i, false);
		}
	if (a->a && (w->looks < scenario->looks || (rest && w->faults && w->asleep && !*n && w->rescues < 2))) {
		s = step_add(v, n, w, DAEMON_ROLE, "looks");
		if (w->looks < scenario->looks)
			s->to.looks++;
		else
			s->to.rescues++;
		answer(&s->to, DAEMON_ROLE, HEARS_LOOK, false);
	}
}

/* Nobody can take a step. Is everybody where he may be? */
static bool good_end(const struct world *w)
{
	for (unsigned i = 0; i < PARTIES; i++) {
		if ((w->dead >> i & 1) && w->due[i] == DUE_WAITING)
			return false;
		if (moves(w, i) && play_ask(w->who[i])->kind != Q_END && !((w->asleep >> i & 1) && w->due[i] == DUE_WAITING))
			return false;
	}
	return true;
}

static unsigned steps_of(const struct world *w, struct step *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PARTIES; i++)
		if (moves(w, i))
			party_steps(w, i, v, &n);
	daemon_steps(w, v, &n, !n);
	return n;
}

/* --- Walking --- */

#include "walk.h"

static void tell_way(uint32_t to)
{
	static const char *const names[] = { "load", "store", "swap", "wake", "ring", "watched?", "watch", "sleep", "nap", "guess", "idle",
					     "gone?", "told", "end" };
	uint32_t way[512], n = 0;

	for (uint32_t i = to; i != UINT32_MAX && n < 512; i = parent[i])
		way[n++] = i;
	while (n-- > 1) {
		struct step v[STEPS_MAX];
		unsigned k, m = steps_of(&worlds[way[n]], v);

		fault_steps(&worlds[way[n]], v, &m);
		for (k = 0; k < m && memcmp(&v[k].to, &worlds[way[n - 1]], sizeof v[k].to); k++)
			;
		const struct ask *a = k < m && worlds[way[n]].who[v[k].role] ? play_ask(worlds[way[n]].who[v[k].role]) : NULL;
		const struct world *t = &worlds[way[n - 1]];

		printf("# %c %-8s %2u %llx %llx: word %llx note %llx cells %llx %llx %llx\n", k < m ? "123D"[v[k].role] : '?',
		       k < m && v[k].what ? v[k].what : a ? names[a->kind] : "?", a ? a->c : 0, a ? (unsigned long long)a->a : 0,
		       a ? (unsigned long long)a->b : 0, (unsigned long long)t->place[0], (unsigned long long)t->place[1],
		       (unsigned long long)t->place[CELL], (unsigned long long)t->place[CELL + 1], (unsigned long long)t->place[CELL + 2]);
	}
}

static const char *explore(const struct scenario *s, bool tell)
{
	struct world begin;
	uint32_t bad = UINT32_MAX;

	scenario = s;
	wrong = NULL;
	n_worlds = n_edges = cap_worlds = 0;
	play_reset();
	memset(&begin, 0, sizeof begin);
	begin.place[0] = BARRIER_L | UINT64_C(5) << BARRIER_ROUND_SHIFT;
	begin.place[1] = s->noted ? barrier_note(3, BARRIER_BROKEN) : 0;
	for (unsigned i = 0; i < PARTIES; i++)
		begin.who[i] = play_start(i, 0, barrier_party);
	begin.who[DAEMON_ROLE] = play_start(DAEMON_ROLE, 0, barrier_daemon);
	number_of(&begin, UINT32_MAX);
	good = NULL;
	for (uint32_t i = 0; i < n_worlds && !wrong; i++) {
		struct step v[STEPS_MAX];
		struct world w = worlds[i];
		unsigned n = steps_of(&w, v);

		good = i & (i - 1) ? good : grown(good, i ? 2 * (size_t)i : 1);
		good[i] = !n;
		if (!n && !good_end(&w))
			wrong = "somebody waits for ever";
		fault_steps(&w, v, &n);
		if (wrong)
			bad = i;
		for (unsigned k = 0; k < n && !(wrong && bad == UINT32_MAX); k++)
			edge_add(i, number_of(&v[k].to, i));
		if (wrong && bad == UINT32_MAX)
			bad = i;
	}
	if (!wrong && !all_end(&bad))
		wrong = "they go round in a circle";
	if (wrong && tell)
		tell_way(bad);
	free(good);
	return wrong;
}

#define PLAY(text, one, two, three, n, ...) { .title = text, .script = { one, two, three }, .parties = n, __VA_ARGS__ }

static const struct scenario scenarios[] = {
	PLAY("three parties, one round", "w", "w", "w", 3, .spurious = 1),
	PLAY("two parties, two rounds", "ww", "ww", "", 2, .looks = 1),
	PLAY("two at a time, and who is too many waits for the next round", "w", "ww", "w", 2, .looks = 0),
	PLAY("votes", "nw", "wn", "", 2, .looks = 0),
	PLAY("two who veto, round after round, beside one that has its own time", "w", "nn", "n", 2, .noted = true),
	PLAY("one may lose patience", "t", "w", "w", 3, .looks = 0),
	PLAY("two may lose patience", "tt", "t", "", 2, .looks = 0),
	PLAY("resets, again and again, beside one that sleeps", "w", "trr", "", 3, .looks = 0),
	PLAY("a party is killed, the others go on", "w", "w", "w", 2, .faults = FAULT_KILL, .victims = 1),
	PLAY("a party of two is killed, and vetoed before", "nw", "ww", "", 2, .faults = FAULT_KILL, .victims = 2),
	PLAY("a party of three is killed", "w", "w", "w", 3, .faults = FAULT_KILL, .victims = 1),
	PLAY("one of those who wait for a third is killed", "w", "w", "", 3, .faults = FAULT_KILL, .victims = 1, .looks = 1),
	PLAY("a party is stopped, the others go on", "w", "w", "w", 2, .faults = FAULT_STOP, .victims = 1, .looks = 1),
	PLAY("a party of two is stopped", "nw", "ww", "", 2, .faults = FAULT_STOP, .victims = 2, .looks = 1),
	PLAY("one that may lose patience is stopped", "tt", "w", "", 2, .faults = FAULT_STOP, .victims = 2),
	PLAY("the daemon is killed while they veto", "w", "nn", "n", 2, .faults = FAULT_DAEMON, .noted = true),
	PLAY("the daemon is killed", "w", "t", "w", 2, .faults = FAULT_DAEMON),
};

static const struct scenario broken[] = {
	PLAY("nothing is noted", "w", "nn", "n", 2, .noted = true, .slip = SLIP_NO_NOTE),
	PLAY("a note is dropped, and nobody told", "w", "nn", "n", 2, .noted = true, .slip = SLIP_NO_SETTLE),
	PLAY("a note is dropped before it is told", "w", "nn", "n", 2, .noted = true, .slip = SLIP_DROP_FIRST),
	PLAY("the daemon makes no room", "w", "nn", "n", 2, .noted = true, .slip = SLIP_NO_SWEEP),
	PLAY("a cell does not say that its party comes", "w", "w", "", 3, .faults = FAULT_KILL, .victims = 1, .slip = SLIP_NO_CELL),
	PLAY("who opens the round wakes nobody, and nobody looks", "w", "w", "", 2, .slip = SLIP_NO_WAKE),
	PLAY("who sleeps does not ring, and one is stopped", "w", "w", "w", 3, .faults = FAULT_STOP, .victims = 1, .slip = SLIP_NO_RING),
	PLAY("who sleeps does not say so", "w", "w", "", 2, .slip = SLIP_NO_W),
	PLAY("the daemon hears of no death", "w", "w", "", 3, .faults = FAULT_KILL, .victims = 1, .slip = SLIP_NO_DEATH),
	PLAY("it breaks no round", "w", "w", "", 3, .faults = FAULT_KILL, .victims = 1, .slip = SLIP_NO_BURIAL),
	PLAY("it looks at W alone", "w", "w", "w", 2, .faults = FAULT_STOP, .victims = 1, .slip = SLIP_BLIND_LOOK),
	PLAY("it drops the word without another look", "w", "ww", "w", 2, .faults = FAULT_STOP, .victims = 1, .looks = 1, .slip = SLIP_NO_LOOK),
	PLAY("who gives up breaks whatever round there is", "t", "w", "w", 2, .slip = SLIP_ANY_ROUND),
	PLAY("a daemon that starts again does not look at everything", "w", "nn", "n", 2, .faults = FAULT_DAEMON, .noted = true, .slip = SLIP_NO_RESCAN),
};

int main(int argc, char **argv)
{
	unsigned only = argc > 1 ? (unsigned)atoi(argv[1]) : 0, number = 0, failed = 0;
	const size_t n = sizeof scenarios / sizeof *scenarios, m = sizeof broken / sizeof *broken;

	for (size_t i = 0; i < n + m; i++) {
		const struct scenario *s = i < n ? &scenarios[i] : &broken[i - n];
		const char *r;
		bool fine;

		if (only && only != ++number)
			continue;
		r = explore(s, only || i < n);
		fine = !r == (i < n);
		failed += !fine;
		printf("%sok %zu - %s%s (%s%s%u worlds)\n", fine ? "" : "not ", i + 1, i < n ? "" : "found out: ", s->title, r ? r : "", r ? ", " : "",
		       n_worlds);
		fflush(stdout);
	}
	printf("1..%zu\n", only ? 1 : n + m);
	return failed != 0;
}
