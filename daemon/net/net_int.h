/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the connections to other nodes share.
 *
 *   net.c    the interface: sessions, listening, keys, the links' events
 *   peer.c   a session of another node: whether and when to dial it
 *   line.c   a connection from its first byte to its last: frames, beats, up and down
 *   meet.c   the greeting on it
 *   info.c   what is shown of it all
 *
 * A peer has at most three lines: the one that is up, one that we dial, one that it has dialled and that waits for READY.
 * Lines that were accepted and have not said who they are belong to nobody: strangers.
 *
 * What must hold:
 *  - Lines and peers that are done with are buried at the end of the turn, when nobody is inside them.
 *  - link_down() for an up line that broke comes before any later link_up() of the session, and from the loop.
 */
#ifndef DLOCK_NET_INT_H
#define DLOCK_NET_INT_H

#include "../loop/loop.h"
#include "greet.h"
#include "net.h"
#include "pulse.h"
#include "resolve.h"
#include "tls.h"
#include "wire.h"

#define PEER_BUCKETS 1024
#define ERROR_MAX 384

enum line_phase { LINE_BEGUN, LINE_HELLO, LINE_WELCOME, LINE_READY, LINE_UP, LINE_DEAD };

struct line {
	struct net *net;
	struct wire *wire;
	struct peer *peer;               /* NULL: a stranger's */
	struct line *next, *prev;        /* of the strangers, of those that are up, or the dead */
	struct line *next_dirty;
	bool dialled, dirty;
	enum line_phase phase;           /* what has to come next */
	uint8_t version;
	uint64_t conn;
	struct pulse pulse;
	uint16_t part_n;
	uint8_t part[NET_FRAME_MAX];       /* the beginning of a greeting, which is shorter, or a frame */
};

struct peer {
	struct net *net;
	struct peer *next;               /* of its bucket, or of the dead */
	struct peer *next_down;
	uint64_t session;
	uint64_t seen;                   /* the highest connection number between us, up or not */
	uint64_t down;                   /* to be reported; 0: nothing */
	uint32_t incarnation;            /* the highest seen */
	bool linked, dead, down_listed;
	char node[GREET_NAME_MAX + 1];
	char address[ADDRESS_TEXT_MAX];  /* to be dialled; "": unknown */
	char at[ADDRESS_TEXT_MAX];       /* the other end of the present or last connection */
	char error[ERROR_MAX];
	nsec_t said;                     /* when the error was logged */
	struct line *up, *dialling, *greeted;
	struct resolve *resolve;
	struct loop_timer retry;
	unsigned fails;
	enum net_state state;
	nsec_t since;
	uint64_t bytes_in, bytes_out, sends;     /* of lines that are no more */
	uint64_t frames_in, frames_out;
	uint32_t queue_peak, connects;
};

struct listener {
	struct net *net;
	int fd;
	struct loop_accept *accept;
	char text[ADDRESS_TEXT_MAX];
	bool loopback;
};

/* Of lines for the log, in the present span. */
struct ration {
	unsigned said, unsaid;
	nsec_t since;
};

/* A refusal that goes on is told of once, then every ten minutes. Forgotten ones are told of again. */
#define SAY_AGAIN (600 * NSEC_PER_SEC)
#define REFUSALS_KEPT 32

struct refusal {
	uint64_t what;                   /* of whom, and why: a hash */
	unsigned times;                  /* since it was said */
	nsec_t said;                     /* 0: none */
};

struct net {
	struct loop *loop;
	struct net_ops ops;
	void *arg;
	char node[NET_NAME_MAX + 1], cluster[NET_NAME_MAX + 1];
	nsec_t silence, interval, backoff_max;
	const struct tls_keys *keys;
	uint32_t half_open_max, address_max;
	uint64_t session;                /* 0: none now */
	uint32_t incarnation;
	uint64_t counter;                /* of connection numbers: no lower one is issued */
	uint64_t random;
	struct wires wires;
	struct resolver *resolver;
	struct listener listener[NET_LISTEN_MAX];
	unsigned listeners;
	struct peer *bucket[PEER_BUCKETS];
	struct line strangers, ups;      /* heads of rings, the oldest first */
	struct line *dirty, *dead_lines;
	struct peer *down, *dead_peers;
	struct loop_defer flush, settle;
	struct loop_timer tick;
	nsec_t tick_due, beat_due;
	struct ration strangers_said, peers_said;
	struct refusal refusals[REFUSALS_KEPT];
	unsigned dials;                  /* lines that we dial and that are not up */
	struct net_stats stats;
};

/* say.c */
void net_say(struct net *n, enum log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What strangers can cause. */
void net_say_rationed(struct net *n, enum log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
void net_say_refused(struct net *n, const char *from, const char *why);  /* from: with its port, which does not matter */
bool net_say_peers(struct net *n);       /* may one more line be said about nodes that are not reached? */

/* net.c */
uint64_t net_random(struct net *n);
void net_tick_set(struct net *n);
void net_settle(struct net *n);          /* at the end of the turn */

/* peer.c */
struct peer *peer_find(const struct net *n, uint64_t session);
struct peer *peer_add(struct net *n, uint64_t session);  /* NULL: a limit, or no memory */
void peer_forget(struct peer *p);        /* if nobody needs it; buried later */
void peer_unsee(struct peer *p);
void peer_bury(struct peer *p);
void peer_state(struct peer *p, enum net_state s);
void peer_want(struct peer *p, bool at_once);    /* sees to it that it is dialled, if it should be */
void peer_failed(struct peer *p, bool quiet, const char *why);
const char *peer_text(const struct peer *p, char ret[ADDRESS_TEXT_MAX + GREET_NAME_MAX + 64]);
#define PEER_TEXT_MAX (ADDRESS_TEXT_MAX + GREET_NAME_MAX + 64)

/* line.c */
extern const struct wire_ops line_wire_ops;
struct line *line_dial(struct peer *p, const union address *to, int *ret_error);
void line_accepted(struct net *n, int fd);
void line_up(struct line *l);
void lines_append(struct line *head, struct line *l);
void lines_remove(struct line *l);        /* from the one that it is on, if it is on one */
void line_dirty(struct line *l);
/* Gone, with what belongs to it. Of an up line link_down() is due then. end: what was written goes out first. */
void line_drop(struct line *l, bool end, bool reset);
void line_fail(struct line *l, bool quiet, const char *format, ...) __attribute__((format(printf, 3, 4)));
void line_bury(struct line *l);
void line_beat(struct line *l, nsec_t now, bool answer);
void line_report_down(struct peer *p);

/* meet.c */
void meet_begin(struct line *l);                 /* bytes can be written: HELLO, if we dialled */
void meet_take(struct line *l, const uint8_t *bytes, size_t n);  /* a whole greeting; n is its length */
void meet_bad(struct line *l, const uint8_t *bytes, size_t n);   /* what came is none */
void meet_plain(struct line *l, const uint8_t *bytes, size_t n); /* plain text where TLS was expected */

#endif
