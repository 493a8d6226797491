/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What dlock needs of the machine: kernel, io_uring, clock, limits, group, unit. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "doctor.h"

#define SYSTEM_RUN_DIR "/run/dlock"
#define NOFILE_WANTED 4096       /* two descriptors a client */

/* The first line of a file without its newline; false: cannot be read. */
static bool read_line(const char *path, char *ret, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(ret, (int)size, f);

	if (f)
		fclose(f);
	if (ok)
		ret[strcspn(ret, "\n")] = '\0';
	return ok;
}

void doctor_kernel(struct doctor_report *r)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	if (uname(&u) < 0)
		return;
	if (sscanf(u.release, "%u.%u", &major, &minor) == 2 && (major < 6 || (major == 6 && minor < 1)))
		doctor_say(r, "kernel", DOCTOR_FAIL, "Boot a kernel of version 6.1 or later.", "Linux %s is too old",
			   u.release);
	else
		doctor_say(r, "kernel", DOCTOR_OK, NULL, "Linux %s", u.release);
}

static int try_ring(void)
{
	struct io_uring_params p = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

void doctor_io_uring(struct doctor_report *r)
{
	char disabled[16] = "0", group[16] = "-1";
	int error = try_ring();

	read_line("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));
	read_line("/proc/sys/kernel/io_uring_group", group, sizeof(group));
	if (strcmp(disabled, "2") == 0)
		doctor_say(r, "io_uring", DOCTOR_FAIL, "sysctl kernel.io_uring_disabled=0, and the same in /etc/sysctl.d.",
			   "switched off for all (kernel.io_uring_disabled is 2)");
	else if (strcmp(disabled, "1") == 0)
		doctor_say(r, "io_uring", error < 0 ? DOCTOR_FAIL : DOCTOR_WARN,
			   "sysctl kernel.io_uring_disabled=0, or put the daemon's user into the group of "
			   "kernel.io_uring_group.",
			   "only for the privileged and group %s (kernel.io_uring_disabled is 1)", group);
	else if (error == -ENOSYS)
		doctor_say(r, "io_uring", DOCTOR_FAIL, "Use a kernel with CONFIG_IO_URING; in a container, a seccomp "
			   "profile that allows it.", "there is none");
	else if (error == -EPERM || error == -EACCES)
		doctor_say(r, "io_uring", DOCTOR_FAIL, "Allow io_uring_setup, io_uring_enter and io_uring_register in the "
			   "container's seccomp profile or the LSM's policy.", "refused here (%s)", strerror(-error));
	else if (error < 0)
		doctor_say(r, "io_uring", DOCTOR_FAIL, "Raise the limit that is exhausted (open files, locked memory).",
			   "a ring cannot be made: %s", strerror(-error));
	else
		doctor_say(r, "io_uring", DOCTOR_OK, NULL, "works");
}

void doctor_clock(struct doctor_report *r)
{
	static const char *const fast[] = { "tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page" };
	char source[64];

	if (!read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof(source))) {
		doctor_say(r, "clock", DOCTOR_WARN, "Mount /sys.", "the clock source cannot be read");
		return;
	}
	for (size_t i = 0; i < sizeof(fast) / sizeof(fast[0]); i++) {
		if (strcmp(source, fast[i]) == 0) {
			doctor_say(r, "clock", DOCTOR_OK, NULL, "clock source %s", source);
			return;
		}
	}
	doctor_say(r, "clock", DOCTOR_WARN, "See /sys/devices/system/clocksource/clocksource0/available_clocksource; boot "
		   "with clocksource=tsc if the machine's counter can be trusted.",
		   "clock source %s: each look at the clock is a system call", source);
}

/* The soft limit of "name" in /proc/PID/limits. */
static bool limit_of(int pid, const char *name, unsigned long long *ret)
{
	char path[40], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		found = true;
		if (sscanf(line + strlen(name), " %llu", ret) != 1)
			*ret = ~0ULL;            /* "unlimited" */
	}
	fclose(f);
	return found;
}

void doctor_limits(struct doctor_report *r, int daemon_pid)
{
	const char *whose = daemon_pid > 0 ? "the daemon" : "a daemon started from here";
	int pid = daemon_pid > 0 ? daemon_pid : (int)getpid();
	unsigned long long files, locked;

	if (!limit_of(pid, "Max open files", &files) || !limit_of(pid, "Max locked memory", &locked)) {
		doctor_say(r, "limits", DOCTOR_OK, NULL, "not looked at: only root may");
		return;
	}
	if (files < NOFILE_WANTED)
		doctor_say(r, "open files", DOCTOR_WARN, "Set LimitNOFILE= in dlockd.service, or ulimit -n, higher; each "
			   "client needs two.", "%s may have %llu open: some %llu clients", whose, files, files / 2);
	else
		doctor_say(r, "open files", DOCTOR_OK, NULL, "%s may have %llu open", whose, files);
	if (locked < 64 * 1024)
		doctor_say(r, "locked memory", DOCTOR_WARN, "Set LimitMEMLOCK= in dlockd.service, or ulimit -l, to 8M.",
			   "%s may lock %llu bytes", whose, locked);
	else
		doctor_say(r, "locked memory", DOCTOR_OK, NULL, "%s may lock enough", whose);
}

static bool in_group(gid_t group)
{
	gid_t *groups;
	bool found = getegid() == group;
	int n = getgroups(0, NULL);

	if (found || n <= 0)
		return found;
	groups = calloc((size_t)n, sizeof(*groups));
	if (groups)
		n = getgroups(n, groups);
	for (int i = 0; groups && i < n; i++)
		found = found || groups[i] == group;
	free(groups);
	return found;
}

void doctor_group(struct doctor_report *r)
{
	const struct group *gr = getgrnam("dlock");

	if (strcmp(client_run_dir(), SYSTEM_RUN_DIR) != 0)
		doctor_say(r, "group", DOCTOR_OK, NULL, "not needed: DLOCK_RUN_DIR names a daemon of its own");
	else if (!gr)
		doctor_say(r, "group", DOCTOR_WARN, "systemd-sysusers, or groupadd --system dlock.",
			   "there is no group dlock: only root may use the space default");
	else if (geteuid() == 0 || in_group(gr->gr_gid))
		doctor_say(r, "group", DOCTOR_OK, NULL, "dlock exists, and you may use the space default");
	else
		doctor_say(r, "group", DOCTOR_WARN, "usermod -aG dlock USER, then log in again; or use a space of your own.",
			   "you are not in the group dlock: the space default is closed to you");
}

/* "KEY=value" lines of systemctl show; false: it could not be asked. */
static bool unit_ask(char load[32], char active[32], char sub[32])
{
	char line[256];
	FILE *f = popen("systemctl show --property=LoadState,ActiveState,SubState dlockd.service 2>/dev/null", "re");
	int status;

	load[0] = active[0] = sub[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		(void)(sscanf(line, "LoadState=%31s", load) == 1 || sscanf(line, "ActiveState=%31s", active) == 1 ||
		       sscanf(line, "SubState=%31s", sub) == 1);
	}
	status = f ? pclose(f) : -1;
	return status == 0 && load[0] && active[0];
}

void doctor_unit(struct doctor_report *r)
{
	char load[32], active[32], sub[32];

	if (strcmp(client_run_dir(), SYSTEM_RUN_DIR) != 0)
		doctor_say(r, "unit", DOCTOR_OK, NULL, "not asked: DLOCK_RUN_DIR names a daemon of its own");
	else if (access("/run/systemd/system", F_OK) < 0)
		doctor_say(r, "unit", DOCTOR_OK, NULL, "there is no systemd here");
	else if (!unit_ask(load, active, sub))
		doctor_say(r, "unit", DOCTOR_WARN, "Try 'systemctl status dlockd' by hand.", "systemd does not answer");
	else if (strcmp(load, "not-found") == 0)
		doctor_say(r, "unit", DOCTOR_WARN, "Install the units (make install), then systemctl daemon-reload.",
			   "systemd knows no dlockd.service");
	else if (strcmp(load, "masked") == 0)
		doctor_say(r, "unit", DOCTOR_FAIL, "systemctl unmask dlockd.", "dlockd.service is masked");
	else if (strcmp(active, "failed") == 0)
		doctor_say(r, "unit", DOCTOR_FAIL, "'journalctl -b -u dlockd' says why; then systemctl restart dlockd.",
			   "dlockd.service has failed");
	else if (strcmp(sub, "auto-restart") == 0)
		doctor_say(r, "unit", DOCTOR_FAIL, "'journalctl -b -u dlockd' says why. It is tried again by itself.",
			   "dlockd.service has ended with an error, or again and again");
	else if (strcmp(active, "active") != 0)
		doctor_say(r, "unit", DOCTOR_WARN, "systemctl enable --now dlockd.socket dlockd.",
			   "dlockd.service is %s (%s)", active, sub);
	else
		doctor_say(r, "unit", DOCTOR_OK, NULL, "dlockd.service is %s (%s)", active, sub);
}
