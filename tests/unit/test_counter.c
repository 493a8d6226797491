/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A deadline in ticks of the counter passes before the clock's, by a hundredth at most, or is not given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../../daemon/loop/counter.h"
#include "../../daemon/loop/loop.h"
#include "../../libclient/deadline.h"

#define SPAN (200 * NSEC_PER_MSEC)

static void nap(nsec_t span)
{
	struct timespec t = { 0, (long)span };

	nanosleep(&t, NULL);
}

/* As where nobody can suspend the machine. */
static bool begin(struct counter *c)
{
	counter_init(c);
	c->can_suspend = false;
	nap(30 * NSEC_PER_MSEC);
	return counter_deadline(c, loop_clock() + SPAN) != 0;
}

static void passes_before_the_clock(void **state)
{
	struct counter c;
	nsec_t deadline, at;
	uint64_t ticks;

	(void)state;
	if (!begin(&c))
		skip();
	for (int i = 0; i < 5; i++) {
		nap(30 * NSEC_PER_MSEC);
		deadline = loop_clock() + SPAN;
		ticks = counter_deadline(&c, deadline);
		assert_int_not_equal(ticks, 0);
		while (counter_now() < ticks)
			;
		at = loop_clock();
		if (at >= deadline) {            /* unless this thread was stopped just then */
			struct counter_reading r = { counter_now(), 0, loop_clock() };

			assert_true(r.before - ticks > (r.at - deadline) / 2);
			continue;
		}
		assert_true(deadline - at < SPAN / 20);
	}
}

static void not_where_a_suspend_may_come_unannounced(void **state)
{
	struct counter c;

	(void)state;
	if (!begin(&c))
		skip();
	c.can_suspend = true;
	nap(30 * NSEC_PER_MSEC);
	assert_int_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
	counter_guard(&c, true);
	assert_int_not_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
	nap(30 * NSEC_PER_MSEC);
	counter_guard(&c, false);
	assert_int_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
}

static void not_after_a_suspend_that_nobody_announced(void **state)
{
	struct counter c;

	(void)state;
	if (!begin(&c))
		skip();
	c.slept -= 10 * NSEC_PER_MSEC;           /* as if it had slept since */
	nap(30 * NSEC_PER_MSEC);
	assert_int_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
	nap(30 * NSEC_PER_MSEC);
	assert_int_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
	counter_guard(&c, true);
	assert_int_not_equal(counter_deadline(&c, loop_clock() + SPAN), 0);
}

static void not_for_what_has_passed(void **state)
{
	struct counter c;

	(void)state;
	if (!begin(&c))
		skip();
	nap(30 * NSEC_PER_MSEC);
	assert_int_equal(counter_deadline(&c, loop_clock()), 0);
	assert_int_equal(counter_deadline(&c, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "the counter's deadline passes before the clock's", passes_before_the_clock, NULL, NULL, NULL },
		{ "none where a suspend may come unannounced", not_where_a_suspend_may_come_unannounced, NULL, NULL, NULL },
		{ "none after one that did", not_after_a_suspend_that_nobody_announced, NULL, NULL, NULL },
		{ "none for what has passed", not_for_what_has_passed, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
