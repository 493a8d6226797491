/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tables of the ledger: what they refuse, what they give back, and what a death leaves of them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rig.h"
#include "../../daemon/fault.h"

#define SESSION 42
#define TABLE(name, title) { title, name, set_up, tear_down, NULL }

struct record {
	uint32_t used, fill[15];
};

static const struct table_spec spec = { sizeof(struct record), 5000 };

static char dir[128];
static int dirfd_;
static bool small;                       /* the directory is a tmpfs of 256 KiB */

static int set_up(void **state)
{
	(void)state;
	rig_dir(dir, sizeof dir, "256k");
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd_ < 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(dirfd_);
	rig_dir_done(dir);
	return 0;
}

static int reopen(struct table *t)
{
	return table_open(t, dirfd_, "t", &spec, SESSION, false);
}

static void make(struct table *t)
{
	assert_int_equal(table_open(t, dirfd_, "t", &spec, SESSION, true), 0);
}

static uint32_t add(struct table *t)
{
	struct record *r;
	uint32_t i;

	if (table_take(t, &i) < 0)
		return 0;
	r = table_at(t, i);
	for (int k = 0; k < 15; k++)
		r->fill[k] = i;
	table_commit(t, i, 1);
	return i;
}

static bool whole(const struct table *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; (i = table_next(t, i)); n++) {
		const struct record *r = table_at(t, i);

		for (int k = 0; k < 15; k++)
			if (r->fill[k] != i)
				return false;
	}
	return n == t->n;
}

static long blocks(void)
{
	struct stat st;

	assert_int_equal(fstatat(dirfd_, "t", &st, 0), 0);
	return st.st_blocks;
}

static void keeps(void **state)
{
	struct table t;

	(void)state;
	make(&t);
	for (uint32_t i = 1; i < 1500; i++)
		assert_int_equal(add(&t), i);
	table_drop(&t, 7);
	table_drop(&t, 1200);
	table_close(&t);
	assert_int_equal(reopen(&t), 0);
	assert_int_equal(t.n, 1497);
	assert_true(whole(&t));
	assert_false(table_in_use(&t, 7));
	assert_false(table_in_use(&t, 0));
	assert_false(table_in_use(&t, 5000));
	assert_int_equal(add(&t), 7);
	assert_int_equal(add(&t), 1200);
	assert_int_equal(add(&t), 1500);
	table_close(&t);
}

static void uncommitted(void **state)
{
	struct table t;
	uint32_t i;

	(void)state;
	make(&t);
	assert_int_equal(table_take(&t, &i), 0);
	memset((char *)table_at(&t, i) + 4, 0xff, sizeof(struct record) - 4);
	table_close(&t);
	assert_int_equal(reopen(&t), 0);
	assert_int_equal(t.n, 0);
	assert_int_equal(table_take(&t, &i), 0);
	for (unsigned k = 0; k < sizeof(struct record); k++)
		assert_int_equal(((char *)table_at(&t, i))[k], 0);
	table_close(&t);
}

static void to_the_last(void **state)
{
	static const struct table_spec odd = { 96, 1024 };       /* the last chunk is not a whole one */
	struct stat before, after;
	struct table t;
	uint32_t i, n = 0;

	(void)state;
	assert_int_equal(table_open(&t, dirfd_, "t", &odd, SESSION, true), 0);
	assert_int_equal(fstat(t.fd, &before), 0);
	while (table_take(&t, &i) == 0) {
		table_commit(&t, i, 1);
		n++;
	}
	assert_int_equal(n, 1023);
	assert_int_equal(fstat(t.fd, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	table_close(&t);
	assert_int_equal(table_open(&t, dirfd_, "t", &odd, SESSION, false), 0);
	assert_int_equal(t.n, 1023);
	table_close(&t);
}

static void gives_back(void **state)
{
	struct table t;
	long before;

	(void)state;
	make(&t);
	add(&t);
	before = blocks();
	for (uint32_t i = 2; i < 3000; i++)
		add(&t);
	assert_true(blocks() > before + 200);
	for (uint32_t i = 0; (i = table_next(&t, i));)
		if (i > 1)
			table_drop(&t, i);
	assert_int_equal(blocks(), before);
	assert_true(whole(&t));
	table_close(&t);
}

/* Records that do not fill their pages evenly leave none behind, in whatever order they go. */
static void gives_back_odd(void **state)
{
	static const struct table_spec odd = { 24, 12000 };
	struct table t;
	uint32_t i;
	long before;

	(void)state;
	for (uint32_t order = 0; order < 3; order++) {
		assert_int_equal(table_open(&t, dirfd_, "t", &odd, SESSION, true), 0);
		assert_int_equal(table_take(&t, &i), 0);
		table_commit(&t, i, 1);
		before = blocks();
		while (t.n < 8000) {
			assert_int_equal(table_take(&t, &i), 0);
			table_commit(&t, i, 1);
		}
		for (uint32_t k = 1; k < 8000; k++)
			table_drop(&t, order == 0 ? k + 1 : order == 1 ? 8001 - k : 2 + k * 3001 % 7999);
		assert_int_equal(t.n, 1);
		assert_true(blocks() <= before + 8);
		table_close(&t);
	}
}

static void full(void **state)
{
	struct table t;
	uint32_t i, n = 0;

	(void)state;
	if (!small)
		skip();
	make(&t);
	while (add(&t))
		n++;
	assert_true(n > 1000 && n < 4999);
	assert_int_equal(table_take(&t, &i), -ENOSPC);
	assert_int_equal(t.n, n);
	assert_true(whole(&t));          /* and every byte of it can be touched */
	table_drop(&t, n);
	assert_int_equal(add(&t), n);
	table_close(&t);
	assert_int_equal(reopen(&t), 0);
	assert_int_equal(t.n, n);
	table_close(&t);
}

static void copy_file(const char *from, const char *to)
{
	char buf[65536];
	int a = openat(dirfd_, from, O_RDONLY | O_CLOEXEC);
	int b = openat(dirfd_, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct stat st;
	ssize_t n;

	assert_true(a >= 0 && b >= 0 && fstat(a, &st) == 0);
	for (int i = 0; i < 2 && (n = read(a, buf, 4096)) > 0; i++)
		assert_int_equal(write(b, buf, (size_t)n), n);
	assert_int_equal(ftruncate(b, st.st_size), 0);
	close(a);
	close(b);
}

static void refused(void **state)
{
	static const struct table_spec longer = { 128, 2500 };
	struct table t;
	int fd;

	(void)state;
	assert_int_equal(reopen(&t), -ENOENT);
	make(&t);
	add(&t);
	table_close(&t);
	assert_int_equal(table_open(&t, dirfd_, "t", &spec, SESSION + 1, false), -ESTALE);
	assert_int_equal(table_open(&t, dirfd_, "t", &longer, SESSION, false), -ESTALE);
	copy_file("t", "copy");
	assert_int_equal(renameat(dirfd_, "copy", dirfd_, "t"), 0);
	assert_int_equal(reopen(&t), -ESTALE);
	make(&t);
	table_close(&t);
	fd = openat(dirfd_, "t", O_RDWR | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(reopen(&t), -ESTALE);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(reopen(&t), -ESTALE);
	close(fd);
	assert_int_equal(unlinkat(dirfd_, "t", 0), 0);
	assert_int_equal(symlinkat("u", dirfd_, "t"), 0);
	assert_int_equal(reopen(&t), -ELOOP);
	make(&t);                        /* replaces the link, and does not follow it */
	table_close(&t);
	assert_int_equal(faccessat(dirfd_, "u", F_OK, 0), -1);
}

static void life(struct table *t)
{
	uint32_t a = add(t), b = add(t), c = add(t);

	table_drop(t, b);
	b = add(t);
	table_drop(t, a);
	table_drop(t, c);
	add(t);
}

static void killed(void **state)
{
	int status = 1, n;

	(void)state;
	for (n = 1; status; n++) {
		struct table t;
		pid_t pid;

		make(&t);
		for (int i = 0; i < 5; i++)
			add(&t);
		pid = fork();
		if (pid == 0) {
			fault_arm(n);
			life(&t);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		table_close(&t);
		assert_int_equal(reopen(&t), 0);
		assert_true(whole(&t));
		assert_true(t.n >= 5 && t.n <= 8);
		life(&t);
		assert_true(whole(&t));
		table_close(&t);
	}
	assert_int_equal(n, 18);         /* 8 stores, a place before and one behind each; and one life without */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TABLE(keeps, "what was committed is there after a restart, and what was dropped is free"),
		TABLE(uncommitted, "what was not committed was never there, and the next taker finds zeroes"),
		TABLE(to_the_last, "the last record fits, and the file keeps its size"),
		TABLE(gives_back, "chunks without records give their blocks back"),
		TABLE(gives_back_odd, "records of odd sizes give all their blocks back"),
		TABLE(full, "a full file system is ENOSPC, and everything there stays whole"),
		TABLE(refused, "another session, another shape, a copy, a torn file and a link are refused"),
		TABLE(killed, "killed at any store it leaves whole records only"),
	};

	small = rig_private();
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
