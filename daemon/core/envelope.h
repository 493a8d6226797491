/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What goes through a third node between two that have no connection (path.h), little-endian:
 *
 *   u16 length, of all     u8 layout, 1    u8 kind, 64    u8 what    u8 direction: 0 to, 1 from    u16 0
 *   u64 session, of the sender: the origin, or the relay           u32 incarnation      u32 incarnation, of the origin
 *   u64 connection, with the receiver
 *   u64 session: to whom it shall go, or from whom it came         u64 path
 *   then, of a FRAME, the frame itself (frame.h), with the path's number as its connection
 *
 * Nothing else is an envelope. There is none within another: a path has one relay.
 */
#ifndef DLOCK_CORE_ENVELOPE_H
#define DLOCK_CORE_ENVELOPE_H

#include "frame.h"

#define ENVELOPE_KIND 64
#define ENVELOPE_HEAD 48

#define ENVELOPES(X)                                                                           \
	X(FRAME)          /* of this path */                                                   \
	X(OPEN)           /* let this path be the connection between us from now on */         \
	X(OPENED)         /* it is */                                                          \
	X(OLD)            /* it is not: there has been this path, with a higher number */      \
	X(CLOSED)         /* this path leads nowhere any more */

enum envelope_what {
#define X(name) ENVELOPE_##name,
	ENVELOPES(X)
#undef X
	ENVELOPE_N
};

struct envelope {
	enum envelope_what what;
	bool from;                       /* it has come through the relay */
	struct msg_peer sender;
	uint32_t incarnation;            /* of the origin */
	uint64_t conn;
	uint64_t far;
	uint64_t path;
	const uint8_t *frame;            /* FRAME: in the bytes */
	uint32_t n;
};

/* They say that they are one, whether or not they are right. */
static inline bool envelope_is(const void *bytes, size_t n)
{
	return n > 3 && ((const uint8_t *)bytes)[3] == ENVELOPE_KIND;
}

/* The length. e->frame may lie where it is to be in ret. */
uint32_t envelope_encode(const struct envelope *e, uint8_t ret[CORE_FRAME_MAX]);

/* -EBADMSG; -EPROTONOSUPPORT: another layout. *ret is untouched then. The frame itself is not looked at. */
int envelope_decode(const void *bytes, size_t n, struct envelope *ret);

#endif
