/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An etcd of three members on hosts of the lab that follow one another, with its data in harness.dir. */
#ifndef CLUSTER_ETCD_H
#define CLUSTER_ETCD_H

#include <sys/types.h>

#define ETCD_MEMBERS 3
#define ETCD_PORT 2379

/*
 * Starts the i-th (from 0), on host first + i. Clusters are told apart by their name; `more` are further options,
 * NULL-terminated, or NULL.
 */
pid_t etcd_member_begin(const char *name, unsigned first, unsigned i, const char *log, char *const *more);

#endif
