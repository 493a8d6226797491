/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole cluster in a lab: hosts 1 .. n run a daemon and clients, the next TOWN_STORES an etcd each.
 *
 * Host i's daemon keeps everything in harness.dir/h<i>; what programs say is in harness.dir/log.*. All of it goes with the
 * test. Whoever is killed or frozen here is known here, so that town_mend() can bring everything back.
 */
#ifndef CLUSTER_TOWN_H
#define CLUSTER_TOWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TOWN_STORES ETCD_MEMBERS
#define TOWN_HOSTS_MAX (LAB_HOSTS_MAX - TOWN_STORES)

#include "etcd.h"
#include "lab.h"

struct town {
	unsigned hosts;
	unsigned ttl_ms;
	unsigned more;                           /* hosts beyond those, which nothing runs on; set before town_begin() */
	unsigned meek;                           /* the first so many master nothing, and the last one coordinates; set before town_begin() */
	volatile pid_t *daemon;                  /* by host; 0: does not run. Children of ours see it too */
	volatile pid_t *store;                   /* from 0; likewise */
	bool frozen[TOWN_HOSTS_MAX + 1];         /* the daemon */
};

extern struct town town;

/* There is an etcd; if not, the test is skipped, which it says. */
bool town_possible(void);

/* After harness_begin(). Gives up with a reason. All daemons are ready when it returns. */
void town_begin(unsigned hosts, unsigned ttl_ms);

/* More lines for every daemon's configuration, from its next start on. */
void town_configure(const char *lines);

/* All daemons stop, and begin again so. */
void town_anew(unsigned ttl_ms, const char *lines);

/* The same, one after the other: each hands its shards over, so that nothing is suspect afterwards. */
void town_roll(const char *lines);

void daemon_begin(unsigned host);        /* does not wait until it is ready */
bool daemon_ready(unsigned host, unsigned ms);
void daemon_await(unsigned host);        /* until it is ready; with no patience left all daemons tell what they know, and the test ends */
void daemon_kill(unsigned host, int signo);      /* and is waited for, unless it is SIGSTOP */
void daemon_thaw(unsigned host);
void store_begin(unsigned member);       /* from 0 */
void store_kill(unsigned member);

/* The wall clock of that host's daemon is off by so much from now on. */
void town_clock(unsigned host, int64_t ns);

/* No room is left where that host's daemon keeps its files; or there is again. */
void town_disk(unsigned host, bool full);

/* The network is whole, all daemons and stores run. */
void town_mend(void);

/* harness.dir/h3/run, and so on. Static, one for each host. */
const char *town_run_dir(unsigned host);
const char *town_log(const char *what, unsigned i);

/* "dlock ARGUMENTS" on that host; its exit status. */
int town_command(unsigned host, char *ret, size_t n, const char *arguments);

/* What all daemons say of themselves and of one another, and the ends of their logs, as notes. */
void town_show(void);

#endif
