/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The embedded store: the contract of all engines, then what is its own: its directory and
 * its file. (What a bad disk does to it: test_store_disk.c.)
 */
#include "store_bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/crc32c.h"
#include "store/file_format.h"

/* The refusal, and that its sentence names this file. */
static void must_refuse(struct bench *b, int error, const char *name)
{
	assert_int_equal(bench_try_open(b, NULL), error);
	assert_null(b->contract.store);
	assert_non_null(strstr(b->why.text, name));
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

	bench_must_open(b);
	assert_int_equal(mode_of(b->dir), 0700);
	assert_int_equal(mode_of(bench_path(b, "store")), 0600);
	assert_int_equal(mode_of(bench_path(b, "store.id")), 0600);
	assert_int_equal(mode_of(bench_path(b, "lock")), 0600);
	assert_int_not_equal(access(bench_path(b, "store.new"), F_OK), 0);

	store_file_info(b->contract.store, &info);
	bench_read(bench_path(b, "store.id"), id, sizeof id - 1);
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
	bench_reopen(&b->contract);
}

static void test_writable_dir(void **state)
{
	struct bench *b = *state;
	static const mode_t modes[] = { 0777, 01777, 0770, 0702 };

	bench_close(b);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		assert_int_equal(chmod(b->dir, modes[i]), 0);
		must_refuse(b, STORE_FILE_EPERM, "chmod");
	}
	assert_int_equal(chmod(b->dir, 0755), 0);
	bench_must_open(b);
	bench_close(b);
	assert_int_equal(chmod(bench_path(b, "store"), 0666), 0);
	must_refuse(b, STORE_FILE_EPERM, "/store");
}

static void test_foreign_owner(void **state)
{
	struct bench *b = *state;

	if (geteuid() != 0)
		skip();
	bench_close(b);
	assert_int_equal(chown(bench_path(b, "store"), 12345, 0), 0);
	must_refuse(b, STORE_FILE_EPERM, "12345");
	assert_int_equal(chown(bench_path(b, "store"), 0, 0), 0);
	assert_int_equal(chown(b->dir, 12345, 0), 0);
	must_refuse(b, STORE_FILE_EPERM, "12345");
}

static void test_symlinks(void **state)
{
	struct bench *b = *state;
	char elsewhere[100];

	bench_close(b);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", b->base);
	assert_int_equal(rename(bench_path(b, "store"), elsewhere), 0);
	assert_int_equal(symlink(elsewhere, bench_path(b, "store")), 0);
	must_refuse(b, STORE_FILE_ELOOP, "/store");
	assert_int_equal(unlink(bench_path(b, "store")), 0);
	assert_int_equal(rename(elsewhere, bench_path(b, "store")), 0);

	assert_int_equal(rename(b->dir, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, b->dir), 0);
	must_refuse(b, STORE_FILE_ELOOP, "symbolic link");
	assert_int_equal(unlink(b->dir), 0);
}

static void test_no_file(void **state)
{
	struct bench *b = *state;

	bench_close(b);
	assert_int_equal(unlink(bench_path(b, "store")), 0);
	assert_int_equal(mkfifo(bench_path(b, "store"), 0600), 0);
	must_refuse(b, STORE_FILE_EFOREIGN, "/store");
	assert_int_equal(unlink(bench_path(b, "store")), 0);
	assert_int_equal(mkdir(bench_path(b, "store"), 0700), 0);
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
	bench_close(b);
	assert_int_equal(unlink(bench_path(b, "store")), 0);
	must_refuse(b, STORE_FILE_EMISSING, "store.id is there");

	assert_int_equal(unlink(bench_path(b, "store.id")), 0);
	bench_write(bench_path(b, "identity"), "x", 1);
	must_refuse(b, STORE_FILE_EMISSING, "identity is there");
	assert_int_not_equal(access(bench_path(b, "store"), F_OK), 0);

	assert_int_equal(unlink(bench_path(b, "identity")), 0);
	bench_must_open(b);
	expect_text(&b->contract, "key", NULL);
}

static void test_swapped(void **state)
{
	struct bench *b = *state;
	struct store_file_info before, after;

	bench_close(b);
	assert_int_equal(unlink(bench_path(b, "store.id")), 0);
	bench_must_open(b);	/* a mark is made for the store that is there */
	store_file_info(b->contract.store, &before);
	bench_close(b);

	assert_int_equal(rename(bench_path(b, "store"), bench_path(b, "aside")), 0);
	assert_int_equal(rename(bench_path(b, "store.id"), bench_path(b, "aside.id")), 0);
	bench_must_open(b);
	bench_close(b);
	assert_int_equal(rename(bench_path(b, "aside"), bench_path(b, "store")), 0);
	must_refuse(b, STORE_FILE_ESWAPPED, before.uuid);

	assert_int_equal(rename(bench_path(b, "aside.id"), bench_path(b, "store.id")), 0);
	bench_must_open(b);
	store_file_info(b->contract.store, &after);
	assert_string_equal(before.uuid, after.uuid);
}

static void test_leftover(void **state)
{
	struct bench *b = *state;

	put(&b->contract, "key", 0, "value");
	bench_close(b);
	bench_write(bench_path(b, "store.new"), "half a st", 9);
	bench_write(bench_path(b, "store.id.new"), "", 0);
	bench_must_open(b);
	expect_text(&b->contract, "key", "value");
	assert_int_not_equal(access(bench_path(b, "store.new"), F_OK), 0);
	assert_int_not_equal(access(bench_path(b, "store.id.new"), F_OK), 0);
}

/* Opening this file gives this error, and leaves it byte for byte as it was. */
static void must_refuse_bytes(struct bench *b, const uint8_t *data, size_t size, int error)
{
	static uint8_t again[4096];

	bench_write(bench_path(b, "store"), data, size);
	must_refuse(b, error, "/store");
	assert_int_equal(bench_read(bench_path(b, "store"), again, sizeof again), size);
	if (size)
		assert_memory_equal(again, data, size);
}

static size_t make_sample(struct bench *b, uint8_t *ret, size_t size)
{
	put(&b->contract, "alpha", 0, "1");
	put(&b->contract, "beta", 0, "two");
	bench_close(b);
	return bench_read(bench_path(b, "store"), ret, size);
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

#define OWN(title, fn) STORY(title, fn, bench_setup_open, bench_teardown)
#define OWN_CLOSED(title, fn) STORY(title, fn, bench_setup, bench_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_CONTRACT_TESTS(bench_setup_open, bench_teardown),
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
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
