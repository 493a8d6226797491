/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fence_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A chain is as long as names there are in a bucket; one that is longer goes in a circle. */
#define CHAIN_MAX 100000

static struct fence_header *header_of(const struct fence_file *f)
{
	return (struct fence_header *)f->map;
}

static uint64_t *bucket_of(const struct fence_file *f, uint64_t hash)
{
	return (uint64_t *)(f->map + FENCE_BUCKETS_AT) + hash % FENCE_BUCKETS;
}

/* FNV-1a, with the file's seed; mixed, since the low bits choose the bucket. Files hold what it gives: it stays as it is. */
static uint64_t hash_of(uint64_t seed, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

/* --- Cells --- */

static uint64_t check_of(const struct fence_file *f, const struct fence_record *r, unsigned i, uint64_t token)
{
	uint64_t v[3] = { token, (uint64_t)((const uint8_t *)r - f->map), i };

	return hash_of(header_of(f)->seed, v, sizeof v);
}

static bool cell_valid(const struct fence_file *f, const struct fence_record *r, unsigned i)
{
	return r->cell[i].token && r->cell[i].check == check_of(f, r, i, r->cell[i].token);
}

/* The highest token that a cell has; 0: neither is whole. Under the lock. */
static uint64_t cells_highest(const struct fence_file *f, const struct fence_record *r)
{
	uint64_t a = cell_valid(f, r, 0) ? r->cell[0].token : 0, b = cell_valid(f, r, 1) ? r->cell[1].token : 0;

	return a > b ? a : b;
}

static void cells_raise(const struct fence_file *f, struct fence_record *r, uint64_t token)
{
	bool second = cell_valid(f, r, 0) && (!cell_valid(f, r, 1) || r->cell[1].token < r->cell[0].token);

	r->cell[second].token = token;
	r->cell[second].check = check_of(f, r, second, token);
}

/* --- The file --- */

/* The size that there is now, which others may have made larger. */
static int size_renew(struct fence_file *f)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > FENCE_SIZE_MAX)
		return -EBADMSG;
	__atomic_store_n(&f->size, (uint64_t)st.st_size, __ATOMIC_RELAXED);
	return 0;
}

static bool within(struct fence_file *f, uint64_t at, uint64_t n)
{
	if (at + n <= __atomic_load_n(&f->size, __ATOMIC_RELAXED))
		return true;
	return size_renew(f) == 0 && at + n <= __atomic_load_n(&f->size, __ATOMIC_RELAXED);
}

/* NULL with 0: there is none. */
static int record_find(struct fence_file *f, const char *key, size_t n, uint64_t hash, struct fence_record **ret)
{
	uint64_t at = __atomic_load_n(bucket_of(f, hash), __ATOMIC_ACQUIRE);

	*ret = NULL;
	for (unsigned i = 0; at; i++) {
		if (at < FENCE_RECORDS_AT || at % sizeof(struct fence_record) || i == CHAIN_MAX ||
		    at > FENCE_SIZE_MAX - sizeof(struct fence_record) - FENCE_KEY_MAX || !within(f, at, sizeof(struct fence_record)))
			return -EBADMSG;
		struct fence_record *r = (struct fence_record *)(f->map + at);
		if (r->key_len > FENCE_KEY_MAX || !within(f, at, sizeof *r + r->key_len))
			return -EBADMSG;
		if (r->hash == hash && r->key_len == n && !memcmp(r->key, key, n)) {
			*ret = r;
			return 0;
		}
		at = __atomic_load_n(&r->next, __ATOMIC_ACQUIRE);
	}
	return 0;
}

/* A signal that comes meanwhile is the program's affair. */
static int file_sync(const struct fence_file *f)
{
	while (fdatasync(f->fd) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int file_room(const struct fence_file *f, uint64_t size)
{
	int r;

	do {
		r = posix_fallocate(f->fd, 0, (off_t)size);
	} while (r == EINTR);
	return -r;
}

static int file_grow(struct fence_file *f, uint64_t end)
{
	uint64_t size = (end + FENCE_GROW - 1) / FENCE_GROW * FENCE_GROW;

	if (end <= f->size)
		return 0;
	if (size > FENCE_SIZE_MAX)
		return -EFBIG;
	int r = file_room(f, size);
	return r < 0 ? r : size_renew(f);
}

static int record_settle(const struct fence_file *f, struct fence_record *rec, uint64_t token)
{
	int r = file_sync(f);

	if (r == 0)
		__atomic_store_n(&rec->durable, token, __ATOMIC_RELEASE);
	return r;
}

/* First the record, then what leads to it. */
static int record_make(struct fence_file *f, const char *key, size_t n, uint64_t hash, uint64_t token)
{
	struct fence_header *h = header_of(f);
	uint64_t at = (h->end + sizeof(struct fence_record) - 1) / sizeof(struct fence_record) * sizeof(struct fence_record);
	uint64_t *bucket = bucket_of(f, hash);

	if (h->end < FENCE_RECORDS_AT || h->end > FENCE_SIZE_MAX)
		return -EBADMSG;
	int r = file_grow(f, at + sizeof(struct fence_record) + n);
	if (r < 0)
		return r;
	struct fence_record *rec = (struct fence_record *)(f->map + at);
	*rec = (struct fence_record){ .next = *bucket, .hash = hash, .key_len = (uint32_t)n };
	memcpy(rec->key, key, n);
	cells_raise(f, rec, token);
	h->end = at + sizeof *rec + n;
	r = file_sync(f);
	if (r < 0)
		return r;
	__atomic_store_n(bucket, at, __ATOMIC_RELEASE);
	return record_settle(f, rec, token);
}

static void touch(uint64_t *word)
{
	*(volatile uint64_t *)word = *(volatile uint64_t *)word;
}

/*
 * The highest cell is not known to be on the disk: its writer died before the sync, or the disk failed, after which the kernel
 * takes the pages for clean. It has to be there before the other one, which is, may be overwritten. All that
 * leads to it is written again.
 */
static int record_repair(const struct fence_file *f, struct fence_record *rec, uint64_t highest)
{
	touch(bucket_of(f, rec->hash));
	touch(&rec->cell[0].check);
	return record_settle(f, rec, highest);
}

static int record_raise(const struct fence_file *f, struct fence_record *rec, uint64_t token)
{
	uint64_t highest = cells_highest(f, rec);

	if (!highest)
		return -EBADMSG;
	if (token < highest)
		return -ESTALE;
	if (highest != rec->durable) {
		int r = record_repair(f, rec, highest);
		if (r < 0)
			return r;
	}
	if (token == highest)
		return 0;
	cells_raise(f, rec, token);
	return record_settle(f, rec, token);
}

/* An open file description of its own; *ret_fd is closed to unlock. */
static int file_lock(int fd, int *ret_fd)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	*ret_fd = open(path, O_RDWR | O_CLOEXEC);
	if (*ret_fd < 0)
		return -errno;
	while (flock(*ret_fd, LOCK_EX) < 0)
		if (errno != EINTR) {
			int r = -errno;

			close(*ret_fd);
			return r;
		}
	return 0;
}

static int admit_slowly(struct fence_file *f, const char *key, size_t n, uint64_t hash, uint64_t token)
{
	struct fence_record *rec;
	int lock, r = file_lock(f->fd, &lock);

	if (r < 0)
		return r;
	r = size_renew(f);
	if (r == 0)
		r = record_find(f, key, n, hash, &rec);
	if (r == 0)
		r = rec ? record_raise(f, rec, token) : record_make(f, key, n, hash, token);
	close(lock);
	return r;
}

/*
 * A cell is ahead of `durable`: somebody is about to raise it, or did and then the power failed, when the disk had the cell but
 * not yet what is stored after the sync.
 */
static bool raised_beyond(const struct fence_record *r, uint64_t token)
{
	return __atomic_load_n(&r->cell[0].token, __ATOMIC_RELAXED) > token || __atomic_load_n(&r->cell[1].token, __ATOMIC_RELAXED) > token;
}

int fence_file_admit(struct fence_file *f, const char *key, size_t n, uint64_t token)
{
	uint64_t hash = hash_of(header_of(f)->seed, key, n);
	struct fence_record *rec;
	int r = record_find(f, key, n, hash, &rec);

	if (r < 0)
		return r;
	if (rec) {
		uint64_t durable = __atomic_load_n(&rec->durable, __ATOMIC_ACQUIRE);

		if (token < durable)
			return -ESTALE;
		if (token == durable && !raised_beyond(rec, token))
			return 0;
	}
	return admit_slowly(f, key, n, hash, token);
}

/* --- Opening --- */

/* What two hosts map is not the same memory there. */
static bool of_the_network(int fd)
{
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return false;
	switch ((unsigned long)st.f_type) {
	case NFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
	case AFS_SUPER_MAGIC:
	case V9FS_MAGIC:
		return true;
	}
	return false;
}

static int directory_sync(const char *path)
{
	char copy[4096];

	if (strlen(path) >= sizeof copy)
		return -ENAMETOOLONG;
	strcpy(copy, path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return r;
}

static bool all_zero(const uint8_t *p, uint64_t n)
{
	return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

/*
 * The magic comes last, after all else is on the disk: a file of ours without it was never used. Its maker was killed, or found no room for
 * all of it. Of the rest only the header may have been written to.
 */
static bool file_unfinished(const struct fence_file *f)
{
	const struct fence_header *h = header_of(f);

	if (f->size > FENCE_RECORDS_AT)
		return false;
	if (f->size < sizeof *h)
		return all_zero(f->map, f->size);
	return !h->magic && (!h->version || h->version == FENCE_VERSION) && (!h->buckets || h->buckets == FENCE_BUCKETS) &&
	       (!h->end || h->end == FENCE_RECORDS_AT) && all_zero(f->map + sizeof *h, f->size - sizeof *h);
}

static int file_make(struct fence_file *f, const char *path)
{
	struct fence_header *h = header_of(f);
	int r = file_room(f, FENCE_RECORDS_AT);

	if (r < 0)
		return r;
	memset(f->map, 0, FENCE_RECORDS_AT);
	*h = (struct fence_header){ .version = FENCE_VERSION, .buckets = FENCE_BUCKETS, .end = FENCE_RECORDS_AT };
	if (getrandom(&h->seed, sizeof h->seed, 0) != sizeof h->seed)
		return -EIO;
	r = file_sync(f);
	if (r == 0)
		r = directory_sync(path);
	if (r < 0)
		return r;
	h->magic = FENCE_MAGIC;
	return file_sync(f);
}

static int file_begin(struct fence_file *f, const char *path)
{
	int r = size_renew(f);

	if (r < 0)
		return r;
	if (file_unfinished(f)) {
		r = file_make(f, path);
		if (r == 0)
			r = size_renew(f);
	} else if (f->size < FENCE_RECORDS_AT) {
		r = -EBADMSG;
	}
	if (r < 0)
		return r;
	const struct fence_header *h = header_of(f);
	return h->magic == FENCE_MAGIC && h->version == FENCE_VERSION && h->buckets == FENCE_BUCKETS ? 0 : -EBADMSG;
}

int fence_file_open(struct fence_file *f, const char *path)
{
	int lock, r;

	*f = (struct fence_file){ .fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) };
	if (f->fd < 0)
		return -errno;
	if (of_the_network(f->fd)) {
		close(f->fd);
		return -EOPNOTSUPP;
	}
	f->map = mmap(NULL, FENCE_SIZE_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f->fd, 0);
	if (f->map == MAP_FAILED) {
		r = -errno;
		close(f->fd);
		return r;
	}
	r = file_lock(f->fd, &lock);
	if (r == 0) {
		r = file_begin(f, path);
		close(lock);
	}
	if (r < 0)
		fence_file_close(f);
	return r;
}

void fence_file_close(struct fence_file *f)
{
	munmap(f->map, FENCE_SIZE_MAX);
	close(f->fd);
}
