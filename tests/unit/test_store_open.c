/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From a Store= to an engine, and what is said of those that are none.
 */
#include "store_bench.h"

#include <errno.h>
#include <string.h>

static void must_refuse(const char *url, int error, const char *says)
{
	struct store_options o = { .url = url, .state_dir = "/nowhere" };
	struct store_why why = { "" };
	struct store *s = NULL;

	assert_int_equal(store_url_check(url, &why), error);
	if (!strstr(why.text, says))
		print_message("# %s\n", why.text);
	assert_non_null(strstr(why.text, says));
	assert_non_null(strstr(why.text, "file:"));
	assert_int_equal(store_open(&o, &s, &why), error);
	assert_null(s);
}

static void test_refused(void **state)
{
	(void)state;
	must_refuse("redis://h", -ENOTSUP, "can lose what it has acknowledged");
	must_refuse("postgresql://h/db", -ENOTSUP, "can lose what it has acknowledged");
	must_refuse("zookeeper://h", -ENOTSUP, "no engine for it");
	must_refuse("consul://h", -ENOTSUP, "no engine for it");
	must_refuse("mysql://h", -EINVAL, "No such store");
	must_refuse("", -EINVAL, "No such store");
	must_refuse("file:/var/lib/x", -EINVAL, "state directory");
}

static void test_file(void **state)
{
	struct bench *b = *state;
	struct store_options o = { .url = "file:", .state_dir = b->dir };
	bool done = true;

	assert_int_equal(store_url_check("file:", &b->why), 0);
	assert_false(store_url_shared("file:"));
	assert_int_equal(store_open(&o, &b->contract.store, &b->why), 0);
	put(&b->contract, "key", 0, "value");
	store_wait(b->contract.store, &done);

	struct store *second = NULL;

	assert_int_equal(store_open(&o, &second, &b->why), STORE_FILE_EBUSY);
	assert_null(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY("what can roll back, and what is unknown, is refused with the reason", test_refused,
		      NULL, NULL),
		STORY("file: is the embedded store, and of one node", test_file, bench_setup, bench_teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store open", tests, NULL, NULL);
}
