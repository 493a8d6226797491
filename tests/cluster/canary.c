/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "canary.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "history.h"

#define THREADS_MAX 128                  /* of one process; more are not looked at */

static pid_t canary;

static struct {
	uint64_t still_ns;
	const char *all_hosts;
	unsigned n;
	struct seen {
		struct canary_watched who;
		pid_t pid;
		struct { pid_t tid; uint64_t waited; } thread[THREADS_MAX];
		unsigned threads;
	} seen[CANARY_WATCHED_MAX];
} watch;

static void say(const char *what, const char *hosts, uint64_t begin, uint64_t end)
{
	history_say_at(end, "\"op\":\"starved\",\"what\":\"%s\",\"hosts\":[%s],\"begin\":%" PRIu64, what, hosts, begin);
}

/* --- What the kernel says of others --- */

/* How long it has waited for a processor in all its life. The kernel adds a wait when it is over. */
static bool waited(pid_t pid, pid_t tid, uint64_t *ret)
{
	char path[64], text[96];

	snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	read_file(path, text, sizeof text);
	return sscanf(text, "%*u %" SCNu64, ret) == 1;
}

/* What this thread had waited when it was last looked at; one that is new had not been there. */
static uint64_t *waited_before(struct seen *s, pid_t tid)
{
	for (unsigned i = 0; i < s->threads; i++)
		if (s->thread[i].tid == tid)
			return &s->thread[i].waited;
	if (s->threads == THREADS_MAX)
		return NULL;
	s->thread[s->threads].tid = tid;
	s->thread[s->threads].waited = 0;
	return &s->thread[s->threads++].waited;
}

/* The longest that one of its threads has waited since the last look. */
static uint64_t look(struct seen *s)
{
	uint64_t longest = 0, now, *before;
	pid_t pid = *s->who.pid;
	char path[32];

	if (pid != s->pid) {
		s->pid = pid;
		s->threads = 0;
	}
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *d = pid ? opendir(path) : NULL;
	for (struct dirent *e; d && (e = readdir(d)); ) {
		pid_t tid = atoi(e->d_name);

		if (!tid || !waited(pid, tid, &now) || !(before = waited_before(s, tid)))
			continue;
		if (now > *before && now - *before > longest)
			longest = now - *before;
		*before = now;
	}
	if (d)
		closedir(d);
	return longest;
}

__attribute__((noreturn)) static void others_watch(void)
{
	for (unsigned i = 0; i < watch.n; i++)
		look(&watch.seen[i]);            /* what they waited before is none of ours */
	for (;;) {
		nap_ns(watch.still_ns / 2);
		for (unsigned i = 0; i < watch.n; i++) {
			uint64_t longest = look(&watch.seen[i]), now = now_ns();

			if (longest >= watch.still_ns)
				say(watch.seen[i].who.what, watch.seen[i].who.hosts, now - longest, now);
		}
	}
}

/* --- What we see ourselves --- */

static void *processor_watch(void *arg)
{
	uint64_t nap = watch.still_ns / 8, last = now_ns();
	char what[24];

	snprintf(what, sizeof what, "processor %d", (int)(intptr_t)arg);
	for (;;) {
		nap_ns(nap);
		uint64_t now = now_ns();
		if (now - last >= nap + watch.still_ns)
			say(what, watch.all_hosts, last + nap, now);
		last = now;
	}
	return NULL;
}

static void processors_watch(void)
{
	cpu_set_t allowed, one;
	pthread_attr_t attr;
	pthread_t id;

	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		_exit(1);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &allowed))
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		pthread_attr_init(&attr);
		if (pthread_attr_setaffinity_np(&attr, sizeof one, &one) ||
		    pthread_create(&id, &attr, processor_watch, (void *)(intptr_t)i))
			_exit(1);
		pthread_attr_destroy(&attr);
	}
}

/* --- */

pid_t canary_begin(const char *history, uint64_t still_ns, const char *all_hosts, const struct canary_watched *v, unsigned n)
{
	watch.still_ns = still_ns;
	watch.all_hosts = all_hosts;
	watch.n = n < CANARY_WATCHED_MAX ? n : CANARY_WATCHED_MAX;
	for (unsigned i = 0; i < watch.n; i++)
		watch.seen[i].who = v[i];
	fflush(stdout);
	canary = fork();
	if (canary)
		return canary;
	end_with_parent();
	history_open(history, "canary");
	processors_watch();
	others_watch();
}

/* Lines go out whole, at the latest at the next look. */
void canary_end(void)
{
	nap_ns(watch.still_ns);
	kill(canary, SIGKILL);
	while (waitpid(canary, NULL, 0) < 0 && errno == EINTR)
		;
}
