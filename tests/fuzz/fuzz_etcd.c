/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as the answer of an etcd. The judge: what is believed is within the limits, and of dlock's keys.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/etcd_url.h"
#include "store/etcd_wire.h"

#define MUST(x) do { if (!(x)) abort(); } while (0)

static void decode(const char *data, size_t size)
{
	struct etcd_answer a;
	int r = etcd_wire_decode("/dlock/", data, size, &a);

	for (size_t i = 0; r == 0 && i < a.n_records; i++) {
		MUST(store_key_valid(a.records[i].key));
		MUST(a.records[i].size <= STORE_VALUE_MAX);
		MUST(a.records[i].version >= 1);
		MUST(a.records[i].value);
	}
	if (r == 0) {
		MUST(strlen(a.message) <= ETCD_MESSAGE_MAX);
		MUST(!a.last || strncmp(a.last, "/dlock/", 7) == 0);
		MUST(!a.token || !strpbrk(a.token, "\r\n "));
	}
	etcd_answer_done(&a);
}

static void url(const char *data, size_t size)
{
	char text[1200];
	struct etcd_url u;
	struct store_why why;

	if (size >= sizeof text - 10)
		return;
	memcpy(stpcpy(text, "etcd://"), data, size);
	text[7 + size] = 0;
	if (etcd_url_parse(text, &u, &why) < 0)
		return;
	MUST(u.n >= 1 && u.n <= ETCD_HOSTS_MAX);
	for (size_t i = 0; i < u.n; i++)
		MUST(u.hosts[i].name[0] && u.hosts[i].port >= 1 && u.hosts[i].port <= 65535);
	MUST(u.prefix[0] == '/' && strlen(u.prefix) <= ETCD_PREFIX_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	decode((const char *)data, size);
	url((const char *)data, size);
	return 0;
}
