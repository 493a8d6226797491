/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Setting up and taking down; a failure here fails the test that asked.
 */
#include "store_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *bench_path(const struct bench *b, const char *name)
{
	static char text[4][160];
	static unsigned turn;
	char *ret = text[turn++ % 4];

	snprintf(ret, sizeof text[0], "%s/%s", b->dir, name);
	return ret;
}

int bench_try_open(struct bench *b, const struct store_file_io *io)
{
	memset(&b->why, 0, sizeof b->why);
	b->contract.store = NULL;
	return store_file_open(b->dir, io, &b->contract.store, &b->why);
}

void bench_must_open(struct bench *b)
{
	int r = bench_try_open(b, NULL);

	if (r < 0)
		print_message("# %s\n", b->why.text);
	assert_int_equal(r, 0);
}

void bench_close(struct bench *b)
{
	store_close(b->contract.store);
	b->contract.store = NULL;
}

void bench_reopen(struct store_contract *c)
{
	struct bench *b = (struct bench *)c;

	bench_close(b);
	bench_must_open(b);
}

int bench_setup(void **state)
{
	struct bench *b = calloc(1, sizeof *b);
	const char *tmp = getenv("TMPDIR");

	if (!b)
		return -1;
	snprintf(b->base, sizeof b->base, "%.40s/dlock-store-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(b->base))
		return -1;
	snprintf(b->dir, sizeof b->dir, "%s/state", b->base);
	b->contract.reopen = bench_reopen;
	*state = b;
	return 0;
}

int bench_setup_open(void **state)
{
	int r = bench_setup(state);

	return r < 0 ? r : bench_try_open(*state, NULL);
}

int bench_teardown(void **state)
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

void bench_write(const char *name, const void *data, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

size_t bench_read(const char *name, void *buf, size_t size)
{
	int fd = open(name, O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, buf, size);
	assert_true(n >= 0);
	close(fd);
	return (size_t)n;
}
