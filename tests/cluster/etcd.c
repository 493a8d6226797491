/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "etcd.h"

#include <stdio.h>

#include "../e2e/harness.h"
#include "lab.h"

#define PEER_PORT 2380
#define MORE_MAX 16

/* Members find one another by this; it is the same for all, and so is the order. */
static void members_text(const char *name, unsigned first, char *ret, size_t n)
{
	size_t at = 0;

	for (unsigned i = 0; i < ETCD_MEMBERS; i++)
		at += (size_t)snprintf(ret + at, n - at, "%s%s%u=http://%s:%d", i ? "," : "", name, i, lab_address(first + i), PEER_PORT);
}

pid_t etcd_member_begin(const char *name, unsigned first, unsigned i, const char *log, char *const *more)
{
	char member[32], dir[100], client[64], peer[64], all[300];
	/* An elder etcd calls an architecture unsupported that it has since come to support. */
	char *environment[] = { "ETCD_UNSUPPORTED_ARCH=arm64", NULL };

	snprintf(member, sizeof member, "%s%u", name, i);
	snprintf(dir, sizeof dir, "%s/etcd.%s", harness.dir, member);
	snprintf(client, sizeof client, "http://%s:%d", lab_address(first + i), ETCD_PORT);
	snprintf(peer, sizeof peer, "http://%s:%d", lab_address(first + i), PEER_PORT);
	members_text(name, first, all, sizeof all);
	char *argv[22 + MORE_MAX] = {
		"etcd", "--name", member, "--data-dir", dir, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all,
		"--initial-cluster-state", "new", "--initial-cluster-token", (char *)name, "--unsafe-no-fsync" };
	for (unsigned k = 0, at = 20; more && more[k] && k < MORE_MAX; k++)
		argv[at++] = more[k];
	lab_pin((int)i);
	return lab_spawn(first + i, log, argv, environment);
}
