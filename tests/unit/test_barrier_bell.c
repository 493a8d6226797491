/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who rings at a barrier whose rounds the daemon completes (barrierword.h): nobody's coming is overlooked, though of those who
 * come again at once only the last one rings.
 *
 * Four clients, three of whom make a round, and a daemon that sleeps until the bell, or until once after it has told some. So
 * each time one of those who are expected does not come, and another one comes instead. If a coming is overlooked
 * nobody goes on.
 *
 * And what is told to who has entered a double barrier.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "proto/barrierword.h"

#define CLIENTS 4
#define PARTIES 3
#define ROUNDS  20000u
#define LAZY    16u                      /* after each 16th round one comes only when another one has been completed */
#define STUCK_S 60

static uint64_t word, notes[BARRIER_NOTES], cells[CLIENTS];
static const struct barrier_at at = { &word, notes };
static sem_t bell, go[CLIENTS];
static unsigned rounds, rings, ended, lazy = CLIENTS;
static bool over;

static int results, failed;

static void say(bool good, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++results, what);
	failed |= !good;
}

/* It has no processor between the daemon's word that it is inside and the one that it has broken. */
static void entered_and_broken(void)
{
	struct barrier_turn turn = { .cell = &cells[0] };
	enum barrier_verdict v;
	bool serial, told;
	uint64_t c;

	barrier_claim(turn.cell);
	barrier_come_remote(&turn, false);
	say(barrier_take(turn.cell, &c) && !barrier_look_remote(&turn, false, &v, &serial), "who is being waited for is told nothing");
	barrier_admit(turn.cell, turn.round, true);
	barrier_tell(turn.cell, turn.round, BARRIER_BROKEN, false);
	told = barrier_look_remote(&turn, false, &v, &serial);
	say(told && v == BARRIER_PASSED && serial && barrier_cell_entered(*turn.cell), "who has entered is told so, though it has broken since");
	barrier_depart(&turn);
	say(barrier_look_remote(&turn, true, &v, &serial) && v == BARRIER_BROKEN, "... and when it leaves, of that");
	barrier_leave(&turn);
	say(!barrier_cell_entered(*turn.cell), "the next to have the cell is not inside");
	cells[0] = 0;
}

static void one_after_the_other(void)
{
	struct barrier_turn turn = { .cell = &cells[0] };

	say(barrier_rings(&at), "whoever is not expected rings");
	for (unsigned i = 0; i < 3; i++)
		barrier_expect(&at, i == 0);
	bool first = barrier_rings(&at), second = barrier_rings(&at), third = barrier_rings(&at);
	say(!first && !second && third, "of three who are expected the last one rings");
	say(barrier_rings(&at), "and whoever comes after them");
	for (unsigned i = 0; i < 3; i++)
		barrier_expect(&at, i == 0);
	barrier_rings(&at);
	barrier_expect(&at, true);
	say(barrier_rings(&at), "what was expected before is forgotten with the next round");
	say(!barrier_expect_none(&at), "nobody is waited for, once all have come");
	barrier_expect(&at, true);
	barrier_claim(turn.cell);
	barrier_come_remote(&turn, false);
	say(barrier_expect_none(&at) && barrier_rings(&at), "who is not waited for any more rings");
	cells[0] = 0;
}

static void *client(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	struct barrier_turn turn = { .cell = &cells[i] };
	enum barrier_verdict v;
	bool serial;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		if (!barrier_claim(turn.cell))
			abort();
		barrier_come_remote(&turn, false);
		if (barrier_rings(&at)) {
			__atomic_fetch_add(&rings, 1, __ATOMIC_RELAXED);
			sem_post(&bell);
		}
		do
			sem_wait(&go[i]);
		while (!barrier_look_remote(&turn, false, &v, &serial));
		barrier_leave(&turn);
		while (__atomic_load_n(&lazy, __ATOMIC_ACQUIRE) == i && !__atomic_load_n(&over, __ATOMIC_ACQUIRE))
			usleep(20);
	}
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Tells the round's parties, if they are enough by now. */
static bool look(bool taken[CLIENTS])
{
	unsigned here = 0;
	uint64_t c;

	for (unsigned i = 0; i < CLIENTS; i++) {
		taken[i] |= barrier_take(&cells[i], &c);
		here += taken[i];
	}
	if (here < PARTIES)
		return false;
	unsigned told = 0, who[PARTIES];
	for (unsigned k = 0; k < CLIENTS && told < PARTIES; k++) {
		unsigned i = (k + rounds) % CLIENTS;

		if (!taken[i])
			continue;
		barrier_expect(&at, told == 0);
		barrier_tell(&cells[i], barrier_cell_round(__atomic_load_n(&cells[i], __ATOMIC_ACQUIRE)), BARRIER_PASSED, false);
		taken[i] = false;
		who[told++] = i;
	}
	__atomic_store_n(&lazy, rounds % LAZY ? CLIENTS : who[0], __ATOMIC_RELEASE);
	for (unsigned k = 0; k < PARTIES; k++)
		sem_post(&go[who[k]]);
	__atomic_fetch_add(&rounds, 1, __ATOMIC_RELEASE);
	return true;
}

static void *daemon_of_them(void *unused)
{
	bool taken[CLIENTS] = { false }, expects = false;

	(void)unused;
	while (rounds < ROUNDS) {
		struct timespec soon;

		clock_gettime(CLOCK_REALTIME, &soon);
		soon.tv_nsec += 100000;
		if (soon.tv_nsec >= 1000000000)
			soon.tv_sec++, soon.tv_nsec -= 1000000000;
		if (!expects)
			sem_wait(&bell);
		else if (sem_timedwait(&bell, &soon) < 0) {
			expects = false;
			barrier_expect_none(&at);
		}
		while (look(taken))
			expects = true;
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < CLIENTS) {    /* nobody is left asleep */
		for (unsigned i = 0; i < CLIENTS; i++) {
			uint64_t c;

			if (barrier_take(&cells[i], &c) || taken[i])
				barrier_tell(&cells[i], barrier_cell_round(__atomic_load_n(&cells[i], __ATOMIC_ACQUIRE)), BARRIER_PASSED, false);
			taken[i] = false;
			sem_post(&go[i]);
		}
		usleep(100);
	}
	return NULL;
}

static void all_at_once(void)
{
	pthread_t thread[CLIENTS + 1];
	unsigned seen = 0, stuck = 0;

	notes[0] = 0;
	sem_init(&bell, 0, 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		sem_init(&go[i], 0, 0);
		pthread_create(&thread[i], NULL, client, (void *)(uintptr_t)i);
	}
	pthread_create(&thread[CLIENTS], NULL, daemon_of_them, NULL);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE) && stuck < STUCK_S * 100) {
		unsigned now = __atomic_load_n(&rounds, __ATOMIC_ACQUIRE);

		stuck = now == seen ? stuck + 1 : 0;
		seen = now;
		usleep(10000);
	}
	for (unsigned i = 0; i <= CLIENTS && __atomic_load_n(&over, __ATOMIC_ACQUIRE); i++)
		pthread_join(thread[i], NULL);
	say(__atomic_load_n(&over, __ATOMIC_ACQUIRE), "nobody's coming is overlooked");
	seen = __atomic_load_n(&rings, __ATOMIC_RELAXED);
	printf("# %u rounds of %u, the bell was rung %u times\n", __atomic_load_n(&rounds, __ATOMIC_ACQUIRE), PARTIES, seen);
	say(seen < 2 * ROUNDS, "most need not ring");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("1..12");
	entered_and_broken();
	one_after_the_other();
	all_at_once();
	_exit(failed);                           /* whoever is stuck stays so */
}
