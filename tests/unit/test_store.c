/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store: the contract of all engines, then what is its own: the directory, bad files,
 * a bad disk, and crashes at every step.
 */
#include "store_contract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/crc32c.h"
#include "store/file_format.h"
#include "store_faults.h"

struct bench {
	struct store_contract contract;
	char base[64];		/* made by mkdtemp */
	char dir[80];		/* of the store */
	struct store_why why;
};

/* --- Setting up --- */

static char *path(const struct bench *b, const char *name)
{
	static char text[4][160];
	static unsigned turn;
	char *ret = text[turn++ % 4];

	snprintf(ret, sizeof text[0], "%s/%s", b->dir, name);
	return ret;
}

static int try_open(struct bench *b, const struct store_file_io *io)
{
	memset(&b->why, 0, sizeof b->why);
	b->contract.store = NULL;
	return store_file_open(b->dir, io, &b->contract.store, &b->why);
}

static void must_open(struct bench *b)
{
	int r = try_open(b, NULL);

	if (r < 0)
		print_message("# %s\n", b->why.text);
	assert_int_equal(r, 0);
}

/* The refusal, and that its sentence names this file. */
static void must_refuse(struct bench *b, int error, const char *name)
{
	assert_int_equal(try_open(b, NULL), error);
	assert_null(b->contract.store);
	assert_non_null(strstr(b->why.text, name));
}

static void close_store(struct bench *b)
{
	store_close(b->contract.store);
	b->contract.store = NULL;
}

static void reopen(struct store_contract *c)
{
	struct bench *b = (struct bench *)c;

	close_store(b);
	must_open(b);
}

static int setup_dir(void **state)
{
	struct bench *b = calloc(1, sizeof *b);
	const char *tmp = getenv("TMPDIR");

	if (!b)
		return -1;
	snprintf(b->base, sizeof b->base, "%.40s/dlock-store-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(b->base))
		return -1;
	snprintf(b->dir, sizeof b->dir, "%s/state", b->base);
	b->contract.reopen = reopen;
	*state = b;
	return 0;
}

static int setup_open(void **state)
{
	int r = setup_dir(state);

	return r < 0 ? r : try_open(*state, NULL);
}

static int teardown(void **state)
{
	struct bench *b = *state;
	char command[120];

	store_close(b->contract.store);
	snprintf(command, sizeof command, "rm -rf '%s'", b->base);
	if (system(command) != 0)
		return -1;
	free(b);
	return 0;
}

static void write_file(const char *name, const void *data, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static size_t read_file(const char *name, void *buf, size_t size)
{
	int fd = open(name, O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, buf, size);
	assert_true(n >= 0);
	close(fd);
	return (size_t)n;
}

/* --- The directory --- */

static mode_t mode_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st.st_mode & 07777;
}

static void test_first_start(void **state)
{
	struct bench *b = *state;
	struct store_file_info info;
	char id[64] = "";

	must_open(b);
	assert_int_equal(mode_of(b->dir), 0700);
	assert_int_equal(mode_of(path(b, "store")), 0600);
	assert_int_equal(mode_of(path(b, "store.id")), 0600);
	assert_int_equal(mode_of(path(b, "lock")), 0600);
	assert_int_not_equal(access(path(b, "store.new"), F_OK), 0);

	store_file_info(b->contract.store, &info);
	read_file(path(b, "store.id"), id, sizeof id - 1);
	assert_int_equal(strncmp(id, info.uuid, 36), 0);
	assert_int_equal(info.revision, 0);
}

static void test_second_daemon(void **state)
{
	struct bench *b = *state;
	struct store *first = b->contract.store;
	char pid[32];

	snprintf(pid, sizeof pid, "pid %d ", getpid());
	must_refuse(b, STORE_FILE_EBUSY, pid);
	b->contract.store = first;
	reopen(&b->contract);
}

static void test_writable_dir(void **state)
{
	struct bench *b = *state;
	static const mode_t modes[] = { 0777, 01777, 0770, 0702 };

	close_store(b);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		assert_int_equal(chmod(b->dir, modes[i]), 0);
		must_refuse(b, STORE_FILE_EPERM, "chmod");
	}
	assert_int_equal(chmod(b->dir, 0755), 0);
	must_open(b);
	close_store(b);
	assert_int_equal(chmod(path(b, "store"), 0666), 0);
	must_refuse(b, STORE_FILE_EPERM, "/store");
}

static void test_foreign_owner(void **state)
{
	struct bench *b = *state;

	if (geteuid() != 0)
		skip();
	close_store(b);
	assert_int_equal(chown(path(b, "store"), 12345, 0), 0);
	must_refuse(b, STORE_FILE_EPERM, "12345");
	assert_int_equal(chown(path(b, "store"), 0, 0), 0);
	assert_int_equal(chown(b->dir, 12345, 0), 0);
	must_refuse(b, STORE_FILE_EPERM, "12345");
}

static void test_symlinks(void **state)
{
	struct bench *b = *state;
	char elsewhere[100];

	close_store(b);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", b->base);
	assert_int_equal(rename(path(b, "store"), elsewhere), 0);
	assert_int_equal(symlink(elsewhere, path(b, "store")), 0);
	must_refuse(b, STORE_FILE_ELOOP, "/store");
	assert_int_equal(unlink(path(b, "store")), 0);
	assert_int_equal(rename(elsewhere, path(b, "store")), 0);

	assert_int_equal(rename(b->dir, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, b->dir), 0);
	must_refuse(b, STORE_FILE_ELOOP, "symbolic link");
	assert_int_equal(unlink(b->dir), 0);
}

static void test_no_file(void **state)
{
	struct bench *b = *state;

	close_store(b);
	assert_int_equal(unlink(path(b, "store")), 0);
	assert_int_equal(mkfifo(path(b, "store"), 0600), 0);
	must_refuse(b, STORE_FILE_EFOREIGN, "/store");
	assert_int_equal(unlink(path(b, "store")), 0);
	assert_int_equal(mkdir(path(b, "store"), 0700), 0);
	must_refuse(b, STORE_FILE_EFOREIGN, "/store");
}

static void test_no_parent(void **state)
{
	struct bench *b = *state;

	snprintf(b->dir, sizeof b->dir, "%s/no/state", b->base);
	must_refuse(b, -ENOENT, "/no/state: cannot make the directory");
}

/* --- Bad files --- */

static void test_missing(void **state)
{
	struct bench *b = *state;

	put(&b->contract, "key", 0, "value");
	close_store(b);
	assert_int_equal(unlink(path(b, "store")), 0);
	must_refuse(b, STORE_FILE_EMISSING, "store.id is there");

	assert_int_equal(unlink(path(b, "store.id")), 0);
	write_file(path(b, "identity"), "x", 1);
	must_refuse(b, STORE_FILE_EMISSING, "identity is there");
	assert_int_not_equal(access(path(b, "store"), F_OK), 0);

	assert_int_equal(unlink(path(b, "identity")), 0);
	must_open(b);
	expect_text(&b->contract, "key", NULL);
}

static void test_swapped(void **state)
{
	struct bench *b = *state;
	struct store_file_info before, after;

	close_store(b);
	assert_int_equal(unlink(path(b, "store.id")), 0);
	must_open(b);	/* a mark is made for the store that is there */
	store_file_info(b->contract.store, &before);
	close_store(b);

	assert_int_equal(rename(path(b, "store"), path(b, "aside")), 0);
	assert_int_equal(rename(path(b, "store.id"), path(b, "aside.id")), 0);
	must_open(b);
	close_store(b);
	assert_int_equal(rename(path(b, "aside"), path(b, "store")), 0);
	must_refuse(b, STORE_FILE_ESWAPPED, before.uuid);

	assert_int_equal(rename(path(b, "aside.id"), path(b, "store.id")), 0);
	must_open(b);
	store_file_info(b->contract.store, &after);
	assert_string_equal(before.uuid, after.uuid);
}

static void test_leftover(void **state)
{
	struct bench *b = *state;

	put(&b->contract, "key", 0, "value");
	close_store(b);
	write_file(path(b, "store.new"), "half a st", 9);
	write_file(path(b, "store.id.new"), "", 0);
	must_open(b);
	expect_text(&b->contract, "key", "value");
	assert_int_not_equal(access(path(b, "store.new"), F_OK), 0);
	assert_int_not_equal(access(path(b, "store.id.new"), F_OK), 0);
}

/* Opening this file gives this error, and leaves it byte for byte as it was. */
static void must_refuse_bytes(struct bench *b, const uint8_t *data, size_t size, int error)
{
	static uint8_t again[4096];

	write_file(path(b, "store"), data, size);
	must_refuse(b, error, "/store");
	assert_int_equal(read_file(path(b, "store"), again, sizeof again), size);
	if (size)
		assert_memory_equal(again, data, size);
}

static size_t make_sample(struct bench *b, uint8_t *ret, size_t size)
{
	put(&b->contract, "alpha", 0, "1");
	put(&b->contract, "beta", 0, "two");
	close_store(b);
	return read_file(path(b, "store"), ret, size);
}

static void test_truncated(void **state)
{
	struct bench *b = *state;
	uint8_t data[512];
	size_t size = make_sample(b, data, sizeof data);

	for (size_t n = 0; n < size; n++)
		must_refuse_bytes(b, data, n, STORE_FILE_ESHORT);
	memset(data + size, 0, 8);
	must_refuse_bytes(b, data, size + 8, STORE_FILE_ETORN);
}

static void test_foreign(void **state)
{
	struct bench *b = *state;
	static const uint8_t text[] = "#!/bin/sh\necho this is no store\n";
	uint8_t data[512];
	size_t size = make_sample(b, data, sizeof data);

	must_refuse_bytes(b, text, sizeof text, STORE_FILE_EFOREIGN);
	must_refuse_bytes(b, text, 3, STORE_FILE_EFOREIGN);
	data[8] = 2;
	must_refuse_bytes(b, data, size, STORE_FILE_ENEWER);
	memset(data, 0, size);	/* what XFS used to leave */
	must_refuse_bytes(b, data, size, STORE_FILE_EFOREIGN);
}

static void test_bit_flips(void **state)
{
	struct bench *b = *state;
	uint8_t data[512];
	size_t size = make_sample(b, data, sizeof data);

	for (size_t bit = 0; bit < size * 8; bit++) {
		struct file_table t;
		int r;

		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		r = file_format_decode(data, size, &t);
		assert_true(r < 0);
		if (bit >= 24 * 8)
			assert_int_equal(r, STORE_FILE_ETORN);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	data[size - 9] ^= 1;
	must_refuse_bytes(b, data, size, STORE_FILE_ETORN);
}

/* Changes one byte and makes the checksum fit again. */
static void must_be_malformed(const uint8_t *data, size_t size, size_t at, uint8_t value)
{
	uint8_t copy[512];
	struct file_table t;
	uint32_t crc;

	memcpy(copy, data, size);
	copy[at] = value;
	crc = crc32c(0, copy, size - 4);
	for (size_t i = 0; i < 4; i++)
		copy[size - 4 + i] = (uint8_t)(crc >> 8 * i);
	assert_int_equal(file_format_decode(copy, size, &t), STORE_FILE_EMALFORMED);
}

static void test_malformed(void **state)
{
	struct bench *b = *state;
	uint8_t data[512];
	size_t size = make_sample(b, data, sizeof data);

	must_be_malformed(data, size, 8, 0);		/* format version */
	must_be_malformed(data, size, 12, 1);		/* a record too few */
	must_be_malformed(data, size, 12, 3);		/* … too many */
	must_be_malformed(data, size, 16, 1);		/* the size */
	must_be_malformed(data, size, 24, 1);		/* a revision below a version */
	must_be_malformed(data, size, 48, 0);		/* an empty key */
	must_be_malformed(data, size, 50, 1);		/* an endless one */
	must_be_malformed(data, size, 54, 1);		/* an endless value */
	must_be_malformed(data, size, 56, 0);		/* version 0 */
	must_be_malformed(data, size, 64, 'z');		/* "zlpha" before "beta" */
	must_be_malformed(data, size, 66, 0);		/* NUL in a key */
	must_be_malformed(data, size, 66, ' ');
}

static void test_limits(void **state)
{
	static uint8_t value[STORE_VALUE_MAX];
	struct file_record *r = file_record_new("key", 3, value, sizeof value, 1);
	struct file_record *records[300];
	struct file_table t = { .revision = 1, .records = records, .n = 300 };
	uint8_t *data;
	size_t size;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < 300; i++)
		records[i] = r;
	assert_int_equal(file_format_encode(&t, &data, &size), -EFBIG);
	t.n = 250;
	assert_int_equal(file_format_encode(&t, &data, &size), 0);
	assert_true(size <= STORE_FILE_SIZE_MAX);
	free(data);
	free(r);
}

static void test_crc(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

/* --- A bad disk --- */

/* One cas over a disk that fails at step n; false: it has fewer steps. */
static bool cas_with_fault(struct bench *b, long n, int error)
{
	struct store_file_info before, after;
	uint8_t then[512], now[512];
	struct answer a;
	size_t size;
	bool broken;

	assert_int_equal(try_open(b, &fault_io), 0);
	put(&b->contract, "key", 0, "old");
	store_changed(b->contract.store);
	store_file_info(b->contract.store, &before);
	size = read_file(path(b, "store"), then, sizeof then);

	fault_set(FAULT_ERROR, n, error, b->dir);
	a = ask_cas(&b->contract, "key", before.revision, "new", 3);
	fault.at = 0;
	if (!fault.hit) {
		assert_int_equal(a.error, 0);
		answer_done(&a);
		return false;
	}
	if (a.error == 0) {	/* only what tidies up may fail unnoticed */
		assert_string_equal(fault.hit, "unlinkat");
	} else {
		assert_int_equal(a.error, -error);
		assert_non_null(strstr(store_explain(b->contract.store), strerror(error)));
		assert_false(store_changed(b->contract.store));
		expect_text(&b->contract, "key", "old");
		store_file_info(b->contract.store, &after);
		assert_int_equal(after.revision, before.revision);
		assert_int_equal(after.broken, a.in_doubt);
		/* "No doubt" must be true of the file as well. */
		if (!a.in_doubt) {
			assert_int_equal(read_file(path(b, "store"), now, sizeof now), size);
			assert_memory_equal(now, then, size);
		}
	}

	broken = a.in_doubt;
	answer_done(&a);
	a = ask_cas(&b->contract, "other", 0, "x", 1);
	assert_int_equal(a.error, broken ? -EIO : 0);
	assert_false(a.in_doubt);
	answer_done(&a);

	reopen(&b->contract);
	store_file_info(b->contract.store, &after);
	assert_true(after.revision >= before.revision);
	a = ask_get(&b->contract, "key");
	assert_int_equal(a.error, 0);
	assert_true(!strcmp(a.records[0].value, "old") ||
		    (broken && !strcmp(a.records[0].value, "new")));
	assert_int_not_equal(access(path(b, "store.new"), F_OK), 0);
	answer_done(&a);
	return true;
}

static void empty_dir(struct bench *b)
{
	static const char *const names[] = { "store", "store.id", "store.new", "store.id.new", "lock" };

	close_store(b);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(path(b, names[i]));
	rmdir(b->dir);
}

static void test_cas_faults(void **state)
{
	struct bench *b = *state;
	static const int errors[] = { EIO, ENOSPC, EDQUOT, EROFS };

	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		long n = 1;

		fault_set(FAULT_NONE, 0, 0, b->dir);
		while (cas_with_fault(b, n, errors[i])) {
			n++;
			empty_dir(b);
			fault_set(FAULT_NONE, 0, 0, b->dir);
		}
		assert_true(n > 6);	/* unlink, open, write, fsync, rename, fsync */
		empty_dir(b);
	}
}

static void test_open_faults(void **state)
{
	struct bench *b = *state;

	for (int first = 1; first >= 0; first--) {
		for (long n = 1;; n++) {
			int r;

			if (first)
				empty_dir(b);
			fault_set(FAULT_ERROR, n, EIO, b->dir);
			r = try_open(b, &fault_io);
			fault.at = 0;
			if (!fault.hit) {
				assert_true(n > 8);
				break;
			}
			if (r < 0) {
				assert_int_equal(r, -EIO);
				assert_non_null(strstr(b->why.text, b->dir));
				assert_non_null(strstr(b->why.text, strerror(EIO)));
			}
			close_store(b);
			must_open(b);
			if (!first)
				expect_text(&b->contract, "key", "value");
			close_store(b);
		}
		if (first)
			put(&b->contract, "key", 0, "value");
		close_store(b);
	}
}

/* --- Crashes --- */

/* What the child does: opens, changes "key" to "new" and deletes "bye", with the fault set. */
static void crash_child(struct bench *b, enum fault_kind kind, long n)
{
	bool power = kind == FAULT_POWER_BEFORE || kind == FAULT_POWER_AFTER;
	struct answer a;

	fault_set(kind, n, 0, b->dir);
	if (try_open(b, &fault_io) < 0)
		_exit(1);
	a = ask_get(&b->contract, "key");
	ask_cas(&b->contract, "key", a.version, "new", 3);
	a = ask_get(&b->contract, "bye");
	ask_cas(&b->contract, "bye", a.version, NULL, 0);
	if (power)
		fault_power_cut(0);
	_exit(0);
}

/* The exit code of a child that crashed at step n, or ended well. */
static int crash(struct bench *b, enum fault_kind kind, long n)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		crash_child(b, kind, n);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool has_text(struct bench *b, const char *key, const char *text)
{
	struct answer a = ask_get(&b->contract, key);
	bool same = a.error == 0 && (text ? a.n == 1 && !strcmp(a.records[0].value, text) : a.n == 0);

	answer_done(&a);
	return same;
}

/* One of the three states that the two changes go through, and with the revision that belongs to it. */
static void check_crashed(struct bench *b, uint64_t before, bool finished)
{
	struct store_file_info info;
	unsigned changes = 0;

	must_open(b);
	store_file_info(b->contract.store, &info);
	changes = has_text(b, "key", "new") + has_text(b, "bye", NULL);
	if (!has_text(b, "key", "new")) {
		assert_true(has_text(b, "key", "old"));
		assert_true(has_text(b, "bye", "x"));
	}
	assert_int_equal(info.revision, before + changes);
	if (finished)
		assert_int_equal(changes, 2);
	assert_int_not_equal(access(path(b, "store.new"), F_OK), 0);
}

static void crash_everywhere(struct bench *b, enum fault_kind kind)
{
	bool finished = false;
	long n;

	for (n = 1; !finished; n++) {
		struct store_file_info info;
		int code;

		empty_dir(b);
		must_open(b);
		put(&b->contract, "key", 0, "old");
		put(&b->contract, "bye", 0, "x");
		store_file_info(b->contract.store, &info);
		close_store(b);

		code = crash(b, kind, n);
		assert_true(code == 0 || code == FAULT_EXIT_CODE);
		finished = code == 0;
		check_crashed(b, info.revision, finished);
	}
	assert_true(n > 20);
}

static void test_crashes(void **state)
{
	crash_everywhere(*state, FAULT_EXIT_BEFORE);
	crash_everywhere(*state, FAULT_EXIT_AFTER);
}

static void test_power_cuts(void **state)
{
	crash_everywhere(*state, FAULT_POWER_BEFORE);
	crash_everywhere(*state, FAULT_POWER_AFTER);
}

/* The first start crashes at every step; the next one always works, and sees an empty store. */
static void test_first_crashes(void **state)
{
	struct bench *b = *state;

	for (int kind = FAULT_EXIT_BEFORE; kind <= FAULT_POWER_AFTER; kind++) {
		int code = FAULT_EXIT_CODE;

		for (long n = 1; code == FAULT_EXIT_CODE; n++) {
			empty_dir(b);
			code = crash(b, (enum fault_kind)kind, n);
			assert_true(code == 0 || code == FAULT_EXIT_CODE);
			must_open(b);
			assert_true(has_text(b, "key", NULL) || has_text(b, "key", "new"));
		}
	}
}

#define OWN(title, fn) STORY(title, fn, setup_open, teardown)
#define OWN_CLOSED(title, fn) STORY(title, fn, setup_dir, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_CONTRACT_TESTS(setup_open, teardown),
		OWN_CLOSED("a first start makes directory, store and mark for the owner only",
			   test_first_start),
		OWN("a second daemon is refused and told the pid of the first", test_second_daemon),
		OWN("a directory or store that others may write is refused", test_writable_dir),
		OWN("a directory or store of another user is refused", test_foreign_owner),
		OWN("symbolic links are refused", test_symlinks),
		OWN("a pipe or a directory in the store's place is refused", test_no_file),
		OWN_CLOSED("a missing parent directory is named", test_no_parent),
		OWN("a missing store is told apart from a first start", test_missing),
		OWN("the store of another directory is told apart", test_swapped),
		OWN("what a crash left half-written is removed", test_leftover),
		OWN("a file cut at any length is refused and left alone", test_truncated),
		OWN("foreign and newer files are told apart and left alone", test_foreign),
		OWN("every single flipped bit is found", test_bit_flips),
		OWN("nonsense with a right checksum is refused", test_malformed),
		OWN_CLOSED("a table that grows too large is refused", test_limits),
		OWN_CLOSED("the checksum is CRC-32C", test_crc),
		OWN_CLOSED("an error at any step of a cas changes nothing, in memory or on disk",
			   test_cas_faults),
		OWN_CLOSED("an error at any step of opening is told, and the next opening works",
			   test_open_faults),
		OWN_CLOSED("a crash at any step leaves the old or the new state", test_crashes),
		OWN_CLOSED("a power cut at any step does too, and loses nothing acknowledged",
			   test_power_cuts),
		OWN_CLOSED("a first start may crash or lose power at any step", test_first_crashes),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
