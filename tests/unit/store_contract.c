/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Each test begins with an empty store and knows nothing of the engine.
 */
#include "store_contract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Asking --- */

static void keep_answer(void *arg, const struct store_result *result)
{
	struct answer *a = arg;

	a->calls++;
	a->error = result->error;
	a->in_doubt = result->in_doubt;
	a->version = result->version;
	a->n = result->n_records;
	a->records = calloc(a->n + 1, sizeof *a->records);
	assert_non_null(a->records);
	for (size_t i = 0; i < a->n; i++) {
		const struct store_record *r = &result->records[i];

		assert_true(strlen(r->key) <= STORE_KEY_MAX);
		strcpy(a->records[i].key, r->key);
		assert_non_null(r->value);
		a->records[i].value = calloc(1, r->size + 1);
		assert_non_null(a->records[i].value);
		memcpy(a->records[i].value, r->value, r->size);
		a->records[i].size = r->size;
		a->records[i].version = r->version;
	}
}

/* Completed exactly once, now or after some events. */
static void settle(struct store_contract *c, struct answer *a)
{
	while (c->pump && !a->calls)
		c->pump(c);
	assert_int_equal(a->calls, 1);
}

struct answer ask_get(struct store_contract *c, const char *key)
{
	struct answer a = { .calls = 0 };

	store_get(c->store, key, keep_answer, &a);
	settle(c, &a);
	return a;
}

struct answer ask_list(struct store_contract *c, const char *prefix)
{
	struct answer a = { .calls = 0 };

	store_list(c->store, prefix, keep_answer, &a);
	settle(c, &a);
	return a;
}

struct answer ask_cas(struct store_contract *c, const char *key, uint64_t expected,
		      const void *value, size_t size)
{
	struct answer a = { .calls = 0 };

	store_cas(c->store, key, expected, value, size, keep_answer, &a);
	settle(c, &a);
	return a;
}

void answer_done(struct answer *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->records[i].value);
	free(a->records);
	*a = (struct answer){ .calls = 0 };
}

static int cas_error(struct store_contract *c, const char *key, uint64_t expected,
		     const void *value, size_t size)
{
	struct answer a = ask_cas(c, key, expected, value, size);
	int error = a.error;

	answer_done(&a);
	return error;
}

uint64_t put(struct store_contract *c, const char *key, uint64_t expected, const char *text)
{
	struct answer a = ask_cas(c, key, expected, text, text ? strlen(text) : 0);
	uint64_t version = a.version;

	assert_int_equal(a.error, 0);
	assert_false(a.in_doubt);
	assert_int_equal(version != 0, text != NULL);
	answer_done(&a);
	return version;
}

void expect_text(struct store_contract *c, const char *key, const char *text)
{
	struct answer a = ask_get(c, key);

	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, text ? 1 : 0);
	if (text) {
		assert_string_equal(a.records[0].key, key);
		assert_string_equal(a.records[0].value, text);
		assert_int_equal(a.records[0].size, strlen(text));
		assert_int_equal(a.records[0].version, a.version);
	}
	assert_int_equal(a.version != 0, text != NULL);
	answer_done(&a);
}

/* --- The stories --- */

void contract_absent(void **state)
{
	struct store_contract *c = *state;
	struct answer a;

	expect_text(c, "nobody", NULL);
	a = ask_list(c, "");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 0);
	answer_done(&a);
}

void contract_create(void **state)
{
	struct store_contract *c = *state;
	static const char bytes[] = "a\0b\xff\n";
	uint64_t version = put(c, "key", 0, "first");
	struct answer a;

	expect_text(c, "key", "first");
	a = ask_cas(c, "key", version, bytes, sizeof bytes);
	assert_int_equal(a.error, 0);
	assert_true(a.version > version);
	version = a.version;
	answer_done(&a);

	a = ask_get(c, "key");
	assert_int_equal(a.version, version);
	assert_int_equal(a.records[0].size, sizeof bytes);
	assert_memory_equal(a.records[0].value, bytes, sizeof bytes);
	answer_done(&a);
}

void contract_mismatch(void **state)
{
	struct store_contract *c = *state;
	uint64_t version = put(c, "key", 0, "mine");
	const uint64_t wrong[] = { 0, version - 1, version + 1, UINT64_MAX };

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct answer a;

		if (wrong[i] == version)
			continue;
		a = ask_cas(c, "key", wrong[i], "theirs", 6);
		assert_int_equal(a.error, -EAGAIN);
		assert_false(a.in_doubt);
		assert_int_equal(a.version, version);
		answer_done(&a);
	}
	expect_text(c, "key", "mine");

	struct answer a = ask_cas(c, "absent", 7, "x", 1);

	assert_int_equal(a.error, -EAGAIN);
	assert_int_equal(a.version, 0);
	answer_done(&a);
	expect_text(c, "absent", NULL);
}

void contract_delete(void **state)
{
	struct store_contract *c = *state;
	uint64_t version = put(c, "key", 0, "here");

	assert_int_equal(cas_error(c, "key", version + 1, NULL, 0), -EAGAIN);
	assert_int_equal(cas_error(c, "key", 0, NULL, 0), -EAGAIN);
	expect_text(c, "key", "here");
	put(c, "key", version, NULL);
	expect_text(c, "key", NULL);

	assert_int_equal(cas_error(c, "key", version, NULL, 0), -EAGAIN);
	put(c, "key", 0, NULL);
	expect_text(c, "key", NULL);
}

void contract_versions(void **state)
{
	struct store_contract *c = *state;
	uint64_t seen[24], version = 0;

	for (size_t i = 0; i < 24; i++) {
		if (i % 3 == 2) {
			put(c, "key", version, NULL);
			version = 0;
		}
		if (i % 5 == 4)
			c->reopen(c);
		version = put(c, "key", version, "same");
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(seen[k], version);
		seen[i] = version;
	}
}

void contract_values(void **state)
{
	struct store_contract *c = *state;
	char *big = malloc(STORE_VALUE_MAX + 1);
	struct answer a;

	assert_non_null(big);
	for (size_t i = 0; i <= STORE_VALUE_MAX; i++)
		big[i] = (char)(i * 131 >> 3);

	assert_int_equal(cas_error(c, "big", 0, big, STORE_VALUE_MAX + 1), -E2BIG);
	expect_text(c, "big", NULL);
	assert_int_equal(cas_error(c, "big", 0, big, STORE_VALUE_MAX), 0);
	put(c, "empty", 0, "");
	c->reopen(c);

	a = ask_get(c, "big");
	assert_int_equal(a.records[0].size, STORE_VALUE_MAX);
	assert_memory_equal(a.records[0].value, big, STORE_VALUE_MAX);
	answer_done(&a);
	expect_text(c, "empty", "");
	free(big);
}

void contract_keys(void **state)
{
	struct store_contract *c = *state;
	static const char *const bad[] = { "", "with space", "tab\t", "line\n", "del\x7f", "\xc3\xa4" };
	char longest[STORE_KEY_MAX + 2];
	struct answer a;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(cas_error(c, bad[i], 0, "x", 1), -EINVAL);
		a = ask_get(c, bad[i]);
		assert_int_equal(a.error, -EINVAL);
		answer_done(&a);
	}

	memset(longest, 'k', sizeof longest);
	longest[STORE_KEY_MAX + 1] = 0;
	assert_int_equal(cas_error(c, longest, 0, "x", 1), -EINVAL);
	a = ask_list(c, longest);
	assert_int_equal(a.error, -EINVAL);
	answer_done(&a);

	longest[STORE_KEY_MAX] = 0;
	put(c, longest, 0, "long");
	put(c, "!/._-:~", 0, "odd");
	c->reopen(c);
	expect_text(c, longest, "long");
	expect_text(c, "!/._-:~", "odd");
}

void contract_list(void **state)
{
	struct store_contract *c = *state;
	static const char *const keys[] = { "b/2", "a", "b/10", "b", "c/1", "b0", "b/1" };
	static const char *const below[] = { "b/1", "b/10", "b/2" };
	struct answer a;

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		put(c, keys[i], 0, keys[i]);

	a = ask_list(c, "b/");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 3);
	for (size_t i = 0; i < a.n; i++) {
		assert_string_equal(a.records[i].key, below[i]);
		assert_string_equal(a.records[i].value, below[i]);
		assert_true(a.records[i].version > 0);
	}
	answer_done(&a);

	a = ask_list(c, "");
	assert_int_equal(a.n, sizeof keys / sizeof *keys);
	for (size_t i = 1; i < a.n; i++)
		assert_true(strcmp(a.records[i - 1].key, a.records[i].key) < 0);
	answer_done(&a);

	a = ask_list(c, "b/3");
	assert_int_equal(a.error, 0);
	assert_int_equal(a.n, 0);
	answer_done(&a);
}

void contract_reopen(void **state)
{
	struct store_contract *c = *state;
	uint64_t kept = put(c, "kept", 0, "one"), gone = put(c, "gone", 0, "two");
	struct answer a;

	kept = put(c, "kept", kept, "three");
	put(c, "gone", gone, NULL);
	c->reopen(c);

	expect_text(c, "kept", "three");
	expect_text(c, "gone", NULL);
	a = ask_get(c, "kept");
	assert_int_equal(a.version, kept);
	answer_done(&a);
}

static void count_call(void *arg)
{
	++*(int *)arg;
}

/* The hint may come with the answer or later. */
static bool hint_taken(struct store_contract *c)
{
	for (time_t until = time(NULL) + 60; c->pump && !c->store->changed && time(NULL) < until;)
		c->pump(c);
	return store_changed(c->store);
}

/* Where answers are waited for, the hint may go up for nothing. */
static void expect_calls(struct store_contract *c, int calls, int expected)
{
	assert_true(c->pump ? calls >= expected : calls == expected);
}

void contract_hint(void **state)
{
	struct store_contract *c = *state;
	int calls = 0;
	uint64_t version;

	store_changed(c->store);
	store_on_change(c->store, count_call, &calls);
	version = put(c, "key", 0, "1");
	version = put(c, "key", version, "2");
	assert_true(hint_taken(c));
	expect_calls(c, calls, 1);

	assert_int_equal(cas_error(c, "key", 0, "x", 1), -EAGAIN);
	if (!c->pump)
		assert_false(store_changed(c->store));

	put(c, "key", version, NULL);
	assert_true(hint_taken(c));
	expect_calls(c, calls, 2);
	store_on_change(c->store, NULL, NULL);
}

struct nested {
	struct store_contract *c;
	struct answer *inner;
	size_t seen;
	bool done;
};

static void delete_all_listed(void *arg, const struct store_result *result)
{
	struct nested *n = arg;

	for (size_t i = 0; i < result->n_records; i++) {
		const struct store_record *r = &result->records[i];

		store_cas(n->c->store, r->key, r->version, NULL, 0, keep_answer, &n->inner[i]);
		/* Deleted or soon to be, and still ours to read. */
		assert_int_equal(((const char *)r->value)[0], r->key[0]);
		assert_int_equal(r->size, 1);
		n->seen++;
	}
	n->done = true;
}

void contract_nested(void **state)
{
	struct store_contract *c = *state;
	struct answer inner[3] = { { .calls = 0 } };
	struct nested n = { .c = c, .inner = inner };

	put(c, "a", 0, "a");
	put(c, "b", 0, "b");
	put(c, "c", 0, "c");
	store_list(c->store, "", delete_all_listed, &n);
	while (c->pump && !n.done)
		c->pump(c);
	assert_int_equal(n.seen, 3);
	for (size_t i = 0; i < 3; i++) {
		settle(c, &inner[i]);
		assert_int_equal(inner[i].error, 0);
		answer_done(&inner[i]);
	}
	contract_absent(state);
}

/* --- One long story with a seed --- */

static uint64_t story_seed(void)
{
	const char *given = getenv("DLOCK_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	print_message("# seed: DLOCK_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static unsigned roll(uint64_t *seed, unsigned sides)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(*seed >> 33) % sides;
}

struct model {
	uint64_t version;
	char text[24];
};

/* One cas on one of the model's keys, right or wrong, put or delete; the model moves with it. */
static void story_step(struct store_contract *c, uint64_t *seed, struct model *m, const char *key)
{
	bool right = roll(seed, 4) != 0, deletes = roll(seed, 4) == 0;
	uint64_t expected = right ? m->version : m->version + 1 + roll(seed, 3);
	char text[24];
	struct answer a;

	snprintf(text, sizeof text, "v%u", roll(seed, 1000000));
	a = ask_cas(c, key, expected, deletes ? NULL : text, deletes ? 0 : strlen(text));
	assert_int_equal(a.error, right ? 0 : -EAGAIN);
	if (!right)
		assert_int_equal(a.version, m->version);
	if (right && deletes)
		assert_int_equal(a.version, 0);
	if (right && !deletes) {
		assert_true(a.version > m->version);
		strcpy(m->text, text);
	}
	m->version = a.version;
	answer_done(&a);
}

void contract_story(void **state)
{
	struct store_contract *c = *state;
	struct model models[8] = { { .version = 0 } };
	uint64_t seed = story_seed();

	for (int step = 0; step < 1000; step++) {
		unsigned which = roll(&seed, 8);
		char key[8];

		snprintf(key, sizeof key, "k%u", which);
		story_step(c, &seed, &models[which], key);
		expect_text(c, key, models[which].version ? models[which].text : NULL);
		if (step % 100 == 99)
			c->reopen(c);
	}
}
