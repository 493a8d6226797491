/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The highest token of each name, in a file that many processes use at once. Native byte order: a file stays on its host.
 *
 *      0  header      magic, version, number of buckets, seed of the hash, end of the records
 *   4096  buckets     u64 each: where the first record of the chain is; 0: none
 *         records     64-aligned: the next of the chain, durable, two cells of (token, check), the key
 *
 * What must be true:
 *  - A token is admitted only once it, or a higher one, is on the disk: else after a power failure an older token would be
 *    let in after a newer one's write. `durable` is the highest token of which that is known; it is stored
 *    after the fdatasync() that made it so, and by then nobody has been told yes. The disk may so have a cell that
 *    is ahead of it: then the cell decides, under the lock.
 *  - Of the two cells the one with the lower token is overwritten. Whatever part of that the disk has after a
 *    failure, the other cell is whole.
 *  - A record is on the disk before the bucket points to it, and is never moved, nor taken away. So to read, no lock is
 *    needed: load acquire of the bucket, of `next` and of `durable`, against the stores release of who writes.
 *  - Whoever writes holds flock() on an open file description of its own, so threads, processes and children that forked
 *    exclude each other alike, and the kernel lets go if one dies.
 *  - Nothing is believed of the file: positions are checked against its size before they are followed.
 */
#ifndef LIBCLIENT_FENCE_FILE_H
#define LIBCLIENT_FENCE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FENCE_MAGIC UINT64_C(0x31636e65666b6c64)         /* "dlkfenc1" */
#define FENCE_VERSION 1
#ifndef FENCE_BUCKETS                    /* tests want long chains */
#define FENCE_BUCKETS 65536
#endif
#define FENCE_BUCKETS_AT 4096
#define FENCE_RECORDS_AT (FENCE_BUCKETS_AT + (FENCE_BUCKETS * sizeof(uint64_t) + 63) / 64 * 64)
#define FENCE_SIZE_MAX (UINT64_C(1) << 34)               /* mapped at once; some fifty million names */
#define FENCE_GROW (64 * 1024)
#define FENCE_KEY_MAX 320

struct fence_header {
	uint64_t magic;
	uint32_t version, buckets;
	uint64_t seed;
	uint64_t end;                    /* of the records */
};

struct fence_cell {
	uint64_t token;
	uint64_t check;                  /* of the token, the record's place and the seed */
};

struct fence_record {
	uint64_t next;
	uint64_t durable;
	struct fence_cell cell[2];
	uint64_t hash;
	uint32_t key_len;
	uint32_t zero;
	char key[];
};

_Static_assert(sizeof(struct fence_record) == 64, "the cells lie in one sector with the rest of the head");

struct fence_file {
	int fd;
	uint8_t *map;                    /* FENCE_SIZE_MAX bytes, of which `size` are there */
	uint64_t size;                   /* as last seen; only grows */
};

/* Makes the file if there is none. Negative errno; -EBADMSG: it is something else, -EOPNOTSUPP: a file system of the network. */
int fence_file_open(struct fence_file *f, const char *path);
void fence_file_close(struct fence_file *f);

/* 0; -ESTALE: a higher token is known. Or -EBADMSG, -ENOSPC, -EFBIG, -EIO …, and nothing is admitted. */
int fence_file_admit(struct fence_file *f, const char *key, size_t n, uint64_t token);

#endif
