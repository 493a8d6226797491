/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * As daemon_faults.c, for everything that can be held (kinds.h): the daemon is killed before or after one of its stores to a
 * segment or to the ledger, while it takes over from another and while it serves. Of each row there is one who holds, one who waits
 * for it, and one that died without a daemon with another waiting; its successor finds: the holder still holds, and nobody else;
 * who waits is served, once it is his turn.
 *
 * The places are taken at random: as many as there is time for.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kinds_stage.h"
#include "mortal.h"

#define BUDGET_NS ((harness.full ? 120000 : 8000) * MS)
#define ROWS_MAX  24
#define SOON_MS   1000                   /* after the new daemon is ready */

static struct daemon daemon_;
static long round_at, wrong;
static struct pace pace;

static struct cast {
	struct scene held, left;         /* two things of the row's kind */
	struct actor holder, first;      /* of the one */
	struct actor second;             /* waits for the other */
	uint64_t token, left_token;
} cast[ROWS_MAX];

/* --- A round --- */

static void expect(bool good, const char *what, int r)
{
	if (good)
		return;
	note("killed at %ld: %s, %s (%d)", round_at, scene.kind->name, what, r);
	wrong++;
}

/* Its pace is noted, the time without a daemon left out. */
static void comes(struct actor *a, uint64_t above, const char *what)
{
	uint64_t since = now_ns();
	struct result r = { .r = -1 };

	if (!actor_result(a, PATIENCE_MS, &r))
		give_up("killed at %ld: %s: forgotten: %s", round_at, scene.kind->name, what);
	if (mortal.ready_ns > since)
		since = mortal.ready_ns;
	expect(r.r == 0 && (r.token > above || (scene.kind->rides && r.token == above)), what, r.r);
	pace_took(&pace, r.at_ns > since ? r.at_ns - since : 0, SOON_MS);
}

static void does(struct actor *a, actor_fn fn, uint64_t arg, int wanted, const char *what)
{
	int r = actor_do(a, fn, arg, NULL).r;

	expect(r == wanted, what, r);
}

/* With a daemon; at its end there is none. */
static void set_up(struct cast *c, struct actor *victim)
{
	scene_new();
	c->held = scene;
	enters(&c->holder);
	enters(&c->first);
	c->token = takes(&c->holder);
	waits(&c->first, act_take_and_give);
	scene_new();
	c->left = scene;
	enters(victim);
	enters(&c->second);
	c->left_token = takes(victim);
	waits(&c->second, act_take_and_give);
}

static void play_row(struct cast *c)
{
	struct actor late;

	comes(&c->second, c->left_token, "who waits for one that died without a daemon");
	does(&c->holder, act_still, 0, 0, "the holder's check");
	scene = c->held;
	enters(&late);
	does(&late, act_try_it, 1, scene.kind->busy, "another tries what is held");
	does(&c->holder, act_give, 0, 0, "the holder gives back");
	comes(&c->first, c->token, "who waits for a living holder");
	c->token = takes(&late);
	actor_send(&c->first, act_take_and_give, 1, NULL);
	actor_kill(&late, SIGKILL);
	comes(&c->first, c->token, "who waits for one that is killed");
	scene = c->left;
	enters(&late);
	does(&late, act_take_and_give, 1, 0, "who comes at the end");
	actor_kill(&late, SIGKILL);
}

static bool play(long at)
{
	struct actor victim[ROWS_MAX];

	round_at = at;
	for (unsigned i = 0; i < kinds_count; i++) {
		scene.kind = &kinds[i];
		set_up(&cast[i], &victim[i]);
	}
	daemon_end(&daemon_, SIGKILL);
	for (unsigned i = 0; i < kinds_count; i++)
		actor_kill(&victim[i], SIGKILL);
	mortal_start(&daemon_, SIGKILL, at);
	for (unsigned i = 0; i < kinds_count; i++) {
		scene.kind = &kinds[i];
		play_row(&cast[i]);
	}
	for (unsigned i = 0; i < kinds_count; i++) {
		actor_kill(&cast[i].holder, SIGKILL);
		actor_kill(&cast[i].first, SIGKILL);
		actor_kill(&cast[i].second, SIGKILL);
	}
	return mortal.deaths > 0;
}

int main(void)
{
	uint64_t until;
	long all = 64, rounds = 0;

	harness_begin(300);
	if (kinds_count > ROWS_MAX)
		give_up("more rows than this test has room for");
	daemon_started(&daemon_);
	until = now_ns() + BUDGET_NS;
	while (play(all))                /* how many stores a round has, about */
		all *= 2;
	for (; rounds < 5 || now_ns() < until; rounds++)
		play(1 + random_below((uint32_t)all));
	ok(wrong == 0 && pace_is_quick(&pace), "the daemon killed at %ld of up to %ld stores: held is held, and who waits is served", rounds, all);
	mortal_over();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
