/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A session and its socket.
 *
 * What must hold: one step a turn of the loop, so that many callers take turns; what a caller sends
 * stays in the kernel while its session has no room, and there its own send blocks. A connection
 * ends when its caller closes it, sends what is no Varlink, or has closed its sending side and been
 * answered.
 */
#ifndef DLOCK_QUERY_CONN_H
#define DLOCK_QUERY_CONN_H

#include <stdbool.h>
#include <sys/types.h>

#include "../loop/loop.h"
#include "session.h"

struct query_source;

#define CONN_GROUPS_MAX 1024     /* who is in more is seen as being in the primary one only */

struct conn {
	struct conn *next, *prev;        /* its owner's */
	struct loop *loop;
	int fd;
	pid_t pid;
	uid_t uid;
	gid_t *groups;
	struct session session;
	struct loop_watch *in, *out;     /* out: only while the caller leaves answers unread */
	struct loop_defer defer;
	nsec_t blocked;                  /* out is set: since when nothing could be sent */
	bool readable, eof;
	/* Called once, at the end, from the loop; error as from session_step, 0: no fault. Frees it. */
	void (*on_end)(void *arg, struct conn *c, int error);
	void *arg;
};

/* Takes fd over, also when it fails. Negative errno. */
int conn_create(struct loop *loop, int fd, const struct query_source *source,
		void (*on_end)(void *arg, struct conn *c, int error), void *arg, struct conn **ret);
void conn_free(struct conn *c);

bool conn_watching(const struct conn *c);
void conn_event(struct conn *c, const struct varlink_buf *message);

/* Has the caller left answers unread for at least span? */
bool conn_stalled(const struct conn *c, nsec_t now, nsec_t span);

#endif
