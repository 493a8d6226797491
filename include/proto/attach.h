/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The attach protocol, between a client and its node's daemon over RUN/dlockd.sock
 * (SOCK_SEQPACKET): one packet a message, one answer a request, but for DROP, in order. Fixed-width
 * little-endian types; every packet begins with struct attach_head, and its length is exact.
 *
 *   client                          daemon
 *   HELLO version, clock        ->
 *                               <-  NONCE                 only where the kernel has no SO_PEERPIDFD:
 *   NONCE (SCM_CREDENTIALS)     ->                        proves that the peer lives under this pid
 *                               <-  WELCOME + node page, anchor
 *   OPEN space, name, kind      ->
 *                               <-  OPENED slot, account [+ segment, bell]
 *   CLOSE space, slot           ->
 *                               <-  DONE
 *   DROP space, slot            ->                        closes too, and has no answer
 *   HINT space, slot            ->
 *                               <-  DONE + FIFO
 *   ONLOSS space, slot, signal  ->                        sent to the process when a hold of it is lost
 *                               <-  DONE
 *   VALUE space, slot           ->                        its value page is wanted
 *                               <-  DONE + segment
 *   READER space                ->                        for one more thread that reads: its line in the segment
 *                               <-  LINE number
 *   HELLO resume = index, nonce ->                        after a restart of the daemon, or on a
 *                               <-  WELCOME               new socket; nothing it had is lost
 *
 * The anchor is a descriptor of a file of the client's own, RUN/anchor/INDEX. The client maps
 * it with MADV_DONTFORK and closes the descriptor, so that its open file description lives just
 * as long as the client's address space: it ends with exit, death and exec, also while a forked
 * child keeps every descriptor that there was. The daemon has locked the description (flock)
 * before it sent it. Its end is an inotify event (IN_CLOSE), and a daemon that was away tries the
 * lock. A client that asked for ATTACH_INHERIT keeps the descriptor and lets its children inherit
 * it: it counts as alive until the last of them is gone (`dlock run`).
 */
#ifndef DLOCK_ATTACH_H
#define DLOCK_ATTACH_H

#include <stdint.h>

#define ATTACH_MAGIC   UINT32_C(0x31414c44)      /* "DLA1" */
#define ATTACH_MAJOR   1
#define ATTACH_MINOR   6               /* 1: ONLOSS. 2: kinds, VALUE. 3: DROP, OPEN soon. 4: hatches (hatch.h). 5: delays. 6: DELAY */
#define ATTACH_MINOR_SOON 3
#define ATTACH_MINOR_HATCH 4
#define ATTACH_MINOR_DELAY 5
#define ATTACH_MINOR_PERMITS_DELAY 6
#define ATTACH_PACKET_MAX 512u

#define ATTACH_SPACE_MAX 64u
#define ATTACH_NAME_MAX  255u

enum attach_op {
	ATTACH_HELLO = 1,
	ATTACH_NONCE,
	ATTACH_WELCOME,
	ATTACH_OPEN,
	ATTACH_OPENED,
	ATTACH_CLOSE,
	ATTACH_HINT,
	ATTACH_DONE,
	ATTACH_ONLOSS,
	ATTACH_VALUE,
	ATTACH_READER,
	ATTACH_LINE,
	ATTACH_DROP,                     /* as CLOSE, but not answered */
	ATTACH_DELAY,                    /* of a semaphore; that of a lock is the OPEN's arg */
};

struct attach_head {
	uint16_t op;
	uint16_t len;                    /* of the whole packet */
	int32_t error;                   /* answers: 0 or a positive errno */
};

enum attach_flags {
	ATTACH_INHERIT = 1,              /* HELLO: liveness is the anchor's alone */
};

struct attach_hello {
	struct attach_head head;
	uint32_t magic;
	uint16_t major, minor;
	uint32_t flags;
	uint32_t resume;                 /* client index, or 0 */
	uint64_t nonce[2];               /* of that client */
};

enum attach_open_flags {
	/*
	 * A lock that its client means to take at once: where the name has no lease and nobody uses it, one is got before the
	 * answer; but neither is anybody waited for, nor is the answer kept for long.
	 */
	ATTACH_SOON = 1,
};

struct attach_nonce {
	struct attach_head head;
	uint64_t nonce[2];
};

struct attach_welcome {
	struct attach_head head;
	uint16_t major, minor;           /* the daemon's */
	uint32_t client;                 /* index, 1 .. SEG_CLIENTS_MAX - 1 */
	uint64_t nonce[2];               /* secret of this client, for HELLO resume */
	uint64_t boottime_ns;            /* the daemon's CLOCK_BOOTTIME while it answered */
	uint64_t session;
	uint32_t resumed;                /* 1: the index is the one asked for, with all its names */
	uint32_t reserved;
};

struct attach_open {
	struct attach_head head;
	uint64_t mapped;                 /* generation of the space's segment that is mapped already, or 0 */
	uint8_t space_len, name_len;
	uint8_t kind;                    /* enum kind */
	uint8_t flags;                   /* enum attach_open_flags */
	uint32_t arg;                    /* of that kind: permits, parties, count; else 0 */
	char text[ATTACH_SPACE_MAX + ATTACH_NAME_MAX];  /* space, then name; not terminated */
};
#define ATTACH_OPEN_LEN(space_len, name_len)                                                   \
	(offsetof(struct attach_open, text) + (space_len) + (name_len))

struct attach_opened {
	struct attach_head head;
	uint32_t space;                  /* its number: the line in the node page */
	uint32_t slot;
	uint64_t generation;             /* of the segment; other than mapped: the descriptors come along */
	uint32_t account;                /* the slot that this client has for itself in the object; 0: none */
	uint32_t reserved;
};

struct attach_close {
	struct attach_head head;
	uint32_t space, slot;
};

struct attach_hint {
	struct attach_head head;
	uint32_t space, slot;
};

struct attach_onloss {
	struct attach_head head;
	uint32_t space, slot;
	uint32_t signo;                  /* 0: none */
};

struct attach_delay {
	struct attach_head head;
	uint32_t space, slot;
	uint32_t ms;
};

struct attach_value {
	struct attach_head head;
	uint32_t space, slot;
};

struct attach_reader {
	struct attach_head head;
	uint32_t space, reserved;
};

struct attach_line {
	struct attach_head head;
	uint32_t line, reserved;         /* the client's for as long as it lives */
};

_Static_assert(sizeof(struct attach_head) == 8, "layout");
_Static_assert(sizeof(struct attach_hello) == 40, "layout");
_Static_assert(sizeof(struct attach_welcome) == 56, "layout");
_Static_assert(sizeof(struct attach_open) <= ATTACH_PACKET_MAX, "layout");

#endif
