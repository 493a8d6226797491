/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "etcd_url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT		2379
#define PREFIX		"/dlock"
#define LETTERS		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

struct parser {
	const char *url;
	struct etcd_url *ret;
	struct store_why *why;
};

#define fail(p, format, ...) (snprintf((p)->why->text, sizeof (p)->why->text, \
	"Store=%.200s: " format, (p)->url, ##__VA_ARGS__), -EINVAL)

static int parse_port(struct parser *p, const char *text, size_t n, unsigned *ret)
{
	unsigned port = 0;

	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9' || (port = port * 10 + (unsigned)(text[i] - '0')) > 65535)
			return fail(p, "\"%.*s\" is no port.", (int)n, text);
	}
	if (n == 0 || port == 0)
		return fail(p, "a port is a number of 1 to 65535.");
	*ret = port;
	return 0;
}

static int parse_name(struct parser *p, const char *text, size_t n, bool bracketed, char *ret)
{
	struct in6_addr address;

	if (n == 0 || n > ETCD_HOST_MAX)
		return fail(p, "a host's name is missing, or too long. Write etcd://h1:2379,h2:2379/prefix");
	memcpy(ret, text, n);
	ret[n] = 0;
	if (bracketed && inet_pton(AF_INET6, ret, &address) != 1)
		return fail(p, "\"%s\" is no IPv6 address.", ret);
	if (!bracketed && strspn(ret, LETTERS) != n)
		return fail(p, "\"%s\" is no host's name or address (an IPv6 address stands in brackets).", ret);
	return 0;
}

/* One HOST[:PORT]. */
static int parse_host(struct parser *p, const char *text, size_t n)
{
	const char *end = text + n, *name = text, *name_end, *colon;
	bool bracketed = n && text[0] == '[';
	struct etcd_url *u = p->ret;
	int r;

	if (u->n == ETCD_HOSTS_MAX)
		return fail(p, "there are more than %d hosts.", ETCD_HOSTS_MAX);
	if (memchr(text, '@', n))
		return fail(p, "user and password do not stand in it. Use StoreUser= and StorePasswordFile=.");
	if (bracketed) {
		name++;
		name_end = memchr(text, ']', n);
		if (!name_end)
			return fail(p, "a bracket is not closed.");
		colon = name_end + 1;
	} else {
		colon = memchr(text, ':', n);
		name_end = colon = colon ? colon : end;
	}
	if (colon < end && *colon != ':')
		return fail(p, "after a bracket comes a colon and the port.");
	r = parse_name(p, name, (size_t)(name_end - name), bracketed, u->hosts[u->n].name);
	u->hosts[u->n].port = PORT;
	if (r == 0 && colon < end)
		r = parse_port(p, colon + 1, (size_t)(end - colon - 1), &u->hosts[u->n].port);
	for (size_t i = 0; r == 0 && i < u->n; i++)
		if (u->hosts[i].port == u->hosts[u->n].port && !strcmp(u->hosts[i].name, u->hosts[u->n].name))
			return fail(p, "the host %s stands in it twice.", u->hosts[i].name);
	if (r == 0)
		u->n++;
	return r;
}

static int parse_prefix(struct parser *p, const char *text)
{
	size_t n = strlen(text);

	while (n && text[n - 1] == '/')
		n--;
	if (n > ETCD_PREFIX_MAX)
		return fail(p, "the prefix is longer than %d bytes.", ETCD_PREFIX_MAX);
	if (strspn(text, LETTERS "/") != strlen(text) || strstr(text, "//"))
		return fail(p, "the prefix is of letters, digits and _ - . between slashes.");
	snprintf(p->ret->prefix, sizeof p->ret->prefix, "%.*s", (int)n, n ? text : PREFIX);
	if (n == 0)
		strcpy(p->ret->prefix, PREFIX);
	return 0;
}

int etcd_url_parse(const char *url, struct etcd_url *ret, struct store_why *why)
{
	struct etcd_url u = { .n = 0 };
	struct parser p = { url, &u, why };
	const char *hosts = strstr(url, "://"), *prefix;
	int r = 0;

	if (strlen(url) > STORE_URL_MAX)
		return fail(&p, "it is longer than %d bytes.", STORE_URL_MAX);
	if (strncmp(url, "etcd://", 7) != 0 && strncmp(url, "etcds://", 8) != 0)
		return fail(&p, "write etcd://h1:2379,h2:2379/prefix, or etcds://... for TLS.");
	u.tls = url[4] == 's';
	hosts += 3;
	prefix = hosts + strcspn(hosts, "/");
	while (r == 0) {
		size_t n = strcspn(hosts, ",/");

		r = parse_host(&p, hosts, n);
		hosts += n;
		if (*hosts != ',')
			break;
		hosts++;
	}
	if (r == 0)
		r = parse_prefix(&p, prefix);
	if (r == 0)
		*ret = u;
	return r;
}
