/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>

#include "barrier_acts.h"
#include "edges.h"
#include "kinds_stage.h"
#include "things_acts.h"

char edge_name[64];

/* What else than being refused may a call say that did not get it? */
static bool is_refused(int r)
{
	return r == ETIMEDOUT || r == ECANCELED;
}

/* --- What can be held --- */

static int kind_open(void)
{
	return scene.kind->open(&scene.thing, edge_name);
}

static int kind_set(void)
{
	return scene.kind->holds.take(scene.thing);
}

static int kind_wait(const struct timespec *abs)
{
	const struct role *w = &scene.kind->wants;

	return abs ? w->timed(scene.thing, abs) : w->take(scene.thing);
}

static int kind_after(int r)
{
	const struct role *w = &scene.kind->wants;
	int check = w->check(scene.thing);

	if (r)
		return check == EPERM ? 0 : EBADE;
	return check ? check : w->give(scene.thing);
}

static int kind_cancel(void)
{
	return scene.kind->cancel(scene.thing);
}

static int kind_grant(void)
{
	return scene.kind->holds.give(scene.thing);
}

static int role_pass(const struct role *w)
{
	int r = w->take(scene.thing);

	return r ? r : w->give(scene.thing);
}

static int kind_pass(void)
{
	return role_pass(&scene.kind->wants);
}

static int kind_is_taken(void)
{
	const struct role *w = &scene.kind->wants;
	int r = w->try(scene.thing);

	return r == scene.kind->busy ? 0 : r ? r : w->give(scene.thing) ? EBADE : EAGAIN;
}

/* One of both roles is beside nobody. */
static int kind_whole(void)
{
	int r = role_pass(&scene.kind->holds), n = 3;

	if (r == 0)
		r = role_pass(&scene.kind->wants);
	if (r == 0 && !strcmp(scene.kind->word, "sem"))
		r = dlock_sem_getvalue(scene.thing, &n);
	return r ? r : n == 3 ? 0 : EDOM;
}

struct edge edge_of_kind(const struct kind *k)
{
	return (struct edge){
		.who = k->name, .word = k->word, .open = kind_open, .wait = kind_wait, .after = kind_after,
		.cancel = k->cancel ? kind_cancel : NULL, .set = kind_set, .grant = kind_grant, .pass = kind_pass, .is_taken = kind_is_taken,
		.whole = kind_whole, .events = EDGE_TIME | EDGE_STOP | (k->cancel ? EDGE_CANCEL : 0),
	};
}

/* --- A lock that is read, by others too --- */

static dlock_t *lock;

static int lock_open(void)
{
	return dlock_open(&lock, edge_name, NULL);
}

static int lock_read(void)
{
	return dlock_wait_shared(lock);
}

static int lock_write_timed(const struct timespec *abs)
{
	return abs ? dlock_clockwait(lock, CLOCK_MONOTONIC, abs) : dlock_wait(lock);
}

static int lock_after(int r)
{
	int check = dlock_check(lock);

	if (is_refused(r))
		return check == EPERM ? 0 : EBADE;
	return check ? check : dlock_post(lock);
}

static int lock_cancel(void)
{
	return dlock_cancel(lock);
}

static int lock_post(void)
{
	return dlock_post(lock);
}

static int lock_read_pass(void)
{
	int r = dlock_wait_shared(lock);

	return r ? r : dlock_post(lock);
}

static int lock_write_pass(void)
{
	int r = dlock_wait(lock);

	return r ? r : dlock_post(lock);
}

static int lock_is_written(void)
{
	int r = dlock_trywait_shared(lock);

	return r == EBUSY ? 0 : r ? r : dlock_post(lock) ? EBADE : EAGAIN;
}

static int lock_is_taken(void)
{
	int r = dlock_trywait(lock);

	return r == EBUSY ? 0 : r ? r : dlock_post(lock) ? EBADE : EAGAIN;
}

static int lock_upgrade(const struct timespec *unused)
{
	(void)unused;
	return dlock_upgrade(lock);
}

/* Who is refused reads on. */
static int lock_after_upgrade(int r)
{
	int check = dlock_check(lock), again = dlock_downgrade(lock);

	if (check || again != (is_refused(r) ? EINVAL : 0))
		return EBADE;
	return dlock_post(lock);
}

/* --- Permits: one waits for three of five, and another behind him for the one that is free --- */

static dlock_sem_t *sem;

static int sem_open(void)
{
	return dlock_sem_open(&sem, edge_name, 5, NULL);
}

/* All of them, so that nobody has any left of before. */
static int sem_set(void)
{
	int r = dlock_sem_wait_n(sem, 5);

	return r ? r : dlock_sem_post(sem);
}

static int sem_wait_three(const struct timespec *abs)
{
	return abs ? dlock_sem_clockwait_n(sem, 3, CLOCK_MONOTONIC, abs) : dlock_sem_wait_n(sem, 3);
}

static int sem_after(int r)
{
	int check = dlock_sem_check(sem);

	if (r)
		return check == EPERM ? 0 : EBADE;
	return check ? check : dlock_sem_post_n(sem, 3);
}

static int sem_grant(void)
{
	return dlock_sem_post_n(sem, 4);
}

static int sem_pass(void)
{
	int r = dlock_sem_wait(sem);

	return r ? r : dlock_sem_post(sem);
}

static int sem_is_taken(void)
{
	int r = dlock_sem_trywait(sem);

	return r == EAGAIN ? 0 : r ? r : dlock_sem_post(sem) ? EBADE : EAGAIN;
}

static int sem_whole(void)
{
	int n = 0, r = dlock_sem_wait_n(sem, 5);

	if (r == 0)
		r = dlock_sem_post_n(sem, 5);
	if (r == 0)
		r = dlock_sem_getvalue(sem, &n);
	return r ? r : n == 5 ? 0 : EDOM;
}

/* --- A free semaphore --- */

static int free_open(void)
{
	dlock_attr_t *a = NULL;
	int r = dlock_attr_create(&a);

	if (r == 0)
		r = dlock_attr_set_free(a, true);
	if (r == 0)
		r = dlock_sem_open(&sem, edge_name, 0, a);
	dlock_attr_destroy(a);
	return r;
}

static int free_set(void)
{
	int r;

	while ((r = dlock_sem_trywait(sem)) == 0)
		;
	return r == EAGAIN ? 0 : r;
}

static int free_wait(const struct timespec *abs)
{
	return abs ? dlock_sem_clockwait(sem, CLOCK_MONOTONIC, abs) : dlock_sem_wait(sem);
}

static int free_grant(void)
{
	return dlock_sem_post(sem);
}

static int free_after(int r)
{
	return r ? 0 : dlock_sem_post(sem);
}

static int free_whole(void)
{
	int n = -1, r = dlock_sem_getvalue(sem, &n);

	return r ? r : n == 1 ? 0 : EDOM;
}

/* --- A latch --- */

static int latch_open(void)
{
	return latch_opened(edge_name, 1);
}

static int latch_wait(const struct timespec *abs)
{
	return abs ? dlock_latch_clockwait(mine.latch, CLOCK_MONOTONIC, abs) : dlock_latch_wait(mine.latch);
}

static int latch_is_open(void)
{
	unsigned n = 1;
	int r = dlock_latch_getvalue(mine.latch, &n);

	return r ? r : n ? EBADE : 0;
}

static int latch_after(int r)
{
	return r ? 0 : latch_is_open();
}

static int latch_grant(void)
{
	return dlock_latch_countdown(mine.latch, 1);
}

static int latch_pass(void)
{
	return dlock_latch_wait(mine.latch);
}

/* --- A condition --- */

static unsigned come;                    /* the other has seen so many */

static int cond_open(void)
{
	return cond_opened(edge_name, true);
}

static int cond_set(void)
{
	crowd->in = come = 0;
	return 0;
}

static int cond_waits(void)
{
	return c_are_in(NULL, ++come);
}

/* Whatever it is told, it has the lock. */
static int cond_after(int unused)
{
	int r = dlock_check(mine.lock);

	(void)unused;
	return r ? r : dlock_post(mine.lock);
}

static int cond_cancel(void)
{
	return dlock_cancel(mine.lock);
}

static int cond_grant(void)
{
	return dlock_cond_signal(mine.cond);
}

static int cond_pass(void)
{
	return c_wait(NULL, 0);
}

static int cond_lock_is_taken(void)
{
	int r = lock_taken(dlock_trywait(mine.lock));

	return r == EBUSY ? 0 : r ? r : dlock_post(mine.lock) ? EBADE : EAGAIN;
}

static int cond_lock_pass(void)
{
	return c_pass(NULL, 0);
}

/* One who waits is signalled, and waits for the lock. */
static int cond_signal_locked(void)
{
	int r = lock_taken(dlock_wait(mine.lock));

	if (r == 0)
		r = dlock_cond_signal(mine.cond);
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; r == 0 && dlock_wanted(mine.lock) != EBUSY; nap_ns(MS / 20))
		if (now_ns() > until)
			return ETIMEDOUT;
	return r;
}

static int cond_lock_post(void)
{
	return dlock_post(mine.lock);
}

/* --- Parties --- */

static int barrier_open(void)
{
	return bar_opened(edge_name, 3, false);
}

static int barrier_timed(const struct timespec *abs)
{
	return abs ? dlock_barrier_clockwait(bar, CLOCK_MONOTONIC, abs) : dlock_barrier_wait(bar);
}

/* What it is told is held against what the others are told. */
static int barrier_after(int unused)
{
	(void)unused;
	return 0;
}

static int barrier_come(void)
{
	return dlock_barrier_wait(bar);
}

static int barrier_reset(void)
{
	return dlock_barrier_reset(bar);
}

static int double_enter(void)
{
	return dlock_barrier_enter(bar);
}

static int double_timed(const struct timespec *abs)
{
	return abs ? dlock_barrier_clockleave(bar, CLOCK_MONOTONIC, abs) : dlock_barrier_leave(bar);
}

static int double_leave(void)
{
	return dlock_barrier_leave(bar);
}

const struct edge edges[] = {
	{ .who = "a writer, before a reader and behind another", .word = "writer", .open = lock_open, .set = lock_read, .wait = lock_write_timed,
	  .after = lock_after, .cancel = lock_cancel, .grant = lock_post, .pass = lock_read_pass, .is_taken = lock_is_written,
	  .whole = lock_write_pass, .events = EDGE_TIME | EDGE_CANCEL | EDGE_KILL | EDGE_STOP, .fits = true, .asleep = true },
	{ .who = "a reader who upgrades beside another", .word = "upgrade", .open = lock_open, .ready = lock_read, .set = lock_read,
	  .wait = lock_upgrade, .after = lock_after_upgrade, .cancel = lock_cancel, .grant = lock_post, .pass = lock_write_pass,
	  .is_taken = lock_is_taken, .whole = lock_write_pass, .events = EDGE_CANCEL | EDGE_KILL | EDGE_STOP },
	{ .who = "one who waits for three permits, before one who waits for one", .word = "weight", .open = sem_open, .set = sem_set,
	  .wait = sem_wait_three, .after = sem_after, .grant = sem_grant, .pass = sem_pass, .is_taken = sem_is_taken, .whole = sem_whole,
	  .events = EDGE_TIME | EDGE_KILL | EDGE_STOP, .fits = true, .asleep = true },
	{ .who = "one who waits for a free semaphore", .word = "free", .open = free_open, .set = free_set, .wait = free_wait,
	  .after = free_after, .grant = free_grant, .pass = sem_pass, .whole = free_whole, .events = EDGE_TIME },
	{ .who = "one who waits for a latch", .word = "latch", .open = latch_open, .wait = latch_wait, .after = latch_after,
	  .grant = latch_grant, .pass = latch_pass, .whole = latch_is_open, .events = EDGE_TIME | EDGE_KILL | EDGE_STOP, .anew = true },
	{ .who = "one who waits for a condition", .word = "cond", .open = cond_open, .set = cond_set, .waits = cond_waits, .wait = cond_waited,
	  .after = cond_after, .cancel = cond_cancel, .grant = cond_grant, .pass = cond_pass, .is_taken = cond_lock_is_taken,
	  .whole = cond_lock_pass, .events = EDGE_TIME | EDGE_CANCEL | EDGE_KILL | EDGE_STOP, .alone = true },
	{ .who = "one who was signalled, and waits for the lock", .word = "signalled", .open = cond_open, .set = cond_set, .waits = cond_waits,
	  .wait = cond_waited, .then = cond_signal_locked, .after = cond_after, .cancel = cond_cancel, .grant = cond_lock_post,
	  .pass = cond_lock_pass, .is_taken = cond_lock_is_taken, .whole = cond_lock_pass,
	  .events = EDGE_CANCEL | EDGE_KILL | EDGE_STOP, .asleep = true, .sure = true },
	{ .who = "a party of a barrier", .word = "party", .open = barrier_open, .wait = barrier_timed, .after = barrier_after,
	  .grant = barrier_come, .pass = barrier_come, .whole = barrier_reset, .events = EDGE_TIME | EDGE_KILL, .together = true },
	{ .who = "one who leaves a double barrier", .word = "leaver", .open = barrier_open, .ready = double_enter, .wait = double_timed,
	  .after = barrier_after, .grant = double_leave, .pass = double_leave, .whole = barrier_reset, .events = EDGE_TIME | EDGE_KILL,
	  .together = true },
};
const unsigned edges_count = sizeof edges / sizeof *edges;
