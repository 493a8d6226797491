/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node's connections to the other nodes' daemons: one each, over TCP, by TLS 1.3 unless all of it is
 * on loopback. What the connections carry is none of its business but for the length.
 *
 * What must hold:
 *  - Between link_up() and link_down() of one connection number, and only then, frames are taken and
 *    given. Of a session at most one connection is up. A later one has a higher number, also after
 *    either daemon has been started anew (DESIGN S5): both ends know the same number, and no two
 *    connections of two sessions have the same.
 *  - link_up() says what the peer's greeting said, under the cluster's key or a certificate of its CA.
 *  - A connection counts while both directions work: each end sees its own stamps come back, or
 *    closes it after `silence`.
 *  - What arrives of a connection is a beginning of what was sent by it, in order.
 *  - Nothing grows without bound: see the limits below.
 *
 * Callbacks come from the loop, never from within a function of this file, and may call any of them but
 * net_free(). After net_session() or net_unlink() has returned there is no callback about the connections
 * that it closed, not even link_down(). Errors are negative errno.
 */
#ifndef DLOCK_NET_NET_H
#define DLOCK_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../log.h"
#include "../units.h"
#include "address.h"

struct links_event;
struct loop;
struct net;
struct tls_keys;

#define NET_PROTOCOL_MIN 1       /* of the greeting and all that follows: what this release speaks */
#define NET_PROTOCOL_MAX 1
#define NET_NAME_MAX 64          /* bytes: of nodes and clusters */
#define NET_FRAME_MIN 32         /* a frame begins with its length, u16 little-endian */
#define NET_FRAME_MAX 1536
#define NET_LISTEN_MAX 8

/* The limits; net_options may set others. What meets one is disconnected or refused, logged and counted. */
#define NET_QUEUE_MAX (64u << 20) /* bytes for one peer that the kernel has not taken yet */
#define NET_HALF_OPEN_MAX 64     /* accepted, not greeted yet: the oldest makes room */
#define NET_ADDRESS_MAX 128      /* accepted from one address (IPv6: one /64) */
#define NET_PEERS_MAX 2048       /* sessions known: linked, or connected by themselves */
#define NET_DIALS_MAX 64         /* under way at once to nodes that were never up; the others wait for their turn */
#define NET_GREET_SPAN (5 * NSEC_PER_SEC)        /* from connecting to the end of the greeting, at most */

struct net_ops {
	void (*link_up)(void *arg, uint64_t session, uint32_t incarnation, uint64_t conn);
	void (*link_down)(void *arg, uint64_t session, uint64_t conn);
	/* A whole frame; bytes are good until it returns. Negative: that was none, close the connection. */
	int (*recv)(void *arg, uint64_t session, uint64_t conn, const void *bytes, uint32_t n);
	/* A line for the log; those that others can cause are rationed already. */
	void (*say)(void *arg, enum log_level level, const char *text);
};

struct net_options {
	const char *node, *cluster;      /* names; cluster may be empty. Copied */
	nsec_t ttl;                      /* of sessions: what is derived from it is in net_silence() */
	const struct tls_keys *keys;     /* the caller's, until net_free() or net_keys(); NULL: plain text, on loopback only */
	uint32_t queue_max, half_open_max, address_max;  /* 0: as above */
};

/* A connection is given up when nothing of ours has come back for so long: two fifths of TTL, within 0.2 to 20 s. */
nsec_t net_silence(nsec_t ttl);

/* -ENOMEM, -EINVAL (a name) */
int net_create(struct loop *loop, const struct net_options *o, const struct net_ops *ops, void *arg, struct net **ret);
void net_free(struct net *n);    /* closes all, without callbacks. Takes NULL */

/*
 * Listens at "ADDRESS:PORT", "[IPv6]:PORT", "*:PORT" (all), "localhost:PORT"; port 7420 if not given; port 0: any. Up to
 * NET_LISTEN_MAX times. -EPERM: beyond loopback without keys; -EINVAL, -E2BIG, or what bind(2) says; *ret_why,
 * if given, is then a sentence of at most 256 bytes.
 */
int net_listen(struct net *n, const char *where, char *ret_why);

/* Where it listens, as numbers, with the port that it got: "" beyond the last. Each i is good until the next net_listen(). */
const char *net_listen_address(const struct net *n, unsigned i);

/* CORE_ACT_SESSION: all are closed and greeted anew by this name. Session 0, as at first: nobody is greeted or dialled. */
void net_session(struct net *n, uint64_t session, uint32_t incarnation);

/*
 * CORE_ACT_LINK: keeps a connection to that session from now on. The address is "NAME:PORT" or as in
 * net_listen(); names are resolved in a thread, at each attempt. NULL or "": not known, the peer has to
 * dial. Again with another address: from now on that one. -EINVAL: no address; -ENOMEM, -E2BIG.
 */
int net_link(struct net *n, uint64_t session, const char *address);

/* CORE_ACT_UNLINK: that session has ended. */
void net_unlink(struct net *n, uint64_t session);

/*
 * CORE_ACT_SEND: goes out at the end of the loop's turn, together with all else for this peer. Copied.
 * A frame for a connection that is not up any more is dropped.
 */
void net_send(struct net *n, uint64_t session, uint64_t conn, const void *bytes, uint32_t frame_n);

/* The most that waits for any one peer, bytes. Who has much to say (all leases, to a new master) says it in parts, and goes on when this is low. */
uint32_t net_backlog(const struct net *n);

/* From links_on_change(): connections that it concerns are reset or probed at once, and dialled anew. */
void net_link_event(struct net *n, const struct links_event *ev);

/* Other keys for connections made from now on; the former may be freed. NULL only if it was NULL. */
void net_keys(struct net *n, const struct tls_keys *keys);

/* --- What `dlock status` and `dlock members` show --- */

#define NET_STATES(X)                                                                              \
	X(UNKNOWN, "address unknown")    /* nothing to dial: the peer has to */                    \
	X(WAITING, "waiting")            /* until retry_at */                                      \
	X(RESOLVING, "resolving")                                                                  \
	X(CONNECTING, "connecting")                                                                \
	X(SECURING, "securing")          /* TLS */                                                 \
	X(GREETING, "greeting")                                                                    \
	X(UP, "up")

enum net_state {
#define X(name, text) NET_##name,
	NET_STATES(X)
#undef X
};

const char *net_state_text(enum net_state s);

struct net_peer_info {
	uint64_t session, conn;          /* conn 0: none */
	uint32_t incarnation;
	const char *node;                /* its name, by its greeting; "" until there was one */
	const char *address;             /* at the other end of the connection, as numbers; else what net_link() said */
	const char *security;            /* "TLS 1.3, …"; "plain text"; "" while there is no connection */
	const char *last_error;          /* why there is none, or why the last one ended; "" */
	enum net_state state;
	bool linked;                     /* by net_link() */
	bool dialled;                    /* by us: the present one */
	uint8_t protocol;                /* 0: no connection */
	nsec_t since;                    /* of this state */
	nsec_t retry_at;                 /* WAITING */
	nsec_t rtt, rtt_min;             /* smoothed, and the smallest of this connection; 0: not measured yet */
	nsec_t heard;                    /* when our stamp came back last */
	uint64_t bytes_in, bytes_out, frames_in, frames_out, sends;     /* since it was first known; sends: system's */
	uint32_t queue, queue_peak;      /* bytes */
	uint32_t connects;               /* how often it was up */
};

struct net_stats {
	uint64_t accepted, refused, over_half_open, over_address, over_queue, silent, bad_frames, tls_failed;
	uint32_t half_open, peers, up;
};

void net_each(const struct net *n, void (*fn)(void *arg, const struct net_peer_info *p), void *arg);
void net_stats(const struct net *n, struct net_stats *ret);

#endif
