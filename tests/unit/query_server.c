/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * query_server RUN_DIR NAMES [PRIVATE_NAMES [LOSS]]: a node that does not exist, for tests of the
 * command. Serves RUN_DIR/io.dlock until SIGTERM; SIGUSR1 makes three events happen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query_serve.h"

int main(int argc, char **argv)
{
	struct fake fake;
	char path[100];
	int fd, r;

	if (argc < 3)
		return 64;
	fake_init(&fake, (unsigned)atoi(argv[2]), argc > 3 ? (unsigned)atoi(argv[3]) : 0);
	fake.run_dir = argv[1];
	if (argc > 4)
		fake.loss = argv[4];
	snprintf(path, sizeof(path), "%s/io.dlock", argv[1]);
	fd = serve_listen(path);
	r = fd < 0 ? fd : serve(fd, &fake, 3, NULL);
	if (r < 0)
		fprintf(stderr, "query_server: %s\n", strerror(-r));
	return r < 0;
}
