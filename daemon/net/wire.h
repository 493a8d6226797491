/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One TCP connection as a stream of bytes, in TLS if there are keys. It knows nothing of greetings and frames.
 *
 *     CONNECTING -> SECURING -> OPEN          (accepted: begins SECURING; plain text: that is passed over)
 *         any of them -> BROKEN               broken() is called; the owner ends or frees it
 *         any of them -> ENDING               wire_end(): the rest goes out, then it frees itself
 *
 * What must hold:
 *  - What is written in one call is in one chunk, so what jumps the queue (wire_urgent) never splits it.
 *  - One send is under way at most, and none waits while chunks are there after wire_flush().
 *  - A wire's memory outlives the callback in which it is freed.
 */
#ifndef DLOCK_NET_WIRE_H
#define DLOCK_NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../loop/loop.h"
#include "../units.h"
#include "address.h"
#include "chunk.h"

struct tls;
struct tls_keys;
struct wire;

#define WIRE_CHUNK CHUNK_BYTES
#define WIRE_LINGER NSEC_PER_SEC /* for the last words to arrive */
#define WIRE_ENDING_MAX 256      /* that linger: the oldest does not, if there are more */
#define WIRE_WHY_MAX 512

enum wire_state { WIRE_CONNECTING, WIRE_SECURING, WIRE_OPEN, WIRE_BROKEN, WIRE_ENDING, WIRE_DEAD };

/* From the loop only. */
struct wire_ops {
	void (*connected)(struct wire *w);       /* dialled: TCP is there, TLS begins */
	void (*open)(struct wire *w);            /* bytes come and go */
	void (*bytes)(struct wire *w, const uint8_t *p, size_t n);
	/* TLS was expected, and this came. What is written from now on goes in plain text. */
	void (*plain)(struct wire *w, const uint8_t *p, size_t n);
	void (*broken)(struct wire *w);          /* w->why */
};

/* What wires share. */
struct wires {
	struct loop *loop;
	const struct wire_ops *ops;
	nsec_t silence;                  /* for TCP's own time-outs */
	uint32_t queue_max;
	struct chunk_pool pool;
	struct wire *ending, *dead;      /* ending: the latest first */
	unsigned ending_n;
	struct loop_defer reap;
};

struct wire {
	struct wires *all;
	struct wire *next;               /* of the dead, or of those that end */
	void *owner;
	int fd;
	enum wire_state state;
	bool server;
	bool sending;
	struct loop_connect *connect;
	struct loop_recv *recv;
	struct loop_send *send;
	struct tls *tls;
	struct chunks out, clear;        /* clear: to be encrypted */
	struct loop_bytes *urgent;
	uint32_t queued, queued_peak;    /* bytes */
	struct loop_timer timer;
	union address local, remote;
	uint64_t bytes_in, bytes_out, sends;
	char why[WIRE_WHY_MAX];
};

void wires_init(struct wires *ws, struct loop *loop, const struct wire_ops *ops);
void wires_done(struct wires *ws);       /* those that end too; others are their owners' to free before */

/* keys NULL: plain text. -ENOMEM, -EMFILE and others of socket(2). *ret's owner is set before any callback. */
int wire_dial(struct wires *ws, const union address *to, const struct tls_keys *keys, void *owner, struct wire **ret);

/* fd is the wire's, also if this fails. */
int wire_accept(struct wires *ws, int fd, const struct tls_keys *keys, void *owner, struct wire **ret);

/* It breaks at that time; NSEC_NEVER: it does not. */
void wire_deadline(struct wire *w, nsec_t when);

/* n up to WIRE_CHUNK. -ENOBUFS: more than queue_max would wait; -ENOMEM; -ENOTCONN. */
int wire_write(struct wire *w, const void *data, size_t n);

/* Goes before all that waits; replaces the last one that still waits. Little. */
int wire_urgent(struct wire *w, const void *data, size_t n);
void wire_flush(struct wire *w);

/* Sends what waits, ends the stream, and waits a little for the peer to have read it. */
void wire_end(struct wire *w);

/* At once; reset: the peer is told so, if it can be reached, and the kernel forgets the rest. */
void wire_free(struct wire *w, bool reset);

/* Good until the next call. */
const char *wire_security(const struct wire *w);

#endif
