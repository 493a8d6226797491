/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Somebody who answers in etcd's place, in the test's own thread: what a real one cannot be made to say, or to
 * leave unsaid, at a given moment.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_CONNS 64

enum fake_how {
	FAKE_SEND,	/* status and body, and the connection is kept */
	FAKE_CLOSE,	/* nothing: the connection is closed */
	FAKE_SILENT,	/* nothing, and it stays open */
	FAKE_RAW,	/* body as it is, without HTTP's head; then closed */
	FAKE_HALF,	/* the head, half of the body, then closed */
	FAKE_STREAM,	/* a part of a stream that goes on */
};

struct fake_reply {
	enum fake_how how;
	int status;
	const char *body;	/* zero-terminated; NULL: size bytes of 'x' */
	size_t size;
};

struct fake_request {
	const char *path, *head, *body;
	unsigned serial;	/* on its connection, from 1 */
};

struct fake_etcd {
	int fd;
	unsigned port;
	uint64_t cluster, leader;
	unsigned status, range, txn, login, watch, bytes_in;	/* how many came */
	/* Changes *ret, which is what an etcd without keys would say. NULL: does not. */
	void (*on)(struct fake_etcd *f, const struct fake_request *rq, struct fake_reply *ret);
	int phase;		/* the callback's */
	struct {
		int fd;		/* 0: none */
		unsigned serial;
		size_t n;
		char in[256 * 1024];
	} conns[FAKE_CONNS];
};

void fake_start(struct fake_etcd *f);
void fake_stop(struct fake_etcd *f);
void fake_again(struct fake_etcd *f);	/* after that, at the same port */
/* Takes what has come, waiting for at most so long for that or for the other descriptor. */
void fake_turn(struct fake_etcd **all, size_t n, int other_fd, int ms);
