/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "kinds_stage.h"

#include <stdio.h>
#include <string.h>


struct scene scene;
struct pace served_pace;
bool served_late;

/* --- In the actors --- */

static int act_open_thing(struct stage *s, uint64_t row)
{
	scene.kind = &kinds[row];
	return scene.kind->open(&scene.thing, s->text);
}

static const struct role *role(uint64_t wants)
{
	return wants ? &scene.kind->wants : &scene.kind->holds;
}

static int noted(struct stage *s, uint64_t wants, int r)
{
	if (r == 0 && role(wants)->token(scene.thing, &s->token))
		s->token = 0;
	return r;
}

int act_take(struct stage *s, uint64_t wants)
{
	return noted(s, wants, role(wants)->take(scene.thing));
}

int act_try_it(struct stage *s, uint64_t wants)
{
	return noted(s, wants, role(wants)->try(scene.thing));
}

int act_give(struct stage *s, uint64_t wants)
{
	(void)s;
	return role(wants)->give(scene.thing);
}

int act_still(struct stage *s, uint64_t wants)
{
	(void)s;
	return role(wants)->check(scene.thing);
}

int act_take_and_give(struct stage *s, uint64_t wants)
{
	int r = act_take(s, wants);

	return r ? r : role(wants)->give(scene.thing);
}

/* --- The stage --- */

static unsigned row(void)
{
	return (unsigned)(scene.kind - kinds);
}

void scene_new(void)
{
	static unsigned number;

	snprintf(scene.name, sizeof scene.name, "%s-%u", scene.kind->word, number++);
}

void enters(struct actor *a)
{
	int r;

	actor_begin(a);
	r = actor_do(a, act_open_thing, row(), scene.name).r;
	if (r)
		give_up("%s: it cannot be opened: %s", scene.kind->name, strerror(r));
}

uint64_t takes(struct actor *holder)
{
	struct result r = actor_do(holder, act_take, 0, NULL);

	if (r.r)
		give_up("%s: the holder: %s", scene.kind->name, strerror(r.r));
	return r.token;
}

void waits(struct actor *a, actor_fn fn)
{
	actor_send(a, fn, 1, NULL);
	if (!asleep(a->pid))
		give_up("%s: one who is to wait waits", scene.kind->name);
}

/* Not before from_ms; and in time where it took no longer than what may have to be waited for, and LIMIT_MS. */
static bool served_from(struct actor *a, uint64_t since_ns, unsigned from_ms, uint64_t above, const char *who)
{
	struct result r = { .r = -1 };
	bool came = actor_result(a, PATIENCE_MS, &r), right;
	uint64_t took = came && r.at_ns > since_ns ? r.at_ns - since_ns : 0;

	right = came && r.r == 0 && (r.token > above || (scene.kind->rides && r.token == above)) && took >= from_ms * MS;
	served_late = !pace_took(&served_pace, took, scene.kind->delay_ms + LIMIT_MS);
	if (!right || served_late)
		note("%s, %s: %s, result %d, token %llx after %llx, %.3f ms", scene.kind->name, who, came ? "came" : "waits on", r.r,
		     (unsigned long long)r.token, (unsigned long long)above, (double)took / 1e6);
	if (!came)
		give_up("%s: %s is forgotten", scene.kind->name, who);
	return right;
}

bool served(struct actor *a, uint64_t since_ns, uint64_t above, const char *who)
{
	return served_from(a, since_ns, 0, above, who);
}

bool inherits(struct actor *a, uint64_t since_ns, uint64_t above, const char *who)
{
	return served_from(a, since_ns, scene.kind->delay_ms, above, who);
}
