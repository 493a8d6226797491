/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker numbers in the state directory: with them a node goes on giving out ids where it cannot reach the store, also after a
 * restart or a reboot.
 *
 * Why an id is given out once, though nobody is asked. For each number two bounds are durable, and ids are taken between them only:
 *
 *   next      in the file, here      <=  ids of this node from now on  <     ceiling   in the store (id_record.h)
 *
 *  - Above: whoever takes the number over begins at the ceiling that is in its record, whatever session that names and
 *    however late he comes. So what lies below the ceiling that this node has written belongs to this node for good; the ceiling is the
 *    lease of the number, in the time of ids. Clocks need not agree: where one is wrong, a number is of no use for a while, and no more.
 *  - Below: the file says `next` durably before ids below it are shown to clients (id.c: on_disk, flying). What is read after
 *    whatever end lies above all that was given out.
 *  - The file is believed once, by one daemon: that of the directory, node and machine that wrote it (struct kept_place), and only if it is
 *    the very file that was written, not one like it: it names its inode, and when that was made, which nobody can set. A
 *    copy of the directory, and a file that was put back, are told apart by that. After a roll-back of a whole disk, which keeps these,
 *    ids begin above what the clock allowed before (ID_AHEAD_MS), so that the clock must have gone back too before one came
 *    twice. A running machine that is copied is not told apart: DESIGN 3 says that of all that dlock does.
 *  - Before a number is given back to others the file is without it, durably.
 *
 * The file, little-endian, replaced as a whole:
 *
 *   8 bytes "dlockids"   u32 layout, 1   u32 how many   place: 16 node  16 machine  u64 cluster  u64 directory's inode
 *   u64 inode  u64 and u32 when it was made   each: u16 length  u16 worker  u64 session  u64 ceiling  u64 next  key
 *   u32 crc32c of all before
 */
#ifndef DLOCK_THINGS_ID_KEPT_H
#define DLOCK_THINGS_ID_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "../store/file.h"

#define KEPT_NAME "ids"
#define KEPT_MAX 1024                    /* names; those beyond have no number while the store is away */

struct id_kept {
	char key[STORE_KEY_MAX + 1];     /* of the name: what stands before the number */
	uint32_t worker;
	uint64_t session, ceiling;       /* as this node has left the record */
	uint64_t next;                   /* milliseconds: ids below may have been given out */
};

struct kept_place {
	uint8_t node[16], machine[16];
	uint64_t cluster;
	uint64_t dir_ino;
};

#define KEPT_FINDS(X)                                                                                  \
	X(GOOD, "")                                                                                    \
	X(NONE, "")                                                                                    \
	X(UNREADABLE, "cannot be read")                                                                \
	X(SHORT, "is cut short")                                                                       \
	X(TORN, "is damaged: its checksum does not fit")                                               \
	X(FOREIGN, "is no list of worker numbers of this release")                                     \
	X(ELSEWHERE, "was written by another node, on another machine, in another directory or for another cluster") \
	X(COPY, "is a copy, or was put back: not the file that was written here")

enum kept_find {
#define X(name, text) KEPT_##name,
	KEPT_FINDS(X)
#undef X
};

/* What became of a replacement: */
enum kept_end {
	KEPT_SAVED,
	KEPT_OLD,                        /* the former one is still there */
	KEPT_GONE,                       /* it failed, and no file is left */
	KEPT_DOUBT,                      /* it failed, and either may be there after a power cut */
};

const char *kept_text(enum kept_find f);

/* *ret is for free(), NULL where there are none. error: of UNREADABLE. */
enum kept_find kept_load(int dir, const struct store_file_io *io, const struct kept_place *here, struct id_kept **ret, uint32_t *ret_n,
			 int *error);

/* Blocks, as long as the disk does. *error: of what has failed. */
enum kept_end kept_save(int dir, const struct store_file_io *io, const struct kept_place *here, const struct id_kept *v, uint32_t n,
			int *error);

/* Durably. 0, also where there was none. */
int kept_remove(int dir, const struct store_file_io *io);

#endif
