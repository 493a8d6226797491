/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop's own order: watches, timers, signals, and what is deferred. One story a test,
 * each with a loop of its own on the real kernel. LOOP_SEED=N repeats a run whose seed was printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/internal.h"
#include "loop_fixture.h"
#include "proto/futex.h"

/* --- watches --- */

static void watch_calls_for_each_wake_up(void **state)
{
	struct seen seen = {.stop_after = 1};
	struct loop_watch *watch;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t value;

	(void)state;
	raise_event(fd);
	assert_int_equal(loop_watch(loop, fd, POLLIN, see_ready, &seen, &watch), 0);
	assert_int_equal(seen.calls, 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(seen.last, POLLIN);
	for (int i = 2; i < 10; i++) {
		assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
		raise_event(fd);
		seen.stop_after = i;
		assert_int_equal(run_for(PATIENCE), 0);
	}
	loop_unwatch(watch);
	raise_event(fd);
	run_turns();
	assert_int_equal(seen.calls, 9);
	close(fd);
}

#define CROWD 10000

static int crowd_heard(const struct seen *seen)
{
	int least = seen->calls;

	for (int i = 1; i < CROWD; i++)
		if (seen[i].calls < least)
			least = seen[i].calls;
	return least;
}

/*
 * More completions at once than the queue has room for: the kernel ends polls, and they are armed
 * again.
 */
static void ten_thousand_watches_hear_one_event(void **state)
{
	struct seen *seen = calloc(CROWD, sizeof(*seen));
	struct loop_watch **watches = calloc(CROWD, sizeof(*watches));
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t value;

	(void)state;
	assert_true(seen && watches);
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(loop_watch(loop, fd, POLLIN, see_ready, &seen[i], &watches[i]), 0);
	run_turns();
	for (int round = 1; round <= 2; round++) {
		raise_event(fd);
		for (int wait = 0; wait < 100 && crowd_heard(seen) < round; wait++)
			run_turns();
		assert_true(crowd_heard(seen) >= round);
		assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
	}
	for (int i = 0; i < CROWD; i++) {
		loop_unwatch(watches[i]);
		seen[i].calls = 0;
	}
	raise_event(fd);
	run_turns();
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(seen[i].calls, 0);
	close(fd);
	free(seen);
	free(watches);
}

struct unwatcher {
	struct loop_watch *watches[3];
	int calls;
};

static void unwatch_all(void *arg, uint32_t revents)
{
	struct unwatcher *u = arg;

	(void)revents;
	u->calls++;
	for (size_t i = 0; i < LENGTH(u->watches); i++)
		loop_unwatch(u->watches[i]);
}

/*
 * All three are ready in the same turn; whichever is called first ends itself and the two whose
 * completions wait.
 */
static void unwatch_ends_itself_and_others_whose_completions_wait(void **state)
{
	struct unwatcher u = {0};
	int fds[3];

	(void)state;
	for (size_t i = 0; i < LENGTH(fds); i++) {
		fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_int_equal(
			loop_watch(loop, fds[i], POLLIN, unwatch_all, &u, &u.watches[i]), 0);
	}
	run_turns();
	for (size_t i = 0; i < LENGTH(fds); i++)
		raise_event(fds[i]);
	run_turns();
	close_all(fds, LENGTH(fds));
	run_turns();
	assert_int_equal(u.calls, 1);
}

/* A number that is used again must not bring the events of the one before. */
static void descriptor_number_used_again_has_new_events_only(void **state)
{
	struct seen old = {0}, new = {.stop_after = 1};
	struct loop_watch *watch;
	int fd, again, p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	fd = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(loop_watch(loop, fd, POLLIN, see_ready, &old, &watch), 0);
	run_turns();
	loop_unwatch(watch);
	close(fd);
	again = fcntl(p[0], F_DUPFD_CLOEXEC, fd);
	assert_int_equal(again, fd);
	assert_int_equal(loop_watch(loop, again, POLLIN, see_ready, &new, &watch), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(old.calls, 0);
	loop_unwatch(watch);
	close_all(p, 2);
	close(again);
}

/* --- timers --- */

#define TIMERS 1000

struct numbered {
	struct loop_timer timer;
	nsec_t when;
	int number;
};

static struct {
	struct numbered all[TIMERS];
	int fired[TIMERS];
	int n;
} timers;

static void note_timer(void *arg)
{
	struct numbered *t = arg;

	assert_true(loop_now(loop) >= t->when);
	timers.fired[timers.n++] = t->number;
}

/*
 * Set in any order, a third moved, a third cancelled: the rest fire by moment, and within one as
 * they were set.
 */
static void timers_fire_in_order(void **state)
{
	nsec_t begin = boottime() + NSEC_PER_MSEC;
	unsigned seed = fixture_seed();
	int expected = 0;

	(void)state;
	timers.n = 0;
	for (int i = 0; i < TIMERS; i++) {
		struct numbered *t = &timers.all[i];

		*t = (struct numbered){.number = i};
		loop_timer_init(&t->timer, note_timer, t);
		t->when = begin + (nsec_t)(rand_r(&seed) % 20) * NSEC_PER_MSEC;
		loop_timer_set(loop, &t->timer, i % 3 == 1 ? begin : t->when);
	}
	for (int i = 0; i < TIMERS; i++) {
		struct numbered *t = &timers.all[i];

		if (i % 3 != 2)
			loop_timer_set(loop, &t->timer, t->when);
		else
			loop_timer_cancel(loop, &t->timer);
		expected += i % 3 != 2;
	}
	assert_int_equal(run_for(200 * NSEC_PER_MSEC), 99);
	assert_int_equal(timers.n, expected);
	for (int i = 1; i < timers.n; i++) {
		struct numbered *a = &timers.all[timers.fired[i - 1]],
				*b = &timers.all[timers.fired[i]];

		assert_true(a->when < b->when || (a->when == b->when && a->number < b->number));
	}
}

struct pair {
	struct loop_timer a, b;
	int a_fired, b_fired;
};

static void cancel_b(void *arg)
{
	struct pair *p = arg;

	p->a_fired++;
	loop_timer_cancel(loop, &p->b);
}

static void count_b(void *arg)
{
	((struct pair *)arg)->b_fired++;
}

static void timer_cancels_another_that_is_due(void **state)
{
	nsec_t when = boottime() + 5 * NSEC_PER_MSEC;
	struct pair p = {0};

	(void)state;
	loop_timer_init(&p.a, cancel_b, &p);
	loop_timer_init(&p.b, count_b, &p);
	loop_timer_set(loop, &p.a, when);
	loop_timer_set(loop, &p.b, when);
	run_turns();
	assert_int_equal(p.a_fired, 1);
	assert_int_equal(p.b_fired, 0);
	loop_timer_cancel(loop, &p.b);
	loop_timer_cancel(loop, NULL);
	loop_timer_set(loop, &p.b, NSEC_NEVER);
	run_turns();
	assert_int_equal(p.b_fired, 0);
}

struct eager {
	struct loop_timer timer;
	uint64_t fired;
	nsec_t last;
};

static void set_for_now(void *arg)
{
	struct eager *e = arg;

	e->fired++;
	assert_true(loop_now(loop) > e->last);
	e->last = loop_now(loop);
	loop_timer_set(loop, &e->timer, loop_now(loop));
}

/*
 * It goes round as fast as it can, once a turn, and keeps neither the other timer nor the pipe
 * waiting.
 */
static void timer_that_sets_itself_for_now_starves_nobody(void **state)
{
	struct seen seen = {.stop_after = 1};
	struct eager e = {0};
	struct loop_read *reader;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(loop_read_start(loop, p[0], 8, see_bytes, &seen, &reader), 0);
	loop_timer_init(&e.timer, set_for_now, &e);
	loop_timer_set(loop, &e.timer, 0);
	run_turns();
	assert_true(e.fired > 10);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(run_for(PATIENCE), 0);
	loop_timer_cancel(loop, &e.timer);
	loop_read_stop(reader);
	close_all(p, 2);
}

static void set_in_60_ms(void *arg, uint32_t revents)
{
	(void)revents;
	loop_timer_set(loop, arg, loop_now(loop) + 60 * NSEC_PER_MSEC);
}

/* The kernel's timeout stands at the later moment when the watch is heard. */
static void timer_set_for_an_earlier_moment_comes_first(void **state)
{
	struct loop_timer late, early;
	int fd = eventfd(1, EFD_CLOEXEC);
	struct loop_watch *watch;
	nsec_t begin = boottime();

	(void)state;
	loop_timer_init(&late, stop_with, (void *)1);
	loop_timer_init(&early, stop_with, (void *)2);
	loop_timer_set(loop, &late, begin + 15 * NSEC_PER_SEC);
	assert_int_equal(loop_watch(loop, fd, POLLIN, set_in_60_ms, &early, &watch), 0);
	assert_int_equal(loop_run(loop), 2);
	assert_true(boottime() - begin >= 60 * NSEC_PER_MSEC);
	loop_timer_cancel(loop, &late);
	loop_unwatch(watch);
	close(fd);
}

/* --- signals --- */

static struct seen signals_seen[2];

static void see_signal(void *arg, int signo)
{
	see(arg, signo);
}

static void add_second_signal(void *arg, int signo)
{
	see_signal(arg, signo);
	assert_int_equal(loop_signal(loop, SIGUSR2, see_signal, &signals_seen[1]), 0);
}

static void signals_come_as_events(void **state)
{
	sigset_t before;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	memset(signals_seen, 0, sizeof(signals_seen));
	signals_seen[0].stop_after = signals_seen[1].stop_after = 1;
	assert_int_equal(loop_signal(loop, SIGKILL, see_signal, NULL), -EINVAL);
	assert_int_equal(loop_signal(loop, 0, see_signal, NULL), -EINVAL);
	assert_int_equal(loop_signal(loop, SIGUSR1, add_second_signal, &signals_seen[0]), 0);
	kill(getpid(), SIGUSR1);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(signals_seen[0].last, SIGUSR1);
	assert_int_equal(signals_seen[1].calls, 0);
	raise(SIGUSR2);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(signals_seen[1].last, SIGUSR2);
	run_turns();
	assert_int_equal(signals_seen[0].calls + signals_seen[1].calls, 2);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* --- deferred --- */

struct coalescer {
	struct loop_defer defer, other, again;
	int asked, ran, other_ran, again_ran;
};

static void ask_for_defer(void *arg, const void *data, ssize_t n)
{
	struct coalescer *c = arg;

	(void)data, (void)n;
	c->asked++;
	loop_defer(loop, &c->defer);
}

static void run_defer(void *arg)
{
	struct coalescer *c = arg;

	c->ran++;
	loop_defer(loop, &c->other);
	loop_defer(loop, &c->again);
	loop_defer_cancel(loop, &c->again);
}

static void run_other(void *arg)
{
	struct coalescer *c = arg;

	c->other_ran++;
	loop_stop(loop, 0);
}

static void run_again(void *arg)
{
	struct coalescer *c = arg;

	if (++c->again_ran < 1000)
		loop_defer(loop, &c->again);
}

static void coalescer_init(struct coalescer *c)
{
	*c = (struct coalescer){0};
	loop_defer_init(&c->defer, run_defer, c);
	loop_defer_init(&c->other, run_other, c);
	loop_defer_init(&c->again, run_again, c);
}

static void deferred_runs_once_after_many_requests(void **state)
{
	struct coalescer c;
	struct loop_recv *recv;
	int pair[2];

	(void)state;
	coalescer_init(&c);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_recv_start(loop, pair[0], ask_for_defer, &c, &recv), 0);
	for (int i = 0; i < 20; i++)
		send(pair[1], "x", 1, 0);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(c.asked, 20);
	assert_int_equal(c.ran, 1);
	assert_int_equal(c.other_ran, 1);
	assert_int_equal(c.again_ran, 0);
	loop_recv_stop(recv);
	close_all(pair, 2);
}

static void deferred_that_defers_itself_runs_once_a_turn(void **state)
{
	struct coalescer c;
	struct loop_timer end;

	(void)state;
	coalescer_init(&c);
	loop_defer(loop, &c.again);
	loop_timer_init(&end, stop_with, (void *)7);
	loop_timer_set(loop, &end, 0);
	assert_int_equal(loop_run(loop), 7);
	assert_int_equal(c.again_ran, 1);
	run_turns();
	assert_int_equal(c.again_ran, 1000);
}

struct lateness {
	struct loop_defer early, late, other;
	struct loop_send *send;
	struct loop_bytes *bytes;
	int peer, heard, ran;
};

static void see_nothing(void *arg, struct loop_bytes *b, int error)
{
	(void)arg, (void)b;
	assert_int_equal(error, 0);
}

static void send_now(void *arg)
{
	struct lateness *l = arg;

	loop_send(l->send, l->bytes, false);
}

/* Once more in the next turn; the other one is cancelled by the first. */
static void run_late(void *arg)
{
	struct lateness *l = arg;
	char byte;

	if (!l->ran)
		l->heard = recv(l->peer, &byte, 1, MSG_DONTWAIT) == 1;
	loop_defer_cancel(loop, &l->other);
	if (l->ran++ == 0)
		loop_defer_late(loop, &l->late);
	else
		loop_stop(loop, 0);
}

static void late_runs_when_what_was_asked_for_is_on_its_way(void **state)
{
	struct lateness l = {0};
	struct loop_bytes *b = calloc(1, sizeof(*b) + 1);
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_send_open(loop, pair[0], see_nothing, &l, &l.send), 0);
	b->n = 1;
	l.bytes = b;
	l.peer = pair[1];
	loop_defer_init(&l.early, send_now, &l);
	loop_defer_init(&l.late, run_late, &l);
	loop_defer_init(&l.other, run_late, &l);
	loop_defer_late(loop, &l.late);
	loop_defer_late(loop, &l.other);
	loop_defer(loop, &l.early);
	assert_int_equal(run_for(PATIENCE), 0);
	assert_int_equal(l.ran, 2);
	assert_int_equal(l.heard, 1);
	loop_send_stop(l.send);
	run_turns();
	free(b);
	close_all(pair, 2);
}

struct afterthought {
	struct loop_defer early, late;
	unsigned ran;
};

static void run_afterthought(void *arg)
{
	struct afterthought *a = arg;

	if (++a->ran == 2)
		loop_stop(loop, 0);
}

static void have_afterthought(void *arg)
{
	struct afterthought *a = arg;

	loop_defer(loop, &a->early);
}

/* Nothing else ends a sleep here: what it has to do would wait for whatever comes next. */
static void what_late_defers_is_not_slept_over(void **state)
{
	struct afterthought a = {0};
	struct loop_timer end;

	(void)state;
	loop_timer_init(&end, stop_with, (void *)99);
	loop_timer_set(loop, &end, boottime() + PATIENCE);
	loop_defer_init(&a.early, run_afterthought, &a);
	loop_defer_init(&a.late, have_afterthought, &a);
	loop_defer(loop, &a.early);
	loop_defer_late(loop, &a.late);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(a.ran, 2);
	loop_timer_cancel(loop, &end);
}

/* --- what comes by memory --- */

#define SAYINGS 20000

struct board {
	uint32_t said, heard, awake;
	int bell;
	unsigned rests;
};

static bool board_peek(void *arg)
{
	struct board *b = arg;

	return __atomic_load_n(&b->said, __ATOMIC_SEQ_CST) != b->heard;
}

static bool board_run(void *arg)
{
	struct board *b = arg;
	uint32_t said = __atomic_load_n(&b->said, __ATOMIC_ACQUIRE);
	bool any = said != b->heard;

	__atomic_store_n(&b->awake, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&b->heard, said, __ATOMIC_RELEASE);
	if (said == SAYINGS)
		loop_stop(loop, 7);
	return any;
}

static bool board_rest(void *arg)
{
	struct board *b = arg;

	/* Often enough something comes between the last peek and this. */
	if (b->rests++ % 4 == 0)
		for (int i = 0; i < 1000 && !board_peek(b); i++)
			sched_yield();
	__atomic_store_n(&b->awake, 0, __ATOMIC_SEQ_CST);
	return !board_peek(b);
}

static void *say_all(void *arg)
{
	struct board *b = arg;

	for (uint32_t n = 1; n <= SAYINGS; n++) {
		__atomic_store_n(&b->said, n, __ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&b->awake, __ATOMIC_SEQ_CST))
			raise_event(b->bell);
		while (__atomic_load_n(&b->heard, __ATOMIC_ACQUIRE) != n)
			sched_yield();
		if (n % 64 == 0)
			usleep(1);
	}
	return NULL;
}

static void drain(void *arg, uint32_t revents)
{
	struct board *b = arg;
	uint64_t value;

	(void)revents;
	/* Two rings may be two events, and the first finds both: who rang first may have been off his processor until the second. */
	if (read(b->bell, &value, sizeof(value)) < 0)
		assert_int_equal(errno, EAGAIN);
}

static void what_comes_by_memory_is_never_overheard(void **state)
{
	struct board b = {.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	const struct loop_look look = {board_peek, board_run, board_rest, &b};
	struct loop_watch *watch;
	pthread_t who;

	(void)state;
	assert_int_equal(loop_watch(loop, b.bell, POLLIN, drain, &b, &watch), 0);
	loop_set_look(loop, &look);
	assert_int_equal(pthread_create(&who, NULL, say_all, &b), 0);
	assert_int_equal(run_for(PATIENCE), 7);
	assert_int_equal(pthread_join(who, NULL), 0);
	assert_int_equal(b.heard, SAYINGS);
	assert_true(b.rests > 0);
	loop_set_look(loop, NULL);
	run_turns();
	loop_unwatch(watch);
	close(b.bell);
}

/* --- futexes --- */

#define SLEEPERS 3

struct waking {
	struct loop_timer timer;
	uint32_t word[SLEEPERS], nobody;
	unsigned vain;                   /* so many words on which nobody sleeps come before them */
	int asleep;                      /* when all had been said */
	bool stop;                       /* there is no next system call */
};

static void *sleep_on(void *arg)
{
	uint32_t *word = arg;

	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		futex_wait_class(word, 0, FUTEX_BITSET_MATCH_ANY, CLOCK_MONOTONIC, NULL);
	return NULL;
}

static void wake_all(void *arg)
{
	struct waking *w = arg;

	for (unsigned i = 0; i < w->vain; i++)
		loop_wake(loop, &w->nobody);
	for (int i = 0; i < SLEEPERS; i++) {
		__atomic_store_n(&w->word[i], 1, __ATOMIC_RELEASE);
		loop_wake(loop, &w->word[i]);
	}
	for (int i = 0; i < SLEEPERS; i++)
		w->asleep += futex_sleepers(&w->word[i], 1) == 1;
	if (w->stop)
		loop_stop(loop, 7);
}

/* All are woken; returns how many were asleep still when the loop had been told. */
static int wakes(unsigned vain, bool stop)
{
	struct timespec until;
	struct waking w = {.vain = vain, .stop = stop};
	pthread_t who[SLEEPERS];

	for (int i = 0; i < SLEEPERS; i++) {
		assert_int_equal(pthread_create(&who[i], NULL, sleep_on, &w.word[i]), 0);
		while (futex_sleepers(&w.word[i], 0) != 1)
			sched_yield();
	}
	loop_timer_init(&w.timer, wake_all, &w);
	loop_timer_set(loop, &w.timer, boottime());
	assert_int_equal(run_for(stop ? PATIENCE : 20 * NSEC_PER_MSEC), stop ? 7 : 99);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE / NSEC_PER_SEC;
	for (int i = 0; i < SLEEPERS; i++)
		assert_int_equal(pthread_timedjoin_np(who[i], NULL, &until), 0);
	return w.asleep;
}

static void whoever_sleeps_is_woken_at_the_end_of_the_turn(void **state)
{
	bool together = loop->wakes.together;

	(void)state;
	assert_int_equal(wakes(0, false), together ? SLEEPERS : 0);
	assert_int_equal(wakes(0, true), together ? SLEEPERS : 0);
	assert_int_equal(wakes(WAKES_MAX - SLEEPERS, false), together ? SLEEPERS : 0);
	wakes(3 * WAKES_MAX, false);             /* more than are remembered */
	loop->wakes.together = false;            /* as before Linux 6.7 */
	assert_int_equal(wakes(0, false), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("a watch calls for each wake-up, and not after unwatch",
			watch_calls_for_each_wake_up),
		story("ten thousand watches hear one event, though the queue overflows",
			ten_thousand_watches_hear_one_event),
		story("a callback unwatches itself and others whose completions wait",
			unwatch_ends_itself_and_others_whose_completions_wait),
		story("a descriptor number used again brings new events only",
			descriptor_number_used_again_has_new_events_only),
		story("timers fire by moment, and within one as they were set",
			timers_fire_in_order),
		story("a timer cancels another that is due", timer_cancels_another_that_is_due),
		story("a timer that sets itself for now starves nobody",
			timer_that_sets_itself_for_now_starves_nobody),
		story("a timer set for an earlier moment comes first",
			timer_set_for_an_earlier_moment_comes_first),
		story("signals come as events, also one that is added later",
			signals_come_as_events),
		story("what is deferred runs once after many requests",
			deferred_runs_once_after_many_requests),
		story("what defers itself runs once a turn",
			deferred_that_defers_itself_runs_once_a_turn),
		story("what is deferred late runs when what was asked for is on its way",
			late_runs_when_what_was_asked_for_is_on_its_way),
		story("what a late one defers follows at once, though it has run in this turn", what_late_defers_is_not_slept_over),
		story("whoever sleeps on a futex is woken at the end of the turn, with or without a ring that knows how",
			whoever_sleeps_is_woken_at_the_end_of_the_turn),
		story("what comes by memory is never overheard, whether the loop sleeps or not",
			what_comes_by_memory_is_never_overheard),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
