/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Log lines, read from the other end of a pipe or socket that stands for stderr. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../daemon/log.h"

static int real_stderr, pair[2];
static char got[2 * LOG_LINE_MAX];

/* Of packets one is one write. */
static int set_up(void **state)
{
	(void)state;
	fflush(stderr);
	real_stderr = dup(STDERR_FILENO);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	return dup2(pair[1], STDERR_FILENO) < 0;
}

static int tear_down(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(pair[0]);
	close(pair[1]);
	return unsetenv("JOURNAL_STREAM");
}

/* What the next write had; "" if there was none. */
static const char *written(void)
{
	ssize_t n = recv(pair[0], got, sizeof(got) - 1, MSG_DONTWAIT);

	got[n > 0 ? n : 0] = '\0';
	return got;
}

static void line_names_program_and_level(void **state)
{
	(void)state;
	log_open("dlockd", LOG_LEVEL_INFO);
	log_error("cannot open %s", "x");
	assert_string_equal(written(), "dlockd: error: cannot open x\n");
	log_warning("w");
	assert_string_equal(written(), "dlockd: warning: w\n");
	log_notice("ready");
	assert_string_equal(written(), "dlockd: ready\n");
	log_info("i");
	assert_string_equal(written(), "dlockd: i\n");
	log_debug("d");
	assert_string_equal(written(), "");
	log_level_set(LOG_LEVEL_DEBUG);
	log_debug("d");
	assert_string_equal(written(), "dlockd: debug: d\n");
	log_level_set(LOG_LEVEL_ERROR);
	log_warning("w");
	assert_string_equal(written(), "");
}

static void journal_gets_priorities(void **state)
{
	char stream[64];
	struct stat st;

	(void)state;
	fstat(STDERR_FILENO, &st);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open("dlockd", LOG_LEVEL_DEBUG);
	log_error("a");
	assert_string_equal(written(), "<3>a\n");
	log_debug("b");
	assert_string_equal(written(), "<7>b\n");
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open("dlockd", LOG_LEVEL_DEBUG);
	log_error("not the journal any more");
	assert_string_equal(written(), "dlockd: error: not the journal any more\n");
}

static void hostile_text_stays_on_its_line(void **state)
{
	char much[3 * LOG_LINE_MAX];

	(void)state;
	log_open("dlockd", LOG_LEVEL_INFO);
	log_info("name '%s'", "a\n<0>dlockd: forged\033[2J\177\tü");
	assert_string_equal(written(), "dlockd: name 'a?<0>dlockd: forged?[2J??ü'\n");
	memset(much, 'x', sizeof(much));
	much[sizeof(much) - 1] = '\0';
	log_info("%s", much);
	assert_int_equal(strlen(written()), LOG_LINE_MAX);
	assert_string_equal(got + LOG_LINE_MAX - 5, "x...\n");
	assert_string_equal(written(), "");
	much[LOG_LINE_MAX - strlen("dlockd: ") - 1] = '\0'; /* fits exactly */
	log_info("%s", much);
	assert_int_equal(strlen(written()), LOG_LINE_MAX);
	assert_string_equal(got + LOG_LINE_MAX - 5, "xxxx\n");
}

static void errno_is_kept_and_can_be_told(void **state)
{
	(void)state;
	log_open("dlockd", LOG_LEVEL_INFO);
	errno = ENOSPC;
	log_error("store: %m");
	assert_int_equal(errno, ENOSPC);
	assert_string_equal(written(), "dlockd: error: store: No space left on device\n");
	close(pair[0]);
	pair[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(STDERR_FILENO);
	log_error("nobody listens");
	assert_int_equal(errno, ENOSPC);
}

static void complain(nsec_t now)
{
	log_limited(now, LOG_LEVEL_WARNING, "client %d misbehaves", 7);
}

static void limited_place_tells_how_many_were_left_out(void **state)
{
	nsec_t now = 1000;

	(void)state;
	log_open("dlockd", LOG_LEVEL_INFO);
	for (int i = 0; i < 100; i++)
		complain(now + (nsec_t)i);
	for (int i = 0; i < LOG_LIMIT_LINES; i++)
		assert_string_equal(written(), "dlockd: warning: client 7 misbehaves\n");
	assert_string_equal(written(), "");
	complain(now + LOG_LIMIT_SPAN);
	assert_string_equal(
		written(), "dlockd: warning: (95 like this were left out) client 7 misbehaves\n");
	complain(now + LOG_LIMIT_SPAN);
	assert_string_equal(written(), "dlockd: warning: client 7 misbehaves\n");
	log_limited(now, LOG_LEVEL_WARNING, "another place");
	assert_string_equal(written(), "dlockd: warning: another place\n");
}

#define story(title, fn)                                                                           \
	{                                                                                          \
		title, fn, set_up, tear_down, NULL                                                 \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		story("a line names the program and the level, and levels above the chosen one are "
		      "not written",
			line_names_program_and_level),
		story("the journal gets priorities, unless stderr is not the journal any more",
			journal_gets_priorities),
		story("hostile or endless text stays on its one line",
			hostile_text_stays_on_its_line),
		story("errno is kept, and %m tells it", errno_is_kept_and_can_be_told),
		story("a limited place tells how many lines it left out",
			limited_place_tells_how_many_were_left_out),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
