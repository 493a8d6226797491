/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A worker's number in the store: whose it is, and how far its ids may have gone.
 *
 *   u8 layout, 1   u8 0   u16 0   u32 0   u64 session, 0: nobody's   u64 ceiling   16 bytes: the node
 *
 * Nothing else is one. The ceiling is in milliseconds since 2024-01-01; ids have a time below it, always. It falls only
 * when the number is given back, to above all that was given out.
 *
 * Why an id is given out once: only the session in the record raises its ceiling, by compare-and-set, before
 * it gives out what lies below. Another takes the number over by compare-and-set too, after that session has ended (S1), and begins
 * at the ceiling it finds. What the former still gives out, not knowing yet, lies below; it can raise it no more.
 */
#ifndef DLOCK_THINGS_ID_RECORD_H
#define DLOCK_THINGS_ID_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_LAYOUT 1
#define ID_BYTES 40

struct id_record {
	uint64_t session, ceiling;
	uint8_t node[16];
};

/* -EBADMSG */
int id_decode(const void *bytes, size_t n, struct id_record *ret);
void id_encode(const struct id_record *r, uint8_t ret[ID_BYTES]);

/* What the holder writes, so that ids up to `until` are good. Who takes the number over begins at the ceiling that it met. */
struct id_record id_raised(const struct id_record *r, uint64_t session, const uint8_t node[16], uint64_t until);

/* What it leaves when it gives the number back: nothing at or above `next` was given out. */
struct id_record id_given_back(const struct id_record *r, uint64_t next);

#endif
