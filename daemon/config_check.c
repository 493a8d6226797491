/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The configuration as a whole, against the store's and the net's own rules. */
#include "config.h"

#include <errno.h>

#include "net/address.h"
#include "net/keys.h"
#include "store/store.h"

#define NEEDS_CLUSTER "%s=%s needs a cluster, and this node is alone: no other can use its store. Set [Cluster] Store=etcd://..., or remove the line."

#define fail(m, error, ...) (config_message_add((m), CONFIG_ERROR, NULL, 0, __VA_ARGS__), (error))

static const char *given(const struct config *c, enum config_text which)
{
	return c->text[which];
}

/* What a node alone would leave unused, while somebody relies on it. */
static int check_alone(const struct config *c, struct config_messages *m)
{
	static const struct { const char *key; enum config_text which; } only[] = {
		{ "[Node] Listen", CONFIG_LISTEN }, { "[Node] Address", CONFIG_ADDRESS }, { "[Cluster] Key", CONFIG_KEY },
		{ "[Cluster] Cert", CONFIG_CERT }, { "[Cluster] CertKey", CONFIG_CERT_KEY }, { "[Cluster] CA", CONFIG_CA },
		{ "[Cluster] CRL", CONFIG_CRL }, { "[Cluster] StoreUser", CONFIG_STORE_USER },
		{ "[Cluster] StorePasswordFile", CONFIG_STORE_PASSWORD }, { "[Cluster] StoreCA", CONFIG_STORE_CA },
		{ "[Cluster] StoreCert", CONFIG_STORE_CERT }, { "[Cluster] StoreCertKey", CONFIG_STORE_CERT_KEY },
	};
	int r = 0;

	for (size_t i = 0; i < sizeof only / sizeof *only; i++)
		if (given(c, only[i].which))
			r = fail(m, -EINVAL, NEEDS_CLUSTER, only[i].key, given(c, only[i].which));
	if (c->ttl_given)
		r = fail(m, -EINVAL, NEEDS_CLUSTER, "[Cluster] TTL", "");
	if (c->id_reserve_given)
		r = fail(m, -EINVAL, NEEDS_CLUSTER, "[Cluster] IdReserve", "");
	if (!c->master)
		r = fail(m, -EINVAL, "[Node] Master=no needs a cluster: a node alone masters all its locks.");
	return r;
}

/* What a daemon would stumble over at its start, and an address that would hide it from the others. */
static int check_addresses(const struct config *c, struct config_messages *m)
{
	const char *where = given(c, CONFIG_ADDRESS);
	struct address_text t;
	union address a;
	bool good = true;

	if (address_parse(config_listen(c), &a) < 0)
		return fail(m, -EINVAL, "Listen=%s is no address of this host: write 192.0.2.1:7420, [2001:db8::1]:7420, or * for all.",
			    config_listen(c));
	for (const char *p = where; p && *p; p++)
		good &= *p > ' ' && *p <= '~';
	if (where && (!good || address_split(where, &t) < 0 || !t.host[0] || t.host[0] == '*' || !t.port))
		return fail(m, -EINVAL, "Address=%s is no address that others could connect to: write NAME:PORT, 192.0.2.1:7420 or "
			    "[2001:db8::1]:7420.", where);
	return 0;
}

static int check_keys(const struct config *c, struct config_messages *m)
{
	struct tls_files files = config_tls(c);
	struct tls_keys *keys = NULL;
	char why[TLS_WHY_MAX];
	int r = tls_keys_load(&files, &keys, why);

	tls_keys_free(keys);
	if (r < 0)
		return fail(m, r, "%s", why);
	r = tls_listen_check(config_listen(c), &files, why);
	return r < 0 ? fail(m, r, "%s", why) : 0;
}

int config_check(const struct config *c, struct config_messages *m)
{
	struct store_why why;
	int r = given(c, CONFIG_STORE) ? store_url_check(given(c, CONFIG_STORE), &why) : 0;

	if (r < 0)
		return fail(m, r, "[Cluster] %s", why.text);
	if (!config_is_cluster(c))
		return check_alone(c, m);
	r = check_addresses(c, m);
	return r < 0 ? r : check_keys(c, m);
}

const char *config_listen(const struct config *c)
{
	return given(c, CONFIG_LISTEN) ? given(c, CONFIG_LISTEN) : "*";
}

struct tls_files config_tls(const struct config *c)
{
	return (struct tls_files){
		.key = given(c, CONFIG_KEY), .cert = given(c, CONFIG_CERT), .cert_key = given(c, CONFIG_CERT_KEY),
		.ca = given(c, CONFIG_CA), .crl = given(c, CONFIG_CRL),
	};
}
