/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A directory of its own for each test of the embedded store, with a store in it or not yet.
 */
#pragma once

#include "store_contract.h"

#include "store/file.h"

struct bench {
	struct store_contract contract;
	char base[64];		/* made by mkdtemp */
	char dir[80];		/* of the store */
	struct store_why why;
};

/* For tests that begin with no directory; with an open, empty store. */
int bench_setup(void **state);
int bench_setup_open(void **state);
int bench_teardown(void **state);

/* Of a file in the store's directory. Four paths may be in use at a time. */
char *bench_path(const struct bench *b, const char *name);

int bench_try_open(struct bench *b, const struct store_file_io *io);
void bench_must_open(struct bench *b);
void bench_close(struct bench *b);
void bench_reopen(struct store_contract *c);

void bench_write(const char *name, const void *data, size_t size);
size_t bench_read(const char *name, void *buf, size_t size);
