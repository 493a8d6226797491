/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a client can hold, and how. All calls return what dlock.h says. */
#ifndef CLUSTER_SORTS_H
#define CLUSTER_SORTS_H

#include <dlock.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SORTS 3

/* weight 0: all of it, exclusively. */
struct sort {
	const char *prefix;              /* of its names */
	unsigned limit;                  /* of permits; 0: exclusive, or shared */
	bool shared;                     /* it may be taken with weight 1 */
	int (*open)(void **ret, const char *name, const dlock_attr_t *attr);
	int (*wait)(void *h, unsigned weight);
	int (*try)(void *h, unsigned weight);
	int (*timed)(void *h, unsigned weight, const struct timespec *abs);      /* CLOCK_MONOTONIC */
	int (*check)(void *h);
	int (*token)(void *h, uint64_t *ret);
	int (*give)(void *h, unsigned weight);
	int (*close)(void *h);           /* NULL: it is kept open */
	int (*leader)(void *h, uint64_t *ret);   /* the term; NULL: nobody leads there */
	bool lock;                       /* it can be upgraded and downgraded, and carries a value */
};

extern const struct sort sorts[SORTS];

#endif
