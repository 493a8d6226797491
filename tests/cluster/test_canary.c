/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The canary itself: who has no processor is told of, and who only sleeps or was stopped is not. */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "canary.h"

#define STILL_MS 50
#define BURNERS 2

static char history[80];
static volatile pid_t *pid;              /* shared memory: starved, sleeping, stopped */

static void pin(void)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		give_up("no affinity");
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &allowed))
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof one, &one);
}

/* Both want the first processor for themselves; the idle one has next to nothing of it while the other is there. */
static pid_t burn(bool idle)
{
	fflush(stdout);
	pid_t p = fork();

	if (p)
		return p;
	end_with_parent();
	pin();
	if (idle && sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }) < 0)
		_exit(1);
	for (volatile unsigned long n = 0; ; n++)
		;
}

static pid_t sleeper(void)
{
	fflush(stdout);
	pid_t p = fork();

	if (p)
		return p;
	end_with_parent();
	for (;;)
		pause();
}

/* The first line that tells of it. */
static bool told(const char *what, char *ret, size_t n)
{
	static char text[1 << 16];
	char wanted[40];

	read_file(history, text, sizeof text);
	snprintf(wanted, sizeof wanted, "\"what\":\"%s", what);
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strstr(line, wanted)) {
			snprintf(ret, n, "%s", line);
			return true;
		}
	return false;
}

static bool told_soon(const char *what, char *ret, size_t n)
{
	for (uint64_t until = now_ns() + PATIENCE_MS * MS; now_ns() < until; nap_ns(10 * MS))
		if (told(what, ret, n))
			return true;
	return false;
}

/* It is about a span of this test, and one that is long enough. */
static bool span_good(const char *line, uint64_t since)
{
	uint64_t end = 0, begin = 0;
	const char *at = strstr(line, "\"begin\":");

	return sscanf(line, "{\"t\":%" SCNu64, &end) == 1 && at && sscanf(at, "\"begin\":%" SCNu64, &begin) == 1 &&
	       begin >= since && end <= now_ns() && end - begin >= STILL_MS * MS;
}

/* Kernels can be built without. */
static bool kernel_counts(void)
{
	char text[96];
	unsigned long long ran = 0;

	read_file("/proc/self/schedstat", text, sizeof text);
	return sscanf(text, "%llu", &ran) == 1 && ran;
}

static void test_starved(uint64_t begun)
{
	char line[400] = "";

	if (!kernel_counts()) {
		skip("who waits for a processor is told of", "this kernel does not count how long that is");
		return;
	}
	for (unsigned i = 0; i < BURNERS; i++)
		burn(false);
	pid[0] = burn(true);
	ok(told_soon("daemon 1", line, sizeof line), "who waits for a processor is told of");
	note("%s", line);
	ok(span_good(line, begun) && strstr(line, "\"hosts\":[1]"), "from when until when, and what it may cost");
}

int main(void)
{
	static struct canary_watched v[] = { { "daemon 1", "1", NULL }, { "daemon 2", "2", NULL }, { "daemon 3", "3", NULL } };
	char line[400] = "";

	harness_begin(60);
	snprintf(history, sizeof history, "%s/history", harness.dir);
	pid = shared_memory(3 * sizeof *pid);
	for (unsigned i = 0; i < 3; i++)
		v[i].pid = &pid[i];
	pid[1] = sleeper();
	pid[2] = burn(false);
	kill(pid[2], SIGSTOP);
	waitpid(pid[2], NULL, WUNTRACED);
	uint64_t begun = now_ns();
	pid_t canary = canary_begin(history, STILL_MS * MS, "1,2,3", v, 3);
	test_starved(begun);

	kill(canary, SIGSTOP);
	nap_ns(3 * STILL_MS * MS);
	kill(canary, SIGCONT);
	ok(told_soon("processor ", line, sizeof line), "a processor on which nobody is woken in time is told of");
	note("%s", line);
	ok(span_good(line, begun) && strstr(line, "\"hosts\":[1,2,3]"), "likewise, and it may cost all of them");
	canary_end();
	ok(!told("daemon 2", line, sizeof line), "who sleeps does not wait for a processor");
	ok(!told("daemon 3", line, sizeof line), "neither does who was stopped");
	return harness_end();
}
