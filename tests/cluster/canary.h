/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether the machine lets the cluster run at all, found out without asking the cluster: else what was lost because a daemon had no
 * processor would be called lost for nothing. It says in the history (docs/HISTORY.md) who stood still, from when until when.
 *
 * Two things are looked at. How long the threads of daemons and stores have waited in the kernel's queues: its own account of
 * that, in /proc. And threads of our own, one on each processor, which sleep and see whether they wake in time: they also see it when the
 * machine itself had no processor, as a virtual one may.
 */
#ifndef CLUSTER_CANARY_H
#define CLUSTER_CANARY_H

#include <stdint.h>
#include <sys/types.h>

#define CANARY_WATCHED_MAX 32

struct canary_watched {
	char what[24];                   /* "daemon 2" */
	char hosts[80];                  /* whose leases it may cost: "2" or "1,2,3" */
	const volatile pid_t *pid;       /* shared memory: who it is now; 0: nobody */
};

/*
 * A process of its own, which ends with us, scheduled as we are and as whoever we start is. It tells of each time when a thread could
 * have run and did not for `still_ns`. all_hosts: what a processor may cost. All of it stays the caller's and as it is. Returns that process.
 */
pid_t canary_begin(const char *history, uint64_t still_ns, const char *all_hosts, const struct canary_watched *v, unsigned n);

/* What has been seen is in the history when it returns. */
void canary_end(void);

#endif
