/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "table.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fault.h"
#include "files.h"

#define TABLE_MAGIC UINT64_C(0x31454c4241544c44)        /* "DLTABLE1" */
#define TABLE_HEAD 4096

struct table_head {
	uint64_t magic, session, inode;
	uint32_t record, max;
};

static size_t table_size(const struct table *t)
{
	return TABLE_HEAD + (size_t)t->record * t->max;
}

static struct table_head *table_head(const struct table *t)
{
	return (struct table_head *)t->base;
}

static int table_map(struct table *t)
{
	void *p = mmap(NULL, table_size(t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, t->fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	t->base = p;
	return 0;
}

static int table_make(struct table *t, int dirfd, const char *name, uint64_t session)
{
	struct stat st;
	int r;

	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	t->fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (t->fd < 0 || fstat(t->fd, &st) < 0 || ftruncate(t->fd, (off_t)table_size(t)) < 0)
		return -errno;
	r = files_room(t->fd, 0, TABLE_HEAD);
	if (r == 0)
		r = table_map(t);
	if (r < 0)
		return r;
	*table_head(t) = (struct table_head){ 0, session, st.st_ino, t->record, t->max };
	__atomic_store_n(&table_head(t)->magic, TABLE_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

static int table_load(struct table *t, int dirfd, const char *name, uint64_t session)
{
	const struct table_head *h;
	struct stat st;
	int r;

	t->fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (t->fd < 0 || fstat(t->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (size_t)st.st_size != table_size(t))
		return -ESTALE;
	r = table_map(t);
	if (r < 0)
		return r;
	h = table_head(t);
	if (h->magic != TABLE_MAGIC || h->session != session || h->inode != st.st_ino ||
	    h->record != t->record || h->max != t->max)
		return -ESTALE;
	return 0;
}

static void table_mark(struct table *t, uint32_t index)
{
	t->used[index / 64] |= UINT64_C(1) << (index % 64);
	t->chunk_n[index / t->chunk]++;
	t->n++;
}

/* Marks what is in use, looking only where the file has been allocated. */
static int table_scan(struct table *t)
{
	off_t at = TABLE_HEAD, end;

	while ((at = lseek(t->fd, at, SEEK_DATA)) >= 0) {
		end = lseek(t->fd, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		if (at < TABLE_HEAD)
			at = TABLE_HEAD;
		for (uint32_t i = (uint32_t)((at - TABLE_HEAD) / t->record);
		     i < t->max && TABLE_HEAD + (off_t)i * t->record < end; i++)
			if (i && *(uint32_t *)table_at(t, i) && !table_in_use(t, i))
				table_mark(t, i);
		at = end;
	}
	return errno == ENXIO ? 0 : -errno;
}

int table_open(struct table *t, int dirfd, const char *name, const struct table_spec *spec,
	       uint64_t session, bool fresh)
{
	int r = -ENOMEM;

	*t = (struct table){ .fd = -1, .record = spec->record, .max = spec->max,
			     .chunk = 65536 / spec->record, .hint = 1 };
	t->used = calloc(t->max / 64 + 1, sizeof *t->used);
	t->chunk_n = calloc(t->max / t->chunk + 1, sizeof *t->chunk_n);
	if (t->used && t->chunk_n)
		r = fresh ? table_make(t, dirfd, name, session) : table_load(t, dirfd, name, session);
	if (r == 0 && !fresh)
		r = table_scan(t);
	if (r < 0)
		table_close(t);
	return r;
}

void table_close(struct table *t)
{
	if (t->base)
		munmap(t->base, table_size(t));
	if (t->fd >= 0)
		close(t->fd);
	free(t->used);
	free(t->chunk_n);
	*t = (struct table){ .fd = -1 };
}

static off_t table_off(const struct table *t, uint32_t index)
{
	return TABLE_HEAD + (off_t)(index < t->max ? index : t->max) * t->record;
}

static int chunk_allocate(const struct table *t, uint32_t chunk)
{
	off_t at = table_off(t, chunk * t->chunk), end = table_off(t, (chunk + 1) * t->chunk);

	return files_room(t->fd, at, end - at);
}

static bool chunk_is_empty(const struct table *t, uint32_t chunk)
{
	return chunk * t->chunk >= t->max || !t->chunk_n[chunk];
}

/* The pages that it shares with its neighbours go when these are empty too. */
static void chunk_give_back(const struct table *t, uint32_t chunk)
{
	off_t at = table_off(t, chunk * t->chunk), end = table_off(t, (chunk + 1) * t->chunk);

	if (chunk_is_empty(t, chunk - 1))
		at &= ~(off_t)4095;
	if (chunk_is_empty(t, chunk + 1))
		end = (end + 4095) & ~(off_t)4095;
	fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, end - at);
}

int table_take(struct table *t, uint32_t *ret_index)
{
	uint32_t i = t->hint;
	int r;

	while (i < t->max && table_in_use(t, i))
		i = i % 64 == 0 && t->used[i / 64] == UINT64_MAX ? i + 64 : i + 1;
	if (i >= t->max)
		return -ENOSPC;
	r = t->chunk_n[i / t->chunk] || (i < t->chunk && t->begun) ? 0 : chunk_allocate(t, i / t->chunk);
	if (r < 0)
		return r;
	t->begun |= i < t->chunk;
	memset(table_at(t, i), 0, t->record);
	table_mark(t, i);
	t->hint = i + 1;
	*ret_index = i;
	return 0;
}

void table_commit(struct table *t, uint32_t index, uint32_t first_word)
{
	assert(first_word && table_in_use(t, index));
	FAULT_AROUND(__atomic_store_n((uint32_t *)table_at(t, index), first_word, __ATOMIC_RELEASE));
}

void table_drop(struct table *t, uint32_t index)
{
	uint32_t chunk = index / t->chunk;

	assert(table_in_use(t, index));
	FAULT_AROUND(__atomic_store_n((uint32_t *)table_at(t, index), 0, __ATOMIC_RELEASE));
	t->used[index / 64] &= ~(UINT64_C(1) << (index % 64));
	t->n--;
	if (index < t->hint)
		t->hint = index;
	/* The first chunk stays: a table that goes between none and one would punch each time. */
	if (--t->chunk_n[chunk] == 0 && chunk > 0)
		chunk_give_back(t, chunk);
}

uint32_t table_next(const struct table *t, uint32_t index)
{
	for (uint32_t i = index + 1; i < t->max;) {
		uint64_t bits = t->used[i / 64] >> (i % 64);

		if (bits) {
			i += (uint32_t)__builtin_ctzll(bits);
			return i < t->max ? i : 0;
		}
		i = (i / 64 + 1) * 64;
	}
	return 0;
}
