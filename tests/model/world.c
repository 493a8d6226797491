/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "world.h"
#include "judge.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/lockword.h"             /* only the bits and the pure functions are used here */

const struct scenario *scenario;

static bool is_alive(const struct world *w, unsigned role)
{
	return w->who[role] && !((w->dead | w->stopped) & 1u << role);
}

static bool is_asleep(const struct world *w, unsigned role)
{
	for (unsigned i = 0; i < w->sleepers; i++)
		if (w->queue[i] == role)
			return true;
	return false;
}

/* --- Keeping --- */

static uint32_t list_keep(const uint8_t *list, unsigned n)
{
	return list[0] | (uint32_t)list[1] << 2 | (uint32_t)list[2] << 4 | n << 6;
}

static uint8_t list_recall(uint32_t kept, uint8_t *list)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		list[i] = kept >> 2 * i & 3;
	return (uint8_t)(kept >> 6);
}

void world_keep(const struct world *w, struct kept *k)
{
	for (unsigned role = 0; role < ROLES; role++)
		assert(w->who[role] < 1u << 24);
	assert(world_count(w->word) >= -128 && world_count(w->word) <= 127 && w->bias < 64);
	*k = (struct kept){
		.word = w->word & 0xffffff, .count = (uint32_t)world_count(w->word) & 0xff,
		.who0 = w->who[0], .queue = list_keep(w->queue, w->sleepers),
		.who1 = w->who[1], .line = list_keep(w->line, w->in_line),
		.who2 = w->who[2], .flags = w->flags, .closes = w->closes,
		.who3 = w->who[3], .last_token = w->last_token, .looks = w->looks,
		.crowd = w->crowd, .dead = w->dead, .stopped = w->stopped, .death = w->death >> 1, .inside = w->inside,
		.lost = w->lost, .holder = w->holder, .bias = w->bias, .grants = w->grants, .faults = w->faults,
		.steals = w->steals, .spurious = w->spurious, .rescues = w->rescues,
	};
}

void world_recall(const struct kept *k, struct world *w)
{
	*w = (struct world){
		.word = k->word | (uint64_t)(int64_t)(int8_t)k->count << LOCK_COUNT_SHIFT,
		.who = { k->who0, k->who1, k->who2, k->who3 },
		.flags = k->flags, .closes = k->closes, .last_token = k->last_token, .looks = k->looks,
		.crowd = k->crowd, .dead = k->dead, .stopped = k->stopped, .death = (uint8_t)(k->death << 1),
		.inside = k->inside, .lost = k->lost, .holder = k->holder, .bias = k->bias, .grants = k->grants,
		.faults = k->faults, .steals = k->steals, .spurious = k->spurious, .rescues = k->rescues,
	};
	w->sleepers = list_recall(k->queue, w->queue);
	w->in_line = list_recall(k->line, w->line);
}

/* --- Players go on --- */

static bool is_gone(const struct world *w, uint64_t client)
{
	for (unsigned role = 0; role < CLIENTS_MAX; role++)
		if (scenario->players.index[role] == client && (w->dead & 1u << role))
			return true;
	return false;
}

/* Deals with what the player asks at once, until it asks for a step. */
static void settle(struct world *w, unsigned role)
{
	for (;;) {
		const struct ask *a = play_ask(w->who[role]);
		struct answer next = { 0, true };

		switch (a->kind) {
		case ASK_GONE:
			next.value = is_gone(w, a->a);
			break;
		case ASK_ENTER:
			judge_enter(w, role, a);
			break;
		case ASK_POSTED:
			judge_posted(w, role, a);
			break;
		case ASK_MENDED:
			judge_mended(w, role, a->a);
			break;
		case ASK_ROUND:
			world_take_out(w->line, &w->in_line, role);
			w->who[role] = play_start(role, play_round(w->who[role]) + 1, players_client);
			continue;
		default:
			return;
		}
		w->who[role] = play_answer(w->who[role], next);
	}
}

static void go_on(struct world *w, unsigned role, struct answer answer)
{
	w->who[role] = play_answer(w->who[role], answer);
	settle(w, role);
}

void world_begin(struct world *w)
{
	uint8_t n = scenario->ranges[0];

	memset(w, 0, sizeof(*w));
	players = scenario->players;
	if (!scenario->closed) {
		w->word = lock_range_word(n);
		w->grants = scenario->ranges[1] != 0;
		w->bias = n;
	}
	for (unsigned role = 0; role < CLIENTS_MAX; role++)
		if (players.script[role])
			w->who[role] = play_start(role, 0, players_client);
	if (players.daemon)
		w->who[DAEMON] = play_start(DAEMON, scenario->watched ? DAEMON_WATCHES : 0, players_daemon);
	if (scenario->watched)
		w->flags = 1u << (players.slip == SLIP_RING_IF_CLEAR ? FLAG_WATCH : FLAG_WATCHED);
}

/* --- The kernel --- */

static unsigned class_of(const struct world *w, unsigned role)
{
	unsigned class = (unsigned)play_ask(w->who[role])->b;

	if (scenario->bend.heir_in_line && (class & LOCK_CLASS_HEIR))
		class ^= LOCK_CLASS_HEIR | LOCK_CLASS_WAITER;
	return class;
}

static unsigned kernel_wake(struct world *w, uint64_t n, uint64_t class)
{
	unsigned woken = 0;

	for (unsigned i = 0; i < w->sleepers && woken < n;) {
		unsigned role = w->queue[i];

		if (!(class_of(w, role) & class)) {
			i++;
			continue;
		}
		world_take_out(w->queue, &w->sleepers, role);
		go_on(w, role, (struct answer){ SLEPT_WOKEN, true });
		woken++;
	}
	if (n == INT_MAX && woken)
		judge_disorder(w);
	return woken;
}

static bool kernel_sleep(struct world *w, unsigned role, const struct ask *a)
{
	bool known = w->crowd;

	if (((uint32_t)w->word ^ a->a) & ~bend_ignored(&scenario->bend))
		return false;
	w->queue[w->sleepers++] = (uint8_t)role;
	for (unsigned i = 0; i < w->in_line; i++)
		known |= w->line[i] == role;
	if (!known && scenario->in_order)
		w->line[w->in_line++] = (uint8_t)role;
	return true;
}

/* --- Steps --- */

static struct answer do_cas(struct world *w, unsigned role, const struct ask *a)
{
	uint64_t old = w->word, new;

	if (old != a->a)
		return (struct answer){ old, false };
	new = bend_cas(&scenario->bend, a->fn, old, a->b);
	w->word = new;
	judge_cas(w, role, a->fn, old, new);
	return (struct answer){ 0, true };
}

static struct answer do_wake(struct world *w, const struct ask *a)
{
	if (bend_swallows(&scenario->bend, a->fn, a->a))
		return (struct answer){ 1, true };
	return (struct answer){ kernel_wake(w, a->a, scenario->bend.wake_any ? LOCK_CLASS_ANY : a->b), true };
}

static struct answer do_set(struct world *w, const struct ask *a)
{
	bool was = w->flags & 1u << a->a;

	w->flags = (uint8_t)((w->flags & ~(1u << a->a)) | (unsigned)a->b << a->a);
	return (struct answer){ was, true };
}

static struct answer do_range(struct world *w)
{
	uint8_t n = scenario->ranges[w->grants];

	w->grants += w->grants < RANGES_MAX - 1 && scenario->ranges[w->grants + 1];
	w->bias = (uint8_t)(w->bias + n);
	return (struct answer){ n, true };
}

/* A step of the player that has just one outcome. False: it sleeps now. */
static bool do_step(struct world *w, unsigned role)
{
	struct ask a = *play_ask(w->who[role]);
	struct answer r = { 0, true };

	switch (a.kind) {
	case ASK_LOAD:
		r.value = w->word;
		break;
	case ASK_CAS:
		r = do_cas(w, role, &a);
		break;
	case ASK_WAKE:
		r = do_wake(w, &a);
		break;
	case ASK_SLEEPERS:
		r.value = w->sleepers + ((uint32_t)w->word != a.a);
		break;
	case ASK_SLEEP:
		if (kernel_sleep(w, role, &a))
			return false;
		r.value = SLEPT_AGAIN;
		break;
	case ASK_GET:
		r.value = w->flags >> a.a & 1u;
		break;
	case ASK_SET:
		r = do_set(w, &a);
		break;
	case ASK_RANGE:
		r = do_range(w);
		break;
	case ASK_LEAVE:
		w->inside &= ~(1u << role);
		break;
	default:
		assert(!"a question with one outcome");
	}
	go_on(w, role, r);
	return true;
}

struct steps {
	struct step *step;
	unsigned n;
	unsigned wrong_step;
	const char *wrong;
};

static struct world *add(struct steps *s, const struct world *from, unsigned role, const char *event, bool forced)
{
	struct step *step = &s->step[s->n++];

	assert(s->n <= STEPS_MAX);
	step->to = *from;
	step->actor = (uint8_t)role;
	step->event = event;
	step->forced = forced;
	step->guess = false;
	return &step->to;
}

/* After each change to the world that add() gave. */
static void added(struct steps *s)
{
	const char *wrong = judge_verdict();

	if (wrong && !s->wrong) {
		s->wrong = wrong;
		s->wrong_step = s->n - 1;
	}
}

static void add_answer(struct steps *s, const struct world *w, unsigned role, const char *event, bool forced,
		       struct answer answer)
{
	struct world *to = add(s, w, role, event, forced);

	if (is_asleep(w, role))
		world_take_out(to->queue, &to->sleepers, role);
	go_on(to, role, answer);
	added(s);
}

/* The step last added is wrong. */
static void fail(struct steps *s, const char *what)
{
	s->wrong = what;
	s->wrong_step = s->n - 1;
}

static void client_steps(struct steps *s, const struct world *w, unsigned role)
{
	const struct ask *a = play_ask(w->who[role]);

	if (a->kind == ASK_NOTHING)
		return;
	if (is_asleep(w, role)) {
		if (a->c & SLEEP_DEADLINE)
			add_answer(s, w, role, "has reached its deadline", false, (struct answer){ SLEPT_LATE, true });
		if (a->c & SLEEP_FORCE)
			add_answer(s, w, role, "has been heir for long", false, (struct answer){ SLEPT_FORCE, true });
		if (w->spurious < scenario->spurious) {
			add_answer(s, w, role, "wakes for no reason", false, (struct answer){ SLEPT_AGAIN, true });
			s->step[s->n - 1].to.spurious++;
		}
		return;
	}
	do_step(add(s, w, role, NULL, true), role);
	added(s);
}

/* Called last: a look that nothing else requires comes for free when all else is at rest. */
static void daemon_steps(struct steps *s, const struct world *w, bool at_rest)
{
	const struct ask *a = play_ask(w->who[DAEMON]);
	bool watching = a->a;

	if (a->kind != ASK_IDLE) {
		do_step(add(s, w, DAEMON, NULL, true), DAEMON);
		added(s);
		return;
	}
	if (w->flags & 1u << FLAG_BELL) {
		add_answer(s, w, DAEMON, "the bell", true, (struct answer){ EVENT_BELL, true });
		s->step[s->n - 1].to.flags &= ~(1u << FLAG_BELL);
		at_rest = false;
	}
	for (unsigned c = 1; c <= CLIENTS_MAX; c++) {
		if (!(w->death & 1u << c))
			continue;
		add_answer(s, w, DAEMON, "hears of a death", true, (struct answer){ EVENT_DEATH + c, true });
		s->step[s->n - 1].to.death &= ~(1u << c);
		at_rest = false;
	}
	if (watching && (at_rest || w->looks < scenario->looks)) {
		add_answer(s, w, DAEMON, "looks", false, (struct answer){ EVENT_LOOK, true });
		s->step[s->n - 1].to.looks += !at_rest;
		s->step[s->n - 1].to.rescues += at_rest;
		if (at_rest && w->rescues == RESCUES_MAX && !s->wrong)
			fail(s, "the daemon's looks are needed again and again");
	}
	if (w->closes < scenario->closes) {
		add_answer(s, w, DAEMON, "closes", false, (struct answer){ EVENT_CLOSE, true });
		s->step[s->n - 1].to.closes++;
	}
	if (w->steals < scenario->steals) {
		add_answer(s, w, DAEMON, "takes the hold away", false, (struct answer){ EVENT_STEAL, true });
		s->step[s->n - 1].to.steals++;
	}
}

static void kill_client(struct world *w, unsigned client)
{
	w->faults = 1;
	if (scenario->players.slip != SLIP_NO_DEATH)
		w->death |= 1u << client;
	for (unsigned role = 0; role < CLIENTS_MAX; role++) {
		if (scenario->players.index[role] != client)
			continue;
		w->dead |= 1u << role;
		w->who[role] = 0;
		w->inside &= ~(1u << role);
		w->lost &= ~(1u << role);
		world_take_out(w->queue, &w->sleepers, role);
		world_take_out(w->line, &w->in_line, role);
	}
}

static void stop_client(struct world *w, unsigned client)
{
	w->faults = 1;
	for (unsigned role = 0; role < CLIENTS_MAX; role++)
		if (scenario->players.index[role] == client)
			w->stopped |= 1u << role;
}

static bool is_busy(const struct world *w, unsigned client)
{
	for (unsigned role = 0; role < CLIENTS_MAX; role++)
		if (scenario->players.index[role] == client && w->who[role] &&
		    play_ask(w->who[role])->kind != ASK_NOTHING)
			return true;
	return false;
}

static void fault_steps(struct steps *s, const struct world *w)
{
	if (w->faults)
		return;
	for (unsigned client = 1; client <= CLIENTS_MAX; client++) {
		if (!is_busy(w, client) || client > scenario->victims)
			continue;
		if (scenario->faults & FAULT_KILL)
			kill_client(add(s, w, client - 1, "a client is killed", false), client);
		if (scenario->faults & FAULT_STOP)
			stop_client(add(s, w, client - 1, "a client is stopped", false), client);
	}
	if (scenario->faults & FAULT_DAEMON) {
		struct world *to = add(s, w, DAEMON, "the daemon is killed and starts again", false);

		to->faults = 1;
		to->who[DAEMON] = play_start(DAEMON, DAEMON_AGAIN, players_daemon);
		settle(to, DAEMON);
	}
}

/* Nobody who lives waits, unless for one who is stopped while holding. */
static bool is_good(const struct world *w)
{
	if (w->holder && (w->stopped & 1u << (w->holder - 1)))
		return true;
	for (unsigned role = 0; role < CLIENTS_MAX; role++)
		if (is_alive(w, role) && play_ask(w->who[role])->kind != ASK_NOTHING)
			return false;
	return true;
}

/* Guessing what time it is touches nothing common, so no order with others has to be tried. */
static bool guess_steps(struct steps *s, const struct world *w)
{
	for (unsigned role = 0; role < ROLES; role++) {
		if (!is_alive(w, role) || play_ask(w->who[role])->kind != ASK_GUESS)
			continue;
		add_answer(s, w, role, "finds it early", true, (struct answer){ 0, false });
		add_answer(s, w, role, "finds it late", true, (struct answer){ 0, true });
		s->step[0].guess = s->step[1].guess = true;
		return true;
	}
	return false;
}

static bool at_rest(const struct steps *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->step[i].forced)
			return false;
	return true;
}

unsigned world_steps(const struct world *w, struct step *ret_steps, const char **ret_wrong, unsigned *ret_step,
		     bool *ret_good)
{
	struct steps s = { .step = ret_steps };
	bool rest;

	*ret_good = is_good(w);
	if (!guess_steps(&s, w)) {
		for (unsigned role = 0; role < CLIENTS_MAX; role++)
			if (is_alive(w, role))
				client_steps(&s, w, role);
		rest = at_rest(&s);
		if (w->who[DAEMON])
			daemon_steps(&s, w, rest && w->faults && !*ret_good);
		rest = at_rest(&s);
		if (rest && !*ret_good && !w->faults)
			s.wrong = "somebody sleeps on and nobody will wake it";
		else if (rest && !*ret_good && s.n == 0)
			s.wrong = "somebody sleeps on and the daemon does not watch";
		if (s.wrong && rest)
			s.wrong_step = STEPS_MAX;
		fault_steps(&s, w);
	}
	*ret_wrong = s.wrong;
	*ret_step = s.wrong_step;
	return s.n;
}
