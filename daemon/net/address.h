/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where a daemon listens, as text and as the system's address. Nothing here asks a name server. */
#ifndef DLOCK_NET_ADDRESS_H
#define DLOCK_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define ADDRESS_PORT 7420
#define ADDRESS_HOST_MAX 253
#define ADDRESS_TEXT_MAX (ADDRESS_HOST_MAX + 16)         /* with brackets, port and the final zero */

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* "HOST", "HOST:PORT", "[IPv6]", "[IPv6]:PORT", IPv6 alone; a host is a name, a number or *. */
struct address_text {
	char host[ADDRESS_HOST_MAX + 1];
	uint16_t port;
};

/* -EINVAL */
int address_split(const char *text, struct address_text *ret);

/* Numbers, "localhost" and "*" (all of IPv6 and IPv4). -ENOENT: a name, which has to be resolved; -EINVAL. */
int address_parse(const char *text, union address *ret);

/* "192.0.2.1:7420", "[2001:db8::1]:7420"; an IPv4 address in IPv6 clothes comes without them. */
void address_format(const union address *a, char ret[ADDRESS_TEXT_MAX]);

socklen_t address_size(const union address *a);
bool address_loopback(const union address *a);

/* Without the port; IPv6: only the first `bits`, and IPv4 in IPv6 clothes is IPv4. */
bool address_same_host(const union address *a, const union address *b, unsigned bits);

#endif
