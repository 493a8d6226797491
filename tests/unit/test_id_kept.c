/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of worker numbers: what is read is what was written here, last or before it, or nothing; and who wrote it is told which.
 * The bad disk is that of store_faults.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "store_faults.h"
#include "things/id_kept.h"

#define STEPS_MAX 400

static char path[128];
static int dir = -1;
static struct kept_place here = { .node = { 1 }, .machine = { 2 }, .cluster = 3, .dir_ino = 4 };
static struct id_kept first[3] = { { "id/default/a/", 7, 11, 5000, 4000 }, { "id/default/b/", 8, 11, 6000, 4500 },
				   { "id/s/c/", 1023, 12, 7000, 1 } };
static struct id_kept second[2] = { { "id/default/a/", 7, 11, 9000, 8000 }, { "id/default/d/", 0, 13, 9500, 8500 } };

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof path, "%s/kept.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(path))
		return -1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static void rm(const char *name)
{
	unlinkat(dir, name, 0);
}

static int teardown(void **state)
{
	char saved[140];

	(void)state;
	rm(KEPT_NAME);
	rm(KEPT_NAME ".new");
	rm("aside");
	snprintf(saved, sizeof saved, "%s.saved", path);
	unlink(saved);
	close(dir);
	return rmdir(path);
}

static bool same(const struct id_kept *a, uint32_t n, const struct id_kept *b, uint32_t m)
{
	if (n != m)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(a[i].key, b[i].key) || a[i].worker != b[i].worker || a[i].session != b[i].session ||
		    a[i].ceiling != b[i].ceiling || a[i].next != b[i].next)
			return false;
	return true;
}

static enum kept_find load(struct id_kept **v, uint32_t *n)
{
	int error;

	return kept_load(dir, &store_file_io_system, &here, v, n, &error);
}

enum what { FIRST, SECOND, NOTHING, WRONG };

/* What is there, as a later daemon reads it. */
static enum what there(void)
{
	struct id_kept *v;
	enum what w = WRONG;
	uint32_t n;
	enum kept_find f = load(&v, &n);

	if (f == KEPT_NONE)
		w = NOTHING;
	else if (f == KEPT_GOOD)
		w = same(v, n, first, 3) ? FIRST : same(v, n, second, 2) ? SECOND : WRONG;
	free(v);
	return w;
}

static enum kept_end save(const struct store_file_io *io, const struct id_kept *v, uint32_t n)
{
	int error;

	return kept_save(dir, io, &here, v, n, &error);
}

static void save_first(void)
{
	rm(KEPT_NAME);
	assert_int_equal(save(&store_file_io_system, first, 3), KEPT_SAVED);
	assert_int_equal(there(), FIRST);
}

static void test_whole(void **state)
{
	struct id_kept *v;
	uint32_t n;

	(void)state;
	rm(KEPT_NAME);
	assert_int_equal(there(), NOTHING);
	save_first();
	assert_int_equal(save(&store_file_io_system, second, 2), KEPT_SAVED);
	assert_int_equal(there(), SECOND);
	assert_int_equal(save(&store_file_io_system, NULL, 0), KEPT_SAVED);
	assert_int_equal(load(&v, &n), KEPT_GOOD);
	assert_int_equal(n, 0);
	free(v);
	assert_int_equal(kept_remove(dir, &store_file_io_system), 0);
	assert_int_equal(kept_remove(dir, &store_file_io_system), 0);
	assert_int_equal(there(), NOTHING);
}

/* --- damaged, copied, carried away --- */

static size_t read_raw(uint8_t *b, size_t max)
{
	int fd = openat(dir, KEPT_NAME, O_RDONLY);
	ssize_t n = read(fd, b, max);

	close(fd);
	assert_true(n > 0);
	return (size_t)n;
}

/* In place: the file stays the one it is. */
static void write_raw(const uint8_t *b, size_t n)
{
	int fd = openat(dir, KEPT_NAME, O_WRONLY | O_TRUNC);

	assert_int_equal(write(fd, b, n), (ssize_t)n);
	close(fd);
}

static void must_refuse(enum kept_find least, enum kept_find most)
{
	struct id_kept *v;
	uint32_t n;
	enum kept_find f = load(&v, &n);

	assert_true(f >= least && f <= most);
	assert_true(kept_text(f)[0]);
	assert_null(v);
	assert_int_equal(n, 0);
}

static void test_damage(void **state)
{
	uint8_t b[1024], c[1024];
	size_t n;

	(void)state;
	save_first();
	n = read_raw(b, sizeof b);
	for (size_t i = 0; i < n; i++) {
		write_raw(b, i);
		must_refuse(KEPT_SHORT, KEPT_FOREIGN);
		memcpy(c, b, n);
		c[i] ^= (uint8_t)(1u << i % 8);
		write_raw(c, n);
		must_refuse(KEPT_TORN, KEPT_FOREIGN);
	}
	memcpy(c, b, n);
	memset(c + n, 0, 16);
	write_raw(c, n + 16);
	must_refuse(KEPT_TORN, KEPT_TORN);
	write_raw(b, n);
	assert_int_equal(there(), FIRST);
}

static void test_copies(void **state)
{
	uint8_t b[1024];
	size_t n;

	(void)state;
	save_first();
	n = read_raw(b, sizeof b);
	/* taken aside, and put back under its name as a new file */
	assert_int_equal(renameat(dir, KEPT_NAME, dir, "aside"), 0);
	close(openat(dir, KEPT_NAME, O_WRONLY | O_CREAT | O_EXCL, 0600));
	write_raw(b, n);
	must_refuse(KEPT_COPY, KEPT_COPY);
	/* an older one put back into the newer one, again and again: numbers of inodes come again, the time does not */
	for (int i = 0; i < 20; i++) {
		usleep(10000);
		assert_int_equal(save(&store_file_io_system, second, 2), KEPT_SAVED);
		assert_int_equal(there(), SECOND);
		write_raw(b, n);
		must_refuse(KEPT_COPY, KEPT_COPY);
	}
	rm("aside");
}

static void test_elsewhere(void **state)
{
	struct kept_place was = here, other[4] = { here, here, here, here };

	(void)state;
	save_first();
	other[0].node[3]++;
	other[1].machine[3]++;
	other[2].cluster++;
	other[3].dir_ino++;
	for (int i = 0; i < 4; i++) {
		here = other[i];
		must_refuse(KEPT_ELSEWHERE, KEPT_ELSEWHERE);
		here = was;
	}
	assert_int_equal(there(), FIRST);
	rm(KEPT_NAME);
	assert_int_equal(symlinkat("/etc/passwd", dir, KEPT_NAME), 0);
	must_refuse(KEPT_UNREADABLE, KEPT_UNREADABLE);
	rm(KEPT_NAME);
}

/* --- a bad disk --- */

/* What save() says of a failure is so. */
static void check_end(enum kept_end end)
{
	enum what w = there();

	switch (end) {
	case KEPT_SAVED:
		assert_int_equal(w, SECOND);
		return;
	case KEPT_OLD:
		assert_true(w == FIRST || w == NOTHING);         /* removed, perhaps, but not for sure */
		return;
	case KEPT_GONE:
		assert_int_equal(w, NOTHING);
		return;
	case KEPT_DOUBT:
		assert_true(w == FIRST || w == SECOND);
		return;
	}
}

static void test_errors(void **state)
{
	static const int errors[] = { ENOSPC, EIO, EROFS };
	unsigned ends[4] = { 0 };
	enum kept_end end;

	(void)state;
	for (unsigned e = 0; e < 3; e++) {
		for (long n = 1; n < STEPS_MAX; n++) {
			save_first();
			fault_set(FAULT_ERROR, n, errors[e], path);
			end = save(&fault_io, second, 2);
			fault.at = 0;
			ends[end]++;
			check_end(end);
			if (!fault.hit)
				break;
			assert_true(n + 1 < STEPS_MAX);
		}
	}
	print_message("# saved %u, old %u, gone %u, in doubt %u\n", ends[KEPT_SAVED], ends[KEPT_OLD], ends[KEPT_GONE], ends[KEPT_DOUBT]);
	assert_true(ends[KEPT_GONE] && ends[KEPT_DOUBT]);
}

/* A disk on which nothing can be changed any more: the old one stays, and that is what is said. */
static int refuse_unlink(int d, const char *name, int flags)
{
	(void)d, (void)name, (void)flags;
	errno = EROFS;
	return -1;
}

static void test_read_only(void **state)
{
	struct store_file_io io = store_file_io_system;

	(void)state;
	save_first();
	io.unlinkat = refuse_unlink;
	assert_int_equal(save(&io, second, 2), KEPT_OLD);
	assert_int_equal(there(), FIRST);
}

static bool die_at(enum fault_kind kind, long n)
{
	enum what w;
	int status;
	pid_t pid;

	save_first();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		fault_set(kind, n, 0, path);
		save(&fault_io, second, 2);
		_exit(fault.hit ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	w = there();
	assert_true(w == FIRST || w == SECOND);
	if (WEXITSTATUS(status) == FAULT_EXIT_CODE)
		return true;
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(w, SECOND);
	return false;
}

static void test_deaths(void **state)
{
	static const enum fault_kind kinds[] = { FAULT_EXIT_BEFORE, FAULT_EXIT_AFTER, FAULT_POWER_BEFORE, FAULT_POWER_AFTER };
	long n;

	(void)state;
	for (unsigned k = 0; k < 4; k++) {
		for (n = 1; n < STEPS_MAX && die_at(kinds[k], n); n++)
			;
		assert_true(n > 5 && n < STEPS_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "what is written is read", test_whole, NULL, NULL, NULL },
		{ "a file that is cut short or changed at any byte is refused", test_damage, NULL, NULL, NULL },
		{ "a copy is refused, and an older one that is put back, into whatever file", test_copies, NULL, NULL, NULL },
		{ "that of another node, machine, directory or cluster is refused", test_elsewhere, NULL, NULL, NULL },
		{ "an error at each step: what is said to be there is there", test_errors, NULL, NULL, NULL },
		{ "where nothing can be written the old one is said to be there still", test_read_only, NULL, NULL, NULL },
		{ "a death and a power cut at each step leave the old or the new one, whole", test_deaths, NULL, NULL, NULL },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("id_kept", tests, setup, teardown);
}
