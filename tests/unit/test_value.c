/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page that carries a value, or who leads (proto/value.h): what is read was published as it is, whoever writes at the
 * same time or has ended while he did; and what is told of an election never goes back.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proto/value.h"

#define WRITERS 3
#define READERS 2
#define TERMS   400000u

static struct value_page page;

static int set_up(void **state)
{
	(void)state;
	memset(&page, 0, sizeof page);
	return 0;
}

/* What term and count alone decide. */
static uint32_t bytes_of(uint64_t token, uint32_t count, uint8_t bytes[VALUE_MAX])
{
	uint32_t len = (uint32_t)(token * 31 + count) % (VALUE_MAX + 1);

	memset(bytes, (int)(token ^ count), len);
	return len;
}

static struct value_head head(uint64_t token, uint32_t count)
{
	return (struct value_head){ .state = count == VALUE_NOBODY ? VALUE_NONE : VALUE_KNOWN, .token = token, .count = count };
}

static bool tell(uint64_t token, uint32_t count)
{
	struct value_head h = head(token, count);
	uint8_t bytes[VALUE_MAX];

	if (count == VALUE_NOBODY)
		return value_publish_note(&page, &h, false);
	h.len = bytes_of(token, count, bytes);
	return value_tell(&page, &h, bytes, false);
}

static bool is_whole(const struct value_head *h, const uint8_t *bytes)
{
	uint8_t expected[VALUE_MAX];
	uint32_t len = h->count == VALUE_NOBODY || !h->token ? 0 : bytes_of(h->token, h->count, expected);

	return h->len == len && !memcmp(bytes, expected, len);
}

/* --- one after the other --- */

static void test_publish(void **state)
{
	struct value_head h = head(7, 1), got;
	uint8_t bytes[VALUE_MAX];
	uint64_t claim = 0;

	(void)state;
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.state, VALUE_NONE);
	h.len = bytes_of(7, 1, bytes);
	assert_true(value_claim(&page, value_load(&page), &claim));
	value_fill(&page, claim, &h, bytes);
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.state, VALUE_NONE);         /* not yet */
	assert_int_equal(value_publish(&page, claim, &h, false, false), 0);
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.state, VALUE_KNOWN);
	assert_int_equal(got.token, 7);
	assert_true(is_whole(&got, bytes));
	assert_int_equal(value_publish(&page, claim, &h, true, true), -EAGAIN);  /* once */
}

static void test_room(void **state)
{
	struct value_head got;
	uint8_t bytes[VALUE_MAX] = { 0 };

	(void)state;
	assert_true(tell(33, 1));                /* 0 bytes and 1 byte would say nothing */
	assert_int_equal(value_read(&page, &got, bytes, 3), 0);
	assert_true(got.len > 3);
	assert_int_equal(bytes[0], 0);
}

/* Whoever is overtaken publishes nothing, and what he writes after that is noticed where it does harm. */
static void test_overtaken(void **state)
{
	struct value_head h = head(7, 1), got;
	uint8_t bytes[VALUE_MAX];
	uint64_t claim = 0;

	(void)state;
	assert_true(tell(5, 1));
	assert_true(value_claim(&page, value_load(&page), &claim));
	h.len = bytes_of(7, 1, bytes);
	assert_true(tell(8, 1));                 /* goes where the first one is writing */
	value_fill(&page, claim, &h, bytes);
	assert_int_equal(value_publish(&page, claim, &h, true, true), -EAGAIN);
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), -EIO);    /* whole, but not what was published */
	assert_true(tell(9, 1));
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.token, 9);
	assert_true(is_whole(&got, bytes));
}

static void test_order(void **state)
{
	struct value_head got, again = { .state = VALUE_LOST, .token = 6, .count = 2 };
	uint8_t bytes[VALUE_MAX];

	(void)state;
	assert_true(tell(6, 2));
	assert_false(tell(6, 1));
	assert_false(tell(5, VALUE_NOBODY));
	assert_false(tell(6, 2));
	assert_false(value_publish_note(&page, &again, false));
	assert_true(value_publish_note(&page, &again, true));
	assert_false(value_publish_note(&page, &again, true));
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.state, VALUE_LOST);
	assert_int_equal(got.token, 6);
	assert_true(tell(6, VALUE_NOBODY));
	assert_false(tell(6, 3));
	assert_true(tell(7, 1));
}

static void test_hostile(void **state)
{
	struct value_head got;
	uint8_t bytes[VALUE_MAX];

	(void)state;
	assert_true(tell(33, 1));
	page.buf[value_load(&page) & VALUE_CUR].mark.len = VALUE_MAX + 1;
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), -EIO);
	page.buf[value_load(&page) & VALUE_CUR].mark.len = UINT32_MAX;
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), -EIO);
	page.pub |= VALUE_STATE;
	page.buf[value_load(&page) & VALUE_CUR].mark.len = 0;
	assert_int_equal(value_read(&page, &got, bytes, sizeof bytes), 0);
	assert_int_equal(got.state, VALUE_LOST);
}

/* --- all at once --- */

static pthread_mutex_t leads = PTHREAD_MUTEX_INITIALIZER;
static uint64_t term;
static bool done;
static unsigned notes, published[WRITERS], seen[READERS], bad;

static void *writer(void *arg)
{
	unsigned me = *(unsigned *)arg;

	for (bool more = true; more;) {
		pthread_mutex_lock(&leads);
		more = term + 1 < TERMS;
		if (more)
			__atomic_store_n(&term, term + 1, __ATOMIC_RELEASE);
		for (uint32_t count = 1; more && count < 3; count++)
			published[me] += tell(term, count);
		pthread_mutex_unlock(&leads);
	}
	return NULL;
}

/* The daemon says that nobody leads; it may come late. */
static void *undertaker(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		uint64_t now = __atomic_load_n(&term, __ATOMIC_ACQUIRE);

		notes += tell(now ? now - 1 : 0, VALUE_NOBODY);
		notes += now < TERMS - 1 && tell(now, VALUE_NOBODY);     /* or too soon */
	}
	return NULL;
}

static void *reader(void *arg)
{
	unsigned me = *(unsigned *)arg;
	struct value_head last = { 0 }, got;
	uint8_t bytes[VALUE_MAX];

	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		if (value_read(&page, &got, bytes, sizeof bytes) < 0)
			continue;
		if (!is_whole(&got, bytes) || value_is_later(last.token, last.count, got.token, got.count))
			__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
		seen[me] += value_is_later(got.token, got.count, last.token, last.count);
		last = got;
	}
	return NULL;
}

/* Sleeps whenever nothing has changed: a wake-up that got lost would leave it there. */
static void *sleeper(void *arg)
{
	(void)arg;
	for (;;) {
		struct timespec until;
		struct value_head got;
		uint8_t bytes[VALUE_MAX];
		uint64_t pub = value_load(&page);

		if (__atomic_load_n(&done, __ATOMIC_ACQUIRE))
			return NULL;
		if (value_read(&page, &got, bytes, sizeof bytes) < 0 || !value_announce(&page, &pub))
			continue;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += 10;
		if (futex_wait_class((uint32_t *)&page.pub, (uint32_t)pub, UINT32_MAX, CLOCK_MONOTONIC, &until) == -ETIMEDOUT)
			__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
	}
}

static void test_threads(void **state)
{
	pthread_t w[WRITERS], r[READERS], s, u;
	unsigned index[] = { 0, 1, 2 };

	(void)state;
	for (unsigned i = 0; i < READERS; i++)
		pthread_create(&r[i], NULL, reader, &index[i]);
	pthread_create(&s, NULL, sleeper, NULL);
	pthread_create(&u, NULL, undertaker, NULL);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_create(&w[i], NULL, writer, &index[i]);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(w[i], NULL);
	assert_int_equal(value_mark(&page, value_load(&page))->token, TERMS - 1);        /* the latest was not lost */
	assert_false(value_load(&page) & VALUE_TORN);
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	tell(TERMS, 1);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(r[i], NULL);
	pthread_join(s, NULL);
	pthread_join(u, NULL);
	print_message("# published %u, %u, %u; %u notes; seen %u and %u of them\n", published[0], published[1], published[2], notes, seen[0], seen[1]);
	assert_int_equal(bad, 0);
	assert_true(seen[0] + seen[1] > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_publish, set_up),
		cmocka_unit_test_setup(test_room, set_up),
		cmocka_unit_test_setup(test_overtaken, set_up),
		cmocka_unit_test_setup(test_order, set_up),
		cmocka_unit_test_setup(test_hostile, set_up),
		cmocka_unit_test_setup(test_threads, set_up),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
