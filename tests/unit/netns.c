/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Through a socket of its own, with libnl's own objects; so a mistake of the module under test is
 * not made here as well.
 */
#include "netns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static struct nl_sock *tool;

void netns_make_pair(const char *a, const char *b)
{
	assert_int_equal(rtnl_link_veth_add(tool, a, b, getpid()), 0);
}

static struct rtnl_link *link_of(const char *name)
{
	struct rtnl_link *link = rtnl_link_alloc();

	assert_non_null(link);
	rtnl_link_set_ifindex(link, (int)if_nametoindex(name));
	return link;
}

void netns_remove_link(const char *name)
{
	struct rtnl_link *link = link_of(name);

	assert_int_equal(rtnl_link_delete(tool, link), 0);
	rtnl_link_put(link);
}

static void change_link(const char *name, struct rtnl_link *changes)
{
	struct rtnl_link *link = link_of(name);

	assert_int_equal(rtnl_link_change(tool, link, changes, 0), 0);
	rtnl_link_put(link);
	rtnl_link_put(changes);
}

void netns_set_up(const char *name, bool up)
{
	struct rtnl_link *changes = rtnl_link_alloc();

	assert_non_null(changes);
	if (up)
		rtnl_link_set_flags(changes, IFF_UP);
	else
		rtnl_link_unset_flags(changes, IFF_UP);
	change_link(name, changes);
}

void netns_set_name(const char *name, const char *to)
{
	struct rtnl_link *changes = rtnl_link_alloc();

	assert_non_null(changes);
	rtnl_link_set_name(changes, to);
	change_link(name, changes);
}

void netns_set_mtu(const char *name, unsigned mtu)
{
	struct rtnl_link *changes = rtnl_link_alloc();

	assert_non_null(changes);
	rtnl_link_set_mtu(changes, mtu);
	change_link(name, changes);
}

int netns_try_address(const char *name, const char *text, unsigned flags, bool add)
{
	struct rtnl_addr *address = rtnl_addr_alloc();
	struct nl_addr *local;
	int r;

	assert_non_null(address);
	assert_int_equal(nl_addr_parse(text, AF_UNSPEC, &local), 0);
	rtnl_addr_set_ifindex(address, (int)if_nametoindex(name));
	assert_int_equal(rtnl_addr_set_local(address, local), 0);
	rtnl_addr_set_flags(address, flags);
	r = add ? rtnl_addr_add(tool, address, 0) : rtnl_addr_delete(tool, address, 0);
	nl_addr_put(local);
	rtnl_addr_put(address);
	return r;
}

void netns_add_address(const char *name, const char *text)
{
	assert_int_equal(netns_try_address(name, text, IFA_F_NODAD, true), 0);
}

void netns_remove_address(const char *name, const char *text)
{
	assert_int_equal(netns_try_address(name, text, 0, false), 0);
}

bool netns_make_bridge(const char *name)
{
	return rtnl_link_bridge_add(tool, name) == 0;
}

void netns_enslave(const char *bridge, const char *port)
{
	struct rtnl_link *b = link_of(bridge), *p = link_of(port);

	assert_int_equal(rtnl_link_enslave(tool, b, p), 0);
	rtnl_link_put(b);
	rtnl_link_put(p);
}

void netns_release(const char *port)
{
	struct rtnl_link *p = link_of(port);

	assert_int_equal(rtnl_link_release(tool, p), 0);
	rtnl_link_put(p);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return;
	fputs(text, f);
	fclose(f);
}

bool netns_enter(void)
{
	unsigned uid = geteuid();
	char map[32];

	if (unshare(CLONE_NEWNET) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
			return false;
		snprintf(map, sizeof map, "0 %u 1", uid);
		write_text("/proc/self/uid_map", map);
	}
	/* No addresses but the test's own. */
	write_text("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
	tool = nl_socket_alloc();
	if (!tool || nl_connect(tool, NETLINK_ROUTE) < 0 ||
	    rtnl_link_veth_add(tool, "v0", "v1", getpid()) < 0)
		return false;
	netns_remove_link("v0");
	return true;
}

void netns_done(void)
{
	nl_socket_free(tool);
}
