/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What breaks: one kind a function, which breaks something of a running town, waits, and mends it. Each says in the history
 * what it does, and on which hosts that may cost leases.
 */
#ifndef CLUSTER_NEMESIS_H
#define CLUSTER_NEMESIS_H

/* The name, in the history as "op". */
#define NEMESES(X)                                                                             \
	X(split)          /* two halves do not hear each other; the store hears all */         \
	X(pair)           /* two hosts do not hear each other, all others do */                \
	X(one_way)        /* one host does not hear another */                                 \
	X(cable)          /* a host hears nobody, and its carrier is gone */                   \
	X(slow)           /* a host's cable is slow */                                         \
	X(storeless)      /* a host does not reach the store */                                \
	X(kill)           /* a daemon is killed and comes back, sometimes before its deadline */ \
	X(restart)        /* a daemon is told to stop, and started anew */                     \
	X(freeze)         /* a daemon is stopped for longer than TTL */                        \
	X(freeze_client)  /* a client is */                                                    \
	X(kill_client)    /* a client is killed, and another comes in its place */             \
	X(host)           /* daemon and clients of a host are killed at once */                \
	X(member)         /* a member of the store is killed */                                \
	X(majority)       /* two of them */                                                    \
	X(drain)          /* a daemon hands its shards over, and takes new ones */             \
	X(disk)           /* no room is left for a daemon's files */                           \
	X(clock)          /* a daemon's wall clock jumps, to and fro */                        \
	X(roll)           /* all daemons are restarted, one after the other */

enum nemesis {
#define X(name) NEMESIS_##name,
	NEMESES(X)
#undef X
	NEMESIS_KINDS
};

const char *nemesis_name(enum nemesis n);

/* Until it is mended. */
void nemesis_run(enum nemesis n);

#endif
