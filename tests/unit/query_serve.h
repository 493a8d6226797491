/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Serves a fake node on a real socket, in the process that calls it. */
#ifndef TESTS_QUERY_SERVE_H
#define TESTS_QUERY_SERVE_H

#include "query_fake.h"

/* A socket that listens at path. Negative errno. */
int serve_listen(const char *path);

/*
 * Until SIGTERM: 0, or a negative errno. Each SIGUSR1 makes events_a_signal events happen: "grant"
 * of default/n00000000 and on. Log lines go to log_path, where that is not NULL.
 */
int serve(int listen_fd, struct fake *fake, unsigned events_a_signal, const char *log_path);

#endif
