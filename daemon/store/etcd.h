/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store in an etcd cluster (3.4 or later), through its JSON gateway.
 *
 *	etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX]	over plain TCP
 *	etcds://...					over TLS
 *
 * PORT is 2379 if it is not given, an IPv6 address stands in brackets, PREFIX is /dlock if it is not
 * given. The key K is kept as /PREFIX/CLUSTER/K (without CLUSTER/ where the cluster has no name).
 * Each host is a member of one and the same etcd cluster.
 *
 * Errors of requests, each with a sentence of its own from store_explain():
 */
#pragma once

#include <errno.h>

#include "store.h"

#define STORE_ETCD_ETIME	(-ETIMEDOUT)		/* no answer in time */
#define STORE_ETCD_EREFUSED	(-ECONNREFUSED)		/* nobody listens there */
#define STORE_ETCD_ENAME	(-EDESTADDRREQ)		/* a host's name was not found */
#define STORE_ETCD_ECONN	(-ECONNRESET)		/* connecting failed otherwise, or the connection broke */
#define STORE_ETCD_ETLS		(-EPROTO)		/* TLS: certificates, or only one side speaks it */
#define STORE_ETCD_ELOGIN	(-EACCES)		/* wrong user or password, or there is need for one */
#define STORE_ETCD_EPERM	(-EPERM)		/* the user may not use these keys */
#define STORE_ETCD_ELEADER	(-EHOSTDOWN)		/* etcd has no leader: its majority is missing */
#define STORE_ETCD_ESPACE	(-ENOSPC)		/* etcd's quota is used up */
#define STORE_ETCD_EFOREIGN	(-EPROTONOSUPPORT)	/* this is no etcd, or one that is too old */
#define STORE_ETCD_EANSWER	(-EBADMSG)		/* an answer that makes no sense */
#define STORE_ETCD_ECLUSTER	(-EXDEV)		/* the hosts are of different etcd clusters */
#define STORE_ETCD_EBACK	(-ESTALE)		/* etcd has gone back: it lacks what it had acknowledged */
#define STORE_ETCD_ESERVER	(-EREMOTEIO)		/* etcd says something else */

#define STORE_ETCD_LIST_MAX	(16 * 1024 * 1024)	/* bytes of keys and values; -EFBIG beyond */
#define STORE_ETCD_RECORDS_MAX	65536			/* of one list; -EFBIG beyond */
#define STORE_ETCD_PENDING_MAX	4096			/* requests under way; -EBUSY beyond */

int store_etcd_check(const char *url, struct store_why *why);
int store_etcd_open(const struct store_options *o, struct store **ret, struct store_why *why);

/* For status and tests. */
struct store_etcd_info {
	char host[264];		/* that is asked now; "": none is up */
	uint64_t cluster;	/* etcd's id of it; 0: not known yet */
	unsigned hosts_up;
	bool watching;		/* hints come at once; else every few seconds */
};

void store_etcd_info(const struct store *s, struct store_etcd_info *ret);
