/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The wire format: what is a call, and what is turned away before or by the JSON library. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <json-c/json.h>

#include "query/varlink.h"

static int parse(const char *text, struct varlink_call *ret)
{
	return varlink_call_parse(text, strlen(text), ret);
}

static void refused(const char *text)
{
	struct varlink_call call;

	if (parse(text, &call) != -EBADMSG)
		fail_msg("taken for a call: %s", text);
}

static void call_is_read(void **state)
{
	struct varlink_call call;

	(void)state;
	assert_int_equal(parse(" {\"method\":\"a.b.C\",\"parameters\":{\"x\":1},\"more\":true}\n", &call), 0);
	assert_string_equal(call.method, "a.b.C");
	assert_true(json_object_object_get_ex(call.parameters, "x", NULL));
	assert_true(call.more);
	assert_false(call.oneway || call.upgrade);
	varlink_call_done(&call);
	assert_int_equal(parse("{\"method\":\"a.b.C\",\"parameters\":null,\"more\":null,\"new\":[]}", &call), 0);
	assert_null(call.parameters);
	assert_false(call.more);
	varlink_call_done(&call);
}

static void others_are_refused(void **state)
{
	static const char *const bad[] = {
		"", " ", "{", "}", "[]", "\"x\"", "1", "null", "true", "{}", "{}{}", "garbage",
		"{\"method\":1}", "{\"method\":null}", "{\"method\":\"a.b\\u0000c\"}",
		"{\"method\":\"a.B\"} x", "{\"method\":\"a.B\"}{\"method\":\"a.B\"}",
		"{\"method\":\"a.B\",}", "{'method':'a.B'}", "{\"method\":\"a.B\" /* hello */}",
		"{\"method\":\"a.B\",\"parameters\":[]}", "{\"method\":\"a.B\",\"parameters\":\"x\"}",
		"{\"method\":\"a.B\",\"more\":1}", "{\"method\":\"a.B\",\"oneway\":\"yes\"}",
		"{\"method\":\"a.B\",\"more\":true,\"oneway\":true}",
		"{\"method\":\"a.\tB\"}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i]);
}

static void bad_encodings_are_refused(void **state)
{
	static const char *const bad[] = {
		"\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98",
	};
	static const char *const good[] = { "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf", "a" };
	struct varlink_call call;
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "{\"method\":\"a.%sB\"}", bad[i]);
		refused(text);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(varlink_utf8_length(good[i], strlen(good[i])), strlen(good[i]));
		snprintf(text, sizeof(text), "{\"method\":\"a.%s\"}", good[i]);
		assert_int_equal(parse(text, &call), 0);
		varlink_call_done(&call);
	}
	assert_int_equal(varlink_utf8_length("", 0), 0);
}

/* A call whose parameters hold n times open, then n times close. */
static char *nested(unsigned n, const char *open, const char *close)
{
	char *text = calloc(1, 64 + n * (strlen(open) + strlen(close)));

	assert_non_null(text);
	strcpy(text, "{\"method\":\"a.B\",\"parameters\":{\"x\":");
	for (unsigned i = 0; i < n; i++)
		strcat(text, open);
	strcat(text, "0");
	for (unsigned i = 0; i < n; i++)
		strcat(text, close);
	strcat(text, "}}");
	return text;
}

static void depth_is_bounded(void **state)
{
	struct varlink_call call;
	char *text;

	(void)state;
	text = nested(4, "[", "]");
	assert_int_equal(parse(text, &call), 0);
	varlink_call_done(&call);
	free(text);
	for (unsigned n = VARLINK_DEPTH_MAX; n < 5000; n = n * 7) {
		text = nested(n, "[", "]");
		refused(text);
		free(text);
		text = nested(n, "{\"x\":", "}");
		refused(text);
		free(text);
	}
}

static void values_are_bounded(void **state)
{
	struct varlink_call call;
	char text[VARLINK_REQUEST_MAX];

	(void)state;
	/* In a string they are just letters, also behind an escaped quote. */
	strcpy(text, "{\"method\":\"a.B\",\"parameters\":{\"x\":\"\\\"");
	memset(text + strlen(text), ',', 1000);
	strcpy(text + strlen("{\"method\":\"a.B\",\"parameters\":{\"x\":\"\\\"") + 1000, "\"}}");
	assert_int_equal(parse(text, &call), 0);
	varlink_call_done(&call);
	strcpy(text, "{\"method\":\"a.B\",\"parameters\":{\"x\":[0");
	for (unsigned i = 0; i < VARLINK_VALUES_MAX; i++)
		strcat(text, ",0");
	strcat(text, "]}}");
	refused(text);
}

static void buffer_keeps_its_maximum(void **state)
{
	struct varlink_buf b = { .max = 100 };
	char data[100] = "";

	(void)state;
	memset(data, 'x', 100);
	assert_int_equal(varlink_buf_add(&b, data, 60), 0);
	assert_int_equal(varlink_buf_add(&b, data, 41), -ENOBUFS);
	assert_int_equal(varlink_buf_length(&b), 60);
	assert_int_equal(varlink_buf_add(&b, data, SIZE_MAX), -ENOBUFS);
	varlink_buf_drop(&b, 50);
	assert_int_equal(varlink_buf_add(&b, data, 90), 0);
	assert_int_equal(varlink_buf_length(&b), 100);
	varlink_buf_drop(&b, 100);
	assert_int_equal(varlink_buf_length(&b), 0);
	varlink_buf_done(&b);
}

/* Three messages cut into pieces of every size come out the same. */
static void messages_survive_splitting(void **state)
{
	static const char stream[] = "first\0\0third, longer";
	static const char *const wanted[] = { "first", "", "third, longer" };
	const char *message;
	size_t n;

	(void)state;
	for (size_t piece = 1; piece <= sizeof(stream); piece++) {
		struct varlink_buf b = { .max = 100 };
		unsigned found = 0;

		for (size_t at = 0; at < sizeof(stream); at += piece) {
			size_t left = sizeof(stream) - at;

			assert_int_equal(varlink_buf_add(&b, stream + at, left < piece ? left : piece), 0);
			while (varlink_buf_next(&b, &message, &n)) {
				assert_true(found < 3);
				assert_int_equal(n, strlen(wanted[found]));
				assert_memory_equal(message, wanted[found], n);
				varlink_buf_drop(&b, n + 1);
				found++;
			}
		}
		assert_int_equal(found, 3);
		varlink_buf_done(&b);
	}
}

static void answers_are_messages(void **state)
{
	struct varlink_buf b = { .max = 1000 };

	(void)state;
	assert_int_equal(varlink_put_reply(&b, NULL, false), 0);
	assert_string_equal(b.data, "{\"parameters\":{}}");
	varlink_buf_drop(&b, varlink_buf_length(&b));
	assert_int_equal(varlink_put_reply(&b, NULL, true), 0);
	assert_string_equal(b.data + b.start, "{\"parameters\":{},\"continues\":true}");
	varlink_buf_drop(&b, varlink_buf_length(&b));
	assert_int_equal(varlink_put_error(&b, "a.b.Error", NULL), 0);
	assert_string_equal(b.data + b.start, "{\"error\":\"a.b.Error\",\"parameters\":{}}");
	b.max = varlink_buf_length(&b) + 5;
	assert_int_equal(varlink_put_reply(&b, NULL, false), -ENOBUFS);
	varlink_buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "a call is read", call_is_read, NULL, NULL, NULL },
		{ "what is no call is refused", others_are_refused, NULL, NULL, NULL },
		{ "what is not UTF-8 is refused", bad_encodings_are_refused, NULL, NULL, NULL },
		{ "a call that is nested too deep is refused", depth_is_bounded, NULL, NULL, NULL },
		{ "a call with too many values is refused", values_are_bounded, NULL, NULL, NULL },
		{ "a buffer never holds more than its maximum", buffer_keeps_its_maximum, NULL, NULL, NULL },
		{ "messages survive being split anywhere", messages_survive_splitting, NULL, NULL, NULL },
		{ "answers are whole messages or nothing", answers_are_messages, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("varlink", tests, NULL, NULL);
}
