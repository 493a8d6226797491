/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From options to an engine. What can be told without asking anybody is told here: options that do not fit
 * together, and files that cannot be read.
 */
#include "etcd_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_MS_MIN	100

void etcd_free(struct etcd *e)
{
	e->closing = true;
	watch_done(e);
	login_done(e);
	hosts_done(e);
	http_done(&e->http);
	free(e->watch_body.data);
	free(e->user);
	free(e->password_file);
	free(e->ca);
	free(e->cert);
	free(e->cert_key);
	free(e);
}

static int option_copy(const char *from, char **ret)
{
	*ret = from && *from ? strdup(from) : NULL;
	return from && *from && !*ret ? -ENOMEM : 0;
}

static int options_copy(struct etcd *e, const struct store_options *o)
{
	return option_copy(o->user, &e->user) < 0 || option_copy(o->password_file, &e->password_file) < 0 ||
	       option_copy(o->ca, &e->ca) < 0 || option_copy(o->cert, &e->cert) < 0 ||
	       option_copy(o->cert_key, &e->cert_key) < 0 ? -ENOMEM : 0;
}

/* What fits together, and which files can be read. */
static int options_check(const struct etcd *e, bool tls, char why[WHY_MAX])
{
	const struct { const char *name, *path; } files[] = {
		{ "StoreCA", e->ca }, { "StoreCert", e->cert }, { "StoreCertKey", e->cert_key },
		{ "StorePasswordFile", e->password_file },
	};

	why[0] = 0;
	if (!tls && (e->ca || e->cert || e->cert_key))
		etcd_say(why, "StoreCA=, StoreCert= and StoreCertKey= are for TLS: write Store=etcds://...");
	else if (!e->cert != !e->cert_key)
		etcd_say(why, "StoreCert= and StoreCertKey= belong together; one of them is missing.");
	else if (!e->user != !e->password_file)
		etcd_say(why, "StoreUser= and StorePasswordFile= belong together; one of them is missing.");
	for (size_t i = 0; !why[0] && i < sizeof files / sizeof *files; i++)
		if (files[i].path && access(files[i].path, R_OK) < 0)
			etcd_say(why, "%s=%.200s: cannot read it: %s.", files[i].name, files[i].path,
				 strerrordesc_np(errno));
	return why[0] ? -EINVAL : 0;
}

static int watch_one(struct etcd *e, const char *prefix)
{
	char key[WIRE_KEY_MAX], end[WIRE_KEY_MAX];

	if (!store_prefix_valid(prefix))
		return -EINVAL;
	snprintf(key, sizeof key, "%s%s", e->before, prefix);
	etcd_wire_end(key, end);
	return etcd_wire_watch(key, end, &e->watch_body);
}

static int watch_body(struct etcd *e, const char *const *prefixes)
{
	int r = prefixes ? 0 : watch_one(e, "");

	for (; r == 0 && prefixes && *prefixes; prefixes++)
		r = watch_one(e, *prefixes);
	return r;
}

static int etcd_set_up(struct etcd *e, const struct store_options *o, const struct etcd_url *u, char why[WHY_MAX])
{
	const char *cluster = o->cluster && *o->cluster ? o->cluster : NULL;
	struct http_tls tls;
	int r = options_copy(e, o);

	snprintf(e->before, sizeof e->before, "%s/%.64s%s", u->prefix, cluster ? cluster : "", cluster ? "/" : "");
	if (r == 0 && options_check(e, u->tls, why) < 0)
		return -EINVAL;
	tls = (struct http_tls){ e->ca, e->cert, e->cert_key };
	if (r == 0)
		r = watch_body(e, o->hints);
	if (r == 0)
		r = hosts_init(e, u);
	if (r == 0)
		r = http_init(&e->http, &tls);
	if (r < 0)
		etcd_say(why, "cannot open it: %s.", strerrordesc_np(-r));
	return r;
}

int store_etcd_check(const char *url, struct store_why *why)
{
	struct etcd_url u;

	return etcd_url_parse(url, &u, why);
}

int store_etcd_open(const struct store_options *o, struct store **ret, struct store_why *why)
{
	struct etcd_url u;
	struct etcd *e;
	char sentence[WHY_MAX];
	int r = etcd_url_parse(o->url, &u, why);

	if (r < 0)
		return r;
	e = calloc(1, sizeof *e);
	if (!e) {
		snprintf(why->text, sizeof why->text, "Store=%.200s: no memory to open it.", o->url);
		return -ENOMEM;
	}
	e->base.ops = &etcd_ops;
	e->request_ms = o->request_ms ? o->request_ms : STORE_REQUEST_MS;
	if (e->request_ms < REQUEST_MS_MIN)
		e->request_ms = REQUEST_MS_MIN;
	e->http = (struct http){ .epoll = -1, .curl_timer = -1, .tick_timer = -1 };
	r = etcd_set_up(e, o, &u, sentence);
	if (r < 0) {
		snprintf(why->text, sizeof why->text, "Store=%.200s: %s", o->url, sentence);
		etcd_free(e);
		return r;
	}
	e->now = http_now();
	etcd_step(e);
	*ret = &e->base;
	return 0;
}

void store_etcd_info(const struct store *s, struct store_etcd_info *ret)
{
	const struct etcd *e = (const struct etcd *)s;
	const struct etcd_host *asked = &e->hosts[e->current];

	assert(s->ops == &etcd_ops);
	*ret = (struct store_etcd_info){ .cluster = e->cluster, .watching = e->watching };
	for (size_t i = 0; i < e->n_hosts; i++)
		ret->hosts_up += e->hosts[i].state == HOST_UP;
	if (asked->state == HOST_UP)
		snprintf(ret->host, sizeof ret->host, "%s", asked->label);
}
