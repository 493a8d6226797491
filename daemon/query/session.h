/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One caller's conversation, without its socket: bytes in, bytes out.
 *
 * What must hold: calls are answered in the order in which they came. The session takes no input
 * while it has a call to answer, and answers none while SESSION_OUTPUT_LOW bytes or more wait to be
 * sent; so what it holds is bounded by one request, that, and one answer. One step does one small
 * thing (a call, or a page of a listing), so that a step bounds how long others wait for the loop.
 */
#ifndef DLOCK_QUERY_SESSION_H
#define DLOCK_QUERY_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/attach.h"
#include "varlink.h"

struct query_event;
struct query_source;

#define SESSION_OUTPUT_LOW (64 * 1024)
#define SESSION_OUTPUT_MAX (1024 * 1024)  /* never reached: the longest answer has room below it */
#define SESSION_EVENTS_MAX (64 * 1024)    /* bytes of events that a watcher may leave unread */

struct session_caller {
	uid_t uid;
	const gid_t *groups;              /* the primary one first; the session's owner keeps them */
	size_t n_groups;
};

enum session_state {
	SESSION_READY,                    /* for the next call */
	SESSION_LISTING,                  /* more pages of a ListNames are to come */
	SESSION_WATCHING,                 /* until the caller goes */
	SESSION_ASKING,                   /* the answer comes from the store, or from another node */
};

/* Readable by all of the module; written by session.c and methods.c. */
struct session {
	const struct query_source *source;
	struct session_caller caller;
	struct varlink_buf in, out;
	enum session_state state;
	uint64_t cursor;                  /* LISTING: where to go on */
	uint64_t dropped;                 /* WATCHING: events lost and not yet told */
	char space[ATTACH_SPACE_MAX + 1]; /* LISTING, WATCHING: only this one; "": all */
	char name[ATTACH_NAME_MAX + 1];   /* WATCHING: only this one; "": all. ASKING: of which value */
	void *asked;                      /* ASKING: what query_source.value, stored, or nodes has returned ... */
	void (*drop)(void *arg, void *asked);   /* ... and what it is dropped by */
	char kind[20];                    /* ASKING: of what */
	bool put;                         /* ASKING: it is a write */
	int failed;                       /* an answer could not be put out */
	void (*wake)(void *arg);          /* there is something to do again; NULL: whoever owns it looks by himself */
	void *wake_arg;
};

void session_init(struct session *s, const struct query_source *source,
		  const struct session_caller *caller);
void session_done(struct session *s);

/* So many bytes of input are welcome now. */
size_t session_room(const struct session *s);

/* n <= session_room(). -ENOMEM. */
int session_input(struct session *s, const void *data, size_t n);

/*
 * 1: did something, may be called again; 0: needs input, or its output to be sent. Negative: the
 * connection is beyond repair: -EBADMSG: that was no Varlink call; -EMSGSIZE: it is too long;
 * -ENOMEM, -ENOBUFS. What is in out then is still worth sending.
 */
int session_step(struct session *s);

/*
 * A call whose answer comes by a call-back: session_asks() before it is asked for, session_asked() right after, with what the source has returned.
 * The call-back, which may come in between, puts the answer out and says session_answered().
 */
void session_asks(struct session *s, void (*drop)(void *arg, void *asked));
int session_asked(struct session *s, void *asked, int error);    /* what the call is to return */
void session_answered(struct session *s, int r);                 /* r: of putting it out */

/* Is this caller to be told? */
bool session_wants(const struct session *s, const struct query_event *event);

/* The message for all of them. */
int session_event_format(const struct query_event *event, struct varlink_buf *ret);

/* Queues that message, or counts it as dropped. */
void session_event_put(struct session *s, const struct varlink_buf *message);

#endif
