/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "id_kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/bytes.h"
#include "../store/crc32c.h"
#include "id_record.h"
#include "proto/small.h"

#define MAGIC "dlockids"
#define LAYOUT 1u
#define TEMP KEPT_NAME ".new"
#define HEAD_BYTES (8 + 4 + 4 + 16 + 16 + 8 + 8 + 8 + 8 + 4)
#define ONE_BYTES (2 + 2 + 8 + 8 + 8)
#define FILE_MAX (HEAD_BYTES + KEPT_MAX * (ONE_BYTES + STORE_KEY_MAX) + 4)

const char *kept_text(enum kept_find f)
{
	switch (f) {
#define X(name, text)                                                                                  \
	case KEPT_##name:                                                                              \
		return text;
		KEPT_FINDS(X)
#undef X
	}
	return "?";
}

/* Which file this is: a name can be given again, a number too, but not both of one moment. */
struct self {
	uint64_t ino, made_s;
	uint32_t made_ns;
};

static int self_of(int fd, struct self *ret)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	if (!(st.stx_mask & STATX_BTIME))
		return -EOPNOTSUPP;
	*ret = (struct self){ st.stx_ino, (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec };
	return 0;
}

/* --- bytes --- */

static size_t encode(const struct kept_place *here, const struct self *self, const struct id_kept *v, uint32_t n, uint8_t *ret)
{
	uint8_t *at = ret;

	memcpy(at, MAGIC, 8);
	le_store(at + 8, 4, LAYOUT);
	le_store(at + 12, 4, n);
	memcpy(at + 16, here->node, 16);
	memcpy(at + 32, here->machine, 16);
	le_store(at + 48, 8, here->cluster);
	le_store(at + 56, 8, here->dir_ino);
	le_store(at + 64, 8, self->ino);
	le_store(at + 72, 8, self->made_s);
	le_store(at + 80, 4, self->made_ns);
	at += HEAD_BYTES;
	for (uint32_t i = 0; i < n; i++) {
		size_t len = strlen(v[i].key);

		le_store(at, 2, len);
		le_store(at + 2, 2, v[i].worker);
		le_store(at + 4, 8, v[i].session);
		le_store(at + 12, 8, v[i].ceiling);
		le_store(at + 20, 8, v[i].next);
		memcpy(at + ONE_BYTES, v[i].key, len);
		at += ONE_BYTES + len;
	}
	le_store(at, 4, crc32c(0, ret, (size_t)(at - ret)));
	return (size_t)(at - ret) + 4;
}

/* The place and the file itself. */
static enum kept_find check_place(const uint8_t *b, const struct kept_place *here, const struct self *self)
{
	if (memcmp(b + 16, here->node, 16) || memcmp(b + 32, here->machine, 16) || le_load(b + 48, 8) != here->cluster ||
	    le_load(b + 56, 8) != here->dir_ino)
		return KEPT_ELSEWHERE;
	if (le_load(b + 64, 8) != self->ino || le_load(b + 72, 8) != self->made_s || le_load(b + 80, 4) != self->made_ns)
		return KEPT_COPY;
	return KEPT_GOOD;
}

static bool decode_one(const uint8_t **at, const uint8_t *end, struct id_kept *ret)
{
	const uint8_t *b = *at;
	size_t len;

	if (end - b < ONE_BYTES)
		return false;
	len = le_load(b, 2);
	*ret = (struct id_kept){ .worker = (uint32_t)le_load(b + 2, 2), .session = le_load(b + 4, 8), .ceiling = le_load(b + 12, 8),
				 .next = le_load(b + 20, 8) };
	if (!len || len > STORE_KEY_MAX || (size_t)(end - b) < ONE_BYTES + len || ret->worker >= ID_WORKERS || !ret->session ||
	    ret->ceiling > ID_MS_MAX || ret->next > ID_MS_MAX || memchr(b + ONE_BYTES, 0, len))
		return false;
	memcpy(ret->key, b + ONE_BYTES, len);
	*at = b + ONE_BYTES + len;
	return true;
}

static enum kept_find decode(const uint8_t *b, size_t size, const struct kept_place *here, const struct self *self, struct id_kept **ret,
			     uint32_t *ret_n)
{
	const uint8_t *at = b + HEAD_BYTES, *end = b + size - 4;
	enum kept_find f;
	uint32_t n;

	if (size < HEAD_BYTES + 4)
		return KEPT_SHORT;
	if (memcmp(b, MAGIC, 8) || le_load(b + 8, 4) != LAYOUT)
		return KEPT_FOREIGN;
	if (le_load(end, 4) != crc32c(0, b, size - 4))
		return KEPT_TORN;
	f = check_place(b, here, self);
	if (f != KEPT_GOOD)
		return f;
	n = (uint32_t)le_load(b + 12, 4);
	if (n > KEPT_MAX)
		return KEPT_FOREIGN;
	*ret = n ? calloc(n, sizeof **ret) : NULL;
	for (uint32_t i = 0; *ret && i < n; i++) {
		if (!decode_one(&at, end, &(*ret)[i])) {
			free(*ret);
			*ret = NULL;
			return KEPT_FOREIGN;
		}
	}
	*ret_n = *ret ? n : 0;
	return KEPT_GOOD;
}

/* --- the file --- */

static int read_all(int fd, const struct store_file_io *io, uint8_t *b, size_t max, size_t *ret)
{
	size_t got = 0;

	while (got < max) {
		ssize_t n = io->read(fd, b + got, max - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		got += (size_t)n;
	}
	*ret = got;
	return 0;
}

enum kept_find kept_load(int dir, const struct store_file_io *io, const struct kept_place *here, struct id_kept **ret, uint32_t *ret_n,
			 int *error)
{
	int fd = io->openat(dir, KEPT_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0), r;
	enum kept_find f = KEPT_UNREADABLE;
	struct self self;
	size_t n = 0;
	uint8_t *b;

	*ret = NULL;
	*ret_n = 0;
	*error = fd < 0 ? -errno : 0;
	if (fd < 0)
		return *error == -ENOENT ? KEPT_NONE : KEPT_UNREADABLE;
	b = malloc(FILE_MAX + 1);
	r = b ? self_of(fd, &self) : -ENOMEM;
	if (r == 0)
		r = read_all(fd, io, b, FILE_MAX + 1, &n);
	/* It is what will be there after a power cut, too, before anything is built on it. */
	if (r == 0 && io->fsync(fd) < 0)
		r = -errno;
	if (r == 0 && io->fsync(dir) < 0)
		r = -errno;
	if (r == 0)
		f = n > FILE_MAX ? KEPT_FOREIGN : decode(b, n, here, &self, ret, ret_n);
	*error = r;
	free(b);
	close(fd);
	return f;
}

static int write_all(int fd, const struct store_file_io *io, const uint8_t *b, size_t n)
{
	while (n) {
		ssize_t w = io->write(fd, b, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		b += w;
		n -= (size_t)w;
	}
	return 0;
}

static int temp_write(int dir, const struct store_file_io *io, const struct kept_place *here, const struct id_kept *v, uint32_t n)
{
	struct self self;
	uint8_t *b;
	int fd, r;

	if (io->unlinkat(dir, TEMP, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = io->openat(dir, TEMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	b = malloc(FILE_MAX);
	r = b ? self_of(fd, &self) : -ENOMEM;
	if (r == 0)
		r = write_all(fd, io, b, encode(here, &self, v, n, b));
	if (r == 0 && io->fsync(fd) < 0)
		r = -errno;
	free(b);
	close(fd);
	return r;
}

int kept_remove(int dir, const struct store_file_io *io)
{
	if (io->unlinkat(dir, KEPT_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	return io->fsync(dir) < 0 ? -errno : 0;
}

/* The disk is full, say: an old file stands in the way of all that comes after what it says; none does not. */
static enum kept_end gave_up(int dir, const struct store_file_io *io)
{
	io->unlinkat(dir, TEMP, 0);
	return kept_remove(dir, io) == 0 ? KEPT_GONE : KEPT_OLD;
}

enum kept_end kept_save(int dir, const struct store_file_io *io, const struct kept_place *here, const struct id_kept *v, uint32_t n,
			int *error)
{
	int r = n > KEPT_MAX ? -E2BIG : temp_write(dir, io, here, v, n);

	*error = r;
	if (r < 0)
		return gave_up(dir, io);
	if (io->renameat(dir, TEMP, dir, KEPT_NAME) < 0) {
		*error = -errno;
		return errno == EIO ? KEPT_DOUBT : gave_up(dir, io);
	}
	if (io->fsync(dir) < 0) {
		*error = -errno;
		return KEPT_DOUBT;
	}
	return KEPT_SAVED;
}
