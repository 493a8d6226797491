/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../e2e/harness.h"
#include "pump.h"

static struct {
	unsigned hosts;
	int own;                         /* the namespace that the test began in */
	int bridge;
	struct {
		pid_t pid;
		int net;
		char address[16];
	} host[LAB_HOSTS_MAX + 1];
	bool blocked[LAB_HOSTS_MAX + 1][LAB_HOSTS_MAX + 1];
	bool cut[LAB_HOSTS_MAX + 1];
	pid_t pump[LAB_HOSTS_MAX + 1];
	int processor;
} lab = { .processor = -1 };

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		give_up("%s: %s", path, strerror(errno));
	close(fd);
}

/* Without root: root of a user namespace, and a network of it, which is enough for more of them. What is mounted is seen by nobody else. */
static void become_root(void)
{
	char map[64];
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (geteuid() == 0) {
		if (unshare(CLONE_NEWNS | CLONE_NEWIPC) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			give_up("no namespace for mounts and IPC: %s", strerror(errno));
		return;
	}
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC) < 0)
		give_up("no user namespace: %s. Run as root, or set kernel.unprivileged_userns_clone=1", strerror(errno));
	write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "0 %u 1", uid);
	write_text("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "0 %u 1", gid);
	write_text("/proc/self/gid_map", map);
}

static void enter(int net)
{
	if (setns(net, CLONE_NEWNET) < 0)
		give_up("setns: %s", strerror(errno));
}

/* By a shell in that network. */
static void run_in(int net, const char *format, ...)
{
	char text[600];
	va_list ap;
	int status;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		enter(net);
		execl("/bin/sh", "sh", "-ec", text, NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status)
		give_up("this failed: %s", text);
}

/* A process that does nothing but keep a network; it has one when this returns. */
static pid_t keeper(int *ret_net)
{
	char path[64], byte;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		give_up("pipe: %s", strerror(errno));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		end_with_parent();
		if (unshare(CLONE_NEWNET) < 0 || write(p[1], "", 1) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(p[1]);
	if (read(p[0], &byte, 1) != 1)
		give_up("no network namespace: run as root, or allow unprivileged user namespaces");
	close(p[0]);
	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
	*ret_net = open(path, O_RDONLY | O_CLOEXEC);
	return pid;
}

static void host_begin(unsigned i)
{
	lab.host[i].pid = keeper(&lab.host[i].net);
	snprintf(lab.host[i].address, sizeof lab.host[i].address, "10.77.0.%u", i);
	run_in(lab.bridge, "ip link add c%u type veth peer name eth0 netns %d; ip link set c%u master lab up", i,
	       (int)lab.host[i].pid, i);
	lab_enter(i);
	pump_prepare("eth0");
	lab_enter(0);
	run_in(lab.host[i].net,
	       "ip link set lo up; ip addr add %s/24 dev eth0; ip link set eth0 up; "
	       "nft 'add table inet lab; add set inet lab blocked { type ipv4_addr; }; "
	       "add chain inet lab in { type filter hook input priority 0; }; "
	       "add rule inet lab in ip saddr @blocked drop'", lab.host[i].address);
}

void lab_begin(unsigned n)
{
	lab.hosts = n;
	become_root();
	lab.own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	keeper(&lab.bridge);
	run_in(lab.bridge, "ip link set lo up; ip link add lab type bridge; ip link set lab up");
	for (unsigned i = 1; i <= n; i++)
		host_begin(i);
}

const char *lab_address(unsigned host)
{
	return lab.host[host].address;
}

void lab_enter(unsigned host)
{
	enter(host ? lab.host[host].net : lab.own);
}

void lab_pin(int n)
{
	lab.processor = n;
}

static void pin(void)
{
	cpu_set_t all, one;
	int left;

	if (lab.processor < 0 || sched_getaffinity(0, sizeof all, &all) < 0)
		return;
	left = lab.processor % CPU_COUNT(&all);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && left-- == 0)
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof one, &one);
}

pid_t lab_spawn(unsigned host, const char *log, char *const *argv, char *const *environment)
{
	fflush(stdout);
	pid_t pid = fork();

	if (pid)
		return pid;
	setsid();                        /* what is stopped in our own group brings us SIGHUP when another in it ends */
	end_with_parent();
	setsid();                        /* among stopped ones of one group, an end can be a SIGHUP to all */
	pin();
	lab_enter(host);
	if (log) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
	for (; environment && *environment; environment++)
		putenv(*environment);
	execvp(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* --- What can be broken --- */

static void element(unsigned from, unsigned to, const char *verb)
{
	run_in(lab.host[to].net, "nft %s element inet lab blocked '{ %s }'", verb, lab.host[from].address);
}

void lab_block(unsigned from, unsigned to)
{
	if (lab.blocked[from][to])
		return;
	lab.blocked[from][to] = true;
	element(from, to, "add");
}

void lab_unblock(unsigned from, unsigned to)
{
	if (!lab.blocked[from][to])
		return;
	lab.blocked[from][to] = false;
	element(from, to, "delete");
}

bool lab_blocked(unsigned from, unsigned to)
{
	return lab.blocked[from][to] || lab.cut[from] || lab.cut[to];
}

void lab_cable(unsigned host, bool whole)
{
	if (lab.cut[host] != whole)
		return;
	lab.cut[host] = !whole;
	run_in(lab.bridge, "ip link set c%u %s", host, whole ? "up" : "down");
}

/*
 * The host's end of the bridge is taken off it, and a pump put between. Only then do frames have to be as on a
 * real cable.
 */
static void pump_begin(unsigned host, unsigned ms, unsigned jitter_ms)
{
	char a[16], b[16];

	snprintf(a, sizeof a, "c%u", host);
	snprintf(b, sizeof b, "p%u", host);
	run_in(lab.bridge, "ip link add p%u type veth peer name q%u; ip link set %s nomaster; ip link set q%u master lab up; ip link set p%u up",
	       host, host, a, host, host);
	fflush(stdout);
	lab.pump[host] = fork();
	if (lab.pump[host])
		return;
	end_with_parent();
	enter(lab.bridge);
	pump_run(a, b, ms, jitter_ms);
}

void lab_slow(unsigned host, unsigned ms, unsigned jitter_ms)
{
	if (lab.pump[host]) {
		kill(lab.pump[host], SIGKILL);
		while (waitpid(lab.pump[host], NULL, 0) < 0 && errno == EINTR)
			;
		lab.pump[host] = 0;
		run_in(lab.bridge, "ip link del p%u; ip link set c%u master lab", host, host);
	}
	if (ms)
		pump_begin(host, ms, jitter_ms);
}

void lab_heal(void)
{
	for (unsigned i = 1; i <= lab.hosts; i++) {
		lab_cable(i, true);
		if (lab.pump[i])
			lab_slow(i, 0, 0);
		for (unsigned k = 1; k <= lab.hosts; k++)
			lab_unblock(i, k);
	}
}
