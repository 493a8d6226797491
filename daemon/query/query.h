/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers on the /run socket: Varlink, interface io.dlock. Whoever may connect may read; what changes the
 * node is for root and the daemon's own user.
 *
 * What must hold: a caller can neither block the daemon nor make it hold more than a bounded
 * amount of memory; every byte of a request is checked; an answer shows the node as it is at one
 * moment of the loop. The module knows nothing of the segment or the core: it asks its source,
 * whose functions neither block nor keep the pointers they are given. Strings that the source
 * hands out are valid until it returns from the call-back.
 */
#ifndef DLOCK_QUERY_H
#define DLOCK_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../units.h"

struct loop;

#define QUERY_WAITERS_MAX 64             /* of one name, in one answer */

struct query_space {
	const char *name;
	uid_t owner;
	gid_t group;
	mode_t mode;
	uint32_t names, clients, waiters;
	const char *broken;              /* NULL, or what is wrong with it and what to do */
};

struct query_link {
	const char *name;
	uint32_t index, mtu;
	bool up, running;
	const char *const *addresses;    /* NULL-terminated, "192.0.2.1/24" */
};

struct query_node {
	const char *name, *id;           /* id: 32 hex digits */
	const char *version, *state;     /* "starting", "running", "stopping" */
	const char *run_dir, *state_dir, *store;
	uint64_t session;
	uint32_t incarnation, epoch;
	uint32_t clients, names;
	uint64_t grants, refills, releases;
	uint64_t uptime_ms;
	const char *loss;                /* NULL, or why earlier holds were declared lost at start */
	const char *clocksource;
	pid_t pid;
	const struct query_cluster *cluster;     /* NULL: this node is alone */
};

/* This node as one of many. */
struct query_cluster {
	const char *name;                /* "": it has none */
	const char *address;             /* where others reach it */
	const char *security;            /* how connections prove themselves; "": plain text */
	uint64_t ttl_ms;
	uint64_t lease_ms;               /* what is held may be relied upon for so long, unless it is renewed; 0: not now */
	bool ticks;                      /* clients compare the processor's counter, else they ask the clock */
	bool drains, open;               /* open: every shard of its own grants */
	const char *jeopardy;            /* NULL, or why the lease cannot be renewed */
	unsigned members, shards, placed; /* listed; that it masters; of these, that it does because it uses them most */
	uint64_t losses, lapses;
	uint64_t store_us, store_worst_us;       /* how long the store takes: of late, and the longest for a minute; 0: not known */
	unsigned orphans, opening;       /* shards without a master; of this node, that do not grant yet */
	unsigned odd, left_out, silent;  /* records in the store that nobody can use; members without room; members that do not live */
	int64_t cert_until, ca_until;    /* seconds since 1970; 0: no certificate */
	const char *keys_wrong;          /* NULL, or what is wrong with the files of keys and certificates */
};

/* What is not known: "" or 0. */
struct query_member {
	const char *name, *address;
	const char *state;               /* "self", "up", "relayed", or how far a connection has come */
	uint64_t session, node;
	uint32_t incarnation;
	bool self, may_master, drains, coordinates;
	unsigned shards, placed;         /* that it masters; of these, because it uses them most */
	uint64_t rtt_us;
	uint32_t queue;                  /* bytes that wait to be sent */
	unsigned protocol;
	const char *security, *error;    /* error: why there is no connection, or why the last one ended */
};

/* A process that holds or waits. Fields that are not known: 0 or NULL. */
struct query_party {
	const char *node;
	pid_t pid;
	uid_t uid;
	const char *unit, *command;
	uint64_t token;                  /* of the hold; 0 for waiters */
	bool timed;                      /* since_ms is known: */
	uint64_t since_ms;               /* waiting for so long; holding for so long at least */
	uint64_t since_most_ms;          /* holding for so long at most; 0: not known */
};

#define QUERY_READERS_MAX 16

struct query_name {
	const char *space, *name, *kind; /* "lock" */
	const char *state;               /* "free", "held", "shared", "delayed", "unleased" (no lease yet) */
	const char *master;              /* the node that grants it; NULL: not known, or this node is alone */
	bool owner_died;                 /* the next robust holder is told */
	uint32_t delay_ms;               /* the longest lock-delay that a process of this node has asked for; 0: none */
	uint32_t delay_left_ms;          /* one who held it has died: what it had counts as held for so long; 0: not so */
	uint32_t opens;                  /* processes of this node that have it open */
	uint64_t token;                  /* the last one given out */
	const struct query_party *holder;           /* NULL: none */
	const struct query_party *readers;          /* who holds it shared, on this node, or permits besides holder; QUERY_READERS_MAX are enough */
	size_t n_readers, n_reading;                /* n_reading: how many there are */
	const struct query_party *waiters;          /* by priority, then in the order of their coming */
	size_t n_waiters;                           /* QUERY_WAITERS_MAX are enough */
	size_t n_waiting;                           /* how many there are, where that is more than n_waiters */
	bool counts;                                /* a latch, a condition, a semaphore: */
	uint32_t count, limit;                      /* to go, of how many; who waits in the whole cluster, 0; held by this node, of how many */
	uint64_t term;                              /* of an election: somebody leads, on whatever node; 0: nobody is known to */
	const char *says;                           /* what he says */
	int worker;                                 /* of ids: this node's number + 1; 0: none */
};

struct query_event {
	uint64_t boottime_ms, realtime_ms;
	const char *event;               /* "attach", "detach", "open", "grant", "release", "owner-died", "contended", "space-broken", "link" … */
	const char *space, *name;        /* NULL where it has none */
	const char *kind;                /* of the name */
	pid_t pid;
	uint64_t token;
	const char *detail;
};

/*
 * What becomes of a value. error: 0; -ENOENT; -EAGAIN: it has another version, this one; -ENOSPC: the store has no room; -E2BIG; else
 * the store could not be asked, or has not answered, and with in_doubt the write may have been carried out, or may be yet.
 */
struct query_value_result {
	int error;
	bool in_doubt;
	uint64_t version;
	const void *bytes;               /* of a get: n bytes, until the call-back returns */
	size_t n;
	const char *why;                 /* what the store says; NULL: nothing */
};

enum query_value_op { QUERY_GET, QUERY_PUT, QUERY_REMOVE };

struct query_value_call {
	enum query_value_op op;
	const char *space, *name;
	const void *bytes;
	size_t n;
	bool compare;                    /* only if it has this version; 0: only if it is absent */
	uint64_t version;
};

typedef void (*query_value_fn)(void *ctx, const struct query_value_result *res);

/* What lies in the store for good, whether anybody has it open or not. */
struct query_stored {
	const char *name;                /* NULL: too long, only its hash is known */
	const char *key;                 /* as it stands in the store, to go on after */
	bool counts;
	uint32_t count, limit;           /* of a latch: to go, of how many; of a free semaphore: its value, 0 */
	size_t size;                     /* of a value */
	uint64_t version;
};

#define QUERY_STORED_MAX 64              /* at once */

struct query_stored_call {
	const char *space, *kind;        /* "latch", "free semaphore", "value" */
	const char *name;                /* only this one; NULL: all ... */
	const char *after;               /* ... after that key; NULL: from the first on */
	unsigned max;                    /* QUERY_STORED_MAX at most */
};

/* error: 0; -EBUSY: others are being listed; else the store could not be asked, or has not answered. */
struct query_stored_result {
	int error;
	const char *why;                 /* NULL: nothing more is known */
	const struct query_stored *v;
	unsigned n;
	bool more;                       /* after the last of them */
};

typedef void (*query_stored_fn)(void *ctx, const struct query_stored_result *res);

#define QUERY_WEIGHT_ALL UINT32_MAX      /* of a lock: exclusively */

/* One node's part in a name: what is leased to it, whether a process there uses it or not, and what it waits for, in total; 0: nothing. */
struct query_share {
	const char *node;
	uint32_t held, wanted;
};

struct query_nodes_call {
	const char *space, *name, *kind;
};

/* error: 0; -EAGAIN: the node that grants the name is not known, not reached, or has not answered. */
struct query_nodes_result {
	int error;
	const char *master;
	uint32_t held, limit;            /* in all; QUERY_WEIGHT_ALL: a lock. limit 0: no node has it open */
	unsigned n, all;                 /* these are the first n of so many: who has some, then who waits, in their order */
	const struct query_share *v;
};

typedef void (*query_nodes_fn)(void *ctx, const struct query_nodes_result *res);

typedef void (*query_name_fn)(void *ctx, const struct query_name *name);

struct query_source {
	void *arg;
	void (*node)(void *arg, struct query_node *ret);
	void (*spaces)(void *arg, void (*fn)(void *ctx, const struct query_space *s), void *ctx);
	void (*links)(void *arg, void (*fn)(void *ctx, const struct query_link *l), void *ctx);
	void (*members)(void *arg, void (*fn)(void *ctx, const struct query_member *m), void *ctx);     /* of a cluster */
	/* -ENOTSUP: this node is alone; -EALREADY. on false: it may master again. */
	int (*drain)(void *arg, bool on);
	int (*leave)(void *arg);
	/*
	 * Up to max names from *cursor on (0: the first), of one space or of all (NULL). Sets *cursor
	 * to where to go on, 0 at the end. -ENOENT: no such space.
	 */
	int (*names)(void *arg, const char *space, uint64_t *cursor, unsigned max, query_name_fn fn, void *ctx);
	/* kind: as in query_name; NULL: the first there is, a lock before all others. -ENOENT */
	int (*show)(void *arg, const char *space, const char *name, const char *kind, query_name_fn fn, void *ctx);
	/*
	 * Names of a space are shown to whoever may open it, and to root. groups[0] is the caller's
	 * primary group. Of a space that does not exist: either.
	 */
	bool (*may_see)(void *arg, const char *space, uid_t uid, const gid_t *groups, size_t n_groups);
	/*
	 * Users' small values, in the store. done is called once, perhaps at once; never after value_drop() of what is
	 * returned. NULL: it has been called, or there is no memory for it, and *ret_error says which: 0 or -ENOMEM.
	 */
	void *(*value)(void *arg, const struct query_value_call *call, query_value_fn done, void *ctx, int *ret_error);
	void (*value_drop)(void *arg, void *request);
	/* As value() and value_drop(). -EINVAL: nothing of that kind lies in the store. */
	void *(*stored)(void *arg, const struct query_stored_call *call, query_stored_fn done, void *ctx, int *ret_error);
	void (*stored_drop)(void *arg, void *request);
	/* Likewise. -ENOTSUP: this node is alone; -EINVAL: a kind that no node grants. */
	void *(*nodes)(void *arg, const struct query_nodes_call *call, query_nodes_fn done, void *ctx, int *ret_error);
	void (*nodes_drop)(void *arg, void *request);
	void (*watching)(void *arg);             /* somebody begins to watch. NULL: nobody wants to know */
	/*
	 * For the operator: a caller was turned away. syslog's priorities. Whoever connects can cause
	 * it, so it has to be limited. NULL: nobody wants to know.
	 */
	void (*log)(void *arg, int priority, const char *text);
};

struct query;

#define QUERY_CONNS_MAX 128              /* at once; one more is refused */
#define QUERY_CONNS_ROOT 16              /* of these are kept for root */
#define QUERY_CONNS_UID_MAX 32           /* of one user, except root */
#define QUERY_STALL (5 * NSEC_PER_SEC)   /* who has left answers unread for so long makes room for others */

/* Copies *source. Serves on listen_fd (bound, listening, non-blocking; owned by the module from now on). */
int query_start(struct loop *loop, int listen_fd, const struct query_source *source, struct query **ret);
void query_free(struct query *q);

/* Tells all watchers. Cheap when there are none. A slow watcher loses events and is told how many. */
void query_event(struct query *q, const struct query_event *ev);
bool query_watched(const struct query *q);

#endif
