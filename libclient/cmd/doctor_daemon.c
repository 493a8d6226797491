/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The run directory, the sockets in it, and the daemon behind them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client.h"
#include "doctor.h"
#include "print.h"

#define RUN_ROOM (16u << 20)
#define STATE_ROOM (32u << 20)   /* twice what the store may take */
#define INODES_LEAST 64

#define START "systemctl start dlockd; or set DLOCK_RUN_DIR to the run directory of one that runs (DIR/run after dlockd --dir DIR)."

static void check_owner(struct doctor_report *r, const char *dir, const struct stat *st)
{
	bool system = strcmp(dir, "/run/dlock") == 0;    /* its daemon runs as dlock, or as root */
	char user[USER_MAX];

	user_name(st->st_uid, user);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		doctor_say(r, "run dir", DOCTOR_FAIL, "chmod go-w it, and look who has put what into it.",
			   "%s may be written by others (mode %04o): anybody could put a false socket there", dir,
			   st->st_mode & 07777);
	else if (system && st->st_uid != 0 && strcmp(user, "dlock") != 0)
		doctor_say(r, "run dir", DOCTOR_FAIL, "Look at what is in it; then chown it to the user that dlockd runs as.",
			   "%s belongs to %s, not to dlock or root", dir, user);
	else if (!system && st->st_uid != 0 && st->st_uid != geteuid() && geteuid() != 0)
		doctor_say(r, "run dir", DOCTOR_WARN, "Use a daemon that root or you have started.",
			   "%s belongs to %s: whatever waits there does what that user likes", dir, user);
	else
		doctor_say(r, "run dir", DOCTOR_OK, NULL, "%s, of %s, mode %04o", dir, user, st->st_mode & 07777);
}

static void check_room(struct doctor_report *r, const char *check, const char *dir, const struct statfs *fs, uint64_t least, const char *remedy)
{
	uint64_t left = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;

	if (left < least || (fs->f_files && fs->f_ffree < INODES_LEAST))
		doctor_say(r, check, DOCTOR_WARN, remedy, "%s has room for %llu kB and %llu files", dir, (unsigned long long)(left >> 10),
			   (unsigned long long)fs->f_ffree);
	else
		doctor_say(r, check, DOCTOR_OK, NULL, "%s has room for %llu MB", dir, (unsigned long long)(left >> 20));
}

/* Its embedded store is written as a whole, beside the former one, at each start. */
static void check_state_dir(struct doctor_report *r, const char *dir)
{
	struct statfs fs;

	if (dir[0] && statfs(dir, &fs) == 0)
		check_room(r, "state dir", dir, &fs, STATE_ROOM, "Free some: a daemon that runs goes on, but the next start fails.");
}

bool doctor_run_dir(struct doctor_report *r)
{
	const char *dir = client_run_dir();
	struct statfs fs;
	struct stat st;

	if (stat(dir, &st) < 0) {
		doctor_say(r, "run dir", DOCTOR_FAIL, errno == ENOENT ? START : "Look at the permissions of the path.",
			   "%s: %s", dir, strerror(errno));
		return false;
	}
	if (!S_ISDIR(st.st_mode)) {
		doctor_say(r, "run dir", DOCTOR_FAIL, "Remove it, and let the daemon make it.", "%s is no directory", dir);
		return false;
	}
	check_owner(r, dir, &st);
	if (statfs(dir, &fs) < 0)
		return true;
	check_room(r, "room", dir, &fs, RUN_ROOM, "Opening new names fails with ENOSPC when it is full: free some, or enlarge that tmpfs (mount -o remount,size=…).");
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		doctor_say(r, "memory", DOCTOR_OK, NULL, "%s is on tmpfs", dir);
	else
		doctor_say(r, "memory", DOCTOR_WARN, "Have the run directory on tmpfs (/run, /dev/shm).",
			   "%s is on a disk: shared memory is written back to it, and what a reboot should forget stays", dir);
	return true;
}

void doctor_attach_socket(struct doctor_report *r)
{
	int fd = client_dial("dlockd.sock", SOCK_SEQPACKET);

	if (fd >= 0) {
		close(fd);
		doctor_say(r, "attach", DOCTOR_OK, NULL, "dlockd.sock takes connections");
	} else if (fd == -ENOENT || fd == -ECONNREFUSED) {
		doctor_say(r, "attach", DOCTOR_FAIL, START, "%s/dlockd.sock: %s", client_run_dir(),
			   fd == -ENOENT ? "not there" : "nobody listens");
	} else {
		doctor_say(r, "attach", DOCTOR_FAIL, "Look at the owner and mode of the socket and of its directory.",
			   "%s/dlockd.sock: %s", client_run_dir(), strerror(-fd));
	}
}

static void check_version(struct doctor_report *r, const char *version)
{
	if (strcmp(version, CMD_VERSION) == 0)
		doctor_say(r, "version", DOCTOR_OK, NULL, "daemon and command are both %s", version);
	else
		doctor_say(r, "version", DOCTOR_WARN, "Restart the daemon (systemctl restart dlockd; locks stay held), or use "
			   "the command that came with it.", "the daemon is %s, this command is %s", version, CMD_VERSION);
}

static void check_status(struct doctor_report *r, struct json_object *answer)
{
	struct json_object *node = field(answer, "node"), *spaces = field(answer, "spaces");
	const char *state = field_text(node, "state");
	size_t n = json_object_is_type(spaces, json_type_array) ? json_object_array_length(spaces) : 0;

	if (strcmp(state, "running") == 0)
		doctor_say(r, "daemon", DOCTOR_OK, NULL, "running, pid %lld", field_number(node, "pid"));
	else
		doctor_say(r, "daemon", DOCTOR_WARN, "Wait a moment; if it stays so, 'journalctl -b -u dlockd' says why.",
			   "%s, pid %lld", state, field_number(node, "pid"));
	check_version(r, field_text(node, "version"));
	if (field(node, "cluster"))
		doctor_cluster(r, field(node, "cluster"));
	check_state_dir(r, field_text(node, "stateDir"));
	if (field(node, "loss"))
		doctor_say(r, "loss", DOCTOR_WARN, "Those who held locks before have been told; look whether they cope.",
			   "holds were declared lost when the daemon started: %s", field_text(node, "loss"));
	for (size_t i = 0; i < n; i++) {
		struct json_object *s = json_object_array_get_idx(spaces, i);

		if (field(s, "broken"))
			doctor_say(r, "space", DOCTOR_FAIL, "End the programs that use the space, and start them again.",
				   "%s is broken: %s", field_text(s, "name"), field_text(s, "broken"));
	}
}

int doctor_daemon(struct doctor_report *r)
{
	struct json_object *message = NULL;
	struct client c;
	int error, pid = 0;

	error = client_connect(&c);
	if (error < 0) {
		doctor_say(r, "daemon", DOCTOR_FAIL, START, "%s/io.dlock: %s", client_run_dir(),
			   error == -ECONNREFUSED ? "nobody listens" : strerror(-error));
		return 0;
	}
	error = client_send(&c, "io.dlock.GetStatus", NULL, false);
	if (error == 0)
		error = client_receive(&c, &message);
	if (error == -EAGAIN)
		doctor_say(r, "daemon", DOCTOR_FAIL, "Is it stopped (SIGSTOP, a debugger), or does it not start ('journalctl -b -u dlockd')? Else systemctl restart dlockd.",
			   "takes the connection, but has not answered for %d seconds", CLIENT_TIMEOUT_S);
	else if (error <= 0 || !field(field(message, "parameters"), "node"))
		doctor_say(r, "daemon", DOCTOR_FAIL, "Is it dlockd that listens there? 'journalctl -b -u dlockd' tells more.",
			   "does not answer as dlockd does: %s", message ? field_text(message, "error") :
			   error < 0 ? strerror(-error) : "closes the connection");
	else
		check_status(r, field(message, "parameters"));
	if (field_number(field(field(field(message, "parameters"), "node"), "cluster"), "leaseMs"))
		doctor_peers(r, &c);
	pid = (int)field_number(field(field(message, "parameters"), "node"), "pid");
	json_object_put(message);
	client_close(&c);
	return pid;
}

/* Those in one directory that another user than its owner has made; the first of them by name. */
static int foreign_in(const char *path, unsigned *ret_n, unsigned *ret_all, char *ret_first, size_t size)
{
	DIR *d = opendir(path);
	struct dirent *e;
	struct stat dir, st;

	if (!d)
		return -errno;
	if (fstat(dirfd(d), &dir) < 0) {
		closedir(d);
		return -EIO;
	}
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		++*ret_all;
		if (st.st_uid == dir.st_uid && !S_ISLNK(st.st_mode))
			continue;
		if ((*ret_n)++ == 0)
			snprintf(ret_first, size, "%s/%s", path, e->d_name);
	}
	closedir(d);
	return 0;
}

/* Where the daemon keeps what outlives it. */
static const char *const kept_in[] = { "shm", "ledger", "anchor", "hint" };

void doctor_files(struct doctor_report *r)
{
	char path[4096], first[4096];
	unsigned foreign = 0, all = 0, kept = 0;
	int error, fd;

	error = foreign_in(client_run_dir(), &foreign, &all, first, sizeof(first));
	for (size_t i = 0; i < sizeof(kept_in) / sizeof(kept_in[0]) && (error == 0 || error == -ENOENT); i++) {
		snprintf(path, sizeof(path), "%s/%s", client_run_dir(), kept_in[i]);
		error = foreign_in(path, &foreign, &kept, first, sizeof(first));
	}
	if (foreign > 0)
		doctor_say(r, "files", DOCTOR_WARN, "Look at them; what the daemon has not made does not belong there.",
			   "%u foreign: %s%s", foreign, first, foreign > 1 ? " and others" : "");
	else if (error == -EACCES)
		doctor_say(r, "files", DOCTOR_OK, NULL, "not all looked at: only the daemon's user may");
	else
		doctor_say(r, "files", DOCTOR_OK, NULL, "nothing foreign in %s", client_run_dir());
	if (kept == 0)
		return;
	fd = client_dial("io.dlock", SOCK_STREAM);
	if (fd < 0)
		doctor_say(r, "left over", DOCTOR_WARN, "Start the daemon: it adopts what still lives, and removes the rest.",
			   "%u files in %s of a daemon that has ended", kept, client_run_dir());
	else
		close(fd);
}
