/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "nemesis.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../e2e/harness.h"
#include "crowd.h"
#include "history.h"
#include "lab.h"
#include "town.h"

/* The fault under way: its name, and the hosts whose leases it may cost, as a list of numbers. */
static struct {
	const char *op;
	unsigned count;
	char hosts[80];
} fault;

const char *nemesis_name(enum nemesis n)
{
	static const char *const names[] = {
#define X(name) #name,
		NEMESES(X)
#undef X
	};
	return names[n];
}

static void hosts_none(void)
{
	fault.hosts[0] = 0;
}

static void hosts_add(unsigned host)
{
	size_t n = strlen(fault.hosts);

	snprintf(fault.hosts + n, sizeof fault.hosts - n, "%s%u", n ? "," : "", host);
}

static void hosts_all(void)
{
	hosts_none();
	for (unsigned i = 1; i <= town.hosts; i++)
		hosts_add(i);
}

static void say(const char *op, const char *ev)
{
	history_say("\"ev\":\"%s\",\"op\":\"%s\",\"what\":\"%s %u\",\"hosts\":[%s]", ev, op, fault.op, fault.count, fault.hosts);
}

static void breaks(void)
{
	fault.count++;
	note("%s, hosts %s", fault.op, fault.hosts);
	say(fault.op, "call");
}

static void mended(void)
{
	say("mend", "return");
}

static unsigned any_host(void)
{
	return 1 + random_below(town.hosts);
}

static unsigned other_host(unsigned than)
{
	return 1 + (than - 1 + 1 + random_below(town.hosts - 1)) % town.hosts;
}

/* From a tenth of a TTL to two of them. */
static void while_broken(void)
{
	nap_ns((town.ttl_ms / 10 + random_below(2 * town.ttl_ms)) * MS);
}

static void longer_than_ttl(void)
{
	nap_ns((town.ttl_ms * 3 / 2 + random_below(town.ttl_ms / 2)) * MS);
}

static void both_ways(unsigned a, unsigned b, void (*how)(unsigned, unsigned))
{
	how(a, b);
	how(b, a);
}

/* --- The network --- */

static void between_halves(unsigned border, void (*how)(unsigned, unsigned))
{
	for (unsigned a = 1; a <= border; a++)
		for (unsigned b = border + 1; b <= town.hosts; b++)
			both_ways(a, b, how);
}

static void run_split(void)
{
	unsigned border = 1 + random_below(town.hosts - 1);

	hosts_all();
	breaks();
	between_halves(border, lab_block);
	while_broken();
	between_halves(border, lab_unblock);
	mended();
}

static void run_pair(void)
{
	unsigned a = any_host(), b = other_host(a);

	hosts_none();
	hosts_add(a);
	hosts_add(b);
	breaks();
	both_ways(a, b, lab_block);
	while_broken();
	both_ways(a, b, lab_unblock);
	mended();
}

static void run_one_way(void)
{
	unsigned a = any_host(), b = other_host(a);

	hosts_none();
	hosts_add(a);
	hosts_add(b);
	breaks();
	lab_block(a, b);
	while_broken();
	lab_unblock(a, b);
	mended();
}

static void run_cable(void)
{
	unsigned a = any_host();

	hosts_none();
	hosts_add(a);
	breaks();
	lab_cable(a, false);
	while_broken();
	lab_cable(a, true);
	mended();
}

/* Slow is not broken: no lease may be lost. */
static void run_slow(void)
{
	unsigned a = any_host(), ms = 5 + random_below(town.ttl_ms / 40);

	hosts_none();
	breaks();
	lab_slow(a, ms, ms / 2);
	longer_than_ttl();
	lab_slow(a, 0, 0);
	mended();
}

static void run_storeless(void)
{
	unsigned a = any_host();

	hosts_none();
	hosts_add(a);
	breaks();
	for (unsigned i = 1; i <= TOWN_STORES; i++)
		both_ways(a, town.hosts + i, lab_block);
	while_broken();
	for (unsigned i = 1; i <= TOWN_STORES; i++)
		both_ways(a, town.hosts + i, lab_unblock);
	mended();
}

/* --- Daemons and clients --- */

static void run_kill(void)
{
	unsigned a = any_host();

	hosts_none();
	hosts_add(a);
	breaks();
	daemon_kill(a, SIGKILL);
	if (random_below(3))
		nap_ns(random_below(town.ttl_ms / 4) * MS);
	else
		longer_than_ttl();
	daemon_begin(a);
	mended();
}

/* No hosts: a daemon that stops orderly and comes back at once loses nothing. */
static void run_restart(void)
{
	unsigned a = any_host();

	hosts_none();
	breaks();
	daemon_kill(a, SIGTERM);
	daemon_begin(a);
	daemon_ready(a, 10000);
	mended();
}

static void run_freeze(void)
{
	unsigned a = any_host();

	hosts_none();
	hosts_add(a);
	breaks();
	daemon_kill(a, SIGSTOP);
	longer_than_ttl();
	daemon_thaw(a);
	mended();
}

static void run_freeze_client(void)
{
	unsigned a = any_host(), i = random_below(CROWD_EACH);

	hosts_none();
	breaks();
	crowd_freeze(a, i, true);
	longer_than_ttl();
	crowd_freeze(a, i, false);
	mended();
}

static void run_kill_client(void)
{
	unsigned a = any_host(), i = random_below(CROWD_EACH);

	hosts_none();
	breaks();
	crowd_kill(a, i);
	nap_ns(random_below(500) * MS);
	crowd_begin(a, i);
	mended();
}

static void run_host(void)
{
	unsigned a = any_host();

	hosts_none();
	hosts_add(a);
	breaks();
	daemon_kill(a, SIGKILL);
	for (unsigned i = 0; i < CROWD_EACH; i++)
		crowd_kill(a, i);
	longer_than_ttl();
	daemon_begin(a);
	for (unsigned i = 0; i < CROWD_EACH; i++)
		crowd_begin(a, i);
	mended();
}

static void run_disk(void)
{
	unsigned a = any_host();

	hosts_none();
	breaks();
	town_disk(a, true);
	longer_than_ttl();
	town_disk(a, false);
	mended();
}

static void run_clock(void)
{
	static const int64_t hour = INT64_C(3600000000000);
	unsigned a = any_host();

	hosts_none();
	breaks();
	town_clock(a, hour);
	while_broken();
	town_clock(a, -24 * hour);
	while_broken();
	town_clock(a, 0);
	mended();
}

/* One after the other, each ready before the next: no lease may be lost. */
static void run_roll(void)
{
	hosts_none();
	breaks();
	for (unsigned a = 1; a <= town.hosts; a++) {
		daemon_kill(a, SIGTERM);
		daemon_begin(a);
		daemon_ready(a, 10000);
	}
	mended();
}

static void run_drain(void)
{
	unsigned a = any_host();
	char said[400];

	hosts_none();
	breaks();
	if (town_command(a, said, sizeof said, "node drain"))
		note("drain: %s", said);
	while_broken();
	if (town_command(a, said, sizeof said, "node undrain"))
		note("undrain: %s", said);
	mended();
}

/* --- The store --- */

static void run_member(void)
{
	unsigned i = random_below(TOWN_STORES);

	hosts_none();
	breaks();
	store_kill(i);
	while_broken();
	store_begin(i);
	mended();
}

static void run_majority(void)
{
	unsigned i = random_below(TOWN_STORES);

	hosts_all();
	breaks();
	store_kill(i);
	store_kill((i + 1) % TOWN_STORES);
	while_broken();
	store_begin(i);
	store_begin((i + 1) % TOWN_STORES);
	mended();
}

void nemesis_run(enum nemesis n)
{
	static void (*const run[])(void) = {
#define X(name) run_##name,
		NEMESES(X)
#undef X
	};

	fault.op = nemesis_name(n);
	run[n]();
}
