/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "crowd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../e2e/harness.h"
#include "history.h"
#include "town.h"

#define NAMES "3"

static pid_t crowd[TOWN_HOSTS_MAX + 1][CROWD_EACH];
static char names[TOWN_HOSTS_MAX + 1][CROWD_EACH][32];

/* history: the file's name in harness.dir. */
static pid_t spawn(unsigned host, char *who, const char *history_name, char *more)
{
	char at[8], history[120], resource[80], run[80], seed[16];

	snprintf(at, sizeof at, "%u", host);
	snprintf(history, sizeof history, "%s/%s", harness.dir, history_name);
	snprintf(resource, sizeof resource, "%s/resource", harness.dir);
	snprintf(run, sizeof run, "DLOCK_RUN_DIR=%s", town_run_dir(host));
	snprintf(seed, sizeof seed, "%u", random_below(1u << 30));
	char *argv[] = { (char *)built("tests/cluster/worker"), who, at, history, resource, NAMES, seed, more, NULL };
	char *environment[] = { run, NULL };
	return lab_spawn(host, town_log("worker", host), argv, environment);
}

void crowd_begin(unsigned host, unsigned i)
{
	static unsigned lives;
	char history[40];

	if (crowd[host][i])
		return;
	snprintf(names[host][i], sizeof names[0][0], "h%u.%u.%u", host, i, ++lives);
	snprintf(history, sizeof history, "history.h%u.%u", host, i);
	crowd[host][i] = spawn(host, names[host][i], history, NULL);
}

void crowd_begin_all(void)
{
	for (unsigned host = 1; host <= town.hosts; host++)
		for (unsigned i = 0; i < CROWD_EACH; i++)
			crowd_begin(host, i);
}

static void end_at_once(unsigned host, unsigned i)
{
	kill(crowd[host][i], SIGKILL);
	while (waitpid(crowd[host][i], NULL, 0) < 0 && errno == EINTR)
		;
	crowd[host][i] = 0;
}

void crowd_kill(unsigned host, unsigned i)
{
	if (!crowd[host][i])
		return;
	end_at_once(host, i);
	history_say("\"ev\":\"killed\",\"client\":\"%s\"", names[host][i]);
}

void crowd_freeze(unsigned host, unsigned i, bool freeze)
{
	if (crowd[host][i])
		kill(crowd[host][i], freeze ? SIGSTOP : SIGCONT);
}

bool crowd_end(unsigned ms)
{
	uint64_t until = now_ns() + ms * MS;
	bool all = true;

	for (unsigned host = 1; host <= town.hosts; host++)
		for (unsigned i = 0; i < CROWD_EACH; i++)
			if (crowd[host][i])
				kill(crowd[host][i], SIGTERM);
	for (unsigned host = 1; host <= town.hosts; host++)
		for (unsigned i = 0; i < CROWD_EACH; i++) {
			while (crowd[host][i] && waitpid(crowd[host][i], NULL, WNOHANG) == 0 && now_ns() < until)
				nap_ns(10 * MS);
			if (crowd[host][i] && now_ns() >= until) {
				note("worker %u of host %u does not end", i, host);
				all = false;
				continue;
			}
			crowd[host][i] = 0;
		}
	return all;
}

bool crowd_finds_all(void)
{
	int status;
	pid_t pid = spawn(1, "whole", "history.whole", "whole");

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status)
		note_file(town_log("worker", 1));
	return status == 0;
}
