/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The accounts of a semaphore, exhaustively: the transitions of semword.h, a step for each of their loads and stores, in
 * every order in which two processes (one with a thread, whose posts are plain stores, one with two) and the daemon
 * can take them, with a lapse, a death of a process and a death of the daemon at any step.
 *
 * In every world that can be reached
 *   - no more threads are in than there are permits, and no more of a process than its sum allows; whoever is in since before a lapse does not count
 *   - the words' sums are at most the ledger's, and these and what is free are at most all there is
 *   - where nobody can take a step any more, everybody is through (no wake-up is lost), and all permits are there.
 *
 * Then one rule is broken at a time, and that must be found out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/semword.h"

#define CLIENTS 2
#define THREADS 3
#define PERMITS 1

enum bend {
	BEND_NONE,
	BEND_GRANT_FIRST,        /* the grant reaches the word before the ledger */
	BEND_TAKE_FIRST,         /* what is taken back leaves the ledger before the word */
	BEND_BELL_LATE,          /* who waits reads the bell after it has looked */
	BEND_DEAF,               /* a post does not look for A again */
	BEND_AS_GIVEN,           /* a lapse counts what was lost as given back */
	BEND_SWAP,               /* the daemon does not ask whether the word is still what it was */
	BENDS,
};
static const char *const bends[BENDS] = {
	"as it is", "a grant reaches the word before the ledger", "what is taken back leaves the ledger first",
	"who waits reads the bell last", "a post does not look for A again", "a lapse counts what was lost as given back", "the daemon takes without asking again",
};
static enum bend bend;

/* A thread: what it does next, and what it has read. */
enum { T_OUT, T_BELL, T_SET_A, T_W, T_G, T_CAS, T_ASK, T_SLEEP, T_BELL_LATE, T_IN, T_P_G, T_P_W, T_P_CAS,
       T_P_LOOK, T_P_RING, T_DONE, T_DEAD };

struct thread {
	uint8_t at, left;
	uint8_t stale;                   /* in since before a lapse */
	uint8_t rung;                    /* the bell is not what it has read any more */
	uint64_t w, g;
};

/* The daemon. */
enum { D_IDLE, D_GIVE_LEDGER, D_GIVE_WORD, D_GIVE_BELL, D_TAKE_G, D_TAKE_CAS, D_TAKE_LEDGER, D_LAPSE_LOST, D_LAPSE_CAS, D_LAPSE_LEDGER,
       D_LAPSE_END, D_DEAD };

struct world {
	uint64_t word[CLIENTS], given[CLIENTS];
	struct thread t[THREADS];
	uint64_t w, g;                   /* the daemon's */
	uint32_t lost[CLIENTS];
	uint8_t want[CLIENTS], ledger[CLIENTS], gone[CLIENTS];
	uint8_t free;
	uint8_t d, c;                    /* what the daemon does, with whom */
	uint8_t lapses, kills, crashes;  /* that may still come */
	uint8_t fresh[CLIENTS];          /* the daemon has not looked at what is wanted */
	uint8_t unused[2];
};

static const int client_of[THREADS] = { 0, 1, 1 };
static bool alone(int t)
{
	return client_of[t] == 0;
}

/* --- Worlds that were seen --- */

static struct world *queue;
static size_t queue_n, queue_cap;
static uint32_t *table;
static size_t table_size;
static const char *wrong;

static uint64_t hash(const struct world *w)
{
	const uint64_t *v = (const uint64_t *)w;
	uint64_t h = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i < sizeof *w / 8; i++) {
		h = (h ^ v[i]) * 0xff51afd7ed558ccd;
		h ^= h >> 32;
	}
	return h;
}

_Static_assert(sizeof(struct world) % 8 == 0, "hashed by words");

static void rehash(void)
{
	table_size = table_size ? table_size * 2 : 1 << 16;
	free(table);
	table = calloc(table_size, sizeof *table);
	for (size_t i = 0; i < queue_n; i++) {
		size_t at = hash(&queue[i]) & (table_size - 1);

		while (table[at])
			at = (at + 1) & (table_size - 1);
		table[at] = (uint32_t)i + 1;
	}
}

static void reach(const struct world *w)
{
	size_t at;

	if (queue_n * 2 >= table_size)
		rehash();
	for (at = hash(w) & (table_size - 1); table[at]; at = (at + 1) & (table_size - 1))
		if (!memcmp(&queue[table[at] - 1], w, sizeof *w))
			return;
	if (queue_n == queue_cap) {
		queue_cap = queue_cap ? queue_cap * 2 : 1 << 14;
		queue = realloc(queue, queue_cap * sizeof *queue);
		if (!queue)
			exit(2);
	}
	queue[queue_n++] = *w;
	table[at] = (uint32_t)queue_n;
}

/* --- What must hold --- */

static void judge(const struct world *w)
{
	int in = 0, all = w->free;

	for (int c = 0; c < CLIENTS; c++) {
		int here = 0;

		for (int t = 0; t < THREADS; t++)
			here += client_of[t] == c && !w->t[t].stale && w->t[t].at >= T_IN && w->t[t].at <= T_P_CAS;
		if (here > w->ledger[c])
			wrong = "more are in than their process has";
		if (!w->gone[c] && sem_sum(w->word[c]) > w->ledger[c])
			wrong = "a word says more than the ledger";
		in += here;
		all += w->ledger[c];
	}
	if (in > PERMITS)
		wrong = "more are in than there are permits";
	if (all > PERMITS)
		wrong = "there are more permits than there are";
}

/* --- Steps of a thread --- */

static void ring(struct world *w, int c)
{
	for (int t = 0; t < THREADS; t++)
		if (client_of[t] == c && w->t[t].at > T_BELL && w->t[t].at <= T_BELL_LATE)
			w->t[t].rung = true;
}

/* false: it waits. */
static bool thread_step(struct world *w, int i)
{
	struct thread *t = &w->t[i];
	int c = client_of[i];

	switch (t->at) {
	case T_OUT:
		t->at = t->left ? T_BELL : T_DONE;
		if (t->left)
			t->left--;
		return true;
	case T_BELL:
		t->rung = false;
		t->at = T_SET_A;
		return true;
	case T_SET_A:
		w->word[c] |= SEM_A;
		t->at = T_W;
		return true;
	case T_W:
		t->w = w->word[c];
		t->at = T_G;
		return true;
	case T_G:
		t->g = w->given[c];
		t->at = sem_may_take(t->w, t->g, w->lost[c], 1, 0) ? T_CAS : bend == BEND_BELL_LATE ? T_BELL_LATE : T_ASK;
		return true;
	case T_CAS:
		if (w->word[c] == t->w) {
			w->word[c] = sem_taken(t->w, 1);
			t->at = T_IN;
			t->stale = w->d >= D_LAPSE_LOST && w->d <= D_LAPSE_LEDGER;       /* or: it sees that the deadline is over */
		} else {
			t->w = w->word[c];
			t->at = T_G;
		}
		return true;
	case T_BELL_LATE:
		t->rung = false;
		t->at = T_ASK;
		return true;
	case T_ASK:
		w->fresh[c] |= !w->want[c];      /* else the daemon has it in its queue, and is not told again */
		w->want[c] = 1;
		t->at = T_SLEEP;
		return true;
	case T_SLEEP:
		if (!t->rung)
			return false;
		t->at = T_BELL;
		return true;
	case T_IN:
		t->at = T_P_G;
		return true;
	case T_P_G:
		t->g = w->given[c];
		t->at = T_P_W;
		return true;
	case T_P_W:
		t->w = w->word[c];
		t->at = sem_may_give(t->w, t->g, 1) ? T_P_CAS : T_OUT;
		if (t->at == T_OUT)
			wrong = "one who has taken cannot give";
		return true;
	case T_P_CAS:
		if (alone(i) || w->given[c] == t->g) {
			w->given[c] = sem_given(t->g, 1);
			t->at = T_P_LOOK;
		} else {
			t->g = w->given[c];
			t->at = T_P_W;
		}
		return true;
	case T_P_LOOK:
		t->at = (w->word[c] & SEM_A) && bend != BEND_DEAF ? T_P_RING : T_OUT;
		return true;
	case T_P_RING:                   /* sem_owes() */
		ring(w, c);
		if ((w->lost[c] & SEM_L) && !sem_stale(w->word[c], w->given[c], w->lost[c]))
			w->lost[c] = 0;
		t->at = T_OUT;
		return true;
	}
	return false;
}

/* --- Steps of the daemon --- */

static void give(struct world *w)
{
	w->free--;
	w->ledger[w->c]++;
}

static void take_from(struct world *w)
{
	w->ledger[w->c]--;
	w->free++;
}

static void daemon_step(struct world *w)
{
	int c = w->c;

	switch (w->d) {
	case D_GIVE_LEDGER:
		if (bend == BEND_GRANT_FIRST)
			w->word[c]++;
		else
			give(w);
		w->d = D_GIVE_WORD;
		return;
	case D_GIVE_WORD:
		if (bend == BEND_GRANT_FIRST)
			give(w);
		else
			w->word[c]++;
		w->want[c] = w->fresh[c] = 0;
		w->d = D_GIVE_BELL;
		return;
	case D_GIVE_BELL:
		ring(w, c);
		w->d = D_IDLE;
		return;
	case D_TAKE_G:
		w->g = w->given[c];
		w->d = D_IDLE;
		if (sem_idle(w->w, w->g, w->lost[c])) {
			if (bend == BEND_TAKE_FIRST)
				take_from(w);
			w->d = D_TAKE_CAS;
		}
		return;
	case D_TAKE_CAS:
		if (w->word[c] == w->w || (bend == BEND_SWAP && sem_sum(w->word[c]))) {
			w->word[c]--;
			w->d = bend == BEND_TAKE_FIRST ? D_IDLE : D_TAKE_LEDGER;
		} else {
			if (bend == BEND_TAKE_FIRST) {
				w->ledger[c]++;
				w->free--;
			}
			w->d = D_IDLE;
		}
		return;
	case D_TAKE_LEDGER:
		take_from(w);
		w->d = D_IDLE;
		return;
	case D_LAPSE_LOST:
		w->w = w->word[c];
		w->lost[c] = (uint32_t)(w->w >> 32 & SEM_GIVEN) | SEM_L;
		w->d = D_LAPSE_CAS;
		return;
	case D_LAPSE_CAS:
		if (w->word[c] != w->w && bend != BEND_SWAP) {
			w->d = D_LAPSE_LOST;
			return;
		}
		w->word[c] = (w->w & ~SEM_SUM) | SEM_A;
		if (bend == BEND_AS_GIVEN)
			w->given[c] = w->w >> 32 & SEM_GIVEN;
		w->d = D_LAPSE_LEDGER;
		return;
	case D_LAPSE_LEDGER:
		w->ledger[c] = 0;
		ring(w, c);
		w->c++;
		w->d = w->c < CLIENTS ? D_LAPSE_LOST : D_LAPSE_END;
		return;
	case D_LAPSE_END:                /* the next session has all of it again */
		w->free = PERMITS;
		w->w = w->g = 0;
		w->c = 0;
		w->d = D_IDLE;
		return;
	}
}

static bool daemon_may_choose(const struct world *w, int c, bool *ret_give)
{
	*ret_give = w->free > 0;
	return !w->gone[c] && w->want[c];
}

/* Serves one who wants; takes back from the other what is not held. Returns whether there was something to do. */
static bool daemon_begins(const struct world *w)
{
	bool any = false, can_give;

	for (int c = 0; c < CLIENTS; c++) {
		struct world n = *w;
		int from = 1 - c;

		if (!daemon_may_choose(w, c, &can_give))
			continue;
		if (can_give) {
			n.c = (uint8_t)c;
			n.d = D_GIVE_LEDGER;
			reach(&n);
			any = true;
		} else if (!w->gone[from] && sem_idle(w->word[from], w->given[from], w->lost[from])) {
			n.c = (uint8_t)from;
			n.w = w->word[from];
			n.d = D_TAKE_G;
			reach(&n);
			any = true;
		} else if (w->fresh[c] && !sem_idle(w->word[c], w->given[c], w->lost[c])) {
			n.fresh[c] = 0;
			reach(&n);
			any = true;
		} else if (w->fresh[c]) {        /* its own: it has only to be told to look */
			n.want[c] = n.fresh[c] = 0;
			n.c = (uint8_t)c;
			n.d = D_GIVE_BELL;
			reach(&n);
			any = true;
		}
	}
	return any;
}

static void lapse(const struct world *w)
{
	struct world n = *w;

	if (!w->lapses || w->d == D_DEAD || w->gone[0] || w->gone[1])
		return;
	n.lapses--;
	for (int t = 0; t < THREADS; t++)        /* the deadline goes first: nobody relies on what he has from here on */
		n.t[t].stale = n.t[t].at >= T_IN && n.t[t].at <= T_P_CAS;
	n.c = 0;
	n.d = D_LAPSE_LOST;
	reach(&n);
}

static void kill_client(const struct world *w, int c)
{
	struct world n = *w;

	if (!w->kills || w->d != D_IDLE)         /* the daemon looks at a death between two of its own steps */
		return;
	n.kills--;
	n.gone[c] = true;
	for (int t = 0; t < THREADS; t++)
		if (client_of[t] == c)
			n.t[t] = (struct thread){ .at = T_DEAD };
	n.free = (uint8_t)(n.free + n.ledger[c]);
	n.ledger[c] = 0;
	n.word[c] = n.given[c] = 0;
	n.want[c] = n.fresh[c] = 0;
	n.lost[c] = 0;
	reach(&n);
}

/* The next daemon believes the ledger, and of the words what is not more. */
static void crash(const struct world *w)
{
	struct world n = *w;

	if (!w->crashes || w->d >= D_LAPSE_LOST || w->d == D_IDLE)
		return;
	n.crashes--;
	n.d = D_IDLE;
	n.w = n.g = 0;
	n.free = PERMITS;
	for (int c = 0; c < CLIENTS; c++) {
		if (sem_sum(n.word[c]) < n.ledger[c])
			n.ledger[c] = (uint8_t)sem_sum(n.word[c]);
		n.free = (uint8_t)(n.free - n.ledger[c]);
		for (int t = 0; t < THREADS; t++)        /* whoever sleeps has what it wants in its account still */
			if (client_of[t] == c && n.t[t].at == T_SLEEP)
				n.want[c] = n.fresh[c] = 1;
	}
	reach(&n);
}

/* What it will not need any more, so that worlds which differ in nothing else are one. */
static void thread_forget(struct thread *t)
{
	if (t->at == T_OUT || t->at == T_DONE)
		t->stale = 0;
	if (t->at != T_G && t->at != T_CAS)
		t->w = 0;
	if (t->at != T_P_W && t->at != T_P_CAS)
		t->g = 0;
	if (t->at >= T_IN || t->at == T_OUT)
		t->rung = 0;
}

static bool step_all(const struct world *w)
{
	bool any = false;

	for (int t = 0; t < THREADS; t++) {
		struct world n = *w;

		if (!thread_step(&n, t))
			continue;
		thread_forget(&n.t[t]);
		reach(&n);
		any = true;
	}
	if (w->d != D_IDLE) {
		struct world n = *w;

		daemon_step(&n);
		if (n.d == D_IDLE)
			n.w = n.g = 0;
		reach(&n);
		any = true;
	} else {
		any |= daemon_begins(w);
		lapse(w);
	}
	return any;
}

static void rest(const struct world *w)
{
	int all = w->free;

	for (int t = 0; t < THREADS; t++)
		if (w->t[t].at != T_DONE && w->t[t].at != T_DEAD)
			wrong = "somebody waits for ever";
	for (int c = 0; c < CLIENTS; c++)
		all += w->ledger[c];
	if (all != PERMITS)
		wrong = "a permit has gone";
}

static bool explore(enum bend how, const struct world *begin)
{
	bend = how;
	wrong = NULL;
	queue_n = 0;
	table_size = 0;
	reach(begin);
	for (size_t i = 0; i < queue_n && !wrong; i++) {
		struct world w = queue[i];

		judge(&w);
		if (!step_all(&w))
			rest(&w);
		for (int c = 0; c < CLIENTS; c++)
			kill_client(&w, c);
		crash(&w);
	}
	return !wrong;
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct world calm = { .free = PERMITS, .t = { { .left = 1 }, { .left = 1 }, { .left = 1 } } }, deaths = calm, lapses = calm, restarts = calm;
	const struct { const char *what; const struct world *w; } scenes[] = {
		{ "all orders", &calm }, { "a process ends at any step", &deaths }, { "a session ends at any step", &lapses },
		{ "the daemon ends at any step", &restarts },
	};
	unsigned n = 0;

	deaths.kills = 1;
	lapses.lapses = 1;
	restarts.crashes = 1;
	restarts.kills = 1;
	for (unsigned i = 0; i < 4; i++) {
		bool good = explore(BEND_NONE, scenes[i].w);

		printf("%s %u - %s: %zu worlds%s%s\n", good ? "ok" : "not ok", ++n, scenes[i].what, queue_n, good ? "" : ": ", good ? "" : wrong);
	}
	for (int b = BEND_NONE + 1; b < BENDS; b++) {
		bool good = true;

		for (unsigned i = 0; i < 4 && good; i++)
			good = explore((enum bend)b, scenes[i].w);
		printf("%s %u - %s: %s\n", good ? "not ok" : "ok", ++n, bends[b], good ? "nothing is noticed" : wrong);
	}
	printf("1..%u\n", n);
	free(queue);
	free(table);
	return 0;
}
