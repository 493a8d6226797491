/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * dlock keygen: the key that the daemons of a cluster share. 32 bytes from the kernel's generator, as 64 hex
 * digits and a newline. The file is new, for its owner alone from its first moment, whole and on the disk, or not there
 * at all: it is made under another name and then linked, which fails where something is already.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <json-c/json.h>

#include "cmd.h"
#include "print.h"

#define KEY_BYTES 32

static const char help[] =
"Usage: dlock keygen [--json] FILE\n"
"       dlock keygen [--json] -\n\n"
"Makes a key for Key= in [Cluster] of dlockd.conf(5) and writes it to FILE, mode 0600, or to standard output.\n"
"FILE must not exist yet. All nodes of a cluster need the same: copy it by a way that nobody reads along.\n\n"
"  -j, --json    as one JSON object: file, or for standard output the key itself\n"
"  -h, --help\n";

static int key_make(char ret[2 * KEY_BYTES + 1])
{
	unsigned char bytes[KEY_BYTES];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return -EIO;
	for (unsigned i = 0; i < KEY_BYTES; i++)
		sprintf(ret + 2 * i, "%02x", bytes[i]);
	explicit_bzero(bytes, sizeof bytes);
	return 0;
}

static int write_all(int fd, const char *data, size_t n)
{
	while (n) {
		ssize_t r = write(fd, data, n);

		if (r < 0 && errno != EINTR)
			return -errno;
		if (r > 0) {
			data += r;
			n -= (size_t)r;
		}
	}
	return 0;
}

/* The folder that the file stands in. */
static void folder_of(const char *path, char *ret, size_t size)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(ret, size, ".");
	else
		snprintf(ret, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static int file_make(const char *path, const char *text, size_t n)
{
	char folder[4096], self[64];
	int fd, r;

	folder_of(path, folder, sizeof folder);
	fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))  /* a file system without unnamed files */
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	else if (fd >= 0)
		folder[0] = 0;                   /* it has no name yet */
	if (fd < 0)
		return -errno;
	r = fchmod(fd, 0600) < 0 ? -errno : write_all(fd, text, n);      /* a strange umask */
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	if (r == 0 && !folder[0] && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
		r = -errno;
	if (r < 0 && folder[0])
		unlink(path);
	close(fd);
	return r;
}

static int json_say(const char *key, const char *value)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, key, json_object_new_string(value));
	print_json(o);
	json_object_put(o);
	return print_done();
}

static int key_write(const char *path, const char *text, size_t n, bool json)
{
	int r;

	if (strcmp(path, "-") == 0) {
		r = write_all(STDOUT_FILENO, text, n);
		if (r < 0)
			fprintf(stderr, "dlock keygen: standard output: %s\n", strerror(-r));
		return r < 0 ? EX_IOERR : 0;
	}
	r = file_make(path, text, n);
	if (r == 0 && json)
		return json_say("file", path);
	if (r == 0) {
		fprintf(stderr, "%s: a new key. Copy it to all nodes of the cluster, readable for the user of dlockd alone "
			"(chown dlock %s), and name it in [Cluster] Key=\n", path, path);
		return 0;
	}
	if (r == -EEXIST)
		fprintf(stderr, "dlock keygen: %s exists already, and is left as it is. To change a key see \"Keys\" in OPERATIONS.md\n",
			path);
	else
		fprintf(stderr, "dlock keygen: %s: %s\n", path, strerror(-r));
	return EX_CANTCREAT;
}

int cmd_keygen(int argc, char **argv)
{
	static const struct options_usage usage = { .help = help, .operands_min = 1, .operands_max = 1 };
	char text[2 * KEY_BYTES + 2];
	struct options o;
	int r;

	if (options_parse(argc, argv, &usage, &o, &r) < 0)
		return r;
	if (key_make(text) < 0) {
		fprintf(stderr, "dlock keygen: the kernel gives no random numbers\n");
		return EX_OSERR;
	}
	if (o.json && strcmp(o.operand, "-") == 0) {
		r = json_say("key", text);
	} else {
		text[2 * KEY_BYTES] = '\n';
		r = key_write(o.operand, text, 2 * KEY_BYTES + 1, o.json);
	}
	explicit_bzero(text, sizeof text);
	return r;
}
