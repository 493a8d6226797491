/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock's cluster by itself: three daemons, an etcd of three members.
 *
 *   handover   from just before one host's client gives a lock back until another host's, which sleeps, has it.
 *              Which node masters the name makes the difference: the holder's, the waiter's, or a third. Its rival is
 *              the least that any such hand-over is made of: a futex wake, 64 bytes by TCP between the same hosts, a futex
 *              wake, by processes pinned as client, daemon, daemon, client are. Everyone has slept for a
 *              millisecond, on both sides.
 *   keep       what the hosts send and the daemons compute in KEEP_NS, with KEEP_NAMES leases that one client has
 *              taken and given back, against the same without them.
 *   failover   a node is killed, daemon and client at once, until a client of another node has the lock.
 *              The bound is that of docs/LEASE.md.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <glob.h>
#include <json-c/json.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../cluster/town.h"
#include "../../e2e/harness.h"
#include "../bench.h"

#define HOSTS 3
#define TTL_MS 5000
#define PAUSE_NS MS
#define SAMPLES 200              /* of a round, each way */
#define HANDOVER_ROUNDS 7
#define KEEP_NAMES 100000
#define KEEP_NS (10000 * MS)
#define KEEP_ROUNDS 3
#define KEEP_PAUSE (4000 * MS)
#define FAILOVER_TTL_MS 2000
#define FAILOVERS 10
#define FAILOVERS_FULL 100
#define FAILOVER_GRACE_MS 300
#define PORT 7999
#define CANDIDATES 1000u
#define SETTLE_MS 20000

static struct shared {
	uint32_t ready, go, stop, granted, left;
	uint64_t at;                     /* when the lock was given back, or granted */
	uint32_t from;                   /* by whom */
	uint32_t word[2];                /* of the chain */
	uint64_t now;                    /* the chain's, when it began */
	unsigned n[2];                   /* samples, by which client was handed it */
	double us[2][SAMPLES];
	char name[32];
} *shared;

/* --- What dlock says --- */

static struct json_object *ask(unsigned host, const char *arguments)
{
	static char text[20000];
	struct json_object *o;

	if (town_command(host, text, sizeof text, arguments) || !(o = json_tokener_parse(text)))
		errx(2, "dlock %s, on host %u: %s", arguments, host, text);
	return o;
}

static unsigned host_of(struct json_object *o, const char *key)
{
	struct json_object *v;
	const char *name = json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : NULL;

	return name && name[0] == 'h' ? (unsigned)atoi(name + 1) : 0;
}

/* 0: it is not known yet. */
static unsigned coordinator(unsigned host)
{
	struct json_object *o = ask(host, "members --json"), *all = o, *v;
	unsigned found = 0;

	json_object_object_get_ex(o, "members", &all);
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		struct json_object *m = json_object_array_get_idx(all, i);

		if (json_object_object_get_ex(m, "coordinates", &v) && json_object_get_boolean(v))
			found = host_of(m, "name");
	}
	json_object_put(o);
	return found;
}

static unsigned shards(unsigned host)
{
	struct json_object *o = ask(host, "members --json"), *all = o, *v;
	unsigned n = 0;

	json_object_object_get_ex(o, "members", &all);
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		struct json_object *m = json_object_array_get_idx(all, i);

		if (host_of(m, "name") == host && json_object_object_get_ex(m, "shards", &v))
			n = (unsigned)json_object_get_int(v);
	}
	json_object_put(o);
	return n;
}

/* The name has to be open there. */
static unsigned master_of(unsigned host, const char *name)
{
	char arguments[80];

	snprintf(arguments, sizeof arguments, "show --json %s", name);
	struct json_object *o = ask(host, arguments);
	unsigned found = host_of(o, "master");

	json_object_put(o);
	return found;
}

/* --- Clients --- */

static void at_host(unsigned host)
{
	end_with_parent();
	setenv("DLOCK_RUN_DIR", town_run_dir(host), 1);
}

/*
 * Opens names until one has a master that suits; it is left open, and named in `shared`. A host that was killed masters
 * again only some time after it is back.
 */
static dlock_t *open_mastered(unsigned host, bool (*suits)(unsigned master, unsigned host), const char *prefix)
{
	uint64_t until = now_ns() + SETTLE_MS * MS;

	for (unsigned i = 0; i < CANDIDATES || now_ns() < until; i++) {
		snprintf(shared->name, sizeof shared->name, "%s-%u", prefix, i % CANDIDATES);
		dlock_t *l = bench_open(shared->name);

		if (suits(master_of(host, shared->name), host))
			return l;
		bench_ok(dlock_close(l), "dlock_close");
	}
	errx(2, "host %u: none of %u names has a master that suits", host, CANDIDATES);
}

static pid_t begin(void (*fn)(unsigned host), unsigned host)
{
	fflush(stdout);
	pid_t pid = fork();

	if (pid == 0) {
		fn(host);
		_exit(0);
	}
	return pid;
}

static void join(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) < 0 || status)
		errx(2, "a client has failed; logs are in %s", harness.dir);
}

/* --- Handing over --- */

static bool enough(void)
{
	return shared->n[0] >= SAMPLES && shared->n[1] >= SAMPLES;
}

static void note_sample(unsigned to, uint64_t ns)
{
	if (shared->n[to] < SAMPLES)
		shared->us[to][shared->n[to]++] = (double)ns / 1e3;
}

/* Clients of hosts 1 and 2, number 0 and 1. */
static void hands_over(unsigned host)
{
	unsigned who = host - 1;

	at_host(host);
	bench_pin(who);
	dlock_t *l = bench_open(shared->name);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		bench_ok(dlock_wait(l), "dlock_wait");
		uint64_t t = now_ns();

		if (shared->from == 2 - who)
			note_sample(who, t - shared->at);
		nap_ns(PAUSE_NS);
		if (enough())
			shared->stop = 1;
		shared->from = who + 1;
		shared->at = now_ns();
		bench_ok(dlock_post(l), "dlock_post");
	}
	bench_ok(dlock_close(l), "dlock_close");
}

static double mean_of_medians(unsigned which)
{
	double v = 0, n = 0;

	for (unsigned to = 0; to < 2; to++)
		if (which & 1u << to) {
			v += bench_median(shared->us[to], SAMPLES);
			n++;
		}
	return v / n;
}

/* Of which samples: bit 0 those that client 0 was handed, bit 1 client 1. */
static double handover(void *arg)
{
	char name[sizeof shared->name];
	pid_t pid[2];

	memcpy(name, shared->name, sizeof name);
	memset(shared, 0, sizeof *shared);
	memcpy(shared->name, name, sizeof name);
	for (unsigned i = 0; i < 2; i++)
		pid[i] = begin(hands_over, 1 + i);
	for (unsigned i = 0; i < 2; i++)
		join(pid[i]);
	return mean_of_medians(*(unsigned *)arg);
}

/* --- The chain: client, daemon, daemon, client --- */

static void word_await(uint32_t *word, uint32_t old)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == old)
		syscall(SYS_futex, word, FUTEX_WAIT, old, NULL, NULL, 0);
}

static void word_raise(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int chain_socket(unsigned host)
{
	lab_enter(host);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	return fd;
}

static struct sockaddr_in chain_address(unsigned host)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, lab_address(host), &a.sin_addr);
	return a;
}

/* Where the first host's daemon is: passes on by TCP what it is woken for. */
static void chain_sends(unsigned host)
{
	struct sockaddr_in a = chain_address(2);
	char bytes[64] = "";

	end_with_parent();
	bench_pin(host);
	int fd = chain_socket(host);
	bench_await(&shared->ready);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		err(2, "connect");
	for (uint32_t n = 0; n < SAMPLES; n++) {
		word_await(&shared->word[0], n);
		if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes)
			err(2, "send");
	}
	close(fd);
}

static void chain_hears(unsigned host)
{
	struct sockaddr_in a = chain_address(host);
	char bytes[64];

	end_with_parent();
	bench_pin(host);
	int listening = chain_socket(host);
	if (bind(listening, (struct sockaddr *)&a, sizeof a) < 0 || listen(listening, 1) < 0)
		err(2, "listen");
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	int fd = accept(listening, NULL, NULL);
	while (recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes)
		word_raise(&shared->word[1]);
	close(fd);
	close(listening);
}

static void chain_begins(unsigned host)
{
	end_with_parent();
	bench_pin(host - 1);
	for (uint32_t n = 0; n < SAMPLES; n++) {
		nap_ns(PAUSE_NS);
		shared->at = now_ns();
		word_raise(&shared->word[0]);
		word_await(&shared->left, n);
	}
}

static void chain_ends(unsigned host)
{
	end_with_parent();
	bench_pin(host - 1);
	for (uint32_t n = 0; n < SAMPLES; n++) {
		word_await(&shared->word[1], n);
		note_sample(0, now_ns() - shared->at);
		word_raise(&shared->left);
	}
}

static double chain(void *arg)
{
	static void (*const parts[])(unsigned host) = { chain_hears, chain_sends, chain_ends, chain_begins };
	static const unsigned hosts[] = { 2, 1, 2, 1 };
	char name[sizeof shared->name];
	pid_t pid[4];

	(void)arg;
	memcpy(name, shared->name, sizeof name);
	memset(shared, 0, sizeof *shared);
	memcpy(shared->name, name, sizeof name);
	for (unsigned i = 0; i < 4; i++)
		pid[i] = begin(parts[i], hosts[i]);
	for (unsigned i = 0; i < 4; i++)
		join(pid[i]);
	return bench_median(shared->us[0], SAMPLES);
}

static bool (*suited)(unsigned master, unsigned host);

static bool is_first(unsigned master, unsigned host)
{
	(void)host;
	return master == 1;
}

static bool is_third(unsigned master, unsigned host)
{
	(void)host;
	return master == 3;
}

/* In a process of its own: a library that has once attached stays with that node. */
static void finds(unsigned host)
{
	at_host(host);
	bench_ok(dlock_close(open_mastered(host, suited, "handover")), "dlock_close");
}

static void measure_handover(const char *key, const char *what, bool (*suits)(unsigned, unsigned), unsigned which)
{
	struct row row = { .key = key, .what = what, .rival = "wake + TCP + wake", .unit = "us", .better = LESS_IS_BETTER, .goal = 2 };

	if (!bench_wanted(key))
		return;
	suited = suits;
	join(begin(finds, 1));
	bench_rounds(&row, HANDOVER_ROUNDS, handover, chain, &which);
}

static void measure_handovers(void)
{
	measure_handover("handover-holder", "hand-over to another node, the holder's node masters", is_first, 2);
	measure_handover("handover-waiter", "hand-over to another node, the waiter's node masters", is_first, 1);
	measure_handover("handover-third", "hand-over to another node, a third masters", is_third, 3);
}

/* --- Keeping --- */

struct cost {
	double cpu_ms, packets;
};

/* All threads; kernel threads that work for it among them. */
static double cpu_ms(pid_t pid)
{
	char pattern[64], text[200];
	double ns = 0;
	glob_t g;

	snprintf(pattern, sizeof pattern, "/proc/%d/task/*/schedstat", (int)pid);
	if (glob(pattern, 0, NULL, &g))
		errx(2, "%s: there is none", pattern);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		read_file(g.gl_pathv[i], text, sizeof text);
		ns += strtod(text, NULL);
	}
	globfree(&g);
	return ns / 1e6;
}

static double packets(pid_t pid)
{
	char path[64], text[4000];
	unsigned long long v[10];
	const char *at;

	snprintf(path, sizeof path, "/proc/%d/net/dev", (int)pid);
	read_file(path, text, sizeof text);
	at = strstr(text, "eth0:");
	if (!at || sscanf(at, "eth0: %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6,
			  v + 7, v + 8, v + 9) != 10)
		errx(2, "%s: no eth0", path);
	return (double)v[9];
}

static struct cost cost_now(void)
{
	struct cost c = { 0, 0 };

	for (unsigned i = 1; i <= HOSTS; i++) {
		c.cpu_ms += cpu_ms(town.daemon[i]);
		c.packets += packets(town.daemon[i]);
	}
	return c;
}

static void keep_round(double *cpu, double *sent)
{
	struct cost a = cost_now();

	nap_ns(KEEP_NS);
	struct cost b = cost_now();
	*cpu = b.cpu_ms - a.cpu_ms;
	*sent = b.packets - a.packets;
}

static void keeps(unsigned host)
{
	char name[32];

	at_host(host);
	for (unsigned i = 0; i < KEEP_NAMES; i++) {
		snprintf(name, sizeof name, "keep-%u", i);
		dlock_t *l = bench_open(name);

		bench_ok(dlock_wait(l), "dlock_wait");
		bench_ok(dlock_post(l), "dlock_post");
	}
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

static void measure_keep(void)
{
	struct row cpu = { .key = "keep-cpu", .what = "keeping 100,000 leases for 10 s: processor time of all daemons",
			   .rival = "without them", .unit = "ms", .better = LESS_IS_BETTER, .goal = 1.1 };
	struct row sent = { .key = "keep-packets", .what = "keeping 100,000 leases for 10 s: packets that all nodes send",
			    .rival = "without them", .unit = "packets", .better = LESS_IS_BETTER, .goal = 1.1 };
	double with[2][KEEP_ROUNDS], without[2][KEEP_ROUNDS];

	if (!bench_wanted(cpu.key) && !bench_wanted(sent.key))
		return;
	/* In turn, since over a minute the machine itself becomes faster or slower by more than what is looked for. */
	for (unsigned i = 0; i < KEEP_ROUNDS; i++) {
		keep_round(&without[0][i], &without[1][i]);
		memset(shared, 0, sizeof *shared);
		pid_t pid = begin(keeps, 1);
		bench_await(&shared->ready);
		nap_ns(KEEP_PAUSE);
		keep_round(&with[0][i], &with[1][i]);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		nap_ns(KEEP_PAUSE);      /* all leases go back */
	}
	bench_row(&cpu, with[0], without[0], KEEP_ROUNDS);
	bench_row(&sent, with[1], without[1], KEEP_ROUNDS);
}

/* --- Fail-over --- */

static bool is_another(unsigned master, unsigned host)
{
	return master && master != host;
}

static bool is_same(unsigned master, unsigned host)
{
	return master == host;
}

static struct failover {
	const char *key, *what;
	bool (*master)(unsigned master, unsigned host);
	bool coordinates, alone;         /* it uses all shards, and masters them */
	char prefix[24];                 /* of names, new ones for each run */
} failing;

static void holds(unsigned host)
{
	at_host(host);
	dlock_t *l = open_mastered(host, failing.master, failing.prefix);
	bench_ok(dlock_wait(l), "dlock_wait");
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* Names of its own, each once, until it is killed. They are called lost after a fail-over: else they would be kept for that mark. */
static void uses_all(unsigned host)
{
	char name[48];
	dlock_attr_t *robust;
	dlock_t *l;
	int r;

	at_host(host);
	bench_ok(dlock_attr_create(&robust), "dlock_attr_create");
	bench_ok(dlock_attr_set_robust(robust, true), "dlock_attr_set_robust");
	for (unsigned long n = 0; ; n++) {
		snprintf(name, sizeof name, "%s-u%lu", failing.prefix, n);
		bench_ok(dlock_open(&l, name, robust), "dlock_open");
		r = dlock_wait(l);
		bench_ok(r == EOWNERDEAD ? dlock_consistent(l) : r, "dlock_wait");
		bench_ok(dlock_post(l), "dlock_post");
		bench_ok(dlock_close(l), "dlock_close");
	}
}

static void takes_over(unsigned host)
{
	at_host(host);
	dlock_t *l = bench_open(shared->name);
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	bench_ok(dlock_wait(l), "dlock_wait");
	shared->at = now_ns();
	bench_ok(dlock_post(l), "dlock_post");
}

/* Who is to be killed: the coordinator, or somebody else. */
static unsigned victim(void)
{
	unsigned who;

	while (!(who = coordinator(1)) || who != coordinator(2) || who != coordinator(3))
		nap_ns(100 * MS);
	return failing.coordinates ? who : who % HOSTS + 1;
}

static double failover_once(unsigned run)
{
	unsigned host = victim();

	memset(shared, 0, sizeof *shared);
	snprintf(failing.prefix, sizeof failing.prefix, "%s-%u", failing.key, run);
	pid_t user = failing.alone ? begin(uses_all, host) : 0;
	for (unsigned i = 0; user && shards(host) < 64 && i < 300; i++)
		nap_ns(100 * MS);
	if (user && shards(host) < 64)
		errx(2, "host %u alone uses locks, and masters %u of 64 shards", host, shards(host));
	pid_t holder = begin(holds, host);
	bench_await(&shared->ready);
	pid_t waiter = begin(takes_over, (host + run % (HOSTS - 1)) % HOSTS + 1);       /* any of the others */
	bench_await(&shared->go);
	nap_ns((uint64_t)random_below(FAILOVER_TTL_MS / 4) * MS + 100 * MS);
	uint64_t begun = now_ns();
	/* The daemon first: it would hand over at once what a dead client held. */
	kill(town.daemon[host], SIGKILL);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	if (user) {
		kill(user, SIGKILL);
		waitpid(user, NULL, 0);
	}
	daemon_kill(host, SIGKILL);
	join(waiter);
	double ms = (double)(shared->at - begun) / 1e6;
	daemon_begin(host);
	if (!daemon_ready(host, 20000)) {
		town_show();
		errx(2, "the daemon of host %u does not come back", host);
	}
	return ms;
}

/* TTL + 2d + o (docs/LEASE.md); d: drift and guard; o: two looks. */
static double failover_bound(void)
{
	return FAILOVER_TTL_MS * (1 + 2 * (0.01 + 1.0 / 50) + 2 * (1.0 / 20));
}

static void measure_failover(const char *key, const char *what, bool (*master)(unsigned, unsigned), bool coordinates, bool alone)
{
	unsigned n = getenv("DLOCK_BENCH_FULL") ? FAILOVERS_FULL : FAILOVERS;
	struct row row = { .key = key, .what = what, .unit = "ms", .better = LESS_IS_BETTER, .worst = true,
			   .limit = failover_bound() + FAILOVER_GRACE_MS };
	double ms[FAILOVERS_FULL];

	if (!bench_wanted(key))
		return;
	failing = (struct failover){ .key = key, .master = master, .coordinates = coordinates, .alone = alone };
	for (unsigned i = 0; i < n; i++)
		ms[i] = failover_once(i);
	snprintf(row.note, sizeof row.note, "the longest of %u runs, median %.0f ms; the bound for TTL=%u ms is %.0f ms, and %u ms more may pass", n,
		 bench_median(ms, n), FAILOVER_TTL_MS, failover_bound(), FAILOVER_GRACE_MS);
	bench_row(&row, ms, NULL, n);
}

int main(void)
{
	harness_begin(7200);
	town_configure("[Node]\nBurst=0\n");
	town_begin(HOSTS, TTL_MS);
	bench_begin("cluster");
	shared = bench_shared(sizeof *shared);
	measure_handovers();
	measure_keep();
	if (bench_wanted("failover") || bench_wanted("failover-master") || bench_wanted("failover-coordinator") ||
	    bench_wanted("failover-all"))
		town_anew(FAILOVER_TTL_MS, "");
	measure_failover("failover", "a node is killed until its lock is granted elsewhere", is_another, false, false);
	measure_failover("failover-master", "the same, and it mastered the name", is_same, false, false);
	measure_failover("failover-coordinator", "the same, and it was coordinator", is_another, true, false);
	measure_failover("failover-all", "the same, and it mastered all names, since it used them", is_same, false, true);
	bench_end();
	return 0;
}
