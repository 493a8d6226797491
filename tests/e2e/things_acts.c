/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "things_acts.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "harness.h"

struct mine mine;

static int patient(dlock_attr_t **ret)
{
	int r = dlock_attr_create(ret);

	return r ? r : dlock_attr_set_wait_daemon(*ret, true);
}

/* --- Latches --- */

int latch_opened(const char *name, unsigned count)
{
	dlock_attr_t *a;
	int r;

	if (mine.latch)
		dlock_latch_close(mine.latch);
	mine.latch = NULL;
	r = patient(&a);
	if (r == 0)
		r = dlock_latch_open(&mine.latch, name, count, a);
	dlock_attr_destroy(a);
	return r;
}

int l_open(struct stage *s, uint64_t count)
{
	return latch_opened(s->text, (unsigned)count);
}

int l_count(struct stage *s, uint64_t n)
{
	(void)s;
	return dlock_latch_countdown(mine.latch, (unsigned)n);
}

int l_wait(struct stage *s, uint64_t ms)
{
	struct timespec t = abs_in_ms(ms);

	(void)s;
	return ms ? dlock_latch_clockwait(mine.latch, CLOCK_MONOTONIC, &t) : dlock_latch_wait(mine.latch);
}

int l_value(struct stage *s, uint64_t unused)
{
	unsigned v = 0;
	int r = dlock_latch_getvalue(mine.latch, &v);

	(void)unused;
	s->token = v;
	return r;
}

int l_unlink(struct stage *s, uint64_t unused)
{
	(void)unused;
	return dlock_latch_unlink(s->text);
}

/* --- Conditions --- */

int cond_opened(const char *name, bool robust)
{
	dlock_attr_t *a;
	int r = patient(&a);

	if (r == 0)
		r = dlock_attr_set_robust(a, robust);
	if (r == 0)
		r = dlock_cond_open(&mine.cond, name, a);
	if (r == 0)
		r = dlock_open(&mine.lock, name, a);
	dlock_attr_destroy(a);
	return r;
}

int c_open(struct stage *s, uint64_t robust)
{
	return cond_opened(s->text, robust);
}

int c_signal(struct stage *s, uint64_t all)
{
	(void)s;
	return all ? dlock_cond_broadcast(mine.cond) : dlock_cond_signal(mine.cond);
}

struct crowd *crowd;

int lock_taken(int r)
{
	if (r == EOWNERDEAD) {
		crowd->died_inside = true;
		return dlock_consistent(mine.lock);
	}
	return r;
}

int cond_waited(const struct timespec *abs)
{
	int r = lock_taken(dlock_wait(mine.lock));

	if (r)
		return r;
	__atomic_fetch_add(&crowd->in, 1, __ATOMIC_RELAXED);
	return lock_taken(abs ? dlock_cond_clockwait(mine.cond, mine.lock, CLOCK_MONOTONIC, abs) : dlock_cond_wait(mine.cond, mine.lock));
}

int c_wait(struct stage *s, uint64_t unused)
{
	int r = cond_waited(NULL);

	(void)s;
	(void)unused;
	return r ? r : dlock_post(mine.lock);
}

int c_are_in(struct stage *s, uint64_t n)
{
	bool enough = false;

	(void)s;
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; !enough; nap_ns(MS / 5)) {
		int r = lock_taken(dlock_wait(mine.lock));

		if (r)
			return r;
		enough = __atomic_load_n(&crowd->in, __ATOMIC_RELAXED) >= n;
		r = dlock_post(mine.lock);
		if (r || (!enough && now_ns() > until))
			return r ? r : ETIMEDOUT;
	}
	return 0;
}

int c_signal_one(struct stage *s, uint64_t n)
{
	int r = c_are_in(s, n);

	return r ? r : c_signal(s, 0);
}

int c_pass(struct stage *s, uint64_t unused)
{
	int r = lock_taken(dlock_wait(mine.lock));

	(void)s;
	(void)unused;
	return r ? r : dlock_post(mine.lock);
}

/* --- Ids --- */

int ids_opened(const char *name)
{
	dlock_attr_t *a;
	int r = patient(&a);

	if (r == 0)
		r = dlock_id_open(&mine.gen, name, a);
	dlock_attr_destroy(a);
	return r;
}

int i_open(struct stage *s, uint64_t unused)
{
	unsigned worker = 0;
	int r = ids_opened(s->text);

	(void)unused;
	if (r == 0)
		r = dlock_id_worker(mine.gen, &worker);
	s->token = worker;
	return r;
}

int i_close(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_id_close(mine.gen);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

unsigned ids_twice(uint64_t *ids, unsigned n)
{
	unsigned twice = 0;

	qsort(ids, n, sizeof *ids, by_number);
	for (unsigned i = 1; i < n; i++)
		twice += ids[i] && ids[i] == ids[i - 1];
	return twice;
}
