/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All players use one stack, at one address, so that pointers into it stay good; what lies between
 * the stack pointer and its top is copied out and in. A player only ever stops in play_do_at().
 */
#undef _FORTIFY_SOURCE  /* its longjmp refuses to leave one stack for another */
#include "play.h"

#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_SIZE 16384u
#define BELOW 64u       /* saved too: the stack pointer may be read before leave() has its frame */
#define STARTS_MAX 32u

/* What makes copies one player. No padding: it is compared as bytes. */
struct key {
	struct ask ask;
	struct known known;
	uint64_t place;                  /* where in the code it asks */
	uint32_t used;                   /* bytes of its stack */
	uint16_t role, round;
};
_Static_assert(sizeof(struct key) == 88, "no padding");

struct copy {
	struct key key;
	jmp_buf registers;
	unsigned char stack[];
};

struct reply {
	struct answer answer;
	uint32_t next;
};

struct player {
	struct key key;
	uint32_t *copy, copies;
	struct reply *reply;
	uint32_t replies;
};

struct memo {
	uint64_t value;
	uint32_t player, next;
	bool yes;
};

/* Open addressing: numbers by what they stand for; 0: nothing. */
struct table {
	uint32_t *number, places, used;
};

struct known play_known;
uint32_t play_copies_max = 8;

static _Alignas(64) unsigned char stack[STACK_SIZE];
static jmp_buf registers, outside;
static struct key now;
static struct answer answered;
static void (*running)(unsigned role, unsigned round);

static struct copy **copies;             /* by number, from 1 */
static uint32_t *player_of;              /* by copy */
static struct player *players;           /* by number, from 1 */
static struct table copy_table, player_table;
static uint32_t starts[STARTS_MAX];      /* by role * 8 + round */
static struct memo *memo;
static uint32_t memo_count, memo_places;
static uint32_t *untried, untried_count; /* copies that have not got the answers that their fellows got */

/* --- On the players' side --- */

static inline unsigned char *stack_pointer(void)
{
	unsigned char *sp;

#if defined(__x86_64__)
	__asm__ volatile("mov %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
	__asm__ volatile("mov %0, sp" : "=r"(sp));
#else
	sp = stack + BELOW;      /* the whole stack is saved: slower, and right */
#endif
	return sp;
}

static __attribute__((noinline)) void leave(void)
{
	now.used = (uint32_t)(stack + STACK_SIZE - stack_pointer()) + BELOW;
	assert(now.used <= STACK_SIZE);
	if (!_setjmp(registers))
		_longjmp(outside, 1);
}

__attribute__((noinline)) struct answer play_do_at(enum ask_kind kind, uint64_t a, uint64_t b, unsigned c,
							 unsigned line)
{
	now.ask = (struct ask){ a, b, (uint16_t)c, (uint16_t)line, (uint16_t)kind, (uint16_t)play_known.fn };
	now.place = (uintptr_t)__builtin_return_address(0);
	leave();
	return answered;
}

static void body(void)
{
	running(now.role, now.round);
	abort();                 /* a body ends with a question that is never answered */
}

/* --- Outside --- */

static void start(void)
{
	static ucontext_t fresh;

	memset(stack, 0, sizeof(stack));
	getcontext(&fresh);
	fresh.uc_stack.ss_sp = stack;
	fresh.uc_stack.ss_size = sizeof(stack);
	fresh.uc_link = NULL;
	makecontext(&fresh, body, 0);
	if (!_setjmp(outside))
		setcontext(&fresh);
}

static void resume(const struct copy *c, struct answer answer)
{
	now = c->key;
	play_known = now.known;
	answered = answer;
	memcpy(registers, c->registers, sizeof(registers));
	memset(stack, 0, STACK_SIZE - now.used);
	memcpy(stack + STACK_SIZE - now.used, c->stack, now.used);
	if (!_setjmp(outside))
		_longjmp(registers, 1);
}

static uint64_t mix(uint64_t h)
{
	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return h ^ h >> 32;
}

static uint64_t hash(const void *data, size_t size)
{
	const unsigned char *p = data;
	uint64_t h = size, part;

	for (; size >= 8; size -= 8, p += 8) {
		memcpy(&part, p, 8);
		h = mix(h ^ part);
	}
	part = 0;
	memcpy(&part, p, size);
	return mix(h ^ part);
}

static void *must(void *p)
{
	if (!p) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* Room for one more in an array that doubles when its size is a power of two. */
static void *room(void *array, uint32_t count, size_t size)
{
	return count & (count - 1) ? array : must(realloc(array, (count ? 2 * (size_t)count : 1) * size));
}

/* --- Numbers --- */

static size_t copy_size(const struct copy *c)
{
	return sizeof(*c) + c->key.used;
}

static uint32_t *copy_place(const struct copy *c)
{
	uint32_t mask = copy_table.places - 1, i = (uint32_t)hash(c, copy_size(c)) & mask, n;

	while ((n = copy_table.number[i]) &&
	       (copies[n]->key.used != c->key.used || memcmp(copies[n], c, copy_size(c)) != 0))
		i = (i + 1) & mask;
	return &copy_table.number[i];
}

static uint32_t *player_place(const struct key *k)
{
	uint32_t mask = player_table.places - 1, i = (uint32_t)hash(k, sizeof(*k)) & mask, n;

	while ((n = player_table.number[i]) && memcmp(&players[n].key, k, sizeof(*k)) != 0)
		i = (i + 1) & mask;
	return &player_table.number[i];
}

/* Makes room for one more. True: the table is empty, and all numbers must be put in again. */
static bool table_grow(struct table *t)
{
	if (2 * ++t->used < t->places)
		return false;
	free(t->number);
	t->places = t->places ? 4 * t->places : 1024;
	t->number = must(calloc(t->places, sizeof(*t->number)));
	return true;
}

static uint32_t player_number(const struct key *k)
{
	uint32_t *place = player_place(k), n = player_table.used;

	if (*place)
		return *place;
	players = room(players, n, sizeof(*players));
	players[n] = (struct player){ .key = *k };
	*place = n;
	if (table_grow(&player_table))
		for (uint32_t i = 1; i <= n; i++)
			*player_place(&players[i].key) = i;
	return n;
}

/* A copy that was not seen before joins its player, and will be tried. */
static void copy_new(const struct copy *c, uint32_t *place, uint32_t p)
{
	struct player *player = &players[p];
	uint32_t n = copy_table.used;

	if (player->copies == play_copies_max)
		return;
	copies = room(copies, n, sizeof(*copies));
	player_of = room(player_of, n, sizeof(*player_of));
	copies[n] = memcpy(must(malloc(copy_size(c))), c, copy_size(c));
	player_of[n] = p;
	*place = n;
	if (table_grow(&copy_table))
		for (uint32_t i = 1; i <= n; i++)
			*copy_place(copies[i]) = i;
	player->copy = room(player->copy, player->copies, sizeof(*player->copy));
	player->copy[player->copies++] = n;
	untried = room(untried, untried_count, sizeof(*untried));
	untried[untried_count++] = n;
}

/* The player that has just left its stack. */
static uint32_t arrived(void)
{
	static union {
		struct copy c;
		unsigned char room[sizeof(struct copy) + STACK_SIZE];
	} u;
	uint32_t *place, p;

	now.known = play_known;
	u.c.key = now;
	memcpy(u.c.registers, registers, sizeof(registers));
	memcpy(u.c.stack, stack + STACK_SIZE - now.used, now.used);
	p = player_number(&now);
	place = copy_place(&u.c);
	if (!*place)
		copy_new(&u.c, place, p);
	return p;
}

/* --- Trying --- */

static uint32_t try(uint32_t copy, struct answer answer)
{
	resume(copies[copy], answer);
	return arrived();
}

static void must_agree(const struct player *p, uint32_t next, uint32_t other)
{
	if (next == other)
		return;
	fprintf(stderr, "copies of one player of role %u differ after question %u of function %u: "
		"its code does not say all that it knows\n", p->key.role, p->key.ask.kind, p->key.ask.fn);
	exit(1);
}

static void try_untried(void)
{
	while (untried_count) {
		uint32_t copy = untried[--untried_count], p = player_of[copy];

		for (uint32_t i = 0; i < players[p].replies; i++) {
			struct reply r = players[p].reply[i];
			uint32_t next = try(copy, r.answer);

			must_agree(&players[p], next, r.next);
		}
	}
}

/* An answer that this player has not had before goes to all its copies; they may become more meanwhile. */
static uint32_t try_all(uint32_t number, struct answer answer)
{
	uint32_t next = try(players[number].copy[0], answer);
	struct player *p = &players[number];

	p->reply = room(p->reply, p->replies, sizeof(*p->reply));
	p->reply[p->replies++] = (struct reply){ answer, next };
	for (uint32_t i = 1; i < players[number].copies; i++) {
		uint32_t other = try(players[number].copy[i], answer);

		must_agree(&players[number], next, other);
	}
	try_untried();
	return next;
}

static struct memo *memo_of(uint32_t player, struct answer answer)
{
	uint32_t mask = memo_places - 1;
	uint32_t i = (uint32_t)mix(mix(answer.value ^ (uint64_t)player << 40) + player * 2u + answer.yes) & mask;

	while (memo[i].player && (memo[i].player != player || memo[i].value != answer.value ||
				  memo[i].yes != answer.yes))
		i = (i + 1) & mask;
	return &memo[i];
}

static void memo_grow(void)
{
	struct memo *old = memo;
	uint32_t places = memo_places;

	memo_places = places ? 2 * places : 1024;
	memo = must(calloc(memo_places, sizeof(*memo)));
	for (uint32_t i = 0; i < places; i++)
		if (old[i].player)
			*memo_of(old[i].player, (struct answer){ old[i].value, old[i].yes }) = old[i];
	free(old);
}

uint32_t play_answer(uint32_t player, struct answer answer)
{
	struct memo *m = memo_of(player, answer);
	uint32_t next;

	if (m->player)
		return m->next;
	next = try_all(player, answer);
	if (++memo_count > memo_places / 2)
		memo_grow();
	*memo_of(player, answer) = (struct memo){ answer.value, player, next, answer.yes };
	return next;
}

static void table_reset(struct table *t)
{
	free(t->number);
	memset(t, 0, sizeof(*t));
	table_grow(t);
}

void play_reset(void)
{
	for (uint32_t i = 1; i < copy_table.used; i++)
		free(copies[i]);
	for (uint32_t i = 1; i < player_table.used; i++) {
		free(players[i].copy);
		free(players[i].reply);
	}
	table_reset(&copy_table);
	table_reset(&player_table);
	free(copies);
	free(player_of);
	free(players);
	copies = room(NULL, 0, sizeof(*copies));
	player_of = room(NULL, 0, sizeof(*player_of));
	players = room(NULL, 0, sizeof(*players));
	memset(starts, 0, sizeof(starts));
	free(memo);
	memo = NULL;
	memo_places = memo_count = 0;
	memo_grow();
}

uint32_t play_start(unsigned role, unsigned round, void (*what)(unsigned role, unsigned round))
{
	uint32_t *known = &starts[role * 8 + round];

	assert(round < 8 && role * 8 + round < STARTS_MAX);
	if (*known)              /* else the registers that a fresh player inherits would make it another copy */
		return *known;
	memset(&now, 0, sizeof(now));
	memset(&play_known, 0, sizeof(play_known));
	now.role = (uint16_t)role;
	now.round = (uint16_t)round;
	running = what;
	start();
	*known = arrived();
	try_untried();
	return *known;
}

const struct ask *play_ask(uint32_t player)
{
	return &players[player].key.ask;
}

unsigned play_round(uint32_t player)
{
	return players[player].key.round;
}

uint32_t play_players(void)
{
	return player_table.used - 1;
}

uint32_t play_copies(void)
{
	return copy_table.used - 1;
}
