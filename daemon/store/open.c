/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From a Store= to an engine. Which engines there are, and why some will never be, stands in one
 * table.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "etcd.h"
#include "file.h"
#include "store.h"

#define SUPPORTED "This release has file: (one node), etcd:// and etcds:// (many)."
#define ROLLS_BACK "It can lose what it has acknowledged when it fails over or a backup is put back, " \
		   "and then one lock could be granted twice. " SUPPORTED

struct engine {
	const char *scheme;
	bool shared;
	int (*check)(const char *url, struct store_why *why);
	int (*open)(const struct store_options *o, struct store **ret, struct store_why *why);
	const char *refused;	/* why there is no such engine */
};

static int file_check(const char *url, struct store_why *why)
{
	if (strcmp(url, "file:") == 0)
		return 0;
	snprintf(why->text, sizeof why->text, "Store=%.200s: the embedded store has its place in the "
		 "state directory. Write just file:", url);
	return -EINVAL;
}

static int file_open(const struct store_options *o, struct store **ret, struct store_why *why)
{
	return store_file_open(o->state_dir, NULL, ret, why);
}

static const struct engine engines[] = {
	{ "file:", false, file_check, file_open, NULL },
	{ "etcd:", true, store_etcd_check, store_etcd_open, NULL },
	{ "etcds:", true, store_etcd_check, store_etcd_open, NULL },
	{ "redis:", true, NULL, NULL, ROLLS_BACK },
	{ "postgresql:", true, NULL, NULL, ROLLS_BACK },
	{ "zookeeper:", true, NULL, NULL, "It would do, but there is no engine for it. " SUPPORTED },
	{ "consul:", true, NULL, NULL, "It would do, but there is no engine for it. " SUPPORTED },
};

static const struct engine *engine_find(const char *url)
{
	for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
		if (strncmp(url, engines[i].scheme, strlen(engines[i].scheme)) == 0)
			return &engines[i];
	return NULL;
}

int store_url_check(const char *url, struct store_why *why)
{
	const struct engine *e = engine_find(url);

	if (e && e->check)
		return e->check(url, why);
	snprintf(why->text, sizeof why->text, "Store=%.200s cannot be used. %s", url,
		 e ? e->refused : "No such store is known. " SUPPORTED);
	return e ? -ENOTSUP : -EINVAL;
}

bool store_url_shared(const char *url)
{
	const struct engine *e = engine_find(url);

	return e && e->shared;
}

int store_open(const struct store_options *options, struct store **ret, struct store_why *why)
{
	int r = store_url_check(options->url, why);

	return r < 0 ? r : engine_find(options->url)->open(options, ret, why);
}
