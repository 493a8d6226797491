/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cut.h"

#include <signal.h>
#include <stdlib.h>

#define SCENE_NS ((harness.full ? 20000 : 600) * MS)
#define TRIES    10                      /* where it was late: the machine may have had other work */

struct actor first, second;
char thing_name[40];
bool stops;

static long wrong, at_;
static const char *title;
static bool is_late;

/* --- The others --- */

void expect(bool good, const char *what, long a, long b)
{
	if (good)
		return;
	note("%s, at %ld: %s: %ld, %ld", title, at_, what, a, b);
	wrong++;
}

long does(struct actor *a, actor_fn fn, uint64_t arg)
{
	return actor_do(a, fn, arg, thing_name).r;
}

void must_do(struct actor *a, actor_fn fn, uint64_t arg, const char *what)
{
	long r = does(a, fn, arg);

	if (r)
		give_up("%s, at %ld: %s: %ld", title, at_, what, r);
}

bool told(struct actor *a, unsigned ms, int *ret)
{
	struct result r = { .r = -1 };
	bool came = actor_result(a, ms, &r);

	*ret = came ? r.r : -1;
	return came;
}

void waits(struct actor *a, actor_fn fn)
{
	actor_send(a, fn, 0, thing_name);
	if (!asleep(a->pid))
		give_up("%s: one who is to wait waits", title);
}

/* --- Its end --- */

void cut(struct step *s)
{
	if (stops)
		step_detach_stopped(s);
	else
		step_kill(s);
}

void goes_on(struct step *s)
{
	if (!stops)
		return;
	kill(s->pid, SIGCONT);
	expect(step_comes_through(s, LONG_MS), "who was stopped does not come through", 0, 0);
	step_kill(s);
}

void is_served(const char *what)
{
	int r = -1;
	bool late = !told(&second, SOON_MS, &r);

	is_late |= late;
	expect((!late || told(&second, LONG_MS, &r)) && r == 0, what, r, 0);
}

/* --- Scenes --- */

/* Returns how many instructions it has been through. */
static long play_at(const struct scene *c, long n)
{
	struct step s = { .how = &c->how };

	at_ = n;
	is_late = false;
	if (c->begins)
		step_begin(&s, &c->how);
	c->play(&s, n);
	return s.at;
}

static void play_again(const struct scene *c, long n)
{
	for (unsigned i = 0; i < TRIES; i++) {
		play_at(c, n);
		if (!is_late)
			return;
	}
	expect(false, "late each time", 0, 0);
}

static void play(const struct scene *c, bool stopped)
{
	uint64_t until = now_ns() + SCENE_NS;
	long n, places = 0;

	title = c->who;
	stops = stopped;
	wrong = 0;
	n = play_at(c, 1000000);
	do {
		play_again(c, random_below((uint32_t)n + 1));
		places++;
	} while (!wrong && now_ns() < until);
	ok(wrong == 0, "%s is %s after %ld of %ld instructions", c->who, stopped ? "stopped" : "killed", places, n);
}

void play_all(const struct scene *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (unsigned when = KILLED; when <= STOPPED; when *= 2)
			if (c[i].when & when)
				play(&c[i], when == STOPPED);
}

void crew_begin(actor_fn open, uint64_t arg)
{
	actor_begin(&first);
	actor_begin(&second);
	must_do(&first, open, arg, "opened");
	must_do(&second, open, arg, "opened");
}

void crew_end(void)
{
	actor_kill(&first, SIGKILL);
	actor_kill(&second, SIGKILL);
}

