/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* daemon/net for a node that is alone: it never comes to that. The loop here has no sockets. */
#include <stdlib.h>

#include "../../daemon/net/keys.h"
#include "../../daemon/net/net.h"

int net_create(struct loop *loop, const struct net_options *o, const struct net_ops *ops, void *arg, struct net **ret)
{
	(void)loop, (void)o, (void)ops, (void)arg, (void)ret;
	abort();
}

void net_free(struct net *n)
{
	if (n)
		abort();
}

int net_listen(struct net *n, const char *where, char *ret_why)
{
	(void)n, (void)where, (void)ret_why;
	abort();
}

const char *net_listen_address(const struct net *n, unsigned i)
{
	(void)n, (void)i;
	abort();
}

void net_session(struct net *n, uint64_t session, uint32_t incarnation)
{
	(void)n, (void)session, (void)incarnation;
	abort();
}

int net_link(struct net *n, uint64_t session, const char *address)
{
	(void)n, (void)session, (void)address;
	abort();
}

void net_unlink(struct net *n, uint64_t session)
{
	(void)n, (void)session;
	abort();
}

void net_send(struct net *n, uint64_t session, uint64_t conn, const void *bytes, uint32_t frame_n)
{
	(void)n, (void)session, (void)conn, (void)bytes, (void)frame_n;
	abort();
}

uint32_t net_backlog(const struct net *n)
{
	(void)n;
	abort();
}

void net_link_event(struct net *n, const struct links_event *ev)
{
	(void)n, (void)ev;
	abort();
}

void net_keys(struct net *n, const struct tls_keys *keys)
{
	(void)n, (void)keys;
	abort();
}

void net_each(const struct net *n, void (*fn)(void *arg, const struct net_peer_info *p), void *arg)
{
	(void)n, (void)fn, (void)arg;
	abort();
}

void net_stats(const struct net *n, struct net_stats *ret)
{
	(void)n, (void)ret;
	abort();
}

const char *net_state_text(enum net_state s)
{
	(void)s;
	return "";
}

int tls_keys_load(const struct tls_files *f, struct tls_keys **ret, char why[TLS_WHY_MAX])
{
	(void)f, (void)ret, (void)why;
	abort();
}

void tls_keys_free(struct tls_keys *k)
{
	if (k)
		abort();
}

void tls_keys_until(const struct tls_keys *k, int64_t *ret_cert, int64_t *ret_ca)
{
	(void)k;
	*ret_cert = *ret_ca = 0;
}

int tls_files_look(const struct tls_files *f, const struct tls_keys *k, char why[TLS_WHY_MAX])
{
	(void)f, (void)k, (void)why;
	return 0;
}

const char *tls_keys_text(const struct tls_keys *k)
{
	(void)k;
	return "";
}

int tls_listen_check(const char *listen, const struct tls_files *f, char why[TLS_WHY_MAX])
{
	(void)listen, (void)f, (void)why;
	abort();
}
