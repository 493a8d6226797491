/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A connection at the attach socket.
 *
 * It begins unidentified (conn_hello.c). It says HELLO, answers a nonce where the kernel cannot name
 * the process behind a socket, and is a client from then on (conn.c). Whatever is not to the letter of the
 * protocol ends the connection; the client itself lives on until its process ends, and may come
 * back with its index and its nonce.
 */
#ifndef DLOCK_SHM_CONN_INT_H
#define DLOCK_SHM_CONN_INT_H

#include "shm.h"

struct conn {
	struct conn *next, **at;
	struct shm *shm;
	int fd;
	uid_t uid;                       /* who connected */
	pid_t pid;
	struct peer peer;
	struct client *client;           /* NULL before WELCOME */
	struct loop_watch *watch;        /* before it */
	struct loop_recv *recv;          /* after it */
	struct loop_timer timer;
	struct attach_hello hello;
	uint64_t nonce[2];               /* to be answered; 0: none asked */

	/* An answer that waits for the lease of its slot (ATTACH_SOON), until `timer`. */
	struct attach_opened answer;     /* slot 0: none */
	bool descriptors;                /* go with it */
	bool by_hatch;                   /* its number there: */
	uint32_t asked;
	struct conn *kept_next, **kept_at;
};

void conn_bad(struct conn *c);           /* what it sent is no request: frees it */

/* false: it does not read, or is gone; the connection has been ended. */
bool conn_send(struct conn *c, const void *packet, size_t n, const int *fds, unsigned n_fds);

void conn_request(void *arg, const void *data, ssize_t n);       /* of one that is a client: from the loop */
void conn_answer_late(void *arg);        /* the timer of an answer that waits */

#endif
