/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What all parts of a worker share: who it is, its luck, and how it says what it called and was told. */
#ifndef CLUSTER_CLIENT_H
#define CLUSTER_CLIENT_H

#include <dlock.h>
#include <stdint.h>
#include <time.h>

struct client {
	unsigned host;
	uint64_t random;
	dlock_attr_t *attr;
};

extern struct client client;

uint32_t below(uint32_t n);
void nap_us(uint32_t us);
struct timespec in_ms(unsigned ms);      /* CLOCK_MONOTONIC */

/* `format` gives more fields, or is NULL. The return says them only if it is no error, or EOWNERDEAD. */
void call(const char *op, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void back(const char *op, const char *name, int error, const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
