/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an etcd:// says. Pure.
 */
#pragma once

#include "store.h"

#define ETCD_HOSTS_MAX	16
#define ETCD_HOST_MAX	253	/* bytes: the longest name of the DNS */
#define ETCD_PREFIX_MAX	128	/* bytes, of the prefix in the url, and of all before a key */

struct etcd_url {
	bool tls;
	size_t n;
	struct {
		char name[ETCD_HOST_MAX + 1];	/* an IPv6 address without its brackets */
		unsigned port;
	} hosts[ETCD_HOSTS_MAX];
	char prefix[ETCD_PREFIX_MAX + 1];	/* "/a/b", without a slash at its end */
};

/* 0, or -EINVAL with the sentence. */
int etcd_url_parse(const char *url, struct etcd_url *ret, struct store_why *why);
