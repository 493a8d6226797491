/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who of the waiters of one node is next, for locks and permits: the one with the highest priority, and of the same priority who came first. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actor.h"
#include "harness.h"

#define WAITERS 8
#define LIMIT 20000u                     /* ms: what does not come within this does not come */

static struct daemon node;

static int act_open_ranked(struct stage *s, uint64_t priority)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	r = r ? r : dlock_attr_set_priority(a, (unsigned)priority);
	r = r ? r : dlock_open(&s->lock[0], s->text, a);
	dlock_attr_destroy(a);
	return r;
}

static int act_wait_shared(struct stage *s, uint64_t i)
{
	return dlock_wait_shared(s->lock[i]);
}

/* --- Permits --- */

static dlock_sem_t *sem;

static int sem_opened(const char *name, uint64_t priority, dlock_sem_t **ret)
{
	dlock_attr_t *a;
	int r = dlock_attr_create(&a);

	r = r ? r : dlock_attr_set_priority(a, (unsigned)priority);
	r = r ? r : dlock_sem_open(ret, name, 1, a);
	dlock_attr_destroy(a);
	return r;
}

static int act_sem_open(struct stage *s, uint64_t priority)
{
	return sem_opened(s->text, priority, &sem);
}

static int act_sem_wait(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_sem_wait(sem);
}

static int act_sem_post(struct stage *s, uint64_t unused)
{
	(void)s;
	(void)unused;
	return dlock_sem_post(sem);
}

/* A thread of the actor's that waits with that priority, by a handle of its own, notes it, and posts. */
static pthread_t threads[WAITERS];
static uint64_t thread_rank[WAITERS], come;
static pid_t thread_tid[WAITERS];
static unsigned n_threads;
static char thread_name[96];

static void *waits(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	dlock_sem_t *mine;

	if (sem_opened(thread_name, thread_rank[i], &mine))
		return NULL;
	__atomic_store_n(&thread_tid[i], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	if (dlock_sem_wait(mine) == 0) {
		__atomic_store_n(&come, come * 10 + thread_rank[i], __ATOMIC_SEQ_CST);
		dlock_sem_post(mine);
	}
	return NULL;
}

static int act_thread(struct stage *s, uint64_t priority)
{
	unsigned i = n_threads++;

	snprintf(thread_name, sizeof thread_name, "%s", s->text);
	thread_rank[i] = priority;
	if (pthread_create(&threads[i], NULL, waits, (void *)(uintptr_t)i))
		return EAGAIN;
	for (uint64_t until = now_ns() + LIMIT * MS; !__atomic_load_n(&thread_tid[i], __ATOMIC_SEQ_CST);)
		if (now_ns() > until)
			return ETIMEDOUT;
	return asleep(thread_tid[i]) ? 0 : ETIMEDOUT;
}

/* As decimal digits: the priorities in the order in which they came, so far or in the end. */
static int act_threads_come(struct stage *s, uint64_t end)
{
	(void)s;
	for (unsigned i = 0; end && i < n_threads; i++)
		pthread_join(threads[i], NULL);
	return (int)__atomic_load_n(&come, __ATOMIC_SEQ_CST);
}

/*
 * The first of a process has asked already, and is next there. With one who counts for more behind it, it comes before another process;
 * which may have to wait for the rest of them as well: a permit stays where it is for a moment.
 */
static void threads_of_one(void)
{
	struct actor holder, many, other;
	struct result got;
	int before, in_order;
	bool good;

	actor_begin(&holder);
	actor_begin(&many);
	actor_begin(&other);
	if (actor_do(&holder, act_sem_open, 0, "threads").r || actor_do(&holder, act_sem_wait, 0, NULL).r ||
	    actor_do(&other, act_sem_open, 3, "threads").r || !actor_send(&other, act_sem_wait, 0, NULL) || !asleep(other.pid))
		give_up("the stage cannot be set");
	for (const char *p = "02727"; *p; p++)
		if (actor_do(&many, act_thread, (uint64_t)(*p - '0'), "threads").r)
			give_up("a thread does not wait");
	if (actor_do(&holder, act_sem_post, 0, NULL).r)
		give_up("it cannot be posted");
	good = actor_result(&other, LIMIT, &got) && got.r == 0;
	before = actor_do(&many, act_threads_come, false, NULL).r;
	ok(good && (before == 77 || before == 772 || before == 7722), "a process comes before another by the highest of its threads (%d)", before);
	good = actor_do(&other, act_sem_post, 0, NULL).r == 0;
	in_order = actor_do(&many, act_threads_come, true, NULL).r;
	ok(good && in_order == 7722, "of its threads the first that came is the first, then the highest (%d)", in_order);
	actor_kill(&holder, SIGKILL);
	actor_kill(&many, SIGKILL);
	actor_kill(&other, SIGKILL);
}

struct what {
	actor_fn open, wait, post;
};

static const struct what locks = { act_open_ranked, act_wait, act_post }, permits = { act_sem_open, act_sem_wait, act_sem_post };

/* One holds, the others come one after the other, in the order of priority[]; then each gives to the next. order[]: who is expected. */
static void served(const struct what *what, const char *name, const unsigned *priority, unsigned n, const unsigned *order, const char *title)
{
	struct actor holder, a[WAITERS];
	bool good = true;

	actor_begin(&holder);
	if (actor_do(&holder, what->open, 0, name).r || actor_do(&holder, what->wait, 0, NULL).r)
		give_up("%s cannot be had", name);
	for (unsigned i = 0; i < n; i++) {
		actor_begin(&a[i]);
		if (actor_do(&a[i], what->open, priority[i], name).r || !actor_send(&a[i], what->wait, 0, NULL) || !asleep(a[i].pid))
			give_up("waiter %u does not wait", i);
	}
	for (unsigned k = 0; k < n; k++) {
		struct actor *from = k ? &a[order[k - 1]] : &holder;
		struct result got;

		good &= actor_do(from, what->post, 0, NULL).r == 0 && actor_result(&a[order[k]], LIMIT, &got) && got.r == 0;
		if (!good) {
			note("not waiter %u as number %u", order[k], k + 1);
			break;
		}
	}
	ok(good, "%s", title);
	actor_kill(&holder, SIGKILL);
	for (unsigned i = 0; i < n; i++)
		actor_kill(&a[i], SIGKILL);
}

/* The first in rank is killed, or gives up, while it waits: the next one in rank is next. */
static void leaves(bool killed)
{
	static const unsigned priority[3] = { 0, 2, 9 };
	const char *name = killed ? "killed" : "gives-up";
	struct actor holder, a[3];
	struct result got;
	uint64_t until;

	actor_begin(&holder);
	if (actor_do(&holder, act_open, 0, name).r || actor_do(&holder, act_wait, 0, NULL).r)
		give_up("%s cannot be had", name);
	until = now_ns() + 1000 * MS;
	for (unsigned i = 0; i < 3; i++) {
		actor_begin(&a[i]);
		if (actor_do(&a[i], act_open_ranked, priority[i], name).r ||
		    !actor_send(&a[i], i == 2 ? act_timed : act_wait, i == 2 ? until : 0, NULL) || (i < 2 && !asleep(a[i].pid)))
			give_up("waiter %u does not wait", i);
	}
	if (killed)
		actor_kill(&a[2], SIGKILL);
	else if (!actor_result(&a[2], LIMIT, &got) || got.r != ETIMEDOUT)
		give_up("it does not give up");
	ok(actor_do(&holder, act_post, 0, NULL).r == 0 && actor_result(&a[1], LIMIT, &got) && got.r == 0,
	   "the first in rank %s: the next in rank is next", killed ? "is killed" : "gives up");
	actor_kill(&holder, SIGKILL);
	for (unsigned i = 0; i < 3; i++)
		actor_kill(&a[i], SIGKILL);
}

/* Readers have a place in the same queue. */
static void readers(void)
{
	struct actor holder, writer, reader;
	struct result got;

	actor_begin(&holder);
	actor_begin(&writer);
	actor_begin(&reader);
	if (actor_do(&holder, act_open, 0, "read").r || actor_do(&holder, act_wait, 0, NULL).r ||
	    actor_do(&writer, act_open_ranked, 0, "read").r || !actor_send(&writer, act_wait, 0, NULL) || !asleep(writer.pid) ||
	    actor_do(&reader, act_open_ranked, 1, "read").r || !actor_send(&reader, act_wait_shared, 0, NULL) || !asleep(reader.pid))
		give_up("the stage cannot be set");
	ok(actor_do(&holder, act_post, 0, NULL).r == 0 && actor_result(&reader, LIMIT, &got) && got.r == 0,
	   "a reader with a priority comes before a writer without");
	ok(actor_do(&reader, act_post, 0, NULL).r == 0 && actor_result(&writer, LIMIT, &got) && got.r == 0, "who is next after it");
	actor_kill(&holder, SIGKILL);
	actor_kill(&writer, SIGKILL);
	actor_kill(&reader, SIGKILL);
}

int main(void)
{
	static const unsigned none[4] = { 0, 0, 0, 0 }, in_order[4] = { 0, 1, 2, 3 };
	static const unsigned some[6] = { 0, 3, 9, 3, 255, 0 }, some_order[6] = { 4, 2, 1, 3, 0, 5 };
	static const unsigned near[4] = { 15, 16, 17, 1 }, near_order[4] = { 2, 1, 0, 3 };

	harness_begin(100);
	daemon_started(&node);
	served(&locks, "none", none, 4, in_order, "without priorities, in the order of their coming");
	served(&locks, "some", some, 6, some_order, "with them, the highest first, and those of the same in the order of their coming");
	served(&locks, "near", near, 4, near_order, "up to 16 each counts");
	leaves(true);
	leaves(false);
	readers();
	served(&permits, "permits-none", none, 4, in_order, "permits, without priorities: in the order of their coming");
	served(&permits, "permits-some", some, 6, some_order, "permits, with them: the highest first, and those of the same in the order of their coming");
	threads_of_one();
	daemon_end(&node, SIGTERM);
	return harness_end();
}
