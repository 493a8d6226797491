/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "town.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "etcd.h"


/* What a host's daemon keeps: a file system of its own in memory, which can be full. */
#define DISK_OPTIONS "size=64m"

struct town town;
static char more_lines[1000];
static int64_t *wallclock[TOWN_HOSTS_MAX + 1];

static unsigned store_host(unsigned member)
{
	return town.hosts + 1 + member;
}

const char *town_log(const char *what, unsigned i)
{
	static char path[4][80];
	static unsigned at;
	char *p = path[at++ % 4];

	snprintf(p, sizeof path[0], "%s/log.%s%u", harness.dir, what, i);
	return p;
}

const char *town_run_dir(unsigned host)
{
	static char path[TOWN_HOSTS_MAX + 1][64];

	snprintf(path[host], sizeof path[0], "%s/h%u/run", harness.dir, host);
	return path[host];
}

static void await_end(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* --- The store --- */

void store_begin(unsigned i)
{
	char *more[] = { "--heartbeat-interval", "50", "--election-timeout", "500", "--pre-vote=true", NULL };

	if (!town.store[i])
		town.store[i] = etcd_member_begin("s", store_host(0), i, town_log("store", i), more);
}

void store_kill(unsigned i)
{
	if (!town.store[i])
		return;
	kill(town.store[i], SIGKILL);
	await_end(town.store[i]);
	town.store[i] = 0;
}

/* A store that answers a linearizable read has a leader. */
static bool store_answers(void)
{
	char command[200];

	snprintf(command, sizeof command, "ETCDCTL_API=3 etcdctl --dial-timeout=1s --command-timeout=1s --endpoints=%s:%d get x",
		 lab_address(store_host(0)), ETCD_PORT);
	char *argv[] = { "sh", "-c", command, NULL };
	pid_t pid = lab_spawn(store_host(0), town_log("etcdctl", 0), argv, NULL);
	int status;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0;
}

static void stores_begin(void)
{
	uint64_t until = now_ns() + PATIENCE_MS * MS;

	for (unsigned i = 0; i < TOWN_STORES; i++)
		store_begin(i);
	while (!store_answers())
		if (now_ns() > until)
			give_up("etcd does not begin to answer; it said this: %s", town_log("store", 0));
		else
			nap_ns(100 * MS);
}

/* --- Daemons --- */

void town_configure(const char *lines)
{
	snprintf(more_lines, sizeof more_lines, "%s", lines);
}

static void disk_make(unsigned host)
{
	char path[80];

	snprintf(path, sizeof path, "%s/h%u", harness.dir, host);
	mkdir(path, 0755);
	if (mount("lab", path, "tmpfs", 0, DISK_OPTIONS) < 0)
		give_up("mount %s: %s", path, strerror(errno));
}

static void disks_away(void)
{
	char path[80];

	for (unsigned host = 1; host <= town.hosts; host++) {
		snprintf(path, sizeof path, "%s/h%u", harness.dir, host);
		umount2(path, MNT_DETACH);
	}
}

void town_disk(unsigned host, bool full)
{
	static const char zeros[1 << 16];
	char path[80];

	snprintf(path, sizeof path, "%s/h%u/filler", harness.dir, host);
	if (!full) {
		unlink(path);
		return;
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	while (fd >= 0 && (write(fd, zeros, sizeof zeros) > 0 || write(fd, zeros, 1) > 0))
		;
	close(fd);
}

static void wallclock_make(unsigned host)
{
	char path[80];

	snprintf(path, sizeof path, "%s/wallclock%u", harness.dir, host);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	void *p = fd >= 0 && ftruncate(fd, sizeof **wallclock) == 0 ?
		mmap(NULL, sizeof **wallclock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (p == MAP_FAILED)
		give_up("%s: %s", path, strerror(errno));
	wallclock[host] = p;
	close(fd);
}

void town_clock(unsigned host, int64_t ns)
{
	__atomic_store_n(wallclock[host], ns, __ATOMIC_RELAXED);
}

static void configure(unsigned host)
{
	char path[80];

	snprintf(path, sizeof path, "%s/h%u.conf", harness.dir, host);
	FILE *f = fopen(path, "we");
	if (!f)
		give_up("%s: %s", path, strerror(errno));
	fprintf(f, "[Node]\nName=h%u\nListen=%s:7420\nMaster=%s\n[Cluster]\nName=lab\nTTL=%ums\nKey=%s/key\nStore=etcd://", host,
		lab_address(host), host <= town.meek ? "no" : "yes", town.ttl_ms, harness.dir);
	for (unsigned i = 0; i < TOWN_STORES; i++)
		fprintf(f, "%s%s:%d", i ? "," : "", lab_address(store_host(i)), ETCD_PORT);
	fprintf(f, "/lab\n%s", more_lines);
	fclose(f);
}

void daemon_begin(unsigned host)
{
	char config[80], dir[64], preload[450], clock[100];

	if (town.daemon[host])
		return;
	configure(host);
	snprintf(config, sizeof config, "%s/h%u.conf", harness.dir, host);
	snprintf(dir, sizeof dir, "%s/h%u", harness.dir, host);
	char *argv[] = { (char *)built("daemon/dlockd"), "--config", config, "--dir", dir, NULL };
	snprintf(preload, sizeof preload, "LD_PRELOAD=%s", built("tests/cluster/wallclock.so"));
	snprintf(clock, sizeof clock, "WALLCLOCK=%s/wallclock%u", harness.dir, host);
	char *environment[] = { preload, clock, NULL };
	town.frozen[host] = false;
	lab_pin((int)host);
	town.daemon[host] = lab_spawn(host, town_log("daemon", host), argv, environment);
}

void daemon_kill(unsigned host, int signo)
{
	if (!town.daemon[host])
		return;
	kill(town.daemon[host], signo);
	town.frozen[host] = signo == SIGSTOP;
	if (signo == SIGSTOP)
		return;
	await_end(town.daemon[host]);
	town.daemon[host] = 0;
}

void daemon_thaw(unsigned host)
{
	if (town.daemon[host] && town.frozen[host])
		kill(town.daemon[host], SIGCONT);
	town.frozen[host] = false;
}

/* It is there, and a lock of its own can be had: then it is in the cluster, and all shards are open. */
bool daemon_ready(unsigned host, unsigned ms)
{
	uint64_t until = now_ns() + ms * MS;
	char arguments[80], said[400];

	snprintf(arguments, sizeof arguments, "run -w 1 ready/%u -- true", host);
	do {
		if (town_command(host, said, sizeof said, arguments) == 0)
			return true;
		nap_ns(50 * MS);
	} while (now_ns() < until);
	note("host %u: %s", host, said);
	return false;
}

int town_command(unsigned host, char *ret, size_t n, const char *arguments)
{
	char command[900];
	int p[2], status;
	size_t len = 0;
	ssize_t got;

	snprintf(command, sizeof command, "DLOCK_RUN_DIR=%s exec %s %s 2>&1", town_run_dir(host), built("libclient/cmd/dlock"),
		 arguments);
	if (pipe2(p, O_CLOEXEC) < 0)
		give_up("pipe: %s", strerror(errno));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		lab_enter(host);
		dup2(p[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(p[1]);
	while (len < n - 1 && (got = read(p[0], ret + len, n - 1 - len)) > 0)
		len += (size_t)got;
	ret[len] = 0;
	close(p[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void show_command(unsigned host, const char *arguments)
{
	char text[16384];

	town_command(host, text, sizeof text, arguments);
	note("host %u: dlock %s", host, arguments);
	note_lines(text);
}

void town_show(void)
{
	char ready[20];

	for (unsigned i = 1; i <= town.hosts; i++) {
		show_command(i, "status");
		show_command(i, "members");
		for (unsigned k = 1; k <= town.hosts; k++) {
			snprintf(ready, sizeof ready, "show ready/%u", k);
			show_command(i, ready);
		}
		note_file(town_log("daemon", i));
	}
}

static void give_up_daemon(unsigned host)
{
	town_show();
	give_up("the daemon of host %u does not become ready", host);
}

void daemon_await(unsigned host)
{
	if (!daemon_ready(host, PATIENCE_MS))
		give_up_daemon(host);
}

/* --- All of it --- */

static void key_make(void)
{
	char command[300];

	snprintf(command, sizeof command, "%s keygen %s/key 2>/dev/null", built("libclient/cmd/dlock"), harness.dir);
	if (system(command))
		give_up("this failed: %s", command);
}

bool town_possible(void)
{
	if (access("/usr/bin/etcd", X_OK) == 0 || access("/usr/local/bin/etcd", X_OK) == 0)
		return true;
	skip("a cluster", "there is no etcd; Debian's package is etcd-server");
	return false;
}

void town_begin(unsigned hosts, unsigned ttl_ms)
{
	town.hosts = hosts;
	town.ttl_ms = ttl_ms;
	town.daemon = shared_memory((TOWN_HOSTS_MAX + 1) * sizeof *town.daemon);
	town.store = shared_memory(TOWN_STORES * sizeof *town.store);
	lab_begin(hosts + TOWN_STORES + town.more);
	harness_at_end(disks_away);
	key_make();
	stores_begin();
	for (unsigned i = 1; i <= hosts; i++) {
		disk_make(i);
		wallclock_make(i);
	}
	if (town.meek) {                         /* whoever is alone writes the first map, and coordinates from then on */
		daemon_begin(hosts);
		daemon_await(hosts);
	}
	for (unsigned i = 1; i <= hosts; i++)
		daemon_begin(i);
	for (unsigned i = 1; i <= hosts; i++)
		daemon_await(i);
}

/* All have stopped: as dlockd.conf(5) has it. */
static void ttl_change(unsigned ttl_ms)
{
	char command[200];
	int status;

	nap_ns(town.ttl_ms * MS);
	snprintf(command, sizeof command, "ETCDCTL_API=3 etcdctl --endpoints=%s:%d del /lab/lab/terms", lab_address(store_host(0)), ETCD_PORT);
	char *argv[] = { "sh", "-c", command, NULL };
	pid_t pid = lab_spawn(store_host(0), town_log("etcdctl", 0), argv, NULL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status)
		give_up("the terms of the cluster cannot be removed: %s", town_log("etcdctl", 0));
	town.ttl_ms = ttl_ms;
}

void town_anew(unsigned ttl_ms, const char *lines)
{
	for (unsigned i = 1; i <= town.hosts; i++)
		daemon_kill(i, SIGTERM);
	if (ttl_ms != town.ttl_ms)
		ttl_change(ttl_ms);
	town_configure(lines);
	for (unsigned i = 1; i <= town.hosts; i++)
		daemon_begin(i);
	for (unsigned i = 1; i <= town.hosts; i++)
		daemon_await(i);
}

/* It masters its part of the shards again, and all of them are open. */
static bool daemon_masters(unsigned host)
{
	char text[4000];

	return !town_command(host, text, sizeof text, "status") && strstr(text, "shards are mastered here") &&
	       !strstr(text, " 0 of 64 shards") && !strstr(text, "not open yet") && !strstr(text, "draining");
}

void town_roll(const char *lines)
{
	town_configure(lines);
	for (unsigned i = 1; i <= town.hosts; i++) {
		daemon_kill(i, SIGTERM);
		daemon_begin(i);
		uint64_t until = now_ns() + PATIENCE_MS * MS;
		bool back = daemon_ready(i, PATIENCE_MS);
		for (unsigned k = 1; back && k <= town.hosts; k++)
			while (!daemon_masters(k) && now_ns() < until)
				nap_ns(100 * MS);
		if (!back || !daemon_masters(i))
			give_up_daemon(i);
	}
}

void town_mend(void)
{
	lab_heal();
	for (unsigned i = 0; i < TOWN_STORES; i++)
		store_begin(i);
	for (unsigned i = 1; i <= town.hosts; i++) {
		town_disk(i, false);
		daemon_thaw(i);
		daemon_begin(i);
	}
}
