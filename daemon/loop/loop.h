/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's event loop, on io_uring. Nobody else asks for the time, sets a timer or takes a
 * signal.
 *
 * A turn: sleep until something happens, read the clock, take what has completed from the ring, run
 * it one by one, then the timers that are due, then what was deferred; last, hand all that the
 * callbacks have asked for to the kernel in the same system call that sleeps. Without events there
 * are no turns: an idle loop never wakes.
 *
 * What holds for every function here:
 *  - It belongs to the thread that made the loop; a forked child must not touch the loop at all.
 *  - It may be called from inside any callback, except loop_free() and loop_run().
 *  - After a _stop, an _unwatch or a _cancel has returned, the callback is never called again, also
 *    if its completion had come already. The handle is dead then, and the file descriptor may be
 *    closed. Each takes NULL.
 *  - A callback is never called from within the function that registers it: an error of the
 *    descriptor (EBADF, ENOTSOCK) comes as the first event.
 *  - After the event that is called the last one, a handle is still to be given back with its
 *    _stop.
 *  - Errors are negative errno; outputs are untouched then.
 */
#ifndef DLOCK_LOOP_H
#define DLOCK_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "../units.h"

struct loop;
struct loop_watch;
struct loop_recv;
struct loop_read;
struct loop_accept;
struct loop_send;
struct loop_connect;

/*
 * Needs Linux 6.1. -ENOSYS, -EPERM: there is no io_uring, or it is refused; -EOPNOTSUPP: it is too
 * old; -ENOMEM, -EMFILE. loop_explain() says in a sentence what to do about each.
 */
int loop_create(struct loop **ret);
void loop_free(struct loop *l);      /* gives back every handle that is left, without callbacks */
const char *loop_explain(int error); /* of loop_create(), negative; a text that stays */

/* Runs until loop_stop(), returns its code; may be called again. Negative: the ring failed. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l, int code); /* code >= 0. The turn is finished first */

nsec_t loop_now(const struct loop *l); /* when this turn began */
nsec_t loop_clock(void);               /* now: where the turn's beginning is not exact enough */

/*
 * For so long after the last event the loop looks for the next one before it sleeps; 0, as at
 * first: not at all. A wake-up across processors costs some 40 µs on a virtual machine, which a
 * few µs of looking can save. Where looking has found nothing several times in a row it is seldom
 * tried; where others want the processor, not at all (crowd.c).
 */
void loop_set_spin(struct loop *l, nsec_t span);

/* The calling thread goes before those who compute, when it wakes up (slice.c). Negative: it may not ask for that, and goes on as it was. */
int loop_slice_short(void);

/*
 * What comes by memory that others write, and not by a descriptor: for one user. All three are called often, and have to be
 * quick where there is nothing. NULL: no more. The struct is the caller's, and stays.
 */
struct loop_look {
	bool (*peek)(void *arg); /* is there something? */
	bool (*run)(void *arg);  /* once a turn, after the completions: deals with it. Was there something? */
	bool (*rest)(void *arg); /* the loop is about to sleep: those who write have to wake it by a descriptor from now on. false: not yet */
	void *arg;
};
void loop_set_look(struct loop *l, const struct loop_look *look);

/*
 * Readiness. fn is called for each wake-up (multishot poll), and at first if fd is ready already.
 * What is left unread does not call again: read until EAGAIN. POLLNVAL: fd cannot be watched (any
 * more); this is the last event.
 */
int loop_watch(struct loop *l, int fd, uint32_t poll_events,
	void (*fn)(void *arg, uint32_t revents), void *arg, struct loop_watch **ret);
void loop_unwatch(struct loop_watch *w);

/*
 * Bytes of a stream, packets of a SOCK_SEQPACKET or SOCK_DGRAM socket: one a call, at most
 * LOOP_RECV_MAX bytes. data is the loop's, until fn returns. n = 0: the end, or an empty packet
 * (which nobody should send); n < 0: an error; these are the last event. A packet that is too long
 * comes as n = -EMSGSIZE, data NULL, and is no last event. Descriptors and credentials that come
 * along are dropped by the kernel.
 */
#define LOOP_RECV_MAX 4096
int loop_recv_start(struct loop *l, int fd, void (*fn)(void *arg, const void *data, ssize_t n),
	void *arg, struct loop_recv **ret);
void loop_recv_stop(struct loop_recv *r);

/*
 * Reads of at most bufsize bytes from a pipe, FIFO, eventfd, inotify and the like. n = 0: the end
 * (a FIFO without writers; opened O_RDWR it has none); n < 0: an error; these are the last event.
 * data is the loop's, until fn returns. fd should be O_NONBLOCK: where it is not, some kinds of
 * file cost a kernel thread each.
 */
int loop_read_start(struct loop *l, int fd, size_t bufsize,
	void (*fn)(void *arg, const void *data, ssize_t n), void *arg, struct loop_read **ret);
void loop_read_stop(struct loop_read *r);

/*
 * Connections of a listening socket; fd >= 0 is the callee's, O_CLOEXEC and O_NONBLOCK. Where
 * descriptors or memory have run out, fn gets -EMFILE, -ENFILE, -ENOBUFS or -ENOMEM, once until a
 * connection is taken again; the loop goes on trying every LOOP_ACCEPT_PAUSE. Any other error is
 * the last event.
 */
#define LOOP_ACCEPT_PAUSE (100 * NSEC_PER_MSEC)
int loop_accept_start(struct loop *l, int fd, void (*fn)(void *arg, int fd_or_error), void *arg,
	struct loop_accept **ret);
void loop_accept_stop(struct loop_accept *a);

/*
 * Wakes one who sleeps on that futex, which other processes may share, at the end of the turn (wake.c). The word may be gone by then.
 */
void loop_wake(struct loop *l, uint32_t *word);

/*
 * Sends by a stream socket. loop_send() hands over bytes of the caller's making, which are the loop's until
 * fn gives them back with all of them sent (error 0) or the connection broken; one lot at a time. A
 * lot that the kernel takes at once wakes nobody: fn is called in the next turn, which may be long after; tell makes it
 * follow at once. A send that is stopped frees its bytes, from malloc(), when the kernel has let go of them; some
 * may still be sent.
 */
struct loop_bytes {
	uint32_t n, done; /* to be sent; the loop's own */
	uint32_t room;    /* these two are the owner's */
	struct loop_bytes *next;
	char data[];
};
int loop_send_open(struct loop *l, int fd, void (*fn)(void *arg, struct loop_bytes *b, int error),
	void *arg, struct loop_send **ret);
void loop_send(struct loop_send *s, struct loop_bytes *b, bool tell);
void loop_send_stop(struct loop_send *s);

/* Connects a stream socket; fn is called once, with 0 or a negative errno. */
int loop_connect_start(struct loop *l, int fd, const struct sockaddr *address, socklen_t n,
	void (*fn)(void *arg, int error), void *arg, struct loop_connect **ret);
void loop_connect_stop(struct loop_connect *c);

/*
 * A timer is a part of its owner, which cancels it before it goes. It fires once; those of one
 * moment in the order in which they were set. One that is set for now or earlier fires before the
 * loop sleeps again, and if a timer's fn sets it, in the next turn. The fields are the loop's.
 */
struct loop_timer {
	nsec_t when;
	uint64_t serial;
	struct loop_timer *child, *next, *prev;
	void (*fn)(void *arg);
	void *arg;
	bool queued;
};
void loop_timer_init(struct loop_timer *t, void (*fn)(void *arg), void *arg);
/* Always 0. Moves a timer that is set; NSEC_NEVER cancels. */
int loop_timer_set(struct loop *l, struct loop_timer *t, nsec_t when);
void loop_timer_cancel(struct loop *l, struct loop_timer *t);

/*
 * Blocks signo for this thread and calls fn when it comes; to be called before other threads are
 * made, or they have to block it themselves. Once for each signo: a later call replaces fn. SIGKILL
 * and SIGSTOP: -EINVAL.
 */
int loop_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg);

/*
 * Runs fn at the end of this turn, before the loop sleeps; idempotent while queued. Each runs once
 * a turn at most: one that queues itself again runs in the next, which then follows at once. The
 * fields are the loop's.
 */
struct loop_defer {
	struct loop_defer *next, *prev;
	uint64_t turn;
	void (*fn)(void *arg);
	void *arg;
};
void loop_defer_init(struct loop_defer *d, void (*fn)(void *arg), void *arg);
void loop_defer(struct loop *l, struct loop_defer *d);

/*
 * The same, but after all that has been asked for in this turn has been handed to the kernel: for what takes long or may take the
 * processor from us, as waking others does, while somebody on another host waits for what is to be sent.
 */
void loop_defer_late(struct loop *l, struct loop_defer *d);
void loop_defer_cancel(struct loop *l, struct loop_defer *d);

#endif
