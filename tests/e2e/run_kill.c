/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock run, and those that look after it killed at random moments.
 *
 * Each round starts two runs of run_family under one lock. The first is killed, or its guard, or both,
 * or its process group; the second has to get the lock. The judge reads what all descendants have
 * written: no line of an older token comes behind one of a newer token.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "harness.h"

#define LIMIT_MS   500                   /* from the last sign of the one to the first of the next: the pace */
#define RESTART_MS 1500                  /* the same, where a daemon has to start in between */
#define STUCK_MS   PATIENCE_MS
#define SCRATCH    (4u << 20)

enum victim { FRONT = 1, GUARD = 2, BOTH = 3, GROUP = 4, COMMAND = 8 };

struct way {
	const char *title;
	enum victim victim;
	bool restart;                    /* the daemon dies too, and comes back before the next */
	bool late;                       /* the guard is late to leave the front's process group */
	bool closes;                     /* the daemonised descendant has no descriptors */
	unsigned life_ms;                /* of descendants: longer than the test takes where they should be killed */
	unsigned rounds;
};

static struct daemon node;
static char path[80], errors[80];
static char text[SCRATCH];

/* --- Processes --- */

static pid_t start(const char *life, bool closes, bool late)
{
	const char *dlock = built("libclient/cmd/dlock"), *family = built("tests/e2e/run_family");
	pid_t pid = fork();
	int log;

	setpgid(pid, 0);                 /* whichever of the two is first: the group can be killed from here on */
	if (pid != 0)
		return pid;
	signal(SIGPIPE, SIG_DFL);
	if (late)
		setenv("LD_PRELOAD", built("tests/e2e/late_guard.so"), 1);
	log = open(errors, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	dup2(log, STDERR_FILENO);
	execl(dlock, dlock, "run", "kill", family, path, life, closes ? "closes" : NULL, NULL);
	_exit(127);
}

static pid_t first_child(pid_t pid)
{
	char children[64], list[256];

	snprintf(children, sizeof children, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	read_file(children, list, sizeof list);
	return (pid_t)strtol(list, NULL, 10);
}

/* Whether all of them were there. */
static bool kill_some(pid_t front, enum victim victim)
{
	pid_t guard = first_child(front), command = guard ? first_child(guard) : 0;
	bool all = (guard || !(victim & GUARD)) && (command || !(victim & COMMAND));

	if (victim & GROUP)
		kill(-front, SIGKILL);
	if (!guard && victim & (GUARD | COMMAND))
		victim = FRONT;          /* it is not there yet */
	/* In whatever order: at the same moment means one behind the other. */
	if (victim == BOTH && guard && random_below(2)) {
		kill(guard, SIGKILL);
		kill(front, SIGKILL);
		return all;
	}
	if (victim & COMMAND && command)
		kill(command, SIGKILL);
	if (victim & FRONT)
		kill(front, SIGKILL);
	if (victim & GUARD && guard)
		kill(guard, SIGKILL);
	return all;
}

/* -1: it did not end in time. */
static int end_status(pid_t pid)
{
	uint64_t until = now_ns() + STUCK_MS * MS;
	int status;

	while (now_ns() < until) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		nap_ns(MS);
	}
	kill(pid, SIGKILL);
	return -1;
}

/* --- The judge --- */

struct verdict {
	unsigned tokens;
	bool rising;                     /* no older token behind a newer one */
	uint64_t gap_ns;                 /* from the last line of a token to the first of the next, the longest */
};

static struct verdict judge(void)
{
	unsigned long long token, at, last_token = 0, last_ns = 0;
	struct verdict v = { 0, true, 0 };
	char *line, *save;

	read_file(path, text, sizeof text);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%llu %llu", &token, &at) != 2 || token < last_token) {
			note("out of order: %s, after token %llu", line, last_token);
			v.rising = false;
			continue;
		}
		v.tokens += token != last_token;
		if (last_token && token != last_token && at > last_ns && at - last_ns > v.gap_ns)
			v.gap_ns = at - last_ns;
		last_token = token;
		last_ns = at;
	}
	return v;
}

/* --- A round --- */

static void note_errors(void)
{
	char said[2000], *save;

	read_file(errors, said, sizeof said);
	for (char *line = strtok_r(said, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		note("  %s", line);
}

struct outcome {
	unsigned bad, unserved;
	unsigned hits;                   /* rounds in which whoever was to be killed was there */
	struct pace gaps;
};

static void round_run(const struct way *w, struct outcome *o)
{
	char life[16];
	struct verdict v;
	int status, first_status;
	bool bad, unserved;
	pid_t first, second;
	uint64_t killed_ns;

	unlink(path);
	unlink(errors);
	snprintf(life, sizeof life, "%u", w->life_ms);
	killed_ns = now_ns();
	first = start(life, w->closes, w->late);
	nap_ns(random_below(4000) * UINT64_C(1000));
	second = start("20", false, false);
	nap_ns(random_below(w->late ? 150000 : 40000) * UINT64_C(1000));
	if (w->restart)
		daemon_end(&node, SIGKILL);
	o->hits += kill_some(first, w->victim);
	killed_ns = now_ns() - killed_ns;
	if (w->restart) {
		nap_ns(random_below(20000) * UINT64_C(1000));
		daemon_started(&node);
	}
	status = end_status(second);
	if (w->restart && status > 0 && WEXITSTATUS(status) == EX_UNAVAILABLE)
		status = end_status(start("20", false, false));         /* it came while there was no daemon */
	first_status = end_status(first);
	nap_ns(5 * MS);                  /* whoever is left would write now */
	v = judge();
	bad = !v.rising || v.tokens < 1;
	unserved = status != 0 || first_status < 0;
	if (bad || unserved)
		note("killed after %.1f ms: the first ended with status 0x%x, the second with 0x%x; %u tokens, longest gap %.1f ms",
		     (double)killed_ns / 1e6, first_status, status, v.tokens, (double)v.gap_ns / 1e6);
	if (bad || unserved)
		note_errors();
	o->bad += bad;
	o->unserved += unserved;
	if (v.tokens > 1)
		pace_took(&o->gaps, v.gap_ns, w->restart ? RESTART_MS : LIMIT_MS);
}

static void way_run(const struct way *w)
{
	struct outcome o = { 0 };
	unsigned rounds = w->rounds * (harness.full ? 10 : 1);

	/* Few of them may tell how soon the next comes, and those may have been late: then there are more. */
	for (unsigned i = 0; i < rounds || ((!o.hits || (o.gaps.times && !pace_is_quick(&o.gaps))) && i < 6 * rounds); i++)
		round_run(w, &o);
	note("from the last sign of one to the first of the next: %u of %u times in time, longest %.1f ms", o.gaps.quick, o.gaps.times,
	     (double)o.gaps.worst_ns / 1e6);
	ok(!o.bad && o.hits, "%s (in %u rounds): the descendants of one and of the next were never there at once (%u rounds bad)", w->title,
	   o.hits, o.bad);
	ok(!o.unserved && (!o.gaps.times || pace_is_quick(&o.gaps)), "%s: the next always got the lock (%u not), soon after the last descendant's end", w->title,
	   o.unserved);
}

int main(void)
{
	static const struct way ways[] = {
		{ "the front killed", FRONT, false, false, true, 300000, 15 },
		{ "the guard killed", GUARD, false, false, true, 300000, 15 },
		{ "both killed", BOTH, false, false, false, 60, 15 },
		{ "the process group killed", GROUP, false, false, true, 300000, 10 },
		{ "the process group killed early", GROUP, false, true, true, 300000, 8 },
		{ "the command killed", COMMAND, false, false, true, 60, 10 },
		{ "the front and dlockd killed", FRONT, true, false, true, 300000, 6 },
		{ "the guard and dlockd killed", GUARD, true, false, true, 300000, 6 },
		{ "both and dlockd killed", BOTH, true, false, false, 60, 6 },
	};

	harness_begin(150);
	snprintf(path, sizeof path, "%s/signs", harness.dir);
	snprintf(errors, sizeof errors, "%s/errors", harness.dir);
	daemon_started(&node);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		way_run(&ways[i]);
	daemon_end(&node, SIGTERM);
	return harness_end();
}
