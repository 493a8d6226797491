/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The engine on a real etcd of one member and of three: the contract of all engines, then what is its own.
 * (What no real etcd can be made to answer at a given moment: test_etcd_fake.c; TLS and passwords:
 * test_etcd_secure.c; members that fail: test_etcd_faults.c.)
 */
#include "etcd_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/etcd.h"

#define PATIENCE_S 60

static struct etcd_rig rig;

static int start(int n)
{
	struct etcd_bench b;
	struct answer a;

	rig_start(&rig, n, 0);
	etcd_bench_init(&b, &rig);
	etcd_bench_open(&b);
	/* Its first election. */
	for (int i = 0; i < 10; i++) {
		a = ask_get(&b.contract, "x");
		if (a.error == 0)
			break;
		answer_done(&a);
	}
	if (a.error)
		print_message("# %s\n", store_explain(b.contract.store));
	assert_int_equal(a.error, 0);
	answer_done(&a);
	etcd_bench_close(&b);
	return 0;
}

static int start_one(void **state)
{
	(void)state;
	return start(1);
}

static int start_three(void **state)
{
	(void)state;
	return start(3);
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
	etcd_bench_open(b);
	*state = b;
	return 0;
}

/* --- Its own --- */

static void test_pages(void **state)
{
	struct etcd_bench *b = *state;
	struct answer a;
	char key[32];

	for (int i = 0; i < 300; i++) {
		snprintf(key, sizeof key, "many/%03d", i);
		put(&b->contract, key, 0, key);
	}
	put(&b->contract, "many0", 0, "behind");
	a = ask_list(&b->contract, "many/");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 300);
	for (int i = 0; i < 300; i++) {
		snprintf(key, sizeof key, "many/%03d", i);
		assert_string_equal(a.records[i].key, key);
		assert_string_equal(a.records[i].value, key);
	}
	answer_done(&a);
}

static void test_large_list(void **state)
{
	struct etcd_bench *b = *state;
	char *value = calloc(1, STORE_VALUE_MAX);
	struct answer a;
	char key[32];

	assert_non_null(value);
	for (int i = 0; i < 140; i++) {
		snprintf(key, sizeof key, "large/%03d", i);
		a = ask_cas(&b->contract, key, 0, value, STORE_VALUE_MAX);
		assert_int_equal(a.error, 0);
		answer_done(&a);
	}
	a = ask_list(&b->contract, "large/");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 140);
	answer_done(&a);
	free(value);
}

/* What somebody else has put under our prefix. */
static void test_foreign_keys(void **state)
{
	struct etcd_bench *b = *state;
	const char *prefix = strstr(b->url, "/test/");
	struct answer a;

	put(&b->contract, "b", 0, "ours");
	assert_int_equal(rig_ctl(&rig, "put '%s/with space' x", prefix), 0);
	assert_int_equal(rig_ctl(&rig, "put '%s/' x", prefix), 0);
	assert_int_equal(rig_ctl(&rig, "put '%s0' x", prefix), 0);
	a = ask_list(&b->contract, "");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 1);
	assert_string_equal(a.records[0].key, "b");
	answer_done(&a);

	/* Longer than any of dlock's: it is there, so that it can be removed, and it is none. */
	assert_int_equal(rig_ctl(&rig, "put '%s/c' \"$(head -c 100000 /dev/zero | tr '\\0' x)\"", prefix), 0);
	a = ask_list(&b->contract, "");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 2);
	assert_string_equal(a.records[0].value, "ours");
	assert_string_equal(a.records[1].key, "c");
	assert_string_equal(a.records[1].value, "");
	answer_done(&a);
}

static void test_clusters(void **state)
{
	struct etcd_bench *b = *state, other;

	etcd_bench_init(&other, &rig);
	memcpy(other.url, b->url, sizeof other.url);
	other.options.cluster = "second";
	etcd_bench_open(&other);
	put(&b->contract, "key", 0, "first");
	put(&other.contract, "key", 0, "second");
	expect_text(&b->contract, "key", "first");
	expect_text(&other.contract, "key", "second");
	etcd_bench_close(&other);
}

static void wait_watching(struct etcd_bench *b)
{
	struct store_etcd_info info = { .watching = false };

	for (time_t until = time(NULL) + PATIENCE_S; !info.watching && time(NULL) < until;) {
		etcd_pump(&b->contract);
		store_etcd_info(b->contract.store, &info);
	}
	assert_true(info.watching);
	while (store_changed(b->contract.store)) {
		for (int i = 0; i < 3; i++)
			etcd_pump(&b->contract);
	}
}

static bool hinted(struct etcd_bench *b, int seconds)
{
	for (time_t until = time(NULL) + seconds; !b->contract.store->changed && time(NULL) < until;)
		etcd_pump(&b->contract);
	return store_changed(b->contract.store);
}

/* The hint comes of what another node writes, and only of what was asked for. */
static void test_other_client(void **state)
{
	struct etcd_bench *b = *state, other;
	static const char *const some[] = { "map", "roster/", NULL };

	etcd_bench_init(&other, &rig);
	memcpy(other.url, b->url, sizeof other.url);
	other.options.hints = some;
	etcd_bench_open(&other);
	wait_watching(&other);
	put(&b->contract, "beat/1", 0, "1");
	put(&b->contract, "beat/2", 0, "1");
	assert_false(hinted(&other, 2));
	put(&b->contract, "roster/2", 0, "1");
	assert_true(hinted(&other, PATIENCE_S));
	put(&b->contract, "map", 0, "1");
	assert_true(hinted(&other, PATIENCE_S));
	etcd_bench_close(&other);
}

static void count(void *arg, const struct store_result *result)
{
	int *counts = arg;

	assert_true(result->error == -ECANCELED || result->error == 0);
	counts[result->error == 0]++;
}

/* Many at once; and closing ends what is under way. */
static void test_many_pending(void **state)
{
	struct etcd_bench *b = *state;
	int counts[2] = { 0, 0 };
	char key[32];

	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof key, "k%d", i);
		store_cas(b->contract.store, key, 0, "x", 1, count, counts);
	}
	while (counts[1] < 200)
		etcd_pump(&b->contract);
	for (int i = 0; i < 200; i++)
		store_get(b->contract.store, "k1", count, counts);
	etcd_bench_close(b);
	assert_int_equal(counts[0], 200);
	etcd_bench_open(b);
}

static void busy(void *arg, const struct store_result *result)
{
	*(int *)arg += result->error == -EBUSY;
}

static void test_too_many(void **state)
{
	struct etcd_bench *b = *state;
	int refused = 0;

	for (int i = 0; i < STORE_ETCD_PENDING_MAX + 5; i++)
		store_get(b->contract.store, "key", busy, &refused);
	assert_int_equal(refused, 5);
}

#define OWN(title, fn) STORY(title, fn, setup, etcd_bench_end)

int main(void)
{
	const struct CMUnitTest one[] = {
		STORE_CONTRACT_TESTS(setup, etcd_bench_end),
		OWN("a list of many pages is whole and in order", test_pages),
		OWN("a list of large values goes over several pages", test_large_list),
		OWN("keys that dlock cannot have made are passed over", test_foreign_keys),
		OWN("two clusters in one etcd do not see each other", test_clusters),
		OWN("the hint comes of what others write, under the prefixes asked for", test_other_client),
		OWN("hundreds of requests run at once, and all end when the store is closed", test_many_pending),
		OWN("beyond thousands under way, requests are refused", test_too_many),
	};
	const struct CMUnitTest three[] = {
		STORE_CONTRACT_TESTS(setup, etcd_bench_end),
	};
	int r;

	if (!rig_possible())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	r = cmocka_run_group_tests_name("etcd, one member", one, start_one, stop);
	return r + cmocka_run_group_tests_name("etcd, three members", three, start_three, stop);
}
