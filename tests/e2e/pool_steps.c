/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that uses a free semaphore is killed, or stopped, after a single instruction of its call (cut.h): the value is what it was, and
 * what the calls that have returned have made of it; of the one that was cut, all or nothing. Whoever waits is served as long as
 * there is something.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cut.h"

/* --- What they do --- */

static dlock_sem_t *sem;

static int s_open(struct stage *s, uint64_t unused)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	(void)s;
	(void)unused;
	if (r)
		return r;
	dlock_attr_set_free(a, true);
	r = dlock_sem_open(&sem, "free", 0, a);
	dlock_attr_destroy(a);
	return r;
}

static int s_wait(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_sem_wait(sem);
}

static int s_post(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_sem_post(sem);
}

static int s_value(struct stage *s, uint64_t unused)
{
	int v = -1;

	(void)s;
	(void)unused;
	return dlock_sem_getvalue(sem, &v) ? -1 : v;
}

static int s_make(struct stage *s, uint64_t value)
{
	for (int v = s_value(s, 0), r = v < 0 ? EIO : 0;; v += v < (int)value ? 1 : -1) {
		if (r || v == (int)value)
			return r;
		r = v < (int)value ? dlock_sem_post(sem) : dlock_sem_wait(sem);
	}
}

/* --- What is stepped through --- */

static void must(int r)
{
	if (r)
		_exit(1);
}

static void prepare_sem(void)
{
	must(s_open(NULL, 0));
}

static void sem_takes_and_gives(void)
{
	must(dlock_sem_wait(sem));
	step_mark(1);
	must(dlock_sem_post(sem));
	step_mark(2);
}

static void sem_gives(void)
{
	must(dlock_sem_post(sem));
	step_mark(1);
}

static void sem_takes(void)
{
	must(dlock_sem_wait(sem));
	step_mark(1);
}

/* --- What is to be seen --- */

static void sem_alone(struct step *s, long n)
{
	long v;

	must_do(&first, s_make, 1, "a value of 1");
	step_to(s, n, false);
	cut(s);
	v = does(&first, s_value, 0);
	expect(s->mark == 2 ? v == 1 : v == 0 || v == 1, "the value, at mark", v, s->mark);
	goes_on(s);
	if (stops)
		expect(does(&first, s_value, 0) == 1, "the value at the end", does(&first, s_value, 0), 1);
}

static void sem_giver(struct step *s, long n)
{
	int r = -1;

	must_do(&first, s_make, 0, "a value of 0");
	waits(&second, s_wait);
	step_to(s, n, false);
	cut(s);
	if (s->mark || does(&first, s_value, 0) > 0) {
		is_served("who waits for a post of one that was cut");
		goes_on(s);
		return;
	}
	if (told(&second, 1, &r)) {
		expect(r == 0, "who waits", r, 0);
		goes_on(s);
		return;
	}
	goes_on(s);
	if (!stops)
		must_do(&first, s_post, 0, "another posts");
	is_served("who waits for a post of another");
}

static void one_is_given(void)
{
	waits(&second, s_wait);
	must_do(&first, s_post, 0, "a post");
}

static bool second_has_it;

/* He who was behind has been faster. */
static void another_is_given(void)
{
	int r;

	if (second_has_it || !told(&second, 0, &r))
		return;
	second_has_it = true;
	expect(r == 0, "who waits", r, 0);
	must_do(&first, s_post, 0, "a post");
}

/* The one who is woken is cut, and another waits behind it. */
static void sem_taker(struct step *s, long n)
{
	int r = -1;

	second_has_it = false;
	s->still = another_is_given;
	must_do(&first, s_make, 0, "a value of 0");
	step_past_sleep(s);
	step_to(s, s->at + n, false);
	cut(s);
	if (second_has_it || told(&second, 1, &r)) {
		expect(second_has_it || r == 0, "who waits", r, 0);
	} else if (does(&first, s_value, 0) > 0) {
		is_served("who waits beside one that was woken and cut");
	} else {
		must_do(&first, s_post, 0, "another post");
		is_served("who waits for another post");
	}
	if (!stops)
		return;
	kill(s->pid, SIGCONT);
	if (!step_comes_through(s, WHILE_MS))
		must_do(&first, s_post, 0, "a post for who was stopped");
	expect(step_comes_through(s, LONG_MS), "who was stopped does not come through", 0, 0);
	step_kill(s);
}

static const struct scene sems[] = {
	{ "one who takes of a free semaphore and gives back", { prepare_sem, sem_takes_and_gives, NULL }, sem_alone, true, KILLED | STOPPED },
	{ "one who posts for another", { prepare_sem, sem_gives, NULL }, sem_giver, true, KILLED | STOPPED },
	{ "one who is woken by a post", { prepare_sem, sem_takes, one_is_given }, sem_taker, true, KILLED | STOPPED },
};

int main(void)
{
	static struct daemon daemon_;

	harness_begin(getenv("DLOCK_CHECK_FULL") ? 400 : 100);
	daemon_started(&daemon_);
	crew_begin(s_open, 0);
	play_all(sems, sizeof sems / sizeof *sems);
	crew_end();
	daemon_end(&daemon_, SIGTERM);
	return harness_end();
}
