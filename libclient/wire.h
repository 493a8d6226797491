/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets of the attach protocol (proto/attach.h) over a socket that does not block. */
#ifndef DLOCK_WIRE_H
#define DLOCK_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "limit.h"
#include "proto/attach.h"

#define WIRE_FDS_MAX 2

struct packet {
	union {
		struct attach_head head;
		struct attach_nonce nonce;
		struct attach_welcome welcome;
		struct attach_opened opened;
		struct attach_line line;
		char bytes[ATTACH_PACKET_MAX];
	};
	int fd[WIRE_FDS_MAX];            /* -1: none */
	unsigned fds;
};

/* Connects a socket to what listens at path. -ENOENT, -ECONNREFUSED: nobody does. */
int wire_connect(int fd, const char *path, const struct limit *limit);

/* -EPIPE: the other side is gone. -ETIMEDOUT, -ECANCELED: the limit. */
int wire_send(int fd, const void *packet, size_t n, const struct limit *limit);
int wire_send_credentials(int fd, const void *packet, size_t n, const struct limit *limit);

/* Waits until there is something to receive. */
int wire_wait(int fd, const struct limit *limit);

/*
 * One packet with its descriptors, which are the caller's to close (packet_done). -EAGAIN: none there.
 * -EPIPE. -EPROTO: not a packet. -EMFILE: no room for its descriptors here.
 */
int wire_receive(int fd, struct packet *ret);

int packet_take(struct packet *p, unsigned i);   /* the descriptor, which is the caller's from now on; -1 */
void packet_done(struct packet *p);

#endif
