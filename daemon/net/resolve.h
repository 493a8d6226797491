/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names to addresses without holding up the loop: getaddrinfo() in a thread of its own for each, since a name server that
 * does not answer takes it many seconds. At most RESOLVE_MAX at a time; others wait in line. A thread that
 * is not wanted any more ends by itself, and is never waited for.
 */
#ifndef DLOCK_NET_RESOLVE_H
#define DLOCK_NET_RESOLVE_H

#include <stdint.h>

#include "address.h"

struct loop;
struct resolver;
struct resolve;

#define RESOLVE_MAX 8            /* threads */
#define RESOLVE_ADDRESSES 8      /* of one name */

/* n = 0: why says it. From the loop; the request is over then. */
typedef void (*resolve_fn)(void *arg, const union address *v, unsigned n, const char *why);

/* -ENOMEM, -EMFILE */
int resolver_create(struct loop *loop, struct resolver **ret);
void resolver_free(struct resolver *r);  /* takes NULL; no callbacks after it */

/* -ENOMEM */
int resolve_start(struct resolver *r, const char *host, uint16_t port, resolve_fn fn, void *arg, struct resolve **ret);
void resolve_stop(struct resolve *q);    /* takes NULL */

#endif
