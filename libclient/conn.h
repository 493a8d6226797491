/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * This process's one connection to its node's daemon (proto/attach.h).
 *
 * It is made by the first request, and made again by any request that finds it broken: then it asks
 * to go on as the client that it was. Where the daemon agrees, nothing has changed. Where not, this
 * process is a new client: the epoch rises, and what was opened or held in the old one is lost.
 *
 * Requests are made one at a time, under the attach lock (attach.h).
 */
#ifndef DLOCK_CONN_H
#define DLOCK_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach.h"
#include "limit.h"
#include "proto/kind.h"
#include "proto/segment.h"

uint32_t conn_epoch(void);               /* without locks; never 0 once something has been opened */
const struct node_line *conn_line(uint32_t space);      /* of the present node page */

/*
 * All under attach. Errors that they share: -ENOTCONN: nobody listens. -EACCES. -EPROTO: what answers
 * is no daemon that we understand. -ENOTSUP (see dlock_open()). -EMFILE, -ENFILE, -ENOMEM, what the
 * daemon says, and the limit's.
 */
struct conn_opened {
	uint32_t client, number, slot, epoch;
	uint32_t account;                /* the slot of this client in the object; 0: it has none */
	uint64_t generation;
	int segment, bell;               /* -1 where the generation is the one that is mapped */
	bool by_hatch;                   /* and not by the socket */
};
struct conn_what {
	const char *space, *name;
	size_t space_len, name_len;
	enum kind kind;
	uint32_t arg;                    /* attach.h */
	bool soon;                       /* likewise: it is about to be taken */
};
int conn_reader(uint32_t number, uint32_t epoch, const struct limit *limit, uint32_t *ret_line); /* a line for one more thread that reads. -ESTALE, -ENOSPC */
int conn_open(const struct conn_what *what, uint64_t mapped, const struct limit *limit, struct conn_opened *ret);

/* Waits a second at most. What cannot be sent now is sent when the daemon is there again. Nothing is done in another epoch. */
void conn_close(uint32_t number, uint32_t slot, uint32_t epoch);

/* -ESTALE: not in that epoch. */
int conn_hint(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int *ret_fd);

/* -ESTALE: not in that epoch. */
int conn_onloss(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int signo);

/* Of a semaphore. -EPROTO: the daemon knows of no such delays. */
int conn_delay(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, uint32_t ms);

/* Has what the name carries allocated. *ret_fd: the segment. -ESTALE: not in that epoch. -ENOSPC … */
int conn_value(uint32_t number, uint32_t slot, uint32_t epoch, const struct limit *limit, int *ret_fd);

/* Is a daemon there? Connects again where that is needed. */
int conn_check(const struct limit *limit);

void conn_child(void);                   /* after a fork: nothing of it is ours */

#endif
