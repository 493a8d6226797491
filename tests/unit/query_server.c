/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * query_server RUN_DIR NAMES [PRIVATE_NAMES [LOSS [LEASE_MS [JEOPARDY [KEY=VALUE…]]]]]: a node that does not exist, for tests of the
 * command; with LEASE_MS in a cluster, or with 0 lapsed from it; each key is one of more() and says what is wrong there. Serves RUN_DIR/io.dlock until SIGTERM; SIGUSR1 makes three
 * events happen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "query_serve.h"

static void more(struct query_cluster *c, struct fake *f, char *arg)
{
	char *value = strchr(arg, '=');
	long long n = value ? atoll(value + 1) : 0;

	if (!value)
		return;
	*value++ = 0;
	if (!strcmp(arg, "store"))
		c->store_us = 1000, c->store_worst_us = (uint64_t)n;
	else if (!strcmp(arg, "orphans"))
		c->orphans = (unsigned)n;
	else if (!strcmp(arg, "opening"))
		c->opening = (unsigned)n;
	else if (!strcmp(arg, "odd"))
		c->odd = (unsigned)n;
	else if (!strcmp(arg, "left_out"))
		c->left_out = (unsigned)n;
	else if (!strcmp(arg, "silent"))
		c->silent = (unsigned)n;
	else if (!strcmp(arg, "cert"))
		c->cert_until = time(NULL) + n;
	else if (!strcmp(arg, "ca"))
		c->ca_until = time(NULL) + n;
	else if (!strcmp(arg, "keys"))
		c->keys_wrong = value;
	else if (!strcmp(arg, "state"))
		f->state_dir = value;
}

int main(int argc, char **argv)
{
	struct fake fake;
	char path[100];
	int fd, r;

	if (argc < 3)
		return 64;
	fake_init(&fake, (unsigned)atoi(argv[2]), argc > 3 ? (unsigned)atoi(argv[3]) : 0);
	fake.run_dir = argv[1];
	if (argc > 4 && argv[4][0])
		fake.loss = argv[4];
	if (argc > 5)
		fake.cluster = (struct query_cluster){
			.name = "prod", .address = "192.0.2.1:7420", .security = "pre-shared key 01234567", .ttl_ms = 5000,
			.lease_ms = (uint64_t)atoi(argv[5]), .jeopardy = argc > 6 && argv[6][0] ? argv[6] : NULL, .open = true,
			.members = atoi(argv[5]) ? 2 : 0, .shards = atoi(argv[5]) ? 40 : 0, .placed = atoi(argv[5]) ? 17 : 0, .lapses = !atoi(argv[5]),
		};
	for (int i = 7; i < argc; i++)
		more(&fake.cluster, &fake, argv[i]);
	snprintf(path, sizeof(path), "%s/io.dlock", argv[1]);
	fd = serve_listen(path);
	r = fd < 0 ? fd : serve(fd, &fake, 3, NULL);
	if (r < 0)
		fprintf(stderr, "query_server: %s\n", strerror(-r));
	return r < 0;
}
