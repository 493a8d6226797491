/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock's cluster against other lock services, in one lab and one run (rival.h says how each is used).
 *
 *   pairs      takes and gives back, on names that nobody else wants: one client, 16, 64. "Cached": one name again and
 *              again, which dlock's node keeps; "fresh": each name once, so that every pair costs dlock what it costs the
 *              others, a conversation with a server. Fresh dlock opens and closes each name as well. One client: once with
 *              shards spread over the nodes (`spread`: Placement=no, or the first seconds of any cluster), once when they
 *              have gone to the client's node, and with the packets that the nodes send meanwhile.
 *   contended  one name, clients on all hosts: how often a second another client has it than before, and how long they
 *              waited. Each hold is a moment: take, note, give. `strict`: dlock hands over to another node at
 *              once; `bursts`: as it is configured by default, after a bounded number of hand-overs within the node.
 *
 * Each round runs dlock and then the rival for a second; a row is the median of the rounds' ratios.
 */
#include <err.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../cluster/town.h"
#include "../../e2e/harness.h"
#include "../bench.h"
#include "rival.h"

#define CLIENTS_MAX 64
#define RUN_NS (1000 * MS)
#define WAITS_MAX 200000         /* noted by one client in a run */
#define SERVICE_ROUNDS 5
#define TTL_MS 5000
#define SETTLE_RUNS 20

enum work { CACHED, FRESH, CONTENDED };

static struct shared {
	uint32_t ready, go, stop;
	uint32_t holder, inside, overlaps;
	uint64_t changes;
	struct {
		uint64_t pairs;
		uint32_t waits;
		uint32_t us[WAITS_MAX];
	} client[CLIENTS_MAX];
} *shared;

static struct {
	const struct rival *rival;
	enum work work;
	unsigned clients, run;
} now;

static const struct rival *const rivals[] = { &rival_redis, &rival_postgresql, &rival_etcd, &rival_zookeeper };

/* --- A client --- */

static void note_hold(unsigned i, uint64_t waited)
{
	if (__atomic_exchange_n(&shared->inside, 1, __ATOMIC_ACQ_REL))
		__atomic_store_n(&shared->overlaps, 1, __ATOMIC_RELAXED);
	if (__atomic_exchange_n(&shared->holder, i + 1, __ATOMIC_RELAXED) != i + 1)
		__atomic_fetch_add(&shared->changes, 1, __ATOMIC_RELAXED);
	if (shared->client[i].waits < WAITS_MAX)
		shared->client[i].us[shared->client[i].waits++] = (uint32_t)(waited / 1000);
	__atomic_store_n(&shared->inside, 0, __ATOMIC_RELEASE);
}

static uint64_t loop(void *c, unsigned i)
{
	const struct rival *r = now.rival;
	bool bare = now.work != CONTENDED && r->take_bare;
	void (*take)(void *, const char *) = bare ? r->take_bare : r->take;
	void (*give)(void *, const char *) = bare ? r->give_bare : r->give;
	char name[64];
	uint64_t n = 0;

	snprintf(name, sizeof name, now.work == CONTENDED ? "one" : "c%u", i);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		if (now.work == FRESH)
			snprintf(name, sizeof name, "f%u-%u-%llu", now.run, i, (unsigned long long)n);
		uint64_t begin = now.work == CONTENDED ? now_ns() : 0;
		take(c, name);
		if (now.work == CONTENDED)
			note_hold(i, now_ns() - begin);
		give(c, name);
		n++;
	}
	return n;
}

static void client(unsigned i)
{
	unsigned host = 1 + i % RIVAL_HOSTS;

	end_with_parent();
	bench_pin(i);
	lab_enter(host);
	void *c = now.rival->connect(host);
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_ACQ_REL);
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		usleep(200);
	shared->client[i].pairs = loop(c, i);
	exit(0);
}

/* --- A run --- */

/* All clients work for RUN_NS; returns its length. */
static double run(void)
{
	pid_t pid[CLIENTS_MAX];
	int status;

	memset(shared, 0, sizeof *shared);
	now.run++;
	fflush(stdout);
	for (unsigned i = 0; i < now.clients; i++)
		if (!(pid[i] = fork()))
			client(i);
	while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < now.clients) {
		if (waitpid(-1, &status, WNOHANG) > 0 && status)
			errx(2, "%s: a client or server has failed; logs are in %s", now.rival->name, harness.dir);
		usleep(1000);
	}
	uint64_t begin = now_ns();
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	nap_ns(RUN_NS);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	uint64_t span = now_ns() - begin;
	for (unsigned i = 0; i < now.clients; i++)
		if (waitpid(pid[i], &status, 0) < 0 || status)
			errx(2, "%s: a client has failed", now.rival->name);
	if (shared->overlaps)
		errx(2, "%s: two held it at once", now.rival->name);
	return (double)span / 1e9;
}

static double pairs(void *arg)
{
	double seconds, n = 0;

	now.rival = arg;
	seconds = run();
	for (unsigned i = 0; i < now.clients; i++)
		n += (double)shared->client[i].pairs;
	return n / seconds;
}

static double pairs_dlock(void *arg)
{
	(void)arg;
	return pairs((void *)&rival_dlock);
}

static void measure_pairs(const char *how, enum work work, unsigned clients, const struct rival *r, double goal)
{
	char key[64], what[100];
	struct row row = { .key = key, .what = what, .rival = r->name, .unit = "pairs/s", .better = MORE_IS_BETTER, .goal = goal };

	snprintf(key, sizeof key, "%s-%u-%s", how, clients, r->name);
	snprintf(what, sizeof what, "take and give back, %s, %u client%s%s", work == CACHED ? "lease cached" : "each name once", clients,
		 clients > 1 ? "s" : "", strcmp(how, "spread") ? "" : ", shards spread evenly");
	if (!bench_wanted(key) || r->missing())
		return;
	now.work = work;
	now.clients = clients;
	bench_rounds(&row, SERVICE_ROUNDS, pairs_dlock, pairs, (void *)r);
}

/* --- One client, and where shards are --- */

static bool wanted_with(const char *how, const char *what)
{
	char key[64];

	snprintf(key, sizeof key, "%s-1-%s", how, what);
	return bench_wanted(key);
}

static unsigned shards_of_client(void)
{
	static char text[20000];
	struct json_object *o, *all, *v;
	unsigned n = 0;

	if (town_command(1, text, sizeof text, "members --json") || !(o = json_tokener_parse(text)))
		errx(2, "dlock members: %s", text);
	for (size_t i = 0; json_object_object_get_ex(o, "members", &all) && i < json_object_array_length(all); i++) {
		struct json_object *m = json_object_array_get_idx(all, i);

		if (json_object_object_get_ex(m, "self", &v) && json_object_get_boolean(v) && json_object_object_get_ex(m, "shards", &v))
			n = (unsigned)json_object_get_int(v);
	}
	json_object_put(o);
	return n;
}

static void settle(void)
{
	unsigned seconds = 0;

	now.work = FRESH;
	now.clients = 1;
	for (; shards_of_client() < 64 && seconds < SETTLE_RUNS; seconds++)
		pairs_dlock(NULL);
	note("after %u runs of a second host 1, where the client is, masters %u of 64 shards", seconds, shards_of_client());
}

/* What leaves that host. */
static double packets_of(unsigned host)
{
	char path[64], line[400];
	unsigned long long v[10] = { 0 };

	snprintf(path, sizeof path, "/proc/%d/net/dev", (int)town.daemon[host]);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, " eth0: %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6,
			   v + 7, v + 8, v + 9) == 10)
			break;
	if (!f)
		err(2, "%s", path);
	fclose(f);
	return (double)v[9];
}

static double packets_per_pair(void)
{
	double before = 0, after = 0;

	for (unsigned i = 1; i <= RIVAL_HOSTS; i++)
		before += packets_of(i);
	now.work = FRESH;
	now.clients = 1;
	pairs_dlock(NULL);
	for (unsigned i = 1; i <= RIVAL_HOSTS; i++)
		after += packets_of(i);
	return (after - before) / (double)shared->client[0].pairs;
}

/* Both ways; the daemons are as they are by default afterwards. */
static void measure_placed(void)
{
	struct row row = { .key = "fresh-1-packets", .what = "the same, 1 client: packets that all nodes send, a pair", .rival = "spread",
			   .unit = "packets", .better = LESS_IS_BETTER, .goal = 0.05, .unpaired = true };
	double spread[SERVICE_ROUNDS], placed[SERVICE_ROUNDS];
	bool packets = bench_wanted(row.key), any = packets || wanted_with("fresh", "redis") || wanted_with("fresh", "etcd");

	measure_pairs("spread", FRESH, 1, &rival_redis, 0);
	measure_pairs("spread", FRESH, 1, &rival_etcd, 0);
	for (unsigned i = 0; packets && i < SERVICE_ROUNDS; i++)
		spread[i] = packets_per_pair();
	town_roll("");
	if (!any)
		return;
	settle();
	measure_pairs("fresh", FRESH, 1, &rival_redis, 1);
	measure_pairs("fresh", FRESH, 1, &rival_etcd, 10);
	for (unsigned i = 0; packets && i < SERVICE_ROUNDS; i++)
		placed[i] = packets_per_pair();
	if (packets)
		bench_row(&row, placed, spread, SERVICE_ROUNDS);
}

/* --- One name --- */

struct contention {
	double changes, p50, p99, longest;       /* a second; ms */
};

static struct contention contend(const struct rival *r)
{
	static double ms[CLIENTS_MAX * WAITS_MAX / 8];
	size_t n = 0;

	now.rival = r;
	double seconds = run();
	for (unsigned i = 0; i < now.clients; i++)
		for (uint32_t k = 0; k < shared->client[i].waits && n < sizeof ms / sizeof *ms; k++)
			ms[n++] = shared->client[i].us[k] / 1e3;
	return (struct contention){ (double)shared->changes / seconds, bench_percentile(ms, n, 0.5), bench_percentile(ms, n, 0.99),
				    n ? ms[n - 1] : 0 };
}

static void row_of(const char *how, const char *what, const char *unit, enum better better, double goal, const struct rival *r,
		   const double *a, const double *b, const char *note)
{
	char key[64], text[100];
	struct row row = { .key = key, .what = text, .rival = r->name, .unit = unit, .better = better, .goal = goal, .unpaired = true };

	snprintf(key, sizeof key, "%s-%s-%u-%s", how, what, now.clients, r->name);
	snprintf(text, sizeof text, "one name, %s, %u clients: %s", how, now.clients, what);
	snprintf(row.note, sizeof row.note, "%s", note);
	bench_row(&row, a, b, SERVICE_ROUNDS);
}

static void measure_contended(const char *how, unsigned clients, const struct rival *r, double goal)
{
	double v[2][4][SERVICE_ROUNDS];
	char key[64];

	snprintf(key, sizeof key, "%s-changes-%u-%s", how, clients, r->name);
	if (!bench_wanted(key) || r->missing())
		return;
	now.work = CONTENDED;
	now.clients = clients;
	for (unsigned i = 0; i < SERVICE_ROUNDS; i++)
		for (unsigned k = 0; k < 2; k++) {
			struct contention c = contend(k ? r : &rival_dlock);

			v[k][0][i] = c.changes;
			v[k][1][i] = c.p50;
			v[k][2][i] = c.p99;
			v[k][3][i] = c.longest;
		}
	row_of(how, "changes", "owner changes/s", MORE_IS_BETTER, goal, r, v[0][0], v[1][0], "");
	row_of(how, "p50", "ms", LESS_IS_BETTER, 0, r, v[0][1], v[1][1], "wait, median");
	row_of(how, "p99", "ms", LESS_IS_BETTER, 0, r, v[0][2], v[1][2], "wait, p99");
	row_of(how, "longest", "ms", LESS_IS_BETTER, 0, r, v[0][3], v[1][3], "longest wait");
}

static void measure_all_contended(const char *how, double goal)
{
	static const unsigned sizes[] = { 2, 8, 32 };

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned k = 0; k < sizeof rivals / sizeof *rivals; k++)
			measure_contended(how, sizes[i], rivals[k], goal);
}

int main(void)
{
	harness_begin(3600);
	town_configure("[Cluster]\nPlacement=no\n");
	town.more = LAB_HOSTS - RIVAL_HOSTS - TOWN_STORES;
	town_begin(RIVAL_HOSTS, TTL_MS);
	bench_begin("services");
	shared = bench_shared(sizeof *shared);
	for (unsigned k = 0; k < sizeof rivals / sizeof *rivals; k++)
		if (rivals[k]->missing())
			note("not measured: %s", rivals[k]->missing());
		else
			rivals[k]->serve();
	measure_pairs("cached", CACHED, 1, &rival_redis, 10000);
	measure_placed();
	for (unsigned n = 16; n <= 64; n *= 4) {
		measure_pairs("fresh", FRESH, n, &rival_redis, 2);
		measure_pairs("fresh", FRESH, n, &rival_etcd, 50);
	}
	measure_all_contended("bursts", 20);
	town_anew(TTL_MS, "[Node]\nBurst=0\n");
	measure_all_contended("strict", 1.5);
	bench_end();
	return 0;
}
