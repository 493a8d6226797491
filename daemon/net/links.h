/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The node's network links and their addresses, followed by rtnetlink(7). No privilege is needed,
 * and nothing is ever changed.
 *
 * The table is what the kernel had when it was last asked or last told. When it tells faster than we
 * listen (ENOBUFS), all is asked for again and compared, so that the table is right afterwards and
 * every difference has been an event; only what came and went in between is not seen.
 *
 * A link is usable when it is up and running. Events of one link come as a bracket: new, up,
 * addresses added … addresses removed, down, gone.
 */
#ifndef DLOCK_NET_LINKS_H
#define DLOCK_NET_LINKS_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINKS_EVENTS(X) \
	X(NEW, "new") \
	X(GONE, "gone") \
	X(UP, "up") \
	X(DOWN, "down") \
	X(CHANGED, "changed")			/* its name or MTU */ \
	X(ADDRESS_ADDED, "address added") \
	X(ADDRESS_REMOVED, "address removed")

enum links_event_kind {
#define X(name, text) LINKS_##name,
	LINKS_EVENTS(X)
#undef X
};

/* An address that can be bound: an IPv6 address is none while its uniqueness is being checked. */
struct link_address {
	int family;			/* AF_INET or AF_INET6 */
	uint8_t prefix;			/* bits */
	uint8_t bytes[16];		/* the first 4 for AF_INET */
	char text[INET6_ADDRSTRLEN + 4];	/* "192.0.2.1/24" */
	unsigned round;			/* links.c's own mark */
};

struct link_info {
	int ifindex;
	char name[IFNAMSIZ];
	bool up, running, loopback;
	uint32_t mtu;
	const struct link_address *addresses;
	size_t n_addresses;
};

/* All pointers are good until the callback returns. */
struct links_event {
	enum links_event_kind kind;
	const struct link_info *link;	/* as it is after the event; for "gone", as it was */
	const struct link_address *address;	/* of the address events, else NULL */
};

struct links;

/* Callbacks may call links_each(), and nothing else of this module. */
typedef void (*links_event_fn)(void *arg, const struct links_event *event);
typedef void (*links_each_fn)(void *arg, const struct link_info *link);

/*
 * Asks the kernel for everything. -EAFNOSUPPORT, -EPERM and others: rtnetlink is not to be had here,
 * and the daemon can do without: links_explain() says it to people.
 */
int links_open(struct links **ret);

/* Takes NULL. */
void links_close(struct links *l);

/* The descriptor to watch for reading. */
int links_fd(const struct links *l);

/*
 * Takes in what the kernel has told. The number of events that came of it (with nobody to call too),
 * or a negative errno: then the table is out of date, and the next call asks for everything again.
 */
int links_ready(struct links *l);

void links_each(const struct links *l, links_each_fn fn, void *arg);

/* fn is called by links_ready() for each event. NULL: nobody is. */
void links_on_change(struct links *l, links_event_fn fn, void *arg);

const char *links_event_text(enum links_event_kind kind);

/* What it means that links_open() or links_ready() failed, in a sentence. */
const char *links_explain(int error);

#endif
