/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * This node's beat: the record by which the others see that its session lives (S1).
 *
 *   u8 layout, 1    u8 state: 0 alive, 1 ended    u16 0    u32 incarnation    u64 session    u64 counter
 *
 * Each renewal is a compare-and-set to a value never sent before. If its answer is lost, the record is
 * read: what stands there has landed, and was first sent when the table of `sent` says. So
 *
 *   deadline = first sending of the value that is known to have landed + ttl - margin
 *
 * and whoever has seen one value for ttl + margin of its own clock saw it no earlier than it was
 * first sent, hence after that deadline. A value sent again would be older than its sender believes.
 */
#ifndef DLOCK_CORE_BEAT_H
#define DLOCK_CORE_BEAT_H

#include "msg.h"

#define BEAT_PREFIX "beat/"
#define BEAT_BYTES 24
#define BEAT_LAYOUT 1
#define BEAT_SENT_MAX 16

struct beat_value {
	struct msg_peer id;
	uint64_t counter;
	bool ended;
};

struct beat {
	struct beat_value last;          /* the last value sent, or adopted */
	uint64_t version;                /* of the record as last known; 0: not there yet */
	bool exists;                     /* was there once: if it is not any more, the session has ended */
	bool unsure;                     /* an answer was lost, or the compare failed: read before writing */
	core_nsec_t landed;              /* first sending of the latest value that is known to have landed; 0: none yet */
	core_nsec_t sent[BEAT_SENT_MAX]; /* by counter */
};

/* -EBADMSG */
int beat_decode(const void *bytes, size_t n, struct beat_value *ret);
void beat_encode(const struct beat_value *v, uint8_t ret[BEAT_BYTES]);

void beat_init(struct beat *b, struct msg_peer id);

/* The value to write now, if b->unsure is false. */
void beat_send(struct beat *b, core_nsec_t now, uint8_t ret[BEAT_BYTES]);

/* Its answer: 0 or a negative errno. */
void beat_written(struct beat *b, int error, uint64_t version, core_nsec_t now);

#define BEAT_FINDS(X)                                                                          \
	X(OURS)           /* it is known again which value has landed */                       \
	X(NOT_YET)        /* the first value has not landed */                                 \
	X(ENDED)          /* somebody has ended the session */                                 \
	X(SUPERSEDED)     /* a later incarnation has it, or what is there is not a beat */

enum beat_find {
#define X(name) BEAT_##name,
	BEAT_FINDS(X)
#undef X
};

/* The record was read. version 0: absent. */
enum beat_find beat_read(struct beat *b, const void *bytes, size_t n, uint64_t version, core_nsec_t now);

#endif
