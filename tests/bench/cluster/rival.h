/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lock services measured in one lab: dlock, and those it is measured against, each used as its own documentation says.
 *
 *   dlock       three daemons (hosts 1 to 3) and an etcd of three members; a client uses its own host's daemon
 *   redis       one server on host SERVER. SET name token NX PX, and a script that deletes what is ours; who finds
 *               it taken tries again after 1 ms
 *   postgresql  one server on host SERVER. pg_advisory_lock, pg_advisory_unlock, in a session of the client's own
 *   etcd        three members, others than dlock's. A name nobody else wants: a transaction that creates the key, a delete
 *               (`bare`); one that is contended: its own lock service, /v3/lock (by the JSON gateway)
 *   zookeeper   three servers. The recipe: an ephemeral sequential node, a watch on the one before
 *
 * Clients are processes on the hosts 1 to 3 in turn; all servers but dlock's daemons are on other hosts than clients.
 */
#ifndef BENCH_RIVAL_H
#define BENCH_RIVAL_H

#include <stdbool.h>

#define RIVAL_HOSTS 3            /* that clients are on */

struct rival {
	const char *name;
	/* What it cannot run without, as a sentence; NULL: nothing is missing. */
	const char *(*missing)(void);
	/* In the test's process: servers run, and answer, when it returns. */
	void (*serve)(void);
	/* In a client's process, which is in that host's network. */
	void *(*connect)(unsigned host);
	/* Blocks until the name is ours. Whatever goes wrong ends the process. */
	void (*take)(void *client, const char *name);
	void (*give)(void *client, const char *name);
	/* The same where it is known that nobody else wants it; NULL: no cheaper way. */
	void (*take_bare)(void *client, const char *name);
	void (*give_bare)(void *client, const char *name);
};

extern const struct rival rival_dlock, rival_redis, rival_postgresql, rival_etcd, rival_zookeeper;

/* Hosts of the lab. */
#define HOST_SERVER 7
#define HOST_MEMBERS 8           /* and the two that follow */
#define LAB_HOSTS 10

__attribute__((noreturn, format(printf, 1, 2))) void rival_fail(const char *format, ...);

/* Where something listens that was just started: waits until it accepts. */
void rival_await_port(unsigned host, int port, unsigned ms);

/* The nth server's log. Static. */
const char *rival_log(const char *what, unsigned n);

#endif
