/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hosts on one machine: a network namespace each, joined by a bridge, whose cables can be broken.
 *
 * Host i has the address 10.77.0.i (i from 1). A host is a sleeping process that keeps its namespace;
 * the bridge lies in one of its own. So nothing has a name in the system, and all is gone with the test.
 *
 * What can be broken, and mended again: a direction between two hosts (dropped by the receiver's nftables), a cable
 * (the carrier is gone, which rtnetlink tells), the pace of a cable (pump.h).
 */
#ifndef CLUSTER_LAB_H
#define CLUSTER_LAB_H

#include <stdbool.h>
#include <sys/types.h>

#define LAB_HOSTS_MAX 16

/* After harness_begin(). Gives up if there are no namespaces or no nft. The hosts are 1 .. n. */
void lab_begin(unsigned n);

/* "10.77.0.3". Static, one for each host. */
const char *lab_address(unsigned host);

/* A child in that host's network, its output appended to `log` (NULL: to ours). */
pid_t lab_spawn(unsigned host, const char *log, char *const *argv, char *const *environment);

/* Whoever is spawned from now on runs on the n-th processor, modulo their number; negative: on any. */
void lab_pin(int n);

/* This thread's sockets are that host's from now on; 0: the machine's own again. */
void lab_enter(unsigned host);

/* What comes from `from` is not heard by `to`. */
void lab_block(unsigned from, unsigned to);
void lab_unblock(unsigned from, unsigned to);
bool lab_blocked(unsigned from, unsigned to);
void lab_cable(unsigned host, bool whole);

/* All that host hears and says is late by ms, give or take jitter_ms; 0: as fast as before. */
void lab_slow(unsigned host, unsigned ms, unsigned jitter_ms);

/* Everything is whole again. */
void lab_heal(void);

#endif
