/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A message as bytes, little-endian:
 *
 *   u16 length, of all     u8 layout, 1    u8 kind    u8 shard    u8 priority   u16 flags
 *   u64 session, of the sender             u32 incarnation        u32 epoch
 *   u64 connection
 *   then what the kind has (frame.c's table), in this order: u64 number, stamp, seen, used,
 *   u64 first and count of the range, u32 held, wanted, limit, i32 error; with flag LIMIT u64 stamp, u32 present
 *   limit; with flag RESIZE u32 the wanted one; with flag NEWS u64 term, u32 count; with flag DELAY u16 milliseconds; with flag PASS or
 *   OFF, where they are of an heir, u64 its session, u32 its incarnation, u64 a number of it; with flag VALUE the value:
 *   u64 token, u32 count, u16 length, bytes; of an ACCOUNT u16 n, n times u64 session, u32 held, u32 wanted; then the key to the end
 *
 * Nothing else is a frame: only what states a claim, or revokes one, has a priority, the length is exactly that of the kind and its key, what has a range has
 * a possible one or none, a key has 1 to CORE_KEY_MAX bytes and lies in the shard that is named, errors are
 * not above 0, a value has at most CORE_VALUE_MAX bytes and a version. A receiver that meets something else closes the connection.
 */
#ifndef DLOCK_CORE_FRAME_H
#define DLOCK_CORE_FRAME_H

#include "msg.h"

#define FRAME_LAYOUT 1
#define FRAME_HEAD 32
#define FRAME_MAX (CORE_FRAME_MAX - 48)  /* what else fits into CORE_FRAME_MAX is an envelope's (envelope.h) */

struct frame {
	struct msg msg;                  /* its key and value point into the bytes; `to` is not in a frame */
	uint64_t conn;
};

/* The length. */
uint32_t frame_encode(const struct frame *f, uint8_t ret[FRAME_MAX]);

/* -EBADMSG; -EPROTONOSUPPORT: another layout. *ret is untouched then. */
int frame_decode(const void *bytes, size_t n, struct frame *ret);

/* How long the frame is that begins so: 0 if these are too few bytes to say. -EBADMSG */
int frame_length(const void *bytes, size_t n);

#endif
