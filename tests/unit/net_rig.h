/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Some nodes' connections to each other in one process, by one loop, over loopback: each keeps what it is
 * told, and the lines of its log.
 */
#ifndef DLOCK_NET_RIG_H
#define DLOCK_NET_RIG_H

#include "loop_fixture.h"

#include "../../daemon/net/greet.h"
#include "../../daemon/net/keys.h"
#include "../../daemon/net/net.h"

#define TTL (NSEC_PER_SEC)       /* silence is 400 ms */

struct side {
	struct net *net;
	const char *name;
	uint64_t session;
	uint32_t incarnation;
	int ups, downs, frames;
	uint64_t peer, conn;             /* of the last link_up() that has had no link_down(); 0 */
	uint32_t peer_incarnation;
	uint64_t conns[64];              /* by link_up() */
	uint64_t frame_sum;
	uint8_t frame[NET_FRAME_MAX];    /* the last */
	uint32_t frame_n;
	int refuse_frames;               /* recv() says -EBADMSG */
	nsec_t up_at, down_at;
	bool unlink_when_down;
	char log[64][512];
	unsigned log_n;
};

/* Listens on a free port of loopback, unless where says otherwise ("": nowhere). */
#define side_open(s, name, session, keys, where, more)                                             \
	side_open_in(loop, s, name, session, keys, where, more) /* the fixture has a loop for each file */
void side_open_in(struct loop *l, struct side *s, const char *name, uint64_t session, const struct tls_keys *keys,
		  const char *where, const struct net_options *more);
void side_session(struct side *s, uint64_t session, uint32_t incarnation);
void side_close(struct side *s);
const char *side_address(const struct side *s);
bool side_said(const struct side *s, const char *text);
unsigned side_says(const struct side *s, const char *text);      /* in how many lines */
void side_show_log(const struct side *s);

/* Runs the loop until it is true, or the time is over: then the test fails. */
#define run_until(condition)                                                                       \
	do {                                                                                       \
		nsec_t run_until_end = boottime() + PATIENCE;                             \
		while (!(condition) && boottime() < run_until_end)                                 \
			run_for(2 * NSEC_PER_MSEC);                                                \
		assert_true(condition);                                                            \
	} while (0)

void frame_make(uint8_t *ret, uint32_t n, uint8_t fill);

/* A peer of the test's own hand: a socket, connected to the side; and back. */
int raw_dial(const struct side *s);
int raw_read(int fd, void *buf, size_t n, nsec_t span);  /* what comes in that time, and in some turns of the loop; 0: the end */

/* With defaults for what is not given; the length. */
size_t hello_make(uint8_t *buf, struct greeting *g);

/* The reason of the refusal, 0 after a WELCOME, negative: no greeting came back. ret_fd NULL: it is closed again. */
int try_hello(struct side *s, struct greeting g, struct greeting *ret, int *ret_fd);
void ready_say(int fd, uint64_t conn);

/* A peer of the test's own hand that is up: its socket. *ret_conn, if not NULL: the last number before, then its own. */
int raw_up(struct side *s, uint64_t session, uint64_t *ret_conn);

void peer_of(const struct side *s, uint64_t session, struct net_peer_info *ret);

#endif
