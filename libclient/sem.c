/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Semaphores: the fast path, and the calls. A wait is one compare-and-swap on the process's own cache line, a post of a
 * process with one thread a store there (proto/semword.h).
 */
#include "sem.h"

#include <errno.h>
#include <sys/single_threaded.h>

#include "attr.h"
#include "deadline.h"
#include "pool.h"
#include "thread.h"

#define likely(x) __builtin_expect(!!(x), 1)

enum took {
	TOOK,
	TOOK_LATE,                       /* but the deadline has passed, or its ticks have no say */
	TOOK_NOT,
};

/*
 * Nearly every handle lives and dies with its first binding. To foresee that takes a load out of the chain (fast.c); the empty asm
 * keeps the compiler from putting it back.
 */
static inline struct binding *binding_foreseen(struct dlock *l)
{
	struct binding *first = &l->first;

	__asm__("" : "+r"(first));
	return first;
}

static inline enum took take(struct binding *b, uint32_t n)
{
	struct sem_account *a = sem_own(b);
	const struct node_line *line = b->line;
	uint64_t g = SEM_LOAD(&a->given, __ATOMIC_ACQUIRE), w = SEM_LOAD(&a->word, __ATOMIC_RELAXED);

	if (!likely(sem_may_take(w, g, 0, n, SEM_B)) || !likely(thread_serial()))
		return TOOK_NOT;
	if (!likely(SEM_CAS(&a->word, &w, sem_taken(w, n), __ATOMIC_ACQUIRE)))
		return TOOK_NOT;
	return likely(deadline_good_ticks(line)) ? TOOK : TOOK_LATE;
}

static inline enum took take_foreseen(dlock_sem_t *s, uint32_t n)
{
	return likely(binding_now(&s->h) == &s->h.first) ? take(binding_foreseen(&s->h), n) : TOOK_NOT;
}

static inline bool permits_valid(unsigned n)
{
	return n >= 1 && n <= SEM_PERMITS_MAX;
}

/* What was not plain, but may have been taken all the same; or may be without waiting. */
static bool settle(dlock_sem_t *s, enum took how, uint32_t n)
{
	struct binding *b = &s->h.first;

	if (how == TOOK_NOT) {
		b = binding_now(&s->h);
		how = take(b, n);
	}
	if (how == TOOK_LATE && !deadline_good_ns(b->line)) {
		sem_undo(&s->h, b, n);
		return false;
	}
	return how != TOOK_NOT;
}

/* Apart, so that what is plain needs no stack. */
__attribute__((noinline)) static int wait_rest(dlock_sem_t *s, enum took how, uint32_t n, bool try)
{
	return settle(s, how, n) ? 0 : sem_slow_wait(&s->h, n, &limit_none, try);
}

static inline int wait_n(dlock_sem_t *s, uint32_t n, bool try)
{
	enum took how = take_foreseen(s, n);

	return likely(how == TOOK) ? 0 : wait_rest(s, how, n, try);
}

/*
 * Ticks of 0 alone can mean that all is lost (fast.c). With A the long way has something to do: it tells what was lost
 * before, and wakes who waits.
 */
static inline int post_n(dlock_sem_t *s, uint32_t n)
{
	struct binding *b = binding_foreseen(&s->h);
	bool attention;

	if (!likely(binding_now(&s->h) == &s->h.first) || !likely(__libc_single_threaded) || !likely(thread_serial()) ||
	    !likely(__atomic_load_n(&b->line->ticks, __ATOMIC_RELAXED)) || !likely(sem_give_alone(sem_own(b), n, &attention)))
		return sem_slow_post(&s->h, n);
	if (!likely(!attention))
		sem_given_away(&s->h, b);
	return 0;
}

int dlock_sem_wait(dlock_sem_t *s)
{
	return wait_n(s, 1, false);
}

int dlock_sem_trywait(dlock_sem_t *s)
{
	return wait_n(s, 1, true);
}

int dlock_sem_post(dlock_sem_t *s)
{
	return post_n(s, 1);
}

int dlock_sem_wait_n(dlock_sem_t *s, unsigned n)
{
	return permits_valid(n) ? wait_n(s, n, false) : EINVAL;
}

int dlock_sem_trywait_n(dlock_sem_t *s, unsigned n)
{
	return permits_valid(n) ? wait_n(s, n, true) : EINVAL;
}

int dlock_sem_post_n(dlock_sem_t *s, unsigned n)
{
	return permits_valid(n) ? post_n(s, n) : EINVAL;
}

int dlock_sem_clockwait_n(dlock_sem_t *s, unsigned n, clockid_t clock, const struct timespec *abs)
{
	struct limit limit;
	enum took how;

	if (!permits_valid(n) || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
		return EINVAL;
	how = take_foreseen(s, n);
	if (likely(how == TOOK) || settle(s, how, n))
		return 0;
	if (limit_parse(&limit, clock, abs) < 0)
		return EINVAL;
	return sem_slow_wait(&s->h, n, &limit, false);
}

int dlock_sem_timedwait_n(dlock_sem_t *s, unsigned n, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(s, n, CLOCK_REALTIME, abs);
}

int dlock_sem_clockwait(dlock_sem_t *s, clockid_t clock, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(s, 1, clock, abs);
}

int dlock_sem_timedwait(dlock_sem_t *s, const struct timespec *abs)
{
	return dlock_sem_clockwait_n(s, 1, CLOCK_REALTIME, abs);
}

/* --- Opening and closing --- */

int dlock_sem_open(dlock_sem_t **ret, const char *name, unsigned permits, const dlock_attr_t *attr)
{
	int saved = errno, r;
	void *s;

	if (!ret || (!permits_valid(permits) && !(attr && attr->free && !permits)))
		return EINVAL;
	if (attr && attr->free) {
		r = pool_open(ret, name, attr, POOL_BOX_CREATE, permits);
		errno = saved;
		return r;
	}
	r = handle_open(&s, sizeof(dlock_sem_t), name, attr, KIND_SEM, permits, sem_wake);
	if (r == 0)
		*ret = s;
	return r;
}

static bool sem_holds(const struct sem_account *a)
{
	uint64_t g = SEM_LOAD(&a->given, __ATOMIC_ACQUIRE), w = SEM_LOAD(&a->word, __ATOMIC_ACQUIRE);

	return sem_out(w, g) > sem_stale(w, g, SEM_LOAD(&a->lost, __ATOMIC_ACQUIRE));
}

/* The process's last handle, while it holds: then the permits would go without having been posted. */
static bool close_gives_up(dlock_sem_t *s)
{
	struct binding *b = binding_now(&s->h);
	bool last;

	lib_lock();
	last = s->h.name->handles == &s->h && !s->h.next;
	lib_unlock();
	return last && !binding_lost(b) && sem_holds(sem_own(b));
}

int dlock_sem_close(dlock_sem_t *s)
{
	int saved = errno;
	bool gives_up = s && s->h.kind == KIND_SEM && close_gives_up(s);

	errno = saved;
	return gives_up ? EBUSY : handle_close(s ? &s->h : NULL);
}

int dlock_sem_unlink(const char *name)
{
	int saved = errno, r = pool_open(NULL, name, NULL, POOL_BOX_UNLINK, 0);

	errno = saved;
	return r;
}

/* --- Asking --- */

int dlock_sem_check(dlock_sem_t *s)
{
	const struct binding *b = binding_now(&s->h);

	if (!thread_serial() || !b->space || s->h.kind == KIND_POOL)
		return EPERM;
	if (binding_lost(b) || sem_owes(sem_own(b)))
		return ESTALE;
	if (!sem_holds(sem_own(b)))
		return EPERM;
	return deadline_good(b->line) ? 0 : ESTALE;
}

int dlock_sem_token(dlock_sem_t *s, uint64_t *ret)
{
	const struct binding *b = binding_now(&s->h);
	int r = ret ? dlock_sem_check(s) : EINVAL;

	if (r == 0)
		*ret = __atomic_load_n(&sem_own(b)->token, __ATOMIC_ACQUIRE);
	return r;
}

int dlock_sem_getvalue(dlock_sem_t *s, int *ret)
{
	uint32_t value;
	int saved = errno, r;

	if (ret && s->h.kind == KIND_POOL) {
		r = pool_value(&s->h, ret);
		errno = saved;
		return -r;
	}
	r = ret ? sem_box_ask(&s->h, SEM_BOX_VALUE, 0, &value) : -EINVAL;

	if (r == 0)
		*ret = (int)value;
	return -r;
}

int dlock_sem_resize(dlock_sem_t *s, unsigned permits)
{
	uint32_t unused;

	return permits_valid(permits) && s->h.kind == KIND_SEM ? -sem_box_ask(&s->h, SEM_BOX_RESIZE, permits, &unused) : EINVAL;
}
