/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two sockets: one is subscribed and only listens, one asks and waits for the answer. What either
 * hears goes through the same functions, which compare it with the table; so a dump and a stream of
 * notices cannot be understood differently.
 *
 * The subscription stands before the first dump is asked for. A notice that is older than the dump
 * may then be heard after it; it can take the table back for a moment, until the later notices that
 * are in the queue behind it are heard too.
 *
 * A dump numbers its round. What has not been seen in a complete round is gone.
 */
#include "links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_SIZE	(256 * 1024)	/* bytes that the kernel may be ahead of us */
#define BATCH_MAX	256		/* notices taken in by one links_ready() */
#define DUMP_TRIES	10		/* a dump is void when something changes meanwhile */

struct entry {
	struct link_info info;			/* its addresses are these: */
	struct link_address *addresses;
	unsigned round;
};

struct links {
	struct nl_sock *notices, *requests;
	struct entry **entries;
	size_t n_entries;
	links_event_fn on_change;
	void *on_change_arg;
	unsigned round;
	int events;				/* since links_ready() began */
	int error;				/* why the table is out of date; 0: it is not */
};

/* --- Telling --- */

static void tell(struct links *l, enum links_event_kind kind, const struct entry *e,
		 const struct link_address *address)
{
	struct links_event event = { .kind = kind, .link = &e->info, .address = address };

	l->events++;
	if (l->on_change)
		l->on_change(l->on_change_arg, &event);
}

static bool usable(const struct link_info *info)
{
	return info->up && info->running;
}

/* --- The table --- */

static struct entry *entry_find(const struct links *l, int ifindex)
{
	for (size_t i = 0; i < l->n_entries; i++)
		if (l->entries[i]->info.ifindex == ifindex)
			return l->entries[i];
	return NULL;
}

static void entry_free(struct entry *e)
{
	free(e->addresses);
	free(e);
}

static struct entry *entry_add(struct links *l, int ifindex)
{
	struct entry **entries = reallocarray(l->entries, l->n_entries + 1, sizeof *entries);
	struct entry *e;

	if (!entries)
		return NULL;
	l->entries = entries;
	e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	e->info.ifindex = ifindex;
	entries[l->n_entries++] = e;
	return e;
}

static struct link_address *address_find(struct entry *e, const struct link_address *a)
{
	for (size_t i = 0; i < e->info.n_addresses; i++) {
		const struct link_address *b = &e->addresses[i];

		if (a->family == b->family && a->prefix == b->prefix &&
		    memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0)
			return &e->addresses[i];
	}
	return NULL;
}

static int address_add(struct links *l, struct entry *e, const struct link_address *a)
{
	size_t n = e->info.n_addresses;
	struct link_address *addresses = reallocarray(e->addresses, n + 1, sizeof *addresses);

	if (!addresses)
		return -ENOMEM;
	addresses[n] = *a;
	addresses[n].round = l->round;
	e->addresses = addresses;
	e->info.addresses = addresses;
	e->info.n_addresses++;
	tell(l, LINKS_ADDRESS_ADDED, e, a);
	return 0;
}

static void address_remove(struct links *l, struct entry *e, struct link_address *a)
{
	struct link_address gone = *a;
	size_t behind = (size_t)(e->addresses + e->info.n_addresses - (a + 1));

	memmove(a, a + 1, behind * sizeof *a);
	e->info.n_addresses--;
	tell(l, LINKS_ADDRESS_REMOVED, e, &gone);
}

static void entry_remove(struct links *l, struct entry *e)
{
	size_t i = 0;

	while (e->info.n_addresses)
		address_remove(l, e, &e->addresses[e->info.n_addresses - 1]);
	if (usable(&e->info)) {
		e->info.up = e->info.running = false;
		tell(l, LINKS_DOWN, e, NULL);
	}
	while (l->entries[i] != e)
		i++;
	l->entries[i] = l->entries[--l->n_entries];
	tell(l, LINKS_GONE, e, NULL);
	entry_free(e);
}

/* --- Understanding --- */

static int apply_link(struct links *l, const struct link_info *now)
{
	struct entry *e = entry_find(l, now->ifindex);
	struct link_info before;
	bool new = !e;

	if (new)
		e = entry_add(l, now->ifindex);
	if (!e)
		return -ENOMEM;
	before = e->info;
	e->round = l->round;
	e->info = *now;
	e->info.addresses = before.addresses;
	e->info.n_addresses = before.n_addresses;

	if (new)
		tell(l, LINKS_NEW, e, NULL);
	else if (strcmp(before.name, now->name) != 0 || before.mtu != now->mtu)
		tell(l, LINKS_CHANGED, e, NULL);
	if (usable(now) != usable(&before))
		tell(l, usable(now) ? LINKS_UP : LINKS_DOWN, e, NULL);
	return 0;
}

static int hear_link(struct links *l, struct nlmsghdr *h)
{
	static struct nla_policy policy[IFLA_MAX + 1] = {
		[IFLA_IFNAME] = { .type = NLA_STRING, .maxlen = IFNAMSIZ },
		[IFLA_MTU] = { .type = NLA_U32 },
	};
	struct nlattr *attr[IFLA_MAX + 1];
	const struct ifinfomsg *m;
	struct link_info info;
	struct entry *e;

	if (nlmsg_parse(h, sizeof *m, attr, IFLA_MAX, policy) < 0)
		return -EBADMSG;
	m = nlmsg_data(h);
	/* Bridges tell in the same group, and "gone" from them means only that a port has left. */
	if (m->ifi_family != AF_UNSPEC)
		return 0;
	if (h->nlmsg_type == RTM_DELLINK) {
		e = entry_find(l, m->ifi_index);
		if (e)
			entry_remove(l, e);
		return 0;
	}

	info = (struct link_info){
		.ifindex = m->ifi_index,
		.up = m->ifi_flags & IFF_UP,
		.running = m->ifi_flags & IFF_RUNNING,
		.loopback = m->ifi_flags & IFF_LOOPBACK,
		.mtu = attr[IFLA_MTU] ? nla_get_u32(attr[IFLA_MTU]) : 0,
	};
	if (attr[IFLA_IFNAME])
		nla_strlcpy(info.name, attr[IFLA_IFNAME], sizeof info.name);
	return apply_link(l, &info);
}

/* False: it is no address that we could say anything about. */
static bool read_address(const struct ifaddrmsg *m, const struct nlattr *from,
			 struct link_address *ret)
{
	struct link_address a = { .family = m->ifa_family, .prefix = m->ifa_prefixlen };
	size_t size = a.family == AF_INET ? 4 : 16;

	if (a.family != AF_INET && a.family != AF_INET6)
		return false;
	if (!from || (size_t)nla_len(from) != size || a.prefix > size * 8)
		return false;
	memcpy(a.bytes, nla_data(from), size);
	inet_ntop(a.family, a.bytes, a.text, INET6_ADDRSTRLEN);
	snprintf(a.text + strlen(a.text), sizeof a.text - strlen(a.text), "/%u", a.prefix);
	*ret = a;
	return true;
}

static int hear_address(struct links *l, struct nlmsghdr *h)
{
	static struct nla_policy policy[IFA_MAX + 1] = { [IFA_FLAGS] = { .type = NLA_U32 } };
	struct nlattr *attr[IFA_MAX + 1];
	const struct ifaddrmsg *m;
	struct link_address address;
	struct link_address *known;
	struct entry *e;
	uint32_t flags;
	bool there;

	if (nlmsg_parse(h, sizeof *m, attr, IFA_MAX, policy) < 0)
		return -EBADMSG;
	m = nlmsg_data(h);
	/* Of the two ends of a point-to-point link LOCAL is ours; without one, ADDRESS is. */
	if (!read_address(m, attr[IFA_LOCAL] ? attr[IFA_LOCAL] : attr[IFA_ADDRESS], &address))
		return 0;
	e = entry_find(l, (int)m->ifa_index);
	if (!e)
		return 0;

	flags = attr[IFA_FLAGS] ? nla_get_u32(attr[IFA_FLAGS]) : m->ifa_flags;
	there = h->nlmsg_type == RTM_NEWADDR && !(flags & IFA_F_DADFAILED) &&
		(!(flags & IFA_F_TENTATIVE) || flags & IFA_F_OPTIMISTIC);
	known = address_find(e, &address);
	if (there && !known)
		return address_add(l, e, &address);
	if (there)
		known->round = l->round;
	else if (known)
		address_remove(l, e, known);
	return 0;
}

static int hear(struct nl_msg *msg, void *arg)
{
	struct links *l = arg;
	struct nlmsghdr *h = nlmsg_hdr(msg);
	int r = 0;

	if (nlmsg_get_src(msg)->nl_pid != 0)	/* not the kernel */
		return NL_OK;
	switch (h->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		r = hear_link(l, h);
		break;
	case RTM_NEWADDR:
	case RTM_DELADDR:
		r = hear_address(l, h);
		break;
	}
	if (r < 0)
		l->error = r;
	return NL_OK;
}

/* --- Asking --- */

static int errno_of(int nle)
{
	switch (-nle) {
	case NLE_NOMEM:
		return -ENOMEM;
	case NLE_PERM:
		return -EPERM;
	case NLE_NOACCESS:
		return -EACCES;
	case NLE_AF_NOSUPPORT:
		return -EAFNOSUPPORT;
	case NLE_PROTO_MISMATCH:
		return -EPROTONOSUPPORT;
	case NLE_OPNOTSUPP:
		return -EOPNOTSUPP;
	case NLE_DUMP_INTR:
		return -EAGAIN;
	}
	return -EIO;
}

/* One dump, heard by hear(). -EAGAIN: something changed meanwhile. */
static int dump(struct links *l, int type)
{
	struct rtgenmsg all = { .rtgen_family = AF_UNSPEC };
	int r = nl_send_simple(l->requests, type, NLM_F_DUMP, &all, sizeof all);

	if (r >= 0)
		r = nl_recvmsgs_default(l->requests);
	return r < 0 ? errno_of(r) : l->error;
}

static void sweep(struct links *l)
{
	for (size_t i = l->n_entries; i-- > 0;) {
		struct entry *e = l->entries[i];

		for (size_t k = e->info.n_addresses; k-- > 0;)
			if (e->addresses[k].round != l->round)
				address_remove(l, e, &e->addresses[k]);
		if (e->round != l->round)
			entry_remove(l, e);
	}
}

static int resync(struct links *l)
{
	int r = -EAGAIN;

	for (int i = 0; i < DUMP_TRIES && r == -EAGAIN; i++) {
		l->error = 0;
		l->round++;
		r = dump(l, RTM_GETLINK);
		if (r == 0)
			r = dump(l, RTM_GETADDR);
	}
	l->error = r;
	if (r == 0) {
		sweep(l);
	} else if (r != -EAGAIN) {
		/* The rest of a broken answer must not be taken for the next one. */
		nl_close(l->requests);
		nl_connect(l->requests, NETLINK_ROUTE);
	}
	return r;
}

/* --- For callers --- */

static int socket_open(struct links *l, struct nl_sock **ret)
{
	struct nl_sock *s = nl_socket_alloc();
	int r;

	if (!s)
		return -ENOMEM;
	nl_socket_modify_cb(s, NL_CB_VALID, NL_CB_CUSTOM, hear, l);
	r = nl_connect(s, NETLINK_ROUTE);
	if (r < 0) {
		nl_socket_free(s);
		return errno_of(r);
	}
	*ret = s;
	return 0;
}

static int subscribe(struct links *l)
{
	int r;

	nl_socket_disable_seq_check(l->notices);
	nl_socket_set_buffer_size(l->notices, BUFFER_SIZE, 0);	/* a wish; ENOBUFS is survived */
	r = nl_socket_set_nonblocking(l->notices);
	if (r == 0)
		r = nl_socket_add_memberships(l->notices, RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR,
					      RTNLGRP_IPV6_IFADDR, 0);
	return r < 0 ? errno_of(r) : 0;
}

/* libnl has few numbers for the many ways in which a sandbox refuses; the system call has all. */
static int probe(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int links_open(struct links **ret)
{
	struct links *l = calloc(1, sizeof *l);
	int r;

	if (!l)
		return -ENOMEM;
	r = probe();
	if (r == 0)
		r = socket_open(l, &l->notices);
	if (r == 0)
		r = socket_open(l, &l->requests);
	if (r == 0)
		r = subscribe(l);
	if (r == 0)
		r = resync(l);
	if (r < 0) {
		links_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

void links_close(struct links *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n_entries; i++)
		entry_free(l->entries[i]);
	free(l->entries);
	nl_socket_free(l->notices);
	nl_socket_free(l->requests);
	free(l);
}

int links_fd(const struct links *l)
{
	return nl_socket_get_fd(l->notices);
}

int links_ready(struct links *l)
{
	int r = 0;

	l->events = 0;
	for (int i = 0; i < BATCH_MAX && r != -NLE_AGAIN; i++) {
		r = nl_recvmsgs_default(l->notices);
		if (r < 0 && r != -NLE_AGAIN)	/* notices were lost: ENOBUFS, as a rule */
			l->error = errno_of(r);
	}
	if (l->error)
		r = resync(l);
	return l->error ? r : l->events;
}

void links_each(const struct links *l, links_each_fn fn, void *arg)
{
	for (size_t i = 0; i < l->n_entries; i++)
		fn(arg, &l->entries[i]->info);
}

void links_on_change(struct links *l, links_event_fn fn, void *arg)
{
	l->on_change = fn;
	l->on_change_arg = arg;
}

const char *links_event_text(enum links_event_kind kind)
{
	switch (kind) {
#define X(name, text) case LINKS_##name: return text;
	LINKS_EVENTS(X)
#undef X
	}
	return "?";
}

const char *links_explain(int error)
{
	switch (error) {
	case -EAFNOSUPPORT:
	case -EPERM:
	case -EACCES:
	case -ENOSYS:
		return "rtnetlink is forbidden here, so this node does not follow its links and "
		       "addresses. Allow the address family AF_NETLINK (RestrictAddressFamilies= in a "
		       "unit, or the container's seccomp profile).";
	case -EAGAIN:
		return "links and addresses change faster than they can be listed; they are asked "
		       "for again.";
	}
	return "rtnetlink does not work, so this node does not follow its links and addresses.";
}
