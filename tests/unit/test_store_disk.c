/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store on a bad disk: an error, a crash or a power cut at every single step. The disk
 * is store_faults.h's.
 */
#include "store_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_faults.h"

/* --- A bad disk --- */

/* One cas over a disk that fails at step n; false: it has fewer steps. */
static bool cas_with_fault(struct bench *b, long n, int error)
{
	struct store_file_info before, after;
	uint8_t then[512], now[512];
	struct answer a;
	size_t size;
	bool broken;

	assert_int_equal(bench_try_open(b, &fault_io), 0);
	put(&b->contract, "key", 0, "old");
	store_changed(b->contract.store);
	store_file_info(b->contract.store, &before);
	size = bench_read(bench_path(b, "store"), then, sizeof then);

	fault_set(FAULT_ERROR, n, error, b->dir);
	a = ask_cas(&b->contract, "key", before.revision, "new", 3);
	fault.at = 0;
	if (!fault.hit) {
		assert_int_equal(a.error, 0);
		answer_done(&a);
		return false;
	}
	if (a.error == 0) {	/* only what tidies up may fail unnoticed */
		assert_string_equal(fault.hit, "unlinkat");
	} else {
		assert_int_equal(a.error, -error);
		assert_non_null(strstr(store_explain(b->contract.store), strerror(error)));
		assert_false(store_changed(b->contract.store));
		expect_text(&b->contract, "key", "old");
		store_file_info(b->contract.store, &after);
		assert_int_equal(after.revision, before.revision);
		assert_int_equal(after.broken, a.in_doubt);
		/* "No doubt" must be true of the file as well. */
		if (!a.in_doubt) {
			assert_int_equal(bench_read(bench_path(b, "store"), now, sizeof now), size);
			assert_memory_equal(now, then, size);
		}
	}

	broken = a.in_doubt;
	answer_done(&a);
	a = ask_cas(&b->contract, "other", 0, "x", 1);
	assert_int_equal(a.error, broken ? -EIO : 0);
	assert_false(a.in_doubt);
	answer_done(&a);

	bench_reopen(&b->contract);
	store_file_info(b->contract.store, &after);
	assert_true(after.revision >= before.revision);
	a = ask_get(&b->contract, "key");
	assert_int_equal(a.error, 0);
	assert_true(!strcmp(a.records[0].value, "old") ||
		    (broken && !strcmp(a.records[0].value, "new")));
	assert_int_not_equal(access(bench_path(b, "store.new"), F_OK), 0);
	answer_done(&a);
	return true;
}

static void empty_dir(struct bench *b)
{
	static const char *const names[] = { "store", "store.id", "store.new", "store.id.new", "lock" };

	bench_close(b);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(bench_path(b, names[i]));
	rmdir(b->dir);
}

static void test_cas_faults(void **state)
{
	struct bench *b = *state;
	static const int errors[] = { EIO, ENOSPC, EDQUOT, EROFS };

	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		long n = 1;

		fault_set(FAULT_NONE, 0, 0, b->dir);
		while (cas_with_fault(b, n, errors[i])) {
			n++;
			empty_dir(b);
			fault_set(FAULT_NONE, 0, 0, b->dir);
		}
		assert_true(n > 6);	/* unlink, open, write, fsync, rename, fsync */
		empty_dir(b);
	}
}

static void test_open_faults(void **state)
{
	struct bench *b = *state;

	for (int first = 1; first >= 0; first--) {
		for (long n = 1;; n++) {
			int r;

			if (first)
				empty_dir(b);
			fault_set(FAULT_ERROR, n, EIO, b->dir);
			r = bench_try_open(b, &fault_io);
			fault.at = 0;
			if (!fault.hit) {
				assert_true(n > 8);
				break;
			}
			if (r < 0) {
				assert_int_equal(r, -EIO);
				assert_non_null(strstr(b->why.text, b->dir));
				assert_non_null(strstr(b->why.text, strerror(EIO)));
			}
			bench_close(b);
			bench_must_open(b);
			if (!first)
				expect_text(&b->contract, "key", "value");
			bench_close(b);
		}
		if (first)
			put(&b->contract, "key", 0, "value");
		bench_close(b);
	}
}

/* --- Crashes --- */

/* What the child does: opens, changes "key" to "new" and deletes "bye", with the fault set. */
static void crash_child(struct bench *b, enum fault_kind kind, long n)
{
	bool power = kind == FAULT_POWER_BEFORE || kind == FAULT_POWER_AFTER;
	struct answer a;

	fault_set(kind, n, 0, b->dir);
	if (bench_try_open(b, &fault_io) < 0)
		_exit(1);
	a = ask_get(&b->contract, "key");
	ask_cas(&b->contract, "key", a.version, "new", 3);
	a = ask_get(&b->contract, "bye");
	ask_cas(&b->contract, "bye", a.version, NULL, 0);
	if (power)
		fault_power_cut(0);
	_exit(0);
}

/* The exit code of a child that crashed at step n, or ended well. */
static int crash(struct bench *b, enum fault_kind kind, long n)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		crash_child(b, kind, n);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool has_text(struct bench *b, const char *key, const char *text)
{
	struct answer a = ask_get(&b->contract, key);
	bool same = a.error == 0 && (text ? a.n == 1 && !strcmp(a.records[0].value, text) : a.n == 0);

	answer_done(&a);
	return same;
}

/* One of the three states that the two changes go through, and with the revision that belongs to it. */
static void check_crashed(struct bench *b, uint64_t before, bool finished)
{
	struct store_file_info info;
	unsigned changes = 0;

	bench_must_open(b);
	store_file_info(b->contract.store, &info);
	changes = has_text(b, "key", "new") + has_text(b, "bye", NULL);
	if (!has_text(b, "key", "new")) {
		assert_true(has_text(b, "key", "old"));
		assert_true(has_text(b, "bye", "x"));
	}
	assert_int_equal(info.revision, before + changes);
	if (finished)
		assert_int_equal(changes, 2);
	assert_int_not_equal(access(bench_path(b, "store.new"), F_OK), 0);
}

static void crash_everywhere(struct bench *b, enum fault_kind kind)
{
	bool finished = false;
	long n;

	for (n = 1; !finished; n++) {
		struct store_file_info info;
		int code;

		empty_dir(b);
		bench_must_open(b);
		put(&b->contract, "key", 0, "old");
		put(&b->contract, "bye", 0, "x");
		store_file_info(b->contract.store, &info);
		bench_close(b);

		code = crash(b, kind, n);
		assert_true(code == 0 || code == FAULT_EXIT_CODE);
		finished = code == 0;
		check_crashed(b, info.revision, finished);
	}
	assert_true(n > 20);
}

static void test_crashes(void **state)
{
	crash_everywhere(*state, FAULT_EXIT_BEFORE);
	crash_everywhere(*state, FAULT_EXIT_AFTER);
}

static void test_power_cuts(void **state)
{
	crash_everywhere(*state, FAULT_POWER_BEFORE);
	crash_everywhere(*state, FAULT_POWER_AFTER);
}

/* The first start crashes at every step; the next one always works, and sees an empty store. */
static void test_first_crashes(void **state)
{
	struct bench *b = *state;

	for (int kind = FAULT_EXIT_BEFORE; kind <= FAULT_POWER_AFTER; kind++) {
		int code = FAULT_EXIT_CODE;

		for (long n = 1; code == FAULT_EXIT_CODE; n++) {
			empty_dir(b);
			code = crash(b, (enum fault_kind)kind, n);
			assert_true(code == 0 || code == FAULT_EXIT_CODE);
			bench_must_open(b);
			assert_true(has_text(b, "key", NULL) || has_text(b, "key", "new"));
		}
	}
}

#define TEST(title, fn) STORY(title, fn, bench_setup, bench_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST("an error at any step of a cas changes nothing, in memory or on disk",
		     test_cas_faults),
		TEST("an error at any step of opening is told, and the next opening works",
		     test_open_faults),
		TEST("a crash at any step leaves the old or the new state", test_crashes),
		TEST("a power cut at any step does too, and loses nothing acknowledged",
		     test_power_cuts),
		TEST("a first start may crash or lose power at any step", test_first_crashes),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store_disk", tests, NULL, NULL);
}
