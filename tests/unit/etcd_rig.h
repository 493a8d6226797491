/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Etcd members of a test's own: on loopback, at ports that were free, with their data in a directory that is
 * removed. They end with the test, however it ends.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "store_contract.h"

#define RIG_MEMBERS_MAX 3

enum rig_flags {
	RIG_TLS = 1,		/* and clients must show a certificate */
	RIG_SMALL = 2,		/* a quota that is soon used up */
	RIG_QUICK = 4,		/* elects another leader at once: for members that fail, and not for those that only get no processor */
};

struct etcd_rig {
	int n, flags;
	char dir[80];
	struct {
		pid_t pid;	/* 0: it does not run */
		unsigned client_port, peer_port;
	} members[RIG_MEMBERS_MAX];
};

/* A store on them; begins with an empty prefix. */
struct etcd_bench {
	struct store_contract contract;
	struct etcd_rig *rig;
	struct store_options options;
	char url[300], ca[120], cert[120], key[120], password_file[120];
	struct store_why why;
};

/* false: no etcd is installed here, and the line of TAP that says so has been printed. */
bool rig_possible(void);

void rig_start(struct etcd_rig *r, int n, int flags);
void rig_stop(struct etcd_rig *r);		/* takes down what runs, and removes the directory */
void rig_member_start(struct etcd_rig *r, int i);
void rig_member_signal(struct etcd_rig *r, int i, int signo);	/* SIGKILL, SIGSTOP: waits until it has ended, or stands still */

/* etcdctl with these arguments, as the shell takes them; its exit status. */
int rig_ctl(struct etcd_rig *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Which member a store asks now; -1: none. */
int rig_asked(struct etcd_rig *r, const struct store *s);

/* A prefix that nobody has used yet; with all members as hosts. */
void etcd_bench_init(struct etcd_bench *b, struct etcd_rig *r);

/* One of its own memory, NULL without; and cmocka's teardown, with that as the state. */
struct etcd_bench *etcd_bench_new(struct etcd_rig *r);
int etcd_bench_end(void **state);
void etcd_bench_open(struct etcd_bench *b);
void etcd_bench_close(struct etcd_bench *b);
void etcd_pump(struct store_contract *c);
