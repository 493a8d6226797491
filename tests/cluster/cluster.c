/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A cluster under faults: hosts, a store of three, clients on each host that write down what they were told, one nemesis
 * after the other; then all is mended, and the judge reads the history (docs/HISTORY.md).
 *
 *     cluster [HOSTS [SECONDS [NEMESIS…]]]
 *
 * In a short run each kind of fault comes once, in an order of the seed; then as many more as there is time for. With
 * $KEEP the directory is copied there before it goes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../e2e/harness.h"
#include "canary.h"
#include "crowd.h"
#include "history.h"
#include "nemesis.h"
#include "town.h"

#define TTL_MS 6000                      /* what nobody breaks is not to be lost on a busy machine: it would be judged as lost for nothing */
#define BOUND_MS (4 * TTL_MS)
#define SETTLE_MS TTL_MS
#define STILL_MS (TTL_MS / 40)

static void shuffle(enum nemesis *v, unsigned n)
{
	for (unsigned i = n; i > 1; i--) {
		unsigned k = random_below(i);
		enum nemesis t = v[i - 1];

		v[i - 1] = v[k];
		v[k] = t;
	}
}

static unsigned chosen(int argc, char **argv, enum nemesis ret[NEMESIS_KINDS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < NEMESIS_KINDS; i++) {
		bool wanted = argc <= 3;

		for (int k = 3; k < argc; k++)
			wanted |= !strcmp(argv[k], nemesis_name(i));
		if (wanted)
			ret[n++] = i;
	}
	return n;
}

static unsigned break_things(const enum nemesis *kinds, unsigned n, unsigned seconds)
{
	uint64_t until = now_ns() + seconds * 1000 * MS;
	unsigned done = 0;

	for (; done < n || now_ns() < until; done++) {
		nemesis_run(kinds[done < n ? done : random_below(n)]);
		nap_ns((200 + random_below(TTL_MS / 2)) * MS);
	}
	return done;
}

static bool judge(const enum nemesis *kinds, unsigned n)
{
	static const char *const needed[] = {
		"wait ok", "trywait ok", "trywait EBUSY", "timedwait ok", "check ok", "post ok",
		"upgrade ok", "tryupgrade ok", "downgrade ok", "get ok", "set ok",
		"leader ok", "barrier ok", "barrier serial", "id ok", "worker ok",
		"pool_try ok", "pool_try EAGAIN", "pool_timed ok", "pool_timed ETIMEDOUT", "pool_post ok", "pool_dry ok",
		"latch_wait ok", "latch_wait ETIMEDOUT", "latch_down ok", "latch_value ok",
		"cond_wait ok", "cond_wait ETIMEDOUT", "cond_signal ok", "cond_broadcast ok",
		"write ok", "l held", "l shared held", "s held", "e held",
	};
	char command[4000];
	size_t at;

	at = (size_t)snprintf(command, sizeof command, "python3 -B %s/tests/cluster/check.py --resource %s/resource.log",
			      getenv("srctree") ? getenv("srctree") : ".", harness.dir);
	for (unsigned i = 0; i < n; i++)
		at += (size_t)snprintf(command + at, sizeof command - at, " --need 'nemesis %s'", nemesis_name(kinds[i]));
	for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++)
		at += (size_t)snprintf(command + at, sizeof command - at, " --need '%s'", needed[i]);
	snprintf(command + at, sizeof command - at, " %s/history.*", harness.dir);
	fflush(stdout);
	return system(command) == 0;
}

static void keep(void)
{
	char command[300];

	if (!getenv("KEEP"))
		return;
	snprintf(command, sizeof command, "mkdir -p '%s' && cp -r %s/history.* %s/log.* %s/resource.log '%s'", getenv("KEEP"), harness.dir,
		 harness.dir, harness.dir, getenv("KEEP"));
	if (system(command))
		note("could not keep it in %s", getenv("KEEP"));
}

/* What every daemon says of itself, for whoever has to find out. */
static void show(void)
{
	static const char *const questions[] = { "status", "members", "ls" };
	static char said[1 << 16];

	for (unsigned host = 1; host <= town.hosts; host++)
		for (unsigned i = 0; i < sizeof questions / sizeof *questions; i++) {
			town_command(host, said, sizeof said, questions[i]);
			for (char *save, *line = strtok_r(said, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
				note("h%u %s: %s", host, questions[i], line);
		}
}

/* Every daemon and its host, every store and all of them. */
static void canary_watch(void)
{
	static struct canary_watched v[TOWN_HOSTS_MAX + TOWN_STORES];
	static char all[80];
	char history[80];
	unsigned n = 0;

	for (unsigned i = 1, at = 0; i <= town.hosts; i++)
		at += (unsigned)snprintf(all + at, sizeof all - at, "%s%u", i > 1 ? "," : "", i);
	for (unsigned i = 1; i <= town.hosts; i++, n++) {
		snprintf(v[n].what, sizeof v[n].what, "daemon %u", i);
		snprintf(v[n].hosts, sizeof v[n].hosts, "%u", i);
		v[n].pid = &town.daemon[i];
	}
	for (unsigned i = 0; i < TOWN_STORES; i++, n++) {
		snprintf(v[n].what, sizeof v[n].what, "store %u", i);
		memcpy(v[n].hosts, all, sizeof all);
		v[n].pid = &town.store[i];
	}
	snprintf(history, sizeof history, "%s/history.canary", harness.dir);
	canary_begin(history, STILL_MS * MS, all, v, n);
}

int main(int argc, char **argv)
{
	unsigned hosts = argc > 1 ? (unsigned)atoi(argv[1]) : 3, seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	enum nemesis kinds[NEMESIS_KINDS];
	unsigned n = chosen(argc, argv, kinds);
	char history[80];

	if (hosts < 2 || hosts > TOWN_HOSTS_MAX || !n) {
		fprintf(stderr, "usage: cluster [HOSTS [SECONDS [NEMESIS…]]]\n");
		return 64;
	}
	harness_begin(300 + 2 * seconds);
	if (!town_possible())
		return harness_end();
	snprintf(history, sizeof history, "%s/history.run", harness.dir);
	town_begin(hosts, TTL_MS);
	ok(true, "%u daemons on hosts of their own are a cluster", hosts);
	history_open(history, "run");
	history_say("\"op\":\"begin\",\"ttl\":%llu,\"bound\":%llu", TTL_MS * MS + 0ull, BOUND_MS * MS + 0ull);
	canary_watch();
	crowd_begin_all();
	nap_ns(1000 * MS);
	snprintf(history, sizeof history, "%s/history.nemesis", harness.dir);
	history_open(history, "nemesis");
	shuffle(kinds, n);
	note("%u faults", break_things(kinds, n, seconds));

	town_mend();
	snprintf(history, sizeof history, "%s/history.run", harness.dir);
	history_open(history, "run");
	history_say("\"op\":\"healed\"");
	nap_ns((BOUND_MS + SETTLE_MS) * MS);
	bool ended = crowd_end(PATIENCE_MS);
	ok(ended, "once all is whole every client comes to its end");
	bool whole = ended && crowd_finds_all();
	ok(whole, "and all that can be held is there, as a whole");
	if (!whole)
		show();
	history_say("\"op\":\"end\"");
	canary_end();
	keep();
	ok(judge(kinds, n), "the judge of the history finds nothing");
	return harness_end();
}
