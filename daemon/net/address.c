/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int port_parse(const char *text, uint16_t *ret)
{
	unsigned port = 0;
	size_t n = strspn(text, "0123456789");

	if (n < 1 || n > 5 || text[n])
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		port = port * 10 + (unsigned)(text[i] - '0');
	if (port > UINT16_MAX)
		return -EINVAL;
	*ret = (uint16_t)port;
	return 0;
}

static int host_put(struct address_text *t, const char *host, size_t n)
{
	if (n < 1 || n > ADDRESS_HOST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f)
			return -EINVAL;
	memcpy(t->host, host, n);
	t->host[n] = 0;
	return 0;
}

int address_split(const char *text, struct address_text *ret)
{
	const char *colon = strchr(text, ':'), *end;
	struct address_text t = { .port = ADDRESS_PORT };
	int r;

	if (*text == '[') {
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
		r = host_put(&t, text + 1, (size_t)(end - text - 1));
		colon = end[1] ? end + 1 : NULL;
	} else if (colon && strchr(colon + 1, ':')) {    /* IPv6 alone */
		r = host_put(&t, text, strlen(text));
		colon = NULL;
	} else {
		r = host_put(&t, text, colon ? (size_t)(colon - text) : strlen(text));
	}
	if (r == 0 && colon)
		r = port_parse(colon + 1, &t.port);
	if (r == 0)
		*ret = t;
	return r;
}

static bool host_parse(const char *host, union address *a)
{
	if (strcmp(host, "*") == 0) {
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_addr = in6addr_any;
		return true;
	}
	if (strcmp(host, "localhost") == 0)
		host = "127.0.0.1";
	if (inet_pton(AF_INET, host, &a->in.sin_addr) == 1) {
		a->in.sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, host, &a->in6.sin6_addr) == 1) {
		a->in6.sin6_family = AF_INET6;
		return true;
	}
	return false;
}

int address_parse(const char *text, union address *ret)
{
	union address a = { 0 };
	struct address_text t;
	int r = address_split(text, &t);

	if (r < 0)
		return r;
	if (!host_parse(t.host, &a))
		return strchr(t.host, ':') ? -EINVAL : -ENOENT;
	a.in.sin_port = htons(t.port);   /* the same place in both */
	*ret = a;
	return 0;
}

/* IPv4 as it is, or in IPv6 clothes. */
static bool as_ipv4(const union address *a, struct in_addr *ret)
{
	if (a->any.sa_family == AF_INET) {
		*ret = a->in.sin_addr;
		return true;
	}
	if (a->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr)) {
		memcpy(ret, &a->in6.sin6_addr.s6_addr[12], 4);
		return true;
	}
	return false;
}

void address_format(const union address *a, char ret[ADDRESS_TEXT_MAX])
{
	char host[INET6_ADDRSTRLEN] = "?";
	struct in_addr v4;

	if (as_ipv4(a, &v4)) {
		inet_ntop(AF_INET, &v4, host, sizeof host);
		snprintf(ret, ADDRESS_TEXT_MAX, "%s:%u", host, ntohs(a->in.sin_port));
	} else if (a->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof host);
		snprintf(ret, ADDRESS_TEXT_MAX, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		snprintf(ret, ADDRESS_TEXT_MAX, "%s", "?");
	}
}

socklen_t address_size(const union address *a)
{
	return a->any.sa_family == AF_INET ? sizeof a->in : sizeof a->in6;
}

bool address_loopback(const union address *a)
{
	struct in_addr v4;

	if (as_ipv4(a, &v4))
		return ntohl(v4.s_addr) >> 24 == 127;
	return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

bool address_same_host(const union address *a, const union address *b, unsigned bits)
{
	struct in_addr v4a, v4b;
	bool ipv4 = as_ipv4(a, &v4a);

	if (ipv4 != as_ipv4(b, &v4b))
		return false;
	if (ipv4)
		return v4a.s_addr == v4b.s_addr;
	if (a->any.sa_family != AF_INET6 || b->any.sa_family != AF_INET6)
		return false;
	return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, bits / 8) == 0;
}
