/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * TLS 1.3 over bytes that somebody else carries: what comes in is fed, what goes out is pushed. Both ends prove
 * themselves; nothing older than 1.3, no tickets, no early data.
 *
 * Of a certificate is checked: it chains to CA=, is within its time, is not in CRL= (if given); and if it has
 * DNS names then one of them is the node's name, or begins with it and a dot (tls_allows()). One without any is good
 * for each node of the cluster. With a shared key whoever has it may say any name.
 *
 * GnuTLS rather than OpenSSL: it reads and writes by functions of ours, so that nothing is copied into memory
 * BIOs and out again, and has external pre-shared keys with (EC)DHE as plain credentials. Its licence is ours.
 */
#ifndef DLOCK_NET_TLS_H
#define DLOCK_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "keys.h"

#define TLS_FIRST_BYTE 0x16      /* of a handshake: tells it from a greeting in plain text */
#define TLS_RECORD_MAX 16384     /* bytes of ours in one record */

struct tls;

/* Copies. Negative: no memory. */
typedef int (*tls_push_fn)(void *arg, const void *data, size_t n);
typedef int (*tls_take_fn)(void *arg, const void *data, size_t n);

/* -ENOMEM, -EPROTO. The keys must outlive it. */
int tls_create(const struct tls_keys *k, bool server, tls_push_fn push, void *arg, struct tls **ret);
void tls_free(struct tls *t);    /* takes NULL */

/* What has come in. Stays the caller's, who calls the next two until they have used it up (-EAGAIN). */
void tls_feed(struct tls *t, const void *data, size_t n);

/* 0: done. -EAGAIN. -EPROTO: refused, by us or by the peer: tls_why(); an alert may have been pushed. */
int tls_handshake(struct tls *t);

/* Gives take what there is. -EAGAIN: that was all; 0: the peer has ended; -EPROTO; or what take returned, if negative. */
int tls_read(struct tls *t, tls_take_fn take, void *arg);

/* One record, n up to TLS_RECORD_MAX. -ENOMEM, -EPROTO */
int tls_write(struct tls *t, const void *data, size_t n);

void tls_bye(struct tls *t);

/* Whether the peer's certificate is good for this node's name. */
bool tls_allows(struct tls *t, const char *node);

/* Why it failed, for the log: with what to do. */
const char *tls_why(const struct tls *t);

/* "TLS 1.3, AES-128-GCM, pre-shared key" */
const char *tls_text(struct tls *t);

#endif
