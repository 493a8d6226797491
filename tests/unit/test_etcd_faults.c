/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine on three real members that are killed, stopped, cut down to a minority and brought back; and a
 * full database. What must be true throughout: a request is over within its limit, an answer is true, and who
 * writes finds out what has become of it.
 */
#include "etcd_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/etcd.h"

#define LIMIT_MS 2000
#define SLACK_MS 10000                   /* what a busy machine adds; who does not answer is not waited for so long either */
#define WORKS_MS 60000

static struct etcd_rig rig;

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until a read succeeds. No read takes longer than the limit. */
static struct answer read_at_last(struct etcd_bench *b, const char *key)
{
	long begin = now_ms();
	struct answer a = { .error = -1 };

	while (a.error) {
		long asked = now_ms();

		answer_done(&a);
		a = ask_get(&b->contract, key);
		assert_true(now_ms() - asked < LIMIT_MS + SLACK_MS);
		if (a.error && now_ms() - begin > WORKS_MS / 2)
			print_message("# %s\n", store_explain(b->contract.store));
		assert_true(now_ms() - begin < WORKS_MS);
	}
	return a;
}

/* The milliseconds that it took. */
static long wait_works(struct etcd_bench *b)
{
	long begin = now_ms();
	struct answer a = read_at_last(b, "key");

	answer_done(&a);
	return now_ms() - begin;
}

/*
 * Writes while members come and go, and a disk may be slow: what is over without an answer is asked again, from
 * what is there then. Returns the version.
 */
static uint64_t write_at_last(struct etcd_bench *b, const char *key, uint64_t expected, const char *text)
{
	for (long begin = now_ms();;) {
		struct answer a = ask_cas(&b->contract, key, expected, text, strlen(text));
		bool there = a.error == 0;

		if (!there) {
			print_message("# %s: %s\n", text, store_explain(b->contract.store));
			answer_done(&a);
			a = read_at_last(b, key);
			there = a.n && !strcmp(a.records[0].value, text);
		}
		expected = a.version;
		answer_done(&a);
		if (there)
			return expected;
		assert_true(now_ms() - begin < WORKS_MS);
	}
}

static void expect_at_last(struct etcd_bench *b, const char *key, const char *text)
{
	struct answer a = read_at_last(b, key);

	assert_int_equal(a.n, 1);
	assert_string_equal(a.records[0].value, text);
	answer_done(&a);
}

static int start(void **state)
{
	(void)state;
	rig_start(&rig, 3, RIG_QUICK);
	return 0;
}

static int start_small(void **state)
{
	(void)state;
	rig_start(&rig, 1, RIG_SMALL);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	rig_stop(&rig);
	return 0;
}

static int setup(void **state)
{
	struct etcd_bench *b = etcd_bench_new(&rig);

	if (!b)
		return -1;
	for (int i = 0; i < rig.n; i++) {
		if (!rig.members[i].pid)
			rig_member_start(&rig, i);
		else
			rig_member_signal(&rig, i, SIGCONT);
	}
	b->options.request_ms = LIMIT_MS;
	etcd_bench_open(b);
	wait_works(b);
	*state = b;
	return 0;
}

/* --- One member --- */

static void one_fails(struct etcd_bench *b, int signo)
{
	uint64_t version = write_at_last(b, "key", 0, "before");
	int asked = rig_asked(&rig, b->contract.store);
	long took;

	assert_true(asked >= 0);
	rig_member_signal(&rig, asked, signo);
	took = wait_works(b);
	print_message("# asked again after %ld ms\n", took);
	assert_int_not_equal(rig_asked(&rig, b->contract.store), asked);
	expect_at_last(b, "key", "before");
	write_at_last(b, "key", version, "after");
	expect_at_last(b, "key", "after");
}

static void test_killed(void **state)
{
	one_fails(*state, SIGKILL);
}

static void test_stopped(void **state)
{
	one_fails(*state, SIGSTOP);
}

/* Neither a dead nor a stopped host is in the way of a start. */
static void test_start_without(void **state)
{
	struct etcd_bench *b = *state;

	etcd_bench_close(b);
	rig_member_signal(&rig, 0, SIGSTOP);
	etcd_bench_open(b);
	wait_works(b);
	rig_member_signal(&rig, 0, SIGCONT);
}

/* The watch moves away from who is gone, and a change is hinted at. */
static void test_watch_moves(void **state)
{
	struct etcd_bench *b = *state;
	struct store_etcd_info info = { .watching = false };
	uint64_t version = write_at_last(b, "key", 0, "1");
	int asked = rig_asked(&rig, b->contract.store);

	rig_member_signal(&rig, asked, SIGKILL);
	wait_works(b);
	for (long until = now_ms() + WORKS_MS; !info.watching && now_ms() < until;) {
		etcd_pump(&b->contract);
		store_etcd_info(b->contract.store, &info);
	}
	assert_true(info.watching);
	for (int i = 0; i < 5 || store_changed(b->contract.store); i++)
		etcd_pump(&b->contract);
	write_at_last(b, "key", version, "2");
	for (long until = now_ms() + WORKS_MS; !b->contract.store->changed && now_ms() < until;)
		etcd_pump(&b->contract);
	assert_true(store_changed(b->contract.store));
}

/* --- The majority --- */

static void test_majority(void **state)
{
	struct etcd_bench *b = *state;
	uint64_t version = write_at_last(b, "key", 0, "before");
	struct answer a;

	rig_member_signal(&rig, 0, SIGKILL);
	rig_member_signal(&rig, 1, SIGKILL);
	for (int i = 0; i < 2; i++) {
		long begin = now_ms();

		a = ask_get(&b->contract, "key");
		assert_true(now_ms() - begin < LIMIT_MS + SLACK_MS);
		if (a.error == 0)
			print_message("# a read succeeded\n");
		assert_int_not_equal(a.error, 0);
		assert_false(a.in_doubt);
		answer_done(&a);
		a = ask_cas(&b->contract, "key", version, "lost?", 5);
		assert_true(a.error < 0 && a.error != -EAGAIN);
		assert_true(strlen(store_explain(b->contract.store)) > 10);
		answer_done(&a);
	}
	/* The member that is left finds out by the heart-beats that it misses. */
	for (long until = now_ms() + WORKS_MS; !strstr(store_explain(b->contract.store), "no leader");) {
		assert_true(now_ms() < until);
		a = ask_get(&b->contract, "key");
		assert_int_not_equal(a.error, 0);
		answer_done(&a);
	}
	print_message("# %s\n", store_explain(b->contract.store));
	rig_member_start(&rig, 0);
	rig_member_start(&rig, 1);
	wait_works(b);
	a = read_at_last(b, "key");
	/* What was in doubt may have landed, once. */
	assert_true(!strcmp(a.records[0].value, "before") || !strcmp(a.records[0].value, "lost?"));
	answer_done(&a);
}

/* --- Two writers, and members that come and go --- */

#define KEYS	3
#define WRITES	2000

struct writer {
	struct etcd_bench b;
	unsigned serial, acked, doubts, lost;
	uint64_t won[WRITES];	/* versions that its successful writes replaced */
	size_t n_won;
};

/* Reads the key and writes it, with a value that is never used again. */
static void write_once(struct writer *w, int who, const char *key)
{
	struct answer a = ask_get(&w->b.contract, key), c;
	char mine[32], last[32];

	if (a.error) {
		w->lost++;
		answer_done(&a);
		return;
	}
	snprintf(last, sizeof last, "w%d:%u", who, w->serial);
	snprintf(mine, sizeof mine, "w%d:%u", who, ++w->serial);
	c = ask_cas(&w->b.contract, key, a.version, mine, strlen(mine));
	if (c.error == 0) {
		assert_true(c.version > a.version);
		if (w->n_won < WRITES)
			w->won[w->n_won++] = a.version;
		w->acked++;
	} else if (c.error == -EAGAIN) {
		/* Somebody else's, and never what we have just written ourselves. */
		struct answer again = ask_get(&w->b.contract, key);

		if (again.error == 0 && again.n)
			assert_string_not_equal(again.records[0].value, mine);
		answer_done(&again);
		w->lost++;
	} else if (c.in_doubt) {
		w->doubts++;
	} else {
		w->lost++;
	}
	answer_done(&c);
	answer_done(&a);
}

static void test_writers(void **state)
{
	struct writer *w[2];
	long begin = now_ms();
	int step = 0;

	(void)state;
	for (int i = 0; i < 2; i++) {
		w[i] = calloc(1, sizeof *w[i]);
		assert_non_null(w[i]);
		etcd_bench_init(&w[i]->b, &rig);
		w[i]->b.options.request_ms = LIMIT_MS;
		memcpy(w[i]->b.url, w[0]->b.url, sizeof w[i]->b.url);
		etcd_bench_open(&w[i]->b);
	}
	while (now_ms() - begin < 12000 || ((w[0]->acked <= 10 || w[1]->acked <= 10) && now_ms() - begin < WORKS_MS)) {
		int asked = rig_asked(&rig, w[step % 2]->b.contract.store);

		write_once(w[step % 2], step % 2, "contended");
		if (++step % 40 == 0 && asked >= 0) {
			rig_member_signal(&rig, asked, step % 80 ? SIGSTOP : SIGKILL);
			write_once(w[0], 0, "contended");
			write_once(w[1], 1, "contended");
			if (step % 80)
				rig_member_signal(&rig, asked, SIGCONT);
			else
				rig_member_start(&rig, asked);
		}
	}
	print_message("# acknowledged %u, in doubt %u, without effect %u\n", w[0]->acked + w[1]->acked,
		      w[0]->doubts + w[1]->doubts, w[0]->lost + w[1]->lost);
	assert_true(w[0]->acked > 10 && w[1]->acked > 10);
	/* No version was replaced twice. */
	for (size_t i = 0; i < w[0]->n_won; i++)
		for (size_t k = 0; k < w[1]->n_won; k++)
			assert_int_not_equal(w[0]->won[i], w[1]->won[k]);
	for (int i = 0; i < 2; i++) {
		etcd_bench_close(&w[i]->b);
		free(w[i]);
	}
}

/* --- A full database --- */

static void test_full(void **state)
{
	struct etcd_bench *b = *state;
	static char value[STORE_VALUE_MAX];
	struct answer a = { .error = 0 };
	char key[32];

	for (long i = 0, until = now_ms() + WORKS_MS; a.error != STORE_ETCD_ESPACE && now_ms() < until; i++) {
		answer_done(&a);
		snprintf(key, sizeof key, "full/%ld", i);
		a = ask_cas(&b->contract, key, 0, value, sizeof value);
	}
	assert_int_equal(a.error, STORE_ETCD_ESPACE);
	assert_false(a.in_doubt);
	assert_non_null(strstr(store_explain(b->contract.store), "alarm disarm"));
	answer_done(&a);
	expect_text(&b->contract, "key", NULL);	/* reads go on */
}

#define OWN(title, fn) STORY(title, fn, setup, etcd_bench_end)

int main(void)
{
	const struct CMUnitTest three[] = {
		OWN("the member that is asked is killed: another one is asked", test_killed),
		OWN("the member that is asked stops: another one is asked", test_stopped),
		OWN("a stopped member is in nobody's way at the start", test_start_without),
		OWN("the watch moves to another member", test_watch_moves),
		OWN("without a majority nothing is done, and all is over in time; with it all is there again", test_majority),
		OWN("two writers never replace the same version, whatever happens to the members", test_writers),
	};
	const struct CMUnitTest small[] = {
		OWN("a full database refuses writes with a sentence", test_full),
	};
	int r;

	if (!rig_possible())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	r = cmocka_run_group_tests_name("etcd, members that fail", three, start, stop);
	return r + cmocka_run_group_tests_name("etcd, a full one", small, start_small, stop);
}
