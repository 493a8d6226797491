/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What connections say of themselves, as bytes and numbers: greetings, beats, addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "net/address.h"
#include "net/greet.h"
#include "net/pulse.h"

#define MS NSEC_PER_MSEC

static const struct greeting sample = {
	.kind = GREET_HELLO, .version_min = 1, .version_max = 3, .session = 0x1122334455667788, .to = 9, .incarnation = 4, .conn = 77,
	.cluster = "prod", .node = "db1",
};

static void greeting_comes_back_as_it_was(void **state)
{
	struct greeting g = sample, back;
	uint8_t buf[GREET_MAX];
	size_t n;

	(void)state;
	for (int kind = GREET_HELLO; kind <= GREET_REFUSED; kind++) {
		g.kind = (enum greet_kind)kind;
		g.reason = GREET_CLUSTER;
		strcpy(g.text, "because");
		n = greet_encode(&g, buf);
		for (size_t i = 0; i < GREET_HEAD; i++)
			assert_int_equal(greet_length(buf, i), 0);
		assert_int_equal(greet_length(buf, n), n);
		assert_int_equal(greet_decode(buf, n, 1, 1, &back), 0);
		assert_int_equal(back.kind, kind);
		assert_int_equal(back.conn, kind == GREET_REFUSED ? 0 : 77);
		assert_string_equal(back.text, kind == GREET_REFUSED ? "because" : "");
		assert_string_equal(back.node, kind <= GREET_WELCOME ? "db1" : "");
		for (size_t cut = 0; cut < n; cut++)     /* whole or not at all */
			assert_int_equal(greet_decode(buf, cut, 1, 1, &back), -EBADMSG);
	}
}

static void what_a_later_release_adds_is_passed_over(void **state)
{
	struct greeting back;
	uint8_t buf[GREET_MAX];
	size_t n = greet_encode(&sample, buf);

	(void)state;
	memset(buf + n, 0xee, 20);
	buf[8] = (uint8_t)(n + 20);
	assert_int_equal(greet_decode(buf, n + 20, 1, 1, &back), 0);
	assert_string_equal(back.cluster, "prod");
}

static void names_are_printable(void **state)
{
	struct greeting back;
	uint8_t buf[GREET_MAX];
	size_t n = greet_encode(&sample, buf);
	uint8_t *name = memmem(buf, n, "db1", 3);

	(void)state;
	name[1] = '\n';
	assert_int_equal(greet_decode(buf, n, 1, 1, &back), -EBADMSG);
	name[1] = (uint8_t)0xc3;
	assert_int_equal(greet_decode(buf, n, 1, 1, &back), -EBADMSG);
	name[-1] = 200;                          /* longer than it is */
	assert_int_equal(greet_decode(buf, n, 1, 1, &back), -EBADMSG);
}

static void versions_meet_at_the_highest_of_both(void **state)
{
	struct greeting back;
	uint8_t buf[GREET_MAX];
	size_t n = greet_encode(&sample, buf);

	(void)state;
	assert_int_equal(greet_version(1, 3, 2, 5), 3);
	assert_int_equal(greet_version(2, 5, 1, 3), 3);
	assert_int_equal(greet_version(1, 1, 2, 2), 0);
	assert_int_equal(greet_decode(buf, n, 4, 6, &back), -EPROTONOSUPPORT);
	assert_int_equal(back.version_max, 3);
}

static void numbers_rise_and_are_never_the_same(void **state)
{
	uint64_t last = 0, a, b;

	(void)state;
	for (uint32_t inc = 1; inc < 4; inc++)
		for (int i = 0; i < 1000; i++) {
			a = greet_number(100, 200, inc, 1, last);        /* both ends at the same time */
			b = greet_number(200, 100, 1, inc, last);
			assert_true(a > last && b > last && a != b);
			last = i & 1 ? a : b;
		}
	a = greet_number(100, 200, 5, 5, (UINT64_C(10) << GREET_COUNTER_BITS) + (1u << GREET_COUNTER_BITS) - 2);
	assert_int_equal(a, 0);                  /* none is left; the next would be another incarnation's */
	assert_true(greet_number(100, 200, 6, 5, UINT64_C(10) << GREET_COUNTER_BITS) > 0);
	assert_true(greet_number_possible(5, 5, UINT64_C(10) << GREET_COUNTER_BITS));
	assert_false(greet_number_possible(5, 5, UINT64_C(11) << GREET_COUNTER_BITS));
	assert_true(greet_number(1, 2, UINT32_MAX, UINT32_MAX, 0) > 0);
}

static void beat(const struct pulse *from, struct pulse *to, nsec_t now, nsec_t arrives)
{
	uint8_t buf[PULSE_BYTES];

	pulse_encode(from, now, false, buf);
	if (arrives != NSEC_NEVER)
		assert_int_equal(pulse_hear(to, arrives, buf, sizeof buf), 0);
}

static void either_direction_lost_is_noticed_by_both(void **state)
{
	(void)state;
	for (int lost = 0; lost < 2; lost++) {
		struct pulse a, b;
		nsec_t t = 1000 * MS;

		pulse_begin(&a, t);
		pulse_begin(&b, t);
		for (int i = 0; i < 10; i++, t += 80 * MS) {
			beat(&a, &b, t, t + 3 * MS);
			beat(&b, &a, t + 40 * MS, t + 45 * MS);
			assert_true(pulse_deadline(&a, 400 * MS) > t + 80 * MS);
			assert_true(pulse_deadline(&b, 400 * MS) > t + 80 * MS);
		}
		for (int i = 0; i < 6; i++, t += 80 * MS) {
			beat(&a, &b, t, lost == 0 ? NSEC_NEVER : t + 3 * MS);
			beat(&b, &a, t + 40 * MS, lost == 1 ? NSEC_NEVER : t + 45 * MS);
		}
		assert_true(pulse_deadline(&a, 400 * MS) <= t);
		assert_true(pulse_deadline(&b, 400 * MS) <= t);
	}
}

static void round_trip_is_without_the_time_it_was_held(void **state)
{
	struct pulse a, b;
	nsec_t t = 1000 * MS;

	(void)state;
	pulse_begin(&a, t);
	pulse_begin(&b, t);
	beat(&a, &b, t + MS, t + 3 * MS);
	beat(&b, &a, t + 70 * MS, t + 73 * MS);  /* held for 67 ms */
	assert_int_equal(a.rtt, 5 * MS);
	assert_int_equal(a.rtt_min, 5 * MS);
}

static void probe_shortens_the_patience(void **state)
{
	struct pulse a, b;
	nsec_t t = 1000 * MS;

	(void)state;
	pulse_begin(&a, t);
	pulse_begin(&b, t);
	pulse_probe(&a, t + 10 * MS, 20000 * MS);
	assert_true(pulse_deadline(&a, 20000 * MS) <= t + 1000 * MS);
	beat(&a, &b, t + 9 * MS, t + 11 * MS);   /* from before the probe: does not answer it */
	beat(&b, &a, t + 12 * MS, t + 13 * MS);
	assert_true(pulse_deadline(&a, 20000 * MS) <= t + 1000 * MS);
	beat(&a, &b, t + 14 * MS, t + 15 * MS);
	beat(&b, &a, t + 16 * MS, t + 17 * MS);
	assert_true(pulse_deadline(&a, 20000 * MS) > t + 10000 * MS);
}

static void beats_that_cannot_be_are_refused(void **state)
{
	struct pulse a, b;
	uint8_t buf[PULSE_BYTES];

	(void)state;
	pulse_begin(&a, 1000);
	pulse_begin(&b, 1000);
	pulse_encode(&b, 1000, true, buf);
	assert_int_equal(pulse_hear(&a, 1001, buf, PULSE_BYTES), 1);
	assert_int_equal(pulse_hear(&a, 1001, buf, PULSE_BYTES - 1), -EBADMSG);
	buf[13] = 0xff;                          /* an echo from the future */
	assert_int_equal(pulse_hear(&a, 1001, buf, PULSE_BYTES), -EBADMSG);
	buf[13] = 0;
	buf[3] = 8;
	assert_int_equal(pulse_hear(&a, 1001, buf, PULSE_BYTES), -EBADMSG);
}

static void addresses_are_read_and_written(void **state)
{
	static const struct { const char *text, *back; int error; bool loopback; } t[] = {
		{ "192.0.2.1:80", "192.0.2.1:80", 0, false }, { "192.0.2.1", "192.0.2.1:7420", 0, false },
		{ "[2001:db8::1]:80", "[2001:db8::1]:80", 0, false }, { "2001:db8::1", "[2001:db8::1]:7420", 0, false },
		{ "[::1]", "[::1]:7420", 0, true }, { "localhost:5", "127.0.0.1:5", 0, true }, { "127.9.9.9:0", "127.9.9.9:0", 0, true },
		{ "*:5", "[::]:5", 0, false }, { "[::ffff:10.0.0.1]:5", "10.0.0.1:5", 0, false }, { "[::ffff:127.0.0.1]:5", "127.0.0.1:5", 0, true },
		{ "db1:5", NULL, -ENOENT, false }, { "db1", NULL, -ENOENT, false }, { "", NULL, -EINVAL, false }, { ":5", NULL, -EINVAL, false },
		{ "1.2.3.4:", NULL, -EINVAL, false }, { "1.2.3.4:65536", NULL, -EINVAL, false }, { "1.2.3.4:5x", NULL, -EINVAL, false },
		{ "[::1", NULL, -EINVAL, false }, { "[::1]x", NULL, -EINVAL, false }, { "[]:5", NULL, -EINVAL, false }, { "a b:5", NULL, -EINVAL, false },
		{ "::zz::", NULL, -EINVAL, false },
	};
	char text[ADDRESS_TEXT_MAX];
	union address a;

	(void)state;
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		assert_int_equal(address_parse(t[i].text, &a), t[i].error);
		if (t[i].error)
			continue;
		address_format(&a, text);
		assert_string_equal(text, t[i].back);
		assert_int_equal(address_loopback(&a), t[i].loopback);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "a greeting comes back as it was, whole or not at all",
		  greeting_comes_back_as_it_was, NULL, NULL, NULL },
		{ "what a later release adds is passed over",
		  what_a_later_release_adds_is_passed_over, NULL, NULL, NULL },
		{ "names are printable, since they go into logs",
		  names_are_printable, NULL, NULL, NULL },
		{ "versions meet at the highest of both",
		  versions_meet_at_the_highest_of_both, NULL, NULL, NULL },
		{ "connection numbers rise, and those of both ends are never the same",
		  numbers_rise_and_are_never_the_same, NULL, NULL, NULL },
		{ "that either direction is lost is noticed by both ends",
		  either_direction_lost_is_noticed_by_both, NULL, NULL, NULL },
		{ "a round trip is without the time that the echo was held",
		  round_trip_is_without_the_time_it_was_held, NULL, NULL, NULL },
		{ "a probe shortens the patience until it is answered",
		  probe_shortens_the_patience, NULL, NULL, NULL },
		{ "beats that cannot be are refused",
		  beats_that_cannot_be_are_refused, NULL, NULL, NULL },
		{ "addresses are read and written",
		  addresses_are_read_and_written, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
